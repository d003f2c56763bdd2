"""Test every metric on small benchmarks whose scores can be counted by hand."""

import numpy as np
import pandas as pd
import pytest

from dataset_builders.benchmarks import BENCHMARKS, FACETS_BY_BENCHMARK
from dataset_builders.errors import BadInput
from dataset_builders.schema import ASPECTS
from eval_harness.benchmarks.probmed import more_breakdowns
from eval_harness.derive.derivation import UNIT_ID_COLUMNS, UNIT_NUMBER_COLUMNS
from eval_harness.derive.metrics import (
    BALANCED_METRICS,
    HEADLINE_METRICS,
    METRICS,
    break_down_by_facet,
    compute_scores,
    compute_units,
    explode_facet,
    summarise_units,
)
from eval_harness.scores.grading import grade
from tests.eval_harness.scores.guessing import constant_answers
from tests.leaderboard_space import stores
from tests.silent_answers import mixture


def answers(choices: dict[str, list[int]], sample: int = 0, **statuses: str) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "question_id": question,
                "sample": sample,
                "choice": choice,
                "status": statuses.get(question.replace("-", "_"), "answered" if choice else "irrelevant"),
            }
            for question, choice in choices.items()
        ]
    )


def pairs() -> pd.DataFrame:
    labels = [
        (["Cerebral"], ["Cerebral"]),
        (["Cerebral", "Vascular"], ["Spinal"]),
        (["Spinal"], ["Spinal"]),
        ([], []),
    ]
    return pd.DataFrame(
        [
            {
                "question_id": f"{pair}-{side}",
                "case_id": f"{pair}",
                "image_id": f"i{pair}{side}",
                "options": ["x", "y"],
                "answer": [side - 1],
                "question_type": "single",
                "categories": label,
            }
            for pair, pair_labels in enumerate(labels)
            for side, label in zip((1, 2), pair_labels, strict=True)
        ]
    )


def test_mediconfusion_by_hand() -> None:
    choices = {
        "0-1": [0],
        "0-2": [1],
        "1-1": [0],
        "1-2": [0],
        "2-1": [1],
        "2-2": [0],
        "3-1": [0],
        "3-2": [],
    }
    scored = compute_scores("mediconfusion", pairs(), answers(choices))
    value = {name: got.value for name, got in scored.scores.items()}
    assert value["set_accuracy"] == 25 and scored.scores["set_accuracy"].n == 4
    assert value["individual_accuracy"] == 50 and value["invalid"] == 12.5
    assert value["confusion"] == pytest.approx(100 / 3) and scored.scores["confusion"].n == 3
    assert (scored.scores["set_accuracy"].chance, scored.scores["confusion"].chance) == (25, 50)
    category = scored.breakdown["category"]
    assert category["Cerebral"]["set_accuracy"].value == pytest.approx(200 / 3)
    assert (
        category["Cerebral"]["set_accuracy"].n,
        category["Cerebral"]["set_accuracy"].n_cases,
    ) == (3, 2)
    assert category["Spinal"]["confusion"].n == 3 and category["Vascular"]["individual_accuracy"].value == 100
    assert scored.statuses == {
        "answered": 7, "irrelevant": 1, "refused": 0, "truncated": 0, "failed": 0, "missing": 0,
    }  # fmt: skip
    assert value["share_A"] == pytest.approx(500 / 7) and value["irrelevant"] == 12.5


@pytest.mark.parametrize("status", ["failed", "refused", "irrelevant", "truncated", "missing"])
def test_choice_counts_only_with_status_answered(status: str) -> None:
    right = {row.question_id: list(row.answer) for row in halt().itertuples()}
    assert compute_scores("halt-medvqa", halt(), answers(right)).scores["average"].value == 100
    without = compute_scores("halt-medvqa", halt(), answers(right).assign(status=status)).scores
    assert without["average"].value == (0 if status == "refused" else None)
    assert without["abstained"].value == 100


def test_superset_of_the_key_counts_only_for_yes_no_questions() -> None:
    """The authors' ProbMed reader may read both words; elsewhere several choices must equal the
    key.
    """
    halt_questions = halt()
    keys = halt_questions["answer"].tolist()
    supersets = answers(
        {name: sorted({*key, 0, 1}) for name, key in zip(halt_questions["question_id"], keys, strict=True)}
    )
    wrong_answers = answers(
        {name: [(key[0] + 1) % 5] for name, key in zip(halt_questions["question_id"], keys, strict=True)}
    )
    for kind in ("single", "multiple", "yes_no"):
        graded = grade("halt-medvqa", halt_questions.assign(question_type=kind), supersets).right[:, 0]
        assert graded.tolist() == [kind == "yes_no" or {*key} == {*key, 0, 1} for key in keys]
        assert not grade("halt-medvqa", halt_questions.assign(question_type=kind), wrong_answers).right.any()


