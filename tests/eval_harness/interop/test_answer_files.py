"""Files of answers in every format: `eval --model recorded:FILE` and `submit FILE` give equal
readings and scores, and those of a plain file with the same answers.

The files of other harnesses are written here in their formats; the real ones, and inspect-ai's
logs, are tested in the other modules of this folder.
"""

import base64
import csv
import io
import json
import os
import random
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build
from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import open_repository
from dataset_builders.images.lookup import encode_png
from eval_harness.derive.run_files import ANSWERS_FILE, table_to_frame
from eval_harness.interop.exports import export_tsv, format_letters
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import run_evaluation
from eval_harness.store.submit import build_submission, submit_to_store
from tests import commands
from tests.eval_harness.store.submitting import load_questions, responses
from tests.helpers import refused, write_lines
from tests.sampling import few

ANSWER_OUTCOMES = {
    "an answer": ({"status": "answered", "finish_reason": "stop"}, True),
    "nothing said of it": ({}, True),
    "with reasoning": ({"reasoning": "A? No.\nThen, B.", "seconds": 1.5}, True),
    "cut off": ({"finish_reason": "length"}, False),
    "cut off, in our own words": ({"status": "truncated"}, False),
    "held back": ({"status": "refused", "finish_reason": "content_filter"}, None),
    "held back, by its end alone": ({"finish_reason": "content_filter"}, None),
    "failed": ({"status": "failed"}, None),
    "cut off, in Gemini's words": ({"finishReason": "MAX_TOKENS"}, False),
    "cut off, in Anthropic's words": ({"stop_reason": "model_context_window_exceeded"}, False),
    "held back, in Anthropic's words": ({"stop_reason": "refusal"}, None),
    "failed, by its end alone": ({"finish_reason": "error"}, None),
}
"""How an answer ended -> (fields of its record; True: the text states an option, False: it is cut
before one, None: no text).
"""
ANSWER_TEMPLATES = (
    "{letter}",
    "Answer: {letter}",
    "The answer is {letter}.",
    "I cannot tell.",
    "",
    "{letter}) {text}",
    "None",
)


@pytest.fixture(scope="module")
def data(phantoms):
    return phantoms / "mediconfusion"


def default_questions(data):
    repository = open_repository(data)
    return repository.questions("validation" if "validation" in repository.splits else repository.splits[0])


def drawn(data, seed):
    """Draw (question, response or None) for every question of the default split."""
    rng = random.Random(seed)
    for row in default_questions(data).itertuples():
        index = rng.randrange(len(row.options))
        # A yes/no question has letters in VLMEvalKit only.
        letter = row.options[index] if row.question_type == "yes_no" else "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[index]
        text = rng.choice(ANSWER_TEMPLATES).format(letter=letter, text=row.options[index])
        yield row, None if rng.random() < 0.1 else text


def records(data, seed, samples):
    """Draw answers to most questions that end in every way; some questions have no record."""
    rng = random.Random(seed)
    for row in default_questions(data).itertuples():
        for sample in range(samples):
            fields, states = ANSWER_OUTCOMES[rng.choice(list(ANSWER_OUTCOMES))]
            index = rng.randrange(len(row.options))
            letter = row.options[index] if row.question_type == "yes_no" else "ABCDEFGHIJ"[index]
            text = {
                True: f"The answer is {letter}.",
                False: 'The image shows, "to\tbegin" with,',
                None: None,
            }[states]
            # Leave one question in ten without a record.
            if rng.random() < 0.9 or sample:
                yield {"question_id": row.question_id, "sample": sample, "response": text} | fields


def in_table(lines):
    """Return records as a table, where a missing answer is an empty cell with a status."""
    frame = pd.DataFrame(lines)
    return frame.assign(response=frame["response"].fillna(""))


