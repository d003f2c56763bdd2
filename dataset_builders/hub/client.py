"""Connect to the Hub (URL, account, retries, one-line errors with a remedy), and commit files."""

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dataset_builders.errors import BadInput, Unavailable

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo, HfApi

T = TypeVar("T")
MAX_ATTEMPTS = 6
FIRST_BACKOFF_S = 0.5
"""Mean delay before the second attempt, in seconds.

It doubles each time, with jitter so that clients refused at the same time do not all retry at once.
"""
MAX_RETRY_AFTER_S = 60.0
"""Longest Retry-After that is obeyed, in seconds; a longer one is an error."""

RETRYABLE_STATUSES = frozenset({409, 412, 429, 500, 502, 503, 504})
"""A concurrent commit, too many requests, or a server error."""
NO_TOKEN_MESSAGE = "no Hub token: run `hf auth login`, or set HF_TOKEN to a token with write access."
RETRY_HINT = ". Run this again later; uploaded files are not sent again"
STATUS_MESSAGES = {
    401: "the Hub does not accept the token. Make a new one and run `hf auth login`, or set HF_TOKEN",
    403: "{account} lacks permission. Use a token that has it, ask for access, or choose another ORG",
    404: "it does not exist, or {account} cannot see it. Check the name, the revision and the token",
    409: "it was changed by someone else at the same time. Run this again",
    412: "it was changed by someone else at the same time. Run this again",
    429: "the Hub received too many requests. Wait a few minutes, then run this again",
}
"""HTTP status -> cause and remedy; the Hub's own message follows in parentheses."""


def endpoint() -> str:
    """Return the Hub's URL: the current $HF_ENDPOINT (huggingface_hub reads it only on import)."""
    from huggingface_hub import constants

    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


def connect(token: str | None = None) -> "HfApi":
    """Create a client of the Hub.

    Args:
        token: the token to send; None for this machine's token, or none within `anonymous_access`.
    """
    from huggingface_hub import HfApi

    # False sends no token at all; None would fall back to this machine's token.
    sent_token = False if token is None and _ANONYMOUS.get() else token
    return HfApi(endpoint=endpoint(), token=sent_token, library_name="medprobe")


_ANONYMOUS: ContextVar[bool] = ContextVar("anonymous_access", default=False)


@contextmanager
def anonymous_access() -> Iterator[None]:
    """Make requests without this machine's token within the block.

    Use it for repositories named by strangers: only public content is read, so that results never
    depend on what this machine may access.
    """
    token = _ANONYMOUS.set(True)
    try:
        yield
    finally:
        _ANONYMOUS.reset(token)


def connect_with_token(token: str | None = None) -> "HfApi":
    """Create a client that may write.

    Args:
        token: None for this machine's token.

    Raises:
        BadInput: there is no token.
    """
    from huggingface_hub import get_token

    token = token or get_token()
    if not token:
        raise BadInput(NO_TOKEN_MESSAGE)
    return connect(token)


def sign_in(repo_id: str, token: str | None = None) -> "tuple[HfApi, str]":
    """Create a client that may write to a repository.

    Args:
        repo_id: ORG/NAME.
        token: None for this machine's token.

    Returns:
        The client, and the account that the token belongs to.

    Raises:
        BadInput: the id is invalid, there is no token, or the Hub rejects it.
    """
    check_repo_id(repo_id)
    api = connect_with_token(token)
    with hub_errors(repo_id, "sign in"):
        return api, str(with_retries(api.whoami).get("name"))


