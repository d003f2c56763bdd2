"""Report a run to an experiment tracker, which is off by default.

`medprobe eval --track trackio:PROJECT` (view it with `trackio show`) or `--track wandb:PROJECT`
turns it on; both libraries have the calls init, log and finish. A tracker that fails to start is
reported before the first question; one that fails later is reported once and disabled. No answers
are lost.
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
"""Supported libraries."""
LOG_INTERVAL_S = 5.0
"""Minimum number of seconds between two logs of the counts."""


class Tracker:
    """Log counts while answers arrive, and the scores at the end."""

    def __init__(self, target: str | None, run: RunRecord, share: str = "") -> None:
        """Start the tracker.

        Args:
            target: LIBRARY:PROJECT; None for a tracker that does nothing.
            run: the run; its id names the tracker's run.
            share: appended to that name, to tell the processes of one run apart.

        Raises:
            BadInput: an unknown or missing library, or a tracker that fails to start.
        """
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
        config = run.request.model_dump(mode="json") | {"run_id": run.run_id, "display_name": run.model.name}
        try:
            library.init(project=project, name=run.run_id + share, config=config)
        except Exception as error:
            raise BadInput(f"--track {target}: {name} cannot start ({type(error).__name__}: {error}).") from error
        self._library = library

    def answered(self, response: Response) -> None:
        """Count an answer; log the counts at most every `LOG_INTERVAL_S`."""
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
        """Log the scores (value, low, high) and the number of answers per status."""
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
            # Disabled from here on, so that the failure is reported once.
            library, self._library = self._library.__name__, None
            reason = f"{type(error).__name__}: {error}"
            print(f"medprobe: --track: {library} failed ({reason}); the run continues without it.", file=sys.stderr)
