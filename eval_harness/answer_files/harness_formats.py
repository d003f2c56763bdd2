"""The one way to read a file of answers of any format: what other harnesses and the papers' scripts write is converted to a plain file,
and plain files are read by `predictions.py`.

A reader is a module with `recognises(path)` and `read(path, questions, problems)`: an answer comes as (where, question id, journal record,
with the `target` that the harness was given); a server's error that a harness stored as text is a failed answer. Converting is for files of
one's own: a server reads plain files only, in the sandbox.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pandas as pd

from dataset_builders.errors import BadInput, clip
from dataset_builders.files import temporary_folder
from eval_harness.answer_files import inspect_log, lmms_samples, paper_outputs, vlmevalkit_tables
from eval_harness.answer_files.predictions import Predictions, format_letters, read_predictions
from eval_harness.answer_files.untrusted import ProblemList, Record

_READERS: tuple[ModuleType, ...] = (inspect_log, lmms_samples, vlmevalkit_tables, paper_outputs)


def find_reader(path: Path) -> ModuleType | None:
    """The reader of the harness that wrote a file; None for a plain file of answers, and what is no file."""
    return next((reader for reader in _READERS if path.is_file() and reader.recognises(path)), None)


def read_answer_file(path: Path, questions: pd.DataFrame) -> Predictions:
    """Read the answers of a file of any format to the questions of a split.

    Raises:
        BadInput: With everything that is wrong with the file.
    """
    with as_plain_file(path, questions) as plain:
        predictions = read_predictions(plain, questions)
    problems = ProblemList()
    problems.problems = [line.replace(str(plain), str(path)) for line in predictions.problems]
    problems.check()
    return predictions


@contextmanager
def as_plain_file(path: Path, questions: pd.DataFrame) -> Iterator[Path]:
    """Convert the output of another harness or a paper's script to a plain file of answers; any other file is passed through.

    Raises:
        BadInput: With everything that is wrong with the file.
    """
    reader = find_reader(path)
    if reader is None:
        yield path
        return
    problems = ProblemList()
    lines = [json.dumps(record) + "\n" for record in _answers(reader, path, questions, problems)]
    problems.check()
    with temporary_folder(Path(tempfile.gettempdir()), "medprobe-answers-") as folder:
        plain = folder / f"{path.stem}.jsonl"
        plain.write_text("".join(lines), encoding="utf-8")
        written = path.stat().st_mtime  # of a file of answers, when it was made is known by when it was written
        os.utime(plain, (written, written))
        try:
            yield plain
        except BadInput as error:
            raise type(error)(str(error).replace(str(plain), str(path))) from None


def _answers(reader: ModuleType, path: Path, questions: pd.DataFrame, problems: ProblemList) -> Iterator[Record]:
    """The answers of a harness's file as records of a plain one.

    What is wrong goes to `problems`: an answer of another dataset version, and questions that it did not ask (a harness asks all of a task,
    so that what is absent was left out and not failed; a file of plain answers may be a part).
    """
    seen: set[str] = set()
    keys = dict(zip(questions["question_id"].astype(str), questions["answer"].map(format_letters), strict=True))
    is_whole = getattr(reader, "IS_WHOLE", True)
    for where, identity, record in reader.read(path, questions, problems):
        is_whole = is_whole and "target" in record
        key, target = keys.get(str(identity)), record.pop("target", None)
        if key and isinstance(target, str) and target != key:
            problems.add(where, f"its target is {clip(target)}, the dataset says {key}: another version of the dataset")
            continue
        seen.add(str(identity))
        yield {"sample": 0, "response": None} | record | {"question_id": str(identity)}
    answered, asked = len(seen & keys.keys()), len(keys)
    if is_whole and 0 < answered < asked:
        problems.add(
            str(path),
            f"answers {answered:,} of {asked:,} questions; only a run of the whole split can be scored (leave out the harness's --limit)",
        )
