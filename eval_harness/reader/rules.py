"""The rules that read a response, as one table (`RULES`), and `read_choice`.

What a response states decides: its whole text, a marked answer, the claims of its sentences (`claims.py`), yes and no, declining.
Claims of one rank have to agree, or those after the last correction; else nothing is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from dataset_builders.errors import BadInput
from dataset_builders.schema import LETTERS
from eval_harness.reader import yes_no
from eval_harness.reader.claim_forms import CORRECTION
from eval_harness.reader.claims import OptionClaim, claims, labelled_line
from eval_harness.reader.declining import CAVEAT, cannot_know, declines, undecided
from eval_harness.reader.letters import whole_letters
from eval_harness.reader.mentions import PlainResponse
from eval_harness.reader.options import OptionTexts, option_texts
from eval_harness.reader.reasoning import split_reasoning
from eval_harness.reader.text import is_error, json_answers, marked_answers, plain, without_markers


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read: positions of the options chosen (ascending), the status, and the rule that decided."""

    choice: tuple[int, ...]
    status: str
    rule: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table. `stage`: `explicit` rules also read a response that was cut off; `declining` ones make it `refused`."""

    name: str
    stage: Literal["explicit", "declining", "implied"]
    decides: str
    example: str


RULES = (
    Rule("whole response", "explicit", "the response is nothing but one option", "(B)"),
    Rule("marked answer", "explicit", "a field of JSON, `<answer>` tags or a box hold one option", "It lies low. <answer>B</answer>"),
    Rule("answer statement", "explicit", "sentences that name the answer", "A is tempting. The answer is B."),
    Rule("statement", "explicit", "conclusions and choices", "A is tempting. I choose B."),
    Rule("verdict", "explicit", "one option is called correct, or ticked", "A: wrong. B: correct."),
    Rule("leading option", "explicit", "the response begins with an option", "B. The edge is sharp there."),
    Rule("last line", "explicit", "it ends with a sentence or line that is nothing but one option", "It lies in the pelvis.\nB"),
    Rule("option that declines", "explicit", "the option 'I do not know', said in its words", "I do not know that."),
    Rule("refusal", "declining", "the response declines to answer", "I cannot interpret medical images."),
    Rule("undecided", "declining", "it does not know whether yes or no", "It is unclear."),
    Rule("denial", "implied", "it begins with a denial", "There is no nodule."),
    Rule("option seen", "implied", "sentences that say that an option's text is seen", "The image shows a rib fracture."),
)  # fmt: skip
"""Every rule, in the order in which they decide. `name` is stored in `answers.parquet` (column `rule`)."""
_OUTRIGHT = ("answer statement", "leading option", "last line")
LONGEST = 8_000
"""Characters up to which a response is read whole; of a longer one the first quarter and the last three quarters of as many."""


def read_choice(
    response: str, options: Sequence[str], question_type: str = "single", finish_reason: str | None = None
) -> Reading:
    """Read which option(s) a response chooses, by what it says.

    `options` in the order shown (letters follow the position); `question_type`: `single`, `multiple` or `yes_no` (options `yes`, `no` in
    any case and order). `finish_reason` "length": the output limit cut the response, so that only an explicit answer is read; the same
    where it stops inside its reasoning. Status: `answered` with a choice; else `irrelevant` (nothing to read, or more than one reading),
    `refused` (declines), `truncated`, or `failed` (an error text stands where the response should be). Never guesses.

    >>> read_choice("Option A is wrong; the correct option is B", ["left hip", "right hip"])
    Reading(choice=(1,), status='answered', rule='statement')

    Raises BadInput for more than 26 options or an unknown question type.
    """
    if not options or isinstance(options, str) or not all(isinstance(each, str) for each in (response, *options)):
        raise BadInput(f"response {response!r:.40}, options {options!r:.80}: give a text, and a list of texts.")
    if len(options) > len(LETTERS):
        raise BadInput(f"{len(options)} options: no benchmark has more than {len(LETTERS)}. Check the dataset.")
    if question_type not in ("single", "multiple", "yes_no"):
        raise BadInput(f"question_type {question_type!r}: unknown. Available: single, multiple, yes_no.")
    texts = option_texts(tuple(options))
    if question_type == "yes_no" and {" ".join(words) for words in texts.words} != {"yes", "no"}:
        raise BadInput(f"options {list(options)}: a yes/no question needs the options yes and no. Rebuild the dataset.")
    split = split_reasoning(_ends(response.strip(), 25 * LONGEST))
    raw = _first_turn(_ends(without_markers(_ends(split.answer, 10 * LONGEST)), LONGEST))
    cut = split.unfinished or finish_reason == "length"
    if cut:
        raw = _UNFINISHED_A.sub("", raw)
    text = plain(raw) if question_type != "yes_no" else _LABEL.sub("", plain(raw))
    said = PlainResponse(text, texts, question_type)
    if not said.text:
        reading = _nothing("empty")
    elif is_error(said.text):
        return Reading((), "failed", "error text")
    else:
        reading = _read(said, raw, cut)
        if reading.status == "refused" and (rest := CAVEAT.sub("", said.text)).strip() not in ("", said.text):
            beside = _read(PlainResponse(rest, texts, question_type), rest, cut)
            reading = beside if beside.choice else reading
    if cut and reading.status == "irrelevant":
        return Reading((), "truncated", "unfinished reasoning" if split.unfinished else "cut off")
    return reading


_UNFINISHED_A = re.compile(
    r"(?<!answer)(?<!answer:)(?<!answer is)(?<!choice is)(?<!option is)(?<=[a-z.,:]) A\s*$", re.IGNORECASE
)
"""A letter that begins what the output limit cut ("Let us see. A")."""
_LABEL = re.compile(r"\(?\b[A-Z][).:]\s+(?=(?:yes|no)\b)", re.IGNORECASE)
"""A letter that a prompt put before yes or no."""


def _ends(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest // 4] + "\n" + text[-3 * longest // 4 :]


_NEXT_QUESTION = re.compile(
    r"[\n.!?](?:(?:[ ]{1,4}|(?<=\n)[ \t*#>]{0,8})(?:(?:next )?question|q|user|human|instruction)\s*\d{0,3}\s*:"
    r"|(?<=\n)#{1,6} (?:\w+ ){0,2}(?:question|example|instruction)s?\b)",
    re.IGNORECASE,
)


def _first_turn(raw: str) -> str:
    """What stands before a question that the model goes on to put to itself ("B\\nQuestion: ...")."""
    turn = _NEXT_QUESTION.search(raw) if ":" in raw or "#" in raw else None
    before = raw[: turn.start() + 1] if turn else ""
    return before if before.strip() else raw


def _nothing(rule: str) -> Reading:
    return Reading((), "irrelevant", rule)


def _read(said: PlainResponse, raw: str, cut: bool) -> Reading:
    if (whole := _whole(said)) is not None:
        return _decide(whole, said.multiple, "whole response")
    if (whole := _last_answer(said)) is not None:
        return _decide(whole, said.multiple, "answer statement")
    if fields := json_answers(raw):
        return _marked(said, fields, [])
    if _only_lists(said):
        return _nothing("every option listed")
    found = [*claims(said), *([] if cut else labelled_line(said))]
    stated = [claim for claim in found if claim.kind != "option seen" and not (cut and _begins_analysis(said, claim))]
    reading = _explicit(said, raw, stated)
    unsure = said.options.yes_no and undecided(said.lowered)
    if reading is not None and not (unsure and reading.rule == "statement"):
        return reading
    if (place := _declining_option(said)) is not None:
        return Reading((place,), "answered", "option that declines")
    if declines(said.lowered):
        return Reading((), "refused", "refusal")
    if unsure:
        return Reading((), "refused", "undecided")
    return (None if cut else _implied(said, found)) or _nothing("no option named")


def _begins_analysis(said: PlainResponse, claim: OptionClaim) -> bool:
    """True for the first option of an analysis that was cut ("A. Cyst: Cysts are round and ...")."""
    if claim.kind != "leading option":
        return False
    end = next(mention.end for mention in said.mentions if mention.start == claim.place)
    return re.match(r"\W*(?:[:–—-]\s*\w|is\b|are\b|this\b)", said.lowered[end:]) is not None


def _only_lists(said: PlainResponse) -> bool:
    """True if the response is a list of all options, perhaps after the question, and says nothing more."""
    options = [option.lower() for option in said.options.plain]
    if said.options.yes_no or said.count < 2 or any(option not in said.lowered for option in options):
        return False
    start, rest = min(map(said.lowered.index, options)), said.lowered
    for option in sorted(options, key=len, reverse=True):
        if option not in rest:
            return False
        rest = rest.replace(option, "", 1)
    return not re.search(r"\w{3}|[✓✔✅☑]|\[\w\]|\n\W*\w\W*$", rest[max(start - 6, 0) :])


def _decide(found: Sequence[int], multiple: bool, rule: str) -> Reading:
    choice = tuple(sorted(set(found)))
    if any(place < 0 for place in choice):
        return _nothing("letter outside the options")
    if not choice or (len(choice) > 1 and not multiple):
        return _nothing("more than one option")
    return Reading(choice, "answered", rule)


# --- explicit: what the response states ---


def _explicit(said: PlainResponse, raw: str, stated: list[OptionClaim]) -> Reading | None:
    leads = said.options.yes_no and stated and stated[0].kind == "leading option"
    if leads and declines(said.lowered[slice(*said.sentence(stated[0].place))]):
        return None  # "No, I cannot diagnose that from a photo."
    if marked := marked_answers(raw):
        return _marked(said, marked, stated)
    return _agreed(_decisive(said, stated), said.multiple)


def _marked(said: PlainResponse, marked: list[str], stated: list[OptionClaim]) -> Reading:
    """What JSON fields, `<answer>` tags and boxes hold: all of them one option, and no statement beside them another."""
    readings = [_read(PlainResponse(plain(each), said.options, said.type), each, False) for each in marked]
    choices = {reading.choice for reading in readings if reading.choice}
    if not choices:
        agreed = _agreed(_decisive(said, stated), said.multiple) if stated else None
        return agreed if agreed and agreed.choice else readings[-1]
    (choice, *others) = choices
    beside = _agreed(_decisive(said, stated), said.multiple) if stated else None
    if others or (beside is not None and beside.choice != choice):
        return _nothing("more than one option")
    return Reading(choice, "answered", "marked answer")


def _decisive(said: PlainResponse, stated: list[OptionClaim]) -> list[OptionClaim]:
    """Where claims disagree, those after the last correction, and of these the ones that name the answer outright."""
    if len({claim.options for claim in stated}) > 1:
        corrections = reversed([correction.start() for correction in CORRECTION.finditer(said.lowered)])
        stated = next(filter(None, ([claim for claim in stated if claim.place >= at] for at in corrections)), stated)
    if stated and _reopened(said, stated[-1]):
        return [OptionClaim(stated[-1].kind, stated[-1].place, ())]
    named = max((claim.place for claim in stated if claim.kind == "answer statement"), default=-1)
    stated = [claim for claim in stated if claim.kind != "last line" or claim.place > named]
    outright = [claim for claim in stated if said.options.yes_no or said.multiple or claim.kind in _OUTRIGHT]
    return [claim for claim in outright or stated if claim.options != (-1,)] or stated


def _reopened(said: PlainResponse, last: OptionClaim) -> bool:
    """True if a sentence takes back the last claim, and another option is named after it ("B. Wait, could it be C?")."""
    others = [mention.start for mention in said.mentions if not set(mention.options) <= set(last.options)]
    taken_back = CORRECTION.finditer(said.lowered, last.place, max(others, default=0))
    return any(not re.search(r"\w", said.lowered[said.sentence(at.start())[0] : at.start()]) for at in taken_back)


def _agreed(stated: list[OptionClaim], multiple: bool) -> Reading | None:
    """What all claims agree on; where a question allows several answers, all that they name."""
    if not stated:
        return None
    if multiple:
        if any(not claim.options for claim in stated):
            return _nothing("more than one option")
        return _decide([place for claim in stated for place in claim.options], True, stated[0].kind)
    found = {claim.options for claim in stated}
    return _decide(found.pop() if len(found) == 1 else (), False, stated[0].kind)


_SEVERAL = re.compile(
    r"\W*(?:the )?(?:(?:final|correct|best|right) )*(?:answers?|choices)(?: are| is)?\s*:?\s*"
    r"|(?:正确)?(?:答案|选项?|应选|故选)[是为]?\s*:?\s*",
    re.IGNORECASE,
)
"""Before letters in a row ("Answers: BCE")."""
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
_NUMBERED = re.compile(
    rf"\W*(?:(?:option|choice|statement)\s+(\d{{1,2}})|(?:the )?({'|'.join(_ORDINALS)}) (?:option|choice|statement|answer|one))\W*",
    re.IGNORECASE,
)


_LETTER_AND_TEXT = re.compile(r"[(*]*([A-Z])[).:*]+\s*(.+?)")


def _whole(said: PlainResponse) -> tuple[int, ...] | None:
    """The option(s) of a response that is nothing else, by letter, text or number; what stands after "Answer:" is a claim."""
    text, texts = said.text, said.options
    if text[:1] in "✗❌✘?" and "\n" not in text:
        return ()
    if text.endswith("?") and not any(option.endswith("?") for option in texts.plain):
        return None
    if texts.yes_no and (word := yes_no.whole(text)) is not None:
        return (texts.yes_no.index(word),)
    if said.lettered and (both := _LETTER_AND_TEXT.fullmatch(text)) is not None:
        lettered = LETTERS.index(both[1])
        if texts.plain[lettered : lettered + 1] == (both[2],):
            return (lettered,)  # "C. A", where this is what C says
    cue = _SEVERAL.match(text) if said.multiple else None
    letters = text[cue.end() :] if cue else text
    found = whole_letters(letters, said.count, said.multiple) if said.lettered else None
    if found == (-1,) and (lone := texts.lone.get(text.strip("\"'()[]{}.,:;! ").lower())) is not None:
        return (lone,)  # blood group O, where no option has that letter
    place = texts.named(text) if len(text) <= 2 * texts.longest + 60 else None
    if place is not None:
        return (place,) if found is None or len(found) > 1 or found == (place,) else ()
    if found is None and said.lettered and not texts.numeric and (numbered := _NUMBERED.fullmatch(text)):
        place = int(numbered[1]) - 1 if numbered[1] else _ORDINALS.index(numbered[2].lower())
        return (place,) if 0 <= place < said.count else (-1,)
    return found


_LAST_ANSWER = re.compile(
    r"\W*(?:(?:the|my|so|final|correct|best) )*answer\s*[:=]\s*(?P<named>.{1,400})", re.IGNORECASE
)


def _last_answer(said: PlainResponse) -> tuple[int, ...] | None:
    """The option(s) of a last line "Answer: B", whatever came before it."""
    line = _LAST_ANSWER.fullmatch(said.text.rpartition("\n")[2])
    return None if line is None else _whole(PlainResponse(line["named"], said.options, said.type))


# --- declining ---


def _declining_option(said: PlainResponse) -> int | None:
    """The option that itself declines ("cannot be determined", "I do not know"), where the response does so and names no other."""
    place = _declining_place(said.options)
    if place is None or not (declines(said.lowered) or cannot_know(said.lowered)):
        return None
    others = (mention.options for mention in said.mentions if mention.text and place not in mention.options)
    if not all(said.options.numeric.issuperset(options) for options in others):
        return None
    own = " ".join(said.options.plain[place].lower().split())
    if cannot_know(own) and cannot_know(said.lowered):
        return place
    wanted = {word for word in said.options.words[place] if len(word) > 2}
    return place if wanted and wanted <= set(said.words.words) else None


@lru_cache(maxsize=16384)
def _declining_place(texts: OptionTexts) -> int | None:
    """The one option that declines to answer."""
    options = [text.lower() if len(words) > 1 else "" for text, words in zip(texts.plain, texts.words, strict=True)]
    declining = [place for place, option in enumerate(options) if option and (declines(option) or cannot_know(option))]
    return declining[0] if len(declining) == 1 else None


# --- implied: what the response says to see ---


def _implied(said: PlainResponse, seen: list[OptionClaim]) -> Reading | None:
    if said.options.yes_no:
        return Reading((said.options.yes_no.index("no"),), "answered", "denial") if yes_no.denies(said.text) else None
    return _agreed(seen, said.multiple)


def official(choice: tuple[int, ...], rule: str) -> Reading:
    """The reading of a paper's own reader: answered where it found an option, else irrelevant."""
    return Reading(choice, "answered" if choice else "irrelevant", rule)
