"""Submit output files of other harnesses and of the papers' scripts.

A store reads run folders and plain answer files only, so other formats are converted to a plain
file on this machine first. See also: the readers (`answer_files/harness_formats.py`).
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
    source: Path,
    benchmark: str | None = None,
    model: str | None = None,
    data: str | None = None,
    split: str | None = None,
    **options: Any,
) -> Submission:
    """Prepare a submission from a run folder or an answer file of any supported format.

    Args:
        source: Run folder, files of a submission, or answer file.
        benchmark: Benchmark of an answer file that does not name it itself.
        model: Model name of an answer file that does not name it itself.
        data: Dataset folder or Hub repository of an answer file.
        split: Split of that dataset.
        **options: Further arguments of `store.submit.build_submission`.

    Returns:
        The submission with every problem found; messages name `source`, not the converted file.

    Raises:
        BadInput: If the file cannot be converted.
    """
    with converted_answers(source, FileDescription(benchmark, model, data, split)) as (plain_file, description):
        submission = build_submission(plain_file, *description, **options)
        submission.problems[:] = [line.replace(str(plain_file), str(source)) for line in submission.problems]
        return submission


def convert_and_submit(
    source: Path,
    to: str | Path,
    benchmark: str | None = None,
    model: str | None = None,
    data: str | None = None,
    split: str | None = None,
    *,
    account: str | None = None,
    published: PublishedNames | None = None,
    with_questions: bool = False,
    **options: Any,
) -> Submitted:
    """Prepare a submission and add it to a store.

    Args:
        source: Run folder, files of a submission, or answer file of any supported format.
        to: Store: a folder, or ORG/NAME on the Hub. An existing folder takes precedence.
        benchmark: See `prepare_submission`.
        model: See `prepare_submission`.
        data: See `prepare_submission`.
        split: See `prepare_submission`.
        account: Account recorded by a folder store (default: the user of this machine).
        published: Model names in papers, to compare the submission's model name with.
        with_questions: Also commit the questions of a reproduced result to a Hub store.
        **options: Further arguments of `store.submit.build_submission`.

    Returns:
        Where the submission is, and whether it is new.

    Raises:
        BadInput: If there are problems; lists all of them.
    """
    # A dataset released by the owner of a Hub store is trusted.
    owner = str(to).split("/")[0] if is_hub_store(to) else None
    submission = prepare_submission(source, benchmark, model, data, split, owner=owner, **options)
    submission.check(source)
    return add_to_store(submission, to, account=account, published=published, with_questions=with_questions)


@contextmanager
def converted_answers(path: Path, description: FileDescription) -> Iterator[tuple[Path, FileDescription]]:
    """Convert an answer file of any supported format to a plain one.

    Folders and plain files are passed through.

    Args:
        path: The file or folder.
        description: Benchmark, model, dataset and split, as far as known; the rest is taken from
            the file itself where its format has them.

    Yields:
        (plain file, completed description). The file is temporary.

    Raises:
        BadInput: If the file is invalid or its benchmark is unknown.
    """
    reader = find_reader(path)
    if reader is None:
        yield path, description
        return
    # Only inspect-ai's logs name their benchmark and dataset.
    if reader is inspect_log:
        # The caller's values take precedence over those in the log.
        pairs = zip(description, inspect_log.describe(path), strict=True)
        description = FileDescription(*(explicit or logged for explicit, logged in pairs))
    if description.benchmark is None:
        raise BadInput(f"submit {path}: the file does not name its benchmark. Give --benchmark.")
    with as_plain_file(
        path, select_questions(description.benchmark, description.data, description.split).questions
    ) as plain_file:
        yield plain_file, description
