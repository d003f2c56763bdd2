"""`medprobe verify`: pull requests to a results store on the Hub are examined, answered, and the clean ones added.

Of a pull request only the files it adds are downloaded, as they are in one commit of it. When they are clean, exactly these bytes are
committed to main on top of the commit that was looked at, and the pull request is closed; merging it could take a later push. Safe to run
twice and in parallel: whoever finds the files on main already only closes. See also: what is examined (`examination.py`).
"""

from __future__ import annotations

import getpass
import hashlib
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
from filelock import FileLock, Timeout

from dataset_builders.errors import BadInput, Unavailable
from dataset_builders.hub.client import (
    check_repo_id,
    connect_with_token,
    endpoint,
    hub_errors,
    quiet,
    status_of,
    with_retries,
)
from dataset_builders.hub.repository import open_repository
from dataset_builders.sources.problems import clip
from eval_harness.results import Benchmark, read_result
from eval_harness.results.landing import LANDING, MAX_BYTES, Landing, now
from eval_harness.submissions.datasets import Dataset, dataset_for
from eval_harness.submissions.examination import examine
from eval_harness.submissions.remarks import MOST_NOTES, REMARK, landing_at, wrong_remark
from eval_harness.submissions.stores.folder_store import duplicate_submissions, questions_bytes
from eval_harness.submissions.stores.hub_store import LANDING_TRIES, files_at, holds, open_pulls
from eval_harness.submissions.submission import FILES, MAX_RESULT, Bundle, Submission
from eval_harness.submissions.untrusted.envelope import envelope
from eval_harness.submissions.untrusted.files import MAX_FILE, parquet_rows, printable
from eval_harness.submissions.untrusted.sandbox import call
from eval_harness.submissions.untrusted.stored_answers import weight_of

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.community import DiscussionWithDetails
    from huggingface_hub.hf_api import RepoFile

ADDED = re.compile(
    r"(results/[A-Za-z0-9][\w.-]*/[A-Za-z0-9_][\w.-]*/[A-Za-z0-9][\w.-]*)/(answers\.parquet|result\.json)", re.ASCII
)
MOST_ADDED = 1_000
"""Files that a pull request may add before they are not even listed."""
SHOWN = 30
"""Problems that a comment spells out; the rest are counted."""

CLOSED = ("closed", "merged")
Word = Literal["added", "verified", "refused", "for a human", "closed already", "later", "failed"]


@dataclass(frozen=True)
class Outcome:
    """What became of a pull request, or of a result of a folder store."""

    what: str
    word: Word
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        told = "".join(f"\n  {printable(line)}" for line in (*self.reasons, *self.notes))
        return f"{self.what}: {self.word}{told}"


