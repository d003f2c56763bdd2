"""A folder that is a submission already, `result.json` and `answers.parquet` as a store holds them: from the board's Submit tab, or
from another store. Nothing in it is believed: it is examined like a stranger's.

Not here: the examination itself (`examination.py`), run folders and files of answers (`submit.py`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dataset_builders.errors import BadInput
from eval_harness.results import Benchmark, Result, model_slug, read_result
from eval_harness.submissions.examination import FILES, Dataset, examine, vouched_dataset
from eval_harness.submissions.foreign_files import check_file, printable
from eval_harness.submissions.submit import MAX_RESULT, Submission
from eval_harness.submissions.validation import AGAIN


def is_ready(folder: Path) -> bool:
    """Whether a folder is one result as a store holds it, and no run folder."""
    return not (folder / "run.json").exists() and all((folder / name).is_file() for name in FILES)


def from_ready_folder(folder: Path, data: str | None = None) -> Submission:
    """The submission that a ready folder makes, computed again from its answers; what is wrong is in `problems`.

    `data`: the dataset (folder or Hub repository) to score by; without it, the revision on the Hub that the result names. The run id is
    the folder's name, wherever the folder lies. Raises BadInput where nothing can be computed.
    """
    path = folder.resolve()
    try:
        check_file(folder / "result.json", MAX_RESULT)
        claimed = read_result(folder / "result.json")
        dataset = _named(claimed.benchmark, data) if data else None
        return examined(folder, path.name, claimed, dataset)
    except BadInput as error:
        told = str(error).removeprefix(f"{folder}/").removeprefix(f"{folder}: ").rstrip(".")
        raise BadInput(printable(f"{folder}: {told}. Nothing was submitted.", 2_000)) from None


def examined(folder: Path, run_id: str, claimed: Result, dataset: Dataset | None) -> Submission:
    """The submission that a result in `folder` makes under `run_id`; what another store's owner reproduced is a submission here.

    `dataset` None: the one that the result names. Raises BadInput where nothing can be computed.
    """
    place = f"results/{claimed.benchmark.name}/{model_slug(claimed.model.name)}/{run_id}"
    submission = examine(folder, place, dataset, reproduced=True)
    if submission.result.provenance != "reproduced":
        return submission
    submission.notes.append("it was reproduced by the owner of another store; in this one it is a submission")
    result = submission.result.model_copy(update={"provenance": "submitted"})
    return replace(submission, run_id=submission.run_id.removesuffix(AGAIN), result=result)


def _named(benchmark: Benchmark, data: str) -> Dataset:
    """The dataset of --data, if it is the one that the result speaks of."""
    dataset = vouched_dataset(benchmark, [data])
    if dataset is None:
        raise BadInput(f"--data {data}: has no {benchmark.name}, split {benchmark.split}, which the result is about")
    return dataset
