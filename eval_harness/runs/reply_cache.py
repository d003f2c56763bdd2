"""Replies of servers kept across runs (`--cache DIR`), and those of a run's judge: a request that is sent again in the same way to the same
model is answered from there.

The key is over everything that is sent (prompt, images, examples, system message, order, limits, options of the run), the server's address
and the model's name there, for a server says no more. Answers drawn at a temperature are not kept, except the judge's. One file per reply,
written whole, so that any number of processes may share a cache.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from eval_harness.records.request import Request, Response
from eval_harness.runs.plan import Plan
from eval_harness.runs.run_folder import AnswerId

SendRequests = Callable[[Any], Iterable[Response]]


def make_sender(plan: Plan) -> SendRequests:
    """The source of a run's responses: the back end, behind the cache if there is one.

    Raises BadInput if a cache is given and the model is not behind a server, or its folder cannot be made.
    """
    backend, model, folder = plan.backend, plan.run.request.model, plan.config.cache
    send: SendRequests = backend.score if plan.config.scores_options else backend.generate  # type: ignore[attr-defined]
    if folder is None:
        return send
    if not backend.is_api:
        raise BadInput(f"--cache: keeps replies of servers, and --model {model} is none. Leave it out.")
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


@dataclass(frozen=True)
class ReplyCache:
    """The replies of one model under the same settings, `identity`.

    `deviations`: those of the model, kept with its replies. `keeps_draws`: answers drawn at a temperature are kept too.
    """

    folder: Path
    identity: Mapping[str, Any]
    deviations: list[str]
    keeps_draws: bool

    def through(self, send: SendRequests) -> SendRequests:
        """`send`, which takes requests one by one, with what is kept answered from the cache and new answers kept."""

        def cached(requests: Iterable[Request]) -> Iterator[Response]:
            found: deque[Response] = deque()
            keys: dict[AnswerId, str] = {}

            def missing() -> Iterator[Request]:
                for request in requests:
                    key = self.key(request)
                    reply = self._read(key, request) if key else None
                    if reply:
                        found.append(reply)
                        continue
                    if key:
                        keys[request.question_id, request.sample] = key
                    yield request

            for response in send(missing()):
                while found:
                    yield found.popleft()
                key = keys.get((response.question_id, response.sample))
                if key and response.status == "answered":
                    self._write(key, response)
                yield response
            yield from found

        return cached

    def key(self, request: Request) -> str | None:
        """The key of a request; None where its answer is left to chance."""
        drawn = request.temperature > 0
        if drawn and not self.keeps_draws:
            return None
        sent = asdict(request if drawn else replace(request, question_id="", sample=0))
        del sent["answer"], sent["shown"]  # which are not sent
        return hashlib.sha256(json.dumps([self.identity, sent], sort_keys=True, default=_text).encode()).hexdigest()

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"

    def _read(self, key: str, request: Request) -> Response | None:
        """The kept reply, as an answer to this request; None where there is none, or it cannot be read."""
        try:
            kept = json.loads(self._path(key).read_bytes())
            fields = kept["response"] | {
                name: tuple(value) for name in ("scores", "usage") if (value := kept["response"][name]) is not None
            }
            reply = Response(request.question_id, request.sample, **fields, from_cache=True)
            self.deviations.extend(words for words in kept["deviations"] if words not in self.deviations)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return reply

    def _write(self, key: str, response: Response) -> None:
        names = ("text", "seconds", "scores", "usage", "reasoning", "finish_reason")
        kept = {"response": {name: getattr(response, name) for name in names}, "deviations": self.deviations}
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(kept).encode())


def _text(value: Any) -> str:
    return hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else str(value)
