"""Messages sent: images, turns, their order, and the user's parameters."""

import base64
import io

import pytest
from PIL import Image

from eval_harness.records.request import Shot
from tests.chaos.server import ChaosServer
from tests.eval_harness.models.http.asking import model, picture, request


def test_image_larger_than_the_maximum_is_shrunk():
    with ChaosServer() as server:
        list(model(server, max_image_side=50).generate([request(image=picture("RGB", "JPEG", size=(400, 100)))]))
    head, _, data = server.bodies[0]["messages"][0]["content"][0]["image_url"]["url"].partition(",")
    assert head == "data:image/png;base64" and max(Image.open(io.BytesIO(base64.b64decode(data))).size) == 50


@pytest.mark.parametrize("image_first", [True, False])
def test_system_message_and_examples_become_turns_in_the_requested_order(image_first):
    shots = (Shot("Q1?", "A", picture()),)
    question = request(image_first=image_first, shots=shots, more_images=(picture(),), system="You are a student.")
    with ChaosServer() as server:
        list(model(server).generate([question]))
    (system, *turns) = server.bodies[0]["messages"]
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
    with ChaosServer() as server:
        list(model(server, **extra).generate([request()]))
    (body,) = server.bodies
    assert (body["top_p"], body["chat_template"], body["chat_template_kwargs"]) == (
        0.5,
        "{{ x }}",
        {"y": 1},
    )
