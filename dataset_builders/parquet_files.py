"""Writes cases as Parquet: every image once per row group, the same bytes for the same input, few images in memory at a time.

An image that nine questions share is nine small indices into the row group's dictionary of images. Not here: the card and the
manifest (`repository.py`), the columns (`columns.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from dataset_builders.columns import Kind, arrow_type, case_columns, features_metadata, question_columns
from dataset_builders.finetune import sharing_images
from dataset_builders.images import ImageError, check_image
from dataset_builders.problems import Problems
from dataset_builders.schema import Case, CaseImage, Question

ROW_GROUP_BYTES = 32 * 1024 * 1024
"""Distinct image bytes per row group: the most that a reader streaming `cases` has to fetch for its first row."""
SHARD_BYTES = 480 * 1024 * 1024
ROWS_OF_TEXT = 20_000
"""Questions per row group where there are no images, or only small ones."""

Plan = list[list[list[Case]]]
"""Shards of row groups of cases."""


@dataclass
class Written:
    """What was written for a config: rows and Arrow bytes per split, Parquet bytes in all, and what is known of each image."""

    rows: dict[str, int] = field(default_factory=dict)
    arrow_bytes: dict[str, int] = field(default_factory=dict)
    parquet_bytes: int = 0


@dataclass
class ImageFacts:
    """sha256 and size of every image seen while writing, and what was wrong with some."""

    facts: dict[str, tuple[str, int]] = field(default_factory=dict)
    problems: Problems = field(default_factory=Problems)
    wrong: set[str] = field(default_factory=set)

    def fetch(self, image: CaseImage) -> bytes:
        """The bytes of an image, checked; empty where they are wrong (which is noted)."""
        if image.read is None:
            raise AssertionError(f"image {image.image_id} is missing; the build should have said so")
        if image.image_id in self.wrong:
            return b""
        try:
            data = image.read()
            if image.image_id not in self.facts:
                check_image(data)
        except (ImageError, OSError) as error:
            self._note(image, str(error))
            return b""
        digest = (hashlib.sha256(data).hexdigest(), len(data))
        if self.facts.setdefault(image.image_id, digest) != digest:
            self._note(image, "changed while it was read")
        return data

    def _note(self, image: CaseImage, what: str) -> None:
        self.wrong.add(image.image_id)
        name = image.name or image.image_id
        self.problems.add(name if name.startswith(image.image_id) else f"{name} (image {image.image_id})", None, what)


def plan(cases: Sequence[Case], *, images: bool) -> Plan:
    """Which cases go into which row group and shard.

    Cases keep their order. Only where the images do not fit in one row group, cases that share an image are moved beside each
    other, since Parquet can store an image once within a row group but not across.
    """
    groups = [[case] for case in cases]
    if images:
        sizes = {image.image_id: image.size for case in cases for image in case.images}
        if sum(sizes.values()) > ROW_GROUP_BYTES:
            groups = sharing_images(list(cases))
    shards: Plan = [[[]]]
    held: set[str] = set()
    in_group = in_shard = rows = 0
    for case in (case for group in groups for case in group):
        new = [image for image in case.images if image.image_id not in held] if images else []
        size = sum(image.size for image in new)
        full = rows + len(case.questions) > ROWS_OF_TEXT or in_group + size > ROW_GROUP_BYTES
        if full and shards[-1][-1]:
            new = list(case.images) if images else []
            size = sum(image.size for image in new)
            if images and in_shard + size > SHARD_BYTES:
                shards.append([[]])
                in_shard = 0
            else:
                shards[-1].append([])
            held, in_group, rows = set(), 0, 0
        shards[-1][-1].append(case)
        held.update(image.image_id for image in new)
        in_group, in_shard, rows = in_group + size, in_shard + size, rows + len(case.questions)
    return shards


def write_cases(
    folder: Path, format: str, configs: Iterable[str], split: str, cases: Sequence[Case], known: ImageFacts
) -> dict[str, Written]:
    """Write the cases of a split under each config's folder: `cases` one row per case, others one row per question.

    Configs ending in `_text` carry no images. The images of a row group are read once for all configs. After a first wrong
    image nothing more is written but the rest is still checked, so that `known.problems` names all.
    """
    configs = list(configs)
    with_images = [config for config in configs if not config.endswith("_text")]
    done = {config: Written() for config in configs}
    for chosen, images in ((with_images, True), ([c for c in configs if c not in with_images], False)):
        if not chosen:
            continue
        shards = plan(cases, images=images)
        with tqdm(total=len(cases), desc=f"writing {', '.join(chosen)}", unit=" cases", disable=None) as bar:
            for number, shard in enumerate(shards):
                name = f"{split}-{number:05d}-of-{len(shards):05d}.parquet"
                _write_shard(folder, format, chosen, images, name, shard, known, done, split)
                bar.update(sum(len(group) for group in shard))
    return done


def _write_shard(
    folder: Path,
    format: str,
    configs: list[str],
    images: bool,
    name: str,
    shard: list[list[Case]],
    known: ImageFacts,
    done: dict[str, Written],
    split: str,
) -> None:
    files = {}
    for config in configs:
        columns = case_columns(format) if config == "cases" else question_columns(format, images=images)
        files[config] = ParquetFile(folder / config / name, columns)
    for group in shard:
        shown = {image.image_id: image for case in group for image in case.images} if images else {}
        bank = ImageBank((image, known.fetch(image)) for image in shown.values())
        if known.problems:
            continue
        for config, file in files.items():
            rows = _case_rows(group, file.columns) if config == "cases" else _question_rows(group, file.columns)
            table = file.write(rows, bank)
            done[config].rows[split] = done[config].rows.get(split, 0) + table.num_rows
            done[config].arrow_bytes[split] = done[config].arrow_bytes.get(split, 0) + _expanded(table, bank, rows)
    for config, file in files.items():
        file.close()
        done[config].parquet_bytes += file.path.stat().st_size


class ImageBank:
    """The images of a row group, each once, with the place of each id."""

    def __init__(self, images: Iterable[tuple[CaseImage, bytes]] = ()) -> None:
        given = list(images)
        self.place = {image.image_id: number for number, (image, _) in enumerate(given)}
        self.names = [image.name or image.image_id for image, _ in given]
        self.sizes = [len(data) for _, data in given]
        self.values = pa.array([data for _, data in given], pa.binary())

    def array(self, ids: list[str]) -> pa.Array:
        """An image column (struct of bytes and path) showing these images."""
        places = [self.place[image_id] for image_id in ids]
        coded = pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), self.values)
        return pa.StructArray.from_arrays(
            [coded, pa.array([self.names[place] for place in places], pa.string())], names=["bytes", "path"]
        )


class ParquetFile:
    """A Parquet file being written, a row group per `write`."""

    def __init__(self, path: Path, columns: dict[str, Kind]) -> None:
        self.path, self.columns = path, columns
        self.schema = pa.schema([(name, arrow_type(kind)) for name, kind in columns.items()])
        path.parent.mkdir(parents=True, exist_ok=True)
        leaves = [leaf for column in self.schema for leaf in _leaves(column.name, column.type)]
        self.writer = pq.ParquetWriter(
            path,
            self.schema,
            store_schema=False,
            compression={leaf: "NONE" if leaf.endswith(".bytes") else "ZSTD" for leaf in leaves},
            use_dictionary=True,
            dictionary_pagesize_limit=1 << 30,
            write_statistics=[leaf for leaf in leaves if "." not in leaf],
            write_batch_size=1024,
        )

    def write(self, rows: dict[str, list[Any]], bank: ImageBank) -> pa.Table:
        """Write a row group; `rows` holds image ids in image columns. Returns the table as it was written."""
        arrays = [_array(rows[name], kind, bank) for name, kind in self.columns.items()]
        table = pa.Table.from_arrays(arrays, schema=self.schema)
        self.writer.write_table(table, row_group_size=max(table.num_rows, 1))
        return table

    def close(self) -> None:
        """Write the end of the file; without a row group before, the file has the columns and no rows."""
        self.writer.add_key_value_metadata(features_metadata(self.columns))
        self.writer.close()


def _array(values: list[Any], kind: Kind, bank: ImageBank) -> pa.Array:
    if kind.name == "image":
        return bank.array(values)
    if kind.name == "list of image":
        offsets = [0]
        for ids in values:
            offsets.append(offsets[-1] + len(ids))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), bank.array([i for ids in values for i in ids]))
    return pa.array(values, arrow_type(kind))


def _leaves(name: str, type_: pa.DataType) -> Iterator[str]:
    """Paths of the Parquet columns that an Arrow column becomes."""
    if pa.types.is_list(type_):
        yield from _leaves(f"{name}.list.element", type_.value_type)
    elif pa.types.is_struct(type_):
        for part in type_:
            yield from _leaves(f"{name}.{part.name}", part.type)
    else:
        yield name


def _getters(columns: dict[str, Kind]) -> dict[str, Callable[[Question, CaseImage], Any]]:
    """How to get each column of a question."""
    own = Question.__dataclass_fields__
    made: dict[str, Callable[[Question, CaseImage], Any]] = {}
    for name, kind in columns.items():
        if name == "image":
            made[name] = lambda question, image: question.image_id
        elif name == "image_license":
            made[name] = lambda question, image: image.license
        elif name == "image_source":
            made[name] = lambda question, image: image.source
        elif name in own:
            made[name] = lambda question, image, name=name: getattr(question, name)  # type: ignore[misc]
        else:
            made[name] = lambda question, image, name=name: question.extra.get(name)  # type: ignore[misc]
        if kind.names:
            place = {label: number for number, label in enumerate(kind.names)}
            made[name] = lambda question, image, get=made[name], place=place: place.get(get(question, image))  # type: ignore[misc]
    return made


def _question_rows(cases: Sequence[Case], columns: dict[str, Kind]) -> dict[str, list[Any]]:
    getters = _getters(columns)
    asked = [(question, _image_of(case, question)) for case in cases for question in case.questions]
    return {name: [get(question, image) for question, image in asked] for name, get in getters.items()}


def _case_rows(cases: Sequence[Case], columns: dict[str, Kind]) -> dict[str, list[Any]]:
    getters = _getters(dict(columns["questions"].fields))
    return {
        "case_id": [case.case_id for case in cases],
        "images": [[image.image_id for image in case.images] for case in cases],
        "image_ids": [[image.image_id for image in case.images] for case in cases],
        "questions": [
            [
                {name: get(question, _image_of(case, question)) for name, get in getters.items()}
                for question in case.questions
            ]
            for case in cases
        ],
    }


def _image_of(case: Case, question: Question) -> CaseImage:
    return next(image for image in case.images if image.image_id == question.image_id)


def _expanded(table: pa.Table, bank: ImageBank, rows: dict[str, list[Any]]) -> int:
    """Bytes of the rows as a reader holds them: with every repetition of an image."""
    stored = int(table.nbytes)
    if "image" in rows:
        return stored + sum(bank.sizes[bank.place[i]] for i in rows["image"]) - sum(bank.sizes)
    if "images" in rows:
        return stored + sum(bank.sizes[bank.place[i]] for ids in rows["images"] for i in ids) - sum(bank.sizes)
    return stored
