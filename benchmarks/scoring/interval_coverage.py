"""Simulate coverage and width of the 95 % intervals over shares, layouts and correlations.

    PYTHONPATH=. python benchmarks/scoring/interval_coverage.py [--draws 2000] [--seed 1]
        [--random 2000] [--others 0] [--variants]      (about 4 minutes)

--random: number of cells with random layouts, shares and correlations. --others: likewise, but with
layouts and mechanisms that were not used to design the method. --variants: print only what each
part of the design effect contributes.

Outcomes are 0/1 with mean p and correlation ICC within clusters. The correlation alone does not
determine their joint distribution, so each cell of the grid is simulated with two mechanisms:

- `beta` (beta-binomial): each cluster has its own share, which is beta distributed.
- `coin`: each outcome copies its cluster's coin with probability sqrt(ICC), or else is tossed on
  its own. This imitates a model that misreads an image, and so fails many questions about it.

Random cells also use `probit` (here ICC is the correlation of the underlying normal variable).
--others uses five more:

- `two shares`: a cluster is easy or hard.
- `some miss`, `some hit`: in some clusters all outcomes are misses (or hits).
- `blocks`: a few consecutive questions of a cluster copy one coin.
- `chain`: a question repeats the previous outcome.

The intervals are compared with `reference`: Wilson's interval at the effective sample size from the
analysis-of-variance estimate of the correlation, implemented independently here.
"""

import argparse
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from eval_harness.records.result import Score
from eval_harness.scores.comparisons import OutcomeMatrix, compare_pairwise, compute_unpaired_difference
from eval_harness.scores.intervals import (
    NORMAL_QUANTILE,
    ClusterSizes,
    clopper_pearson,
    clustered_interval,
    clustered_intervals,
    intracluster_correlation,
    printed_interval,
    student_quantile,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Method = Callable[[Floats, Ints], tuple[Floats, Floats]]
"""Hits per cluster (draws, G), cluster sizes (G,) -> lower and upper ends (draws,)."""

MEDICONFUSION = np.array([25, 20, 18, 8, 6, 5, 5, 5, 5, 4, 4, *[3] * 6, *[2] * 10, *[1] * 33])
"""The 60 components of MediConfusion's 176 pairs."""
SHARES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98)
CORRELATIONS = (0.0, 0.1, 0.3, 0.5, 0.8)
MEDICONFUSION_SHARES, MEDICONFUSION_CORRELATIONS = (0.05, 0.1, 0.2, 0.3, 0.5), (0.0, 0.1, 0.2, 0.3)
MECHANISMS = ("beta", "coin")
OTHERS = ("two shares", "some miss", "some hit", "blocks", "chain")
PROMISE = 0.93
"""Coverage that docs/statistics.md promises."""
FEW_OR_GIANT = ("5 x 9", "6 unequal", "40, 40 x 2", "50, 100 x 1", "40, 40, 80 x 1")
"""Layouts of few clusters, or with giant ones among many."""


def layouts() -> dict[str, Ints]:
    """Return the layouts of the grid: name -> number of questions in each cluster.

    There are layouts with equal sizes, skewed (log-normal) sizes, few clusters or giant ones, and
    that of MediConfusion's components.
    """
    sizes_by_name = {
        f"{clusters} x {questions}": np.full(clusters, questions)
        for clusters in (10, 20, 40, 60, 176)
        for questions in (1, 2, 3, 5, 9)
    }
    rng = np.random.default_rng(0)
    for clusters in (20, 60, 176):
        sizes_by_name[f"{clusters} skewed"] = np.maximum(1, np.round(np.exp(rng.normal(1, 0.9, clusters)))).astype(int)
    sizes_by_name |= {
        "5 x 9": np.full(5, 9),
        "6 unequal": np.array([30, 12, 9, 5, 3, 2]),
        "40, 40 x 2": np.r_[40, np.full(40, 2)],
        "50, 100 x 1": np.r_[50, np.ones(100, np.int64)],
        "40, 40, 80 x 1": np.r_[40, 40, np.ones(80, np.int64)],
    }
    return sizes_by_name | {"MediConfusion": MEDICONFUSION}


