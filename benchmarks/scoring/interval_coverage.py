"""How often the 95 % intervals cover, and how wide they are, over a grid of shares, clusters and correlations.

PYTHONPATH=. python benchmarks/scoring/interval_coverage.py [--draws 2000] [--seed 1] [--random 2000] [--others 0] [--all]
(about 7 minutes; --random: how many cells of layouts, shares and correlations that nobody chose; --others: the same of layouts and
mechanisms that the constants have not seen; --all prints every cell)

Outcomes are 0/1 with mean p and correlation ICC within clusters, by two mechanisms, since the correlation alone does not say how outcomes
go together: `beta` (beta-binomial: a cluster's own share is beta distributed) and `coin` (each outcome copies its cluster's coin with
probability sqrt(ICC), or tosses its own: what a model gets wrong about one image, it gets wrong in many questions); in random cells also
`probit` (ICC of the underlying normal variable); with --others: `two shares` (a cluster is easy or hard), `some miss` (or hit) throughout,
`blocks` (a few questions of a cluster copy a coin), `chain` (a question repeats the one before). Width is the mean
width divided by that of Wilson's interval at the effective sample size of the true ICC, which nobody knows (the oracle).
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from eval_harness.records.result import Score
from eval_harness.scores.comparing.comparisons import difference_interval
from eval_harness.scores.intervals import NORMAL, clustered_interval, clustered_intervals
from eval_harness.scores.outcomes import Outcomes
from leaderboard_space.data.ranks.pairs import unpaired_difference

Ints = NDArray[np.int64]

MEDICONFUSION = np.array([25, 20, 18, 8, 6, 5, 5, 5, 5, 4, 4, *[3] * 6, *[2] * 10, *[1] * 33])
"""The 60 components of MediConfusion's 176 pairs."""
SHARES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98)
CORRELATIONS = (0.0, 0.1, 0.3, 0.5, 0.8)
MECHANISMS = ("beta", "coin")
OTHERS = ("two shares", "some miss", "some hit", "blocks", "chain")
PROMISE = 0.93


def layouts() -> dict[str, Ints]:
    """Cluster sizes by name: equal (clusters x questions), skewed (log-normal), and MediConfusion's components."""
    found = {f"{g} x {m}": np.full(g, m) for g in (10, 20, 40, 60, 176) for m in (1, 2, 3, 5, 9)}
    rng = np.random.default_rng(0)
    for g in (20, 60, 176):
        found[f"{g} skewed"] = np.maximum(1, np.round(np.exp(rng.normal(1, 0.9, g)))).astype(int)
    return found | {"MediConfusion": MEDICONFUSION}


def hits(rng: np.random.Generator, sizes: Ints, share: float, icc: float, mechanism: str, draws: int) -> Ints:
    """Hits per cluster: (draws, G)."""
    shape = (draws, len(sizes))
    if icc == 0:
        return rng.binomial(sizes, share, shape)
    if mechanism == "beta":
        return rng.binomial(sizes, rng.beta(share * (1 - icc) / icc, (1 - share) * (1 - icc) / icc, shape))
    if mechanism == "probit":
        normal = np.sqrt(icc) * rng.standard_normal(shape)
        return rng.binomial(sizes, special.ndtr((special.ndtri(share) + normal) / np.sqrt(1 - icc)))
    if mechanism in OTHERS:
        return _other_hits(rng, sizes, share, icc, mechanism, shape)
    copies = rng.binomial(sizes, np.sqrt(icc), shape)
    found: Ints = (rng.random(shape) < share) * copies + rng.binomial(sizes - copies, share)
    return found


def _other_hits(
    rng: np.random.Generator, sizes: Ints, share: float, icc: float, mechanism: str, shape: tuple[int, int]
) -> Ints:
    if mechanism == "some hit":
        return sizes - _other_hits(rng, sizes, 1 - share, icc, "some miss", shape)
    if mechanism == "some miss":  # of the others the share is higher, at most 1
        there = max(1 / (1 + icc * (1 - share) / share), share)
        return rng.binomial(sizes, np.where(rng.random(shape) < there, share / there, 0.0))
    if mechanism == "two shares":
        spread = min(np.sqrt(icc * share * (1 - share)), share, 1 - share)
        return rng.binomial(sizes, np.where(rng.random(shape) < 0.5, share + spread, share - spread))
    found, last = np.zeros(shape, np.int64), np.zeros(shape, bool)
    block = 1 if mechanism == "chain" else int(rng.integers(2, 6))
    for at in range(int(sizes.max())):
        fresh = rng.random(shape) < share
        if mechanism == "blocks":
            last = rng.random(shape) < share if at % block == 0 else last
            now = np.where(rng.random(shape) < np.sqrt(icc), last, fresh)
        else:
            now = last = np.where(rng.random(shape) < (np.sqrt(icc) if at else 0.0), last, fresh)
        found += now & (at < sizes)
    return found


