"""A results store that is a dataset repository on the Hub: a submission is one pull request that only adds files.

Not here: what may be submitted (`submissions.py`), judging the pull requests of others (`verification.py`).
"""

from __future__ import annotations

import hashlib
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from dataset_builders.errors import BadInput
from dataset_builders.hub import check_repo_id, connect_with_token, hub_errors, is_passing

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    from eval_harness.submissions import Submission

T = TypeVar("T")
TRIES = 6
FIRST_WAIT = 0.5
"""Seconds before the second try, on average; doubled each time. Many submitters that were refused together must not come back together."""


def propose(repo_id: str, submission: Submission) -> tuple[str, bool]:
    """Open a pull request that adds the files of a submission; returns its address, and whether it is new.

    What is in the store already, or in an open pull request of this account, is not proposed again. Each try looks again first, so that
    a commit whose answer got lost is found instead of being made twice.
    Raises BadInput: no token, no such store, other answers of this run there, a Hub that refuses or cannot be reached.
    """
    check_repo_id(repo_id)
    api = connect_with_token()
    files = submission.files()
    with hub_errors(repo_id, "sign in"):
        who = str(patiently(api.whoami).get("name"))
    with quiet(), hub_errors(repo_id, "open a pull request", who):
        return patiently(lambda: _propose(api, repo_id, who, submission, files))


def _propose(api: HfApi, repo_id: str, who: str, submission: Submission, files: dict[str, bytes]) -> tuple[str, bool]:
    from huggingface_hub import CommitOperationAdd

    head = api.repo_info(repo_id, repo_type="dataset").sha
    if _holds(api, repo_id, str(head), files, f"{repo_id} on main"):
        return f"{api.endpoint}/datasets/{repo_id}/tree/main/{submission.folder}", False
    title = title_of(submission.folder)
    for pull in api.get_repo_discussions(
        repo_id, repo_type="dataset", author=who, discussion_type="pull_request", discussion_status="open"
    ):
        if pull.title == title and _holds(api, repo_id, f"refs/pr/{pull.num}", files, f"your pull request {pull.url}"):
            return pull.url, False
    done = api.create_commit(
        repo_id,
        [CommitOperationAdd(path, content) for path, content in sorted(files.items())],
        commit_message=title,
        commit_description=_description(submission),
        repo_type="dataset",
        create_pr=True,
    )
    assert done.pr_url is not None
    return done.pr_url, True


def title_of(folder: str) -> str:
    """The title of the pull request that adds a folder; at most the Hub's 200 characters, and one title per folder."""
    title = f"Add {folder}"
    return title if len(title) <= 200 else f"{title[:180]} {hashlib.sha256(folder.encode()).hexdigest()[:12]}"


def _description(submission: Submission) -> str:
    result = submission.result
    lines = [
        f"{result.model.name} on {result.benchmark.name}, split {result.benchmark.split}, method {result.method.name}: "
        f"{result.benchmark.questions:,} questions.",
        *(f"- {note}" for note in submission.notes),
        *(f"- for a human to look at: {flag}" for flag in submission.flags),
        "`medprobe verify` computes the scores again from the answers.",
    ]
    return "\n".join(lines)


def _holds(api: HfApi, repo_id: str, revision: str, files: dict[str, bytes], where: str) -> bool:
    """Whether a revision holds this submission already. BadInput when it holds other answers of the same run."""
    there = files_at(api, repo_id, revision, sorted(files))
    if not there:
        return False
    for path, content in files.items():
        if path.endswith("/answers.parquet") and not (path in there and is_content(there[path], content)):
            raise BadInput(
                f"{where}: holds other answers of this run ({path}). A store only grows: submit a run with another name or settings, "
                "or close that pull request."
            )
    return True


def files_at(api: HfApi, repo_id: str, revision: str, paths: list[str]) -> dict[str, RepoFile]:
    """Those of the paths that are files of a revision."""
    from huggingface_hub.hf_api import RepoFile

    found = api.get_paths_info(repo_id, paths, revision=revision, repo_type="dataset")
    return {entry.path: entry for entry in found if isinstance(entry, RepoFile)}


def is_content(entry: RepoFile, content: bytes) -> bool:
    """Whether a file of the repository has exactly this content, by the Hub's own digest of it."""
    if entry.size != len(content):
        return False
    if entry.lfs is not None:
        return bool(entry.lfs.sha256 == hashlib.sha256(content).hexdigest())
    return bool(entry.blob_id == hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest())


@contextmanager
def quiet() -> Iterator[None]:
    """Without the Hub client's progress bars where nobody watches."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if sys.stderr.isatty() or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def patiently(action: Callable[[], T], tries: int = TRIES) -> T:
    """Do it, and again a few times when what stands in the way passes."""
    for attempt in range(tries):
        try:
            return action()
        except BadInput:
            raise
        except Exception as error:
            if attempt == tries - 1 or not is_passing(error):
                raise
            time.sleep(FIRST_WAIT * 2 ** min(attempt, 5) * random.uniform(0.5, 1.5))
    raise AssertionError("unreachable")
