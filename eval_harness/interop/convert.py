"""Submit the output files of other harnesses and of the papers' scripts, converted to a plain file of answers on this machine.

A store reads run folders and plain files only. A reader is a module with `recognises(path)` and `read(path, questions, found)`: an answer
comes as (where, question id, journal record, with the `target` that the harness was given); a server's error that a harness stored as text
is a failed answer. Only a log of inspect-ai says what it answers.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from dataset_builders.errors import SHOWN, BadInput, clip
from dataset_builders.files import temporary_folder
from eval_harness.interop import inspect_log, lmms_eval, paper_outputs, vlmevalkit
from eval_harness.interop.harness_file import Described, letters_of
from eval_harness.records.selection import select_questions
from eval_harness.store.checks import Published
from eval_harness.store.scan import is_hub_store
from eval_harness.store.submission import Submission
from eval_harness.store.submit import Submitted, deliver, prepare
from eval_harness.store.untrusted import ProblemList


def prepare_submission(
    what: Path,
    benchmark: str | None = None,
    model: str | None = None,
    data: str | None = None,
    split: str | None = None,
    **more: Any,
) -> Submission:
    """`store.submit.prepare` of a folder, a plain file of answers, or any file that a reader knows."""
    with as_answer_file(what, Described(benchmark, model, data, split)) as (plain, told):
        found = prepare(plain, *told, **more)
        found.problems[:] = [line.replace(str(plain), str(what)) for line in found.problems]
        return found


def submit(
    what: Path,
    to: str | Path,
    benchmark: str | None = None,
    model: str | None = None,
    data: str | None = None,
    split: str | None = None,
    *,
    account: str | None = None,
    published: Published | None = None,
    with_questions: bool = False,
    **more: Any,
) -> Submitted:
    """Prepare a submission and add it to a store (`store.submit.deliver`). Raises BadInput with every problem found."""
    owner = str(to).split("/")[0] if is_hub_store(to) else None
    submission = prepare_submission(what, benchmark, model, data, split, owner=owner, **more)
    submission.check(what)
    return deliver(submission, to, account=account, published=published, with_questions=with_questions)


@contextmanager
def as_answer_file(path: Path, told: Described) -> Iterator[tuple[Path, Described]]:
    """Convert the output of another harness or a paper's script to a plain file of answers, described by `told`, else by the file
    itself; a folder and any other file are passed through.

    Raises BadInput with what is wrong with the file.
    """
    reader = _reader_for(path)
    if reader is None:
        yield path, told
        return
    if reader is inspect_log:
        told = Described(*(one or other for one, other in zip(told, inspect_log.describe(path), strict=True)))
    if told.benchmark is None:
        raise BadInput(f"submit {path}: does not say which benchmark it answers. Name its --benchmark.")
    selection = select_questions(told.benchmark, told.data, told.split)
    problems = ProblemList()
    entries = [
        {"question_id": str(name), "sample": 0, "response": None} | record
        for _, name, record in _read(reader, path, selection.questions, problems)
    ]
    if problems.problems:
        more = f"; and {len(problems.problems) - SHOWN} more" if len(problems.problems) > SHOWN else ""
        raise BadInput(f"{'; '.join(problems.problems[:SHOWN])}{more}. Nothing was submitted.")
    with temporary_folder(Path(tempfile.gettempdir()), "medprobe-answers-") as folder:
        plain = folder / f"{path.stem}.jsonl"
        plain.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
        written = path.stat().st_mtime  # of a file of answers, when it was made is known by when it was written
        os.utime(plain, (written, written))
        try:
            yield plain, told
        except BadInput as error:
            raise type(error)(str(error).replace(str(plain), str(path))) from None


_READERS: tuple[ModuleType, ...] = (inspect_log, lmms_eval, vlmevalkit, paper_outputs)


def _reader_for(path: Path) -> ModuleType | None:
    """The reader of the harness that wrote a file; None for any other file."""
    if not path.is_file():
        return None
    return next((reader for reader in _READERS if reader.recognises(path)), None)


def _read(
    reader: ModuleType, path: Path, questions: pd.DataFrame, found: ProblemList
) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """The answers of a harness's file; what is wrong with it goes to `found`: an answer of another dataset version, and questions that it
    did not ask (a harness asks all of a task, so that what is absent was left out and not failed)."""
    seen: set[str] = set()
    keys = dict(zip(questions["question_id"].astype(str), questions["answer"].map(letters_of), strict=True))
    for where, question_id, record in reader.read(path, questions, found):
        key, target = keys.get(str(question_id)), record.pop("target", None)
        if key and isinstance(target, str) and target != key:
            found.add(where, f"its target is {clip(target)}, the dataset says {key}: another version of the dataset")
            continue
        seen.add(str(question_id))
        yield where, question_id, record
    known = keys.keys()
    left_out = len(known - seen)
    if left_out and seen & known and getattr(reader, "IS_WHOLE", True):
        found.add(
            str(path),
            f"answers {len(seen & known):,} of {len(known):,} questions; only a run of the whole split can be scored "
            "(leave out the harness's --limit)",
        )
