"""Submitting a folder that already is a submission, and runs that a judge model read."""

import shutil
from itertools import chain, repeat
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from eval_harness.derive.run_files import DERIVED_FILES, SUBMITTED_FILES
from eval_harness.models.interface import Settings
from eval_harness.records.result import read_result
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.run_scoring import score_run
from eval_harness.runs.runner import run_evaluation
from eval_harness.store.submit import build_submission, submit_to_store
from eval_harness.store.verification import verify
from tests.chaos.server import ChaosServer
from tests.eval_harness.store.submitting import load_questions, run_folder
from tests.helpers import edit_json, write_lines


@pytest.fixture(scope="module")
def stored(data, tmp_path_factory):
    """A result in another store."""
    workdir = tmp_path_factory.mktemp("elsewhere")
    return Path(submit_to_store(run_folder(data, workdir / "run"), workdir / "store").location)


@pytest.fixture
def ready(stored, tmp_path):
    return Path(shutil.copytree(stored, tmp_path / stored.name))


def test_a_submission_folder_is_added_byte_for_byte(stored, ready, data, tmp_path):
    submitted = submit_to_store(ready, tmp_path / "store", data=str(data))
    assert submitted.new and submitted.submission.problems == []
    added = Path(submitted.location)
    assert added.relative_to(tmp_path / "store") == stored.relative_to(stored.parents[3])
    for name in (*SUBMITTED_FILES, *DERIVED_FILES):
        assert (stored / name).exists() == (added / name).exists()
        assert not (stored / name).exists() or (added / name).read_bytes() == (stored / name).read_bytes()
    assert not submit_to_store(ready, tmp_path / "store", data=str(data)).new
    assert [result.status for result in verify(str(tmp_path / "store"))] == ["verified"]


def test_derived_files_of_a_submission_are_ignored(ready, data, tmp_path):
    """Submitted scores are never read: there is no claim to compare with."""
    expected = build_submission(ready, data=str(data))
    edit_json(ready / "result.json", lambda d: d["scores"]["confusion"].update(value=99.25))
    (ready / "readings.parquet").write_bytes(b"junk")
    (ready / "units.parquet").unlink()
    submission = build_submission(ready, data=str(data))
    assert submission.problems == [] and submission.derived == expected.derived


@pytest.fixture
def judged(data, tmp_path):
    """A free-form run that a judge model read."""
    replies = chain(["A: 9\nB: 2", "A: 2\nB: 9", "no idea"], repeat("A: 8\nB: 1"))
    words = [{"question_id": row.question_id, "response": "Who knows?"} for row in load_questions(data).itertuples()]
    answers = write_lines(tmp_path / "a.jsonl", words)
    with ChaosServer(answer=lambda body: next(replies)) as server:
        config = EvalConfig(
            "mediconfusion", f"recorded:{answers}", str(data), method="ff", judge="openai:judge", name="Judged",
            out=tmp_path / "run", settings=Settings(base_url=server.url, no_look=True),
        )  # fmt: skip
        run_evaluation(config)
    assert server.asked
    return tmp_path / "run"


def test_a_judged_run_is_added_with_the_judges_replies(judged, data, tmp_path):
    done = submit_to_store(judged, tmp_path / "store", data=str(data))
    stored_folder = Path(done.location)
    submitted, stored = (
        read_result(judged / "result.json"),
        read_result(stored_folder / "result.json"),
    )
    assert submitted.scores == stored.scores and (stored_folder / "judge.parquet").is_file()
    judge = stored.method.judge
    assert judge["model"] == "judge" and judge["prompt_hash"] and judge["asked"] == 28 and "base_url" not in judge
    assert any("judge model" in note for note in done.submission.notes) and done.submission.flags == []
    assert [result.status for result in verify(str(tmp_path / "store"))] == ["verified"]
    edit_json(stored_folder / "run.json", lambda d: d["method"]["judge"].update(prompt_hash="0" * 16))
    assert any("another prompt" in flag for flag in build_submission(stored_folder, data=str(data)).flags)


def test_dropping_the_judge_makes_another_submission(judged, data, tmp_path):
    with_judge = submit_to_store(judged, tmp_path / "store", data=str(data))
    score_run(judged, judged=False)
    second = submit_to_store(judged, tmp_path / "store", data=str(data))
    assert second.new and with_judge.location != second.location
    result = read_result(Path(second.location) / "result.json")
    assert result.method.judge is None and any("no judge" in deviation for deviation in result.deviations)
    assert score_run(judged).method.judge is not None, "by the replies that the run folder keeps"


def test_a_missing_reply_leaves_the_answer_unread(judged, data, tmp_path):
    folder_with_replies = Path(submit_to_store(judged, tmp_path / "one", data=str(data)).location)
    folder = Path(shutil.copytree(folder_with_replies, tmp_path / "part"))
    replies = pd.read_parquet(folder / "judge.parquet")
    schema = pq.read_schema(folder / "judge.parquet")
    replies.iloc[4:].to_parquet(folder / "judge.parquet", index=False, schema=schema)
    submission = build_submission(folder, data=str(data))
    assert submission.problems == [] and submission.result.method.judge["failed"] == 4
    assert (
        submission.result.statuses["answered"] < read_result(folder_with_replies / "result.json").statuses["answered"]
    )
