"""Write `eval.yaml` and the configs of its tasks, by which the Hub lists a dataset as a benchmark and `inspect eval hf/ORG/NAME` runs it.

A task of ours is a set of questions whose plain accuracy is one of the benchmark's metrics, because that is what inspect-ai's own scorer
computes; its id says split and metric (`test_individual_accuracy`). Only that metric may be published to it. Its config holds the
questions as inspect-ai reads them: the image as a data URI (stored once per row group), the key as letters, ids beside them.
Specification: https://huggingface.co/docs/hub/eval-results; inspect_ai/_eval/task/hf.py (0.3.285).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from dataset_builders.benchmarks import BENCHMARKS, spec
from dataset_builders.images.lookup import image_format
from dataset_builders.parquet import ConfigSizes, ImageBank, ImageFacts, ParquetFile, Rows, plan
from dataset_builders.schema import LETTERS, TEXT, TEXTS, Case, Content, Kind

CONFIG = "inspect"
PURPOSE = "a question as inspect-ai reads it (`eval.yaml`): the image as a data URI, the key as a letter"


TASK_COLUMNS: dict[str, Kind] = {
    "question_id": TEXT,
    "case_id": TEXT,
    "image_id": TEXT,
    "image_uri": Kind("uri"),
    "question": TEXT,
    "options": TEXTS,
    "target": TEXT,
}


@dataclass(frozen=True)
class HubTask:
    """A task of eval.yaml: the questions of `split` whose accuracy is `metric`, in the config `config`."""

    split: str
    metric: str
    config: str

    @property
    def id(self) -> str:
        return f"{self.split}_{self.metric}"


def tasks_of(family: str, content: Content) -> list[tuple[HubTask, list[Case]]]:
    """The tasks of what a builder read, with the cases (and of these the questions) of each; a split without a key has none."""
    metrics = spec(family).tasks
    found = []
    for split, cases in content.cases.items():
        for metric, belongs in metrics.items():
            chosen = list(_chosen(cases, belongs))
            if chosen:
                config = CONFIG if len(metrics) == 1 else f"{CONFIG}_{metric}"
                found.append((HubTask(split, metric, config), chosen))
    return found


def _chosen(cases: Iterable[Case], belongs: Any) -> Iterator[Case]:
    """The cases with those of their questions that have a key and belong to a task."""
    for case in cases:
        questions = tuple(q for q in case.questions if q.answer and belongs(q))
        if questions:
            shown = {q.image_id for q in questions}
            yield replace(case, questions=questions, images=tuple(i for i in case.images if i.image_id in shown))


def metric_of_task(task_id: str, split: str) -> str | None:
    """The metric that a task of ours declares by its id; None for a task of another split, or of somebody else's eval.yaml."""
    metric = task_id.removeprefix(f"{split}_")
    known = {metric for name in BENCHMARKS for metric in spec(name).tasks}
    return metric if task_id == f"{split}_{metric}" and metric in known else None


def eval_yaml(title: str, about: str, tasks: Iterable[HubTask], *, images: bool) -> str:
    """The text of eval.yaml."""
    tasks = list(tasks)
    said = "; ".join(f"{task.id}: accuracy, which medprobe calls {task.metric}" for task in tasks)
    document = {
        "name": title,
        "description": f"{about} Each task declares one metric ({said}).",
        "evaluation_framework": "inspect-ai",
        "tasks": [_task(task, images) for task in tasks],
    }
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000)


def _task(task: HubTask, images: bool) -> dict[str, Any]:
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


def task_columns(*, images: bool) -> dict[str, Kind]:
    """The columns of a task's config. `target`: the letters of the right options, "B" or "BC"."""
    return {name: kind for name, kind in TASK_COLUMNS.items() if images or name != "image_uri"}


def data_uri(data: bytes) -> str:
    """An encoded image as a data URI. Raises ImageError for bytes that are no image."""
    kind = image_format(data).lower()
    mime = {"jpeg2000": "jp2"}.get(kind, kind)
    return f"data:image/{mime};base64,{base64.b64encode(data).decode()}"


def write_task(
    folder: Path, config: str, split: str, cases: Sequence[Case], known: ImageFacts, *, images: bool
) -> ConfigSizes:
    """Write the questions of `cases` to `<folder>/<config>/<split>-*.parquet`; every question has a key. One row group is in memory."""
    done = ConfigSizes()
    columns = task_columns(images=images)
    shards = plan(cases, images=images)
    for number, shard in enumerate(shards):
        file = ParquetFile(folder / config / f"{split}-{number:05d}-of-{len(shards):05d}.parquet", columns)
        for group in shard:
            _write_group(file, group, known, done, split, images)
        file.close()
        done.parquet_bytes += file.path.stat().st_size
    return done


def _write_group(
    file: ParquetFile, group: Sequence[Case], known: ImageFacts, done: ConfigSizes, split: str, images: bool
) -> None:
    questions = [question for case in group for question in case.questions]
    text = Rows(group, {name: kind for name, kind in TASK_COLUMNS.items() if name not in ("image_uri", "target")}).text
    arrays = {name: text[name].chunk(0) for name in text.column_names}
    arrays["target"] = pa.array(["".join(LETTERS[number] for number in q.answer) for q in questions], pa.string())
    repeated = 0
    if images:
        needed = {q.image_id for q in questions}
        shown = {image.image_id: image for case in group for image in case.images if image.image_id in needed}
        bank = ImageBank(known.fetch(shown.values()))
        uris = [data_uri(data) for data in bank.values.to_pylist()]
        codes = [bank.codes[q.image_id] for q in questions]
        arrays["image_uri"] = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(uris, pa.string()))
        repeated = sum(len(uris[code]) for code in codes) - sum(map(len, uris))
    table = pa.Table.from_arrays([arrays[name] for name in file.schema.names], schema=file.schema)
    file.write(table)
    done.rows[split] = done.rows.get(split, 0) + table.num_rows
    done.arrow_bytes[split] = done.arrow_bytes.get(split, 0) + table.nbytes + repeated
