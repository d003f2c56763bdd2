"""Detect the set of questions that uploaded files answer, so that the submitter need not name it.

See also: reading what was handed in (`intake.py`), the sets (`targets.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dataset_builders.errors import BadInput
from eval_harness.records.limits import FIRST_LOOK, MAX_RUN
from eval_harness.store.answer_files import answered_ids
from eval_harness.store.sandbox import call, in_turn
from eval_harness.store.untrusted import check_file, parse_object
from leaderboard_space.submitting.targets import Target


def target_of(files: Sequence[str | Path], known: Mapping[str, Target], chosen: str | None) -> str | None:
    """The key of the set that files answer: what a run folder names; else, where nothing in the file is an id of the chosen set, the set
    that has most of its ids (of several the smallest). `chosen` where nothing says otherwise, or the files cannot be read."""
    paths = [Path(file) for file in files]
    try:
        benchmark, ids = in_turn(0, "", call, FIRST_LOOK, _said, paths)
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
