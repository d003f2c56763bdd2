"""Add submissions and withdrawals to a results store, a folder or a dataset repository on the Hub.

In a folder, a submission is added atomically, and adding never changes existing files; only
`curate withdraw` removes any. `STORE/results/<benchmark>/<model>/<run_id>/` contains the sent
files, the derived files, and the store's own records (`contents.py`).
`STORE/questions/<fingerprint>.parquet` contains the questions, so that results can be derived
again. On the Hub, a submission is a pull request that only adds files; a result that the store's
owner reproduced is a commit to main.

`medprobe withdraw` adds a file next to a result, which itself stays where it is. The result's
submitter and the store's owner may do this. In a folder, anyone with write access can. On the Hub,
the owner commits the file, and the submitter opens a pull request that `medprobe verify` adds.

See also: what may be submitted (`submit.py`), verifying pull requests (`pull_requests.py`).
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Set
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from dataset_builders.contents.pseudonyms import read_withdrawn_ids
from dataset_builders.errors import BadInput, clip
from dataset_builders.files import replace_file, temporary_folder
from dataset_builders.hub.client import commit_files, hide_progress_bars, http_status, hub_errors, sign_in, with_retries
from eval_harness.derive.run_files import ANSWERS_FILE, RUN_FILE, table_to_frame
from eval_harness.store.contents import (
    ACCEPTANCE,
    MAX_REASON_LENGTH,
    WITHDRAWN,
    Acceptance,
    Submission,
    Withdrawal,
    is_hub_store,
    local_account,
    parse_record,
    utc_now,
)

if TYPE_CHECKING:
    from huggingface_hub import Discussion, HfApi
    from huggingface_hub.hf_api import RepoFile

COMMIT_TRIES = 12
"""Maximum attempts for a commit to main, since others may commit to it at the same time."""

WITHDRAWAL_PATH = re.compile(
    rf"(results/[A-Za-z0-9][\w.-]*/[A-Za-z0-9_][\w.-]*/[A-Za-z0-9][\w.-]*)/{re.escape(WITHDRAWN)}", re.ASCII
)
"""Path of a withdrawal; its group is the result's folder."""


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


def open_submission_pull(repo_id: str, submission: Submission, token: str | None = None) -> tuple[str, bool]:
    """Open a pull request that adds the files of a submission.

    Files that are already in the store, or in an open pull request of this account, are not
    proposed again. Every attempt checks this first, so that a commit whose response was lost is
    found instead of repeated.

    Args:
        repo_id: The store, ORG/NAME.
        submission: An examined submission.
        token: Hub token; None uses this machine's.

    Returns:
        The URL, and whether it is new.

    Raises:
        BadInput: If there is no token or no such store, the store has other answers of this run, or
            the Hub refuses or cannot be reached.
    """
    api, account = sign_in(repo_id, token)
    files = submission.files()
    title = pull_title(submission.folder)

    def look() -> tuple[str, bool] | None:
        head = api.repo_info(repo_id, repo_type="dataset").sha
        if head and has_submission(api, repo_id, head, files):
            return f"{api.endpoint}/datasets/{repo_id}/tree/main/{submission.folder}", False
        for pull in list_open_pulls(api, repo_id, account):
            if pull.title == title and has_submission(api, repo_id, f"refs/pr/{pull.num}", files):
                return pull.url, False
        return None

    def propose_it() -> tuple[str, bool]:
        commit = commit_files(api, repo_id, files, title, description=_description(submission), pull_request=True)
        return str(commit.pr_url), True

    with hide_progress_bars(), hub_errors(repo_id, "open a pull request", account):
        return with_retries(propose_it, check_done=look)


def commit_submission(repo_id: str, submission: Submission, with_questions: bool = False) -> tuple[str, bool]:
    """Commit a submission to main, which requires write access to the store.

    Args:
        repo_id: The store, ORG/NAME.
        submission: An examined submission that the store's owner reproduced.
        with_questions: Also store the questions.

    Returns:
        The URL, and whether it is new.

    Raises:
        BadInput: If there is no token, no such store or no write access, the store has another
            result of this run, or the Hub refuses.
    """
    api, account = sign_in(repo_id)
    acceptance = Acceptance(account=account, accepted_at=utc_now(), verified_by=account)
    extra_files = submission.accepted_files(acceptance.to_bytes(), with_questions)
    with hide_progress_bars(), hub_errors(repo_id, "add a reproduced result", account):
        try:
            is_new = commit_to_main(
                api,
                repo_id,
                submission.files(),
                extra_files,
                pull_title(submission.folder),
                _description(submission),
            )
        except Exception as error:
            # 403 means that the account has no write access.
            if http_status(error) != 403:
                raise
            raise BadInput(
                f"{repo_id}: the account {account} may not write to it, and only a store's owner "
                "can mark results as reproduced. Use a token with write access, or leave "
                "--reproduced out: that opens a pull request."
            ) from None

    return f"{api.endpoint}/datasets/{repo_id}/tree/main/{submission.folder}", is_new


