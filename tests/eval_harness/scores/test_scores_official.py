"""Compare our scores with the authors' own scoring code, to four decimals."""

import json
from pathlib import Path

import pandas as pd
import pytest

from dataset_builders.build import build
from dataset_builders.hub.repository import open_repository
from dataset_builders.schema import LETTERS
from eval_harness.benchmarks.gmai_mmbench import read_official
from eval_harness.derive.metrics import compute_scores
from eval_harness.derive.reading import read_responses
from eval_harness.reader import read_choice

pytestmark = pytest.mark.sources

ASPECT = {
    "modality": "modality",
    "body_part": "organ",
    "abnormality": "abnormality",
    "entity": "condition",
    "grounding": "position",
}


@pytest.fixture(scope="module")
def mediconfusion_questions(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    folder = tmp_path_factory.mktemp("official") / "data"
    build("mediconfusion", source=sources / "mediconfusion", out=folder, text_only=True)
    return open_repository(folder).questions("test")


def probmed_questions(rows: list[dict[str, str]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    questions, answers = [], []
    for row in rows:
        stem = row["qa_type"].split("_gt")[0].split("_hallu")[0]
        question_id = f"{row['id']}-{row['qa_type']}"
        questions.append(
            {
                "question_id": question_id,
                "case_id": row["id"],
                "image_id": row["id"],
                "question": row["question"],
                "options": ["yes", "no"],
                "answer": [0 if row["gt_ans"] == "yes" else 1],
                "question_type": "yes_no",
                "aspect": ASPECT[stem],
                "adversarial": "hallu" in row["qa_type"],
                "image_type": row["image_type"],
                "organ": row["image_type"].split("_")[0],
                "modality": row["image_type"].split("_")[1],
            }
        )
        answers.append(
            {
                "question_id": question_id,
                "sample": 0,
                "response": row["response"],
                "status": "answered",
            }
        )
    return pd.DataFrame(questions), pd.DataFrame(answers)


@pytest.mark.parametrize("number", range(6))
def test_mediconfusion_agrees_with_the_authors_scorer(
    mediconfusion_questions: pd.DataFrame, official_scores: Path, number: int
) -> None:
    record = json.loads((official_scores / "mediconfusion_official_scores.json").read_text())[number]
    answers = pd.DataFrame(
        {
            "question_id": f"{pair}-{side}",
            "sample": 0,
            "response": authors[f"image_{side}"],
            "status": "answered",
        }
        for pair, authors in record["responses"].items()
        for side in (1, 2)
    )
    readings = read_responses(answers, mediconfusion_questions, "mediconfusion", "official")
    # Compare the reading first: equal scores could hide two errors that cancel.
    letters = ["AB"[choice[0]] if choice else None for choice in readings["choice"]]
    assert letters == [authors[f"parsed_{side}"] for authors in record["responses"].values() for side in (1, 2)]
    scored = compute_scores("mediconfusion", mediconfusion_questions, readings, "official")
    for name, expected in record["expected"].items():
        got = scored.scores if name == "all" else scored.breakdown["category"][name]
        for metric in ("set_accuracy", "individual_accuracy", "confusion", "invalid"):
            assert got[metric].value == pytest.approx(expected[metric], abs=5e-5), (name, metric)
        assert got["set_accuracy"].n == expected["denominator"]
        assert got["confusion"].n == expected["valid_pairs"]


@pytest.mark.parametrize("number", range(2))
def test_probmed_agrees_with_the_authors_scorer(official_scores: Path, number: int) -> None:
    record = json.loads((official_scores / "probmed_official_scores.json").read_text())[number]
    questions, answers = probmed_questions(record["rows"])
    scored = compute_scores("probmed", questions, read_responses(answers, questions, "probmed", "official"), "official")
    expected = record["expected"]
    for image_type, per_aspect in expected["per_image_type"].items():
        got = scored.breakdown["image_type"][image_type]
        _same(got, per_aspect)
    _same(scored.scores, expected["per_question_type"])
    assert scored.scores["overall"].value == pytest.approx(expected["overall"]["acc"], abs=5e-5)
    assert scored.scores["overall_without_adversarial"].value == pytest.approx(
        expected["overall"]["acc w.o. adv pair"], abs=5e-5
    )


def _same(got: dict, per_aspect: dict) -> None:
    for name, figures in per_aspect.items():
        aspect = ASPECT[name]
        assert got[aspect].value == pytest.approx(figures["acc"], abs=5e-5), aspect
        # The authors' scorer has no such number for abnormality.
        if "acc w. hallu" in figures:
            assert got[f"{aspect}_without_adversarial"].value == pytest.approx(figures["acc w. hallu"], abs=5e-5), (
                aspect
            )


def test_read_choice_agrees_with_the_careful_reader(official_scores: Path) -> None:
    for line in (official_scores / "extraction_examples.jsonl").read_text().splitlines():
        example = json.loads(line)
        if example["kind"] == "yesno":
            choice = read_choice(example["response"], ["yes", "no"], "yes_no").choice
            chosen = {(0,): "yes", (1,): "no", (): None}[choice]
        else:
            choice = read_choice(example["response"], list(example["options"].values())).choice
            chosen = list(example["options"])[choice[0]] if choice else None
        assert chosen == example["gold"], example["response"]


def test_read_choice_agrees_with_the_careful_reader_on_real_responses(sources: Path) -> None:
    table = pd.read_csv(sources / "gmai_mmbench" / "GMAI-MMBench_SAMPLE.tsv", sep="\t", usecols=[*"ABCDE", "index"])
    options = {
        int(row["index"]): [str(row[x]) for x in "ABCDE" if isinstance(row[x], str)] for _, row in table.iterrows()
    }
    for line in (sources / "gmai_mmbench" / "recorded_responses.jsonl").read_text().splitlines():
        record = json.loads(line)
        choice = read_choice(record["response"], options[int(record["index"])]).choice
        chosen = "ABCDE"[choice[0]] if choice else None
        assert chosen == record["choice_by_careful_reader"], record["index"]


@pytest.mark.exhaustive
def test_every_recorded_verdict_of_vlmevalkit_is_reproduced(sources: Path) -> None:
    """GMAI-MMBench's official reader gives the verdicts (`hit`) on the answers of five models."""
    files = sorted(sources.glob("later_answers/gmai_vlmevalkit/*/*_result.xlsx"))
    if not files:
        pytest.skip("the recorded answers are not here")
    answers = differences = 0
    for file in files:
        table = pd.read_excel(file, keep_default_na=False, dtype=str)
        options = [[text for text in texts if text] for texts in table[list("ABCDE")].to_numpy().tolist()]
        readings = [
            read_official(response, texts, "single").choice
            for response, texts in zip(table["prediction"], options, strict=True)
        ]
        hits = ["".join(LETTERS[at] for at in choice) for choice in readings] == table["answer"]
        answers += len(table)
        differences += int((hits != (table["hit"].astype(float) == 1)).sum())
    assert (answers, differences) == (22_750, 0)
