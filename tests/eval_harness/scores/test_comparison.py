"""Test the comparison of two results."""

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from statsmodels.stats.proportion import proportion_confint

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build
from dataset_builders.errors import BadInput
from eval_harness.derive.metrics import HEADLINE_METRICS, METRICS, compute_scores, compute_units
from eval_harness.records.result import Benchmark, Method, Model, Result, Score
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import run_evaluation
from eval_harness.scores.comparisons import paired_test
from eval_harness.scores.intervals import student_quantile
from eval_harness.store.comparison import Side, compare_results, load_side
from eval_harness.store.formatting import format_score, format_summary, metric_unit
from leaderboard_space import sentences
from leaderboard_space.data.outcomes import MetricUnits, score_runs
from tests.leaderboard_space.stores import answers, questions
from tests.sampling import few


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    for family in ("mediconfusion", "halt-medvqa"):
        build(family, out=folder / family)
    for name, changes in {
        "oracle": {"model": "baseline:oracle"},
        "chance": {"model": "baseline:chance"},
        "other-prompt": {"model": "baseline:chance", "prompt": "mc-7"},
        "limited": {"model": "baseline:oracle", "limit": 4},
    }.items():
        run_evaluation(
            EvalConfig(
                **(
                    {
                        "benchmark": "mediconfusion",
                        "data": str(folder / "mediconfusion"),
                        "out": folder / name,
                    }
                    | changes
                )
            )
        )
    run_evaluation(EvalConfig("halt-medvqa", "baseline:chance", data=str(folder / "halt-medvqa"), out=folder / "halt"))
    return folder


def nothing():
    return []


def compare_runs(workdir, a, b, published=nothing):
    return compare_results(load_side(str(workdir / a), published), load_side(str(workdir / b), published))


def test_comparison_names_differing_settings_scores_and_answers(workdir):
    words = compare_runs(workdir, "oracle", "chance")
    assert "model.name: Oracle | Chance" in words
    assert "mc-0" not in words, "what is equal is not listed"
    prompts = compare_runs(workdir, "chance", "other-prompt")
    assert "method.prompt: mc-0 | mc-7" in prompts
    assert "prompt_hash" in prompts


@pytest.mark.parametrize(
    ("family", "cases", "skills"),
    # The last case has so many questions that its p-values underflow.
    [*((family, 25, (0.2, 0.7)) for family in BENCHMARKS), ("gmai-mmbench", 120, (0.0, 1.0))],
)
def test_every_score_is_printed_with_difference_and_test(family, cases, skills):
    """Each line of the score table has both values, A - B, and the paired test with its interval in
    the units of the difference.

    No p-value is printed smaller than floating point can resolve.
    """
    benchmark_questions = questions(family, cases)
    sides, units_by_side = [], []
    for seed, skill in enumerate(skills):
        side_answers = answers(benchmark_questions, skill, seed=seed)
        side_result = result(family, benchmark_questions, side_answers, seed)
        side_result.deviations = ["images cut"] * seed
        sides.append(Side(f"{seed}", side_result, side_answers, benchmark_questions))
        units_by_side.append(compute_units(family, benchmark_questions, side_answers))
    words = compare_results(*sides, all_metrics=True)
    assert re.search(r"^  deviations: none \| images cut$", words, re.MULTILINE)
    table = words.partition("scores (percent, or a count)\n")[2].partition("\n\n")[0]
    table_rows = dict(re.findall(r"^  (\w+(?: \(count\))?) +(\S.*)$", table, re.MULTILINE))
    scores_a, scores_b = (side.result.scores for side in sides)
    known_metrics = [name for name in scores_a if scores_a[name].value is not None and scores_b[name].value is not None]
    p_values = []
    listed = [name.partition(" ")[0] for name in table_rows if name != "metric"]
    assert (sorted(listed), listed[0]) == (sorted(known_metrics), HEADLINE_METRICS[family])
    for name, line in table_rows.items():
        metric = name.partition(" ")[0]
        if metric == "metric":
            continue
        printed_a, printed_b, difference, test_text = (*line.split(maxsplit=3), "")[:4]
        assert (printed_a, printed_b) == tuple(
            format_score(side[metric].value, metric_unit(metric)) for side in (scores_a, scores_b)
        )
        # One printed decimal: half a unit of rounding.
        assert abs(float(difference) - (scores_a[metric].value - scores_b[metric].value)) <= 0.0501
        test = paired_test(*units_by_side, metric)
        ends = re.search(r"interval (\S+) to (\S+), p", test_text)
        # Counts have no interval.
        assert (ends is None) == (METRICS[metric].unit == "count") == name.endswith("(count)")
        p = f"p = {test.p:.3g}" if test.p > 1e-12 else "p < 1e-12"
        assert test_text.endswith(f"{p} ({test.method})")
        p_values.append(test.p)
        if ends:
            assert abs(float(ends[1]) - test.low) <= 0.051 and abs(float(ends[2]) - test.high) <= 0.051
            assert test.low - 1e-4 <= scores_a[metric].value - scores_b[metric].value <= test.high + 1e-4
            # Rounding never separates the printed interval from the printed p-value.
            assert (float(ends[1]) > 0 or float(ends[2]) < 0) == (test.p < 0.05)
    assert (min(p_values) <= 1e-12) == (cases > 100)


def test_aggregate_is_not_tested_with_the_answers_of_a_neighbouring_run(workdir):
    from eval_harness.store.aggregate import aggregate

    # The aggregate's file lies beside the answers of the run that it was made from.
    aggregate("best", [workdir / "oracle"], out=workdir / "oracle/best.json")
    assert "no paired test: one of them has no answers" in compare_runs(workdir, "oracle/best.json", "chance")


def test_letter_shares_as_shown_are_not_tested_in_the_original_order(workdir):
    config = EvalConfig(
        "mediconfusion",
        "baseline:chance",
        data=str(workdir / "mediconfusion"),
        out=workdir / "turned",
    )
    run_evaluation(dataclasses.replace(config, permute=True))
    sides = (load_side(str(workdir / name), nothing) for name in ("turned", "oracle"))
    lines = compare_results(*sides, all_metrics=True).splitlines()
    has_interval = {line.split()[0]: "interval" in line for line in lines if re.match(r"  \w+ +\d", line)}
    assert has_interval["set_accuracy"] and not has_interval["share_A"]


def test_different_questions_are_not_tested_as_pairs(workdir):
    words = compare_runs(workdir, "oracle", "limited")
    assert "no paired test: they answered different questions" in words
    assert "benchmark.selection" in words
    with pytest.raises(BadInput, match="these cannot be compared"):
        compare_runs(workdir, "oracle", "halt")
    with pytest.raises(BadInput, match="no such result file"):
        compare_runs(workdir, "oracle", "nowhere")


def test_fields_missing_from_a_paper_are_not_differences(workdir):
    from leaderboard_space.data.published_results import published_results

    side = load_side("published:GPT-4o/mediconfusion/mc/Table 1", published_results)
    measured = load_side(str(workdir / "chance"), nothing)
    words = compare_results(measured, side)
    assert all("test: one of them has no answers" in text for text in (words, compare_results(side, measured)))
    assert "not set" not in words and "None" not in words and "environment" not in words
    assert "unpaired" in words and "95% interval" in words
    with pytest.raises(BadInput, match="not in any paper's tables"):
        load_side("published:Nobody-9000", published_results)
    with pytest.raises(BadInput, match=r"Name one, e\.g\. 'published:GPT-4o/"):
        load_side("published:GPT-4o", published_results)


# On generated results, test and interval agree in every printed line and every sentence of the
# board.


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
