"""Say which columns of a source mean what (`--map`), and read its rows one by one.

A source is tables in a folder, or a repository of the Hub (streamed). Cells keep their types: a
table of text has only texts, so that "01" and "NA" stay what they are.

See also: known sets (`presets.py`), options and answers (`keys.py`).
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dataset_builders.benchmark_names import resolve_name
from dataset_builders.benchmarks import DECLARED_COLUMNS, FACETS_BY_BENCHMARK
from dataset_builders.errors import BadInput, describe_error
from dataset_builders.source_files import ORIGIN_MARKER, iter_json_lines, read_json, read_tsv

Names = tuple[str, ...]
COMMON_FACETS = ("task", "modality", "department", "granularity", "keyword", "category")
"""Facets that other benchmarks have, too; labels of any other name are the set's own facets."""
_SCORE_COLUMNS = (
    "case", "chance", "choice", "cluster", "correct", "count", "denominator", "failed", "irrelevant", "key", "metric",
    "missing", "numerator", "refused", "response", "responses", "rule", "sample", "status", "truncated", "unit",
)  # fmt: skip
RESERVED_NAMES = frozenset((*_SCORE_COLUMNS, *DECLARED_COLUMNS)).difference(
    COMMON_FACETS, *FACETS_BY_BENCHMARK.values()
)
"""Columns with another meaning, in questions, scores or readings."""


@dataclass(frozen=True)
class Fields:
    """Columns by meaning. Each field is a list of names, separated by `;` in `--map`.

    `question`: columns whose texts are joined by line breaks. `options`: a column for each option,
    or one column with all; a table without these has columns `A`, `B` and so on. `answer`: a
    column, `COLUMN:FORM` with a form of `keys.ANSWER_FORMS` if the answers can be read in several.
    `image`: columns shown in this order. `facets`: labels, a column or `NAME=COLUMN`. `where`:
    `COLUMN=VALUE|VALUE` keeps the rows that have one of the values (`split` and `config` are
    columns of every source). `files`: glob patterns of a folder's tables. `config`: configs of a
    Hub repository.
    """

    question: Names = ("question",)
    options: Names = ("options",)
    answer: Names = ("answer",)
    image: Names = ("image", "image_path", "file_name")
    id: Names = ()
    case: Names = ()
    group: Names = ()
    license: Names = ()
    split: Names = ("split",)
    facets: Names = COMMON_FACETS
    where: Names = ()
    files: Names = ("*", "*/metadata.*")
    config: Names = ()

    @property
    def allowed(self) -> dict[str, list[str]]:
        """Column -> values that a row must have one of."""
        return {name: values.split("|") for name, _, values in (item.partition("=") for item in self.where)}

    @property
    def labels(self) -> dict[str, str]:
        """Facet -> column of its labels."""
        pairs = [item.partition("=") for item in self.facets]
        return {facet_name(name): (column or name).strip() for name, _, column in pairs}


def facet_name(name: str) -> str:
    """Turn a column's name into a facet's: lower case, words joined by underscores."""
    return "_".join("".join(sign if sign.isalnum() else " " for sign in name.lower()).split())


def parse_fields(text: str, base: Fields = Fields()) -> Fields:
    """Parse the text of `--map`.

    Args:
        text: `question=Q,options=A;B;C,answer=key,image=file,facets=organ;task=kind`.
        base: fields that the text does not name.

    Raises:
        BadInput: a field is unknown or empty.
    """
    changes: dict[str, Names] = {}
    for part in filter(None, text.split(",")):
        name, _, columns = (word.strip() for word in part.partition("="))
        names = tuple(column.strip() for column in columns.split(";") if column.strip())
        if not names:
            raise BadInput(f"--map {part[:80]!r}: write FIELD=COLUMN, e.g. answer=key; several columns with ';'.")
        changes[resolve_name(name, [field.name for field in fields(Fields)], "--map: the field")] = names
    fields_of_set = replace(base, **changes)
    for name in fields_of_set.labels:
        if not name or name in RESERVED_NAMES:
            raise BadInput(
                f"--map facets={name}: the name has another meaning here. Give it one of its own: my_name={name}."
            )
    return fields_of_set


