"""Declare the harness side of a benchmark: prompts, metrics, defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from eval_harness.benchmarks.prompt import Prompt
from eval_harness.reader import Reading
from eval_harness.records.result import ARMS, Breakdown, Images
from eval_harness.scores.grading import Graded


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """How a metric is shown. `higher_is_better` None: neither end is good (position bias). `unit`: `percent` or `count`.

    `of_ends`: it counts how responses ended, so that it has a value for a run whose responses mostly say nothing, too.

    `arms`: the runs without the right image that show how much of the metric comes from it; `no_arm` says why one or all make no sense."""

    label: str
    description: str
    higher_is_better: bool | None = True
    unit: str = "percent"
    of_ends: bool = False
    arms: tuple[Images, ...] = ARMS
    no_arm: str = ""

    @property
    def compared(self) -> tuple[Images, ...]:
        """The arms of a metric that counts right answers; none of what counts other behaviour."""
        return self.arms if self.higher_is_better and self.unit == "percent" and not self.of_ends else ()


@dataclass(frozen=True, kw_only=True)
class EvalSpec:
    """The harness side of a benchmark; what is left out has a default.

    `headline`: the metric it is ranked by everywhere, one of `metrics`; `over_all`: the metric over every question, where the headline is
    about a part of them. `prompts`: its templates. `default_prompts`: method, or question type for
    the method `mc`, -> name of the template; `mc` must be there. `system`: the message that the authors sent to API models. `max_tokens`:
    room for an answer of the method `mc`. `judged_free_form`: the judge of free-form answers compares its two options.

    `hidden_split`: a split whose key its owner keeps, scored against uploaded answers; `hidden_metrics`: metric -> the type of question
    it is about.

    `units`: what is counted, of graded answers; `more_breakdowns`, by what is no facet of a question (graded answers, whether the paper's
    reader read them). `read_official`: the reader of the paper's own code, defects included, which `--extraction official` uses: it
    decides which numbers the paper prints (response, options, question type).
    """

    units: Callable[[Graded], pd.DataFrame]
    read_official: Callable[[str, Sequence[str], str], Reading]
    more_breakdowns: Callable[[Graded, bool], Breakdown] | None = None
    headline: str
    over_all: str | None = None
    metrics: Mapping[str, MetricInfo]
    prompts: tuple[Prompt, ...]
    default_prompts: Mapping[str, str]
    system: str | None = None
    max_tokens: int = 512
    judged_free_form: bool = False
    hidden_split: str | None = None
    hidden_metrics: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.headline not in self.metrics:
            raise TypeError(f"headline {self.headline!r}: must be one of the metrics ({', '.join(self.metrics)})")
        names = {prompt.name for prompt in self.prompts}
        if "mc" not in self.default_prompts or not set(self.default_prompts.values()) <= names:
            raise TypeError(f"default_prompts: must name a template for 'mc', each one of {', '.join(sorted(names))}")
