"""Pull requests to a results store on the Hub: examine the files that they add, comment, and add those without problems to main.

A pull request may add `run.json`, `answers.parquet` and `judge.parquet` of one result, nothing else. They are downloaded as they are in one
commit of it; when they are clean, their rows, written anew, and what was derived from them are committed to main in one commit, and the
pull request is commented on and closed. It is never merged, which could take a later push. Safe to run twice and in parallel: whichever
finds the files on main already only closes. See also: what is examined (`examine.py`).
"""

from __future__ import annotations

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
    ANSWERS_FILE,
    JUDGE_FILE,
    RESULT_FILE,
    RUN_FILE,
    SUBMITTED_FILES,
    SubmittedFiles,
)
from eval_harness.records.limits import MAX_FILE_BYTES, MAX_RUN_JSON_BYTES
from eval_harness.records.result import DERIVE_VERSION
from eval_harness.store.acceptance import ACCEPTANCE, MAX_BYTES, WITHDRAWN, Acceptance, utc_now
from eval_harness.store.checks import PublishedNames
from eval_harness.store.dataset_lookup import find_dataset
from eval_harness.store.examine import examine_in_sandbox
from eval_harness.store.folder_store import duplicate_flags
from eval_harness.store.hub_store import (
    commit_to_main,
    fetch_acceptance,
    fetch_file,
    find_files,
    has_submission,
    list_open_pulls,
)
from eval_harness.store.notes import NOTE_PATH, note_problem
from eval_harness.store.sandbox import time_limit
from eval_harness.store.similarity import Digests
from eval_harness.store.submission import Submission

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.community import DiscussionWithDetails
    from huggingface_hub.hf_api import RepoFile

SUBMISSION_PATH = re.compile(
    r"(results/[A-Za-z0-9][\w.-]*/[A-Za-z0-9_][\w.-]*/[A-Za-z0-9][\w.-]*)/"
    rf"({'|'.join(re.escape(name) for name in SUBMITTED_FILES)})",
    re.ASCII,
)
CLOSED_STATUSES = ("closed", "merged")
READ_SECONDS_BY_ROUND = (2.0, 25.0, math.inf)
"""Seconds for reading one submission in the rounds of `verify --all`: what takes long keeps none waiting that does not."""
MIN_COMPARE_SECONDS = 30.0
"""Seconds at least for reading the older submissions that one is compared with."""
Outcome = Literal["added", "verified", "refused", "for a person", "closed already", "later", "failed"]


@dataclass(frozen=True)
class VerifyResult:
    """Outcome for a pull request, or for a result in a folder store."""

    what: str
    word: Outcome
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    """What the store's owner can do about it; it names their paths and datasets, so no comment holds it."""

    def __str__(self) -> str:
        lines = "".join(f"\n  {line}" for line in printable_lines([*self.reasons, *self.notes]))
        return f"{self.what}: {self.word}{lines}" + "".join(f"\n  {command}" for command in self.commands)


@dataclass(frozen=True)
class AddedFiles:
    """The files that a pull request adds, as they are in its commit `head`."""

    head: str
    folder: str
    note: str | None = None
    """The path of a withdrawal or a note, where it adds that and no result."""
    entries: dict[str, RepoFile] = field(default_factory=dict)


