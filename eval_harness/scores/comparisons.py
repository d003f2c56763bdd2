"""Which models differ: paired tests between models on the same questions, corrected for their number, and tie groups.

`statistics.py` gives these names too. Not here: intervals and the test against chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from dataset_builders.errors import BadInput
from eval_harness.scores.clustered import Spread, ratio_spread

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
EXACT_UNDER = 20_000_000
"""Work (clusters x range of the sum) up to which the sign-flip distribution is computed exactly."""
COUNTED_UP_TO = 2_000
"""Number of clusters up to which those that differ are counted for every pair."""


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
    """All comparisons of M models: `value` (M,) percent, `difference` (M, M) = value of row - value of column, `p` (M, M) uncorrected."""

    models: tuple[str, ...]
    value: Floats
    difference: Floats
    p: Floats


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
    """Compare every two models.

    One 0/1 outcome per cluster: McNemar's test, mid-p (Fagerland, Lydersen & Laake 2013). Otherwise the outcomes of a cluster go
    together: the sign-flip (permutation) test on the differences of cluster sums, its distribution taken as normal but never
    under the smallest p-value so few differing clusters can give.
    """
    top, base = outcomes.by_cluster
    total_top, total_base = top.sum(axis=1, dtype=np.float64), base.sum(axis=1, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = total_top / total_base
    if outcomes.binary:
        both = (top @ top.T).astype(np.float64)
        p = np.ones_like(both)
        row, column = np.triu_indices(len(both), 1)
        p[row, column] = _mcnemar(total_top[row] - both[row, column], total_top[column] - both[row, column])
        p = np.minimum(p, p.T)
    else:
        if outcomes.paired:
            score = top / np.float32(total_base[0] or 1)
        else:
            score = (top - share[:, None].astype(np.float32) * base) / total_base[:, None].astype(np.float32)
        p = _sign_flip(score, share, outcomes.paired)
    return Pairs(outcomes.models, 100 * share, 100 * (share[:, None] - share[None, :]), p)


def _mcnemar(only_a: Floats, only_b: Floats) -> Floats:
    """Two-sided mid-p value of McNemar's test: 2 P(X < min) + P(X = min), X binomial(a + b, 1/2); 1 where a = b."""
    least, n = np.minimum(only_a, only_b), only_a + only_b
    upto = special.bdtr(least, n.astype(np.int64), 0.5)
    at = np.exp(special.gammaln(n + 1) - special.gammaln(least + 1) - special.gammaln(n - least + 1) - n * math.log(2))
    return np.where(only_a == only_b, 1.0, np.minimum(1.0, 2 * upto - at))


def _sign_flip(score: NDArray[np.float32], share: Floats, paired: bool) -> Floats:
    """p-values of the sign-flip test for all pairs; score (M, G): what each cluster adds to a model's share."""
    gram = (score @ score.T).astype(np.float64)
    own = np.diag(gram)
    variance = own[:, None] + own[None, :] - 2 * gram
    # float32 cannot tell a difference of less than this from none
    differ = variance > 1e-6 * (own[:, None] + own[None, :])
    difference = np.abs(share[:, None] - share[None, :])
    z = np.divide(difference, np.sqrt(np.maximum(variance, 0)), out=np.zeros_like(difference), where=differ)
    p = 2 * special.ndtr(-z)
    if paired:
        p = np.maximum(p, _least_p(score, variance, p))
    return np.where(differ, np.minimum(p, 1.0), 1.0)


def _least_p(score: NDArray[np.float32], variance: Floats, p: Floats) -> Floats:
    """The smallest p-value that the sign flips can give (M, M): 2^(1 - d), d the clusters in which two models differ.

    A bound on d from below tells where it cannot matter (p is larger all the same). Elsewhere clusters are counted, up to
    `COUNTED_UP_TO` of them; beyond that the bound stands for the count.
    """
    largest = float(np.ptp(score)) if score.size else 0.0
    least = np.exp2(1 - np.minimum(np.maximum(variance, 0) / max(largest * largest, 1e-300), 1000.0))
    if score.shape[1] <= COUNTED_UP_TO:
        one, other = np.nonzero(np.triu(p < least, 1))
        for first in range(0, len(one), 256):
            a, b = one[first : first + 256], other[first : first + 256]
            floor = np.exp2(1.0 - np.minimum((np.abs(score[a] - score[b]) > 1e-9).sum(axis=1), 1000))
            least[a, b] = least[b, a] = floor
    return least


