"""What runs in the sandbox ends within its envelope, takes all it started with it, and says what became of it."""

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_builders.errors import BadInput, Unavailable
from eval_harness.records.limits import MOST_ANSWERS, check_size, most_bytes
from eval_harness.submissions.untrusted import sandbox
from eval_harness.submissions.untrusted.envelope import Envelope, envelope
from eval_harness.submissions.untrusted.sandbox import OverLimit, SandboxError, call
from tests.eval_harness.submissions.untrusted import sandboxed

SMALL = Envelope(memory=256 << 20, cpu_seconds=2, wall_seconds=250)  # on the clock: whatever a busy machine takes
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="rlimits as Linux has them")


def test_what_is_honest_returns_and_what_is_wrong_is_told(monkeypatch, tmp_path):
    assert call(SMALL, sandboxed.add, 1, two=[2][0]) == 3
    with pytest.raises(Unavailable, match="come back later"):
        call(SMALL, sandboxed.refuses)
    with pytest.raises(SandboxError, match="KeyError: 'nothing'"):
        call(SMALL, sandboxed.defect)
    monkeypatch.setenv("MARK", "here")
    monkeypatch.chdir(tmp_path)
    mark, folder, process = call(SMALL, sandboxed.environment)
    assert (mark, folder) == ("here", tmp_path) and process != os.getpid()


@pytest.mark.parametrize("hostile", [sandboxed.memory, sandboxed.spin, sandboxed.swallow, sandboxed.exits])
def test_what_takes_too_much_is_ended(hostile):
    with pytest.raises(OverLimit, match="256 MB of memory and 2 s of computing"):
        call(SMALL, hostile)
    assert call(SMALL, sandboxed.add, 1, 1) == 2


def test_the_clock_ends_what_only_waits_and_all_it_started(tmp_path):
    quick = Envelope(1 << 30, 10, 1)
    with pytest.raises(Unavailable, match="later"):  # waiting says nothing about what was to be read
        call(quick, sandboxed.sleep_in_a_child)
    assert call(SMALL, sandboxed.marks, tmp_path / "mark") == 1
    time.sleep(3)
    assert not (tmp_path / "mark").exists()


def test_a_process_that_is_killed_leaves_none_of_these_behind():
    script = (
        "from tests.eval_harness.submissions.untrusted import sandboxed\n"
        "from eval_harness.submissions.untrusted.envelope import Envelope\n"
        "from eval_harness.submissions.untrusted.sandbox import call\n"
        "print(call(Envelope(1 << 30, 9, 60), sandboxed.environment)[2], flush=True)\n"
        "call(Envelope(1 << 30, 90, 600), sandboxed.spin)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[4]
    )
    assert parent.stdout is not None
    first = int(parent.stdout.readline())
    forker = parent_of(first) if Path(f"/proc/{first}").exists() else None
    time.sleep(0.5)
    mine = descendants(parent.pid)
    assert mine
    parent.kill()
    parent.wait()
    for _ in range(100):
        if not any(Path(f"/proc/{pid}").exists() and state(pid) != "Z" for pid in mine):
            break
        time.sleep(0.1)
    else:
        pytest.fail(f"still there: {mine}, forker {forker}")


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