def commit_to_main(
    api: "HfApi",
    repo_id: str,
    files: dict[str, bytes],
    extra_files: dict[str, bytes],
    message: str,
    description: str = "",
) -> bool:
    """Commit files to main as it is now; calling this again does no harm.

    If others commit in between, the commit is retried on top of theirs. Every attempt first checks
    whether main already has the files, so that they are never committed twice. Errors of the Hub's
    client are passed on.

    Args:
        api: The Hub's client.
        repo_id: The store, ORG/NAME.
        files: Paths and contents to add.
        extra_files: Files that are added only if they do not exist yet.
        message: Title of the commit.
        description: Body of the commit message.

    Returns:
        False if main already has `files`.
    """
    head: str | None = None
    content: dict[str, bytes] = {}

    def look() -> bool | None:
        nonlocal head, content
        head = api.repo_info(repo_id, repo_type="dataset").sha  # None for a repository without commits
        if head and has_submission(api, repo_id, head, files):
            return False
        existing = find_files(api, repo_id, head, sorted(extra_files)) if extra_files and head else {}
        content = files | {path: data for path, data in extra_files.items() if path not in existing}
        return None

    def commit() -> bool:
        commit_files(api, repo_id, content, message, description=description, parent=head)
        return True

    return with_retries(commit, look, tries=COMMIT_TRIES)


def pull_title(folder: str) -> str:
    """Return the title of the pull request that adds a folder.

    It is unique for each folder, and within the Hub's limit of 200 characters.
    """
    title = f"Add {folder}"
    return title if len(title) <= 200 else f"{title[:180]} {hashlib.sha256(folder.encode()).hexdigest()[:12]}"


def _description(submission: Submission) -> str:
    """Return the description of a pull request: the run, its notes and its flags."""
    result = submission.result
    lines = [
        f"{result.model.name} on {result.benchmark.name}, split {result.benchmark.split}, method "
        f"{result.method.name}: {result.benchmark.questions:,} questions.",
        *(f"- {note}" for note in submission.notes),
        *(f"- for review: {flag}" for flag in submission.flags),
        "`medprobe verify` derives the scores from the answers.",
    ]
    return "\n".join(lines)


def withdraw(store: str | Path, result: str, reason: str, account: str | None = None) -> tuple[str, bool]:
    """Mark a result as withdrawn.

    Args:
        store: A folder, or ORG/NAME on the Hub.
        result: Id of the result, or its folder in the store.
        reason: Plain text, at most MAX_REASON_LENGTH characters.
        account: Who withdraws it, in a folder store; None uses this machine's user.

    Returns:
        The location of the withdrawal, and whether it is new.

    Raises:
        BadInput: If there is no such result, no reason or no permission, or the store cannot be
            written or reached.
    """
    if is_hub_store(store):
        return _withdraw_on_hub(str(store), result, reason)
    root = Path(store)
    paths = [path.parent.relative_to(root).as_posix() for path in root.glob("results/*/*/*/result.json")]
    folder = root / _find_result(result, paths, str(store))
    content = _withdrawal(account or local_account(), reason)
    # Written elsewhere first, so that a reader never sees a partial file.
    incoming = root / ".incoming"

    try:
        incoming.mkdir(exist_ok=True)
        with temporary_folder(incoming, "") as staging:
            (staging / WITHDRAWN).write_bytes(content)
            # Atomic, and fails if the file exists, so that the first one is kept.
            os.link(staging / WITHDRAWN, folder / WITHDRAWN)
    except FileExistsError:
        return str(folder / WITHDRAWN), False
    except OSError as error:
        raise BadInput(f"{folder}: cannot be written ({error.strerror}).") from None

    return str(folder / WITHDRAWN), True


def withdrawal_problem(path: str, content: bytes, author: str, owner: str, acceptance: Acceptance | None) -> str | None:
    """Check a withdrawal that a pull request adds.

    Args:
        path: Path of the file in the store.
        content: The untrusted content.
        author: Author of the pull request.
        owner: Owner of the store.
        acceptance: Acceptance of the result that the file is about.

    Returns:
        Why the file must not be added; None if it may be.
    """
    try:
        account = parse_record(content, Withdrawal, path).account
    except BadInput as error:
        return str(error)

    if account.lower() != author.lower():
        return f"names {clip(account)} as its author, but was opened by {author}"
    submitter = acceptance.account if acceptance is not None else None
    # The Hub's account names are case-insensitive.
    if author.lower() not in {owner.lower(), (submitter or owner).lower()}:
        return f"only the submitter ({submitter or owner}) or the store's owner can add this; {author} can open a discussion"

    return None


def _withdrawal(account: str, reason: str) -> bytes:
    """Return the content of a withdrawal. Raises BadInput if the reason is not plain text."""
    try:
        return Withdrawal(account=account, withdrawn_at=utc_now(), reason=" ".join(reason.split())).to_bytes()
    except ValidationError:
        raise BadInput(f"--reason: give from 1 to {MAX_REASON_LENGTH:,} characters of plain text.") from None


