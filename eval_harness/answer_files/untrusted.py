"""Read untrusted files (JSON Lines, CSV, Parquet) record by record, within size limits.

The sandbox limits memory and time. A file's type is determined by its content, never by its name.
Pickles are never loaded, archives never opened. Records are yielded with their locations and not
interpreted here (see `predictions.py`). A problem is added to a list, and reading continues.
"""

import csv
import json
import math
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from dataset_builders.errors import MAX_LISTED_PROBLEMS, BadInput, clip
from eval_harness.records.limits import MAX_ANSWERS, MAX_FILE_BYTES, printable_line

DEFAULT_MAX_UNPACKED_BYTES = 512 << 20
"""Maximum unpacked bytes of a Parquet file if the number of expected answers is unknown."""
MAX_LISTED_LINES = 30
"""Maximum number of problems or flags that are listed; the rest are counted."""
MAX_PROBLEMS = 1_000
"""Number of problems after which reading stops: the file is probably of another kind."""
MAX_LISTED_NAMES = 8
"""Maximum number of columns or fields listed in a message."""
PARQUET_BATCH_ROWS = 256
"""Rows of a Parquet file held in memory at a time."""
Record = dict[str, Any]
LocatedRecord = tuple[str, Record]
"""(location in the file, such as "line 3"; record)."""
FINISH_FIELDS = ("finish_reason", "stop_reason", "finishReason")
"""Fields for why a response ended, in the APIs of OpenAI, Anthropic and Gemini."""
ANSWER_FILE_COLUMNS = (
    "question_id",
    "index",
    "response",
    "sample",
    "status",
    "seconds",
    "reasoning",
    *FINISH_FIELDS,
)
"""Columns read from a Parquet file of answers (see `predictions.py`).

Other columns are skipped: they often hold images, or invalid numbers.
"""
QUESTION_ID_COLUMNS = frozenset({"question_id", "index"})
"""Columns that may identify the question; one of them is required."""
ACCEPTED_FORMATS = "Give JSON Lines, CSV or Parquet."


def printable_lines(lines: Sequence[str], max_chars: int = 600) -> list[str]:
    """Make untrusted lines safe to print and store, and limit their number.

    Args:
        lines: Untrusted text.
        max_chars: Maximum characters per line.

    Returns:
        At most MAX_LISTED_LINES lines; if there are more, a last line says how many were left out.
    """
    safe = [printable_line(line, max_chars) for line in lines[:MAX_LISTED_LINES]]
    return safe if len(lines) <= MAX_LISTED_LINES else [*safe, f"and {len(lines) - MAX_LISTED_LINES:,} more"]


class ProblemList(list[str]):
    """The problems of a file, each with its location in the file."""

    def add(self, location: str | None, message: str) -> None:
        """Add a problem unless the list is full; `location` is None for the file as a whole."""
        if not self.full:
            self.append(printable_line(message if location is None else f"{location}: {message}"))

    @property
    def full(self) -> bool:
        """True once there are so many problems that reading on is pointless."""
        return len(self) >= MAX_PROBLEMS

    def check(self, path: Path) -> None:
        """Raise BadInput with the first problems of the file at `path`, if there are any."""
        if self:
            raise BadInput(f"{join_problems(self)}. Correct the file.", path)


def join_problems(problems: Sequence[str], hint: str = "") -> str:
    """Join the first problems for a message in one line, without the final full stop.

    `hint` follows the number of those that are not listed.
    """
    listed = "; ".join(problem.rstrip(".") for problem in problems[:MAX_LISTED_PROBLEMS])
    unlisted_count = len(problems) - MAX_LISTED_PROBLEMS
    return listed + (f"; and {unlisted_count} more{hint}" if unlisted_count > 0 else "")


