"""What is sure about a score: intervals, the test against chance; and, by the same door, comparisons between models. numpy and scipy only.

Not here: the metrics (one module per benchmark). The comparisons are written in `comparisons.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from eval_harness.results import Verdict
from eval_harness.scores.clustered import numbered, ratio_spread
from eval_harness.scores.comparisons import (
    Outcomes,
    PairedTest,
    Pairs,
    Places,
    holm,
    pack,
    paired_test,
    pairwise,
    places,
)

__all__ = [
    "Interval",
    "Outcomes",
    "PairedTest",
    "Pairs",
    "Places",
    "chance_p_value",
    "clustered_interval",
    "holm",
    "pack",
    "paired_test",
    "pairwise",
    "places",
    "poisson_binomial",
    "published_interval",
    "verdict",
    "wilson",
]

Floats = NDArray[np.float64]

LEVEL = 0.95
CLUSTERED = "Wilson, clustered by cases sharing images"
PUBLISHED = "Wilson on n_cases, no clustering"
RHO_AT_THE_EDGE = 0.1
"""Correlation within a cluster that is assumed where all outcomes are equal, so that the data cannot show any."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval as fractions. `n_effective`: independent observations it is worth, `df`: degrees of freedom of that."""

    low: float
    high: float
    n_effective: float
    df: float
    method: str


def wilson(share: float, n: float, critical: float | None = None) -> tuple[float, float]:
    """Wilson's score interval of a share (0..1) seen in n independent observations."""
    c = float(special.ndtri(0.5 + LEVEL / 2)) if critical is None else critical
    centre = (share + c * c / (2 * n)) / (1 + c * c / n)
    half = c / (1 + c * c / n) * math.sqrt(max(share * (1 - share), 0.0) / n + c * c / (4 * n * n))
    return max(0.0, min(centre - half, share)), min(1.0, max(centre + half, share))


def published_interval(value: float, n_cases: int) -> tuple[float, float, str]:
    """95 % interval (percent) of a published percentage of which only the number of cases is known; the method's name.

    Nothing is known of shared images there, so nothing is clustered: the true interval is wider where cases share images.
    """
    low, high = wilson(min(max(value / 100, 0.0), 1.0), n_cases)
    return 100 * low, 100 * high, PUBLISHED


def clustered_interval(numerator: ArrayLike, denominator: ArrayLike, cluster: ArrayLike) -> Interval | None:
    """95 % interval of sum(numerator) / sum(denominator), a share in 0..1, over units (U,) in clusters (U,).

    Wilson's interval at the number of independent observations the data are worth: p(1-p) / V, with V the cluster-robust variance of
    the ratio (CR2 of Bell & McCaffrey 2002, its bias and Satterthwaite's degrees of freedom taken under the correlation within
    clusters that the data show), and Student's t (Korn & Graubard 1998 do so for rare events in surveys). Two guards: V never falls
    much under what so few clusters can show, and where all outcomes are equal a small correlation is assumed.
    Where every cluster is one 0/1 outcome this is Wilson's own interval. None where nothing is counted.
    """
    top, base = np.asarray(numerator, dtype=float), np.asarray(denominator, dtype=float)
    used = base > 0
    if not used.any():
        return None
    largest = base.max()
    top, base = top[used] / largest, base[used] / largest
    total = float(base.sum())
    share = min(max(float(top.sum()) / total, 0.0), 1.0)
    index = numbered(np.asarray(cluster)[used])
    if int(index.max()) == 0:
        return Interval(*wilson(share, 1.0), 1.0, 1.0, CLUSTERED)
    n_plain = total * total / float((base * base).sum())
    if int(index.max()) + 1 == len(base) and bool(np.all(base == base[0])) and bool(np.all((top == 0) | (top == base))):
        return Interval(*wilson(share, len(base)), float(len(base)), math.inf, CLUSTERED)
    spread = ratio_spread(top - share * base, base, index)
    if 0.0 < share < 1.0:
        deff = spread.variance * n_plain / (share * (1 - share))
        deff = max(deff, (spread.df * deff + 2) / (spread.df + 2))
    else:
        deff = 1 + RHO_AT_THE_EDGE * max(spread.size - 1, 0.0)
    critical = float(special.stdtrit(spread.df, 0.5 + LEVEL / 2))
    return Interval(*wilson(share, n_plain / deff, critical), n_plain / deff, spread.df, CLUSTERED)


def chance_p_value(numerator: ArrayLike, denominator: ArrayLike, expected: ArrayLike) -> float:
    """Two-sided p-value of "this responder guesses", for units (U,) with `expected` = numerator to expect from a guesser.

    A guesser's outcomes are independent between questions even where these share an image, so the sum of 0/1 outcomes with
    known probabilities is Poisson-binomial; its exact distribution is used (for equal probabilities the exact binomial test).
    Weighted or averaged outcomes take the normal approximation with the variance of one guess per unit.
    """
    top, base, mean = (np.asarray(values, dtype=float) for values in (numerator, denominator, expected))
    used = base > 0
    top, base, mean = top[used], base[used], mean[used]
    if not len(top):
        return 1.0
    probability = np.clip(mean / base, 0.0, 1.0)
    observed = float(top.sum())
    if np.all(base == 1.0) and float(observed).is_integer() and np.all((top == 0) | (top == 1)):
        return _poisson_binomial_p(int(observed), probability)
    spread = math.sqrt(float((base * base * probability * (1 - probability)).sum()))
    if spread == 0:
        return 1.0 if math.isclose(observed, float(mean.sum()), abs_tol=1e-9) else 0.0
    return float(2 * special.ndtr(-abs(observed - float(mean.sum())) / spread))


def _poisson_binomial_p(observed: int, probability: Floats) -> float:
    """Sum of the probabilities of all outcomes no more likely than the observed one (as scipy's binomtest)."""
    law = poisson_binomial(probability)
    return float(min(1.0, law[law <= law[observed] * (1 + 1e-7)].sum()))


def poisson_binomial(probability: Floats) -> Floats:
    """The law of the number of successes of independent trials with these probabilities: (U + 1,), exact.

    Equal probabilities are one binomial; the few different ones of a benchmark are convolved.
    """
    values, counts = np.unique(np.round(probability, 12), return_counts=True)
    law = np.ones(1)
    for value, count in zip(values, counts, strict=True):
        law = np.convolve(law, _binomial(int(count), float(value)))
    return law


def _binomial(n: int, p: float) -> Floats:
    """The binomial law (n + 1,)."""
    k = np.arange(n + 1.0)
    ways = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    law: Floats = np.exp(ways + special.xlogy(k, p) + special.xlog1py(n - k, -p))
    return law


def verdict(
    numerator: ArrayLike,
    denominator: ArrayLike,
    expected: ArrayLike,
    interval: Interval,
    higher_is_better: bool = True,
) -> Verdict:
    """`better` or `worse` than chance only where both tell it from a guesser: the exact test, and the interval, which
    also allows for answers that go together because they are on one image. Otherwise `no different`.

    The word judges the responder, not the number: a confusion above chance is `worse` (`higher_is_better` False).
    """
    level = float(np.asarray(expected, dtype=float).sum() / np.asarray(denominator, dtype=float).sum())
    if interval.low <= level <= interval.high or chance_p_value(numerator, denominator, expected) >= 1 - LEVEL:
        return "no different"
    return "better" if (interval.low > level) == higher_is_better else "worse"
