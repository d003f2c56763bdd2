"""Test the Submit page: uploaded files of every shape, scored on questions that the board trusts;
what it reports about broken files; where a submission leads; and results on replaced datasets,
which retire.
"""

import csv
import io
import random
import zipfile
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import pytest

from dataset_builders.errors import BadInput
from eval_harness.store.hidden_test import HiddenTest
from eval_harness.store.submit import build_submission, submit_to_store
from leaderboard_space import submitting
from leaderboard_space.data.board import Board, TrustedData
from leaderboard_space.submitting import (
    HIDDEN_TEST_KEY,
    SubmitTab,
    Target,
    bundle_archive,
    draw_form,
    examine_upload,
    submission_targets,
)
from leaderboard_space.views import submit
from leaderboard_space.views.submit import group_problems
from tests.eval_harness.store.checks.hidden import build_test, write_upload
from tests.eval_harness.store.submitting import load_questions, response_text, responses, run_folder
from tests.helpers import write_lines
from tests.leaderboard_space.checks.claims import plain
from tests.leaderboard_space.stores import add_run, answers, questions
from tests.sampling import few


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


@pytest.mark.usefixtures("examine_in_child")
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


def tab_of(store: Path | None, *data: Path) -> SubmitTab:
    return SubmitTab(Board(store, trusted=trusted_of(*data)), store, may_write=True)


@pytest.fixture
def tab(data: Path, store: Path) -> SubmitTab:
    return tab_of(store, data)


def test_there_is_a_form_only_where_something_can_be_handed_in(tab: SubmitTab, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    for settings, lacks in (
        (tab, ""),
        (tab_of(tmp_path), "its store holds no questions yet"),
        (tab_of(None), "it has no results store"),
    ):
        with gr.Blocks():
            assert draw_form(settings)[0].visible is not bool(lacks)
        assert ("Nothing can be submitted here yet" in settings.page({})) is bool(lacks) and lacks in plain(
            settings.page({})
        )


def test_a_template_that_is_filled_in_can_be_handed_in(tab: SubmitTab, data: Path, tmp_path: Path) -> None:
    (label, key), page = tab.choices()[0], tab.page({})
    assert label in plain(page) and f'data-of="template:{key}"' in page and f'data-of="ids:{key}"' in page
    right = {row.question_id: response_text(row, True) for row in load_questions(data).itertuples()}
    rows = list(csv.DictReader(io.StringIO(tab.file({"of": f"template:{key}", "as": "csv"})["text"])))
    assert tab.file({"of": f"ids:{key}", "as": "txt"})["text"].split() == [row["question_id"] for row in rows]
    filled = tmp_path / "filled.csv"
    with filled.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["question_id", "response"])
        writer.writeheader()
        writer.writerows({**row, "response": right[row["question_id"]]} for row in rows)
    *_, outcome = tab.check(key, [str(filled)], "Model", None)
    assert outcome["ok"] and outcome["statuses"]["answered"] == len(right)
    with pytest.raises(BadInput, match="no longer on the board"):
        tab.file({"of": "template:nothing"})


def test_readers_of_a_space_are_told_apart_behind_its_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    def client(forwarded: str) -> str:
        header = {"x-forwarded-for": forwarded} if forwarded else {}
        return submitting._client_address(SimpleNamespace(headers=header, client=SimpleNamespace(host="10.16.3.80")))

    monkeypatch.delenv("SYSTEM", raising=False)
    assert client("203.0.113.7") == "10.16.3.80", "a header that anybody can write"
    monkeypatch.setenv("SYSTEM", "spaces")
    assert [client(header) for header in ("203.0.113.7", "203.0.113.8, 10.0.0.1", "")] == [
        "203.0.113.7", "203.0.113.8", "10.16.3.80",
    ]  # fmt: skip


BROKEN_FILES = {
    "unknown ids": lambda row, n: {**row, "question_id": f"unknown {n}"},
    "no response": lambda row, n: {"question_id": row["question_id"], "model answer": row["response"]},
    "a number": lambda row, n: {**row, "response": n + 0.5},
    "a sample too many": lambda row, n: {**row, "sample": 10_000 + n},
    "no id": lambda row, n: {"item": row["question_id"], "response": row["response"]},
}


@pytest.mark.parametrize("seed", few(range(2)))
def test_equal_problems_are_one_and_a_broken_file_has_no_score(
    tab: SubmitTab, data: Path, tmp_path: Path, seed: int
) -> None:
    """Files have one to three kinds of errors, each in several lines: every kind is listed with its
    first line and the number of further ones.
    """
    rng = random.Random(seed)
    chosen = rng.sample(sorted(BROKEN_FILES), rng.randint(1, 3))
    rows, lines = responses(data), {name: [] for name in chosen}
    for at in sorted(rng.sample(range(len(rows)), rng.randint(9, len(rows)))):
        name = rng.choice(chosen)
        rows[at] = BROKEN_FILES[name](rows[at], at)
        lines[name].append(at + 1)
    broken = tmp_path / "broken.jsonl"
    write_lines(broken, rows)
    report, send, *_, outcome = tab.check(tab.choices()[0][1], [str(broken)], "Model", None)
    page, problem_lines = plain(report), [problem_line for problem_line in lines.values() if problem_line]
    assert report.count("<li>") == len(problem_lines) == len(group_problems(outcome["problems"]))
    for problem_line in problem_lines:
        assert f"line {problem_line[0]}:" in page
        if len(problem_line) > 1:
            assert f"{len(problem_line) - 1} more time" in page
    assert len(outcome["problems"]) == sum(map(len, problem_lines)) and not outcome["ok"]
    assert "scores" not in outcome and "<table" not in report and "%" not in page and not send.interactive
    assert " --" not in page


def test_only_the_first_kinds_of_problems_are_spelled_out() -> None:
    report = submit.refusal([f"file {'x' * (at + 1)}: is cut off" for at in range(52)] + ["line 1: odd", "line 2: odd"])
    assert "54 problems of 53 kinds" in plain(report) and report.count("<li>") == submit.MAX_PROBLEM_KINDS
    assert f"and {53 - submit.MAX_PROBLEM_KINDS} other kinds of problem" in plain(report)


def test_hidden_answers_give_one_number_to_who_is_signed_in(tmp_path: Path) -> None:
    public, private = build_test(tmp_path)
    hidden = HiddenTest(str(public), str(private), str(tmp_path / "ledger"))
    tab = SubmitTab(Board(None), None, may_write=False, hidden=hidden)
    assert "anybody can derive them" in tab.page({})
    right = [str(write_upload(tmp_path / "answers.jsonl", right=45))]
    part = tmp_path / "part.jsonl"
    part.write_text(Path(right[0]).read_text().split("\n", 1)[1])
    assert "1 of 68 questions is not answered" in plain(tab.check(HIDDEN_TEST_KEY, [str(part)], "Model A", None)[0])
    report, *_, outcome = tab.check(HIDDEN_TEST_KEY, right, "Model A", None)
    assert outcome["ok"] and "The file answers every question of the test" in report and "75" not in report
    assert "sign" in tab.send(HIDDEN_TEST_KEY, right, "Model A", None)[-1]["problems"][0].lower()
    for _ in range(2):  # the same file again uses no attempt
        report, *_, outcome = tab.send(HIDDEN_TEST_KEY, right, "Model A", None, token="hf_reader", user="reader")
        assert "Accuracy: 75.0 % of 60 questions" in report and outcome["remaining"] == 1
