"""Test the comparison of two results."""

import dataclasses
import re

import pytest

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build
from dataset_builders.errors import BadInput
from eval_harness.derive.metrics import HEADLINE_METRICS, METRICS
from eval_harness.derive.scoring import compute_scores, compute_units
from eval_harness.models.interface import Settings
from eval_harness.records.result import Benchmark, Method, Model, Result
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import run_evaluation
from eval_harness.scores.comparisons import paired_test
from eval_harness.store.comparison import Side, compare_results, load_side
from eval_harness.store.formatting import format_score, metric_unit
from tests.chaos.server import ChaosServer
from tests.leaderboard_space.stores import answers, questions


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
    benchmark = Benchmark(
        name=family,
        format=family,
        split="test",
        questions=len(benchmark_questions),
        fingerprint="v1-x",
    )
    sides, units_by_side = [], []
    for seed, skill in enumerate(skills):
        side_answers = answers(benchmark_questions, skill, seed=seed)
        scored = compute_scores(family, benchmark_questions, side_answers)
        result = Result(kind="measured", provenance="submitted", benchmark=benchmark, model=Model(name=f"Model {seed}"),
                        method=Method(name="mc"), scores=scored.scores, created_at="2026-11-21T07:00:00+00:00",
                        deviations=["images cut"] * seed)  # fmt: skip
        sides.append(Side(f"{seed}", result, side_answers, benchmark_questions))
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


def test_free_form_answers_are_sent_to_the_judge_once(workdir, tmp_path):
    def judging(body):
        text = body["messages"][-1]["content"]
        # The evaluated model gets an image, so its content is a list; the judge gets text only.
        if not isinstance(text, str):
            return "The lesion is on the left of the picture, I think."
        return "A: 9\nB: 2\nYour explanation: it says so"

    with ChaosServer(answer=judging) as server:
        wish = EvalConfig(
            *("mediconfusion", "openai:m"),
            data=str(workdir / "mediconfusion"),
            method="ff",
            judge="openai:j",
            out=tmp_path / "run",
            settings=Settings(base_url=server.url, no_look=True),
        )
        result, _ = run_evaluation(wish)
        n_requests = sum(server.asked.values())
        second_result, _ = run_evaluation(wish)
        assert sum(server.asked.values()) == n_requests
    assert result.method.judge["decided"] == 28
    assert result.scores == second_result.scores
    assert result.scores["individual_accuracy"].value == 50
    assert not any("no judge" in words for words in result.deviations)
