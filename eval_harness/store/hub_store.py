"""Submit to a results store in a dataset repository on the Hub.

A submission is a pull request that only adds files; a result that the store's owner reproduced is a
commit to main.

See also: what may be submitted (`submit.py`), verifying pull requests (`pull_requests.py`).
"""

import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dataset_builders.errors import BadInput
from dataset_builders.files import temporary_folder
from dataset_builders.hub.client import commit_files, hide_progress_bars, http_status, hub_errors, sign_in, with_retries
from eval_harness.derive.run_files import ANSWERS_FILE, RUN_FILE
from eval_harness.store.contents import ACCEPTANCE, Acceptance, Submission, parse_record, utc_now

if TYPE_CHECKING:
    from huggingface_hub import Discussion, HfApi
    from huggingface_hub.hf_api import RepoFile

COMMIT_TRIES = 12
"""Maximum attempts for a commit to main, since others may commit to it at the same time."""


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
