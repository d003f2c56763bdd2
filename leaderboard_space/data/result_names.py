"""Names and marks that tell results apart: in lists, in tables, and in what a reader types."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from eval_harness.records.result import Result
from leaderboard_space.data.identity import identity_of
from leaderboard_space.data.published_results import table_of
from leaderboard_space.data.ranks.groups import display_names
from leaderboard_space.data.store.sections import Entry
from leaderboard_space.html import is_shown_as


def labels(entries: list[Entry]) -> dict[str, str]:
    """A unique name for every result: the model, then what distinguishes its results."""
    names, marks = display_names(entries), {entry.key: _settings(entry) for entry in entries}
    alike = Counter(names[entry.key] for entry in entries)
    twice = Counter((names[entry.key], marks[entry.key]) for entry in entries)
    named: dict[str, str] = {}
    for entry in entries:
        parts = [names[entry.key]]
        if alike[parts[0]] > 1:
            parts += marks[entry.key]
            if twice[names[entry.key], marks[entry.key]] > 1:
                parts.append(entry.key.rsplit("/", 1)[-1])
        if entry.provenance.withdrawal is not None:
            parts.append("withdrawn")
        named[entry.key] = " · ".join(parts)
    return named


def find_result(entries: Sequence[Entry], said: str) -> Entry | None:
    """The result that is meant: by its key, its name in the list, its model's name, or another name of that model."""
    named, meant = labels(list(entries)), identity_of(said)
    exact = (entry for entry in entries if said in (entry.key, named[entry.key]))
    as_shown = (entry for entry in entries if is_shown_as(named[entry.key], said))
    by_model = (entry for entry in entries if entry.result.model.name.lower() == said.lower())
    by_identity = (entry for entry in entries if identity_of(entry.result.model.name) == meant)
    return next(exact, None) or next(as_shown, None) or next(by_model, None) or next(by_identity, None)


def _settings(entry: Entry) -> tuple[str, ...]:
    """What tells results of one model apart."""
    method = entry.result.method
    return tuple(part for part in (method.name, method.prompt, entry_mark(entry)) if part)


def entry_mark(entry: Entry, metric: str | None = None, cell: tuple[str, str] | None = None) -> str:
    """`source_mark` with the account that submitted the result, where the store knows it: `measured · alice`."""
    mark = source_mark(entry.result, metric, cell)
    return f"{mark} · {entry.account}" if mark in ("measured", "aggregate") and entry.account else mark


def source_mark(result: Result, metric: str | None = None, cell: tuple[str, str] | None = None) -> str:
    """Where a number comes from, in two words: `published · T1`, `measured` (submitted to us), `measured · by us`.

    With `metric` (and `cell`, a facet and its value) it is the one table that prints this number, else all the result's tables.
    """
    if result.kind == "published":
        own = table_of(result, metric, *(cell or ("", ""))) if metric else None
        tables = re.findall(r"[0-9]+", own or (result.source.table if result.source else None) or "")
        shown = ", ".join(tables) if len(tables) < 4 else f"{', '.join(tables[:2])} … {tables[-1]}"
        return f"published · T{shown}" if tables else "published"
    if result.kind == "aggregate":
        return "aggregate"
    return "measured · by us" if result.provenance == "reproduced" else "measured"
