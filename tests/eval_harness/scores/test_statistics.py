"""Intervals have their coverage and tests their level, by simulation and compared with scipy."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from benchmarks.leaderboard_space import ranks_simulation
from benchmarks.scoring import interval_coverage
from dataset_builders.errors import BadInput
from eval_harness.derive.metrics import HEADLINE_METRICS, METRICS
from eval_harness.records.result import ARMS
from eval_harness.scores import comparisons, intervals
from eval_harness.scores.comparisons import OutcomeMatrix, pack_outcomes, paired_test
from eval_harness.store.sight import compute_sight
from tests.sampling import few

UNEQUAL = np.repeat(np.arange(60), interval_coverage.MEDICONFUSION)
"""The component of each of MediConfusion's 176 pairs."""

CELLS = [
    (name, share, icc, mechanism)
    for name in (
        "20 x 9",
        "60 x 9",
        "176 x 1",
        "176 x 9",
        "60 skewed",
        "MediConfusion",
        *interval_coverage.FEW_OR_GIANT,
    )
    for share in (0.005, 0.1, 0.5, 0.9)
    for icc, mechanism in ((0.0, "beta"), (0.3, "coin"), (0.5, "beta"), (0.5, "coin"))
]


@pytest.mark.parametrize("name", few(["MediConfusion", *sorted({name for name, *_ in CELLS} - {"MediConfusion"})], 2))
def test_interval_coverage_is_at_least_93_percent(name: str) -> None:
    """Part of the grid of benchmarks/scoring/interval_coverage.py. With 1,500 draws the standard
    error is 0.66 points.
    """
    sizes = interval_coverage.layouts()[name]
    for cell in (c for c in CELLS if c[0] == name):
        result = interval_coverage.cell(name, sizes, *cell[1:], draws=1500, seed=7)
        # Two standard errors of slack.
        assert result.coverage >= 0.93 - 0.013, result


@pytest.mark.parametrize("share", few([0.1, 0.5, 0.05]))
@pytest.mark.parametrize(("icc", "mechanism"), [(0.0, "beta"), (0.3, "coin")])
def test_interval_is_at_most_1_3_times_as_wide_as_wilson(share: float, icc: float, mechanism: str) -> None:
    """On MediConfusion's components at most 1.3 times Wilson's interval with the estimated design
    effect.
    """
    sizes = interval_coverage.MEDICONFUSION
    result = interval_coverage.cell("MediConfusion", sizes, share, icc, mechanism, draws=1500, seed=7)
    assert result.width <= 1.3 * result.reference_width, result


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 400), st.data())
def test_interval_without_clusters_is_clopper_pearson(n: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, n))
    interval = intervals.clustered_interval(np.arange(n) < hits, np.ones(n), np.arange(n))
    assert interval is not None and interval.n_effective == pytest.approx(n)
    assert (interval.low, interval.high) == pytest.approx(proportion_confint(hits, n, method="beta"), abs=1e-9)
    printed = intervals.printed_interval(100 * hits / n, n)
    assert (printed.low, printed.high, printed.n_effective) == pytest.approx((interval.low, interval.high, n), abs=1e-9)


def naive_correlation(groups: list[np.ndarray]) -> float:
    """Estimate the intracluster correlation of centred values by analysis of variance."""
    n = sum(map(len, groups))
    # With one cluster, or clusters of one unit, there is no correlation to estimate.
    if not 1 < len(groups) < n:
        return 0.0
    among = sum(group.sum() ** 2 / len(group) for group in groups) / (len(groups) - 1)
    within = sum(((group - group.mean()) ** 2).sum() for group in groups) / (n - len(groups))
    size = (n - sum(len(group) ** 2 for group in groups) / n) / (len(groups) - 1)
    return max((among - within) / (among + (size - 1) * within), 0.0) if among + within > 1e-12 else 0.0


def naive_design_effects(values: np.ndarray, cluster: np.ndarray, rarer: float) -> tuple[float, float, float]:
    """Compute the design effects (correlated, linearised, minimum) by textbook formulas, with loops
    over clusters.
    """
    centred, n = values - values.mean(), len(values)
    groups = [centred[cluster == label] for label in np.unique(cluster)]
    squares = (centred**2).sum()
    correlated = 1 + (sum(len(group) ** 2 for group in groups) / n - 1) * naive_correlation(groups)
    linearised = sum(group.sum() ** 2 for group in groups) / squares if squares > 1e-9 else 1.0
    return correlated, linearised, 1 + (n / len(groups) - 1) / max(rarer, 1)