def test_samples_are_averaged() -> None:
    right = {question: [int(question[-1]) - 1] for question in pairs()["question_id"]}
    wrong = {question: [2 - int(question[-1])] for question in pairs()["question_id"]}
    two_samples = pd.concat([answers(right, 0), answers(wrong, 1)])
    scored = compute_scores("mediconfusion", pairs(), two_samples)
    assert scored.scores["set_accuracy"].value == 50 and scored.scores["confusion"].value == 0
    assert scored.scores["set_accuracy"].n == 4


def test_hidden_answers_are_not_scored() -> None:
    hidden = pairs()
    hidden["answer"] = pd.Series([[] for _ in range(len(hidden))], dtype=object)
    scored = compute_scores("mediconfusion", hidden, answers({"0-1": [0]}))
    assert scored.scores["set_accuracy"].value is None and scored.scores["set_accuracy"].n == 0
    partly = pairs()
    partly["answer"] = pd.Series(
        [[] if index >= 4 else key for index, key in enumerate(partly["answer"])], dtype=object
    )
    assert compute_scores("mediconfusion", partly, answers({"0-1": [0], "0-2": [1]})).scores["set_accuracy"].value == 50


@pytest.mark.parametrize("family", BENCHMARKS)
def test_breakdown_cell_equals_the_score_of_its_units(family: str) -> None:
    benchmark_questions = stores.questions(family, 12)
    # Answers of every status, so that some cells withhold a verdict or the value.
    given = mixture(benchmark_questions, np.random.default_rng(3)).answers
    table = compute_units(family, benchmark_questions, given)
    for facet, cells in break_down_by_facet(table, FACETS_BY_BENCHMARK[family]).items():
        by_label = explode_facet(table, facet)
        for label, scores in cells.items():
            label_scores = summarise_units(by_label[by_label[facet].astype(str) == label])
            assert {
                **scores,
                **{name: label_scores[name] for name in BALANCED_METRICS.keys() & label_scores.keys()},
            } == label_scores


def images() -> pd.DataFrame:
    """Three images: two of one type (one without position, one with a single normal-image
    question), one of another type.
    """
    every = "modality_gt modality_hallu organ_gt organ_hallu"
    aspects = {
        "a": f"{every} abnormality_gt condition_gt_0 condition_hallu_0 position_gt_0 position_hallu_0",
        "b": f"{every} abnormality_gt condition_hallu",
        "c": f"{every} condition_gt_0 condition_hallu_0 condition_gt_1 condition_hallu_1",
    }
    return pd.DataFrame(
        [
            {
                "question_id": f"{image}-{kind}",
                "case_id": image,
                "image_id": image,
                "options": ["yes", "no"],
                "answer": [1 if "hallu" in kind else 0],
                "question_type": "yes_no",
                "aspect": kind.split("_")[0],
                "adversarial": "hallu" in kind,
                "image_type": "chest_ct" if image in "ab" else "brain_mri",
                "organ": "chest" if image in "ab" else "brain",
                "modality": "CT" if image in "ab" else "MRI",
            }
            for image, kinds in aspects.items()
            for kind in kinds.split()
        ]
    )


def oracle(questions: pd.DataFrame) -> dict[str, list[int]]:
    return {question: list(key) for question, key in zip(questions["question_id"], questions["answer"], strict=True)}


def test_probmed_by_hand() -> None:
    questions = images()
    choices = oracle(questions) | {
        "b-condition_hallu": [0],
        "a-organ_hallu": [0],
        "c-condition_gt_1": [1],
    }
    scored = compute_scores("probmed", questions, answers(choices))
    value = {name: got.value for name, got in scored.scores.items()}
    assert (
        value["modality"] == 100
        and value["organ"] == pytest.approx(200 / 3)
        and value["organ_without_adversarial"] == 100
    )
    assert value["abnormality"] == 100 and scored.scores["abnormality"].n == 2
    assert value["condition"] == pytest.approx(100 / 3) and value["condition_without_adversarial"] == pytest.approx(
        100 / 3
    )
    assert value["position"] == 100 and scored.scores["position"].n == 1
    # Official weights: position counts both images of its type, 2 (the other type has none);
    # overall 3+2+2+1+2 of 3+3+2+3+2.
    assert value["overall"] == pytest.approx(100 * 10 / 13)
    assert value["overall_reweighted"] == pytest.approx(100 * 9 / 12)
    assert value["condition_reweighted"] == value["condition"]
    assert scored.scores["condition"].chance == pytest.approx(100 * (0.25 + 0.5 + 0.0625) / 3)
    assert scored.breakdown["image_type"]["chest_ct"]["condition"].value == 50
    assert value["share_yes"] == pytest.approx(100 * np.mean([choice == [0] for choice in choices.values()]))


