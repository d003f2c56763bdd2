"""Measure what hostile uploads cost the process that serves the board, and the one in which they are read.

    python benchmarks/leaderboard_space/hostile_uploads.py [--only parquet] [--generated 50 --seed 1]

Each file of the tests' corpus, each hostile run.json, and each thing that a reader looks for said over and over, goes through what the
Submit page calls. Prints seconds, the growth of this process and the most memory of the process that reads (MB), and the line that was
said; a harmless file comes first. `--generated`: so many files more, damaged at random. Figures: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

SAMPLED = 0.02
"""Seconds between two looks at the memory of the processes below."""


def main() -> None:
    from eval_harness.store import sandbox
    from tests.eval_harness.store.submitting import phantom, run_folder

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--generated", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        workdir = Path(temporary)
        data = phantom("mediconfusion", workdir / "mediconfusion")
        run = run_folder(data, workdir / "run")
        target = _target(data)
        sandbox.start()
        _received([run / "run.json", run / "answers.jsonl"], target)  # the libraries are loaded once
        rows = []
        for name, write in _uploads(run, data, options.generated, options.seed):
            if options.only not in name:
                continue
            upload = workdir / "upload"
            upload.mkdir()
            files = _written(write, upload)
            start, before = time.perf_counter(), _memory(os.getpid(), "VmRSS")
            with _most_memory_below() as most:
                said = _received(files, target)
            seconds, grown = time.perf_counter() - start, max(0, _memory(os.getpid(), "VmRSS") - before)
            rows.append((seconds, grown, most[0]))
            print(
                f"{seconds:7.2f} s {grown:5d} MB {most[0]:5d} MB  {name:40s} {said.replace(temporary, '')[:100]}",
                flush=True,
            )
            for path in upload.iterdir():
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            upload.rmdir()
        alone, beside, ended = _beside_large_ones(workdir, run, data, target)
        print(
            f"an honest upload takes {alone:.2f} s alone, and {beside:.2f} s beside two large hostile ones, which end after {ended:.2f} s"
        )
        worst = [max(row[column] for row in rows) for column in range(3)]
        print(
            f"{len(rows)} uploads; at most {worst[0]:.2f} s, {worst[1]} MB here, {worst[2]} MB in the process that reads"
        )


def _uploads(run: Path, data: Path, generated: int, seed: int) -> Iterator[tuple[str, Callable[[Path], Any]]]:
    """(name, what writes the files of an upload into a folder)."""
    from tests.eval_harness.store.submitting import responses
    from tests.eval_harness.store.untrusted.hostile import FILES, REPEATED, run_jsons, spoken
    from tests.helpers import write_lines

    def alone(write: Callable[[Path], Any]) -> Callable[[Path], Any]:
        return lambda folder: write(folder / "answers.jsonl")

    def with_run(content: bytes) -> Callable[[Path], Any]:
        def write(folder: Path) -> None:
            (folder / "run.json").write_bytes(content)
            (folder / "answers.jsonl").write_bytes((run / "answers.jsonl").read_bytes())

        return write

    yield "(harmless)", alone(lambda path: write_lines(path, responses(data)))
    for name, write in FILES.items():
        yield name, alone(write)
    for name, content in run_jsons(json.loads((run / "run.json").read_text())).items():
        yield f"run.json: {name}", with_run(content)
    for text in REPEATED:
        content = spoken(text, 2_900_000)
        yield f"over and over: {text!r}", alone(lambda path, content=content: path.write_bytes(content))
        lines = b"".join(
            json.dumps({**record, "response": text * (90_000 // len(text))}).encode() + b"\n"
            for record in responses(data)
        )
        yield f"in every answer: {text!r}", alone(lambda path, lines=lines: path.write_bytes(lines))
    draw = random.Random(seed)
    whole = [
        (run / "run.json").read_bytes(),
        (run / "answers.jsonl").read_bytes(),
        (run / "answers.parquet").read_bytes(),
    ]
    for number in range(generated):
        content = bytearray(draw.choice(whole))
        for _ in range(draw.choice((1, 5, 50))):
            content[draw.randrange(len(content))] = draw.randrange(256)
        damaged = bytes(content)
        write = alone(lambda path, damaged=damaged: path.write_bytes(damaged))
        yield f"damaged {number}", write if draw.random() < 0.5 else with_run(damaged)


def _beside_large_ones(workdir: Path, run: Path, data: Path, target: Any) -> tuple[float, float, float]:
    """Seconds that an honest run folder takes alone, beside two large uploads, and that those take."""
    from tests.eval_harness.store.submitting import responses
    from tests.eval_harness.store.untrusted.hostile import REPEATED, spoken

    def timed(files: list[Path]) -> float:
        begun = time.perf_counter()
        _received(files, target)
        return time.perf_counter() - begun

    honest = [run / "run.json", run / "answers.jsonl"]
    alone = timed(honest)
    large = []
    for number, size in enumerate((2_900_000, 40_000_000)):  # one of each lane for large ones
        folder = workdir / f"large-{number}"
        folder.mkdir()
        records = responses(data)
        text = spoken(REPEATED[number % len(REPEATED)], size // len(records)).decode("utf-8", "replace")
        lines = (json.dumps({**record, "response": text}) + "\n" for record in records)
        (folder / "answers.jsonl").write_text("".join(lines))
        large.append(folder / "answers.jsonl")
    ended: list[float] = []
    threads = [threading.Thread(target=lambda path=path: ended.append(timed([path]))) for path in large]
    for thread in threads:
        thread.start()
    time.sleep(1)
    beside = timed(honest)
    for thread in threads:
        thread.join()
    return alone, beside, max(ended)


def _written(write: Callable[[Path], Any], folder: Path) -> list[Path]:
    """The files of an upload, made in a process of its own: what they take to write is not what they take to read."""
    writer = os.fork()
    if writer == 0:
        write(folder)
        os._exit(0)
    os.waitpid(writer, 0)
    return sorted(folder.iterdir())


def _target(data: Path) -> Any:
    from leaderboard_space.data.store.trusted_data import TrustedData
    from leaderboard_space.submitting.targets import _of_dataset

    trusted = TrustedData([str(data)])
    trusted.refresh()
    return _of_dataset(trusted.splits[0])


def _received(files: list[Path], target: Any) -> str:
    from dataset_builders.errors import BadInput
    from leaderboard_space.submitting.intake import receive

    try:
        found = receive(files, target, "Model")
    except BadInput as error:
        return str(error)
    except OSError as error:  # a pipe or a link, which no browser uploads
        return f"({type(error).__name__})"
    return found.problems[0] if found.problems else "accepted"


@contextmanager
def _most_memory_below() -> Iterator[list[int]]:
    """[the most memory (MB) that any process below this one held meanwhile]."""
    most, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(SAMPLED):
            most[0] = max([most[0], *(_memory(pid, "VmHWM") for pid in _below(os.getpid()))])

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield most
    finally:
        over.set()
        watcher.join()


def _below(pid: int) -> set[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
    found: set[int] = set()
    below = {pid}
    while below:
        below = {child for child, parent in parents.items() if parent in below}
        found |= below
    return found


def _memory(pid: int, what: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) >> 10 for line in lines if line.startswith(what)), 0)


if __name__ == "__main__":
    main()
