"""Which set of questions uploaded files answer, so that who brings them need not say it.

See also: reading what was handed in (`intake.py`), the sets (`targets.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dataset_builders.errors import BadInput
from eval_harness.submissions.predictions import answered_ids
from eval_harness.submissions.submission import MAX_RESULT
from eval_harness.submissions.untrusted.envelope import weight
from eval_harness.submissions.untrusted.files import check_file, parse_object
from eval_harness.submissions.untrusted.sandbox import in_turn
from leaderboard_space.submitting.targets import Target

Named = tuple[str | None, str | None, str | None]
"""The fingerprint, name and split of the benchmark that a run folder says it ran."""


def fitting_target(files: Sequence[str | Path], known: Mapping[str, Target], chosen: str | None) -> str | None:
    """The key of the set that files answer: what a run folder names; else, where nothing in the file is an id of the chosen set, the set
    that has most of its ids (of several the smallest). `chosen` where nothing says otherwise, or the files cannot be read."""
    paths = [Path(file) for file in files]
    try:
        named, ids = in_turn(weight(paths), 0, _said, paths)
        if named is not None:
            return _named(named, known, chosen)
        return _by_ids(set(ids), known, chosen) if ids else chosen
    except (BadInput, OSError):
        return chosen  # scoring says what is wrong


def _said(paths: list[Path]) -> tuple[Named | None, list[str]]:
    """What files say of their questions. Strangers' bytes: called in the sandbox."""
    for path in paths:
        if path.name in ("run.json", "result.json"):
            try:
                benchmark = parse_object(check_file(path, MAX_RESULT)).get("benchmark")
            except ValueError:
                return None, []
            said = benchmark if isinstance(benchmark, dict) else {}
            fingerprint, name, split = (
                str(said[key]) if key in said else None for key in ("fingerprint", "name", "split")
            )
            return (fingerprint, name, split), []
    return None, answered_ids(paths[0]) if len(paths) == 1 else []


def _named(named: Named, known: Mapping[str, Target], chosen: str | None) -> str | None:
    fingerprint, *name = named
    same = [key for key, target in known.items() if target.benchmark.fingerprint == fingerprint is not None]
    alike = [key for key, target in known.items() if [target.benchmark.name, target.benchmark.split] == name]
    for found in (same, alike):
        if found:
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
