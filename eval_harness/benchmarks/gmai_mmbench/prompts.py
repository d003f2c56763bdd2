"""GMAI-MMBench's templates (Table 8)."""

from __future__ import annotations

from eval_harness.benchmarks.prompt import OPEN, Prompt, bare_question, lettered

_DOT_LINES = lettered(". ", "\n")

PROMPTS = (
    Prompt(
        "single",
        "gmai-mmbench",
        "Question: {question}\nOptions:\n{options}\nPlease select the correct answer from the options above.",
        _DOT_LINES,
        "GMAI-MMBench Table 8, single choice",
    ),
    Prompt(
        "multiple",
        "gmai-mmbench",
        "Question: {question}\nOptions:\n{options}\nPlease select all correct answers from the options above. "
        "Note that there is more than one correct answer.\n"
        "Please output the answer options directly, separated by commas. For example: A,B",
        _DOT_LINES,
        "GMAI-MMBench Table 8, multiple choice",
    ),
    bare_question("gmai-mmbench", "the question as it stands; not a protocol of the paper"),
)

DEFAULTS = {"mc": "single", "multiple": "multiple", **dict.fromkeys(OPEN, "question")}
