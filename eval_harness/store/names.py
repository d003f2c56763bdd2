"""Flag model names: letters that pass for others, another result's name, a baseline's name for a model or a model's for a baseline.

Nothing here refuses a name (`names.wrong_model_name` of the records does). See also: everything else in a result (`flags.py`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping

from dataset_builders.errors import clip
from dataset_builders.schema import LETTERS
from eval_harness.records.baselines import baseline

Published = Mapping[str, str | None]
"""Names in the papers' tables -> the kind of what they name (`baseline`: no model)."""
OWN = {baseline(rule)[0]: "baseline" for rule in ("chance", "oracle", *(f"always-{letter}" for letter in LETTERS))}
"""Names of medprobe's own baselines."""


def look_alike(
    name: str, others: Iterable[str] = (), published: Published | None = None, kind: str | None = None
) -> list[str]:
    """Flags for a name that looks like one of `others` and is another, or like a published one or a baseline's; of a model (`kind`) also
    for the name of a baseline, and of a baseline for that of a published model."""
    seen = skeleton(name)
    found = [
        f"the model's name looks like {clip(ascii(other))}, which is another result's"
        for other in dict.fromkeys(others)
        if other != name and skeleton(other) == seen
    ]
    for other, its_kind in {**OWN, **(published or {})}.items():
        if skeleton(other) != seen:
            continue
        if _plain(other) != _plain(name):
            whose = "the name of a baseline" if other in OWN else "a name that a paper reports"
            found.append(f"the model's name looks like {clip(ascii(other))}, {whose}")
        elif (its_kind == "baseline") != (kind == "baseline"):
            names, says = ("baseline", "model") if its_kind == "baseline" else ("model", "baseline")
            found.append(f"{clip(other)} is the name of a {names}, and this says that it is a {says}")
    return found


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.casefold())


def skeleton(name: str) -> str:
    """A name as it looks: letters of other scripts as the Latin ones that they pass for (Unicode TR 39, table of confusables), without
    case, blanks and signs. A skeleton is its own skeleton: what one pass leaves (a letter without its accent) may pass for another."""
    while (seen := _one_pass(name)) != name:
        name = seen
    return name


def _one_pass(name: str) -> str:
    looks = "".join(_latin(letter) for letter in unicodedata.normalize("NFKC", name.translate(_INVISIBLE)))
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", looks) if not unicodedata.combining(letter))
    same = re.sub(r"[\W_]+", "", plain.casefold()).translate(_SAME)
    return same.replace("rn", "m").replace("vv", "w")


_INVISIBLE = dict.fromkeys(
    [
        *map(ord, "\u115f\u1160\u3164\uffa0\u17b4\u17b5\u2800\u034f\u200c\u200d"),
        *range(0xFE00, 0xFE10),
        *range(0x180B, 0x1810),
    ],
    None,
)
"""Fillers that are drawn as nothing, and what only joins letters or varies how one is drawn."""
_SAME = str.maketrans({"0": "o", "1": "l", "i": "l"})


def _latin(letter: str) -> str:
    if letter.isascii():
        return letter
    from confusable_homoglyphs.confusables import confusables_data

    return next(
        (each["c"] for each in confusables_data.get(letter, ()) if each["c"].isascii() and each["c"].isalnum()), letter
    )
