"""The server: HTTP/1.1 on the loopback, a thread per connection, one request handled at a time.

It injects faults (an error status, a reset connection), and records requests.
"""

import contextlib
import re
import socket
import struct
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from .accounts import ACCOUNTS
from .repositories import Refused
from .routes import Answer, Hub, Request, dispatch

RESET = 0
"""The "status" of a connection that is cut without a response."""


@dataclass
class Fault:
    """A fault for requests with this method whose raw path matches the regular expression `path`,
    `times` times.

    `lose_response` lets the request succeed and drops only the response, so the client cannot know.
    """

    path: str
    status: int
    method: str = "*"
    times: int = 1
    lose_response: bool = False
    message: str = "injected fault"
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


class Faults(list[Fault]):
    def add(self, path: str, status: int, **details: object) -> None:
        self.append(Fault(path, status, **details))  # type: ignore[arg-type]

    def next(self, method: str, path: str) -> Fault | None:
        for fault in self:
            if fault.times > 0 and fault.method in ("*", method) and re.search(fault.path, path):
                # Each fault applies a limited number of times, so that retries can succeed.
                fault.times -= 1
                return fault
        return None


@dataclass(frozen=True)
class RecordedRequest:
    method: str
    path: str
    status: int
    """Status of the response; RESET if the connection was cut."""


class Record(list[RecordedRequest]):
    def requests(self, method: str = "*", path: str = "") -> list[RecordedRequest]:
        """Return the recorded requests with this method whose raw path matches, in order."""
        return [a for a in self if method in ("*", a.method) and re.search(path, a.path)]


class QuietHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def respond(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send a response; of HEAD, without its body."""
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value.replace("\n", " "))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, family: str, *args: Any) -> None:
        pass


class Handler(QuietHandler):
    local: "LocalHub"

    def handle_any(self) -> None:
        path, _, query = self.path.partition("?")
        try:
            request = Request(self.command, path, query, self.headers, self._body())

            # One request at a time keeps the shared state consistent.
            with self.local.lock:
                answer = self._answered(request, self.local.faults.next(self.command, path))
                self.local.record.append(RecordedRequest(self.command, path, answer.status))
            self._send(answer)
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = handle_any

    def _body(self) -> bytes:
        """Read the body, with a length or in chunks."""
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while length := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(length))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _answered(self, request: Request, fault: Fault | None) -> Answer:
        try:
            # A lost response means that the request still takes effect.
            answer = None if fault and not fault.lose_response else self._of_route(request)
            if fault:
                raise Refused(fault.status, fault.message, fault.code, fault.headers)
            assert answer is not None
            return answer
        except Refused as refused:
            headers = {"X-Error-Message": refused.message, **refused.headers}
            if refused.code:
                headers["X-Error-Code"] = refused.code
            return Answer.json({"error": refused.message}, refused.status, headers)

    def _of_route(self, request: Request) -> Answer:
        """Dispatch a request; an unknown token is an error for every address, as on the Hub."""
        token = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if token and token not in ACCOUNTS:
            raise Refused(401, "Invalid credentials in Authorization header")
        request.account = ACCOUNTS.get(token)
        try:
            return dispatch(self.local.hub, request)
        except Refused:
            raise
        except Exception as error:
            traceback.print_exc()
            raise Refused(500, f"the loopback Hub has a defect: {error!r}") from None

    def _send(self, answer: Answer) -> None:
        if answer.status == RESET:
            self.close_connection = True

            # A zero linger time makes close() send a reset.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with contextlib.suppress(OSError):
                self.connection.close()
            return

        self.respond(answer.status, answer.headers, answer.body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that hang up; other errors were answered with status 500 and printed."""


class LoopbackServer:
    """A server on a free port of the loopback, which runs within the context."""

    def __init__(self, handler: type[QuietHandler], **attributes: Any) -> None:
        self._server = _Server(("127.0.0.1", 0), type("BoundHandler", (handler,), attributes))
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class LocalHub(LoopbackServer):
    """A running Hub: `with LocalHub() as hub: HfApi(endpoint=hub.endpoint, token=CURATOR)`."""

    def __init__(self) -> None:
        super().__init__(Handler, local=self)
        self.hub, self.faults, self.record, self.lock = Hub(), Faults(), Record(), threading.Lock()
