"""A judge model reads what the rules leave unread, or says which option free text is closer to (MediConfusion, method `ff`).

What it is asked, and how its replies are read. It sees the question, the options and the response, never the key.
See also: which answers it is asked about (`derive/reading.py`), asking it (`runs/scoring.py`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dataset_builders.errors import BadInput
from dataset_builders.schema import LETTERS
from eval_harness.reader.rules import Reading, read_choice

MIN_SCORE_GAP = 3
"""MediConfusion's score gap: the closer option counts only where it leads by so much (paper A.4); its best-of-N oracle uses 2."""
NO_JUDGE_DEVIATION = "no judge: free-form answers were matched with the options by rules"
"""The deviation of a free-form run that no judge has read."""
NOT_UNDERSTOOD_RULE = "judge: reply not understood"
"""The rule of an answer whose judge replied something else than an option or "none"."""
_NONE = "none"

_SYSTEM = "You are a helpful and precise assistant for checking the quality of the answer."
_FEEDBACK = (
    "We would like to request your feedback on the performance of an AI assistant in response to the user question "
    "displayed above. "
    "The user asks the question on observing an image. We have provided two possible answers, [Answer A] and "
    "[Answer B] to the question. "
    "Your job is to evaluate how close the AI assistant's answer is to each of the answers. You don't have to "
    "decide whether the answers "
    "are correct or not. Each answer should receive an overall score on a scale of 1 to 10, where a higher score "
    "indicates the AI "
    "assistant's answer is closer to the specific answer. After providing the scores, concisely provide your "
    "explanation for the given "
    "scores. Remember, you don't need to comment on the correctness of the answers. Please provide your answer in "
    "the following format:\n"
    "A: <SCORE>\nB: <SCORE>\nYour explanation: <EXPLANATION>"
)
"""MediConfusion's free-form judge, system message and prompt: appendix A.4, line breaks as the authors' prompt file (`conversion`)."""
FREE_FORM_TEMPERATURE = 0.7

_EXTRACT = (
    "A model was asked a multiple-choice question about a medical image. Say which option its response chooses. "
    "Judge only what the "
    "response says; do not answer the question yourself.\n\nQuestion: "
    "{question}\n{options}\n\nResponse:\n{response}\n\n"
    "Reply with the letter of the option chosen and nothing else{several}. Reply with none if the response chooses "
    "no option, "
    "more than one without deciding, or refuses."
)


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """What a judge is asked. `turn` tells repeated askings of the same prompt apart."""

    prompt: str
    system: str | None = None
    temperature: float = 0.0
    turn: int = 0


def judge_prompt_record(method: str) -> dict[str, str]:
    """Name and hash of the prompt that a run of this method puts to its judge (16 hexadecimal digits of a sha256)."""
    name, text = ("mediconfusion-ff", _SYSTEM + _FEEDBACK) if method == "ff" else ("extract-option", _EXTRACT)
    return {"prompt": name, "prompt_hash": hashlib.sha256(text.encode()).hexdigest()[:16]}


def judge_record(judge: str, base_url: str | None, method: str) -> dict[str, Any]:
    """What a run says of its judge (`method.judge`), from `openai:NAME` or `azure:NAME`. Raises BadInput for another form."""
    if not judge.startswith(("openai:", "azure:")) or judge.endswith(":"):
        raise BadInput(
            f"--judge {judge}: unknown. Give openai:NAME, a model behind an OpenAI-compatible server, or azure:DEPLOYMENT."
        )
    return {"model": judge.removeprefix("openai:"), "base_url": base_url} | judge_prompt_record(method)


def extraction_prompt(question: str, options: Sequence[str], response: str, question_type: str) -> JudgeRequest:
    """Which option(s) does a response choose?"""
    lines = "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False))
    several = ", or the letters separated by commas where it chooses several" if question_type == "multiple" else ""
    return JudgeRequest(_fill(_EXTRACT, question=question, options=lines, response=response[:8000], several=several))


def read_extraction(reply: str, options: Sequence[str], question_type: str) -> Reading:
    """Read the option(s) that the judge's reply names, as a model's response is read; or "none", the word that the prompt asks for."""
    # The judge sees letters before "yes" and "no", too, and may say "none", which is one more choice than the question has.
    choices = [*options, _NONE][: len(LETTERS)] if _NONE in reply.lower() else options
    reading = read_choice(reply, choices, "multiple" if question_type == "multiple" else "single")
    if reading.choice == (len(options),):
        return Reading((), "irrelevant", "judge: none")
    # An option "None of the above" counts by its letter: the words alone may as well say that no option was chosen.
    unclear = any(
        place == len(options)
        or (_NONE in options[place].lower() and not re.search(rf"\b{LETTERS[place]}\b", reply, re.IGNORECASE))
        for place in reading.choice
    )
    if unclear or not reading.choice:
        return Reading((), "irrelevant", NOT_UNDERSTOOD_RULE)
    return Reading(reading.choice, "answered", "judge: option")


def closeness_prompt(question: str, options: Sequence[str], response: str, turn: int = 0) -> JudgeRequest:
    """How close is a free response to each of two options, of 10 points (MediConfusion, appendix A.4)? Raises BadInput for others."""
    if len(options) != 2:
        raise BadInput(f"method ff: the judge compares two options, and this question has {len(options)}.")
    prompt = (
        f"[Question]\n{question}\n\n[Answer A]\n{options[0]}\n\n[Answer B]\n{options[1]}\n\n"
        f"[AI Assistant]\n{response}\n\n[End of AI Assistant]\n\n[System]\n{_FEEDBACK}\n\n"
    )
    return JudgeRequest(prompt, _SYSTEM, FREE_FORM_TEMPERATURE, turn)


def read_closeness(reply: str, gap: float = MIN_SCORE_GAP, extraction: str = "ours") -> Reading:
    """The option that the judge finds closer by at least `gap` points."""
    scores = _official_scores(reply) if extraction == "official" else _scores(reply)
    if scores is None:
        return Reading((), "irrelevant", "judge: no scores")
    if abs(scores[0] - scores[1]) < gap:
        return Reading((), "irrelevant", "judge: gap too small")
    return Reading((0 if scores[0] > scores[1] else 1,), "answered", "judge: closer option")


_SCORE = re.compile(r"^\W*(?:answer\s*)?([AB])\W{0,4}[:=]\W*(?:score\W*)?(\d+(?:\.\d+)?)", re.IGNORECASE | re.MULTILINE)


def _scores(reply: str) -> tuple[float, float] | None:
    """Both scores, wherever they stand in the reply; None unless each is given once and lies in 0..10."""
    found = [(match[1].upper(), float(match[2])) for match in _SCORE.finditer(reply)]
    scores = dict(found)
    if len(found) != 2 or set(scores) != {"A", "B"} or max(scores.values()) > 10:
        return None
    return scores["A"], scores["B"]


def _official_scores(reply: str) -> tuple[float, float] | None:
    """As the authors read it: whole numbers in the first two lines, "A: 7" and "B: 3"; anything else stops their program."""
    lines = reply.replace("\n\n", "\n").split("\n")
    try:
        return float(int(lines[0].replace("A: ", ""))), float(int(lines[1].replace("B: ", "")))
    except (ValueError, IndexError):
        return None


def _fill(template: str, **fields: str) -> str:
    """Fill a template in one pass, so that braces in a question or a response stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda field: fields[field[1]], template)
