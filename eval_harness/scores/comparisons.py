"""Which models differ: the paired test between models on the same questions, its correction for many models, and places.

`statistics.py` gives these names too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from dataset_builders.errors import BadInput
from eval_harness.scores.clustered import Spread, ratio_spread

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
EXACT, SADDLEPOINT, NORMAL = (f"sign-flip over clusters, {how}" for how in ("exact", "saddlepoint", "normal"))
HOW = ("McNemar, mid-p", EXACT, SADDLEPOINT, NORMAL)
"""How a p-value was found (see `pairwise`)."""
ENUMERATED = 10
"""Differing clusters up to which all sign patterns are listed."""
FEW = 500.0
"""Clusters a pair is worth under which the normal approximation is not used. At as many it is off by 6 % at p = 2e-5."""
LISTED = 2_000
"""Clusters up to which the differences of pairs with unequal denominators are looked at one by one; beyond, they are taken as normal."""
WIDEST = 8_192
"""Steps that the sum of the differences may span for the exact distribution."""
FINEST = 120
"""The finest step, 1 / 120 of a unit, that is looked for (the mean of 120 samples)."""
SMALLEST = 1e-12
"""No p-value is given as smaller: the exact distribution is a sum of numbers of about 1, rounded at 1e-16."""


@dataclass(frozen=True)
class Outcomes:
    """M models x U units of one metric, packed once, compared often.

    `numerator`, `denominator` (M, U) float32; `cluster` (U,) ascending; `units` (U,) their ids. `paired`: all models have the same
    denominators, so that a difference is a sum over units.
    """

    models: tuple[str, ...]
    metric: str
    numerator: NDArray[np.float32]
    denominator: NDArray[np.float32]
    cluster: Ints
    units: NDArray[np.object_]
    paired: bool

    @cached_property
    def binary(self) -> bool:
        """Whether every unit is one 0/1 outcome of a cluster of its own: then McNemar's test is exact."""
        alone = len(np.unique(self.cluster)) == len(self.cluster)
        one = bool(np.all(self.denominator == 1))
        return self.paired and alone and one and bool(np.all((self.numerator == 0) | (self.numerator == 1)))

    @cached_property
    def by_cluster(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Sums per cluster: numerators and denominators (M, G)."""
        starts = np.flatnonzero(np.r_[True, np.diff(self.cluster) != 0])
        if len(starts) == len(self.cluster):
            return self.numerator, self.denominator
        return np.add.reduceat(self.numerator, starts, axis=1), np.add.reduceat(self.denominator, starts, axis=1)

    def only(self, chosen: NDArray[np.bool_]) -> Outcomes:
        """The same for a part of the units (mask (U,)), as when a facet is selected."""
        return Outcomes(
            self.models,
            self.metric,
            self.numerator[:, chosen],
            self.denominator[:, chosen],
            self.cluster[chosen],
            self.units[chosen],
            self.paired,
        )


@dataclass(frozen=True, slots=True)
class Pairs:
    """All comparisons of M models: `value` (M,) percent, `difference` (M, M) = value of row - value of column, `p` (M, M) uncorrected,
    `how` (M, M) each p-value was found, as an index into HOW."""

    models: tuple[str, ...]
    value: Floats
    difference: Floats
    p: Floats
    how: Ints


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Two models on the same questions. Percent points; `only_a`, `only_b`: units won by one of them; p two-sided."""

    difference: float
    low: float
    high: float
    p: float
    only_a: int
    only_b: int
    n: int
    method: str


def pack(units: Mapping[str, pd.DataFrame], metric: str) -> Outcomes:
    """Pack the units of several models (`scores.units` of each) for one metric.

    Raises BadInput where a model lacks units that another has: models are compared on the same questions only.
    """
    frames = {name: frame[frame["metric"].to_numpy() == metric] for name, frame in units.items()}
    if not frames:
        raise BadInput("nothing to compare: no model was given.")
    first_name, first = next(iter(frames.items()))
    ids = pd.Index(first["unit"].to_numpy(dtype=object))
    if not ids.is_unique:
        raise BadInput(f"{first_name}: {metric} counts a unit twice, so it cannot be compared. Choose another metric.")
    order = np.argsort(first["cluster"].to_numpy(), kind="stable")
    tops, bases = [], []
    for name, frame in frames.items():
        places = _places(ids, frame["unit"].to_numpy(dtype=object))
        if places is None:
            raise BadInput(
                f"{name} and {first_name} did not answer the same questions, so {metric} cannot be compared."
            )
        tops.append(frame["numerator"].to_numpy(np.float32)[places][order])
        bases.append(frame["denominator"].to_numpy(np.float32)[places][order])
    base = np.stack(bases)
    return Outcomes(
        tuple(frames),
        metric,
        np.stack(tops),
        base,
        first["cluster"].to_numpy(np.int64)[order],
        ids.to_numpy(dtype=object)[order],
        bool(np.all(base == base[0])),
    )


def _places(ids: pd.Index, units: NDArray[np.object_]) -> Ints | slice | None:
    """Where each of `ids` stands among `units`; None where the two are not the same units."""
    if len(units) != len(ids):
        return None
    if np.array_equal(units, ids.to_numpy(dtype=object)):
        return slice(None)
    index = pd.Index(units)
    if not index.is_unique:
        return None
    places = index.get_indexer(ids)
    return None if (places < 0).any() else places.astype(np.int64)


def pairwise(outcomes: Outcomes) -> Pairs:
    """Compare every two models with the one paired test of this project.

    The sign-flip (randomisation) test over clusters: if two models do equally well, the difference that a cluster adds may as well have
    had the other sign, so the p-value is the share of all sign patterns whose sum is at least as far from 0 as the observed one. The
    difference d of a cluster is (top_a - m base_a) / sum(base_a) - (top_b - m base_b) / sum(base_b), with m the mean of the two shares;
    where both have the same denominators, m drops out. Where they differ (accuracy over the answered ones), p is at least 2^(1 - k) for a
    model that counts in k clusters: one answer decides nothing. How the p-value is found, `how` (an index into HOW), depends on the
    pair alone:

    - every cluster one 0/1 outcome: McNemar's test, which is this test, with mid-p (Fagerland, Lydersen & Laake 2013);
    - at most ENUMERATED clusters differ: all sign patterns are listed;
    - the pair is worth fewer than FEW clusters, (sum d^2)^2 / sum d^4, and the d are whole multiples of one step: the exact
      distribution, from its characteristic function (the product of cos(d t) over the clusters);
    - as few, without such a step: the saddlepoint approximation (Lugannani & Rice 1980; Robinson 1982 for this test), whose error is
      relative, so that it holds far out in the tail;
    - else the normal approximation.
    """
    top, base = outcomes.by_cluster
    total_top, total_base = top.sum(axis=1, dtype=np.float64), base.sum(axis=1, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = total_top / total_base
    row, column = np.triu_indices(len(top), 1)
    if outcomes.binary:
        both = (top @ top.T).astype(np.float64)[row, column]
        upper, how = _mcnemar(total_top[row] - both, total_top[column] - both), np.zeros(len(row), np.int64)
    else:
        upper, how = _sign_flips(outcomes, share, row, column)
    return Pairs(
        outcomes.models,
        100 * share,
        100 * (share[:, None] - share[None, :]),
        _symmetric(upper, len(top), 1.0),
        _symmetric(how, len(top), 0),
    )


def _symmetric(upper: NDArray[Any], models: int, diagonal: float) -> NDArray[Any]:
    """The (M, M) table of the values (M (M - 1) / 2,) above its diagonal."""
    table = np.full((models, models), diagonal, dtype=upper.dtype)
    row, column = np.triu_indices(models, 1)
    table[row, column] = table[column, row] = upper
    return table


def _mcnemar(only_a: Floats, only_b: Floats) -> Floats:
    """Two-sided mid-p value of McNemar's test: 2 P(X < min) + P(X = min), X binomial(a + b, 1/2); 1 where a = b."""
    least, n = np.minimum(only_a, only_b), only_a + only_b
    upto = special.bdtr(least, n.astype(np.int64), 0.5)
    at = np.exp(special.gammaln(n + 1) - special.gammaln(least + 1) - special.gammaln(n - least + 1) - n * math.log(2))
    return np.where(only_a == only_b, 1.0, np.minimum(1.0, 2 * upto - at))


def _sign_flips(outcomes: Outcomes, share: Floats, row: Ints, column: Ints) -> tuple[Floats, Ints]:
    """p-values (P,) of the pairs `row`, `column` (P,), and how each was found."""
    top, base = outcomes.by_cluster
    total = np.maximum(base.sum(axis=1, dtype=np.float64), 1e-30).astype(np.float32)[:, None]
    share = np.nan_to_num(share)
    difference = np.abs(share[row] - share[column])
    if outcomes.paired:
        variance, few = _paired_variance(top / total, row, column)
    else:
        variance = _unpaired_variance(top / total, base / total, share, row, column)
        few = np.full(len(row), top.shape[1] <= LISTED)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = np.where(variance > 0, 2 * special.ndtr(-difference / np.sqrt(variance)), 1.0)
    how = np.full(len(row), HOW.index(NORMAL))
    step = _steps(top) if outcomes.paired else np.zeros(len(top), np.int64)
    chunk = max(1, 2_000_000 // max(top.shape[1], 1))
    listed = np.flatnonzero(few)
    for start in range(0, len(listed), chunk):
        which = listed[start : start + chunk]
        a, b = row[which], column[which]
        if outcomes.paired:
            d = (top[a] - top[b]).astype(np.float64)
        else:
            middle = ((share[a] + share[b]) / 2)[:, None]
            d = (top[a] - middle * base[a]) / total[a] - (top[b] - middle * base[b]) / total[b]
        p[which], how[which] = listed_sign_flips(d, np.lcm(step[a], step[b]))
    if not outcomes.paired:
        # A model that counts in k clusters gives k signs to flip, however many clusters the other counts in.
        counted = (base > 0).sum(axis=1)
        p = np.fmax(p, np.exp2(1.0 - np.minimum(np.minimum(counted[row], counted[column]), 1000)))
    return np.minimum(p, 1.0), how


def _paired_variance(score: NDArray[np.float32], row: Ints, column: Ints) -> tuple[Floats, NDArray[np.bool_]]:
    """sum d^2 of each pair (P,), and where the pair may be worth fewer than FEW clusters, so that its d have to be looked at."""
    squares = score * score
    gram, cubes, fourth = (
        (x @ y.T).astype(np.float64) for x, y in ((score, score), (squares * score, score), (squares, squares))
    )
    own, own4 = np.diag(gram), np.diag(fourth)
    variance = np.maximum(own[row] + own[column] - 2 * gram[row, column], 0.0)
    d4 = own4[row] + own4[column] + 6 * fourth[row, column] - 4 * (cubes[row, column] + cubes[column, row])
    # Where two models are nearly the same, float32 sums cannot tell how much is left: those are looked at as well.
    alike = variance < 1e-3 * (own[row] + own[column])
    return variance, alike | (np.square(variance) < 1.05 * FEW * d4)


def _unpaired_variance(
    score: NDArray[np.float32], base: NDArray[np.float32], share: Floats, row: Ints, column: Ints
) -> Floats:
    """sum d^2 of each pair (P,) where denominators differ; `score`, `base` (M, G): what each cluster adds to a model's totals."""
    mean = np.float32(share.mean())
    score = score - mean * base  # small numbers, so that float32 loses little
    uu, uv, vv = ((x @ y.T).astype(np.float64) for x, y in ((score, score), (score, base), (base, base)))
    middle = (share[row] + share[column]) / 2 - float(mean)

    def of(gram: Floats) -> Floats:
        own = np.diag(gram)
        return own[row] + own[column] - gram[row, column] - gram[column, row]

    return np.maximum(of(uu) - 2 * middle * of(uv) + np.square(middle) * of(vv), 0.0)


def _steps(top: NDArray[np.float32]) -> Ints:
    """Per model the smallest q up to FINEST for which q x its numerators are whole (as many as it has samples); 0 where none is."""
    found = np.zeros(len(top), np.int64)
    values = [np.unique(row).astype(np.float64) for row in top]
    for model, numbers in enumerate(values):
        for q in range(1, FINEST + 1):
            if np.abs(q * numbers - np.rint(q * numbers)).max(initial=0.0) < 1e-3:
                found[model] = q
                break
    return found


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
        law = np.exp(times[part] @ logs) * (1 - 2 * np.mod(times[part] @ negative, 2))
        terms = observed[part] - 1
        with np.errstate(invalid="ignore", divide="ignore"):
            kernel = np.sin(terms[:, None] * frequency) / np.sin(frequency)
        kernel[:, 0] = terms
        p[part] = 1 - (law * kernel).sum(axis=1) / size
    return np.where(observed <= 0, 1.0, p)


def _saddlepoint(d: Floats, observed: Floats) -> Floats:
    """Lugannani and Rice's tail probability of the sum of the rows of d (P, G) with random signs, doubled; half the weight of the observed
    pattern is added, which a continuous law leaves out."""
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


def paired_test(units_a: pd.DataFrame, units_b: pd.DataFrame, metric: str) -> PairedTest:
    """Compare two models on one metric: the difference (percent points) with a 95 % interval, and a two-sided p-value.

    The p-value is that of `pairwise`, the board's. The interval is the cluster-robust one (CR2, Student's t).
    Raises BadInput where the two did not answer the same questions.
    """
    outcomes = pack({"a": units_a, "b": units_b}, metric)
    pairs = pairwise(outcomes)
    low, high = difference_interval(outcomes)
    won = outcomes.numerator[0] - outcomes.numerator[1]
    return PairedTest(
        float(pairs.difference[0, 1]),
        100 * low,
        100 * high,
        float(pairs.p[0, 1]),
        int((won > 0).sum()),
        int((won < 0).sum()),
        len(outcomes.units),
        HOW[int(pairs.how[0, 1])],
    )


def difference_interval(outcomes: Outcomes) -> tuple[float, float]:
    """The 95 % interval, as fractions, of the first model's share less the second's: cluster-robust variance (CR2), Student's t."""
    top, base = outcomes.by_cluster
    share = top.sum(axis=1, dtype=np.float64) / np.maximum(base.sum(axis=1, dtype=np.float64), 1e-300)
    spread = _difference_spread(outcomes, share)
    half, difference = float(special.stdtrit(spread.df, 0.975)) * math.sqrt(spread.variance), float(share[0] - share[1])
    return max(difference - half, -1.0), min(difference + half, 1.0)


def _difference_spread(outcomes: Outcomes, share: Floats) -> Spread:
    """Variance of the difference of the shares (2,) of two models."""
    base = outcomes.denominator.astype(np.float64)
    total = np.maximum(base.sum(axis=1), 1e-300)
    score = (outcomes.numerator - share[:, None] * base) / total[:, None]
    weight = (base / total[:, None]).mean(axis=0)
    used = weight > 0
    _, index = np.unique(outcomes.cluster[used], return_inverse=True)
    if not used.any() or int(index.max()) == 0:
        return Spread(1.0, 1.0)
    spread = ratio_spread((score[0] - score[1])[used], weight[used], index)
    # Never certain: what one differing cluster more would add (Agresti & Min 2005 add as much to a table of pairs).
    return Spread(spread.variance + 1 / (int(index.max()) + 2) ** 2, spread.df)


def holm(p: Floats) -> Floats:
    """Holm's correction (1979) of the p-values of a symmetric (M, M) table: one family of M (M - 1) / 2 comparisons."""
    models = len(p)
    upper = np.triu_indices(models, 1)
    raw = p[upper]
    order = np.argsort(raw, kind="stable")
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(np.maximum.accumulate(raw[order] * (len(raw) - np.arange(len(raw)))), 1.0)
    table = np.ones_like(p)
    table[upper] = adjusted
    return np.minimum(table, table.T)


@dataclass(frozen=True, slots=True)
class Places:
    """What is sure about the order of M models; all arrays in their order.

    `apart` (M, M): two models are told apart. Paired tests of all pairs, corrected by Holm (1979): of all pairs that do equally well,
    any is told apart in at most 5 % of draws.
    `may_lead` (M,): the model may be the best. Out is whom another, ahead of it, beats with one-sided p under 5 % / (M - 1), that is
    two-sided p under 10 % / (M - 1), and never p >= 5 %: the comparison with the best (Hsu 1984; here with Bonferroni's correction, so
    that it holds for any dependence). The best model, or of equally good ones any designated one, is wrongly out in at most 5 % of draws.
    `first`, `last` (M,): the places a model may hold. `first` is 1 + the models told apart from it and better, at least 2 where it may
    not lead, so that exactly those share place 1 who may be the best; `last` is M - the models told apart from it and worse. `first` is
    the rank that is shown.

    Whether two models are told apart stands in `apart` alone: two models whose places overlap may be told apart (each may be tied with
    models in between), and two that are not may hold different first places.
    """

    first: Ints
    last: Ints
    apart: NDArray[np.bool_]
    may_lead: NDArray[np.bool_]


def places(value: Floats, p: Floats, higher_is_better: bool = True, level: float = 0.05) -> Places:
    """The places that M models may hold, from their values (M,), no NaN, and the uncorrected p-values (M, M) of `pairwise`."""
    models = len(value)
    apart = holm(p) < level
    ahead = value[None, :] > value[:, None] if higher_is_better else value[None, :] < value[:, None]
    beaten = ahead & (apart | (p < min(level, 2 * level / max(models - 1, 1))))
    may_lead = np.logical_not(beaten.any(axis=1))
    first = 1 + (apart & ahead).sum(axis=1)
    return Places(np.maximum(first, 2 - may_lead), models - (apart & ahead.T).sum(axis=1), apart, may_lead)
