"""Ask a judge model about the answers of a run; its replies are kept in the run folder, one small JSON file per question asked.

See also: what it is asked (`judge.py`), about which answers (`derive/reading.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dataset_builders.files import replace_file
from eval_harness.models.http.client import server_address
from eval_harness.models.http.openai_chat import OpenAIChat
from eval_harness.models.interface import Settings
from eval_harness.reader.judge import Query
from eval_harness.records.request import Request

WORKERS = 8
REPLY_TOKENS = 1024
"""Output tokens allowed to the judge's reply; one that reasons gets more."""


class Judge:
    """A judge model behind an OpenAI-compatible server, its replies cached under `cache` (one small JSON file per question asked)."""

    def __init__(self, model: str, cache: Path, base_url: str | None = None) -> None:
        self.model = model.removeprefix("openai:")
        self.cache = cache
        self.base_url = server_address(self.model, base_url)
        self._settings = Settings(base_url=self.base_url, in_flight=WORKERS)
        self._server: OpenAIChat | None = None

    @property
    def server(self) -> OpenAIChat:
        """Its server, looked for when something is asked that the cache does not hold."""
        if self._server is None:
            self._server = OpenAIChat(self.model, self._settings, called=f"--judge {self.model}")
        return self._server

    def replies(self, queries: Sequence[Query]) -> list[str | None]:
        """The judge's reply to each, many queries at a time; None where the server gave none after all tries.

        Raises BadInput when the server cannot be reached, refuses the key or the model, or has gone.
        """
        paths = [self._path(each) for each in queries]
        found = {path: _kept(path) for path in paths}
        new = {path.stem: (path, each) for path, each in zip(paths, queries, strict=True) if found[path] is None}
        requests = [
            Request(name, each.turn, each.prompt, None, (), "single", **_how(each)) for name, (_, each) in new.items()
        ]
        for response in self.server.generate(requests) if requests else ():
            if response.status == "answered":
                path = new[response.question_id][0]
                found[path] = response.text
                self.cache.mkdir(parents=True, exist_ok=True)
                kept = json.dumps({"model": self.model, "reply": response.text}, ensure_ascii=False)
                replace_file(path, kept.encode("utf-8", "replace"))
        return [found[path] for path in paths]

    def ask(self, query: Query) -> str | None:
        """The reply to one question. Raises BadInput as `replies` does."""
        return self.replies([query])[0]

    def _path(self, query: Query) -> Path:
        values = [self.model, self.base_url, query.system, query.prompt, query.temperature, query.turn]
        key = json.dumps(values, ensure_ascii=False).encode("utf-8", "replace")
        return self.cache / f"{hashlib.sha256(key).hexdigest()}.json"


def _kept(path: Path) -> str | None:
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["reply"])
    except (OSError, ValueError, KeyError):
        return None


def _how(query: Query) -> dict[str, Any]:
    return {"system": query.system, "temperature": query.temperature, "max_tokens": REPLY_TOKENS}
