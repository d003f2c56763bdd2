"""Send the unanswered questions of a run to the model and write every response to the journal.

Each response is written before the next one is awaited, so a killed run loses nothing.

One bad question (an image of 1 x 400 pixels, a prompt longer than the context) must not end a run
of thousands: a batch that raises is split in half, and a question that fails alone is recorded as
`failed`. A model that has stopped working does end the run: after several consecutive failures, a
previously answered question is sent again, and if that fails too, the run stops. It also stops if
a batch has failures and no question has been answered so far.

`ReplyCache` keeps servers' replies across runs (`--cache DIR`), and those of a run's judge.

See also: what is asked (`plan.py`), the back ends (`models/`).
"""

import hashlib
import json
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from dataset_builders.errors import BadInput, describe_error
from dataset_builders.files import replace_file
from dataset_builders.images.lookup import ImageError
from dataset_builders.images.picture import make_picture
from eval_harness.records.limits import limits_for
from eval_harness.records.request import Request, Response, normalize_response
from eval_harness.runs.plan import Plan
from eval_harness.runs.requests import Instance
from eval_harness.runs.run_folder import AnswerId, AnswerJournal

PROGRESS_INTERVAL_S = 30.0
"""Without a terminal (Slurm, CI), a progress line is printed this often, and at every 5 %."""

SYNC_INTERVAL_S = 1.0
"""Answers are forced to disk at most this often."""

MAX_CONSECUTIVE_FAILURES = 10
"""After this many consecutive failures, a question that the model has answered is sent again."""

MIN_ANSWERS_FOR_ESTIMATE = 20
"""With at least this many answers, their mean length gives an estimate for the whole run."""

TOO_LONG_WARNING = (
    "The answers average {:,} characters: together they will exceed the {:,} MB that a results "
    "store accepts for this run. "
    "If it is to be submitted, stop it and run again with a smaller --max-tokens or fewer "
    "--samples."
)

SendRequests = Callable[[Any], Iterable[Response]]
"""Function from requests to responses, with at most one response per request."""


