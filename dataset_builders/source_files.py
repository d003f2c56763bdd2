"""Read the authors' files: text in UTF-8 or UTF-16, JSON without duplicate keys, tables one record
at a time (a TSV with images may be larger than memory), type-checked fields.

See also: the readers (one per benchmark), images (`images/lookup.py`).
"""

import ast
import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dataset_builders.errors import BadInput, Problems, clip
from dataset_builders.schema import LETTERS

ORIGIN_MARKER = "medprobe-origin.json"
"""Name of the file in which a source folder states its origin.

Phantom sources contain `{"origin": "phantom"}`; a source without the file is real.
"""


def required_file(folder: Path, name: str, content: str) -> Path:
    """Return the path of a file of the source.

    Args:
        folder: the source.
        name: the file's name.
        content: what it contains, for the message.

    Raises:
        BadInput: the file does not exist.
    """
    path = folder / name
    if not path.is_file():
        raise BadInput(f"{path}: file not found. It contains {content}; get it from the benchmark's authors.")
    return path


def is_phantom_source(folder: Path) -> bool:
    """Return True if the source was written by `build.write_sources`."""
    marker = folder / ORIGIN_MARKER
    return marker.is_file() and read_json(marker) == {"origin": "phantom"}


def read_text(path: Path) -> str:
    """Read a file in UTF-8 (with or without a byte order mark) or UTF-16 with one.

    Args:
        path: the file.

    Raises:
        BadInput: the file is empty or in another encoding; names the position. Bytes are never
            guessed or dropped.
    """
    data = path.read_bytes()
    if not data.strip():
        raise BadInput(f"{path}: the file is empty. Get it again from the benchmark's authors.")

    encoding = _detect_encoding(path)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(
            f"{path}, line {line}, byte {error.start}: not {encoding.removesuffix('-sig').upper()} text. "
            f"Save the file as UTF-8 (from a Western Windows: iconv -f WINDOWS-1252 -t UTF-8 {path.name} > utf8{path.suffix})."
        ) from None


def _detect_encoding(path: Path) -> str:
    # UTF-16 is recognised by its byte order mark only; "utf-8-sig" also drops the mark of UTF-8.
    with path.open("rb") as file:
        return "utf-16" if file.read(2) in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


def read_json(path: Path) -> Any:
    """Read a JSON document.

    Args:
        path: the file.

    Raises:
        BadInput: the JSON is invalid (names the line), or an object has a duplicate key.
    """
    try:
        return json.loads(
            read_text(path),
            object_pairs_hook=_unique_keys_hook(path),
            parse_constant=_reject_constant,
        )
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}, line {error.lineno}: not valid JSON ({error.msg}). Is the file complete?") from None
    except RecursionError:
        raise BadInput(f"{path}: nested too deeply for a file of questions.") from None


