"""The responses of a run, read from the store when a page shows them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataset_builders.errors import BadInput
from eval_harness.derive.files import read_readings
from leaderboard_space.data.store.sections import Entry

Answer = tuple[list[int], str, str]
"""The options chosen, the status, and what was said."""
NONE: Answer = ([], "no answer", "")


def shown_to(entry: Entry, question_ids: Sequence[str]) -> dict[str, list[str]]:
    """The ids of the images of another case that each of a few questions was shown. Raises BadInput when the file cannot be read."""
    try:
        assert entry.answers is not None
        wanted = pc.field("question_id").isin(list(question_ids))
        table = pq.read_table(entry.answers, columns=["question_id", "shown"], filters=wanted)
        return {
            name: shown or [] for name, shown in zip(*(column.to_pylist() for column in table.columns), strict=True)
        }
    except Exception as error:  # as above
        raise BadInput(f"{entry.key}: its answers cannot be read ({type(error).__name__}).") from None


def answers_to(entry: Entry, question_ids: Sequence[str]) -> dict[str, Answer]:
    """The first sample's answer to each of a few questions; questions without one are missing.

    Reads just these from the files: a page shows a few questions of many runs, whose whole answers would not stay in memory together.
    Raises BadInput when the files cannot be read.
    """
    try:
        assert entry.folder is not None
        table = read_readings(entry.folder, derived=entry.derived, question_ids=question_ids)
        rows = table.sort_values("sample", kind="stable").drop_duplicates("question_id").to_dict("records")
        return {
            str(row["question_id"]): (
                [int(option) for option in row["choice"] or []],
                str(row["status"]),
                str(row["response"] or ""),
            )
            for row in rows
        }
    except Exception as error:  # one damaged file is one line on the page
        raise BadInput(f"{entry.key}: its answers cannot be read ({type(error).__name__}).") from None
