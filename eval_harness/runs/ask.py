"""Asks what the journal does not hold yet; each answer is in the journal before the next one is awaited.

See also: what is asked (`plan.py`), the back ends (`models/`), questions that a model does not take (`refusals.py`).
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tqdm import tqdm

from dataset_builders.errors import BadInput
from eval_harness.records.limits import limits_for
from eval_harness.records.request import Request, Response
from eval_harness.runs.folder import AnswerJournal, Key
from eval_harness.runs.plan import Plan
from eval_harness.runs.progress import progress
from eval_harness.runs.refusals import ModelFailed, Sender
from eval_harness.runs.reply_cache import ReplyCache, Send
from eval_harness.runs.requests import AT_ONCE, Instance

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
    answered: Callable[[Response], None] = lambda response: None,
) -> int:
    """Ask what the journal does not hold of `instances`; returns how many that were. `answered` is told of each once it is in the journal.

    Raises BadInput where the back end answers what it was not asked, and where it answers nothing any more: the traceback of what it
    raised last is then in `error.txt` beside the journal.
    """
    unanswered = [instance for instance in instances if not journal.is_answered(plan.key(instance))]
    name = f"{plan.run.benchmark.name}: {plan.run.model.name}"
    with progress(len(instances), len(instances) - len(unanswered), name) as one_more:
        characters, room = 0, limits_for(len(plan.selection.questions), plan.run.request.samples).unpacked
        for number, response in enumerate(_responses(plan, journal, unanswered), 1):
            journal.append(response)
            answered(response)
            one_more()
            characters += len(response.text) + len(response.reasoning or "")
            if characters * len(plan.instances) > room * number and number >= ENOUGH:
                tqdm.write(TOO_LONG.format(characters // number, room >> 20), file=sys.stderr)
                room = sys.maxsize  # said once
            if number % AT_ONCE == 0:
                journal.sync()
        journal.sync()
    return len(unanswered)


def _responses(plan: Plan, journal: AnswerJournal, instances: list[Instance]) -> Iterator[Response]:
    """One response per instance, in any order."""
    waiting: set[Key] = set()
    model = f"--model {plan.run.request.model}"

    def noted(batches: Iterable[list[Request]]) -> Iterator[list[Request]]:
        for batch in batches:
            waiting.update((request.question_id, request.sample) for request in batch)
            yield batch

    def answered_before() -> Request | None:
        known = (instance for instance in plan.instances if journal.is_answered(plan.key(instance)))
        return next((request for instance in known for [request] in plan.requests([instance])), None)

    def by_batches() -> Iterator[Response]:
        sender = Sender(send, answered_before)
        try:
            for batch in noted(plan.requests(instances)):
                yield from sender.responses(batch)
            sender.finish()
        except ModelFailed as failed:
            raise _stopped(model, failed, journal.path.with_name("error.txt")) from failed.__cause__

    send = _send(plan)
    if plan.backend.takes_stream:
        if hasattr(plan.backend, "worked"):
            plan.backend.worked = answered_before()  # asked again before a server is given up
        responses = send(request for batch in noted(plan.requests(instances, at_once=1)) for request in batch)
    else:
        responses = by_batches()
    for response in responses:
        key = (response.question_id, response.sample)
        if key not in waiting:
            raise BadInput(
                f"{model}: answered question {key[0]}, sample {key[1]}, which was not asked, or twice. "
                "Each request must get exactly one response."
            )
        waiting.remove(key)
        yield response


def _stopped(model: str, failed: ModelFailed, path: Path) -> BadInput:
    """The one line about a model that answers nothing any more; the traceback is written to `path`."""
    error = failed.__cause__
    assert error is not None
    if isinstance(error, BadInput):
        return error
    path.write_text("".join(traceback.format_exception(error)), "utf-8")
    why = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}"
    return BadInput(
        f"{model}: has stopped answering: {failed.failures} questions in a row failed, the last one with {why}. The traceback is in "
        f"{path}; the same command goes on with what is left."
    )


def _send(plan: Plan) -> Send:
    """What answers the requests of the run: the back end, behind the cache where there is one."""
    backend = plan.backend
    send: Send = backend.score if plan.config.scores_options else backend.generate  # type: ignore[attr-defined]
    if plan.config.cache is None:
        return send
    cache = ReplyCache(plan.config.cache, plan.run, backend, getattr(backend, "base_url", None))
    return cache.through(send, streams=backend.takes_stream)
