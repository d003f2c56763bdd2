"""Check that files of answers in other programs' formats give the same scores as the plain one."""

import csv
import io
import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eval_harness.store.submit import build_submission
from tests.eval_harness.store.submitting import responses
from tests.helpers import write_lines


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
    plain = build_submission(
        write_lines(tmp_path / "plain.jsonl", responses(data)), "mediconfusion", "Model", str(data)
    )
    for shape, make in SHAPES.items():
        content, path = make(frame), tmp_path / "answers"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        submission = build_submission(path, "mediconfusion", "Model", str(data))
        assert submission.problems == [] and submission.notes == [], shape
        assert submission.result.scores == plain.result.scores, shape


def test_samples_numbered_from_1_are_reported(data, frame, tmp_path):
    path = write_lines(
        tmp_path / "a.jsonl",
        [row | {"sample": n} for row in frame.to_dict("records") for n in (1, 2)],
    )
    (problem,) = build_submission(path, "mediconfusion", "Model", str(data)).problems
    assert "samples begin with 1. Number them from 0" in problem


def test_numeric_ids_survive_as_floats(data, frame, tmp_path):
    path = tmp_path / "answers.parquet"
    path.write_bytes(parquet_bytes(frame.assign(question_id=[7.0, 7.5, *range(len(frame) - 2)])))
    problems = build_submission(path, "mediconfusion", "Model", str(data)).problems
    assert "question '7' is not in this split" in problems[0] and "question_id: " in problems[1]


def test_invalid_numbers_are_named_and_gaps_are_missing(data, frame, tmp_path):
    path = tmp_path / "answers.parquet"
    path.write_bytes(parquet_bytes(frame.assign(seconds=[1.5, float("nan")] * (len(frame) // 2))))
    assert build_submission(path, "mediconfusion", "Model", str(data)).problems == []
    path.write_bytes(parquet_bytes(frame.assign(seconds=[1.5, float("inf")] * (len(frame) // 2))))
    problems = build_submission(path, "mediconfusion", "Model", str(data)).problems
    assert "row 2: seconds: " in problems[0]


def test_an_empty_cell_is_an_empty_response(data, frame, tmp_path):
    empty = frame.assign(response=["", *frame["response"][1:]])
    (tmp_path / "a.csv").write_text(empty.to_csv(index=False))
    write_lines(tmp_path / "a.jsonl", empty.to_dict("records"))
    from_csv, from_json = (
        build_submission(tmp_path / name, "mediconfusion", "Model", str(data)) for name in ("a.csv", "a.jsonl")
    )
    assert from_csv.files().keys() == from_json.files().keys() and from_csv.result.statuses == from_json.result.statuses
