"""Names of one model and facts about it: two small tables in `published/`, which the board shows.

`model_names.csv`: a name as it is written in results, the model it means, and the snapshot where the name states one.
`model_facts.csv`: when a model was first released (year and month) and what says so, its licence, where its weights are, its paper.
What nothing was found to confirm is left out: an empty cell says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from eval_harness.records.result import Model, Result
from leaderboard_space.data.published_results import models as published_models
from leaderboard_space.data.published_results import read_table


@dataclass(frozen=True)
class Identity:
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


def identity_of(name: str) -> str:
    """The one name of a model that a result calls `name`; a name that no table knows is its own. Case does not matter for known names.

    >>> identity_of("gpt-4o-2024-08-06"), identity_of("gpt-4o"), identity_of("My model")
    ('GPT-4o', 'GPT-4o', 'My model')
    """
    return _meant().get(name.strip().casefold(), (name, None))[0]


def snapshot_of(model: Model) -> str | None:
    """The snapshot that a result was got with: as it says itself, else as the model's name states it."""
    return model.snapshot_date or _meant().get(model.name.strip().casefold(), ("", None))[1]


def identity(name: str, results: Iterable[Result] = ()) -> Identity:
    """What is known of the model that `name` means. Kind and size: of the papers' table, else of the first of its `results` that says."""
    name = identity_of(name)
    facts = _facts().get(name, {})
    said = [*([published_models()[name]] if name in published_models() else []), *(result.model for result in results)]
    return Identity(
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
def _meant() -> dict[str, tuple[str, str | None]]:
    """A written name, folded -> the model it means, and the snapshot it states."""
    known = {name.casefold(): (name, None) for name in published_models()}
    weights = {row["weights"].casefold(): (row["name"], None) for row in read_table("model_facts") if row["weights"]}
    named = {row["written"].casefold(): (row["name"], row["snapshot"] or None) for row in read_table("model_names")}
    return {**weights, **named, **known}


@cache
def _facts() -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in read_table("model_facts")}
