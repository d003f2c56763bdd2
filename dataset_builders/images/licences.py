"""Decide from an image's licence whether the image may be redistributed.

Images are published with licence and source beside them, free of charge, as they are displayed: a
build applies the orientation, puts transparency on white, keeps the first frame and scales greys of
more than 8 bits (`images/picture.py`). The question is whether the licence permits anyone to
redistribute such copies:

- Public domain (CC0, PDM, works of the US government) and CC BY, CC BY-SA: yes.
- CC BY-NC, CC BY-NC-SA: yes, for non-commercial use. The licence travels with the row; commercial
  use would be the user's breach.
- CC BY-ND, CC BY-NC-ND: yes. Only adaptations may not be shared, and placing an unaltered file in a
  collection or another container is not an adaptation (CC 4.0, section 1(a) with 2(a)(4); the older
  versions explicitly allow collections and changes of format).
- Open data and software licences that allow copies (ODC-By, ODbL, PDDL, MIT, BSD, Apache-2.0): yes.
- Everything else: no. This includes "unknown", an empty cell, "all rights reserved", data use
  agreements and unrecognised licences. Silence is not permission.

`--private` is the alternative: a private repository does not redistribute. This is not legal
advice.
"""

import re

_CREATIVE_COMMONS = re.compile(r"cc by(?: nc)?(?: (?:sa|nd))?(?: [1-4] [05](?: [a-z]{2,3})?)?")
_OPEN_LICENCES = frozenset(
    {
        *("cc0", "cc0 1 0", "cc zero", "public domain", "us government work"),
        *("pdm", "pdm 1 0", "public domain mark", "public domain mark 1 0"),
        *("pddl", "pddl 1 0", "odc by", "odc by 1 0", "odbl", "odbl 1 0"),
        *("mit", "bsd 2 clause", "bsd 3 clause", "apache 2 0"),
    }
)
_LICENCE_URL = re.compile(r"https?://(?:www\.)?creativecommons\.org/(licenses|publicdomain)/([a-z-]+)/?([0-9.]*)/?\S*")


def allows_redistribution(licence: str | None) -> bool:
    """Check whether a licence permits redistribution of unmodified copies.

    Args:
        licence: the licence as the source writes it; several (`A; B`) must all permit it.

    >>> [allows_redistribution(name) for name in ("CC BY-NC-ND 4.0", "cc-by-4.0", "unknown", None)]
    [True, True, False, False]
    >>> allows_redistribution("https://creativecommons.org/licenses/by/4.0/")
    True
    """
    if not isinstance(licence, str):
        return False
    if ";" in licence:  # a question with several images
        return all(allows_redistribution(part) for part in licence.split(";"))
    text = licence.strip().lower()
    url = _LICENCE_URL.fullmatch(text)
    if url:
        prefix = "cc " if url[1] == "licenses" else ""
        text = f"{prefix}{url[2].replace('zero', 'cc0').replace('mark', 'pdm')} {url[3]}"
    text = re.sub(r"\b(license|licence|international|universal|unported|generic|deed)\b", " ", text)
    text = text.replace("creative commons", "cc").replace("attribution", "by").replace("noncommercial", "nc")
    text = text.replace("non-commercial", "nc").replace("sharealike", "sa").replace("share-alike", "sa")
    text = text.replace("noderivatives", "nd").replace("noderivs", "nd").replace("no-derivatives", "nd")

    # Separators vary between sources: "CC-BY-4.0", "CC BY 4.0", "cc_by/4.0".
    text = " ".join(re.split(r"[\s\-_./,()]+", text)).strip()
    if text in _OPEN_LICENCES:
        return True
    return _CREATIVE_COMMONS.fullmatch(text) is not None
