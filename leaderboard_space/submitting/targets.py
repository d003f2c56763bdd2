"""Sets of questions that accept answers: the trusted datasets, and the sets that the store itself keeps.

See also: reading what was handed in (`intake.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from eval_harness.records.result import Benchmark
from leaderboard_space.benchmarks import LABELS
from leaderboard_space.data.board import Board
from leaderboard_space.data.outcomes import read_questions
from leaderboard_space.data.store.trusted_data import TrustedData, TrustedSplit
from leaderboard_space.html import plural


@dataclass(frozen=True)
class Target:
    """A set of questions to hand in answers for. `questions` reads them, and raises BadInput where it cannot.

    `partial`: what the dataset lacks of the official one, None if nothing. `trusted`: the board's owner vouches for the dataset.
    """

    key: str
    label: str
    benchmark: Benchmark
    questions: Callable[[], pd.DataFrame]
    partial: str | None
    trusted: bool


def targets(board: Board, trusted: TrustedData) -> dict[str, Target]:
    """The targets by their keys, those of the trusted datasets first. A set that both know is the trusted one."""
    found = {}
    seen = set()
    for split in trusted.splits:
        if split.has_answers:
            target = _of_dataset(split)
            found[target.key] = target
            seen.add(split.benchmark.fingerprint)
    for sections in board.snapshot.sections.values():
        for section in sections:
            if section.kind == "retired" or section.fingerprint is None or section.fingerprint in seen:
                continue
            first = next((entry.result.benchmark for entry in section.entries if entry.result.kind == "measured"), None)
            if first is None or first.selection is not None or board.store is None:
                continue
            path = board.questions_path(section.fingerprint)
            if path is not None and path.is_file():
                seen.add(section.fingerprint)
                key = f"store:{section.fingerprint}"
                expected = section.fingerprint
                found[key] = Target(
                    key,
                    _label(first),
                    first,
                    lambda path=path, expected=expected: read_questions(path, expected),  # type: ignore[misc]
                    None,
                    trusted=False,
                )
    return found


def _of_dataset(split: TrustedSplit) -> Target:
    benchmark = split.benchmark
    return Target(
        key=f"{benchmark.repo}@{benchmark.split}",
        label=_label(benchmark),
        benchmark=benchmark,
        questions=lambda: split.repository.questions(benchmark.split),
        partial=split.repository.partial,
        trusted=True,
    )


def _label(benchmark: Benchmark) -> str:
    """In words: `GMAI-MMBench, validation, 22 questions (custom)`."""
    name = LABELS[benchmark.family] if benchmark.name == benchmark.family else benchmark.name
    kind = {None: "", "official": "", "phantom": " (phantoms)", "custom": " (custom)"}[benchmark.origin]
    part = f", {benchmark.selection}" if benchmark.selection else ""
    return f"{name}, {benchmark.split}, {plural(benchmark.questions, 'question')}{part}{kind}"
