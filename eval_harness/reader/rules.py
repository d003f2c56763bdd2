"""The rules that read a response (docs/reader.md lists them), and `read_choice`.

A response is read by what it states: its full text, a marked answer, the claims of its sentences
(`claims.py`), yes and no, declining. Claims of equal rank must agree, or at least those after the
last correction; otherwise nothing is read.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from dataset_builders.errors import BadInput
from dataset_builders.schema import LETTERS
from eval_harness.reader.claim_forms import CORRECTION
from eval_harness.reader.claims import OptionClaim, find_claims, find_labelled_line
from eval_harness.reader.mentions import PlainResponse, parse_letters_only
from eval_harness.reader.options import OptionTexts, compile_options
from eval_harness.reader.reasoning import split_reasoning
from eval_harness.reader.text import (
    extract_json_answers,
    extract_marked_answers,
    is_error_text,
    normalize_text,
    strip_chat_markers,
)
from eval_harness.reader.yes_no import (
    MEDICAL_CAVEAT,
    declines,
    is_denial,
    is_undecided,
    is_unknowable,
    parse_bare_yes_no,
)


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read from a response.

    Attributes:
        choice: Positions of the chosen options, ascending.
        status: See `read_choice`.
        rule: Name of the rule that decided.
    """

    choice: tuple[int, ...]
    status: str
    rule: str


_OUTRIGHT_KINDS = ("answer statement", "leading option", "last line")
MAX_RESPONSE_CHARACTERS = 8_000
"""Maximum number of characters read.

Longer responses are clipped: a quarter of this number is kept from the beginning, the rest from the
end.
"""


def read_choice(
    response: str,
    options: Sequence[str],
    question_type: str = "single",
    finish_reason: str | None = None,
) -> Reading:
    """Read which option(s) a response chooses. Never guesses.

    Args:
        response: The model's response.
        options: Option texts in the order shown; letters follow the position.
        question_type: `single`, `multiple` or `yes_no` (options `yes`, `no` in any case and order).
        finish_reason: "length" means that the output limit cut the response off: only an explicit
            answer is read, as for a response that stops inside its reasoning.

    Returns:
        The choice with its rule. Status `answered` if there is a choice; else `irrelevant` (nothing
        to read, or more than one reading), `refused` (declines), `truncated`, or `failed` (an error
        message instead of a response).

    Raises:
        BadInput: If there are more than 26 options, the question type is unknown, or a value is not
            a string.

    >>> read_choice("Option A is wrong; the correct option is B", ["left hip", "right hip"])
    Reading(choice=(1,), status='answered', rule='answer statement')
    """
    if not options or isinstance(options, str) or not all(isinstance(text, str) for text in (response, *options)):
        raise BadInput(
            f"response {response!r:.40}, options {options!r:.80}: both must be text: a string and a list of strings."
        )
    if len(options) > len(LETTERS):
        raise BadInput(f"{len(options)} options: no benchmark has more than {len(LETTERS)}. Check the dataset.")
    if question_type not in ("single", "multiple", "yes_no"):
        raise BadInput(f"question_type {question_type!r}: unknown. Available: single, multiple, yes_no.")
    texts = compile_options(tuple(options))
    if question_type == "yes_no" and {" ".join(words) for words in texts.words} != {"yes", "no"}:
        raise BadInput(f"options {list(options)}: a yes/no question needs the options yes and no. Rebuild the dataset.")
    # Clip before every costly step: models in a loop write megabytes.
    split = split_reasoning(_clip_middle(response.strip(), 25 * MAX_RESPONSE_CHARACTERS))
    raw = _first_turn(
        _clip_middle(
            strip_chat_markers(_clip_middle(split.answer, 10 * MAX_RESPONSE_CHARACTERS)),
            MAX_RESPONSE_CHARACTERS,
        )
    )
    was_cut = split.unfinished or finish_reason == "length"
    if was_cut:
        # The rest of a word that was cut off must not be read as option A.
        raw = _TRAILING_A.sub("", raw)
    text = normalize_text(raw) if question_type != "yes_no" else _YES_NO_LABEL.sub("", normalize_text(raw))
    plain_response = PlainResponse(text, texts, question_type)
    if not plain_response.text:
        reading = _unread("empty")
    elif is_error_text(plain_response.text):
        return Reading((), "failed", "error text")
    else:
        reading = _read_answer(plain_response, raw, was_cut)
        if reading.status == "refused" and (
            without_caveat := MEDICAL_CAVEAT.sub("", plain_response.text)
        ).strip() not in ("", plain_response.text):
            reading_without_caveat = _read_answer(
                PlainResponse(without_caveat, texts, question_type), without_caveat, was_cut
            )
            reading = reading_without_caveat if reading_without_caveat.choice else reading
    # Unreadable because cut off: the limit is to blame, not the model.
    if was_cut and reading.status == "irrelevant":
        return Reading((), "truncated", "unfinished reasoning" if split.unfinished else "cut off")
    return reading


