"""Declare the board side of a benchmark: labels, chance, words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class BoardSpec:
    """The board's side of a benchmark; only `label` must be given.

    `task`: what models are asked to do, after "asked to".
    `case`: what a case is called. `short_guess`: what chance is called in a heading, `guesses`: in a sentence about a metric (both
    "guessing" by default). `chains`: the facets of the tree of branches from the trunk to the leaves, one tuple for each group of the
    tree (None: each facet is a group of its own). `first_facet`: what the breakdown shows first. `hidden_splits`: splits whose answers
    their source keeps from the public. `chance`: exact chance of printed scores in percent, by metric (where
    it is not known, a paper's own random run stands in for it: `data/published_results.py`).
    `cases_sharing`: by facet value ("": all), how many cases a component that shares images holds on average over the components and over
    the cases, for the intervals of printed scores (`printed_interval`). `facet_metrics`: printed metrics that are cells of a facet:
    (facet, metric shown in the cell, {facet value: metrics}). `per_image`: units are questions, which may share a case with another
    image.
    `plot`: the drawing below the breakdown. `by_image_type`: it is also broken
    down by organ and modality of the image types. `published`: when its questions became public (YYYY-MM), for a model's exposure to them.
    `words`: what it is searched by besides its name and task.
    `aspects`: the scores that a topic's page shows side by side, with what a model does to earn each, after its name (the headline alone by
    default). `given_away`: metric -> facets whose labels are its answer: naming the modality of an image that was selected as an MRI is
    no finding, and ranks no model.
    """

    label: str
    task: str = "answer"
    case: str = "case"
    short_guess: str = "guessing"
    guesses: Mapping[str, str] = field(default_factory=dict)
    chains: tuple[tuple[str, ...], ...] | None = None
    first_facet: str | None = None
    hidden_splits: frozenset[str] = frozenset()
    chance: Mapping[str, float] = field(default_factory=dict)
    cases_sharing: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    facet_metrics: tuple[str, str, Mapping[str, tuple[str, ...]]] | None = None
    per_image: bool = False
    plot: Literal["slopes", "scatter"] | None = None
    by_image_type: bool = False
    published: str | None = None
    words: tuple[str, ...] = ()
    aspects: Mapping[str, str] = field(default_factory=dict)
    given_away: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
