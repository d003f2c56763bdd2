"""Scores that are claimed on the Hub: the leaderboards of our datasets there, and the evaluation results that models' repositories state.

Asked in the background, kept on disk, and never waited for by a page; off unless datasets are named (the variable `MEDPROBE_CLAIMS`).
Nothing here was computed by us: the board shows it apart. See also: what we publish there (`eval_harness/store/publish_score.py`).
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResultEntry, HfApi

from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from dataset_builders.hub.client import Unavailable, check_repo_id, connect, hub_errors

VARIABLE = "MEDPROBE_CLAIMS"
RECHECK_SECONDS = 900.0
MOST_MODELS = 500
"""Models of a dataset whose own statements are asked for."""


@dataclass(frozen=True)
class Claim:
    """One number somebody states: `value` as stated, `task` of `dataset`'s eval.yaml. `verified`: by the Hub; else by the community.
    `pull_request`: the open one that states it, None where the model's own main does."""

    dataset: str
    task: str
    model: str
    value: float
    verified: bool
    filename: str
    pull_request: int | None = None
    notes: str | None = None
    source: str | None = None


def ask(dataset: str) -> list[Claim]:
    """What the Hub shows for a dataset, now. Raises Unavailable or BadInput where it shows nothing (no such dataset, no leaderboard)."""
    api = connect()
    with hub_errors(dataset, "read its leaderboard"):
        rows = api.get_dataset_leaderboard(dataset, base_model_only=False, timeout=20)
    tasks: dict[tuple[str, float], list[str]] = {}
    for model in list(dict.fromkeys(row.model_id for row in rows))[:MOST_MODELS]:
        for stated in _statements(api, model):
            if stated.dataset_id == dataset and isinstance(stated.value, int | float):
                tasks.setdefault((model, float(stated.value)), []).append(stated.task_id)
    found = []
    for row in rows:
        value = float(row.value)
        if math.isfinite(value):
            waiting = tasks.get((row.model_id, value)) or [""]
            task = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            url = (row.source or {}).get("url")
            found.append(
                Claim(
                    dataset,
                    task,
                    row.model_id,
                    value,
                    bool(row.verified),
                    row.filename,
                    row.pull_request,
                    row.notes,
                    url,
                )
            )
    return found


def _statements(api: HfApi, model: str) -> Sequence[EvalResultEntry]:
    """What a model's repository states; nothing where it is gone or private by now. Raises Unavailable where the Hub cannot be asked."""
    try:
        with hub_errors(model, "read its evaluation results"):
            return api.model_info(model, expand=["evalResults"]).eval_results or ()
    except Unavailable:
        raise
    except BadInput:
        return ()


class Claims:
    """The claims of some datasets, as last heard. `watch` asks again now and then; what was heard outlives a restart. Thread-safe."""

    def __init__(self, datasets: Sequence[str] = (), folder: Path | None = None) -> None:
        for dataset in datasets:
            check_repo_id(dataset)
        self.datasets = tuple(dict.fromkeys(datasets))
        self.problems: dict[str, str] = {}
        self._file = (folder or Path(tempfile.gettempdir()) / f"medprobe-claims-{os.getuid()}") / "claims.json"
        self._heard = self._kept() if self.datasets else {}
        self._lock = threading.Lock()

    @classmethod
    def configured(cls) -> Claims:
        """Of the datasets that the environment variable names, separated by blanks; of none without it."""
        return cls(os.environ.get(VARIABLE, "").split())

    def current(self) -> list[Claim]:
        """What was heard last, dataset by dataset."""
        with self._lock:
            return [claim for dataset in self.datasets for claim in self._heard.get(dataset, [])]

    def refresh(self) -> None:
        """Ask the Hub about every dataset; one that cannot be asked keeps what was heard before, and its problem is said."""
        for dataset in self.datasets:
            try:
                heard = ask(dataset)
            except BadInput as error:
                self.problems[dataset] = str(error)
                continue
            self.problems.pop(dataset, None)
            with self._lock:
                self._heard[dataset] = heard
        document = {dataset: [asdict(claim) for claim in claims] for dataset, claims in self._heard.items()}
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._file, json.dumps(document).encode())
        except OSError as error:
            self.problems["disk"] = f"{self._file}: cannot be written ({error.strerror})"

    def watch(self) -> None:
        """Ask in the background, now and again and again; does nothing where no dataset is named."""

        def loop() -> None:
            while True:
                try:
                    self.refresh()
                except (
                    Exception
                ) as error:  # a Hub that answers nonsense must not take the board down: it is reported instead
                    self.problems["Hub"] = f"{type(error).__name__}: {error}"
                time.sleep(RECHECK_SECONDS)

        if self.datasets:
            threading.Thread(target=loop, name="claims", daemon=True).start()

    def _kept(self) -> dict[str, list[Claim]]:
        try:
            document: dict[str, list[dict[str, Any]]] = json.loads(self._file.read_bytes())
            return {dataset: [Claim(**row) for row in rows] for dataset, rows in document.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}
