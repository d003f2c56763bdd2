"""p-values of sums whose terms may as well have the other sign: all patterns, the exact distribution, or the saddlepoint."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
EXACT, SADDLEPOINT, NORMAL = (f"sign-flip over clusters, {how}" for how in ("exact", "saddlepoint", "normal"))
HOW = ("McNemar, mid-p", EXACT, SADDLEPOINT, NORMAL)
"""How a p-value was found (see `pairwise`)."""
ENUMERATED = 10
"""Differing clusters up to which all sign patterns are listed."""
FEW = 500.0
"""Clusters a pair is worth under which the normal approximation is not used. At as many it is off by 6 % at p = 2e-5."""
WIDEST = 8_192
"""Steps that the sum of the differences may span for the exact distribution."""
SMALLEST = 1e-12
"""No p-value is given as smaller: the exact distribution is a sum of numbers of about 1, rounded at 1e-16."""


def listed_sign_flips(differences: Floats, step: Ints) -> tuple[Floats, Ints]:
    """Two-sided p-values (P,) of the sign-flip test and how each was found, for P rows of differences (P, G).

    `step` (P,): the differences of a row are whole multiples of 1 / step; 0: of nothing.
    """
    whole = step[:, None] > 0
    differences = np.where(whole, np.rint(differences * step[:, None]) / np.maximum(step[:, None], 1), differences)
    d = np.abs(differences)
    d[d < 1e-6 * d.max(axis=1, keepdims=True, initial=0.0)] = 0.0
    observed, many = np.abs(differences.sum(axis=1)), (d > 0).sum(axis=1)
    squares = np.square(d).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = np.where(squares > 0, 2 * special.ndtr(-observed / np.sqrt(squares)), 1.0)
        worth = np.where(squares > 0, np.square(squares) / np.square(d * d).sum(axis=1), 0.0)
    how = np.full(len(d), HOW.index(NORMAL))
    reach = np.rint(d.sum(axis=1) * step)
    listed = many <= ENUMERATED
    exact = ~listed & (worth < FEW) & (step > 0) & (reach <= WIDEST)
    tail = ~listed & (worth < FEW) & ~exact
    if listed.any():
        p[listed], how[listed] = _enumerated(d[listed], observed[listed]), HOW.index(EXACT)
    if exact.any():
        whole = np.rint(d[exact] * step[exact, None]).astype(np.int64)
        p[exact], how[exact] = _on_a_grid(whole, np.rint(observed[exact] * step[exact])), HOW.index(EXACT)
    if tail.any():
        p[tail], how[tail] = _saddlepoint(d[tail], observed[tail]), HOW.index(SADDLEPOINT)
    return np.clip(p, np.maximum(np.exp2(1.0 - np.minimum(many, 1000)), SMALLEST), 1.0), how


def _enumerated(d: Floats, observed: Floats) -> Floats:
    """All sign patterns of the rows of d (P, G), of which at most ENUMERATED entries are not 0."""
    largest = -np.sort(-d, axis=1)[:, :ENUMERATED]
    codes = np.arange(2 ** largest.shape[1])
    signs = 1.0 - 2.0 * (codes[None, :] >> np.arange(largest.shape[1])[:, None] & 1)
    sums = np.abs(largest @ signs)
    slack = 1e-6 * largest.sum(axis=1)  # sums of float32 numbers: what differs by less is equal
    return np.asarray((sums >= (observed - slack)[:, None]).mean(axis=1))


def _on_a_grid(d: Ints, observed: Floats) -> Floats:
    """Exact p-values of rows of whole numbers d (P, G) >= 0: one minus the chance of a sum nearer to 0 than `observed` (P,).

    With R = sum(d), sums are R, R - 2, ..., -R, so that R + 1 frequencies pi k / K determine the distribution. K is odd: no cosine is 0.
    """
    reach = d.sum(axis=1)
    size = int(reach.max()) + 1
    size += 1 - size % 2
    widest = int(d.max())
    times = np.bincount((np.arange(len(d))[:, None] * (widest + 1) + d).ravel(), minlength=len(d) * (widest + 1))
    times = times.reshape(len(d), widest + 1).astype(np.float64)
    times = times[:, (times > 0).any(axis=0)]
    p = np.empty(len(d))
    frequency = np.pi * np.arange(size) / size
    cosine = np.cos(np.flatnonzero(np.bincount(d.ravel(), minlength=widest + 1))[:, None] * frequency)
    logs, negative = np.log(np.abs(cosine)), (cosine < 0).astype(np.float64)
    chunk = max(1, 4_000_000 // size)
    for start in range(0, len(d), chunk):
        part = slice(start, start + chunk)
        pmf = np.exp(times[part] @ logs) * (1 - 2 * np.mod(times[part] @ negative, 2))
        terms = observed[part] - 1
        with np.errstate(invalid="ignore", divide="ignore"):
            kernel = np.sin(terms[:, None] * frequency) / np.sin(frequency)
        kernel[:, 0] = terms
        p[part] = 1 - (pmf * kernel).sum(axis=1) / size
    return np.where(observed <= 0, 1.0, p)


def _saddlepoint(d: Floats, observed: Floats) -> Floats:
    """Lugannani and Rice's tail probability of the sum of the rows of d (P, G) with random signs, doubled; half the weight of the observed
    pattern is added, which a continuous pmf leaves out."""
    scale = np.sqrt(np.square(d).sum(axis=1, keepdims=True))
    d, z = d / scale, observed / scale[:, 0]
    edge = z >= d.sum(axis=1) * (1 - 1e-9)  # all signs alike: nothing lies further out
    goal, t = np.where(edge, 0.0, z), np.zeros(len(d))
    for _ in range(60):  # K' is concave: Newton's steps approach its root from below
        hyperbolic = np.tanh(t[:, None] * d)
        curvature = (d * d * (1 - hyperbolic * hyperbolic)).sum(axis=1)
        change = (goal - (d * hyperbolic).sum(axis=1)) / np.maximum(curvature, 1e-300)
        t += change
        if np.all(np.abs(change) <= 1e-9 * (1 + t)):
            break
    x = t[:, None] * d
    hyperbolic = np.tanh(x)
    cumulant = (np.logaddexp(x, -x) - math.log(2)).sum(axis=1)
    root = np.sqrt(np.maximum(2 * (t * goal - cumulant), 0.0))
    wald = t * np.sqrt((d * d * (1 - hyperbolic * hyperbolic)).sum(axis=1))
    near = root < 1e-3
    with np.errstate(invalid="ignore", divide="ignore"):
        density = np.exp(-root * root / 2) / math.sqrt(2 * math.pi)
        p = 2 * (special.ndtr(-root) + density * (1 / wald - 1 / root))
    tail: NDArray[np.float64] = np.where(edge, 0.0, np.where(near, 2 * special.ndtr(-z), p))
    return tail + np.exp2(-np.minimum((d > 0).sum(axis=1), 1000.0))
