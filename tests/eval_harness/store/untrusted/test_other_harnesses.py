"""Output of lmms-eval and VLMEvalKit is submitted as it is: the same answers, the same numbers.

The files are written here in the formats of those harnesses; the real ones, and inspect-ai's logs,
are tested in tests/eval_harness/interop/.
"""

import csv
import io
import json
import random

import pandas as pd
import pytest

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build
from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import open_repository
from eval_harness.interop.harness_file import format_letters
from eval_harness.interop.vlmevalkit import export_tsv
from eval_harness.store.submit import build_submission, submit_to_store
from tests import commands
from tests.eval_harness.store.submitting import load_questions
from tests.helpers import write_lines
from tests.sampling import few

ANSWER_TEMPLATES = (
    "{letter}",
    "Answer: {letter}",
    "The answer is {letter}.",
    "I cannot tell.",
    "",
    "{letter}) {text}",
    "None",
)


@pytest.fixture(scope="module", params=BENCHMARKS)
def data(request, phantoms):
    return phantoms / request.param


@pytest.fixture(scope="module")
def mediconfusion(phantoms):
    return phantoms / "mediconfusion"


def drawn(data, seed):
    """(question, response or None if there is none) for every question of the default split."""
    rng = random.Random(seed)
    for row in default_questions(data).itertuples():
        index = rng.randrange(len(row.options))
        # A yes/no question has letters in VLMEvalKit only.
        letter = row.options[index] if row.question_type == "yes_no" else "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[index]
        text = rng.choice(ANSWER_TEMPLATES).format(letter=letter, text=row.options[index])
        yield row, None if rng.random() < 0.1 else text


def default_questions(data):
    repository = open_repository(data)
    return repository.questions("validation" if "validation" in repository.splits else repository.splits[0])


def plain_file(path, answers):
    return write_lines(
        path / "ours.jsonl",
        [{"question_id": q.question_id, "response": text} for q, text in answers],
    )


def lmms_file(path, answers):
    def line(number, question, text):
        text = "[LMMS_EVAL_REQUEST_FAILED after 3 retries] Answer: A" if text is None else text
        ids = {"question_id": question.question_id}
        return {
            "doc_id": number,
            "target": format_letters(question.answer),
            "filtered_resps": [text],
            "medprobe_answer": ids,
        }

    return write_lines(path / "samples.jsonl", [line(n, q, text) for n, (q, text) in enumerate(answers)])


def vlmevalkit_table(data, path, answers):
    """Return the exported TSV as VLMEvalKit reads it, without the image, with the predictions."""
    exported, _ = export_tsv(str(data), None, path)
    table = pd.read_csv(exported, sep="\t", dtype={"question_id": str})
    predictions = {q.question_id: "Failed to obtain answer via API." if text is None else text for q, text in answers}
    return table.drop(columns=["image"]).assign(prediction=table["question_id"].map(predictions))


def vlmevalkit(path, answers, data):
    file = path / "model_medprobe.tsv"
    vlmevalkit_table(data, path, answers).to_csv(file, sep="\t", index=False, quoting=csv.QUOTE_MINIMAL)
    return file


def vlmevalkit_xlsx(path, answers, data):
    file = path / "model_medprobe.xlsx"
    vlmevalkit_table(data, path, answers).to_excel(file, index=False)
    return file


@pytest.mark.parametrize("seed", few([1, 2]))
def test_the_same_answers_give_the_same_numbers(data, seed, tmp_path):
    answers = list(drawn(data, seed))
    family = open_repository(data).family

    def result(file):
        submission = build_submission(file, family, "Model A", str(data))
        submission.check(file)
        return submission

    expected = result(plain_file(tmp_path, answers))
    files = [
        lmms_file(tmp_path, answers),
        vlmevalkit(tmp_path, answers, data),
        vlmevalkit_xlsx(tmp_path, answers, data),
    ]
    for file in files:
        submission = result(file)
        assert submission.result.statuses["failed"] == sum(text is None for _, text in answers)
        # spreadsheets and pandas' TSV do not distinguish "None" from an empty answer
        if file.name != "model_medprobe.tsv":
            assert submission.result.scores == expected.result.scores, file
            assert list(submission.readings()["status"]) == list(expected.readings()["status"])


