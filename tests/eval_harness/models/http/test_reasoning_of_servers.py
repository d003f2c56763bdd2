"""Reasoning and answer of a server's replies are kept apart, however it marks them, and a reply cut inside the reasoning is no answer."""

import itertools
import random

import pytest

from eval_harness.reader import read_choice
from tests.chaos.server import ChaosServer, completion
from tests.eval_harness.models.http.asking import model, request, text_of

REASONED = {
    "reasoning_content": {"content": "B", "reasoning_content": "It could be A. No."},
    "reasoning": {"content": "B", "reasoning": "It could be A. No."},
    "ollama": {"content": "B", "thinking": "It could be A. No."},
    "openrouter": {
        "content": "B",
        "reasoning_details": [{"type": "reasoning.text", "text": "It could be A. No.", "format": "x", "index": 0}],
    },
    "openrouter, twice": {
        "content": "B",
        "reasoning": "It could be A. No.",
        "reasoning_details": [{"type": "reasoning.summary", "summary": "It could be A. No."}],
    },
    "litellm": {
        "content": "B",
        "thinking_blocks": [{"type": "thinking", "thinking": "It could be A. No.", "signature": "s"}],
    },
    "anthropic": {"content": [{"type": "thinking", "thinking": "It could be A. No."}, {"type": "text", "text": "B"}]},
    "mistral": {
        "content": [
            {"type": "thinking", "thinking": [{"type": "text", "text": "It could be A. No."}]},
            {"type": "text", "text": "B"},
        ]
    },
    "in the text": {"content": "<think>It could be A. No.</think>B"},
    "opened by the template": {"content": "It could be A. No.</think>B"},
    "medgemma": {"content": "<unused94>thought\nIt could be A. No.<unused95>B"},
    "gemma": {"content": "<|channel>thought\nIt could be A. No.<channel|>B"},
}


@pytest.mark.parametrize("kind", REASONED)
def test_reasoning_and_answer_are_kept_apart(kind):
    message = dict(REASONED[kind])
    with ChaosServer(
        answer=lambda body: (200, completion(message.pop("content", None) or REASONED[kind]["content"], **message))
    ) as server:
        (found,) = model(server).generate([request()])
    assert (found.text.strip(), found.finish_reason) == ("B", "stop")
    assert "It could be A. No." in found.reasoning
    assert found.reasoning.count("It could be A") == 1


@pytest.mark.parametrize(
    "message",
    [
        {"content": "<think>It could be A. No, A, I"},
        {"content": None, "reasoning_content": "It could be A"},
        {"content": "", "reasoning": "It could be A"},
        {"content": [{"type": "thinking", "thinking": "It could be A"}]},
        {"content": "<unused94>thought\nIt could be A"},
    ],
)
def test_a_text_cut_inside_the_reasoning_is_no_answer(message):
    content = message["content"]
    rest = {name: value for name, value in message.items() if name != "content"}
    with ChaosServer(answer=lambda body: (200, completion(content, finish="length", **rest))) as server:
        backend = model(server, fixed_limit=True)
        (found,) = backend.generate([request(max_tokens=5)])
    assert (found.status, found.text.strip(), found.finish_reason) == ("answered", "", "length")
    assert "It could be A" in found.reasoning
    assert [body["max_tokens"] for body in server.bodies] == [5], "the user's limit is kept"


def test_whether_the_model_reasons_as_asked_is_said():
    thought = (200, completion("B", reasoning_content="hm"))
    for thinking, answer, words in (("off", thought, "asked not to"), ("on", "B", "shows no reasoning")):
        with ChaosServer(answer=lambda body, answer=answer: answer) as server:
            backend = model(server, thinking=thinking)
            list(backend.generate([request(max_tokens=20000)]))
        assert any(words in each for each in backend.deviations)
        assert server.bodies[0]["chat_template_kwargs"] == {
            "enable_thinking": thinking == "on",
            "thinking": thinking == "on",
        }