def verify(
    store: str,
    everything: bool = False,
    data: Sequence[str] = (),
    accept_flagged: bool = False,
    with_questions: bool = False,
    tell: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Verify `ORG/NAME@PR`, or with `everything` all open pull requests of `ORG/NAME`, or every result of a folder.

    `data`: datasets (folders or Hub repositories) that the store's owner vouches for. `accept_flagged`: a human has looked at the flags.
    `with_questions`: also store the questions of what is added, so that the board can compute any part of it. `tell` hears each outcome.
    Raises BadInput: no such store or pull request, no token, a Hub that refuses.
    """
    name, at, pull = store.rpartition("@")
    for where in data:
        open_repository(where)  # a dataset of ours that cannot be read is no fault of those who submit
    if Path(store).is_dir():
        return _folder(Path(store), data, tell)
    if not at:
        name = store
    check_repo_id(name)
    if bool(at) == everything:
        raise BadInput(f"{store}: name one pull request ({name}@3), or give --all for all open ones.")
    number = _number(pull) if at else None
    api = connect_with_token()
    with hub_errors(name, "sign in"):
        who = str(with_retries(api.whoami).get("name"))
    check = _Check(api, name, who, tuple(data), accept_flagged, with_questions)
    with _one_at_a_time(name):
        if number is not None:
            outcome = check.pull(number)
            tell(outcome)
            return [outcome]
        return _all(check, tell)


def _all(check: _Check, tell: Callable[[Outcome], None]) -> list[Outcome]:
    """Verify all open pull requests, the oldest first."""
    name, who = check.repo, check.who
    with hub_errors(name, "list its pull requests", who):
        listed = with_retries(lambda: list(open_pulls(check.api, name)))
    outcomes = []
    for each in sorted(listed, key=lambda pull: pull.num):
        if each.status == "draft":
            continue
        try:
            outcome = check.pull(each.num)
        except Exception as error:  # whatever one pull request does, the others get their turn
            if not isinstance(error, BadInput):
                traceback.print_exc()
            told = str(error) if isinstance(error, BadInput) else f"{type(error).__name__}: {error}"
            outcome = Outcome(f"{name}@{each.num}", "later" if isinstance(error, Unavailable) else "failed", (told,))
        tell(outcome)
        outcomes.append(outcome)
    return outcomes


@contextmanager
def _one_at_a_time(store: str) -> Iterator[None]:
    """Of this machine's verifiers of a store one works at a time: a scheduled job that takes longer than its period is waited for."""
    name = hashlib.sha256(f"{endpoint()}/{store}".encode()).hexdigest()[:16]
    lock = FileLock(Path(tempfile.gettempdir()) / f"medprobe-verify-{getpass.getuser()}-{name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"{store}: another `medprobe verify` works on it; waiting for its end.", file=sys.stderr, flush=True)
        lock.acquire(poll_interval=0.5)
    try:
        yield
    finally:
        lock.release()


def _number(pull: str) -> int:
    match = re.fullmatch(r"(?:refs/)?(?:pr/|#)?([0-9]{1,9})", pull, re.ASCII)
    if not match:
        raise BadInput(f"@{pull}: is no pull request. Give its number, e.g. ORG/results@3.")
    return int(match[1])


def _folder(store: Path, data: Sequence[str], tell: Callable[[Outcome], None]) -> list[Outcome]:
    """Examine every result of a folder store; changes nothing."""
    outcomes = []
    for path in sorted((store / "results").glob("*/*/*/result.json")):
        place = path.parent.relative_to(store).as_posix()
        try:
            claimed = read_result(path)
            if claimed.kind != "measured":
                continue
            find = partial(_questions_here, store, tuple(data))
            submission = sandboxed(examine, Bundle.read(path.parent), find, stored_as=path.parent.name)
            flags = [*submission.flags, *duplicate_submissions(store, submission)]
            word: Word = "refused" if submission.problems else "for a human" if flags else "verified"
            outcome = Outcome(place, word, (*submission.problems, *flags), tuple(submission.notes))
        except BadInput as error:
            outcome = Outcome(place, "later" if isinstance(error, Unavailable) else "refused", (str(error),))
        tell(outcome)
        outcomes.append(outcome)
    return outcomes


def sandboxed(function: Callable[..., Submission], bundle: Bundle, *arguments: Any, **named: Any) -> Submission:
    """What `examine` says of a bundle, in a process of its own and within the envelope of its size."""
    return call(envelope(len(bundle.result) + weight_of(bundle.answers)), function, bundle, *arguments, **named)


def _questions_here(store: Path, data: Sequence[str], benchmark: Benchmark) -> Dataset:
    """The questions of --data, else those that a folder store keeps for a result, else those of the revision that it names."""
    path = store / "questions" / f"{benchmark.fingerprint}.parquet"
    if data or not path.is_file():
        return dataset_for(benchmark, data)
    questions = pd.DataFrame(list(parquet_rows(path)))
    return Dataset(benchmark.name, benchmark.split, benchmark.format, questions, benchmark.origin, None, ours=True)


@dataclass(frozen=True)
class _Added:
    """The files that a pull request adds, as they are in its commit `head`."""

    head: str
    folder: str
    remark: str | None = None
    """The path of a withdrawal or a note, where it adds that and no result."""
    entries: dict[str, RepoFile] = field(default_factory=dict)


@dataclass(frozen=True)
class _Check:
    api: HfApi
    repo: str
    who: str
    data: tuple[str, ...]
    accept_flagged: bool
    with_questions: bool

    def pull(self, number: int) -> Outcome:
        """Examine one pull request and do what follows. Raises BadInput when the Hub does not let us."""
        what = f"{self.repo}@{number}"
        with quiet(), hub_errors(self.repo, f"verify pull request {number}", self.who):
            details = with_retries(lambda: self.api.get_discussion_details(self.repo, number, repo_type="dataset"))
            if not details.is_pull_request:
                raise BadInput(f"{what}: is a discussion, not a pull request.")
            if details.status in CLOSED:
                return Outcome(what, "closed already", (f"it is {details.status}",))
            head = str(
                with_retries(
                    lambda: self.api.repo_info(self.repo, revision=f"refs/pr/{number}", repo_type="dataset")
                ).sha
            )
            try:
                added = with_retries(lambda: self._added(head))
                with tempfile.TemporaryDirectory() as place:
                    return self._examined(what, details, added, Path(place))
            except _Refused as refused:
                outcome = Outcome(what, "refused", refused.problems)
                self._comment(details, head, outcome)
                return outcome

    def _added(self, head: str) -> _Added:
        """What the pull request adds to the newest commit of main that it knows. Refused when it changes or deletes anything."""
        from huggingface_hub.hf_api import RepoFile

        def tree(revision: str, most: int | None = None) -> dict[str, RepoFile]:
            with _absent_is_empty():
                entries = self.api.list_repo_tree(self.repo, recursive=True, revision=revision, repo_type="dataset")
                files = (entry for entry in entries if isinstance(entry, RepoFile))
                return {entry.path: entry for entry in islice(files, most)}
            return {}

        on_main = {commit.commit_id for commit in self.api.list_repo_commits(self.repo, repo_type="dataset")}
        commits = self.api.list_repo_commits(self.repo, revision=head, repo_type="dataset")
        base = next((commit.commit_id for commit in commits if commit.commit_id in on_main), None)
        before = tree(base) if base else {}
        after = tree(head, len(before) + MOST_ADDED + 1)
        if len(after) > len(before) + MOST_ADDED:
            raise _Refused(f"adds over {MOST_ADDED:,} files: a pull request may only add the two of one result")
        problems = [f"deletes {clip(path, 200)}" for path in before if path not in after]
        problems += [
            f"changes {clip(path, 200)}"
            for path, entry in before.items()
            if path in after and after[path].blob_id != entry.blob_id
        ]
        new = {path: entry for path, entry in after.items() if path not in before}
        if len(new) == 1 and not problems and (remark := REMARK.fullmatch(next(iter(new)))):
            return _Added(head, remark[1], remark[0], new)
        matches = {path: ADDED.fullmatch(path) for path in new}
        problems += [
            f"adds {clip(path, 200)}, which is no part of a result" for path, match in matches.items() if not match
        ]
        folders = sorted({match[1] for match in matches.values() if match})
        if problems:
            raise _Refused(
                *problems, "a pull request may only add results/BENCHMARK/MODEL/RUN_ID/{result.json,answers.parquet}"
            )
        if not new:
            raise _Refused("adds nothing")
        if len(folders) > 1:
            raise _Refused(
                f"adds {len(folders)} results: give each its own pull request ({', '.join(folders[:3])} ...)"
            )
        folder = folders[0]
        lacking = [name for name in FILES if f"{folder}/{name}" not in new]
        if lacking:
            raise _Refused(f"lacks {folder}/{lacking[0]}")
        for name, most in zip(FILES, (MAX_FILE, MAX_RESULT), strict=True):
            size = new[f"{folder}/{name}"].size
            if size > most:
                raise _Refused(f"{folder}/{name} has {size:,} bytes, at most {most:,} are read")
        return _Added(head, folder, None, new)

    def _examined(self, what: str, details: DiscussionWithDetails, added: _Added, place: Path) -> Outcome:
        files = {}
        for path, entry in added.entries.items():
            if added.remark and entry.size > MAX_BYTES:
                raise _Refused(f"{path} has {entry.size:,} bytes, at most {MAX_BYTES:,} are read")
            local = with_retries(
                lambda path=path: self.api.hf_hub_download(  # type: ignore[misc]
                    self.repo, path, revision=added.head, repo_type="dataset", local_dir=place / "pull"
                )
            )
            files[path] = Path(local).read_bytes()
            if entry.size != len(files[path]):
                raise BadInput(f"{what}: the Hub sent another {path} than it lists. Run this again.")
        if with_retries(lambda: self._is_on_main(added.folder, files)):
            return self._close(details, added, Outcome(what, "added", notes=("it was on main already",)))
        if added.remark:
            return self._remark(details, added, files[added.remark])
        try:
            bundle = Bundle(*(files[f"{added.folder}/{name}"] for name in ("result.json", "answers.parquet")))
            find = partial(dataset_for, data=self.data, owner=self.repo.split("/")[0])
            submission = sandboxed(examine, bundle, find)
        except Unavailable:
            raise  # nothing was found out about the submission
        except BadInput as error:
            raise _Refused(str(error)) from None
        if submission.folder != added.folder:
            submission.problems.append(
                f"lies in {clip(added.folder, 200)}, but its result.json belongs in {clip(submission.folder, 200)}"
            )
        if submission.problems:
            raise _Refused(*submission.problems)
        flags = [*submission.flags, *self._twins(submission)]
        notes = (
            f"{submission.result.model.name} on {submission.result.benchmark.name}: scores agree",
            *submission.notes,
        )
        if flags and not self.accept_flagged:
            outcome = Outcome(what, "for a human", tuple(flags), ("--accept-flagged adds it all the same",))
            self._comment(details, added.head, outcome)
            return outcome
        more = {}
        if self.with_questions and submission.vouched:
            more[f"questions/{submission.result.benchmark.fingerprint}.parquet"] = questions_bytes(submission.questions)
        landing = Landing(
            account=str(details.author),
            landed_at=now(),
            verified_by=self.who,
            pull_request=details.num,
            flags=[printable(flag) for flag in flags],
        )
        more[f"{added.folder}/{LANDING}"] = landing.to_bytes()
        landed = self._land(details, added.folder, files, more)
        notes = notes if landed else (*notes, "it was on main already")
        return self._close(details, added, Outcome(what, "added", notes=(*notes, *flags)))

    def _remark(self, details: DiscussionWithDetails, added: _Added, content: bytes) -> Outcome:
        """Add a withdrawal or a note of who submitted the result, or of the owner."""
        path = str(added.remark)
        main = str(with_retries(lambda: self.api.repo_info(self.repo, repo_type="dataset").sha))
        result = f"{added.folder}/result.json"
        if result not in with_retries(lambda: files_at(self.api, self.repo, main, [result])):
            raise _Refused(f"{clip(added.folder, 200)}: the store holds no such result")
        landing = with_retries(lambda: landing_at(self.api, self.repo, main, added.folder))
        names = with_retries(lambda: self.api.list_repo_files(self.repo, revision=main, repo_type="dataset"))
        if sum(name.startswith(f"{added.folder}/note-") for name in names) >= MOST_NOTES and "/note-" in path:
            raise _Refused(f"{clip(added.folder, 200)} has {MOST_NOTES} notes already")
        wrong = wrong_remark(path, content, str(details.author), self.repo.split("/")[0], landing)
        if wrong:
            raise _Refused(wrong)
        self._land(details, added.folder, {path: content}, {})
        return self._close(details, added, Outcome(f"{self.repo}@{details.num}", "added", notes=(f"added {path}",)))

    def _twins(self, submission: Submission) -> list[str]:
        """Flags for results on main that give the same answers. Only results with the same scores have their answers fetched."""
        inside = f"results/{submission.result.benchmark.name}"
        pattern = f"{inside}/*/*/result.json"
        there = False
        with _absent_is_empty():
            there = any(True for _ in self.api.list_repo_tree(self.repo, inside, repo_type="dataset"))
        if not there:
            return []
        place = Path(
            with_retries(lambda: self.api.snapshot_download(self.repo, repo_type="dataset", allow_patterns=[pattern]))
        )

        def fetch(path: Path) -> Path:
            name = path.relative_to(place).as_posix()
            return Path(self.api.hf_hub_download(self.repo, name, revision=place.name, repo_type="dataset"))

        return duplicate_submissions(place, submission, fetch)

    def _is_on_main(self, folder: str, files: dict[str, bytes], revision: str | None = None) -> bool:
        """Whether main holds these files. Refused when it holds other ones in their place."""
        main = revision or self.api.repo_info(self.repo, repo_type="dataset").sha
        if main is None:  # nothing was ever committed
            return False
        try:
            return holds(self.api, self.repo, main, files, f"{folder}: main")
        except Unavailable:
            raise
        except BadInput as error:
            raise _Refused(str(error)) from None

    def _land(
        self, details: DiscussionWithDetails, folder: str, files: dict[str, bytes], more: dict[str, bytes]
    ) -> bool:
        """Commit the files to main as it is now; False when somebody else has. Tried again when main moved in between."""
        from huggingface_hub import CommitOperationAdd

        main: str | None = None
        content: dict[str, bytes] = {}

        def look() -> bool | None:
            nonlocal main, content
            main = self.api.repo_info(self.repo, repo_type="dataset").sha
            if self._is_on_main(folder, files, main):
                return False
            known = files_at(self.api, self.repo, main, sorted(more)) if more and main else {}
            content = files | {path: data for path, data in more.items() if path not in known}
            return None

        def land() -> bool:
            self.api.create_commit(
                self.repo,
                [CommitOperationAdd(path, data) for path, data in sorted(content.items())],
                commit_message=f"Add {folder}"[:190] + f" (#{details.num})",
                commit_description=f"Verified by `medprobe verify`; answers by {details.author}.",
                repo_type="dataset",
                parent_commit=main,
            )
            return True

        return with_retries(land, LANDING_TRIES, look)

    def _close(self, details: DiscussionWithDetails, added: _Added, outcome: Outcome) -> Outcome:
        """Say what became of it, then close it. Each is looked for first, so that whoever comes second, or again, does what is left."""
        self._comment(details, added.head, outcome)
        with_retries(lambda: self._shut(details.num), look=lambda: self._is_closed(details.num) or None)
        return outcome

    def _is_closed(self, number: int) -> bool:
        return self.api.get_discussion_details(self.repo, number, repo_type="dataset").status in CLOSED

    def _shut(self, number: int) -> bool:
        from huggingface_hub.errors import HfHubHTTPError

        try:
            self.api.change_discussion_status(self.repo, number, "closed", repo_type="dataset")
        except HfHubHTTPError:
            if not self._is_closed(number):  # another verifier may have been faster
                raise
        return True

    def _comment(self, details: DiscussionWithDetails, head: str, outcome: Outcome) -> None:
        """Say it once: the same words about the same commit are not repeated."""
        text = _text(head, outcome)
        # Who added it and who found it on main tell it in other words; once is enough.
        known = text.split("\n")[0] if outcome.word == "added" else text

        def look() -> bool | None:
            now = self.api.get_discussion_details(self.repo, details.num, repo_type="dataset")
            said = [str(getattr(event, "content", "")).strip() for event in now.events if event.author == self.who]
            return any(each == known or each.startswith(f"{known}\n") for each in said) or None

        def say() -> bool:
            self.api.comment_discussion(self.repo, details.num, text, repo_type="dataset")
            return True

        with_retries(say, look=look)


@contextmanager
def _absent_is_empty() -> Iterator[None]:
    """A listing of a folder that is not there is an empty one; not every Hub says which 404 it is."""
    try:
        yield
    except Exception as error:
        if status_of(error) != 404:
            raise


class _Refused(Exception):
    """A pull request that is refused, with every problem found."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


HEADLINES = {
    "added": "Verified: every score follows from the answers. Exactly these files were added to main, so this pull request is closed.",
    "refused": "Refused: nothing was added. Mend it and push to this pull request, or open another.",
    "for a human": "The scores follow from the answers, but the store's owner should look at this before it is added:",
}


def _text(head: str, outcome: Outcome) -> str:
    """The comment: what strangers wrote stands in a block in which nothing is markup and nobody is called."""
    lines = [printable(line.replace("`", "'"), 500) for line in (*outcome.reasons, *outcome.notes)]
    if len(lines) > SHOWN:
        lines = [*lines[:SHOWN], f"and {len(lines) - SHOWN} more"]
    block = "\n\n```\n" + "\n".join(lines) + "\n```" if lines else ""
    return f"{HEADLINES[outcome.word]} (medprobe verify, commit {head[:12]}){block}"
