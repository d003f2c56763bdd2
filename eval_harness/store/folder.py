"""Results store in a folder: submissions are added atomically, and existing files are never changed.

`STORE/results/<benchmark>/<model>/<run_id>/` holds the files that were sent, what was derived from them, and what the store says of them
(`acceptance.py`); `STORE/questions/<fingerprint>.parquet` the questions scored, from which they are derived again. See also: what may be
added (`submit.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from dataset_builders.errors import BadInput
from dataset_builders.files import temporary_folder
from dataset_builders.hub.client import is_unavailable
from eval_harness.derive.files import ANSWERS
from eval_harness.records.result import UNDELIVERED, Result, read_result
from eval_harness.store.acceptance import ACCEPTANCE, Acceptance, read_acceptance
from eval_harness.store.checks import Published, look_alike
from eval_harness.store.likeness import Digests, likeness, stored_digests
from eval_harness.store.submission import Submission


def add(store: Path, submission: Submission, acceptance: Acceptance) -> tuple[str, bool]:
    """Add a submission with everything derived from it; returns its location, and whether it is new (adding it twice is not an error).

    Its questions are stored as well if the store's owner vouches for them.
    Raises BadInput if the store cannot be written, is a folder within a store, or has something else at the submission's path.
    """
    target = store / submission.folder
    if store.name == "results" and not (store / "results").is_dir() and any(store.glob("*/*/*/result.json")):
        raise BadInput(f"--to {store}: is a folder within a store. Give its parent folder, {store.parent}.")
    try:
        incoming = store / ".incoming"
        incoming.mkdir(parents=True, exist_ok=True)
        with temporary_folder(incoming, "") as staging:
            for path, content in submission.questions_file().items():
                _add_once(store / path, content, staging)
            for path, content in (submission.files() | submission.derived_files()).items():
                _write(staging / Path(path).name, content)
            _write(staging / ACCEPTANCE, acceptance.to_bytes())
            target.parent.mkdir(parents=True, exist_ok=True)
            return str(target), _move(staging, target)
    except OSError as error:
        raise BadInput(f"--to {store}: cannot be written ({error.strerror}). Give a folder you may write to.") from None


def duplicate_submissions(
    store: Path,
    submission: Submission,
    account: str | None = None,
    fetch: Callable[[Path], Path] = lambda folder: folder,
    others: Mapping[str, tuple[str, Digests]] | None = None,
    published: Published | None = None,
) -> list[str]:
    """Flags for stored results with (nearly) the same answers as the submission, or with a confusingly similar model name.

    `account`: the submitter; two runs of a model by one account may agree completely, and so may an arm and its run.
    `fetch` brings the files of a result's folder here; it is called only for results whose scores come near. `others`: name -> (account,
    digests) of submissions that were sent before and wait. `published`: names in papers.
    """
    result, flags = submission.result, []
    may_be_a_copy = result.model.responder == "model"  # a baseline was reproduced: every one has the same answers
    names: set[str] = set()
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
            if not may_be_a_copy or other.kind != "measured" or not _near(result, other):
                continue
            found = likeness(submission.digests, stored_digests(fetch(path.parent)))
            # Another run of one account's model may be alike; one with other images also the same: it does not look at them.
            own = again and account is not None and account == _account(path.parent)
            if found and not (own and ("identical" not in found or other.method.image != result.method.image)):
                flags.append(f"{found} {name}")
        except (BadInput, KeyError, OSError, ValueError, TypeError) as error:
            if is_unavailable(error):
                raise
            continue  # a result that cannot be read is set aside by the board as well
    for name, (author, digests) in (others or {}).items():
        found = likeness(submission.digests, digests) if may_be_a_copy and author != account else None
        if found:
            flags.append(f"{found} {name} of {author}, which was opened before")
    alike = look_alike(result.model.name, sorted(names), published, result.model.kind)
    return [*flags, *(line for line in alike if line not in submission.flags)]


NEAR = 10.0
"""Percentage points that the scores of answers which are nearly the same may lie apart, where all were delivered."""


def _near(one: Result, other: Result) -> bool:
    """True if two results may have nearly the same answers: their score over the most questions lies near, or cannot be compared. What was
    left out of a copy counts as wrong."""
    asked = [(each.benchmark.fingerprint, each.method.extraction, each.method.samples) for each in (one, other)]
    if asked[0] != asked[1] or one.method.samples != 1:  # one sample of many may be a copy, whatever the others score
        return True
    both = [name for name in one.scores if name in other.scores]
    name = max(both, key=lambda name: one.scores[name].n, default=None)
    left, right = (None if name is None else each.scores[name].value for each in (one, other))
    missing = max(
        sum(each.statuses.get(name, 0) for name in UNDELIVERED) / each.benchmark.questions for each in (one, other)
    )
    return left is None or right is None or abs(left - right) <= NEAR + 100 * missing


def _account(folder: Path) -> str | None:
    acceptance = read_acceptance(folder)
    return acceptance.account if acceptance else None


def _add_once(path: Path, content: bytes, staging: Path) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(staging / path.name, content)
        (staging / path.name).replace(path)


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _move(staging: Path, target: Path) -> bool:
    """Rename the staged folder into place; False when the same submission is there already."""
    try:
        staging.rename(target)
    except OSError:
        if not target.is_dir():
            raise
    else:
        return True
    if not (target / ANSWERS).is_file():  # its name is a digest of what was asked and answered
        raise BadInput(f"{target}: holds something else. A store only grows; remove that folder by hand to replace it.")
    return False
