"""A results store that is a dataset repository on the Hub: a submission is one pull request that only adds files, and what the
store's owner has run again one commit.

See also: what may be submitted (`submit.py`), judging the pull requests of others (`verification.py`).
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dataset_builders.errors import BadInput, Unavailable
from dataset_builders.files import temporary_folder
from dataset_builders.hub.client import hub_errors, quiet, sign_in, status_of, with_retries
from dataset_builders.hub.commits import commit_files
from eval_harness.records.limits import MAX_FILE, MOST_UNPACKED
from eval_harness.records.result import Result
from eval_harness.results.landing import LANDING, Landing, now
from eval_harness.submissions.outcome import weight_of
from eval_harness.submissions.stores.folder_store import questions_bytes
from eval_harness.submissions.submission import answers_digest
from eval_harness.submissions.untrusted.envelope import envelope
from eval_harness.submissions.untrusted.files import parquet_rows
from eval_harness.submissions.untrusted.sandbox import call

if TYPE_CHECKING:
    from huggingface_hub import Discussion, HfApi
    from huggingface_hub.hf_api import RepoFile

    from eval_harness.submissions.submission import Submission


LANDING_TRIES = 12
"""Others commit to the same branch: a commit to main is tried again on top of theirs."""


class Conflict(BadInput):
    """A store holds something else in the place of what is to be added."""


def propose(repo_id: str, submission: Submission, token: str | None = None) -> tuple[str, bool]:
    """Open a pull request that adds the files of a submission; returns its address, and whether it is new. `token`: None is this machine's.

    What is in the store already, or in an open pull request of this account, is not proposed again. Each try looks again first, so that
    a commit whose answer got lost is found instead of being made twice.
    Raises BadInput: no token, no such store, other answers of this run there, a Hub that refuses or cannot be reached.
    """
    api, who = sign_in(repo_id, token)
    files = submission.files()
    title = title_of(submission.folder)

    def look() -> tuple[str, bool] | None:
        url = _proposed(api, repo_id, who, submission.folder, files)
        return (url, False) if url else None

    def propose_it() -> tuple[str, bool]:
        done = commit_files(api, repo_id, files, title, description=_description(submission), pull_request=True)
        url = done.pr_url or _proposed(api, repo_id, who, submission.folder, files)
        if url is None:
            raise BadInput(f"{repo_id}: the Hub does not say where the pull request is. Run this again to find it.")
        return url, True

    with quiet(), hub_errors(repo_id, "open a pull request", who):
        return with_retries(propose_it, look=look)


def _proposed(api: HfApi, repo_id: str, who: str, folder: str, files: dict[str, bytes]) -> str | None:
    """Where these files are on the Hub already: on main, or in an open pull request of this account."""
    head = api.repo_info(repo_id, repo_type="dataset").sha
    if head and holds(api, repo_id, head, files, f"{repo_id} on main"):
        return f"{api.endpoint}/datasets/{repo_id}/tree/main/{folder}"
    for pull in open_pulls(api, repo_id, who):
        if pull.title == title_of(folder) and holds(
            api, repo_id, f"refs/pr/{pull.num}", files, f"your pull request {pull.url}"
        ):
            return pull.url
    return None


def add(repo_id: str, submission: Submission, with_questions: bool = False) -> tuple[str, bool]:
    """Commit a submission to main, which only those who may write to the store can; returns its address, and whether it is new.

    Raises BadInput: no token, no such store, no right to write, another result of this run there, a Hub that refuses.
    """
    api, who = sign_in(repo_id)
    more = {f"{submission.folder}/{LANDING}": Landing(account=who, landed_at=now(), verified_by=who).to_bytes()}
    if with_questions:
        more |= questions_file(submission)
    with quiet(), hub_errors(repo_id, "add a reproduced result", who):
        try:
            about = _description(submission)
            new = commit_to_main(api, repo_id, submission.files(), more, title_of(submission.folder), about)
        except Exception as error:
            if status_of(error) != 403:
                raise
            raise BadInput(
                f"{repo_id}: the account {who} may not write to it, and only who owns a store says what is reproduced. Use a token that "
                "may write there, or leave --reproduced out: that opens a pull request."
            ) from None
        path = f"{submission.folder}/result.json"
        there = None if new else with_retries(lambda: fetched(api, repo_id, "main", path))
        if there and Result.model_validate_json(there).provenance != submission.result.provenance:
            raise BadInput(
                f"{repo_id} on main: holds these answers as a submission in {submission.folder}. Move it away."
            )
    return f"{api.endpoint}/datasets/{repo_id}/tree/main/{submission.folder}", new


def commit_to_main(
    api: HfApi, repo_id: str, files: dict[str, bytes], more: dict[str, bytes], message: str, description: str = ""
) -> bool:
    """Commit `files`, and of `more` what is not there yet, to main as it is now; False where it holds the files already.

    Tried again on top of what others commit in between; each try looks again first, so that it is never made twice.
    Raises Conflict where main holds something else in their place, and whatever the Hub's client raises.
    """
    head: str | None = None
    content: dict[str, bytes] = {}

    def look() -> bool | None:
        nonlocal head, content
        head = api.repo_info(repo_id, repo_type="dataset").sha  # None where nothing was ever committed
        if head and holds(api, repo_id, head, files, f"{repo_id} on main"):
            return False
        known = files_at(api, repo_id, head, sorted(more)) if more and head else {}
        content = files | {path: data for path, data in more.items() if path not in known}
        return None

    def commit() -> bool:
        commit_files(api, repo_id, content, message, description=description, parent=head)
        return True

    return with_retries(commit, LANDING_TRIES, look)


def questions_file(submission: Submission) -> dict[str, bytes]:
    """The questions of a submission by their path in a store; nothing where nobody vouches for them."""
    path = f"questions/{submission.result.benchmark.fingerprint}.parquet"
    return {path: questions_bytes(submission.questions)} if submission.vouched else {}


def open_pulls(api: HfApi, repo_id: str, author: str | None = None, kind: str = "dataset") -> Iterator[Discussion]:
    """The open pull requests of a repository (of one author), the newest first. What the Hub was asked to leave out is left out here too:
    a closed pull request that is taken for an open one would lose a submission."""
    listed = api.get_repo_discussions(
        repo_id, repo_type=kind, author=author, discussion_type="pull_request", discussion_status="open"
    )
    for each in listed:
        if each.is_pull_request and each.status in ("open", "draft") and author in (None, each.author):
            yield each


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


def holds(api: HfApi, repo_id: str, revision: str, files: dict[str, bytes], where: str) -> bool:
    """Whether a revision holds these files already: a result with the same answers, whatever was read out of them since
    (`medprobe rescore`), and of others the same bytes. Raises Conflict where it holds something else in their place."""
    there = files_at(api, repo_id, revision, sorted(files))
    if not there:
        return False
    for path, content in files.items():
        entry = there.get(path)
        if path.endswith("/result.json") or holds_content(api, repo_id, revision, entry, content):
            continue
        if path.endswith("/answers.parquet") and entry is not None and entry.size <= MAX_FILE:
            theirs = fetched(api, repo_id, revision, path)
            if _digest(theirs) == _digest(content):
                continue
        raise Conflict(
            f"{where}: holds something else in the place of {path}. A store only grows: submit a run with another name or settings, or "
            "close that pull request."
        )
    return True


def _digest(answers: bytes) -> str:
    """`answers_digest` of an answers.parquet that anybody may have written; of what is none, that of its bytes."""
    try:
        return call(envelope(weight_of(answers)), _digest_here, answers)
    except Unavailable:
        raise
    except BadInput:
        return hashlib.sha256(answers).hexdigest()


def _digest_here(answers: bytes) -> str:
    try:
        return answers_digest(parquet_rows(answers, most_bytes=MOST_UNPACKED))
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(str(error)) from None


def files_at(api: HfApi, repo_id: str, revision: str, paths: list[str]) -> dict[str, RepoFile]:
    """Those of the paths that are files of a revision."""
    from huggingface_hub.hf_api import RepoFile

    found = api.get_paths_info(repo_id, paths, revision=revision, repo_type="dataset")
    return {entry.path: entry for entry in found if isinstance(entry, RepoFile)}


def holds_content(api: HfApi, repo_id: str, revision: str, entry: RepoFile | None, content: bytes) -> bool:
    """Whether a file of a revision (None: there is none) has exactly this content.

    The Hub's digest spares the download where it agrees; where it does not, which may be for another way of taking it, the bytes decide.
    """
    if entry is None or entry.size != len(content):
        return False
    if entry.lfs is not None:
        agrees = entry.lfs.sha256 == hashlib.sha256(content).hexdigest()
    else:
        agrees = entry.blob_id == hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    return bool(agrees) or fetched(api, repo_id, revision, entry.path) == content


def fetched(api: HfApi, repo_id: str, revision: str, path: str, kind: str = "dataset") -> bytes:
    """A file of a revision, not by way of the cache."""
    with temporary_folder(Path(tempfile.gettempdir()), "medprobe-fetched-") as folder:
        file = api.hf_hub_download(repo_id, path, revision=revision, repo_type=kind, local_dir=folder)
        return Path(file).read_bytes()