def naive_effective_size(hits: np.ndarray, cluster: np.ndarray) -> float:
    """Compute the effective sample size of Korn & Graubard (1998) with the largest of these design
    effects.
    """
    n, sizes = len(hits), np.unique(cluster, return_counts=True)[1]
    # One cluster, or only clusters of one unit: the number of clusters is exact.
    if len(sizes) in (1, n):
        return float(len(sizes))
    effective_clusters = n**2 / (sizes**2).sum()
    t = stats.t.ppf(0.975, effective_clusters - 1)
    # The ratio of normal to t quantile pays for estimating the variance from few clusters.
    rarer = min(hits.sum(), n - hits.sum())
    worth = n / max(naive_design_effects(hits, cluster, rarer)) * (stats.norm.ppf(0.975) / t) ** 2
    return max(worth, effective_clusters)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 60), st.floats(0, 1))
def test_clustered_interval_is_clopper_pearson_at_the_effective_size(
    seed: int, n: int, clusters: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    cluster = rng.integers(0, clusters, n)
    hits = (rng.random(n) < share).astype(float)
    interval = intervals.clustered_interval(hits, np.ones(n), cluster)
    worth = naive_effective_size(hits, cluster)
    assert interval is not None and interval.n_effective == pytest.approx(worth, rel=1e-6)
    expected = proportion_confint(hits.mean() * worth, worth, method="beta")
    assert (interval.low, interval.high) == pytest.approx(expected, abs=1e-6)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.02, 0.98))
def test_published_interval_equals_the_measured_one_without_correlation(seed: int, share: float) -> None:
    """Same percentage, n and components; if the answers show a correlation, the measured interval
    is wider.
    """
    hits = (np.random.default_rng(seed).random(176) < share).astype(float)
    sizes = np.bincount(UNEQUAL)
    sharing = (176 / len(sizes), float((sizes**2).sum()) / 176)
    measured = intervals.clustered_interval(hits, np.ones(176), UNEQUAL)
    printed = intervals.printed_interval(100 * hits.mean(), 176, sharing)
    assert measured is not None
    assert printed.low >= measured.low - 1e-9 and printed.high <= measured.high + 1e-9
    # The lower bound on the design effect applies to the printed interval, too.
    *estimates, min_effect = naive_design_effects(hits, UNEQUAL, min(hits.sum(), 176 - hits.sum()))
    if max(estimates) <= min_effect:
        assert (printed.low, printed.high) == pytest.approx((measured.low, measured.high), abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.just(0.0) | st.floats(1e-3, 3), st.integers(0, 5)),
        min_size=1,
        max_size=40,
    )
)
def test_interval_of_any_units_contains_the_share(rows: list[tuple[float, float, int]]) -> None:
    top = np.array([share * base for share, base, _ in rows])
    base = np.array([base for _, base, _ in rows])
    interval = intervals.clustered_interval(top, base, np.array([cluster for _, _, cluster in rows]))
    if interval is None:
        assert base.sum() == 0
        return
    assert 0.0 <= interval.low <= top.sum() / base.sum() + 1e-9
    assert top.sum() / base.sum() - 1e-9 <= interval.high <= 1.0


def frame(hits: np.ndarray, cluster: np.ndarray | None = None, base: np.ndarray | float = 1.0) -> pd.DataFrame:
    clusters = np.arange(len(hits)) if cluster is None else cluster
    return pd.DataFrame(
        {
            "metric": "m",
            "unit": [str(i) for i in range(len(hits))],
            "cluster": clusters,
            "numerator": hits,
            "denominator": base,
        }
    )


@pytest.mark.parametrize("layout", few(["MediConfusion", "20 x 5", "176 x 1", *interval_coverage.FEW_OR_GIANT]))
@pytest.mark.parametrize(("share_a", "share_b"), [(0.5, 0.5), (0.1, 0.1), (0.02, 0.1), (0.1, 0.3)])
def test_difference_interval_coverage_is_at_least_93_percent(layout: str, share_a: float, share_b: float) -> None:
    """Since the test reads the interval, equal models differ in no more draws than it claims. 800
    draws: standard error 0.9.
    """
    for icc in (0.0, 0.3):
        coverage = interval_coverage.difference(layout, share_a, share_b, icc, draws=800, seed=7)
        # Two standard errors of slack.
        assert coverage >= 0.93 - 0.018, (layout, share_a, share_b, icc)


