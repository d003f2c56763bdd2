"""Rows of questions and cases as Arrow tables, and the images they show, each held once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from dataset_builders.columns import Kind, arrow_type
from dataset_builders.images.metadata import file_name
from dataset_builders.schema import Case, CaseImage, Question


class Rows:
    """The questions of a row group as Arrow columns, made once for all configs."""

    def __init__(self, group: Sequence[Case], columns: dict[str, Kind]) -> None:
        self.group = group
        questions = [(question, case.images) for case in group for question in case.questions]
        self.image_ids = [question.image_id for question, _ in questions]
        self.more_image_ids = [question.more_image_ids for question, _ in questions]
        shown = [_shown(question, images) for question, images in questions]
        values = [_values(name, kind, [question for question, _ in questions], shown) for name, kind in columns.items()]
        arrays = [pa.array(value, arrow_type(kind)) for value, kind in zip(values, columns.values(), strict=True)]
        self.text = pa.Table.from_arrays(arrays, names=list(columns))

    def questions(self, schema: pa.Schema, bank: ImageBank) -> tuple[pa.Table, list[str]]:
        """A row per question with its images, and the ids of the images shown."""
        more = [name for names in self.more_image_ids for name in names]

        def column(name: str) -> pa.Array:
            if name == "image":
                return bank.array(self.image_ids)
            if name == "more_images":
                return pa.ListArray.from_arrays(_offsets(map(len, self.more_image_ids)), bank.array(more))
            return self.text[name].chunk(0)

        arrays = [column(name) for name in schema.names]
        return pa.Table.from_arrays(arrays, schema=schema), [*self.image_ids, *more]

    def cases(self, schema: pa.Schema, bank: ImageBank) -> tuple[pa.Table, list[str]]:
        """A row per case with its images once, and the ids of the images shown."""
        ids = [image.image_id for case in self.group for image in case.images]
        questions = pa.StructArray.from_arrays(
            [self.text[name].chunk(0) for name in self.text.column_names], names=self.text.column_names
        )
        of_images = _offsets(len(case.images) for case in self.group)
        arrays = [
            pa.array([case.case_id for case in self.group], pa.string()),
            pa.ListArray.from_arrays(of_images, bank.array(ids)),
            pa.ListArray.from_arrays(of_images, pa.array(ids, pa.string())),
            pa.ListArray.from_arrays(_offsets(len(case.questions) for case in self.group), questions),
        ]
        return pa.Table.from_arrays(arrays, schema=schema), ids


def _offsets(lengths: Iterable[int]) -> pa.Array:
    return pa.array([0, *accumulate(lengths)], pa.int32())


def _shown(question: Question, images: Sequence[CaseImage]) -> list[CaseImage]:
    """The images that a question shows, of those of its case."""
    if len(images) == 1:
        return list(images)
    return [next(image for image in images if image.image_id == name) for name in question.image_ids]


def _joined(values: Iterable[str | None]) -> str | None:
    """What is said of several images: the different values, apart by semicolons (`images/terms.py` asks for all of them)."""
    return "; ".join(dict.fromkeys(value for value in values if value)) or None


def _values(name: str, kind: Kind, questions: list[Question], shown: list[list[CaseImage]]) -> list[Any]:
    """The values of a column of `questions`, each with the images it shows."""
    values: list[Any]
    if name == "image_license":
        values = [images[0].license if len(images) == 1 else _joined(i.license for i in images) for images in shown]
    elif name == "image_source":
        values = [images[0].source if len(images) == 1 else _joined(i.source for i in images) for images in shown]
    elif name == "group":
        values = [images[0].group for images in shown]
    elif name in Question.__dataclass_fields__:
        values = [getattr(question, name) for question in questions]
    else:
        values = [question.extra.get(name) for question in questions]
    if kind.names:
        codes: dict[Any, int] = {label: number for number, label in enumerate(kind.names)}
        return [codes.get(value) for value in values]
    return values


class ImageBank:
    """The images of a row group by id. Equal bytes are held once, even under two ids: Parquet needs a dictionary without doubles."""

    def __init__(self, images: Iterable[tuple[CaseImage, bytes]] = ()) -> None:
        self.names: dict[str, str] = {}
        self.codes: dict[str, int] = {}
        distinct: dict[bytes, int] = {}
        for image, data in images:
            self.names[image.image_id] = file_name(image.name or image.image_id, data)
            self.codes[image.image_id] = distinct.setdefault(data, len(distinct))
        self.sizes = [len(data) for data in distinct]
        offsets = pa.array([0, *accumulate(self.sizes)], pa.int32()).buffers()[1]
        self.values = pa.Array.from_buffers(
            pa.binary(), len(distinct), [None, offsets, pa.py_buffer(b"".join(distinct))]
        )

    def array(self, ids: list[str]) -> pa.Array:
        """An image column (struct of bytes and path) showing these images."""
        coded = pa.DictionaryArray.from_arrays(pa.array([self.codes[i] for i in ids], pa.int32()), self.values)
        return pa.StructArray.from_arrays(
            [coded, pa.array([self.names[i] for i in ids], pa.string())], names=["bytes", "path"]
        )
