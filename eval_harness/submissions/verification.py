"""`medprobe verify`: the results of a folder store are examined where they lie, and the pull requests to one on the Hub answered.

See also: what is examined (`examination.py`), what becomes of a pull request (`pull_requests.py`).
"""

from __future__ import annotations

import hashlib
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pandas as pd
from filelock import FileLock, Timeout

from dataset_builders.errors import BadInput, Unavailable
from dataset_builders.hub.client import check_repo_id, connect_with_token, endpoint, hub_errors, with_retries
from dataset_builders.hub.repository import open_repository
from eval_harness.results import Benchmark, read_result
from eval_harness.results.landing import local_account, read_landing
from eval_harness.submissions.datasets import Dataset, dataset_for
from eval_harness.submissions.examination import examine
from eval_harness.submissions.outcome import Outcome, Word, sandboxed
from eval_harness.submissions.pull_requests import MOST_AT_ONCE, PullRequests
from eval_harness.submissions.stores.folder_store import duplicate_submissions
from eval_harness.submissions.stores.hub_store import open_pulls
from eval_harness.submissions.submission import Bundle
from eval_harness.submissions.untrusted.files import parquet_rows


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
    check = PullRequests(api, name, who, tuple(data), accept_flagged, with_questions)
    with _one_at_a_time(name):
        if number is not None:
            outcome = check.pull(number)
            assert outcome is not None
            tell(outcome)
            return [outcome]
        return _all(check, tell)


def _all(check: PullRequests, tell: Callable[[Outcome], None]) -> list[Outcome]:
    """Verify all open pull requests, the oldest first, large ones last."""
    name, who = check.repo, check.who
    with hub_errors(name, "list its pull requests", who):
        listed = with_retries(lambda: list(open_pulls(check.api, name)))
    outcomes = []
    waiting: list[tuple[int, int | None]]
    waiting = [(each.num, MOST_AT_ONCE) for each in sorted(listed, key=lambda each: each.num) if each.status != "draft"]
    while waiting:
        number, most = waiting.pop(0)
        outcome: Outcome | None
        try:
            outcome = check.pull(number, most)
        except Exception as error:  # whatever one pull request does, the others get their turn
            if not isinstance(error, BadInput):
                traceback.print_exc()
            told = str(error) if isinstance(error, BadInput) else f"{type(error).__name__}: {error}"
            outcome = Outcome(f"{name}@{number}", "later" if isinstance(error, Unavailable) else "failed", (told,))
        if outcome is None:  # a large one waits until the others are done
            waiting.append((number, None))
            continue
        tell(outcome)
        outcomes.append(outcome)
    return outcomes


@contextmanager
def _one_at_a_time(store: str) -> Iterator[None]:
    """Of this machine's verifiers of a store one works at a time: a scheduled job that takes longer than its period is waited for."""
    name = hashlib.sha256(f"{endpoint()}/{store}".encode()).hexdigest()[:16]
    lock = FileLock(Path(tempfile.gettempdir()) / f"medprobe-verify-{local_account()}-{name}.lock")
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
            landing = read_landing(path.parent)
            account = landing.account if landing else None
            flags = [*submission.flags, *duplicate_submissions(store, submission, account)]
            word: Word = "refused" if submission.problems else "for a human" if flags else "verified"
            outcome = Outcome(place, word, (*submission.problems, *flags), tuple(submission.notes))
        except BadInput as error:
            outcome = Outcome(place, "later" if isinstance(error, Unavailable) else "refused", (str(error),))
        tell(outcome)
        outcomes.append(outcome)
    return outcomes


def _questions_here(store: Path, data: Sequence[str], benchmark: Benchmark) -> Dataset:
    """The questions of --data, else those that a folder store keeps for a result, else those of the revision that it names."""
    path = store / "questions" / f"{benchmark.fingerprint}.parquet"
    if data or not path.is_file():
        return dataset_for(benchmark, data)
    questions = pd.DataFrame(list(parquet_rows(path)))
    return Dataset(benchmark.name, benchmark.split, benchmark.format, questions, benchmark.origin, None, ours=True)
