"""Write `eval.yaml` and the configs of its tasks.

With them the Hub lists a dataset as a benchmark and `inspect eval hf/ORG/NAME` runs it. A task is a
set of questions whose plain accuracy is one of the benchmark's metrics, since inspect-ai's own
scorer computes accuracy. The task's id names split and metric (`test_individual_accuracy`), and
only that metric may be published to it. Its config stores the questions as inspect-ai reads them:
the image as a data URI (stored once per row group), the answer key as letters, ids beside them.

Specification: https://huggingface.co/docs/hub/eval-results; inspect_ai/_eval/task/hf.py (0.3.285).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import yaml

from dataset_builders.benchmarks import FORMATS, spec
from dataset_builders.schema import TEXT, TEXTS, Case, ColumnType, SourceContent, text_columns

TASK_CONFIG = "inspect"
TASK_ROW_MEANING = "a question as inspect-ai reads it (`eval.yaml`): the image as a data URI, the key as a letter"


TASK_COLUMNS: dict[str, ColumnType] = {
    "question_id": TEXT,
    "case_id": TEXT,
    "image_id": TEXT,
    "image_uri": ColumnType("uri"),
    "question": TEXT,
    "options": TEXTS,
    "target": TEXT,
}


@dataclass(frozen=True)
class HubTask:
    """A task of eval.yaml: the questions of `split` whose accuracy is `metric`, stored in
    `config`.
    """

    split: str
    metric: str
    config: str

    @property
    def id(self) -> str:
        return f"{self.split}_{self.metric}"


def select_hub_tasks(family: str, content: SourceContent) -> list[tuple[HubTask, list[Case]]]:
    """Select the tasks that a set offers.

    Args:
        family: the benchmark, which declares the tasks.
        content: what the reader returned.

    Returns:
        Each task with its cases, reduced to the task's questions. A split without an answer key has
            no tasks.
    """
    metrics = spec(family).tasks
    tasks = []
    for split, cases in content.cases.items():
        for metric, belongs in metrics.items():
            task_cases = list(_select_cases(cases, belongs))
            if task_cases:
                # Tasks of one metric share a config; otherwise each metric needs its own questions.
                config = TASK_CONFIG if len(metrics) == 1 else f"{TASK_CONFIG}_{metric}"
                tasks.append((HubTask(split, metric, config), task_cases))

    return tasks


def _select_cases(cases: Iterable[Case], belongs: Any) -> Iterator[Case]:
    """Yield the cases, reduced to the questions that belong to a task and have an answer key."""
    for case in cases:
        questions = tuple(q for q in case.questions if q.answer and belongs(q))
        if questions:
            image_ids = {q.image_id for q in questions}

            # Drop images that no remaining question shows, so that they are not stored.
            yield replace(
                case,
                questions=questions,
                images=tuple(i for i in case.images if i.image_id in image_ids),
            )


def parse_task_metric(task_id: str, split: str) -> str | None:
    """Return the metric that a task's id names.

    Args:
        task_id: id of the task in eval.yaml.
        split: split of the results.

    Returns:
        The metric; None for a task of another split or of an eval.yaml not written by medprobe.
    """
    metric = task_id.removeprefix(f"{split}_")
    declared = {metric for name in FORMATS for metric in spec(name).tasks}
    return metric if task_id == f"{split}_{metric}" and metric in declared else None


def render_eval_yaml(title: str, about: str, tasks: Iterable[HubTask], *, images: bool) -> str:
    """Render eval.yaml.

    Args:
        title: title of the dataset.
        about: description of the dataset.
        tasks: its tasks.
        images: whether the tasks' configs contain images.
    """
    tasks = list(tasks)
    metrics = "; ".join(f"{task.id}: accuracy, which medprobe calls {task.metric}" for task in tasks)
    document = {
        "name": title,
        "description": f"{about} Each task has one metric ({metrics}).",
        "evaluation_framework": "inspect-ai",
        "tasks": [_task_document(task, images) for task in tasks],
    }
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000)


def _task_document(task: HubTask, images: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {"input": "question", "target": "target", "choices": "options"}
    if images:
        fields["input_image"] = "image_uri"
    return {
        "id": task.id,
        "config": task.config,
        "split": task.split,
        "field_spec": {**fields, "metadata": ["question_id", "case_id", "image_id"]},
        "solvers": [{"name": "multiple_choice"}],
        "scorers": [{"name": "choice"}],
    }


def task_columns(*, images: bool) -> dict[str, ColumnType]:
    """Return the columns of a task's config. `target` has the letters of the correct options: "B"
    or "BC".
    """
    return TASK_COLUMNS if images else text_columns(TASK_COLUMNS)
