"""The prompt of ProbMed's VQA-RAD pairs: that of ProbMed."""

from __future__ import annotations

from eval_harness.benchmarks.probmed.prompts import DEFAULTS, SYSTEM
from eval_harness.benchmarks.prompt import OPEN, bare_question

__all__ = ["DEFAULTS", "PROMPTS", "SYSTEM"]

PROMPTS = (bare_question("probmed-vqa-rad", "ProbMed: the question as it stands", ("mc", "gd", *OPEN)),)
