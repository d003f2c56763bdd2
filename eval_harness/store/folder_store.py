"""Add submissions to a results store in a folder, and compare them with its results.

A submission is added atomically, and adding never changes existing files; only `curate withdraw`
removes any. `STORE/results/<benchmark>/<model>/<run_id>/` contains the sent files, the derived
files, and the store's own records (`contents.py`). `STORE/questions/<fingerprint>.parquet`
contains the questions, so that results can be derived again.

See also: what may be added (`submit.py`).
"""

from collections.abc import Callable, Iterator, Mapping, Set
from functools import partial
from pathlib import Path

import pandas as pd

from dataset_builders.contents.pseudonyms import read_withdrawn_ids
from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file, temporary_folder
from dataset_builders.hub.client import is_unavailable
from eval_harness.derive.answer_table import table_to_frame
from eval_harness.derive.run_files import ANSWERS_FILE, READINGS_FILE
from eval_harness.store.checks import (
    PublishedNames,
    similar_name_flags,
    skeleton,
    unusual_score_flags,
)
from eval_harness.store.contents import ACCEPTANCE, Acceptance, StoredResult, Submission, read_acceptance
from eval_harness.store.similarity import (
    Digests,
    correct_shares,
    describe_similarity,
    load_choice_digests,
    load_text_digests,
)


def add_to_folder(store: Path, submission: Submission, acceptance: Acceptance) -> tuple[str, bool]:
    """Add a submission and everything derived from it; adding it twice is not an error.

    The questions are stored as well, if the store's owner vouches for them.

    Args:
        store: Folder of the store; created if missing.
        submission: An examined submission without problems.
        acceptance: The store's record of the submission.

    Returns:
        The result's folder, and whether it is new.

    Raises:
        BadInput: If the store cannot be written, is a folder within a store, or has something else
            at the submission's path; also if the questions are about a withdrawn patient, listed
            next to the store by `curate withdraw --stores`.
    """
    target = store / submission.folder
    if any(has_groups(content, read_withdrawn_ids(store)) for content in submission.questions_file().values()):
        raise BadInput(
            f"--to {store}: a patient of these questions has withdrawn. Reduce the run with "
            "`medprobe curate withdraw SET --group GROUP --runs RUNS`, or evaluate the model on "
            "the current dataset."
        )

    if store.name == "results" and not (store / "results").is_dir() and any(store.glob("*/*/*/result.json")):
        raise BadInput(f"--to {store}: a folder within a store. Give its parent folder, {store.parent}.")
    try:
        # Staged in the store itself: a rename is atomic only within one file system. `replace_file`
        # flushes to disk, as a result reported as stored must survive a power failure.
        incoming = store / ".incoming"
        incoming.mkdir(parents=True, exist_ok=True)
        with temporary_folder(incoming, "") as staging:
            add_questions(store, submission)
            for path, content in (submission.files() | submission.derived_files()).items():
                replace_file(staging / Path(path).name, content)
            # All files are staged before the rename, which makes them visible at once.
            replace_file(staging / ACCEPTANCE, acceptance.to_bytes())
            target.parent.mkdir(parents=True, exist_ok=True)
            return str(target), _move_into_place(staging, target)
    except OSError as error:
        raise BadInput(f"--to {store}: cannot be written ({error.strerror}). Give a folder you may write to.") from None


def add_questions(store: Path, submission: Submission) -> None:
    """Write the questions of a submission, unless the store has them. Raises OSError."""
    for path, content in submission.questions_file().items():
        if not (store / path).exists():
            (store / path).parent.mkdir(parents=True, exist_ok=True)
            replace_file(store / path, content)


def has_groups(questions: bytes, groups: Set[str]) -> bool:
    """Return True if any question of a questions file belongs to one of these groups (patients)."""
    frame = table_to_frame(questions)
    return "group" in frame and bool(frame["group"].isin(groups).any())


