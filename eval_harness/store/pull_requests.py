"""Verify pull requests to a results store on the Hub: examine, comment, and add the valid ones.

A pull request may add `run.json`, `answers.parquet` and `judge.parquet` of one result, or a
withdrawal, and nothing else. The files are downloaded from one commit and examined. If they
are valid, the rows that were read and the derived files are committed to main in one commit, and
the pull request gets a comment and is closed. It is never merged, since a merge could include a
later push. Verifying twice, even in parallel, does no harm: if the files are already on main, the
pull request is just closed.

See also: examining a submission (`examine.py`).
"""

import hashlib
import json
import math
import re
import shlex
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dataset_builders.errors import BadInput, Unavailable, clip
from dataset_builders.hub.client import hide_progress_bars, hub_errors, with_retries
from eval_harness.answer_files.untrusted import printable_lines
from eval_harness.derive.run_files import (
    JUDGE_FILE,
    RESULT_FILE,
    RUN_FILE,
    SUBMITTED_FILES,
    SubmittedFiles,
)
from eval_harness.records.result import DERIVE_VERSION
from eval_harness.store.adding import (
    WITHDRAWAL_PATH,
    commit_to_main,
    fetch_acceptance,
    fetch_file,
    find_files,
    has_submission,
    list_open_pulls,
    withdrawal_problem,
)
from eval_harness.store.checks import PublishedNames
from eval_harness.store.contents import ACCEPTANCE, MAX_RECORD_BYTES, WITHDRAWN, Acceptance, Submission, utc_now
from eval_harness.store.dataset_lookup import find_dataset
from eval_harness.store.examine import MAX_BYTES_BY_FILE, examine_in_sandbox
from eval_harness.store.sandbox import time_limit
from eval_harness.store.similarity import Digests, duplicate_flags

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.community import DiscussionWithDetails
    from huggingface_hub.hf_api import RepoFile

SUBMISSION_PATH = re.compile(
    r"(results/[A-Za-z0-9][\w.-]*/[A-Za-z0-9_][\w.-]*/[A-Za-z0-9][\w.-]*)/"
    rf"({'|'.join(re.escape(name) for name in SUBMITTED_FILES)})",
    re.ASCII,
)
"""Path of a submitted file; its groups are the result's folder and the file's name."""
ALREADY_ON_MAIN = "it was already on main"
"""Note on a pull request whose files another verifier has added."""
CLOSED_STATUSES = ("closed", "merged")
"""Hub statuses of a pull request that is no longer open."""
READ_SECONDS_BY_ROUND = (2.0, 25.0, math.inf)
"""Time for reading a submission in each round of `verify --all`, in seconds.

Slow submissions are left to later rounds, so that they do not delay fast ones.
"""
MIN_COMPARE_SECONDS = 30.0
"""Minimum time for reading the older submissions with which one is compared, in seconds."""
Outcome = Literal["added", "verified", "refused", "for a person", "closed already", "later", "failed"]
"""What became of a pull request, or of a stored result, that was verified."""


@dataclass(frozen=True)
class VerifyResult:
    """Outcome for a pull request, or for a result in a folder store."""

    target: str
    status: Outcome
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    """Commands with which the store's owner can go on.

    They contain the owner's paths and datasets, so they must never be put in a comment.
    """

    def __str__(self) -> str:
        lines = "".join(f"\n  {line}" for line in printable_lines([*self.reasons, *self.notes]))
        return f"{self.target}: {self.status}{lines}" + "".join(f"\n  {command}" for command in self.commands)


@dataclass(frozen=True)
class AddedFiles:
    """The files that a pull request adds with its commit `head`."""

    head: str
    folder: str
    withdrawal: str | None = None
    """Path of the withdrawal, if that is what the pull request adds."""
    entries: "dict[str, RepoFile]" = field(default_factory=dict)


