"""Apply the one rule by which nonresponse withholds a score's verdict, in every command and the
board.

Refusing is behaviour and is scored, and so is an answer that cannot be read. A response that was
cut off, failed or is missing tells nothing about the model: a verdict holds only if it is the same
with all of these counted right and all counted wrong (of a pair: the pair). If most responses tell
nothing for any reason, there is no value either. See also: a run's score or the reason it has none
(`derive/metrics.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eval_harness.records.result import Nonresponse, Score

LOST_STATUSES = ("truncated", "failed", "missing")
"""Statuses of a response that is not behaviour of the model."""
NONRESPONSE_STATUSES = (*LOST_STATUSES, "irrelevant")
"""Statuses of a response that tells nothing about the model."""
RESPONSE_COUNT_COLUMNS = ("responses", *NONRESPONSE_STATUSES)
"""Unit columns: responses behind the unit, and how many of them ended in each NONRESPONSE_STATUSES.

"""
UNSETTLED_COLUMN = "unsettled"
"""Unit column: the share of samples in which a response of the unit is lost (LOST_STATUSES)."""


def numerator_if_lost_right(numerator: Any, denominator: Any, unsettled: Any) -> Any:
    """Return the numerators of units if every lost response were right; as stored, these count as
    wrong.

    Args:
        numerator: What each unit scores.
        denominator: What each unit could score.
        unsettled: UNSETTLED_COLUMN of each unit.
    """
    return numerator + denominator * unsettled


def decisive_nonresponse(counts: Sequence[float], verdict_holds: bool = True) -> Nonresponse | None:
    """Return the nonresponse that withholds a verdict, or None if the score may have one.

    Args:
        counts: RESPONSE_COUNT_COLUMNS, summed over the units of the score.
        verdict_holds: Whether the verdict is the same with all lost responses right
            (`numerator_if_lost_right`) as with all of them wrong.

    >>> decisive_nonresponse([28, 14, 0, 0, 1]).truncated
    14
    >>> decisive_nonresponse([28, 14, 0, 0, 0])
    >>> decisive_nonresponse([28, 0, 2, 0, 0], False).failed
    2
    """
    responses, *silent = (int(count) for count in counts)
    nonresponse = Nonresponse(responses=responses, **dict(zip(NONRESPONSE_STATUSES, silent, strict=True)))
    return nonresponse if nonresponse.is_majority or not verdict_holds else None


def apply_nonresponse(score: Score, nonresponse: Nonresponse | None, keep_value: bool) -> Score:
    """Withhold the verdict of a score with nonresponse, and its value if most responses tell
    nothing.

    Args:
        score: The score with its verdict.
        nonresponse: From `decisive_nonresponse`; None leaves the score as it is.
        keep_value: Keep the value in any case (metrics of nonresponse, official readers).
    """
    if nonresponse is None:
        return score
    # A minority of lost responses costs the verdict, not the value.
    if keep_value or not nonresponse.is_majority:
        return score.model_copy(update={"verdict": None, "nonresponse": nonresponse})
    return Score(value=None, n=score.n, n_cases=score.n_cases, nonresponse=nonresponse)
