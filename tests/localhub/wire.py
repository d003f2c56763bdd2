"""What travels between the HTTP server and the route functions: Request, Answer, and Refused (an error answer as the Hub words it)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO
from urllib.parse import parse_qs


class Refused(Exception):
    """An error answer. `code` goes into X-Error-Code: the client picks its exception by it."""

    def __init__(self, status: int, message: str, code: str | None = None, headers: Mapping[str, str] | None = None):
        super().__init__(message)
        self.status, self.message, self.code, self.headers = status, message, code, dict(headers or {})

    def answer(self) -> Answer:
        headers = {"X-Error-Message": self.message, **self.headers}
        if self.code:
            headers["X-Error-Code"] = self.code
        return Answer.json({"error": self.message}, self.status, headers)


@dataclass
class Answer:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @classmethod
    def json(cls, document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
        body = json.dumps(document).encode()
        return cls(status, {"Content-Type": "application/json; charset=utf-8", **(headers or {})}, body)


@dataclass
class Request:
    """`path` is the raw path, still percent-encoded: a revision `refs%2Fpr%2F1` is one segment of it."""

    method: str
    path: str
    raw_query: str
    headers: Mapping[str, str]
    reader: BinaryIO
    base: str
    token: str | None = None

    @property
    def query(self) -> dict[str, str]:
        return {key: values[-1] for key, values in parse_qs(self.raw_query, keep_blank_values=True).items()}

    def pieces(self, size: int = 1 << 20) -> Iterator[bytes]:
        """The body in pieces, whether it came with a length or chunked. Reads it once: later calls yield nothing."""
        if getattr(self, "_read", False):
            return
        self._read = True
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            yield from self._chunks()
            return
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            piece = self.reader.read(min(left, size))
            if not piece:
                raise ConnectionError("the client went away in the middle of its body")
            left -= len(piece)
            yield piece

    def _chunks(self) -> Iterator[bytes]:
        while True:
            length = int(self.reader.readline().split(b";")[0], 16)
            piece = self.reader.read(length)
            if len(piece) < length:
                raise ConnectionError("the client went away in the middle of its body")
            self.reader.readline()
            if not length:
                return
            yield piece

    def body(self) -> bytes:
        return b"".join(self.pieces())

    def json(self) -> dict[str, Any]:
        try:
            return json.loads(self.body() or b"{}") or {}
        except ValueError:
            raise Refused(400, "The body is not JSON") from None

    def form(self) -> dict[str, list[str]]:
        """A form's fields; some clients send the same as JSON."""
        body = self.body()
        if "json" in self.headers.get("Content-Type", ""):
            document = json.loads(body or b"{}")
            return {key: value if isinstance(value, list) else [str(value)] for key, value in document.items()}
        return parse_qs(body.decode(), keep_blank_values=True)
