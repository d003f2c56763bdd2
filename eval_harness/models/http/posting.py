"""Posting JSON to one address, from many threads: each question on a connection of its own, through the environment's proxy.

A connection carries one question: where a server delivers a reply twice, a reused connection would hand the second copy to the next
question, and it would pass for its answer. The client is the standard library's: a pooled asynchronous one takes three to six times the
CPU for a question, which is what bounds hundreds of requests in flight. See also: what an error means (`server_errors.py`), how many are
in flight (`in_flight.py`).
"""

from __future__ import annotations

import base64
import os
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPMessage, HTTPSConnection
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from dataset_builders.errors import BadInput

CONNECT_TIMEOUT = 10.0
CHUNK = 1 << 16
_UNQUOTED = "%/:=&?~+!$,;'@()*[]"


@dataclass(frozen=True, slots=True)
class Posted:
    """What came back: status, headers, body."""

    status: int
    headers: HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        """The body as text, for what is no JSON."""
        try:
            return self.body.decode(self.headers.get_content_charset("utf-8"), "replace")
        except LookupError:
            return self.body.decode("utf-8", "replace")


class NotConnected(OSError):
    """No connection came about; its cause says why."""


@dataclass(frozen=True)
class _Target:
    """An address and the way to it."""

    url: str
    proxy: SplitResult | None
    tls: ssl.SSLContext | None

    @property
    def parts(self) -> SplitResult:
        return urlsplit(self.url)

    def connection(self, patience: float) -> tuple[HTTPConnection, str, dict[str, str]]:
        """A connection that is not open yet, the path to name on it, and headers for the proxy."""
        parts, proxy = self.parts, self.proxy
        path = quote(parts.path or "/", safe=_UNQUOTED) + (
            f"?{quote(parts.query, safe=_UNQUOTED)}" if parts.query else ""
        )
        next_hop = proxy or parts
        made: HTTPConnection
        if self.tls is None:
            made = HTTPConnection(next_hop.hostname or "", next_hop.port, timeout=patience)
        else:
            made = HTTPSConnection(next_hop.hostname or "", next_hop.port or 443, timeout=patience, context=self.tls)
        if proxy is None:
            return made, path, {}
        if self.tls is None:
            return made, f"http://{parts.netloc.rpartition('@')[2]}{path}", _proxy_headers(proxy)
        made.set_tunnel(parts.hostname or "", parts.port or 443, _proxy_headers(proxy))
        return made, path, {}


class Address:
    """Where questions are posted."""

    def __init__(self, url: str, headers: dict[str, str], timeout: float) -> None:
        """`timeout`: seconds for one reply. Raises BadInput where the environment names a proxy that cannot be used."""
        self._timeout = timeout
        self._headers = {"Content-Type": "application/json", **headers}
        self._target = _target(url, None)
        self._open: set[socket.socket] = set()
        self._aborted = False

    def post(self, body: bytes) -> Posted:
        """Send one question and read its reply. A redirection within the host is followed, now and for all later questions.

        Raises NotConnected, TimeoutError, OSError or http.client.HTTPException.
        """
        target = self._target
        posted = self._post(target, body)
        if posted.status in (307, 308):
            there = urljoin(target.url, posted.headers.get("Location", ""))
            old, new = target.parts, urlsplit(there)
            # Never to another host, nor from https to http: it would be sent the key.
            if there != target.url and old.hostname == new.hostname and new.scheme in (old.scheme, "https"):
                self._target = _target(there, target.tls)
                return self._post(self._target, body)
        return posted

    def _post(self, target: _Target, body: bytes) -> Posted:
        end = time.monotonic() + self._timeout
        connection, path, headers = target.connection(min(CONNECT_TIMEOUT, self._timeout))
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise NotConnected(str(error)) from error
        used: socket.socket = connection.sock
        self._open.add(used)
        try:
            if self._aborted:
                raise ConnectionAbortedError
            used.settimeout(self._timeout)
            connection.request("POST", path, body, self._headers | headers)
            reply = connection.getresponse()
            chunks = []
            while chunk := reply.read1(CHUNK):
                chunks.append(chunk)
                if (left := end - time.monotonic()) <= 0:
                    raise TimeoutError
                used.settimeout(left)
            if reply.length:
                raise ConnectionError(f"the reply broke off {reply.length} bytes before its end")
            return Posted(reply.status, reply.headers, b"".join(chunks))
        finally:
            self._open.discard(used)
            connection.close()

    def abort(self) -> None:
        """Break off what is under way, for good; the threads that wait for it get an OSError."""
        self._aborted = True
        for each in list(self._open):
            with suppress(OSError):
                socket.socket.shutdown(
                    each, socket.SHUT_RDWR
                )  # of the socket itself: TLS would wait for the other side


def _target(url: str, tls: ssl.SSLContext | None) -> _Target:
    parts = urlsplit(url)
    https = parts.scheme.lower() == "https"
    return _Target(url, _proxy_of(parts), (tls or _tls_context()) if https else None)


def _proxy_of(parts: SplitResult) -> SplitResult | None:
    """The proxy that the environment names for an address. Raises BadInput for one that is not spoken to over http."""
    proxies = getproxies()
    url = proxies.get(parts.scheme.lower()) or proxies.get("all")
    if not url or proxy_bypass(parts.hostname or ""):
        return None
    proxy = urlsplit(url if "://" in url else f"http://{url}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise BadInput(
            f"{parts.scheme.upper()}_PROXY={proxy.scheme}://{proxy.hostname or ''}: only proxies that are spoken to over http:// can be "
            "used. Name one, or add the server to NO_PROXY."
        )
    return proxy


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    user = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}


def _tls_context() -> ssl.SSLContext:
    """Certificates of the operating system, or those that SSL_CERT_FILE and SSL_CERT_DIR name."""
    if os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR"):
        return ssl.create_default_context()
    import truststore

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
