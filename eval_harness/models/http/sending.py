"""Whether something leaves this machine, and asking before it does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from urllib.parse import urlsplit
from urllib.request import getproxies

from dataset_builders.errors import BadInput
from eval_harness.models.http.client import is_local


def destination(address: str) -> str | None:
    """The host that requests to an address go to; None where they stay on this machine.

    They stay for loopback addresses and `localhost`, unless the environment names a proxy for them and does not exempt them literally (the
    client reads other forms of NO_PROXY in its own way).
    """
    parts = urlsplit(address)
    host = parts.hostname or ""
    if not is_local(address):
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
    host = destination(address)
    if host is None:
        return
    if not allowed:
        raise BadInput(
            f"{name} is asked at {host}, which is not this machine: it would be sent {amount()}. Nothing was sent. "
            "Add --send-to-provider if that is permitted for these data, or serve a model here (--base-url http://127.0.0.1:...)."
        )
    print(f"sending {amount()} to {host} (model {name})", file=sys.stderr)
