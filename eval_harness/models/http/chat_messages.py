"""Convert a request to chat messages, with images as data URLs.

Questions that share an image follow each other, so it is checked and encoded only once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from dataset_builders.images.lookup import encode_png
from dataset_builders.images.picture import encode_data_uri
from eval_harness.models.local.model_inputs import build_conversation, decode_rgb_image
from eval_harness.records.request import Request


def build_messages(request: Request, longest_side: int | None) -> list[dict[str, Any]]:
    """Build OpenAI-style messages; text-only content is a plain string.

    Args:
        request: The request.
        longest_side: Maximum length of an image's longer side in pixels; None: no limit.

    Returns:
        The messages, in the order of the conversation.

    Raises:
        ImageError: If an image cannot be decoded completely. (A lenient server would answer from
            the readable part.)
    """

    def image_part(image: bytes) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": _data_url(image, longest_side)}}

    messages = build_conversation(request, image_part, _encodable_text)
    for message in messages:
        if [part["type"] for part in message["content"]] == ["text"]:
            message["content"] = message["content"][0]["text"]
    return messages


def with_answer_start(messages: list[dict[str, Any]], answer: str) -> list[dict[str, Any]]:
    """Return the messages followed by an assistant message with the beginning of an answer."""
    return [*messages, {"role": "assistant", "content": _encodable_text(answer)}]


def _encodable_text(text: str) -> str:
    """Make a text encodable in UTF-8: lone surrogates become question marks."""
    return text.encode("utf-8", "replace").decode()


@lru_cache(maxsize=64)
def _data_url(image: bytes, longest_side: int | None) -> str:
    """Return the picture shown to the model as a `data:` URL, shrunk if necessary.

    Raises ImageError.
    """
    if longest_side is not None and max(decode_rgb_image(image).size) > longest_side:
        image = encode_png(decode_rgb_image(image, longest_side))
    return encode_data_uri(image)
