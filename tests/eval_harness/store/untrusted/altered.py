"""Files altered at random, and what the gate makes of them; called in the sandbox, where such files are read."""

import io
import json
import random
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dataset_builders.errors import BadInput
from eval_harness.derive.answer_table import table_to_frame
from eval_harness.derive.run_files import SubmittedFiles
from eval_harness.store.examine import examine
from tests.eval_harness.store.submitting import restate


def footer_of(content: bytes) -> int:
    """Where the footer of a Parquet file begins."""
    return len(content) - 8 - struct.unpack("<I", content[-8:-4])[0]


def altered(content: bytes, rng: random.Random, start: int = 0) -> bytes:
    """The same with one to three bytes from `start` on changed, or one taken out or put in."""
    made = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        made[rng.randrange(start, len(made))] = rng.randrange(256)
    if rng.random() < 0.1:
        del made[rng.randrange(start, len(made))]
    if rng.random() < 0.1:
        made.insert(rng.randrange(start, len(made)), rng.randrange(256))
    return bytes(made)


def accepted(sent: SubmittedFiles, dataset, seeds: range) -> list[bytes]:
    """The different answers.parquet that are kept of so many that were altered: in their footers, one in ten anywhere."""
    kept = {}
    for seed in seeds:
        start = 0 if seed % 10 == 0 else footer_of(sent.answers)
        try:
            found = examine(
                SubmittedFiles(sent.run, altered(sent.answers, random.Random(seed), start)), lambda benchmark: dataset
            )
        except BadInput:
            continue
        if not found.problems and found.sent.answers not in kept:
            again = examine(found.sent, lambda benchmark: dataset)
            assert (again.sent, again.run_id, again.result) == (found.sent, found.run_id, found.result), seed
            kept[found.sent.answers] = found.readings()
    for content, readings in kept.items():
        rows = table_to_frame(content).set_index(["question_id", "sample"])["response"].to_dict()
        names = list(zip(readings["question_id"], readings["sample"], strict=True))
        assert set(rows) <= set(names)
        for name in {name for name, _ in names}:
            table = pq.read_table(
                io.BytesIO(content), filters=[("question_id", "=", name)], columns=["sample", "response"]
            )
            read = {(name, row["sample"]): row["response"] for row in table.to_pylist()}
            assert read == {key: text for key, text in rows.items() if key[0] == name}
    return list(kept)


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
    """A JSON document with one value, somewhere in it, replaced by another that may not fit."""
    if isinstance(document, dict) and document and rng.random() < 0.85:
        name = rng.choice(sorted(document))
        return {**document, name: alter_value(document[name], rng)}
    if isinstance(document, list) and document and rng.random() < 0.85:
        at = rng.randrange(len(document))
        return [*document[:at], alter_value(document[at], rng), *document[at + 1 :]]
    return rng.choice([junk for junk in JUNK if not isinstance(junk, bytes)])


def alter_dataset(folder: Path, rng: random.Random) -> None:
    """Alter a dataset folder in one place: a value or the bytes of its manifest, or a column, a value or the footer of its questions."""
    manifest, (questions,) = folder / "manifest.json", folder.glob("questions_text/*.parquet")
    way = rng.randrange(5)
    if way == 0:
        manifest.write_text(json.dumps(alter_value(json.loads(manifest.read_text()), rng)))
    elif way == 1:
        deep = rng.choice([2_000, 200_000])
        manifest.write_text('{"name": ' + "[" * deep + rng.choice(["]" * deep + "}", ""]))
    elif way == 2:
        questions.write_bytes(altered(questions.read_bytes(), rng, footer_of(questions.read_bytes())))
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
    restate(folder)
