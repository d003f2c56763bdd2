"""Submitting to a folder: run folders, and the files of other harnesses; what is refused, and that nothing is written then."""

import json
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from dataset_builders.build import build
from dataset_builders.errors import BadInput
from eval_harness.interop.convert import convert_and_submit, prepare_submission
from eval_harness.records.result import read_result
from eval_harness.store.scan import is_hub_store, scan_store
from eval_harness.store.submit import build_submission
from tests import helpers
from tests.eval_harness.store.submitting import edit_answers, phantom, questions_of, responses, run_folder, said
from tests.helpers import edit_json, write_lines


@pytest.fixture(scope="module")
def probmed(tmp_path_factory):
    return phantom("probmed", tmp_path_factory.mktemp("data") / "probmed")


@pytest.fixture
def run(data, tmp_path):
    return run_folder(data, tmp_path / "run")


def from_file(path, data, **options):
    """What `medprobe submit FILE` examines: other programs' files are converted first."""
    return prepare_submission(path, Path(data).name, "Foreign 7B", str(data), **options)


refused = partial(helpers.refused, convert_and_submit)


def test_the_same_run_twice_is_stored_once(run, tmp_path):
    first, second = convert_and_submit(run, tmp_path / "store"), convert_and_submit(run, tmp_path / "store")
    assert (first.new, second.new, first.location) == (True, False, second.location)
    (stored,) = scan_store(tmp_path / "store")[0]
    assert stored.result.scores == read_result(run / "result.json").scores
    fingerprint = stored.result.benchmark.fingerprint
    assert (
        len(pd.read_parquet(tmp_path / f"store/questions/{fingerprint}.parquet")) == stored.result.benchmark.questions
    )
    assert not any((tmp_path / "store/.incoming").iterdir())


def test_every_problem_is_told_at_once(run, tmp_path):
    edit_json(run / "run.json", lambda d: d["model"].update(name="<b>Model"))
    edit_answers(run, lambda rows: rows.__setitem__(slice(-2, None), [rows[0] | {"question_id": "nobody"}, rows[1]]))
    told = "; ".join(build_submission(run).problems)
    for word in ("<b>Model", "nobody", "answered twice", "row 27", "row 28"):
        assert word in told
    assert "3 problems" in refused(run, tmp_path / "store")


def test_missing_answers_are_wrong_and_shown(run):
    whole = build_submission(run)
    edit_answers(run, lambda rows: rows.__delitem__(slice(-2, None)))
    found = build_submission(run)
    assert found.problems == [] and any("2 of" in note and "wrong" in note for note in found.notes)
    assert found.result.statuses["missing"] == whole.result.statuses["missing"] + 2
    assert found.result.scores["individual_accuracy"].n == whole.result.scores["individual_accuracy"].n


def test_an_edited_key_is_another_dataset(run, data):
    questions = pd.read_parquet(run / "questions.parquet")
    questions["answer"] = questions["answer"].map(lambda key: [1 - key[0]])
    questions.to_parquet(run / "questions.parquet", index=False)
    (run / "result.json").unlink()
    assert build_submission(run).problems == []  # the dataset is at hand: the run's own copy is not asked
    edit_json(run / "run.json", lambda d: d["benchmark"].update(repo="data/elsewhere"))
    with pytest.raises(BadInput, match="--data"):
        build_submission(run)
    found = build_submission(run, data=str(data))
    assert (found.problems, found.flags) == ([], [])


def test_a_part_and_a_baseline_land_only_as_such(data, tmp_path):
    limited = run_folder(data, tmp_path / "limited", limit=4)
    found = build_submission(limited)
    assert found.problems == [] and found.result.benchmark.selection == "only the first 4 questions"
    edit_json(limited / "run.json", lambda d: d["benchmark"].update(selection=None))
    with pytest.raises(BadInput, match="its questions are not those of the dataset"):
        build_submission(limited)
    oracle = run_folder(data, tmp_path / "oracle")
    edit_json(oracle / "run.json", lambda d: d["request"].update(model="baseline:oracle"))
    assert any("baseline" in problem for problem in build_submission(oracle).problems)


def test_what_a_run_calls_itself_is_no_path(run):
    """The id in a store is made of what was asked and answered; what run.json says is not asked."""
    before = build_submission(run).folder
    for run_id in ("../../up", "a/b", "", "a\0b"):
        edit_json(run / "run.json", lambda d, run_id=run_id: d.update(run_id=run_id))
        assert build_submission(run).folder == before


def test_a_model_name_without_markup_and_controls_alone_lands(data, tmp_path):
    path = write_lines(tmp_path / "answers.jsonl", responses(data))
    for name in ("<script>", "a\x07b", "a\u202eb", "a\u200bb", "", "  ", "a" * 201):
        assert refused(path, tmp_path / "store", "mediconfusion", name, str(data))
    assert not (tmp_path / "store").exists()