class SubmissionRefused(Exception):
    """Raised to refuse a pull request; `problems` are all that were found."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class PullRequests:
    """The pull requests of a store, as `account` verifies them.

    `data`: datasets that the store's owner vouches for. `published`: model names in papers.
    """

    api: "HfApi"
    repo: str
    account: str
    data: tuple[str, ...]
    with_questions: bool = False
    published: PublishedNames | None = None
    read_seconds: float = math.inf
    """Time for reading a submission; a slower one raises Unavailable, which is not a verdict."""
    skips_refused: bool = False
    """Whether to skip a pull request that was refused and has not been pushed to since."""
    _digests_by_head: dict[str, Digests | None] = field(default_factory=dict)
    """Head commit -> digests of its answers; None if they are not to be compared."""
    _slow_heads: set[str] = field(default_factory=set)
    """Head commits that could not be read in time."""

    def pull(self, number: int, accepted: str | None = None, refusal: str | None = None) -> VerifyResult:
        """Examine one pull request and act on the verdict, or close it as a person decided.

        Args:
            number: Number of the pull request.
            accepted: The commit whose flags a person has reviewed, and which is added in spite of
                them. No comment is made if it is refused after all.
            refusal: Why a person refuses it, in plain text. It is then closed with this as a
                comment, without being examined.

        Raises:
            BadInput: If the Hub denies access, or something was pushed after `accepted`.
        """
        target = f"{self.repo}@{number}"
        verb = "verify" if refusal is None else "refuse"
        with hide_progress_bars(), hub_errors(self.repo, f"{verb} pull request {number}", self.account):
            details = self._details(number)
            if details.status in CLOSED_STATUSES:
                return VerifyResult(target, "closed already", (f"it is {details.status}",))
            head = str(self._head(f"refs/pr/{number}"))
            if refusal is not None:
                result = VerifyResult(target, "refused", (refusal,))
                return self._close(details, head, result, f"Refused by {self.account}")
            # Anything that was pushed after the review must be reviewed, too.
            if accepted is not None and head != accepted:
                raise BadInput(
                    f"{target}: its commit is now {head}, not {clip(accepted)}. Review what was "
                    f"pushed: `medprobe verify {target}`."
                )
            if self.skips_refused and (problems := self._refusal(details, head)) is not None:
                return VerifyResult(target, "refused", problems)
            try:
                added = with_retries(lambda: self._added(head))
                if added.withdrawal:
                    return self._withdrawal(target, details, added)
                return self._result(target, details, added, accepted is not None)
            except SubmissionRefused as refused:
                result = VerifyResult(target, "refused", refused.problems)
                return result if accepted else self._comment(details, head, result)

    def _details(self, number: int) -> "DiscussionWithDetails":
        """Return the details of a pull request. Raises BadInput if the number is a discussion's."""
        details = with_retries(lambda: self.api.get_discussion_details(self.repo, number, repo_type="dataset"))
        if not details.is_pull_request:
            raise BadInput(f"{self.repo}@{number}: a discussion, not a pull request.")
        return details

    def _head(self, revision: str | None = None) -> str | None:
        """Return the newest commit of main, or of another revision; None if there is none."""
        return with_retries(lambda: self.api.repo_info(self.repo, revision=revision, repo_type="dataset")).sha

    def _added(self, head: str) -> AddedFiles:
        """Return the files that the pull request adds to the commit on main that it is based on.

        Raises:
            SubmissionRefused: If it changes or deletes anything.
        """
        from huggingface_hub.hf_api import RepoFile

        def tree(revision: str) -> "dict[str, RepoFile]":
            entries = self.api.list_repo_tree(self.repo, recursive=True, revision=revision, repo_type="dataset")
            return {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}

        on_main = {commit.commit_id for commit in self.api.list_repo_commits(self.repo, repo_type="dataset")}
        commits = self.api.list_repo_commits(self.repo, revision=head, repo_type="dataset")
        # The newest of these commits that is also on main. Comparing with main's head instead would
        # show what others have added since as deleted.
        base = next((commit.commit_id for commit in commits if commit.commit_id in on_main), None)
        base_files, head_files = tree(base) if base else {}, tree(head)
        problems = [f"deletes {clip(path, 200)}" for path in base_files if path not in head_files]
        problems += [
            f"changes {clip(path, 200)}"
            for path, entry in base_files.items()
            if path in head_files and head_files[path].blob_id != entry.blob_id
        ]
        new = {path: entry for path, entry in head_files.items() if path not in base_files}
        if len(new) == 1 and not problems and (match := WITHDRAWAL_PATH.fullmatch(next(iter(new)))):
            if (size := next(iter(new.values())).size) > MAX_RECORD_BYTES:
                raise SubmissionRefused(f"{match[0]} has {size:,} bytes, at most {MAX_RECORD_BYTES:,} are read")
            return AddedFiles(head, match[1], match[0], new)

        return AddedFiles(head, self._folder_of(new, problems), None, new)

    @staticmethod
    def _folder_of(new: "dict[str, RepoFile]", problems: list[str]) -> str:
        """Return the folder of the one result to which these files belong.

        Args:
            new: The added files by path.
            problems: Problems found so far.

        Raises:
            SubmissionRefused: If there are problems, or the files are not those of one result.
        """
        matches = {path: SUBMISSION_PATH.fullmatch(path) for path in new}
        problems = problems + [
            f"adds {clip(path, 200)}, which is not part of a submission" for path, match in matches.items() if not match
        ]
        folders = sorted({match[1] for match in matches.values() if match})
        if problems:
            raise SubmissionRefused(
                *problems,
                f"a pull request may only add results/BENCHMARK/MODEL/RUN_ID/{{{','.join(SUBMITTED_FILES)}}}",
            )
        if not new:
            raise SubmissionRefused("adds nothing")
        if len(folders) > 1:
            raise SubmissionRefused(
                f"adds {len(folders)} results: give each its own pull request ({', '.join(folders[:3])} ...)"
            )

        folder = folders[0]

        for name, max_bytes in MAX_BYTES_BY_FILE.items():
            entry = new.get(f"{folder}/{name}")
            if entry is None and name != JUDGE_FILE:
                raise SubmissionRefused(f"lacks {folder}/{name}")
            if entry is not None and entry.size > max_bytes:
                raise SubmissionRefused(f"{folder}/{name} has {entry.size:,} bytes, at most {max_bytes:,} are read")

        return folder

    def _files(self, added: AddedFiles) -> dict[str, bytes]:
        """Download the added files. Raises BadInput if a size is not the one that was listed."""
        files = {}
        for path, entry in added.entries.items():
            files[path] = with_retries(partial(fetch_file, self.api, self.repo, added.head, path))
            # The limits were checked for the listed sizes.
            if entry.size != len(files[path]):
                raise BadInput(f"{self.repo}: the Hub sent {path} with another size than it lists. Run this again.")
        return files

    def _examined(self, added: AddedFiles, read_seconds: float) -> Submission:
        """Examine the files that a pull request adds.

        Raises:
            Unavailable: If reading takes longer than `read_seconds`.
            SubmissionRefused: If no scores can be derived.
        """
        files = self._files(added)
        sent = SubmittedFiles(
            *(files.get(f"{added.folder}/{name}", b"" if name != JUDGE_FILE else None) for name in SUBMITTED_FILES)  # type: ignore[arg-type]
        )
        try:
            with time_limit(read_seconds):
                submission = examine_in_sandbox(
                    sent, partial(find_dataset, data=self.data, owner=self.repo.split("/")[0])
                )
        except Unavailable:
            # A timeout is not a verdict, so the pull request is not refused.
            self._slow_heads.add(added.head)
            raise
        except BadInput as error:
            raise SubmissionRefused(str(error)) from None

        self._slow_heads.discard(added.head)
        return submission

    def _result(
        self, target: str, details: "DiscussionWithDetails", added: AddedFiles, accept_flagged: bool
    ) -> VerifyResult:
        """Act on a pull request that adds a result: refuse it, ask for review, or add it."""
        began, author = time.monotonic(), str(details.author)
        submission = self._examined(added, self.read_seconds)
        # Reading a copy takes about as long as reading its original, so there is no need to wait
        # much longer for any older submission.
        compare_seconds = max(MIN_COMPARE_SECONDS, 5 * (time.monotonic() - began))
        self._digests_by_head[added.head] = submission.digests
        # The content determines the folder; a submitter cannot choose it.
        if submission.folder != added.folder:
            submission.problems.append(
                f"is in {clip(added.folder, 200)}, but its run.json and answers belong in "
                f"{clip(submission.folder, 200)}"
            )
        if submission.problems:
            raise SubmissionRefused(*submission.problems)
        main = self._head()
        if main and with_retries(lambda: has_submission(self.api, self.repo, main, submission.files())):
            return self._close(details, added.head, VerifyResult(target, "added", notes=(ALREADY_ON_MAIN,)))

        older, unread = self._older(f"results/{submission.result.benchmark.name}", details.num, author, compare_seconds)
        flags = [*submission.flags, *self._duplicates(submission, author, older)]
        numbers = ", ".join(map(str, unread))
        slow = [f"not compared with the older pull requests {numbers}, which take too long to read"] if unread else []
        notes = (
            f"{submission.result.model.name} on {submission.result.benchmark.name}",
            *submission.notes,
            *slow,
        )
        if flags and not accept_flagged:
            result = VerifyResult(target, "for a person", tuple(flags), commands=self._commands(target, added.head))
            return self._comment(details, added.head, result)

        acceptance = Acceptance(
            account=author,
            accepted_at=utc_now(),
            verified_by=self.account,
            pull_request=details.num,
            flags=printable_lines(flags),
        )

        extra_files = submission.accepted_files(acceptance.to_bytes(), self.with_questions)
        return self._add(target, details, added, submission.files(), extra_files, (*notes, *flags))

    def _withdrawal(self, target: str, details: "DiscussionWithDetails", added: AddedFiles) -> VerifyResult:
        """Add a withdrawal, if it is by the result's submitter or the store's owner."""
        path, main = str(added.withdrawal), str(self._head())
        content = self._files(added)
        if with_retries(lambda: find_files(self.api, self.repo, main, [path])):
            return self._close(details, added.head, VerifyResult(target, "added", notes=(ALREADY_ON_MAIN,)))

        run = f"{added.folder}/{RUN_FILE}"
        if run not in with_retries(lambda: find_files(self.api, self.repo, main, [run])):
            raise SubmissionRefused(f"{clip(added.folder, 200)}: the store has no such result")
        acceptance = with_retries(lambda: fetch_acceptance(self.api, self.repo, main, added.folder))
        problem = withdrawal_problem(path, content[path], str(details.author), self.repo.split("/")[0], acceptance)
        if problem:
            raise SubmissionRefused(problem)
        return self._add(target, details, added, content, {}, (f"added {path}",))

    def _commands(self, target: str, head: str) -> tuple[str, str]:
        """Return the commands with which the owner adds or closes a flagged pull request."""
        options = [word for data in self.data for word in ("--data", data)]
        options += ["--with-questions"] if self.with_questions else []
        return (
            f"to add it: {shlex.join(['medprobe', 'accept', target, '--commit', head, *options])}",
            f"to close it: {shlex.join(['medprobe', 'refuse', target, '--reason'])} ...",
        )

    def _duplicates(self, submission: Submission, author: str, older: dict[str, tuple[str, Digests]]) -> list[str]:
        """Return the flags from comparing with results on main and older pull requests."""
        prefix, main = f"results/{submission.result.benchmark.name}", self._head()
        patterns = [f"{prefix}/*/*/{name}" for name in (RESULT_FILE, ACCEPTANCE, WITHDRAWN)]
        # A repository without commits has nothing to compare with.
        folder = Path("no such store")
        if main is not None:
            download = partial(self.api.snapshot_download, self.repo, repo_type="dataset", revision=main)
            folder = Path(with_retries(lambda: download(allow_patterns=patterns)))

        def fetch(file: Path) -> None:
            path = file.relative_to(folder).as_posix()
            with_retries(partial(self.api.hf_hub_download, self.repo, path, revision=main, repo_type="dataset"))

        return duplicate_flags(folder, submission, author, fetch, older, self.published)

    def _older(
        self, prefix: str, number: int, author: str, read_seconds: float
    ) -> tuple[dict[str, tuple[str, Digests]], list[int]]:
        """Return the answers in older open pull requests of other accounts to the same benchmark.

        At most `read_seconds` are spent on reading them all, so that no pull request can keep
        another one from its verdict.

        Returns:
            Pull request -> (account, digests), and the numbers of the pull requests that could not
                be read in this time.
        """
        pending: dict[str, tuple[str, Digests]] = {}
        unread, deadline = list[int](), time.monotonic() + read_seconds
        for pull in sorted(
            with_retries(lambda: list(list_open_pulls(self.api, self.repo))),
            key=lambda pull: pull.num,
        ):
            # Of two copies, the one that was submitted first counts as the original.
            if pull.status == "draft" or pull.num > number or pull.author == author:
                continue
            head = str(self._head(f"refs/pr/{pull.num}"))
            if head not in self._digests_by_head and head not in self._slow_heads and time.monotonic() < deadline:
                self._digests_by_head[head] = self._digests(
                    pull.num, head, prefix, min(self.read_seconds, deadline - time.monotonic())
                )
            if head in self._slow_heads or head not in self._digests_by_head:
                unread.append(pull.num)
            elif (digests := self._digests_by_head[head]) is not None:
                pending[f"pull request {pull.num}"] = (str(pull.author), digests)

        return pending, unread

    def _digests(self, number: int, head: str, prefix: str, read_seconds: float) -> Digests | None:
        """Return the digests of another pull request's answers.

        None if it is refused, too slow to read, or about another benchmark.
        """
        if self.skips_refused and self._refusal(self._details(number), head) is not None:
            return None
        with suppress(SubmissionRefused, BadInput):
            added = with_retries(partial(self._added, head))
            if not added.withdrawal and added.folder.startswith(f"{prefix}/"):
                submission = self._examined(added, read_seconds)
                return None if submission.problems else submission.digests
        return None

    def _add(
        self,
        target: str,
        details: "DiscussionWithDetails",
        added: AddedFiles,
        files: dict[str, bytes],
        extra_files: dict[str, bytes],
        notes: tuple[str, ...],
    ) -> VerifyResult:
        """Commit the files to main, unless another verifier has done so, and close the request."""
        message = f"Add {added.folder}"[:190] + f" (#{details.num})"
        description = f"Verified by `medprobe verify`; answers by {details.author}."
        is_new = commit_to_main(self.api, self.repo, files, extra_files, message, description)
        notes = notes if is_new else (*notes, ALREADY_ON_MAIN)
        return self._close(details, added.head, VerifyResult(target, "added", notes=notes))

    def _close(
        self,
        details: "DiscussionWithDetails",
        head: str,
        result: VerifyResult,
        headline: str | None = None,
    ) -> VerifyResult:
        """Comment on the outcome, then close the pull request.

        A step that is already done is skipped, so a second verifier or a retry only completes the
        rest.
        """
        from huggingface_hub.errors import HfHubHTTPError

        def is_closed() -> bool:
            return self._details(details.num).status in CLOSED_STATUSES

        def close() -> bool:
            try:
                self.api.change_discussion_status(self.repo, details.num, "closed", repo_type="dataset")
            except HfHubHTTPError:
                # The Hub refuses to close it again if another verifier was faster.
                if not is_closed():
                    raise
            return True

        self._comment(details, head, result, headline)
        with_retries(close, check_done=lambda: is_closed() or None)
        return result

    def _refusal(self, details: "DiscussionWithDetails", head: str) -> tuple[str, ...] | None:
        """Return the problems for which this account has already refused a commit, or None.

        A refusal counts only if it was made in the same circumstances (`_circumstances`).
        """
        opening = _comment_text(head, VerifyResult("", "refused"), None, self._circumstances())
        for event in details.events:
            content = str(getattr(event, "content", ""))
            if event.author == self.account and content.startswith(opening):
                return tuple(content.removeprefix(opening).strip("\n`").split("\n"))
        return None

    def _circumstances(self) -> str:
        """Return a digest of everything, besides the commit, that a refusal depends on.

        The verifier's token is part of what is hashed, so that the digest does not reveal which
        datasets they use.
        """
        # With another version or other datasets, the verdict may be different.
        parts = json.dumps([self.api.token, DERIVE_VERSION, self.data])
        return hashlib.sha256(parts.encode()).hexdigest()[:8]

    def _comment(
        self,
        details: "DiscussionWithDetails",
        head: str,
        result: VerifyResult,
        headline: str | None = None,
    ) -> VerifyResult:
        """Comment on a pull request, unless it already has this comment on the same commit."""
        text = _comment_text(head, result, headline, self._circumstances())
        # One verifier adds the result and another finds it on main: their notes differ, so only the
        # first line is compared.
        opening = text.split("\n")[0] if result.status == "added" else text

        def look() -> bool | None:
            discussion = self.api.get_discussion_details(self.repo, details.num, repo_type="dataset")
            own_comments = [
                str(getattr(event, "content", "")).strip()
                for event in discussion.events
                if event.author == self.account
            ]
            return any(comment == opening or comment.startswith(f"{opening}\n") for comment in own_comments) or None

        def say() -> bool:
            self.api.comment_discussion(self.repo, details.num, text, repo_type="dataset")
            return True

        with_retries(say, check_done=look)
        return result


OUTCOME_HEADLINES = {
    "added": "Verified: exactly these answers were added to main, with the scores derived from them, so this pull request is closed.",
    "refused": "Refused: nothing was added. Fix it and push to this pull request, or open another.",
    "for a person": "Its scores were derived, but the store's owner should review this before it is added:",
}
"""First sentence of the comment on each outcome."""


def _comment_text(head: str, result: VerifyResult, headline: str | None, circumstances: str) -> str:
    """Build a comment.

    Untrusted text goes into a code block, in which markup is not rendered and accounts are not
    notified.
    """
    lines = printable_lines([line.replace("`", "'") for line in (*result.reasons, *result.notes)], 500)
    block = "\n\n```\n" + "\n".join(lines) + "\n```" if lines else ""
    return (
        f"{headline or OUTCOME_HEADLINES[result.status]} (medprobe verify {circumstances}, commit {head[:12]}){block}"
    )