def iter_records(path: Path, problems: ProblemList) -> Iterator[LocatedRecord]:
    """Yield (location, record) of a file, in file order.

    The unnamed first column that pandas writes is dropped. Malformed lines and entries are reported
    in `problems`; reading stops when that list is full.

    Raises:
        BadInput: If the file as a whole is not a file of answers, or has too many records.
    """
    for count, (location, record) in enumerate(_choose_reader(path, check_file(path))(path, problems)):
        if count >= MAX_ANSWERS:
            raise BadInput(f"contains more than {MAX_ANSWERS:,} answers. No benchmark has so many questions.", path)
        record.pop("", None)
        yield location, record
        if problems.full:
            return


def check_file(path: Path, max_bytes: int = MAX_FILE_BYTES, name: str | None = None) -> bytes:
    """Return the first 4,096 bytes of a regular file within the size limit.

    Args:
        path: The file; its name and content are untrusted.
        max_bytes: Largest accepted size.
        name: What messages call the file; None for its path.

    Raises:
        BadInput: For any other file, archives and pickles included.
    """
    where = name or path
    try:
        file_stat, head = path.stat(), b""
        # Opening anything else could block (a FIFO) or never end (a device).
        if stat.S_ISREG(file_stat.st_mode):
            with path.open("rb") as file:
                head = file.read(4096)
    except FileNotFoundError:
        raise BadInput("no such file or run folder.", where) from None
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot be read ({getattr(error, 'strerror', None) or error}).", where) from None

    size = file_stat.st_size
    problems = (
        (not stat.S_ISREG(file_stat.st_mode), f"is not a regular file. {ACCEPTED_FORMATS}"),
        (size == 0, f"is empty. {ACCEPTED_FORMATS}"),
        (
            size > max_bytes,
            f"has {size:,} bytes; at most {max_bytes:,} are read. Remove everything that is not an answer.",
        ),
        # A NUL byte never occurs in UTF-8 text of the accepted formats.
        (
            b"\0" in head and not head.startswith(b"PAR1"),
            f"is neither UTF-8 text nor a Parquet file; archives and pickles are never opened. {ACCEPTED_FORMATS}",
        ),
    )
    for applies, problem in problems:
        if applies:
            raise BadInput(problem, where)
    return head


def _choose_reader(path: Path, head: bytes) -> Callable[[Path, ProblemList], Iterator[LocatedRecord]]:
    """Choose the reader by content: Parquet, JSON Lines, or CSV.

    Raises BadInput for a JSON document.
    """
    if head.startswith(b"PAR1"):
        return _iter_parquet
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"["):
        raise BadInput(f"is a JSON document. {ACCEPTED_FORMATS} `medprobe submit` reads it on your machine.", path)
    return iter_json_lines if text.startswith(b"{") else _iter_csv


def parse_object(text: str | bytes, constants: bool = False) -> Record:
    """Parse a JSON object, as strictly as `parse_json`. Raises ValueError if it is invalid."""
    value = parse_json(text, constants)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def parse_json(text: str | bytes, constants: bool = False) -> Any:
    """Parse a JSON value strictly: no duplicate keys, no deep nesting.

    Args:
        text: The untrusted text.
        constants: Accept NaN and infinity, and numbers that overflow to infinity.

    Raises:
        ValueError: If the text is not such a value; the message says why.
    """

    def no_constant(name: str) -> NoReturn:
        raise ValueError(f"contains {name}, which is not JSON")

    def finite(digits: str) -> float:
        if math.isinf(number := float(digits)):
            raise ValueError(f"contains {clip(digits)}, which is out of range")
        return number

    # With `constants`, json's defaults accept NaN, Infinity and overflowing numbers.
    hooks: dict[str, Any] = {} if constants else {"parse_constant": no_constant, "parse_float": finite}
    try:
        return json.loads(text, object_pairs_hook=_unique_keys, **hooks)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at character {error.pos + 1})") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> Record:
    """Build an object from its key-value pairs. Raises ValueError for a duplicate key."""
    unique = dict(pairs)
    if len(unique) != len(pairs):
        (duplicate_key, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"contains {clip(duplicate_key)} twice")
    return unique


