"""Keep servers' replies across runs (`--cache DIR`), and those of a run's judge.

A request that is sent again in the same way to the same model is answered from the cache. The key
covers everything that is sent (prompt, images, examples, system message, option order, limits,
options of the run), the server's address and the name of the model there; no more is known about a
model behind a server. Sampled answers are not kept, except the judge's. Each reply has a file,
which is replaced atomically, so any number of processes may share a cache.
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dataset_builders.files import replace_file
from eval_harness.records.request import Request, Response
from eval_harness.runs.run_folder import AnswerId

SendRequests = Callable[[Any], Iterable[Response]]
"""Function from requests to responses, with at most one response per request."""


@dataclass(frozen=True)
class ReplyCache:
    """The stored replies of one model with the same settings.

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
