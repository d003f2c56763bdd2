"""Check that docs/formats.md lists every field and column with its type and values, and that files
of another version are refused.
"""

import re
import shutil
import typing
from dataclasses import fields
from pathlib import Path

import pytest

from dataset_builders.benchmarks import BENCHMARKS, question_columns, spec
from dataset_builders.contents.card import TASK_COLUMNS
from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import open_repository
from dataset_builders.schema import (
    COMMON_COLUMNS,
    EXTRA_IMAGE_COLUMNS,
    HIDDEN_ANSWER_COLUMNS,
    TREE_COLUMNS,
    case_columns,
)
from eval_harness.derive.derivation import UNIT_ID_COLUMNS, UNIT_NUMBER_COLUMNS
from eval_harness.derive.run_files import ANSWERS_SCHEMA, JUDGE_SCHEMA, READINGS_SCHEMA
from eval_harness.records.request import Response
from eval_harness.records.result import (
    DELIVERIES,
    STATUSES,
    Benchmark,
    Method,
    Model,
    Nonresponse,
    Result,
    RunRecord,
    RunRequest,
    Score,
    Source,
    read_result,
    read_run,
)
from eval_harness.runs.run_folder import response_to_record
from eval_harness.store.contents import Acceptance, Withdrawal, parse_record
from tests.commands import medprobe
from tests.helpers import edit_json

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"


def sections() -> dict[str, list[dict[str, str]]]:
    """Return heading -> the rows of its tables, column -> text."""
    tables: dict[str, list[dict[str, str]]] = {}
    heading, names = "", None
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading, names = line.strip("# ").replace("`", ""), None
            assert heading not in tables, heading
            tables[heading] = []
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if names is None:
                names = cells
            elif not set(line) <= set("|-"):
                tables[heading].append(dict(zip(names, cells, strict=True)))
        else:
            names = None
    return tables


SECTIONS = sections()


def named(heading: str, key_column: str = "field") -> dict[str, dict[str, str]]:
    rows = [row for row in SECTIONS[heading] if key_column in row]
    rows_by_name = {row[key_column].strip("`"): row for row in rows}
    assert len(rows_by_name) == len(rows), heading
    return rows_by_name


def literals(annotation: object) -> list[str]:
    parts = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return list(parts)
    return [value for part in parts for value in literals(part)]


@pytest.mark.parametrize(
    ("heading", "model"),
    [
        ("run.json", RunRecord), ("request", RunRequest), ("benchmark", Benchmark), ("model", Model), ("method", Method),
        ("result.json", Result), ("Score", Score), ("nonresponse", Nonresponse), ("source", Source),
    ],
)  # fmt: skip
def test_a_json_file_has_the_fields_of_the_page_and_their_values(heading, model):
    rows = named(heading)
    assert list(rows) == [field.alias or name for name, field in model.model_fields.items()]
    for name, field in model.model_fields.items():
        documented = rows[field.alias or name]["contents"]
        assert all(f"`{value}`" in documented for value in literals(field.annotation)), name


def test_a_line_of_the_journal_has_the_fields_of_the_page():
    field_values = {
        "scores": (0.1, 0.2),
        "error": "e",
        "usage": (1, 2),
        "reasoning": "r",
        "finish_reason": "stop",
        "shown": ("i",),
    }
    record = response_to_record(Response("q", 0, "A", seconds=1.0, from_cache=True, **field_values))
    rows = named("answers.jsonl")
    assert set(rows) == set(record) and len(record) == len(fields(Response))
    assert all(f"`{status}`" in rows["status"]["contents"] for status in DELIVERIES)


@pytest.mark.parametrize(
    ("heading", "schema"),
    [("answers.parquet", ANSWERS_SCHEMA), ("judge.parquet", JUDGE_SCHEMA), ("readings.parquet", READINGS_SCHEMA)],
)
def test_a_table_has_the_columns_and_types_of_the_page(heading, schema):
    rows = named(heading, "column")
    types = {field.name: re.sub(r"list<\w+: (\w+)>", r"list of \1", str(field.type)) for field in schema}
    types = {
        name: {"double": "float64", "list of double": "list of float64"}.get(kind, kind) for name, kind in types.items()
    }
    assert [(name, row["type"]) for name, row in rows.items()] == list(types.items())
    for name, values in (("status", STATUSES), ("delivery", DELIVERIES.values())):
        assert all(f"`{value}`" in rows[name]["contents"] for value in values if name in rows)


def test_the_units_have_the_columns_of_the_page():
    assert [*named("units.parquet", "column")] == [*UNIT_ID_COLUMNS, *UNIT_NUMBER_COLUMNS]


@pytest.mark.parametrize(
    ("heading", "columns"),
    [
        ("questions", COMMON_COLUMNS | EXTRA_IMAGE_COLUMNS),
        ("cases", case_columns(COMMON_COLUMNS)),
        ("lexical_tree", TREE_COLUMNS),
        ("answers", HIDDEN_ANSWER_COLUMNS),
        ("inspect, inspect_METRIC", TASK_COLUMNS),
        (
            "Columns of single benchmarks",
            {name: kind for benchmark in BENCHMARKS for name, kind in spec(benchmark).columns.items()},
        ),
    ],
)
def test_a_dataset_has_the_columns_and_types_of_the_page(heading, columns):
    rows = named(heading, "column")
    types = {name: {"uri": "string"}.get(kind.name, kind.name) for name, kind in columns.items()}
    assert {name: row["type"] for name, row in rows.items()} == types
    assert all(rows[name]["contents"] == kind.meaning for name, kind in columns.items() if kind.meaning)
    for name, kind in columns.items():
        assert all(f"`{value}`" in rows[name]["contents"] for value in kind.names), name


def test_each_benchmark_has_the_columns_that_the_page_gives_it():
    rows = named("Columns of single benchmarks", "column")
    for benchmark in BENCHMARKS:
        documented = {name for name, row in rows.items() if benchmark in row["benchmarks"].split(", ")}
        assert set(question_columns(benchmark)) == {*COMMON_COLUMNS, *EXTRA_IMAGE_COLUMNS, *documented}


def test_a_file_of_another_version_is_refused_in_one_line(phantoms, tmp_path):
    version = 2
    medprobe(
        *("eval", "halt-medvqa", "--data", phantoms / "halt-medvqa", "--model", "baseline:chance", "--limit", 2),
        *("--out", tmp_path / "run"),
        cwd=tmp_path,
    )
    shutil.copytree(phantoms / "halt-medvqa", tmp_path / "data")
    records = [
        Acceptance(account="a", accepted_at="t", verified_by="b"),
        Withdrawal(account="a", withdrawn_at="t", reason="r"),
    ]
    for path in (tmp_path / "run" / "run.json", tmp_path / "run" / "result.json", tmp_path / "data" / "manifest.json"):
        edit_json(path, lambda document: document.update(schema_version=version))
    reads = [
        lambda: read_run(tmp_path / "run"),
        lambda: read_result(tmp_path / "run" / "result.json"),
        lambda: open_repository(tmp_path / "data"),
        *(
            lambda record=record: parse_record(
                record.to_bytes().replace(b'"schema_version": 1', f'"schema_version": {version}'.encode()),
                type(record),
                "x.json",
            )
            for record in records
        ),
    ]
    for reader in reads:
        with pytest.raises(
            BadInput, match=rf"has version {version}, this medprobe reads version 1\..*one that wrote the file"
        ):
            reader()
