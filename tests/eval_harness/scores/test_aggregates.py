"""Test aggregates of run folders (`medprobe aggregate`), calibration, and ProbMed's pairs."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dataset_builders.build import build
from dataset_builders.errors import BadInput
from eval_harness.benchmarks.probmed_vqa_rad import pair_units
from eval_harness.derive.metrics import compute_scores
from eval_harness.records.result import Benchmark, Method, Model, Result, Score, read_result
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import run_evaluation
from eval_harness.scores.grading import grade
from eval_harness.store import aggregate as aggregates
from eval_harness.store.aggregate import (
    adversarial_pair_scores,
    aggregate,
    compute_calibration,
    run_calibration,
    top_option_confidence,
)
from eval_harness.store.formatting import format_pairs


def questions() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "question_id": ["1-1", "1-2", "2-1", "2-2"],
            "case_id": ["1", "1", "2", "2"],
            "image_id": list("abcd"),
            "options": [["x", "y"]] * 4,
            "answer": [[0], [1], [0], [1]],
            "question_type": "single",
            "categories": [[]] * 4,
        }
    )


def samples(*choices: str) -> pd.DataFrame:
    """Build answers from one string per sample, one letter per question; "-" is no choice."""
    rows = [
        {
            "question_id": question,
            "sample": sample,
            "choice": ["AB".index(letter)] if letter != "-" else [],
            "status": "answered" if letter != "-" else "irrelevant",
        }
        for sample, letters in enumerate(choices)
        for question, letter in zip(questions()["question_id"], letters, strict=True)
    ]
    return pd.DataFrame(rows)


def result(model: str, value: float | None, fingerprint: str = "f") -> Result:
    return Result(
        kind="measured",
        provenance="reproduced",
        benchmark=Benchmark(
            name="mediconfusion",
            format="mediconfusion",
            split="test",
            questions=4,
            fingerprint=fingerprint,
        ),
        model=Model(name=model),
        method=Method(name="mc"),
        scores={
            "set_accuracy": Score(value=value, n=2, n_cases=2),
            "individual_accuracy": Score(value=50, n=4, n_cases=2),
        },
        created_at="2026-01-01T00:00:00+00:00",
    )


def test_majority_counts_only_choices() -> None:
    answers = samples("ABA-", "ABB-", "BBB-", "BAB-")
    assert aggregates.majority_vote(answers)["choice"].tolist() == [[0], [1], [1], []]
    scored = compute_scores("mediconfusion", questions(), aggregates.majority_vote(answers))
    assert scored.scores["set_accuracy"].value == 50 and scored.scores["invalid"].value == 25


def test_question_without_votes_takes_its_most_frequent_status() -> None:
    answers = samples("---A", "----", "----")
    answers["status"] = [
        *("refused", "failed", "truncated", "answered"),
        *("refused", "failed", "truncated", "refused"),
        *("irrelevant", "irrelevant", "truncated", "refused"),
    ]
    scores = compute_scores("mediconfusion", questions(), aggregates.majority_vote(answers)).scores
    assert (scores["refused"].value, scores["abstained"].value, scores["irrelevant"].value) == (
        25,
        75,
        0,
    )


@pytest.mark.parametrize(("threshold", "individual"), [(0, 75), (25, 50), (50, 25), (100, 0)])
def test_oracle_accepts_questions_correct_in_enough_samples(threshold: float, individual: float) -> None:
    # right in 3, 2, 1, 0 of 4 samples
    answers = samples("AAAA", "ABBA", "ABBA", "B--A")
    accepted = aggregates.best_of_n_oracle("mediconfusion", questions(), answers, threshold)
    assert compute_scores("mediconfusion", questions(), accepted).scores["individual_accuracy"].value == individual


def test_calibration_by_hand() -> None:
    answers = samples("ABBA")
    answers["scores"] = [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.6, 0.4]]
    calibration = compute_calibration("mediconfusion", questions(), answers)
    assert calibration is not None and calibration.n == 4
    # bins: .6 twice (wrong), .8 right, .9 right
    assert calibration.ece == pytest.approx((2 * 60 + 20 + 10) / 4)
    assert calibration.risk_coverage["coverage"].tolist() == [25, 50, 100]
    assert calibration.risk_coverage["risk"].tolist() == [0, 0, 50]
    assert calibration.aurc == pytest.approx(25)
    assert compute_calibration("mediconfusion", questions(), samples("ABBA")) is None


def test_confidence_of_log_scores_is_their_softmax() -> None:
    assert top_option_confidence(np.log([0.7, 0.2, 0.1])) == pytest.approx(0.7)
    assert top_option_confidence([0.7, 0.2, 0.1]) == pytest.approx(0.7)
    assert top_option_confidence([-1000.0, -1001.0]) == pytest.approx(1 / (1 + math.exp(-1)))


@pytest.mark.parametrize("seed", range(20))
def test_best_run_is_picked_per_cell(seed: int) -> None:
    """Compare with a loop: the best of each accuracy is chosen independently, overall and per
    category, even if a run lacks it; rates have no best.
    """
    rng = np.random.default_rng(seed)

    def scores() -> dict[str, Score]:
        names = (
            "set_accuracy",
            "individual_accuracy",
            "confusion",
            "invalid",
            "share_A",
            "answered_accuracy",
        )
        values = {
            name: None if rng.random() < 0.2 else float(rng.integers(0, 9)) for name in names if rng.random() < 0.8
        }
        return {name: Score(value=value, n=4, n_cases=2) for name, value in values.items()}

    runs = []
    for _ in range(int(rng.integers(1, 5))):
        base_result = result("m", None)
        base_result.scores = scores()
        base_result.breakdown = {"category": {label: scores() for label in "abc" if rng.random() < 0.7}}
        runs.append(base_result)
    best, cells = aggregates.best_over_methods(runs)
    metrics = ("set_accuracy", "individual_accuracy")
    for picked, candidates in [(best, [run.scores for run in runs])] + [
        (
            cells.get("category", {}).get(label, {}),
            [run.breakdown["category"].get(label, {}) for run in runs],
        )
        for label in "abc"
    ]:
        values = {
            name: [h[name].value for h in candidates if name in h and h[name].value is not None] for name in metrics
        }
        assert {name: score.value for name, score in picked.items()} == {n: max(v) for n, v in values.items() if v}


def pairs(seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Draw ProbMed-style questions with pairs, some halves missing, and answers to most of them."""
    rng = np.random.default_rng(seed)
    rows = [
        {"question_id": f"{image}-{pair}-{half}", "case_id": str(image), "image_id": str(image), "options": ["yes", "no"],
         "answer": [half], "question_type": "yes_no", "aspect": None, "adversarial": bool(half), "image_type": None,
         "pair_id": f"{image}-{pair}" if rng.random() < 0.9 else None}
        for image in range(6) for pair in range(3) for half in (0, 1) if rng.random() < 0.9
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    rows = [
        {
            "question_id": row["question_id"],
            "sample": sample,
            "choice": [int(rng.integers(0, 2))],
            "status": "answered",
        }
        for row in rows
        for sample in range(2)
        if rng.random() < 0.9
    ]
    return frame, pd.DataFrame(rows)


@pytest.mark.parametrize("seed", range(10))
def test_adversarial_pairs_count_both_questions(seed: int) -> None:
    """Table 3, counted one by one: the true question alone, and both; half pairs and missing
    answers included.
    """
    questions, answers = pairs(seed)
    right = {
        (row.question_id, row.sample): row.choice == [int(row.question_id.endswith("-1"))]
        for row in answers.itertuples()
    }
    true_correct, both_correct = [], []
    for _, members in questions.dropna(subset="pair_id").groupby("pair_id"):
        if len(members) == 2:
            true_question, counterpart = members.sort_values("adversarial")["question_id"]
            for sample in (0, 1):
                true_correct.append(right.get((true_question, sample), False))
                both_correct.append(true_correct[-1] and right.get((counterpart, sample), False))
    scores = compute_scores("probmed-vqa-rad", questions, answers).scores
    assert scores["accuracy_without_adversarial"].value == pytest.approx(100 * np.mean(true_correct))
    assert scores["accuracy"].value == pytest.approx(100 * np.mean(both_correct))
    assert scores["accuracy"].n == len(both_correct) / 2
    assert (scores["accuracy_without_adversarial"].chance, scores["accuracy"].chance) == (50, 25)


def test_pair_of_three_questions_is_refused() -> None:
    questions, answers = pairs(0)
    duplicates = pd.concat([questions, questions.iloc[[0]].assign(question_id="again")], ignore_index=True)
    with pytest.raises(BadInput, match="several true questions"):
        pair_units(grade("probmed", duplicates, answers))


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("aggregate")
    build("mediconfusion", out=folder / "data")
    return folder


def run(workdir: Path, name: str, model: str = "baseline:chance", **options: object) -> Path:
    config = EvalConfig("mediconfusion", model, data=str(workdir / "data"), out=workdir / name, **options)
    run_evaluation(config)
    return workdir / name


@pytest.mark.exhaustive
def test_mean_over_prompts_and_samples_equals_mean_over_all_samples(workdir: Path) -> None:
    runs = [run(workdir, name, prompt=name, samples=4) for name in ("mc-0", "mc-1")]
    mean_result = aggregate("mean", runs, out=workdir / "mean.json")
    singles = [read_result(folder / "result.json").scores["set_accuracy"].value for folder in runs]
    assert mean_result.scores["set_accuracy"].value == pytest.approx(np.mean(singles))
    assert mean_result.scores["set_accuracy_std"].value > 0
    assert (mean_result.kind, len(mean_result.run_ids)) == ("aggregate", 2)
    assert json.loads((workdir / "mean.json").read_text())["method"]["name"] == "mean"


def test_adversarial_pairs_of_a_run(phantoms: Path, tmp_path: Path) -> None:
    run_evaluation(EvalConfig("probmed", "baseline:always-A", data=str(phantoms / "probmed"), out=tmp_path / "yes"))
    pair_scores = adversarial_pair_scores(tmp_path / "yes")
    assert list(pair_scores) == ["all", "modality", "organ", "condition", "position"]
    for scores in pair_scores.values():  # answering yes to everything gets every true question right, and no pair
        assert scores["accuracy_without_adversarial"].value == 100 and scores["accuracy_with_adversarial"].value == 0
    n_all, *parts = (scores["accuracy_with_adversarial"].n for scores in pair_scores.values())
    assert n_all == sum(parts) and "-100.0" in format_pairs(pair_scores)


def test_incompatible_runs_are_refused(workdir: Path) -> None:
    single, many = run(workdir, "single"), run(workdir, "many", samples=5)
    assert set(aggregate("oracle", [many]).scores) == {"set_accuracy", "individual_accuracy"}
    other_model, part = run(workdir, "other", model="baseline:always-A"), run(workdir, "part", limit=4)
    for words, kind, folders in (
        ("one sample per question", "majority", [single]),
        ("takes one run folder", "oracle", [many, single]),
        ("runs of one model", "best", [single, other_model]),
        ("different questions", "best", [single, part]),
        ("same prompt", "mean", [single, many]),
        ("given twice", "best", [single, single]),
        ("unknown aggregate", "worst", [single]),
    ):
        with pytest.raises(BadInput, match=words):
            aggregate(kind, folders)
    with pytest.raises(BadInput, match="no option scores"):
        run_calibration(single)
