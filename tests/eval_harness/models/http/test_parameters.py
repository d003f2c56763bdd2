"""Negotiating parameters: with the first question only, reported, and never dropping the user's
own.
"""

import json
from random import Random

import pytest

from dataset_builders.errors import BadInput
from eval_harness.models.http.chat_parameters import thinking_parameters
from tests.chaos.server import ChaosServer, answer_to, completion
from tests.eval_harness.models.http.asking import model, request, text_of

FORMS_OF_ERRORS = {
    "openai": lambda name, words: {"error": {"message": words, "param": name, "code": "unsupported_parameter"}},
    "message": lambda name, words: {"error": {"message": words}},
    "error as text": lambda name, words: {"error": words},
    "detail as text": lambda name, words: {"detail": words},
    "detail as list": lambda name, words: {
        "detail": [
            {
                "type": "extra_forbidden",
                "loc": ["body", name],
                "msg": "Extra inputs are not permitted",
            }
        ]
    },
    "vllm": lambda name, words: {
        "object": "error",
        "message": words,
        "type": "BadRequestError",
        "code": 400,
    },
    "list": lambda name, words: [{"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}}],
    "nested": lambda name, words: {
        "error": {
            "message": "Provider returned error",
            "metadata": {"raw": json.dumps({"error": {"message": words}})},
        }
    },
    "plain text": lambda name, words: words,
}


class Picky:
    """A server that rejects the parameters `refused`, one at a time, in one error format."""

    def __init__(self, refused, form, status=400):
        self.refused, self.form, self.status = refused, form, status
        self.complaints, self.taken = [], []

    def __call__(self, body):
        # One complaint at a time, as real servers do.
        wrong = next((name for name in self.refused if name in body), None)
        if wrong is None:
            self.taken.append({name: value for name, value in body.items() if name != "messages"})
            return answer_to(body)
        self.complaints.append(text_of(body))
        return self.status, FORMS_OF_ERRORS[self.form](
            wrong, f"Unsupported parameter: '{wrong}' is not supported with this model."
        )


@pytest.mark.parametrize("form", FORMS_OF_ERRORS)
def test_parameters_are_negotiated_with_the_first_question_only(form):
    """Parameters and status are drawn from a seed; 12 questions, 8 in flight."""
    random = Random(form)
    refused = random.sample(["max_tokens", "temperature", "seed"], random.randrange(1, 4))
    picky = Picky(refused, form, random.choice([400, 422]))
    with ChaosServer(answer=picky, delay=0.005) as server:
        backend = model(server, in_flight=8, thinking="off")
        responses = list(backend.generate([request(i, temperature=0.7, sample=1) for i in range(12)]))
    assert {r.status for r in responses} == {"answered"}, responses
    # The other 11 questions are sent in the negotiated form.
    assert len(set(picky.complaints)) == 1, "one question alone met the refusals"
    assert len({json.dumps(parameters) for parameters in picky.taken}) == 1, "all were asked with the same settings"
    assert len(server.asked) == sum(server.served.values()) == 12
    deviations = " ".join(backend.deviations)
    assert ("temperature" in deviations, "no seed" in deviations) == (
        "temperature" in refused,
        "seed" in refused,
    )


def test_rejected_user_parameters_are_an_error():
    for settings, name in (
        ({"generation": {"top_k": 5}}, "top_k"),
        ({"chat_template_kwargs": {"x": 1}}, "chat_template_kwargs"),
        ({"generation": {"temperature": 0.3}}, "temperature"),
    ):
        with (
            ChaosServer(answer=Picky([name], "openai")) as server,
            pytest.raises(BadInput, match=name.split("_")[0]),
        ):
            list(model(server, **settings).generate([request(i) for i in range(3)]))
    with (
        ChaosServer(answer=Picky(["chat_template_kwargs"], "vllm")) as server,
        pytest.raises(BadInput, match="--thinking 500"),
    ):
        list(model(server, thinking=500).generate([request()]))


def test_parameter_name_in_an_unrelated_complaint_is_not_dropped():
    """The complaint is about something else and happens to contain the parameter's name."""
    message = "Invalid image: the body temperature chart could not be read"
    complaint = {"error": {"message": message, "param": "messages"}}
    with (
        ChaosServer(answer=lambda body: (400, complaint)) as server,
        pytest.raises(BadInput, match="body temperature chart"),
    ):
        list(model(server).generate([request(i) for i in range(5)]))


def test_question_that_exceeds_every_limit_fails_alone():
    message = "Could not finish the message because max_tokens or model output limit was reached. Please try again with higher max_tokens."

    def thinker(body):
        limit = body["max_tokens"]
        needed = 100_000 if text_of(body) == "Question 3?" else 8000
        return "B" if limit >= needed else (400, {"error": {"message": message, "type": "invalid_request_error"}})

    for first_number in (0, 3):
        with ChaosServer(answer=thinker) as server:
            backend = model(server, in_flight=4)
            numbers = [first_number, *(i for i in range(8) if i != first_number)]
            responses = {r.question_id: r for r in backend.generate([request(i, max_tokens=1) for i in numbers])}
        assert {i: r.text for i, r in responses.items() if i != "3"} == dict.fromkeys("0124567", "B")
        assert (responses["3"].status, responses["3"].text) == ("failed", "")
        assert "Could not finish" in responses["3"].error
        assert any("16384 output tokens were allowed instead of 1" in words for words in backend.deviations)
    # The user's limit is never raised.
    with ChaosServer(answer=thinker) as server:
        responses = list(model(server, max_tokens=8000).generate([request(i, max_tokens=8000) for i in range(8)]))
        assert sum(r.status == "answered" for r in responses) == 7
        assert {body["max_tokens"] for body in server.bodies} == {8000}


def test_output_limit_is_lowered_to_what_the_server_accepts():
    def bounded(body):
        limit = body.get("max_tokens")
        if limit > 8192:
            words = "max_tokens is too large: 16384. This model supports at most 8192 completion tokens."
            return 400, {"error": {"message": words, "param": "max_tokens"}}
        return "B" if limit > 1000 else (200, completion("", finish="length"))

    with ChaosServer(answer=bounded) as server:
        backend = model(server)
        responses = list(backend.generate([request(i, max_tokens=1) for i in range(6)]))
    assert {r.text for r in responses} == {"B"}
    assert backend.describe()["output_limit"] == 8192


@pytest.mark.parametrize(
    ("host", "thinking", "sent"),
    [
        (None, 1000, {"reasoning_effort": "low"}),
        (None, "off", {"reasoning_effort": "none"}),
        ("https://openrouter.ai/api/v1", 9000, {"reasoning": {"max_tokens": 9000}}),
        ("https://openrouter.ai/api/v1", "off", {"reasoning": {"enabled": False}}),
        (
            "https://api.anthropic.com/v1/",
            2000,
            {"thinking": {"type": "enabled", "budget_tokens": 2000}},
        ),
        ("https://api.deepseek.com", "off", {"thinking": {"type": "disabled"}}),
        (
            "https://dashscope.aliyuncs.com/v1",
            300,
            {"enable_thinking": True, "thinking_budget": 300},
        ),
    ],
)
def test_known_hosts_get_their_own_reasoning_parameters(host, thinking, sent):
    assert thinking_parameters(host, thinking) == sent


def test_server_with_a_minimum_output_limit_supports_gd_and_one_token_answers():
    def least(body):
        scored = {"A": -0.1, "B": -2.0} if body.get("logprobs") else None
        return (
            (400, {"error": "minimum 16"})
            if (body.get("max_tokens") or body.get("max_completion_tokens")) < 16
            else (200, completion("A", alternatives=scored))
        )

    with ChaosServer(answer=least) as server:
        scoring, generating = model(server), model(server)
        assert [reply.text for reply in scoring.score([request(i, candidates=("A", "B")) for i in range(3)])] == [
            "A"
        ] * 3
        assert [reply.text for reply in generating.generate([request(i, max_tokens=1) for i in range(3)])] == ["A"] * 3
    assert not scoring.deviations and "16 output tokens were allowed instead of 1" in generating.deviations[0]


@pytest.mark.parametrize(("drops", "counts"), [(True, True), (True, False), (False, True)])
def test_dropped_images_are_reported_if_tokens_are_counted(drops, counts):
    def answer(body):
        sees_image = "image_url" in json.dumps(body) and not drops
        document = completion("4817" if sees_image else "I see none.")
        document["usage"] = {"prompt_tokens": 10 + 90 * sees_image, "completion_tokens": 2} if counts else None
        return 200, document

    with ChaosServer(answer=answer) as server:
        backend = model(server)
        backend.probe_images = True
        responses = list(backend.generate([request(i) for i in range(4)]))
    assert any("drop images" in words for words in backend.deviations) == (drops and counts)
    # Four questions, and the picture with and without its image.
    assert len(server.bodies) == 6
    assert not counts or sum(reply.usage[1] for reply in responses) == 2 * 6, "it is in the cost"
