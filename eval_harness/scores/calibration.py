"""Compute calibration and risk-coverage of runs whose answers have a score per option.

These are runs with the methods `ps` and `gd`. See also: `derive/reading.py`, which chooses the
option with the highest score.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from eval_harness.scores.clustered import Floats
from eval_harness.scores.grading import grade


@dataclass(frozen=True)
class Calibration:
    """Calibration of a run.

    Attributes:
        bins: Columns `confidence, accuracy, n` (percent, percent, count); N_BINS bins of equal
            width, empty ones left out.
        ece: Expected calibration error in percentage points.
        risk_coverage: Columns `coverage, risk` (percent), most confident answers first.
        aurc: Area under the risk-coverage curve: mean risk over all coverages, in percent.
        n: Number of answers used.
    """

    bins: pd.DataFrame
    ece: float
    risk_coverage: pd.DataFrame
    aurc: float
    n: int


N_BINS = 10


def compute_calibration(family: str, questions: pd.DataFrame, answers: pd.DataFrame) -> Calibration | None:
    """Compute calibration and risk-coverage of a run.

    Answers of equal confidence form one point of the risk-coverage curve.

    Args:
        family: Benchmark whose question format the questions have.
        questions: Questions with their answer keys.
        answers: Answers after reading, with `scores` (one number per option) and `sample`.

    Returns:
        The calibration, or None if no answer with a known key has option scores.
    """
    if "scores" not in answers.columns:
        return None
    scored = answers[[_has_scores(values) for values in answers["scores"]]]
    # A journal may contain a question twice; the first copy counts.
    scored = scored.drop_duplicates(["question_id", "sample"])
    if not len(scored):
        return None
    graded = grade(
        family,
        questions[questions["question_id"].astype(str).isin(scored["question_id"].astype(str))],
        scored,
    )
    # Grading leaves out questions with a hidden key, so their answers have no row.
    rows = pd.Index(graded.columns["question_id"].astype(str)).get_indexer(scored["question_id"].astype(str))
    has_question, columns = rows >= 0, pd.factorize(scored["sample"], sort=True)[0]
    if not has_question.any():
        return None
    confidence = np.array([top_option_confidence(values) for values in scored["scores"]])[has_question]
    is_correct = graded.right[rows, columns][has_question].astype(float)
    bins = _calibration_bins(confidence, is_correct)
    ece = (bins["n"] * (bins["confidence"] - bins["accuracy"]).abs()).sum() / len(is_correct)
    curve = _risk_coverage(confidence, is_correct)
    # Step integral: ties make the steps unequal.
    widths = np.diff(curve["coverage"].to_numpy(), prepend=0.0)
    aurc = float((curve["risk"].to_numpy() * widths).sum() / 100)
    return Calibration(bins, float(ece), curve, aurc, len(is_correct))


def top_option_confidence(scores: Floats) -> float:
    """Return the probability (0..1) of the highest-scoring option.

    Scores that are not probabilities (negative, or not summing to 1) are taken as logits and
    normalized by softmax.

    Args:
        scores: One number per option.
    """
    values = np.asarray(scores, dtype=float)
    if (values < 0).any() or abs(values.sum() - 1) > 1e-3:
        # Subtract the maximum: exp() of large logits would overflow.
        values = np.exp(values - values.max())
        values = values / values.sum()
    return float(values.max())


def _has_scores(values: object) -> bool:
    return (
        isinstance(values, (list, tuple, np.ndarray))
        and len(values) > 1
        and bool(np.isfinite(np.asarray(values, float)).all())
    )


def _calibration_bins(confidence: Floats, is_correct: Floats) -> pd.DataFrame:
    # A confidence of exactly 1 belongs to the last bin.
    bin_index = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    table = pd.DataFrame({"bin": bin_index, "confidence": 100 * confidence, "accuracy": 100 * is_correct, "n": 1})
    return table.groupby("bin").agg({"confidence": "mean", "accuracy": "mean", "n": "sum"})


def _risk_coverage(confidence: Floats, is_correct: Floats) -> pd.DataFrame:
    order = np.argsort(-confidence, kind="stable")
    # Tied answers share one point of the curve, after the last of them.
    last_of_equal = np.flatnonzero(np.diff(confidence[order], append=-1.0) != 0)
    errors = np.cumsum(1 - is_correct[order])[last_of_equal]
    covered = last_of_equal + 1
    return pd.DataFrame({"coverage": 100 * covered / len(is_correct), "risk": 100 * errors / covered})
