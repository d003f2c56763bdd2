"""Build the prompts of a judge model and parse its replies.

The judge reads responses that the rules leave unread, or decides which option a free text is closer
to (MediConfusion, method `ff`). It sees the question, the options and the response, never the key.
See also: which answers it reads (`derive/reading.py`), the requests (`runs/runner.py`).
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dataset_builders.errors import BadInput
from dataset_builders.schema import LETTERS
from eval_harness.reader.rules import Reading, read_choice

MIN_SCORE_GAP = 3
"""Points by which the closer option must lead (MediConfusion, A.4; its best-of-N oracle uses 2)."""
NO_JUDGE_DEVIATION = "no judge: free-form answers were matched with the options by rules"
"""Deviation recorded for a free-form run that no judge has read."""
NOT_UNDERSTOOD_RULE = "judge: reply not understood"
"""Rule recorded if the judge's reply is neither an option nor "none"."""
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
"""Prompt of MediConfusion's free-form judge (appendix A.4), used with `_SYSTEM`.

The line breaks are those of the authors' prompt file (`conversion`).
"""
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
    """A request to a judge model. `turn` distinguishes repeated requests with the same prompt."""

    prompt: str
    system: str | None = None
    temperature: float = 0.0
    turn: int = 0


def judge_prompt_record(method: str) -> dict[str, str]:
    """Return the name of a method's judge prompt and its hash (16 hexadecimal digits, sha256)."""
    # The hash covers the wording: replies to another wording are not comparable.
    name, text = ("mediconfusion-ff", _SYSTEM + _FEEDBACK) if method == "ff" else ("extract-option", _EXTRACT)
    return {"prompt": name, "prompt_hash": hashlib.sha256(text.encode()).hexdigest()[:16]}


def judge_record(judge: str, base_url: str | None, method: str) -> dict[str, Any]:
    """Build the judge's description for the run record (`method.judge`).

    Args:
        judge: `openai:NAME` or `azure:NAME`.
        base_url: Address of the judge's server.
        method: The run's method, which decides the prompt.

    Raises:
        BadInput: If `judge` has another form.
    """
    if not judge.startswith(("openai:", "azure:")) or judge.endswith(":"):
        raise BadInput(
            f"--judge {judge}: unknown. Give openai:NAME, a model behind an OpenAI-compatible server, or azure:DEPLOYMENT."
        )
    return {"model": judge.removeprefix("openai:"), "base_url": base_url} | judge_prompt_record(method)


def extraction_prompt(question: str, options: Sequence[str], response: str, question_type: str) -> JudgeRequest:
    """Build the request for the option(s) that a response chooses.

    Args:
        question: Text of the question.
        options: Option texts in the order shown.
        response: The model's response; the first 8,000 characters are sent.
        question_type: `single`, `multiple` or `yes_no`.
    """
    lines = "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False))
    several = ", or the letters separated by commas where it chooses several" if question_type == "multiple" else ""
    return JudgeRequest(_fill(_EXTRACT, question=question, options=lines, response=response[:8000], several=several))


def read_extraction(reply: str, options: Sequence[str], question_type: str) -> Reading:
    """Read the option(s) that the judge's reply names, or the "none" that the prompt asks for.

    Args:
        reply: The judge's reply; it is read like a model's response.
        options: Option texts in the order shown.
        question_type: `single`, `multiple` or `yes_no`.
    """
    # The judge's prompt puts letters before yes and no, too, and allows "none", which is one more
    # choice than the question has.
    choices = [*options, _NONE][: len(LETTERS)] if _NONE in reply.lower() else options
    reading = read_choice(reply, choices, "multiple" if question_type == "multiple" else "single")
    if reading.choice == (len(options),):
        return Reading((), "irrelevant", "judge: none")
    # An option "None of the above" counts only by its letter: the words may also mean that no
    # option was chosen.
    unclear = any(
        place == len(options)
        or (_NONE in options[place].lower() and not re.search(rf"\b{LETTERS[place]}\b", reply, re.IGNORECASE))
        for place in reading.choice
    )
    if unclear or not reading.choice:
        return Reading((), "irrelevant", NOT_UNDERSTOOD_RULE)
    return Reading(reading.choice, "answered", "judge: option")


def closeness_prompt(question: str, options: Sequence[str], response: str, turn: int = 0) -> JudgeRequest:
    """Build the request for how close a response is to each of two options (MediConfusion A.4).

    Args:
        question: Text of the question.
        options: Two option texts.
        response: The model's free-form response.
        turn: Distinguishes repeated requests.

    Raises:
        BadInput: If there are not exactly two options.
    """
    if len(options) != 2:
        raise BadInput(f"method ff: the judge compares two options, and this question has {len(options)}.")
    prompt = (
        f"[Question]\n{question}\n\n[Answer A]\n{options[0]}\n\n[Answer B]\n{options[1]}\n\n"
        f"[AI Assistant]\n{response}\n\n[End of AI Assistant]\n\n[System]\n{_FEEDBACK}\n\n"
    )
    return JudgeRequest(prompt, _SYSTEM, FREE_FORM_TEMPERATURE, turn)


def read_closeness(reply: str, gap: float = MIN_SCORE_GAP, extraction: str = "ours") -> Reading:
    """Read the option that the judge scores closer by at least `gap` points.

    Args:
        reply: The judge's reply with two scores of 0 to 10.
        gap: Smallest difference that decides.
        extraction: `ours` or `official` (the authors' parser).
    """
    scores = _official_scores(reply) if extraction == "official" else _scores(reply)
    if scores is None:
        return Reading((), "irrelevant", "judge: no scores")
    if abs(scores[0] - scores[1]) < gap:
        return Reading((), "irrelevant", "judge: gap too small")
    return Reading((0 if scores[0] > scores[1] else 1,), "answered", "judge: closer option")


_SCORE = re.compile(
    r"^\W*(?:answer\s*)?([AB])\W{0,4}[:=]\W*(?:score\W*)?(\d+(?:\.\d+)?)",
    re.IGNORECASE | re.MULTILINE,
)


def _scores(reply: str) -> tuple[float, float] | None:
    """Parse both scores anywhere in the reply; None unless each occurs once and lies in 0..10."""
    score_pairs = [(match[1].upper(), float(match[2])) for match in _SCORE.finditer(reply)]
    scores = dict(score_pairs)
    if len(score_pairs) != 2 or set(scores) != {"A", "B"} or max(scores.values()) > 10:
        return None
    return scores["A"], scores["B"]


def _official_scores(reply: str) -> tuple[float, float] | None:
    """Parse the scores as the authors do: integers in the first two lines, "A: 7" and "B: 3".

    Any other reply makes the authors' program fail; here it gives None.
    """
    lines = reply.replace("\n\n", "\n").split("\n")
    try:
        return float(int(lines[0].replace("A: ", ""))), float(int(lines[1].replace("B: ", "")))
    except (ValueError, IndexError):
        return None


def _fill(template: str, **fields: str) -> str:
    """Fill a template in one pass, so braces in a question or a response are kept."""
    return re.sub(r"\{(\w+)\}", lambda field: fields[field[1]], template)
