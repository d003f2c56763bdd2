"""Replies and faults: only an answer is read as one, reasoning is separated from it in every
format, errors are one line, no key is quoted.
"""

import itertools
import json
import random
import threading
import time

import pytest

from dataset_builders.errors import BadInput
from eval_harness.models.http import openai_chat
from eval_harness.models.http.openai_chat import OpenAIChat
from eval_harness.models.http.replies import Refusal, ServerFailure, classify_status, parse_chat_reply
from eval_harness.models.interface import Settings
from eval_harness.reader import read_choice
from tests.chaos.server import ChaosServer, Raw, completion, mutated
from tests.eval_harness.models.http.asking import KEY, ask_server, model, request, text_of
from tests.sampling import few

VALID_REPLIES = (
    completion("A", alternatives={"A": -0.1, "B": -2.0}),
    completion(
        [{"type": "text", "text": "A"}, {"type": "thinking", "thinking": "hm"}],
        reasoning_content="x",
    ),
    completion(None, "tool_calls", tool_calls=[{"type": "function", "function": {"name": "look_up"}}]),
    completion(None, refusal="no"),
    {"error": {"message": "slow down", "code": 429}},
)
ERROR_DOCUMENTS = (
    {"error": {"message": "temperature is not supported", "param": "temperature", "code": "x"}},
    {"detail": [{"loc": ["body", "max_tokens"], "msg": "at most 100"}]},
    {"errors": [{"message": "insufficient_quota"}]},
)


@pytest.mark.parametrize("seed", few(range(8)))
def test_mutated_reply_is_parsed_or_raises_with_a_message(seed):
    # Any exception other than the two expected ones fails the test.
    chance = random.Random(seed)
    for _ in range(400):
        try:
            reply = parse_chat_reply(mutated(chance.choice(VALID_REPLIES), chance), chance.choice([None, 2]))
            assert isinstance(reply.text, str) and isinstance(reply.reasoning, str | None)
            assert all(isinstance(value, float) for value in reply.alternatives.values())
        except (Refusal, ServerFailure) as failure:
            assert str(failure)
        status, body = (
            chance.choice([302, 400, 401, 404, 413, 422, 429, 500, 503]),
            json.dumps(mutated(chance.choice(ERROR_DOCUMENTS), chance)),
        )
        assert str(classify_status(status, body, {}))


@pytest.mark.parametrize(("status", "words"), [(401, "refuses the key"), (404, "no such model")])
def test_rejected_key_or_model_stops_the_run_without_quoting_the_key(monkeypatch, status, words):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    message = f"Incorrect API key provided: {KEY}. Also sk-other-9876543210."
    with ChaosServer(answer=lambda body: (status, {"error": {"message": message}})) as server:
        with pytest.raises(BadInput, match=words) as error:
            list(model(server).generate([request(i) for i in range(3)]))
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert KEY not in str(error.value)
    assert "9876543210" not in str(error.value)
    assert sum(server.asked.values()) <= 9, "three questions, and three drawn ones twice"


