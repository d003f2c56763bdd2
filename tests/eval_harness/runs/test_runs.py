"""The run folder: a journal that survives a killed process, and the lock on it."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import open_repository
from eval_harness.models.load import code_digest
from eval_harness.models.local.pretrained import folder_digest
from eval_harness.records.request import Response
from eval_harness.records.result import read_run
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.run_folder import AnswerJournal, make_run_folder
from eval_harness.runs.runner import run_evaluation

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
    complete_lines = data[: min(cut, len(data))].count(b"\n")
    with AnswerJournal(path) as journal:
        assert sorted(journal.statuses) == sorted((str(n), 0) for n in range(complete_lines))
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


PLUG_IN = """
class M:
    def __init__(self, settings=None):
        pass

    def generate(self, requests):
        return ["{}" for _ in requests]
"""


def recorded_lines(letter, data):
    ids = open_repository(data).questions("test")["question_id"]
    return "".join(json.dumps({"question_id": name, "response": letter}) + "\n" for name in ids)


@pytest.mark.parametrize(
    ("argument", "content"),
    [("recorded:{}/m", recorded_lines), ("{}/m.py:M", lambda letter, data: PLUG_IN.format(letter))],
)
def test_a_run_is_not_continued_by_a_model_that_has_changed(phantoms, tmp_path, capsys, argument, content):
    data, file = phantoms / "mediconfusion", tmp_path / ("m.py" if ".py" in argument else "m")
    config = EvalConfig("mediconfusion", argument.format(tmp_path), data=str(data), out=tmp_path / "run")
    file.write_text(content("A", data))
    first_result, _ = run_evaluation(config)
    assert "already there" not in capsys.readouterr().err
    again, _ = run_evaluation(config)
    assert again.scores == first_result.scores and "28 of 28 answers were already there" in capsys.readouterr().err
    file.write_text(content("B", data))
    with pytest.raises(BadInput, match="code or weights have changed"):
        run_evaluation(config)
    other_result, _ = run_evaluation(replace(config, out=tmp_path / "other"))
    assert other_result.scores["share_B"].value == 100


def test_the_digest_of_a_folder_and_of_a_class_follows_from_their_content(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "home"))
    folder = tmp_path / "model"
    folder.mkdir()
    digests = []
    for weights in ("one", "two", "one", "one, longer"):
        (folder / "model.safetensors").write_text(weights)
        digests += [folder_digest(folder)] * (folder_digest(folder) == folder_digest(folder))
    assert digests[0] == digests[2] and len(set(digests)) == 3

    def made(text):  # as in a notebook, where the class has no source file
        names = {"__name__": "__main__"}
        exec(text, names)
        return names["M"]()

    original, moved, changed = (code_digest(made(text)) for text in (PLUG_IN, "\n\n" + PLUG_IN, PLUG_IN.format("B")))
    assert original == moved != changed