def test_probmed_errors_follow_the_diagnosis_step_by_step() -> None:
    questions = images()
    choices = oracle(questions) | {
        "a-condition_gt_0": [1],
        "a-condition_hallu_0": [0],
        "b-condition_hallu": [],
    }
    errors = compute_scores("probmed", questions, answers(choices)).breakdown["aspect"]
    assert errors["abnormality"]["accuracy_given_earlier"].value == 100
    assert errors["abnormality"]["wrong_answer"].value is None
    assert (
        errors["condition"]["accuracy_given_earlier"].value == 0
        and errors["condition"]["accuracy_given_earlier"].n == 2
    )
    shares = {name: errors["condition"][name].value for name in ("denies_truth", "accepts_hallucination", "refused")}
    assert shares == pytest.approx({"denies_truth": 100 / 3, "accepts_hallucination": 100 / 3, "refused": 100 / 3})
    assert errors["position"]["accuracy_given_earlier"].value is None
    wrong = compute_scores(
        "probmed",
        questions,
        answers(oracle(questions) | {"a-abnormality_gt": [1], "b-abnormality_gt": []}),
    )
    step = wrong.breakdown["aspect"]["abnormality"]
    assert (step["wrong_answer"].value, step["refused"].value, step["wrong_answer"].n) == (
        50,
        50,
        2,
    )
    earlier = compute_scores("probmed", questions, answers(oracle(questions) | {"a-organ_hallu": [0]})).breakdown[
        "aspect"
    ]
    assert earlier["condition"]["accuracy_given_earlier"].n == 1


def gmai() -> pd.DataFrame:
    rows = [
        ("s1", "single", [2], "t1"),
        ("s2", "single", [0], "t1"),
        ("s3", "single", [1], "t2"),
        ("m1", "multiple", [0, 1], "t3"),
        ("m2", "multiple", [3], "t3"),
    ]
    return pd.DataFrame(
        [
            {
                "question_id": name,
                "case_id": name,
                "image_id": name,
                "options": list("wxyz"),
                "answer": key,
                "question_type": kind,
                "task": task,
                "department": None,
                "granularity": "Image Level",
                "modality": "CT",
            }
            for name, kind, key, task in rows
        ]
    )


def test_probmed_errors_need_exactly_the_earlier_steps() -> None:
    """For every subset of aspects, a step is present if it and all earlier ones were asked, with
    the numbers of the full set.
    """
    all_questions = stores.questions("probmed", 8)
    all_answers = stores.answers(all_questions, 0.8)
    all_errors = more_breakdowns(grade("probmed", all_questions, all_answers))["aspect"]
    earlier = {"abnormality": ("modality", "organ"), "condition": ("modality", "organ", "abnormality"),
               "position": ("modality", "organ", "abnormality", "condition")}  # fmt: skip
    for bits in range(1, 2 ** len(ASPECTS)):
        chosen = [aspect for at, aspect in enumerate(ASPECTS) if bits >> at & 1]
        part = all_questions[all_questions["aspect"].isin(chosen)].reset_index(drop=True)
        part_answers = all_answers[all_answers["question_id"].isin(part["question_id"])]
        part_errors = more_breakdowns(grade("probmed", part, part_answers))["aspect"]
        expected = [step for step, earlier_steps in earlier.items() if {step, *earlier_steps} <= set(chosen)]
        assert part_errors == {step: all_errors[step] for step in expected}, chosen


def test_gmai_by_hand() -> None:
    scored = compute_scores("gmai-mmbench", gmai(), answers({"s1": [2], "s2": [1], "s3": [1], "m1": [0, 2], "m2": [3]}))
    value = {name: got.value for name, got in scored.scores.items()}
    assert value["accuracy"] == pytest.approx(200 / 3) and value["accuracy_macro_task"] == 75
    assert value["mcq_accuracy"] == pytest.approx(200 / 3) and value["mcq_recall"] == pytest.approx(200 / 3)
    assert scored.scores["mcq_accuracy"].n == 3 and scored.scores["mcq_accuracy"].n_cases == 2
    assert scored.scores["accuracy"].chance == 25
    assert scored.scores["mcq_recall"].chance == pytest.approx(100 * 8 / 15)
    assert "department" not in scored.breakdown and scored.breakdown["task"]["t1"]["accuracy"].value == 50


@pytest.mark.parametrize(
    ("family", "facet"),
    [("gmai-mmbench", "department"), ("gmai-mmbench", "task"), ("halt-medvqa", "scenario")],
)
def test_facet_mean_of_a_part_equals_the_score_of_that_part_alone(family: str, facet: str) -> None:
    all_questions = stores.questions(family, 40).drop(index=[0, 2, 5, 6])  # unequal tasks
    all_answers = stores.answers(all_questions, 0.4)
    breakdown = compute_scores(family, all_questions, all_answers).breakdown[facet]
    for label, part in all_questions.groupby(facet):
        part_answers = all_answers[all_answers["question_id"].isin(part["question_id"])]
        part_scores = compute_scores(family, part.reset_index(drop=True), part_answers).scores
        for metric in BALANCED_METRICS.keys() & part_scores.keys():
            assert breakdown[label][metric].model_dump() == pytest.approx(part_scores[metric].model_dump()), (
                label,
                metric,
            )