def _find_result(result: str, folders: list[str], store: str) -> str:
    """Return the folder of the only result with this id or folder.

    Raises BadInput if there is none, or several with this id.
    """
    result_path = result.strip("/")
    matches = sorted(
        {folder for folder in folders if folder == result_path or folder.rsplit("/", 1)[-1] == result_path}
    )
    if len(matches) != 1:
        problem, needed = (
            ("no such result", "its id or folder") if not matches else (f"{len(matches)} with this id", "its folder")
        )
        raise BadInput(f"{store}: {problem}: {clip(result, 200)}. Give {needed} in the store (results/...)")

    return matches[0]


def _withdraw_on_hub(repo_id: str, result: str, reason: str) -> tuple[str, bool]:
    """Withdraw on the Hub: by a commit if this account may write, else by a pull request."""
    api, account = sign_in(repo_id)
    with hide_progress_bars(), hub_errors(repo_id, "withdraw a result"):
        head = str(with_retries(lambda: api.repo_info(repo_id, repo_type="dataset").sha))
        names = with_retries(lambda: api.list_repo_files(repo_id, revision=head, repo_type="dataset"))
        folder = _find_result(result, [n.rsplit("/", 1)[0] for n in names if n.endswith("/result.json")], repo_id)
        content = _withdrawal(account, reason)
        path = f"{folder}/{WITHDRAWN}"
        url_on_main = f"{api.endpoint}/datasets/{repo_id}/blob/main/{path}"
        if path in names:
            return url_on_main, False

        def commit(as_pull_request: bool) -> str:
            message = f"Withdraw {folder}"[:190]
            commit_info = commit_files(api, repo_id, {path: content}, message, pull_request=as_pull_request)
            return str(commit_info.pr_url) if as_pull_request else url_on_main

        try:
            return with_retries(lambda: commit(False), tries=COMMIT_TRIES), True
        except Exception as error:
            # No write access: the submitter may still open a pull request.
            if http_status(error) != 403:
                raise
        acceptance = fetch_acceptance(api, repo_id, head, folder)
        if acceptance is None or acceptance.account.lower() != account.lower():
            submitter = acceptance.account if acceptance else "an unknown account"
            raise BadInput(
                f"{repo_id}: {folder} was submitted by {submitter}; only they or the store's owner "
                f"can do this, not {account}."
            )
        return with_retries(lambda: commit(True)), True


def list_open_pulls(
    api: "HfApi", repo_id: str, author: str | None = None, kind: str = "dataset"
) -> "Iterator[Discussion]":
    """Yield the open pull requests of a repository, newest first.

    The Hub lists open pull requests only, but this is checked here: if a closed one were taken for
    open, a submission would be lost.

    Args:
        api: The Hub's client.
        repo_id: The repository.
        author: Account whose pull requests are listed; None lists those of all accounts.
        kind: Type of the repository, "dataset" or "model".
    """
    listed = api.get_repo_discussions(
        repo_id,
        repo_type=kind,
        author=author,
        discussion_type="pull_request",
        discussion_status="open",
    )
    for pull in listed:
        if pull.is_pull_request and pull.status in ("open", "draft") and author in (None, pull.author):
            yield pull


def has_submission(api: "HfApi", repo_id: str, revision: str, files: Iterable[str]) -> bool:
    """Return True if a revision contains a submission with these paths.

    Only the paths of run and answers are looked for, and not their content: the folder's name
    contains a digest of both.

    Args:
        api: The Hub's client.
        repo_id: The store.
        revision: Commit or branch.
        files: Paths of the submission's files.
    """
    identifying_paths = [path for path in files if path.endswith((f"/{RUN_FILE}", f"/{ANSWERS_FILE}"))]
    return len(find_files(api, repo_id, revision, identifying_paths)) == len(identifying_paths) > 0


def find_files(api: "HfApi", repo_id: str, revision: str, paths: list[str]) -> "dict[str, RepoFile]":
    """Return the paths that exist in a revision, with what the Hub knows about each file."""
    from huggingface_hub.hf_api import RepoFile

    # A path may also be that of a folder, which is left out.
    path_infos = api.get_paths_info(repo_id, paths, revision=revision, repo_type="dataset")
    return {entry.path: entry for entry in path_infos if isinstance(entry, RepoFile)}


def fetch_file(api: "HfApi", repo_id: str, revision: str, path: str, kind: str = "dataset") -> bytes:
    """Download a file of a revision, bypassing the cache."""
    with temporary_folder(Path(tempfile.gettempdir()), "medprobe-fetched-") as folder:
        file = api.hf_hub_download(repo_id, path, revision=revision, repo_type=kind, local_dir=folder)
        return Path(file).read_bytes()


def fetch_acceptance(api: "HfApi", repo_id: str, revision: str, folder: str) -> Acceptance | None:
    """Return the acceptance of a result in a store on the Hub, or None.

    Raises:
        BadInput: If the file is damaged.
    """
    path = f"{folder}/{ACCEPTANCE}"
    if path not in find_files(api, repo_id, revision, [path]):
        return None
    return parse_record(fetch_file(api, repo_id, revision, path), Acceptance, path)
