"""Response -> choice and status, with the rule that decided. Precision first: where a careful reader would hesitate, nothing is read.

Not here: the papers' own readers (`official_readers.py`), the LLM fall-back (`judge.py`), making a response plain (`plain_text.py`),
yes/no (`yes_no.py`), the letters and option texts of a response (`mentions.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.schema import LETTERS
from eval_harness.answer_reading.letters import (
    bare_letters,
    dressed_letters,
    last_line_letter,
    leading_letters,
    ticked,
    verdicts,
    whole_letters,
)
from eval_harness.answer_reading.mentions import (
    asserted_texts,
    denies_own_text,
    is_crossed,
    labelled_mentions,
    labelled_options,
    labelled_verdicts,
    telling_words,
    without_listing,
)
from eval_harness.answer_reading.plain_text import OptionTexts, is_error, option_texts, plain, words_of
from eval_harness.answer_reading.statements import agreeing, last_statement
from eval_harness.answer_reading.yes_no import read_yes_no

READER_VERSION = 2
"""Counts up whenever some response may be read otherwise than before; 1 is what results without a `reader_version` were read by."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read: positions of the options chosen (ascending), the status, and the rule that decided."""

    choice: tuple[int, ...]
    status: str
    rule: str


LONGEST = 40_000
"""Characters up to which a response is read whole; of a longer one the first quarter and the last three quarters of as many are."""

Reader = Callable[[str, Sequence[str], str], Reading]

_REFUSAL = re.compile(
    r"\b(?:i(?:'m| am)|we(?:'re| are))\s+(?:very |so |truly |really )?(?:sorry|unable|not able|afraid)\b|\bas an? (?:ai"
    r"|large language|language|artificial)\b"
    r"|\bi (?:can not(?! (?:be (?:\w+ )?(?:sure|certain)|rule|exclude|see (?:an?|any|[A-Z])\b))|could not"
    r"|am not able to|will not|would not|must decline|decline|do not have the (?:ability|capability"
    r"|expertise))\b"
    r"|\b(?:can ?not|not able to|unable to) (?:assist|help|provide|diagnose|interpret|answer|determine|analy[sz]e|identify|give|offer"
    r"|process|view|see|comply|fulfil+)\b"
    r"|\b(?:sorry|apologi[sz]e)\b|\bconsult (?:a|an|your|with)\b|\bwithout (?:the|an|seeing the) image\b|\bno image (?:was|is"
    r"|has been)? ?(?:provided|attached|available)\b"
    r"|\bnot (?:qualified|licensed|a doctor|a medical|a substitute)\b",
    re.IGNORECASE,
)


_REFUSAL_HINTS: tuple[str, ...] = (
    "sorry",
    "apolog",
    "unable",
    "not able",
    "can not",
    "could not",
    "decline",
    "as an a",
    "as a ",
    "as an l",
    "consult",
)
_REFUSAL_HINTS += (
    "without",
    "no image",
    "not qualified",
    "not licensed",
    "not a ",
    "will not",
    "would not",
    "do not have",
    "afraid",
)


def is_refusal(text: str) -> bool:
    """Whether a response declines to answer. (The plain words are looked for first: they rule most texts out at once.)"""
    lowered = text.lower()
    return any(hint in lowered for hint in _REFUSAL_HINTS) and _REFUSAL.search(text) is not None


