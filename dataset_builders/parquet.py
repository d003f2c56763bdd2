"""Write cases as Parquet: each image once per row group, reproducible bytes, few images in memory
at a time.

An image that nine questions share is stored as nine small indices into the row group's dictionary
of images. See also: the card and the manifest (`contents/`), the columns (`schema.py`).
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from dataset_builders.benchmarks import question_columns
from dataset_builders.case_groups import group_linked_cases
from dataset_builders.errors import Problems
from dataset_builders.images.lookup import ImageError
from dataset_builders.images.picture import (
    DECODER_THREADS,
    encode_data_uri,
    image_file_name,
    make_picture,
    strip_metadata,
)
from dataset_builders.schema import (
    LETTERS,
    TEXT,
    Case,
    CaseImage,
    ColumnType,
    Question,
    SourceContent,
    text_columns,
)

ROW_GROUP_BYTES = 32 * 1024 * 1024
"""Distinct image bytes per row group: what a streaming reader of `cases` must fetch for its first
row.
"""
SHARD_BYTES = 480 * 1024 * 1024
MAX_GROUP_ROWS = 20_000
"""Questions per row group without images, or with small ones."""

ShardPlan = list[list[list[Case]]]
"""Shards, each a list of row groups, each a list of cases."""


@dataclass
class ConfigSizes:
    """Size of a config: rows per split and total Parquet bytes."""

    rows: dict[str, int] = field(default_factory=dict)
    parquet_bytes: int = 0


@dataclass
class ImageFacts:
    """SHA-256, size, peculiarities (`picture.py`) and problems of every image seen while writing.

    `whites` are the white levels of the whole dataset's deep greys. `pixels` maps image ids to
    digests of their pixels.
    """

    whites: dict[str, int] = field(default_factory=dict)
    facts: dict[str, tuple[str, int]] = field(default_factory=dict)
    pixels: dict[str, str] = field(default_factory=dict)
    traits: dict[str, list[str]] = field(default_factory=dict)
    bad: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Image id -> place and problem."""

    def read(self, images: Iterable[CaseImage]) -> dict[str, dict[str, Any]]:
        """Read and check images, decoding several at a time.

        Args:
            images: the images, in order.

        Returns:
            Image id -> the image as it is stored; bad images are recorded in `bad`.
        """
        pending = list(images)
        pictures: dict[str, dict[str, Any]] = {}
        with ThreadPoolExecutor(DECODER_THREADS, thread_name_prefix="decode") as pool:
            for image, (data, pixels, traits, problem) in zip(pending, pool.map(self._read, pending), strict=True):
                name = image.name or image.image_id
                if problem:
                    self.bad[image.image_id] = (image.location or name, problem)
                    continue
                for trait in traits if image.image_id not in self.facts else ():
                    self.traits.setdefault(trait, []).append(name)
                self.pixels[image.image_id] = pixels
                self.facts[image.image_id] = (hashlib.sha256(data).hexdigest(), len(data))
                pictures[image.image_id] = {"bytes": data, "path": image_file_name(name, data)}
        return pictures

    def check(self) -> None:
        """Raise BadInput that lists all bad images, instead of one per build."""
        problems = Problems()
        for place, problem in self.bad.values():
            problems.add(place, None, problem)
        problems.check("Replace these images, or leave out their entries; nothing was written.")

    def notes(self) -> list[str]:
        """Return a sentence on each trait that some images have."""
        return [
            f"{len(names)} of {len(self.facts)} images {trait} ({', '.join(names[:3])}{' ...' * (len(names) > 3)})."
            for trait, names in self.traits.items()
        ]

    def _read(self, image: CaseImage) -> tuple[bytes, str, tuple[str, ...], str | None]:
        """Return the file without metadata, the digest of its pixels, its traits, and the problem
        if any.
        """
        assert image.read is not None, f"image {image.image_id} is missing; the build should have reported it"
        try:
            picture = make_picture(image.read(), self.whites)
            return strip_metadata(picture.encoded()), picture.digest(), picture.traits, None
        except (ImageError, OSError) as error:
            return b"", "", (), str(error)


