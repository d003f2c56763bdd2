"""One response per request, whatever a back end raises: a batch that fails is halved, a question that fails alone, twice, is `failed`.

One question that a model or its processor cannot take (an image of 1 x 400 pixels, a prompt that is too long) must not end a run of
thousands. A model that takes nothing any more must: where many questions failed in a row, one that was answered before is asked again, and
if that fails too, the run stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from dataset_builders.errors import BadInput, with_type
from dataset_builders.images.lookup import ImageError, check_image
from eval_harness.records.request import Request, Response

IN_A_ROW = 10
"""Questions that fail one after the other before the model is put to the test."""

Send = Callable[[list[Request]], Iterable[Response]]


class ModelFailed(Exception):
    """The model answers nothing any more; `__cause__` is what it raised last, `failures` how many questions failed in a row."""

    def __init__(self, failures: int) -> None:
        super().__init__(failures)
        self.failures = failures


class Sender:
    """Sends requests to a back end and gives every one of them a response."""

    def __init__(self, send: Send, answered_before: Callable[[], Request | None]) -> None:
        """`send`: gives requests of a list no second response, and none to others. `answered_before`: a request that an earlier process got
        an answer to, None without one."""
        self._send = send
        self._answered_before = answered_before
        self._answered: Request | None = None
        self._failures = 0
        self._error: Exception | SystemExit | None = None

    def responses(self, requests: Sequence[Request]) -> Iterator[Response]:
        """One response per request, in any order.

        Raises ModelFailed where the model takes nothing, and BadInput where a back end does.
        """
        parts = [list(requests)]
        tried: set[int] = set()
        tried_others = False
        while parts:
            part = parts.pop()
            waiting = {(request.question_id, request.sample): request for request in part}
            error: Exception | SystemExit | None = None
            try:
                for response in self._send(part):
                    self._count(response, waiting.pop((response.question_id, response.sample)))
                    yield response
            except BadInput:  # nothing that another question would change
                raise
            except (Exception, SystemExit) as raised:  # whatever a model's own code raises
                error = raised
            left = list(waiting.values())
            if left:
                self._error = error or ValueError("it gave no response")
                middle = len(left) // 2
                if middle:
                    parts += [left[middle:], left[:middle]]
                elif id(left[0]) not in tried:  # what raised may have passed meanwhile
                    tried.add(id(left[0]))
                    parts.append(left)
                else:
                    self._failures += 1
                    why = _reason(left[0], self._error)
                    yield Response(left[0].question_id, left[0].sample, "", "failed", error=why)
            if self._failures >= IN_A_ROW:
                others = [] if tried_others else _spread([request for part in parts for request in part])
                if self._works():
                    self._failures = 0
                elif self._answered is None and others:
                    # Neighbours are alike: before the model is given up, questions from elsewhere are asked.
                    tried_others, first = True, {id(request) for request in others}
                    parts = [[request for request in part if id(request) not in first] for part in parts]
                    parts = [part for part in parts if part] + [[request] for request in others]
                    self._failures = 0
                else:
                    raise ModelFailed(self._failures) from self._error

    def _count(self, response: Response, request: Request) -> None:
        if response.status == "answered":
            self._failures, self._answered = 0, request
        elif response.status == "failed":
            self._failures += 1
            self._error = ValueError(response.error or "it failed")

    def finish(self) -> None:
        """Raises ModelFailed where questions failed and nothing was ever answered."""
        if self._failures and self._answered is None and self._answered_before() is None:
            raise ModelFailed(self._failures) from self._error

    def _works(self) -> bool:
        """True if the model still answers a question that it has answered."""
        known = self._answered or self._answered_before()
        if known is None:
            return False
        try:
            return any(response.status == "answered" for response in self._send([known]))
        except (Exception, SystemExit) as error:
            self._error = error
            return False


def _spread(requests: Sequence[Request]) -> list[Request]:
    """At most IN_A_ROW requests from all over a list."""
    return list(requests[:: -(-len(requests) // IN_A_ROW)]) if requests else []


def _reason(request: Request, error: Exception | SystemExit) -> str:
    """Why a question failed: its image where that cannot be decoded, else what was raised."""
    for why in broken_images(request.images).values():
        return f"its image cannot be shown: {why}"
    return with_type(error)


def broken_images(images: Iterable[bytes | None]) -> dict[bytes, str]:
    """The images that cannot be decoded, with the reason; each distinct one is looked at once."""
    broken: dict[bytes, str] = {}
    for image in {image for image in images if image is not None}:
        try:
            check_image(image)
        except ImageError as error:
            broken[image] = str(error)
    return broken