@contextmanager
def open_text(path: Path, newline: str) -> Iterator[TextIO]:
    """Open a UTF-8 text file, without its byte-order mark.

    Raises:
        BadInput: While reading, if the file is not UTF-8.
    """
    try:
        with path.open(encoding="utf-8-sig", newline=newline) as file:
            yield file
    except UnicodeDecodeError as error:
        raise BadInput(f"is not UTF-8 text ({error.reason}). Save it as UTF-8.", path) from None


def iter_json_lines(path: Path, problems: ProblemList) -> Iterator[LocatedRecord]:
    """Yield (location, record) of each line of a JSON Lines file; invalid lines are problems.

    NaN and infinity are accepted here, since Python writes them; a field that must be a valid
    number is checked later.
    """
    with open_text(path, "\n") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            location = f"line {number}"
            try:
                yield location, parse_object(line, constants=True)
            except ValueError as error:
                problems.add(location, f"{str(error)[:200]}. Each line must be one JSON object.")
            if problems.full:
                return


def _iter_csv(path: Path, problems: ProblemList) -> Iterator[LocatedRecord]:
    """Yield (location, record) of each row of a CSV file.

    A row whose length differs from the header's is a problem. An empty cell is None, except for the
    response.
    """
    # The default limit of 128 KiB is too small for long reasoning; check_file limits the file's
    # size.
    csv.field_size_limit(MAX_FILE_BYTES)
    with open_text(path, "") as file:
        header, header_lines = file.readline(), 1
        if header.lower().startswith("sep="):  # Excel's declaration of the delimiter
            header, header_lines = file.readline(), 2
        # Take the delimiter that yields the most known column names.
        columns_by_delimiter = {
            candidate: [name.strip() for name in next(csv.reader([header], delimiter=candidate), [])]
            for candidate in ",\t;"
        }
        delimiter, names = max(
            columns_by_delimiter.items(),
            key=lambda candidate: len({*ANSWER_FILE_COLUMNS} & {*candidate[1]}),
        )
        if not QUESTION_ID_COLUMNS & {*names}:
            raise BadInput(
                f"has no column question_id; its columns are {format_names(names)}. Name the columns "
                f"question_id and response. {ACCEPTED_FORMATS}",
                path,
            )
        named_columns = [name for name in names if name]
        if len(set(named_columns)) < len(named_columns):
            raise BadInput("has two columns with the same name. Rename one of them.", path)
        # strict: malformed quoting is an error instead of a silently merged field.
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        try:
            for row in reader:
                location = f"line {header_lines + reader.line_num}"
                if row and len(row) != len(names):
                    message = f"has {len(row)} fields, but the first line names {len(names)} columns. Quote the texts."
                    problems.add(location, message)
                elif row:
                    values = zip(names, row, strict=True)
                    yield (
                        location,
                        {name: value if value != "" or name == "response" else None for name, value in values},
                    )
        except csv.Error as error:
            location = f"line {header_lines + reader.line_num}"
            raise BadInput(f"{location}: not CSV ({error}). Quote texts that contain quotes.", path) from None


def select_answer_fields(record: Mapping[Any, Any]) -> Record:
    """Return the fields of a record that a file of answers may have."""
    return {name: record[name] for name in ANSWER_FILE_COLUMNS if name in record}


def format_names(names: Sequence[object]) -> str:
    """Join the first fields of a record, or columns of a table, for a message."""
    unlisted_count = len(names) - MAX_LISTED_NAMES
    return ", ".join(clip(name, 40) for name in names[:MAX_LISTED_NAMES]) + (
        f" and {unlisted_count} more" if unlisted_count > 0 else ""
    )


def _iter_parquet(path: Path, problems: ProblemList) -> Iterator[LocatedRecord]:
    """Yield (location, record) of each row of a Parquet file."""
    for number, record in enumerate(iter_parquet_rows(path, ANSWER_FILE_COLUMNS), 1):
        yield f"row {number}", record


