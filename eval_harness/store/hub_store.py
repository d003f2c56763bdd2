"""A results store that is a dataset repository on the Hub: a submission is one pull request that only adds files, and what the
store's owner has run again one commit.

See also: what may be submitted (`submit.py`), judging the pull requests of others (`pull_requests.py`).
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dataset_builders.errors import BadInput
from dataset_builders.files import temporary_folder
from dataset_builders.hub.client import hide_progress_bars, http_status, hub_errors, sign_in, with_retries
from dataset_builders.hub.commits import commit_files
from eval_harness.derive.run_files import ANSWERS_FILE, RUN_FILE
from eval_harness.store.acceptance import ACCEPTANCE, Acceptance, parse_record, utc_now

if TYPE_CHECKING:
    from huggingface_hub import Discussion, HfApi
    from huggingface_hub.hf_api import RepoFile

    from eval_harness.store.submission import Submission

COMMIT_TRIES = 12
"""Attempts: others commit to the same branch, so a commit to main is retried on top of theirs."""


def open_submission_pull(repo_id: str, submission: Submission, token: str | None = None) -> tuple[str, bool]:
    """Open a pull request that adds the files of a submission; returns its address, and whether it is new. `token`: None is this machine's.

    What is in the store already, or in an open pull request of this account, is not proposed again. Each try looks again first, so that
    a commit whose answer got lost is found instead of being made twice.
    Raises BadInput: no token, no such store, other answers of this run there, a Hub that refuses or cannot be reached.
    """
    api, who = sign_in(repo_id, token)
    files = submission.files()
    title = pull_title(submission.folder)

    def look() -> tuple[str, bool] | None:
        url = _existing_location(api, repo_id, who, submission.folder, files)
        return (url, False) if url else None

    def propose_it() -> tuple[str, bool]:
        done = commit_files(api, repo_id, files, title, description=_description(submission), pull_request=True)
        return str(done.pr_url), True

    with hide_progress_bars(), hub_errors(repo_id, "open a pull request", who):
        return with_retries(propose_it, check_done=look)


def _existing_location(api: HfApi, repo_id: str, who: str, folder: str, files: dict[str, bytes]) -> str | None:
    """Address of these files if the Hub has them already: on main, or in an open pull request of this account."""
    head = api.repo_info(repo_id, repo_type="dataset").sha
    if head and has_submission(api, repo_id, head, files):
        return f"{api.endpoint}/datasets/{repo_id}/tree/main/{folder}"
    for pull in list_open_pulls(api, repo_id, who):
        if pull.title == pull_title(folder) and has_submission(api, repo_id, f"refs/pr/{pull.num}", files):
            return pull.url
    return None


def commit_submission(repo_id: str, submission: Submission, with_questions: bool = False) -> tuple[str, bool]:
    """Commit a submission to main, which only those who may write to the store can; returns its address, and whether it is new.

    Raises BadInput: no token, no such store, no right to write, another result of this run there, a Hub that refuses.
    """
    api, who = sign_in(repo_id)
    acceptance = Acceptance(account=who, accepted_at=utc_now(), verified_by=who)
    more = submission.derived_files() | {f"{submission.folder}/{ACCEPTANCE}": acceptance.to_bytes()}
    if with_questions:
        more |= submission.questions_file()
    with hide_progress_bars(), hub_errors(repo_id, "add a reproduced result", who):
        try:
            about = _description(submission)
            new = commit_to_main(api, repo_id, submission.files(), more, pull_title(submission.folder), about)
        except Exception as error:
            if http_status(error) != 403:
                raise
            raise BadInput(
                f"{repo_id}: the account {who} may not write to it, and only who owns a store says what is reproduced. Use a token that "
                "may write there, or leave --reproduced out: that opens a pull request."
            ) from None
    return f"{api.endpoint}/datasets/{repo_id}/tree/main/{submission.folder}", new


def commit_to_main(
    api: HfApi, repo_id: str, files: dict[str, bytes], more: dict[str, bytes], message: str, description: str = ""
) -> bool:
    """Commit `files`, and of `more` what is not there yet, to main as it is now; False where it holds the files already.

    Tried again on top of what others commit in between; each try looks again first, so that it is never made twice.
    Raises whatever the Hub's client raises.
    """
    head: str | None = None
    content: dict[str, bytes] = {}

    def look() -> bool | None:
        nonlocal head, content
        head = api.repo_info(repo_id, repo_type="dataset").sha  # None where nothing was ever committed
        if head and has_submission(api, repo_id, head, files):
            return False
        known = find_files(api, repo_id, head, sorted(more)) if more and head else {}
        content = files | {path: data for path, data in more.items() if path not in known}
        return None

    def commit() -> bool:
        commit_files(api, repo_id, content, message, description=description, parent=head)
        return True

    return with_retries(commit, look, tries=COMMIT_TRIES)


def list_open_pulls(api: HfApi, repo_id: str, author: str | None = None, kind: str = "dataset") -> Iterator[Discussion]:
    """The open pull requests of a repository (of one author), the newest first. The Hub's filters are applied again here: a closed pull
    request mistaken for an open one would lose a submission."""
    listed = api.get_repo_discussions(
        repo_id, repo_type=kind, author=author, discussion_type="pull_request", discussion_status="open"
    )
    for each in listed:
        if each.is_pull_request and each.status in ("open", "draft") and author in (None, each.author):
            yield each


def pull_title(folder: str) -> str:
    """The title of the pull request that adds a folder; at most the Hub's 200 characters, and one title per folder."""
    title = f"Add {folder}"
    return title if len(title) <= 200 else f"{title[:180]} {hashlib.sha256(folder.encode()).hexdigest()[:12]}"


