"""What other harnesses write, as answers to a dataset's questions: which harness wrote a file, and what it says.

A reader is a module with `recognises(path)`, `describe(path)` and `read(path, questions, found)`. An answer comes as (where, question id,
journal record, with the `target` that the harness was given); a server's error that a harness stored as text is a failed answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from dataset_builders.sources.problems import clip
from eval_harness.integrations import vlmevalkit
from eval_harness.integrations.described import Described, letters_of
from eval_harness.integrations.reading import inspect_log, lmms_samples, paper_outputs
from eval_harness.store.untrusted import ProblemList

READERS: tuple[ModuleType, ...] = (inspect_log, lmms_samples, vlmevalkit, paper_outputs)


def reader_for(path: Path) -> ModuleType | None:
    """The reader of the harness that wrote a file; None for any other file."""
    if not path.is_file():
        return None
    return next((reader for reader in READERS if reader.recognises(path)), None)


def describe(path: Path) -> Described | None:
    """What a harness's file says about itself; None for any other file. Raises BadInput for a damaged or unfinished one."""
    reader = reader_for(path)
    return None if reader is None else reader.describe(path)


def read(
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
