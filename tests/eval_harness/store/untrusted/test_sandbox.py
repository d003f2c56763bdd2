"""Calls in the sandbox stay within their limits, leave no process behind, and report the
outcome.
"""

import os
import random
import sys
import threading
import time
from dataclasses import dataclass

import pytest
from huggingface_hub import CommitOperationAdd, HfApi

from dataset_builders.errors import BadInput, Unavailable
from eval_harness.records.limits import MAX_ANSWERS, Limits, limits_for
from eval_harness.records.result import Benchmark
from eval_harness.store import dataset_lookup, sandbox
from eval_harness.store.dataset_lookup import find_dataset
from eval_harness.store.sandbox import LimitExceeded, Postponed, SandboxError, run_sandboxed
from tests.eval_harness.store.untrusted import sandboxed
from tests.localhub.accounts import READER
from tests.sampling import few


@dataclass(frozen=True)
class LimitsWithin(Limits):
    """Limits with a given wall-clock time, however busy the machine is."""

    clock: int = 250

    @property
    def wall_seconds(self) -> int:
        return self.clock


def within(cpu_seconds: int, clock: int = 250) -> LimitsWithin:
    return LimitsWithin(1, 1, 1, cpu_seconds, clock=clock)


SMALL = within(2)
pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="rlimits as Linux has them"),
    pytest.mark.usefixtures("examine_in_child"),
]


def test_results_and_errors_are_returned(monkeypatch, tmp_path):
    assert run_sandboxed(SMALL, sandboxed.add, 1, b=[2][0]) == 3
    with pytest.raises(Unavailable, match="come back later"):
        run_sandboxed(SMALL, sandboxed.refuse)
    with pytest.raises(SandboxError, match="KeyError"):
        run_sandboxed(SMALL, sandboxed.raise_defect)
    monkeypatch.setenv("MARK", "here")
    monkeypatch.chdir(tmp_path)
    mark, folder, process = run_sandboxed(SMALL, sandboxed.environment)
    assert (mark, folder) == ("here", tmp_path) and process != os.getpid()


@pytest.mark.parametrize(
    "hostile",
    few([sandboxed.use_memory, sandboxed.swallow_errors, sandboxed.exit_process, sandboxed.spin]),
)
def test_calls_over_their_limits_are_killed(hostile):
    with pytest.raises(LimitExceeded, match="384 MB of memory and 2 s of computing"):
        run_sandboxed(SMALL, hostile)
    assert run_sandboxed(SMALL, sandboxed.add, 1, 1) == 2


def test_a_timeout_kills_a_waiting_call_and_its_children(tmp_path):
    quick = within(10, 1)
    with pytest.raises(LimitExceeded, match="later"):
        run_sandboxed(quick, sandboxed.sleep_in_a_child)
    with (
        pytest.raises(Postponed, match="later"),
        sandbox.time_limit(1),
    ):  # too little time says nothing about the input, so it is not refused
        run_sandboxed(SMALL, sandboxed.sleep_in_a_child)
    assert run_sandboxed(SMALL, sandboxed.start_marking_process, tmp_path / "mark") == 1
    time.sleep(3)
    assert not (tmp_path / "mark").exists()


@pytest.mark.exhaustive
def test_concurrent_threads_get_their_own_results():
    results = {}

    def one(number):
        results[number] = run_sandboxed(SMALL, sandboxed.add, number, number)

    threads = [threading.Thread(target=one, args=[number]) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: 2 * number for number in range(5)}


def test_one_submission_per_client_is_read_at_a_time(tmp_path):
    end, begun = tmp_path / "end", []
    slow = threading.Thread(target=sandbox.run_in_turn, args=["eve", run_sandboxed, SMALL, sandboxed.wait_for, end])
    slow.start()
    waiting = threading.Thread(target=lambda: begun.append(sandbox.run_in_turn("eve", sandboxed.add, 1, 2)))
    waiting.start()
    assert sandbox.run_in_turn("ann", sandboxed.add, 1, 2) == 3, "others are read meanwhile"
    while sandbox._CLIENTS["eve"][1] < 2:
        time.sleep(0.01)
    with pytest.raises(Unavailable, match="earlier submissions"):  # more of them would fill the queues
        sandbox.run_in_turn("eve", sandboxed.add, 1, 2)
    assert begun == []
    with pytest.MonkeyPatch.context() as full:
        full.setattr(sandbox, "MAX_WAITING", -1)
        with pytest.raises(Unavailable, match="Come back"):
            sandbox.run_in_turn("ann", sandboxed.add, 1, 2)
    end.touch()
    waiting.join(60)
    slow.join(60)
    assert begun == [3] and not sandbox._CLIENTS


def test_the_largest_honest_runs_fit_the_limits():
    assert limits_for(57_132, 7).rows <= MAX_ANSWERS and limits_for(352, 1_000)
    for questions, samples in (
        (352, 4_000_000),
        (57_132, 100),
        (1, 0),
        (1, 10_001),
        (352, -1),
        (352, 2**62),
    ):
        with pytest.raises(BadInput, match=r"accepts at most|must be between"):
            limits_for(questions, samples)
    assert limits_for(57_132).unpacked > 57_132 * 16_000


def test_large_arguments_and_results_are_complete():
    data = random.Random(1).randbytes(12_000_000)
    assert run_sandboxed(within(20, 60), sandboxed.add, data, b"!") == data + b"!"


def test_oversized_datasets_are_refused_before_download(owner, local_hub, monkeypatch):
    stranger = HfApi(endpoint=local_hub.endpoint, token=READER)
    repo = f"{stranger.whoami()['name']}/set"
    stranger.create_repo(repo, repo_type="dataset")
    benchmark = Benchmark(name="set", format="mediconfusion", repo=repo, split="test", questions=2)
    for path, words in (
        ("questions/test.parquet", "no config questions_text"),
        ("questions_text/t.parquet", "too large"),
    ):
        added = [CommitOperationAdd(path, b"PAR1" * 1000)]
        commit = stranger.create_commit(repo, added, commit_message="x", repo_type="dataset").oid
        local_hub.record.clear()
        monkeypatch.setattr(dataset_lookup, "MAX_DATASET_BYTES", 1000)
        with pytest.raises(BadInput, match=words):
            find_dataset(benchmark.model_copy(update={"revision": commit}), owner="ORG")
        assert not local_hub.record.requests(path="/resolve/")