def check_repo_id(repo_id: str) -> None:
    """Check that an id is ORG/NAME as the Hub allows it.

    Args:
        repo_id: the id.

    Raises:
        BadInput: it is not.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo_id)
        reason = None if repo_id.count("/") == 1 else "one slash is needed"
    except HFValidationError as error:
        reason = _one_line(str(error))

    if reason:
        raise BadInput(f"{repo_id}: is not a Hub repository id, such as medlab/mediconfusion ({reason}).")


def is_repo_id(text: str) -> bool:
    """Return True for ORG/NAME as the Hub allows it."""
    try:
        check_repo_id(text)
    except BadInput:
        return False
    return True


@contextmanager
def hub_errors(repo_id: str, action: str, account: str | None = None) -> Iterator[None]:
    """Turn errors of the Hub or network within the block into one line; other exceptions pass
    through.

    Args:
        repo_id: the repository.
        action: completes "cannot ...", e.g. "create it".
        account: the account, if known.

    Raises:
        Unavailable: the Hub could not be reached.
        BadInput: the Hub refused.
    """
    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        reason = _explain_error(error, f"the account {account}" if account else "your account")
        if reason is None:
            raise
        raise (Unavailable if is_unavailable(error) else BadInput)(f"{repo_id}: cannot {action}: {reason}.") from error


def is_unavailable(error: BaseException) -> bool:
    """Check whether an error means that the Hub could not be asked (network, server, token).

    Args:
        error: any exception.

    Returns:
        True if the request says nothing about whether the file or repository exists.
    """
    from huggingface_hub import errors
    from huggingface_hub.utils import httpx

    status = http_status(error)
    if status is not None:
        return status in RETRYABLE_STATUSES or status >= 500 or status in (401, 408)

    # A proxy's HTML page in place of JSON also means that the Hub was not reached.
    network = (httpx.TransportError, ConnectionError, TimeoutError, json.JSONDecodeError)
    offline = (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError)
    return isinstance(error, Unavailable) or _find_cause(error, network + offline) is not None


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status behind an error of huggingface_hub; None if there was no response."""
    response = _find_response(error)
    return None if response is None else int(response.status_code)


def _iter_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its chain of causes."""
    while error is not None:
        yield error
        error = error.__cause__


def _find_cause(error: BaseException, kinds: Any) -> BaseException | None:
    """Return the first error of these types in the chain of causes."""
    return next((cause for cause in _iter_causes(error) if isinstance(cause, kinds)), None)


def _find_response(error: BaseException) -> Any:
    """Return the HTTP response behind an error, even if it was wrapped; None if there was none."""
    responses = (getattr(cause, "response", None) for cause in _iter_causes(error))
    return next((response for response in responses if response is not None), None)


def _retry_after_s(error: BaseException) -> float | None:
    """Return the delay in seconds that the Hub requests (Retry-After); None if a retry is
    pointless.
    """
    from huggingface_hub.errors import OfflineModeIsEnabled
    from huggingface_hub.utils import httpx

    response = _find_response(error)
    if response is not None:
        # Retry-After may also be a date, which is ignored.
        header = str(response.headers.get("retry-after") or "").strip()
        seconds = float(header) if header.isascii() and header.isdigit() else 0.0
        return seconds if response.status_code in RETRYABLE_STATUSES and seconds <= MAX_RETRY_AFTER_S else None

    failure = _find_cause(error, (httpx.TransportError, ConnectionError))

    # A refused connection means a wrong address or no network; a broken one may succeed next time.
    is_pointless = failure is None or isinstance(failure, httpx.ConnectError | OfflineModeIsEnabled)
    return None if is_pointless else 0.0


@contextmanager
def hide_progress_bars() -> Iterator[None]:
    """Hide the Hub client's progress bars unless standard error is a terminal."""
    from huggingface_hub.utils import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    # Never enable bars that the user has disabled.
    if sys.stderr.isatty() or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def with_retries(
    action: Callable[[], T],
    check_done: Callable[[], T | None] | None = None,
    tries: int = MAX_ATTEMPTS,
) -> T:
    """Call a function, repeating it after transient errors.

    Args:
        action: the function to call.
        check_done: called before each attempt; returns the result if it already exists (the
            response to an earlier attempt may have been lost), else None. It is itself retried.
        tries: maximum number of attempts.
    """
    for attempt in range(tries):
        if check_done is not None and (done := with_retries(check_done)) is not None:
            return done
        try:
            return action()
        except BadInput:
            raise
        except Exception as error:
            # None marks a permanent error, which is raised at once.
            wait = _retry_after_s(error)
            if attempt == tries - 1 or wait is None:
                raise
            time.sleep(wait + FIRST_BACKOFF_S * 2 ** min(attempt, 5) * random.uniform(0.5, 1.5))

    raise AssertionError("unreachable")


