"""Hostile submissions: functions that write a file each (archives, bombs, pickles, wrong types) and
random mutations of honest files, with how examination handles them (called in the sandbox).
"""

import gzip
import io
import json
import os
import pickle
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dataset_builders.errors import BadInput
from eval_harness.derive.run_files import SubmittedFiles, table_to_frame
from eval_harness.store.examine import examine
from tests.eval_harness.store.submitting import update_card


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


def footer_start(content: bytes) -> int:
    """Return where the footer of a Parquet file begins."""
    return len(content) - 8 - struct.unpack("<I", content[-8:-4])[0]


def mutate(content: bytes, rng: random.Random, start: int = 0) -> bytes:
    """Change one to three bytes from `start` on, or remove or insert one."""
    mutated = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        mutated[rng.randrange(start, len(mutated))] = rng.randrange(256)
    if rng.random() < 0.1:
        del mutated[rng.randrange(start, len(mutated))]
    if rng.random() < 0.1:
        mutated.insert(rng.randrange(start, len(mutated)), rng.randrange(256))
    return bytes(mutated)


def accept_mutations(sent: SubmittedFiles, dataset, seeds: range) -> list[bytes]:
    """Return the distinct answers.parquet that are stored for many mutations.

    Most mutations are in the footer, one in ten anywhere.
    """
    rewritten = {}
    for seed in seeds:
        start = 0 if seed % 10 == 0 else footer_start(sent.answers)
        try:
            submission = examine(
                SubmittedFiles(sent.run, mutate(sent.answers, random.Random(seed), start)),
                lambda benchmark: dataset,
            )
        except BadInput:
            continue
        if not submission.problems and submission.sent.answers not in rewritten:
            again = examine(submission.sent, lambda benchmark: dataset)
            assert (again.sent, again.run_id, again.result) == (
                submission.sent,
                submission.run_id,
                submission.result,
            ), seed
            rewritten[submission.sent.answers] = submission.readings()
    for content, readings in rewritten.items():
        rows = table_to_frame(content).set_index(["question_id", "sample"])["response"].to_dict()
        names = list(zip(readings["question_id"], readings["sample"], strict=True))
        assert set(rows) <= set(names)
        for name in {name for name, _ in names}:
            table = pq.read_table(
                io.BytesIO(content),
                filters=[("question_id", "=", name)],
                columns=["sample", "response"],
            )
            responses = {(name, row["sample"]): row["response"] for row in table.to_pylist()}
            assert responses == {key: text for key, text in rows.items() if key[0] == name}
    return list(rewritten)


JUNK = (
    None,
    True,
    -1,
    7,
    10**30,
    0.5,
    "",
    "x" * 5_000,
    "../..",
    "a\nb",
    [],
    [[]],
    {},
    {"a": {"b": None}},
    ["x", 1],
    b"\xff",
)


def alter_value(document, rng: random.Random):
    """Replace one value somewhere in a JSON document by another that may not fit."""
    if isinstance(document, dict) and document and rng.random() < 0.85:
        name = rng.choice(sorted(document))
        return {**document, name: alter_value(document[name], rng)}
    if isinstance(document, list) and document and rng.random() < 0.85:
        at = rng.randrange(len(document))
        return [*document[:at], alter_value(document[at], rng), *document[at + 1 :]]
    return rng.choice([junk for junk in JUNK if not isinstance(junk, bytes)])


def alter_dataset(folder: Path, rng: random.Random) -> None:
    """Alter a dataset folder in one place: its manifest, or a column, a value or the footer of its
    questions.
    """
    manifest, (questions,) = folder / "manifest.json", folder.glob("questions_text/*.parquet")
    way = rng.randrange(5)
    if way == 0:
        manifest.write_text(json.dumps(alter_value(json.loads(manifest.read_text()), rng)))
    elif way == 1:
        deep = rng.choice([2_000, 200_000])
        manifest.write_text('{"name": ' + "[" * deep + rng.choice(["]" * deep + "}", ""]))
    elif way == 2:
        questions.write_bytes(mutate(questions.read_bytes(), rng, footer_start(questions.read_bytes())))
    else:
        rows = pq.read_table(questions).to_pylist()
        column = rng.choice(sorted(rows[0]))
        changed, junk = rng.choice([rows, rows[:1]]), rng.choice(JUNK)
        for row in changed if way == 3 else rows:
            row[column] = junk
        try:
            pq.write_table(pa.Table.from_pylist(rows), questions)
        except (pa.ArrowException, OverflowError):  # no column has such values
            pq.write_table(pa.Table.from_pylist([{**row, column: None} for row in rows]), questions)
    update_card(folder)