def test_key_is_required_for_remote_servers_only(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    for url in (None, "https://somewhere.example/v1"):
        with pytest.raises(BadInput, match="OPENAI_API_KEY is not set"):
            OpenAIChat("m", Settings(base_url=url))
    OpenAIChat("m", Settings(base_url="http://127.0.0.1:8000/v1"))


FILTERED = (
    {"code": "content_filter"},
    {"code": "BadRequest", "innererror": {"code": "ResponsibleAIPolicyViolation"}},
    {"innererror": {"content_filter_result": {"violence": {"filtered": True, "severity": "medium"}}}},
    {"type": "data_inspection_failed"},
    {"code": 403, "metadata": {"reasons": ["violence"], "flagged_input": "a"}},
    {"type": "guardrail_violation", "code": "3001"},
    {"code": "SensitiveContentDetected.Violence"},
)
NOT_FILTERED = (
    {"code": "invalid_image_format"},
    {"code": "case_sensitive_model"},
    {"innererror": {"content_filter_result": {"violence": {"filtered": False}}}},
    {"code": "invalid_safety_identifier"},
    {"type": "connection_refused"},
)


def test_filtered_and_refused_replies_have_status_refused():
    replies = [(status, {"error": {"message": "no", **fields}}) for status in (200, 400, 403) for fields in FILTERED]
    replies += [(200, completion("", finish=reason)) for reason in ("content_filter: SAFETY", "refusal", "sensitive")]
    replies += [
        (200, completion(None, refusal="I cannot look at this")),
        (200, {"promptFeedback": {"blockReason": "OTHER"}}),
    ]
    replies += [(200, {**completion("Sorry."), "amazon-bedrock-guardrailAction": "INTERVENED"})]
    unfiltered = [(400, {"error": {"message": "content_filter: flagged", **fields}}) for fields in NOT_FILTERED]
    _, given, bodies = ask_server(
        lambda body: (replies + unfiltered)[int(text_of(body)[9:-1])] if "Q" in text_of(body) else "2",
        [request(number) for number in range(len(replies + unfiltered))],
    )
    responses = {int(reply.question_id): reply for reply in given}
    for number in range(len(replies)):
        assert (responses[number].status, responses[number].text) == ("refused", ""), replies[number]
        assert responses[number].error
    assert {responses[number].status for number in range(len(replies), len(responses))} == {"failed"}
    # A refusal is not retried.
    assert [text_of(body) for body in bodies].count("Question 0?") == 1


def test_gd_scores_alternatives_and_reports_a_missing_option():
    questions = [request(candidates=("A", "B"))]
    answer = 200, completion(" B", alternatives={" B": -0.1, "B": -3.0, "A": -4.0})
    _, [response], [body] = ask_server(answer, questions)
    assert body["logprobs"] is True
    assert response.text == "B"
    assert response.scores[0] == pytest.approx(-4)
    assert response.scores[1] == pytest.approx(-0.0464, abs=1e-3)
    answer = 200, completion("B", alternatives={"B": -0.1, "x": -9.0})
    backend, [response], _ = ask_server(answer, questions)
    assert response.text == "B"
    assert "not among them" in backend.deviations[0]
    with pytest.raises(BadInput, match="no log-probabilities"):
        ask_server("A", questions)
    with pytest.raises(BadInput, match="--method ps"):
        ask_server("A", [request(candidates=("left", "right"), scoring="sequence")])


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8000/v1",
        "api.example.org/v1",
        "ftp://127.0.0.1/v1",
        "http://",
        "http://127.0.0.1:port/v1",
    ],
)
def test_invalid_address_is_reported(url):
    with pytest.raises(BadInput, match="not an address"):
        OpenAIChat("m", Settings(base_url=url))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:9/v1", "no server answers at this address"),
        ("http://no-such-host.invalid/v1", "cannot be resolved|no server"),
    ],
)
def test_unreachable_server_is_reported_within_seconds(monkeypatch, url, words):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    # Connection errors are retried by the client.
    start = time.monotonic()
    with pytest.raises(BadInput, match=f"no server can be reached: .*({words})"):
        list(OpenAIChat("m", Settings(base_url=url)).generate([request(i) for i in range(20)]))
    assert time.monotonic() - start < 60  # 2 to 4; more on a busy machine


LOGIN_PAGE = "<!DOCTYPE html><html><head><title>Sign in &amp; go on</title><style>x</style></head><body>A</body></html>"


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (403, LOGIN_PAGE, "Sign in &amp; go on"),
        (402, '{"error": {"message": "Insufficient credits"}}', "no credit left"),
        (
            429,
            '{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}',
            "no credit left",
        ),
        (
            400,
            '{"detail": [{"loc": ["body", "messages"], "msg": "System role not supported"}]}',
            "System role not supported",
        ),
        (400, "", "no further words"),
    ],
)
def test_error_message_is_quoted_from_any_body_format(status, body, words):
    with pytest.raises(BadInput, match=words):
        ask_server((status, Raw(body)), [request(i) for i in range(4)])