def read_choice(response: str, options: list[str], question_type: str = "single") -> Reading:
    """Read which option(s) a response chooses.

    `options` in the order shown (letters follow the position); `question_type`: `single`, `multiple` or `yes_no` (options `yes`, `no` in
    any case and order). Status: `answered` with a choice; else `irrelevant` (nothing to read, or more than one reading), `refused`, or
    `failed` (an error text stands where the response should be). Never guesses. Linear in the length of the response; of one over
    40,000 characters only the beginning and the end are read.

    >>> read_choice("Option A is wrong; the correct option is B", ["left hip", "right hip"])
    Reading(choice=(1,), status='answered', rule='answer statement')

    Raises BadInput for more than 26 options or an unknown question type.
    """
    if len(options) > len(LETTERS):
        raise BadInput(f"{len(options)} options: no benchmark has more than {len(LETTERS)}. Check the dataset.")
    if question_type not in ("single", "multiple", "yes_no"):
        raise BadInput(f"question_type {question_type!r}: unknown. There are: single, multiple, yes_no.")
    made = plain(response)
    text = _ends(made.text.strip())
    if not text:
        return _none("unfinished reasoning" if made.unfinished else "empty")
    if is_error(text):
        return Reading((), "failed", "error text")
    if "\n" in text and (before := _first_turn(text)) is not None:
        reading = _read(before, options, question_type)
        if reading.rule in _TOLD:
            return reading
    return _read(text, options, question_type)


def _read(text: str, options: list[str], question_type: str) -> Reading:
    lowered = [" ".join(words_of(option)) for option in options] if len(options) == 2 else []
    if question_type == "yes_no" or set(lowered) == {"yes", "no"}:
        return _yes_no(text, lowered, question_type)
    return _options(text, tuple(options), question_type == "multiple")


