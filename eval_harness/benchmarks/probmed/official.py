"""The reader of the paper's own code."""

from eval_harness.answer_reading.official_readers import probmed as read

__all__ = ["read"]
