"""Reads untrusted files (JSON Lines, JSON, CSV, Parquet) record by record, within fixed limits of size, depth and time.

A file is what its content says, not its name. No pickle is ever loaded, no archive opened. What a record means is not decided here
(`predictions.py`). Every record comes with the place it was read from; what is wrong is noted and the reading goes on.
"""

from __future__ import annotations

import contextlib
import csv
import json
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from dataset_builders.errors import BadInput
from dataset_builders.sources.problems import clip
from eval_harness.submissions.untrusted.envelope import MAX_FILE, MOST_ANSWERS

MAX_LINE = 64 << 20
"""Bytes of one line or value. There is no limit for an answer of its own: a file of them has one."""
MAX_RECORDS = MOST_ANSWERS
MAX_UNPACKED = 512 << 20
"""Bytes that a Parquet file may unpack to, where nobody says how many are due."""
MAX_DEPTH = 12
MAX_PARTS = 2_000
"""Values in one entry of a JSON document; the deepest honest one (an official MediConfusion entry) has about 60."""
MAX_PROBLEMS = 1_000
"""After so many problems the rest of a file is not read: it is another kind of file."""
MOST_COLUMNS = 60
MOST_LISTED = 8
"""Columns or fields that a message lists."""
BATCH = 256
"""Rows of a Parquet file in memory at a time."""
MOST_UNUSED = 512 << 10
"""Bytes of a Parquet file that hold no rows: its schema, statistics, and gaps; those of an honest one are some thousand."""

Record = dict[str, Any]
COLUMNS = ("question_id", "index", "id", "qa_type", "image_type", "gt_ans", "response", "sample", "status", "seconds")
"""What is read of a Parquet file of answers (see `predictions.py`). Others often hold images, or numbers that are none."""
IDENTITIES = frozenset({"question_id", "index", "id"})
FORMS = "Give JSON Lines, JSON, CSV or Parquet."

