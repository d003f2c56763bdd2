"""Connect to the Hub: address, account, retries, and one line with a remedy for each of its errors."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from dataset_builders.errors import BadInput, Unavailable

if TYPE_CHECKING:
    from huggingface_hub import HfApi

T = TypeVar("T")
MAX_ATTEMPTS = 6
FIRST_BACKOFF_S = 0.5
"""Mean seconds before the second try; doubled each time, with jitter so that clients refused together do not return together."""
MAX_RETRY_AFTER_S = 60.0
"""Most seconds of a Retry-After that are waited."""

RETRYABLE_STATUSES = frozenset({409, 412, 429, 500, 502, 503, 504})
"""Another commit came in between, too many requests, a server in trouble."""
NO_TOKEN_MESSAGE = "no Hub token: run `hf auth login`, or set HF_TOKEN to a token that may write."
RETRY_HINT = ". Run this again later; what is there already is not sent twice"
STATUS_MESSAGES = {
    401: "the Hub does not accept the token. Make a new one and run `hf auth login`, or set HF_TOKEN",
    403: "{account} has no right to do so. Use a token that may, ask for access, or choose another ORG",
    404: "it is not there, or {account} may not see it. Check the name, the revision and the token",
    409: "it was changed by someone else at the same time. Run this again",
    412: "it was changed by someone else at the same time. Run this again",
    429: "the Hub had too many requests. Wait a few minutes, then run this again",
}
"""HTTP status -> cause and remedy; what the Hub itself says follows in brackets."""


def endpoint() -> str:
    """The Hub's address: $HF_ENDPOINT as it is now (huggingface_hub itself reads it only when it is imported)."""
    from huggingface_hub import constants

    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


def connect(token: str | None = None) -> HfApi:
    """A client of the Hub at `endpoint()`."""
    from huggingface_hub import HfApi

    sent_token = False if token is None and _ANONYMOUS.get() else token
    return HfApi(endpoint=endpoint(), token=sent_token, library_name="medprobe")


_ANONYMOUS: ContextVar[bool] = ContextVar("as_anyone", default=False)


@contextmanager
def anonymous_access() -> Iterator[None]:
    """Within this, `connect()` sends no token of this machine: what a stranger names is read as anybody may read it, so that no answer
    depends on what is private."""
    before = _ANONYMOUS.set(True)
    try:
        yield
    finally:
        _ANONYMOUS.reset(before)


def connect_with_token(token: str | None = None) -> HfApi:
    """A client that may write, by this token or this machine's. BadInput without one."""
    from huggingface_hub import get_token

    token = token or get_token()
    if not token:
        raise BadInput(NO_TOKEN_MESSAGE)
    return connect(token)


def sign_in(repo_id: str, token: str | None = None) -> tuple[HfApi, str]:
    """A client that may write to a repository, and the account of its token (None: this machine's).

    BadInput for an id that is none, without a token, and where the Hub does not take it.
    """
    check_repo_id(repo_id)
    api = connect_with_token(token)
    with hub_errors(repo_id, "sign in"):
        return api, str(with_retries(api.whoami).get("name"))


def check_repo_id(repo_id: str) -> None:
    """BadInput unless `repo_id` is ORG/NAME as the Hub allows it."""
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
    """True for ORG/NAME as the Hub allows it."""
    try:
        check_repo_id(text)
    except BadInput:
        return False
    return True


@contextmanager
def hub_errors(repo_id: str, doing: str, who: str | None = None) -> Iterator[None]:
    """Turn an error of the Hub or of the network into one line; any other exception passes through.

    Raises Unavailable where the Hub could not be asked, BadInput where it refused.
    `doing` completes "cannot ...", e.g. "create it"; `who` is the account, where it is known.
    """
    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        reason = _explain_error(error, f"the account {who}" if who else "your account")
        if reason is None:
            raise
        raise (Unavailable if is_unavailable(error) else BadInput)(f"{repo_id}: cannot {doing}: {reason}.") from error