class SubmissionRefused(Exception):
    """A pull request that is refused, with every problem found."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class PullRequests:
    """The pull requests of a store, as `who` verifies them. `data`: datasets that the store's owner vouches for; `published`: names in
    papers."""

    api: HfApi
    repo: str
    who: str
    data: tuple[str, ...]
    with_questions: bool = False
    published: PublishedNames | None = None
    patience: float = math.inf
    """Seconds for reading one submission; what takes longer raises Unavailable, and nothing was found out about it."""
    remembers: bool = False
    """A pull request that was refused is not examined again before its next push."""
    _seen: dict[str, Digests | None] = field(default_factory=dict)
    """Commit of a pull request -> what it answers; None where that is refused, or of another benchmark."""
    _slow: set[str] = field(default_factory=set)
    """Those that could not be read in the time that they were given."""

    def pull(self, number: int, accepted: str | None = None) -> VerifyResult:
        """Examine one pull request and act on the verdict.

        Args:
            number: of the pull request.
            accepted: the commit whose flags a person has looked at; it is added in spite of them, or, if refused, without a comment.

        Raises:
            BadInput: if the Hub does not let us, or the pull request holds another commit by now.
        """
        what = f"{self.repo}@{number}"
        with hide_progress_bars(), hub_errors(self.repo, f"verify pull request {number}", self.who):
            details = self._details(number)
            if details.status in CLOSED_STATUSES:
                return VerifyResult(what, "closed already", (f"it is {details.status}",))
            head = str(self._head(f"refs/pr/{number}"))
            if accepted is not None and head != accepted:
                raise BadInput(
                    f"{what}: holds the commit {head} by now, not {clip(accepted)}. Look at what was pushed: `medprobe verify {what}`."
                )
            if self.remembers and (refusal := self._refusal(details, head)) is not None:
                return VerifyResult(what, "refused", refusal)
            try:
                added = with_retries(lambda: self._added(head))
                if added.note:
                    return self._note(what, details, added)
                return self._result(what, details, added, accepted is not None)
            except SubmissionRefused as refused:
                result = VerifyResult(what, "refused", refused.problems)
                return result if accepted else self._comment(details, head, result)

    def refuse(self, number: int, reason: str) -> VerifyResult:
        """Comment the reason and close a pull request. Raises BadInput if the Hub does not let us."""
        what = f"{self.repo}@{number}"
        with hide_progress_bars(), hub_errors(self.repo, f"refuse pull request {number}", self.who):
            details = self._details(number)
            if details.status in CLOSED_STATUSES:
                return VerifyResult(what, "closed already", (f"it is {details.status}",))
            head = str(self._head(f"refs/pr/{number}"))
            return self._close(details, head, VerifyResult(what, "refused", (reason,)), f"Refused by {self.who}")

    def _details(self, number: int) -> DiscussionWithDetails:
        details = with_retries(lambda: self.api.get_discussion_details(self.repo, number, repo_type="dataset"))
        if not details.is_pull_request:
            raise BadInput(f"{self.repo}@{number}: is a discussion, not a pull request.")
        return details

    def _head(self, revision: str | None = None) -> str | None:
        """The newest commit of main, or of another revision; None if there is none."""
        return with_retries(lambda: self.api.repo_info(self.repo, revision=revision, repo_type="dataset")).sha

    def _added(self, head: str) -> AddedFiles:
        """The files that the pull request adds to the commit of main that it is based on. Refused if it changes or deletes anything."""
        from huggingface_hub.hf_api import RepoFile

        def tree(revision: str) -> dict[str, RepoFile]:
            entries = self.api.list_repo_tree(self.repo, recursive=True, revision=revision, repo_type="dataset")
            return {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}

        on_main = {commit.commit_id for commit in self.api.list_repo_commits(self.repo, repo_type="dataset")}
        commits = self.api.list_repo_commits(self.repo, revision=head, repo_type="dataset")
        base = next((commit.commit_id for commit in commits if commit.commit_id in on_main), None)
        before, after = tree(base) if base else {}, tree(head)
        problems = [f"deletes {clip(path, 200)}" for path in before if path not in after]
        problems += [
            f"changes {clip(path, 200)}"
            for path, entry in before.items()
            if path in after and after[path].blob_id != entry.blob_id
        ]
        new = {path: entry for path, entry in after.items() if path not in before}
        if len(new) == 1 and not problems and (note := NOTE_PATH.fullmatch(next(iter(new)))):
            if (size := next(iter(new.values())).size) > MAX_BYTES:
                raise SubmissionRefused(f"{note[0]} has {size:,} bytes, at most {MAX_BYTES:,} are read")
            return AddedFiles(head, note[1], note[0], new)
        return AddedFiles(head, self._folder_of(new, problems), None, new)

    @staticmethod
    def _folder_of(new: dict[str, RepoFile], problems: list[str]) -> str:
        """The folder of the one result that these files make; refused when they make none, or more. `problems`: what is wrong already."""
        matches = {path: SUBMISSION_PATH.fullmatch(path) for path in new}
        problems = problems + [
            f"adds {clip(path, 200)}, which is no part of a submission" for path, match in matches.items() if not match
        ]
        folders = sorted({match[1] for match in matches.values() if match})
        if problems:
            raise SubmissionRefused(
                *problems, f"a pull request may only add results/BENCHMARK/MODEL/RUN_ID/{{{','.join(SUBMITTED_FILES)}}}"
            )
        if not new:
            raise SubmissionRefused("adds nothing")
        if len(folders) > 1:
            raise SubmissionRefused(
                f"adds {len(folders)} results: give each its own pull request ({', '.join(folders[:3])} ...)"
            )
        folder = folders[0]
        for name, most in (
            (RUN_FILE, MAX_RUN_JSON_BYTES),
            (ANSWERS_FILE, MAX_FILE_BYTES),
            (JUDGE_FILE, MAX_FILE_BYTES),
        ):
            entry = new.get(f"{folder}/{name}")
            if entry is None and name != JUDGE_FILE:
                raise SubmissionRefused(f"lacks {folder}/{name}")
            if entry is not None and entry.size > most:
                raise SubmissionRefused(f"{folder}/{name} has {entry.size:,} bytes, at most {most:,} are read")
        return folder

    def _files(self, added: AddedFiles) -> dict[str, bytes]:
        """The bytes that a pull request adds, as the Hub lists them."""
        files = {}
        for path, entry in added.entries.items():
            files[path] = with_retries(partial(fetch_file, self.api, self.repo, added.head, path))
            if entry.size != len(files[path]):
                raise BadInput(f"{self.repo}: the Hub sent another {path} than it lists. Run this again.")
        return files

    def _examined(self, added: AddedFiles, patience: float) -> Submission:
        files = self._files(added)
        sent = SubmittedFiles(
            *(files.get(f"{added.folder}/{name}", b"" if name != JUDGE_FILE else None) for name in SUBMITTED_FILES)  # type: ignore[arg-type]
        )
        try:
            with time_limit(patience):
                submission = examine_in_sandbox(
                    sent, partial(find_dataset, data=self.data, owner=self.repo.split("/")[0])
                )
        except Unavailable:
            self._slow.add(added.head)
            raise  # nothing was found out about the submission
        except BadInput as error:
            raise SubmissionRefused(str(error)) from None
        self._slow.discard(added.head)
        return submission

    def _result(
        self, what: str, details: DiscussionWithDetails, added: AddedFiles, accept_flagged: bool
    ) -> VerifyResult:
        began, author = time.monotonic(), str(details.author)
        submission = self._examined(added, self.patience)
        # A copy takes about as long to read as what it is a copy of; older submissions that take much longer are not waited for.
        patience = max(MIN_COMPARE_SECONDS, 5 * (time.monotonic() - began))
        self._seen[added.head] = submission.digests
        if submission.folder != added.folder:
            submission.problems.append(
                f"lies in {clip(added.folder, 200)}, but what its run.json and answers say belongs in {clip(submission.folder, 200)}"
            )
        if submission.problems:
            raise SubmissionRefused(*submission.problems)
        main = self._head()
        if main and with_retries(lambda: has_submission(self.api, self.repo, main, submission.files())):
            return self._close(details, added.head, VerifyResult(what, "added", notes=("it was on main already",)))
        older, unread = self._older(f"results/{submission.result.benchmark.name}", details.num, author, patience)
        flags = [*submission.flags, *self._duplicates(submission, author, older)]
        numbers = ", ".join(map(str, unread))
        slow = [f"not compared with the older pull requests {numbers}, which take long to read"] if unread else []
        notes = (f"{submission.result.model.name} on {submission.result.benchmark.name}", *submission.notes, *slow)
        if flags and not accept_flagged:
            result = VerifyResult(what, "for a person", tuple(flags), commands=self._commands(what, added.head))
            return self._comment(details, added.head, result)
        acceptance = Acceptance(
            account=author,
            accepted_at=utc_now(),
            verified_by=self.who,
            pull_request=details.num,
            flags=printable_lines(flags),
        )
        more = submission.derived_files() | {f"{added.folder}/{ACCEPTANCE}": acceptance.to_bytes()}
        if self.with_questions:
            more |= submission.questions_file()
        new = self._add(details, added.folder, submission.files(), more)
        notes = notes if new else (*notes, "it was on main already")
        return self._close(details, added.head, VerifyResult(what, "added", notes=(*notes, *flags)))

    def _note(self, what: str, details: DiscussionWithDetails, added: AddedFiles) -> VerifyResult:
        """Add a withdrawal or a note of who submitted the result, or of the owner."""
        path, main = str(added.note), str(self._head())
        content = self._files(added)
        if with_retries(lambda: find_files(self.api, self.repo, main, [path])):
            return self._close(details, added.head, VerifyResult(what, "added", notes=("it was on main already",)))
        run = f"{added.folder}/{RUN_FILE}"
        if run not in with_retries(lambda: find_files(self.api, self.repo, main, [run])):
            raise SubmissionRefused(f"{clip(added.folder, 200)}: the store holds no such result")
        first = with_retries(lambda: fetch_acceptance(self.api, self.repo, main, added.folder))
        wrong = note_problem(path, content[path], str(details.author), self.repo.split("/")[0], first)
        if wrong:
            raise SubmissionRefused(wrong)
        self._add(details, added.folder, content, {})
        return self._close(details, added.head, VerifyResult(what, "added", notes=(f"added {path}",)))

    def _commands(self, what: str, head: str) -> tuple[str, str]:
        """The commands that add or close a flagged pull request, to be copied as they are."""
        options = [word for data in self.data for word in ("--data", data)]
        options += ["--with-questions"] if self.with_questions else []
        return (
            f"to add it: {shlex.join(['medprobe', 'accept', what, '--commit', head, *options])}",
            f"to close it: {shlex.join(['medprobe', 'refuse', what, '--reason'])} ...",
        )

    def _duplicates(self, submission: Submission, author: str, older: dict[str, tuple[str, Digests]]) -> list[str]:
        """Flags for results on main and older open pull requests that give nearly the same answers, and for names that look the same."""
        inside, main = f"results/{submission.result.benchmark.name}", self._head()
        patterns = [f"{inside}/*/*/{name}" for name in (RESULT_FILE, ACCEPTANCE, WITHDRAWN)]
        folder = Path("no such store")  # where nothing was ever committed
        if main is not None:
            download = partial(self.api.snapshot_download, self.repo, repo_type="dataset", revision=main)
            folder = Path(with_retries(lambda: download(allow_patterns=patterns)))

        def fetch(file: Path) -> None:
            path = file.relative_to(folder).as_posix()
            with_retries(partial(self.api.hf_hub_download, self.repo, path, revision=main, repo_type="dataset"))

        return duplicate_flags(folder, submission, author, fetch, older, self.published)

    def _older(
        self, inside: str, number: int, author: str, patience: float
    ) -> tuple[dict[str, tuple[str, Digests]], list[int]]:
        """Pull request -> (account, digests) of other accounts' about the same benchmark that were opened before and are open, as far as
        they were read, or can be in these seconds; and those that were not. Nothing that one of them does keeps this one from its
        verdict."""
        found: dict[str, tuple[str, Digests]] = {}
        unread, until = list[int](), time.monotonic() + patience
        for each in sorted(with_retries(lambda: list(list_open_pulls(self.api, self.repo))), key=lambda pull: pull.num):
            if each.status == "draft" or each.num > number or each.author == author:
                continue
            head = str(self._head(f"refs/pr/{each.num}"))
            if head not in self._seen and head not in self._slow and time.monotonic() < until:
                self._seen[head] = self._digests(each.num, head, inside, min(self.patience, until - time.monotonic()))
            if head in self._slow or head not in self._seen:
                unread.append(each.num)
            elif (seen := self._seen[head]) is not None:
                found[f"pull request {each.num}"] = (str(each.author), seen)
        return found, unread

    def _digests(self, number: int, head: str, inside: str, patience: float) -> Digests | None:
        """What another pull request answers; None where that is refused, slow, or of another benchmark."""
        if self.remembers and self._refusal(self._details(number), head) is not None:
            return None
        with suppress(SubmissionRefused, BadInput):
            added = with_retries(partial(self._added, head))
            if not added.note and added.folder.startswith(f"{inside}/"):
                other = self._examined(added, patience)
                return None if other.problems else other.digests
        return None

    def _add(
        self, details: DiscussionWithDetails, folder: str, files: dict[str, bytes], more: dict[str, bytes]
    ) -> bool:
        """Commit the files to main; False when another verifier has."""
        message = f"Add {folder}"[:190] + f" (#{details.num})"
        about = f"Verified by `medprobe verify`; answers by {details.author}."
        return commit_to_main(self.api, self.repo, files, more, message, about)

    def _close(
        self, details: DiscussionWithDetails, head: str, result: VerifyResult, headline: str | None = None
    ) -> VerifyResult:
        """Comment the outcome, then close it. Each step is checked first, so that a second verifier, or a retry, only completes the
        rest."""
        from huggingface_hub.errors import HfHubHTTPError

        def is_closed() -> bool:
            return self._details(details.num).status in CLOSED_STATUSES

        def close() -> bool:
            try:
                self.api.change_discussion_status(self.repo, details.num, "closed", repo_type="dataset")
            except HfHubHTTPError:
                if not is_closed():  # another verifier may have been faster
                    raise
            return True

        self._comment(details, head, result, headline)
        with_retries(close, check_done=lambda: is_closed() or None)
        return result

    def _refusal(self, details: DiscussionWithDetails, head: str) -> tuple[str, ...] | None:
        """The problems for which this account refused a commit under the same circumstances; None if it did not."""
        began = _comment_text(head, VerifyResult("", "refused"), None, self._circumstances())
        for event in details.events:
            content = str(getattr(event, "content", ""))
            if event.author == self.who and content.startswith(began):
                return tuple(content.removeprefix(began).strip("\n`").split("\n"))
        return None

    def _circumstances(self) -> str:
        """A digest of what a refusal depends on beside the commit; keyed, so that it gives away none of the verifier's datasets."""
        parts = json.dumps([self.api.token, DERIVE_VERSION, self.data])
        return hashlib.sha256(parts.encode()).hexdigest()[:8]

    def _comment(
        self, details: DiscussionWithDetails, head: str, result: VerifyResult, headline: str | None = None
    ) -> VerifyResult:
        """Comment, but do not repeat the same text about the same commit."""
        text = _comment_text(head, result, headline, self._circumstances())
        # The verifier that added it and one that finds it on main use other words; once is enough.
        known = text.split("\n")[0] if result.word == "added" else text

        def look() -> bool | None:
            now = self.api.get_discussion_details(self.repo, details.num, repo_type="dataset")
            said = [str(getattr(event, "content", "")).strip() for event in now.events if event.author == self.who]
            return any(each == known or each.startswith(f"{known}\n") for each in said) or None

        def say() -> bool:
            self.api.comment_discussion(self.repo, details.num, text, repo_type="dataset")
            return True

        with_retries(say, check_done=look)
        return result


OUTCOME_HEADLINES = {
    "added": "Verified: exactly these answers were added to main, with the scores derived from them, so this pull request is closed.",
    "refused": "Refused: nothing was added. Fix it and push to this pull request, or open another.",
    "for a person": "Its scores were derived, but the store's owner should look at this before it is added:",
}


def _comment_text(head: str, result: VerifyResult, headline: str | None, circumstances: str) -> str:
    """The comment: untrusted text is put in a code block, in which there is no markup and no account is mentioned."""
    lines = printable_lines([line.replace("`", "'") for line in (*result.reasons, *result.notes)], 500)
    block = "\n\n```\n" + "\n".join(lines) + "\n```" if lines else ""
    return f"{headline or OUTCOME_HEADLINES[result.word]} (medprobe verify {circumstances}, commit {head[:12]}){block}"