_SIGNATURES = (
    (b"PK\x03\x04", "a ZIP archive"),
    (b"PK\x05\x06", "a ZIP archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"\xfd7zXZ", "an xz archive"),
    (b"BZh", "a bzip2 archive"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"\x93NUMPY", "a NumPy file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"SQLite format 3", "an SQLite file"),
    (b"ARROW1", "an Arrow file"),
    (b"%PDF", "a PDF"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
    (b"<", "HTML or XML"),
)


def printable(text: str, most: int = 600) -> str:
    """A line that may hold what a stranger wrote, safe for a terminal: one line, no control or invisible characters, not long."""
    line = "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))
    return line if len(line) <= most else line[: most - 4] + " ..."


class Found:
    """What is wrong with a file, each with its place; `full` when it makes no sense to look for more."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def add(self, place: str, what: str) -> None:
        if not self.full:
            self.problems.append(printable(f"{place}: {what}"))

    @property
    def full(self) -> bool:
        return len(self.problems) >= MAX_PROBLEMS


def read_records(path: Path, found: Found) -> Iterator[tuple[str, Record]]:
    """(place, record) of a file, in order. A JSON object of entries gives a record per entry, with the entry's name under `""`, which no
    other record has (the nameless first column that pandas writes is left out).

    Lines and entries that are no records are noted in `found`. Raises BadInput for a file that cannot be one at all.
    """
    head = check_file(path)
    readers = {"parquet": _parquet, "document": _document, "lines": json_lines, "table": _csv}
    records = readers[_kind(path, head)](path, found)
    try:
        for count, (place, record) in enumerate(records):
            if count >= MAX_RECORDS:
                raise BadInput(f"{path}: holds more than {MAX_RECORDS:,} answers. No benchmark has so many questions.")
            yield place, record
            if found.full:
                return
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: is not UTF-8 text (byte {error.start:,} of a piece). Save it as UTF-8.") from None


def check_file(path: Path, largest: int = MAX_FILE) -> bytes:
    """The first bytes of a plain file of bearable size. Raises BadInput for anything else, archives and pickles among them."""
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise BadInput(f"{path}: is no plain file. {FORMS}")
        if about.st_size == 0:
            raise BadInput(f"{path}: is empty. {FORMS}")
        if about.st_size > largest:
            raise BadInput(
                f"{path}: has {about.st_size:,} bytes; at most {largest:,} are read. Leave out what is no answer."
            )
        with path.open("rb") as file:
            head = file.read(4096)
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file or run folder.") from None
    except BadInput:
        raise
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error}).") from None
    if head[:1] == b"\x80" and len(head) > 1 and head[1] <= 5:
        raise BadInput(f"{path}: is a pickle. Pickles can run code and are never loaded. {FORMS}")
    for signature, name in _SIGNATURES:
        if head.startswith(signature):
            raise BadInput(f"{path}: is {name}. {FORMS}")
    if b"\0" in head and not head.startswith(b"PAR1"):
        raise BadInput(f"{path}: is no text and no Parquet file. {FORMS}")
    return head


def _kind(path: Path, head: bytes) -> str:
    """`parquet`, `lines` (one JSON object a line), `document` (one JSON value over many lines) or `table` (CSV)."""
    if head.startswith(b"PAR1"):
        return "parquet"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"["):
        return "document"
    if not text.startswith(b"{"):
        return "table"
    with path.open("rb") as file:
        line = b""
        while not line.strip():
            line = file.readline(MAX_LINE + 1)
        more = file.read(1)
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return "document" if len(line) > MAX_LINE or line.strip() in (b"{", b"\xef\xbb\xbf{") else "lines"
    entries = isinstance(value, dict) and value and all(isinstance(part, dict) for part in value.values())
    return "document" if entries and not more else "lines"


def parse_object(text: str | bytes, constants: bool = False) -> Record:
    """A JSON object, strictly: no key twice, not deep, NaN and infinity only with `constants`. ValueError says what is wrong."""

    def no_constant(name: str) -> NoReturn:
        raise ValueError(f"holds {name}, which is no JSON")

    try:
        value = json.loads(text, parse_constant=None if constants else no_constant, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at character {error.pos + 1})") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _object(pairs: list[tuple[str, Any]]) -> Record:
    made = dict(pairs)
    if len(made) != len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"holds {clip(twice)} twice")
    return made


def _lines(file: BinaryIO, path: Path) -> Iterator[tuple[int, str]]:
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise BadInput(f"{path}, line {number}: is longer than {MAX_LINE:,} bytes. Shorten it.")
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise BadInput(
                f"{path}, line {number}: is not UTF-8 text (byte {error.start + 1}). Save it as UTF-8."
            ) from None
        yield number, text


def json_lines(path: Path, found: Found, constants: bool = False) -> Iterator[tuple[str, Record]]:
    """(place, record) of each line of a JSON Lines file; lines that are none are noted in `found`. `constants`: as `parse_object`."""
    with path.open("rb") as file:
        for number, line in _lines(file, path):
            if not line.strip():
                continue
            place = f"{path}, line {number}"
            try:
                record = parse_object(line, constants)
            except ValueError as error:
                found.add(place, f"{str(error)[:200]}. Each line must be one JSON object.")
            else:
                record.pop("", None)
                yield place, record
            if found.full:
                return


def _csv(path: Path, found: Found) -> Iterator[tuple[str, Record]]:
    with path.open("rb") as file:
        _, header = next(_lines(file, path))
        file.seek(0)
        delimiter = _delimiter(header)
        if header.count(delimiter) > 200:
            raise BadInput(f"{path}: has over 200 columns. Keep question_id, response and sample.")
        reader = csv.reader((text for _, text in _lines(file, path)), delimiter=delimiter, strict=True)
        try:
            names = [name.strip() for name in next(reader)]
            if not IDENTITIES & set(names):
                raise BadInput(
                    f"{path}: is a table without a column question_id; its columns are {listed(names)}. Name the columns "
                    f"question_id and response. {FORMS}"
                )
            known = [name for name in names if name]
            if len(set(known)) < len(known):
                raise BadInput(f"{path}: has two columns of one name. Rename one of them.")
            for row in reader:
                place = f"{path}, line {reader.line_num}"
                if len(row) != len(names):
                    if row:
                        found.add(
                            place, f"has {len(row)} fields where the first line names {len(names)}. Quote the texts."
                        )
                    continue
                record = {name: value if value != "" else None for name, value in zip(names, row, strict=True)}
                record.pop("", None)
                yield place, record
        except csv.Error as error:
            raise BadInput(
                f"{path}, line {reader.line_num}: not CSV ({error}). Quote texts that hold quotes."
            ) from None


def listed(names: Sequence[object]) -> str:
    """The first fields of a record, or columns of a table, as a sentence lists them."""
    more = len(names) - MOST_LISTED
    return ", ".join(clip(name, 40) for name in names[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def _delimiter(header: str) -> str:
    """What divides the columns: what makes a name that we know of one of them; otherwise what is there most often."""

    def names(delimiter: str) -> set[str]:
        try:
            return {name.strip() for name in next(csv.reader([header], delimiter=delimiter))}
        except (csv.Error, StopIteration):
            return set()

    return max(",\t;", key=lambda each: (len(names(each) & {*IDENTITIES, "response"}), header.count(each)))


class _Pieces:
    """A file of which no more than MAX_LINE bytes are read without anything coming of it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.since = 0
        self.is_over = False

    def read(self, size: int = -1) -> bytes:
        """The next piece; nothing once it is over, which the parser takes for the end of the file."""
        if self.is_over:
            return b""
        piece = self._file.read(size)
        self.since += len(piece)
        self.is_over = self.since > MAX_LINE + (1 << 17)
        return b"" if self.is_over else piece


def _document(path: Path, found: Found) -> Iterator[tuple[str, Record]]:
    """The entries of one JSON list or object, built one at a time from a stream of events, so that nothing large is held.

    The parser is the one in Python: the faster one in C takes the whole process down at a number of 5,000 digits.
    """
    import ijson
    from ijson.backends import python as parser

    builder: Any = None
    depth = parts = entry = 0
    name = ""
    is_list = False
    file = path.open("rb")
    pieces = _Pieces(file)
    events = parser.basic_parse(pieces, use_float=False)
    try:
        with file:
            if file.read(3) != b"\xef\xbb\xbf":
                file.seek(0)
            for event, value in events:
                pieces.since = 0
                if event in ("end_map", "end_array"):
                    depth -= 1
                if depth == 0:
                    is_list = event == "start_array"
                elif depth == 1 and event == "map_key":
                    name = value
                elif depth == 1 and builder is None:
                    builder, parts, entry = ijson.ObjectBuilder(), 0, entry + 1
                if builder is not None:
                    builder.event(event, value)
                    parts += 1
                if event in ("start_map", "start_array"):
                    depth += 1
                place = f"{path}, entry {entry if is_list else clip(name)}"
                if depth > MAX_DEPTH or parts > MAX_PARTS:
                    raise BadInput(f"{place}: is nested or filled beyond reason. Each entry must be one answer.")
                if depth == 1 and builder is not None:
                    made, builder = builder.value, None
                    if isinstance(made, dict):
                        made.pop("", None)
                        yield place, made if is_list else {"": name, **made}
                    else:
                        found.add(place, "is no JSON object. Each entry must be one answer.")
                    if found.full:
                        return
    except (ijson.JSONError, ValueError, ArithmeticError) as error:
        if isinstance(error, (BadInput, UnicodeDecodeError)):
            raise
        what = f"a single value of over {MAX_LINE:,} bytes" if pieces.is_over else str(error)
        raise BadInput(printable(f"{path}: is not valid JSON after entry {entry} ({what[:120]}). {FORMS}")) from None
    finally:
        pieces.is_over = True
        with contextlib.suppress(Exception):  # a parser left in the middle of a text complains when it is thrown away
            for _ in events:
                pass


def _parquet(path: Path, found: Found) -> Iterator[tuple[str, Record]]:
    for number, record in enumerate(parquet_rows(path, COLUMNS), 1):
        record.pop("", None)
        yield f"{path}, row {number}", record


def parquet_rows(path: Path, columns: Sequence[str] = (), most_bytes: int = MAX_UNPACKED) -> Iterator[Record]:
    """The rows of a Parquet file. Of `columns` those that are there; all, where none is named or there. `most_bytes`: when unpacked.

    A Parquet file can claim any size and unpack to any other, and its reader is no Python: only to be called in the sandbox.
    Raises BadInput when the file is damaged, has impossible sizes, or does not fit the limits.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    def wrong(what: str) -> BadInput:
        return BadInput(f"{path}: cannot be read as Parquet ({printable(what, 200)}). Write it again.")

    size = path.stat().st_size if check_file(path) else 0
    try:
        with pq.ParquetFile(path, thrift_string_size_limit=64 << 20, thrift_container_size_limit=1_000_000) as file:
            about, names = file.metadata, file.schema_arrow.names
            if about.num_rows > MAX_RECORDS:
                raise wrong(f"has {about.num_rows:,} rows, at most {MAX_RECORDS:,} are read")
            if about.num_columns > MOST_COLUMNS:
                raise wrong(f"has {about.num_columns} columns, at most {MOST_COLUMNS} are read")
            if len(set(names)) < len(names):
                raise wrong("has two columns of one name")
            chunks = [
                about.row_group(group).column(number)
                for group in range(about.num_row_groups)
                for number in range(about.num_columns)
            ]
            unused = size - sum(chunk.total_compressed_size for chunk in chunks)
            if not columns and unused > MOST_UNUSED:  # files of answers for us alone: other tools write what they like
                raise wrong(f"has {unused:,} bytes beside its rows (metadata, gaps), at most {MOST_UNUSED:,} are read")
            wanted = [name for name in names if name in columns] or names
            if columns and not (IDENTITIES & set(names) and "response" in names):
                raise BadInput(
                    printable(
                        f"{path}: is a table without the columns question_id and response; its columns are {listed(names)}."
                        " Rename them."
                    )
                )
            unpacked = sum(
                chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in wanted
            )
            if unpacked > most_bytes:
                raise wrong(f"unpacks to {unpacked:,} bytes, at most {most_bytes:,} are read")
            characters = 0
            for batch in file.iter_batches(batch_size=BATCH, columns=wanted, use_threads=False):
                for row in batch.to_pylist():
                    characters += sum(len(value) for value in row.values() if isinstance(value, (str, list)))
                    if characters > most_bytes:
                        raise wrong(f"holds over {most_bytes:,} characters")
                    yield {name: _plain(value) for name, value in row.items()}
    except (BadInput, MemoryError):
        raise
    except RecursionError:
        raise wrong("nested too deeply") from None
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        raise wrong(str(error) or type(error).__name__) from None


def _plain(value: Any) -> Any:
    """Values that JSON does not know: those that are no answers are no reason to stop, they are refused where they are used."""
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, bytes):
        raise TypeError("holds bytes where text was due")
    return f"({type(value).__name__})"
