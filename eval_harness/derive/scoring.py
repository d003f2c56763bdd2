"""Scores of the benchmarks: `units` (what is counted), `score` (the numbers with intervals, chance and verdicts).

See also: reading responses (`derive/reading.py`), the result file (`records/result.py`). Imports no torch and no gradio.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dataset_builders.benchmarks import FACETS_BY_BENCHMARK
from dataset_builders.schema import LETTERS
from eval_harness.benchmarks import eval_spec
from eval_harness.derive.metrics import HEADLINE_METRICS
from eval_harness.derive.summary import break_down_by_facet, summarise_units
from eval_harness.records.result import STATUSES, Breakdown, Score, Scores
from eval_harness.scores.grading import Graded, grade, make_units


@dataclass(frozen=True)
class Scored:
    """The numbers of a run: per metric, per facet value and metric, and how many responses ended in each status."""

    scores: Scores
    breakdown: Breakdown = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    units: pd.DataFrame = field(default_factory=pd.DataFrame, compare=False)
    """The units that they were computed from, as `units` returns them."""


def compute_units(family: str, questions: pd.DataFrame, answers: pd.DataFrame) -> pd.DataFrame:
    """One row per (metric, scoring unit): `metric, unit, case_id, case, cluster, numerator, denominator, chance, count`, the numbers of
    responses by how they ended (`nonresponse.COUNTS`) + the facets.

    `questions`: the columns of the config `questions_text`, labels as strings. `answers`: `question_id, sample, choice, status`, as
    `read_answers` gives them. A metric is 100 x sum(numerator) / sum(denominator) (a count metric: sum(numerator)), so that any
    subset is a mask; `chance` is the numerator a guesser would get; `count` what the unit adds to n; `cluster` numbers the connected
    components of cases sharing images. With several samples, numerator and denominator are means over them. The facet
    `category` is a list per unit (`explode` makes one row per label).
    Questions whose answer is hidden are left out. Raises BadInput for unknown ids, duplicate answers, missing columns.
    """
    return _all_units(grade(family, questions, answers))


def compute_scores(family: str, questions: pd.DataFrame, answers: pd.DataFrame, extraction: str = "ours") -> Scored:
    """Every metric of a benchmark with interval, chance and verdict; the same per facet value; the count of each status.

    A benchmark may add breakdowns by what is no facet of a question (`EvalSpec.more_breakdowns`).

    A metric that nothing speaks for (no such question, or its answers are hidden) has the value None, and so has one to whose questions
    most responses say nothing, unless the `extraction` is `official` (see `summarise`). Raises BadInput as `units`.
    """
    graded = grade(family, questions, answers)
    table = _all_units(graded)
    official = extraction == "official"
    scores = summarise_units(table, official)
    parts = break_down_by_facet(table, FACETS_BY_BENCHMARK[family], official)
    if (more := eval_spec(family).more_breakdowns) is not None:
        parts |= more(graded, official)
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
    """`irrelevant`, `refused`, `abstained` (no choice for any reason), the accuracy where an option was chosen, and the share of each
    letter (or of yes and no) among the answers read."""
    rows = np.arange(len(graded.questions))
    frames = [
        make_units(graded, "irrelevant", rows, graded.irrelevant.mean(axis=1)),
        make_units(graded, "refused", rows, graded.refused.mean(axis=1)),
        make_units(graded, "abstained", rows, (~graded.answered).mean(axis=1)),
    ]
    # Of the questions that a benchmark's accuracy is about: those with several correct options have metrics of their own.
    one = np.flatnonzero(~graded.multiple)
    chose, hits = graded.answered[one].mean(axis=1), graded.right[one].mean(axis=1)
    frames.append(make_units(graded, "answered_accuracy", one, hits, chose, graded.guess[one] * chose))
    yes_no = (graded.questions["question_type"] == "yes_no").to_numpy(dtype=bool)
    single = ~yes_no & ~graded.multiple
    for members, names in ((np.flatnonzero(single), LETTERS), (np.flatnonzero(yes_no), ("yes", "no"))):
        if not len(members):
            continue
        answered = graded.answered[members].mean(axis=1)
        for option in range(min(int(graded.k[members].max()), len(names))):
            there = members[graded.k[members] > option]
            chosen = (graded.first[there] == option).mean(axis=1)
            share = answered[graded.k[members] > option]
            frames.append(make_units(graded, f"share_{names[option]}", there, chosen, share))
    return pd.concat(frames, ignore_index=True)


def _statuses(questions: pd.DataFrame, answers: pd.DataFrame) -> dict[str, int]:
    """Number of responses with each status."""
    counted = answers["status"].value_counts().to_dict()
    samples = max(answers["sample"].nunique(), 1) if "sample" in answers.columns else 1
    absent = len(questions) * samples - len(answers)
    statuses = {name: int(counted.get(name, 0)) for name in STATUSES}
    statuses["missing"] += max(absent, 0)
    return statuses
