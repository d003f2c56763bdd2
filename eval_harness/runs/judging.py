"""Ask a judge model about the answers of a run; its replies are kept in the run folder, so that it is asked nothing twice.

See also: what it is asked (`judge.py`), about which answers (`derive/reading.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from eval_harness.models.http.client import server_address
from eval_harness.models.http.openai_chat import OpenAIChat
from eval_harness.models.interface import Settings
from eval_harness.reader.judge import Query
from eval_harness.records.request import Request, Response
from eval_harness.runs.reply_cache import ReplyCache

WORKERS = 8
REPLY_TOKENS = 1024
"""Output tokens allowed to the judge's reply; one that reasons gets more."""


class Judge:
    """A judge model behind an OpenAI-compatible server, its replies kept under `cache`."""

    def __init__(self, model: str, cache: Path, base_url: str | None = None) -> None:
        self.model = model.removeprefix("openai:")
        self._settings = Settings(base_url=server_address(self.model, base_url), in_flight=WORKERS)
        self._cache = ReplyCache(cache, {"model": self.model, "server": self._settings.base_url}, [], keeps_draws=True)

    def replies(self, queries: Sequence[Query]) -> list[str | None]:
        """The judge's reply to each, many queries at a time; None where the server gave none after all tries.

        The server is looked for when something is asked that the cache does not hold. Raises BadInput when it cannot be reached, refuses
        the key or the model, or has gone.
        """
        asked = {each: _request(each) for each in queries}
        responses = self._cache.through(self._ask, streams=False)(asked.values())
        found = {(each.question_id, each.sample): each.text for each in responses if each.status == "answered"}
        return [found.get((asked[each].question_id, each.turn)) for each in queries]

    def _ask(self, requests: Iterable[Request]) -> Iterator[Response]:
        return OpenAIChat(self.model, self._settings, called=f"--judge {self.model}").generate(requests)


def _request(query: Query) -> Request:
    """A query as a request; its question's id is what is asked."""
    return Request(
        f"{query.system}\0{query.prompt}",
        query.turn,
        query.prompt,
        None,
        (),
        "single",
        system=query.system,
        temperature=query.temperature,
        max_tokens=REPLY_TOKENS,
    )
