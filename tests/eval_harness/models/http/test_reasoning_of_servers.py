"""Separating a server's reasoning from its answer, in every format, also in truncated replies."""

import itertools
import random

import pytest

from eval_harness.reader import read_choice
from tests.chaos.server import ChaosServer, completion
from tests.eval_harness.models.http.asking import model, request, text_of
from tests.sampling import few


def test_reasoning_contrary_to_the_option_is_recorded():
    thought = (200, completion("B", reasoning_content="hm"))
    for thinking, answer, words in (
        ("off", thought, "switched off"),
        ("on", "B", "shows no reasoning"),
    ):
        with ChaosServer(answer=lambda body, answer=answer: answer) as server:
            backend = model(server, thinking=thinking)
            list(backend.generate([request(max_tokens=20000)]))
        assert any(words in deviation for deviation in backend.deviations)
        assert server.bodies[0]["chat_template_kwargs"] == {
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
        with ChaosServer(answer=Thinker(form, length, seed)) as server:
            backend = model(server, max_tokens=limit, in_flight=1 + 5 * (seed % 2))
            responses = list(backend.generate([request(i, max_tokens=limit) for i in range(10)]))
        # 1024: the limit of the harness's own test question.
        assert {body["max_tokens"] for body in server.bodies} <= {limit, 1024}, "the user's limit is kept"
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
    with ChaosServer(answer=Thinker(form, "length", form)) as server:
        backend = model(server, in_flight=4)
        responses = list(backend.generate([request(i, max_tokens=3) for i in range(8)]))
    assert {reply.text.strip() for reply in responses} == {"B"}
    assert any("16384 output tokens were allowed instead of 3" in words for words in backend.deviations)


def test_truncated_answers_of_a_non_reasoning_model_stay_answers():
    def plain(body):
        if "1 + 1" in text_of(body):
            return "2"
        return 200, completion("The answer is B. This is because", finish="length")

    with ChaosServer(answer=plain) as server:
        backend = model(server)
        responses = list(backend.generate([request(i, max_tokens=7) for i in range(4)]))
    assert [(reply.text, reply.reasoning) for reply in responses] == [("The answer is B. This is because", None)] * 4
    assert not backend.deviations
    assert len(server.bodies) == 5, "one simple question tells"


def test_scoring_options_of_a_reasoning_model_is_recorded_as_a_deviation():
    def thinker(body):
        if body.get("logprobs"):
            return 200, completion("Okay", finish="length", alternatives={"Okay": -0.1, "A": -3.0, "B": -4.0})
        return 200, completion("It is two.</think>2")

    with ChaosServer(answer=thinker) as server:
        backend = model(server)
        responses = list(backend.score([request(i, candidates=("A", "B")) for i in range(3)]))
    assert [reply.text for reply in responses] == ["A"] * 3
    assert any("begins to reason" in words for words in backend.deviations)