def _explain_error(error: BaseException, account: str) -> str | None:
    """Return cause and remedy of an error of the Hub or network; None for any other, which is a
    bug.
    """
    from huggingface_hub import errors

    if _find_cause(error, errors.OfflineModeIsEnabled):
        return "offline mode is on. Unset HF_HUB_OFFLINE (and TRANSFORMERS_OFFLINE)"
    status = http_status(error)
    if status is not None:
        server_message = next(
            (message for cause in _iter_causes(error) if (message := getattr(cause, "server_message", None))),
            "",
        )

        # The Hub answers 401 for a missing repository if the token cannot see it.
        missing = isinstance(error, errors.RepositoryNotFoundError) and status == 401
        reason = STATUS_MESSAGES.get(
            404 if missing else status,
            f"the Hub answered {status}{RETRY_HINT if status >= 500 else ''}",
        )
        return f"{reason.format(account=account)} ({_one_line(server_message) or f'{endpoint()} answered {status}'})"

    if "xet" in f"{type(error).__module__} {error}".lower():  # Xet's native client has no exception classes of its own
        return f"the upload through Xet failed ({_one_line(str(error))}). Run this again, or set HF_HUB_DISABLE_XET=1"
    if is_unavailable(error):
        root_cause = _one_line(str([*_iter_causes(error)][-1]))
        return f"{endpoint()} is unreachable or is not a Hugging Face Hub ({root_cause}). Check the network and HF_ENDPOINT"
    return None


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200].rstrip(".")


def commit_files(
    api: "HfApi",
    repo_id: str,
    files: Mapping[str, bytes | Path | None],
    message: str,
    kind: str = "dataset",
    *,
    description: str | None = None,
    parent: str | None = None,
    revision: str | None = None,
    pull_request: bool = False,
) -> "CommitInfo":
    """Write files in one commit, completely or not at all.

    Args:
        api: a client that may write.
        repo_id: the repository.
        files: path -> content or file; None deletes it.
        message: title of the commit.
        kind: "dataset", "space" or "model".
        description: body of the commit message.
        parent: the commit that the files were computed from. The Hub refuses (412) if another
            commit came in between; recompute the files then.
        revision: a branch or pull request; None for main.
        pull_request: open a pull request instead of writing to main.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    operations = [
        CommitOperationDelete(path)
        if content is None
        else CommitOperationAdd(path, str(content) if isinstance(content, Path) else content)
        for path, content in sorted(files.items(), key=lambda item: (item[1] is not None, item[0]))
    ]

    # The images of `cases` are also in `questions`. hf_xet deduplicates against earlier uploads but
    # not within one, so upload config by config.
    configs: dict[str, list[CommitOperationAdd]] = {}
    for operation in operations:
        if isinstance(operation, CommitOperationAdd) and operation.path_in_repo.endswith(".parquet"):
            configs.setdefault(operation.path_in_repo.partition("/")[0], []).append(operation)

    for additions in configs.values() if len(configs) > 1 else ():
        api.preupload_lfs_files(repo_id, additions, repo_type=kind, revision=revision, create_pr=pull_request)

    return api.create_commit(
        repo_id,
        operations,
        commit_message=message,
        commit_description=description,
        repo_type=kind,
        parent_commit=parent,
        revision=revision,
        create_pr=pull_request,
    )


def is_released(repo_id: str, commit: str) -> bool:
    """Check that a commit of a dataset repository is on main or behind a tag, hence released by its
    owner.

    Anyone may open a pull request, whose commits the Hub serves under the owner's name.

    Args:
        repo_id: the repository.
        commit: id of the commit.

    Raises:
        Unavailable: the Hub could not be reached.
        BadInput: there is no such repository.
    """
    api = connect()
    with hub_errors(repo_id, "list its commits"):
        tags = with_retries(lambda: api.list_repo_refs(repo_id, repo_type="dataset").tags)
        for revision in ("main", *(tag.target_commit for tag in tags)):
            history = with_retries(lambda at=revision: api.list_repo_commits(repo_id, revision=at, repo_type="dataset"))  # type: ignore[misc]
            if any(entry.commit_id == commit for entry in history):
                return True

    return False
