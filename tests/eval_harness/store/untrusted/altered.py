"""Randomly mutated files, and how examination handles them; called in the sandbox."""

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
from tests.eval_harness.store.submitting import update_card


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
