"""A request as chat messages, with the images as data URLs.

An image is checked and encoded once for the questions that share it, which follow each other.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from dataset_builders.images.lookup import encode_png
from dataset_builders.images.picture import encode_data_uri
from eval_harness.models.local.model_inputs import build_conversation, decode_rgb_image
from eval_harness.records.request import Request


def build_messages(request: Request, longest_side: int | None) -> list[dict[str, Any]]:
    """The conversation as servers take it: what is text alone is no list of parts.

    Raises ImageError where an image cannot be decoded whole: a lenient server would answer to half of it.
    """

    def shown(image: bytes) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": _data_url(image, longest_side)}}

    messages = build_conversation(request, shown, _encodable_text)
    for message in messages:
        if [part["type"] for part in message["content"]] == ["text"]:
            message["content"] = message["content"][0]["text"]
    return messages


def with_answer_start(messages: list[dict[str, Any]], answer: str) -> list[dict[str, Any]]:
    """The messages with the beginning of an answer as the last one."""
    return [*messages, {"role": "assistant", "content": _encodable_text(answer)}]


def _encodable_text(text: str) -> str:
    """Text that UTF-8 can encode; lone surrogates become question marks."""
    return text.encode("utf-8", "replace").decode()


@lru_cache(maxsize=64)
def _data_url(image: bytes, longest_side: int | None) -> str:
    """The picture that a model is shown of an image as a `data:` URL, shrunk where its longest side is longer. Raises ImageError."""
    if longest_side is not None and max(decode_rgb_image(image).size) > longest_side:
        image = encode_png(decode_rgb_image(image, longest_side))
    return encode_data_uri(image)