def test_pending_replies_do_not_delay_an_error(monkeypatch):
    monkeypatch.setattr(openai_chat, "DRAIN_TIMEOUT_S", 1.0)

    def answer(body):
        if "Question 3?" in json.dumps(body) or withdrawn.is_set():
            withdrawn.set()
            return 401, {"error": {"message": "withdrawn"}}
        # This reply is still pending when the key is withdrawn.
        if "Question 2?" in json.dumps(body):
            over.wait(250)
        return "A"

    over, withdrawn, start, got = threading.Event(), threading.Event(), time.monotonic(), []
    with ChaosServer(answer=answer) as server, pytest.raises(BadInput, match="refuses the key"):
        for response in model(server, timeout=250, in_flight=8).generate([request(i) for i in range(8)]):
            # On a busy machine question 2 may arrive after the key is withdrawn, and fails then.
            got += [response.question_id] if response.error is None else []
    assert time.monotonic() - start < 200  # DRAIN_TIMEOUT_S plus the delays of a busy machine
    # Release the server's thread.
    over.set()
    assert "0" in got and not {"2", "3"} & set(got)


def test_reasoning_contrary_to_the_option_is_recorded():
    thought = (200, completion("B", reasoning_content="hm"))
    for thinking, answer, words in (
        ("off", thought, "switched off"),
        ("on", "B", "shows no reasoning"),
    ):
        backend, _, bodies = ask_server(answer, [request(max_tokens=20000)], thinking=thinking)
        assert any(words in deviation for deviation in backend.deviations)
        assert bodies[0]["chat_template_kwargs"] == {
            "enable_thinking": thinking == "on",
            "thinking": thinking == "on",
        }


def in_a_field(name, shape=lambda thought: thought):
    return lambda thought, answer: {"content": answer or None, name: shape(thought)}


def in_a_part(shape=lambda thought: thought):
    return lambda thought, answer: {
        "content": [{"type": "thinking", "thinking": shape(thought)}]
        + [{"type": "text", "text": answer}] * bool(answer)
    }


def between(start, end):
    return lambda thought, answer: {"content": start + thought + (end + answer if answer else "")}


REASONING_FORMATS = {
    "reasoning_content": in_a_field("reasoning_content"),
    "reasoning": in_a_field("reasoning"),
    "ollama": in_a_field("thinking"),
    "openrouter": in_a_field("reasoning_details", lambda thought: [{"type": "reasoning.text", "text": thought, "format": "x"}]),
    "litellm": in_a_field("thinking_blocks", lambda thought: [{"type": "thinking", "thinking": thought, "signature": "s"}]),
    "openrouter, twice": lambda thought, answer: {
        "content": answer, "reasoning": thought, "reasoning_details": [{"type": "reasoning.summary", "summary": thought}]
    },
    "field, cut thoughts in the text": lambda thought, answer: (
        {"content": answer, "reasoning": thought} if answer else {"content": thought}
    ),
    "field and text": lambda thought, answer: {
        "content": f"<think>{thought}</think>{answer}" if answer else "",
        "reasoning_content": thought,
    },
    "anthropic": in_a_part(),
    "mistral": in_a_part(lambda thought: [{"type": "text", "text": thought}]),
    "tags": between("<think>", "</think>"),
    "medgemma": between("<unused94>thought\n", "<unused95>"),
    "gemma": between("<|channel>thought\n", "<channel|>"),
    "end tag alone": between("", "</think>\n\n"),
    "end token alone": between("", "<unused95>"),
}  # fmt: skip
"""Formats of reasoning, with and without a parser, with and without an opened tag.

Without an answer, the reply is truncated.
"""


