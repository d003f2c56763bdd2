"""Declare the harness side of a benchmark: prompt templates, metrics, defaults."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from dataset_builders.schema import LETTERS
from eval_harness.reader import Reading
from eval_harness.records.result import ARMS, Breakdown, Images
from eval_harness.scores.grading import Graded

Layout = Callable[[Sequence[str]], str]


def lettered_layout(separator: str, between: str, opening: str = "", closing: str = "") -> Layout:
    """Build a layout that lists the options with their letters.

    Args:
        separator: Text after the letter.
        between: Text between two options.
        opening: Text before the letter.
        closing: Text after the option.

    Returns:
        Option texts -> the text of the field `{options}`.
    """

    def layout(options: Sequence[str]) -> str:
        return between.join(
            f"{opening}{letter}{separator}{option}{closing}" for letter, option in zip(LETTERS, options, strict=False)
        )

    return layout


COLON_LINES = lettered_layout(": ", "\n")

DOT_LINES = lettered_layout(". ", "\n")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A template with the fields `{question}` and `{options}`.

    Attributes:
        name: Name of the template.
        template: The text with its fields.
        source: Where it was published.
        layout: Layout of the options.
        methods: Methods that it may be used for.
        intro: Text before the worked examples of a few-shot prompt.
        shot_answer: Form of an example's answer: `letter` (A), `both` (A: text) or `text`.
    """

    name: str
    template: str
    source: str
    layout: Layout = COLON_LINES
    methods: tuple[str, ...] = ("mc", "gd")
    intro: str | None = None
    shot_answer: str = "letter"

    def render(self, question: str, options: Sequence[str]) -> str:
        """Render the text sent to the model for one question.

        Both fields are filled in one pass, so braces within a question are kept.

        Args:
            question: Text of the question.
            options: Option texts in the order shown; letters follow the position.
        """
        # A single pass, because the question may itself contain "{options}".
        fields = {
            "{question}": question.strip(),
            "{options}": self.layout([option.strip() for option in options]),
        }
        return re.sub(r"\{(?:question|options)\}", lambda field: fields[field[0]], self.template)

    @property
    def shows_options(self) -> bool:
        """True if the model sees the options (and may answer with a letter)."""
        return "{options}" in self.template

    @property
    def text_hash(self) -> str:
        """Hash of the prompt without the question; equal hashes mean equal wording."""
        # Two placeholder options are enough to represent the layout.
        layout_sample = self.layout(["{option 1}", "{option 2}"])
        return hashlib.sha256(
            "\0".join([self.template, layout_sample, self.intro or "", self.shot_answer]).encode()
        ).hexdigest()[:16]

    def answer_of_shot(self, options: Sequence[str], answer: Sequence[int]) -> str:
        """Format the answer of a worked example.

        Args:
            options: Option texts in the order shown.
            answer: Positions of the correct options.
        """
        if self.shot_answer == "letter" and self.shows_options:
            return ",".join(LETTERS[position] for position in answer)
        texts = [options[position].strip() for position in answer]
        if self.shot_answer == "both":
            texts = [f"{LETTERS[position]}: {text}" for position, text in zip(answer, texts, strict=True)]
        return ", ".join(texts)


OPEN_ENDED_METHODS = ("ps", "ps_official", "ff")
"""Methods in which the model does not see the options."""


def bare_question_prompt(source: str, methods: tuple[str, ...] = OPEN_ENDED_METHODS) -> Prompt:
    """Build the template `question`: the bare question, for methods that show no options.

    Args:
        source: Where it was published.
        methods: Methods that it may be used for.
    """
    return Prompt("question", "{question}", source, methods=methods, shot_answer="text")


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