def iter_image_files(cases: Iterable[Case]) -> Iterator[bytes]:
    """Iterate over the files of all images, each once; unreadable ones are skipped."""
    for image in {image.image_id: image for case in cases for image in case.images}.values():
        if image.read is not None:
            with suppress(OSError, ImageError):
                yield image.read()


def plan_shards(cases: Sequence[Case], *, images: bool) -> ShardPlan:
    """Assign cases to row groups and shards.

    Cases keep their order. Only if the images do not fit in one row group are cases that share an
    image placed together, because Parquet can store an image once within a row group but not
    across.

    Args:
        cases: the cases of a split.
        images: whether images are stored.
    """
    # Each case alone: source order is kept unless images have to be grouped.
    groups = [[case] for case in cases]
    if images:
        sizes = {image.image_id: image.size for case in cases for image in case.images}
        if sum(sizes.values()) > ROW_GROUP_BYTES:
            groups = group_linked_cases(cases, images=True, groups=False)

    shards: ShardPlan = [[[]]]
    group_image_ids: set[str] = set()
    in_group = in_shard = rows = 0
    for case in chain.from_iterable(groups):
        case_sizes = {image.image_id: image.size for image in case.images} if images else {}
        size = sum(size for image_id, size in case_sizes.items() if image_id not in group_image_ids)

        # A new row group starts when the current one is full of rows or of image bytes.
        full = rows + len(case.questions) > MAX_GROUP_ROWS or in_group + size > ROW_GROUP_BYTES
        if full and shards[-1][-1]:
            # Nothing is shared across row groups, so all of the case's images count again.
            size = sum(case_sizes.values())
            if in_shard + size > SHARD_BYTES:
                shards.append([])
                in_shard = 0
            shards[-1].append([])
            group_image_ids, in_group, rows = set(), 0, 0
        shards[-1][-1].append(case)
        group_image_ids |= case_sizes.keys()
        in_group, in_shard, rows = in_group + size, in_shard + size, rows + len(case.questions)

    return shards


def used_columns(family: str, content: SourceContent) -> dict[str, ColumnType]:
    """Return the columns of a repository's questions.

    Args:
        family: the benchmark, which declares the columns.
        content: what the reader returned.

    Returns:
        Those columns for which some question has a value, plus `image` and `answer`, which may be
            empty.
    """
    own_facets = {name: TEXT.described("label of the question in its source") for name in content.facets}
    declared = question_columns(family) | own_facets
    questions = [
        (question, _question_images(question, case.images))
        for case in content.all_cases(include_extra=True)
        for question in case.questions
    ]

    # Images after the first have a value where their ids have one.
    value_columns = {name: "more_image_ids" if name == "more_images" else name for name in declared}
    return {
        name: kind
        for name, kind in declared.items()
        if name in ("image", "answer")
        or any(_column_value(value_columns[name], *question) not in (None, ()) for question in questions)
    }


def write_cases(
    folder: Path,
    configs: Mapping[str, dict[str, ColumnType]],
    split: str,
    cases: Sequence[Case],
    facts: ImageFacts,
    written: dict[str, ConfigSizes],
) -> None:
    """Write the cases of a split to every config's folder.

    The images of a row group are read once for all configs. After the first bad image nothing more
    is written, but the remaining images are still checked, so that `facts.bad` lists them all.

    Args:
        folder: the repository.
        configs: config -> columns. With `case_columns` a row is a case, otherwise a question.
        split: name of the split.
        cases: its cases.
        facts: collects image facts and problems.
        written: config -> sizes; updated.
    """
    for config in configs:
        written.setdefault(config, ConfigSizes()).rows[split] = 0

    # Configs without images are small and written as one file at the end.
    with_images = [config for config, columns in configs.items() if text_columns(columns) != columns]
    texts = {config: [arrow_schema(configs[config]).empty_table()] for config in configs.keys() - set(with_images)}
    shards = plan_shards(cases, images=bool(with_images))
    with tqdm(total=len(cases), desc=f"writing {', '.join(configs)}", unit=" cases", disable=None) as bar:
        for number, shard in enumerate(shards):
            name = f"{split}-{number:05d}-of-{len(shards):05d}.parquet"
            files = {config: ParquetFile(folder / config / name, configs[config]) for config in with_images}
            for group in shard:
                images = {image.image_id: image for case in group for image in case.images} if with_images else {}

                # Decode each image once and share it between configs.
                pictures = facts.read(images.values())
                for config, table in _group_tables(group, configs, pictures) if not facts.bad else ():
                    if config in files:
                        files[config].write(table)
                        written[config].rows[split] += table.num_rows
                    else:
                        texts[config].append(table)
                bar.update(len(group))
            for config, file in files.items():
                written[config].parquet_bytes += file.close()

    for config, tables in texts.items():
        write_split_table(folder / config, split, configs[config], pa.concat_tables(tables), written[config])


