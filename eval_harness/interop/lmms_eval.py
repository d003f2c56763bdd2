r"""The benchmarks as tasks of lmms-eval: a folder for `--include_path` and the functions it calls.

    medprobe export-lmms-eval data/mediconfusion --out tasks
    python -m lmms_eval --model openai --model_args model=...,base_url=... --include_path tasks \
        --tasks medprobe_mediconfusion --log_samples

Prompts, reader and metrics are those of medprobe. `medprobe submit` reads the samples file that
lmms-eval writes (`answer_files/harness_formats.py`). Format: lmms-eval 0.7.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from dataset_builders.files import replace_file
from eval_harness.answer_files.harness_formats import TASK_IDS_KEY
from eval_harness.answer_files.predictions import journal_record
from eval_harness.benchmarks import eval_spec, get_prompt
from eval_harness.interop.harness_file import (
    decode_question,
    metric_scores,
    question_metadata,
    read_sample_answer,
    rgb_images,
    select_for_export,
)
from eval_harness.records.selection import Selection


def question_messages(family: str, doc: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Make the conversation of a question: its images, then the benchmark's prompt (`image-first`).

    Args:
        family: The benchmark.
        doc: A row of `harness_file.with_image_bytes`.

    Returns:
        One user message in lmms-eval's format.
    """
    row = decode_question(family, doc)
    prompt = get_prompt(family, None, row["question_type"])
    content: list[dict[str, Any]] = [{"type": "text", "text": prompt.render(row["question"], row["options"])}]
    pictures = [{"type": "image", "url": image} for image in rgb_images(doc)]
    return [{"role": "user", "content": [*pictures, *content]}]


def process_sample(family: str, doc: Mapping[str, Any], results: list[Any]) -> dict[str, Any]:
    """Build the record of a sample, which lmms-eval stores and passes to every metric.

    Args:
        family: The benchmark.
        doc: A row of `harness_file.with_image_bytes`.
        results: The model's outputs for this question; the first text is read.

    Returns:
        Metric -> record (the same for every metric), and under TASK_IDS_KEY the ids with
        `score` (1 if correct).
    """
    row = decode_question(family, doc)
    reading = read_sample_answer(family, question_metadata(row), journal_record(results))
    record = question_metadata(row) | reading | {"score": int(reading["right"]), "sample": 0}
    ids = {name: record[name] for name in ("question_id", "score", "case_id")}
    return {TASK_IDS_KEY: ids} | dict.fromkeys(eval_spec(family).metrics, record)


def aggregate_metric(family: str, metric: str, records: Iterable[Mapping[str, Any]]) -> float | None:
    """Compute a metric from the records of the samples.

    Args:
        family: The benchmark.
        metric: Name of the metric.
        records: Records of `process_sample`.

    Returns:
        The value in percent; None if too few questions were answered for it.
    """
    samples = list(records)  # each holds both a question and its answer
    return metric_scores(family, samples, samples)[0].get(metric)


def export_task(data: str, split: str | None, out: Path) -> str:
    """Write the task of a dataset.

    Args:
        data: Dataset folder or Hub repository.
        split: Split; None takes the dataset's only or default one.
        out: Folder for `--include_path`; the task gets a subfolder.

    Returns:
        Name of the task.

    Raises:
        BadInput: If `medprobe eval` would reject the arguments, or the dataset has no images.
    """
    selection = select_for_export(data, split)
    # lmms-eval imports the folder, so the name must also be a valid module name.
    task = f"medprobe_{re.sub(r'[^A-Za-z0-9]+', '_', selection.repository.name)}"
    folder = out / task
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "utils.py", _render_utils(selection.repository.family).encode())
    replace_file(folder / f"{task}.yaml", _render_yaml(task, selection).encode())
    return task


_UTILS_TEMPLATE = """# Written by `medprobe export-lmms-eval`: the functions of the task, for the benchmark {family}.

from eval_harness.interop import harness_file, lmms_eval

FORMAT = {family!r}


def process_docs(rows):
    return harness_file.with_image_bytes(rows)


def doc_to_messages(doc, lmms_eval_specific_kwargs=None):
    return lmms_eval.question_messages(FORMAT, doc)


def doc_to_visual(doc):
    return harness_file.rgb_images(doc)


def doc_to_text(doc, lmms_eval_specific_kwargs=None):
    return lmms_eval.question_messages(FORMAT, doc)[0]["content"][-1]["text"]


def doc_to_target(doc):
    return harness_file.format_letters(doc["answer"])


def process_results(doc, results):
    return lmms_eval.process_sample(FORMAT, doc, results)


def right(records):
    return 100 * sum(record["score"] for record in records) / len(records)"""


def _render_utils(family: str) -> str:
    lines = [_UTILS_TEMPLATE.format(family=family)]
    for metric in eval_spec(family).metrics:
        lines += [
            "",
            "",
            f"def {metric}(records):",
            f"    return lmms_eval.aggregate_metric(FORMAT, {metric!r}, records)",
        ]
    return "\n".join(lines) + "\n"


def _render_yaml(task: str, selection: Selection) -> str:
    repository = selection.repository
    folder = Path(str(repository.data))
    metric_infos = eval_spec(repository.family).metrics.items()
    metrics = [
        (TASK_IDS_KEY, "right", True),
        *((name, name, info.higher_is_better is not False) for name, info in metric_infos),
    ]
    document = {
        "dataset_path": str(folder.resolve() if folder.is_dir() else repository.data),
        "dataset_name": "questions",
        **({"dataset_kwargs": {"revision": repository.revision}} if repository.revision else {}),
        "task": task,
        "test_split": selection.split,
        "output_type": "generate_until",
        "cluster_key": "case_id",
        "generation_kwargs": {
            "max_new_tokens": eval_spec(repository.family).max_tokens,
            "temperature": 0,
            "do_sample": False,
        },
        "metadata": [{"version": 1.0}],
    }
    header = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)

    # `!function` is a tag of lmms-eval, which safe_dump cannot write.
    functions = ("process_docs", "doc_to_messages", "doc_to_visual", "doc_to_text", "doc_to_target", "process_results")
    lines = [f"{name}: !function utils.{name}" for name in functions]
    lines.append("metric_list:")
    for name, function, higher_is_better in metrics:
        lines += [
            f"  - metric: {name}",
            f"    aggregation: !function utils.{function}",
            f"    higher_is_better: {str(higher_is_better).lower()}",
        ]
    return header + "\n".join(lines) + "\n"
