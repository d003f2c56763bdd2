"""Submit a ProbMed-sized run with pages of reasoning, from `eval` to the board; time each step.

    python benchmarks/submissions/long_reasoning.py --benchmark gmai-mmbench
        --questions 57132 --reasoning 4000

The questions are phantoms repeated under new ids; the reasoning is random words, different for each
question. Prints seconds, the peak memory of this process and of its children (MB), and the sizes of
the files (MB).
"""

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pandas as pd

from dataset_builders.benchmarks import DEFAULT_SPLITS
from dataset_builders.build import build
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import run_evaluation
from eval_harness.store.submit import submit_to_store
from eval_harness.store.verification import verify
from leaderboard_space.data.board import Board, TrustedData

PLUG_IN = """
import random
from eval_harness.records.request import Response
from eval_harness.records.result import Model

WORDS = [f"{{a}}{{b}}" for a in ("car", "pul", "med", "tho", "ver", "cos") for b in ("dio", "mon", "ias", "rac", "teb", "tal")]

class Thinker:
    needs_images = False
    one_token = False
    deviations = []

    def __init__(self, settings):
        self.model = Model(name="Thinker", kind="open")

    def describe(self):
        return {{}}

    def generate(self, requests):
        for request in requests:
            draw = random.Random(request.question_id)
            reasoning = " ".join(draw.choices(WORDS, k={words}))
            yield Response(request.question_id, request.sample, draw.choice(request.options), seconds=1.0, reasoning=reasoning)
"""
"""A model that answers at once, with `words` random words of reasoning."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--benchmark", default="probmed", choices=sorted(DEFAULT_SPLITS))
    parser.add_argument("--questions", type=int, default=57_132)
    parser.add_argument("--reasoning", type=int, default=4_000, help="characters for each question")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        build(args.benchmark, out=folder / "data", text_only=True)
        _enlarge(folder / "data", DEFAULT_SPLITS[args.benchmark], args.questions)
        # A word and its blank have seven characters.
        (folder / "plug_in.py").write_text(PLUG_IN.format(words=args.reasoning // 7))
        data, store, run = str(folder / "data"), folder / "store", folder / "run"
        config = EvalConfig(args.benchmark, f"{folder}/plug_in.py:Thinker", data, out=run)
        _timed("eval", lambda: run_evaluation(config))
        done = _timed("submit", lambda: submit_to_store(run, store, data=data))
        outcomes = _timed("verify", lambda: verify(str(store), data=[data]))
        trusted = TrustedData([data])
        trusted.refresh()
        board = _timed("board", lambda: Board(store, trusted=trusted))
        n_shown = sum(len(section.entries) for sections in board.snapshot.sections.values() for section in sections)
        sizes = {
            path.name: path.stat().st_size / 1e6 for path in [run / "answers.jsonl", *Path(done.location).iterdir()]
        }
        print(f"{outcomes[0]}; {n_shown} result on the board")
        print(", ".join(f"{name} {size:.1f} MB" for name, size in sizes.items()))


def _enlarge(data: Path, split: str, count: int) -> None:
    """Repeat the questions of a dataset until there are `count`, with new question and case ids."""
    (path,) = data.glob(f"questions_text/{split}*.parquet")
    questions = pd.read_parquet(path)
    parts = []
    for number in range(-(-count // len(questions))):
        names = {name: questions[name].astype(str) + f"x{number}" for name in ("question_id", "case_id")}
        parts.append(questions.assign(**names))
    pd.concat(parts).head(count).to_parquet(path, index=False)


def _timed(step_name: str, step: Callable[[], Any]) -> Any:
    """Run a step; print its seconds and the peak memory so far, here and in child processes."""
    start = time.perf_counter()
    outcome = step()
    own_mb, children_mb = (
        resource.getrusage(scope).ru_maxrss >> 10 for scope in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    print(
        f"{step_name:8s} {time.perf_counter() - start:6.1f} s, {own_mb:5d} MB here, {children_mb:5d} MB below",
        flush=True,
    )
    return outcome


if __name__ == "__main__":
    main()