def hits(rng: np.random.Generator, sizes: Ints, share: float, icc: float, mechanism: str, draws: int) -> Ints:
    """Draw the number of hits in each cluster, (draws, G), with one of the mechanisms."""
    shape = (draws, len(sizes))
    if icc == 0:
        return rng.binomial(sizes, share, shape)
    # A beta distribution with mean p whose a + b = (1 - ICC) / ICC gives exactly this correlation.
    if mechanism == "beta":
        return rng.binomial(sizes, rng.beta(share * (1 - icc) / icc, (1 - share) * (1 - icc) / icc, shape))
    if mechanism == "probit":
        normal = np.sqrt(icc) * rng.standard_normal(shape)
        return rng.binomial(sizes, special.ndtr((special.ndtri(share) + normal) / np.sqrt(1 - icc)))
    if mechanism in OTHERS:
        return _other_hits(rng, sizes, share, icc, mechanism, shape)
    # The mechanism `coin`: how many outcomes of each cluster copy its coin.
    copies = rng.binomial(sizes, np.sqrt(icc), shape)
    cluster_hits: Ints = (rng.random(shape) < share) * copies + rng.binomial(sizes - copies, share)
    return cluster_hits


def _other_hits(
    rng: np.random.Generator,
    sizes: Ints,
    share: float,
    icc: float,
    mechanism: str,
    shape: tuple[int, int],
) -> Ints:
    """Draw the hits per cluster with one of the mechanisms of OTHERS."""
    if mechanism == "some hit":
        return sizes - _other_hits(rng, sizes, 1 - share, icc, "some miss", shape)
    if mechanism == "some miss":
        # Some clusters have no hits; the others have a higher share, at most 1.
        hit_cluster_share = max(1 / (1 + icc * (1 - share) / share), share)
        return rng.binomial(sizes, np.where(rng.random(shape) < hit_cluster_share, share / hit_cluster_share, 0.0))
    if mechanism == "two shares":
        # The spread that gives the correlation ICC, limited so that both shares are between 0 and
        # 1.
        spread = min(np.sqrt(icc * share * (1 - share)), share, 1 - share)
        return rng.binomial(sizes, np.where(rng.random(shape) < 0.5, share + spread, share - spread))
    # Question by question, for all clusters at once; smaller clusters ignore the later questions.
    cluster_hits, previous = np.zeros(shape, np.int64), np.zeros(shape, bool)
    block = 1 if mechanism == "chain" else int(rng.integers(2, 6))
    for question in range(int(sizes.max())):
        fresh = rng.random(shape) < share
        if mechanism == "blocks":
            previous = rng.random(shape) < share if question % block == 0 else previous
            outcome = np.where(rng.random(shape) < np.sqrt(icc), previous, fresh)
        else:
            outcome = previous = np.where(rng.random(shape) < (np.sqrt(icc) if question else 0.0), previous, fresh)
        cluster_hits += outcome & (question < sizes)
    return cluster_hits


@dataclass(frozen=True)
class Cell:
    """Coverage and mean width (as fractions) of our intervals and of the reference."""

    layout: str
    share: float
    icc: float
    mechanism: str
    coverage: float
    width: float
    reference_coverage: float
    reference_width: float

    @property
    def relative(self) -> float:
        """Return our mean width relative to the reference's mean width."""
        return self.width / self.reference_width


def medprobe_intervals(sums: Floats, sizes: Ints) -> tuple[Floats, Floats]:
    """Compute the intervals that medprobe shows with every score."""
    total = sums.sum(axis=1)
    return clustered_intervals(sums, total, total, sizes.astype(float), float(sizes.sum()), sizes)[:2]


def cells(draws: int, seed: int, method: Method = medprobe_intervals) -> Iterator[Cell]:
    """Simulate every cell of the grid."""
    for name, sizes in layouts().items():
        for share in SHARES:
            for icc in CORRELATIONS:
                for mechanism in MECHANISMS if icc else MECHANISMS[:1]:
                    yield cell(name, sizes, share, icc, mechanism, draws, seed, method)


