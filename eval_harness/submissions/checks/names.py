"""What a human should look at in a model's name: letters that pass for others, another result's name, and words that only a store can say.

Nothing here refuses a name (`results.wrong_model_name` does). See also: everything else in a result (`plausibility.py`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

from dataset_builders.sources.problems import clip
from eval_harness.records.result import Model

CLAIMS = re.compile(
    r"(?<![a-z])(verified|reproduced|published|official|sota|state[ -]of[ -]the[ -]art)(?![a-z])|#\s*1(?!\d)", re.I
)
"""What only a store says of a result."""
PEOPLE = re.compile(r"(?<![a-z])(humans?|radiologists?|physicians?|clinicians?)(?![a-z])", re.I)
GUESSES = re.compile(r"(?<![a-z])(chance|random|guess(ing|es)?)(?![a-z])", re.I)
SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s?B(?![a-z])", re.I)
"""Billions of parameters in a name; `8x7B` and `A3B` are others."""
SIZES_APART = 3
"""How far the parameters may be from the number in the name: quantised weights are packed, and the name may leave out the vision tower."""


def odd_name(model: Model) -> Iterator[str]:
    """Flags for what a model's name, revision, date and parameters say."""
    name = model.name
    if found := CLAIMS.search(name):
        yield f"the model's name {clip(name)} says {found[0]!r}, which only a store can say of a result"
    if found := PEOPLE.search(name) or (None if model.kind == "baseline" else GUESSES.search(name)):
        yield f"the model's name {clip(name)} says {found[0]!r}: is it a model?"
    if signs := [c for c in name if unicodedata.category(c) == "So" and c not in "\u00a9\u00ae\u2117\u2120\u2122"]:
        yield f"the model's name {clip(ascii(name))} holds the sign {signs[0]!a}"
    if "----" in "".join("-" if unicodedata.category(c) in ("Mn", "Me") else "a" for c in name):
        yield f"the model's name {clip(ascii(name))} holds four marks and more above one letter"
    if model.parameters is not None and not 1_000_000 <= model.parameters <= 10**14 and model.kind != "baseline":
        yield f"model.parameters {model.parameters:,} is no size of a model"
    sizes = [1e9 * float(size) for size in SIZE.findall(name)]
    if (
        model.parameters
        and sizes
        and not any(1 / SIZES_APART <= model.parameters / size <= SIZES_APART for size in sizes)
    ):
        yield f"the model's name {clip(name)} and its {model.parameters:,} parameters do not go together"
    if model.snapshot_date is not None and not re.fullmatch(r"20[12]\d(-[01]\d(-[0-3]\d)?)?", model.snapshot_date):
        yield f"model.snapshot_date {clip(model.snapshot_date)} is no day, such as 2024-08-06"
    if model.revision is not None and not re.fullmatch(r"[\w.:/@+-]{1,100}", model.revision):
        yield f"model.revision {clip(model.revision)} is no name of a version"


def look_alike(name: str, others: Iterable[str] = ()) -> list[str]:
    """Flags for a name whose letters pass for Latin ones ("GPT-4\\u043e"), or that looks like one of `others` and is another."""
    seen = skeleton(name)
    found = []
    visible = name.translate(_INVISIBLE)
    if visible != name and (visible.isascii() or any(letter in name for letter in _BLANK)):
        found.append(f"the model's name {clip(ascii(name))} holds characters that cannot be seen")
    if not name.isascii() and seen.isascii() and any(_passes_for_latin(letter) for letter in name):
        found.append(
            f"the model's name {clip(ascii(name))} is written with letters that look like others: it reads {clip(seen)}"
        )
    for other in dict.fromkeys(others):
        if other != name and skeleton(other) == seen:
            found.append(f"the model's name looks like {clip(ascii(other))}, which is another result's")
    return found


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


_BLANK = "\u115f\u1160\u3164\uffa0\u17b4\u17b5\u2800"
"""Letters and signs that are drawn as nothing (Hangul and Khmer fillers, the empty Braille pattern)."""
_INVISIBLE = dict.fromkeys(map(ord, _BLANK + "\u034f\u200c\u200d"), None) | dict.fromkeys(
    [*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0), *range(0x180B, 0x1810)], None
)
"""And what only joins letters or varies how one is drawn: part of how some scripts and emoji are written."""
_SAME = str.maketrans({"0": "o", "1": "l", "i": "l"})


def _latin(letter: str) -> str:
    if letter.isascii():
        return letter
    from confusable_homoglyphs.confusables import confusables_data

    return next(
        (each["c"] for each in confusables_data.get(letter, ()) if each["c"].isascii() and each["c"].isalnum()), letter
    )


def _passes_for_latin(letter: str) -> bool:
    plain = unicodedata.normalize("NFKC", letter)
    if letter.isascii() or unicodedata.name(letter, "").startswith("LATIN"):
        return False
    return _latin(letter).isascii() or (plain.isascii() and plain.isalpha())
