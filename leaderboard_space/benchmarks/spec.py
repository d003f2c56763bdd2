"""Declare the board side of a benchmark: labels, chance, wording."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class BoardSpec:
    """Board-specific declarations of a benchmark; only `label` is required.

    - `task`: what models are asked to do; completes "asked to".
    - `case`: noun for a case.
    - `short_guess`, `guesses`: what chance is called in a heading, and in a sentence, by metric
      (both "guessing" by default).
    - `chains`: facets of the tree from trunk to leaves, one tuple per group (None: each facet is a
      group of its own).
    - `first_facet`: default facet of the breakdown.
    - `hidden_splits`: splits with hidden answers.
    - `chance`: exact chance of printed scores in percent, by metric. If it is unknown, the paper's
      own random run is used (`data/published_results.py`).
    - `cases_sharing`: facet value ("": all cases) -> mean size of the components that shared images
      form, averaged over components and over cases; for the intervals of printed scores
      (`printed_interval`).
    - `facet_metrics`: metrics that a paper prints side by side and the board shows as the cells of
      a facet: (facet, metric of the cells, {facet value: printed metrics}).
    - `per_image`: True if a case counts once for each of its selected questions, because its
      images may have different labels (MediConfusion's pairs).
    - `plot`: the plot below the breakdown.
    - `by_image_type`: also broken down by organ and modality of the image types.
    - `published`: month in which the questions became public (YYYY-MM).
    - `words`: further search words.
    - `aspects`: metrics shown side by side on a topic's page, with the behaviour that each rewards
      (by default the headline metric).
    - `given_away`: metric -> facets whose labels are the metric's answer. Among images selected as
      MRI, for example, naming the modality shows nothing and must not rank models.
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
