"""`medprobe verify` and `medprobe rescore`: examine submissions, and derive stored results again.

`verify` examines the results of a folder store, or pull requests to a store on the Hub.

`rescore` derives the outdated results of a store again, and lists the changes. A result is outdated
if its stored key (`derivation.compute_derivation_key`) differs from the one computed from its
files, its questions and this version of medprobe. This happens with another `DERIVE_VERSION`, or if
the dataset's answer key or labels were corrected. If the questions are unavailable, the result is
left as it is. The sent files, run ids, accounts and dates are kept. If a call is interrupted, the
next one continues: of a result's files, `result.json`, which contains the key, is written last.

See also: examining a submission (`examine.py`), acting on a pull request (`pull_requests.py`).
"""

import re
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from dataset_builders.errors import BadInput, Unavailable
from dataset_builders.files import replace_file
from dataset_builders.hub.client import (
    check_repo_id,
    commit_files,
    connect_with_token,
    hide_progress_bars,
    http_status,
    hub_errors,
    sign_in,
    with_retries,
)
from dataset_builders.hub.repository import open_repository
from eval_harness.benchmarks import eval_spec
from eval_harness.derive.derivation import compute_derivation_key
from eval_harness.derive.run_files import READINGS_FILE, RESULT_FILE, RUN_FILE, table_to_frame
from eval_harness.records.result import DERIVE_VERSION, Result, read_result
from eval_harness.store.adding import add_questions, list_open_pulls
from eval_harness.store.checks import PublishedNames
from eval_harness.store.contents import REPRODUCED_SUFFIX, Submission, is_hub_store, read_acceptance, result_paths
from eval_harness.store.dataset_lookup import find_stored_dataset
from eval_harness.store.examine import examine_in_sandbox, read_sent
from eval_harness.store.formatting import format_score
from eval_harness.store.pull_requests import (
    READ_SECONDS_BY_ROUND,
    Outcome,
    PullRequests,
    VerifyResult,
)
from eval_harness.store.similarity import duplicate_flags

T = TypeVar("T")


def verify(
    store: str,
    everything: bool = False,
    data: Sequence[str] = (),
    with_questions: bool = False,
    tell: Callable[[VerifyResult], None] = lambda result: None,
    published: PublishedNames | None = None,
) -> list[VerifyResult]:
    """Verify one pull request, all open pull requests of a store, or every result of a folder.

    Args:
        store: A folder, `ORG/NAME@PR`, or `ORG/NAME` with `everything`.
        everything: Whether to verify all open pull requests.
        data: Datasets (folders or Hub repositories) that the store's owner vouches for.
        with_questions: Whether to store the questions of added results as well, so that the board
            can compute scores on any part of them.
        tell: Called with each result.
        published: Model names in papers.

    Returns:
        One outcome per pull request or result.

    Raises:
        BadInput: If there is no such store or pull request or no token, or the Hub refuses.
    """
    for location in data:
        # Fails early: an unreadable trusted dataset must not count against submitters.
        open_repository(location)
    if Path(store).is_dir():
        return _verify_folder(Path(store), data, tell, published)
    if everything:
        check_repo_id(store)
        return _verify_open_pulls(_pull_requests(store, data, with_questions, published), tell)

    name, number = parse_pull_request(store)
    result = _pull_requests(name, data, with_questions, published).pull(number)
    tell(result)
    return [result]


def accept(
    pull: str,
    commit: str,
    data: Sequence[str] = (),
    with_questions: bool = False,
    published: PublishedNames | None = None,
) -> VerifyResult:
    """Add a flagged pull request after a person has reviewed its flags.

    A pull request with problems is refused all the same.

    Args:
        pull: The pull request, ORG/NAME@3.
        commit: The reviewed commit, as `verify` prints it.
        data: See `verify`.
        with_questions: See `verify`.
        published: See `verify`.

    Returns:
        The outcome.

    Raises:
        BadInput: See `verify`; also if something was pushed after that commit.
    """
    name, number = parse_pull_request(pull)
    return _pull_requests(name, data, with_questions, published).pull(number, commit)


def refuse(pull: str, reason: str) -> VerifyResult:
    """Close a pull request with the reason as a comment.

    Args:
        pull: The pull request, ORG/NAME@3.
        reason: Plain text, shown on the pull request.

    Raises:
        BadInput: See `verify`; also if the reason is empty.
    """
    name, number = parse_pull_request(pull)
    if not reason.strip():
        raise BadInput("--reason: give the reason in plain text; it is shown on the pull request.")
    return _pull_requests(name, (), False, None).pull(number, refusal=" ".join(reason.split()))


