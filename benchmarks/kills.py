"""Kill a run with SIGKILL at 50 random moments, finish it, and compare it with an undisturbed run.

Every answer must be there once and unchanged, and the scores must be equal. Then repeat the test
with two processes of one run, which start late, are killed and restarted, one or both at a time.
(The tests do the same with a few kills.)

    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/kills.py
"""

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
    """Read the complete lines of all journals of a run: (question id, sample) -> response.

    Starts again if a journal disappears meanwhile because another process has merged it.
    """
    while True:
        statuses: dict[tuple[str, int], str] = {}
        try:
            for path in sorted(run.glob("answers*.jsonl"), reverse=True):
                data = path.read_bytes()
                # A kill may leave a last line without a newline: it was never acknowledged, so skip
                # it.
                for line in map(json.loads, data.splitlines()[: data.count(b"\n")]):
                    assert (
                        statuses.setdefault((line["question_id"], line["sample"]), line["response"]) == line["response"]
                    )
        except FileNotFoundError:
            continue
        return statuses


def scores(run: Path) -> Any:
    """Return the scores in a run's `result.json`."""
    return json.loads((run / "result.json").read_text())["scores"]


class Runs:
    """Start, kill and finish runs of one `medprobe eval` command, by one process or by two."""

    def __init__(self, folder: Path, samples: int) -> None:
        """Finish an undisturbed run: the expected answers, and the time scale of the kills."""
        self.folder = folder
        self.arguments = ["eval", "probmed", "--model", "tiny", "--samples", str(samples), "--batch-size", "4", "--out"]
        begun = time.perf_counter()
        self.finish(["calm"], (0,), 1)
        self.seconds = time.perf_counter() - begun
        self.calm = journaled(folder / "calm")

    def start(self, out: list[str], rank: int, world: int) -> Process:
        """Start one process of a run of `world` processes."""
        ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)} if world > 1 else {}
        return warm.start([*self.arguments, *out], self.folder, **ranks)

    def finish(self, out: list[str], ranks: tuple[int, ...], world: int) -> None:
        """Start the given ranks and wait until all of them have succeeded."""
        for process in [self.start(out, rank, world) for rank in ranks]:
            assert process.wait(3600) == 0, process.output_file.read_text()

    def kill(self, name: str, world: int, kills: int) -> None:
        """Start some of the `world` processes, kill some of them, repeat; then finish the run."""
        run, chance = self.folder / name, random.Random(50)
        earlier: dict[tuple[str, int], str] = {}
        done, total = 0, len(self.calm)
        while done < kills:
            started = []
            for rank in chance.sample(range(world), chance.randrange(1, world + 1)):
                started.append(self.start([name], rank, world))
                time.sleep(chance.uniform(0, self.seconds / 20) if world > 1 else 0)
            # Kill after a random number of new answers, so that the kills are spread over the whole
            # run.
            goal = len(earlier) + chance.randrange(0, max(2, 2 * (total - len(earlier)) // kills))
            # There may be no new answer, for example while a process starts: kill it after a while
            # anyway.
            deadline = time.perf_counter() + chance.uniform(0, 2 * self.seconds)
            while any(process.poll() is None for process in started) and len(journaled(run)) <= goal:
                if time.perf_counter() > deadline:
                    break
                time.sleep(0.002)
            victims = chance.sample(started, chance.randrange(1, len(started) + 1))
            # The others survive the victims for a moment, then they are killed too (but not
            # counted).
            for process in (*victims, *started):
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
            f"{world} process(es), {done} kills, {answers_before} of {total} answers journaled before the "
            "last start: every answer is there once and unchanged, "
            "and the scores are the same"
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
