"""Read the TSV files of GMAI-MMBench record by record, so that a 9 GB file with images fits in
memory.

See also: the meaning of the columns (`reader.py`).
"""

from __future__ import annotations

import ast
import base64
import binascii
import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dataset_builders.errors import BadInput
from dataset_builders.images.lookup import ImageError

MAX_FIELD_LENGTH = 256 * 1024 * 1024
"""Longest field in characters; otherwise an unclosed quote would read the rest of the file into
memory.
"""
MAX_REFERENCE_LENGTH = 64
"""An `image` cell up to this length is the index of the record with the image, as in VLMEvalKit."""

csv.field_size_limit(MAX_FIELD_LENGTH)


@dataclass(frozen=True, slots=True)
class TsvRecord:
    """A record: its fields by column, and where it is in the file.

    `start` and `end` are byte offsets, by which its image can be read again later.
    """

    fields: dict[str, str]
    line: int
    start: int
    end: int


def read_tsv(file: Path, delimiter: str = "\t") -> Iterator[TsvRecord]:
    """Read a table of text with a header. Quoted fields may contain delimiters, line breaks and
    doubled quotes.

    Args:
        file: the file.
        delimiter: tab, or a comma for CSV.

    Yields:
        Its records.

    Raises:
        BadInput: the file is empty or not UTF-8, column names are missing or duplicate, a record
            has the wrong number of fields, or a quote is not closed.
    """
    rows = _read_rows(file, 0, delimiter)
    header = [name.strip() for name in next(rows, (0, 0, 0, []))[3]]
    if not header:
        raise BadInput(f"{file}: the file is empty. Get it again from the benchmark's authors.")
    duplicates = sorted({name for name in header if header.count(name) > 1})
    if not all(header) or duplicates:
        problem = f"names the column {duplicates[0]!r} twice" if duplicates else "has a column without a name"
        raise BadInput(f"{file}: the header {problem}. Get the file again from the benchmark's authors.")
    for line, start, end, values in rows:
        if values and len(values) != len(header):
            raise BadInput(
                f"{file}, line {line}: has {len(values)} fields, but the header has {len(header)}. Is the file complete?"
            )
        if values:
            yield TsvRecord(dict(zip(header, values, strict=True)), line, start, end)


def _read_rows(file: Path, start: int = 0, delimiter: str = "\t") -> Iterator[tuple[int, int, int, list[str]]]:
    """Yield (line number, first byte, end byte, fields) of each record from the byte `start` on."""
    with file.open("rb") as stream:
        stream.seek(start)

        # Decode line by line: a text wrapper would make `tell` unusable.
        lines = (
            line.decode("utf-8-sig" if stream.tell() == len(line) else "utf-8") for line in iter(stream.readline, b"")
        )
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        while True:
            line, start_byte = reader.line_num + 1, stream.tell()
            try:
                values = next(reader)
            except StopIteration:
                return
            except (csv.Error, UnicodeDecodeError) as error:
                raise BadInput(f"{file}, line {line}: {error}. Is the file complete, and UTF-8?") from None
            yield line, start_byte, stream.tell(), values


def parse_image_cell(text: str) -> list[str]:
    """Split a cell of `image` or `image_path` into its images.

    Args:
        text: one image, or a list (`["...", "..."]`), as in VLMEvalKit.

    Raises:
        ImageError: the list is malformed, empty, or has elements other than strings.
    """
    if not text.startswith("["):
        return [text]
    try:
        # VLMEvalKit writes lists as JSON or as Python literals.
        cells = json.loads(text) if '"' in text[:64] else ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise ImageError("its list of images is cut off or not quoted") from None

    if not (isinstance(cells, list) and cells and all(isinstance(cell, str) and cell.strip() for cell in cells)):
        raise ImageError("its list of images is empty, or contains something other than strings")
    return [cell.strip() for cell in cells]


def read_image(file: Path, start: int, number: int = 0) -> bytes:
    """Read and decode an image of a record.

    Args:
        file: the TSV file.
        start: first byte of the record.
        number: index of the image in a list.

    Raises:
        ImageError: the image is not valid base64.
    """
    column = [name.strip() for name in next(_read_rows(file))[3]].index("image")
    return decode_base64_image(parse_image_cell(next(_read_rows(file, start))[3][column].strip())[number])


def decode_base64_image(text: str) -> bytes:
    """Decode a base64 image, with or without a `data:` prefix.

    Args:
        text: content of the cell.

    Raises:
        ImageError: the text is not base64.
    """
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ImageError("the image is not base64") from None