def test_vlmevalkit_letters_for_yes_no_questions_are_read(phantoms, tmp_path):
    """VLMEvalKit shows letters with every question (its own accuracy is the same:
    docs/harnesses.md).
    """
    data = phantoms / "probmed"
    answers = [(question, "AB"[number % 2] + (".", "", f") {question.options[number % 2]}")[number % 3])
            for number, question in enumerate(load_questions(data).itertuples())]  # fmt: skip
    submission = build_submission(vlmevalkit_xlsx(tmp_path, answers, data), "probmed", "M", str(data))
    assert submission.problems == [] and [list(choice) for choice in submission.readings()["choice"]] == [
        [number % 2] for number in range(len(answers))
    ]


def test_bad_files_are_one_line_errors(mediconfusion, tmp_path):
    answers = [(q, "A") for q in load_questions(mediconfusion).itertuples()]
    other_answers = [(q._replace(answer=[1 - q.answer[0]]), "A") for q, _ in answers]

    def refused(file, words):
        message = commands.medprobe(
            *("submit", file, "--to", tmp_path / "store", "--benchmark", "mediconfusion"),
            *("--model", "M", "--data", mediconfusion),
            cwd=tmp_path,
            code=2,
        ).stderr
        assert words in message and message.count("\n") == 1, message
        assert not (tmp_path / "store").exists()

    refused(lmms_file(tmp_path, other_answers), "another version of the dataset")
    refused(lmms_file(tmp_path, answers[:6]), "answers 6 of 28 questions")
    strangers = [json.loads(line) for line in lmms_file(tmp_path, answers).read_text().splitlines()]
    for line in strangers:
        del line["medprobe_answer"]
    refused(write_lines(tmp_path / "samples.jsonl", strangers), "export-lmms-eval")
    table = vlmevalkit_table(mediconfusion, tmp_path, answers)
    table.drop(columns=["question_id"]).to_csv(tmp_path / "p.tsv", sep="\t", index=False)
    refused(tmp_path / "p.tsv", "lacks the columns question_id and prediction")


def test_answers_to_another_task_are_a_one_line_error(mediconfusion, phantoms, tmp_path):
    other_data = phantoms / "probmed"
    answers = [(q, "yes") for q in default_questions(other_data).itertuples()]
    for file in (lmms_file(tmp_path, answers), vlmevalkit(tmp_path, answers, other_data)):
        with pytest.raises(BadInput, match=file.name) as caught:
            submit_to_store(file, tmp_path / "store", "mediconfusion", "M", str(mediconfusion))
        assert "medprobe-answers-" not in str(caught.value), "the file that it was converted to is gone"
        assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("export", ["export-tsv", "export-lmms-eval"])
def test_unexportable_datasets_are_a_one_line_error(mediconfusion, tmp_path, export):
    build("mediconfusion", out=tmp_path / "text", text_only=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for data, *options in (
        (tmp_path / "text",),
        (tmp_path / "empty",),
        (tmp_path / "file",),
        (tmp_path / "nowhere",),
        (mediconfusion, "--split", "validation"),
    ):
        message = commands.medprobe(export, data, *options, "--out", tmp_path / "out", cwd=tmp_path, code=2).stderr
        assert message.count("\n") == 1, message
        assert not (tmp_path / "out").exists()


def test_the_exported_tsv_is_read_back_completely(data, tmp_path):
    done = commands.medprobe("export-tsv", data, "--out", tmp_path, cwd=tmp_path)
    [path] = tmp_path.glob("*.tsv")
    assert path.stem in done.stdout and "mmbench" not in path.name
    table = pd.read_csv(io.StringIO(path.read_text()), sep="\t", dtype={"question_id": str, "image": str})
    questions = default_questions(data).set_index("question_id")
    assert sorted(table["question_id"]) == sorted(questions.index)
    assert pd.api.types.is_integer_dtype(table["index"]) and table["index"].is_unique
    full = set(table.loc[table["image"].str.len() > 64, "index"].astype(str))
    for row in table.to_dict("records"):
        question = questions.loc[row["question_id"]]
        assert row["answer"] == format_letters(question["answer"])
        option_texts = [row[letter].strip() for letter in "ABCDEFGHIJ"[: len(question["options"])]]
        assert option_texts == [str(option).strip() for option in question["options"]]
        assert len(row["image"]) > 64 or row["image"] in full
