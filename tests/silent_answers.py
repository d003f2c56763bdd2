"""Answers that end in every way, for tests of what is said of runs whose answers mostly say
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from eval_harness.derive.scoring import compute_units
from eval_harness.derive.summary import summarise_units
from eval_harness.scores.nonresponse import LOST_STATUSES
from tests.leaderboard_space.stores import answers

SILENT = {
    "truncated": "cut off",
    "failed": "failed",
    "missing": "missing",
    "irrelevant": "could not be read",
}
"""Status -> the words that every sentence about it holds."""
ENDS = ("answered", "refused", *SILENT)


@dataclass(frozen=True)
class Mixture:
    """Answers to questions. `given`: what the harness has, some rows of missing answers left out;
    `every`: a row per response asked for.
    """

    answers: pd.DataFrame
    every: pd.DataFrame

    def counts(self, questions: pd.Series) -> dict[str, int]:
        """How many responses to these questions ended in each status."""
        part = self.every[self.every["question_id"].isin(questions)]
        return {status: int((part["status"] == status).sum()) for status in ENDS}

    def is_silent(self, questions: pd.Series) -> bool:
        counts = self.counts(questions)
        return 2 * sum(counts[status] for status in SILENT) > sum(counts.values())


def mixture(questions: pd.DataFrame, rng: np.random.Generator) -> Mixture:
    """Answers with shares of endings drawn anew for every third of the questions, so that parts of
    a run may be silent and others not.
    """
    samples = int(rng.choice([1, 1, 3]))
    rows = [
        answers(questions, float(rng.random()), seed=int(rng.integers(1 << 30))).assign(sample=n)
        for n in range(samples)
    ]
    every = pd.concat(rows, ignore_index=True)
    status = np.empty(len(every), dtype=object)
    part = (
        every["question_id"]
        .map(dict(zip(questions["question_id"], np.arange(len(questions)) % 3, strict=True)))
        .to_numpy()
    )
    for third in range(3):
        shares = rng.dirichlet(np.full(len(ENDS), 0.4))
        if rng.random() < 0.3:  # one ending for all of them
            shares = np.eye(len(ENDS))[rng.integers(len(ENDS))]
        rows_of = np.flatnonzero(part == third)
        status[rows_of] = rng.choice(np.array(ENDS, dtype=object), len(rows_of), p=shares)
    keys = every["question_id"].map(dict(zip(questions["question_id"], questions["answer"], strict=True)))
    choice = [
        (choice or list(key)) if end == "answered" else []
        for choice, key, end in zip(every["choice"], keys, status, strict=True)
    ]
    every = every.assign(status=status, choice=pd.Series(choice, dtype=object), response="x", rule="test")
    absent = (every["status"] == "missing") & (rng.random(len(every)) < 0.5) & (every["sample"] > 0)
    return Mixture(every[~absent].reset_index(drop=True), every)


def scope(family: str, metric: str, questions: pd.DataFrame) -> pd.Series:
    """The ids of the questions whose responses a metric is computed from."""
    rows = pd.Series(True, index=questions.index)
    kind = metric.removesuffix("_reweighted")
    plain = kind.removesuffix("_without_adversarial")
    if family == "halt-medvqa" and metric.split("_", maxsplit=1)[0] in ("fake", "none", "swap"):
        rows = questions["scenario"] == metric.split("_", maxsplit=1)[0]
    if family == "probmed" and plain != "overall" and plain in set(questions["aspect"]):
        rows = questions["aspect"] == plain
    if "adversarial" in questions and kind.endswith("without_adversarial"):
        rows &= ~questions["adversarial"]
        rows &= questions["aspect"] != "abnormality" if "aspect" in questions else True
    if metric.startswith("share_"):
        rows &= questions["options"].map(len) > max("ABCDEFGHIJ".find(metric[-1]), 0)
    return questions.loc[rows, "question_id"]


def is_untested(family: str, metric: str, questions: pd.DataFrame, answers: pd.DataFrame) -> bool:
    """Whether a score has no verdict although most of its responses say something: lost ones could
    change it, or too few cases count.

    It is scored with all the lost responses right and with all of them wrong, and nothing is told
    that any was lost.
    """
    table = compute_units(family, questions, answers)
    table = table[table["metric"] == metric]
    settled = table.assign(**dict.fromkeys((*LOST_STATUSES, "irrelevant", "unsettled"), 0))
    right = settled.assign(numerator=table["numerator"] + table["denominator"] * table["unsettled"])
    worst, best = (summarise_units(part, official=True)[metric] for part in (settled, right))
    is_small = worst.n_effective is not None and worst.n_effective < 5
    return is_small or worst.verdict != best.verdict