def _group_tables(
    group: Sequence[Case], configs: Mapping[str, dict[str, ColumnType]], pictures: Mapping[str, dict[str, Any]]
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the table of a row group for each config; `pictures`: image id -> stored image."""
    columns_of_questions = [
        dict(kinds["questions"].fields) if "questions" in kinds else kinds for kinds in configs.values()
    ]
    columns = {name: kind for kinds in columns_of_questions for name, kind in kinds.items()}
    # Encoded once per image: many questions may show the same one.
    has_uris = any(kind.name == "uri" for kind in columns.values())
    uris = {name: encode_data_uri(picture["bytes"]) for name, picture in pictures.items()} if has_uris else {}
    questions = [
        [_question_row(question, case, columns, pictures, uris) for question in case.questions] for case in group
    ]
    for config, kinds in configs.items():
        rows: Iterable[dict[str, Any]] = chain.from_iterable(questions)
        if "questions" in kinds:
            rows = (
                {
                    "case_id": case.case_id,
                    "images": [pictures[image.image_id] for image in case.images],
                    "image_ids": [image.image_id for image in case.images],
                    "questions": case_questions,
                }
                for case, case_questions in zip(group, questions, strict=True)
            )
        yield config, pa.Table.from_pylist(list(rows), arrow_schema(kinds))


def _question_row(
    question: Question,
    case: Case,
    columns: Mapping[str, ColumnType],
    pictures: Mapping[str, dict[str, Any]],
    uris: Mapping[str, str],
) -> dict[str, Any]:
    """Return the values of a question, as they are stored, in all columns of the configs."""
    images = _question_images(question, case.images)
    row = {name: _column_value(name, question, images) for name in columns}
    for name, kind in columns.items():
        if kind.name == "image":
            row[name] = pictures[question.image_id]
        elif kind.name == "list of image":
            row[name] = [pictures[image_id] for image_id in question.more_image_ids]
        elif kind.name == "uri":
            row[name] = uris[question.image_id]
        elif kind.names:
            # Class labels are stored as their index; an unknown label becomes null.
            row[name] = kind.names.index(row[name]) if row[name] in kind.names else None
    return row


def write_split_table(
    folder: Path, split: str, columns: dict[str, ColumnType], table: pa.Table, sizes: ConfigSizes
) -> None:
    """Write a table without images as the only file of a split.

    Args:
        folder: the config's folder.
        split: name of the split.
        columns: column -> type.
        table: the rows.
        sizes: sizes of the config; updated.
    """
    file = ParquetFile(folder / f"{split}-00000-of-00001.parquet", columns)
    for start in range(0, table.num_rows, MAX_GROUP_ROWS):
        file.write(table.slice(start, MAX_GROUP_ROWS))

    sizes.rows[split] = table.num_rows
    sizes.parquet_bytes += file.close()


class ParquetFile:
    """A Parquet file being written, one row group per `write`."""

    def __init__(self, path: Path, columns: dict[str, ColumnType]) -> None:
        self.path, self.columns = path, columns
        self.schema = arrow_schema(columns)
        path.parent.mkdir(parents=True, exist_ok=True)
        leaves = [leaf for column in self.schema for leaf in _leaf_paths(column.name, column.type)]

        # Image bytes are compressed already, so ZSTD would only cost time.
        large = {leaf for leaf in leaves if leaf.endswith(".bytes")}
        large |= {name for name, kind in columns.items() if kind.name == "uri"}
        self.writer = pq.ParquetWriter(
            path,
            self.schema,
            store_schema=False,
            compression={leaf: "NONE" if leaf in large else "ZSTD" for leaf in leaves},
            # Above this limit (by default 1 MiB) Parquet abandons the dictionary and stores a
            # repeated image once per row.
            use_dictionary=True,
            dictionary_pagesize_limit=1 << 30,
            write_statistics=[leaf for leaf in leaves if "." not in leaf and leaf not in large],
            write_batch_size=1024,
            # Content-defined page boundaries: inserting a row leaves the other pages unchanged, so
            # content-addressed stores (the Hub) deduplicate them. The index lets readers fetch only
            # the pages they need.
            use_content_defined_chunking=True,
            write_page_index=True,
        )

    def write(self, table: pa.Table) -> None:
        """Write a row group."""
        self.writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def close(self) -> int:
        """Finish the file and return its size in bytes; without a row group it has no rows."""
        # `datasets` looks for this when a file is opened without the card.
        features = {name: _storage(kind)[1] for name, kind in self.columns.items()}
        self.writer.add_key_value_metadata({b"huggingface": json.dumps({"info": {"features": features}}).encode()})
        self.writer.close()
        return self.path.stat().st_size


def _leaf_paths(name: str, type_: pa.DataType) -> Iterator[str]:
    """Yield the paths of the Parquet columns that an Arrow column becomes."""
    if pa.types.is_list(type_):
        yield from _leaf_paths(f"{name}.list.element", type_.value_type)
    elif pa.types.is_struct(type_):
        for part in type_:
            yield from _leaf_paths(f"{name}.{part.name}", part.type)
    else:
        yield name


def _question_images(question: Question, images: Sequence[CaseImage]) -> Sequence[CaseImage]:
    """Return the images that a question shows, out of those of its case."""
    # The only image of a case is that of all its questions.
    if len(images) == 1:
        return images
    return [next(image for image in images if image.image_id == name) for name in question.image_ids]


def _column_value(name: str, question: Question, images: Sequence[CaseImage]) -> Any:
    """Return a question's value in a column.

    Licences and sources of several images are joined by semicolons, each distinct value once;
    `images/licences.py` then requires all of them to permit copies.
    """
    if name in ("image_license", "image_source"):
        origins = [image.license if name == "image_license" else image.source for image in images]
        return (
            origins[0]
            if len(origins) == 1
            else "; ".join(dict.fromkeys(origin for origin in origins if origin)) or None
        )

    if name == "group":
        return images[0].group
    if name == "target":
        return "".join(LETTERS[position] for position in question.answer)
    return getattr(question, name) if name in Question.__dataclass_fields__ else question.extra.get(name)


_STORAGE: dict[str, tuple[pa.DataType, Any]] = {
    # Image bytes are dictionary-encoded, so that Parquet stores a repeated image once.
    "image": (
        pa.struct([("bytes", pa.dictionary(pa.int32(), pa.binary())), ("path", pa.string())]),
        {"_type": "Image"},
    ),
    "uri": (pa.dictionary(pa.int32(), pa.string()), {"dtype": "string", "_type": "Value"}),
    "string": (pa.string(), {"dtype": "string", "_type": "Value"}),
    "bool": (pa.bool_(), {"dtype": "bool", "_type": "Value"}),
    "float64": (pa.float64(), {"dtype": "float64", "_type": "Value"}),
    "int32": (pa.int32(), {"dtype": "int32", "_type": "Value"}),
}
"""Name of a plain type -> Arrow type, and the feature of `datasets`."""


def _storage(kind: ColumnType) -> tuple[pa.DataType, Any]:
    """Return a column's Arrow type, and its feature in the words of `datasets`."""
    if kind.name == "label":
        return pa.int64(), {"names": list(kind.names), "_type": "ClassLabel"}
    if kind.name == "list of struct":
        parts = [(name, *_storage(part)) for name, part in kind.fields]
        struct = pa.struct([(name, arrow) for name, arrow, _ in parts])
        return pa.list_(struct), [{name: feature for name, _, feature in parts}]
    if kind.name.startswith("list of "):
        arrow, feature = _STORAGE[kind.name.removeprefix("list of ")]
        return pa.list_(arrow), {"feature": feature, "_type": "Sequence"}
    return _STORAGE[kind.name]


def arrow_schema(columns: Mapping[str, ColumnType]) -> pa.Schema:
    """Return the Arrow schema of some columns."""
    return pa.schema([(name, _storage(kind)[0]) for name, kind in columns.items()])
