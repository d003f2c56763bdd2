"""Response -> choice and status, with the rule that decided. Precision first: where a careful reader would hesitate, nothing is read.

The rules are one table (`RULES`); its order is what this reader promises. Elsewhere: the papers' readers (`benchmarks/*/official.py`), the
LLM fall-back (`judge.py`), taking reasoning out (`reasoning.py`), making a response plain (`plain_text.py`), and what the rules look for:
letters (`letters.py`), option texts (`mentions.py`, `asserted/`), statements (`statements.py`), yes and no (`yes_no/`), denying and
declining (`polarity.py`). Patterns are tried only where one of their words stands (`words.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import pandas as pd

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.errors import BadInput
from dataset_builders.schema import LETTERS
from eval_harness.answer_reading import Reading
from eval_harness.answer_reading.letters import whole_letters
from eval_harness.answer_reading.options import OptionTexts, option_texts
from eval_harness.answer_reading.plain_text import is_error, marked_answers, plain, without_markers
from eval_harness.answer_reading.reasoning import split_reasoning
from eval_harness.answer_reading.said import said_of
from eval_harness.answer_reading.table import EXPLICIT, RULES, STATEMENTS, apply, nothing
from eval_harness.benchmarks import part, spec

LONGEST = 40_000
"""Characters up to which a response is read whole; of a longer one the first quarter and the last three quarters of as many are."""


def read_choice(
    response: str,
    options: list[str],
    question_type: str = "single",
    question: str | None = None,
    finish_reason: str | None = None,
) -> Reading:
    """Read which option(s) a response chooses.

    `options` in the order shown (letters follow the position); `question_type`: `single`, `multiple` or `yes_no` (options `yes`, `no` in
    any case and order). `question`: its text, where a response that repeats it may be read by it. `finish_reason` "length": the output
    limit cut the response, so that only an explicit answer is read; the same where it stops inside its reasoning. Status: `answered` with
    a choice; else `irrelevant` (nothing to read, or more than one reading), `refused` (declines), `truncated`, or `failed` (an error text
    stands where the response should be). Never guesses. Linear in the length of the response; of one over 40,000 characters only the
    beginning and the end are read.

    >>> read_choice("Option A is wrong; the correct option is B", ["left hip", "right hip"])
    Reading(choice=(1,), status='answered', rule='answer statement')

    Raises BadInput for more than 26 options or an unknown question type.
    """
    if len(options) > len(LETTERS):
        raise BadInput(f"{len(options)} options: no benchmark has more than {len(LETTERS)}. Check the dataset.")
    if question_type not in ("single", "multiple", "yes_no"):
        raise BadInput(f"question_type {question_type!r}: unknown. Available: single, multiple, yes_no.")
    texts = option_texts(tuple(options))
    if question_type == "yes_no" and set(map(" ".join, texts.words)) != {"yes", "no"}:
        raise BadInput(f"options {options}: a yes/no question needs the options yes and no. Rebuild the dataset.")
    split = split_reasoning(response)
    raw = _ends(without_markers(split.answer))
    cut = split.unfinished or finish_reason == "length"
    text = plain(raw)
    if not text:
        if split.unfinished:
            return Reading((), "truncated", "unfinished reasoning")
        return Reading((), "truncated", "cut off") if cut else nothing("empty")
    if is_error(text):
        return Reading((), "failed", "error text")
    if "print(" in raw and _PROGRAM.fullmatch(raw):
        reading = nothing("no option named")
    else:
        reading = (
            _read_first_turn(raw, texts, question_type, question)
            or _read_marked(raw, texts, question_type, question)
            or apply(said_of(raw, text, texts, question_type, question), EXPLICIT if cut else RULES)
        )
    if cut and reading.status == "irrelevant":
        return Reading((), "truncated", "unfinished reasoning" if split.unfinished else "cut off")
    return reading


def _read_marked(raw: str, texts: OptionTexts, question_type: str, question: str | None) -> Reading | None:
    """What a JSON field, `<answer>` tags or a box hold; an explicit statement after them, or where they hold no option, comes first."""
    marked = marked_answers(raw, 5)
    if not marked:
        return None
    content, after = marked[0]
    reading = (
        apply(said_of(content, plain(content), texts, question_type, question)) if content.strip() else nothing("empty")
    )
    if reading.status == "answered":
        later = apply(said_of(after, plain(after), texts, question_type, None), EXPLICIT) if after.strip() else reading
        return later if later.status == "answered" else reading
    for earlier, _ in marked[1:]:
        letters = whole_letters(plain(earlier), len(texts.words), question_type == "multiple")
        if letters is not None and question_type != "yes_no" and len(letters) == 1 and letters[0] >= 0:
            return Reading(letters, "answered", "whole response")
    if content.strip().lower() in ("", "null", "none"):
        return reading
    stated = apply(said_of(raw, plain(raw), texts, question_type, None), STATEMENTS)
    if stated.status == "answered":
        return stated
    return (
        reading
        if reading.status == "refused" or reading.rule != "no option named"
        else nothing("no option in the marked answer")
    )


def _read_first_turn(raw: str, texts: OptionTexts, question_type: str, question: str | None) -> Reading | None:
    """What a response says explicitly before a question that the model went on to put to itself ("B\nQuestion: ...")."""
    turn = _WORD_AND_QUESTION.match(raw)
    before = turn[1] if turn else ""
    if turn is None and (turn := _NEXT_QUESTION.search(raw, 1)) is not None:
        before = raw[: turn.start() + 1].strip()
    if not before:
        return None
    reading = _read_marked(before, texts, question_type, question)
    reading = reading or apply(said_of(before, plain(before), texts, question_type, question), EXPLICIT)
    return reading if reading.status == "answered" else None


def _ends(text: str) -> str:
    """A response of ordinary length as it is; of an endless one (a model in a loop) the beginning and the end."""
    return text if len(text) <= LONGEST else text[: LONGEST // 4] + "\n" + text[-3 * LONGEST // 4 :]


_PROGRAM = re.compile(r"\s*(?:#|def |import |from |[a-z]\w*(?:, \w+)* = ).*\n\s*print\([^\n]*\)\s*", re.DOTALL)
"""A program that would print the answer, and nothing else."""
_NEXT_QUESTION = re.compile(
    r"[\n.!?](?:(?:(?<=\n)[ \t*#>]{0,8}|[ ]{1,4})(?:(?:next )?question|q|user|human|instruction)\s*\d{0,3}\s*:"
    r"|(?<=\n)#{1,6} (?:\w+ ){0,2}(?:question|example|instruction)s?\b)",
    re.IGNORECASE,
)


_WORD_AND_QUESTION = re.compile(r"\s*(\w{1,12}[.!]?)[^\S\n]*\n\s*[A-Z][^\n?.!]{4,200}\?\s*(?:\n|$)")
"""A line of one word and a question ("Yes.\\n\\nIs there a person in the image?")."""


def read_answers(answers: pd.DataFrame, questions: pd.DataFrame, family: str, extraction: str = "ours") -> pd.DataFrame:
    """Read every response of a run: the same rows with the columns `choice`, `status`, `rule` filled.

    `answers`: `question_id, sample, response, status`, the status as the journal has it: what the server did. Perhaps also `scores` (one
    number per option, of which the highest is chosen) and `finish_reason`: what the output limit cut (`length`) is read only where it
    states its answer, else it is `truncated`.
    A row that is already `failed` or `refused` stays so, with an empty choice. `extraction`: `ours`, or `official` (the paper's own).
    Raises BadInput for an unknown extraction, format or question id.
    """
    if extraction not in ("ours", "official"):
        raise BadInput(f"--extraction {extraction}: unknown. Available: ours, official.")
    if family not in BENCHMARKS:
        raise BadInput(f"format {family!r}: unknown. Available: {', '.join(BENCHMARKS)}.")
    official = part(family, "official").read
    ids = questions["question_id"].astype(str)
    may_use = not spec(family).similar_questions and "question" in questions.columns
    wordings = questions["question"] if may_use else [None] * len(questions)
    question_of = {
        question: (tuple(options), str(kind), wording)
        for question, options, kind, wording in zip(
            ids, questions["options"], questions["question_type"], wordings, strict=True
        )
    }
    scores = answers["scores"].tolist() if "scores" in answers.columns else [None] * len(answers)
    statuses = answers["status"].tolist() if "status" in answers.columns else ["answered"] * len(answers)
    ends = answers["finish_reason"].tolist() if "finish_reason" in answers.columns else [None] * len(answers)
    seen: dict[tuple[object, ...], Reading] = {}
    readings: list[Reading] = []
    for question, response, status, values, end in zip(
        answers["question_id"].astype(str).tolist(), answers["response"].tolist(), statuses, scores, ends, strict=True
    ):
        if question not in question_of:
            raise BadInput(
                f"answers: {question!r} is not a question of this benchmark. Check the benchmark, split and ids."
            )
        options, kind, wording = question_of[question]
        if status in ("failed", "refused"):
            readings.append(Reading((), status, "no response" if status == "failed" else "held back"))
        elif _is_scores(values, len(options)):
            readings.append(_highest(values))
        elif not isinstance(response, str):
            readings.append(Reading((), "failed", "no response"))
        else:
            key = (response, options, kind, wording, end == "length")
            if key not in seen:
                seen[key] = (
                    official(response, options, kind)
                    if extraction == "official"
                    else read_choice(response, list(options), kind, wording, end)
                )
            readings.append(seen[key])
    read = answers.copy()
    read["choice"] = pd.Series([list(reading.choice) for reading in readings], index=answers.index, dtype=object)
    read["status"] = [reading.status for reading in readings]
    read["rule"] = [reading.rule for reading in readings]
    return read


def _is_scores(values: object, count: int) -> bool:
    return hasattr(values, "__len__") and not isinstance(values, str) and len(values) == count > 0


def _highest(values: Sequence[float]) -> Reading:
    """The option with the highest score; none where it is shared or a score is no number."""
    if any(value is None or math.isnan(value) for value in values):
        return nothing("option scores are no numbers")
    best = [position for position, value in enumerate(values) if value == max(values)]
    return Reading((best[0],), "answered", "option scores") if len(best) == 1 else nothing("option scores tie")