TABLE_SUFFIXES = (".tsv", ".csv", ".json", ".jsonl", ".parquet")
NOT_TABLES = (ORIGIN_MARKER, "manifest.json")
SOURCE_BATCH_ROWS = 64
"""Rows in memory at a time, with their images."""
PARQUET_BUFFER_BYTES = 1 << 20
SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validate", "validation"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
    "dev": "dev",
}
"""Word in a file's name, or value of the column `split` -> name of the split."""


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row of a source. `folder`: where paths in its cells begin; None on the Hub."""

    cells: Mapping[str, Any]
    file: str
    number: int
    split: str
    folder: Path | None = None


def read_rows(source: str, fields: Fields) -> Iterator[SourceRow]:
    """Read all rows of a source.

    Args:
        source: a table, a folder of tables, or ORG/NAME on the Hub (ORG/NAME@REVISION).
        fields: the files, configs and splits to read.

    Yields:
        Rows in the order of the source.

    Raises:
        BadInput: there is no such source, or it cannot be read.
    """
    path = Path(source)
    if not path.exists():
        yield from _read_hub(source, fields)
        return
    files = [path] if path.is_file() else sorted({file for glob in fields.files for file in path.glob(glob)})
    files = [file for file in files if file.suffix.lower() in TABLE_SUFFIXES and file.name not in NOT_TABLES]
    if not files:
        raise BadInput(
            f"--source {source}: no table ({', '.join(TABLE_SUFFIXES)}) {'matches ' + '; '.join(fields.files)}. "
            "Name a table, a folder with tables (--map files=GLOB), or ORG/NAME on the Hub."
        )
    for file in files:
        words = re.split(r"[\W_]+", f"{file.parent.name if file.stem == 'metadata' else ''} {file.stem}".lower())
        split = next((SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS), "test")
        for number, cells in enumerate(_read_table(file), start=1):
            if not isinstance(cells, dict):
                raise BadInput(f"{file}, row {number}: is not an object (column -> value). Write a row per question.")
            split_cell = next((str(cells[name]).strip() for name in fields.split if cells.get(name)), "")
            yield SourceRow(
                cells, str(file), number, SPLIT_WORDS.get(split_cell.lower(), split_cell) or split, file.parent
            )


def _read_table(file: Path) -> Iterator[Any]:
    """Yield the rows of a table; a JSON document is read as a whole, all others row by row."""
    suffix = file.suffix.lower()
    if suffix in (".tsv", ".csv"):
        yield from (record.fields for record in read_tsv(file, "\t" if suffix == ".tsv" else ","))
    elif suffix == ".jsonl":
        yield from iter_json_lines(file)
    elif suffix == ".json":
        document = read_json(file)
        lists = [value for value in document.values() if isinstance(value, list)] if isinstance(document, dict) else []
        if not isinstance(document, list) and len(lists) != 1:
            raise BadInput(f"{file}: contains no list of questions. Write a list of objects, one per question.")
        yield from document if isinstance(document, list) else lists[0]
    else:
        try:
            # Without pre-buffering, and with a buffer, a row group is read page by page, however
            # large it is.
            with pq.ParquetFile(file, pre_buffer=False, buffer_size=PARQUET_BUFFER_BYTES) as table:
                for batch in table.iter_batches(SOURCE_BATCH_ROWS):
                    yield from batch.to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise BadInput(f"{file}: cannot be read ({describe_error(error)}). Is the file complete?") from None


def _read_hub(source: str, fields: Fields) -> Iterator[SourceRow]:
    """Stream the rows of a Hub repository, images as stored bytes."""
    from datasets import ClassLabel, load_dataset

    name, _, revision = source.partition("@")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise BadInput(f"--source {source}: there is no such file or folder, and it is not ORG/NAME on the Hub.")
    allowed: Collection[str] | None = fields.allowed.get("split")
    try:
        for config in fields.config or (None,):
            for split, rows in load_dataset(name, config, revision=revision or None, streaming=True).items():
                if allowed is not None and split not in allowed:
                    continue
                kinds = rows.features or {}
                classes = {column: kind.names for column, kind in kinds.items() if isinstance(kind, ClassLabel)}
                for number, cells in enumerate(rows.decode(False) if kinds else rows, start=1):
                    # A hidden label is -1, which would be the last name.
                    labels = {
                        column: names[label] if (label := cells[column]) is not None and label >= 0 else None
                        for column, names in classes.items()
                    }
                    labels |= {column: _fetch(cell) for column, cell in cells.items() if isinstance(cell, (dict, list))}
                    place = f"{source}{f' ({config})' if config else ''}, split {split}"
                    yield SourceRow({"config": config, **cells, **labels}, place, number, split)
    except Exception as error:  # `datasets` raises many kinds for what is not there or cannot be parsed
        raise BadInput(
            f"--source {source}: cannot be read from the Hub ({describe_error(error)}). Check the name, --map config=, "
            "your access and the network, or download it and give the folder."
        ) from error


def _fetch(cell: Any) -> Any:
    """Return an image's bytes where `datasets` gives only its address in the repository.

    An image elsewhere stays an address, which is refused.
    """
    if isinstance(cell, list):
        return [_fetch(part) for part in cell]
    if (
        isinstance(cell, dict)
        and cell.keys() == {"bytes", "path"}
        and cell["bytes"] is None
        and str(cell["path"]).startswith("hf://")
    ):
        import fsspec

        with fsspec.open(cell["path"], "rb") as file:
            return file.read()
    return cell
