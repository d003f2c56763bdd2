"""Score against hidden answers: GMAI-MMBench's test, whose key lies in a private repository."""

from eval_harness.store.hidden_test.scoring import HiddenScore, HiddenTest

__all__ = ["HiddenScore", "HiddenTest"]
