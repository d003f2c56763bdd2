"""The benchmarks as tasks of lmms-eval: a folder for `--include_path`, and the functions that its tasks call.

    medprobe export-lmms-eval data/mediconfusion --out tasks
    python -m lmms_eval --model openai --model_args model=...,base_url=... --include_path tasks --tasks medprobe_mediconfusion --log_samples

Our prompts, our reader, our metrics. `medprobe submit` takes the samples (`answer_files/lmms_samples.py`).
Format: lmms-eval 0.7.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from dataset_builders.files import replace_file
from eval_harness.answer_files.lmms_samples import TASK_IDS_KEY
from eval_harness.answer_files.predictions import journal_record
from eval_harness.benchmarks import eval_spec
from eval_harness.interop.harness_file import (
    images_of,
    kept_columns,
    question_of,
    read_answer,
    scores_of,
    to_export,
)
from eval_harness.prompts import get_prompt
from eval_harness.records.selection import Selection


def messages(family: str, doc: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The conversation of a question: its images, then the text of the benchmark's own prompt (the form `image-first`)."""
    row = question_of(family, doc)
    prompt = get_prompt(family, None, row["question_type"])
    content: list[dict[str, Any]] = [{"type": "text", "text": prompt.render(row["question"], row["options"])}]
    pictures = [{"type": "image", "url": image} for image in images_of(doc)]
    return [{"role": "user", "content": [*pictures, *content]}]


def process(family: str, doc: Mapping[str, Any], results: list[Any]) -> dict[str, Any]:
    """The record that lmms-eval keeps of a sample, from which every metric is aggregated. `score`: 1 if it is correct."""
    row = question_of(family, doc)
    found = read_answer(family, kept_columns(row), journal_record(results))
    record = kept_columns(row) | found | {"score": int(found["right"]), "sample": 0}
    ids = {name: record[name] for name in ("question_id", "score", "case_id")}
    return {TASK_IDS_KEY: ids} | dict.fromkeys(eval_spec(family).metrics, record)


def aggregate(family: str, metric: str, records: Iterable[Mapping[str, Any]]) -> float | None:
    """The value of a metric in percent; None where the questions asked do not speak for it."""
    held = list(records)  # of the questions, and of the answers that were read to them
    return scores_of(family, held, held)[0].get(metric)


def export(data: str, split: str | None, out: Path) -> str:
    """Write the task of a dataset into the folder `out`; returns the task's name. Raises BadInput as `medprobe eval` does."""
    chosen = to_export(data, split)
    task = f"medprobe_{re.sub(r'[^A-Za-z0-9]+', '_', chosen.repository.name)}"  # a Python module's name, too
    folder = out / task
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "utils.py", _functions(chosen.repository.family).encode())
    replace_file(folder / f"{task}.yaml", _yaml(task, chosen).encode())
    return task


_UTILS = """# Written by `medprobe export-lmms-eval`: the functions of the task, for the benchmark {family}.

from eval_harness.interop import harness_file, lmms_eval

FORMAT = {family!r}


def process_docs(rows):
    return harness_file.undecoded(rows)


def doc_to_messages(doc, lmms_eval_specific_kwargs=None):
    return lmms_eval.messages(FORMAT, doc)


def doc_to_visual(doc):
    return harness_file.images_of(doc)


def doc_to_text(doc, lmms_eval_specific_kwargs=None):
    return lmms_eval.messages(FORMAT, doc)[0]["content"][-1]["text"]


def doc_to_target(doc):
    return harness_file.format_letters(doc["answer"])


def process_results(doc, results):
    return lmms_eval.process(FORMAT, doc, results)


def right(records):
    return 100 * sum(each["score"] for each in records) / len(records)"""


def _functions(family: str) -> str:
    lines = [_UTILS.format(family=family)]
    for metric in eval_spec(family).metrics:
        lines += ["", "", f"def {metric}(records):", f"    return lmms_eval.aggregate(FORMAT, {metric!r}, records)"]
    return "\n".join(lines) + "\n"


def _yaml(task: str, chosen: Selection) -> str:
    repository = chosen.repository
    folder = Path(str(repository.data))
    known = eval_spec(repository.family).metrics
    listed = [
        (TASK_IDS_KEY, "right", True),
        *((name, name, info.higher_is_better is not False) for name, info in known.items()),
    ]
    document = {
        "dataset_path": str(folder.resolve() if folder.is_dir() else repository.data),
        "dataset_name": "questions",
        **({"dataset_kwargs": {"revision": repository.revision}} if repository.revision else {}),
        "task": task,
        "test_split": chosen.split,
        "output_type": "generate_until",
        "cluster_key": "case_id",
        "generation_kwargs": {
            "max_new_tokens": eval_spec(repository.family).max_tokens,
            "temperature": 0,
            "do_sample": False,
        },
        "metadata": [{"version": 1.0}],
    }
    head = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    functions = ("process_docs", "doc_to_messages", "doc_to_visual", "doc_to_text", "doc_to_target", "process_results")
    lines = [f"{name}: !function utils.{name}" for name in functions]
    lines.append("metric_list:")
    for name, function, higher in listed:
        lines += [
            f"  - metric: {name}",
            f"    aggregation: !function utils.{function}",
            f"    higher_is_better: {str(higher).lower()}",
        ]
    return head + "\n".join(lines) + "\n"
