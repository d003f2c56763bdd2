"""A results store that is a folder: a submission appears in it whole or not at all, and nothing that is there is changed.

`STORE/results/<benchmark>/<model>/<run_id>/{result.json,answers.parquet}`, and `STORE/questions/<fingerprint>.parquet`, the questions
scored, from which the board recomputes the scores of any part of them. What the store says of a result (`landing.py`) lies beside it.
See also: what may be added (`submit.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from dataset_builders.errors import BadInput
from dataset_builders.files import temporary_folder
from dataset_builders.hub.client import is_unavailable
from eval_harness.records.result import Result, read_result
from eval_harness.results.landing import LANDING, Landing, read_landing
from eval_harness.submissions.checks.likeness import Digests, digests_of, likeness, stored_digests
from eval_harness.submissions.checks.names import look_alike
from eval_harness.submissions.submission import Submission, answers_digest


def add(store: Path, submission: Submission, landing: Landing) -> tuple[Path, bool]:
    """Add a submission with how it landed; returns where it lies, and whether it is new (the same one twice is no error).

    Its questions are stored as well where the store's owner vouches for them.
    Raises BadInput when the store cannot be written, is the inside of one, or holds something else in its place.
    """
    target = store / submission.folder
    if store.name == "results" and not (store / "results").is_dir() and any(store.glob("*/*/*/result.json")):
        raise BadInput(f"--to {store}: is the inside of a store. Give its parent folder, {store.parent}.")
    try:
        incoming = store / ".incoming"
        incoming.mkdir(parents=True, exist_ok=True)
        with temporary_folder(incoming, "") as staging:
            if submission.vouched:
                _add_questions(store, submission, staging)
            for path, content in submission.files().items():
                _write(staging / Path(path).name, content)
            _write(staging / LANDING, landing.to_bytes())
            target.parent.mkdir(parents=True, exist_ok=True)
            return target, _move(staging, target, submission)
    except OSError as error:
        raise BadInput(f"--to {store}: cannot be written ({error.strerror}). Give a folder you may write to.") from None


def duplicate_submissions(
    store: Path, submission: Submission, account: str | None = None, fetch: Callable[[Path], Path] = lambda path: path
) -> list[str]:
    """Flags for results of the store whose answers are (nearly) those of the submission, or whose model's name its own looks like.

    `account`: whose submission it is; two runs of a model by one account may be as alike as they like. `fetch` brings an answers.parquet
    of the store here; it is asked only for results whose scores come near.
    """
    result, flags = submission.result, []
    names: set[str] = set()
    ours: Digests | None = None
    for path in sorted(store.glob(f"results/{result.benchmark.name}/*/*/result.json")):
        name = path.parent.relative_to(store).as_posix()
        if name == submission.folder:
            continue
        try:
            other = read_result(path)
            names.add(other.model.name)
            again = other.model.name == result.model.name
            if again and "reproduced" in (other.provenance, result.provenance):
                continue  # the same model run again: the same answers are what was hoped for
            if other.kind != "measured" or not _near(result, other):
                continue
            ours = ours or digests_of(submission.answers)
            found = likeness(ours, stored_digests(fetch(path.with_name("answers.parquet"))))
            if found and not (again and account and account == _account(path.parent) and "identical" not in found):
                flags.append(f"{found} {name}")
        except (BadInput, KeyError, OSError, ValueError, TypeError) as error:
            if is_unavailable(error):
                raise
            continue  # a result that cannot be read is set aside by the board as well
    return [*flags, *(line for line in look_alike(result.model.name, sorted(names)) if line not in submission.flags)]


NEAR = 10.0
"""Percentage points that the scores of answers which are nearly the same may lie apart."""


def _near(one: Result, other: Result) -> bool:
    """Whether two results may have nearly the same answers: their score over the most questions lies near, or cannot be compared."""
    if (one.benchmark.fingerprint, one.method.extraction) != (other.benchmark.fingerprint, other.method.extraction):
        return True
    both = [name for name in one.scores if name in other.scores]
    name = max(both, key=lambda name: one.scores[name].n, default=None)
    values = [] if name is None else [one.scores[name].value, other.scores[name].value]
    return None in values or not values or abs(values[0] - values[1]) <= NEAR  # type: ignore[operator]


def _account(folder: Path) -> str | None:
    landing = read_landing(folder)
    return landing.account if landing else None


def questions_bytes(questions: pd.DataFrame) -> bytes:
    """The questions as a store keeps them (Parquet, without images)."""
    return questions.to_parquet(index=False)


def _add_questions(store: Path, submission: Submission, staging: Path) -> None:
    path = store / "questions" / f"{submission.result.benchmark.fingerprint}.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(staging / path.name, questions_bytes(submission.questions))
        (staging / path.name).replace(path)


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _move(staging: Path, target: Path, submission: Submission) -> bool:
    """Rename the staged folder into place; False when the same submission is there already."""
    try:
        staging.rename(target)
    except OSError:
        if not target.is_dir():
            raise
    else:
        return True
    there = target / "answers.parquet"
    ours = answers_digest(submission.answers.to_dict("records"))
    # The same answers may have been read again since (`medprobe rescore`): then their other columns differ.
    if not there.is_file() or answers_digest(pq.read_table(there).to_pylist()) != ours:
        raise BadInput(f"{target}: holds something else. A store only grows; remove that folder by hand to replace it.")
    return False
