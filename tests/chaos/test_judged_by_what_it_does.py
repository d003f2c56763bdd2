"""Servers with random faults (status, body, wording, affected questions, parameters).

Every question that such a server answers within the allowed attempts is answered, no other is, and
every run ends.
"""

import hashlib
import json
import random
import time

import pytest

from dataset_builders.errors import BadInput
from eval_harness.models.http.openai_chat import OpenAIChat
from eval_harness.models.interface import Settings
from tests.chaos.server import ChaosServer, completion
from tests.eval_harness.models.http.asking import request, text_of
from tests.sampling import few

ERROR_WORDS = (
    "content violates usage guidelines",
    "billing: requests per minute exceeded",
    "max_tokens is too large, temperature is not supported",
    "Incorrect API key provided",
    "the model does not exist",
    "blocked by the safety system",
    "maximum context length exceeded",
    "",
)
TRANSIENT_STATUSES = (408, 409, 425, 429, 500, 502, 503, 504, 529)
REJECTING_STATUSES = (400, 401, 402, 403, 404, 405, 413, 422, 451)
FILTER_CODES = (
    "content_filter",
    "content_policy_violation",
    "data_inspection_failed",
    "moderation_blocked",
    "SensitiveContentDetected",
)
ERROR_BODIES = (
    lambda words, chance: {"error": {"message": words}},
    lambda words, chance: {"error": words or "error"},
    lambda words, chance: {"detail": words},
    lambda words, chance: {"error": {"message": words, "param": "None", "type": "invalid_request_error"}},
    lambda words, chance: {"error": {"message": words, "param": chance.choice(["messages", "model", "temperature"])}},
    lambda words, chance: [{"error": {"message": words, "status": "INVALID_ARGUMENT"}}],
    lambda words, chance: {"detail": [{"type": "extra_forbidden", "loc": ["body", "x"], "msg": words}]},
    lambda words, chance: {"object": "error", "message": words, "type": "BadRequestError", "code": 400},
    lambda words, chance: {"error": {"message": "no", "metadata": {"raw": json.dumps({"error": words})}}},
    lambda words, chance: words,
)  # fmt: skip
ERRORS_INSIDE_200 = (
    lambda status, words: {"error": {"code": str(status), "message": words}},
    lambda status, words: {"error": {"code": status, "message": words}, "choices": []},
    lambda status, words: {"object": "error", "code": status, "message": words},
)
REPLIES_WITHOUT_ANSWER = (
    {"error": "overloaded"},
    {"error": {"type": "server_error"}},
    {"choices": [{"message": None, "finish_reason": "stop"}]},
    completion("A", finish="error"),
)
SERVER_KINDS = ("passing", "refusing", "filter", "parameter", "limit", "dead", "withdrawn")


