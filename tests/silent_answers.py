"""Make answers with every status, to test the output about runs whose answers mostly tell nothing
about the model.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from eval_harness.derive.metrics import compute_units, summarise_units
from eval_harness.scores.grading import LOST_STATUSES
from tests.leaderboard_space.stores import answers

SILENT = {
    "truncated": "cut off",
    "failed": "failed",
    "missing": "missing",
    "irrelevant": "could not be read",
}
"""Status -> the words that every sentence about it contains."""
ENDS = ("answered", "refused", *SILENT)


@dataclass(frozen=True)
class Mixture:
    """Answers to questions. `answers`: what the harness has; some rows of missing answers are left
    out. `every`: one row per requested response.
    """

    answers: pd.DataFrame
    every: pd.DataFrame

    def counts(self, questions: pd.Series) -> dict[str, int]:
        """Count the responses to these questions by status."""
        part = self.every[self.every["question_id"].isin(questions)]
        return {status: int((part["status"] == status).sum()) for status in ENDS}

    def is_silent(self, questions: pd.Series) -> bool:
        counts = self.counts(questions)
        return 2 * sum(counts[status] for status in SILENT) > sum(counts.values())


def mixture(questions: pd.DataFrame, rng: np.random.Generator) -> Mixture:
    """Draw answers whose shares of each status differ between three thirds of the questions, so
    that only parts of a run may be silent.
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
        if rng.random() < 0.3:  # all of them have one status
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
    """Return the ids of the questions whose responses a metric is computed from."""
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
    """Return True if a score has no verdict although most of its responses tell something about the
    model: the lost ones could change it, or too few cases count.

    The score is computed with all lost responses right and with all of them wrong, and without
    stating that any was lost.
    """
    table = compute_units(family, questions, answers)
    table = table[table["metric"] == metric]
    settled = table.assign(**dict.fromkeys((*LOST_STATUSES, "irrelevant", "unsettled"), 0))
    right = settled.assign(numerator=table["numerator"] + table["denominator"] * table["unsettled"])
    worst, best = (summarise_units(part, official=True)[metric] for part in (settled, right))
    is_small = worst.n_effective is not None and worst.n_effective < 5
    return is_small or worst.verdict != best.verdict