MARKED = {
    "field": lambda thought, answer: {"content": answer or None, "reasoning_content": thought},
    "field, cut thoughts in the text": lambda thought, answer: (
        {"content": answer, "reasoning": thought} if answer else {"content": thought}
    ),
    "tags": lambda thought, answer: {"content": f"<think>{thought}" + (f"</think>{answer}" if answer else "")},
    "end tag alone": lambda thought, answer: {"content": thought + (f"</think>\n\n{answer}" if answer else "")},
    "end token alone": lambda thought, answer: {"content": thought + (f"<unused95>{answer}" if answer else "")},
    "field and text": lambda thought, answer: {
        "content": f"<think>{thought}</think>{answer}" if answer else "",
        "reasoning_content": thought,
    },
}
"""How servers mark a thought (with their parsers or without one, the template having opened the tag or not); no answer: it was cut."""


class Thinker:
    """Reasons in words, each one token, and is cut by the limit. `length`: how it says so. Every thought states an answer."""

    def __init__(self, form, length, seed, thoughts=(5, 120)):
        self.form, self.length, self.random, self.thoughts = form, length, random.Random(seed), thoughts

    def __call__(self, body):
        words = "It may be A. So the answer is A. Or no, look at the left again; the correct option is A? Hm."
        count = 8 if "1 + 1" in text_of(body) else self.random.randint(*self.thoughts)
        thought = list(itertools.islice(itertools.cycle(words.split()), count))
        limit = body["max_tokens"]
        cut = count + 1 > limit
        document = completion(None, finish=self.length if cut else "stop")
        document["choices"][0]["message"] |= MARKED[self.form](" ".join(thought[:limit]), "" if cut else "B")
        document["usage"] |= {"completion_tokens": min(limit, count + 1)}
        return 200, document


@pytest.mark.parametrize("form", MARKED)
def test_no_letter_is_ever_read_in_a_thought_that_was_cut(form):
    """At limits that cut all, some or none, said in four ways; whichever comes first; at one in flight and at six."""
    for seed, (limit, length) in enumerate([(1, "length"), (4, None), (60, "MAX_TOKENS"), (60, "length"), (200, None)]):
        with ChaosServer(answer=Thinker(form, length, seed)) as server:
            backend = model(server, fixed_limit=True, in_flight=1 + 5 * (seed % 2))
            found = list(backend.generate([request(i, max_tokens=limit) for i in range(10)]))
        assert {body["max_tokens"] for body in server.bodies} <= {limit, 1024}, "the user's limit is kept"
        for reply in found:
            read = read_choice(reply.text, ["left", "right"], finish_reason=reply.finish_reason)
            expected = ("answered", (1,)) if reply.finish_reason == "stop" else ("truncated", ())
            assert (read.status, read.choice) == expected, (limit, reply)
            assert reply.reasoning.startswith("It")
        cut = sum(reply.finish_reason == "length" for reply in found)
        assert {1: cut == 10, 4: cut == 10, 60: 0 < cut < 10, 200: cut == 0}[limit]


@pytest.mark.parametrize("form", MARKED)
def test_a_model_that_is_seen_to_reason_gets_room(form):
    with ChaosServer(answer=Thinker(form, "length", form)) as server:
        backend = model(server, in_flight=4)
        found = list(backend.generate([request(i, max_tokens=3) for i in range(8)]))
    assert {reply.text.strip() for reply in found} == {"B"}
    assert any("16384 output tokens were allowed instead of 3" in words for words in backend.deviations)


def test_cut_answers_of_a_model_that_does_not_reason_stay_answers():
    def plain(body):
        if "1 + 1" in text_of(body):
            return "2"
        return 200, completion("The answer is B. This is because", finish="length")

    with ChaosServer(answer=plain) as server:
        backend = model(server)
        found = list(backend.generate([request(i, max_tokens=7) for i in range(4)]))
    assert [(reply.text, reply.reasoning) for reply in found] == [("The answer is B. This is because", None)] * 4
    assert not backend.deviations
    assert len(server.bodies) == 5, "one simple question tells"


def test_options_scored_where_the_model_begins_to_reason_are_told():
    def thinker(body):
        if body.get("logprobs"):
            return 200, completion("Okay", finish="length", alternatives={"Okay": -0.1, "A": -3.0, "B": -4.0})
        return 200, completion("It is two.</think>2")

    with ChaosServer(answer=thinker) as server:
        backend = model(server)
        found = list(backend.score([request(i, candidates=("A", "B")) for i in range(3)]))
    assert [reply.text for reply in found] == ["A"] * 3
    assert any("begins to reason" in words for words in backend.deviations)
