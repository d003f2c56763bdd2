"""Serve a page that writes into a folder, by default on this machine only.

Only one server per folder can run at a time. A page that other machines can reach is opened with a
personal link for each reviewer; its secret also identifies the reviewer.
`serve_page` serves until it is stopped, `serve_meanwhile` while other code runs.
"""

import hmac
import json
import secrets
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse, RedirectResponse
from starlette.middleware.base import RequestResponseEndpoint
from starlette.middleware.trustedhost import TrustedHostMiddleware

from dataset_builders.errors import BadInput
from dataset_builders.files import lock_folder, write_json

LOOPBACK_HOST = "127.0.0.1"
REVIEWERS_FILE = "reviewers.json"
KEY_PARAMETER = "key"
REVIEWER_COOKIE = "medprobe_reviewer"


class ReviewAccess:
    """The reviewers of a folder and their secrets.

    Secrets are stored in `reviewers.json`, which only its owner can read, so that links survive a
    restart.
    """

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        """Load or create the reviewers' secrets.

        Args:
            folder: folder of the page.
            names: names of the reviewers; blank ones are ignored.

        Raises:
            BadInput: all names are blank.
        """
        reviewers = list(dict.fromkeys(" ".join(name.split()) for name in names if name.strip()))
        if not reviewers:
            raise BadInput(
                "--reviewers: names no reviewer. Give the reviewers' names, separated by commas: each gets a personal link."
            )
        path = folder / REVIEWERS_FILE
        # Restrict access before the secrets are written: replacing a file keeps its mode.
        path.touch(mode=0o600)
        stored_keys: Mapping[str, str] = json.loads(path.read_text(encoding="utf-8") or "{}")
        self._names = {stored_keys.get(name) or secrets.token_urlsafe(24): name for name in reviewers}
        # Reviewers who are not named this time keep their links.
        write_json(path, dict(stored_keys) | {name: key for key, name in self._names.items()})

    def links(self, address: str) -> dict[str, str]:
        """Map each reviewer to a personal link to the page at `address`."""
        return {name: f"{address}/?{urlencode({KEY_PARAMETER: key})}" for key, name in self._names.items()}

    def reviewer(self, cookies: Mapping[str, str]) -> str | None:
        """Return the reviewer that a request's cookies belong to."""
        return self._reviewer_of_key(cookies.get(REVIEWER_COOKIE, ""))

    def _reviewer_of_key(self, candidate: str) -> str | None:
        # Compare every key in constant time, since the duration must not reveal a matching prefix.
        matches = [name for key, name in self._names.items() if hmac.compare_digest(key.encode(), candidate.encode())]
        return matches[0] if matches else None

    def guard(self, app: FastAPI, encrypted: bool) -> None:
        """Restrict an application to reviewers.

        A personal link sets the cookie that every other request needs; requests without it get
        status 401.

        Args:
            app: the application.
            encrypted: True if the page is served by HTTPS; the cookie is then sent by HTTPS only.
        """

        @app.middleware("http")
        async def guarded(request: Request, call_next: RequestResponseEndpoint) -> Response:
            key = request.query_params.get(KEY_PARAMETER, "")
            if self._reviewer_of_key(key):
                # The redirect removes the secret from the address bar.
                redirect = RedirectResponse(request.url.path, 303)
                redirect.set_cookie(
                    REVIEWER_COOKIE,
                    key,
                    httponly=True,
                    samesite="strict",
                    secure=encrypted,
                )
                return redirect
            if self.reviewer(request.cookies) is None:
                return PlainTextResponse("This page requires your personal link.\n", 401)
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
    """Serve a page that writes into a folder until it is stopped.

    Args:
        build: builds the application.
        folder: folder that the page writes into; its lock `task` is held.
        task: name of the lock.
        doing: first words of the line printed when the page is ready.
        port: TCP port.
        host: address to listen on; any other than 127.0.0.1 requires `reviewers`.
        reviewers: names of the reviewers; with names, only their personal links open the page.
        certificate: PEM file of certificate and private key, to serve HTTPS.

    Raises:
        BadInput: the port is in use, the address does not belong to this machine, or another
            server holds the folder.
    """
    import uvicorn

    # Drafts and images are confidential, so a page on a network must not be open to everybody.
    if host != LOOPBACK_HOST and not reviewers:
        raise BadInput(
            f'--host {host}: opens the page to other machines. Name the reviewers with --reviewers "Ada Byron,Bo Li".'
        )
    if certificate is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate)
        except ssl.SSLError:
            raise BadInput(
                f"--certificate {certificate}: not a PEM file with a certificate and its private key. Put both into one file."
            ) from None
    if not folder.is_dir():
        raise BadInput(f"{folder}: there is no such folder.")

    access = ReviewAccess(folder, reviewers) if reviewers else None
    address = f"{'https' if certificate else 'http'}://{host}:{port}"
    for name, link in access.links(address).items() if access else ():
        print(f"{name}: {link}", flush=True)
    if access and not certificate and host != LOOPBACK_HOST:
        print(
            "traffic is not encrypted: give --certificate, or use a network you trust",
            flush=True,
        )

    # Check the port before the page is built, because uvicorn would only log that it cannot be
    # used.
    _bind(host, port).close()
    with lock_folder(folder, task):
        app = build(access)
        print(
            f"{doing} on {address} (stop with Ctrl-C; everything shown as saved is saved)",
            flush=True,
        )
        if access:
            access.guard(app, certificate is not None)
        uvicorn.run(app, host=host, port=port, log_level="warning", ssl_certfile=certificate)


@contextmanager
def serve_meanwhile(app: FastAPI, port: int) -> Iterator[str]:
    """Serve a page on this machine in a thread, for the duration of the context.

    Requests that address another host name are refused: a website whose name is made to point here
    could otherwise read the page.

    Args:
        app: the application; its requests must end soon once the context ends.
        port: preferred TCP port; another one is used if it is taken.

    Yields:
        The page's address.
    """
    import uvicorn

    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[LOOPBACK_HOST, "localhost"])
    try:
        listener = _bind(LOOPBACK_HOST, port)
    except BadInput:
        listener = _bind(LOOPBACK_HOST, 0)
    listener.listen()  # from here on, a browser that is quick waits instead of being refused
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK_HOST}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def _bind(host: str, port: int) -> socket.socket:
    """Bind a TCP port. Raises BadInput if it cannot be used."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise BadInput(f"--host {host} --port {port}: cannot be used ({error}). Give others.") from None
    return listener
