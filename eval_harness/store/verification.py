"""`medprobe verify`: examine the results of a folder store, or pull requests to a store on the Hub.

See also: examining a submission (`examine.py`), acting on a pull request (`pull_requests.py`).
"""

import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from dataset_builders.errors import BadInput, Unavailable
from dataset_builders.hub.client import check_repo_id, hub_errors, sign_in, with_retries
from dataset_builders.hub.repository import open_repository
from eval_harness.derive.derivation import compute_derivation_key
from eval_harness.derive.run_files import RESULT_FILE, RUN_FILE
from eval_harness.records.result import Result, read_result
from eval_harness.store.checks import PublishedNames
from eval_harness.store.contents import REPRODUCED_SUFFIX, Submission, read_acceptance
from eval_harness.store.examine import examine_in_sandbox, read_sent
from eval_harness.store.folder_store import duplicate_flags
from eval_harness.store.hub_store import list_open_pulls
from eval_harness.store.pull_requests import (
    READ_SECONDS_BY_ROUND,
    Outcome,
    PullRequests,
    VerifyResult,
)
from eval_harness.store.rescoring import find_stored_dataset


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
    return _pull_requests(name, (), False, None).refuse(number, " ".join(reason.split()))


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


T = TypeVar("T")


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
