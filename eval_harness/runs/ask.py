"""Ask what the journal does not hold yet; each answer is in the journal before the next one is awaited.

See also: what is asked (`plan.py`), the back ends (`models/`), questions that a model does not take (`refusals.py`).
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from dataset_builders.errors import BadInput, with_type
from eval_harness.records.limits import limits_for
from eval_harness.records.request import Request, Response, normalized
from eval_harness.runs.folder import AnswerJournal, Key
from eval_harness.runs.plan import Plan
from eval_harness.runs.refusals import ModelFailed, Sender
from eval_harness.runs.reply_cache import Send
from eval_harness.runs.requests import AT_ONCE, Instance

EVERY_SECONDS = 30.0
"""Where there is no terminal (Slurm, CI), progress is a line so often, and at each twentieth."""

ENOUGH = 20
"""Answers from which on their length is taken for that of the others."""
TOO_LONG = (
    "The answers have {:,} characters on average: all of them will be more than the {:,} MB that a results store takes of this run. "
    "Stop it and ask with a smaller --max-tokens or fewer --samples, if it is to be submitted."
)


def ask(
    plan: Plan,
    journal: AnswerJournal,
    instances: list[Instance],
    send: Send,
    answered: Callable[[Response], None] = lambda response: None,
) -> int:
    """Ask what the journal does not hold of `instances` through `send` (`reply_cache.sender_of`); returns how many that were. `answered` is
    told of each once it is in the journal.

    Raises BadInput where the back end answers what it was not asked, and where it answers nothing any more: the traceback of what it
    raised last is then in `error.txt` beside the journal.
    """
    unanswered = [instance for instance in instances if not journal.is_answered(plan.key(instance))]
    name = f"{plan.run.benchmark.name}: {plan.run.model.name}"
    done = len(instances) - len(unanswered)
    start, part = time.monotonic(), -(-len(instances) // 20)
    said = start
    with tqdm(total=len(instances), initial=done, desc=name, unit="answer", file=sys.stderr, disable=None) as bar:
        characters, room = 0, limits_for(len(plan.selection.questions), plan.run.request.samples).unpacked
        for number, response in enumerate(_responses(plan, journal, unanswered, send), 1):
            journal.append(response)
            answered(response)
            bar.update()
            if bar.disable and (time.monotonic() - said >= EVERY_SECONDS or not number % part):
                said = time.monotonic()
                line = tqdm.format_meter(
                    done + number, len(instances), said - start, prefix=name, unit="answer", initial=done
                )
                print(line, file=sys.stderr)
            characters += len(response.text) + len(response.reasoning or "")
            if characters * len(plan.instances) > room * number and number >= ENOUGH:
                tqdm.write(TOO_LONG.format(characters // number, room >> 20), file=sys.stderr)
                room = sys.maxsize  # said once
            if number % AT_ONCE == 0:
                journal.sync()
        journal.sync()
    return len(unanswered)


def _responses(plan: Plan, journal: AnswerJournal, instances: list[Instance], send: Send) -> Iterator[Response]:
    """One response per instance, in any order."""

    def answered_before() -> Request | None:
        known = (instance for instance in plan.instances if journal.is_answered(plan.key(instance)))
        return next((request for instance in known for [request] in plan.requests([instance])), None)

    checked = _checked(plan, send)
    if plan.backend.takes_stream:
        if hasattr(plan.backend, "worked"):
            plan.backend.worked = answered_before()  # asked again before a server is given up
        yield from checked(request for batch in plan.requests(instances, at_once=1) for request in batch)
        return
    sender = Sender(checked, answered_before)
    try:
        for batch in plan.requests(instances):
            yield from sender.responses(batch)
    except ModelFailed as failed:
        raise _stopped(plan, failed, journal.path.with_name("error.txt")) from failed.__cause__


def _checked(plan: Plan, send: Send) -> Send:
    """`send` with responses in plain Python types. Raises TypeError for what is no response, ValueError for a text, status or scores that
    are none, BadInput for a response that was not asked for."""
    waiting: dict[Key, tuple[int, tuple[str, ...]]] = {}

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
            yield normalized(replace(response, shown=shown), options)

    return checked


def _stopped(plan: Plan, failed: ModelFailed, path: Path) -> BadInput:
    """The one line about a model that answers nothing any more; the traceback is written to `path`."""
    error = failed.__cause__
    assert error is not None
    if isinstance(error, BadInput):
        return error
    path.write_text("".join(traceback.format_exception(error)), "utf-8")
    why = with_type(error)
    return BadInput(
        f"--model {plan.run.request.model}: has stopped answering: {failed.failures} questions in a row failed, the last one with {why}. "
        f"More is in {path}; the same command goes on with what is left."
    )
