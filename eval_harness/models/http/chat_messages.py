"""A request as chat messages, written as JSON, with the images as data URLs.

An image is checked and encoded once for the questions that share it, which follow each other; its URL, which needs no escapes, goes into
the text as it is.
"""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Sequence
from functools import lru_cache

from dataset_builders.images.lookup import ImageError, as_png, check_image
from eval_harness.models.local.chat_form import decode_image
from eval_harness.records.request import Request

SENT_AS_THEY_ARE = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp", "GIF": "image/gif"}
"""Formats every server reads; other ones, 16-bit greys and images to be shrunk are sent as PNG, which loses nothing."""


def messages_of(request: Request, longest_side: int | None) -> bytes:
    """System message, worked examples as earlier turns, then the question, each turn's images and text in the order of the request.

    Raises ImageError where an image cannot be decoded whole: a lenient server would answer to half of it.
    """
    first = request.image_first
    messages: list[bytes] = []
    if request.system:
        messages.append(_message("system", _text(request.system)))
    for shot in request.shots:
        messages.append(_message("user", _content(shot.prompt, shot.images, first, longest_side)))
        messages.append(_message("assistant", _text(shot.answer)))
    messages.append(_message("user", _content(request.prompt, request.images, first, longest_side)))
    return b"[" + b", ".join(messages) + b"]"


def continued(messages: bytes, answer: str) -> bytes:
    """The messages with the beginning of an answer as the last one."""
    return messages[:-1] + b", " + _message("assistant", _text(answer)) + b"]"


def _message(role: str, content: bytes) -> bytes:
    return b'{"role": "%s", "content": %s}' % (role.encode(), content)


def _text(text: str) -> bytes:
    """A JSON string; lone surrogates become question marks."""
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")


def _content(text: str, images: Sequence[bytes], image_first: bool, longest_side: int | None) -> bytes:
    if not images:
        return _text(text)
    pictures = [_image(image, longest_side) for image in images]
    words = [b'{"type": "text", "text": %s}' % _text(text)]
    return b"[" + b", ".join(pictures + words if image_first else words + pictures) + b"]"


def _image(image: bytes, longest_side: int | None) -> bytes:
    with _lock_of(image):  # else the questions of an image, which come together, would each decode it
        url = _data_url(image, longest_side)
    if isinstance(url, ImageError):
        raise ImageError(str(url))
    return b'{"type": "image_url", "image_url": {"url": "%s"}}' % url


@lru_cache(maxsize=64)
def _lock_of(image: bytes) -> threading.Lock:
    return threading.Lock()


@lru_cache(maxsize=64)
def _data_url(image: bytes, longest_side: int | None) -> bytes | ImageError:
    """The image as a `data:` URL: its own bytes where every server can read them, else a PNG of it; or why it cannot be decoded."""
    from PIL import Image

    try:
        check_image(image)
    except ImageError as error:
        return error
    with Image.open(io.BytesIO(image)) as opened:
        mime = SENT_AS_THEY_ARE.get(opened.format or "")
        plain = opened.mode in ("L", "RGB", "P", "RGBA", "1")
        small = longest_side is None or max(opened.size) <= longest_side
    if not (mime and plain and small):
        mime, image = "image/png", as_png(decode_image(image, longest_side))
    return f"data:{mime};base64,".encode() + base64.b64encode(image)
