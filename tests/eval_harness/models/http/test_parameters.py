"""Requests: images, turns and their order, and the parameters, of which the user's own are never
dropped.

See also: negotiation with servers that reject parameters (`tests/chaos`).
"""

import base64
import io
import json

import pytest
from PIL import Image

from dataset_builders.errors import BadInput
from eval_harness.models.http.chat_requests import thinking_parameters
from eval_harness.records.request import Shot
from tests.chaos.server import ChaosServer, completion
from tests.eval_harness.models.http.asking import ask_server, model, picture, request, text_of


def rejecting(name):
    """Make a server that rejects a parameter."""
    message = f"Unsupported parameter: '{name}' is not supported with this model."
    return lambda body: (400, {"error": {"message": message}}) if name in body else "A"


def test_rejected_user_parameters_are_an_error():
    for settings, name in (
        ({"generation": {"top_k": 5}}, "top_k"),
        ({"chat_template_kwargs": {"x": 1}}, "chat_template_kwargs"),
        ({"generation": {"temperature": 0.3}}, "temperature"),
    ):
        with pytest.raises(BadInput, match=name.split("_")[0]):
            ask_server(rejecting(name), [request(i) for i in range(3)], **settings)
    with pytest.raises(BadInput, match="--thinking 500"):
        ask_server(rejecting("chat_template_kwargs"), [request()], thinking=500)


def test_question_that_exceeds_every_limit_fails_alone():
    message = "Could not finish the message because max_tokens or model output limit was reached. Please try again with higher max_tokens."

    def thinker(body):
        limit = body["max_tokens"]
        needed = 100_000 if text_of(body) == "Question 3?" else 8000
        return "B" if limit >= needed else (400, {"error": {"message": message, "type": "invalid_request_error"}})

    # The question is the first or the fourth; the user's own limit is never raised.
    for numbers, limit, own_limit in ((range(8), 1, None), ([3, 0, 1, 2, 4, 5, 6, 7], 1, None), (range(8), 8000, 8000)):
        questions = [request(number, max_tokens=limit) for number in numbers]
        backend, replies, bodies = ask_server(thinker, questions, in_flight=4, max_tokens=own_limit)
        responses = {reply.question_id: reply for reply in replies}
        assert {i: reply.text for i, reply in responses.items()} == {**dict.fromkeys("0124567", "B"), "3": ""}
        assert responses["3"].status == "failed" and "Could not finish" in responses["3"].error
        raised = any("16384 output tokens were allowed instead of 1" in words for words in backend.deviations)
        assert raised == (own_limit is None)
    assert {body["max_tokens"] for body in bodies} == {8000}


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

    scoring, scored, _ = ask_server(least, [request(i, candidates=("A", "B")) for i in range(3)])
    generating, generated, _ = ask_server(least, [request(i, max_tokens=1) for i in range(3)])
    assert [reply.text for reply in scored + generated] == ["A"] * 6
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


def test_image_larger_than_the_maximum_is_shrunk():
    large = request(image=picture("RGB", "JPEG", size=(400, 100)))
    _, _, [body] = ask_server("A", [large], max_image_side=50)
    head, _, data = body["messages"][0]["content"][0]["image_url"]["url"].partition(",")
    assert head == "data:image/png;base64" and max(Image.open(io.BytesIO(base64.b64decode(data))).size) == 50


@pytest.mark.parametrize("image_first", [True, False])
def test_system_message_and_examples_become_turns_in_the_requested_order(image_first):
    shots = (Shot("Q1?", "A", picture()),)
    question = request(image_first=image_first, shots=shots, more_images=(picture(),), system="You are a student.")
    _, _, [body] = ask_server("A", [question])
    system, *turns = body["messages"]
    assert system == {"role": "system", "content": "You are a student."}
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    orders = [[part["type"] for part in turn["content"]] for turn in turns if turn["role"] == "user"]
    images = [["image_url"], ["image_url"] * 2]  # of the example, of the question
    assert orders == [[*image_parts, "text"] if image_first else ["text", *image_parts] for image_parts in images]


def test_user_parameters_are_sent():
    extra = {
        "generation": {"top_p": 0.5},
        "chat_template": "{{ x }}",
        "chat_template_kwargs": {"y": 1},
    }
    _, _, [body] = ask_server("A", [request()], **extra)
    assert (body["top_p"], body["chat_template"], body["chat_template_kwargs"]) == (
        0.5,
        "{{ x }}",
        {"y": 1},
    )
