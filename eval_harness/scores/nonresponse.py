"""Withhold a score's verdict because of nonresponse; every command and the board use this rule.

A refusal and an unreadable answer are behaviour of the model and are scored as such. A response
that was cut off, failed or is missing is not: a verdict is given only if it is the same with all of
these lost responses counted right and with all counted wrong (a pair with a lost response counts as
a whole). If most responses contain no answer, for any of these reasons or because they are
unreadable, the value is withheld as well. See also: a run's score or the reason why it has none
(`derive/metrics.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eval_harness.records.result import Nonresponse, Score

LOST_STATUSES = ("truncated", "failed", "missing")
"""Statuses of a lost response, which says nothing about the model."""
NONRESPONSE_STATUSES = (*LOST_STATUSES, "irrelevant")
"""Statuses of a response that contains no answer, not even a refusal."""
RESPONSE_COUNT_COLUMNS = ("responses", *NONRESPONSE_STATUSES)
"""Columns of a unit: number of responses, and how many of them have each NONRESPONSE_STATUSES."""
UNSETTLED_COLUMN = "unsettled"
"""Column of a unit: the share of samples in which one of its responses is lost (LOST_STATUSES)."""


def numerator_if_lost_right(numerator: Any, denominator: Any, unsettled: Any) -> Any:
    """Return the numerators that units would have if every lost response were right.

    As stored, lost responses count as wrong.

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
    """Withhold the verdict of a score, and its value if most responses contain no answer.

    Args:
        score: The score with its verdict.
        nonresponse: From `decisive_nonresponse`; None returns the score unchanged.
        keep_value: Never withhold the value (metrics of nonresponse, official readers).
    """
    if nonresponse is None:
        return score
    # If only a minority contains no answer, the verdict is withheld, but not the value.
    if keep_value or not nonresponse.is_majority:
        return score.model_copy(update={"verdict": None, "nonresponse": nonresponse})
    return Score(value=None, n=score.n, n_cases=score.n_cases, nonresponse=nonresponse)
