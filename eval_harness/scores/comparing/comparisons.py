"""The paired test between models on the same questions, for all pairs at once or for two, and the interval of a difference.

What it stands on: the packed outcomes (`outcomes.py`), p-values of sign flips (`sign_flips.py`); what follows for the order of many
models: `ranks.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from eval_harness.scores.clustered import Spread, ratio_spread
from eval_harness.scores.comparing.sign_flips import FEW, HOW, NORMAL, listed_sign_flips
from eval_harness.scores.outcomes import Outcomes, pack

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LISTED = 2_000
"""Clusters up to which the differences of pairs with unequal denominators are looked at one by one; beyond, they are taken as normal."""
FINEST = 120
"""The finest step, 1 / 120 of a unit, that is looked for (the mean of 120 samples)."""


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
    """Two models on the same questions. Percent points; `n`: units that count in either of them; `only_a`, `only_b`: on how many one of
    them scored more; p two-sided."""

    difference: float
    low: float
    high: float
    p: float
    only_a: int
    only_b: int
    n: int
    method: str


def disagree(p: float, low: float, high: float) -> bool:
    """Whether the test of a difference and its interval disagree about 0, as they may where few or unequal clusters decide.

    >>> disagree(0.03, -0.2, 4.1), disagree(0.03, 0.2, 4.1)
    (True, False)
    """
    return (p < 0.05) == (low <= 0 <= high)


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
    p, how = np.empty(len(row)), np.zeros(len(row), np.int64)
    alike = np.zeros(len(top), np.int64) if outcomes.paired else _same_rows(base)
    single = (base == 1).all(axis=1) & ((top == 0) | (top == 1)).all(axis=1)
    paired, binary = alike[row] == alike[column], single[row] & single[column]
    if binary.any():
        both = (top @ top.T).astype(np.float64)[row, column]
        p[binary] = _mcnemar(total_top[row] - both, total_top[column] - both)[binary]
    for together in (True, False):
        some = ~binary & (paired == together)
        if some.any():
            p[some], how[some] = _sign_flips(top, base, share, row[some], column[some], together)
    return Pairs(
        outcomes.models,
        100 * share,
        100 * (share[:, None] - share[None, :]),
        _symmetric(p, len(top), 1.0),
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
    first, which = _kinds(least, n)
    least, n = least[first], n[first]
    upto = special.bdtr(least, n.astype(np.int64), 0.5)
    at = np.exp(special.gammaln(n + 1) - special.gammaln(least + 1) - special.gammaln(n - least + 1) - n * math.log(2))
    return np.where(2 * least == n, 1.0, np.minimum(1.0, 2 * upto - at))[which]


def _kinds(*counts: Floats) -> tuple[Ints, Ints]:
    """Of P rows of whole numbers, one row of each kind, and the kind of every row: of hundreds of models many pairs are alike."""
    code = np.zeros(len(counts[0]))
    for column in counts:
        code = code * (column.max(initial=0) + 1) + column
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    return first, which


def _same_rows(values: NDArray[np.float32]) -> Ints:
    """A number for every row of (M, G): the same one for rows that are the same."""
    seen: dict[bytes, int] = {}
    return np.array([seen.setdefault(line.tobytes(), len(seen)) for line in values], np.int64)


def _sign_flips(
    top: NDArray[np.float32], base: NDArray[np.float32], share: Floats, row: Ints, column: Ints, paired: bool
) -> tuple[Floats, Ints]:
    """p-values (P,) of the pairs `row`, `column` (P,), and how each was found. `paired`: both of each have the same denominators."""
    total = np.maximum(base.sum(axis=1, dtype=np.float64), 1e-30).astype(np.float32)[:, None]
    share = np.nan_to_num(share)
    difference = np.abs(share[row] - share[column])
    if paired:
        variance, few = _paired_variance(top / total, row, column)
    else:
        variance = _unpaired_variance(top / total, base / total, share, row, column)
        few = np.full(len(row), top.shape[1] <= LISTED)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = np.where(variance > 0, 2 * special.ndtr(-difference / np.sqrt(variance)), 1.0)
    how = np.full(len(row), HOW.index(NORMAL))
    step = _steps(top) if paired else np.zeros(len(top), np.int64)
    chunk = max(1, 2_000_000 // max(top.shape[1], 1))
    every = np.flatnonzero(few)
    alike = _alike(top, row[every], column[every]) if paired and bool(np.all(step == 1)) else None
    listed = every if alike is None else every[alike[0]]
    for start in range(0, len(listed), chunk):
        which = listed[start : start + chunk]
        a, b = row[which], column[which]
        if paired:
            d = (top[a] - top[b]).astype(np.float64)
        else:
            middle = ((share[a] + share[b]) / 2)[:, None]
            d = (top[a] - middle * base[a]) / total[a] - (top[b] - middle * base[b]) / total[b]
        p[which], how[which] = listed_sign_flips(d, np.lcm(step[a], step[b]))
    if alike is not None:
        p[every], how[every] = p[listed][alike[1]], how[listed][alike[1]]
    if not paired:
        # A model that counts in k clusters gives k signs to flip, however many clusters the other counts in.
        counted = (base > 0).sum(axis=1)
        p = np.fmax(p, np.exp2(1.0 - np.minimum(np.minimum(counted[row], counted[column]), 1000)))
    return np.minimum(p, 1.0), how


MOST_HITS = 3
"""Hits in a cluster up to which pairs of models are looked at by how many clusters differ by 1, 2 ... hits."""


def _alike(top: NDArray[np.float32], row: Ints, column: Ints) -> tuple[Ints, Ints] | None:
    """One pair of each kind, and the kind of every pair (P,), where `top` (M, G) are whole: the p-value of a pair follows from how many
    clusters differ by 1, 2 ... and from the difference of the sums. None where clusters are too large for this to save anything."""
    most = int(top.max(initial=0))
    if not row.size or most > MOST_HITS or top.min(initial=0) < 0 or (top.shape[1] + 1.0) ** (most + 1) > 2**52:
        return None
    has = [(top == hits).astype(np.float32) for hits in range(most + 1)]
    counts = []
    for apart in range(1, most + 1):
        both = np.add.reduce([has[hits] @ has[hits + apart].T for hits in range(most + 1 - apart)])
        counts.append((both + both.T)[row, column].astype(np.float64))
    total = top.sum(axis=1, dtype=np.float64)
    return _kinds(np.abs(total[row] - total[column]), *counts)


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
        int((outcomes.denominator > 0).any(axis=0).sum()),
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
