"""`medprobe publish-score`: a score as the Hub's `.eval_results/*.yaml`, as one pull request to the model's repository.

That form has no field for interval, n or prompt: they go into the notes. A dataset's eval.yaml declares one metric per task
(`dataset_builders/contents/eval_yaml.py`), and only that metric is written for it. What is published is computed from the answers again,
against the dataset as the Hub has it now. The same score twice is one pull request; another one of the same run updates it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from dataset_builders.benchmarks import spec
from dataset_builders.contents.eval_yaml import parse_task_metric
from dataset_builders.errors import BadInput
from dataset_builders.hub.client import check_repo_id, connect, hide_progress_bars, hub_errors, sign_in, with_retries
from dataset_builders.hub.commits import commit_files
from eval_harness.derive.metrics import NoScore, headline_score, nonresponse_cause
from eval_harness.records.result import UNDELIVERED, Result, Score
from eval_harness.records.run import read_run
from eval_harness.store.dataset_lookup import require_dataset
from eval_harness.store.formatting import format_interval, format_score
from eval_harness.store.hub_store import fetch_file, find_files, list_open_pulls
from eval_harness.store.submit import build_submission

if TYPE_CHECKING:
    from huggingface_hub import Discussion, HfApi

SOURCE_NAME = "answers and scores (medprobe)"


def eval_result_entries(
    result: Result, dataset: str, tasks: Iterable[str], source: str | None = None
) -> list[dict[str, Any]]:
    """An entry per task: the value, in percent, of the metric that the task declares.

    `tasks`: the ids that the dataset's eval.yaml has. `source`: address of the answers. Raises BadInput for a result that is of no complete
    official set, and where no task declares a metric that it has.
    """
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    _check_complete(result)
    split, there = result.benchmark.split, list(tasks)
    scores = {
        task: (str(metric), result.scores.get(str(metric)))
        for task in there
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
        found = headline_score(result)
        if isinstance(found, NoScore) and found.nonresponse is not None:
            raise BadInput(f"{result.model.name}: {found}")
        fits = [f"{split}_{metric}" for metric in spec(result.benchmark.family).tasks]
        raise BadInput(
            f"{dataset}: no task declares a metric that this result has. Its tasks are {', '.join(there) or 'none'}; "
            f"the result would fit {', '.join(fits) or 'none'}."
        )
    return eval_result_entries_to_yaml(entries)


def _check_complete(result: Result) -> None:
    benchmark = result.benchmark
    reasons = (
        (benchmark.origin == "phantom", "phantoms"),
        (benchmark.origin != "official", f"a custom set ({benchmark.name})"),
        (benchmark.selection, f"a part ({benchmark.selection})"),
        (result.kind == "aggregate", "several runs (aggregate)"),
        (result.kind != "measured", f"a {result.kind} number"),
        (result.model.kind == "baseline", "a baseline, which is no model"),
        (result.method.image != "real", f"a run with {result.method.image} images"),
    )
    wrong = next((reason for applies, reason in reasons if applies), None)
    if wrong:
        raise BadInput(
            f"the result is of {wrong}: only scores of a complete, real benchmark belong on a model's page. "
            "Evaluate the model on the published dataset."
        )


def _notes(metric: str, score: Score, result: Result) -> str:
    method = result.method
    words = [f"{metric}, percent", f"n = {score.n} ({score.n_cases} cases)"]
    if score.low is not None and score.high is not None:
        words.append(f"95% interval {format_interval(score)}")
    if score.chance is not None:
        words.append(
            f"chance {format_score(score.chance)}"
            + (f", {score.verdict} than chance" if score.verdict in ("better", "worse") else "")
        )
    words += [
        f"method {method.name}",
        f"prompt {method.prompt}",
        f"shots {method.shots or 0}",
        f"extraction {method.extraction}",
    ]
    if failed := sum(result.statuses.get(status, 0) for status in UNDELIVERED):
        words.append(f"{failed} answers failed or are missing and count as wrong")
    if score.nonresponse is not None:
        words.append(nonresponse_cause(score.nonresponse, result))
    return "; ".join(words + [f"deviation: {deviation}" for deviation in result.deviations])


def entries_to_yaml(entries: list[dict[str, Any]]) -> bytes:
    """The text of a file of entries."""
    return yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=1000).encode()


@dataclass(frozen=True)
class ScoreFile:
    """A file of a model's repository: `path`, its content, and the entries that it holds."""

    path: str
    content: bytes
    entries: list[dict[str, Any]]


