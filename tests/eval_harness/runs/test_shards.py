"""Test several processes in one run folder: no order of starts, kills, restarts and ends loses an
answer that counts.
"""

import contextlib
from random import Random

import pandas as pd
import pytest

from dataset_builders.errors import BadInput
from eval_harness.records.request import Response
from eval_harness.runs.run_folder import (
    Shard,
    answer_id,
    archive_journals,
    folder_lock,
    merge_journals,
    read_answer_journal,
)
from tests.sampling import few

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


def test_what_a_run_started_over_had_is_kept_aside(tmp_path):
    process = Process(tmp_path, 0, 1)
    process.answer("old")
    process.end()
    archive_journals(tmp_path)
    assert held(tmp_path) == {}
    (aside,) = tmp_path.glob(".before-*/answers.jsonl")
    assert "old" in aside.read_text()