def halt() -> pd.DataFrame:
    scenarios = ["fake"] * 4 + ["none"] * 2 + ["swap"] * 1
    return pd.DataFrame(
        [
            {
                "question_id": f"{name}-{index}",
                "case_id": f"{name}-{index}",
                "image_id": f"{index}",
                "options": ["liver", "I do not know", "lung"],
                "answer": [1],
                "question_type": "single",
                "scenario": name,
                "source_dataset": "x",
            }
            for index, name in enumerate(scenarios)
        ]
    )


def test_halt_by_hand() -> None:
    choices = {
        "fake-0": [1],
        "fake-1": [0],
        "fake-2": [],
        "fake-3": [],
        "none-4": [1],
        "none-5": [1],
        "swap-6": [0],
    }
    scored = compute_scores("halt-medvqa", halt(), answers(choices, fake_2="refused"))
    value = {name: got.value for name, got in scored.scores.items()}
    assert (value["fake"], value["none"], value["swap"], value["average"]) == (
        25,
        100,
        0,
        pytest.approx(125 / 3),
    )
    assert (
        value["fake_irrelevant"] == 2
        and value["none_irrelevant"] == 0
        and value["average_irrelevant"] == pytest.approx(2 / 3)
    )
    assert value["refused"] == pytest.approx(100 / 7) and scored.scores["average"].chance == pytest.approx(100 / 3)


def test_every_metric_has_a_label_and_description() -> None:
    frames = {
        "mediconfusion": pairs(),
        "probmed": images(),
        "gmai-mmbench": gmai(),
        "halt-medvqa": halt(),
    }
    for family, questions in frames.items():
        scored = compute_scores(family, questions, constant_answers(questions, 0))
        assert HEADLINE_METRICS[family] in scored.scores
        for name, got in scored.scores.items():
            assert METRICS[name].label and METRICS[name].description
            assert got.value is None or METRICS[name].unit == "count" or 0 <= got.low <= got.value <= got.high <= 100
        assert set(scored.breakdown) <= {*FACETS_BY_BENCHMARK[family], "aspect"}
        table = compute_units(family, questions, constant_answers(questions, 0))
        assert {*UNIT_ID_COLUMNS, *UNIT_NUMBER_COLUMNS, *FACETS_BY_BENCHMARK[family]} <= set(table)
        assert not table.duplicated(["metric", "unit"]).any()


ANSWER = answers({"fake-0": [1]})
MISMATCHES = {
    "not a question of this benchmark": lambda: ("halt-medvqa", halt(), answers({"fake-99": [1]})),
    "twice": lambda: ("halt-medvqa", halt(), pd.concat([ANSWER, ANSWER])),
    "'fake-0' has no sample number": lambda: ("halt-medvqa", halt(), ANSWER.assign(sample=np.nan)),
    "status 'perhaps' of 'fake-0' is unknown": lambda: ("halt-medvqa", halt(), ANSWER.assign(status="perhaps")),
    "choice for 'fake-0' is not one of its options": lambda: ("halt-medvqa", halt(), answers({"fake-0": [99]})),
    "format": lambda: ("other", halt(), ANSWER),
    "scenario": lambda: ("halt-medvqa", halt().drop(columns="scenario"), ANSWER),
}


@pytest.mark.parametrize("words", MISMATCHES)
def test_mismatched_answers_are_refused_in_one_line(words: str) -> None:
    with pytest.raises(BadInput, match=words):
        compute_scores(*MISMATCHES[words]())


def test_abstentions_are_left_out_of_answered_accuracy() -> None:
    questions = halt().iloc[:6]
    choice = [[1], [1], [0], [], [], []]
    status = ["answered", "answered", "answered", "refused", "irrelevant", "truncated"]
    given = pd.DataFrame({"question_id": questions["question_id"], "sample": 0, "choice": choice, "status": status})
    scores = compute_scores("halt-medvqa", questions, given).scores
    assert (scores["abstained"].value, scores["abstained"].n) == (50, 6)
    answered = scores["answered_accuracy"]
    assert (answered.value, answered.chance) == pytest.approx((200 / 3, 100 / 3))
    assert answered.low < answered.value < answered.high
    silent = compute_scores("halt-medvqa", questions, given.assign(choice=[[]] * 6, status="refused")).scores
    assert silent["abstained"].value == 100 and silent["answered_accuracy"].value is None
