"""Submit the output files of other harnesses and of the papers' scripts, converted to a plain file of answers on this machine.

A store reads run folders and plain files only. See also: the readers (`answer_files/harness_formats.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dataset_builders.errors import BadInput
from eval_harness.answer_files import inspect_log
from eval_harness.answer_files.harness_formats import as_plain_file, find_reader
from eval_harness.answer_files.predictions import FileDescription
from eval_harness.records.selection import select_questions
from eval_harness.store.checks import PublishedNames
from eval_harness.store.scan import is_hub_store
from eval_harness.store.submission import Submission
from eval_harness.store.submit import Submitted, add_to_store, build_submission


def prepare_submission(
    what: Path,
    benchmark: str | None = None,
    model: str | None = None,
    data: str | None = None,
    split: str | None = None,
    **more: Any,
) -> Submission:
    """`store.submit.prepare` of a folder, a plain file of answers, or any file that a reader knows."""
    with as_answer_file(what, FileDescription(benchmark, model, data, split)) as (plain, told):
        submission = build_submission(plain, *told, **more)
        submission.problems[:] = [line.replace(str(plain), str(what)) for line in submission.problems]
        return submission


def submit(
    what: Path,
    to: str | Path,
    benchmark: str | None = None,
    model: str | None = None,
    data: str | None = None,
    split: str | None = None,
    *,
    account: str | None = None,
    published: PublishedNames | None = None,
    with_questions: bool = False,
    **more: Any,
) -> Submitted:
    """Prepare a submission and add it to a store (`store.submit.deliver`). Raises BadInput with every problem found."""
    owner = str(to).split("/")[0] if is_hub_store(to) else None
    submission = prepare_submission(what, benchmark, model, data, split, owner=owner, **more)
    submission.check(what)
    return add_to_store(submission, to, account=account, published=published, with_questions=with_questions)


@contextmanager
def as_answer_file(path: Path, told: FileDescription) -> Iterator[tuple[Path, FileDescription]]:
    """Convert a file of answers of any format to a plain one, described by `told`, else by the file itself; a folder and a plain file are
    passed through.

    Raises BadInput with what is wrong with the file.
    """
    reader = find_reader(path)
    if reader is None:
        yield path, told
        return
    if reader is inspect_log:
        told = FileDescription(*(one or other for one, other in zip(told, inspect_log.describe(path), strict=True)))
    if told.benchmark is None:
        raise BadInput(f"submit {path}: does not say which benchmark it answers. Name its --benchmark.")
    with as_plain_file(path, select_questions(told.benchmark, told.data, told.split).questions) as plain:
        yield plain, told