def random_cells(
    count: int,
    draws: int,
    seed: int,
    other_mechanisms: bool = False,
    method: Method = medprobe_intervals,
) -> Iterator[Cell]:
    """Simulate random cells.

    Layouts come from `random_layout`, p from .003 to .997 (uniform in log-odds), ICC from 0 to .9,
    and one of three mechanisms.

    Args:
        count: Number of cells.
        draws: Draws per cell.
        seed: Seed; a cell does not depend on `count`.
        other_mechanisms: Use `other_layout` and OTHERS instead.
        method: The intervals to examine.
    """
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        name, sizes = other_layout(rng) if other_mechanisms else random_layout(rng)
        share = float(special.expit(rng.uniform(-5.8, 5.8)))
        icc = 0.0 if rng.random() < 0.1 else float(rng.uniform(0.02, 0.9))
        mechanism = str(rng.choice(OTHERS if other_mechanisms else (*MECHANISMS, "probit")))
        yield cell(name, sizes, round(share, 4), round(icc, 3), mechanism, draws, seed, method)


def mediconfusion_cells(draws: int, seed: int, method: Method = medprobe_intervals) -> list[Cell]:
    """Simulate MediConfusion's layout with the shares and correlations that are likely for it."""
    return [
        cell("MediConfusion", MEDICONFUSION, share, icc, mechanism, draws, seed, method)
        for share in MEDICONFUSION_SHARES
        for icc in MEDICONFUSION_CORRELATIONS
        for mechanism in (MECHANISMS if icc else MECHANISMS[:1])
    ]


