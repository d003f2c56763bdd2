"""A custom model for `medprobe eval BENCHMARK --model docs/examples/my_model.py:BrightSide`.

This one looks for the brightest half of the picture. Replace the body of `look` by a call to your
model.
"""

import io
from collections.abc import Iterator
from typing import Any

from PIL import Image, ImageStat

from medprobe import Request, Response


class BrightSide:
    """Made once, with what the command line says about running models (batch size, device ...)."""

    def __init__(self, settings: Any) -> None:
        self.batch_size = settings.batch_size or 8

    def generate(self, requests: list[Request]) -> Iterator[Response]:
        """One response per request, in any order, as they finish: each is on disk before the next
        one is computed.
        """
        for request in requests:
            yield Response(request.question_id, request.sample, self.look(request))

    def look(self, request: Request) -> str:
        """`prompt` is the text to send, `image` the encoded file (None for text-only runs). Return
        what your model says.
        """
        assert request.image is not None
        picture = Image.open(io.BytesIO(request.image)).convert("L")
        width, height = picture.size
        left = ImageStat.Stat(picture.crop((0, 0, width // 2, height))).mean[0]
        right = ImageStat.Stat(picture.crop((width // 2, 0, width, height))).mean[0]
        side = "left" if left > right else "right"
        named = [letter for letter, option in zip("ABCDE", request.options, strict=False) if side in option.lower()]
        return named[0] if named else "I do not know"