@pytest.mark.parametrize("n", few([20, 12]))
def test_paired_test_without_clusters_keeps_its_level(n: int) -> None:
    """Exact, over all tables of two equally good models: both correct on a unit, one of them, or
    none.
    """
    for differing in (0.02, 0.1, 0.3, 0.6, 0.9):
        rejected = 0.0
        for k in range(n + 1):
            won = np.arange(k + 1)
            top = (
                (np.arange(n) < won[:, None]).astype(np.float32),
                ((np.arange(n) >= won[:, None]) & (np.arange(n) < k)),
            )
            p = np.array([float(_two(a, b.astype(np.float32)).p[0, 1]) for a, b in zip(*top, strict=True)])
            rejected += stats.binom.pmf(k, n, differing) * (stats.binom.pmf(won, k, 0.5) * (p < 0.05)).sum()
            # Tables with more differing units are too rare to matter.
            if stats.binom.sf(k, n, differing) < 1e-6:
                break
        assert rejected <= 0.06, (differing, rejected)


def _two(a: np.ndarray, b: np.ndarray) -> comparisons.PairwiseComparisons:
    n = len(a)
    units = np.arange(n).astype(object)
    return comparisons.compare_pairwise(
        OutcomeMatrix(("a", "b"), "m", np.stack([a, b]), np.ones((2, n)), np.arange(n), units, True)
    )


