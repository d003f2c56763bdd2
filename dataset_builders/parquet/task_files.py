"""Writes the questions of a task of eval.yaml as inspect-ai reads them: the image as a data URI, the key as letters, ids beside them.

A URI that several questions share is stored once per row group, like the images themselves (`writer.py`).
See also: which tasks there are (`dataset_builders/contents/eval_yaml.py`).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from dataset_builders.columns import TEXT, TEXTS, Kind
from dataset_builders.images.lookup import image_format
from dataset_builders.parquet.rows import ImageBank, Rows
from dataset_builders.parquet.writer import ImageFacts, ParquetFile, Written, plan
from dataset_builders.schema import LETTERS, Case

COLUMNS: dict[str, Kind] = {
    "question_id": TEXT,
    "case_id": TEXT,
    "image_id": TEXT,
    "image_uri": Kind("uri"),
    "question": TEXT,
    "options": TEXTS,
    "target": TEXT,
}


def task_columns(*, images: bool) -> dict[str, Kind]:
    """The columns of a task's config. `target`: the letters of the right options, "B" or "BC"."""
    return {name: kind for name, kind in COLUMNS.items() if images or name != "image_uri"}


def data_uri(data: bytes) -> str:
    """An encoded image as a data URI. Raises ImageError for bytes that are no image."""
    kind = image_format(data).lower()
    mime = {"jpeg2000": "jp2"}.get(kind, kind)
    return f"data:image/{mime};base64,{base64.b64encode(data).decode()}"


def write_task(
    folder: Path, config: str, split: str, cases: Sequence[Case], known: ImageFacts, *, images: bool
) -> Written:
    """Write the questions of `cases` to `<folder>/<config>/<split>-*.parquet`; every question has a key. One row group is in memory."""
    done = Written()
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
    file: ParquetFile, group: Sequence[Case], known: ImageFacts, done: Written, split: str, images: bool
) -> None:
    questions = [question for case in group for question in case.questions]
    text = Rows(group, {name: kind for name, kind in COLUMNS.items() if name not in ("image_uri", "target")}).text
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
