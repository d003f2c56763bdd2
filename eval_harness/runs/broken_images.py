"""Keeps a run going where images of its dataset cannot be decoded: their questions fail, the others are asked.

A dataset that others built may hold such images. Decoding every image beforehand would cost as much as the back end's own decoding, so
nothing is checked until a back end fails. See also: what a back end does with an image (`models/`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from dataset_builders.images.lookup import ImageError, check_image
from eval_harness.records.request import Request, Response

Send = Callable[[list[Request]], Iterable[Response]]


def without_broken_images(send: Send, requests: Sequence[Request]) -> Iterator[Response]:
    """What `send` answers; where it fails and images cannot be decoded, their questions are `failed` and the rest is sent again.

    Raises what `send` raised where every image can be decoded.
    """
    waiting = {(request.question_id, request.sample): request for request in requests}
    while waiting:
        try:
            for response in send(list(waiting.values())):
                waiting.pop((response.question_id, response.sample), None)
                yield response
            return
        except Exception:
            broken = broken_images(image for request in waiting.values() for image in request.images)
            if not broken:
                raise
        for key, request in list(waiting.items()):
            found = next((broken[image] for image in request.images if image in broken), None)
            if found is not None:
                del waiting[key]
                why = f"its image cannot be shown: {found}"
                yield Response(request.question_id, request.sample, "", "failed", error=why)


def broken_images(images: Iterable[bytes | None]) -> dict[bytes, str]:
    """The images that cannot be decoded, with the reason; each distinct one is looked at once."""
    broken: dict[bytes, str] = {}
    for image in {image for image in images if image is not None}:
        try:
            check_image(image)
        except ImageError as error:
            broken[image] = str(error)
    return broken
