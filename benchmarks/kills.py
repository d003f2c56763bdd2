"""Kill a run with SIGKILL at 50 random moments, then let it finish: is every answer there once,
unchanged, and are the scores those of an undisturbed run? Then the same with two processes that
come late, are killed and come back, one or both at a time. (The tests do it a few times.)

    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/kills.py
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.chaos import warm
from tests.processes import Process


def journaled(run: Path) -> dict[tuple[str, int], str]:
    """The whole lines of every journal of a run. A journal that another process puts together
    meanwhile is read there.
    """
    while True:
        statuses: dict[tuple[str, int], str] = {}
        try:
            for path in sorted(run.glob("answers*.jsonl"), reverse=True):
                data = path.read_bytes()
                for line in map(json.loads, data.splitlines()[: data.count(b"\n")]):
                    assert (
                        statuses.setdefault((line["question_id"], line["sample"]), line["response"]) == line["response"]
                    )
        except FileNotFoundError:
            continue
        return statuses


def scores(run: Path) -> Any:
    return json.loads((run / "result.json").read_text())["scores"]


class Runs:
    """Runs of one command by one process or by two."""

    def __init__(self, folder: Path, samples: int) -> None:
        self.folder = folder
        self.arguments = ["eval", "probmed", "--model", "tiny", "--samples", str(samples), "--batch-size", "4", "--out"]
        begun = time.perf_counter()
        self.finish(["calm"], (0,), 1)
        self.seconds = time.perf_counter() - begun
        self.calm = journaled(folder / "calm")

    def start(self, out: list[str], rank: int, world: int) -> Process:
        ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)} if world > 1 else {}
        return warm.start([*self.arguments, *out], self.folder, **ranks)

    def finish(self, out: list[str], ranks: tuple[int, ...], world: int) -> None:
        for process in [self.start(out, rank, world) for rank in ranks]:
            assert process.wait(3600) == 0, process.output_file.read_text()

    def kill(self, name: str, world: int, kills: int) -> None:
        """Start `world` processes or fewer, in any order, kill one or all of them, and so on; then
        let them finish.
        """
        run, chance = self.folder / name, random.Random(50)
        earlier: dict[tuple[str, int], str] = {}
        done, total = 0, len(self.calm)
        while done < kills:
            started = []
            for rank in chance.sample(range(world), chance.randrange(1, world + 1)):
                started.append(self.start([name], rank, world))
                time.sleep(chance.uniform(0, self.seconds / 20) if world > 1 else 0)
            goal = len(earlier) + chance.randrange(0, max(2, 2 * (total - len(earlier)) // kills))
            deadline = time.perf_counter() + chance.uniform(0, 2 * self.seconds)
            while any(process.poll() is None for process in started) and len(journaled(run)) <= goal:
                if time.perf_counter() > deadline:
                    break
                time.sleep(0.002)
            victims = chance.sample(started, chance.randrange(1, len(started) + 1))
            for process in (*victims, *started):  # others are killed a little later
                done += process in victims and process.poll() is None
                process.kill()
                process.wait()
                time.sleep(chance.uniform(0, self.seconds / 20) if process is victims[-1] and world > 1 else 0)
            current = journaled(run)
            assert earlier.items() <= current.items(), "a journaled answer was lost or changed"
            earlier = current
        answers_before = len(earlier)
        self.finish([name], tuple(reversed(range(world))), world)
        lines = [json.loads(line) for line in (run / "answers.jsonl").read_text().splitlines()]
        answered = [(line["question_id"], line["sample"]) for line in lines]
        assert sorted(answered) == sorted(self.calm), "an answer is missing or there twice"
        assert earlier.items() <= journaled(run).items(), "a journaled answer was lost or changed"
        assert scores(run) == scores(self.folder / "calm"), "the scores differ"
        print(
            f"processes: {world}; {done} kills, {answers_before} of {total} answers journaled by "
            "then: each answer once, unchanged; same scores, "
            "sampled answers too"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--samples", type=int, default=4)
    options = parser.parse_args()
    from dataset_builders.build import build
    from eval_harness.models.local.tiny_vlm import make_tiny_vlm

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build("probmed", out=folder / "data" / "probmed")
        make_tiny_vlm(folder / "tiny")
        runs = Runs(folder, options.samples)
        runs.kill("killed", 1, options.kills)
        runs.kill("pair", 2, options.kills)


if __name__ == "__main__":
    main()
