"""Reads the TSV files of GMAI-MMBench record by record: a 9 GB file with images in it never has more than one record in memory.

See also: what the columns mean (`gmai_mmbench.py`).
"""

from __future__ import annotations

import ast
import base64
import binascii
import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dataset_builders.errors import BadInput
from dataset_builders.images.lookup import ImageError

MAX_RECORD = 256 * 1024 * 1024
"""Bytes of one record. A quote that is never closed would otherwise read the rest of the file into memory."""
REFERENCE_LENGTH = 64
"""An `image` no longer than this is the index of the record that holds the image (as VLMEvalKit reads it)."""

csv.field_size_limit(MAX_RECORD)


@dataclass(frozen=True, slots=True)
class Record:
    """One record: its fields by column, and where in the file it lies (bytes), so that its image can be fetched again."""

    fields: dict[str, str]
    line: int
    start: int
    length: int


def records(file: Path) -> Iterator[Record]:
    """The records of a tab-separated file with a header; quoted fields may hold tabs, line breaks and two quotes for one.

    Raises BadInput for an empty file, a header without names or with duplicates, a record with another number of fields,
    text that is not UTF-8, and an unclosed quote.
    """
    header: list[str] | None = None
    for line, start, data in _raw_records(file):
        values = _split(data, file, line)
        if header is None:
            header = [name.strip() for name in values]
            duplicates = sorted({name for name in header if header.count(name) > 1})
            if not all(header) or duplicates:
                what = f"names the column {duplicates[0]!r} twice" if duplicates else "has a column without a name"
                raise BadInput(f"{file}: the header {what}. Get the file again from the benchmark's authors.")
            continue
        if not values:
            continue
        if len(values) != len(header):
            raise BadInput(
                f"{file}, line {line}: {len(values)} fields where the header names {len(header)}. Is the file complete?"
            )
        yield Record(dict(zip(header, values, strict=True)), line, start, len(data))
    if header is None:
        raise BadInput(f"{file}: the file is empty. Get it again from the benchmark's authors.")


def _raw_records(file: Path) -> Iterator[tuple[int, int, bytes]]:
    """(line number, byte offset, bytes) of each record; a record ends at a line break outside quotes."""
    with file.open("rb") as stream:
        start = 3 if stream.read(3) == b"\xef\xbb\xbf" else 0
        stream.seek(start)
        parts: list[bytes] = []
        size = 0
        is_open = False
        line = first = 1
        for data in iter(partial(stream.readline, MAX_RECORD), b""):
            parts.append(data)
            size += len(data)
            is_open = _leaves_quote_open(data, is_open)
            if size >= MAX_RECORD:
                raise BadInput(
                    f"{file}, line {first}: the record is longer than {MAX_RECORD >> 20} MiB. Is a quote never closed?"
                )
            if not is_open:
                yield first, start, b"".join(parts)
                start += size
                parts, size, first = [], 0, line + 1
            line += 1
        if parts:
            raise BadInput(f"{file}, line {first}: a quote is never closed. Is the file complete?")


def _leaves_quote_open(line: bytes, is_open: bool) -> bool:
    """Whether a quoted field goes on after this line. A quote opens only at the beginning of a field; elsewhere it is text."""
    if not is_open and b'"' not in line:
        return False
    at = 0
    while True:
        if is_open:
            at = line.find(b'"', at)
            if at < 0:
                return True
            if line[at + 1 : at + 2] == b'"':
                at += 2
                continue
            is_open = False
        elif line[at : at + 1] == b'"':
            is_open, at = True, at + 1
            continue
        at = line.find(b"\t", at) + 1
        if at == 0:
            return False


def _split(data: bytes, file: Path, line: int) -> list[str]:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{file}, line {line}, byte {error.start} of the record: not UTF-8 text. Save the file as UTF-8."
        ) from None
    if "\x00" in text:
        raise BadInput(f"{file}, line {line}: holds a NUL character. Is the file damaged?")
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter="\t", strict=True))
    except csv.Error as error:
        raise BadInput(f"{file}, line {line}: {error}. Is the file complete?") from None
    if len(rows) > 1:
        raise BadInput(
            f"{file}, line {line}: a line break (carriage return) outside quotes. Save the file with \\n line ends."
        )
    return rows[0] if rows else []


def images_in(text: str) -> list[str]:
    """What a cell of `image` or `image_path` holds: one image, or a list of several (`["...", "..."]`, as VLMEvalKit reads it).

    Raises ImageError for a list that is none, is empty, or holds anything but texts.
    """
    if not text.startswith("["):
        return [text]
    try:
        listed = json.loads(text) if '"' in text[:64] else ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise ImageError("its list of images is cut off or not quoted") from None
    if not (isinstance(listed, list) and listed and all(isinstance(each, str) and each.strip() for each in listed)):
        raise ImageError("its list of images is empty, or holds what is no text")
    return [each.strip() for each in listed]


def image_of(file: Path, start: int, length: int, number: int = 0) -> bytes:
    """An image of the record that lies at `start` (the one at index `number` of a list), decoded. Raises ImageError where it is none."""
    with file.open("rb") as stream:
        names = next(_raw_records(file))
        stream.seek(start)
        values = _split(stream.read(length), file, 0)
    return decode_image(images_in(values[_split(names[2], file, 1).index("image")].strip())[number])


def decode_image(text: str) -> bytes:
    """The bytes of a base64 image, with or without a `data:` prefix. Raises ImageError where it is none."""
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ImageError("the image is not base64") from None
