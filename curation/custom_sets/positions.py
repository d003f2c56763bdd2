"""Tell which position rules another one out, by the `position` rows of the vocabulary."""

from __future__ import annotations

import re
from functools import cache

from dataset_builders.terms import folded, singular, terms

SIDE, NAMED = "side", "part of the brain"
"""The axis of left and right, and that of parts which exclude one another by name."""
EXTENT, FRAME, SIDED = "extent", "frame", "name"
"""Rows of words for everywhere, for the picture's own sides, and for organs of which a side is a name (the liver's left lobe)."""


@cache
def _axes() -> dict[str, dict[str, str]]:
    """Axis -> word -> position."""
    found: dict[str, dict[str, str]] = {}
    for term in terms("position"):
        for axis in term.parents:
            found.setdefault(axis, {}).update(dict.fromkeys(term.names, term.concept))
    return found


@cache
def excludes_position(there: str, candidate: str) -> bool:
    """True where what lies at `there` does not lie at `candidate`: left and right, upper and lower ...; both in the same frame (the image's
    or the patient's sides), neither everywhere."""
    axes = _axes()
    first, second = set(folded(there).split()), set(folded(candidate).split())
    if (first | second) & axes[EXTENT].keys() or bool(first & axes[FRAME].keys()) != bool(second & axes[FRAME].keys()):
        return False
    part = _part(first)
    is_same_part = part == _part(second)
    middle = {word for word, position in axes["height"].items() if position == "middle"}
    for name, axis in axes.items():
        if name in (EXTENT, FRAME, SIDED):
            continue
        here, asks = {axis[word] for word in first & axis.keys()}, {axis[word] for word in second & axis.keys()}
        # Between left and right there is a middle, too, where nothing is said that it is the middle of.
        if len(here) != 1 or len(asks) != 1 or here == asks or (not part and (first | second) & middle & axis.keys()):
            continue
        if is_same_part or name == NAMED or (name == SIDE and not (first | second) & axes[SIDED].keys()):
            return True
    return False


def _part(words: set[str]) -> set[str]:
    """What a position is a part of: a lobe, a zone, a quadrant. The lower lobe of a lung reaches into its middle zone."""
    said = {word for axis in _axes().values() for word in axis} - _axes()[SIDED].keys()
    small = set(re.findall(r"\w+", "a an the of in and with to at is side sided region area portion part"))
    return {singular(word) for word in words - said - small}
