"""Tracking a run while it goes, off by default: `medprobe eval --track trackio:PROJECT` (`trackio show` draws it) or `wandb:PROJECT`.

Both libraries take the same calls: init, log, finish. What is tracked never decides anything: a tracker that cannot begin is said before
the first question, and one that breaks later is said once and left alone, so that no answer is lost for it.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections import Counter
from typing import Any

from dataset_builders.errors import BadInput
from dataset_builders.extras import missing_extra
from eval_harness.records.request import Response
from eval_harness.records.result import Result
from eval_harness.records.run import RunRecord

TRACKERS = ("trackio", "wandb")
LOG_INTERVAL_S = 5.0
"""At most so often are counts sent while a run goes."""


class Tracker:
    """Sends counts while answers come, and the scores at the end. Without a `target` it does nothing."""

    def __init__(self, target: str | None, run: RunRecord, share: str = "") -> None:
        """`target`: LIBRARY:PROJECT. Raises BadInput for another one, a library that is not there, and a tracker that cannot begin."""
        self._library: Any = None
        self._counts: Counter[str] = Counter()
        self._sent = time.monotonic()
        if target is None:
            return
        name, _, project = target.partition(":")
        if name not in TRACKERS or not project:
            raise BadInput(f"--track {target}: give {' or '.join(f'{each}:PROJECT' for each in TRACKERS)}.")
        try:
            library = importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise missing_extra(error) or BadInput(
                f"--track {target}: {name} is not installed here. Install it: pip install {name}."
            ) from None
        told = run.request.model_dump(mode="json") | {"run_id": run.run_id, "display_name": run.model.name}
        try:
            library.init(project=project, name=run.run_id + share, config=told)
        except Exception as error:
            raise BadInput(f"--track {target}: {name} cannot start ({type(error).__name__}: {error}).") from error
        self._library = library

    def answered(self, response: Response) -> None:
        """Count an answer, and send the counts now and then."""
        if self._library is None:
            return
        self._counts["answers"] += 1
        self._counts[response.status] += 1
        if response.usage is not None:
            self._counts["tokens_in"] += response.usage[0]
            self._counts["tokens_out"] += response.usage[1]
        if time.monotonic() - self._sent >= LOG_INTERVAL_S:
            self._sent = time.monotonic()
            self._call("log", dict(self._counts))

    def scored(self, result: Result) -> None:
        """Send the scores: value, low and high of each, and how many answers have which status."""
        numbers = {
            f"{name}/{part}": number
            for name, score in result.scores.items()
            for part in ("value", "low", "high")
            if (number := getattr(score, part)) is not None
        }
        self._call("log", numbers | {f"statuses/{name}": count for name, count in result.statuses.items()})

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, *error: object) -> None:
        if self._counts:
            self._call("log", dict(self._counts))
        self._call("finish")

    def _call(self, name: str, *arguments: Any) -> None:
        if self._library is None:
            return
        try:
            getattr(self._library, name)(*arguments)
        except Exception as error:
            library, self._library = self._library.__name__, None
            said = f"{type(error).__name__}: {error}"
            print(f"medprobe: --track: {library} failed ({said}); the run continues without it.", file=sys.stderr)