def make_sender(plan: Plan) -> SendRequests:
    """Return the function that sends a run's requests, through the cache if there is one.

    Raises BadInput if a cache is given but the model is not behind a server, or if the cache's
    folder cannot be created.
    """
    backend, model, folder = plan.backend, plan.run.request.model, plan.config.cache
    send: SendRequests = backend.score if plan.config.scores_options else backend.generate  # type: ignore[attr-defined]
    if folder is None:
        return send
    if backend.is_local:
        raise BadInput(
            f"--cache: keeps replies of servers, and --model {model} runs here. Omit it; a repeated command asks only what has no answer."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--cache {folder}: cannot be written ({error.strerror}). Give another folder.") from None
    identity = {
        "model": model,
        "server": getattr(backend, "base_url", None),
        "method": plan.run.request.method,
        "generation": plan.run.request.generation,
    }
    return ReplyCache(folder, identity, backend.deviations, keeps_draws=False).through(send)


def ask(
    plan: Plan,
    journal: AnswerJournal,
    instances: list[Instance],
    send: SendRequests,
) -> int:
    """Send the `instances` that are not in the journal yet.

    Args:
        plan: the run.
        journal: the journal to which responses are appended.
        instances: (row, sample) pairs of this process.
        send: function from requests to responses (`make_sender`).

    Returns:
        The number of instances that were sent.

    Raises:
        BadInput: the back end answered something that it was not asked, or has stopped answering.
            In the latter case the traceback of its last exception is in `error.txt` next to the
            journal.
    """
    unanswered = [instance for instance in instances if not journal.is_answered(plan.key(instance))]
    name = f"{plan.run.benchmark.name}: {plan.run.model.name}"
    already_answered = len(instances) - len(unanswered)
    if already_answered:
        print(f"{already_answered:,} of {len(instances):,} answers were already there.", file=sys.stderr)
    started_at, report_every = time.monotonic(), -(-len(instances) // 20)
    last_report = last_sync = started_at
    # Without a terminal tqdm is disabled and lines are printed instead.
    with tqdm(
        total=len(instances), initial=already_answered, desc=name, unit="answer", file=sys.stderr, disable=None
    ) as bar:
        characters, byte_limit = 0, limits_for(len(plan.selection.questions), plan.run.request.samples).unpacked
        for number, response in enumerate(_responses(plan, journal, unanswered, send), 1):
            journal.append(response)
            bar.update()
            if bar.disable and (time.monotonic() - last_report >= PROGRESS_INTERVAL_S or not number % report_every):
                last_report = time.monotonic()
                line = tqdm.format_meter(
                    already_answered + number,
                    len(instances),
                    last_report - started_at,
                    prefix=name,
                    unit="answer",
                    initial=already_answered,
                )
                print(line, file=sys.stderr)
            characters += len(response.text) + len(response.reasoning or "")
            # Extrapolate to the whole run, and warn once.
            if characters * len(plan.instances) > byte_limit * number and number >= MIN_ANSWERS_FOR_ESTIMATE:
                tqdm.write(TOO_LONG_WARNING.format(characters // number, byte_limit >> 20), file=sys.stderr)
                byte_limit = sys.maxsize
            # Sync regularly, so that a power failure loses at most the answers of a second.
            if time.monotonic() - last_sync >= SYNC_INTERVAL_S:
                journal.sync()
                last_sync = time.monotonic()
        journal.sync()
    return len(unanswered)


def _responses(plan: Plan, journal: AnswerJournal, instances: list[Instance], send: SendRequests) -> Iterator[Response]:
    """Yield one response per instance, in any order."""

    def answered_before() -> Request | None:
        answered_instances = (instance for instance in plan.instances if journal.is_answered(plan.key(instance)))
        return next((request for instance in answered_instances for [request] in plan.requests([instance])), None)

    checked = _checked(plan, send)
    if plan.backend.takes_stream:
        backend: Any = plan.backend
        if hasattr(backend, "probe_images"):
            # Sent again before the server is given up.
            backend.answered_request = answered_before()
            begins = backend.answered_request is None and instances[:1] == plan.instances[:1]
            backend.probe_images = begins and plan.shows_images and not plan.config.settings.no_look
        yield from checked(plan.stream(instances))
        return
    error_file = journal.path.with_name("error.txt")
    sender = Sender(checked, answered_before, f"--model {plan.run.request.model}", error_file)
    for batch in plan.requests(instances):
        yield from sender.responses(batch)


def _checked(plan: Plan, send: SendRequests) -> SendRequests:
    """Wrap `send` so that every response is validated and converted to plain Python types.

    Raises TypeError if a response is not a Response, ValueError if its text, status or scores are
    invalid, and BadInput if it was not requested.
    """
    pending: dict[AnswerId, tuple[int, tuple[str, ...]]] = {}

    def register(requests: Iterable[Request]) -> Iterator[Request]:
        # Requests are consumed lazily: a server's back end pulls them while responses arrive.
        for request in requests:
            pending[request.question_id, request.sample] = len(request.options), request.shown
            yield request

    def checked(requests: Iterable[Request]) -> Iterator[Response]:
        for response in send(register(requests) if plan.backend.takes_stream else list(register(requests))):
            if not isinstance(response, Response):
                raise TypeError(f"returned {repr(response)[:50]} instead of a Response (docs/plug_in.md)")
            key = (response.question_id, response.sample)
            if key not in pending:
                raise BadInput(
                    f"--model {plan.run.request.model}: answered question {key[0]}, sample "
                    f"{key[1]}, which was not requested or was already answered. "
                    "Return exactly one response per request."
                )
            options, shown_image_ids = pending.pop(key)
            yield normalize_response(replace(response, shown=shown_image_ids), options)

    return checked


class Sender:
    """Send batches to a back end and produce exactly one response per request."""

    def __init__(
        self, send: SendRequests, answered_before: Callable[[], Request | None], label: str, error_file: Path
    ) -> None:
        """Initialize.

        Args:
            send: yields at most one response for each request in a list, and no others.
            answered_before: returns a request that was answered earlier in the run, or None.
            label: the option that named the model, for messages.
            error_file: where the traceback of a model that has stopped answering is written.
        """
        self._send, self._answered_before = send, answered_before
        self._label, self._error_file = label, error_file
        self._answered: Request | None = None
        self._failures = 0
        self._error: Exception | SystemExit = ValueError("no response was returned")

    def responses(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Yield one response per request, in any order.

        Raises BadInput if the model has stopped answering. A BadInput of the back end is passed on.
        """
        batches = [list(requests)]
        while batches:
            batch = batches.pop()
            pending = {(request.question_id, request.sample): request for request in batch}
            error: Exception | SystemExit = ValueError("no response was returned")
            try:
                for response in self._send(batch):
                    self._count(response, pending.pop((response.question_id, response.sample)))
                    yield response
            except BadInput:  # every other question would fail in the same way
                raise
            except (Exception, SystemExit) as raised:  # the code of a model may raise anything
                error = raised
            # Split the unanswered rest of the batch; only a question that fails alone has failed.
            unanswered = list(pending.values())
            half = len(unanswered) // 2
            if len(batch) > 1:
                batches += [batch_half for batch_half in (unanswered[half:], unanswered[:half]) if batch_half]
            elif unanswered:
                self._failures, self._error = self._failures + 1, error
                yield Response(
                    unanswered[0].question_id, unanswered[0].sample, "", "failed", error=_reason(unanswered[0], error)
                )
            if self._failures >= MAX_CONSECUTIVE_FAILURES and self._known is not None:
                if not self._works():
                    raise self._stopped() from self._error
                self._failures = 0
        if self._failures and self._known is None:
            raise self._stopped() from self._error

    def _count(self, response: Response, request: Request) -> None:
        if response.status == "answered":
            self._failures, self._answered = 0, request
        elif response.status == "failed":
            self._failures += 1
            self._error = ValueError(response.error or "the request failed")

    @property
    def _known(self) -> Request | None:
        """A request that the model has already answered; None if there is none."""
        return self._answered or self._answered_before()

    def _works(self) -> bool:
        """Whether the model still answers a question that it has answered before."""
        try:
            return any(response.status == "answered" for response in self._send([self._known] if self._known else []))
        except (Exception, SystemExit) as error:
            self._error = error
            return False

    def _stopped(self) -> BadInput:
        """Return the error for a model that has stopped answering; write its traceback."""
        if isinstance(self._error, BadInput):
            return self._error
        self._error_file.write_text("".join(traceback.format_exception(self._error)), "utf-8")
        return BadInput(
            f"{self._label}: stopped answering: {self._failures} questions in a "
            f"row failed, the last one with {describe_error(self._error)}. "
            f"The traceback is in {self._error_file}; the same command resumes the run."
        )


def _reason(request: Request, error: Exception | SystemExit) -> str:
    """Return why a question failed: an image that cannot be decoded, or else the exception."""
    try:
        for image in request.images:
            make_picture(image)
    except ImageError as broken:
        return f"its image cannot be shown: {broken}"
    return describe_error(error)


# --- replies kept across runs ---


@dataclass(frozen=True)
class ReplyCache:
    """The stored replies of one model with the same settings.

    The key covers everything that is sent (prompt, images, examples, system message, option order,
    limits, options of the run), the server's address, and the model's name there; no more is known
    about a model behind a server. Each reply is a file, replaced atomically, so any number of
    processes may share a cache.

    Attributes:
        folder: Folder of the files.
        identity: What tells this model and these settings from others; part of every key.
        deviations: The model's deviations, which are stored with its replies.
        keeps_draws: Whether sampled answers are kept as well.
    """

    folder: Path
    identity: Mapping[str, Any]
    deviations: list[str]
    keeps_draws: bool

    def through(self, send: SendRequests) -> SendRequests:
        """Wrap `send`: answer known requests from the cache and add new replies to it."""

        def cached(requests: Iterable[Request]) -> Iterator[Response]:
            hits: deque[Response] = deque()
            keys: dict[AnswerId, str] = {}

            def cache_misses() -> Iterator[Request]:
                for request in requests:
                    key = self.key(request)
                    reply = self._read(key, request) if key else None
                    if reply:
                        hits.append(reply)
                        continue
                    # Remembered until the response arrives, which need not be in this order.
                    if key:
                        keys[request.question_id, request.sample] = key
                    yield request

            # Hits are found while the back end pulls requests, so yield them between its responses.
            for response in send(cache_misses()):
                while hits:
                    yield hits.popleft()
                key = keys.get((response.question_id, response.sample))
                if key and response.status == "answered":
                    self._write(key, response)
                yield response
            yield from hits

        return cached

    def key(self, request: Request) -> str | None:
        """Return the key of a request, or None if its answer is sampled and will not be kept."""
        is_sampled = request.temperature > 0
        if is_sampled and not self.keeps_draws:
            return None
        # Questions that send the same content share a deterministic reply, but not a sampled one.
        payload = asdict(request if is_sampled else replace(request, question_id="", sample=0))
        del payload["answer"], payload["shown"], payload["question"]  # not part of what is sent
        return hashlib.sha256(json.dumps([self.identity, payload], sort_keys=True, default=_text).encode()).hexdigest()

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"

    def _read(self, key: str, request: Request) -> Response | None:
        """Return the stored reply as a response to this request; None if absent or unreadable."""
        try:
            document = json.loads(self._path(key).read_bytes())
            fields = document["response"] | {
                # JSON has no tuples.
                name: tuple(value)
                for name in ("scores", "usage")
                if (value := document["response"][name]) is not None
            }
            reply = Response(request.question_id, request.sample, **fields, from_cache=True)
            # A run answered from the cache deviates as the run that asked the server did.
            self.deviations.extend(words for words in document["deviations"] if words not in self.deviations)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return reply

    def _write(self, key: str, response: Response) -> None:
        names = ("text", "seconds", "scores", "usage", "reasoning", "finish_reason")
        document = {"response": {name: getattr(response, name) for name in names}, "deviations": self.deviations}
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(document).encode())


def _text(value: Any) -> str:
    return hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else str(value)