FILE_WRITERS = {
    "jsonl": write_lines,
    "json": lambda path, lines: path.write_text(json.dumps(lines)),
    "csv": lambda path, lines: in_table(lines).to_csv(path, index=False),
    "tsv": lambda path, lines: in_table(lines).to_csv(path, index=False, sep="\t"),
    "semicolons.csv": lambda path, lines: in_table(lines).to_csv(path, index=False, sep=";"),
    "parquet": lambda path, lines: pd.DataFrame(lines).to_parquet(path),
    "xlsx": lambda path, lines: in_table(lines).to_excel(path, index=False),
}


def lmms_file(path, answers):
    def line(number, question, text):
        return {
            "doc_id": number,
            "target": format_letters(question.answer),
            "filtered_resps": ["[LMMS_EVAL_REQUEST_FAILED after 3 retries] Answer: A" if text is None else text],
            "medprobe_answer": {"question_id": question.question_id},
        }

    return write_lines(path, [line(n, q, text) for n, (q, text) in enumerate(answers)])


def vlmevalkit_table(data, folder, answers):
    """Return the exported TSV as VLMEvalKit reads it, without the image, with the predictions."""
    exported, _ = export_tsv(str(data), None, folder)
    table = pd.read_csv(exported, sep="\t", dtype={"question_id": str})
    predictions = {q.question_id: "Failed to obtain answer via API." if text is None else text for q, text in answers}
    return table.drop(columns=["image"]).assign(prediction=table["question_id"].map(predictions))


TABLE_WRITERS = {
    "xlsx": lambda table, path: table.to_excel(path, index=False),
    "tsv": lambda table, path: table.to_csv(path, sep="\t", index=False, quoting=csv.QUOTE_MINIMAL),
    "csv": lambda table, path: table.to_csv(path, index=False),
    "json": lambda table, path: table.to_json(path, orient="records"),
}
HARNESS_FORMS = ("lmms", *TABLE_WRITERS)


def harness_file(folder, data, answers, form):
    """Write answers as lmms-eval (`lmms`) or VLMEvalKit does."""
    if form == "lmms":
        return lmms_file(folder / "samples.jsonl", answers)
    file = folder / f"model_medprobe.{form}"
    TABLE_WRITERS[form](vlmevalkit_table(data, folder, answers), file)
    return file


def by_both(file, data, folder):
    """Return (answers, statuses, scores) of `eval` and of `submit`."""
    submitted = build_submission(file, data.name, "M", str(data))
    assert submitted.problems == []
    result, run = run_evaluation(EvalConfig(data.name, f"recorded:{file}", data=str(data), out=folder))
    columns = ["question_id", "sample", "response", "delivery", "finish_reason", "reasoning", "seconds"]
    outcomes = []
    for content, derived in (
        ((run / ANSWERS_FILE).read_bytes(), result),
        (submitted.sent.answers, submitted.result),
    ):
        answers = table_to_frame(content)[columns]
        answers = answers[answers["delivery"] != "missing"]
        scores = {name: score.model_dump() for name, score in derived.scores.items()}
        outcomes.append((answers.to_dict("records"), derived.statuses, scores))
    return outcomes


def paired(forms):
    """Pair forms with benchmarks: first each form once, with the benchmarks in turn, then the
    others. The default run tests the first pairs alone.
    """
    return [(BENCHMARKS[(at + turn) % len(BENCHMARKS)], form) for turn in range(4) for at, form in enumerate(forms)]


@pytest.mark.parametrize(("benchmark", "form"), few(paired(FILE_WRITERS), 3))
def test_eval_and_submit_give_equal_answers_and_scores(phantoms, tmp_path, benchmark, form):
    data = phantoms / benchmark
    lines = list(records(data, 1, 2 if form == "csv" else 1))
    file = tmp_path / f"answers.{form}"
    FILE_WRITERS[form](file, lines)
    by_eval, by_submit = by_both(file, data, tmp_path / "run")
    assert by_eval == by_submit
    expected, _ = by_both(write_lines(tmp_path / "plain.jsonl", lines), data, tmp_path / "plain")
    # Statuses and scores only: a table stores a missing answer as an empty text.
    assert by_eval[1:] == expected[1:]
    # Every status occurs, or the comparison would be weak.
    assert all(expected[1][status] for status in ("answered", "truncated", "refused", "failed", "missing"))


