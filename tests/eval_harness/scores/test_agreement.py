"""Check on generated results that the test and the interval agree in every printed line and every
sentence of the board.

The board's pages are checked in the same way by `tests/leaderboard_space/checks`.
"""

import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from dataset_builders.benchmarks import BENCHMARKS
from eval_harness.derive.metrics import METRICS
from eval_harness.derive.scoring import compute_scores
from eval_harness.records.result import Benchmark, Method, Model, Result, Score
from eval_harness.scores.clustered import student_quantile
from eval_harness.store.comparison import Side, compare_results
from eval_harness.store.formatting import format_summary
from leaderboard_space import sentences
from leaderboard_space.data.unit_scores import MetricUnits, score_runs
from tests.leaderboard_space.stores import answers, questions
from tests.sampling import few

LINE = r"^ *\w+ +\S+ +\S+ +\S+ +95% interval (\S+) to (\S+), p ([=<]) (\S+) \("
VERDICTS = {"better than chance": 1, "worse than chance": -1, "no different from chance": 0}


def result(family: str, questions_, answers_, number: int) -> Result:  # type: ignore[no-untyped-def]
    return Result(
        kind="measured",
        provenance="submitted",
        benchmark=Benchmark(name=family, format=family, split="test", questions=len(questions_), fingerprint="v1-x"),
        model=Model(name=f"Model {number}"),
        method=Method(name="mc"),
        scores=compute_scores(family, questions_, answers_).scores,
        created_at="2026-11-21T07:00:00+00:00",
    )


def check_scores(scores: dict[str, Score]) -> int:
    """Check that every interval follows from `n_effective`, and every verdict from interval and
    chance. Returns the number of verdicts.
    """
    judged = 0
    for name, score in scores.items():
        if score.low is None or score.high is None or score.value is None:
            continue
        assert score.n_effective is not None
        ends = proportion_confint(score.value / 100 * score.n_effective, score.n_effective, method="beta")
        assert (score.low, score.high) == pytest.approx([100 * end for end in ends], abs=1e-6), (
            name,
            score,
        )
        if score.verdict is not None and score.chance is not None:
            assert (score.verdict == "no different") == (score.low <= score.chance <= score.high), (
                name,
                score,
            )
            judged += 1
    return judged


def check_summary(summary: str) -> int:
    """Check that each verdict in the table of `eval` and `score` follows from the printed interval
    and chance.
    """
    judged = 0
    for line in summary.splitlines():
        row_match = re.search(r"  ([\d.]+) - ([\d.]+) +\d+ +([\d.]+)  (\S.* chance)$", line)
        if row_match:
            low, high, chance = (float(number) for number in row_match.groups()[:3])
            outside = 0 if low <= chance <= high else -1 if high < chance else 1
            lower = METRICS[line.split()[0]].higher_is_better is False
            assert VERDICTS[row_match[4]] == (-outside if lower else outside), line
            judged += 1
    return judged


@pytest.mark.parametrize("seed", few(range(30), 10))
def test_printed_verdicts_and_unpaired_tests_agree_with_printed_intervals(seed: int) -> None:
    rng = np.random.default_rng(seed)
    family = BENCHMARKS[seed % len(BENCHMARKS)]
    asked = questions(family, int(rng.choice([1, 2, 5, 20, 60])), seed=seed)
    sides = []
    for run in range(2):
        run_answers = answers(asked, float(rng.choice([0.0, 0.2, 0.5, 0.8, 1.0])), seed=seed + run)
        sides.append(Side("", result(family, asked, run_answers, run)))
        assert check_scores(sides[-1].result.scores) >= check_summary(format_summary(sides[-1].result))
    # As if only the numbers were known; paired tests are compared in `test_comparison.py`.
    for low, high, sign, p in re.findall(LINE, compare_results(*sides), re.MULTILINE):
        assert (float(low) > 0 or float(high) < 0) == (sign == "<" or float(p) < 0.05), (low, high, sign, p)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 60),
    st.integers(1, 60),
    st.floats(0.01, 0.99),
    st.booleans(),
)
def test_verdicts_agree_with_intervals_for_any_units(seed: int, n: int, clusters: int, chance: float, up: bool) -> None:
    """The result is the same when many runs are computed at once, as on the board: 0/1 outcomes,
    means over samples, own denominators.
    """
    rng = np.random.default_rng(seed)
    cluster = np.sort(rng.integers(0, clusters, n))
    samples, ratio = int(rng.choice([1, 1, 3])), rng.random() < 0.3
    denominator = (rng.random((4, n)) < 0.7).astype(float) if ratio else np.ones((1, n))
    numerator = denominator * rng.binomial(samples, rng.random((4, 1)), (4, n)) / samples
    ends, keeps_value = (
        (np.zeros((1, n), np.int32),) * 5,
        np.zeros(4, bool),
    )  # no run has mostly nonresponse
    count, case = np.ones((1, n), np.int64), np.arange(n)
    metric_units = MetricUnits(numerator, denominator, chance * denominator, count, ends, case, cluster, keeps_value)
    scores = score_runs(metric_units, up)
    check_scores({str(index): score for index, score in enumerate(scores)})
    for score in scores:
        if score.verdict is not None and score.chance is not None:
            sentence = sentences.format_basis(score)
            low, high = (float(end) for end in re.match(r"95% interval ([\d.]+)–([\d.]+)", sentence).groups())  # type: ignore[union-attr]
            assert (score.verdict == "no different") == (low <= score.chance <= high), (
                sentence,
                score,
            )


@settings(max_examples=100, deadline=None)
@given(
    st.floats(-40, 40),
    st.floats(0.01, 30),
    st.integers(1, 500),
    st.sampled_from([True, False, None]),
)
def test_sentences_on_a_difference_agree_with_its_interval(
    difference: float, error: float, df: int, up: bool | None
) -> None:
    from scipy import stats

    half_width = float(student_quantile(df)) * error
    p = 2 * float(stats.t.sf(abs(difference) / error, df))
    assume(abs(p - 0.05) > 1e-7 and abs(difference) > 1e-6)
    above = sentences.comparison_headline("A", "B", "Accuracy", up, difference, p, p)
    ends = (difference - half_width, difference + half_width)
    below = sentences.paired_test_details("A", "B", difference, *ends, p, "t", (3, 4, 3), "question")
    low, high = (
        float(end.replace("−", "-"))
        for end in re.search(r"interval (\S+) to (\S+); ", below).groups()  # type: ignore[union-attr]
    )
    assert ("do not differ significantly" not in above) == (low > 0 or high < 0), (above, below)
    p_match = re.search(r"p ([=<]) ([\d.]+)( \(under 0.05\))?", below)
    assert p_match and (low > 0 or high < 0) == (p_match[1] == "<" or float(p_match[2]) < 0.05 or bool(p_match[3])), (
        below
    )
