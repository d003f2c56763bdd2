"""Read a file of answers in any format.

The output of other harnesses and of the papers' scripts is read as the records of a plain file, and
those are checked by `predictions.py`, so there is only one way to read answers.

A reader is a module with `recognises(path)` and `iter_answers(path, questions, problems)`, which
yields each answer as (location, question id, journal record). The record's `target` is the answer
key that the harness was given. A server error that a harness stored as text becomes a failed
answer. Users convert their own files on their own machine; a server reads only plain files, in the
sandbox.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pandas as pd

from dataset_builders.errors import clip
from eval_harness.answer_files import inspect_log, lmms_samples, paper_outputs, vlmevalkit_tables
from eval_harness.answer_files.predictions import Predictions, check_predictions, format_letters, read_predictions
from eval_harness.answer_files.untrusted import LocatedRecord, ProblemList

_READERS: tuple[ModuleType, ...] = (inspect_log, lmms_samples, vlmevalkit_tables, paper_outputs)


def find_reader(path: Path) -> ModuleType | None:
    """Return the reader of the harness that wrote a file.

    Returns:
        The reader module; None for a plain file of answers, and for a path that is not a file.
    """
    return next((reader for reader in _READERS if path.is_file() and reader.recognises(path)), None)


def read_answer_file(path: Path, questions: pd.DataFrame) -> Predictions:
    """Read the answers to the questions of a split from a file of any format.

    Args:
        path: The file of answers.
        questions: The questions of the split (at least `question_id`, `options`, `answer`).

    Returns:
        The valid answers and the problems of the records, as `read_predictions` does.

    Raises:
        BadInput: If the file cannot be read at all, or is the output of a harness for other
            questions; lists all such problems.
    """
    reader = find_reader(path)
    if reader is None:
        return read_predictions(path, questions)
    problems = ProblemList()
    records = list(_answers(reader, path, questions, problems))
    problems.check(path)
    return check_predictions(records, questions, problems)


def _answers(reader: ModuleType, path: Path, questions: pd.DataFrame, problems: ProblemList) -> Iterator[LocatedRecord]:
    """Yield the answers of a harness's file with their locations, as records of a plain file.

    Two things are reported in `problems`: answers to another version of the dataset, and an
    incomplete run. A harness asks all questions of a task, so a question without an answer was left
    out on purpose. (A plain file may answer only some questions.)
    """
    answered_ids: set[str] = set()
    targets_by_id = dict(
        zip(
            questions["question_id"].astype(str),
            questions["answer"].map(format_letters),
            strict=True,
        )
    )

    must_be_complete = getattr(reader, "IS_WHOLE", True)
    for location, question_id, record in reader.iter_answers(path, questions, problems):
        # Records with a target come from a harness, which asks all questions of a task.
        must_be_complete = must_be_complete and "target" in record
        expected_target, target = targets_by_id.get(str(question_id)), record.pop("target", None)
        if expected_target and isinstance(target, str) and target != expected_target:
            problems.add(
                location,
                f"its target is {clip(target)}, the dataset's is {expected_target}: another version of the dataset",
            )
            continue
        answered_ids.add(str(question_id))
        # Defaults come first, so that the record's own fields override them.
        yield location, {"sample": 0, "response": None} | record | {"question_id": str(question_id)}

    answered_count, question_count = len(answered_ids & targets_by_id.keys()), len(targets_by_id)
    if must_be_complete and 0 < answered_count < question_count:
        problems.add(
            None,
            f"answers {answered_count:,} of {question_count:,} questions; only a run of the whole "
            "split can be scored (leave out the harness's --limit)",
        )
