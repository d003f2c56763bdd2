"""`medprobe publish-score`: publish a score in the Hub's `.eval_results/*.yaml` format.

The file is proposed in a pull request to the model's repository. The format has no fields for
interval, n and prompt, so they go into the notes. A dataset's eval.yaml declares one metric per
task (`dataset_builders/contents/card.py`), and only these metrics are written. The score is
recomputed from the answers, against the dataset as it is on the Hub now. Publishing the same score
twice yields one pull request; another score of the same run updates it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from dataset_builders.benchmarks import spec
from dataset_builders.contents.card import parse_task_metric
from dataset_builders.errors import BadInput
from dataset_builders.hub.client import (
    check_repo_id,
    commit_files,
    connect,
    hide_progress_bars,
    hub_errors,
    sign_in,
    with_retries,
)
from eval_harness.derive.metrics import NoScore, headline_score, nonresponse_cause
from eval_harness.records.result import REFERENCE_KINDS, UNDELIVERED, Result, Score, read_run
from eval_harness.store.adding import fetch_file, find_files, list_open_pulls
from eval_harness.store.dataset_lookup import require_dataset
from eval_harness.store.formatting import format_interval, format_score
from eval_harness.store.submit import build_submission

if TYPE_CHECKING:
    from huggingface_hub import Discussion, HfApi

SOURCE_NAME = "answers and scores (medprobe)"
"""Text of the link to an entry's source."""


def eval_result_entries(
    result: Result, dataset: str, tasks: Iterable[str], source: str | None = None
) -> list[dict[str, Any]]:
    """Build one entry per task, with the value (percent) of the metric that the task declares.

    Args:
        result: The result.
        dataset: The dataset on the Hub.
        tasks: Task ids in the dataset's eval.yaml.
        source: URL of the answers.

    Raises:
        BadInput: If the result is not of a complete official set, or has none of the metrics that
            the tasks declare.
    """
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    _check_complete(result)
    split, task_ids = result.benchmark.split, list(tasks)
    scores = {
        task: (str(metric), result.scores.get(str(metric)))
        for task in task_ids
        if (metric := parse_task_metric(task, split))
    }
    entries = [
        EvalResultEntry(
            dataset_id=dataset,
            task_id=task,
            value=round(score.value, 4),
            dataset_revision=result.benchmark.revision,
            date=result.created_at,
            source_url=source,
            source_name=SOURCE_NAME if source else None,
            notes=_notes(metric, score, result),
        )
        for task, (metric, score) in scores.items()
        if score is not None and score.value is not None
    ]

    if not entries:
        main_score = headline_score(result)
        if isinstance(main_score, NoScore) and main_score.nonresponse is not None:
            raise BadInput(f"{result.model.name}: {main_score}")
        fitting_tasks = [f"{split}_{metric}" for metric in spec(result.benchmark.family).tasks]
        raise BadInput(
            f"{dataset}: no task declares a metric that this result has. Its tasks are "
            f"{', '.join(task_ids) or 'none'}; the result would fit "
            f"{', '.join(fitting_tasks) or 'none'}."
        )

    return eval_result_entries_to_yaml(entries)


def _check_complete(result: Result) -> None:
    """Raise BadInput unless the result was measured on a complete official set."""
    benchmark = result.benchmark
    reasons = (
        (benchmark.origin == "phantom", "phantoms"),
        (benchmark.origin != "official", f"a custom set ({benchmark.name})"),
        (benchmark.selection, f"a part ({benchmark.selection})"),
        (result.kind == "aggregate", "several runs (aggregate)"),
        (result.kind != "measured", f"a {result.kind} number"),
        (result.model.kind in REFERENCE_KINDS, f"a {result.model.kind}, not a model"),
        (result.method.image != "real", f"a run with {result.method.image} images"),
    )

    unsuitable = next((reason for applies, reason in reasons if applies), None)
    if unsuitable:
        raise BadInput(
            f"the result is of {unsuitable}: only scores of a complete, real benchmark belong on a "
            "model's page. Evaluate the model on the published dataset."
        )


def _notes(metric: str, score: Score, result: Result) -> str:
    """Build the notes of an entry: interval, n, chance, settings and deviations."""
    method = result.method
    verdict = f", {score.verdict} than chance" if score.verdict in ("better", "worse") else ""
    failed = sum(result.statuses.get(status, 0) for status in UNDELIVERED)
    parts = (
        (True, f"{metric}, percent"),
        (True, f"n = {score.n} ({score.n_cases} cases)"),
        (format_interval(score), f"95% interval {format_interval(score)}"),
        (score.chance is not None, f"chance {format_score(score.chance)}{verdict}"),
        (True, f"method {method.name}"),
        (True, f"prompt {method.prompt}"),
        (True, f"shots {method.shots or 0}"),
        (True, f"extraction {method.extraction}"),
        (failed, f"{failed} answers failed or are missing and count as wrong"),
        (score.nonresponse, score.nonresponse and nonresponse_cause(score.nonresponse, result)),
        *((True, f"deviation: {deviation}") for deviation in result.deviations),
    )
    return "; ".join(str(text) for applies, text in parts if applies)


@dataclass(frozen=True)
class ScoreFile:
    """A file for a model's repository: its path, content, and entries."""

    path: str
    content: bytes
    entries: list[dict[str, Any]]


