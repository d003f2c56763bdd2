"""Test the Submit page: its starting points, what it reports about broken files, and where it leads
after a submission.
"""

import csv
import html
import io
import random
import re
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import pytest

from dataset_builders.errors import BadInput
from eval_harness.store.hidden_test import HiddenTest
from leaderboard_space import submitting
from leaderboard_space.data.board import Board, TrustedData
from leaderboard_space.submitting import HIDDEN_TEST_KEY, SubmitTab, draw_form
from leaderboard_space.views import submit
from leaderboard_space.views.submit import group_problems
from tests.eval_harness.store.checks.hidden import build_test, write_upload
from tests.eval_harness.store.submitting import load_questions, response_text, responses
from tests.helpers import write_lines
from tests.sampling import few


def tab_of(store: Path | None, *data: Path) -> SubmitTab:
    trusted = TrustedData([str(path) for path in data])
    trusted.refresh()
    return SubmitTab(Board(store, trusted=trusted), store, may_write=True)


@pytest.fixture
def data(phantoms: Path) -> Path:
    return phantoms / "gmai-mmbench"


@pytest.fixture
def tab(data: Path, tmp_path: Path) -> SubmitTab:
    (tmp_path / "store" / "results").mkdir(parents=True)
    return tab_of(tmp_path / "store", data)


def shown(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", markup))


def test_there_is_a_form_only_where_something_can_be_handed_in(tab: SubmitTab, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    for settings, lacks in (
        (tab, ""),
        (tab_of(tmp_path), "its store holds no questions yet"),
        (tab_of(None), "it has no results store"),
    ):
        with gr.Blocks():
            assert draw_form(settings)[0].visible is not bool(lacks)
        assert ("Nothing can be submitted here yet" in settings.page({})) is bool(lacks) and lacks in shown(
            settings.page({})
        )


def test_a_template_that_is_filled_in_can_be_handed_in(tab: SubmitTab, data: Path, tmp_path: Path) -> None:
    (label, key), page = tab.choices()[0], tab.page({})
    assert label in shown(page) and f'data-of="template:{key}"' in page and f'data-of="ids:{key}"' in page
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
    page, problem_lines = shown(report), [problem_line for problem_line in lines.values() if problem_line]
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
    assert "54 problems of 53 kinds" in shown(report) and report.count("<li>") == submit.MAX_PROBLEM_KINDS
    assert f"and {53 - submit.MAX_PROBLEM_KINDS} other kinds of problem" in shown(report)


def test_hidden_answers_give_one_number_to_who_is_signed_in(tmp_path: Path) -> None:
    public, private = build_test(tmp_path)
    hidden = HiddenTest(str(public), str(private), str(tmp_path / "ledger"))
    tab = SubmitTab(Board(None), None, may_write=False, hidden=hidden)
    assert "anybody can derive them" in tab.page({})
    right = [str(write_upload(tmp_path / "answers.jsonl", right=45))]
    part = tmp_path / "part.jsonl"
    part.write_text(Path(right[0]).read_text().split("\n", 1)[1])
    assert "1 of 68 questions is not answered" in shown(tab.check(HIDDEN_TEST_KEY, [str(part)], "Model A", None)[0])
    report, *_, outcome = tab.check(HIDDEN_TEST_KEY, right, "Model A", None)
    assert outcome["ok"] and "The file answers every question of the test" in report and "75" not in report
    assert "sign" in tab.send(HIDDEN_TEST_KEY, right, "Model A", None)[-1]["problems"][0].lower()
    for _ in range(2):  # the same file again uses no attempt
        report, *_, outcome = tab.send(HIDDEN_TEST_KEY, right, "Model A", None, token="hf_reader", user="reader")
        assert "Accuracy: 75.0 % of 60 questions" in report and outcome["remaining"] == 1