class FaultyServer:
    """A server with one kind of fault. `concerns`: whether it affects a question."""

    def __init__(self, kind, seed):
        self.kind, self.chance = kind, random.Random(f"{kind} {seed}")
        self.words, self.body = self.chance.choice(ERROR_WORDS), self.chance.choice(ERROR_BODIES)
        self.status = self.chance.choice(TRANSIENT_STATUSES if kind == "passing" else REJECTING_STATUSES)
        # Some servers put errors into replies with status 200.
        self.inside = self.chance.random() < 0.4
        self.share, self.times = self.chance.choice([64, 128, 255]), self.chance.randint(1, 4)
        self.first = self.chance.choice([0, 10]) if kind in ("refusing", "filter") else 0
        self.sampled = self.chance.random() < 0.5
        self.parameters = self.chance.sample(
            ["temperature", "max_tokens"] + ["seed"] * self.sampled, self.chance.choice([1, 1, 2])
        )
        self.bound = self.chance.choice([2000, 3000, 9000, 16000])
        self.after = self.chance.randint(1, 9)
        self.answered, self.asked, self.rejected = 0, {}, set()

    def concerns(self, text):
        if text in {f"Question {number}?" for number in range(self.first)}:
            return True
        return text.startswith("Question") and hashlib.sha256(f"{self.words}{text}".encode()).digest()[0] < min(
            self.share, 200
        )

    def error(self, status):
        if self.inside and self.kind == "passing" and self.chance.random() < 0.5:
            return 200, self.chance.choice(REPLIES_WITHOUT_ANSWER)
        if self.inside:
            return 200, self.chance.choice(ERRORS_INSIDE_200)(status, self.words)
        return status, self.body(self.words, self.chance)

    def fault(self, body, text):
        times_asked = self.asked[text] = self.asked.get(text, 0) + 1
        limit = body.get("max_tokens") or body.get("max_completion_tokens") or 0
        match self.kind:
            case "passing":
                return self.error(self.status) if self.concerns(text) and times_asked <= self.times else None
            case "refusing":
                return self.error(self.status) if self.concerns(text) else None
            case "filter":
                code = {"error": {"message": self.words, "code": self.chance.choice(FILTER_CODES)}}
                return (self.chance.choice([400, 403, 422, 451]), code) if self.concerns(text) else None
            case "parameter" if any(name in body for name in self.parameters):
                self.rejected.add(text)
                return self.error(self.chance.choice([400, 422]))
            case "limit":
                if limit > self.bound:
                    return self.error(400)
                return None if limit > 900 else (200, completion("", finish="length"))
            case "dead":
                return self.error(self.status)
            case "withdrawn":
                return self.error(self.status) if self.answered >= self.after else None

    def __call__(self, body):
        text = text_of(body)
        if (fault := self.fault(body, text)) is not None:
            return fault
        self.answered += 1
        return "A"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(OpenAIChat, "first_wait", 0.01)


@pytest.mark.parametrize("kind", SERVER_KINDS)
@pytest.mark.parametrize("seed", few(range(16)))
def test_all_answerable_questions_are_answered_and_every_run_ends(kind, seed):
    scenario = FaultyServer(kind, seed)
    questions = [request(number, temperature=0.7 * scenario.sampled, max_tokens=512) for number in range(24)]
    start, line, responses = time.monotonic(), "", []
    with ChaosServer(answer=scenario) as server:
        backend = OpenAIChat(
            "m",
            Settings(
                base_url=server.url,
                in_flight=scenario.chance.choice([1, 4]),
                timeout=20.0,
                wait_server=1.0,
            ),
        )
        try:
            responses.extend(backend.generate(questions))
        except BadInput as error:
            line = str(error)
    assert time.monotonic() - start < 120 and "\n" not in line
    # Such a server must end the run soon.
    if kind in ("dead", "withdrawn"):
        assert line and server.asked.total() < 300
        assert sum(response.status == "answered" for response in responses) >= (
            scenario.after - 1 if kind == "withdrawn" else 0
        )
        return
    assert not line
    statuses = {response.question_id: response.status for response in responses}
    # Refusing servers fail their questions; filters refuse them.
    spared = {"refusing": "failed", "filter": "refused"}.get(kind, "answered")
    expected = {
        question.question_id: spared if scenario.concerns(question.prompt) else "answered" for question in questions
    }
    assert statuses == expected
    if kind == "parameter":  # only the parameters that it rejects are left out, for all questions alike
        sent = server.bodies[-1]
        assert len(scenario.rejected) == 1, "one question alone met the rejections"
        deviations = " ".join(backend.deviations)
        for name, words in (("temperature", "setting the temperature"), ("seed", "no seed")):
            assert (words in deviations) == (name in scenario.parameters)
        assert {"temperature", *["seed"] * scenario.sampled} - set(sent) == {*scenario.parameters} - {"max_tokens"}
        assert ("max_completion_tokens" in sent) == ("max_tokens" in scenario.parameters)
    if kind == "limit":  # halved until it is accepted
        accepted = next((limit for limit in (8192, 4096, 2048) if limit <= scenario.bound), None)
        assert backend.describe().get("output_limit") == accepted
    if kind in ("refusing", "parameter"):
        tokens = sum(response.usage[0] for response in responses if response.usage)
        assert tokens == 10 * scenario.answered, "every reply is in the cost"
