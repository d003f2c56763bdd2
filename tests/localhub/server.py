"""The server: HTTP/1.1 on the loopback, a thread for each connection; the rules of access that all addresses share."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .accounts import Token, usual_accounts
from .faults import RESET, Asked, Fault, Faults, Record
from .routes import benchmarks, commits, discussions, files, jobs, refs, repos
from .routes.table import dispatch
from .storage.repositories import Repositories, Repository
from .wire import Answer, Refused, Request

ROUTES = (benchmarks, commits, discussions, files, jobs, refs, repos)
"""Importing them fills the table of routes."""


class Hub:
    """What the routes work on."""

    def __init__(self) -> None:
        self.repositories = Repositories()
        self.accounts = usual_accounts()
        self.faults, self.record = Faults(), Record()
        self.page_size = 1000
        self.jobs: list[dict[str, Any]] = []

    def token(self, request: Request) -> Token | None:
        return self.accounts.of(request.token)

    def readable(self, request: Request, kind: str, repo_id: str, listing: bool = False) -> Repository:
        """The repository, if the request may read its files (with `listing`: may see it, gated or not)."""
        token = self.token(request)
        repository = self.repositories.see(kind, repo_id, token)
        if not listing and not repository.may_read_files(token):
            who = "your account is not on the list" if token else "you must be authenticated"
            message = f"Access to {kind} {repo_id} is restricted and {who}."
            raise Refused(403 if token else 401, message, "GatedRepo")
        return repository

    def changeable(self, request: Request, kind: str, repo_id: str, revision: str, proposing: bool) -> Repository:
        """The repository, if the request may commit to the revision; proposing (a pull request) needs fewer rights."""
        token = self.token(request)
        repository = self.repositories.see(kind, repo_id, token)
        if token is None:
            raise Refused(401, "Invalid username or password.")
        if revision.startswith("refs/pr/"):
            pull = repository.discussions.get(revision.removeprefix("refs/pr/"), {})
            proposing = proposing or pull.get("author", {}).get("name") == token.user.name
        allowed = repository.may_write(token) or (proposing and token.role == "write")
        if not allowed:
            raise Refused(403, f"You don't have the required permissions to write to {repo_id}")
        return repository

    def writable(self, request: Request, kind: str, repo_id: str) -> Repository:
        return self.changeable(request, kind, repo_id, "main", proposing=False)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    hub: Hub

    def handle_any(self) -> None:
        path, _, query = self.path.partition("?")
        authorization = self.headers.get("Authorization", "")
        token = authorization.removeprefix("Bearer ").strip() or None
        host = self.headers.get("Host", "127.0.0.1")
        self.request_now = Request(self.command, path, query, self.headers, self.rfile, f"http://{host}", token)
        fault = self.hub.faults.next(self.command, path)
        if fault:
            time.sleep(fault.delay)
        try:
            answer = self._answer(fault)
            for _ in self.request_now.pieces():  # what the route left unread would be taken for the next request
                pass
            self._send(answer)
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = handle_any

    def _answer(self, fault: Fault | None) -> Answer | None:
        """None is a reset connection."""
        answer: Answer | None
        if fault and not fault.after:
            return self._faulty(fault)
        try:
            answer = dispatch(self.hub, self.request_now)
        except Refused as refused:
            answer = refused.answer()
        except ConnectionError:
            raise
        except Exception as error:
            traceback.print_exc()
            answer = Refused(500, f"the loopback Hub has a defect: {error!r}").answer()
        return self._faulty(fault) if fault else answer

    def _faulty(self, fault: Fault) -> Answer | None:
        return (
            None if fault.status == RESET else Refused(fault.status, fault.message, fault.code, fault.headers).answer()
        )

    def _send(self, answer: Answer | None) -> None:
        received = int(self.headers.get("Content-Length") or 0)
        status = answer.status if answer else RESET
        self.hub.record.add(Asked(self.command, self.request_now.path, status, received))
        if answer is None:
            self._reset()
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value.replace("\n", " "))
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with contextlib.suppress(OSError):
            self.connection.close()

    def log_message(self, family: str, *args: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is its own business; anything else was answered with 500 and shown there."""


class LocalHub:
    """A running Hub. `with LocalHub() as hub: HfApi(endpoint=hub.endpoint, token=CURATOR)`."""

    def __init__(self) -> None:
        self.hub = Hub()
        handler = type("BoundHandler", (Handler,), {"hub": self.hub})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def faults(self) -> Faults:
        return self.hub.faults

    @property
    def record(self) -> Record:
        return self.hub.record

    def __enter__(self) -> LocalHub:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
