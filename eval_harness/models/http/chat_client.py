"""The openai package's client: its address, its key, and POST requests with JSON.

Also determines whether requests leave this machine, and refuses to send them if that is not
allowed. Connections, proxies (HTTPS_PROXY, NO_PROXY), certificates (the operating system's, or
SSL_CERT_FILE) and retries are handled by the package. Redirects are never followed, since they
would send images elsewhere. See also: the meaning of errors (`replies.py`), the number of
concurrent requests (`openai_chat.py`).
"""

import asyncio
import ipaddress
import json
import os
import queue
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

from dataset_builders.errors import BadInput
from eval_harness.models.http.replies import classify_exception, classify_status, embedded_status, strip_tags
from eval_harness.models.interface import Settings

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI

Item = TypeVar("Item")
CONNECT_TIMEOUT = 5.0
"""Timeout of a connection attempt, in seconds."""
MAX_RETRIES = 4
"""Number of the client's retries, with growing delays.

It retries after broken connections, busy or failing servers, and unreadable replies.
"""
OPENAI_URL = "https://api.openai.com/v1"
AZURE_PREFIX = "azure:"


def open_client(name: str, settings: Settings, label: str, key: str | None = None) -> "AsyncOpenAI":
    """Open a client with the environment variables of the openai package.

    Use it in one event loop and close it with that loop.

    Args:
        name: Name of the model; `azure:NAME` is a deployment of Azure OpenAI.
        settings: Address, timeout and number of concurrent requests.
        label: The option that named the model, for messages.
        key: Key of the server; None: OPENAI_API_KEY.

    Returns:
        The client.

    Raises:
        BadInput: If the address, the key or a proxy cannot be used.
    """
    import httpx2
    import openai

    azure = name.startswith(AZURE_PREFIX)
    timeout = httpx2.Timeout(settings.timeout, connect=min(CONNECT_TIMEOUT, settings.timeout))
    # Never reuse a connection: if a server sends a reply twice, the second copy would be taken for
    # the answer to the next question.
    limits = httpx2.Limits(max_connections=settings.in_flight + 2, keepalive_expiry=0)
    try:
        http = openai.DefaultAioHttpClient(follow_redirects=False, timeout=timeout, limits=limits)
        # Accept no cookies: a reply must not influence later requests.
        http.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=()))
        http.event_hooks = {"response": [_check_reply]}
    except ValueError as error:
        raise BadInput(f"{label}: a proxy from the environment cannot be used ({error}).") from None

    if azure:
        endpoint: Any = _normalize_url(settings.base_url)  # None: AZURE_OPENAI_ENDPOINT
        try:
            return openai.AsyncAzureOpenAI(
                azure_endpoint=endpoint,
                azure_deployment=name.removeprefix(AZURE_PREFIX),
                max_retries=MAX_RETRIES,
                timeout=timeout,
                http_client=http,
            )
        except (openai.OpenAIError, ValueError) as error:
            raise BadInput(f"{label}: {error}") from None
    url = server_address(name, settings.base_url)
    key = key or os.environ.get("OPENAI_API_KEY", "").strip()
    if not key and not is_loopback(url):
        raise BadInput(
            f"{label}: OPENAI_API_KEY is not set. Set it to your key, or give the address of a "
            "server on this machine "
            "with --base-url http://127.0.0.1:8000/v1."
        )
    return openai.AsyncOpenAI(
        base_url=url, api_key=key or "none", max_retries=MAX_RETRIES, timeout=timeout, http_client=http
    )


def server_address(name: str, base_url: str | None) -> str:
    """Return the base URL for a model: `base_url`, else the environment's, else OpenAI's.

    Args:
        name: Name of the model, with its prefix if it is on Azure.
        base_url: Value of `--base-url`.

    Returns:
        The URL without a trailing slash.

    Raises:
        BadInput: If it is not an http(s) address.
    """
    variable = "AZURE_OPENAI_ENDPOINT" if name.startswith(AZURE_PREFIX) else "OPENAI_BASE_URL"
    return _normalize_url(base_url or os.environ.get(variable)) or OPENAI_URL