def iter_parquet_rows(
    source: Path | bytes,
    columns: Sequence[str] = (),
    max_bytes: int = DEFAULT_MAX_UNPACKED_BYTES,
    max_rows: int = MAX_ANSWERS,
    name: str = "answers.parquet",
    schema: pa.Schema | None = None,
) -> Iterator[Record]:
    """Yield the rows of a Parquet file, or of the bytes of an answers.parquet.

    The footer is checked before anything is unpacked. Because a Parquet file can claim any size and
    unpack to any other, and because its reader is native code, call this only in the sandbox.

    Args:
        source: Path of the file, or its bytes.
        columns: Columns to read, if present; all columns if none is given or present.
        max_bytes: Maximum unpacked bytes.
        max_rows: Maximum number of rows (the number of expected answers).
        name: Name of the file in messages, if `source` is bytes.
        schema: If given, the columns must be exactly these.

    Raises:
        BadInput: If the file is damaged, has impossible sizes, or exceeds the limits.
    """

    def unreadable(reason: str) -> BadInput:
        # The library's messages may quote the path, which visitors of a board must not see.
        shown_reason = printable_line(reason.replace(str(where), "the file"), 200)
        return BadInput(f"cannot be read as Parquet ({shown_reason}). Write it again.", where)

    where = name if isinstance(source, bytes) else source
    if not isinstance(source, bytes):
        check_file(source)

    try:
        parquet_source = pa.BufferReader(source) if isinstance(source, bytes) else source
        with pq.ParquetFile(
            parquet_source, thrift_string_size_limit=64 << 20, thrift_container_size_limit=1_000_000
        ) as file:
            metadata, names = file.metadata, file.schema_arrow.names
            if metadata.num_rows > max_rows:
                raise unreadable(f"has {metadata.num_rows:,} rows; at most {max_rows:,} are expected")
            if len(set(names)) < len(names):
                raise unreadable("has two columns with the same name")
            if schema is not None and (actual_types := _column_types(file.schema_arrow)) != (
                expected_types := _column_types(schema)
            ):
                raise BadInput(f"has the columns {clip(actual_types, 300)}, not {expected_types}", where)
            chunks = [
                metadata.row_group(group).column(number)
                for group in range(metadata.num_row_groups)
                for number in range(metadata.num_columns)
            ]
            read_columns = [name for name in names if name in columns] or names
            if columns and not (QUESTION_ID_COLUMNS & set(names) and "response" in names):
                raise BadInput(
                    printable_line(
                        f"has no columns question_id and response; its columns are {format_names(names)}. Rename them."
                    ),
                    where,
                )
            unpacked = sum(
                chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in read_columns
            )
            if unpacked > max_bytes:
                raise unreadable(f"unpacks to {unpacked:,} bytes, at most {max_bytes:,} are read")
            # The footer counts encoded pages, in which repeated values are stored once: count again
            # while reading.
            unpacked = 0
            for batch in file.iter_batches(batch_size=PARQUET_BATCH_ROWS, columns=read_columns, use_threads=False):
                unpacked += batch.nbytes
                if unpacked > max_bytes:
                    raise unreadable(f"unpacks to over {max_bytes:,} bytes")
                for row in batch.to_pylist():
                    yield {name: _to_json_value(value) for name, value in row.items()}
    except (BadInput, MemoryError):
        raise
    except RecursionError:
        raise unreadable("nested too deeply") from None
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        raise unreadable(str(error) or type(error).__name__) from None


def _column_types(schema: pa.Schema) -> dict[str, str]:
    """Return column -> type; the name of a list's elements (item, element) is ignored."""
    return {field.name: re.sub(r"<\w+: ", "<", str(field.type)).replace(" not null", "") for field in schema}


def _to_json_value(value: Any) -> Any:
    """Convert values that JSON cannot represent to text; they are rejected where they are used."""
    if isinstance(value, list):
        return [_to_json_value(inner) for inner in value]
    if isinstance(value, dict):
        return {name: _to_json_value(inner) for name, inner in value.items()}
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, bytes):
        raise TypeError("contains bytes instead of text")
    return f"({type(value).__name__})"
