"""The run folder: a journal that survives a killed process, and the lock on it."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_builders.errors import BadInput
from eval_harness.records.request import Response
from eval_harness.records.run import read_run
from eval_harness.runs.folder import AnswerJournal, make_run_folder

TEXT = st.text(max_size=40)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@settings(max_examples=30, deadline=None)
@given(texts=st.lists(TEXT, min_size=1, max_size=6), cut=st.integers(min_value=0, max_value=400))
def test_a_journal_cut_anywhere_keeps_every_whole_line_and_goes_on(tmp_path_factory, texts, cut):
    path = tmp_path_factory.mktemp("run") / "answers.jsonl"
    with AnswerJournal(path) as journal:
        for number, text in enumerate(texts):
            journal.append(Response(str(number), 0, text))
    data = path.read_bytes()
    path.write_bytes(data[: min(cut, len(data))])
    whole = data[: min(cut, len(data))].count(b"\n")
    with AnswerJournal(path) as journal:
        assert sorted(journal.statuses) == sorted((str(n), 0) for n in range(whole))
        for number, text in enumerate(texts):
            if not journal.is_answered((str(number), 0)):
                journal.append(Response(str(number), 0, text))
    assert [(r["question_id"], r["response"]) for r in lines(path)] == [(str(n), t) for n, t in enumerate(texts)]


def test_a_damaged_line_in_the_middle_is_reported_and_nothing_is_lost(tmp_path):
    path = tmp_path / "answers.jsonl"
    good = '{"question_id": "1", "sample": 0, "response": "A", "status": "answered"}\n'
    path.write_text(good + "garbage\n" + good)
    with pytest.raises(BadInput, match=r"line 2: not an answer"):
        AnswerJournal(path)
    assert path.read_text() == good + "garbage\n" + good


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.doc").write_text("x")
    with pytest.raises(BadInput, match=r"thesis\.doc"):
        make_run_folder(tmp_path)
    with pytest.raises(BadInput, match="is a file"):
        make_run_folder(tmp_path / "thesis.doc")
    with pytest.raises(BadInput, match="not a run folder"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text('{"run_id": 3}')
    with pytest.raises(BadInput, match="not a run file"):
        read_run(tmp_path)