def _ends(text: str) -> str:
    """A response of ordinary length as it is; of an endless one (a model in a loop) the beginning and the end."""
    return text if len(text) <= LONGEST else text[: LONGEST // 4] + "\n" + text[-3 * LONGEST // 4 :]


def _none(rule: str) -> Reading:
    return Reading((), "irrelevant", rule)


_NEXT_QUESTION = re.compile(
    r"\n\s*(?:(?:next )?question|q|user|human|instruction|###\s*(?:question|human|user|instruction))\s*\d{0,3}\s*:",
    re.IGNORECASE,
)
_TOLD = (
    "whole response",
    "option text after its label",
    "answer statement",
    "leading letter",
    "leading yes or no",
    "letter",
)
_CROSSED_YES_NO = re.compile(r"\W*(?:(?:the )?answer(?: is)?\W+)?(?:option )?([A-Z])\W{1,4}(yes|no)\b", re.IGNORECASE)
_ALL_OR_NONE = re.compile(
    r"\W{0,4}(?:(?:none|all|neither|both) of (?:the (?:above|options|choices|listed)\b|(?:these|those|them)\W*(?:$|\n))|none\W*(?:$|\n))",
    re.IGNORECASE,
)


def _first_turn(text: str) -> str | None:
    """What stands before a question that the model went on to put to itself ("B\\nQuestion: ..."); None where there is none."""
    turn = _NEXT_QUESTION.search(text, 1)
    return text[: turn.start()] if turn and text[: turn.start()].strip() else None


_YES_NO_CROSSED = re.compile(r"\W*(yes|no)\W{1,3}(?:option )?([A-Z])\)", re.IGNORECASE)


def _crossed_yes_no(text: str, leads: Sequence[str]) -> bool:
    """Whether a letter leads with the word of another option ("A. No" where A is Yes)."""
    match, turned = _CROSSED_YES_NO.match(text), _YES_NO_CROSSED.match(text)
    letter, word = (match[1], match[2]) if match else (turned[2], turned[1]) if turned else ("", "")
    place = LETTERS.find(letter.upper()) if letter else -1
    if word.lower() not in leads or not 0 <= place < len(leads):
        return False
    return leads[place] in ("yes", "no") and leads[place] != word.lower()


def _yes_no(text: str, lowered: list[str], question_type: str) -> Reading:
    if question_type != "yes_no":
        if _crossed_yes_no(text, lowered):
            return _none("more than one option")
        letters = (
            whole_letters(text, 2, False)
            or last_statement(text, 2, _NO_TEXTS, False)
            or _leading(text, 2, option_texts(tuple(lowered)))
        )
        if letters is not None and len(letters) == 1 and letters[0] >= 0:
            return Reading(letters, "answered", "letter")
    word, rule = read_yes_no(text)
    if word is None:
        return Reading((), "refused", "refusal") if is_refusal(text) else _none(rule)
    if word not in lowered:
        raise BadInput(f"options {lowered}: a yes/no question needs the options yes and no. Rebuild the dataset.")
    return Reading((lowered.index(word),), "answered", rule)


_NO_TEXTS = option_texts(())


def _options(text: str, options: tuple[str, ...], multiple: bool) -> Reading:
    """The ladder of rules for lettered options: the first that finds anything decides."""
    texts = option_texts(options)
    count = len(options)
    named = texts.index.get(" ".join(words_of(text))) if len(text) <= 2 * texts.longest + 20 else None
    if named is not None:
        return Reading((named,), "answered", "whole response")
    if len(text) <= 2 * texts.longest + 80 and (named := _after_prefix(text, texts)) is not None:
        return Reading((named,), "answered", "option text after its label")
    if "ptions" in text or "hoices" in text:
        text = without_listing(text, texts)
    leads = texts.leads
    if ("yes" in leads or "no" in leads) and _crossed_yes_no(text, leads):
        return _none("more than one option")
    if texts.lone:
        return _lone(text, texts, multiple)
    whole = whole_letters(text, count, multiple)
    if whole is not None:
        return _decide(whole, multiple, "whole response")
    for rule, find in _SURE:
        found = find(text, count, texts, multiple)
        if found is not None:
            return _decide(found, multiple, rule)
    if is_refusal(text):
        return Reading((), "refused", "refusal")
    if set(leads) == {"yes", "no"} and count == 2:
        word, rule = read_yes_no(text)
        if word is not None:
            return Reading((leads.index(word),), "answered", rule)
    if multiple and len(labelled_options(text, 0, texts)) == count:
        return _none("every option listed")
    for rule, find in _WEAK:
        found = find(text, count, texts, multiple)
        led = leading_letters(text, count) if found is not None else None
        if led is not None and found == led[0] and denies_own_text(text, led[1], found[0], texts):
            return _none("option denied")
        if found is not None:
            return _decide(found, multiple, rule)
    return _none("no option named")


_LONE_LABEL = re.compile(r"\W*(?:(?:the )?answer(?: is)?\W+)?(?:option )?([A-Za-z])\W{1,4}([A-Za-z])\W*", re.IGNORECASE)


def _lone(text: str, texts: OptionTexts, multiple: bool) -> Reading:
    """Options that are themselves letters (blood group O, class I): a letter may be the option's place or its text, and where these
    are two options nobody can say which is meant."""
    label = _LONE_LABEL.fullmatch(text)
    if label is not None and (place := texts.lone.get(label[2].lower())) is not None:
        return _decide(
            (place,) if LETTERS.find(label[1].upper()) == place else (), multiple, "option text after its label"
        )
    rules: tuple[tuple[str, Rule], ...] = (
        ("whole response", lambda t, c, _, m: whole_letters(t, c, m)),
        *_SURE,
        *_WEAK[:2],
    )
    found, rule = None, ""
    for name, find in rules:
        if found is None:
            found, rule = find(text, len(LETTERS), texts, multiple), name
    if found is None:
        if is_refusal(text):
            return Reading((), "refused", "refusal")
        rule, found = "option text", asserted_texts(text, texts, multiple)
        return _none("no option named") if found is None else _decide(found, multiple, rule)
    meant: list[int] = []
    for place in found:
        named = texts.lone.get(LETTERS[place].lower(), place)
        if place < len(texts.words) and named != place:
            return _none("more than one option")
        meant.append(named if named < len(texts.words) else -1)
    return _decide(tuple(meant), multiple, rule)


_CUE = re.compile(
    r"\W*(?:the |my )?(?:(?:final|correct|best|right) )*(?:answer|choice|diagnosis)(?: is)?\s*[:=]?\s*", re.IGNORECASE
)
_LABEL = re.compile(
    r"\W*(?:(?:the |my )?(?:(?:final|correct|best|right) )*(?:answer|choice)(?: is)?\s*[:=]?\s*)?"
    r"(?:option )?[(\[\"']*([A-Z])[)\]\"']*\s*[.:)\]\"'–-]\s*",
    re.IGNORECASE,
)


def _after_prefix(text: str, texts: OptionTexts) -> int | None:
    """The option of which the exact text is the rest of the response after "the answer is", or after its own letter."""
    cue, label = _CUE.match(text), _LABEL.match(text)
    named = texts.index.get(" ".join(words_of(text[cue.end() :]))) if cue else None
    if named is None and label:
        named = texts.index.get(" ".join(words_of(text[label.end() :])))
        named = named if named is not None and LETTERS.find(label[1].upper()) == named else None
    return named


def _leading(text: str, count: int, texts: OptionTexts, multiple: bool = False) -> tuple[int, ...] | None:
    """The leading letter, unless it is followed by the text of another option."""
    led = leading_letters(text, count, texts.words)
    if led is None or (multiple and len(labelled_options(text, 0, texts)) > 1):
        return None
    found = led[0]
    if _ALL_OR_NONE.match(text, led[1]) and not _says_all_or_none(texts, found):
        return ()
    if len(found) == 1 and denies_own_text(text, led[1], found[0], texts):
        return None
    rest = text[led[1] :]
    if len(rest) < 120 and len(found) == 1 and found[0] >= 0:
        told = telling_words(rest, texts, multiple)
        if told is not None and len(told) == 1 and told != found:
            return ()
    if found == (-1,) and asserted_texts(text, texts, multiple):
        return None
    return agreeing(text, 0, texts, found)


def _says_all_or_none(texts: OptionTexts, found: tuple[int, ...]) -> bool:
    return any(
        place >= 0 and texts.words[place][:1] in (("none",), ("all",), ("neither",), ("both",)) for place in found
    )


def _labelled_list(text: str, count: int, texts: OptionTexts) -> tuple[int, ...] | None:
    return () if is_crossed(text, texts) else labelled_mentions(text, count, texts, True)


Rule = Callable[[str, int, OptionTexts, bool], tuple[int, ...] | None]

_SURE: tuple[tuple[str, Rule], ...] = (
    ("ticked box", lambda text, count, texts, multiple: ticked(text, count, multiple)),
    ("verdict on each option", lambda text, count, texts, multiple: verdicts(text, count, multiple)),
    (
        "verdict on each option",
        lambda text, count, texts, multiple: labelled_verdicts(text, texts) if multiple else None,
    ),
    ("answer statement", last_statement),
    (
        "letter with its option",
        lambda text, count, texts, multiple: _labelled_list(text, count, texts) if multiple else None,
    ),
    (
        "letter on the last line",
        lambda text, count, texts, multiple: None if multiple else last_line_letter(text, count),
    ),
    ("leading letter", _leading),
    ("letter with its option", labelled_mentions),
)
"""Rules that decide even where the response also declines or hedges, surest first."""

_WEAK: tuple[tuple[str, Rule], ...] = (
    (
        "letter",
        lambda text, count, texts, multiple: () if is_crossed(text, texts) else dressed_letters(text, count, multiple),
    ),
    ("bare letter", lambda text, count, texts, multiple: bare_letters(text, count, multiple)),
    ("option text", lambda text, count, texts, multiple: asserted_texts(text, texts, multiple)),
    ("telling words", lambda text, count, texts, multiple: telling_words(text, texts, multiple)),
)
"""Rules for responses without an answer statement; a refusal comes before them."""


def _decide(found: tuple[int, ...], multiple: bool, rule: str) -> Reading:
    if any(position < 0 for position in found):
        return _none("letter outside the options")
    choice = tuple(sorted(set(found)))
    if not choice or (len(choice) > 1 and not multiple):
        return _none("more than one option")
    return Reading(choice, "answered", rule)


def read_answers(answers: pd.DataFrame, questions: pd.DataFrame, format: str, extraction: str = "ours") -> pd.DataFrame:
    """Read every response of a run: the same rows with the columns `choice`, `status`, `rule` filled.

    `answers`: `question_id, sample, response, status`, the status as the journal has it: what the server did. Perhaps also `scores` (one
    number per option, of which the highest is chosen) and `finish_reason`: what the output limit cut (`length`) is read only where it
    states its answer, else it is `truncated`.
    A row that is already `failed` or `refused` stays so, with an empty choice. `extraction`: `ours`, or `official` (the paper's own).
    Raises BadInput for an unknown extraction, format or question id.
    """
    from eval_harness.answer_reading.official_readers import OFFICIAL_READERS

    if extraction not in ("ours", "official"):
        raise BadInput(f"--extraction {extraction}: unknown. There are: ours, official.")
    if format not in OFFICIAL_READERS:
        raise BadInput(f"format {format!r}: unknown. There are: {', '.join(OFFICIAL_READERS)}.")
    reader: Reader = (
        OFFICIAL_READERS[format] if extraction == "official" else lambda r, o, t: read_choice(r, list(o), t)
    )
    ids = questions["question_id"].astype(str)
    asked = {
        question: (tuple(options), str(kind))
        for question, options, kind in zip(ids, questions["options"], questions["question_type"], strict=True)
    }
    scores = answers["scores"].tolist() if "scores" in answers.columns else [None] * len(answers)
    statuses = answers["status"].tolist() if "status" in answers.columns else ["answered"] * len(answers)
    ends = answers["finish_reason"].tolist() if "finish_reason" in answers.columns else [None] * len(answers)
    seen: dict[tuple[str, tuple[str, ...], str], Reading] = {}
    readings: list[Reading] = []
    for question, response, status, values, end in zip(
        answers["question_id"].astype(str).tolist(), answers["response"].tolist(), statuses, scores, ends, strict=True
    ):
        if question not in asked:
            raise BadInput(
                f"answers: {question!r} is no question of this benchmark. Check the benchmark, split and ids."
            )
        options, kind = asked[question]
        if status in ("failed", "refused"):
            readings.append(Reading((), status, "no response" if status == "failed" else "held back"))
        elif _is_scores(values, len(options)):
            readings.append(_highest(values))
        elif not isinstance(response, str):
            readings.append(Reading((), "failed", "no response"))
        else:
            key = (response, options, kind)
            if key not in seen:
                seen[key] = reader(response, options, kind)
            readings.append(_cut(seen[key]) if end == "length" and extraction == "ours" else seen[key])
    read = answers.copy()
    read["choice"] = pd.Series([list(reading.choice) for reading in readings], index=answers.index, dtype=object)
    read["status"] = [reading.status for reading in readings]
    read["rule"] = [reading.rule for reading in readings]
    return read


def _cut(reading: Reading) -> Reading:
    """What a response that the output limit cut is read as: only a stated answer counts."""
    weak = reading.status == "irrelevant" or reading.rule in {name for name, _ in _WEAK}
    return Reading((), "truncated", "cut off") if weak else reading


def _is_scores(values: object, count: int) -> bool:
    return hasattr(values, "__len__") and not isinstance(values, str) and len(values) == count > 0


def _highest(values: Sequence[float]) -> Reading:
    """The option with the highest score; none where it is shared or a score is no number."""
    if any(value is None or math.isnan(value) for value in values):
        return _none("option scores are no numbers")
    best = [position for position, value in enumerate(values) if value == max(values)]
    return Reading((best[0],), "answered", "option scores") if len(best) == 1 else _none("option scores tie")