def variants(draws: int, seed: int) -> None:
    """Print coverage and width of variants of the method, to show what each part contributes."""
    print("| design effect | least | degrees of freedom | grid, giants | random, others: < 93 % | MediConfusion |")
    print("|---|---|---|---|---|---|")
    both_parts = ("correlated", "linearised")
    for parts, min_factor, df in (
        (("correlated",), 1, "effective"),
        (("correlated",), 2, "effective"),
        (("linearised",), 1, "effective"),
        (both_parts, 0, "effective"),
        (both_parts, 1, "effective"),
        (both_parts, 2, "effective"),
        (both_parts, 1, "all"),
        (both_parts, 1, "infinite"),
    ):
        method = variant(parts, min_factor, df)
        grid_cells = list(cells(draws, seed, method))
        giant = min(result.coverage for result in grid_cells if result.layout in FEW_OR_GIANT)
        below = [
            sum(result.coverage < PROMISE for result in random_cells(500, draws // 2, seed, other_mechanisms, method))
            for other_mechanisms in (False, True)
        ]
        widest = max(result.relative for result in mediconfusion_cells(2 * draws, seed, method))
        print(
            f"| {', '.join(parts)} | {min_factor} | {df} | "
            f"{100 * min(result.coverage for result in grid_cells):.1f}, {100 * giant:.1f} | "
            f"{below[0]}, {below[1]} | {widest:.2f} |",
            flush=True,
        )


def random_layout(rng: np.random.Generator) -> tuple[str, Ints]:
    """Draw a layout outside the grid: equal, two sizes, heavy tail, one giant or few clusters."""
    kind = str(rng.choice(("equal", "two sizes", "heavy tail", "one giant", "few")))
    clusters = int(np.exp(rng.uniform(np.log(9), np.log(500))))
    large = int(np.exp(rng.uniform(np.log(4), np.log(100))))
    if kind == "equal":
        sizes = np.full(clusters, min(large, 30))
    elif kind == "two sizes":
        n_large = max(1, int(clusters * rng.uniform(0.02, 0.6)))
        sizes = np.r_[np.full(n_large, large), np.full(clusters, int(rng.integers(1, 4)))]
    elif kind == "heavy tail":
        log_normal = np.exp(rng.normal(0.5, rng.uniform(0.8, 1.8), clusters))
        sizes = np.clip(np.round(log_normal), 1, 150)
    elif kind == "one giant":
        sizes = np.r_[large, np.full(clusters, int(rng.integers(1, 4)))]
    else:
        sizes = rng.integers(2, 2 + large, int(rng.integers(2, 9)))
    cluster_sizes: Ints = sizes.astype(np.int64)
    return (
        f"{kind} ({len(cluster_sizes)} clusters, {cluster_sizes.sum()} questions, largest {cluster_sizes.max()})",
        cluster_sizes,
    )


def other_layout(rng: np.random.Generator) -> tuple[str, Ints]:
    """Draw a layout from distributions that were not used to design the method."""
    kind = str(
        rng.choice(
            (
                "Zipf",
                "geometric",
                "negative binomial",
                "ladder",
                "ones and twos",
                "few large",
                "three tiers",
            )
        )
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
    cluster_sizes: Ints = np.clip(np.round(laws[kind]()), 1, 150).astype(np.int64)
    return (
        f"{kind} ({len(cluster_sizes)} clusters, {cluster_sizes.sum()} questions, largest {cluster_sizes.max()})",
        cluster_sizes,
    )


def variant(parts: tuple[str, ...], min_factor: float, df: str) -> Method:
    """Build a variant of our intervals.

    Args:
        parts: Estimates of the design effect to use, `correlated` and `linearised`; the largest
            counts.
        min_factor: The design effect is at least 1 + (n / G - 1) x `min_factor` / h, where h is the
            smaller of the numbers of hits and misses.
        df: Number of clusters for Student's t: `effective`, `all`, or `infinite` (normal
            distribution).
    """

    def method(sums: Floats, sizes: Ints) -> tuple[Floats, Floats]:
        layout, m = ClusterSizes.from_sizes(sizes), sizes.astype(float)
        share = sums.sum(axis=1) / layout.units
        # Every cluster has one question: nothing to correct.
        if layout.clusters == layout.units:
            return clopper_pearson(share, np.full(len(share), layout.units))
        bernoulli_variance, residual = (
            layout.units * share * (1 - share),
            np.square(sums - share[:, None] * m),
        )
        design = 1 + (layout.units / layout.clusters - 1) * np.minimum(
            min_factor / np.maximum(np.minimum(share, 1 - share) * layout.units, 1e-9), 1.0
        )
        if "correlated" in parts:
            correlation = intracluster_correlation(bernoulli_variance, residual @ (1 / m), layout)
            design = np.maximum(design, 1 + (layout.max_design_effect - 1) * correlation)
        if "linearised" in parts:
            spread = np.divide(
                residual.sum(axis=1),
                bernoulli_variance,
                out=np.ones_like(bernoulli_variance),
                where=bernoulli_variance > 0,
            )
            design = np.maximum(design, spread)
        clusters = {
            "effective": layout.effective_clusters,
            "all": layout.clusters,
            "infinite": 1e9,
        }[df]
        n_effective = layout.units / design * (NORMAL_QUANTILE / student_quantile(clusters - 1)) ** 2
        return clopper_pearson(share, np.maximum(n_effective, layout.effective_clusters))

    return method


def cell(
    name: str,
    sizes: Ints,
    share: float,
    icc: float,
    mechanism: str,
    draws: int,
    seed: int,
    method: Method = medprobe_intervals,
) -> Cell:
    """Simulate one cell with a random stream of its own, independent of the other cells."""
    key = f"{name} {share} {icc} {mechanism}"
    # crc32, because Python's hash() of a string differs between processes.
    rng = np.random.default_rng([seed, zlib.crc32(key.encode())])
    sums = hits(rng, sizes, share, icc, mechanism, draws).astype(float)
    measured = [
        (float(((low <= share) & (share <= high)).mean()), float((high - low).mean()))
        for low, high in (method(sums, sizes), reference(sums, sizes))
    ]
    return Cell(name, share, icc, mechanism, *measured[0], *measured[1])


def reference(sums: NDArray[np.float64], sizes: Ints) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the reference: Wilson's interval (1927) at an effective sample size.

    That size is n / (1 + (sum m^2 / n - 1) ICC), where ICC is estimated by analysis of variance
    (Donner 1986) and clipped to 0..1.
    """
    n, clusters, m = sizes.sum(), len(sizes), sizes.astype(float)
    share = sums.sum(axis=1) / n
    icc = np.zeros(len(sums))
    # Without a cluster of two questions, the correlation cannot be estimated: use 0.
    if n > clusters:
        cluster_share = sums / m
        within_mean_square = (sums * (1 - cluster_share)).sum(axis=1) / (n - clusters)
        between_mean_square = (m * np.square(cluster_share - share[:, None])).sum(axis=1) / (clusters - 1)
        mean_cluster_size = (n - (m * m).sum() / n) / (clusters - 1)
        with np.errstate(invalid="ignore"):
            icc = np.clip(
                np.nan_to_num(
                    (between_mean_square - within_mean_square)
                    / (between_mean_square + (mean_cluster_size - 1) * within_mean_square)
                ),
                0,
                1,
            )
    n_effective, c2 = n / (1 + ((m * m).sum() / n - 1) * icc), NORMAL_QUANTILE**2
    centre = (share + c2 / (2 * n_effective)) / (1 + c2 / n_effective)
    half_width = (
        NORMAL_QUANTILE
        / (1 + c2 / n_effective)
        * np.sqrt(share * (1 - share) / n_effective + c2 / (4 * n_effective * n_effective))
    )
    return centre - half_width, centre + half_width


def ratios(draws: int, seed: int) -> Iterator[tuple[str, float, float, float, float]]:
    """Yield the coverage for a ratio with a random denominator (such as confusion).

    Valid answers are as correlated within clusters as hits are.

    Yields:
        Layout, share, ICC, share of valid answers, coverage.
    """
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
                        interval = clustered_interval(base * _outcomes(rng, cluster, share, icc), base, cluster)
                        # No valid answer: there is no ratio, hence no interval.
                        if interval is not None:
                            counted += 1
                            covered += interval.low <= share <= interval.high
                    yield name, share, icc, valid, covered / counted


def differences(draws: int, seed: int) -> Iterator[tuple[str, float, float, float, float]]:
    """Yield the coverage of the interval of the difference of two models, which is also their test.

    Yields:
        Layout, both shares, ICC, coverage.
    """
    for name in (
        *FEW_OR_GIANT,
        "20 x 5",
        "60 x 5",
        "MediConfusion",
        "60 skewed",
        "20 x 1",
        "176 x 1",
    ):
        for share_a, share_b in ((0.02, 0.02), (0.02, 0.1), (0.1, 0.3), (0.5, 0.5), (0.9, 0.98)):
            for icc in (0.0, 0.3, 0.5):
                yield (
                    name,
                    share_a,
                    share_b,
                    icc,
                    difference(name, share_a, share_b, icc, draws, seed),
                )


def difference(name: str, share_a: float, share_b: float, icc: float, draws: int, seed: int) -> float:
    """Return the coverage of the interval of the difference of two models with these shares."""
    sizes = layouts()[name]
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    rng = np.random.default_rng([seed, zlib.crc32(f"{name} {share_a} {share_b} {icc}".encode())])
    units, base, truth, covered = (
        np.arange(len(cluster)).astype(object),
        np.ones((2, len(cluster))),
        share_a - share_b,
        0,
    )
    for _ in range(draws):
        outcomes = np.stack([_outcomes(rng, cluster, share, icc) for share in (share_a, share_b)])
        pairs = compare_pairwise(
            OutcomeMatrix(("a", "b"), "m", outcomes.astype(np.float32), base, cluster, units, True)
        )
        # The tolerance forgives rounding where an end of the interval is the true difference
        # itself.
        covered += pairs.low[0, 1] <= 100 * truth + 1e-9 and 100 * truth - 1e-9 <= pairs.high[0, 1]
    return covered / draws


def power(draws: int, seed: int) -> dict[str, float]:
    """Return how often a true 15 % on MediConfusion's pairs is shown to be below chance (25 %).

    The keys are the kinds of interval: measured, printed (a published score) and the reference; ICC
    is 0.
    """
    sums = hits(np.random.default_rng(seed), MEDICONFUSION, 0.15, 0.0, "beta", draws).astype(float)
    total, n = sums.sum(axis=1), float(MEDICONFUSION.sum())
    high = clustered_intervals(sums, total, total, MEDICONFUSION.astype(float), n, MEDICONFUSION)[1]
    # Mean size of a cluster, and mean size of the cluster of a random unit.
    sharing = (n / len(MEDICONFUSION), float(np.square(MEDICONFUSION).sum()) / n)
    printed = [printed_interval(100 * hit / n, int(n), sharing).high for hit in total.tolist()]
    return {
        "measured": float((high < 0.25).mean()),
        "printed": float((np.array(printed) < 0.25).mean()),
        "reference": float((reference(sums, MEDICONFUSION)[1] < 0.25).mean()),
    }


def printed_differences() -> Iterator[tuple[int, int, float]]:
    """Yield the lowest coverage of the interval of the difference of two published percentages.

    The coverage is exact, and the lowest is over both true shares.

    Yields:
        Numbers of cases of the two percentages, lowest coverage.
    """
    shares = np.linspace(0.01, 0.99, 50)
    for n, m in ((14, 14), (14, 60), (20, 43), (20, 176), (60, 60), (60, 79)):
        scores = [
            [Score(value=100 * hits / n_cases, n=n_cases, n_cases=n_cases) for hits in range(n_cases + 1)]
            for n_cases in (n, m)
        ]
        # Enumerate every pair of possible scores, and weight them by their binomial probabilities.
        ends = np.array([[compute_unpaired_difference(law_a, law_b)[:2] for law_b in scores[1]] for law_a in scores[0]])
        distributions = [stats.binom.pmf(np.arange(n_cases + 1), n_cases, shares[:, None]) for n_cases in (n, m)]
        lowest = 1.0
        for p, law_a in zip(shares, distributions[0], strict=True):
            for q, law_b in zip(shares, distributions[1], strict=True):
                truth = 100 * (p - q)
                inside = (ends[..., 0] <= truth + 1e-9) & (truth <= ends[..., 1] + 1e-9)
                lowest = min(lowest, float(law_a @ inside @ law_b))
        yield n, m, lowest


def _outcomes(rng: np.random.Generator, cluster: Ints, share: float, icc: float) -> NDArray[np.float64]:
    """Draw 0/1 outcomes by the mechanism `coin`, one per unit."""
    coin = rng.random(int(cluster.max()) + 1) < share
    copies = rng.random(len(cluster)) < np.sqrt(icc)
    return np.where(copies, coin[cluster], rng.random(len(cluster)) < share).astype(float)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--random", type=int, default=2000, metavar="CELLS", help="number of cells with random layouts")
    parser.add_argument(
        "--others",
        type=int,
        default=0,
        metavar="CELLS",
        help="number of cells with other layouts and mechanisms",
    )
    parser.add_argument("--variants", action="store_true", help="print only what each part of the method contributes")
    options = parser.parse_args()
    if options.variants:
        variants(options.draws, options.seed)
        return
    grid_cells = list(cells(options.draws, options.seed))
    print(f"{len(grid_cells)} cells, {options.draws} draws each, seed {options.seed}")
    print(
        "lowest / mean coverage (percent) and mean width (points) over all layouts and mechanisms, "
        "in brackets the reference's\n"
    )
    _table(grid_cells, SHARES, CORRELATIONS)
    print("\nthe same for MediConfusion's 60 components; last, our width relative to the reference's\n")
    on_pairs = mediconfusion_cells(options.draws, options.seed)
    _table(on_pairs, MEDICONFUSION_SHARES, MEDICONFUSION_CORRELATIONS, relative=True)
    worse_rates = ", ".join(
        f"{interval_kind} {100 * rate:.1f}" for interval_kind, rate in power(10 * options.draws, options.seed).items()
    )
    print(f"\npercent of draws in which a true 15 % is shown to be worse than 25 %: {worse_rates}")
    _worst("the grid", grid_cells, 8)
    for title, count, other_mechanisms in (
        ("random layouts", options.random, False),
        ("other layouts and mechanisms", options.others, True),
    ):
        if count:
            _worst(
                title,
                list(random_cells(count, options.draws // 2, options.seed, other_mechanisms)),
                12,
            )
    # Ratios are simulated one by one, which is slow.
    fewer = max(options.draws // 4, 100)
    for title, draws, rows in (
        ("ratios (p, ICC, share of valid)", fewer, list(ratios(fewer, options.seed))),
        ("differences (p, p, ICC)", options.draws, list(differences(options.draws, options.seed))),
    ):
        rows.sort(key=lambda row: row[-1])
        cover = [100 * row[-1] for row in rows]
        print(
            f"\n{title}, {len(rows)} cells, {draws} draws each: lowest {cover[0]:.1f}, mean "
            f"{np.mean(cover):.1f}; the lowest:"
        )
        for row in rows[:5]:
            print(f"  {row[0]}, {row[1]}, {row[2]}, {row[3]}: {100 * row[4]:.1f}")
    print("\ndifferences of two printed percentages, exact, lowest over both shares:")
    for n, m, lowest in printed_differences():
        print(f"  n = {n} and {m}: {100 * lowest:.1f}")


def _table(
    results: list[Cell],
    shares: tuple[float, ...],
    correlations: tuple[float, ...],
    relative: bool = False,
) -> None:
    """Print a table with rows p and columns ICC."""
    print("| p | " + " | ".join(f"ICC {icc}" for icc in correlations) + " |")
    print("|---" * (len(correlations) + 1) + "|")
    for share in shares:
        texts = []
        for icc in correlations:
            selected = [result for result in results if (result.share, result.icc) == (share, icc)]
            cover, width = (
                [100 * result.coverage for result in selected],
                [100 * result.width for result in selected],
            )
            reference_cover, reference_width = (
                [100 * result.reference_coverage for result in selected],
                [100 * result.reference_width for result in selected],
            )
            relative_text = f" = {np.mean(width) / np.mean(reference_width):.2f}" if relative else ""
            texts.append(
                f"{min(cover):.1f} / {np.mean(cover):.1f}, {np.mean(width):.1f} "
                f"({min(reference_cover):.1f} / {np.mean(reference_cover):.1f}, "
                f"{np.mean(reference_width):.1f}){relative_text}"
            )
        print(f"| {share} | {' | '.join(texts)} |")


def _worst(title: str, results: list[Cell], n_listed: int) -> None:
    """Print how many cells have a coverage below PROMISE, and list the lowest."""
    cover, width = (
        np.array([result.coverage for result in results]),
        np.array([result.relative for result in results]),
    )
    reference_cover = np.array([result.reference_coverage for result in results])
    print(
        f"\n{title}, {len(results)} cells: under {100 * PROMISE:.0f} % {(cover < PROMISE).sum()}, "
        f"under 90 % {(cover < 0.9).sum()} (the reference {(reference_cover < PROMISE).sum()} and "
        f"{(reference_cover < 0.9).sum()}), mean {100 * cover.mean():.1f} "
        f"({100 * reference_cover.mean():.1f}); relative width {width.mean():.2f} (mean), "
        f"{np.median(width):.2f} (median), {np.quantile(width, 0.95):.2f} (95th percentile); the lowest:"
    )
    for result in sorted(results, key=lambda result: result.coverage)[:n_listed]:
        print(
            f"  {result.layout}, p = {result.share}, ICC {result.icc}, {result.mechanism}: "
            f"{100 * result.coverage:.1f}, width {100 * result.width:.1f} (reference "
            f"{100 * result.reference_coverage:.1f}, {100 * result.reference_width:.1f})"
        )


if __name__ == "__main__":
    main()
