"""Hostile uploads are refused with one clear line, in bounded memory; nothing is executed or
written.
"""

import json
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import open_repository
from eval_harness.answer_files.untrusted import check_file
from eval_harness.derive.run_files import SubmittedFiles
from eval_harness.store.dataset_lookup import load_split
from eval_harness.store.examine import examine_in_sandbox as examined_here
from eval_harness.store.sandbox import SandboxError
from eval_harness.store.submit import build_submission
from tests.eval_harness.store.submitting import load_questions, responses, run_folder
from tests.eval_harness.store.untrusted.hostile import FILES, run_jsons
from tests.eval_harness.store.untrusted.sandboxed import fixed_dataset
from tests.helpers import write_lines
from tests.sampling import few


def refusal_message(path, data) -> str:
    """Return the error about a file; it must be refused."""
    try:
        submission = build_submission(path, "mediconfusion", "Model", str(data))
        assert submission.problems
        submission.check(path)
    except BadInput as error:
        assert not isinstance(error, SandboxError), "an unforeseen error"
        return str(error)
    raise AssertionError("it was not refused")


def harmless(line: str) -> bool:
    return line.isprintable() and len(line) < 20_000


@pytest.mark.usefixtures("examine_in_child")
@pytest.mark.parametrize("name", few(sorted(FILES, key=lambda name: list(FILES).index(name) % 8), 5))
def test_a_hostile_file_is_refused_in_one_line(data, tmp_path, monkeypatch, name):
    # A pickle that is loaded would leave its mark in the working directory.
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "upload"
    FILES[name](path)
    line = refusal_message(path, data)
    assert harmless(line) and line.count(str(path)) == 1, line
    assert [entry.name for entry in tmp_path.iterdir()] == ["upload"]


@pytest.fixture(scope="module")
def stored(data, tmp_path_factory):
    """A valid submission's files in a folder, and its folder in a store."""
    workdir = tmp_path_factory.mktemp("stored")
    submission = build_submission(run_folder(data, workdir / "run"))
    for path, content in submission.files().items():
        (workdir / Path(path).name).write_bytes(content)
    return workdir, submission.folder


@pytest.fixture(scope="module")
def dataset(data):
    repository = open_repository(data)
    return load_split(repository, repository.splits[0], is_vouched=True)


def examine_folder_here(workdir, folder, dataset) -> str:
    try:
        for name in ("answers.parquet", "run.json"):
            check_file(workdir / name)
        submission = examined_here(SubmittedFiles.from_folder(workdir), partial(fixed_dataset, dataset))
        return "; ".join([*submission.problems, *([] if submission.folder == folder else ["lies elsewhere"])])
    except BadInput as error:
        return str(error)


RUN_JSON_VARIANTS = list(run_jsons({name: {} for name in ("request", "method", "model", "benchmark", "environment")}))


@pytest.mark.parametrize("name", few(RUN_JSON_VARIANTS, 3))
def test_a_hostile_run_is_refused(stored, dataset, tmp_path, name):
    workdir, folder = stored
    (tmp_path / "answers.parquet").write_bytes((workdir / "answers.parquet").read_bytes())
    (tmp_path / "run.json").write_bytes(run_jsons(json.loads((workdir / "run.json").read_text()))[name])
    assert examine_folder_here(tmp_path, folder, dataset) != ""


CHANGES = {
    "answered twice": lambda rows: rows.__setitem__(-1, dict(rows[0])),
    "'nobody'": lambda rows: rows[0].update(question_id="nobody"),
    "is not one of": lambda rows: rows[0].update(sample=7),
    "delivery: ": lambda rows: rows[0].update(delivery="right"),
    "option scores": lambda rows: rows[0].update(scores=[0.1, 0.9]),
    "seconds: ": lambda rows: rows[0].update(seconds=float("nan")),
}


def test_changed_answers_are_refused(stored, dataset, tmp_path):
    workdir, folder = stored
    table = pq.read_table(workdir / "answers.parquet")
    (tmp_path / "run.json").write_bytes((workdir / "run.json").read_bytes())
    for words, change in CHANGES.items():
        rows = table.to_pylist()
        change(rows)
        pq.write_table(type(table).from_pylist(rows, schema=table.schema), tmp_path / "answers.parquet")
        assert words in examine_folder_here(tmp_path, folder, dataset), words


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMED = st.sampled_from(["90001-1", "90001-2", "nobody"])
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("question_id", "index", "id", "qa_type"), NAMED | ANYTHING),
        **dict.fromkeys(
            ("response", "sample", "status", "seconds", "scores", "answer", "gt_ans", "image_type"),
            ANYTHING,
        ),
    },
)
WILD = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))


@WILD
@given(st.lists(RECORDS, max_size=4), st.sampled_from(["lines", "list", "indented", "object"]))
def test_wild_records_are_read_or_refused(data, tmp_path, records, form):
    path = tmp_path / "wild"
    if form == "lines":
        write_lines(path, records)
    elif form == "object":
        path.write_text(json.dumps({f"9000{n}": record for n, record in enumerate(records)}))
    else:
        path.write_text(json.dumps(records, indent=2 if form == "indented" else None))
    try:
        submission = build_submission(path, "mediconfusion", "Model", str(data))
    except BadInput as error:
        assert harmless(str(error))
    else:
        assert all(harmless(line) for line in submission.problems)
        # Every question has a status, even if it was not answered.
        assert sum(submission.result.statuses.values()) >= len(load_questions(data))


@WILD
@given(st.binary(max_size=300), st.integers(0, 5000))
def test_wild_bytes_are_read_or_refused(data, tmp_path, noise, position):
    path = tmp_path / "wild"
    content = write_lines(path, responses(data)).read_bytes()
    path.write_bytes(content[:position] + noise + content[position + len(noise) :])
    try:
        build_submission(path, "mediconfusion", "Model", str(data))
    except BadInput as error:
        assert harmless(str(error))
