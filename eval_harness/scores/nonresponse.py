"""Nonresponse: responses that choose no option and decline none. Where they are the majority, a score has no verdict and no rank.

Refusing is behaviour and is scored; an answer that was cut off, failed, is missing or cannot be read says nothing about the model.
See also: a run's score or the reason why it has none (`derive/metrics.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from eval_harness.records.result import Nonresponse, Score

REASONS = ("truncated", "failed", "missing", "irrelevant")
"""Statuses of a response that says nothing about the model."""
COUNTS = ("responses", *REASONS)
"""Columns of units: how many responses are behind a unit, and how many of them ended in each of REASONS."""


def nonresponse(counts: Sequence[float]) -> Nonresponse | None:
    """The numbers COUNTS of a score where more than half of its responses say nothing; None where not.

    >>> nonresponse([28, 14, 0, 0, 1]).truncated, nonresponse([28, 14, 0, 0, 0])
    (14, None)
    """
    responses, *silent = (int(count) for count in counts)
    if 2 * sum(silent) <= responses:
        return None
    return Nonresponse(responses=responses, **dict(zip(REASONS, silent, strict=True)))


def withheld(score: Score, found: Nonresponse | None, shown: bool) -> Score:
    """A score as its nonresponse allows: without verdict, and without a value unless it is `shown` all the same."""
    if found is None:
        return score
    if shown:
        return score.model_copy(update={"verdict": None, "nonresponse": found})
    return Score(value=None, n=score.n, n_cases=score.n_cases, nonresponse=found)
