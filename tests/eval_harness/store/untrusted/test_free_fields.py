"""Fields that answers cannot confirm: impossible values are refused, unverifiable ones
are flagged.
"""

import io
import json
import re
import shlex
import subprocess
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from dataset_builders.errors import BadInput
from eval_harness.answer_files.untrusted import iter_parquet_rows
from eval_harness.derive.run_files import ANSWERS_SCHEMA, SubmittedFiles
from eval_harness.records.limits import MAX_ANSWERS, MAX_FIELD_BYTES, limits_for, run_problems, text_problem
from eval_harness.records.result import Result, RunRecord
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import run_evaluation
from eval_harness.store.comparison import Side, compare_results
from eval_harness.store.dataset_lookup import require_dataset
from eval_harness.store.examine import examine_in_sandbox
from eval_harness.store.results_table import escape_formulas, tidy_table
from eval_harness.store.submit import build_submission, submit_to_store
from medprobe.score_table import FORMATTERS
from tests.eval_harness.store.honest import differences
from tests.eval_harness.store.submitting import run_folder

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def honest(run, data):
    return build_submission(run, data=str(data))


@pytest.fixture(scope="module")
def run_json(honest):
    """The run as a JSON document."""
    return json.loads(honest.sent.run)


@pytest.fixture(scope="module")
def rows(honest):
    return pq.read_table(io.BytesIO(honest.sent.answers)).to_pylist()


@pytest.fixture(scope="module")
def verdict(honest, data):
    """Return (problems, flags) of the honest files with another run or other rows."""
    schema = pq.read_schema(io.BytesIO(honest.sent.answers))

    def judge(run=None, answers=None):
        buffer = io.BytesIO(honest.sent.answers)
        if answers is not None:
            pq.write_table(pa.Table.from_pylist(answers, schema=schema), buffer := io.BytesIO())
        content = json.dumps(run).encode() if run else honest.sent.run
        try:
            submission = examine_in_sandbox(
                SubmittedFiles(content, buffer.getvalue()), partial(require_dataset, data=str(data))
            )
        except BadInput as error:
            return [str(error)], []
        return submission.problems, submission.flags

    assert judge() == ([], [])
    return judge


def changed(document, path, value):
    """Return a copy of a run or result with this value in a field."""
    copy = json.loads(json.dumps(document))
    *parents, field = path.split(".")
    inner = copy
    for name in parents:
        inner = inner[name]
    inner[int(field) if field.isdigit() else field] = value
    return copy


FIELD_LIES = [
    ("created_at", st.text(max_size=20).filter(lambda text: not any(c.isdigit() for c in text))),
    (
        "created_at",
        st.datetimes(NOW.replace(tzinfo=None) + timedelta(days=3)).map(datetime.isoformat),
    ),
    ("method.name", st.sampled_from(["best", "MC", "", "mc ", "=mc"])),
    (
        "method.extraction",
        st.text(max_size=5).filter(lambda text: text not in ("ours", "official")),
    ),
    ("method.shots", st.one_of(st.integers(max_value=-1), st.integers(min_value=MAX_ANSWERS + 1))),
    ("model.parameters", st.one_of(st.integers(max_value=-1), st.integers(min_value=1 << 53))),
    ("benchmark.selection", st.sampled_from(["", " ", "\n"])),
    ("benchmark.name", st.sampled_from(["../x", "", "a/b", "x" * 200])),
    ("request.samples", st.integers(2, 99)),
    ("request.method", st.sampled_from(["gd", "ff"])),
    ("environment.x", st.integers(0, 99).map(lambda more: "x" * (MAX_FIELD_BYTES + more))),
    ("environment.x", st.integers(min_value=(1 << 64) + 1).map(lambda number: {"y": [number]})),
    ("deviations", st.integers(1, 9).map(lambda k: ["nothing" * 900] * (45 * k))),
]

