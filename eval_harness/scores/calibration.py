"""Calibration and risk-coverage, for runs whose answers carry a score per option (prefix scoring, greedy decoding).

See also: the choice itself (the highest score, `answers.read_answers`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from eval_harness.scores.grading import grade

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Calibration:
    """`bins`: columns `confidence, accuracy, n` (percent, percent, count) in `BINS` bins of equal width. `ece`: expected
    calibration error, percent points. `risk_coverage`: columns `coverage, risk` (percent), the most confident answers first; `aurc`: the
    mean risk over all coverages, percent. `n`: answers used."""

    bins: pd.DataFrame
    ece: float
    risk_coverage: pd.DataFrame
    aurc: float
    n: int


BINS = 10


def compute_calibration(family: str, questions: pd.DataFrame, answers: pd.DataFrame) -> Calibration | None:
    """How far a model's confidence can be trusted; None where no answer has option scores.

    Confidence is the highest score's share among the options: scores that are not shares already (negative, or not summing to 1) are
    taken as logarithms and normalised (softmax). Equal confidences enter the risk-coverage curve together.
    """
    if "scores" not in answers.columns:
        return None
    scored = answers[[_has_scores(values) for values in answers["scores"]]]
    scored = scored.drop_duplicates(["question_id", "sample"])
    if not len(scored):
        return None
    graded = grade(
        family, questions[questions["question_id"].astype(str).isin(scored["question_id"].astype(str))], scored
    )
    row = pd.Index(graded.columns["question_id"].astype(str)).get_indexer(scored["question_id"].astype(str))
    known, column = row >= 0, pd.factorize(scored["sample"], sort=True)[0]
    if not known.any():
        return None
    confidence = np.array([top_option_confidence(values) for values in scored["scores"]])[known]
    right = graded.right[row, column][known].astype(float)
    bins = _bins(confidence, right)
    gap = (bins["n"] * (bins["confidence"] - bins["accuracy"]).abs()).sum() / len(right)
    curve = _risk_coverage(confidence, right)
    widths = np.diff(curve["coverage"].to_numpy(), prepend=0.0)
    aurc = float((curve["risk"].to_numpy() * widths).sum() / 100)
    return Calibration(bins, float(gap), curve, aurc, len(right))


def top_option_confidence(scores: Floats) -> float:
    """The highest option's share, 0..1. Softmax where the scores are no shares."""
    values = np.asarray(scores, dtype=float)
    if (values < 0).any() or abs(values.sum() - 1) > 1e-3:
        values = np.exp(values - values.max())
        values = values / values.sum()
    return float(values.max())


def _has_scores(values: object) -> bool:
    return (
        isinstance(values, (list, tuple, np.ndarray))
        and len(values) > 1
        and bool(np.isfinite(np.asarray(values, float)).all())
    )


def _bins(confidence: Floats, right: Floats) -> pd.DataFrame:
    index = np.minimum((confidence * BINS).astype(int), BINS - 1)
    table = pd.DataFrame({"bin": index, "confidence": 100 * confidence, "accuracy": 100 * right, "n": 1})
    return table.groupby("bin").agg({"confidence": "mean", "accuracy": "mean", "n": "sum"})


def _risk_coverage(confidence: Floats, right: Floats) -> pd.DataFrame:
    order = np.argsort(-confidence, kind="stable")
    last_of_equal = np.flatnonzero(np.diff(confidence[order], append=-1.0) != 0)
    wrong = np.cumsum(1 - right[order])[last_of_equal]
    covered = last_of_equal + 1
    return pd.DataFrame({"coverage": 100 * covered / len(right), "risk": 100 * wrong / covered})
