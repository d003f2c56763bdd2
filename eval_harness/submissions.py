"""Adds a run to a results store (a folder): only answers are taken, the scores are computed here.

Not here: a store on the Hub and pull requests, which are not there yet.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from dataset_builders.errors import BadInput
from eval_harness.results import Result, Score, model_slug, read_result
from eval_harness.runs import read_questions, read_run, write_atomically
from eval_harness.scoring import rescore, write_result

TOLERANCE = 5e-5
"""How far a claimed score may be from the recomputed one: half of the fourth decimal, in percent."""


def submit_run(folder: Path, store: Path, dry_run: bool = False) -> Path:
    """Recompute the scores of a run and add it to a store folder; returns where it lies (or would, with `dry_run`).

    Files are only ever added: `STORE/results/<benchmark>/<model>/<run_id>/{result.json,answers.parquet}` and the questions scored,
    `STORE/questions/<fingerprint>.parquet`. The same run twice is no error.
    Raises BadInput when the folder is no run, a claimed score differs, or the place holds other answers.
    """
    run = read_run(folder)
    claimed = read_result(folder / "result.json") if (folder / "result.json").exists() else None
    extraction = (claimed.method.extraction if claimed else None) or "ours"
    result, answers = rescore(folder, extraction)
    if claimed:
        _check_claim(folder, claimed, result)
    target = store / "results" / result.benchmark.name / model_slug(result.model.name) / run.run_id
    if store.name == "results" and not (store / "results").is_dir() and any(store.glob("*/*/*/result.json")):
        raise BadInput(f"--to {store}: is the inside of a store. Give its parent folder, {store.parent}.")
    if dry_run:
        return target
    try:
        _add_questions(folder, store, result)
        partial = target.with_name(f".{run.run_id}.{os.getpid()}.partial")
        partial.mkdir(parents=True)
        try:
            write_result(partial, result, answers)
            _move_into_place(partial, target, result)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise BadInput(f"--to {store}: cannot be written ({error.strerror}). Give a folder you may write to.") from None
    return target


def _add_questions(folder: Path, store: Path, result: Result) -> None:
    """The board recomputes scores for any subset of questions, so the store keeps each set of questions once."""
    path = store / "questions" / f"{result.benchmark.fingerprint}.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        read_questions(folder)
        write_atomically(path, (folder / "questions.parquet").read_bytes())


def _move_into_place(partial: Path, target: Path, result: Result) -> None:
    try:
        partial.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        there = read_result(target / "result.json")
        same = (there.scores, there.breakdown, there.statuses) == (result.scores, result.breakdown, result.statuses)
        if not same:
            raise BadInput(
                f"{target}: holds another result of this run. A store only grows; remove that folder by hand to replace it."
            ) from None


def _check_claim(folder: Path, claimed: Result, computed: Result) -> None:
    for name in sorted(claimed.scores.keys() | computed.scores.keys()):
        ours, theirs = computed.scores.get(name), claimed.scores.get(name)
        if _value(ours) != _value(theirs) and not _close(ours, theirs):
            raise BadInput(
                f"{folder / 'result.json'}: claims {name} = {_value(theirs)}, its answers give {_value(ours)}. "
                "Run `medprobe score` on the run folder to mend the result, or find out what changed it."
            )


def _value(score: Score | None) -> float | None:
    return score.value if score else None


def _close(a: Score | None, b: Score | None) -> bool:
    left, right = _value(a), _value(b)
    return left is not None and right is not None and abs(left - right) <= TOLERANCE
