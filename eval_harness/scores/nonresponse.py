"""Nonresponse: the one rule by which a score keeps its verdict, for `eval`, `results`, `compare` and the board.

Refusing is behaviour and is scored, and so is an answer that cannot be read. One that was cut off, failed or is missing says nothing about
the model: a verdict stands only where it would be the same with all of these right and all of them wrong (of a pair: the pair). Where most
responses say nothing for any reason, there is no value either. See also: a run's score or the reason why it has none
(`derive/metrics.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eval_harness.records.result import Nonresponse, Score

LOST_STATUSES = ("truncated", "failed", "missing")
"""Statuses of a response that is no behaviour of the model."""
NONRESPONSE_STATUSES = (*LOST_STATUSES, "irrelevant")
"""Statuses of a response that says nothing about the model."""
RESPONSE_COUNT_COLUMNS = ("responses", *NONRESPONSE_STATUSES)
"""Columns of units: how many responses are behind a unit, and how many of them ended in each of REASONS."""
UNSETTLED_COLUMN = "unsettled"
"""Column of units: the share of samples in which a response of the unit is LOST."""


def numerator_if_lost_right(numerator: Any, denominator: Any, unsettled: Any) -> Any:
    """The numerators of units if every response that is LOST were right; as they are, these count as wrong."""
    return numerator + denominator * unsettled


def decisive_nonresponse(counts: Sequence[float], stands: bool = True) -> Nonresponse | None:
    """The numbers COUNTS of a score that has no verdict; None where it may have one.

    Args:
        counts: COUNTS, summed over the units of the score.
        stands: Whether its verdict is the same with all that are LOST right (`if_right`) as with all of them wrong.

    >>> nonresponse([28, 14, 0, 0, 1]).truncated, nonresponse([28, 14, 0, 0, 0]), nonresponse([28, 0, 2, 0, 0], False).failed
    (14, None, 2)
    """
    responses, *silent = (int(count) for count in counts)
    found = Nonresponse(responses=responses, **dict(zip(NONRESPONSE_STATUSES, silent, strict=True)))
    return found if found.is_majority or not stands else None


def apply_nonresponse(score: Score, found: Nonresponse | None, shown: bool) -> Score:
    """A score as its nonresponse allows: without verdict, and without a value where most responses say nothing, unless it is `shown` all
    the same."""
    if found is None:
        return score
    if shown or not found.is_majority:
        return score.model_copy(update={"verdict": None, "nonresponse": found})
    return Score(value=None, n=score.n, n_cases=score.n_cases, nonresponse=found)