@pytest.mark.parametrize(("benchmark", "form"), few(paired(HARNESS_FORMS), 3))
def test_harness_output_gives_the_numbers_of_a_plain_file(phantoms, tmp_path, benchmark, form):
    data = phantoms / benchmark
    answers = list(drawn(data, form))
    by_eval, by_submit = by_both(harness_file(tmp_path, data, answers, form), data, tmp_path / "run")
    assert by_eval == by_submit
    assert by_eval[1]["failed"] == sum(text is None for _, text in answers)
    plain = [{"question_id": question.question_id, "response": text} for question, text in answers]
    expected, _ = by_both(write_lines(tmp_path / "plain.jsonl", plain), data, tmp_path / "plain")
    # pandas' CSV does not distinguish "None" from an empty answer.
    assert form in ("tsv", "csv") or by_eval[1:] == expected[1:]


def test_vlmevalkit_letters_for_yes_no_questions_are_read(phantoms, tmp_path):
    """VLMEvalKit shows letters with every question (its own accuracy is the same:
    docs/harnesses.md).
    """
    data = phantoms / "probmed"
    answers = [(question, "AB"[number % 2] + (".", "", f") {question.options[number % 2]}")[number % 3])
            for number, question in enumerate(load_questions(data).itertuples())]  # fmt: skip
    submission = build_submission(harness_file(tmp_path, data, answers, "xlsx"), "probmed", "M", str(data))
    assert submission.problems == [] and [list(choice) for choice in submission.readings()["choice"]] == [
        [number % 2] for number in range(len(answers))
    ]


