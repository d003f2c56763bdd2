"""Results store in a folder: submissions are added atomically, and existing files are never changed (`curate withdraw` alone removes some).

`STORE/results/<benchmark>/<model>/<run_id>/` holds the files that were sent, what was derived from them, and what the store says of them
(`acceptance.py`); `STORE/questions/<fingerprint>.parquet` the questions scored, from which they are derived again. See also: what may be
added (`submit.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Set
from functools import partial
from pathlib import Path

import pandas as pd

from dataset_builders.contents.pseudonyms import read_withdrawn_ids
from dataset_builders.errors import BadInput
from dataset_builders.files import temporary_folder
from dataset_builders.hub.client import is_unavailable
from eval_harness.derive.answer_table import table_to_frame
from eval_harness.derive.run_files import ANSWERS_FILE, READINGS_FILE
from eval_harness.store.acceptance import ACCEPTANCE, Acceptance, read_acceptance
from eval_harness.store.checks import PublishedNames, similar_name_flags, skeleton, unusual_score_flags
from eval_harness.store.scan import StoredResult
from eval_harness.store.similarity import (
    Digests,
    correct_shares,
    describe_similarity,
    load_choice_digests,
    load_text_digests,
)
from eval_harness.store.submission import Submission


def add_to_folder(store: Path, submission: Submission, acceptance: Acceptance) -> tuple[str, bool]:
    """Add a submission with everything derived from it; returns its location, and whether it is new (adding it twice is not an error).

    Its questions are stored as well if the store's owner vouches for them.
    Raises BadInput if the store cannot be written, is a folder within a store, or has something else at the submission's path; and for
    questions about somebody on the list beside the store (`curate withdraw --stores`).
    """
    target = store / submission.folder
    if any(has_groups(content, read_withdrawn_ids(store)) for content in submission.questions_file().values()):
        raise BadInput(
            f"--to {store}: a patient of these questions has withdrawn. Reduce the run with `medprobe curate withdraw SET --group "
            "GROUP --runs RUNS`, or run the dataset as it is now."
        )
    if store.name == "results" and not (store / "results").is_dir() and any(store.glob("*/*/*/result.json")):
        raise BadInput(f"--to {store}: is a folder within a store. Give its parent folder, {store.parent}.")
    try:
        incoming = store / ".incoming"
        incoming.mkdir(parents=True, exist_ok=True)
        with temporary_folder(incoming, "") as staging:
            for path, content in submission.questions_file().items():
                _add_once(store / path, content, staging)
            for path, content in (submission.files() | submission.derived_files()).items():
                _write_synced(staging / Path(path).name, content)
            _write_synced(staging / ACCEPTANCE, acceptance.to_bytes())
            target.parent.mkdir(parents=True, exist_ok=True)
            return str(target), _move_into_place(staging, target)
    except OSError as error:
        raise BadInput(f"--to {store}: cannot be written ({error.strerror}). Give a folder you may write to.") from None


def has_groups(questions: bytes, groups: Set[str]) -> bool:
    """True if a file of questions has one about any of these groups."""
    frame = table_to_frame(questions)
    return "group" in frame and bool(frame["group"].isin(groups).any())


def duplicate_flags(
    store: Path,
    submission: Submission,
    account: str | None = None,
    fetch: Callable[[Path], object] = lambda file: None,
    others: Mapping[str, tuple[str, Digests]] | None = None,
    published: PublishedNames | None = None,
) -> list[str]:
    """Flags for what a submission looks like beside the stored results: (nearly) the answers of another one, errors or a score unlike those
    of all others, a confusingly similar name.

    Reruns and checkpoints of one account may agree, and so may an arm and its run; an account's withdrawn results may not come back.

    Args:
        account: the submitter, if known.
        fetch: brings a file of a result here; texts only of results whose choices come near.
        others: name -> (account, digests) of submissions that were sent before and wait.
        published: names in papers.

    Returns:
        A line per flag.
    """
    result, ours, flags = submission.result, submission.digests, []
    is_model = result.model.responder == "model"  # a baseline was reproduced: every one has the same answers
    look, names, own_looks = skeleton(result.model.name), set(), set()
    peers: dict[str, pd.Series] = {}
    for path in sorted(store.glob(f"results/{result.benchmark.name}/*/*/result.json")):
        name = path.parent.relative_to(store).as_posix()
        if name == submission.folder:
            continue
        try:
            stored = StoredResult.read(path)
            other, withdrawn = stored.result, stored.withdrawal is not None
            acceptance = read_acceptance(path.parent)
            is_own = acceptance is not None and account == acceptance.account
            other_look = skeleton(other.model.name)
            own_looks.update([other_look] if is_own else [])
            names.update([] if is_own else [other.model.name])
            if other_look == look and "reproduced" in (other.provenance, result.provenance) and not withdrawn:
                continue  # the same model run again: the same answers are what was hoped for
            # Beside what is not verified lie no files of ours, and a stranger's may hang their reader.
            if not is_model or other.kind != "measured" or other.model.responder != "model" or acceptance is None:
                continue
            if is_own and not withdrawn and (other_look == look or other.method.image != result.method.image):
                continue
            fetch(path.parent / READINGS_FILE)
            theirs = load_choice_digests(path.parent)
            alike = describe_similarity(ours, theirs, partial(_fetch_text_digests, path.parent, fetch), withdrawn)
            # Checkpoints of one account may agree in most answers, not in the words of all.
            if alike and (not is_own or withdrawn or "every response" in alike):
                flags.append(f"{alike} {name}{', which was withdrawn' if withdrawn else ''}")
            if not is_own and not withdrawn and other.method.image == "real":
                peers[name] = correct_shares(theirs, ours)
        except (BadInput, KeyError, OSError, ValueError, TypeError) as error:
            if is_unavailable(error):
                raise
            continue  # a result that cannot be read is set aside by the board as well
    for name, (author, digests) in (others or {}).items():
        if is_model and author != account and (alike := describe_similarity(ours, digests)):
            flags.append(f"{alike} {name} of {author}, which was opened before")
    if is_model and result.method.image == "real":
        flags += _peer_flags(submission, peers)
    if look not in own_looks:  # a spelling of a name that the account uses is that name
        flags += similar_name_flags(result.model.name, sorted(names), published, result.model.kind)
    return [line for line in flags if line not in submission.flags]


def _peer_flags(submission: Submission, peers: Mapping[str, pd.Series]) -> Iterator[str]:
    """Flags for the scores and errors of a submission beside those of others on most of its questions."""
    ours, result = submission.digests, submission.result
    right = correct_shares(ours, ours)
    if right.empty:  # nothing was delivered, or no key is known
        return iter(())
    table = pd.DataFrame({name: share.reindex(right.index) for name, share in peers.items()}, index=right.index)
    table = table.loc[:, table.notna().mean() > 0.5]
    due = result.benchmark.questions * (result.method.samples or 1)
    correct = int((ours["choices"] == ours["key"]).sum())
    return unusual_score_flags(right, correct, due, table, float((1 / ours["options"]).mean()))


def _fetch_text_digests(folder: Path, fetch: Callable[[Path], object]) -> Digests:
    fetch(folder / ANSWERS_FILE)
    return load_text_digests(folder)


def _add_once(path: Path, content: bytes, staging: Path) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_synced(staging / path.name, content)
        (staging / path.name).replace(path)


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _move_into_place(staging: Path, target: Path) -> bool:
    """Rename the staged folder into place; False when the same submission is there already."""
    try:
        staging.rename(target)
    except OSError:
        if not target.is_dir():
            raise
    else:
        return True
    if not (target / ANSWERS_FILE).is_file():  # its name is a digest of what was asked and answered
        raise BadInput(f"{target}: holds something else. A store only grows; remove that folder by hand to replace it.")
    return False