def build_score_file(run: Path, dataset: str, store: str | None = None) -> ScoreFile:
    """Build the score file of a run folder, or of a result's folder in a store.

    Args:
        run: The folder.
        dataset: The dataset on the Hub whose tasks are used, ORG/NAME.
        store: Results store on the Hub that contains the answers; the entries link to it.

    Raises:
        BadInput: If the answers are not to this dataset's questions; the run is partial, custom or
            of phantoms; the dataset declares no tasks; or the store lacks the result.
    """
    check_repo_id(dataset)
    if Path(dataset).is_dir():
        raise BadInput(
            f"--dataset {dataset}: a local folder has this name. Run this elsewhere: scores refer "
            "to a dataset on the Hub."
        )

    submission = build_submission(run, data=dataset)
    submission.check(run, "Nothing was published.")
    dataset_split = require_dataset(submission.result.benchmark, dataset)
    benchmark_update: dict[str, Any] = {
        "repo": dataset_split.repo,
        "revision": dataset_split.revision,
    }
    # Phantoms stay phantoms, even if a dataset with the same questions claims to be something else.
    if read_run(run).benchmark.origin == "phantom":
        benchmark_update["origin"] = "phantom"
    result = submission.result.model_copy(
        update={"benchmark": submission.result.benchmark.model_copy(update=benchmark_update)}
    )
    tasks = _task_ids(dataset, dataset_split.revision)
    source = _stored_url(store, submission.folder) if store else None
    entries = eval_result_entries(result, dataset, tasks, source)
    content = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=1000).encode()
    return ScoreFile(f".eval_results/{_file_stem(result)}.yaml", content, entries)


def _file_stem(result: Result) -> str:
    """Return the file's name without suffix, which differs by method and number of examples."""
    method = result.method
    variant = "" if method.name == "mc" else f"-{method.name}"
    return f"{result.benchmark.name}{variant}{f'-{method.shots}-shot' if method.shots else ''}"


def _task_ids(dataset: str, revision: str | None) -> list[str]:
    """Return the task ids of a dataset's eval.yaml. Raises BadInput if there are none."""
    with hide_progress_bars(), hub_errors(dataset, "read its eval.yaml"):
        content = with_retries(
            lambda: _fetch_if_present(connect(), dataset, revision or "main", "eval.yaml", "dataset")
        )
    try:
        return [str(task["id"]) for task in yaml.safe_load(content or b"")["tasks"]]
    except (ValueError, TypeError, KeyError, yaml.YAMLError):
        raise BadInput(
            f"{dataset}: has no eval.yaml that lists tasks with ids, so no score can be published "
            "for it. Its owner must build it with --eval-yaml and publish it."
        ) from None


def _stored_url(store: str, folder: str) -> str:
    """Return the URL of a result in a store. Raises BadInput if the store does not contain it."""
    check_repo_id(store)
    api = connect()
    with hub_errors(store, "look for the result"):
        head = with_retries(lambda: api.repo_info(store, repo_type="dataset").sha)
        files = with_retries(lambda: find_files(api, store, head or "main", [f"{folder}/result.json"]))

    if not files:
        raise BadInput(
            f"--store {store}: does not contain {folder} on main. Submit the run there first, and "
            "wait until it is verified."
        )

    return f"{api.endpoint}/datasets/{store}/tree/main/{folder}"


def publish_score(file: ScoreFile, model: str) -> tuple[str, str]:
    """Propose the file to the model's repository.

    A file that is already on main, or in an open pull request of this account, is not proposed
    again.

    Args:
        file: The file to add.
        model: The model's repository, ORG/NAME.

    Returns:
        The URL, and what was done: "opened", "updated" or, if the file was already there, "there".

    Raises:
        BadInput: If there is no token or no such repository, or the Hub refuses or cannot be
            reached.
    """
    api, account = sign_in(model)
    title = f"Add {file.path} (medprobe)"
    files = {file.path: file.content}

    def own_pulls() -> "Iterator[Discussion]":
        return (pull for pull in list_open_pulls(api, model, account, "model") if pull.title == title)

    def look() -> tuple[str, str] | None:
        if _fetch_if_present(api, model, "main", file.path) == file.content:
            return f"{api.endpoint}/{model}/blob/main/{file.path}", "there"
        # The same file may already be proposed.
        for pull in own_pulls():
            if _fetch_if_present(api, model, f"refs/pr/{pull.num}", file.path) == file.content:
                return pull.url, "there"
        return None

    def propose() -> tuple[str, str]:
        # If an earlier score was proposed, update its pull request instead of opening another.
        for pull in own_pulls():
            commit_files(api, model, files, title, "model", revision=f"refs/pr/{pull.num}")
            return pull.url, "updated"
        commit = commit_files(api, model, files, title, "model", description=_description(file), pull_request=True)
        return str(commit.pr_url), "opened"

    with hide_progress_bars(), hub_errors(model, "open a pull request", account):
        return with_retries(propose, check_done=look)


def _fetch_if_present(api: "HfApi", repo_id: str, revision: str, path: str, kind: str = "model") -> bytes | None:
    """Return the file at a revision, or None."""
    from huggingface_hub.errors import EntryNotFoundError

    try:
        return fetch_file(api, repo_id, revision, path, kind)
    except EntryNotFoundError:
        return None


def _description(file: ScoreFile) -> str:
    """Return the description of the pull request, with one line per entry."""
    lines = [f"- {entry['dataset']['task_id']}: {entry['value']} ({entry['notes']})" for entry in file.entries]
    return "\n".join(["Computed by medprobe from the answers:", *lines])
