"""Compute a benchmark's units (`compute_units`), and its scores with interval, chance and verdict.

See also: reading responses (`derive/reading.py`), the result file (`records/result.py`). Imports
neither torch nor gradio.
"""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dataset_builders.benchmarks import facets_of
from dataset_builders.schema import LETTERS
from eval_harness.benchmarks import eval_spec
from eval_harness.derive.metrics import HEADLINE_METRICS
from eval_harness.derive.summary import break_down_by_facet, summarise_units
from eval_harness.records.result import STATUSES, Breakdown, Score, Scores
from eval_harness.scores.grading import Graded, grade, make_units


@dataclass(frozen=True)
class Scored:
    """The numbers of a run.

    Attributes:
        scores: Metric -> score.
        breakdown: Facet -> facet value -> metric -> score.
        statuses: Number of responses per status.
        units: The units that the scores were computed from (`compute_units`).
    """

    scores: Scores
    breakdown: Breakdown = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    units: pd.DataFrame = field(default_factory=pd.DataFrame, compare=False)


def compute_units(family: str, questions: pd.DataFrame, answers: pd.DataFrame) -> pd.DataFrame:
    """Build the scoring units of every metric of a benchmark.

    A metric is 100 x sum(numerator) / sum(denominator) (a count metric: sum(numerator)), so the
    score of any subset follows from a mask. With several samples, numerator and denominator are
    means over them.

    Args:
        family: Benchmark whose question format the questions have.
        questions: The columns of the config `questions_text`, labels as strings. Questions with a
            hidden answer are left out.
        answers: `question_id, sample, choice, status`, from `reading.read_responses`.

    Returns:
        One row per (metric, unit): `metric, unit, case_id, case, cluster, numerator, denominator,
        chance, count`, the response counts (`grading.RESPONSE_COUNT_COLUMNS`) and the facets.
        `chance` is the expected numerator of a guesser; `count` is what the unit adds to n;
        `cluster` is the connected component of cases sharing images. The facet `category` is a list
        per unit (`summary.explode_facet` makes one row per label).

    Raises:
        BadInput: If an id is unknown, an answer occurs twice, or a column is missing.
    """
    return _all_units(grade(family, questions, answers))


def compute_scores(family: str, questions: pd.DataFrame, answers: pd.DataFrame, extraction: str = "ours") -> Scored:
    """Compute every metric of a benchmark with interval, chance and verdict, also per facet value.

    A benchmark may add breakdowns by something other than a facet (`EvalSpec.more_breakdowns`). A
    metric has the value None if no question counts towards it. The value is also None if most
    responses to its questions contain no answer, unless `extraction` is `official` (see
    `summary.summarise_units`).

    Args:
        family: Benchmark whose question format the questions have.
        questions: See `compute_units`.
        answers: See `compute_units`.
        extraction: `ours` or `official`.

    Raises:
        BadInput: See `compute_units`.
    """
    graded = grade(family, questions, answers)
    table = _all_units(graded)
    official = extraction == "official"
    scores = summarise_units(table, official)
    parts = break_down_by_facet(table, facets_of(family, questions.columns), official)
    if (extra_breakdowns := eval_spec(family).more_breakdowns) is not None:
        parts |= extra_breakdowns(graded, official)
    return Scored(
        scores={HEADLINE_METRICS[family]: Score(value=None, n=0, n_cases=0)} | scores
        if HEADLINE_METRICS[family] not in scores
        else scores,
        breakdown=parts,
        statuses=_statuses(questions, answers),
        units=table,
    )


def _all_units(graded: Graded) -> pd.DataFrame:
    return pd.concat([eval_spec(graded.family).units(graded), _everywhere(graded)], ignore_index=True)


def _everywhere(graded: Graded) -> pd.DataFrame:
    """Build the units of the metrics that every benchmark has.

    These are `irrelevant`, `refused`, `abstained` (no choice for any reason), the accuracy among
    questions for which an option was chosen, and the share of each letter (or of yes and no) among
    the answers that were read.
    """
    rows = np.arange(len(graded.questions))
    frames = [
        make_units(graded, "irrelevant", rows, graded.irrelevant.mean(axis=1)),
        make_units(graded, "refused", rows, graded.refused.mean(axis=1)),
        make_units(graded, "abstained", rows, (~graded.answered).mean(axis=1)),
    ]
    # Only questions with one correct option: those with several correct options have
    # metrics of their own.
    single_answer_rows = np.flatnonzero(~graded.multiple)
    chose_share, hits = (
        graded.answered[single_answer_rows].mean(axis=1),
        graded.right[single_answer_rows].mean(axis=1),
    )
    frames.append(
        make_units(
            graded,
            "answered_accuracy",
            single_answer_rows,
            hits,
            chose_share,
            graded.guess[single_answer_rows] * chose_share,
        )
    )
    yes_no = (graded.questions["question_type"] == "yes_no").to_numpy(dtype=bool)
    # Letters are counted over single-choice questions only.
    single = ~yes_no & ~graded.multiple
    for members, labels in (
        (np.flatnonzero(single), LETTERS),
        (np.flatnonzero(yes_no), ("yes", "no")),
    ):
        if not len(members):
            continue
        answered = graded.answered[members].mean(axis=1)
        for option in range(min(int(graded.k[members].max()), len(labels))):
            offering_rows = members[graded.k[members] > option]
            chosen = (graded.first_choice[offering_rows] == option).mean(axis=1)
            share = answered[graded.k[members] > option]
            frames.append(make_units(graded, f"share_{labels[option]}", offering_rows, chosen, share))
    return pd.concat(frames, ignore_index=True)


def _statuses(questions: pd.DataFrame, answers: pd.DataFrame) -> dict[str, int]:
    """Count the responses per status."""
    counted = answers["status"].value_counts().to_dict()
    samples = max(answers["sample"].nunique(), 1) if "sample" in answers.columns else 1
    # Answers without a record are missing, too.
    absent = len(questions) * samples - len(answers)
    statuses = {name: int(counted.get(name, 0)) for name in STATUSES}
    statuses["missing"] += max(absent, 0)
    return statuses
