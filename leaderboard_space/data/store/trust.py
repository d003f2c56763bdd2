"""Whether scores shown together are better or worse than guessing, corrected for how many are shown.

See also: the marks of one benchmark's own table, where each row is tested by itself (`standings.py`).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
from scipy import special

from eval_harness.records.result import Score, Verdict
from eval_harness.scores.comparing import ranks
from eval_harness.scores.intervals import LEVEL, NORMAL
from leaderboard_space.data.ranks.pairs import unpaired_p_values
from leaderboard_space.data.ranks.standings import info_of

ALPHA = 1 - LEVEL


def p_against_guessing(score: Score, random_run: Score | None = None) -> float | None:
    """Two-sided p-value of "this model guesses"; None where it cannot be tested.

    `random_run`: what it is tested against where exact chance is not known, the paper's own run of random answers, as two independent
    samples (Agresti and Caffo 2000). Without one, exact chance (the score has a verdict): the larger of two, the exact binomial test on
    the number of cases, and what the 95 % interval says, which is wider where cases share images.
    """
    if score.value is None or score.n_cases <= 0 or not 0 <= score.value <= 100:
        return None
    if random_run is not None:
        return float(unpaired_p_values([score, random_run])[0, 1])
    if score.verdict is None or score.chance is None:
        return None
    if score.verdict == "no different":
        return 1.0
    value, chance = score.value, score.chance
    end = score.low if value > chance else score.high
    arm = abs(value - end) if end is not None else 0.0
    by_interval = 2 * float(special.ndtr(-NORMAL * abs(value - chance) / arm)) if arm > 0 else 0.0
    hits = round(value * score.n_cases / 100)
    return max(by_interval, binomial_p_value(hits, score.n_cases, chance / 100))


def binomial_p_value(hits: int, n: int, chance: float) -> float:
    """The two-sided exact binomial test: how likely the numbers of hits are that are no likelier than this one. It is that of
    scipy.stats.binomtest; importing scipy.stats takes a second of every start."""

    def likelihood(k: int) -> float:
        ways = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
        return float(ways + special.xlogy(k, chance) + special.xlog1py(n - k, -chance))

    middle, limit = n * chance, likelihood(hits) + 1e-7
    if hits == middle:
        return 1.0
    if hits < middle:  # beyond the mean the likelihood falls
        low = hits
        first = math.ceil(middle)
        high = first + bisect_left(range(first, n + 1), -limit, key=lambda k: -likelihood(k))
    else:
        low = bisect_right(range(math.floor(middle) + 1), limit, key=likelihood) - 1
        high = hits
    below = special.bdtr(low, n, chance) if low >= 0 else 0.0
    above = special.bdtrc(high - 1, n, chance) if high > 0 else 1.0
    return float(min(below + above, 1.0))


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
