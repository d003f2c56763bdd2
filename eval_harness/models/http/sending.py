"""Whether something leaves this machine, and asking before it does."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Callable
from urllib.parse import urlsplit
from urllib.request import getproxies

from dataset_builders.errors import BadInput
from eval_harness.models.http.client import server_address


def destination(base_url: str | None) -> str | None:
    """The host that the client sends requests to; None where they stay on this machine. Raises BadInput where `base_url` is no address.

    They stay for loopback addresses and `localhost`, unless the environment names a proxy for them and does not exempt them literally (the
    client reads other forms of NO_PROXY in its own way).
    """
    parts = urlsplit(server_address(base_url))
    host = parts.hostname or ""
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost" or host.endswith(".localhost")
    if not loopback:
        return host or str(base_url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    exempt = {entry.strip() for entry in proxies.get("no", "").split(",")}
    return urlsplit(proxy).hostname or proxy if proxy and not exempt & {host, "*"} else None


def permit_sending(name: str, base_url: str | None, amount: Callable[[], str], allowed: bool) -> None:
    """Say what is about to be sent, how much and to whom. Raises BadInput, before anything is sent, where it leaves this machine and was
    not `allowed`.

    `name`: the model behind the server at `base_url`. `amount`: what would be sent, in words; called only where it leaves this machine.
    """
    host = destination(base_url)
    if host is None:
        return
    if not allowed:
        raise BadInput(
            f"{name} is asked at {host}, which is not this machine: it would be sent {amount()}. Nothing was sent. "
            "Add --send-to-provider if that is permitted for these data, or serve a model here (--base-url http://127.0.0.1:...)."
        )
    print(f"sending {amount()} to {host} (model {name})", file=sys.stderr)
