"""No answer is lost: kill -9 at random moments, a server that misbehaves, full disks, several
processes.
"""

import json
import random
import signal
import time
from pathlib import Path

import pytest

from tests.chaos import warm
from tests.chaos.server import ChaosServer
from tests.commands import medprobe
from tests.processes import start
from tests.sampling import few

ROOT = Path(__file__).resolve().parents[3]
LOCAL = ("eval", "mediconfusion", "--model", "tiny", "--batch-size", 3, "--max-tokens", 4)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory, phantoms):
    from eval_harness.models.local.tiny_vlm import make_tiny_vlm

    folder = tmp_path_factory.mktemp("interrupted")
    (folder / "data").symlink_to(phantoms)
    make_tiny_vlm(folder / "tiny")
    medprobe("eval", "probmed", "--model", "baseline:chance", "--out", "undisturbed", cwd=folder)
    return folder


def answers(run):
    path = run / "answers.jsonl"
    # The last line may be half written at the moment.
    complete_lines = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    return [json.loads(line) for line in complete_lines.splitlines()]


def scores(run):
    document = json.loads((run / "result.json").read_text())
    return {"scores": document["scores"], "statuses": document["statuses"]}


def killed(arguments, cwd, run, at):
    """Start, kill -9 when the journal has grown by `at` lines, return what was journaled."""
    answers_at_start = len(answers(run))
    process = warm.start(arguments, cwd, slow_after=at)
    while process.poll() is None and len(answers(run)) < answers_at_start + at:
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -signal.SIGKILL, process.output_file.read_text()
    return answers(run)


def warmly(*arguments, cwd):
    process = warm.start(arguments, cwd)
    assert process.wait() == 0, process.output_file.read_text()


def one_each(run):
    answer_ids = [(line["question_id"], line["sample"]) for line in answers(run) if line["status"] != "failed"]
    assert len(answer_ids) == len(set(answer_ids)), "nothing is answered twice"
    return set(answer_ids)


@pytest.fixture(scope="module")
def calm(workdir):
    """A run of the local model that nothing disturbed."""
    warmly(*LOCAL, "--out", "calm", cwd=workdir)
    return workdir / "calm"


@pytest.mark.exhaustive
def test_killing_a_local_model_loses_nothing_and_changes_nothing(workdir, calm):
    total, run, chance = len(answers(calm)), workdir / "killed", random.Random(2)
    arguments, earlier_answers = (*LOCAL, "--out", run.name), []
    for _ in range(2):
        # Kill at a random answer, but early enough that some are left.
        current_answers = killed(arguments, workdir, run, chance.randrange(1, total // 2))
        assert current_answers[: len(earlier_answers)] == earlier_answers, "what was journaled stays as it was"
        earlier_answers = current_answers
    assert 0 < len(earlier_answers) < total
    warmly(*arguments, cwd=workdir)
    assert one_each(run) == one_each(calm)
    assert answers(run)[: len(earlier_answers)] == earlier_answers
    assert scores(run) == scores(calm)


@pytest.mark.parametrize("stop", few([signal.SIGTERM, signal.SIGINT]))
def test_ctrl_c_and_sigterm_end_in_one_line_and_the_run_goes_on(workdir, stop):
    out = f"stopped-{stop.name}"
    with ChaosServer(delay=0.3) as server:
        arguments = ("eval", "mediconfusion", "--model", "openai:m", "--base-url", server.url, "--out", out)
        process = warm.start((*arguments, "--in-flight", 2), workdir)
        while process.poll() is None and len(answers(workdir / out)) < 3:
            time.sleep(0.01)
        process.send_signal(stop)
        # 130: the exit code of a program that Ctrl-C ended.
        assert process.wait(60) == 130
        errors = process.output_file.read_text()
        assert "run the same command again to resume" in errors
        assert "Traceback" not in errors
        assert not (workdir / out / "result.json").exists(), "what was never asked is not scored"
        earlier_answers = answers(workdir / out)
        server.delay = 0
        medprobe(*arguments, cwd=workdir)
    assert answers(workdir / out)[: len(earlier_answers)] == earlier_answers
    assert len(one_each(workdir / out)) == 28


def test_a_full_disk_is_one_line_and_nothing_is_torn(workdir):
    """A limit on the file size acts like a full disk: writing past it fails in the same way."""
    arguments = ("eval", "probmed", "--model", "baseline:chance", "--out", "full")

    limited = (
        "import resource, signal; from medprobe.__main__ import main; "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY)); main()"
    )
    process = start(limited, *arguments, cwd=workdir)
    assert process.wait() == 2
    errors = process.output_file.read_text()
    assert "cannot be written" in errors
    assert "Traceback" not in errors
    medprobe(*arguments, cwd=workdir)
    assert scores(workdir / "full") == scores(workdir / "undisturbed")


@pytest.mark.exhaustive
def test_two_processes_give_the_result_of_one(workdir, calm):
    started = [
        warm.start((*LOCAL, "--out", "two"), workdir, RANK=rank, LOCAL_RANK=rank, WORLD_SIZE="2") for rank in "01"
    ]
    codes = [process.wait() for process in started]
    outputs = [process.output_file.read_text() for process in started]
    assert codes == [0, 0], outputs
    assert sum("finished its share" in words for words in outputs) <= 1  # both may finish before either looks
    assert scores(workdir / "two") == scores(calm)
    assert one_each(workdir / "two") == one_each(calm)
    assert {p.name for p in (workdir / "two").glob("[!.]*")} == {p.name for p in calm.glob("[!.]*")}
