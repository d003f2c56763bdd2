"""Test uploaded files of every shape, scored on questions that the board trusts; and results on
replaced datasets, which retire.
"""

import zipfile
from pathlib import Path

import pytest

from dataset_builders.errors import BadInput
from eval_harness.store.hidden_test import HiddenTest
from eval_harness.store.submit import build_submission, submit_to_store
from leaderboard_space.data.board import Board, TrustedData
from leaderboard_space.submitting import SubmitTab, Target, bundle_archive, examine_upload, submission_targets
from tests.eval_harness.store.submitting import load_questions, responses, run_folder
from tests.helpers import write_lines
from tests.leaderboard_space.stores import add_run, answers, questions


@pytest.fixture
def data(phantoms: Path) -> Path:
    return phantoms / "gmai-mmbench"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store" / "results").mkdir(parents=True)
    return tmp_path / "store"


def trusted_of(*folders: Path) -> TrustedData:
    trusted = TrustedData([str(folder) for folder in folders])
    trusted.refresh()
    return trusted


def target_of(data: Path, store: Path) -> Target:
    trusted = trusted_of(data)
    return next(iter(submission_targets(Board(store, trusted=trusted)).values()))


def test_only_splits_with_answers_are_targets(data: Path, store: Path) -> None:
    trusted = trusted_of(data)
    assert [split.benchmark.split for split in trusted.splits] == ["validation", "test"]
    targets = submission_targets(Board(store, trusted=trusted))
    assert [target.benchmark.split for target in targets.values()] == ["validation"]


def test_a_file_gives_what_the_command_line_gives(data: Path, store: Path, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "answers.jsonl", responses(data))
    here = examine_upload([file], target_of(data, store), "Model A", "medical")
    from_command = build_submission(file, "gmai-mmbench", "Model A", str(data), kind="medical")
    assert not here.problems and here.result.model.kind == "medical"
    assert here.files() == from_command.files()


def test_a_run_folder_keeps_its_settings(data: Path, store: Path, tmp_path: Path) -> None:
    folder = run_folder(data, tmp_path / "run")
    expected = build_submission(folder, data=str(data))
    for names in (("run.json", "answers.parquet"), ("run.json", "answers.parquet", "answers.jsonl", "result.json")):
        submission = examine_upload([folder / name for name in names], target_of(data, store))
        assert not submission.problems
        assert submission.result.scores == expected.result.scores and submission.result.method == expected.result.method
        assert submission.run_id == expected.run_id


def test_the_bundle_can_be_submitted(data: Path, store: Path, tmp_path: Path) -> None:
    examined = examine_upload(
        [write_lines(tmp_path / "answers.jsonl", responses(data))], target_of(data, store), "Model A"
    )
    content = bundle_archive(examined)
    assert content == bundle_archive(examined), "the same bytes for the same submission"
    (tmp_path / "ready.zip").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "ready.zip") as archive:
        archive.extractall(tmp_path / "unpacked")
    done = submit_to_store(tmp_path / "unpacked" / examined.folder, store, data=str(data))
    assert done.new and Path(done.location) == store / examined.folder
    assert (store / examined.folder / "answers.parquet").read_bytes() == examined.files()[
        f"{examined.folder}/answers.parquet"
    ]


def test_wrong_uploads_get_one_line_without_our_paths(data: Path, phantoms: Path, store: Path, tmp_path: Path) -> None:
    workdir, target = tmp_path / "uploads", target_of(data, store)
    workdir.mkdir()
    good = write_lines(workdir / "good.jsonl", responses(data))
    for name, content in {"zeros.jsonl": bytes(500), "run.json": b"{}", "notes.txt": b"hello"}.items():
        (workdir / name).write_bytes(content)
    bare, notes = workdir / "run.json", workdir / "notes.txt"
    other_run = run_folder(phantoms / "halt-medvqa", tmp_path / "run")
    other_set = "these answers are for halt-medvqa, test, but gmai-mmbench, validation is selected"
    for files, model, kind, expected in (
        ([], "Model", None, "no file was given"),
        ([good, notes], "Model", None, "no run.json"),
        ([workdir / "zeros.jsonl"], "Model", None, "zeros.jsonl: is neither"),
        ([bare], "Model", None, "run.json"),
        ([bare, notes], "Model", None, "notes.txt: not a file of a run folder"),
        ([good], "  ", None, "no model name was given"),
        ([good], "Model", "best", "give one of open, proprietary, medical, human, or"),
        ([other_run / "run.json", other_run / "answers.parquet"], "", None, other_set),
    ):
        with pytest.raises(BadInput) as caught:
            examine_upload(files, target, model, kind)
        line = str(caught.value)
        assert expected in line and "\n" not in line and "/tmp" not in line and str(tmp_path) not in line, line
    assert any("model name" in line for line in examine_upload([good], target, "=cmd()<b>").problems)


def test_what_the_store_keeps_can_be_answered_without_a_dataset(data: Path, store: Path, tmp_path: Path) -> None:
    submit_to_store(run_folder(data, tmp_path / "run", "First"), store, data=str(data))
    board = Board(store)
    [target] = submission_targets(board).values()
    assert not target.dataset().is_vouched
    rows = [
        {"question_id": row.question_id, "response": ", ".join("ABCDEFGH"[index] for index in row.answer)}
        for row in load_questions(data).itertuples()
    ]
    submission = examine_upload([write_lines(tmp_path / "second.jsonl", rows)], target, "Second")
    assert not submission.problems and submission.result.scores["accuracy"].value == 100


def test_signing_in_gives_no_right_to_a_folder_of_the_server(
    data: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a Space with a mounted folder, users sign in for the hidden test, but none of them writes
    to the folder.
    """
    for name, value in {"SYSTEM": "spaces", "SPACE_ID": "ORG/board", "OAUTH_CLIENT_ID": "board"}.items():
        monkeypatch.setenv(name, value)
    hidden = HiddenTest(str(data), str(data), str(tmp_path / "ledger"))
    trusted = trusted_of(data)
    tab = SubmitTab(Board(store, trusted=trusted), store, may_write=False, hidden=hidden)
    file = write_lines(tmp_path / "answers.jsonl", responses(data))
    *_, checked = tab.check(f"{data}@validation", [str(file)], "Model", "open")
    *_, sent = tab.send(f"{data}@validation", [str(file)], "Model", "open", token="hf_reader", user="reader")
    assert tab.signs_in and checked["ok"] and not sent["ok"]
    assert "cannot be sent from here" in sent["problems"][0] and not list((store / "results").iterdir())


def test_a_result_whose_dataset_was_replaced_retires(data: Path, store: Path, tmp_path: Path) -> None:
    """The fingerprint of its questions differs from that of the current dataset: it is shown apart,
    and Submit no longer offers its questions.
    """
    question_table = questions("gmai-mmbench", 12)
    (split,) = (candidate for candidate in trusted_of(data).splits if candidate.has_answers)
    benchmark = split.benchmark
    add_run(
        store,
        "gmai-mmbench",
        question_table,
        answers(question_table, 0.5),
        "Before",
        repo=benchmark.repo,
        split=benchmark.split,
    )
    submit_to_store(run_folder(data, tmp_path / "run", "After"), store, data=str(data))
    board = Board(store, trusted=trusted_of(data))
    sections = board.snapshot.sections["gmai-mmbench"]
    assert [(candidate.kind, candidate.entries[0].result.model.name) for candidate in sections] == [
        ("phantom", "After"),
        ("retired", "Before"),
    ]
    fingerprints = {target.benchmark.fingerprint for target in submission_targets(board).values()}
    assert fingerprints == {sections[0].fingerprint}
