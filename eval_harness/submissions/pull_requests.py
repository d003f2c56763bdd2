"""Pull requests to a results store on the Hub: what one adds is examined and answered, and a clean one is added.

Of a pull request only the files it adds are downloaded, as they are in one commit of it. When they are clean, exactly these bytes are
committed to main on top of the commit that was looked at, and the pull request is closed; merging it could take a later push. Safe to run
twice and in parallel: whoever finds the files on main already only closes. See also: what is examined (`examination.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from dataset_builders.errors import BadInput, Unavailable
from dataset_builders.hub.client import hub_errors, quiet, status_of, with_retries
from dataset_builders.sources.problems import clip
from eval_harness.results.landing import LANDING, MAX_BYTES, Landing, now
from eval_harness.submissions.datasets import dataset_for
from eval_harness.submissions.examination import examine
from eval_harness.submissions.outcome import Outcome, sandboxed, shown
from eval_harness.submissions.remarks import MOST_NOTES, REMARK, landing_at, wrong_remark
from eval_harness.submissions.stores.folder_store import duplicate_submissions
from eval_harness.submissions.stores.hub_store import Conflict, commit_to_main, fetched, files_at, holds, questions_file
from eval_harness.submissions.submission import FILES, MAX_RESULT, Bundle, Submission
from eval_harness.submissions.untrusted.files import MAX_FILE

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.community import DiscussionWithDetails
    from huggingface_hub.hf_api import RepoFile

ADDED = re.compile(
    r"(results/[A-Za-z0-9][\w.-]*/[A-Za-z0-9_][\w.-]*/[A-Za-z0-9][\w.-]*)/(answers\.parquet|result\.json)", re.ASCII
)
MOST_ADDED = 1_000
"""Files that a pull request may add before they are not even listed."""
MOST_AT_ONCE = 2 << 20
"""Bytes of a pull request that is examined in the order they came; with --all larger ones come after all the others."""
CLOSED = ("closed", "merged")


@dataclass(frozen=True)
class _Added:
    """The files that a pull request adds, as they are in its commit `head`."""

    head: str
    folder: str
    remark: str | None = None
    """The path of a withdrawal or a note, where it adds that and no result."""
    entries: dict[str, RepoFile] = field(default_factory=dict)


@dataclass(frozen=True)
class PullRequests:
    """The pull requests of a store, as `who` verifies them. `data`: datasets that the store's owner vouches for."""

    api: HfApi
    repo: str
    who: str
    data: tuple[str, ...]
    accept_flagged: bool
    with_questions: bool

    def pull(self, number: int, most: int | None = None) -> Outcome | None:
        """Examine one pull request and do what follows; None where its files have over `most` bytes, to be looked at later.

        Raises BadInput when the Hub does not let us.
        """
        what = f"{self.repo}@{number}"
        with quiet(), hub_errors(self.repo, f"verify pull request {number}", self.who):
            details = with_retries(lambda: self.api.get_discussion_details(self.repo, number, repo_type="dataset"))
            if not details.is_pull_request:
                raise BadInput(f"{what}: is a discussion, not a pull request.")
            if details.status in CLOSED:
                return Outcome(what, "closed already", (f"it is {details.status}",))
            head = str(self._head(f"refs/pr/{number}"))
            try:
                added = with_retries(lambda: self._added(head))
                if most is not None and sum(entry.size for entry in added.entries.values()) > most:
                    return None
                return self._examined(what, details, added)
            except (_Refused, Conflict) as refused:
                outcome = Outcome(what, "refused", getattr(refused, "problems", (str(refused),)))
                return self._comment(details, head, outcome)

    def _head(self, revision: str | None = None) -> str | None:
        """The newest commit of main, or of another revision; None where nothing was ever committed."""
        return with_retries(lambda: self.api.repo_info(self.repo, revision=revision, repo_type="dataset")).sha

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
        return _Added(head, self._folder_of(new, problems), None, new)

    @staticmethod
    def _folder_of(new: dict[str, RepoFile], problems: list[str]) -> str:
        """The folder of the one result that these files make; refused when they make none, or more. `problems`: what is wrong already."""
        matches = {path: ADDED.fullmatch(path) for path in new}
        problems = [
            *problems,
            *(f"adds {clip(path, 200)}, which is no part of a result" for path, match in matches.items() if not match),
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
        return folder

    def _examined(self, what: str, details: DiscussionWithDetails, added: _Added) -> Outcome:
        files = {}
        for path, entry in added.entries.items():
            if added.remark and entry.size > MAX_BYTES:
                raise _Refused(f"{path} has {entry.size:,} bytes, at most {MAX_BYTES:,} are read")
            files[path] = with_retries(partial(fetched, self.api, self.repo, added.head, path))
            if entry.size != len(files[path]):
                raise BadInput(f"{what}: the Hub sent another {path} than it lists. Run this again.")
        main = self._head()
        if main and with_retries(lambda: holds(self.api, self.repo, main, files, f"{added.folder}: main")):
            return self._on_main(what, details, added, main)
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
        flags = [*submission.flags, *self._duplicates(submission, str(details.author))]
        notes = (
            f"{submission.result.model.name} on {submission.result.benchmark.name}: scores agree",
            *submission.notes,
        )
        if flags and not self.accept_flagged:
            outcome = Outcome(what, "for a human", tuple(flags), ("--accept-flagged adds it all the same",))
            return self._comment(details, added.head, outcome)
        landing = Landing(
            account=str(details.author),
            landed_at=now(),
            verified_by=self.who,
            pull_request=details.num,
            flags=shown(flags),
        )
        more = {f"{added.folder}/{LANDING}": landing.to_bytes()}
        if self.with_questions:
            more |= questions_file(submission)
        landed = self._land(details, added.folder, files, more)
        notes = notes if landed else (*notes, "it was on main already")
        return self._close(details, added, Outcome(what, "added", notes=(*notes, *flags)))

    def _on_main(self, what: str, details: DiscussionWithDetails, added: _Added, main: str) -> Outcome:
        """Close what is on main already; where somebody else's later pull request brought it there, a human is told first."""
        landing = None if added.remark else with_retries(lambda: landing_at(self.api, self.repo, main, added.folder))
        later = landing is not None and (landing.pull_request or 0) > details.num and landing.account != details.author
        if landing is None or not later or self.accept_flagged:
            return self._close(details, added, Outcome(what, "added", notes=("it was on main already",)))
        told = f"the same answers landed by pull request {landing.pull_request} of {landing.account}, which is younger than this one"
        outcome = Outcome(what, "for a human", (told,), ("--accept-flagged closes this one",))
        return self._comment(details, added.head, outcome)

    def _remark(self, details: DiscussionWithDetails, added: _Added, content: bytes) -> Outcome:
        """Add a withdrawal or a note of who submitted the result, or of the owner."""
        path = str(added.remark)
        main = str(self._head())
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

    def _duplicates(self, submission: Submission, account: str) -> list[str]:
        """Flags for results on main that give nearly the same answers, or have a name that looks the same."""
        inside = f"results/{submission.result.benchmark.name}"
        main = self._head()
        if main is None or not with_retries(lambda: self._holds_folder(inside, main)):
            return []
        patterns = [f"{inside}/*/*/{name}" for name in ("result.json", LANDING)]
        folder = Path(
            with_retries(
                lambda: self.api.snapshot_download(
                    self.repo, repo_type="dataset", revision=main, allow_patterns=patterns
                )
            )
        )

        def fetch(path: Path) -> Path:
            name = path.relative_to(folder).as_posix()
            return Path(
                with_retries(lambda: self.api.hf_hub_download(self.repo, name, revision=main, repo_type="dataset"))
            )

        return duplicate_submissions(folder, submission, account, fetch)

    def _holds_folder(self, folder: str, revision: str) -> bool:
        with _absent_is_empty():
            return any(True for _ in self.api.list_repo_tree(self.repo, folder, revision=revision, repo_type="dataset"))
        return False

    def _land(
        self, details: DiscussionWithDetails, folder: str, files: dict[str, bytes], more: dict[str, bytes]
    ) -> bool:
        """Commit the files to main; False when somebody else has."""
        message = f"Add {folder}"[:190] + f" (#{details.num})"
        about = f"Verified by `medprobe verify`; answers by {details.author}."
        return commit_to_main(self.api, self.repo, files, more, message, about)

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

    def _comment(self, details: DiscussionWithDetails, head: str, outcome: Outcome) -> Outcome:
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
        return outcome


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
    "refused": "Refused: nothing was added. Fix it and push to this pull request, or open another.",
    "for a human": "The scores follow from the answers, but the store's owner should look at this before it is added:",
}


def _text(head: str, outcome: Outcome) -> str:
    """The comment: what strangers wrote stands in a block in which nothing is markup and nobody is called."""
    lines = shown([line.replace("`", "'") for line in (*outcome.reasons, *outcome.notes)], 500)
    block = "\n\n```\n" + "\n".join(lines) + "\n```" if lines else ""
    return f"{HEADLINES[outcome.word]} (medprobe verify, commit {head[:12]}){block}"