_TRAILING_A = re.compile(
    r"(?<!answer)(?<!answer:)(?<!answer is)(?<!choice is)(?<!option is)(?<=[a-z.,:]) A\s*$",
    re.IGNORECASE,
)
"""An "A" that begins the word the output limit cut off ("Let us see. A")."""
_YES_NO_LABEL = re.compile(r"\(?\b[A-Z][).:]\s+(?=(?:yes|no)\b)", re.IGNORECASE)
"""An option letter before yes or no, taken over from a prompt."""


def _clip_middle(text: str, max_characters: int) -> str:
    return (
        text if len(text) <= max_characters else text[: max_characters // 4] + "\n" + text[-3 * max_characters // 4 :]
    )


_NEXT_QUESTION = re.compile(
    r"[\n.!?](?:(?:[ ]{1,4}|(?<=\n)[ \t*#>]{0,8})(?:(?:next )?question|q|user|human"
    r"|instruction)\s*\d{0,3}\s*:"
    r"|(?<=\n)#{1,6} (?:\w+ ){0,2}(?:question|example|instruction)s?\b)",
    re.IGNORECASE,
)


def _first_turn(raw: str) -> str:
    r"""Return the text before a question that the model asks itself ("B\nQuestion: ...")."""
    turn = _NEXT_QUESTION.search(raw) if ":" in raw or "#" in raw else None
    answer = raw[: turn.start() + 1] if turn else ""
    return answer if answer.strip() else raw


def _unread(rule: str) -> Reading:
    return Reading((), "irrelevant", rule)


def _read_answer(response: PlainResponse, raw: str, was_cut: bool) -> Reading:
    if (positions := _parse_option_only(response)) is not None:
        return _decide_choice(positions, response.multiple, "whole response")
    # The last line "Answer: B" decides, regardless of what precedes it.
    if (positions := _last_answer(response)) is not None:
        return _decide_choice(positions, response.multiple, "answer statement")
    # JSON fields state the answer explicitly, so prose around them is not read.
    if fields := extract_json_answers(raw):
        return _read_marked(response, fields, [])
    if _is_option_list(response):
        return _unread("every option listed")
    claims = [*find_claims(response), *([] if was_cut else find_labelled_line(response))]
    stated = [
        claim for claim in claims if claim.kind != "option seen" and not (was_cut and _begins_analysis(response, claim))
    ]
    reading = _explicit_reading(response, raw, stated)
    # "It is unclear" outweighs a weak statement, but not an explicit answer.
    is_unsure = response.options.yes_no and is_undecided(response.lowered)
    if reading is not None and not (is_unsure and reading.rule == "statement"):
        return reading
    if (position := _declining_option(response)) is not None:
        return Reading((position,), "answered", "option that declines")
    if declines(response.lowered):
        return Reading((), "refused", "refusal")
    if is_unsure:
        return Reading((), "refused", "undecided")
    return (None if was_cut else _implied_reading(response, claims)) or _unread("no option named")


def _begins_analysis(response: PlainResponse, claim: OptionClaim) -> bool:
    """Return True for the first option of an analysis that was cut off ("A. Cyst: Cysts ...")."""
    if claim.kind != "leading option":
        return False
    end = next(mention.end for mention in response.mentions if mention.start == claim.offset)
    return re.match(r"\W*(?:[:–—-]\s*\w|is\b|are\b|this\b)", response.lowered[end:]) is not None


def _is_option_list(response: PlainResponse) -> bool:
    """Return True if the response only lists all options, possibly after the question."""
    options = [option.lower() for option in response.options.plain]
    if response.options.yes_no or response.count < 2 or any(option not in response.lowered for option in options):
        return False
    start, remaining = min(map(response.lowered.index, options)), response.lowered
    # Longest first: a short option may be part of a longer one.
    for option in sorted(options, key=len, reverse=True):
        if option not in remaining:
            return False
        remaining = remaining.replace(option, "", 1)
    return not re.search(r"\w{3}|[✓✔✅☑]|\[\w\]|\n\W*\w\W*$", remaining[max(start - 6, 0) :])


def _decide_choice(positions: Sequence[int], multiple: bool, rule: str) -> Reading:
    choice = tuple(sorted(set(positions)))
    if any(position < 0 for position in choice):
        return _unread("letter outside the options")
    if not choice or (len(choice) > 1 and not multiple):
        return _unread("more than one option")
    return Reading(choice, "answered", rule)


# --- explicit statements ---


def _explicit_reading(response: PlainResponse, raw: str, stated: list[OptionClaim]) -> Reading | None:
    begins_with_yes_no = response.options.yes_no and stated and stated[0].kind == "leading option"
    if begins_with_yes_no and declines(response.lowered[slice(*response.sentence_span(stated[0].offset))]):
        return None  # "No, I cannot diagnose that from a photo."
    if marked := extract_marked_answers(raw):
        return _read_marked(response, marked, stated)
    return _agreed_reading(_select_decisive_claims(response, stated), response.multiple)


def _read_marked(response: PlainResponse, marked: list[str], stated: list[OptionClaim]) -> Reading:
    """Read JSON fields, `<answer>` tags and boxes.

    All of them must contain one and the same option, and no statement may name another.
    """
    readings = [
        _read_answer(
            PlainResponse(normalize_text(content), response.options, response.question_type),
            content,
            False,
        )
        for content in marked
    ]
    stated_reading = _agreed_reading(_select_decisive_claims(response, stated), response.multiple)
    choices = {reading.choice for reading in readings if reading.choice}
    # Nothing could be read from the marked parts: fall back to the statements.
    if not choices:
        return stated_reading if stated_reading and stated_reading.choice else readings[-1]
    (choice, *other_choices) = choices
    if other_choices or (stated_reading is not None and stated_reading.choice != choice):
        return _unread("more than one option")
    return Reading(choice, "answered", "marked answer")


def _select_decisive_claims(response: PlainResponse, stated: list[OptionClaim]) -> list[OptionClaim]:
    """Select the claims that decide if claims disagree.

    They are the claims after the last correction, and among these the ones that name the answer
    outright.
    """
    if len({claim.options for claim in stated}) > 1:
        corrections = reversed([correction.start() for correction in CORRECTION.finditer(response.lowered)])
        stated = next(
            filter(
                None,
                ([claim for claim in stated if claim.offset >= offset] for offset in corrections),
            ),
            stated,
        )
    if stated and _is_reopened(response, stated[-1]):
        return [OptionClaim(stated[-1].kind, stated[-1].offset, ())]
    last_answer_statement = max((claim.offset for claim in stated if claim.kind == "answer statement"), default=-1)
    stated = [claim for claim in stated if claim.kind != "last line" or claim.offset > last_answer_statement]
    outright = [
        claim for claim in stated if response.options.yes_no or response.multiple or claim.kind in _OUTRIGHT_KINDS
    ]
    return [claim for claim in outright or stated if claim.options != (-1,)] or stated


def _is_reopened(response: PlainResponse, last_claim: OptionClaim) -> bool:
    """Return True if the last claim is retracted and another option follows ("B. Wait, C?")."""
    other_mentions = [
        mention.start for mention in response.mentions if not set(mention.options) <= set(last_claim.options)
    ]
    retractions = CORRECTION.finditer(response.lowered, last_claim.offset, max(other_mentions, default=0))
    return any(
        not re.search(
            r"\w",
            response.lowered[response.sentence_span(retraction.start())[0] : retraction.start()],
        )
        for retraction in retractions
    )


def _agreed_reading(stated: list[OptionClaim], multiple: bool) -> Reading | None:
    """Return what all claims agree on; for several answers, all options that they name."""
    if not stated:
        return None
    if multiple:
        if any(not claim.options for claim in stated):
            return _unread("more than one option")
        return _decide_choice([position for claim in stated for position in claim.options], True, stated[0].kind)
    choices = {claim.options for claim in stated}
    return _decide_choice(choices.pop() if len(choices) == 1 else (), False, stated[0].kind)


_SEVERAL_LETTERS_CUE = re.compile(
    r"\W*(?:the )?(?:(?:final|correct|best|right) )*(?:answers?|choices)(?: are| is)?\s*:?\s*"
    r"|(?:正确)?(?:答案|选项?|应选|故选)[是为]?\s*:?\s*",
    re.IGNORECASE,
)
"""Lead-in of letters in a row ("Answers: BCE")."""
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
_OPTION_NUMBER = re.compile(
    rf"\W*(?:(?:option|choice|statement)\s+(\d{{1,2}})|(?:the )?({'|'.join(_ORDINALS)}) (?:option"
    rf"|choice|statement|answer|one))\W*",
    re.IGNORECASE,
)

_LETTER_AND_TEXT = re.compile(r"[(*]*([A-Z])[).:*]+\s*(.+?)")


def _parse_option_only(response: PlainResponse) -> tuple[int, ...] | None:
    """Parse a response that consists only of options, by letter, text or number.

    A text after "Answer:" is a claim instead.
    """
    text, texts = response.text, response.options
    # A cross or question mark before a single option rejects or doubts it.
    if text[:1] in "✗❌✘?" and "\n" not in text:
        return ()
    if text.endswith("?") and not any(option.endswith("?") for option in texts.plain):
        return None
    if texts.yes_no and (word := parse_bare_yes_no(text)) is not None:
        return (texts.yes_no.index(word),)
    if response.lettered and (letter_and_text := _LETTER_AND_TEXT.fullmatch(text)) is not None:
        labelled = LETTERS.index(letter_and_text[1])
        if texts.plain[labelled : labelled + 1] == (letter_and_text[2],):
            return (labelled,)  # "C. A" where "A" is the text of option C
    cue = _SEVERAL_LETTERS_CUE.match(text) if response.multiple else None
    letters = text[cue.end() :] if cue else text
    letter_positions = parse_letters_only(letters, response.count, response.multiple) if response.lettered else None
    if (
        letter_positions == (-1,)
        and (letter_option := texts.single_letter_options.get(text.strip("\"'()[]{}.,:;! ").lower())) is not None
    ):
        return (letter_option,)  # blood group O, if no option has the letter O
    position = texts.find_exact(text) if len(text) <= 2 * texts.max_length + 60 else None
    if position is not None:
        return (
            (position,)
            if letter_positions is None or len(letter_positions) > 1 or letter_positions == (position,)
            else ()
        )
    if (
        letter_positions is None
        and response.lettered
        and not texts.numeric
        and (numbered := _OPTION_NUMBER.fullmatch(text))
    ):
        position = int(numbered[1]) - 1 if numbered[1] else _ORDINALS.index(numbered[2].lower())
        return (position,) if 0 <= position < response.count else (-1,)
    return letter_positions


_LAST_ANSWER = re.compile(
    r"\W*(?:(?:the|my|so|final|correct|best) )*answer\s*[:=]\s*(?P<named>.{1,400})", re.IGNORECASE
)


def _last_answer(response: PlainResponse) -> tuple[int, ...] | None:
    """Parse a last line "Answer: B", regardless of what precedes it."""
    line = _LAST_ANSWER.fullmatch(response.text.rpartition("\n")[2])
    return (
        None
        if line is None
        else _parse_option_only(PlainResponse(line["named"], response.options, response.question_type))
    )


# --- declining ---


def _declining_option(response: PlainResponse) -> int | None:
    """Return the option that itself declines ("cannot be determined"), if the response does so too.

    None if the response names another option.
    """
    position = _find_declining_option(response.options)
    if position is None or not (declines(response.lowered) or is_unknowable(response.lowered)):
        return None
    other_mentions = (
        mention.options for mention in response.mentions if mention.text and position not in mention.options
    )
    if not all(response.options.numeric.issuperset(options) for options in other_mentions):
        return None
    option_text = " ".join(response.options.plain[position].lower().split())
    if is_unknowable(option_text) and is_unknowable(response.lowered):
        return position
    option_words = {word for word in response.options.words[position] if len(word) > 2}
    return position if option_words and option_words <= set(response.words.words) else None


@lru_cache(maxsize=16384)
def _find_declining_option(texts: OptionTexts) -> int | None:
    """Return the option that declines to answer; None unless there is exactly one."""
    options = [text.lower() if len(words) > 1 else "" for text, words in zip(texts.plain, texts.words, strict=True)]
    declining = [
        position for position, option in enumerate(options) if option and (declines(option) or is_unknowable(option))
    ]
    return declining[0] if len(declining) == 1 else None


# --- implied by what the response reports as seen ---


def _implied_reading(response: PlainResponse, seen_claims: list[OptionClaim]) -> Reading | None:
    """Read what the response reports as seen, or its denial of a yes/no question."""
    if response.options.yes_no:
        return (
            Reading((response.options.yes_no.index("no"),), "answered", "denial") if is_denial(response.text) else None
        )
    return _agreed_reading(seen_claims, response.multiple)


def official_reading(choice: tuple[int, ...], rule: str) -> Reading:
    """Build the reading of a paper's own reader: answered if it found an option, else irrelevant.

    Args:
        choice: Positions of the chosen options.
        rule: Name of the rule to record.
    """
    return Reading(choice, "answered" if choice else "irrelevant", rule)