def build_score_file(run: Path, dataset: str, store: str | None = None) -> ScoreFile:
    """The file for a run folder (or a result as a store holds it), by the tasks of the dataset `dataset` on the Hub.

    `store`: the results store on the Hub that has the answers; the entry's source points there. Raises BadInput for answers that are not to
    this dataset's questions, a run that is partial, custom or of phantoms, a dataset without tasks, and a store that lacks the result.
    """
    check_repo_id(dataset)
    if Path(dataset).is_dir():
        raise BadInput(
            f"--dataset {dataset}: there is a folder of that name; run this elsewhere: scores name a dataset on the Hub."
        )
    submission = build_submission(run, data=dataset)
    submission.check(run, "Nothing was published.")
    scored = require_dataset(submission.result.benchmark, dataset)
    about: dict[str, Any] = {"repo": scored.repo, "revision": scored.revision}
    if read_run(run).benchmark.origin == "phantom":  # whatever the dataset of the same questions calls itself
        about["origin"] = "phantom"
    result = submission.result.model_copy(update={"benchmark": submission.result.benchmark.model_copy(update=about)})
    tasks = _task_ids(dataset, scored.revision)
    source = _stored_url(store, submission.folder) if store else None
    entries = eval_result_entries(result, dataset, tasks, source)
    return ScoreFile(f".eval_results/{_file_stem(result)}.yaml", entries_to_yaml(entries), entries)


def _file_stem(result: Result) -> str:
    """The file's name: a variant (another method, worked examples) has a file of its own, as the Hub asks."""
    method = result.method
    variant = "" if method.name == "mc" else f"-{method.name}"
    return f"{result.benchmark.name}{variant}{f'-{method.shots}-shot' if method.shots else ''}"


def _task_ids(dataset: str, revision: str | None) -> list[str]:
    """The ids of the tasks of a dataset's eval.yaml. Raises BadInput if it has none that can be read."""
    with hide_progress_bars(), hub_errors(dataset, "read its eval.yaml"):
        content = with_retries(
            lambda: _fetch_if_present(connect(), dataset, revision or "main", "eval.yaml", "dataset")
        )
    try:
        return [str(task["id"]) for task in yaml.safe_load(content or b"")["tasks"]]
    except (ValueError, TypeError, KeyError, yaml.YAMLError):
        raise BadInput(
            f"{dataset}: has no eval.yaml that lists tasks with ids, so that no score can be published to it. Its owner has to build it "
            "with --eval-yaml and publish it."
        ) from None


def _stored_url(store: str, folder: str) -> str:
    """The address of a result in a store. Raises BadInput if the store does not have it."""
    check_repo_id(store)
    api = connect()
    with hub_errors(store, "look for the result"):
        head = with_retries(lambda: api.repo_info(store, repo_type="dataset").sha)
        there = with_retries(lambda: find_files(api, store, head or "main", [f"{folder}/result.json"]))
    if not there:
        raise BadInput(
            f"--store {store}: does not hold {folder} on main. Submit the run there first, and wait until it is verified."
        )
    return f"{api.endpoint}/datasets/{store}/tree/main/{folder}"


def publish_score(file: ScoreFile, model: str) -> tuple[str, str]:
    """Propose the file to the model's repository; returns its address, and what was done: opened, updated, there.

    What main or an open pull request of this account holds already is not proposed again. Raises BadInput: no token, no such repository,
    a Hub that refuses or cannot be reached.
    """
    api, who = sign_in(model)
    title = f"Add {file.path} (medprobe)"
    files = {file.path: file.content}

    def own_pulls() -> Iterator[Discussion]:
        return (pull for pull in list_open_pulls(api, model, who, "model") if pull.title == title)

    def look() -> tuple[str, str] | None:
        if _fetch_if_present(api, model, "main", file.path) == file.content:
            return f"{api.endpoint}/{model}/blob/main/{file.path}", "there"
        for pull in own_pulls():
            if _fetch_if_present(api, model, f"refs/pr/{pull.num}", file.path) == file.content:
                return pull.url, "there"
        return None

    def propose() -> tuple[str, str]:
        for pull in own_pulls():
            commit_files(api, model, files, title, "model", revision=f"refs/pr/{pull.num}")
            return pull.url, "updated"
        done = commit_files(api, model, files, title, "model", description=_description(file), pull_request=True)
        return str(done.pr_url), "opened"

    with hide_progress_bars(), hub_errors(model, "open a pull request", who):
        return with_retries(propose, check_done=look)


def _fetch_if_present(api: HfApi, repo_id: str, revision: str, path: str, kind: str = "model") -> bytes | None:
    """The file at a revision; None where there is none."""
    from huggingface_hub.errors import EntryNotFoundError

    try:
        return fetch_file(api, repo_id, revision, path, kind)
    except EntryNotFoundError:
        return None


def _description(file: ScoreFile) -> str:
    lines = [f"- {entry['dataset']['task_id']}: {entry['value']} ({entry['notes']})" for entry in file.entries]
    return "\n".join(["Computed by medprobe from the answers:", *lines])
