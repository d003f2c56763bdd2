"""What is sure about a score: the test against chance, and the interval of a printed number. numpy and scipy only.

See also: intervals (`intervals.py`), comparisons between models (`comparing/`).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from eval_harness.records.result import Verdict
from eval_harness.scores.intervals import LEVEL, Interval, wilson

Floats = NDArray[np.float64]

LEAST = 1e-50
"""A probability under which an outcome of thousands of guesses is left out of their distribution."""
PUBLISHED = "Wilson on n_cases, no clustering"
PUBLISHED_CLUSTERED = "Wilson on n_cases, design effect of shared images"
PUBLISHED_CORRELATION = 0.1
"""Correlation assumed between cases that share images where a paper prints percentages only. MediConfusion's Table 2 (13 models, nine
areas) shows -0.02 to 0.03 between pairs of one area, 0.00 on average (analysis of variance); components are narrower than areas."""


@lru_cache(1 << 15)  # the same few thousand printed numbers, at every click
def published_interval(value: float, n_cases: int, size: float = 1.0) -> tuple[float, float, str]:
    """95 % interval (percent) of a published percentage of which only the number of cases is known; the method's name.

    `size`: how many cases share images with a case, itself included, on average over the cases (sum m^2 / sum m over the components). The
    cases are worth n_cases / (1 + PUBLISHED_CORRELATION (size - 1)) independent ones. With size 1 nothing is known of shared images
    and nothing is clustered: the true interval is wider where cases share images.
    """
    worth = n_cases / (1 + PUBLISHED_CORRELATION * (size - 1))
    low, high = wilson(min(max(value / 100, 0.0), 1.0), worth)
    return 100 * float(low), 100 * float(high), PUBLISHED_CLUSTERED if size > 1 else PUBLISHED


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
    pmf = poisson_binomial(probability)
    return float(min(1.0, pmf[pmf <= pmf[observed] * (1 + 1e-7)].sum()))


def poisson_binomial(probability: Floats) -> Floats:
    """The pmf of the number of successes of independent trials with these probabilities: (U + 1,), exact.

    Equal probabilities are one binomial; the few different ones of a benchmark are convolved, each without its ends under LEAST.
    """
    values, counts = np.unique(np.round(probability, 12), return_counts=True)
    found, first = np.ones(1), 0
    for value, count in zip(values, counts, strict=True):
        part = _binomial(int(count), float(value))
        there = np.flatnonzero(part > LEAST)
        found, first = np.convolve(found, part[there[0] : there[-1] + 1]), first + int(there[0])
    pmf = np.zeros(len(probability) + 1)
    pmf[first : first + len(found)] = found
    return pmf


def _binomial(n: int, p: float) -> Floats:
    """The binomial pmf (n + 1,)."""
    k = np.arange(n + 1.0)
    ways = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    pmf: Floats = np.exp(ways + special.xlogy(k, p) + special.xlog1py(n - k, -p))
    return pmf


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