@dataclass(frozen=True)
class Cell:
    """`below`, `above`: draws whose interval lies below, or above, the truth."""

    layout: str
    share: float
    icc: float
    mechanism: str
    coverage: float
    width: float
    below: float
    above: float


def cells(draws: int, seed: int, names: tuple[str, ...] = ()) -> Iterator[Cell]:
    """Every cell of the grid, or those of some layouts."""
    for name, sizes in layouts().items():
        if names and name not in names:
            continue
        for share in SHARES:
            for icc in CORRELATIONS:
                for mechanism in MECHANISMS if icc else MECHANISMS[:1]:
                    yield cell(name, sizes, share, icc, mechanism, draws, seed)


def random_cells(count: int, draws: int, seed: int, others: bool = False) -> Iterator[Cell]:
    """Cells drawn at random: layouts of `random_layout`, p from .003 to .997 (even in log p / (1 - p)), ICC 0 to .9, three mechanisms;
    `others`: those of `other_layout` and OTHERS."""
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        name, sizes = other_layout(rng) if others else random_layout(rng)
        share = float(special.expit(rng.uniform(-5.8, 5.8)))
        icc = 0.0 if rng.random() < 0.1 else float(rng.uniform(0.02, 0.9))
        mechanism = str(rng.choice(OTHERS if others else (*MECHANISMS, "probit")))
        yield cell(name, sizes, round(share, 4), round(icc, 3), mechanism, draws, seed)


def random_layout(rng: np.random.Generator) -> tuple[str, Ints]:
    """Cluster sizes that nobody chose: equal, two sizes, heavy tails, one giant, few clusters."""
    kind = str(rng.choice(("equal", "two sizes", "heavy tail", "one giant", "few")))
    clusters = int(np.exp(rng.uniform(np.log(9), np.log(500))))
    large = int(np.exp(rng.uniform(np.log(4), np.log(100))))
    if kind == "equal":
        sizes = np.full(clusters, min(large, 30))
    elif kind == "two sizes":
        many = max(1, int(clusters * rng.uniform(0.02, 0.6)))
        sizes = np.r_[np.full(many, large), np.full(clusters, int(rng.integers(1, 4)))]
    elif kind == "heavy tail":
        drawn = np.exp(rng.normal(0.5, rng.uniform(0.8, 1.8), clusters))
        sizes = np.clip(np.round(drawn), 1, 150)
    elif kind == "one giant":
        sizes = np.r_[large, np.full(clusters, int(rng.integers(1, 4)))]
    else:
        sizes = rng.integers(2, 2 + large, int(rng.integers(2, 9)))
    found: Ints = sizes.astype(np.int64)
    return f"{kind} ({len(found)} clusters, {found.sum()} questions, largest {found.max()})", found


