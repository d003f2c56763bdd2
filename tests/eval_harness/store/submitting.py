"""Datasets and run folders for the submission tests (phantoms without images, runs of invented
models), and pull requests to a results store on the loopback Hub.
"""

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from huggingface_hub import CommitOperationAdd, CommitOperationDelete

from dataset_builders.build import build
from dataset_builders.contents.data_files import folder_config_entries, update_card_configs
from dataset_builders.hub.repository import open_repository
from eval_harness.records.result import RunRecord
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import run_evaluation
from eval_harness.store.submit import build_submission
from tests.helpers import write_lines
from tests.localhub.accounts import READER


def make_phantom(family: str, folder: Path) -> Path:
    build(family, out=folder, text_only=True)
    return folder


def load_questions(data: Path) -> pd.DataFrame:
    repository = open_repository(data)
    return repository.questions(repository.splits[0])


def response_text(row, right: bool) -> str:
    """Return a response that reads as the key, or as another option."""
    index = row.answer[0] if right else (row.answer[0] + 1) % len(row.options)
    return row.options[index] if row.question_type == "yes_no" else "ABCDEFGH"[index]


def responses(data: Path, seed: int = 0) -> list[dict]:
    """Simulate a mediocre model: every third question wrong, another third for another seed."""
    rows = load_questions(data).itertuples()
    return [
        {
            "question_id": row.question_id,
            "response": response_text(row, (number * 7 + seed) % (3 + seed) != 0),
        }
        for number, row in enumerate(rows)
    ]


def edit_answers(folder: Path, change: Callable[[list[dict]], object]) -> None:
    """Rewrite the answers.parquet of a folder after `change` has edited its rows."""
    schema = pq.read_schema(folder / "answers.parquet")
    change(rows := pq.read_table(folder / "answers.parquet").to_pylist())
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / "answers.parquet")


def update_card(folder: Path) -> Path:
    """Update the card of a dataset folder after its files were changed."""
    card = folder / "README.md"
    card.write_text(update_card_configs(card.read_text(), folder_config_entries(folder), card))
    return folder


def run_folder(data: Path, folder: Path, name: str = "Model A", seed: int = 0, limit: int | None = None) -> Path:
    """Build a run folder of an invented model; `limit` is an even number of questions."""
    answers = write_lines(folder.with_suffix(".answers.jsonl"), responses(data, seed)[:limit])
    os.utime(answers, (1_700_000_000, 1_700_000_000))
    benchmark = open_repository(data).name
    run_evaluation(EvalConfig(benchmark, f"recorded:{answers}", str(data), name=name, out=folder, limit=limit))
    return folder


STORE = "ORG/results"
REPO = {"repo_id": STORE, "repo_type": "dataset"}


def main_files(api) -> dict[str, str]:
    return {f.path: f.blob_id for f in api.list_repo_tree(**REPO, recursive=True) if hasattr(f, "blob_id")}


def comments(api, number) -> list[str]:
    details = api.get_discussion_details(STORE, number, repo_type="dataset")
    return [event.content for event in details.events if event.type == "comment"]


def status(api, number) -> str:
    return api.get_discussion_details(STORE, number, repo_type="dataset").status


def pull_head(api, number) -> str:
    """Return the head commit of a pull request."""
    return api.repo_info(**REPO, revision=f"refs/pr/{number}").sha


def propose(api, files: dict[str, bytes], delete=(), token=READER) -> int:
    operations = [CommitOperationAdd(path, content) for path, content in files.items()]
    operations += [CommitOperationDelete(path) for path in delete]
    done = api.create_commit(operations=operations, commit_message="A result", create_pr=True, token=token, **REPO)
    return int(done.pr_num)


@cache
def _submission(run):
    return build_submission(run)


def submission_files(run, change=lambda run_json: None) -> dict[str, bytes]:
    """Return the files of a submission, with its run.json changed by the submitter."""
    files = _submission(run).files()
    (name,) = (path for path in files if path.endswith("run.json"))
    document = json.loads(files[name])
    change(document)
    files[name] = RunRecord.model_validate(document).to_json().encode()
    return files