def _pull_requests(
    name: str, data: Sequence[str], with_questions: bool, published: PublishedNames | None
) -> PullRequests:
    """Sign in, and return the pull requests of a store."""
    api, account = sign_in(name)
    return PullRequests(api, name, account, tuple(data), with_questions, published)


def parse_pull_request(pull: str) -> tuple[str, int]:
    """Parse ORG/NAME@3 into repository and number. Raises BadInput for anything else."""
    name, _, number = pull.rpartition("@")
    match = re.fullmatch(r"(?:refs/)?(?:pr/|#)?([0-9]{1,9})", number, re.ASCII)
    if not name or not match:
        raise BadInput(
            f"{pull}: neither a pull request (ORG/NAME@3) nor a folder. `verify ORG/NAME --all` verifies all open ones."
        )

    check_repo_id(name)
    return name, int(match[1])


def _verify_open_pulls(pull_requests: PullRequests, tell: Callable[[VerifyResult], None]) -> list[VerifyResult]:
    """Verify all open pull requests.

    The first pull request of every account is verified before the second of any account, and so on;
    slow ones are postponed to later rounds.
    """
    with hub_errors(pull_requests.repo, "list its pull requests", pull_requests.account):
        open_pulls = with_retries(lambda: list(list_open_pulls(pull_requests.api, pull_requests.repo)))
    pulls_by_author: Counter[str] = Counter()
    queue = []
    for pull in sorted(open_pulls, key=lambda pull: pull.num):
        if pull.status != "draft":
            # Sorted by the number of the author's earlier pull requests, so that accounts take
            # turns.
            queue.append((pulls_by_author[pull.author], pull.num))
            pulls_by_author[pull.author] += 1

    pending = [number for _, number in sorted(queue)]
    results: dict[int, VerifyResult] = {}

    for read_seconds in READ_SECONDS_BY_ROUND:
        verifier, postponed = (
            replace(pull_requests, read_seconds=read_seconds, skips_refused=True),
            [],
        )
        for number in pending:
            result = _catch_failures(f"{pull_requests.repo}@{number}", "failed", partial(verifier.pull, number))
            if result.status == "later" and read_seconds < READ_SECONDS_BY_ROUND[-1]:
                postponed.append(number)
                continue
            results[number] = result
            tell(result)
        pending = postponed

    return [results[number] for number in sorted(results)]


def _catch_failures(target: str, unreadable: Outcome, check: Callable[[], T]) -> T | VerifyResult:
    """Return the result of `check`, or a failure, so that one submission cannot block the others.

    Args:
        target: The pull request or result.
        unreadable: The status to return if its files cannot be read.
        check: Function that examines the target.
    """
    try:
        return check()
    except (BadInput, OSError) as error:
        return VerifyResult(target, "later" if isinstance(error, Unavailable) else unreadable, (str(error),))
    except Exception as error:
        # A bug in medprobe: print the traceback and go on with the next submission.
        traceback.print_exc()
        return VerifyResult(target, "failed", (f"{type(error).__name__}: {error}",))


def _verify_folder(
    store: Path,
    data: Sequence[str],
    tell: Callable[[VerifyResult], None],
    published: PublishedNames | None,
) -> list[VerifyResult]:
    """Examine every result of a folder store, without changing anything."""
    results = []
    for path in sorted((store / "results").glob("*/*/*")):
        if not (path / RUN_FILE).is_file() and not (path / RESULT_FILE).is_file():
            continue
        name = path.relative_to(store).as_posix()
        result = _catch_failures(name, "refused", partial(_verify_stored, store, name, data, published))
        if result is not None:
            tell(result)
            results.append(result)
    return results