EVIL = {
    "a line break": "x\n| forged | 100.0 |", "a tab": "x\t=1+1", "an escape sequence": "x\x1b[2K\x1b[1A forged", "one of C1": "x\x9b2K",
    "another direction": "x\u202eforged", "a line separator": "x\u2028forged", "an invisible sign": "x\u200bforged",
    "an image": "![x](https://x.example/y.png)", "a link": "[x](javascript:alert(1)) www.x.example", "markup": "</td><img src=x onerror=y>",
    "a cell": "x | y & z \\\\ `a` $b$ %c", "a formula": "=HYPERLINK(1)", "at length": "x" * 100_000,
}  # fmt: skip
WHITESPACE = ("a line break", "a tab")
FREE = (
    "model.name", "model.revision", "model.snapshot_date", "method.prompt", "method.name", "method.extraction", "method.judge.model",
    "method.generation.variant", "benchmark.name", "benchmark.split", "benchmark.selection", "benchmark.repo", "benchmark.revision",
    "deviations.0", "command", "created_at", "environment.x", "request.model", "request.data", "run_id",
)  # fmt: skip
"""Fields whose text the submitter can choose freely."""


def with_text(document, paths, text):
    """Return a run or result with this text in these fields."""
    judge = {"model": "m"} if "method.judge.model" in paths else None
    document = changed(document | {"deviations": ["one"]}, "method.judge", judge)
    for path in paths:
        document = changed(document, path, text)
    return document


@pytest.mark.parametrize("path", FREE)
def test_text_that_is_not_one_line_is_refused(run_json, path):
    may_have_whitespace = path in ("command", "environment.x", "method.generation.variant")
    for kind, text in EVIL.items():
        # The environment is printed escaped: any characters, but not any number of them.
        has_allowed_characters = (
            text.isprintable() or path == "environment.x" or (may_have_whitespace and kind in WHITESPACE)
        )
        if kind == "at length" or not has_allowed_characters:
            run = RunRecord.model_validate(with_text(run_json, [path], text))
            assert list(run_problems(run)), kind


RESULT_FIELDS = [path for path in FREE if not path.startswith(("request", "run_id", "benchmark.name"))]


@pytest.mark.parametrize("kind", EVIL)
@pytest.mark.parametrize("paths", [["benchmark.name"], RESULT_FIELDS], ids=["benchmark", "others"])
def test_free_text_never_adds_a_row_to_any_output(honest, kind, paths):
    """Results that a store would refuse are printed, too."""
    scores = {"set_accuracy": honest.result.scores["set_accuracy"]}
    plain = honest.result.model_copy(update={"breakdown": {}, "scores": scores})
    usual = tidy_table([plain])
    result = Result.model_validate(with_text(json.loads(plain.to_json()), paths, EVIL[kind]))
    rows = tidy_table([result])
    rows = rows[rows["headline"]]
    for form, table in FORMATTERS.items():
        printed = table(rows)
        assert printed.count("\n") == table(usual[usual["headline"]]).count("\n") and shows_nothing_else(printed), form
        assert form != "md" or not re.search(r"(?<!\\)[\[<`]|://|www\.x|(?<! )(?<!\\)\|(?! )", printed), printed
        assert form != "table" or max(map(len, printed.splitlines())) < 2_000
    text = io.StringIO(escape_formulas(rows).to_csv(index=False))
    cells = pd.read_csv(text, header=None, dtype=str, keep_default_na=False).to_numpy().ravel().tolist()
    assert len(cells) == (len(rows) + 1) * len(rows.columns) and all(map(shows_nothing_else, cells))
    assert not any(cell.startswith("=") for cell in cells)
    if paths == RESULT_FIELDS:
        compared = compare_results(Side("a", result), Side("b", plain))
        assert shows_nothing_else(compared) and not re.search("^forged", compared, re.MULTILINE)


def shows_nothing_else(printed):
    return all(sign.isprintable() or sign == "\n" for sign in printed)


