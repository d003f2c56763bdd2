"""The openai package's client: its address, its key, one JSON document posted to it; whether that leaves this machine, and may.

Connections, proxies (HTTPS_PROXY, NO_PROXY), certificates (the operating system's, or SSL_CERT_FILE) and trying again are the package's. It
never follows a redirection, which would send images elsewhere. See also: what an error means (`server_errors.py`), how many requests are in
flight (`openai_chat.py`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from dataset_builders.errors import BadInput
from eval_harness.models.http.server_errors import classify_exception, classify_status, embedded_status, strip_tags
from eval_harness.models.interface import Settings

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI

CONNECT_TIMEOUT = 5.0
MAX_RETRIES = 4
"""How often the client tries again, with a growing wait, after a broken connection, a busy or failing server, or an unreadable reply."""
OPENAI_URL = "https://api.openai.com/v1"
AZURE_PREFIX = "azure:"


def open_client(name: str, settings: Settings, called: str) -> AsyncOpenAI:
    """The client that asks model `name` (`azure:NAME`: a deployment of Azure OpenAI), with the environment variables of the openai package.

    `called`: the option that named the model. It is used in one event loop, and closed with it. Raises BadInput if the address, the key
    or a proxy cannot be used.
    """
    import httpx2
    import openai

    azure = name.startswith(AZURE_PREFIX)
    timeout = httpx2.Timeout(settings.timeout, connect=min(CONNECT_TIMEOUT, settings.timeout))
    # No connection is used twice: where a server sends a reply twice, the second copy would pass for the next question's answer.
    limits = httpx2.Limits(max_connections=settings.in_flight + 2, keepalive_expiry=0)
    try:
        http = openai.DefaultAioHttpClient(follow_redirects=False, timeout=timeout, limits=limits)
        http.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=()))  # no reply changes the next request
        http.event_hooks = {"response": [_check_reply]}
    except ValueError as error:
        raise BadInput(f"{called}: a proxy of the environment cannot be used ({error}).") from None
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
            raise BadInput(f"{called}: {error}") from None
    url = server_address(name, settings.base_url)
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    if not key and not is_loopback(url):
        raise BadInput(
            f"{called}: OPENAI_API_KEY is not set. Set it to your key, or give the address of a server on this machine "
            "with --base-url http://127.0.0.1:8000/v1."
        )
    return openai.AsyncOpenAI(
        base_url=url, api_key=key or "none", max_retries=MAX_RETRIES, timeout=timeout, http_client=http
    )


def server_address(name: str, base_url: str | None) -> str:
    """Base URL of the client of model `name`: `base_url`, else the one in the environment, else OpenAI's.

    Raises BadInput if that is no http(s) address.
    """
    variable = "AZURE_OPENAI_ENDPOINT" if name.startswith(AZURE_PREFIX) else "OPENAI_BASE_URL"
    return _normalize_url(base_url or os.environ.get(variable)) or OPENAI_URL


async def post(client: AsyncOpenAI, url: str, body: dict[str, Any], timeout: float) -> Any:
    """The JSON document that comes back for `body` (`url`: below the client's address, or a whole one), all tries within `timeout` seconds.

    Raises ServerFailure or Refusal where none comes, or an HTTP error.
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


async def _check_reply(reply: httpx2.Response) -> None:
    """Give an error that came with status 200 its own status, so that it is tried again and told like any other; raise one that the
    client tries again for, where a reply is no chat completion and no other JSON object."""
    import httpx2

    if not reply.is_success:
        return
    await reply.aread()
    streams = reply.content.startswith(b"data:")
    why = "the server streams its reply, which was not asked for" if streams else strip_tags(reply.text)
    with suppress(ValueError, RecursionError, AttributeError, LookupError, TypeError):
        document = json.loads(reply.content)
        if (status := embedded_status(document)) is not None:
            reply.status_code = status
            return
        if isinstance(document.get("choices", [{}])[0], dict):
            return
    raise httpx2.DecodingError(f"the server's reply is not a chat completion ({why})", request=reply.request)


def is_loopback(url: str) -> bool:
    """True for a loopback address of this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def remote_host(address: str) -> str | None:
    """The host that requests to an address go to; None where they stay on this machine.

    They stay for loopback addresses and `localhost`, unless the environment names a proxy for them and does not exempt them literally (the
    client reads other forms of NO_PROXY in its own way).
    """
    parts = urlsplit(address)
    host = parts.hostname or ""
    if not is_loopback(address):
        return host or address
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    exempt = {entry.strip() for entry in proxies.get("no", "").split(",")}
    return urlsplit(proxy).hostname or proxy if proxy and not exempt & {host, "*"} else None


def permit_sending(name: str, address: str, amount: Callable[[], str], allowed: bool) -> None:
    """Say what is about to be sent, how much and to whom. Raises BadInput, before anything is sent, where it leaves this machine and was
    not `allowed`.

    `name`: the model behind the server at `address`. `amount`: what would be sent, in words; called only where it leaves this machine.
    """
    host = remote_host(address)
    if host is None:
        return
    if not allowed:
        raise BadInput(
            f"{name} is asked at {host}, which is not this machine: it would be sent {amount()}. Nothing was sent. "
            "Add --send-to-provider if that is permitted for these data, or serve a model here (--base-url http://127.0.0.1:...)."
        )
    print(f"sending {amount()} to {host} (model {name})", file=sys.stderr)


def _normalize_url(url: str | None) -> str | None:
    """An address without the ending that the client adds; None stays None. Raises BadInput if it is no http(s) address."""
    if not url:
        return None
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise BadInput(
            f"--base-url {url}: not an address. Write http:// or https://, the host and a port, e.g. http://127.0.0.1:8000/v1."
        )
    return url.removesuffix("/").removesuffix("/chat/completions")
