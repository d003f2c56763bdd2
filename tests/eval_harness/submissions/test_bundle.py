"""Submitting a folder that is a submission already, and runs that a judge model has read."""

import pickle
import shutil
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from dataset_builders.errors import BadInput
from eval_harness.models.interface import Settings
from eval_harness.records.result import read_result
from eval_harness.runs.planning.config import EvalConfig
from eval_harness.runs.rescoring import score_run
from eval_harness.runs.runner import evaluate
from eval_harness.runs.scoring import Scorer, scores_of
from eval_harness.submissions.examination import run_of
from eval_harness.submissions.submit import prepare, submit
from eval_harness.submissions.verification import verify
from tests import helpers
from tests.commands import medprobe
from tests.eval_harness.reader.test_judge import Server
from tests.eval_harness.submissions.submitting import questions_of, responses, run_folder
from tests.helpers import edit_json, write_lines

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def stored(data, tmp_path_factory):
    """A result in another store."""
    workdir = tmp_path_factory.mktemp("elsewhere")
    return Path(submit(run_folder(data, workdir / "run"), workdir / "store").location)


@pytest.fixture
def ready(stored, tmp_path):
    return Path(shutil.copytree(stored, tmp_path / stored.name))


refused = partial(helpers.refused, submit)


def test_it_lands_byte_for_byte_in_the_same_place(stored, ready, data, tmp_path):
    first = submit(ready, tmp_path / "store", data=str(data))
    assert first.new and first.submission.problems == []
    landed = Path(first.location)
    assert landed.relative_to(tmp_path / "store") == stored.relative_to(stored.parents[3])
    for name in ("answers.parquet", "result.json"):
        assert (landed / name).read_bytes() == (stored / name).read_bytes()
    assert not submit(ready, tmp_path / "store", data=str(data)).new
    assert [outcome.word for outcome in verify(str(tmp_path / "store"))] == ["verified"]


def test_what_a_file_of_answers_makes_can_be_carried_by_hand(data, tmp_path):
    path = write_lines(tmp_path / "a.jsonl", responses(data))
    made = prepare(path, "mediconfusion", "Foreign 7B", str(data), kind="medical")
    for name, content in made.files().items():
        (tmp_path / "unpacked" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "unpacked" / name).write_bytes(content)
    found = prepare(tmp_path / "unpacked" / made.folder, data=str(data))
    assert found.problems == [] and found.files() == made.files()
    assert made.folder in refused(tmp_path / "unpacked", tmp_path / "store")


def test_a_dot_is_the_folder_it_stands_for(ready, data, monkeypatch):
    monkeypatch.chdir(ready)
    assert prepare(Path(), data=str(data)).run_id == ready.name


LIES = {
    "99.25": lambda d: d["scores"]["individual_accuracy"].update(value=99.25),
    "lacks the score": lambda d: d["scores"].pop("confusion"),
    "statuses": lambda d: d["statuses"].update(failed=7),
    "fingerprint": lambda d: d["benchmark"].update(fingerprint="0" * 64),
    "only measured": lambda d: d.update(kind="published"),
    "model name": lambda d: d["model"].update(name="<cmd>"),
    "not a result file": lambda d: d.update(schema_version="x"),
    "--no-judge": lambda d: d["method"].update(judge={"model": "x"}),
    "--data": lambda d: d["benchmark"].update(split="validation"),
}


@pytest.mark.parametrize("words", LIES)
def test_what_is_not_so_is_refused(ready, data, tmp_path, words):
    edit_json(ready / "result.json", LIES[words])
    line = refused(ready, tmp_path / "store", data=str(data))
    assert words in line and line.startswith(str(ready)) and "Nothing was submitted." in line
    assert not (tmp_path / "store").exists()


def test_answers_that_are_no_answers_are_refused(ready, data, tmp_path):
    (ready / "answers.parquet").write_bytes(pickle.dumps([1]))
    assert "pickle" in refused(ready, tmp_path / "store", data=str(data))
    (ready / "answers.parquet").write_bytes(b"PAR1" + b"\0" * 100)
    assert "Parquet" in refused(ready, tmp_path / "store", data=str(data))
    (ready / "answers.parquet").unlink()
    assert "no answers.parquet" in refused(ready, tmp_path / "store", data=str(data))


def test_without_a_dataset_the_remedy_is_named(ready, tmp_path):
    edit_json(ready / "result.json", lambda d: d["benchmark"].update(repo="data/elsewhere"))
    assert "--data" in refused(ready, tmp_path / "store")
    assert "--benchmark" not in refused(ready, tmp_path / "store")
    with pytest.raises(BadInput, match="says its benchmark"):
        prepare(ready, benchmark="mediconfusion")


def test_a_reproduced_result_of_another_store_is_a_submission_here(ready, data, tmp_path):
    edit_json(ready / "result.json", lambda d: d.update(provenance="reproduced"))
    done = submit(ready, tmp_path / "store", data=str(data))
    assert read_result(Path(done.location) / "result.json").provenance == "submitted"
    assert any("another store" in note for note in done.submission.notes)


def test_the_remedy_for_a_judged_run_works(data, tmp_path):
    """A free-form run read by a judge is refused, the command that the refusal names is run, and then it lands."""
    server = Server()
    server.replies = ["Option 1: 9\nOption 2: 2"]
    words = [{"question_id": row.question_id, "response": "Who knows?"} for row in questions_of(data).itertuples()]
    answers = write_lines(tmp_path / "a.jsonl", words)
    settings = Settings(base_url=server.url)
    evaluate(
        EvalConfig(
            "mediconfusion",
            f"recorded:{answers}",
            str(data),
            method="ff",
            judge="openai:judge",
            name="Judged",
            out=tmp_path / "run",
            settings=settings,
        )
    )
    server.http.shutdown()
    server.http.server_close()
    assert server.asked
    line = refused(tmp_path / "run", tmp_path / "store")
    command = line.split("`")[1]
    assert command == f"medprobe score {tmp_path / 'run'} --no-judge"
    medprobe(*command.split()[1:], cwd=tmp_path)
    result = read_result(Path(submit(tmp_path / "run", tmp_path / "store").location) / "result.json")
    assert result.method.judge is None and any("no judge" in said for said in result.deviations)
    assert [outcome.word for outcome in verify(str(tmp_path / "store"))] == ["verified"]
    assert (
        score_run(tmp_path / "run").method.judge is not None
    )  # by the replies that the run folder keeps: nobody is asked
    (tmp_path / "run/result.json").unlink()
    found = prepare(tmp_path / "run")
    assert found.problems == [] and found.result.method.judge is None and any("judge" in note for note in found.notes)


def test_scores_are_remembered_for_the_same_answers_to_the_same_questions_alone(run, data):
    found, scores = prepare(run, data=str(data)), Scorer()
    about, asked, given = run_of(found.result), found.questions, found.answers
    turned = given.assign(choice=pd.Series([[1 - each[0]] for each in given["choice"]], given.index))
    withheld = given.assign(status=["refused", *given["status"].iloc[1:]])
    another = asked.assign(answer=pd.Series([[1 - each[0]] for each in asked["answer"]], asked.index))
    cases = [(asked, given), (asked.copy(), given.copy()), (asked, turned), (another, turned), (another, withheld)]
    for questions, answers in [*cases, *cases[::-1]]:
        assert scores.of(about, questions, answers) == scores_of(about, questions, answers)