@pytest.mark.sources
@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
def test_results_of_the_official_tsv_are_read_completely(sources, tmp_path):
    # Two of five models: the files have one layout, and differ in the length of their answers.
    files = sorted((sources / "later_answers").rglob("*_openai_result.xlsx"))[:2]
    if not files:
        pytest.skip("the recorded answers are not here")
    for number, file in enumerate(files):
        table = pd.read_excel(file, dtype=str, keep_default_na=False)
        if not number:  # the pictures are not published with the answers, so any distinct ones will do
            images = [
                base64.b64encode(encode_png(Image.new("RGB", (4, 4), (n // 256, n % 256, 7)))).decode()
                for n in range(4550)
            ]
            source_table = table.drop(columns=["image_path", "prediction", "hit", "log"]).assign(image=images)
            source_table.to_csv(tmp_path / "GMAI-MMBench_VAL.tsv", sep="\t", index=False)
            data = Path(build("gmai-mmbench", source=tmp_path, out=tmp_path / "data" / "gmai-mmbench").folder)
        by_eval, by_submit = by_both(file, data, tmp_path / f"run{number}")
        answers = {row["question_id"]: row["response"] for row in by_eval[0]}
        assert by_eval == by_submit
        assert len(answers) == 4550 and answers == dict(zip(table["index"], table["prediction"], strict=True))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ['{"index": 1, "response": "A"}', '{"question_id": "1", "response": "B"}'],
            "line 1: question '1' is not",
        ),
        (["not json"], "question_id"),
        (['{"response": "A"}'], "no `question_id`"),
        (['{"question_id": "1"}'], "no `response`"),
        ([""], "question_id"),
        (['[{"question_id": "1", "response": "A", "response": "B"}]'], "twice"),
        (["[" * 100_000], "nested too deeply"),
    ],
)
def test_eval_and_submit_refuse_bad_files_alike(data, tmp_path, lines, message):
    file = tmp_path / "answers.jsonl"
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(BadInput, match=message):
        run_evaluation(EvalConfig(data.name, f"recorded:{file}", data=str(data), out=tmp_path / "run"))
    with pytest.raises(BadInput, match=message):
        build_submission(file, data.name, "M", str(data)).check(file)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("make", ["nothing", "mkdir", "mkfifo"])
def test_eval_and_submit_refuse_a_path_that_is_no_file(data, tmp_path, make):
    path = tmp_path / "answers"
    if make != "nothing":
        getattr(os, make)(path)
    with pytest.raises(BadInput) as by_eval:
        run_evaluation(EvalConfig(data.name, f"recorded:{path}", data=str(data), out=tmp_path / "run"))
    with pytest.raises(BadInput) as by_submit:
        build_submission(path, data.name, "M", str(data))
    assert str(by_eval.value).count(str(path)) == 1 and "file" in str(by_eval.value)
    assert make == "mkdir" or str(by_eval.value) == str(by_submit.value)
    assert not (tmp_path / "run").exists()


def test_bad_harness_files_are_one_line_errors(data, phantoms, tmp_path):
    answers = [(q, "A") for q in load_questions(data).itertuples()]
    other_answers = [(q._replace(answer=[1 - q.answer[0]]), "A") for q, _ in answers]
    strangers = [json.loads(line) for line in lmms_file(tmp_path / "a.jsonl", answers).read_text().splitlines()]
    table = vlmevalkit_table(data, tmp_path, answers).drop(columns=["question_id"])
    table.to_csv(tmp_path / "p.tsv", sep="\t", index=False)
    other_data = phantoms / "probmed"
    other_task = [(q, "yes") for q in default_questions(other_data).itertuples()]
    for file, words in (
        (lmms_file(tmp_path / "b.jsonl", other_answers), "another version of the dataset"),
        (lmms_file(tmp_path / "c.jsonl", answers[:6]), "answers 6 of 28 questions"),
        (
            write_lines(tmp_path / "d.jsonl", [line | {"medprobe_answer": None} for line in strangers]),
            "line 1: has no medprobe_answer.question_id: not made with the tasks of `medprobe export-lmms-eval`",
        ),
        (tmp_path / "p.tsv", "lacks the columns question_id and prediction"),
        (lmms_file(tmp_path / "e.jsonl", other_task), "line 1: question"),
        (harness_file(tmp_path, other_data, other_task, "tsv"), "answers other questions"),
    ):
        message = refused(submit_to_store, file, tmp_path / "store", "mediconfusion", "M", str(data))
        assert words in message and message.count(file.name) == 1, message
        assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("export", ["export-tsv", "export-lmms-eval"])
def test_unexportable_datasets_are_a_one_line_error(tmp_path, export):
    build("mediconfusion", out=tmp_path / "text", text_only=True)
    (tmp_path / "file").write_text("x")
    for name in ("text", "file", "nowhere"):
        message = commands.medprobe(export, tmp_path / name, "--out", tmp_path / "out", cwd=tmp_path, code=2).stderr
        assert message.count("\n") == 1, message
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_the_exported_tsv_is_read_back_completely(phantoms, tmp_path, benchmark):
    path, count = export_tsv(str(phantoms / benchmark), None, tmp_path)
    assert "mmbench" not in path.name
    table = pd.read_csv(path, sep="\t", dtype={"question_id": str, "image": str})
    questions = default_questions(phantoms / benchmark).set_index("question_id")
    assert sorted(table["question_id"]) == sorted(questions.index) and count == len(table)
    assert pd.api.types.is_integer_dtype(table["index"]) and table["index"].is_unique
    full = set(table.loc[table["image"].str.len() > 64, "index"].astype(str))
    for row in table.to_dict("records"):
        question = questions.loc[row["question_id"]]
        assert row["answer"] == format_letters(question["answer"])
        option_texts = [row[letter].strip() for letter in "ABCDEFGHIJ"[: len(question["options"])]]
        assert option_texts == [str(option).strip() for option in question["options"]]
        assert len(row["image"]) > 64 or row["image"] in full


@pytest.fixture(scope="module")
def frame(data):
    return pd.DataFrame(responses(data))


def csv_text(frame, delimiter=",", newline="\n") -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=delimiter, lineterminator=newline)
    writer.writerows([list(frame.columns), *frame.itertuples(index=False)])
    return buffer.getvalue()


def parquet_bytes(frame, **options) -> bytes:
    columns = {name: pa.array(frame[name].tolist()) for name in frame.columns} | options
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


