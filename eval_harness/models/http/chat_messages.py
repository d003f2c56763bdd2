"""A request as chat messages with the image as a data URL."""

from __future__ import annotations

import base64
import io
from functools import lru_cache
from typing import Any

from eval_harness.models.interface import Request
from eval_harness.models.local.chat_form import decode_image

SENT_AS_THEY_ARE = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp", "GIF": "image/gif"}
"""Formats every server reads; other ones, 16-bit greys and images to be shrunk are sent as PNG, which loses nothing."""


def messages_of(request: Request, longest_side: int | None) -> list[dict[str, Any]]:
    """System message, worked examples as earlier turns, then the question, each turn's image and text in the order of the request."""
    first = request.image_first
    messages: list[dict[str, Any]] = []
    if request.system:
        messages.append({"role": "system", "content": request.system})
    for shot in request.shots:
        messages.append({"role": "user", "content": _content(shot.prompt, shot.image, first, longest_side)})
        messages.append({"role": "assistant", "content": shot.answer})
    messages.append({"role": "user", "content": _content(request.prompt, request.image, first, longest_side)})
    return messages


def _content(text: str, image: bytes | None, image_first: bool, longest_side: int | None) -> Any:
    if image is None:
        return text
    parts = [
        {"type": "image_url", "image_url": {"url": data_url(image, longest_side)}},
        {"type": "text", "text": text},
    ]
    return parts if image_first else parts[::-1]


@lru_cache(maxsize=64)
def data_url(image: bytes, longest_side: int | None = None) -> str:
    """The image as a `data:` URL: its own bytes where every server can read them, else a PNG of it. The image is known to be whole."""
    from PIL import Image

    with Image.open(io.BytesIO(image)) as opened:
        mime = SENT_AS_THEY_ARE.get(opened.format or "")
        plain = opened.mode in ("L", "RGB", "P", "RGBA", "1")
        small = longest_side is None or max(opened.size) <= longest_side
    if not (mime and plain and small):
        buffer = io.BytesIO()
        decode_image(image, longest_side).save(buffer, "PNG")
        mime, image = "image/png", buffer.getvalue()
    return f"data:{mime};base64,{base64.b64encode(image).decode()}"
