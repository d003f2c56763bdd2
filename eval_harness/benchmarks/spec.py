"""Declare the harness side of a benchmark: prompts, metrics, defaults."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from eval_harness.benchmarks.prompt import Prompt
from eval_harness.reader import Reading
from eval_harness.records.result import ARMS, Breakdown, Images
from eval_harness.scores.grading import Graded


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """How a metric is shown and compared.

    Attributes:
        label: Name for readers.
        description: One sentence.
        higher_is_better: None if neither end is good (position bias).
        unit: `percent` or `count`.
        of_ends: Whether it counts how responses ended. Such a metric has a value even if most
            responses contain no answer.
        arms: Runs without the right image that show how much of the metric comes from it.
        no_arm: Why an arm that is not in `arms` would say nothing.
    """

    label: str
    description: str
    higher_is_better: bool | None = True
    unit: str = "percent"
    of_ends: bool = False
    arms: tuple[Images, ...] = ARMS
    no_arm: str = ""

    @property
    def compared(self) -> tuple[Images, ...]:
        """Arms to compare with; none for metrics that do not count correct answers."""
        return self.arms if self.higher_is_better and self.unit == "percent" and not self.of_ends else ()


@dataclass(frozen=True, kw_only=True)
class EvalSpec:
    """The harness side of a benchmark.

    Attributes:
        units: Builds the scoring units from graded answers.
        read_official: The reader of the paper's own code, defects included, for `--extraction
            official`: it reproduces the paper's numbers (response, options, question type). None if
            there is no such code.
        more_breakdowns: Breakdowns by something other than a facet (graded answers, whether the
            paper's reader read them).
        headline: The metric that the benchmark is ranked by everywhere, one of `metrics`.
        over_all: The metric over all questions, if the headline covers only some of them.
        metrics: Name -> description of each metric.
        prompts: Prompt templates.
        default_prompts: Method, or question type for the method `mc`, -> name of its template; `mc`
            is required.
        system: System message that the authors sent to API models.
        max_tokens: Output-token limit per answer of the method `mc`.
        judged_free_form: A judge compares free-form answers with the two options.
        hidden_split: Split whose answer key is kept by its owner, who scores uploaded answers.
        hidden_metrics: Metric of the hidden split -> type of the questions that it covers.
    """

    units: Callable[[Graded], pd.DataFrame]
    read_official: Callable[[str, Sequence[str], str], Reading] | None
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
        # Fail at import, because a missing default prompt would be noticed only during a run.
        names = {prompt.name for prompt in self.prompts}
        if "mc" not in self.default_prompts or not set(self.default_prompts.values()) <= names:
            raise TypeError(f"default_prompts: must name a template for 'mc', each one of {', '.join(sorted(names))}")
