"""Read the TSV files of GMAI-MMBench record by record: only one record of a 9 GB file with images is in memory at a time.

See also: what the columns mean (`reader.py`).
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
"""Characters of one field. A quote that is never closed would otherwise read the rest of the file into memory."""
MAX_REFERENCE_LENGTH = 64
"""An `image` no longer than this is the index of the record that holds the image (as VLMEvalKit reads it)."""

csv.field_size_limit(MAX_FIELD_LENGTH)


@dataclass(frozen=True, slots=True)
class TsvRecord:
    """One record: its fields by column, and where in the file it lies (bytes), so that its image can be fetched again."""

    fields: dict[str, str]
    line: int
    start: int
    end: int


def read_tsv(file: Path) -> Iterator[TsvRecord]:
    """The records of a tab-separated file with a header; quoted fields may hold tabs, line breaks and two quotes for one.

    Raises BadInput for an empty file, a header without names or with duplicates, a record with another number of fields,
    text that is not UTF-8, and an unclosed quote.
    """
    rows = _read_rows(file)
    header = [name.strip() for name in next(rows, (0, 0, 0, []))[3]]
    if not header:
        raise BadInput(f"{file}: the file is empty. Get it again from the benchmark's authors.")
    duplicates = sorted({name for name in header if header.count(name) > 1})
    if not all(header) or duplicates:
        what = f"names the column {duplicates[0]!r} twice" if duplicates else "has a column without a name"
        raise BadInput(f"{file}: the header {what}. Get the file again from the benchmark's authors.")
    for line, start, end, values in rows:
        if values and len(values) != len(header):
            raise BadInput(
                f"{file}, line {line}: {len(values)} fields where the header names {len(header)}. Is the file complete?"
            )
        if values:
            yield TsvRecord(dict(zip(header, values, strict=True)), line, start, end)


def _read_rows(file: Path, start: int = 0) -> Iterator[tuple[int, int, int, list[str]]]:
    """(line number, first byte, byte after the last, fields) of each record from the byte `start` on."""
    with file.open("rb") as stream:
        stream.seek(start)
        lines = (
            line.decode("utf-8-sig" if stream.tell() == len(line) else "utf-8") for line in iter(stream.readline, b"")
        )
        reader = csv.reader(lines, delimiter="\t", strict=True)
        while True:
            line, first = reader.line_num + 1, stream.tell()
            try:
                values = next(reader)
            except StopIteration:
                return
            except (csv.Error, UnicodeDecodeError) as error:
                raise BadInput(f"{file}, line {line}: {error}. Is the file complete, and UTF-8?") from None
            yield line, first, stream.tell(), values


def parse_image_cell(text: str) -> list[str]:
    """The contents of a cell of `image` or `image_path`: one image, or a list of several (`["...", "..."]`, as VLMEvalKit reads it).

    Raises ImageError for a list that is malformed, empty, or holds anything but texts.
    """
    if not text.startswith("["):
        return [text]
    try:
        listed = json.loads(text) if '"' in text[:64] else ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise ImageError("its list of images is cut off or not quoted") from None
    if not (isinstance(listed, list) and listed and all(isinstance(each, str) and each.strip() for each in listed)):
        raise ImageError("its list of images is empty, or holds something that is not text")
    return [each.strip() for each in listed]


def read_image(file: Path, start: int, number: int = 0) -> bytes:
    """An image of the record at byte `start` (the one at index `number` of a list), decoded. Raises ImageError if it is not an image."""
    column = [name.strip() for name in next(_read_rows(file))[3]].index("image")
    return decode_base64_image(parse_image_cell(next(_read_rows(file, start))[3][column].strip())[number])


def decode_base64_image(text: str) -> bytes:
    """The bytes of a base64 image, with or without a `data:` prefix. Raises ImageError if it is not base64."""
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ImageError("the image is not base64") from None
