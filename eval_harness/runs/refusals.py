"""One response per request, whatever a back end raises: a batch that fails is halved, a question that fails alone is `failed`.

One question that a model or its processor cannot take (an image of 1 x 400 pixels, a prompt that is too long) must not end a run of
thousands. A model that takes nothing any more must: where many questions failed in a row, one that was answered before is asked again, and
if that fails too, the run stops. So it does where no question of a batch was answered, nor one before.
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
        while parts:
            part = parts.pop()
            waiting = {(request.question_id, request.sample): request for request in part}
            error: Exception | SystemExit = ValueError("it gave no response")
            try:
                for response in self._send(part):
                    self._count(response, waiting.pop((response.question_id, response.sample)))
                    yield response
            except BadInput:  # nothing that another question would change
                raise
            except (Exception, SystemExit) as raised:  # whatever a model's own code raises
                error = raised
            left = list(waiting.values())
            middle = len(left) // 2
            if len(part) > 1:
                parts += [half for half in (left[middle:], left[:middle]) if half]
            elif left:
                self._failures, self._error = self._failures + 1, error
                why = _reason(left[0], error)
                yield Response(left[0].question_id, left[0].sample, "", "failed", error=why)
            if self._failures >= IN_A_ROW and self._known is not None:
                if not self._works():
                    raise ModelFailed(self._failures) from self._error
                self._failures = 0
        if self._failures and self._known is None:
            raise ModelFailed(self._failures) from self._error

    def _count(self, response: Response, request: Request) -> None:
        if response.status == "answered":
            self._failures, self._answered = 0, request
        elif response.status == "failed":
            self._failures += 1
            self._error = ValueError(response.error or "it failed")

    @property
    def _known(self) -> Request | None:
        """A request that the model has answered."""
        return self._answered or self._answered_before()

    def _works(self) -> bool:
        """True if the model still answers a question that it has answered."""
        try:
            return any(response.status == "answered" for response in self._send([self._known] if self._known else []))
        except (Exception, SystemExit) as error:
            self._error = error
            return False


def _reason(request: Request, error: Exception | SystemExit) -> str:
    """Why a question failed: its image where that cannot be decoded, else what was raised."""
    try:
        for image in request.images:
            check_image(image)
    except ImageError as broken:
        return f"its image cannot be shown: {broken}"
    return with_type(error)
