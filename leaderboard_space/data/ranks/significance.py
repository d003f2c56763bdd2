"""Test scores shown together against guessing, corrected for how many are shown.

See also: the marks of one benchmark's own table, where each row is tested by itself (`standings.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eval_harness.records.result import Score, Verdict
from eval_harness.scores.comparing import ranks
from eval_harness.scores.comparing.unpaired import unpaired_difference
from eval_harness.scores.intervals import LEVEL, p_value
from leaderboard_space.data.ranks.standings import info_of

ALPHA = 1 - LEVEL


def p_against_guessing(score: Score, random_run: Score | None = None) -> float | None:
    """Two-sided p-value of "this model guesses"; None where it cannot be tested.

    `random_run`: what it is tested against where exact chance is not known, the paper's own run of random answers, as two independent
    samples (Agresti & Caffo 2000). Without one, exact chance (the score has a verdict), by the test that the score's interval inverts.
    """
    if score.nonresponse is not None or score.value is None or score.n_cases <= 0 or not 0 <= score.value <= 100:
        return None
    if random_run is not None:
        return unpaired_difference(score, random_run)[2]
    if score.verdict is None or score.chance is None or score.n_effective is None:
        return None
    return float(p_value(score.value / 100, score.n_effective, score.chance / 100))


def holm(p: Sequence[float | None]) -> list[float | None]:
    """Holm's adjusted p-values (1979); what is not tested (None) takes no part.

    >>> holm([0.01, None, 0.04, 0.03])
    [0.03, None, 0.06, 0.06]
    """
    adjusted = iter(ranks.holm_adjusted(np.array([value for value in p if value is not None])).tolist())
    return [None if value is None else next(adjusted) for value in p]


def verdicts(scores: Sequence[tuple[Score, Score | None, bool]]) -> list[Verdict | None]:
    """The mark of each (score, random run, whether higher is better) at 95 % for all of them together."""
    adjusted = holm([p_against_guessing(score, run) for score, run, _ in scores])
    marks: list[Verdict | None] = []
    for (score, run, higher), p in zip(scores, adjusted, strict=True):
        if p is None:
            marks.append(None)
        elif p >= ALPHA:
            marks.append("no different")
        else:
            guess = run.value if run is not None else score.chance
            above = (score.value or 0.0) > (guess if guess is not None else np.nan)
            marks.append("better" if above == higher else "worse")
    return marks


def is_higher_better(metric: str, family: str) -> bool:
    return info_of(metric, family).higher_is_better is not False
