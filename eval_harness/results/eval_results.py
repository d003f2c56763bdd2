"""A result as `.eval_results/*.yaml`, the Hub's form for scores in a model's repository. It has no field for interval, n or prompt: they
go into the notes.

A dataset's eval.yaml declares one metric per task (`dataset_builders/contents/eval_yaml.py`), and only that metric is written for it.
See also: proposing the file to a model's repository (`publish_score.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from dataset_builders.benchmarks import spec
from dataset_builders.contents.eval_yaml import metric_of_task
from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from eval_harness.derive.headline import NoScore, cause, headline
from eval_harness.records.result import UNDELIVERED, Result, Score, read_result
from eval_harness.results.summary import interval

SOURCE_NAME = "answers and scores (medprobe)"


def task_ids(result: Result) -> list[str]:
    """The ids of the tasks that a dataset of ours has for this result's split."""
    return [f"{result.benchmark.split}_{metric}" for metric in spec(result.benchmark.family).tasks]


def eval_result_entries(
    result: Result, dataset: str, task: str | None = None, tasks: Iterable[str] | None = None, source: str | None = None
) -> list[dict[str, Any]]:
    """An entry per task: the value, in percent, of the metric that the task declares.

    `tasks`: the ids that the dataset's eval.yaml has, those of a dataset of ours if not said; `task`: only this one. `source`: address of
    the answers. Raises BadInput for a result that is of no complete official set, and where no task declares a metric that it has.
    """
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    _check_complete(result)
    there = list(task_ids(result) if tasks is None else tasks)
    metrics = {each: metric_of_task(each, result.benchmark.split) for each in there if task in (None, each)}
    scores = {each: result.scores.get(metric) for each, metric in metrics.items() if metric is not None}
    entries = [
        EvalResultEntry(
            dataset_id=dataset,
            task_id=each,
            value=round(score.value, 4),
            dataset_revision=result.benchmark.revision,
            date=result.created_at,
            source_url=source,
            source_name=SOURCE_NAME if source else None,
            notes=_notes(str(metrics[each]), score, result),
        )
        for each, score in scores.items()
        if score is not None and score.value is not None
    ]
    if not entries:
        found = headline(result)
        if isinstance(found, NoScore) and found.nonresponse is not None:
            raise BadInput(f"{result.model.name}: {found}")
        declared = f"the task {task}" if task else "no task"
        raise BadInput(
            f"{dataset}: {declared} declares a metric that this result has. Its tasks are {', '.join(there) or 'none'}; "
            f"the result would fit {', '.join(task_ids(result)) or 'none'}."
        )
    return eval_result_entries_to_yaml(entries)


def _check_complete(result: Result) -> None:
    benchmark = result.benchmark
    wrong = None
    if benchmark.origin == "phantom":
        wrong = "phantoms"
    elif benchmark.origin != "official":
        wrong = f"a custom set ({benchmark.name})"
    elif benchmark.selection:
        wrong = f"a part ({benchmark.selection})"
    elif result.kind != "measured":
        wrong = f"several runs ({result.kind})" if result.kind == "aggregate" else f"a {result.kind} number"
    elif result.model.kind == "baseline":
        wrong = "a baseline, which is no model"
    if wrong:
        raise BadInput(
            f"the result is of {wrong}: only scores of a complete, real benchmark belong on a model's page. "
            "Evaluate the model on the published dataset."
        )


def _notes(metric: str, score: Score, result: Result) -> str:
    method = result.method
    words = [f"{metric}, percent", f"n = {score.n} ({score.n_cases} cases)"]
    if score.low is not None and score.high is not None:
        words.append(f"95% interval {interval(score)}")
    if score.chance is not None:
        words.append(
            f"chance {score.chance:.2f}"
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
        words.append(cause(score.nonresponse, result))
    return "; ".join(words + [f"deviation: {deviation}" for deviation in result.deviations])


def to_yaml(entries: list[dict[str, Any]]) -> bytes:
    """The text of a file of entries."""
    return yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=1000).encode()


def write_eval_results(source: Path, dataset: str, task: str | None, out: Path) -> Path:
    """Write the entries of a result (a run folder or a result.json) to `out`. Raises BadInput as `eval_result_entries` does."""
    result = read_result(source / "result.json" if source.is_dir() else source)
    text = to_yaml(eval_result_entries(result, dataset, task))
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(out, text)
    return out