class _UniqueKeys(yaml.SafeLoader):
    """YAML loader that rejects duplicate keys, as `read_json` does."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        # PyYAML keeps the last of several equal keys without a warning.
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise yaml.YAMLError(f"{clip(twice[0])} occurs twice in one map: keep one of them")
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """Read a YAML document.

    Args:
        path: the file.

    Raises:
        BadInput: the file is not text.
        yaml.YAMLError: the YAML is invalid or has a duplicate key.
    """
    return yaml.load(read_text(path), _UniqueKeys)


def read_json_records(path: Path) -> list[Any]:
    """Read the records of a JSON list or of a JSONL file (one object per line).

    Args:
        path: the file; its suffix decides.

    Raises:
        BadInput: the JSON is invalid or is not a list.
    """
    if path.suffix.lower() != ".jsonl":
        document = read_json(path)
        if not isinstance(document, list):
            raise BadInput(f"{path}: contains {_describe_type(document)}; expected a list of questions.")
        return document

    return list(iter_json_lines(path))


def iter_json_lines(path: Path) -> Iterator[Any]:
    """Read the records of a JSONL file one by one.

    Args:
        path: the file, in UTF-8.

    Raises:
        BadInput: a line is not valid JSON; names it.
    """
    number = 0
    try:
        # Only \n ends a line: texts may contain other separators, such as U+2028.
        with path.open(encoding=_detect_encoding(path), newline="\n") as lines:
            for line in lines:
                number += 1
                if line.strip():
                    yield json.loads(
                        line,
                        object_pairs_hook=_unique_keys_hook(path),
                        parse_constant=_reject_constant,
                    )
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}, line {number}: not valid JSON ({error.msg}). Is the file complete?") from None
    except UnicodeDecodeError:
        number = 0
    if not number:
        read_text(path)  # raises the error of an empty file, or of one that is not text


def _unique_keys_hook(path: Path) -> Any:
    def hook(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        document = dict(pairs)
        if len(document) != len(pairs):
            [(duplicate, _)] = Counter(key for key, _ in pairs).most_common(1)
            raise BadInput(f"{path}: the id or field {clip(duplicate)} occurs twice in one object. Keep one of them.")
        return document

    return hook


def _reject_constant(name: str) -> float:
    raise json.JSONDecodeError(f"{name} is not a JSON number", name, 0)


MAX_FIELD_LENGTH = 256 * 1024 * 1024
"""Longest field in characters; otherwise an unclosed quote would read the rest of the file into
memory.
"""


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
    rows = read_tsv_rows(file, 0, delimiter)
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


def read_tsv_rows(file: Path, start: int = 0, delimiter: str = "\t") -> Iterator[tuple[int, int, int, list[str]]]:
    """Yield (line number, first byte, end byte, fields) of each record from the byte `start` on."""
    csv.field_size_limit(MAX_FIELD_LENGTH)
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


_LIST_TEXT = re.compile(r"\s*[\[{(].*[\]})]\s*", re.DOTALL)


def parse_literal(cell: Any) -> Any:
    """Return the list or object that a text spells in JSON or Python, else the cell itself."""
    if not isinstance(cell, str) or not _LIST_TEXT.fullmatch(cell):
        return cell
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(cell)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return list(value) if isinstance(value, tuple) else value if isinstance(value, (list, dict)) else cell
    return cell


def _describe_type(value: object) -> str:
    # JSON's names of types, for messages.
    names = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "true or false",
        type(None): "null",
    }
    return names.get(type(value), "a number")


class SourceEntry:
    """An entry of a source file, with type-checked access to its fields.

    Problems are added to `problems` and make `ok` False.
    """

    def __init__(self, value: Any, file: str, name: str | int | None, problems: Problems) -> None:
        self.file, self.name, self.problems = file, name, problems
        self.ok = isinstance(value, dict)
        self.value: dict[str, Any] = value if self.ok else {}
        if not self.ok:
            problems.add(file, name, f"is {_describe_type(value)}; expected an object")

    def add_problem(self, problem: str) -> None:
        """Record a problem with this entry."""
        self.ok = False
        self.problems.add(self.file, self.name, problem)

    def text(self, field: str) -> str:
        """Return a non-blank string, stripped. Numbers are accepted, since some sources write ids
        as numbers.
        """
        value = self._get(field)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = str(value)
        if value is not None and not isinstance(value, str):
            self.add_problem(f'field "{field}" is {_describe_type(value)}; expected a string')
        elif value is not None and not value.strip():
            self.add_problem(f'field "{field}" is empty')
        elif value is not None:
            return check_text(value.strip(), self, field)

        return ""

    def number(self, field: str) -> float:
        """Return a number; 0.0 after a problem."""
        value = self._get(field)
        if value is None:
            return 0.0
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.add_problem(f'field "{field}" is {clip(value)}, not a number')
            return 0.0
        return float(value)

    def texts(self, field: str) -> tuple[str, ...]:
        """Return a list of non-blank strings; an empty tuple after a problem."""
        value = self._get(field)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            self.add_problem(f'field "{field}" is {clip(value)}, not a list of strings')
            return ()
        return tuple(check_text(item.strip(), self, field) for item in value)

    def _get(self, field: str) -> Any:
        if field not in self.value:
            if self.value:
                self.add_problem(f'field "{field}" is missing')
            return None
        value = self.value[field]
        if value is None:
            self.add_problem(f'field "{field}" is null')
        return value


_UNSTORABLE = re.compile("[\ud800-\udfff\x00]")


def check_text(text: str, entry: SourceEntry, field: str) -> str:
    """Return a text if it can be stored; record a problem and return "" otherwise.

    A lone surrogate (from a broken \\ud800 escape) cannot be encoded, and a NUL byte must not be
    stored.
    """
    if _UNSTORABLE.search(text):
        entry.add_problem(f'field "{field}" contains an invalid character')
        return ""
    return text


OPTION_LETTER_MARK = r"\s*[(\[]?{}\s*(?:[).:\]]|[-–](?=\s))\s*"
"""The mark before an option's text: `A:`, `(A)`, `a.`, `A - `."""


def strip_option_letters(options: Sequence[str]) -> tuple[str, ...]:
    """Remove the letters that some sources write before each option (` A:glioma`).

    A capital with a colon is always a mark. Other marks count only if every option has its own
    letter, because `A. fumigatus` is a name.

    Args:
        options: the options of a question, in order.

    Returns:
        The options without their marks.

    >>> strip_option_letters([" A:glioma", "B: cyst"])
    ('glioma', 'cyst')
    >>> strip_option_letters(["A. fumigatus", "C. albicans"])
    ('A. fumigatus', 'C. albicans')
    """
    lettered = list(zip(LETTERS, options, strict=False))
    marks = [re.match(OPTION_LETTER_MARK.format(letter), option, re.IGNORECASE) for letter, option in lettered]

    # There is no letter for more options; they are kept, so that their number can be refused.
    unlettered = options[len(LETTERS) :]
    # Every option has its own letter, so any style of mark can be removed.
    if all(marks):
        return (*(option[mark.end() :] for mark, option in zip(marks, options, strict=False) if mark), *unlettered)
    return (*(re.sub(rf"^\s*\(?{letter}\s*:\s*", "", option) for letter, option in lettered), *unlettered)


def is_safe_relative_path(name: str) -> bool:
    """Check that a file name from a source stays in its folder (no `..`, absolute path or drive
    letter).

    Args:
        name: a relative path with `/` or `\\`.
    """
    # Names from Windows sources may use backslashes and drive letters.
    parts = name.replace("\\", "/").split("/")
    return bool(parts[0]) and ".." not in parts and not re.match("[A-Za-z]:", name) and "\x00" not in name