def is_unavailable(error: BaseException) -> bool:
    """True where the Hub could not be asked (network, server, token), so that what was asked for may exist."""
    from huggingface_hub import errors
    from huggingface_hub.utils import httpx

    status = http_status(error)
    if status is not None:
        return status in RETRYABLE_STATUSES or status >= 500 or status in (401, 408)
    network = (httpx.TransportError, ConnectionError, TimeoutError, json.JSONDecodeError)
    offline = (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError)
    return isinstance(error, Unavailable) or _find_cause(error, network + offline) is not None


def http_status(error: BaseException) -> int | None:
    """The HTTP status behind an error of huggingface_hub; None where there was no answer."""
    response = _find_response(error)
    return None if response is None else int(response.status_code)


def _iter_causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and what it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__


def _find_cause(error: BaseException, kinds: Any) -> BaseException | None:
    """The error of one of these kinds that `error` is, or was raised from."""
    return next((cause for cause in _iter_causes(error) if isinstance(cause, kinds)), None)


def _find_response(error: BaseException) -> Any:
    """The HTTP response behind an error of huggingface_hub, also where the client wrapped it; None where there was no answer."""
    responses = (getattr(cause, "response", None) for cause in _iter_causes(error))
    return next((response for response in responses if response is not None), None)


def _retry_after_s(error: BaseException) -> float | None:
    """The back-off that the Hub asks for (Retry-After) before the next try; None if a retry is pointless."""
    from huggingface_hub.errors import OfflineModeIsEnabled
    from huggingface_hub.utils import httpx

    response = _find_response(error)
    if response is not None:
        asked = str(response.headers.get("retry-after") or "").strip()
        seconds = float(asked) if asked.isascii() and asked.isdigit() else 0.0
        return seconds if response.status_code in RETRYABLE_STATUSES and seconds <= MAX_RETRY_AFTER_S else None
    broke = _find_cause(error, (httpx.TransportError, ConnectionError))
    no_use = broke is None or isinstance(broke, httpx.ConnectError | OfflineModeIsEnabled)
    return None if no_use else 0.0


@contextmanager
def hide_progress_bars() -> Iterator[None]:
    """Hide the Hub client's progress bars unless standard error is a terminal."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if sys.stderr.isatty() or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def with_retries(action: Callable[[], T], look: Callable[[], T | None] | None = None, tries: int = MAX_ATTEMPTS) -> T:
    """Call `action`, up to `tries` times where errors may pass.

    `look`, before each try, returns the result if it exists already (the answer of an earlier try may have got lost), else None; it is
    itself retried.
    """
    for attempt in range(tries):
        if look is not None and (done := with_retries(look)) is not None:
            return done
        try:
            return action()
        except BadInput:
            raise
        except Exception as error:
            wait = _retry_after_s(error)
            if attempt == tries - 1 or wait is None:
                raise
            time.sleep(wait + FIRST_BACKOFF_S * 2 ** min(attempt, 5) * random.uniform(0.5, 1.5))
    raise AssertionError("unreachable")


def _explain_error(error: BaseException, account: str) -> str | None:
    """Cause and remedy of an error of the Hub or of the network; None for any other (a defect of ours)."""
    from huggingface_hub import errors

    if _find_cause(error, errors.OfflineModeIsEnabled):
        return "offline mode is on. Unset HF_HUB_OFFLINE (and TRANSFORMERS_OFFLINE)"
    status = http_status(error)
    if status is not None:
        said = next((told for cause in _iter_causes(error) if (told := getattr(cause, "server_message", None))), "")
        missing = isinstance(error, errors.RepositoryNotFoundError) and status == 401
        reason = STATUS_MESSAGES.get(
            404 if missing else status, f"the Hub answered {status}{RETRY_HINT if status >= 500 else ''}"
        )
        return f"{reason.format(account=account)} ({_one_line(said) or f'{endpoint()} answered {status}'})"
    if "xet" in f"{type(error).__module__} {error}".lower():  # its native client has no class of errors of its own
        return f"the upload through Xet failed ({_one_line(str(error))}). Run this again, or set HF_HUB_DISABLE_XET=1"
    if is_unavailable(error):
        first = _one_line(str([*_iter_causes(error)][-1]))
        return f"{endpoint()} cannot be reached, or is no Hub ({first}). Check the network and HF_ENDPOINT"
    return None


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200].rstrip(".")
