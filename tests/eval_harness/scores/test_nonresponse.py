"""Check that no output judges a run whose answers mostly tell nothing about the model, and that
each names the cause.
"""

import numpy as np
import pandas as pd
import pytest

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.errors import BadInput
from eval_harness.derive.metrics import (
    HEADLINE_METRICS,
    METRICS,
    NoScore,
    compute_scores,
    compute_units,
    headline_score,
    summarise_units,
)
from eval_harness.records.result import Benchmark, Method, Model, Result, Score
from eval_harness.scores.grading import LOST_STATUSES
from eval_harness.store.comparison import Side, compare_results
from eval_harness.store.formatting import format_summary
from eval_harness.store.publish_score import eval_result_entries
from eval_harness.store.results_table import tidy_table
from tests.leaderboard_space.stores import answers as given, questions
from tests.sampling import few
from tests.silent_answers import SILENT, Mixture, mixture, scope

JUDGING = ("better than", "worse than", "no different", "significant", "p =", "p <", "95% interval")


def result_of(family: str, benchmark_questions: pd.DataFrame, answers: Mixture, extraction: str = "ours") -> Result:
    scored = compute_scores(family, benchmark_questions, answers.answers, extraction)
    return Result(
        kind="measured", provenance="submitted", created_at="2026-11-21T07:00:00+00:00", model=Model(name="M"),
        benchmark=Benchmark(name=family, format=family, split="test", questions=len(benchmark_questions),
                            fingerprint="f", origin="official"),
        method=Method(name="mc", extraction=extraction, generation={"max_tokens": 8}),
        scores=scored.scores, breakdown=scored.breakdown, statuses=scored.statuses,
    )  # fmt: skip


def is_consistent(score: Score, counts: dict[str, int], keeps_value: bool) -> None:
    silent = {status: counts[status] for status in SILENT}
    if 2 * sum(silent.values()) <= sum(counts.values()):
        # A verdict is withheld if it depends on absent answers; the value stays.
        depends = score.nonresponse is not None and any(silent[status] for status in LOST_STATUSES)
        assert score.verdict is None if depends else score.nonresponse is None
        return
    assert score.nonresponse is not None and score.verdict is None
    assert score.nonresponse.model_dump() == {"responses": sum(counts.values())} | silent
    assert keeps_value or (score.value, score.low, score.high) == (None, None, None)


NONRESPONSE_CASES = [
    (family, extraction, seed) for seed in range(4) for extraction in ("ours", "official") for family in BENCHMARKS
]


@pytest.mark.parametrize(("family", "extraction", "seed"), few(NONRESPONSE_CASES, 10))
def test_no_output_judges_a_run_with_mostly_nonresponse(family: str, extraction: str, seed: int) -> None:
    rng = np.random.default_rng([seed, BENCHMARKS.index(family)])
    benchmark_questions = questions(family, int(rng.choice([2, 9, 24])), seed=seed)
    if family == "gmai-mmbench":
        benchmark_questions["question_type"] = np.where(
            np.arange(len(benchmark_questions)) % 4 == 3, "multiple", "single"
        )
    answers = mixture(benchmark_questions, rng)
    result = result_of(family, benchmark_questions, answers, extraction)
    official = extraction == "official"

    for name, score in result.scores.items():
        ids = scope(family, name, benchmark_questions)
        if family == "gmai-mmbench" and (
            name.startswith(("mcq_", "share_", "accuracy")) or name == "answered_accuracy"
        ):
            several = set(benchmark_questions.loc[benchmark_questions["question_type"] == "multiple", "question_id"])
            ids = ids[ids.isin(several) == name.startswith("mcq_")]
        is_consistent(score, answers.counts(ids), official or METRICS[name].of_ends)
    abstained = sum(count for status, count in result.statuses.items() if status != "answered")
    assert abstained + result.statuses["answered"] == len(answers.every)
    assert result.scores["abstained"].value == pytest.approx(100 * abstained / len(answers.every))
    metric = HEADLINE_METRICS[family]

    first_line, *other_lines = format_summary(result).splitlines()
    score = headline_score(result)
    counts = answers.counts(
        scope(family, metric, benchmark_questions[benchmark_questions["question_type"] != "multiple"])
    )
    names_causes = [words for status, words in SILENT.items() if counts[status]]
    if isinstance(score, NoScore):
        assert not official and score.nonresponse is not None
        assert first_line.startswith("no score: ")
        assert all(words in first_line for words in names_causes)
        assert not any(words in first_line for words in JUDGING)
        line = next(line for line in other_lines if line.split()[0] == metric)
        assert line.endswith("no score") and not any(words in line for words in JUDGING)
        with pytest.raises(BadInput, match="no score"):
            eval_result_entries(result, "org/name", tasks=[f"test_{metric}"])
    else:
        assert first_line.startswith(f"{metric} ")
        assert not (score.nonresponse and "chance (" in first_line)

    for row in tidy_table([result]).to_dict("records"):
        cell_scores = result.scores if pd.isna(row["facet"]) else result.breakdown[row["facet"]][row["facet_value"]]
        score = cell_scores[row["metric"]]
        silent = score.nonresponse
        assert pd.isna(row["no_score"]) == (silent is None and not score.is_small)
        if silent is not None:
            assert all((words in row["no_score"]) == (getattr(silent, status) > 0) for status, words in SILENT.items())

    other_answers = mixture(benchmark_questions, rng)
    other_side = Side(
        "b", result_of(family, benchmark_questions, other_answers), other_answers.answers, benchmark_questions
    )
    compared = compare_results(Side("a", result, answers.answers, benchmark_questions), other_side).splitlines()
    for name, score in result.scores.items():
        partner = other_side.result.scores[name]
        lines = [line for line in compared if line.startswith(f"  {name} ")]
        if lines and (score.nonresponse or partner.nonresponse):
            assert "no comparison: " in lines[0] and not any(words in lines[0] for words in JUDGING)
            causes = [side.nonresponse for side in (score, partner) if side.nonresponse]
            assert all(
                words in lines[0]
                for nonresponse in causes
                for status, words in SILENT.items()
                if getattr(nonresponse, status) > 0
            )