def _verify_stored(
    store: Path, name: str, data: Sequence[str], published: PublishedNames | None
) -> VerifyResult | None:
    """Return the outcome for one result of a folder store; None for one that was not measured."""
    path = store / name
    stored = read_result(path / RESULT_FILE)
    if stored.kind != "measured":
        return None
    sent = read_sent(path)
    submission = examine_in_sandbox(
        sent, partial(find_stored_dataset, store, tuple(data), stored.benchmark.fingerprint)
    )
    benchmark = submission.result.benchmark
    # Computed from the files as they are stored, not from those that `examine` rewrote.
    key = compute_derivation_key(sent, benchmark.fingerprint, benchmark.facets)
    acceptance = read_acceptance(path)
    account = acceptance.account if acceptance else None
    flags = [*submission.flags, *duplicate_flags(store, submission, account, published=published)]
    problems = [*submission.problems, *_storage_problems(name, stored, submission, key)]
    notes = [*submission.notes]
    if stored.key != key:
        notes.append("its derived files are out of date: `medprobe rescore` derives them again")
    word: Outcome = "refused" if problems else "for a person" if flags else "verified"
    return VerifyResult(name, word, (*problems, *flags), tuple(notes))


def _storage_problems(name: str, stored: Result, submission: Submission, key: str) -> Iterator[str]:
    """Yield inconsistencies of a stored result which no command of medprobe can have caused."""
    if name.removesuffix(REPRODUCED_SUFFIX) != submission.folder:
        yield f"its run.json and answers belong in {submission.folder}"
    if (stored.provenance == "reproduced") != name.endswith(REPRODUCED_SUFFIX):
        yield f"provenance {stored.provenance!r} contradicts its id"
    # An outdated result may well differ from what is derived now.
    if stored.key == key:
        derived = submission.result.model_copy(update={"provenance": stored.provenance, "key": key})
        if stored != derived:
            yield "its result.json is not what its answers give: `medprobe rescore` derives it again"


@dataclass(frozen=True)
class RescoreOutcome:
    """Outcome for one result.

    Attributes:
        folder: The result's folder in the store.
        changed: Number of answers that are now read differently.
        answers: Number of answers.
        moved: Metric -> (before, after), for each changed score; the headline metric comes first.
        skipped: Why the result was left as it is; None if it was derived again or is up to date.
        written: Whether the result was derived again.
    """

    folder: str
    changed: int = 0
    answers: int = 0
    moved: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    skipped: str | None = None
    written: bool = False

    def __str__(self) -> str:
        if self.skipped:
            return f"{self.folder}: unchanged: {self.skipped}"
        if not self.written:
            return f"{self.folder}: up to date"
        changes = f"{self.folder}: {self.changed:,} of {self.answers:,} answers are read differently"
        score_changes = [
            f"{name} {' -> '.join('none' if value is None else format_score(value) for value in pair)}"
            for name, pair in list(self.moved.items())[:4]
        ]
        suffix = f" and {len(self.moved) - 4} more" if len(self.moved) > 4 else ""
        return f"{changes}; {', '.join(score_changes) + suffix if score_changes else 'no score moved'}"


def rescore_store(
    store: str | Path,
    data: Sequence[str] = (),
    tell: Callable[[RescoreOutcome], None] = lambda result: None,
) -> list[RescoreOutcome]:
    """Derive every outdated result of a store again, in folder order.

    Args:
        store: A folder, or ORG/NAME on the Hub, where all changes are one commit to main by the
            store's owner.
        data: Datasets (folders or repositories) to take questions from, because they are newer or
            because the store does not have them.
        tell: Called with each outcome.

    Returns:
        One outcome per result.

    Raises:
        BadInput: If the store cannot be read or written.
    """
    if is_hub_store(store):
        return _rescore_on_hub(str(store), data, tell)
    root = Path(store)
    outcomes = []
    for path in result_paths(root):
        try:
            outcomes.append(_rescore(root, path, data))
        except OSError as error:
            raise BadInput(f"{root}: cannot be written ({error.strerror}). Give a store you may write to.") from None
        tell(outcomes[-1])

    return outcomes


