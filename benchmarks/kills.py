"""Kill a run with SIGKILL at 50 random moments, then let it finish: is every answer there once, unchanged, and are the scores those of
an undisturbed run? Then the same with two processes that come late, are killed and come back, one or both at a time. (The tests do it a
few times.)

    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/kills.py
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import tempfile
import time
from pathlib import Path

from tests.chaos import warm


def lines(run: Path) -> list[bytes]:
    """The whole lines of a journal."""
    path = run / "answers.jsonl"
    return path.read_bytes().splitlines(keepends=True)[: path.read_bytes().count(b"\n")] if path.exists() else []


def finish(arguments: list[str], folder: Path) -> float:
    start = time.perf_counter()
    process = warm.start(arguments, folder)
    assert process.wait(3600) == 0, process.said.read_text()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--samples", type=int, default=4)
    kills, samples = vars(parser.parse_args()).values()
    from dataset_builders.build import build
    from eval_harness.models.local.tiny_vlm import make_tiny_vlm

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build("probmed", out=folder / "data" / "probmed")
        make_tiny_vlm(folder / "tiny")
        arguments = ["eval", "probmed", "--model", "tiny", "--samples", str(samples), "--batch-size", "4", "--out"]
        calm = finish([*arguments, "calm"], folder)
        total, run, chance = len(lines(folder / "calm")), folder / "killed", random.Random(50)
        kept: list[bytes] = []
        for _ in range(kills):
            goal = len(kept) + chance.randrange(0, max(2, 2 * (total - len(kept)) // kills))
            process = warm.start([*arguments, "killed"], folder)
            deadline = time.perf_counter() + chance.uniform(0, 2 * calm)
            while process.poll() is None and len(lines(run)) <= goal and time.perf_counter() < deadline:
                time.sleep(0.002)
            process.kill()
            assert process.wait() in (-signal.SIGKILL, 0)
            now = lines(run)
            assert now[: len(kept)] == kept, "a journaled answer was lost or changed"
            kept = now
        before = len(kept)
        finish([*arguments, "killed"], folder)
        answered = [(line["question_id"], line["sample"]) for line in map(json.loads, lines(run))]
        assert len(answered) == len(set(answered)) == total, "an answer is missing or there twice"
        ours, theirs = (json.loads((folder / each / "result.json").read_text()) for each in ("killed", "calm"))
        assert ours["scores"] == theirs["scores"], "the scores differ"
        print(
            f"one process: {kills} kills, {before} of {total} answers journaled by then: each answer once, unchanged; same scores, "
            "sampled answers too"
        )
        two_processes(arguments[:-1], folder, kills, total, calm)


def journaled(run: Path) -> dict[tuple[str, int], str]:
    """The whole lines of every journal of a run. A journal that another process puts together meanwhile is read there."""
    while True:
        found: dict[tuple[str, int], str] = {}
        try:
            for path in sorted(run.glob("answers*.jsonl"), reverse=True):
                data = path.read_bytes()
                for line in map(json.loads, data.splitlines()[: data.count(b"\n")]):
                    assert found.setdefault((line["question_id"], line["sample"]), line["response"]) == line["response"]
        except FileNotFoundError:
            continue
        return found


def two_processes(arguments: list[str], folder: Path, kills: int, total: int, calm: float) -> None:
    run, chance = folder / "pair", random.Random(2)
    arguments = [*arguments, "--out", "pair"]
    kept: dict[tuple[str, int], str] = {}
    done = 0
    while done < kills:
        ranks = chance.choice([(0, 1), (1, 0), (0,), (1,)])
        started = []
        for rank in ranks:
            started.append(warm.start(arguments, folder, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2"))
            time.sleep(chance.uniform(0, calm / 20))
        goal = len(kept) + chance.randrange(0, max(2, 2 * (total - len(kept)) // kills))
        deadline = time.perf_counter() + chance.uniform(0, calm)
        while (
            any(each.poll() is None for each in started)
            and len(journaled(run)) <= goal
            and time.perf_counter() < deadline
        ):
            time.sleep(0.005)
        for process in chance.sample(started, chance.randrange(1, len(started) + 1)):
            process.kill()
            done += 1
        time.sleep(chance.uniform(0, calm / 20))
        for process in started:
            process.kill()
            process.wait()
        now = journaled(run)
        assert kept.items() <= now.items(), "a journaled answer was lost or changed"
        kept = now
    last = [warm.start(arguments, folder, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2") for rank in (1, 0)]
    for process in last:
        assert process.wait(3600) == 0, process.said.read_text()
    answered = [(line["question_id"], line["sample"]) for line in map(json.loads, lines(run))]
    assert len(answered) == len(set(answered)) == total, "an answer is missing or there twice"
    assert kept.items() <= journaled(run).items(), "a journaled answer was lost or changed"
    ours, theirs = (json.loads((folder / each / "result.json").read_text()) for each in ("pair", "calm"))
    assert ours["scores"] == theirs["scores"], "the scores differ"
    print(
        f"two processes: {done} kills, {len(kept)} of {total} answers journaled by then: none lost or changed; same scores"
    )


if __name__ == "__main__":
    main()
