"""The part of a score that comes from the image: agrees with the paired test of two runs, whatever the answers are."""

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
        {"metric": "m", "unit": units, "cluster": cluster, "numerator": right.astype(float), "denominator": 1.0}
    )


@st.composite
def runs(draw: st.DrawFn) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """Answers of a model that sees a share of the images, and answers from the text otherwise; in clusters of 1 to 6 questions."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, seen, prior, noise = draw(st.tuples(st.integers(2, 200), *[st.sampled_from((0.0, 0.1, 0.5, 0.9, 1.0))] * 3))
    cluster = np.sort(rng.integers(0, max(n // draw(st.integers(1, 6)), 1), n))
    said, sees = rng.random(n) < prior, rng.random(n) < seen
    asked = {
        name: frame(np.where(rng.random(n) < noise, rng.random(n) < prior, said) | (sees & (name == "real")), cluster)
        for name in ("real", *ARMS)
    }
    return asked.pop("real"), {name: asked[name] for name in ARMS[: draw(st.integers(1, 3))]}


@given(runs())
def test_every_number_agrees_with_the_paired_test(given: tuple[pd.DataFrame, dict[str, pd.DataFrame]]) -> None:
    real, arms = given
    found = compute_sight(real, arms, "m")
    tests = {name: paired_test(real, arm, "m") for name, arm in arms.items()}
    for name, test in tests.items():
        arm = found.arms[name]
        assert (arm.difference, arm.low, arm.high, arm.p) == pytest.approx(
            (test.difference, test.low, test.high, test.p)
        )
    assert found.value == pytest.approx(min(test.difference for test in tests.values()))
    assert found.sees == all(test.difference > 0 and test.p < 0.05 for test in tests.values())
    assert found.low <= found.value <= found.high
    assert found.low == pytest.approx(min(test.low for test in tests.values()))
    if found.share is not None and found.share_low is not None and found.share_high is not None:
        assert found.share_low - 1e-6 <= found.share <= found.share_high + 1e-6
        assert (found.share_high < 100) == found.sees
    else:  # a ratio to a score that is not significantly above 0 has no interval
        assert found.share_low is None and found.share_high is None


@given(runs())
def test_the_share_ends_where_the_paired_test_begins_to_reject(
    given: tuple[pd.DataFrame, dict[str, pd.DataFrame]],
) -> None:
    real, arms = given
    ends = [compute_sight(real, {name: arm}, "m") for name, arm in arms.items()]
    for (_, arm), found in zip(arms.items(), ends, strict=True):
        for end in (found.share_low, found.share_high):
            if end:  # 0 is the least there is
                scaled = real.assign(numerator=real["numerator"] * end / 100)
                assert paired_test(scaled, arm, "m").p == pytest.approx(0.05, abs=1e-4)
    if all(found.share_high is not None for found in ends):
        whole = compute_sight(real, arms, "m")
        assert whole.share_high == pytest.approx(max(found.share_high for found in ends))
        assert whole.share_low <= max(found.share_low for found in ends) + 1e-9  # each lower end is corrected
        assert whole.high >= min(found.high for found in ends) - 1e-9


def test_a_metric_without_arms_says_why() -> None:
    assert METRICS["fake"].compared == () and METRICS["swap"].compared == () and METRICS["average"].compared == ()
    for name, info in METRICS.items():
        counts_right = info.higher_is_better and info.unit == "percent" and not info.of_ends
        assert not counts_right or set(info.compared) == set(ARMS) or info.no_arm, name
    assert all(METRICS[name].compared or METRICS[name].no_arm for name in HEADLINE_METRICS.values())
