"""Names of models and results: synonyms of one model, its metadata, and unique names of results in lists and typed queries.

Two small tables in `published/`, which the board shows, are about models. `model_names.csv`: a name as it is written in results, the model
it means, and the snapshot where the name states one. `model_facts.csv`: when a model was first released (year and month) and what says so,
its licence, where its weights are, its paper. What nothing was found to confirm is left out: an empty cell says nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from eval_harness.records.result import Model, Result
from leaderboard_space.data.published_results import printed_table, published_models, read_table
from leaderboard_space.data.ranks.groups import display_names
from leaderboard_space.data.store.sections import Entry
from leaderboard_space.html import is_shown_as


@dataclass(frozen=True)
class ModelMetadata:
    """A model under its one name. `released`: YYYY-MM, as `released_by` says; `weights`: a repository on the Hub;
    `paper`: an arXiv number with "arXiv:"."""

    name: str
    kind: str | None = None
    parameters: int | None = None
    released: str | None = None
    released_by: str | None = None
    licence: str | None = None
    weights: str | None = None
    paper: str | None = None
    written: tuple[tuple[str, str | None], ...] = ()
    """The names that mean it, each with the snapshot that the name states."""


def canonical_name(name: str) -> str:
    """The canonical name of a model that a result calls `name`; an unknown name is its own. Known names are case-insensitive.

    >>> identity_of("gpt-4o-2024-08-06"), identity_of("gpt-4o"), identity_of("My model")
    ('GPT-4o', 'GPT-4o', 'My model')
    """
    return _models_by_written_name().get(name.strip().casefold(), (name, None))[0]


def snapshot_of(model: Model) -> str | None:
    """The model snapshot of a result: as the result states it, else as in the model's name."""
    return model.snapshot_date or _models_by_written_name().get(model.name.strip().casefold(), ("", None))[1]


def model_metadata(name: str, results: Iterable[Result] = ()) -> ModelMetadata:
    """The metadata of the model called `name`. Kind and size: from the papers' table, else from the first of its `results` with them."""
    name = canonical_name(name)
    facts = _model_facts().get(name, {})
    said = [*([published_models()[name]] if name in published_models() else []), *(result.model for result in results)]
    return ModelMetadata(
        name,
        kind=next((model.kind for model in said if model.kind), None),
        parameters=next((model.parameters for model in said if model.parameters), None),
        released=facts.get("released") or None,
        released_by=facts.get("released_by") or None,
        licence=facts.get("licence") or None,
        weights=facts.get("weights") or None,
        paper=facts.get("paper") or None,
        written=tuple(
            (row["written"], row["snapshot"] or None) for row in read_table("model_names") if row["name"] == name
        ),
    )


@cache
def _models_by_written_name() -> dict[str, tuple[str, str | None]]:
    """A written name, folded -> the model it means, and the snapshot it states."""
    known = {name.casefold(): (name, None) for name in published_models()}
    weights = {row["weights"].casefold(): (row["name"], None) for row in read_table("model_facts") if row["weights"]}
    named = {row["written"].casefold(): (row["name"], row["snapshot"] or None) for row in read_table("model_names")}
    return {**weights, **named, **known}


@cache
def _model_facts() -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in read_table("model_facts")}


def entry_labels(entries: Sequence[Entry]) -> dict[str, str]:
    """A unique name for every result: the model, then what distinguishes its results."""
    names, marks = display_names(entries), {entry.key: _distinguishing_settings(entry) for entry in entries}
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
    named, meant = entry_labels(entries), canonical_name(said)
    exact = (entry for entry in entries if said in (entry.key, named[entry.key]))
    as_shown = (entry for entry in entries if is_shown_as(named[entry.key], said))
    by_model = (entry for entry in entries if entry.result.model.name.lower() == said.lower())
    by_identity = (entry for entry in entries if canonical_name(entry.result.model.name) == meant)
    return next(exact, None) or next(as_shown, None) or next(by_model, None) or next(by_identity, None)


def _distinguishing_settings(entry: Entry) -> tuple[str, ...]:
    """The attributes that distinguish results of one model."""
    method = entry.result.method
    return tuple(part for part in (method.name, method.prompt, entry_source(entry)) if part)


def entry_source(entry: Entry, metric: str | None = None, cell: tuple[str, str] | None = None) -> str:
    """`result_source` with the account that submitted the result, where the store knows it: `measured · alice`."""
    mark = result_source(entry.result, metric, cell)
    return f"{mark} · {entry.account}" if mark in ("measured", "aggregate") and entry.account else mark


def result_source(result: Result, metric: str | None = None, cell: tuple[str, str] | None = None) -> str:
    """The source of a number, in brief: `published · T1`, `measured` (submitted to us), `measured · by us`.

    With `metric` (and `cell`, a facet and its value) it is the one table that prints this number, else all the result's tables.
    """
    if result.kind == "published":
        own = printed_table(result, metric, *(cell or ("", ""))) if metric else None
        tables = re.findall(r"[0-9]+", own or (result.source.table if result.source else None) or "")
        shown = ", ".join(tables) if len(tables) < 4 else f"{', '.join(tables[:2])} … {tables[-1]}"
        return f"published · T{shown}" if tables else "published"
    if result.kind == "aggregate":
        return "aggregate"
    return "measured · by us" if result.provenance == "reproduced" else "measured"