def naive_difference(a: np.ndarray, b: np.ndarray, cluster: np.ndarray) -> tuple[float, float, float]:
    """Compute the difference of two models with loops over clusters: low, high, p."""
    d, n = a - b, len(a)
    total = ((d - d.mean()) ** 2).sum()
    # The three bounds guard against few clusters, unequal ones, and few differences.
    error = np.sqrt((total + 1) * max(naive_design_effects(d, cluster, total))) / n
    df = n**2 / (np.unique(cluster, return_counts=True)[1] ** 2).sum() - 1
    if df < 1e-9:
        return -1.0, 1.0, 1.0
    half = stats.t.ppf(0.975, df) * error
    p = 2 * stats.t.sf(abs(d.mean()) / error, df)
    return max(d.mean() - half, -1.0), min(d.mean() + half, 1.0), p


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 50), st.integers(1, 50), st.floats(0, 1), st.floats(0, 1))
def test_difference_equals_the_textbook_formulas(
    seed: int, n: int, clusters: int, share_a: float, share_b: float
) -> None:
    rng = np.random.default_rng(seed)
    cluster = rng.integers(0, clusters, n)
    a, b = ((rng.random(n) < share).astype(float) for share in (share_a, share_b))
    low, high, p = naive_difference(a, b, cluster)
    comparison = comparisons.paired_test(frame(a, cluster), frame(b, cluster), "m")
    assert (comparison.low, comparison.high) == pytest.approx((100 * low, 100 * high), abs=1e-4)
    assert comparison.p == pytest.approx(p, rel=1e-4, abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from(["whole", "samples", "ratio"]),
)
def test_p_is_below_5_percent_exactly_if_the_interval_excludes_0(seed: int, n: int, clusters: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    cluster = rng.integers(0, clusters, n)
    # A ratio has units that do not count for one of the models.
    base = [(rng.random(n) < rng.random()).astype(float) if kind == "ratio" else np.ones(n) for _ in range(2)]
    samples = 3 if kind == "samples" else 1
    a, b = (
        frame(denominator * rng.binomial(samples, rng.random(), n) / samples, cluster, denominator)
        for denominator in base
    )
    comparison = comparisons.paired_test(a, b, "m")
    if all(denominator.any() for denominator in base):
        assert comparison.low <= comparison.difference + 1e-9 and comparison.difference - 1e-9 <= comparison.high
        assert (comparison.p < 0.05) == (comparison.low > 0 or comparison.high < 0)


def test_holm_agrees_with_statsmodels() -> None:
    from statsmodels.stats.multitest import multipletests

    rng = np.random.default_rng(1)
    table = np.ones((6, 6))
    upper = np.triu_indices(6, 1)
    # The third power gives some small p-values, which the correction must keep significant.
    table[upper] = rng.random(15) ** 3
    table = np.minimum(table, table.T)
    assert comparisons.holm_adjust_pairs(table)[upper] == pytest.approx(multipletests(table[upper], method="holm")[1])
    assert np.allclose(comparisons.holm_adjust_pairs(table), comparisons.holm_adjust_pairs(table).T)


@settings(max_examples=150, deadline=None)
@given(st.integers(2, 12), st.integers(0, 10**6), st.booleans())
def test_ranks_agree_with_pairwise_tests(models: int, seed: int, up: bool) -> None:
    """Ranks and pairs agree. Rank 1 is shared by exactly the models that no other beats; no range
    of ranks is empty; of two models, one leads alone if and only if they differ.
    """
    rng = np.random.default_rng(seed)
    # Rounding produces ties.
    value = np.round(rng.normal(size=models), 1)
    gap = np.abs(value[:, None] - value[None, :])
    p = np.clip(np.exp(-3 * rng.random() * gap) * rng.uniform(0.01, 1), 0, 1)
    p = np.where(gap == 0, 1.0, np.minimum(p, p.T))
    rank_ranges = comparisons.compute_rank_ranges(value, p, up)
    ahead = value[None, :] > value[:, None] if up else value[None, :] < value[:, None]
    assert (rank_ranges.best_rank <= rank_ranges.worst_rank).all() and (rank_ranges.worst_rank <= models).all()
    level = min(
        0.05, 2 * 0.05 / (models - 1)
    )  # comparison with the best: one-sided p < .05 / (M - 1), and two-sided p < .05
    best = value == (value.max() if up else value.min())
    assert (
        rank_ranges.differs == ((comparisons.holm_adjust_pairs(p) < 0.05) | ((best[:, None] != best) & (p < level)))
    ).all()
    assert ((rank_ranges.best_rank == 1) == ~(ahead & rank_ranges.differs).any(axis=1)).all()  # ranks agree with pairs
    assert rank_ranges.best_rank[np.argmax(value if up else -value)] == 1
    if models == 2:
        assert rank_ranges.differs[0, 1] == ((rank_ranges.best_rank == 1).sum() == 1) == (p[0, 1] < 0.05)


def test_models_with_different_questions_are_not_compared() -> None:
    with pytest.raises(BadInput, match="same questions"):
        pack_outcomes({"a": frame(np.ones(3)), "b": frame(np.ones(4))}, "m")


def test_power_and_error_rate_of_ranks() -> None:
    """Part of benchmarks/leaderboard_space/ranks_simulation.py: 60 models on MediConfusion's
    components.
    """
    # With one better model, at most three models have rank 1 in nine draws of ten.
    assert ranks_simulation.leader(30, 60, 3, 0.0, 0.0) >= 0.9
    for icc in (0.0, 0.2):
        missed, _, any_differ = ranks_simulation.equals(60, np.full(20, 0.2), 3, icc, 0.0)
        assert missed <= 0.05 + 0.06 and any_differ <= 0.05 + 0.06
    # Models that are equal overall, one better in large clusters and worse in small ones.
    missed = ranks_simulation.equals(100, ranks_simulation.unlike_by_size(20, 0.2), 3, 0.2, 0.0)[0]
    assert missed <= 0.05 + 0.045


@pytest.mark.parametrize("seed", few(range(6), 3))
def test_paired_test_does_not_depend_on_the_other_models(seed: int) -> None:
    """Two models get the same test result alone as beside others, which may have several samples or
    fewer answers.
    """
    rng = np.random.default_rng(seed)
    n = int(rng.integers(8, 60))
    cluster = np.arange(n) if seed % 3 else rng.integers(0, n // 2, n)
    answered = (rng.random(n) < 0.8).astype(float)
    models = {str(at): frame((rng.random(n) < rng.random()).astype(float), cluster) for at in range(3)}
    models |= {str(at): frame((rng.random(n) < rng.random()) * answered, cluster, answered) for at in (3, 4)}
    # A mean over three samples has values between 0 and 1.
    models |= {"sampled": frame(rng.integers(0, 4, n) / 3, cluster)}
    pairwise = comparisons.compare_pairwise(pack_outcomes(models, "m"))
    for a, b in itertools.combinations(range(len(models)), 2):
        pair = comparisons.paired_test(*(models[pairwise.models[at]] for at in (a, b)), "m")
        assert (pairwise.p[a, b], pairwise.low[a, b], pairwise.high[a, b]) == pytest.approx(
            (pair.p, pair.low, pair.high)
        )


@pytest.mark.parametrize("seed", few(range(20), 5))
def test_interval_is_stable_under_rounding(seed: int) -> None:
    """Scaling all weights, or reordering the units, changes sums only in their last digits."""
    rng = np.random.default_rng(seed)
    n, n_clusters = int(rng.integers(2, 40)), int(rng.integers(2, 6))
    base = np.repeat(rng.integers(1, n_clusters + 1, n) / n_clusters, 2)
    n *= 2
    # Sums that are exact in real numbers but not in floating point.
    top = [base, base / 2, base / 3, base * (rng.random(n) < 0.5), base * (np.arange(n) % 2)][seed % 5]
    cluster = rng.integers(0, n, n)
    interval = intervals.clustered_interval(top, base, cluster)
    order = rng.permutation(n)
    # Factors that have no exact binary representation.
    for weight in (1 / 3, 1 / 7, 23.1):
        again = intervals.clustered_interval(weight * top[order], weight * base[order], cluster[order])
        assert (again.low, again.high) == pytest.approx((interval.low, interval.high), abs=1e-9)


@pytest.mark.parametrize("answered", [1, 2])
def test_one_or_two_answered_questions_are_not_significant(answered: int) -> None:
    """A model that answered one or two questions does not differ significantly, however many the
    other answered.
    """
    n = 600
    few = frame(np.zeros(n), base=(np.arange(n) < answered).astype(float))
    assert comparisons.paired_test(frame(np.ones(n)), few, "m").p >= 0.05


# The part of a score that comes from the image agrees with the paired test of two runs.


@st.composite
def runs(draw: st.DrawFn) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """Draw runs of a model that sees a share of the images and otherwise answers from the text, in
    clusters of 1 to 6 questions.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, seen, prior, noise = draw(st.tuples(st.integers(2, 200), *[st.sampled_from((0.0, 0.1, 0.5, 0.9, 1.0))] * 3))
    cluster = np.sort(rng.integers(0, max(n // draw(st.integers(1, 6)), 1), n))
    text_correct, sees = rng.random(n) < prior, rng.random(n) < seen
    outcomes_by_run = {
        name: frame(
            np.where(rng.random(n) < noise, rng.random(n) < prior, text_correct) | (sees & (name == "real")),
            cluster,
        )
        for name in ("real", *ARMS)
    }
    return outcomes_by_run.pop("real"), {name: outcomes_by_run[name] for name in ARMS[: draw(st.integers(1, 3))]}


@given(runs())
def test_sight_agrees_with_the_paired_test(
    drawn_runs: tuple[pd.DataFrame, dict[str, pd.DataFrame]],
) -> None:
    real, arms = drawn_runs
    sight = compute_sight(real, arms, "m")
    tests = {name: paired_test(real, arm, "m") for name, arm in arms.items()}
    for name, test in tests.items():
        arm = sight.arms[name]
        assert (arm.difference, arm.low, arm.high, arm.p) == pytest.approx(
            (test.difference, test.low, test.high, test.p)
        )
    assert sight.value == pytest.approx(min(test.difference for test in tests.values()))
    assert sight.sees == all(test.difference > 0 and test.p < 0.05 for test in tests.values())
    assert sight.low <= sight.value <= sight.high
    assert sight.low == pytest.approx(min(test.low for test in tests.values()))
    if sight.share is not None and sight.share_low is not None and sight.share_high is not None:
        assert sight.share_low - 1e-6 <= sight.share <= sight.share_high + 1e-6
        assert (sight.share_high < 100) == sight.sees
    else:  # no interval: the score is not significantly above 0
        assert sight.share_low is None and sight.share_high is None


@given(runs())
def test_share_interval_ends_where_the_paired_test_rejects(
    drawn_runs: tuple[pd.DataFrame, dict[str, pd.DataFrame]],
) -> None:
    real, arms = drawn_runs
    ends = [compute_sight(real, {name: arm}, "m") for name, arm in arms.items()]
    for (_, arm), single_arm in zip(arms.items(), ends, strict=True):
        for end in (single_arm.share_low, single_arm.share_high):
            if end:  # shares are at least 0
                scaled = real.assign(numerator=real["numerator"] * end / 100)
                assert paired_test(scaled, arm, "m").p == pytest.approx(0.05, abs=1e-4)
    if all(single_arm.share_high is not None for single_arm in ends):
        all_arms = compute_sight(real, arms, "m")
        assert all_arms.share_high == pytest.approx(max(single_arm.share_high for single_arm in ends))
        assert (
            all_arms.share_low <= max(single_arm.share_low for single_arm in ends) + 1e-9
        )  # lower ends are Bonferroni-corrected
        assert all_arms.high >= min(single_arm.high for single_arm in ends) - 1e-9


def test_metric_without_arms_gives_a_reason() -> None:
    assert METRICS["fake"].compared == () and METRICS["swap"].compared == () and METRICS["average"].compared == ()
    for name, info in METRICS.items():
        counts_right = info.higher_is_better and info.unit == "percent" and not info.of_ends
        assert not counts_right or set(info.compared) == set(ARMS) or info.no_arm, name
    assert all(METRICS[name].compared or METRICS[name].no_arm for name in HEADLINE_METRICS.values())