SHAPES = {
    "a row number in front, as pandas writes it": lambda f: f.to_csv(),
    "semicolons, BOM, CRLF, empty columns at the end": lambda f: (
        "\ufeff" + csv_text(f, ";", "\r\n").replace("\r\n", ";;\r\n")
    ),
    "Excel's line that names the divider": lambda f: "sep=;\r\n" + csv_text(f, ";", "\r\n"),
    "another divider in a header": lambda f: csv_text(f.assign(**{"a,b,c,d": "x"}), ";"),
    "texts over several lines": lambda f: csv_text(f.assign(response=f["response"] + '\nfor "this";\r\nand, that')),
    "samples as a column with gaps has them": lambda f: csv_text(f.assign(sample=0.0)),
    "the same in JSON": lambda f: "".join(json.dumps(row) + "\n" for row in f.assign(sample=0.0).to_dict("records")),
    "blanks around ids": lambda f: f.assign(question_id=" " + f["question_id"] + "\t").to_csv(index=False),
    "a cell of half a million characters": lambda f: f.assign(response=f["response"] + " " * 500_000).to_csv(
        index=False
    ),
    "numbers that are none where none is read": lambda f: "".join(
        json.dumps(row | {"logprob": float("-inf"), "score": float("nan")}) + "\n" for row in f.to_dict("records")
    ),
    "a nameless field": lambda f: "".join(json.dumps({"": 1} | row) + "\n" for row in f.to_dict("records")),
    "parquet, images beside the answers": lambda f: parquet_bytes(
        f,
        image=pa.array([{"bytes": b"\xff\xd8", "path": None}] * len(f)),
        logprob=pa.array([float("nan")] * len(f)),
    ),
    "parquet, dictionaries and samples as floats": lambda f: parquet_bytes(
        f,
        question_id=pa.array(f["question_id"].tolist()).dictionary_encode(),
        response=pa.array(f["response"].tolist(), pa.large_string()),
        sample=pa.array([0.0] * len(f)),
    ),
}


@pytest.mark.exhaustive
def test_every_file_shape_gives_the_same_scores(data, frame, tmp_path):
    plain = write_lines(tmp_path / "plain.jsonl", frame.to_dict("records"))
    expected = build_submission(plain, "mediconfusion", "Model", str(data)).result.scores
    for shape, make in SHAPES.items():
        content, path = make(frame), tmp_path / "answers"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        submission = build_submission(path, "mediconfusion", "Model", str(data))
        assert submission.problems == [] and submission.notes == [], shape
        assert submission.result.scores == expected, shape


def test_odd_values_are_named_or_read(data, frame, tmp_path):
    """Samples from 1, ids and durations as floats, gaps, an empty cell."""

    def submission(content):
        (tmp_path / "answers").write_bytes(content if isinstance(content, bytes) else content.encode())
        return build_submission(tmp_path / "answers", "mediconfusion", "Model", str(data))

    from_one = [row | {"sample": n} for row in frame.to_dict("records") for n in (1, 2)]
    (problem,) = submission("".join(json.dumps(row) + "\n" for row in from_one)).problems
    assert "samples begin with 1. Number them from 0" in problem
    numbered = submission(parquet_bytes(frame.assign(question_id=[7.0, 7.5, *range(len(frame) - 2)]))).problems
    assert "question '7' is not in this split" in numbered[0] and "question_id: " in numbered[1]
    half = len(frame) // 2  # every other answer
    assert submission(parquet_bytes(frame.assign(seconds=[1.5, float("nan")] * half))).problems == []
    infinite = submission(parquet_bytes(frame.assign(seconds=[1.5, float("inf")] * half))).problems
    assert "row 2: seconds: " in infinite[0]
    empty = frame.assign(response=["", *frame["response"][1:]])
    from_csv = submission(empty.to_csv(index=False))
    from_json = submission("".join(json.dumps(row) + "\n" for row in empty.to_dict("records")))
    assert from_csv.files().keys() == from_json.files().keys() and from_csv.result.statuses == from_json.result.statuses
