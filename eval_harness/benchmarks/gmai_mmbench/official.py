"""The reader of the paper's own code."""

from eval_harness.answer_reading.official_readers import gmai_mmbench as read

__all__ = ["read"]
