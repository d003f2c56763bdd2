"""Turns a stranger's Parquet file into JSON lines on standard output, in a process that may use little memory and little time.

A Parquet file can claim any size and unpack to any other, and the library that reads it is no Python: so it is read where it may fail.
Run as a program of its own: `python -I parquet_quarantine.py FILE MOST_ROWS MOST_BYTES SECONDS [COLUMN ...]` (no columns: all). Imports
nothing of this project.
"""

from __future__ import annotations

import contextlib
import json
import resource
import sys
from typing import Any

MEMORY = 3 << 30
"""Bytes of address space. The largest honest file takes a tenth; loading the library takes another."""
MOST_COLUMNS = 60
BATCH = 256
"""Rows in memory at a time."""


def main(path: str, most_rows: int, most_bytes: int, seconds: int, columns: list[str]) -> str | None:
    """Print the rows; returns what is wrong with the file, None when all was printed.

    `most_bytes`: of the file when unpacked, and of its rows as text. `columns`: those that are read where they are there; others may
    hold what they will (images, say). None of them: all are read.
    """
    for what, limit in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(ValueError, OSError):  # a lower limit holds already
            resource.setrlimit(what, (limit, limit))
    import pyarrow as pa
    import pyarrow.parquet as pq

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    try:
        with pq.ParquetFile(path, thrift_string_size_limit=64 << 20, thrift_container_size_limit=1_000_000) as file:
            about = file.metadata
            if about.num_rows > most_rows:
                return f"has {about.num_rows:,} rows, at most {most_rows:,} are read"
            if about.num_columns > MOST_COLUMNS:
                return f"has {about.num_columns} columns, at most {MOST_COLUMNS} are read"
            wanted = [name for name in file.schema_arrow.names if name in columns] or None
            unpacked = sum(_unpacked(about.row_group(group), wanted) for group in range(about.num_row_groups))
            if unpacked > most_bytes:
                return f"unpacks to {unpacked:,} bytes, at most {most_bytes:,} are read"
            written = count = 0
            for batch in file.iter_batches(batch_size=BATCH, columns=wanted, use_threads=False):
                for row in batch.to_pylist():
                    count += 1
                    # NaN and infinity are what option scores may be.
                    line = json.dumps(row, default=_plain, ensure_ascii=False).encode()
                    written += len(line)
                    if written > most_bytes:
                        return f"holds over {most_bytes:,} bytes of text"
                    sys.stdout.buffer.write(line + b"\n")
            sys.stdout.buffer.flush()
    except MemoryError:
        return "needs more memory than it may have"
    except RecursionError:
        return "nested too deeply"
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        return " ".join(str(error).split())[:200] or type(error).__name__
    return None


def _unpacked(group: Any, wanted: list[str] | None) -> int:
    """Bytes of a row group's columns when unpacked, as the file says."""
    columns = (group.column(number) for number in range(group.num_columns))
    return sum(
        column.total_uncompressed_size
        for column in columns
        if wanted is None or column.path_in_schema.split(".")[0] in wanted
    )


def _plain(value: Any) -> Any:
    """Values that JSON does not know: those that are no answers are no reason to stop, they are refused where they are used."""
    if isinstance(value, bytes):
        raise TypeError("holds bytes where text was due")
    return f"({type(value).__name__})"


if __name__ == "__main__":
    wrong = main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
    if wrong is not None:
        print(f"quarantine: {wrong}", file=sys.stderr)
        sys.exit(1)