def _description(submission: Submission) -> str:
    result = submission.result
    lines = [
        f"{result.model.name} on {result.benchmark.name}, split {result.benchmark.split}, method {result.method.name}: "
        f"{result.benchmark.questions:,} questions.",
        *(f"- {note}" for note in submission.notes),
        *(f"- for a person to look at: {flag}" for flag in submission.flags),
        "`medprobe verify` derives the scores from the answers.",
    ]
    return "\n".join(lines)


def has_submission(api: HfApi, repo_id: str, revision: str, files: Iterable[str]) -> bool:
    """True if a revision holds a submission, whose folder's name is a digest of what was asked and answered. `files`: its paths."""
    wanted = [path for path in files if path.endswith((f"/{RUN_FILE}", f"/{ANSWERS_FILE}"))]
    return len(find_files(api, repo_id, revision, wanted)) == len(wanted) > 0


def find_files(api: HfApi, repo_id: str, revision: str, paths: list[str]) -> dict[str, RepoFile]:
    """The paths that exist in a revision."""
    from huggingface_hub.hf_api import RepoFile

    found = api.get_paths_info(repo_id, paths, revision=revision, repo_type="dataset")
    return {entry.path: entry for entry in found if isinstance(entry, RepoFile)}


def fetch_file(api: HfApi, repo_id: str, revision: str, path: str, kind: str = "dataset") -> bytes:
    """A file of a revision, bypassing the cache."""
    with temporary_folder(Path(tempfile.gettempdir()), "medprobe-fetched-") as folder:
        file = api.hf_hub_download(repo_id, path, revision=revision, repo_type=kind, local_dir=folder)
        return Path(file).read_bytes()


def fetch_acceptance(api: HfApi, repo_id: str, revision: str, folder: str) -> Acceptance | None:
    """The acceptance of the result in a folder of a store on the Hub; None if there is none. Raises BadInput for a damaged file."""
    path = f"{folder}/{ACCEPTANCE}"
    if path not in find_files(api, repo_id, revision, [path]):
        return None
    return parse_record(fetch_file(api, repo_id, revision, path), Acceptance, path)
