"""Read untrusted files (JSON Lines, CSV, Parquet) record by record, within size limits; the sandbox limits memory and time.

A file is what its content says, not its name. No pickle is ever loaded, no archive opened. What a record means is not decided here
(`predictions.py`). Every record comes with where it was read from; what is wrong is noted and the reading goes on.
"""

from __future__ import annotations

import csv
import json
import math
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from dataset_builders.errors import MAX_LISTED_PROBLEMS as MOST_SHOWN
from dataset_builders.errors import BadInput, clip
from eval_harness.records.limits import MAX_ANSWERS, MAX_FILE_BYTES
from eval_harness.records.names import printable_line

if TYPE_CHECKING:
    import pyarrow as pa

MAX_UNPACKED_BYTES = 512 << 20
"""Maximum unpacked bytes of a Parquet file if the number of expected answers is unknown."""
MAX_LISTED_LINES = 30
"""Maximum number of problems or flags that are listed; the rest are counted."""
MAX_PROBLEMS = 1_000
"""Number of problems after which reading stops: it is another kind of file."""
MAX_LISTED_NAMES = 8
"""Maximum number of columns or fields listed in a message."""
PARQUET_BATCH_ROWS = 256
"""Rows of a Parquet file in memory at a time."""
Record = dict[str, Any]
LocatedRecord = tuple[str, Record]
"""(location in the file, record)."""
FINISH_FIELDS = ("finish_reason", "stop_reason", "finishReason")
"""Fields for why a response ended: of OpenAI's, Anthropic's and Gemini's APIs."""
ANSWER_FILE_COLUMNS = ("question_id", "index", "response", "sample", "status", "seconds", "reasoning", *FINISH_FIELDS)
"""Columns that are read from a Parquet file of answers (see `predictions.py`). Other columns often hold images, or invalid numbers."""
QUESTION_ID_COLUMNS = frozenset({"question_id", "index"})
ACCEPTED_FORMATS = "Give JSON Lines, CSV or Parquet."


def printable_lines(lines: Sequence[str], longest: int = 600) -> list[str]:
    """Make untrusted lines safe to print and store, and limit their number."""
    safe = [printable_line(line, longest) for line in lines[:MAX_LISTED_LINES]]
    return safe if len(lines) <= MAX_LISTED_LINES else [*safe, f"and {len(lines) - MAX_LISTED_LINES:,} more"]


