"""HALT-MedVQA's templates (Table 2), with the line breaks of the authors' prompt file."""

from __future__ import annotations

from eval_harness.benchmarks.prompt import Prompt, bare_question, lettered

_DOT_RUN = lettered(". ", " ")

_LETTER_LINES = "Answer with the option's letter from the given choices directly.\n\n"
_ROLE_0 = "You are a medical doctor and expert in medical imaging. "
_ROLE_1 = "Act as a medical domain expert answering multiple-choice questions. "
_ACCURATE_0 = "Always answer accurately and precisely. "
_ACCURATE_1 = "Your answer should be precise and free of incomplete or incorrect biomedical or clinical information. "
_DONT_0 = "If you don't know the answer to a question, please don't share false information. "
_DONT_1 = "If you do not know the answer, do not try to make up an answer. "
_PLAIN = "{question} {options}."
_SEPARATED = "### Question:\n{question}\n\n### Choices:\n{options}\n\n### Answer:"

_HALT = {
    "SIMPLE": _PLAIN,
    "S": _SEPARATED,
    "ONLY": "{question} {options}. only give me one token of the answer, no other words.",
    "L": _LETTER_LINES + _PLAIN,
    "L+S": _LETTER_LINES + _SEPARATED,
    "L+R0": _ROLE_0 + _LETTER_LINES + _PLAIN,
    "L+R1": _ROLE_1 + _LETTER_LINES + _PLAIN,
    "L+A0": _ACCURATE_0 + _LETTER_LINES + _PLAIN,
    "L+A1": _ACCURATE_1 + _LETTER_LINES + _PLAIN,
    "L+D0": _DONT_0 + _LETTER_LINES + _PLAIN,
    "L+D1": _DONT_1 + _LETTER_LINES + _PLAIN,
    "L+R0+A1": _ROLE_0 + _ACCURATE_1 + _LETTER_LINES + _PLAIN,
    "L+A1+D0": _ACCURATE_1 + _DONT_0 + _LETTER_LINES + _PLAIN,
    "L+R0+D0": _ROLE_0 + _DONT_0 + _LETTER_LINES + _PLAIN,
    "ALL": _ROLE_0 + _ACCURATE_1 + _DONT_0 + _LETTER_LINES + _PLAIN,
    "ALL+S": _ROLE_0 + _ACCURATE_1 + _DONT_0 + _LETTER_LINES + _SEPARATED,
    "L+R0+D0+S": _ROLE_0 + _DONT_0 + _LETTER_LINES + _SEPARATED,
    "L+D0+S": _DONT_0 + _LETTER_LINES + _SEPARATED,
}

PROMPTS = (
    *(
        Prompt(name, "halt-medvqa", template, _DOT_RUN, "HALT-MedVQA Table 2; line breaks as the authors' prompt file")
        for name, template in _HALT.items()
    ),
    bare_question("halt-medvqa", "the question as it stands; not a protocol of the paper"),
)
