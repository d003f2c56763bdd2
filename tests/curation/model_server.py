"""A deterministic stand-in for a chat server on the loopback, which answers from rules given by the test."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Log:
    """What the server was asked: (system, prompt) in order of arrival."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.lock = threading.Lock()

    def times(self, prompt: str) -> int:
        return sum(prompt == seen for _, seen in self.asked)


@contextmanager
def model_server(answer: Callable[[str, int], str | int]) -> Iterator[tuple[str, Log]]:
    """Serve `answer(prompt, how often it was asked before)`: a reply's text, or an HTTP status to fail with."""
    log = Log()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            *system, prompt = (message["content"] for message in body["messages"])
            with log.lock:
                before = log.times(prompt)
                log.asked.append(("".join(system), prompt))
                said = answer(prompt, before)
            if isinstance(said, int):
                status, payload = said, {"error": {"message": "as the test asked", "code": str(said)}}
            else:
                message = {"role": "assistant", "content": said}
                status = 200
                payload = {
                    "id": "x",
                    "object": "chat.completion",
                    "created": 0,
                    "model": body["model"],
                    "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
                }
            data = json.dumps(payload).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", log
    finally:
        server.shutdown()
        server.server_close()