def test_the_selection_follows_from_what_was_asked(data, verdict, run_json, tmp_path):
    """The statement in `run.json` is replaced by that of the request, or by the number of
    questions.
    """
    folder = run_folder(data, tmp_path / "run", limit=8)
    submission = build_submission(folder, data=str(data))
    assert submission.result.benchmark.selection == "only the first 8 questions" and submission.problems == []
    content = json.loads(submission.sent.run)
    for request, words in (
        ({}, "only the first 8 questions"),
        ({"limit": None}, "only the 8 of 28 questions that were asked"),
    ):
        lie = changed(content, "benchmark.selection", "the hardest questions, all of them")
        lie["request"] |= request
        examined = examine_in_sandbox(
            SubmittedFiles(json.dumps(lie).encode(), submission.sent.answers),
            partial(require_dataset, data=str(data)),
        )
        assert (examined.problems, examined.result.benchmark.selection) == ([], words)
        assert json.loads(examined.sent.run)["benchmark"]["selection"] == words


@pytest.mark.parametrize(("path", "values"), FIELD_LIES, ids=[f"{path}-{k}" for k, (path, _) in enumerate(FIELD_LIES)])
@settings(max_examples=5, deadline=None)
@given(data_=st.data())
def test_values_that_eval_never_writes_are_refused(run_json, path, values, data_):
    assert list(run_problems(RunRecord.model_validate(changed(run_json, path, data_.draw(values)))))


