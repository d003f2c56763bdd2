"""The part of a score that comes from the image agrees with the paired test of two runs, for any
answers.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_harness.derive.metrics import HEADLINE_METRICS, METRICS
from eval_harness.records.result import ARMS
from eval_harness.scores.comparisons import paired_test
from eval_harness.scores.sight import compute_sight


def frame(right: np.ndarray, cluster: np.ndarray) -> pd.DataFrame:
    units = np.arange(len(right)).astype(str).astype(object)
    return pd.DataFrame(
        {
            "metric": "m",
            "unit": units,
            "cluster": cluster,
            "numerator": right.astype(float),
            "denominator": 1.0,
        }
    )


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
