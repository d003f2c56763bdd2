"""The reader of the paper's own code, defects included: what `--extraction official` uses. It decides which numbers the paper prints."""

from __future__ import annotations

from collections.abc import Sequence

from dataset_builders.schema import LETTERS
from eval_harness.reader import Reading, official


def read(response: str, options: Sequence[str], question_type: str) -> Reading:
    """The prediction's one token must be an option letter (paper section 4); anything else is irrelevant."""
    token = response.strip()
    index = LETTERS.find(token) if len(token) == 1 else -1
    return official((index,) if 0 <= index < len(options) else (), "official: the token is a letter")