def other_layout(rng: np.random.Generator) -> tuple[str, Ints]:
    """Cluster sizes of other laws: Zipf's, geometric, negative binomial, 1 to k, ones and twos, few large, three tiers."""
    kind = str(
        rng.choice(("Zipf", "geometric", "negative binomial", "ladder", "ones and twos", "few large", "three tiers"))
    )
    clusters = int(np.exp(rng.uniform(np.log(10), np.log(300))))
    laws = {
        "Zipf": lambda: rng.uniform(10, 120) * np.arange(1, clusters + 1) ** -rng.uniform(0.6, 1.4),
        "geometric": lambda: rng.geometric(rng.uniform(0.08, 0.7), clusters),
        "negative binomial": lambda: 1 + rng.negative_binomial(rng.uniform(0.2, 3), rng.uniform(0.05, 0.5), clusters),
        "ladder": lambda: np.arange(1, min(clusters, 60) + 1),
        "ones and twos": lambda: rng.integers(1, 3, clusters),
        "few large": lambda: rng.integers(30, 150, int(rng.integers(9, 16))),
        "three tiers": lambda: np.r_[60, 60, np.full(max(2, clusters // 10), 12), np.ones(clusters)],
    }
    found: Ints = np.clip(np.round(laws[kind]()), 1, 150).astype(np.int64)
    return f"{kind} ({len(found)} clusters, {found.sum()} questions, largest {found.max()})", found


def cell(name: str, sizes: Ints, share: float, icc: float, mechanism: str, draws: int, seed: int) -> Cell:
    """One cell, from draws of its own."""
    key = f"{name} {share} {icc} {mechanism}"
    rng = np.random.default_rng([seed, zlib.crc32(key.encode())])
    sums = hits(rng, sizes, share, icc, mechanism, draws).astype(float)
    weight = sizes.astype(float)
    total = sums.sum(axis=1)
    low, high, _, _ = clustered_intervals(sums, total, total, weight, weight, True)
    deff = 1 + icc * ((weight**2).sum() / weight.sum() - 1)
    oracle = _wilson_width(total / weight.sum(), weight.sum() / deff)
    below, above = float((high < share).mean()), float((low > share).mean())
    return Cell(name, share, icc, mechanism, 1 - below - above, float((high - low).mean() / oracle), below, above)


def _wilson_width(share: NDArray[np.float64], n: float) -> float:
    c2 = NORMAL**2
    return float((2 * NORMAL / (1 + c2 / n) * np.sqrt(share * (1 - share) / n + c2 / (4 * n * n))).mean())


def ratios(draws: int, seed: int) -> Iterator[tuple[str, float, float, float, float]]:
    """A ratio whose denominator is random too (confusion: of the pairs with two valid answers): layout, share, ICC, validity, coverage.
    Valid answers are as correlated within clusters as hits."""
    for name in ("20 x 5", "60 x 5", "MediConfusion", "60 skewed"):
        sizes = layouts()[name]
        cluster = np.repeat(np.arange(len(sizes)), sizes)
        for share in (0.02, 0.1, 0.5, 0.9):
            for icc in (0.0, 0.3, 0.5):
                for valid in (0.6, 0.9):
                    rng = np.random.default_rng([seed, zlib.crc32(f"{name} {share} {icc} {valid}".encode())])
                    covered = counted = 0
                    for _ in range(draws):
                        base = _outcomes(rng, cluster, valid, icc)
                        found = clustered_interval(base * _outcomes(rng, cluster, share, icc), base, cluster)
                        if found is not None:
                            counted += 1
                            covered += found.low <= share <= found.high
                    yield name, share, icc, valid, covered / counted


def differences(draws: int, seed: int) -> Iterator[tuple[str, float, float, float, float]]:
    """The interval of `compare` for the difference of two models: layout, their shares, ICC, coverage."""
    for name in ("20 x 5", "60 x 5", "MediConfusion", "60 skewed", "176 x 1"):
        sizes = layouts()[name]
        cluster = np.repeat(np.arange(len(sizes)), sizes)
        for one, other in ((0.02, 0.02), (0.02, 0.1), (0.1, 0.3), (0.5, 0.5), (0.9, 0.98)):
            for icc in (0.0, 0.3, 0.5):
                rng = np.random.default_rng([seed, zlib.crc32(f"{name} {one} {other} {icc}".encode())])
                covered = 0
                for _ in range(draws):
                    both = np.stack([_outcomes(rng, cluster, share, icc) for share in (one, other)]).astype(np.float32)
                    units = np.arange(len(cluster)).astype(object)
                    packed = Outcomes(("a", "b"), "m", both, np.ones_like(both), cluster, units, True)
                    low, high = difference_interval(packed)
                    covered += low <= one - other <= high
                yield name, one, other, icc, covered / draws


def printed_differences() -> Iterator[tuple[int, int, float]]:
    """The interval of the difference of two printed percentages of n and m cases: the lowest exact coverage over both shares."""
    shares = np.linspace(0.01, 0.99, 50)
    for n, m in ((14, 14), (14, 60), (20, 43), (20, 176), (60, 60), (60, 79)):
        scores = [[Score(value=100 * hits / of, n=of, n_cases=of) for hits in range(of + 1)] for of in (n, m)]
        ends = np.array([[unpaired_difference(one, other)[:2] for other in scores[1]] for one in scores[0]])
        laws = [stats.binom.pmf(np.arange(of + 1), of, shares[:, None]) for of in (n, m)]
        lowest = 1.0
        for p, one in zip(shares, laws[0], strict=True):
            for q, other in zip(shares, laws[1], strict=True):
                truth = 100 * (p - q)
                inside = (ends[..., 0] <= truth + 1e-9) & (truth <= ends[..., 1] + 1e-9)
                lowest = min(lowest, float(one @ inside @ other))
        yield n, m, lowest


def _outcomes(rng: np.random.Generator, cluster: Ints, share: float, icc: float) -> NDArray[np.float64]:
    """0/1 outcomes by the mechanism `coin`, one per unit."""
    coin = rng.random(int(cluster.max()) + 1) < share
    copies = rng.random(len(cluster)) < np.sqrt(icc)
    return np.where(copies, coin[cluster], rng.random(len(cluster)) < share).astype(float)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--random", type=int, default=2000, metavar="CELLS", help="cells of random layouts")
    parser.add_argument("--others", type=int, default=0, metavar="CELLS", help="cells of other layouts and mechanisms")
    parser.add_argument(
        "--all", action="store_true", help="print every cell, not the worst of each share and correlation"
    )
    options = parser.parse_args()
    found = list(cells(options.draws, options.seed))
    print(f"{len(found)} cells, {options.draws} draws each, seed {options.seed}")
    print(
        "lowest coverage (percent) over all layouts and mechanisms, and in brackets the median width, the oracle's being 1\n"
    )
    print("| p | " + " | ".join(f"ICC {icc}" for icc in CORRELATIONS) + " |")
    print("|---" * (len(CORRELATIONS) + 1) + "|")
    for share in SHARES:
        parts = [[one for one in found if (one.share, one.icc) == (share, icc)] for icc in CORRELATIONS]
        texts = [f"{100 * min(c.coverage for c in p):.1f} ({np.median([c.width for c in p]):.2f})" for p in parts]
        print(f"| {share} | {' | '.join(texts)} |")
    print("\n| layout | lowest coverage | mean coverage | median width | widest |\n|---|---|---|---|---|")
    for name in layouts():
        part = [one for one in found if one.layout == name]
        cover, width = [one.coverage for one in part], [one.width for one in part]
        low, mean = 100 * min(cover), 100 * np.mean(cover)
        print(f"| {name} | {low:.1f} | {mean:.1f} | {np.median(width):.2f} | {max(width):.2f} |")
    worst = sorted(found, key=lambda one: one.coverage)
    under = sum(one.coverage < PROMISE for one in found)
    print(f"\nunder {100 * PROMISE:.0f} %: {under} of {len(found)} cells; the lowest:")
    for one in found if options.all else worst[:8]:
        print(
            f"  {one.layout}, p = {one.share}, ICC {one.icc}, {one.mechanism}: {100 * one.coverage:.1f} (below {100 * one.below:.1f},"
            f" above {100 * one.above:.1f}), width {one.width:.2f}"
        )
    for what, count, others in (
        ("random layouts", options.random, False),
        ("other layouts and mechanisms", options.others, True),
    ):
        if not count:
            continue
        drawn = sorted(random_cells(count, options.draws // 2, options.seed, others), key=lambda one: one.coverage)
        width, under = [one.width for one in drawn], sum(one.coverage < PROMISE for one in drawn)
        print(
            f"\n{what}, {len(drawn)} cells, {options.draws // 2} draws each: under {100 * PROMISE:.0f} %: {under}; width"
            f" {np.median(width):.2f} (median), {np.quantile(width, 0.95):.2f} (19 of 20), {max(width):.2f} (widest); the lowest:"
        )
        for one in drawn[:8]:
            print(
                f"  {one.layout}, p = {one.share}, ICC {one.icc}, {one.mechanism}: {100 * one.coverage:.1f}, width {one.width:.2f}"
            )
    fewer = max(options.draws // 4, 100)
    for what, draws, rows in (
        ("ratios (p, ICC, share of valid)", fewer, list(ratios(fewer, options.seed))),
        ("differences (p, p, ICC)", options.draws, list(differences(options.draws, options.seed))),
    ):
        rows.sort(key=lambda row: row[-1])
        cover = [100 * row[-1] for row in rows]
        print(
            f"\n{what}, {len(rows)} cells, {draws} draws each: lowest {cover[0]:.1f}, mean {np.mean(cover):.1f}; the lowest:"
        )
        for row in rows[:5]:
            print(f"  {row[0]}, {row[1]}, {row[2]}, {row[3]}: {100 * row[4]:.1f}")
    print("\ndifferences of two printed percentages, exact, lowest over both shares:")
    for n, m, lowest in printed_differences():
        print(f"  n = {n} and {m}: {100 * lowest:.1f}")


if __name__ == "__main__":
    main()
