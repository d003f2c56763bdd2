"""Submitting a folder that is a submission already, and runs that a judge model has read."""

import shutil
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from eval_harness.derive.run_files import DERIVED_FILES, SUBMITTED_FILES
from eval_harness.interop.convert import convert_and_submit
from eval_harness.models.interface import Settings
from eval_harness.records.result import read_result
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.run_scoring import score_run
from eval_harness.runs.runner import run_evaluation
from eval_harness.store.submit import build_submission
from eval_harness.store.verification import verify
from tests.eval_harness.reader.test_judge import Server
from tests.eval_harness.store.submitting import questions_of, run_folder
from tests.helpers import edit_json, write_lines


@pytest.fixture(scope="module")
def stored(data, tmp_path_factory):
    """A result in another store."""
    workdir = tmp_path_factory.mktemp("elsewhere")
    return Path(convert_and_submit(run_folder(data, workdir / "run"), workdir / "store").location)


@pytest.fixture
def ready(stored, tmp_path):
    return Path(shutil.copytree(stored, tmp_path / stored.name))


def test_it_is_added_byte_for_byte_in_the_same_place(stored, ready, data, tmp_path):
    first = convert_and_submit(ready, tmp_path / "store", data=str(data))
    assert first.new and first.submission.problems == []
    added = Path(first.location)
    assert added.relative_to(tmp_path / "store") == stored.relative_to(stored.parents[3])
    for name in (*SUBMITTED_FILES, *DERIVED_FILES):
        assert (stored / name).exists() == (added / name).exists()
        assert not (stored / name).exists() or (added / name).read_bytes() == (stored / name).read_bytes()
    assert not convert_and_submit(ready, tmp_path / "store", data=str(data)).new
    assert [result.status for result in verify(str(tmp_path / "store"))] == ["verified"]


def test_whatever_is_derived_beside_it_is_not_read(ready, data, tmp_path):
    """The scores of a folder that is handed in are not looked at: there is no claim to compare."""
    before = build_submission(ready, data=str(data))
    edit_json(ready / "result.json", lambda d: d["scores"]["confusion"].update(value=99.25))
    (ready / "readings.parquet").write_bytes(b"junk")
    (ready / "units.parquet").unlink()
    found = build_submission(ready, data=str(data))
    assert found.problems == [] and found.derived == before.derived


@pytest.fixture
def judged(data, tmp_path):
    """A free-form run that a judge model read."""
    server = Server()
    server.replies = ["A: 9\nB: 2", "A: 2\nB: 9", "no idea", "A: 8\nB: 1"]
    words = [{"question_id": row.question_id, "response": "Who knows?"} for row in questions_of(data).itertuples()]
    answers = write_lines(tmp_path / "a.jsonl", words)
    config = EvalConfig(
        "mediconfusion", f"recorded:{answers}", str(data), method="ff", judge="openai:judge", name="Judged",
        out=tmp_path / "run", settings=Settings(base_url=server.url, no_look=True),
    )  # fmt: skip
    run_evaluation(config)
    server.http.shutdown()
    server.http.server_close()
    assert server.asked
    return tmp_path / "run"


def test_a_judged_run_is_added_with_its_replies(judged, data, tmp_path):
    done = convert_and_submit(judged, tmp_path / "store", data=str(data))
    there = Path(done.location)
    ours, theirs = read_result(judged / "result.json"), read_result(there / "result.json")
    assert ours.scores == theirs.scores and (there / "judge.parquet").is_file()
    judge = theirs.method.judge
    assert judge["model"] == "judge" and judge["prompt_hash"] and judge["asked"] == 28 and "base_url" not in judge
    assert any("judge model" in note for note in done.submission.notes) and done.submission.flags == []
    assert [result.status for result in verify(str(tmp_path / "store"))] == ["verified"]
    edit_json(there / "run.json", lambda d: d["method"]["judge"].update(prompt_hash="0" * 16))
    assert any("another prompt" in flag for flag in build_submission(there, data=str(data)).flags)


def test_without_its_judge_it_is_another_submission(judged, data, tmp_path):
    first = convert_and_submit(judged, tmp_path / "store", data=str(data))
    score_run(judged, judged=False)
    second = convert_and_submit(judged, tmp_path / "store", data=str(data))
    assert second.new and first.location != second.location
    result = read_result(Path(second.location) / "result.json")
    assert result.method.judge is None and any("no judge" in said for said in result.deviations)
    assert score_run(judged).method.judge is not None, "by the replies that the run folder keeps"


def test_a_reply_that_is_missing_leaves_its_answer_unread(judged, data, tmp_path):
    whole = Path(convert_and_submit(judged, tmp_path / "one", data=str(data)).location)
    folder = Path(shutil.copytree(whole, tmp_path / "part"))
    replies = pd.read_parquet(folder / "judge.parquet")
    schema = pq.read_schema(folder / "judge.parquet")
    replies.iloc[4:].to_parquet(folder / "judge.parquet", index=False, schema=schema)
    found = build_submission(folder, data=str(data))
    assert found.problems == [] and found.result.method.judge["failed"] == 4
    assert found.result.statuses["answered"] < read_result(whole / "result.json").statuses["answered"]
