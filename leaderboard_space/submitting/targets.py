"""Sets of questions that accept answers: the trusted datasets, and the sets that the store itself keeps.

See also: reading what was handed in (`intake.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.records.limits import FIRST_LOOK, MAX_RUN
from eval_harness.records.result import Benchmark
from eval_harness.store.answer_files import answered_ids
from eval_harness.store.sandbox import call, in_turn
from eval_harness.store.untrusted import check_file, parse_object
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


def target_of(
    files: Sequence[str | Path], known: Mapping[str, Target], chosen: str | None, client: str = ""
) -> str | None:
    """The key of the set that files answer: what a run folder names; else, where nothing in the file is an id of the chosen set, the set
    that has most of its ids (of several the smallest). `chosen` where nothing says otherwise, or the files cannot be read. `client`:
    of whom one is read at a time."""
    paths = [Path(file) for file in files]
    try:
        benchmark, ids = in_turn(client, call, FIRST_LOOK, _said, paths)
        if benchmark is not None:
            return _named(benchmark, known, chosen)
        return _by_ids(set(ids), known, chosen) if ids else chosen
    except (BadInput, OSError):
        return chosen  # scoring says what is wrong


def _said(paths: list[Path]) -> tuple[dict[str, Any] | None, list[str]]:
    """What files say of their questions: the benchmark of a run folder or a result, or ids. Strangers' bytes: called in the sandbox."""
    for path in paths:
        if path.name == "run.json":
            try:
                benchmark = parse_object(_content(path)).get("benchmark")
            except ValueError:
                return None, []
            return benchmark if isinstance(benchmark, dict) else None, []
    return None, answered_ids(paths[0]) if len(paths) == 1 else []


def _content(path: Path) -> bytes:
    check_file(path, MAX_RUN)
    return path.read_bytes()


def _named(benchmark: Mapping[str, Any], known: Mapping[str, Target], chosen: str | None) -> str | None:
    """The set of the same fingerprint, or else of the same name and split."""
    for names in (("fingerprint",), ("name", "split")):
        said = [benchmark.get(name) for name in names]
        found = [key for key, target in known.items() if [getattr(target.benchmark, name) for name in names] == said]
        if found and None not in said:
            return chosen if chosen in found else found[0]
    return chosen


def _by_ids(ids: set[str], known: Mapping[str, Target], chosen: str | None) -> str | None:
    def answered(key: str) -> int:
        try:
            return len(ids.intersection(known[key].questions()["question_id"].astype(str)))
        except BadInput:
            return 0

    if chosen is not None and chosen in known and answered(chosen):
        return chosen
    found = {key: answered(key) for key in known if key != chosen}
    best = max(found, key=lambda key: (found[key], -known[key].benchmark.questions), default=None)
    return best if best is not None and found[best] else chosen