class ProblemList:
    """The problems of a file, each with its location; `full` when there is no point in looking for more."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def add(self, where: str, what: str) -> None:
        if not self.full:
            self.problems.append(printable_line(f"{where}: {what}"))

    @property
    def full(self) -> bool:
        return len(self.problems) >= MAX_PROBLEMS

    def check(self) -> None:
        """Raise BadInput with the first problems, if there are any."""
        if self.problems:
            rest = len(self.problems) - MOST_SHOWN
            more = f"; and {rest} more" if rest > 0 else ""
            problems = "; ".join(problem.rstrip(".") for problem in self.problems[:MOST_SHOWN])
            raise BadInput(f"{problems}{more}. Correct the file.")


def iter_records(path: Path, problems: ProblemList) -> Iterator[LocatedRecord]:
    """(where, record) of a file, in order. The nameless first column that pandas writes is left out.

    Lines and entries that are no records are noted in `problems`. Raises BadInput for a file that cannot be one at all.
    """
    for count, (where, record) in enumerate(_choose_reader(path, check_file(path))(path, problems)):
        if count >= MAX_ANSWERS:
            raise BadInput(f"{path}: holds more than {MAX_ANSWERS:,} answers. No benchmark has so many questions.")
        record.pop("", None)
        yield where, record
        if problems.full:
            return


def check_file(path: Path, largest: int = MAX_FILE_BYTES) -> bytes:
    """The first bytes of a plain file of bearable size. Raises BadInput for anything else, archives and pickles among them."""
    try:
        about, head = path.stat(), b""
        if stat.S_ISREG(about.st_mode):
            with path.open("rb") as file:
                head = file.read(4096)
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file or run folder.") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error}).") from None
    if not stat.S_ISREG(about.st_mode):
        raise BadInput(f"{path}: is not a regular file. {ACCEPTED_FORMATS}")
    if about.st_size == 0:
        raise BadInput(f"{path}: is empty. {ACCEPTED_FORMATS}")
    if about.st_size > largest:
        raise BadInput(
            f"{path}: has {about.st_size:,} bytes; at most {largest:,} are read. Leave out what is no answer."
        )
    if b"\0" in head and not head.startswith(b"PAR1"):
        raise BadInput(
            f"{path}: is neither UTF-8 text nor a Parquet file; archives and pickles are never opened. {ACCEPTED_FORMATS}"
        )
    return head


def _choose_reader(path: Path, head: bytes) -> Callable[[Path, ProblemList], Iterator[LocatedRecord]]:
    """The reader for a file: Parquet, JSON Lines, or CSV. Raises BadInput for a JSON document."""
    if head.startswith(b"PAR1"):
        return _iter_parquet
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"["):
        raise BadInput(f"{path}: is a JSON document. {ACCEPTED_FORMATS} `medprobe submit` converts it on your machine.")
    return iter_json_lines if text.startswith(b"{") else _iter_csv


def parse_object(text: str | bytes, constants: bool = False) -> Record:
    """A JSON object, read as `parse_json` does. ValueError says what is wrong."""
    value = parse_json(text, constants)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def parse_json(text: str | bytes, constants: bool = False) -> Any:
    """A JSON value, strictly: no key twice, not deep, NaN and infinity only with `constants`. ValueError says what is wrong."""

    def no_constant(name: str) -> NoReturn:
        raise ValueError(f"holds {name}, which is not JSON")

    def finite(digits: str) -> float:
        if math.isinf(number := float(digits)):
            raise ValueError(f"holds {clip(digits)}, which is no number that can be stored")
        return number

    hooks: dict[str, Any] = {} if constants else {"parse_constant": no_constant, "parse_float": finite}
    try:
        return json.loads(text, object_pairs_hook=_unique_keys, **hooks)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at character {error.pos + 1})") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> Record:
    made = dict(pairs)
    if len(made) != len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"holds {clip(twice)} twice")
    return made


@contextmanager
def open_text(path: Path, newline: str) -> Iterator[TextIO]:
    """A file of UTF-8 text, its byte-order mark left out. Raises BadInput inside for what is none."""
    try:
        with path.open(encoding="utf-8-sig", newline=newline) as file:
            yield file
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: is not UTF-8 text ({error.reason}). Save it as UTF-8.") from None


def iter_json_lines(path: Path, problems: ProblemList) -> Iterator[LocatedRecord]:
    """(where, record) of each line of a JSON Lines file; lines that are none are noted in `problems`. NaN and infinity are read, as Python
    writes them; where a field is used, they are refused."""
    with open_text(path, "\n") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            try:
                yield where, parse_object(line, constants=True)
            except ValueError as error:
                problems.add(where, f"{str(error)[:200]}. Each line must be one JSON object.")
            if problems.full:
                return


def _iter_csv(path: Path, problems: ProblemList) -> Iterator[LocatedRecord]:
    csv.field_size_limit(MAX_FILE_BYTES)
    with open_text(path, "") as file:
        header, before = file.readline(), 1
        if header.lower().startswith("sep="):  # Excel's own way to name the divider
            header, before = file.readline(), 2
        # What divides the columns makes names that we know of most of them.
        divided = {each: [name.strip() for name in next(csv.reader([header], delimiter=each), [])] for each in ",\t;"}
        delimiter, names = max(divided.items(), key=lambda each: len({*ANSWER_FILE_COLUMNS} & {*each[1]}))
        if not QUESTION_ID_COLUMNS & {*names}:
            raise BadInput(
                f"{path}: is a table without a column question_id; its columns are {format_names(names)}. Name the columns "
                f"question_id and response. {ACCEPTED_FORMATS}"
            )
        known = [name for name in names if name]
        if len(set(known)) < len(known):
            raise BadInput(f"{path}: has two columns of one name. Rename one of them.")
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        try:
            for row in reader:
                where = f"{path}, line {before + reader.line_num}"
                if row and len(row) != len(names):
                    what = f"has {len(row)} fields where the first line names {len(names)}. Quote the texts."
                    problems.add(where, what)
                elif row:
                    values = zip(names, row, strict=True)
                    yield where, {name: value if value != "" or name == "response" else None for name, value in values}
        except csv.Error as error:
            where = f"{path}, line {before + reader.line_num}"
            raise BadInput(f"{where}: not CSV ({error}). Quote texts that hold quotes.") from None


def select_answer_fields(record: Mapping[Any, Any]) -> Record:
    """The fields of a record that a file of answers may have."""
    return {name: record[name] for name in ANSWER_FILE_COLUMNS if name in record}


def format_names(names: Sequence[object]) -> str:
    """The first fields of a record, or columns of a table, as a sentence lists them."""
    more = len(names) - MAX_LISTED_NAMES
    return ", ".join(clip(name, 40) for name in names[:MAX_LISTED_NAMES]) + (f" and {more} more" if more > 0 else "")


def _iter_parquet(path: Path, problems: ProblemList) -> Iterator[LocatedRecord]:
    for number, record in enumerate(iter_parquet_rows(path, ANSWER_FILE_COLUMNS), 1):
        yield f"{path}, row {number}", record


def iter_parquet_rows(
    source: Path | bytes,
    columns: Sequence[str] = (),
    most_bytes: int = MAX_UNPACKED_BYTES,
    most_rows: int = MAX_ANSWERS,
    name: str = "answers.parquet",
    schema: pa.Schema | None = None,
) -> Iterator[Record]:
    """The rows of a Parquet file, or of the bytes of an answers.parquet. Of `columns` those that are there; all, where none is named or
    there. `most_bytes`: when unpacked. `most_rows`: as many as are due. `name`: of the file whose bytes are given. `schema`: its columns
    must be exactly these. The footer is looked at before anything is unpacked.

    A Parquet file can claim any size and unpack to any other, and its reader is no Python: only to be called in the sandbox.
    Raises BadInput if the file is damaged, has impossible sizes, or does not fit the limits.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    def wrong(what: str) -> BadInput:
        return BadInput(f"{name}: cannot be read as Parquet ({printable_line(what, 200)}). Write it again.")

    if not isinstance(source, bytes):
        name = str(source)
        check_file(source)
    try:
        content = pa.BufferReader(source) if isinstance(source, bytes) else source
        with pq.ParquetFile(content, thrift_string_size_limit=64 << 20, thrift_container_size_limit=1_000_000) as file:
            about, names = file.metadata, file.schema_arrow.names
            if about.num_rows > most_rows:
                raise wrong(f"has {about.num_rows:,} rows, and at most {most_rows:,} are due")
            if len(set(names)) < len(names):
                raise wrong("has two columns of one name")
            if schema is not None and (there := _column_types(file.schema_arrow)) != (due := _column_types(schema)):
                raise BadInput(f"{name} has the columns {clip(there, 300)}, not {due}")
            chunks = [
                about.row_group(group).column(number)
                for group in range(about.num_row_groups)
                for number in range(about.num_columns)
            ]
            wanted = [name for name in names if name in columns] or names
            if columns and not (QUESTION_ID_COLUMNS & set(names) and "response" in names):
                raise BadInput(
                    printable_line(
                        f"{name}: is a table without the columns question_id and response; its columns are {format_names(names)}."
                        " Rename them."
                    )
                )
            unpacked = sum(
                chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in wanted
            )
            if unpacked > most_bytes:
                raise wrong(f"unpacks to {unpacked:,} bytes, at most {most_bytes:,} are read")
            unpacked = 0  # what the footer says is of pages, in which a value that is repeated stands once
            for batch in file.iter_batches(batch_size=PARQUET_BATCH_ROWS, columns=wanted, use_threads=False):
                unpacked += batch.nbytes
                if unpacked > most_bytes:
                    raise wrong(f"unpacks to over {most_bytes:,} bytes")
                for row in batch.to_pylist():
                    yield {name: _to_json_value(value) for name, value in row.items()}
    except (BadInput, MemoryError):
        raise
    except RecursionError:
        raise wrong("nested too deeply") from None
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        raise wrong(str(error) or type(error).__name__) from None


def _column_types(schema: pa.Schema) -> dict[str, str]:
    """Column -> type; what a list calls its values (item, element) is no difference."""
    return {field.name: re.sub(r"<\w+: ", "<", str(field.type)).replace(" not null", "") for field in schema}


def _to_json_value(value: Any) -> Any:
    """Values that JSON does not know: those that are no answers are no reason to stop, they are refused where they are used."""
    if isinstance(value, list):
        return [_to_json_value(inner) for inner in value]
    if isinstance(value, dict):
        return {name: _to_json_value(inner) for name, inner in value.items()}
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, bytes):
        raise TypeError("holds bytes where text was due")
    return f"({type(value).__name__})"