def paired_test(units_a: pd.DataFrame, units_b: pd.DataFrame, metric: str) -> PairedTest:
    """Compare two models on one metric: the difference (percent points) with a 95 % interval, and a two-sided p-value.

    The p-value is that of McNemar's mid-p test or of the sign-flip test over clusters; the latter is exact where the differences are
    whole multiples of one step (counts), else normal. The interval is the cluster-robust one (CR2, Student's t).
    Raises BadInput where the two did not answer the same questions.
    """
    outcomes = pack({"a": units_a, "b": units_b}, metric)
    pairs = pairwise(outcomes)
    top, base = outcomes.by_cluster
    total = np.maximum(base.sum(axis=1, dtype=np.float64), 1e-300)
    share = top.sum(axis=1, dtype=np.float64) / total
    p, method = float(pairs.p[0, 1]), "McNemar, mid-p" if outcomes.binary else "sign-flip over clusters, normal"
    if outcomes.paired and not outcomes.binary:
        exact = sign_flip_p(top[0].astype(np.float64) - top[1])
        if exact is not None:
            p, method = exact, "sign-flip over clusters, exact"
    spread = _difference_spread(outcomes, share)
    half = float(special.stdtrit(spread.df, 0.975)) * math.sqrt(spread.variance)
    difference = float(share[0] - share[1])
    won = outcomes.numerator[0] - outcomes.numerator[1]
    return PairedTest(
        100 * difference,
        100 * max(difference - half, -1.0),
        100 * min(difference + half, 1.0),
        p,
        int((won > 0).sum()),
        int((won < 0).sum()),
        len(outcomes.units),
        method,
    )


def _difference_spread(outcomes: Outcomes, share: Floats) -> Spread:
    """Variance of the difference of the shares (2,) of two models."""
    base = outcomes.denominator.astype(np.float64)
    total = np.maximum(base.sum(axis=1), 1e-300)
    score = (outcomes.numerator - share[:, None] * base) / total[:, None]
    weight = (base / total[:, None]).mean(axis=0)
    used = weight > 0
    _, index = np.unique(outcomes.cluster[used], return_inverse=True)
    if not used.any() or int(index.max()) == 0:
        return Spread(1.0, 1.0, 1.0)
    spread = ratio_spread((score[0] - score[1])[used], weight[used], index)
    # Never certain: what one differing cluster more would add.
    return Spread(spread.variance + (spread.variance == 0) / (int(index.max()) + 1) ** 2, spread.df, spread.size)


def sign_flip_p(differences: Floats) -> float | None:
    """Exact two-sided p-value of sum(d) when every d may as well have had the other sign; None where that is too much work.

    The d have to be whole multiples of the smallest one; their sum's distribution is built by convolution.
    """
    d = np.abs(differences[np.abs(differences) > 1e-9])
    if not len(d):
        return 1.0
    steps = np.rint(d / d.min())
    if np.abs(d / d.min() - steps).max() > 1e-4 or len(d) * steps.sum() > EXACT_UNDER:
        return None
    law = np.ones(1)
    for step in steps.astype(np.int64).tolist():
        wider = np.zeros(len(law) + step)
        wider[: len(law)] += law / 2
        wider[step:] += law / 2
        law = wider
    observed = abs(round(float(differences.sum() / d.min())))
    values = np.abs(2 * np.arange(len(law)) - steps.sum())
    return float(min(1.0, law[values >= observed].sum()))


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


def tie_groups(pairs: Pairs, higher_is_better: bool = True, level: float = 0.05) -> Ints:
    """Rank of every model (M,): 1 + the number of models significantly better (Holm over all pairs). Equal ranks are ties.

    A model without a value (nothing counted) is beaten by none and beats none.
    """
    better = pairs.difference > 0 if higher_is_better else pairs.difference < 0
    return 1 + (better & (holm(pairs.p) < level)).sum(axis=0)
