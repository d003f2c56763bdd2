"""ProbMed's prompt: the question as it stands, below the authors' system message."""

from __future__ import annotations

from eval_harness.benchmarks.prompt import OPEN, bare_question

PROMPTS = (bare_question("probmed", "ProbMed: the question as it stands", ("mc", "gd", *OPEN)),)
DEFAULTS = {"mc": "question", **dict.fromkeys(OPEN, "question")}
SYSTEM = (
    "You are a student in medical school. You are preparing for your final exam. Answer the following question in your "
    "practice exam as directed to earn higher scores. You answer will only be for academic purpose."
)
"""`eval/inference/GPT-4V/gpt4v.py` of eric-ai-lab/ProbMed at commit 8e29f9a."""
