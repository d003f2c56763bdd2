"""List sets of questions that are in use elsewhere, with the meaning of their columns.

Each was checked against the set's own card or a loader that reads it (`checked`, and
`docs/any_set.md`); a set that could not be checked is not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A known set.

    `source`: its repository on the Hub, empty if its files have to be downloaded. `map`: its fields
    in the words of `--map`. `licence`: of the set, as its authors state it. `checked`: what the
    fields were checked against.
    """

    title: str
    source: str = ""
    map: str
    licence: str
    citation: str
    checked: str


PRESETS: Mapping[str, Preset] = {}
