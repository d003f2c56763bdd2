"""A local stand-in for a chat server, which answers as a test prescribes."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Log:
    """The requests to the server, as (system message, prompt) in order of arrival."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.lock = threading.Lock()

    def count(self, prompt: str) -> int:
        """Count the requests with this prompt."""
        return sum(prompt == request for _, request in self.requests)


@contextmanager
def model_server(answer: Callable[[str, int], str | int]) -> Iterator[tuple[str, Log]]:
    """Run the server; yield its address and its log.

    `answer(prompt, times_asked)` returns the text of a reply, or the HTTP status of a failure.
    """
    log = Log()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            *system, prompt = (message["content"] for message in body["messages"])
            # Requests arrive in several threads; the count and the answer must fit together.
            with log.lock:
                times_asked = log.count(prompt)
                log.requests.append(("".join(system), prompt))
                reply = answer(prompt, times_asked)
            if isinstance(reply, int):
                status, payload = reply, {"error": {"message": "as the test asked", "code": str(reply)}}
            else:
                message = {"role": "assistant", "content": reply}
                status = 200
                payload = {
                    "id": "x",
                    "object": "chat.completion",
                    "created": 0,
                    "model": body["model"],
                    "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
                }
            body_bytes = json.dumps(payload).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body_bytes)))
            self.end_headers()
            self.wfile.write(body_bytes)

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


def stand_in_answer(prompt: Any, times_asked: int) -> str:
    """Return a reply that every command of `medprobe curate` and `eval` can use."""
    if isinstance(prompt, list):  # a question with its image
        return "A"
    replies = {
        "JSON object": '{"organ": "chest", "modality": "CT", "normal": false, "findings": [{"finding": "bright spot"}]}',
        "Categories:": "Pulmonary",
        "I am analyzing": "Side and size",
        "": "Question: Where is the finding?\nOption1: Left lung\nOption2: Right lung\nImage1: Option1\nImage2: Option2",
    }
    return next(reply for words, reply in replies.items() if words in prompt)
