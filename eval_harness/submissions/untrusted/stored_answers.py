"""The bytes of somebody's answers.parquet: how much they unpack to, and their rows. See also: judging them (`examination.py`)."""

from __future__ import annotations

from dataset_builders.errors import BadInput
from eval_harness.submissions.untrusted.envelope import LEAST_ROW, MOST_COUNTED, MOST_UNPACKED, UNPACKS, envelope
from eval_harness.submissions.untrusted.files import parquet_rows
from eval_harness.submissions.untrusted.sandbox import call


def weight_of(answers: bytes) -> int:
    """Bytes that an answers.parquet is reckoned to unpack to: a multiple of its own, or as many as it was seen to unpack to, up to a bound,
    since answers that repeat themselves compress without limit."""
    reckoned = UNPACKS * len(answers)
    try:
        return max(reckoned, call(envelope(reckoned), unpacked_size, answers))
    except BadInput:  # examining it says why
        return reckoned


def unpacked_size(answers: bytes) -> int:
    """Characters of the rows of an answers.parquet, counted up to `MOST_COUNTED`. Only to be called in the sandbox."""
    total = 0
    for row in parquet_rows(answers, most_bytes=MOST_UNPACKED):
        total += LEAST_ROW + sum(len(value) for value in row.values() if isinstance(value, str))
        if total > MOST_COUNTED:
            return MOST_COUNTED
    return total
