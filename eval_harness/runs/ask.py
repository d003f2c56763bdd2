"""Ask the questions that are not in the journal yet; each answer is in the journal before the next one is awaited.

One question that a model or its processor cannot take (an image of 1 x 400 pixels, a prompt that is too long) must not end a run of
thousands: a batch that fails is halved, a question that fails alone is `failed`. A model that takes nothing any more must: where many
questions failed in a row, one that was answered before is asked again, and if that fails too, the run stops. So it does where no question
of a batch was answered, nor one before.

See also: what is asked (`plan.py`), the back ends (`models/`).
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from dataset_builders.errors import BadInput, describe_error
from dataset_builders.images.lookup import ImageError
from dataset_builders.images.picture import make_picture
from eval_harness.records.limits import limits_for
from eval_harness.records.request import Request, Response, normalize_response
from eval_harness.runs.plan import Plan
from eval_harness.runs.reply_cache import SendRequests
from eval_harness.runs.requests import MAX_REQUESTS_PER_BATCH, Instance
from eval_harness.runs.run_folder import AnswerId, AnswerJournal

PROGRESS_INTERVAL_S = 30.0
"""Without a terminal (Slurm, CI), progress is printed as a line at this interval, and at each twentieth."""

MAX_CONSECUTIVE_FAILURES = 10
"""Consecutive failures after which the model is tested with a question that it has answered."""

MIN_ANSWERS_FOR_ESTIMATE = 20
"""Number of answers after which their length is used as an estimate for the others."""
TOO_LONG_WARNING = (
    "The answers have {:,} characters on average: all of them will be more than the {:,} MB that a results store takes of this run. "
    "Stop it and ask with a smaller --max-tokens or fewer --samples, if it is to be submitted."
)


def ask(
    plan: Plan,
    journal: AnswerJournal,
    instances: list[Instance],
    send: SendRequests,
    answered: Callable[[Response], None] = lambda response: None,
) -> int:
    """Ask those of `instances` that are not in the journal through `send` (`reply_cache.sender_of`); returns their number. `answered` is
    told of each once it is in the journal.

    Raises BadInput if the back end answers what it was not asked, or stops answering: the traceback of what it
    raised last is then in `error.txt` beside the journal.
    """
    unanswered = [instance for instance in instances if not journal.is_answered(plan.key(instance))]
    name = f"{plan.run.benchmark.name}: {plan.run.model.name}"
    done = len(instances) - len(unanswered)
    if done:
        print(f"{done:,} of {len(instances):,} answers were already there.", file=sys.stderr)
    start, part = time.monotonic(), -(-len(instances) // 20)
    said = start
    with tqdm(total=len(instances), initial=done, desc=name, unit="answer", file=sys.stderr, disable=None) as bar:
        characters, room = 0, limits_for(len(plan.selection.questions), plan.run.request.samples).unpacked
        for number, response in enumerate(_responses(plan, journal, unanswered, send), 1):
            journal.append(response)
            answered(response)
            bar.update()
            if bar.disable and (time.monotonic() - said >= PROGRESS_INTERVAL_S or not number % part):
                said = time.monotonic()
                line = tqdm.format_meter(
                    done + number, len(instances), said - start, prefix=name, unit="answer", initial=done
                )
                print(line, file=sys.stderr)
            characters += len(response.text) + len(response.reasoning or "")
            if characters * len(plan.instances) > room * number and number >= MIN_ANSWERS_FOR_ESTIMATE:
                tqdm.write(TOO_LONG_WARNING.format(characters // number, room >> 20), file=sys.stderr)
                room = sys.maxsize  # said once
            if number % MAX_REQUESTS_PER_BATCH == 0:
                journal.sync()
        journal.sync()
    return len(unanswered)


def _responses(plan: Plan, journal: AnswerJournal, instances: list[Instance], send: SendRequests) -> Iterator[Response]:
    """One response per instance, in any order."""

    def answered_before() -> Request | None:
        known = (instance for instance in plan.instances if journal.is_answered(plan.key(instance)))
        return next((request for instance in known for [request] in plan.requests([instance])), None)

    checked = _checked(plan, send)
    if plan.backend.takes_stream:
        if hasattr(plan.backend, "worked") and hasattr(plan.backend, "look"):
            plan.backend.worked = answered_before()  # asked again before giving up on a server
            begins = plan.backend.worked is None and instances[:1] == plan.instances[:1]
            plan.backend.look = begins and plan.shows_images and not plan.config.settings.no_look
        yield from checked(request for batch in plan.requests(instances, at_once=1) for request in batch)
        return
    sender = Sender(checked, answered_before)
    try:
        for batch in plan.requests(instances):
            yield from sender.responses(batch)
    except ModelFailed as failed:
        raise _stopped(plan, failed, journal.path.with_name("error.txt")) from failed.__cause__


def _checked(plan: Plan, send: SendRequests) -> SendRequests:
    """`send` with responses in plain Python types. Raises TypeError for anything but a response, ValueError for an invalid text, status or
    scores, BadInput for a response that was not requested."""
    waiting: dict[AnswerId, tuple[int, tuple[str, ...]]] = {}

    def noted(requests: Iterable[Request]) -> Iterator[Request]:
        for request in requests:
            waiting[request.question_id, request.sample] = len(request.options), request.shown
            yield request

    def checked(requests: Iterable[Request]) -> Iterator[Response]:
        for response in send(noted(requests) if plan.backend.takes_stream else list(noted(requests))):
            if not isinstance(response, Response):
                raise TypeError(f"it gave {repr(response)[:50]} instead of a Response (docs/plug_in.md)")
            key = (response.question_id, response.sample)
            if key not in waiting:
                raise BadInput(
                    f"--model {plan.run.request.model}: answered question {key[0]}, sample {key[1]}, which was not asked, or twice. "
                    "Each request must get exactly one response."
                )
            options, shown = waiting.pop(key)
            yield normalize_response(replace(response, shown=shown), options)

    return checked


def _stopped(plan: Plan, failed: ModelFailed, path: Path) -> BadInput:
    """The one-line error about a model that has stopped answering; the traceback is written to `path`."""
    error = failed.__cause__
    assert error is not None
    if isinstance(error, BadInput):
        return error
    path.write_text("".join(traceback.format_exception(error)), "utf-8")
    why = describe_error(error)
    return BadInput(
        f"--model {plan.run.request.model}: has stopped answering: {failed.failures} questions in a row failed, the last one with {why}. "
        f"The traceback is in {path}; the same command resumes the run."
    )


class ModelFailed(Exception):
    """The model has stopped answering; `__cause__` is its last exception, `failures` the number of consecutive failures."""

    def __init__(self, failures: int) -> None:
        super().__init__(failures)
        self.failures = failures


class Sender:
    """Sends requests to a back end and gives every one of them a response."""

    def __init__(self, send: SendRequests, answered_before: Callable[[], Request | None]) -> None:
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
            except BadInput:  # another question would fail in the same way
                raise
            except (Exception, SystemExit) as raised:  # a model's own code may raise anything
                error = raised
            left = list(waiting.values())
            middle = len(left) // 2
            if len(part) > 1:
                parts += [half for half in (left[middle:], left[:middle]) if half]
            elif left:
                self._failures, self._error = self._failures + 1, error
                yield Response(left[0].question_id, left[0].sample, "", "failed", error=_reason(left[0], error))
            if self._failures >= MAX_CONSECUTIVE_FAILURES and self._known is not None:
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
    """Why a question failed: its image if it cannot be decoded, else the exception."""
    try:
        for image in request.images:
            make_picture(image)
    except ImageError as broken:
        return f"its image cannot be shown: {broken}"
    return describe_error(error)
