"""Serve a page that writes into a folder: one server to a folder, on this machine unless told otherwise. A page that other machines reach
needs a link with a secret for each reviewer, which also says who they are.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlencode

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse, RedirectResponse
from starlette.middleware.base import RequestResponseEndpoint

from dataset_builders.errors import BadInput
from dataset_builders.files import lock_folder, replace_file

LOOPBACK_HOST = "127.0.0.1"
REVIEWERS_FILE = "reviewers.json"
KEY_PARAMETER = "key"
REVIEWER_COOKIE = "medprobe_reviewer"


class ReviewAccess:
    """The reviewers of a folder and their secrets, which stay the same from one start to the next (`reviewers.json`, readable by its
    owner alone)."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        """Raises BadInput if no name is left of `names`."""
        wanted = list(dict.fromkeys(" ".join(name.split()) for name in names if name.strip()))
        if not wanted:
            raise BadInput(
                "--reviewers: names no reviewer. Give the reviewers' names, separated by commas: each gets a personal link."
            )
        path = folder / REVIEWERS_FILE
        kept: Mapping[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        self._names = {kept.get(name) or secrets.token_urlsafe(24): name for name in wanted}
        every = dict(kept) | {name: key for key, name in self._names.items()}

        def write(file: Path) -> None:
            file.touch(mode=0o600)
            file.write_text(json.dumps(every, indent=1), "utf-8")

        replace_file(path, write)

    def links(self, address: str) -> dict[str, str]:
        """Name -> the link that opens the page at `address` for this reviewer."""
        return {name: f"{address}/?{urlencode({KEY_PARAMETER: key})}" for key, name in self._names.items()}

    def name(self, cookies: Mapping[str, str]) -> str | None:
        """The reviewer that a request's cookies belong to."""
        return self._of(cookies.get(REVIEWER_COOKIE, ""))

    def _of(self, given: str) -> str | None:
        found = [name for key, name in self._names.items() if hmac.compare_digest(key.encode(), given.encode())]
        return found[0] if found else None

    def guard(self, app: FastAPI, encrypted: bool) -> None:
        """Open `app` to reviewers only: a link with a secret sets the cookie that every other request needs; all else is 401."""

        @app.middleware("http")
        async def guarded(request: Request, call_next: RequestResponseEndpoint) -> Response:
            key = request.query_params.get(KEY_PARAMETER, "")
            if self._of(key):
                answer = RedirectResponse(request.url.path, 303)
                answer.set_cookie(REVIEWER_COOKIE, key, httponly=True, samesite="strict", secure=encrypted)
                return answer
            if self.name(request.cookies) is None:
                return PlainTextResponse("This page needs the link that you were given.\n", 401)
            return await call_next(request)


def serve_page(
    build: Callable[[ReviewAccess | None], FastAPI],
    folder: Path,
    task: str,
    doing: str,
    port: int,
    host: str = LOOPBACK_HOST,
    reviewers: Sequence[str] = (),
    certificate: Path | None = None,
) -> None:
    """Serve a page that writes into `folder`, whose lock `task` it holds, until it is stopped. With `reviewers` each gets a link with a
    secret, and no one else gets in; any other `host` than this machine needs them. `certificate`: PEM file of certificate and private key,
    for HTTPS.

    Raises BadInput for a port in use, an address that is not this machine's, and a folder that another server has.
    """
    import uvicorn

    if host != LOOPBACK_HOST and not reviewers:
        raise BadInput(
            f'--host {host}: opens the page to other machines. Say who may review with --reviewers "Ada Byron,Bo Li".'
        )
    if certificate is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate)
        except ssl.SSLError:
            raise BadInput(
                f"--certificate {certificate}: is no PEM file of a certificate and its private key. Put both into one file."
            ) from None
    if not folder.is_dir():
        raise BadInput(f"{folder}: there is no such folder.")
    access = ReviewAccess(folder, reviewers) if reviewers else None
    address = f"{'https' if certificate else 'http'}://{host}:{port}"
    for name, link in access.links(address).items() if access else ():
        print(f"{name}: {link}", flush=True)
    if access and not certificate and host != LOOPBACK_HOST:
        print("traffic is not encrypted: give --certificate, or use a network you trust", flush=True)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            raise BadInput(f"--host {host} --port {port}: cannot be used ({error}). Give others.") from None
    with lock_folder(folder, task):
        app = build(access)
        print(f"{doing} on {address} (stop with Ctrl-C; everything shown as saved is saved)", flush=True)
        if access:
            access.guard(app, certificate is not None)
        uvicorn.run(app, host=host, port=port, log_level="warning", ssl_certfile=certificate)
