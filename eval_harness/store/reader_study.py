"""Compare human readers with models on the questions that both answered, and readers with each
other.

See also: asking a person (`models/human_reader.py`), comparing two results (`comparison.py`).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from eval_harness.derive.metrics import HEADLINE_METRICS
from eval_harness.records.result import REFERENCE_KINDS, Score
from eval_harness.scores.comparisons import krippendorff_alpha
from eval_harness.store.comparison import Side, align_sides, metric_difference, paired_units
from eval_harness.store.formatting import format_interval, format_score, interval_decimals

MAX_LISTED_CASES = 12
"""Maximum number of cases that are listed as failed by most readers and most models."""


@dataclass(frozen=True)
class ModelContrast:
    """A model and a reader on the questions that both answered.

    Attributes:
        model: Name of the model.
        reader: Name of the reader.
        n: Number of scored units that both answered.
        reader_value, model_value: Scores in percent.
        lower: By how many points the model is lower; negative if it is higher.
        low, high: 95 % interval of `lower`.
    """

    model: str
    reader: str
    n: int
    reader_value: float
    model_value: float
    lower: float
    low: float
    high: float

    def __str__(self) -> str:
        """Describe the contrast: "GPT-4o 21 points lower (8 to 34)"."""
        sign, word = (1, "lower") if self.lower >= 0 else (-1, "higher")
        low, high = sorted((sign * self.low, sign * self.high))
        digits = interval_decimals(low, high, 0.0, 0)
        return f"{self.model} {sign * self.lower:.{digits}f} points {word} ({low:.{digits}f} to {high:.{digits}f})"


@dataclass(frozen=True)
class ReaderGroup:
    """Readers who answered the same questions, and the models that answered them, too.

    Attributes:
        family: The benchmark, which names the score.
        readers: Name and score of each reader, best first.
        contrasts: Every reader with every model.
        median_value: Median score of the readers, in percent; None for fewer than two.
        alpha: Krippendorff's alpha (nominal) of their choices; None if it is undefined.
        failed_cases: Cases on which most readers and most models score nothing; None without models
            or for fewer than two readers.
        cases: Number of cases.
    """

    family: str
    readers: list[tuple[str, Score]]
    contrasts: list[ModelContrast]
    median_value: float | None
    alpha: float | None
    failed_cases: list[str] | None
    cases: int

    def sentences(self, case: str, with_models: bool = True) -> list[str]:
        """Describe each reader in a line, and then all of them together.

        Args:
            case: What the benchmark calls a case.
            with_models: Add each model's difference to the line of a reader.
        """
        contrasts = self.contrasts if with_models else []
        lines = [_reader_sentence(name, score, case, contrasts) for name, score in self.readers]
        if self.median_value is not None:
            agreement = "" if self.alpha is None else f"; Krippendorff's alpha of their choices {self.alpha:.2f}"
            median_text = f"median {format_score(self.median_value)} %"
            lines.append(f"{len(self.readers)} readers of the same questions: {median_text}{agreement}.")
        if self.failed_cases is not None:
            names = ", ".join(self.failed_cases[:MAX_LISTED_CASES])
            ellipsis = ", ..." if len(self.failed_cases) > MAX_LISTED_CASES else ""
            count = f"{len(self.failed_cases)} of {self.cases} {case}s"
            lines.append(f"Most readers and most models fail on {count}{names and ': '}{names}{ellipsis}.")
        return lines


def study_readers(sides: Sequence[Side]) -> list[ReaderGroup]:
    """Group the readers among some results by their questions, and compare them with the models.

    Args:
        sides: Results of one benchmark, a single one of each model. Those without answers or a
            score are left out.

    Returns:
        The groups, those with the most readers first.
    """
    groups: dict[str | None, list[Side]] = {}
    models = [side for side in sides if side.result.model.kind not in REFERENCE_KINDS]
    for side in sides:
        if side.result.model.kind == "human" and side.has_answers and _score(side).value is not None:
            groups.setdefault(side.result.benchmark.fingerprint, []).append(side)
    return [_study_group(readers, models) for readers in sorted(groups.values(), key=len, reverse=True)]


def _study_group(readers: list[Side], models: Sequence[Side]) -> ReaderGroup:
    readers = sorted(readers, key=lambda side: -(_score(side).value or 0.0))
    questions, family = readers[0].questions, readers[0].result.benchmark.family
    contrasts: list[ModelContrast] = []
    complete: list[Side] = []  # models that answered all questions of the readers
    for model in models:
        aligned = align_sides(readers[0], model)
        if aligned is None:
            continue
        if aligned[0] is readers[0]:
            complete.append(aligned[1])
        for reader in readers:
            contrasts += _contrasts(align_sides(reader, aligned[1]))
    is_group, names = len(readers) > 1, [reader.result.model.name for reader in readers]
    failed = sorted(_failed_by_most(readers) & _failed_by_most(complete))
    return ReaderGroup(
        family,
        list(zip(names, map(_score, readers), strict=True)),
        sorted(contrasts, key=lambda contrast: (names.index(contrast.reader), -contrast.model_value)),
        median(_score(reader).value or 0.0 for reader in readers) if is_group else None,
        krippendorff_alpha(_choice_codes(readers, questions["question_id"]), "nominal") if is_group else None,
        failed if is_group and complete else None,
        questions["case_id"].nunique(),
    )


def _score(side: Side) -> Score:
    return side.result.scores[HEADLINE_METRICS[side.result.benchmark.family]]


def _contrasts(sides: tuple[Side, Side] | None) -> list[ModelContrast]:
    """Return the contrast of a reader and a model, or nothing if one of them has no score."""
    if sides is None:
        return []
    reader, model = sides
    row = metric_difference(
        reader, model, HEADLINE_METRICS[reader.result.benchmark.family], paired_units(reader, model)
    )
    names, n = (model.result.model.name, reader.result.model.name), _score(reader).n
    values = [row[column] for column in ("a", "b", "difference", "low", "high") if row.get(column) is not None]
    return [ModelContrast(*names, n, *values)] if len(values) == 5 else []


def _failed_by_most(sides: Sequence[Side]) -> set[str]:
    """Return the cases on which more than half of the results score nothing."""
    failures: Counter[str] = Counter()
    for side in sides:
        units = side.units()
        units = units[units["metric"] == HEADLINE_METRICS[side.result.benchmark.family]]
        totals = units.groupby("case_id")[["numerator", "denominator"]].sum()
        failures.update(totals.index[(totals["numerator"] == 0) & (totals["denominator"] > 0)])
    return {case for case, count in failures.items() if 2 * count > len(sides)}


def _choice_codes(readers: Sequence[Side], ids: pd.Series) -> NDArray[np.float64]:
    """Return a number for each reader's choice (readers, questions); NaN for none."""
    codes: dict[tuple[int, ...], float] = {}
    rows = []
    for reader in readers:
        choices = dict(zip(reader.answers["question_id"], map(tuple, reader.answers["choice"]), strict=True))
        chosen = [choices.get(question_id) for question_id in ids]
        rows.append([codes.setdefault(choice, float(len(codes))) if choice else np.nan for choice in chosen])
    return np.array(rows)


def _reader_sentence(name: str, score: Score, case: str, contrasts: Sequence[ModelContrast]) -> str:
    unit = case if score.n == score.n_cases else "scored unit"
    parts = [f"{name} {format_score(score.value)} % (95 % interval {format_interval(score)}) on {score.n} {unit}s"]
    for contrast in contrasts:
        if contrast.reader == name:
            parts.append(f"{contrast}{f' on {contrast.n} of them' if contrast.n != score.n else ''}")
    return f"{'; '.join(parts)}."
