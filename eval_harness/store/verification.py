"""`medprobe verify`: the results of a folder store are examined where they lie, and the pull requests to one on the Hub answered.

See also: what is examined (`examine.py`), what becomes of a pull request (`pull_requests.py`).
"""

from __future__ import annotations

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
from eval_harness.store.acceptance import read_acceptance
from eval_harness.store.checks import PublishedNames
from eval_harness.store.examine import examine_in_sandbox, read_sent
from eval_harness.store.folder_store import duplicate_flags
from eval_harness.store.hub_store import list_open_pulls
from eval_harness.store.pull_requests import READ_SECONDS_BY_ROUND, Outcome, PullRequests, VerifyResult
from eval_harness.store.rescoring import find_stored_dataset
from eval_harness.store.submission import REPRODUCED_SUFFIX, Submission


def verify(
    store: str,
    everything: bool = False,
    data: Sequence[str] = (),
    with_questions: bool = False,
    tell: Callable[[VerifyResult], None] = lambda result: None,
    published: PublishedNames | None = None,
) -> list[VerifyResult]:
    """Verify `ORG/NAME@PR`, or with `everything` all open pull requests of `ORG/NAME`, or every result of a folder.

    `data`: datasets (folders or Hub repositories) that the store's owner vouches for. `with_questions`: also store the questions of what
    is added, so that the board can compute any part of it. `tell` hears each result. `published`: names in papers.
    Raises BadInput: no such store or pull request, no token, a Hub that refuses.
    """
    for where in data:
        open_repository(where)  # a dataset of ours that cannot be read is no fault of those who submit
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
    """Add what a pull request adds although it is flagged: a person has looked at the flags. What is refused stays so.

    Args:
        pull: ORG/NAME@3.
        commit: that was looked at, as `verify` names it.
        data: as `verify` takes it, and so the others.

    Raises:
        BadInput: as `verify` does, and where something was pushed after that commit.
    """
    name, number = parse_pull_request(pull)
    return _pull_requests(name, data, with_questions, published).pull(number, commit)


def refuse(pull: str, reason: str) -> VerifyResult:
    """Close a pull request (ORG/NAME@3) with the reason as a comment."""
    name, number = parse_pull_request(pull)
    if not reason.strip():
        raise BadInput("--reason: say why, in plain text; it is shown on the pull request.")
    return _pull_requests(name, (), False, None).refuse(number, " ".join(reason.split()))


def _pull_requests(
    name: str, data: Sequence[str], with_questions: bool, published: PublishedNames | None
) -> PullRequests:
    api, who = sign_in(name)
    return PullRequests(api, name, who, tuple(data), with_questions, published)


def parse_pull_request(pull: str) -> tuple[str, int]:
    """The repository and the number of a pull request (`ORG/NAME@3`). Raises BadInput if it names none."""
    name, _, number = pull.rpartition("@")
    match = re.fullmatch(r"(?:refs/)?(?:pr/|#)?([0-9]{1,9})", number, re.ASCII)
    if not name or not match:
        raise BadInput(
            f"{pull}: is no pull request (ORG/NAME@3), nor a folder. `verify ORG/NAME --all` takes all that are open."
        )
    check_repo_id(name)
    return name, int(match[1])


def _verify_open_pulls(check: PullRequests, tell: Callable[[VerifyResult], None]) -> list[VerifyResult]:
    """Verify all open pull requests: the first of each account, then the second of each, the oldest first. What takes long to read is put
    off for those that do not."""
    with hub_errors(check.repo, "list its pull requests", check.who):
        listed = with_retries(lambda: list(list_open_pulls(check.api, check.repo)))
    turns: Counter[str] = Counter()
    places = []
    for pull in sorted(listed, key=lambda pull: pull.num):
        if pull.status != "draft":
            places.append((turns[pull.author], pull.num))
            turns[pull.author] += 1
    waiting = [number for _, number in sorted(places)]
    results: dict[int, VerifyResult] = {}
    for patience in READ_SECONDS_BY_ROUND:
        hurried, late = replace(check, patience=patience, remembers=True), []
        for number in waiting:
            result = _catch_failures(f"{check.repo}@{number}", "failed", partial(hurried.pull, number))
            if result.word == "later" and patience < READ_SECONDS_BY_ROUND[-1]:
                late.append(number)
                continue
            results[number] = result
            tell(result)
        waiting = late
    return [results[number] for number in sorted(results)]


T = TypeVar("T")


def _catch_failures(what: str, unreadable: Outcome, check: Callable[[], T]) -> T | VerifyResult:
    """The outcome of `check`; whatever one submission does, the others get their turn. `unreadable`: what becomes of one whose files
    cannot be read."""
    try:
        return check()
    except (BadInput, OSError) as error:
        return VerifyResult(what, "later" if isinstance(error, Unavailable) else unreadable, (str(error),))
    except Exception as error:
        traceback.print_exc()
        return VerifyResult(what, "failed", (f"{type(error).__name__}: {error}",))


def _verify_folder(
    store: Path, data: Sequence[str], tell: Callable[[VerifyResult], None], published: PublishedNames | None
) -> list[VerifyResult]:
    """Examine every result of a folder store; changes nothing."""
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
    """The outcome for one result of a folder store; None for one without answers."""
    path = store / name
    stored = read_result(path / RESULT_FILE)
    if stored.kind != "measured":
        return None
    sent = read_sent(path)
    submission = examine_in_sandbox(
        sent, partial(find_stored_dataset, store, tuple(data), stored.benchmark.fingerprint)
    )
    scored = submission.result.benchmark
    key = compute_derivation_key(sent, scored.fingerprint, scored.facets)  # of the files as they lie here
    acceptance = read_acceptance(path)
    account = acceptance.account if acceptance else None
    flags = [*submission.flags, *duplicate_flags(store, submission, account, published=published)]
    problems = [*submission.problems, *_storage_problems(name, stored, submission, key)]
    notes = [*submission.notes]
    if stored.key != key:
        notes.append("what is derived from it is out of date: `medprobe rescore` derives it again")
    word: Outcome = "refused" if problems else "for a person" if flags else "verified"
    return VerifyResult(name, word, (*problems, *flags), tuple(notes))


def _storage_problems(name: str, stored: Result, submission: Submission, key: str) -> Iterator[str]:
    """Inconsistencies of a stored result that none of our commands produces."""
    if name.removesuffix(REPRODUCED_SUFFIX) != submission.folder:
        yield f"its run.json and answers belong in {submission.folder}"
    if (stored.provenance == "reproduced") != name.endswith(REPRODUCED_SUFFIX):
        yield f"provenance {stored.provenance!r}, and its id says otherwise"
    if stored.key == key:
        derived = submission.result.model_copy(update={"provenance": stored.provenance, "key": key})
        if stored != derived:
            yield "its result.json is not what its answers give: `medprobe rescore` derives it again"
