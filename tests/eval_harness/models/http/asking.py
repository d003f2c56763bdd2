"""Requests and back ends shared by the tests of chat servers."""

import io

from PIL import Image

from eval_harness.models.http.openai_chat import OpenAIChat
from eval_harness.models.interface import Settings
from eval_harness.records.request import Request
from tests.chaos.server import ChaosServer

KEY = "sk-test-0123456789abcdef"


def picture(mode="RGB", encoding="PNG", size=(20, 12), colour=9):
    buffer = io.BytesIO()
    Image.new(mode, size, colour).save(buffer, encoding)
    return buffer.getvalue()


def request(number=0, **changes):
    # The prompt identifies the question to the test servers.
    values = {
        "sample": 0,
        "prompt": f"Question {number}?",
        "image": picture(),
        "options": ("left", "right"),
    }
    return Request(str(number), **(values | {"question_type": "single"} | changes))


def model(server, **changes):
    backend = OpenAIChat("m", Settings(base_url=server.url, **({"timeout": 60.0} | changes)))
    # Seconds; the default would slow the tests down.
    backend.first_wait = 0.02
    return backend


def ask_server(answer, requests, **settings):
    """Put questions to a server that gives `answer`: a text, a reply, or a function of the request.

    Returns (back end, responses, requests sent).
    """
    with ChaosServer(answer=answer if callable(answer) else lambda body: answer) as server:
        backend = model(server, **settings)
        responses = list((backend.score if requests[0].candidates else backend.generate)(requests))
    return backend, responses, server.bodies


def text_of(body):
    """Return the text of the last turn."""
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else next(part["text"] for part in content if part["type"] == "text")