def _rescore(root: Path, path: Path, data: Sequence[str]) -> RescoreOutcome:
    """Derive one result of a folder store again if it is outdated."""
    folder = path.parent
    name = folder.relative_to(root).as_posix()
    try:
        stored = read_result(path)
        if stored.kind != "measured":
            return RescoreOutcome(name, skipped=f"it is {stored.kind}, not measured")
        # Without an acceptance its files are untrusted, and may only be read in the sandbox.
        if read_acceptance(folder) is None:
            return RescoreOutcome(name, skipped="not verified; a board derives its numbers itself")
        sent = read_sent(folder)
        # A cheap check, which is not enough with `data`: the questions may have changed.
        if not data and stored.key == compute_derivation_key(
            sent, stored.benchmark.fingerprint, stored.benchmark.facets
        ):
            return RescoreOutcome(name)
        submission = examine_in_sandbox(
            sent, partial(find_stored_dataset, root, tuple(data), stored.benchmark.fingerprint)
        )
        if submission.problems:
            raise BadInput(submission.problems[0])
        if submission.result.key == stored.key:
            return RescoreOutcome(name)
    except Unavailable:
        raise
    except (BadInput, OSError, ValueError, KeyError) as error:
        return RescoreOutcome(name, skipped=str(error))

    # The provenance is kept: answers do not show whether the store's owner reproduced them.
    rescored = submission.result.model_copy(update={"provenance": stored.provenance})
    changed, answers = _count_changed(folder, submission.derived[READINGS_FILE])

    # result.json, which marks the result as up to date, is written last: an interrupted rescore is
    # repeated.
    add_questions(root, submission)

    # The sent files are rewritten as well, since the key is computed from them.
    for file, content in (
        submission.sent.content_by_name() | dict(submission.derived) | {RESULT_FILE: rescored.to_json().encode()}
    ).items():
        replace_file(folder / file, content)

    return RescoreOutcome(name, changed, answers, _moved_scores(stored, rescored), written=True)


def _count_changed(folder: Path, readings: bytes) -> tuple[int, int]:
    """Return how many answers now have another choice or status, and how many there are."""
    names = ["question_id", "sample", "choice", "status"]
    new_readings = table_to_frame(readings)[names]
    try:
        old_readings = table_to_frame((folder / READINGS_FILE).read_bytes())[names]
    except (OSError, ValueError, KeyError):
        return len(new_readings), len(new_readings)

    merged = new_readings.merge(old_readings, on=names[:2], suffixes=("", "_before"))
    is_unchanged = merged["status"] == merged["status_before"]
    is_unchanged &= merged["choice"].map(list) == merged["choice_before"].map(list)
    return len(new_readings) - int(is_unchanged.sum()), len(new_readings)


def _moved_scores(stored: Result, rescored: Result) -> dict[str, tuple[float | None, float | None]]:
    """Return the metrics of the stored result whose values have changed or disappeared."""
    new_values = {name: score.value for name, score in rescored.scores.items()}
    names = sorted(stored.scores, key=lambda name: name != eval_spec(stored.benchmark.family).headline)
    values = {name: (stored.scores[name].value, new_values.get(name)) for name in names}
    return {name: pair for name, pair in values.items() if pair[0] != pair[1]}


def _rescore_on_hub(repo_id: str, data: Sequence[str], tell: Callable[[RescoreOutcome], None]) -> list[RescoreOutcome]:
    """Rescore a copy of a store on the Hub, and commit the changes.

    The commit is made only if main is still at the commit that was copied.
    """
    check_repo_id(repo_id)
    api = connect_with_token()

    with tempfile.TemporaryDirectory() as workspace, hide_progress_bars():
        with hub_errors(repo_id, "read the store"):
            revision = api.repo_info(repo_id, repo_type="dataset").sha
            snapshot = api.snapshot_download(
                repo_id,
                repo_type="dataset",
                revision=revision,
                allow_patterns=["results/**", "questions/**"],
            )
        root = Path(workspace) / "store"
        # The snapshot links to files of the Hub's cache, which must not change.
        shutil.copytree(snapshot, root)
        if not (root / "results").is_dir():
            raise BadInput(f"{repo_id}: contains no results.")
        outcomes = rescore_store(root, data, tell)
        written_folders = [root / outcome.folder for outcome in outcomes if outcome.written]
        paths = [path for folder in (*written_folders, root / "questions") for path in folder.glob("*")]
        files: dict[str, bytes | Path | None] = {}
        for path in paths:
            original = Path(snapshot) / path.relative_to(root)
            if not original.exists() or original.read_bytes() != path.read_bytes():
                files[path.relative_to(root).as_posix()] = path
        if files:
            with hub_errors(repo_id, "write the results that were derived again"):
                try:
                    commit_files(
                        api,
                        repo_id,
                        files,
                        f"Derived again by version {DERIVE_VERSION}",
                        parent=revision,
                    )
                except Exception as error:
                    # 412: main has moved past the commit that was read.
                    if http_status(error) != 412:
                        raise
                    raise BadInput(f"{repo_id}: the store was changed in the meantime. Run this again.") from None

    return outcomes