def test_a_json_document_gives_the_result_of_its_lines(data, tmp_path):
    records = responses(data)
    lines = from_file(write_lines(tmp_path / "a.jsonl", records), data)
    for indent in (None, 2):
        (tmp_path / "a.json").write_text(json.dumps(records, indent=indent))
        found = from_file(tmp_path / "a.json", data)
        assert found.problems == [] and found.folder == lines.folder


def test_a_file_lands_and_says_that_its_prompt_is_not_known(data, tmp_path):
    path = write_lines(tmp_path / "answers.jsonl", responses(data))
    done = convert_and_submit(path, tmp_path / "store", "mediconfusion", "Foreign 7B", str(data))
    assert not convert_and_submit(path, tmp_path / "store", "mediconfusion", "Foreign 7B", str(data)).new
    result = read_result(Path(done.location) / "result.json")
    assert (result.provenance, result.model.name, result.method.prompt) == ("submitted", "Foreign 7B", None)
    assert "another harness" in result.deviations[0]


def test_mediconfusions_official_output(data, tmp_path):
    wanted = from_file(write_lines(tmp_path / "a.jsonl", responses(data)), data).result.scores
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
            found = from_file(path, data)
            assert found.problems == [] and found.result.scores == wanted
    official[pairs[0]]["answer"]["im2"]["full_answer"] = None
    del official[pairs[1]]["answer"]["im1"]
    (tmp_path / "odd.json").write_text(json.dumps(official))
    with pytest.raises(BadInput, match="has no answer to image 1"):
        from_file(tmp_path / "odd.json", data)
    del official[pairs[1]]
    official["99999"] = official[pairs[2]]
    (tmp_path / "odd.json").write_text(json.dumps(official))
    found = from_file(tmp_path / "odd.json", data)
    assert (found.result.statuses["failed"], found.result.statuses["missing"]) == (1, 2)
    assert len(found.problems) == 2 and "99999" in " ".join(found.problems)


def test_probmeds_official_output(probmed, tmp_path):
    rows = []
    for number, row in enumerate(questions_of(probmed).itertuples()):
        rows.append(
            {
                "id": row.case_id,
                "image_type": row.image_type,
                "qa_type": row.qa_type,
                "question": row.question,
                "gt_ans": row.options[row.answer[0]],
                "response": said(row, number % 3 != 0).capitalize() + ".",
            }
        )
    (tmp_path / "model.json").write_text(json.dumps(rows, indent=4))
    found = [from_file(tmp_path / "model.json", probmed), from_file(write_lines(tmp_path / "m.jsonl", rows), probmed)]
    assert all(each.problems == [] and each.notes == [] for each in found), found[0].problems
    assert found[0].result.scores == found[1].result.scores
    for answer in ("no" if rows[0]["gt_ans"] == "yes" else "yes", "left lung"):
        rows[0]["gt_ans"] = answer
        with pytest.raises(BadInput, match="another version"):
            from_file(write_lines(tmp_path / "m.jsonl", rows), probmed)


def test_an_existing_folder_wins_over_a_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_hub_store("ORG/results")
    (tmp_path / "ORG/results").mkdir(parents=True)
    assert not is_hub_store("ORG/results")
    assert not is_hub_store("./a/b") and not is_hub_store("store") and not is_hub_store("/a/b")


@pytest.mark.sources
def test_the_authors_own_output_gives_the_scores_of_their_scorer(sources, official_scores, tmp_path):
    build("mediconfusion", source=sources / "mediconfusion", out=tmp_path / "mediconfusion", text_only=True)
    for record in json.loads((official_scores / "mediconfusion_official_scores.json").read_text()):
        document = {
            pair: {"answer": {f"im{side}": {"full_answer": said[f"image_{side}"]} for side in (1, 2)}}
            for pair, said in record["responses"].items()
        }
        (tmp_path / "output.json").write_text(json.dumps(document, indent=4))
        found = from_file(tmp_path / "output.json", tmp_path / "mediconfusion", extraction="official")
        assert found.problems == [] and found.notes == []
        for metric in ("set_accuracy", "individual_accuracy"):
            theirs = record["expected"]["Cerebral"][metric]
            assert found.result.breakdown["category"]["Cerebral"][metric].value == pytest.approx(theirs, abs=5e-5)


@pytest.mark.sources
def test_what_a_real_model_really_answered_is_submitted(sources, tmp_path):
    build("gmai-mmbench", source=sources / "gmai_mmbench", out=tmp_path / "gmai-mmbench", text_only=True)
    recorded = sources / "gmai_mmbench" / "recorded_responses.jsonl"
    done = convert_and_submit(
        recorded, tmp_path / "store", "gmai-mmbench", "Six models", str(tmp_path / "gmai-mmbench")
    )
    assert done.submission.result.benchmark.questions == 22 and done.submission.flags == []
