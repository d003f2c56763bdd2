"""Submitting to a folder: run folders, submission folders, runs that a judge model read, and files
of other harnesses; refusals write nothing.
"""

import json
import shutil
from functools import partial
from itertools import chain, repeat
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from dataset_builders.build import build
from dataset_builders.errors import BadInput
from eval_harness.models.interface import Settings
from eval_harness.records.limits import model_name_problem
from eval_harness.records.result import read_result
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import run_evaluation, score_run
from eval_harness.store.contents import is_hub_store, scan_store
from eval_harness.store.submit import build_submission, submit_to_store
from eval_harness.store.verification import verify
from tests import helpers
from tests.chaos.server import ChaosServer
from tests.eval_harness.store.submitting import (
    edit_answers,
    load_questions,
    make_phantom,
    response_text,
    responses,
    run_folder,
)
from tests.helpers import edit_json, write_lines


@pytest.fixture(scope="module")
def probmed(tmp_path_factory):
    return make_phantom("probmed", tmp_path_factory.mktemp("data") / "probmed")


@pytest.fixture
def run(data, tmp_path):
    return run_folder(data, tmp_path / "run")


def from_file(path, data, **options):
    """Examine what `medprobe submit FILE` examines."""
    return build_submission(path, Path(data).name, "Foreign 7B", str(data), **options)


refused = partial(helpers.refused, submit_to_store)


def test_the_same_run_twice_is_stored_once(run, tmp_path):
    original, repeated = (
        submit_to_store(run, tmp_path / "store"),
        submit_to_store(run, tmp_path / "store"),
    )
    assert (original.new, repeated.new, original.location) == (True, False, repeated.location)
    (stored,) = scan_store(tmp_path / "store")[0]
    assert stored.result.scores == read_result(run / "result.json").scores
    fingerprint = stored.result.benchmark.fingerprint
    assert (
        len(pd.read_parquet(tmp_path / f"store/questions/{fingerprint}.parquet")) == stored.result.benchmark.questions
    )
    # No unfinished upload is left behind.
    assert not any((tmp_path / "store/.incoming").iterdir())


def test_all_problems_are_reported_at_once(run, tmp_path):
    edit_json(run / "run.json", lambda d: d["model"].update(name="<b>Model"))
    edit_answers(
        run,
        # An unknown question, and one that is answered twice.
        lambda rows: rows.__setitem__(slice(-2, None), [rows[0] | {"question_id": "nobody"}, rows[1]]),
    )
    problems = "; ".join(build_submission(run).problems)
    for word in ("<b>Model", "nobody", "answered twice", "row 27", "row 28"):
        assert word in problems
    assert "3 problems" in refused(run, tmp_path / "store")


def test_missing_answers_count_as_wrong_and_are_noted(run):
    complete = build_submission(run)
    edit_answers(run, lambda rows: rows.__delitem__(slice(-2, None)))
    partial = build_submission(run)
    assert partial.problems == [] and any("2 of" in note and "wrong" in note for note in partial.notes)
    assert partial.result.statuses["missing"] == complete.result.statuses["missing"] + 2
    assert partial.result.scores["individual_accuracy"].n == complete.result.scores["individual_accuracy"].n


def test_an_edited_key_makes_another_dataset(run, data):
    questions = pd.read_parquet(run / "questions.parquet")
    questions["answer"] = questions["answer"].map(lambda key: [1 - key[0]])
    questions.to_parquet(run / "questions.parquet", index=False)
    (run / "result.json").unlink()
    assert build_submission(run).problems == []  # the dataset is at hand, so the run's own copy is not used
    # Without the dataset, the edited copy in the run must not be trusted.
    edit_json(run / "run.json", lambda d: d["benchmark"].update(repo="data/elsewhere"))
    with pytest.raises(BadInput, match="--data"):
        build_submission(run)
    submission = build_submission(run, data=str(data))
    assert (submission.problems, submission.flags) == ([], [])


def test_partial_runs_and_baselines_must_be_marked(data, tmp_path):
    limited = run_folder(data, tmp_path / "limited", limit=4)
    submission = build_submission(limited)
    assert submission.problems == [] and submission.result.benchmark.selection == "only the first 4 questions"
    # The run claims to be complete.
    edit_json(limited / "run.json", lambda d: d["benchmark"].update(selection=None))
    with pytest.raises(BadInput, match="its questions are not those of the dataset"):
        build_submission(limited)
    oracle = run_folder(data, tmp_path / "oracle")
    edit_json(oracle / "run.json", lambda d: d["request"].update(model="baseline:oracle"))
    assert any("baseline" in problem for problem in build_submission(oracle).problems)


def test_run_ids_do_not_become_paths(run):
    """The id in a store is derived from request and answers; the one in run.json is ignored."""
    expected_folder = build_submission(run).folder
    for run_id in ("../../up", "a\0b"):
        edit_json(run / "run.json", lambda d, run_id=run_id: d.update(run_id=run_id))
        assert build_submission(run).folder == expected_folder


def test_model_names_with_markup_or_controls_are_refused(data, tmp_path):
    path = write_lines(tmp_path / "answers.jsonl", responses(data))
    # Markup, control characters, invisible marks, blank and overlong names.
    for name in ("<script>", "a\x07b", "a\u202eb", "a\u200bb", "", "  ", "a" * 201):
        assert model_name_problem(name)
    assert refused(path, tmp_path / "store", "mediconfusion", "<script>", str(data))
    assert not (tmp_path / "store").exists()