async def post(client: "AsyncOpenAI", url: str, body: dict[str, Any], timeout: float) -> Any:
    """Post a JSON document and return the reply's JSON.

    Args:
        client: The client.
        url: Path below the client's address, or a full URL.
        body: The document.
        timeout: Seconds for all attempts together.

    Returns:
        The reply's JSON.

    Raises:
        ServerFailure: If there is no reply, or it is an error.
        Refusal: If a filter or the model withheld the answer.
    """
    import aiohttp
    import httpx2
    import openai

    try:
        async with asyncio.timeout(timeout):
            reply = await client.post(url, cast_to=httpx2.Response, body=body)
        return reply.json()
    except openai.APIStatusError as error:
        raise classify_status(error.status_code, error.response.text, error.response.headers) from None
    except (openai.APIConnectionError, aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise classify_exception(error) from None


async def _check_reply(reply: "httpx2.Response") -> None:
    """Make errors inside replies with status 200 visible to the client, which then retries them.

    A reply that contains an error gets the error's status. A reply that is neither a chat
    completion nor another JSON object raises DecodingError.
    """
    import httpx2

    if not reply.is_success:
        return
    await reply.aread()
    # Some servers send their reply as server-sent events although the request does not ask for it.
    streams = reply.content.startswith(b"data:")
    why = "the server streams its reply although it was not asked to" if streams else strip_tags(reply.text)
    with suppress(ValueError, RecursionError, AttributeError, LookupError, TypeError):
        document = json.loads(reply.content)
        if (status := embedded_status(document)) is not None:
            reply.status_code = status
            return
        if isinstance(document.get("choices", [{}])[0], dict):
            return
    raise httpx2.DecodingError(f"the server's reply is not a chat completion ({why})", request=reply.request)


def in_background(
    work: Callable[[Callable[[Item], None]], Coroutine[Any, Any, None]],
) -> Iterator[Item]:
    """Run `work(emit)` in an event loop of its own thread.

    Works even if the caller has a running event loop, as a notebook does. Closing the iterator
    cancels the work.

    Args:
        work: Called with a function that emits an item.

    Yields:
        Items as they are emitted.

    Raises:
        Exception: Whatever `work` raises.
    """
    items: queue.SimpleQueue[tuple[Item] | None] = queue.SimpleQueue()
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = Future()

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        started.set_result((asyncio.get_running_loop(), task))
        await work(lambda item: items.put((item,)))

    with ThreadPoolExecutor(1, thread_name_prefix="in-flight") as thread:
        done = thread.submit(lambda: asyncio.run(main()))
        done.add_done_callback(lambda _: items.put(None))
        try:
            while (item := items.get()) is not None:
                yield item[0]
        finally:
            if not done.done():
                loop, task = started.result()
                with suppress(RuntimeError):  # the loop may have ended in the meantime
                    loop.call_soon_threadsafe(task.cancel)
    done.result()


def is_loopback(url: str) -> bool:
    """True for a loopback address of this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def remote_host(address: str) -> str | None:
    """Return the host that requests to an address go to, or None if they stay on this machine.

    Requests to a loopback address or `localhost` stay here unless the environment names a proxy and
    NO_PROXY lists neither this host nor `*`. (Other forms of NO_PROXY are not relied on, because
    the client interprets them in its own way.)
    """
    parts = urlsplit(address)
    host = parts.hostname or ""
    if not is_loopback(address):
        return host or address
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    exempt_hosts = {entry.strip() for entry in proxies.get("no", "").split(",")}
    return urlsplit(proxy).hostname or proxy if proxy and not exempt_hosts & {host, "*"} else None


def permit_sending(name: str, address: str, amount: Callable[[], str], allowed: bool) -> None:
    """State what is about to be sent and to whom, or refuse to send it.

    Does nothing if the requests stay on this machine.

    Args:
        name: The model behind the server.
        address: Address of the server.
        amount: Describes what would be sent; called only if it leaves this machine.
        allowed: Whether --send-to-provider was given.

    Raises:
        BadInput: If data would leave this machine without permission; raised before any is sent.
    """
    host = remote_host(address)
    if host is None:
        return
    if not allowed:
        raise BadInput(
            f"{name} is served by {host}, not by this machine: it would be sent {amount()}. "
            "Nothing was sent. "
            "Add --send-to-provider if that is permitted for these data, or serve a model here "
            "(--base-url http://127.0.0.1:...)."
        )
    print(f"sending {amount()} to {host} (model {name})", file=sys.stderr)


def _normalize_url(url: str | None) -> str | None:
    """Strip the path that the client appends itself; None stays None.

    Raises BadInput for a bad address.
    """
    if not url:
        return None
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise BadInput(
            f"--base-url {url}: not an address. Write http:// or https://, the host and a port, "
            "e.g. http://127.0.0.1:8000/v1."
        )
    return url.removesuffix("/").removesuffix("/chat/completions")
