"""A chat-completion server on loopback that misbehaves on purpose.

`fault_for` chooses the fault of each request. `asked` and `served` count the requests and the
answers.
"""

import contextlib
import copy
import hashlib
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from openai import _base_client


def answer_to(body: dict) -> str:
    """Return the correct answer to a prompt: a letter that depends on the prompt and its images
    only.
    """
    content = json.dumps(body["messages"], sort_keys=True)
    return "AB"[hashlib.sha256(content.encode()).digest()[0] % 2]


@dataclass(frozen=True)
class Raw:
    """A raw body instead of a JSON document."""

    text: str
    kind: str = "application/json"


class _Quiet(ThreadingHTTPServer):
    request_queue_size = 1024

    def handle_error(self, request, client_address):
        """Ignore errors: clients disconnect on purpose."""


class ChaosServer:
    """A context manager that serves on 127.0.0.1."""

    def __init__(self, hang=3.0, retry_after="0.05", answer=answer_to, delay=0.0):
        self.hang, self.retry_after = hang, retry_after
        self.answer, self.delay = answer, delay
        self.further: dict[str, Callable[[dict], dict]] = {}
        """Endpoint -> its reply to a body; any other endpoint gives 404."""
        self.asked: Counter[str] = Counter()
        self.served: Counter[str] = Counter()
        self.bodies: list[dict] = []
        self.headers: list[dict] = []
        self.now = self.most = 0
        self._lock = threading.Lock()
        self._server = _Quiet(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        _base_client.INITIAL_RETRY_DELAY = 0.02  # seconds, where the client of this process tries again

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def fault_for(self, question: str) -> str | None:
        """Return how to misbehave at this request (see `misbehave`); None to answer it."""
        return None

    def _handler(self):
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_POST(self):
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                body = json.loads(raw)
                if not self.path.partition("?")[0].endswith("/chat/completions"):
                    reply = outer.further.get(self.path.rpartition("/")[2], lambda body: None)(body)
                    self.send_response(200 if reply else 404)
                    outer.send(self, json.dumps(reply).encode())
                    return
                question = json.dumps(body["messages"], sort_keys=True)
                with outer._lock:
                    outer.asked[question] += 1
                    outer.bodies.append(body)
                    outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                    outer.now += 1
                    outer.most = max(outer.most, outer.now)
                    fault = outer.fault_for(question)
                time.sleep(outer.delay)
                with outer._lock:
                    # counted before the reply is sent, because its receiver may send the next
                    # question at once
                    outer.now -= 1
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    outer.misbehave(self, fault, body, question) if fault else outer.reply(self, body, question)

        return Handler

    def reply(self, handler, body, question, times=1):
        answer = self.answer(body)
        status, document = answer if isinstance(answer, tuple) else (200, completion(answer))
        raw = document if isinstance(document, Raw) else Raw(json.dumps(document))
        data = raw.text.encode()
        with self._lock:
            self.served[question] += status == 200
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {raw.kind}\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        handler.wfile.write((head + data) * times)
        handler.wfile.flush()

    def misbehave(self, handler, fault, body, question):
        if fault in INVALID_REPLIES:
            kind, data = INVALID_REPLIES[fault]
            handler.send_response(200)
            self.send(handler, data, kind)
            return
        match fault:
            case "429" | "500" | "502" | "503" | "400" | "401" | "404" | "429 without Retry-After":
                data = json.dumps({"error": {"message": f"trouble {fault}; the answer is A"}}).encode()
                handler.send_response(int(fault[:3]))
                if fault in ("429", "503"):
                    handler.send_header("Retry-After", self.retry_after)
                self.send(handler, data)

            case "hang":
                time.sleep(self.hang)
                handler.close_connection = True
            case "hang in the body" | "slow bytes":
                handler.send_response(200)
                handler.send_header("Content-Length", "100000")
                handler.end_headers()
                end = time.monotonic() + self.hang
                while time.monotonic() < end:
                    handler.wfile.write(b" " if fault == "slow bytes" else b"")
                    handler.wfile.flush()
                    time.sleep(0.1)
                handler.close_connection = True
            case "plain text":
                handler.send_response(200)
                with self._lock:
                    self.served[question] += 1
                self.send(handler, json.dumps(completion(self.answer(body))).encode(), "text/plain")
            case "reset":
                # SO_LINGER with timeout 0: closing sends RST.
                handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                handler.connection.close()
                handler.close_connection = True
            case "twice":
                self.reply(handler, body, question, times=2)

            case _:
                raise ValueError(fault)

    @staticmethod
    def send(handler, data, kind="application/json"):
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)


def completion(text, finish="stop", alternatives=None, **message):
    """Make a chat completion. `alternatives`: token -> log-probability of the first token."""
    choice = {
        "index": 0,
        "finish_reason": finish,
        "message": {"role": "assistant", "content": text, **message},
    }
    if alternatives is not None:
        top = [{"token": token, "logprob": value, "bytes": None} for token, value in alternatives.items()]
        choice["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }


_CALL = {"type": "function", "function": {"name": "look_up", "arguments": "{}"}}
INVALID_REPLIES = {
    "tools": (
        "application/json",
        json.dumps(completion(None, "tool_calls", tool_calls=[_CALL])).encode(),
    ),
    "stream": (
        "text/event-stream",
        b'data: {"choices": [{"delta": {"content": "A"}}]}\n\ndata: [DONE]\n\n',
    ),
    "half": ("application/json", json.dumps(completion("A")).encode()[:90]),
    "type": ("text/html", b"<html>A: please log in</html>"),
    "empty": ("application/json", b'{"object": "chat.completion", "choices": []}'),
    "nonsense": ("application/json", b'{"choices": "A"}'),
}
"""Fault -> (content type, body) of replies with status 200 that are not answers."""

ODD_VALUES = (
    *(
        None,
        0,
        -1,
        1.5,
        True,
        "",
        "A",
        [],
        [None],
        [[]],
        {},
        {"a": 1},
        [{"text": None}],
        [{"type": "text", "text": 5}],
    ),
    *(float("nan"), float("inf"), 10**400, {"text": {}}, "\ud800"),
)


def mutated(document, chance):
    """Return a copy of a JSON document with one to three parts removed or replaced."""
    document = copy.deepcopy(document)
    for _ in range(chance.randint(1, 3)):
        # The list grows while it is traversed, so it reaches every level.
        places = [(document, key) for key in _keys(document)]
        for at, key in places:
            places += [(at[key], inner) for inner in _keys(at[key])]
        if places:
            at, key = chance.choice(places)
            if chance.random() < 0.2:
                del at[key]
            else:
                at[key] = copy.deepcopy(chance.choice(ODD_VALUES))
    return document


def _keys(value):
    return list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