class Thinker:
    """A model that reasons in words of one token each and is cut by the limit.

    `length`: its finish reason then. Every reasoning states an answer.
    """

    def __init__(self, form, length, seed, thoughts=(5, 120)):
        self.form, self.length, self.random, self.thoughts = (
            form,
            length,
            random.Random(seed),
            thoughts,
        )

    def __call__(self, body):
        words = "It may be A. So the answer is A. Or no, look at the left again; the correct option is A? Hm."
        # The harness's own test question gets a short reasoning.
        count = 8 if "1 + 1" in text_of(body) else self.random.randint(*self.thoughts)
        thought = list(itertools.islice(itertools.cycle(words.split()), count))
        limit = body["max_tokens"]
        # The answer takes one more token.
        cut = count + 1 > limit
        document = completion(None, finish=self.length if cut else "stop")
        document["choices"][0]["message"] |= REASONING_FORMATS[self.form](" ".join(thought[:limit]), "" if cut else "B")
        document["usage"] |= {"completion_tokens": min(limit, count + 1)}
        return 200, document


@pytest.mark.parametrize("form", few(REASONING_FORMATS, 6))
def test_no_choice_is_read_from_truncated_reasoning(form):
    """Limits that cut all, some or none of the replies, with four finish reasons, at one and six in
    flight.
    """
    for seed, (limit, length) in enumerate([(1, "length"), (4, None), (60, "MAX_TOKENS"), (60, "length"), (200, None)]):
        questions = [request(i, max_tokens=limit) for i in range(10)]
        _, responses, bodies = ask_server(
            Thinker(form, length, seed), questions, max_tokens=limit, in_flight=1 + 5 * (seed % 2)
        )
        # 1024: the limit of the harness's own test question.
        assert {body["max_tokens"] for body in bodies} <= {limit, 1024}, "the user's limit is kept"
        for reply in responses:
            reading = read_choice(reply.text, ["left", "right"], finish_reason=reply.finish_reason)
            expected = ("answered", (1,)) if reply.finish_reason == "stop" else ("truncated", ())
            assert (reading.status, reading.choice) == expected, (limit, reply)
            assert reply.reasoning.startswith("It")
            assert len(reply.reasoning.split()) <= reply.usage[1], "said once"
        cut = sum(reply.finish_reason == "length" for reply in responses)
        assert {1: cut == 10, 4: cut == 10, 60: 0 < cut < 10, 200: cut == 0}[limit]


@pytest.mark.parametrize("form", few(REASONING_FORMATS, 5))
def test_output_limit_is_raised_for_a_model_that_reasons(form):
    questions = [request(i, max_tokens=3) for i in range(8)]
    backend, responses, _ = ask_server(Thinker(form, "length", form), questions, in_flight=4)
    assert {reply.text.strip() for reply in responses} == {"B"}
    assert any("16384 output tokens were allowed instead of 3" in words for words in backend.deviations)


def test_truncated_answers_of_a_non_reasoning_model_stay_answers():
    def plain(body):
        if "1 + 1" in text_of(body):
            return "2"
        return 200, completion("The answer is B. This is because", finish="length")

    backend, responses, bodies = ask_server(plain, [request(i, max_tokens=7) for i in range(4)])
    assert [(reply.text, reply.reasoning) for reply in responses] == [("The answer is B. This is because", None)] * 4
    assert not backend.deviations
    assert len(bodies) == 5, "one simple question tells"


def test_scoring_options_of_a_reasoning_model_is_recorded_as_a_deviation():
    def thinker(body):
        if body.get("logprobs"):
            return 200, completion("Okay", finish="length", alternatives={"Okay": -0.1, "A": -3.0, "B": -4.0})
        return 200, completion("It is two.</think>2")

    backend, responses, _ = ask_server(thinker, [request(i, candidates=("A", "B")) for i in range(3)])
    assert [reply.text for reply in responses] == ["A"] * 3
    assert any("begins to reason" in words for words in backend.deviations)
