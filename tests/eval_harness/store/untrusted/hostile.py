"""Hostile uploads, each a function that writes one file: archives, bombs, pickles, wrong types."""

import gzip
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


class MarkingPickle:
    """Leaves a mark when its pickle is loaded."""

    def __reduce__(self):
        return (os.mkdir, ("loaded-a-pickle",))


def _zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        # A path that leaves the folder, and content that compresses a thousandfold.
        archive.writestr("../../up.jsonl", b"0" * 50_000_000)
    return buffer.getvalue()


def _parquet(**columns) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, compression="zstd")
    return buffer.getvalue()


def _repeated_text() -> bytes:
    """A million rows that share one text of 100 kB: 100 GB from a small file."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 500_000, pa.int32()), pa.array(["x" * 100_000]))
    return _parquet(question_id=pa.array(["a"] * 500_000), response=column)


def _nested(depth: int) -> bytes:
    kind = pa.string()
    for _ in range(depth):
        kind = pa.list_(kind)
    return _parquet(question_id=pa.array(["a"]), response=pa.array([None], kind))


def _sparse(size: int, head: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("wb") as file:
            file.write(head)
            # Sparse: the file claims this size without using disk space.
            file.truncate(size)

    return write


ANSWER_LINE = b'{"question_id": "90001-1", "response": "A"}\n'
DEEP_JSON = b"[" * 200_000
HUGE = b"9" * 100_000

BYTES: dict[str, Callable[[], bytes]] = {
    **{f"pickle {p}": lambda p=p: pickle.dumps([MarkingPickle()], protocol=p) for p in (0, 5)},
    "zip": _zip,
    "gzip bomb": lambda: gzip.compress(b"0" * 50_000_000),
    "empty": lambda: b"",
    "parquet: repeated text": _repeated_text,
    "parquet: one huge text": lambda: _parquet(question_id=["a"], response=["x" * 60_000_000]),
    "parquet: million rows": lambda: _parquet(
        question_id=pa.array(["a"] * 1_000_000), response=pa.array(["A"] * 1_000_000)
    ),
    "parquet: more samples than a store takes": lambda: _parquet(
        question_id=pa.array([f"9000{n % 14 // 2 + 1}-{n % 2 + 1}" for n in range(890_400)]).dictionary_encode(),
        response=pa.array(["A"] * 890_400).dictionary_encode(),
        sample=[n // 14 % 9_999 for n in range(890_400)],
    ),
    "parquet: nested": lambda: _nested(60),
    "parquet: bytes": lambda: _parquet(question_id=["90001-1"], response=[b"\xff\xfe"]),
    "parquet: not a number": lambda: _parquet(question_id=["90001-1"], response=[float("nan")]),
    "parquet: no such columns": lambda: _parquet(a=[1], b=[2]),
    "parquet: cut": lambda: _parquet(question_id=["90001-1"], response=["A"])[:-20],
    # The footer's length comes before the last four bytes.
    "parquet: footer of 2 GB": lambda: b"PAR1" + b"\0" * 50 + b"\xff\xff\xff\x7f" + b"PAR1",
    "json: deep line": lambda: b'{"question_id": "90001-1", "response": ' + DEEP_JSON + b"\n",
    "json: deep document": lambda: DEEP_JSON,
    "json: deep entry": lambda: b'[{"question_id": "90001-1", "response": ' + DEEP_JSON,
    "json: overflow": lambda: b'{"question_id": "90001-1", "response": "A", "seconds": 1e999}\n',
    "json: huge id": lambda: b'{"question_id": ' + HUGE + b', "response": "A"}\n',
    "json: one key twice": lambda: b'{"question_id": "90001-1", "response": "A", "response": "B"}\n',
    "json: one key twice among many": lambda: (
        (
            b'{"question_id": "90001-1", "response": "A", '
            + b", ".join(b'"k%d": 1' % n for n in range(60_000))
            + b', "k9": 2}\n'
        )
        * 20
    ),
    "json: half a pair": lambda: b'{"question_id": "\\ud800", "response": "A"}\n',
    "json: pairs without answers": lambda: b'{"90001": {"answer": []}, "90002": {"answer": {"im1": 1}}}',
    "not UTF-8": lambda: b'{"question_id": "90001-1", "response": "\xff\xfe"}\n',
    "UTF-16": lambda: ANSWER_LINE.decode().encode("utf-16"),
    "zeros inside": lambda: ANSWER_LINE + b"\0" * 100,
    "million answers to nobody": lambda: b'{"question_id":"x","response":"A"}\n' * 1_000_000,
    "csv: open quote": lambda: b'question_id,response\n90001-1,"A\n' + b"x,y\n" * 50_000,
    "csv: thousands of columns": lambda: b"question_id,response," + b"c," * 100_000,
    "csv: other columns": lambda: b"name,age\nx,1\n",
    "csv: ragged": lambda: b"question_id,response\n90001-1,A,B,C\n",
    "a binary": lambda: bytes(range(256)) * 100,
}
"""Name -> what such a file holds. None of them is an answer to the phantom MediConfusion."""

FILES: dict[str, Callable[[Path], None]] = {
    **{name: lambda path, made=made: path.write_bytes(made()) for name, made in BYTES.items()},
    "2 GB of lines": _sparse(2 << 30, ANSWER_LINE),
    "200 MB of nothing after a line": _sparse(200 << 20, ANSWER_LINE * 200),
    "pipe": os.mkfifo,
    # Reading it would never end.
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "link to itself": lambda path: path.symlink_to(path),
    "folder": Path.mkdir,
}


def run_jsons(valid: dict) -> dict[str, bytes]:
    """Return hostile variants of a valid run.json."""

    def changed(change: Callable[[dict], object]) -> bytes:
        document = json.loads(json.dumps(valid))
        change(document)
        return json.dumps(document).encode()

    return {
        **{
            f"{count:,} samples": changed(
                lambda d, count=count: (
                    d["request"].update(samples=count),
                    d["method"].update(samples=count),
                )
            )
            for count in (0, -1, 2_000, 4_000_000, 2**31, 2**62)
        },
        "deep": b'{"run_id": ' + DEEP_JSON,
        "deep but closed": changed(lambda d: d).replace(
            b'"environment": {', b'"environment": {"x": ' + b"[" * 5000 + b"]" * 5000 + b","
        ),
        "pickle": pickle.dumps([MarkingPickle()]),
        "NaN": changed(lambda d: d["environment"].update(x=float("nan"))),
        "overflow": changed(lambda d: d).replace(b'"environment": {', b'"environment": {"x": 1e999, '),
        "unknown key": changed(lambda d: d.update({"\x1b[31m\nx": 1})),
        "nine million bytes": changed(lambda d: d["environment"].update(x="y" * 9_000_000)),
        "another fingerprint": changed(lambda d: d["request"].update(fingerprint="0" * 64)),
        "name path": changed(lambda d: d["benchmark"].update(name="../../../tmp/x")),
        "markup": changed(lambda d: d["model"].update(name="<img src=x onerror=alert(1)>")),
        "right to left": changed(lambda d: d["model"].update(name="Model \u202e7B")),
        # A duplicate key, of which parsers keep the first or the last.
        "two kinds": changed(lambda d: d).replace(b'"environment": {', b'"environment": {}, "environment": {'),
    }
