"""Kills a run with SIGKILL at 50 random moments, then lets it finish: is every answer there once, unchanged, and are the scores those of
an undisturbed run? (The tests do it 5 times.)

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
    process.join()
    assert process.exitcode == 0, warm.said(process, folder)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--samples", type=int, default=4)
    kills, samples = vars(parser.parse_args()).values()
    from dataset_builders.build import build
    from eval_harness.models.tiny_vlm import make_tiny_vlm

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
            patience = time.perf_counter() + chance.uniform(0, 2 * calm)
            while process.is_alive() and len(lines(run)) <= goal and time.perf_counter() < patience:
                time.sleep(0.002)
            process.kill()
            process.join()
            assert process.exitcode in (-signal.SIGKILL, 0)
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
            f"{kills} kills, {before} of {total} answers journaled by then: each answer once, unchanged; same scores, sampled answers too"
        )


if __name__ == "__main__":
    main()