@pytest.mark.parametrize("seed", few(range(40), 6))
@pytest.mark.parametrize("family", BENCHMARKS)
def test_verdict_requires_that_lost_answers_cannot_change_it(family: str, seed: int) -> None:
    """Score the headline again with every unit that has a lost answer right, and with all of them
    wrong.
    """
    rng = np.random.default_rng([seed, 46])
    benchmark_questions = questions(family, 24, seed=seed)
    answered = given(benchmark_questions, float(rng.random()), seed=seed).assign(status="answered")
    lost = rng.random(len(answered)) < rng.choice([0.02, 0.1, 0.3])
    ends = np.where(lost, rng.choice(np.array(LOST_STATUSES, dtype=object), len(answered)), "answered")
    silent = answered.assign(
        status=ends,
        choice=[[] if is_lost else choice for is_lost, choice in zip(lost, answered["choice"], strict=True)],
    )
    metric = HEADLINE_METRICS[family]
    score = compute_scores(family, benchmark_questions, silent).scores[metric]
    table = compute_units(family, benchmark_questions, silent)
    table = table[table["metric"] == metric]
    has_lost = table[list(LOST_STATUSES)].sum(axis=1) > 0
    verdicts = set()
    for right in (True, False):
        numerator = table["denominator"] if right else table["numerator"]
        best = table.assign(
            numerator=table["numerator"].where(~has_lost, numerator),
            **dict.fromkeys((*LOST_STATUSES, "unsettled"), 0.0),
        )
        verdicts.add(summarise_units(best)[metric].verdict)
    # A headline over few questions may rest on mostly lost responses: then it has no value.
    scope_statuses = ends[answered["question_id"].isin(scope(family, metric, benchmark_questions))]
    is_majority = 2 * np.isin(scope_statuses, LOST_STATUSES).sum() > len(scope_statuses)
    stands = len(verdicts) == 1 and not is_majority
    assert (score.nonresponse is None) == stands and (score.value is None) == is_majority
    assert {score.verdict} == (verdicts if stands else {None})


def test_refusals_are_scored() -> None:
    benchmark_questions = questions("mediconfusion", 14)
    refusals = pd.DataFrame(
        {
            "question_id": benchmark_questions["question_id"],
            "sample": 0,
            "choice": [[]] * len(benchmark_questions),
            "status": "refused",
        }
    )
    score = compute_scores("mediconfusion", benchmark_questions, refusals).scores["set_accuracy"]
    assert score.value == 0 and score.verdict is not None and score.nonresponse is None


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ({"truncated": 28}, "no score: 28 of 28 answers were cut off at 8 tokens; raise --max-tokens"),
        (
            {"irrelevant": 28},
            "no score: 28 of 28 answers could not be read; look at some of them; a judge model "
            "can read those that contain text (--judge)",
        ),
        ({"answered": 1, "missing": 27}, "no score: 27 of 28 answers are missing; add the missing answers"),
        (
            {"answered": 2, "truncated": 20, "failed": 1, "missing": 5},
            "no score: 26 of 28 answers say nothing: 20 were cut off at 8 tokens, 1 failed, 5 are "
            "missing; raise --max-tokens; run the same command again to repeat the "
            "failed ones; add the missing answers",
        ),
    ],
)  # fmt: skip
def test_first_line_names_cause_and_remedy(ends: dict[str, int], expected: str) -> None:
    benchmark_questions = questions("mediconfusion", 14)
    status = [name for name, count in ends.items() for _ in range(count)]
    choice = [[0] if name == "answered" else [] for name in status]
    every = pd.DataFrame(
        {
            "question_id": benchmark_questions["question_id"],
            "sample": 0,
            "choice": choice,
            "status": status,
            "response": "The im",
        }
    )
    assert (
        format_summary(result_of("mediconfusion", benchmark_questions, Mixture(every, every))).splitlines()[0]
        == expected
    )
