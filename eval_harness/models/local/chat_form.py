"""Turn a request into the conversation that a model sees: turns for its own chat template, or plain text where it has none.

See also: the wording of the prompt (`prompts.py`), tokens and tensors (`model_inputs.py`).
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from eval_harness.records.request import Request

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage

Message = dict[str, Any]

PLAIN_BY_DEFAULT = ("blip-2", "instructblip", "paligemma", "git", "kosmos-2", "fuyu")
"""Model types without a chat template that are made for plain text: the benchmarks' own per-model prompts, such as MediConfusion's
`mc-blip2`, already hold the words they expect."""


def conversation(request: Request, pictures: Mapping[bytes, Any]) -> list[Message]:
    """System message, worked examples as earlier turns, then the question, each turn's images and text in the order of the request.

    `pictures` maps encoded images to decoded ones. A turn without images is its text.
    """
    messages: list[Message] = []
    if request.system:
        messages.append({"role": "system", "content": [{"type": "text", "text": request.system}]})
    for shot in request.shots:
        messages.append(_turn(shot.prompt, shot.images, pictures, request.image_first))
        messages.append({"role": "assistant", "content": [{"type": "text", "text": shot.answer}]})
    messages.append(_turn(request.prompt, request.images, pictures, request.image_first))
    return messages


def _turn(text: str, images: Sequence[bytes], pictures: Mapping[bytes, Any], image_first: bool) -> Message:
    words: list[dict[str, Any]] = [{"type": "text", "text": text}]
    shown: list[dict[str, Any]] = [{"type": "image", "image": pictures[image]} for image in images]
    return {"role": "user", "content": shown + words if image_first else words + shown}


def plain_text(messages: list[Message], image_token: str | None, end_of_shot: str) -> str:
    """A conversation as one text: image markers, the prompt as it stands, examples closed by `end_of_shot`.

    With examples this is the Med-Flamingo form, `<image>prompt answer<|endofchunk|>...<image>prompt` (MediConfusion, appendix B.1).
    """
    parts: list[str] = []
    for message in messages:
        text = "".join(part["text"] for part in message["content"] if part["type"] == "text")
        if message["role"] == "assistant":
            parts.append(f" {text}{end_of_shot}")
        elif message["role"] == "system":
            parts.append(f"{text} ")
        else:
            images = sum(part["type"] == "image" for part in message["content"])
            parts.append((image_token or "") * images + text)
    return "".join(parts)


def images_of(messages: list[Message]) -> list[PILImage]:
    """The images of a conversation in the order they stand."""
    return [part["image"] for message in messages for part in message["content"] if part["type"] == "image"]


@lru_cache(maxsize=8)
def decode_image(data: bytes, longest_side: int | None = None) -> PILImage:
    """The encoded image as RGB, turned as its EXIF orientation says; 16-bit grey is brought to 8 bits, not clipped.

    `longest_side`: shrink to this many pixels where larger. The few images decoded last are kept, since questions share them;
    callers must not draw on what they get.
    """
    from PIL import Image

    from dataset_builders.images.lookup import rgb_of

    image = rgb_of(Image.open(io.BytesIO(data)))
    if longest_side is not None:
        image.thumbnail((longest_side, longest_side), Image.Resampling.LANCZOS)
    return image
