"""Turn a request into the conversation that a model sees: turns for its own chat template, or plain text where it has none.

See also: the wording of the prompt (`prompts.py`), tokens and tensors (`model_inputs.py`).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from eval_harness.records.request import Request

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage

Message = dict[str, Any]

PLAIN_BY_DEFAULT = ("blip-2", "instructblip", "paligemma", "git", "kosmos-2", "fuyu")
"""Model types without a chat template that are made for plain text: the benchmarks' own per-model prompts, such as MediConfusion's
`mc-blip2`, already hold the words they expect."""


def conversation(
    request: Request, pictures: Mapping[bytes, Any] | None, as_text: Callable[[str], str] = str
) -> list[Message]:
    """System message, worked examples as earlier turns, then the question, each turn's images and text in the order of the request.

    `pictures` maps encoded images to decoded ones; None: images without their contents. `as_text` is applied to every text.
    """

    def said(text: str) -> list[dict[str, Any]]:
        return [{"type": "text", "text": as_text(text)}]

    def asked(text: str, images: Sequence[bytes]) -> Message:
        shown = [{"type": "image"} | ({"image": pictures[image]} if pictures is not None else {}) for image in images]
        return {"role": "user", "content": shown + said(text) if request.image_first else said(text) + shown}

    messages: list[Message] = []
    if request.system:
        messages.append({"role": "system", "content": said(request.system)})
    for shot in request.shots:
        messages += [asked(shot.prompt, shot.images), {"role": "assistant", "content": said(shot.answer)}]
    return [*messages, asked(request.prompt, request.images)]


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
