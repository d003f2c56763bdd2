"""The two sides of a hidden test: its questions without answers, which anybody may read, and the private key.

What goes wrong with the key is said without a word of it.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.errors import BadInput, clip
from dataset_builders.files import temporary_folder
from dataset_builders.fingerprints import fingerprint_of
from dataset_builders.hub.client import connect_with_token, hub_errors, quiet, with_retries
from dataset_builders.hub.repository import open_repository
from dataset_builders.schema import SCHEMA_VERSION
from eval_harness.benchmarks import spec
from eval_harness.store.hidden_test.ledger import private_head
from eval_harness.store.scan import is_hub_store

FORMAT = next(name for name in BENCHMARKS if spec(name).hidden_split is not None)
SPLIT, METRICS = str(spec(FORMAT).hidden_split), spec(FORMAT).hidden_metrics
"""The benchmark with a hidden split, and metric -> the type of question it is about."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Test:
    """The public side of the test: every question that a file must answer, without answers."""

    name: str
    questions: pd.DataFrame
    fingerprint: str


@dataclass(frozen=True)
class Key:
    """The private side. `version` tells one key from the next without saying anything about it."""

    answers: Mapping[str, list[int]]
    metric: str
    version: str


def open_test(folder: str) -> Test:
    """The public side of a test (a folder, or ORG/NAME on the Hub). Raises BadInput where it has no split with hidden answers."""
    repository = open_repository(folder)
    if repository.family != FORMAT or SPLIT not in repository.splits:
        raise BadInput(f"{folder}: has no split {SPLIT} of {FORMAT}, the one test with hidden answers.")
    questions = repository.questions(SPLIT)
    # Whatever the public rows say: nothing that reads a file may know an answer.
    questions["answer"] = pd.Series([[] for _ in range(len(questions))], index=questions.index, dtype=object)
    return Test(repository.name, questions, fingerprint_of(questions))


def read_key(where: str, test: Test, token: str | None, metric: str | None) -> Key:
    """The private answers. What is wrong with them is said without a word of them."""
    if is_hub_store(where):
        api = connect_with_token(token)
        with (
            temporary_folder(Path(tempfile.gettempdir()), "medprobe-key-") as folder,
            quiet(),
            hub_errors(where, "read the answers"),
        ):
            head = with_retries(lambda: private_head(api, where, "the answers of a test"))
            names = ["manifest.json", "answers/*.parquet"]
            # Into a folder that goes at once: the cache of a served board is no place for a key.
            with_retries(
                lambda: api.snapshot_download(
                    where, repo_type="dataset", revision=head, allow_patterns=names, local_dir=folder
                )
            )
            return _key_of(folder, where, head, test, metric)
    files = sorted(Path(where).glob("answers/*.parquet"))
    version = ",".join(str(file.stat().st_mtime_ns) for file in files)
    return _key_of(Path(where), where, version, test, metric)


def _key_of(folder: Path, where: str, version: str, test: Test, metric: str | None) -> Key:
    def wrong(what: str) -> BadInput:
        return BadInput(f"{where}: {what}. Build the dataset and its answers again.")

    rows: list[tuple[str, list[int]]] = []
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        if manifest["schema_version"] != SCHEMA_VERSION:
            raise ValueError("another version")
        name = manifest["answers_of"]
        for file in sorted(folder.glob("answers/*.parquet")):
            frame = pd.read_parquet(file, columns=["question_id", "answer"])
            rows += [
                (str(question), [int(index) for index in indices])
                for question, indices in zip(frame["question_id"], frame["answer"], strict=True)
            ]
    except Exception as error:  # as above: no word of the error itself
        log.error("hidden test: the answers cannot be read (%s)", type(error).__name__)
        raise wrong("is not a folder of hidden answers (manifest.json, answers/*.parquet)") from None
    answers = dict(rows)
    public: dict[str, Any] = {str(row.question_id): row for row in test.questions.itertuples(index=False)}
    if name != test.name:
        raise wrong(f"holds the answers of {clip(name)}, and the questions are of {test.name}")
    if not answers or len(answers) < len(rows) or not answers.keys() <= public.keys():
        raise wrong("its answers are not those of the test's questions")
    for question, indices in answers.items():
        row = public[question]
        several = row.question_type == "multiple"
        if not indices or not set(indices) <= set(range(len(row.options))) or (len(indices) > 1 and not several):
            raise wrong("holds an answer that is no option of its question")
    types = {public[question].question_type for question in answers}
    metric = metric or ("accuracy" if "single" in types else "mcq_accuracy")
    if METRICS[metric] not in types:
        raise BadInput(f"hidden test: {where} holds no answer to a question of type {METRICS[metric]} ({metric}).")
    return Key(answers, metric, version)
