"""Declare the board side of a benchmark: labels, chance, wording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class BoardSpec:
    """Board-specific declarations of a benchmark; only `label` is required.

    `task`: what models are asked to do, after "asked to". `case`: noun for a case. `short_guess`:
    chance in a heading; `guesses`: chance in a sentence, by metric (both "guessing" by default).
    `chains`: facets of the tree from trunk to leaves, one tuple per group (None: each facet is its
    own group). `first_facet`: default facet of the breakdown. `hidden_splits`: splits with hidden
    answers. `chance`: exact chance of printed scores in percent, by metric (if unknown, the paper's
    own random run is used: `data/published_results.py`). `cases_sharing`: by facet value ("": all),
    mean number of cases per component of shared images, over components and over cases, for the
    intervals of printed scores (`printed_interval`). `facet_metrics`: printed metrics that are
    cells of a facet: (facet, metric shown in the cell, {facet value: metrics}). `per_image`: units
    are questions, which may share a case with another image. `plot`: the plot below the breakdown.
    `by_image_type`: also broken down by organ and modality of the image types. `published`: month
    in which its questions became public (YYYY-MM). `words`: further search words. `aspects`:
    metrics shown side by side on a topic's page, with the behaviour that each rewards (by default
    the headline metric). `given_away`: metric -> facets whose labels are its answer: naming the
    modality of an image that was selected as an MRI is no finding and ranks no model.
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
