"""The run folder: a journal that survives a killed process, the lock on it, and several processes
in one folder, where no order of starts, kills, restarts and ends loses an answer that counts.
"""

import contextlib
import json
from dataclasses import replace
from random import Random

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import open_repository
from eval_harness.models.load import code_digest
from eval_harness.models.local.pretrained import folder_digest
from eval_harness.records.request import Response
from eval_harness.records.result import read_run
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.run_folder import (
    AnswerJournal,
    Shard,
    answer_id,
    folder_lock,
    make_run_folder,
    merge_journals,
    read_answer_journal,
)
from eval_harness.runs.runner import run_evaluation
from tests.sampling import few

TEXT = st.text(max_size=40)


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
    assert [(r["question_id"], r["response"]) for r in read_answer_journal(path)] == [
        (str(n), t) for n, t in enumerate(texts)
    ]


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


QUESTIONS = pd.DataFrame({"question_id": [f"q{i}" for i in range(12)], "case_id": [f"c{i // 2}" for i in range(12)]})
CASE_NUMBERS = {f"q{i}": i // 2 for i in range(12)}
POSITIONS = [(row, 0) for row in range(len(QUESTIONS))]


class Process:
    """What one process does in a folder, step by step."""

    def __init__(self, folder, rank, world):
        self.folder, self.shard = folder, Shard(rank, world)
        self.stack = contextlib.ExitStack()
        with contextlib.ExitStack() as beginning:
            # If the journal cannot be opened, the claim must be released.
            beginning.enter_context(self.shard.claim(folder))
            with folder_lock(folder):
                self.journal = self.shard.open_journal(folder)
            self.stack = beginning.pop_all()
        self.ids = [f"q{row}" for row, _ in self.shard.instances(QUESTIONS, POSITIONS)]
        self.left = [name for name in self.ids if not self.journal.is_answered((name, 0))]

    def answer(self, text):
        name = self.left.pop()
        self.journal.append(Response(name, 0, text))
        return name

    def end(self):
        self.journal.__exit__(None, None, None)
        with folder_lock(self.folder):
            merge_journals(self.folder)
        self.stack.close()

    def kill(self, torn):
        """Do what the system does when a process dies: its locks are released, its last line may be
        half written.
        """
        if torn:
            self.journal._journal._file.write(b'{"question_id": "q1", "resp')
        self.journal.__exit__(None, None, None)
        self.stack.close()


def held(folder):
    with folder_lock(folder):
        keys = merge_journals(folder)
    records = read_answer_journal(folder / "answers.jsonl")
    assert {answer_id(record) for record in records} == keys
    return {record["question_id"]: record["response"] for record in records if record["status"] == "answered"}


@pytest.mark.parametrize("seed", few(range(16), 3))
def test_no_order_of_events_loses_an_answer(tmp_path, seed):
    random = Random(seed)
    expected, living = {}, {}
    # Random events of up to six processes, with the expected answers kept beside them.
    for step in range(60):
        rank, world = random.choice([(0, 2), (1, 2), (0, 2), (1, 2), (0, 3), (2, 3), (0, 1)])
        process = living.get((rank, world))
        event = random.choice(
            ["begin", "begin", "answer", "answer", "answer", "answer", "fail", "fail", "end", "kill", "look"]
        )
        if event == "begin":
            # Processes that divide the work differently would answer the same questions.
            if process or any(world != other_world for _, other_world in living):
                with pytest.raises(BadInput, match="another process"):
                    Process(tmp_path, rank, world)
                continue
            living[rank, world] = Process(tmp_path, rank, world)
            own_cases = {name for name in CASE_NUMBERS if CASE_NUMBERS[name] % world == rank}
            assert set(living[rank, world].left) == own_cases - expected.keys()
        # A single process holds the main journal, which then cannot be merged.
        elif event == "look" and not any(world == 1 for _, world in living):
            assert held(tmp_path) == expected
        elif process is None:
            continue
        elif event == "answer" and process.left:
            text = f"answer {step}"
            expected[process.answer(text)] = text
        elif event == "fail" and process.left:
            # A failure leaves its question unanswered, and hides no answer of another journal.
            name = random.choice(process.ids if world > 1 else process.left)
            process.journal.append(Response(name, 0, "", "failed", error="x"))
        elif event in ("end", "kill"):
            process.end() if event == "end" else process.kill(torn=random.random() < 0.5)
            del living[rank, world]
    for process in living.values():
        process.kill(torn=False)
    # One last process must find exactly the unanswered questions.
    finisher = Process(tmp_path, 0, 1)
    assert set(finisher.left) == CASE_NUMBERS.keys() - expected.keys()
    finisher.end()
    assert held(tmp_path) == expected
    assert not list(tmp_path.glob("answers.rank*"))


@pytest.mark.parametrize("seed", few(range(12), 2))
def test_answers_put_together_survive_a_kill_between_any_two_files(tmp_path, monkeypatch, seed):
    """The process that puts journals together dies after removing some of them."""
    from pathlib import Path

    random = Random(seed)
    expected = {}
    for number in range(5):
        rank = random.randrange(2)
        process = Process(tmp_path, rank, 2)
        for _ in range(random.randrange(len(process.left) + 1)):
            text = f"answer {number}"
            expected[process.answer(text)] = text
        process.kill(torn=False)
    # Dying at a random deletion covers every gap between two files.
    real, deletions_left = Path.unlink, random.randrange(8)

    def dying(path, *arguments, **options):
        nonlocal deletions_left
        deletions_left -= 1
        if deletions_left < 0:
            raise KeyboardInterrupt
        real(path, *arguments, **options)

    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        patched.setattr(Path, "unlink", dying)
        held(tmp_path)
    assert held(tmp_path) == expected
