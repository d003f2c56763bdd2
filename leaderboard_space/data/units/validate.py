"""Numbers of a result file that cannot be: a percentage of 1e308, a negative count. They are left out, and the board says so.

Only what no answers could give is refused here; whether a number follows from the answers is decided by computing it (`outcomes.py`).
"""

from __future__ import annotations

from functools import cache

from eval_harness.derive.metrics import METRICS
from eval_harness.records.result import Breakdown, Result, Score, Scores
from leaderboard_space.data.published_scores import ONLY_PRINTED

SLACK = 1e-6
"""Rounding may carry a percentage over its end by this much."""
MOST = 10**12
"""More questions than any benchmark has."""


def possible(metric: str, score: Score) -> bool:
    """True if a score can be what its metric says: a percentage within 0 and 100, a count that is not negative.

    >>> possible("set_accuracy", Score(value=101.0, n=1, n_cases=1)), possible("set_accuracy", Score(value=None, n=0, n_cases=0))
    (False, True)
    """
    if not (0 <= score.n <= MOST and 0 <= score.n_cases <= MOST):
        return False
    if score.n_effective is not None and not 0 < score.n_effective <= MOST:
        return False
    highest = _highest(metric)
    if highest is None:
        return True
    for number in (score.value, score.low, score.high, score.chance):
        if number is not None and not -SLACK <= number <= highest + SLACK:
            return False
    return score.low is None or score.high is None or score.low <= score.high + SLACK


@cache
def _highest(metric: str) -> float | None:
    """The most that a metric can be; None for one that this board does not know."""
    info = METRICS.get(metric) or ONLY_PRINTED.get(metric)
    if info is None:
        return 100.0 if metric.startswith("share_") else None
    return 100.0 if info.unit == "percent" else float(MOST)


def without_impossible(result: Result) -> tuple[Result, list[str]]:
    """The result without the numbers that cannot be, and a line about them (none where all can)."""
    gone: list[str] = []
    scores = _kept(result.scores, gone)
    breakdown: Breakdown = {
        facet: {label: _kept(held, gone) for label, held in values.items()}
        for facet, values in result.breakdown.items()
    }
    if not gone:
        return result, []
    what = (
        f"{gone[0]}, an impossible value, is"
        if len(gone) == 1
        else f"{len(gone)} impossible values (such as {gone[0]}) are"
    )
    return (
        result.model_copy(update={"scores": scores, "breakdown": breakdown}),
        [f"{result.model.name}: {what} left out."],
    )


def _kept(scores: Scores, gone: list[str]) -> Scores:
    kept: Scores = {}
    for metric, score in scores.items():
        if possible(metric, score):
            kept[metric] = score
        else:
            gone.append(f"{metric} {score.value} of n {score.n}")
    return kept