def duplicate_flags(
    store: Path,
    submission: Submission,
    account: str | None = None,
    fetch: Callable[[Path], object] = lambda file: None,
    pending: Mapping[str, tuple[str, Digests]] | None = None,
    published: PublishedNames | None = None,
) -> list[str]:
    """Flag what is suspicious about a submission in comparison with the stored results.

    Flagged are answers that equal or nearly equal those of another result, errors or a score unlike
    all others, and a confusingly similar name. An account's own results may agree with each other
    if they are reruns, checkpoints, or a run and its arms. A withdrawn result must not be submitted
    again.

    Args:
        store: Folder of the store.
        submission: The examined submission.
        account: The submitter, if known.
        fetch: Downloads a file of a result, if the store is not a local folder. Texts are fetched
            only for results with similar choices.
        pending: Name -> (account, digests) of older submissions that are still open.
        published: Model names in papers.

    Returns:
        One line per flag.
    """
    result, digests, flags = submission.result, submission.digests, []
    # All runs of a baseline have the same answers, so only models are compared.
    is_model = result.model.responder == "model"
    name_skeleton, names, own_skeletons = skeleton(result.model.name), set(), set()
    peers: dict[str, pd.Series] = {}

    for path in sorted(store.glob(f"results/{result.benchmark.name}/*/*/result.json")):
        name = path.parent.relative_to(store).as_posix()
        if name == submission.folder:
            continue
        try:
            stored = StoredResult.read(path)
            other_result, withdrawn = stored.result, stored.withdrawal is not None
            acceptance = read_acceptance(path.parent)
            same_account = acceptance is not None and account == acceptance.account
            other_skeleton = skeleton(other_result.model.name)
            # Names are collected even from results whose answers are not compared below.
            own_skeletons.update([other_skeleton] if same_account else [])
            names.update([] if same_account else [other_result.model.name])
            if (
                other_skeleton == name_skeleton
                and "reproduced" in (other_result.provenance, result.provenance)
                and not withdrawn
            ):
                continue  # the same model run again: identical answers are expected
            # An unverified result has only untrusted files: never read them outside the sandbox.
            if (
                not is_model
                or other_result.kind != "measured"
                or other_result.model.responder != "model"
                or acceptance is None
            ):
                continue
            if (
                same_account
                and not withdrawn
                and (other_skeleton == name_skeleton or other_result.method.image != result.method.image)
            ):
                continue
            fetch(path.parent / READINGS_FILE)
            other_digests = load_choice_digests(path.parent)
            similarity_text = describe_similarity(
                digests, other_digests, partial(_fetch_text_digests, path.parent, fetch), withdrawn
            )
            # Checkpoints of one account may agree in most choices, but not in the text of every
            # response.
            if similarity_text and (not same_account or withdrawn or "every response" in similarity_text):
                flags.append(f"{similarity_text} {name}{', which was withdrawn' if withdrawn else ''}")
            if not same_account and not withdrawn and other_result.method.image == "real":
                peers[name] = correct_shares(other_digests, digests)
        except (BadInput, KeyError, OSError, ValueError, TypeError) as error:
            if is_unavailable(error):
                raise
            continue  # the board skips unreadable results as well

    for name, (author, pending_digests) in (pending or {}).items():
        if is_model and author != account and (similarity_text := describe_similarity(digests, pending_digests)):
            flags.append(f"{similarity_text} {name} of {author}, which was opened earlier")

    if is_model and result.method.image == "real":
        flags += _peer_flags(submission, peers)
    if name_skeleton not in own_skeletons:  # an account may respell a name that it already uses
        flags += similar_name_flags(result.model.name, sorted(names), published, result.model.kind)

    return [line for line in flags if line not in submission.flags]


def _peer_flags(submission: Submission, peers: Mapping[str, pd.Series]) -> Iterator[str]:
    """Flag a submission whose score or errors are unlike those of its peers.

    Peers are other accounts' results on most of the same questions.
    """
    digests, result = submission.digests, submission.result
    right = correct_shares(digests, digests)
    if right.empty:  # nothing was delivered, or no key is known
        return iter(())
    table = pd.DataFrame({name: shares.reindex(right.index) for name, shares in peers.items()}, index=right.index)
    # Results on few of these questions say little about them.
    table = table.loc[:, table.notna().mean() > 0.5]
    expected_answers = result.benchmark.questions * (result.method.samples or 1)
    correct = int((digests["choices"] == digests["key"]).sum())
    return unusual_score_flags(right, correct, expected_answers, table, float((1 / digests["options"]).mean()))


def _fetch_text_digests(folder: Path, fetch: Callable[[Path], object]) -> Digests:
    """Download the answers of a result, and return their digests with texts."""
    fetch(folder / ANSWERS_FILE)
    return load_text_digests(folder)


def _move_into_place(staging: Path, target: Path) -> bool:
    """Rename the staged folder into place; return False if the same submission is already there."""
    # Fails if the folder already exists, since it is not empty then.
    try:
        staging.rename(target)
    except OSError:
        if not target.is_dir():
            raise
    else:
        return True
    # A folder of this name with answers has the same ones: the name contains their digest.
    if not (target / ANSWERS_FILE).is_file():
        raise BadInput(
            f"{target}: contains something else. A store only grows; remove that folder by hand to replace it."
        )
    return False