def descendants(pid):
    """Processes below `pid`."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = parent_of(int(entry.name))
            except OSError:
                continue
    found, below = set(), {pid}
    while below:
        below = {child for child, parent in parents.items() if parent in below}
        found |= below
    return found


def test_many_threads_at_once_each_get_their_own_answer():
    found = {}

    def one(number):
        found[number] = call(SMALL, sandboxed.add, number, number)

    threads = [threading.Thread(target=one, args=[number]) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: 2 * number for number in range(20)}


def test_large_submissions_hold_up_no_small_one(monkeypatch, tmp_path):
    monkeypatch.setattr(sandbox, "LANES", ((1 << 20, 2, 100), (16 << 20, 1, 2), (1 << 62, 1, 4)))
    end = tmp_path / "end"
    threads = [threading.Thread(target=sandbox.in_turn, args=[5 << 20, 100, sandboxed.wait_for, end]) for _ in range(3)]
    for thread in threads:
        thread.start()
    while sandbox._WAITING[1] < len(threads):
        time.sleep(0.01)
    assert sandbox.in_turn(1000, 100, sandboxed.add, 1, 2) == 3
    assert all(thread.is_alive() for thread in threads), "the first of them has not ended"
    with pytest.raises(Unavailable, match="Come back"):
        sandbox.in_turn(5 << 20, 100, sandboxed.add, 1, 2)
    end.touch()
    for thread in threads:
        thread.join()
    assert sandbox.in_turn(5 << 20, 100, sandboxed.add, 1, 2) == 3


@given(st.integers(1, 60_000), st.integers(1, 200), st.integers(0, 2 << 30), st.integers(0, 2 << 30))
@settings(max_examples=100)
def test_envelopes_grow_with_what_is_asked(questions, samples, size, more):
    little, much = envelope(size, questions), envelope(size + more, questions)
    assert all(getattr(little, name) <= getattr(much, name) for name in ("memory", "cpu_seconds", "wall_seconds"))
    assert little.memory > 8 * size
    assert most_bytes(questions, samples) >= min(questions * samples * 16_000, 2 << 30)


def test_the_largest_honest_runs_fit_and_absurd_ones_are_told():
    check_size(57_132, 17)
    check_size(352, 2_000)
    for questions, samples in ((352, 4_000_000), (57_132, 100), (1, 0), (1, 10_001), (352, -1), (352, 2**62)):
        with pytest.raises(BadInput, match="a store takes"):
            check_size(questions, samples)
    assert most_bytes(57_132) > 57_132 * 16_000 and MOST_ANSWERS >= 10 * 57_132


def test_the_process_that_forks_is_replaced_when_it_is_ended():
    call(SMALL, sandboxed.add, 1, 1)
    process = sandbox._FORKER._process
    assert process is not None
    process.kill()
    process.wait()
    assert call(SMALL, sandboxed.add, 2, 2) == 4


@pytest.mark.parametrize("seed", range(5))
def test_large_arguments_and_results_arrive_whole(seed):
    data = random.Random(seed).randbytes(3_000_000 * seed)
    assert call(Envelope(1 << 30, 20, 60), sandboxed.add, data, b"!") == data + b"!"


def test_a_dataset_whose_card_leads_elsewhere_is_refused_before_anything_is_fetched(owner, local_hub):
    """A small Parquet file that unpacks to gigabytes, outside questions_text and named by the card's configs."""
    from huggingface_hub import CommitOperationAdd, HfApi

    from eval_harness.records.result import Benchmark
    from eval_harness.submissions.datasets import dataset_for
    from tests.localhub.accounts import READER

    stranger = HfApi(endpoint=local_hub.endpoint, token=READER)
    repo = f"{stranger.whoami()['name']}/set"
    stranger.create_repo(repo, repo_type="dataset")
    card = b"---\nconfigs:\n- config_name: questions_text\n  data_files:\n  - split: test\n    path: data/evil.parquet\n---\n"
    files = {
        "README.md": card,
        "data/evil.parquet": b"PAR1" * 1000,
        "questions_text/test-00000-of-00001.parquet": b"PAR1" * 10,
    }
    operations = [CommitOperationAdd(path, content) for path, content in files.items()]
    commit = stranger.create_commit(repo, operations, commit_message="x", repo_type="dataset").oid
    local_hub.record.clear()
    benchmark = Benchmark(name="set", format="mediconfusion", repo=repo, revision=commit, split="test", questions=2)
    with pytest.raises(BadInput, match=r"its card names 'data/evil\.parquet'"):
        dataset_for(benchmark, owner="ORG")
    assert not local_hub.record.of(path="/resolve/.*evil")
