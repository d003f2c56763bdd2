"""Writes cases as Parquet: every image once per row group, the same bytes for the same input, few images in memory at a time.

An image that nine questions share is nine small indices into the row group's dictionary of images. See also: the card and the
manifest (`contents/`), the columns (`columns.py`), rows and images as Arrow tables (`rows.py`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from dataset_builders.benchmarks import case_columns, question_columns
from dataset_builders.case_groups import sharing_images
from dataset_builders.columns import Kind, arrow_type, features_metadata
from dataset_builders.images.lookup import ImageError, check_image
from dataset_builders.images.metadata import strip_metadata
from dataset_builders.parquet.rows import ImageBank, Rows
from dataset_builders.schema import Case, CaseImage
from dataset_builders.sources.problems import Problems

ROW_GROUP_BYTES = 32 * 1024 * 1024
"""Distinct image bytes per row group: the most that a reader streaming `cases` has to fetch for its first row."""
SHARD_BYTES = 480 * 1024 * 1024
DECODERS = min(8, os.cpu_count() or 1)
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

    def fetch(self, images: Iterable[CaseImage]) -> Iterator[tuple[CaseImage, bytes]]:
        """Each image with its bytes, checked, several decoded at a time; empty bytes where they are wrong (which is noted)."""
        wanted = list(images)
        with ThreadPoolExecutor(DECODERS, thread_name_prefix="decode") as pool:
            for image, (data, wrong) in zip(wanted, pool.map(self._read, wanted), strict=True):
                if wrong is None and image.image_id not in self.wrong:
                    digest = (hashlib.sha256(data).hexdigest(), len(data))
                    if self.facts.setdefault(image.image_id, digest) != digest:
                        wrong = "changed while it was read"
                if wrong is not None:
                    self._note(image, wrong)
                yield image, data

    def _read(self, image: CaseImage) -> tuple[bytes, str | None]:
        """The bytes of an image without its metadata, and what is wrong with them; it is decoded the first time that it is met."""
        if image.read is None:
            raise AssertionError(f"image {image.image_id} is missing; the build should have said so")
        if image.image_id in self.wrong:
            return b"", None
        try:
            data = image.read()
            if image.image_id not in self.facts:
                check_image(data)
            data = strip_metadata(data)
        except (ImageError, OSError) as error:
            return b"", str(error)
        return data, None

    def _note(self, image: CaseImage, what: str) -> None:
        self.wrong.add(image.image_id)
        self.problems.add(image.where or image.name or image.image_id, None, what)


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
    folder: Path,
    family: str,
    configs: Iterable[str],
    split: str,
    cases: Sequence[Case],
    known: ImageFacts,
    several: bool = False,
) -> dict[str, Written]:
    """Write the cases of a split under each config's folder: `cases` one row per case, others one row per question.

    Configs ending in `_text` carry no images. `several`: with the columns of questions about several images. The images of a row group
    are read once for all configs, the next ones while these are written. After a first wrong image nothing more is written but the rest
    is still checked, so that `known.problems` names all.
    """
    configs = list(configs)
    done = {config: Written() for config in configs}
    with_images = [config for config in configs if not config.endswith("_text")]
    texts: list[pa.Table] = []
    shards = plan(cases, images=bool(with_images))
    with (
        tqdm(total=len(cases), desc=f"writing {', '.join(configs)}", unit=" cases", disable=None) as bar,
        ThreadPoolExecutor(max_workers=2) as pool,
    ):
        for number, shard in enumerate(shards):
            name = f"{split}-{number:05d}-of-{len(shards):05d}.parquet"
            files = {
                config: ParquetFile(folder / config / name, columns_of(family, config, several))
                for config in with_images
            }
            running: list[Future[None]] = []
            for group in shard:
                shown = {image.image_id: image for case in group for image in case.images} if with_images else {}
                bank = ImageBank(known.fetch(shown.values()))
                if not known.problems:
                    rows = Rows(group, question_columns(family, images=False, several=several))
                    texts.append(rows.text)
                    for future in running:
                        future.result()
                    running = [
                        pool.submit(_write_group, config, file, rows, bank, done[config], split)
                        for config, file in files.items()
                    ]
                bar.update(len(group))
            for future in running:
                future.result()
            for config, file in files.items():
                file.close()
                done[config].parquet_bytes += file.path.stat().st_size
    for config in set(configs) - set(with_images):
        path = folder / config / f"{split}-00000-of-00001.parquet"
        done[config] = _write_text(path, columns_of(family, config, several), split, texts)
    return done


def columns_of(family: str, config: str, several: bool = False) -> dict[str, Kind]:
    """The columns of a config of cases or questions. `several`: a question may show several images."""
    if config == "cases":
        return case_columns(family, several=several)
    return question_columns(family, images=not config.endswith("_text"), several=several)


def _write_group(config: str, file: ParquetFile, rows: Rows, bank: ImageBank, done: Written, split: str) -> None:
    table, ids = rows.cases(file.schema, bank) if config == "cases" else rows.questions(file.schema, bank)
    file.write(table)
    expanded = table.nbytes + sum(bank.sizes[bank.codes[image_id]] for image_id in ids) - sum(bank.sizes)
    done.rows[split] = done.rows.get(split, 0) + table.num_rows
    done.arrow_bytes[split] = done.arrow_bytes.get(split, 0) + expanded


def _write_text(path: Path, columns: dict[str, Kind], split: str, texts: list[pa.Table]) -> Written:
    file = ParquetFile(path, columns)
    table = pa.concat_tables(texts) if texts else file.schema.empty_table()
    for start in range(0, table.num_rows, ROWS_OF_TEXT):
        file.write(table.slice(start, ROWS_OF_TEXT))
    file.close()
    return Written({split: table.num_rows}, {split: table.nbytes}, path.stat().st_size)


class ParquetFile:
    """A Parquet file being written, a row group per `write`."""

    def __init__(self, path: Path, columns: dict[str, Kind]) -> None:
        self.path, self.columns = path, columns
        self.schema = pa.schema([(name, arrow_type(kind)) for name, kind in columns.items()])
        path.parent.mkdir(parents=True, exist_ok=True)
        leaves = [leaf for column in self.schema for leaf in _leaves(column.name, column.type)]
        large = {leaf for leaf in leaves if leaf.endswith(".bytes")}
        large |= {name for name, kind in columns.items() if kind.name == "uri"}
        self.writer = pq.ParquetWriter(
            path,
            self.schema,
            store_schema=False,
            compression={leaf: "NONE" if leaf in large else "ZSTD" for leaf in leaves},
            use_dictionary=True,
            dictionary_pagesize_limit=1 << 30,
            write_statistics=[leaf for leaf in leaves if "." not in leaf and leaf not in large],
            write_batch_size=1024,
            # Pages end where the content says, so that a row more or less leaves the other pages as they were: what follows is found
            # again by stores that deduplicate by content (the Hub's). The index lets readers fetch the pages that they need.
            use_content_defined_chunking=True,
            write_page_index=True,
        )

    def write(self, table: pa.Table) -> None:
        """Write a row group."""
        self.writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def close(self) -> None:
        """Write the end of the file; without a row group before, the file has the columns and no rows."""
        self.writer.add_key_value_metadata(features_metadata(self.columns))
        self.writer.close()


def _leaves(name: str, type_: pa.DataType) -> Iterator[str]:
    """Paths of the Parquet columns that an Arrow column becomes."""
    if pa.types.is_list(type_):
        yield from _leaves(f"{name}.list.element", type_.value_type)
    elif pa.types.is_struct(type_):
        for part in type_:
            yield from _leaves(f"{name}.{part.name}", part.type)
    else:
        yield name
