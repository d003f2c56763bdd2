"""`medprobe verify`: the results of a folder store are examined where they lie, and the pull requests to one on the Hub answered.

See also: what is examined (`examination.py`), what becomes of a pull request (`pull_requests.py`).
"""

from __future__ import annotations

import hashlib
import re
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from filelock import FileLock, Timeout

from dataset_builders.errors import BadInput, Unavailable
from dataset_builders.hub.client import check_repo_id, endpoint, hub_errors, sign_in, with_retries
from dataset_builders.hub.repository import open_repository
from eval_harness.records.result import Benchmark, read_result
from eval_harness.results.landing import local_account, read_landing
from eval_harness.submissions.datasets import Dataset, dataset_for
from eval_harness.submissions.examination import examine
from eval_harness.submissions.outcome import Outcome, Word, sandboxed
from eval_harness.submissions.pull_requests import MOST_AT_ONCE, PullRequests
from eval_harness.submissions.stores.folder_store import duplicate_submissions
from eval_harness.submissions.stores.hub_store import open_pulls
from eval_harness.submissions.submission import Bundle
from eval_harness.submissions.untrusted.files import parquet_rows

if TYPE_CHECKING:
    from huggingface_hub import Discussion


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
    api, who = sign_in(name)
    check = PullRequests(api, name, who, tuple(data), accept_flagged, with_questions)
    with _one_at_a_time(name):
        if number is not None:
            outcome = check.pull(number)
            assert outcome is not None
            tell(outcome)
            return [outcome]
        return _all(check, tell)


ACCOUNT_SECONDS = 300.0
"""What the pull requests of one account may take of a run with --all; the rest of them come in the next."""


def in_rounds(pulls: Iterable[Discussion]) -> list[Discussion]:
    """The oldest pull request of each account, then the second of each, and so on: nobody waits for all that somebody else handed in."""
    turns: Counter[str] = Counter()
    found = []
    for pull in sorted(pulls, key=lambda each: each.num):
        found.append((turns[pull.author], pull.num, pull))
        turns[pull.author] += 1
    return [pull for *_, pull in sorted(found, key=lambda each: each[:2])]


def _all(check: PullRequests, tell: Callable[[Outcome], None]) -> list[Outcome]:
    """Verify all open pull requests, in rounds over the accounts, large ones last."""
    name, owner = check.repo, check.repo.split("/")[0]
    with hub_errors(name, "list its pull requests", check.who):
        listed = with_retries(lambda: list(open_pulls(check.api, name)))
    outcomes = []
    waiting: list[tuple[Discussion, int | None]]
    waiting = [(each, MOST_AT_ONCE) for each in in_rounds(listed) if each.status != "draft"]
    spent: defaultdict[str, float] = defaultdict(float)
    while waiting:
        pull, most = waiting.pop(0)
        begun, what = time.monotonic(), f"{name}@{pull.num}"
        outcome: Outcome | None
        if spent[pull.author] > ACCOUNT_SECONDS and pull.author not in (owner, check.who):
            outcome = Outcome(
                what, "next run", (f"the others of {pull.author} took {ACCOUNT_SECONDS:.0f} s of this one",)
            )
        else:
            outcome = _answered(check, pull.num, most)
        spent[pull.author] += time.monotonic() - begun
        if outcome is None:  # a large one waits until the others are done
            waiting.append((pull, None))
            continue
        tell(outcome)
        outcomes.append(outcome)
    return outcomes


def _answered(check: PullRequests, number: int, most: int | None) -> Outcome | None:
    """`PullRequests.pull`; whatever one pull request does, the others get their turn."""
    try:
        return check.pull(number, most)
    except Exception as error:
        if not isinstance(error, BadInput):
            traceback.print_exc()
        told = str(error) if isinstance(error, BadInput) else f"{type(error).__name__}: {error}"
        return Outcome(f"{check.repo}@{number}", "later" if isinstance(error, Unavailable) else "failed", (told,))


@contextmanager
def _one_at_a_time(store: str) -> Iterator[None]:
    """Of this machine's verifiers of a store one works at a time: a scheduled job that takes longer than its period is waited for."""
    name = hashlib.sha256(f"{endpoint()}/{store}".encode()).hexdigest()[:16]
    lock = FileLock(Path(tempfile.gettempdir()) / f"medprobe-verify-{local_account()}-{name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(
            f"{store}: another `medprobe verify` is working on it; waiting for it to finish.",
            file=sys.stderr,
            flush=True,
        )
        lock.acquire(poll_interval=0.5)
    try:
        yield
    finally:
        lock.release()


def _number(pull: str) -> int:
    match = re.fullmatch(r"(?:refs/)?(?:pr/|#)?([0-9]{1,9})", pull, re.ASCII)
    if not match:
        raise BadInput(f"@{pull}: is not a pull request. Give its number, e.g. ORG/results@3.")
    return int(match[1])


def _folder(store: Path, data: Sequence[str], tell: Callable[[Outcome], None]) -> list[Outcome]:
    """Examine every result of a folder store; changes nothing."""
    outcomes = []
    for path in sorted((store / "results").glob("*/*/*/result.json")):
        name = path.parent.relative_to(store).as_posix()
        try:
            claimed = read_result(path)
            if claimed.kind != "measured":
                continue
            find = partial(_questions_here, store, tuple(data))
            submission = sandboxed(examine, Bundle.read(path.parent), find, stored_as=path.parent.name)
            landing = read_landing(path.parent)
            account = landing.account if landing else None
            flags = [*submission.flags, *duplicate_submissions(store, submission, account)]
            word: Word = "refused" if submission.problems else "for a human" if flags else "verified"
            outcome = Outcome(name, word, (*submission.problems, *flags), tuple(submission.notes))
        except BadInput as error:
            outcome = Outcome(name, "later" if isinstance(error, Unavailable) else "refused", (str(error),))
        tell(outcome)
        outcomes.append(outcome)
    return outcomes


def _questions_here(store: Path, data: Sequence[str], benchmark: Benchmark) -> Dataset:
    """The questions of --data, else those that a folder store keeps for a result, else those of the revision that it names."""
    path = store / "questions" / f"{benchmark.fingerprint}.parquet"
    if data or not path.is_file():
        return dataset_for(benchmark, data)
    questions = pd.DataFrame(list(parquet_rows(path)))
    return Dataset(benchmark.name, benchmark.split, benchmark.family, questions, benchmark.origin, None, ours=True)