def test_answer_files_are_stored_with_unknown_prompt(data, tmp_path):
    path = write_lines(tmp_path / "answers.jsonl", responses(data))
    done = submit_to_store(path, tmp_path / "store", "mediconfusion", "Foreign 7B", str(data))
    assert not submit_to_store(path, tmp_path / "store", "mediconfusion", "Foreign 7B", str(data)).new
    result = read_result(Path(done.location) / "result.json")
    assert (result.provenance, result.model.name, result.method.prompt) == (
        "submitted",
        "Foreign 7B",
        None,
    )
    assert "another harness" in result.deviations[0]


def test_mediconfusion_official_output(data, tmp_path):
    expected_scores = from_file(write_lines(tmp_path / "a.jsonl", responses(data)), data).result.scores
    by_id = {record["question_id"]: record["response"] for record in responses(data)}
    pairs = sorted({name.rsplit("-", 1)[0] for name in by_id})
    official = {
        pair: {
            "answer": {f"im{side}": {"A": 10, "B": 0, "full_answer": by_id[f"{pair}-{side}"]} for side in (1, 2)},
            "score": {"set_score": {"Cerebral": 0, "total": 0}},
        }
        for pair in pairs
    }
    flat = {pair: {f"image_{side}": by_id[f"{pair}-{side}"] for side in (1, 2)} for pair in pairs}
    for number, document in enumerate((official, flat)):
        for indent in (None, 4):
            path = tmp_path / f"{number}-{indent}.json"
            path.write_text(json.dumps(document, indent=indent))
            submission = from_file(path, data)
            assert submission.problems == [] and submission.result.scores == expected_scores
    # A failed request, an unanswered image, and later a pair that does not exist.
    official[pairs[0]]["answer"]["im2"]["full_answer"] = None
    del official[pairs[1]]["answer"]["im1"]
    (tmp_path / "odd.json").write_text(json.dumps(official))
    with pytest.raises(BadInput, match="has no answer to image 1"):
        from_file(tmp_path / "odd.json", data)
    del official[pairs[1]]
    official["99999"] = official[pairs[2]]
    (tmp_path / "odd.json").write_text(json.dumps(official))
    submission = from_file(tmp_path / "odd.json", data)
    assert (submission.result.statuses["failed"], submission.result.statuses["missing"]) == (1, 2)
    assert len(submission.problems) == 2 and "99999" in " ".join(submission.problems)


def test_probmed_official_output(probmed, tmp_path):
    rows = []
    for number, row in enumerate(load_questions(probmed).itertuples()):
        rows.append(
            {
                "id": row.case_id,
                "image_type": row.image_type,
                "qa_type": row.qa_type,
                "question": row.question,
                "gt_ans": row.options[row.answer[0]],
                "response": response_text(row, number % 3 != 0).capitalize() + ".",
            }
        )
    (tmp_path / "model.json").write_text(json.dumps(rows, indent=4))
    submissions = [
        from_file(tmp_path / "model.json", probmed),
        from_file(write_lines(tmp_path / "m.jsonl", rows), probmed),
    ]
    assert all(submission.problems == [] and submission.notes == [] for submission in submissions), submissions[
        0
    ].problems
    assert submissions[0].result.scores == submissions[1].result.scores
    # A key that contradicts ours shows that the file is about other questions.
    for answer in ("no" if rows[0]["gt_ans"] == "yes" else "yes", "left lung"):
        rows[0]["gt_ans"] = answer
        with pytest.raises(BadInput, match="another version"):
            from_file(write_lines(tmp_path / "m.jsonl", rows), probmed)


def test_an_existing_folder_wins_over_a_repository(tmp_path, monkeypatch):
    # The name has the form of a repository, and may also be a relative path.
    monkeypatch.chdir(tmp_path)
    assert is_hub_store("ORG/results")
    (tmp_path / "ORG/results").mkdir(parents=True)
    assert not is_hub_store("ORG/results")
    assert not is_hub_store("./a/b") and not is_hub_store("store") and not is_hub_store("/a/b")


@pytest.mark.sources
def test_the_authors_output_gives_their_scores(sources, official_scores, tmp_path):
    build(
        "mediconfusion",
        source=sources / "mediconfusion",
        out=tmp_path / "mediconfusion",
        text_only=True,
    )
    for record in json.loads((official_scores / "mediconfusion_official_scores.json").read_text()):
        document = {
            pair: {"answer": {f"im{side}": {"full_answer": responses[f"image_{side}"]} for side in (1, 2)}}
            for pair, responses in record["responses"].items()
        }
        (tmp_path / "output.json").write_text(json.dumps(document, indent=4))
        submission = from_file(tmp_path / "output.json", tmp_path / "mediconfusion", extraction="official")
        assert submission.problems == [] and submission.notes == []
        for metric in ("set_accuracy", "individual_accuracy"):
            expected_score = record["expected"]["Cerebral"][metric]
            assert submission.result.breakdown["category"]["Cerebral"][metric].value == pytest.approx(
                expected_score, abs=5e-5
            )


@pytest.mark.sources
def test_recorded_answers_of_a_real_model_are_submitted(sources, tmp_path):
    build(
        "gmai-mmbench",
        source=sources / "gmai_mmbench",
        out=tmp_path / "gmai-mmbench",
        text_only=True,
    )
    recorded = sources / "gmai_mmbench" / "recorded_responses.jsonl"
    done = submit_to_store(recorded, tmp_path / "store", "gmai-mmbench", "Six models", str(tmp_path / "gmai-mmbench"))
    assert done.submission.result.benchmark.questions == 22 and done.submission.flags == []


def test_derived_files_of_a_submission_are_ignored(run, data, tmp_path):
    """Submitted scores are never read: there is no claim to compare with."""
    ready = Path(submit_to_store(run, tmp_path / "store").location)
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
        n_requests = sum(server.asked.values())
        run_evaluation(config)
        assert sum(server.asked.values()) == n_requests > 0, "each answer is sent to the judge once"
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