@pytest.mark.usefixtures("examine_in_child")
def test_excess_text_or_rows_are_refused_before_reading(rows, verdict):
    limits = limits_for(28)
    problems, _ = verdict(
        answers=[{**row, "reasoning": f"{n}" + "y" * (limits.unpacked // 20)} for n, row in enumerate(rows)]
    )
    assert "unpacks to" in problems[0] or "characters" in problems[0]
    problems, _ = verdict(answers=rows * 1_000)
    assert "28,000 rows; at most 28 are expected" in problems[0]


def test_unverifiable_fields_are_flagged(run_json, rows, verdict):
    scored = changed(changed(run_json, "method.name", "gd"), "request.method", "gd")
    judged = changed(
        run_json,
        "method.judge",
        {"model": "GPT-4o", "prompt": "extract-option", "prompt_hash": "0" * 16},
    )
    for run, answers, words in (
        (scored, rows, "option scores"),
        (judged, rows, "another prompt"),
    ):
        problems, flags = verdict(run, answers)
        assert not problems and any(words in flag for flag in flags), (words, problems, flags)


@settings(max_examples=4, deadline=None)
@given(st.sampled_from(["response", "reasoning", "scores", "shown"]), st.integers(1, 4), st.booleans())
def test_repeated_values_count_each_time_they_are_read(column, many, grouped):
    """A value stored once in the pages but repeated in many rows: a small file that unpacks to any
    size.
    """
    lists = {"scores": [0.0] * (1 << 13), "shown": [None] * (1 << 14)}
    value = lists.get(column, "x" * (1 << 16))
    table = pa.table({column: pa.array([value] * many, ANSWERS_SCHEMA.field(column).type)})
    pq.write_table(table, buffer := io.BytesIO(), compression="zstd", row_group_size=1 if grouped else None)
    assert len(buffer.getvalue()) < 8 << 10
    with pytest.raises(BadInput, match="unpacks to"):
        list(iter_parquet_rows(buffer.getvalue(), max_bytes=(many << 16) - 1))
    assert len(list(iter_parquet_rows(buffer.getvalue(), max_bytes=2 * many << 16))) == many


CARELESS_PLUG_IN = """
import enum, math, pathlib
import numpy as np
from eval_harness.records.request import Response
from eval_harness.records.result import Model

class Why(enum.Enum):
    STOP = 1

ODD = [
    dict(seconds=math.nan), dict(seconds=-0.5), dict(seconds=math.inf), dict(seconds=np.float32(0.5)), dict(seconds="soon"),
    dict(usage=(1.0, 2.5)), dict(usage=(np.int64(3), np.int64(4))), dict(usage=(None, 4)), dict(usage=(-1, 4)), dict(usage=(1 << 60, 4)),
    dict(usage=7), dict(finish_reason=Why.STOP), dict(finish_reason=3), dict(reasoning=["a"]), dict(reasoning="\\ud800"),
    dict(error=ValueError("x")),
]

class Careless:
    needs_images = False
    deviations = ["half of it: \\ud800"]

    def __init__(self, settings):
        self.model = Model(name="careless", kind="open")

    def describe(self):
        return DESCRIBED

    def generate(self, requests):
        for number, request in enumerate(requests):
            text = ["A", None, np.str_("B"), ""][number % 4]
            yield Response(request.question_id, np.int64(request.sample), text, **ODD[number % len(ODD)])

    def score(self, requests):
        for number, request in enumerate(requests):
            odd = [np.float32(-1), None, math.nan, 1 << 60, True][number % 5]
            yield Response(request.question_id, request.sample, "", scores=np.array([odd] * len(request.options)))
"""


@pytest.mark.parametrize(
    "described",
    ['{"log": "x" * 200_000}', '{"deep": [[{"n": -(1 << 80)}]]}', "[1, 2]"],
    ids=str,
)
def test_eval_reports_up_front_what_stores_refuse(data, tmp_path, described):
    path = tmp_path / "plug_in_large.py"
    path.write_text(CARELESS_PLUG_IN.replace("DESCRIBED", described))
    with pytest.raises(BadInput, match=r"a store accepts at most|beyond 2\^64|that JSON can represent"):
        run_evaluation(EvalConfig("mediconfusion", f"{path}:Careless", str(data), out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", ["mc", "gd"])
def test_answers_of_a_careless_plug_in_are_accepted(data, tmp_path, method):
    """Numbers of other libraries, invalid durations and token counts, texts that no file
    can store.
    """
    path = tmp_path / "plug_in_careless.py"
    described = '{1: pathlib.Path("/x"), "n": np.float32(2), "s": "\\ud800"}'
    path.write_text(CARELESS_PLUG_IN.replace("DESCRIBED", described))
    run_evaluation(EvalConfig("mediconfusion", f"{path}:Careless", str(data), method=method, out=tmp_path / "run"))
    done = submit_to_store(tmp_path / "run", tmp_path / "store", data=str(data))
    assert done.new and differences(tmp_path / "run", Path(done.location)) == []


PIECES = (
    "eval x --name 'a b'", "; touch done", "$(touch done)", "`touch done`", "&& touch done", "| touch done", "> done", "\ntouch done",
    "'", '"', "\\", "#", "${IFS}touch${IFS}done", "& touch done &", "'; touch done'", "(touch done)", "<(touch done)",
)  # fmt: skip


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=4),
    st.sampled_from(["", " "]),
    st.booleans(),
)
def test_a_copied_command_runs_nothing_else(run_json, tmp_path_factory, pieces, between, quoted):
    """Accepted commands run in a shell where `medprobe` does nothing; what `eval` writes is
    accepted.
    """
    words = ["medprobe", *pieces]
    command = shlex.join(words) if quoted else between.join(["medprobe ", *pieces])
    document = run_json | {"command": command}
    accepted = not any("command" in line for line in run_problems(RunRecord.model_validate(document)))
    assert accepted or not quoted or text_problem(command, is_data=True)
    if accepted and "\0" not in command:
        folder = tmp_path_factory.mktemp("shell")
        script = f"medprobe() {{ :; }}\n{command}\n".encode("utf-8", "replace")
        subprocess.run(
            ["bash", "-c", script],
            cwd=folder,
            check=False,
            capture_output=True,
            env={"PATH": "/usr/bin:/bin"},
        )
        assert not list(folder.iterdir()), command
