"""The rules that read a response, as one table (`RULES`): its order is what this reader promises.

What the rules look for is elsewhere: letters (`letters.py`), option texts (`mentions.py`, `asserted/`), statements (`statements.py`),
yes and no (`yes_no/`), declining (`polarity.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from dataset_builders.schema import LETTERS
from eval_harness.answer_reading import Reading
from eval_harness.answer_reading.asserted.own_words import asserted_texts
from eval_harness.answer_reading.asserted.telling import distinguishing_words
from eval_harness.answer_reading.letters import (
    VERDICT_WORDS,
    bare_letters,
    bracketed_letters,
    last_line_letter,
    leading_letters,
    ticked,
    verdicts,
    verdicts_end,
    whole_letters,
)
from eval_harness.answer_reading.mentions import (
    denies_own_text,
    is_crossed,
    labelled_mentions,
    labelled_options,
    labelled_verdicts,
    labelled_verdicts_end,
    list_of_all,
    lists_itself,
    lists_options,
    numbered_option,
    says_all_words,
    text_mentions,
)
from eval_harness.answer_reading.names import plain_words
from eval_harness.answer_reading.options import OptionTexts, option_texts
from eval_harness.answer_reading.plain_text import plain
from eval_harness.answer_reading.polarity import cannot_know, declines, disclaims, is_undecided
from eval_harness.answer_reading.said import Found, Said
from eval_harness.answer_reading.statements import agreeing, last_statement
from eval_harness.answer_reading.words import ONE_LETTER, places, says_stems
from eval_harness.answer_reading.yes_no import rules as yes_no_rules
from eval_harness.answer_reading.yes_no import spoken

Stage = Literal["whole", "explicit", "declining", "implied", "rest"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table: `find` returns positions, () for more than one option without saying which, None where it does not apply; it is
    asked only of a response with the property `only` of `Said`, if any."""

    name: str
    stage: Stage
    only: Literal["", "lettered", "yes_no", "by_text"]
    find: Callable[[Said], Found]
    decides: str


def apply(said: Said, rules: Sequence[Rule] | None = None) -> Reading:
    """The first rule of the table that finds anything decides."""
    if yes_no_rules.crossed_yes_no(said) and said.lettered:
        return nothing("more than one option")
    if not said.multiple and _only_lists(said):
        return nothing("every option listed")
    if said.texts.lone and not said.yes_no:
        return _lone(said, rules or RULES)
    for rule in rules or RULES:
        if (rule.only and not getattr(said, rule.only)) or (found := rule.find(said)) is None:
            continue
        if rule.stage == "declining":
            return Reading((), "refused", rule.name)
        if rule.stage == "rest" and not said.yes_no and _chooses_none(said):
            return nothing("no option named")
        if rule.stage == "rest" and said.multiple and len(labelled_options(said.text, 0, said.texts)) == said.count:
            return nothing("every option listed")
        if rule.stage == "rest" and _denies_its_lead(said, found):
            return nothing("option denied")
        return _decide(found, said.multiple, rule.name)
    return nothing("no option named")


def _chooses_none(said: Said) -> bool:
    """Whether the response ends with calling none of the options right, or all of them possible, and no option says so."""
    end = said.text[-600:]
    found = [] if "none of the above" in said.texts.index else list(_NONE_FITS.finditer(end))
    none = found[-1] if found else None
    if none is None and not said.multiple and said.count > 2:
        letters = LETTERS[: said.count]
        none = re.search(rf"\b{', '.join(letters[:-1])},? and {letters[-1]}\b", end)
    return none is not None and not _CLOSEST.search(end, none.end())


_NONE_FITS = re.compile(
    r"\bnone of (?:the )?(?:\w+ ){0,2}?(?:options|choices|answers)\b|\bnot (?:listed|among)\b[^.\n]{0,20}\b(?:options|choices)\b",
    re.IGNORECASE,
)
_CLOSEST = re.compile(
    r"\b(?:closest|nearest|best|most|likely|(?:matches|corresponds to|is|option) (?:option )?\W?(?-i:[A-Z])\b)",
    re.IGNORECASE,
)
_SMALL = tuple(map(frozenset, LETTERS.lower()))
_MARKS = re.compile(r"[✓✔✅✗❌✘×☐☑☒\[]")


def _only_lists(said: Said) -> bool:
    """Whether the response is nothing but the list of the options, each after its letter; perhaps after the question."""
    text = said.text
    if said.count < 2 or len(text) < 2 * said.count - 1 or not says_stems(text, _SMALL[said.count - 1]):
        return False
    last = said.texts.words[-1][-1:] or (LETTERS[said.count - 1].lower(),)
    if last[0] not in plain_words(text[-100:]).split(" ")[-2:]:
        return False
    listed = said.texts.listed
    if not len(listed) <= len(text) <= 2 * len(listed) + 400 or _MARKS.search(text):
        return False
    words = plain_words(text).removesuffix(" answer")
    if not words.endswith(listed):
        return False
    before = words[: len(words) - len(listed)].strip()
    silent = all(len(word) > 1 or word in "ai0123456789" for word in before.split()) and not before.endswith(" a")
    return silent and not any(option in before for option in said.texts.index)


def _denies_its_lead(said: Said, found: tuple[int, ...]) -> bool:
    led = leading_letters(said.text, said.count) if said.lettered else None
    return led is not None and found == led[0] and denies_own_text(said.text, led[1], found[0], said.texts)


def nothing(rule: str) -> Reading:
    return Reading((), "irrelevant", rule)


def _decide(found: tuple[int, ...], multiple: bool, rule: str) -> Reading:
    if any(position < 0 for position in found):
        return nothing("letter outside the options")
    choice = tuple(sorted(set(found)))
    if not choice or (len(choice) > 1 and not multiple):
        return nothing("more than one option")
    return Reading(choice, "answered", rule)


_ALL_OR_NONE = re.compile(
    r"\W{0,4}(?:(?:none|all|neither|both) of (?:the (?:above|options|choices|listed)\b|(?:these|those|them)\W*(?:$|\n))|none\W*(?:$|\n))",
    re.IGNORECASE,
)


def _whole(said: Said) -> Found:
    texts, text = said.texts, said.text
    if text[:1] in _CROSSES:
        return ()
    if said.letters and not said.yes_no and _ONE_LETTER.fullmatch(text):
        return whole_letters(text, said.count, said.multiple)
    short, short_raw = len(text) <= 2 * texts.longest + 60, len(said.raw) <= 4 * texts.longest + 40
    if (short or short_raw) and texts.may_be(text):
        if short and (place := texts.named(text)) is not None:
            return (place,)
        if short_raw and (place := texts.formula(said.raw)) is not None:
            return (place,)
    if text.lower().strip(" .") == "none" and (place := texts.index.get("none of the above")) is not None:
        return (place,)
    if said.yes_no and (word := spoken.whole(text)) is not None and word in texts.leads:
        return (texts.leads.index(word),)
    if len(text) > 200 or not (said.letters if len(text) < 12 else said.lettered):
        return None
    found = whole_letters(text, said.count, said.multiple)
    if found and (len(found) > 1 or found[0] < 0) and (labelled := _labelled_option(text, texts)):
        return labelled  # "B. Q, P" where that is the second option
    opening = _OPENING.match(text) if found is None and len(text) <= 120 else None
    return whole_letters(text[opening.end() :], said.count, said.multiple) if opening else found


_ONE_LETTER = re.compile(r"\(?[A-Za-z][.)]?")
_CROSSES = frozenset("✗❌✘")
_OPENING = re.compile(
    r"\W*(?:based on|according to|looking at|judging (?:by|from)|from|given|considering|in)\b[^.,:\n]{1,80}[,:]\s*",
    re.IGNORECASE,
)


_CUE = re.compile(
    r"\W*(?:the |my )?(?:(?:final|correct|best|right) )*(?:answer|choice|diagnosis)(?: is)?\s*[:=]?\s*", re.IGNORECASE
)
_LABEL = re.compile(
    r"\W*(?:(?:the |my )?(?:(?:final|correct|best|right) )*(?:answer|choice)(?: is)?\s*[:=]?\s*)?"
    r"(?:option |选项 ?)?[(\[\"']*([A-Z])[)\]\"']*(?:\s*[.:)\]\"'–-]\s*|\s+)",
    re.IGNORECASE,
)


def _after_prefix(said: Said) -> Found:
    """The option of which the exact text is the rest of the response after "the answer is", or after its own letter or number."""
    text, texts = said.text, said.texts
    if len(text) > 2 * texts.longest + 80:
        return None
    cue = _CUE.match(text)
    named = texts.named(text[cue.end() :]) if cue else None
    if named is not None:
        return (named,)
    numbered = numbered_option(text, texts, said.question)
    return _labelled_option(text, texts) if numbered is None else numbered


def _labelled_option(text: str, texts: OptionTexts) -> Found:
    """The option of which a text is the letter and the words."""
    label = _LABEL.match(text)
    named = texts.named(text[label.end() :]) if label else None
    return (named,) if label and named is not None and LETTERS.find(label[1].upper()) == named else None


def _last_line(said: Said) -> Found:
    if said.multiple:
        return None
    if "**" in said.raw and said.letters and (bold := _ENDS_BOLD.search(said.raw, max(0, len(said.raw) - 300))):
        place, named = LETTERS.find(bold[1]), said.texts.named(plain(bold[2]))
        if place < said.count:
            return (place,) if named in (None, place) else ()
    if "\n" not in said.text:
        return None
    letter = last_line_letter(said.text, said.count) if said.lettered else None
    if letter is None and said.letters and (small := _SMALL_LETTER.search(said.text, max(0, len(said.text) - 40))):
        place = LETTERS.find(small[1].upper())
        letter = (place,) if place < said.count else None
    return _last_line_with_text(said) if letter is None else letter


def _last_line_with_text(said: Said) -> Found:
    """A last line that is one option, with its letter or as a whole sentence, after a sentence and not in a list of options."""
    before, _, line = said.text.rpartition("\n")
    if not before or len(line) > said.texts.longest + 20:
        return None
    above = before.rpartition("\n")[2].rstrip(" \"'")
    place = said.texts.named(line) if line[:1].isalnum() else None
    if above.endswith(":"):
        place = None if _OPENS_LIST.search(above) else place
    elif not above.endswith((".", "!")) or _ITEM.match(above) or plain_words(above) in said.texts.index:
        return None
    return _labelled_option(line, said.texts) if place is None else (place,)


_ENDS_BOLD = re.compile(r"\b(?:is|be|are)\s*:?\s*\*\*\(?([A-Z])[.):]\)?\s+([^*\n]{1,200})\*\*[.\s]*\Z")
"""A last sentence that says which, in bold, with its letter ("The ratio is **B. about 3**.")."""


def _first_line(said: Said) -> Found:
    """An option's text that is the first line, where no other line is one ("normal", and then why)."""
    first, _, rest = said.text.partition("\n")
    place = said.texts.named(first) if rest and len(first) <= said.texts.longest + 20 else None
    if place is None or said.multiple or first.rstrip().endswith(":"):
        return None
    others = (said.texts.named(line) for line in rest.split("\n") if len(line) <= said.texts.longest + 20)
    return (place,) if all(other in (None, place) for other in others) else None


_SMALL_LETTER = re.compile(r"[.!?:]\s*\n\s*\(?([a-z])[).]?\s*$")
"""A last line that is a letter in lower case."""
_OPENS_LIST = re.compile(
    r"\b(?:options?|choices?|following|each|all|these|those|are|were|include\w*|consider\w*)\b", re.IGNORECASE
)


_ITEM = re.compile(r"\W*(?:\d{1,2}|[A-Za-z])[.):]\s|\s*[-•–]\s")


def _statement(said: Said, start: int = 0) -> Found:
    text = said.text[start:]
    found = last_statement(text, said.count, said.named, said.multiple) if said.letters else None
    if found == (-1,) and said.yes_no:
        found = None
    return found if found is not None or not said.yes_no else yes_no_rules.word_found(said, spoken.stated(text))


def _final_statement(said: Said) -> Found:
    """An answer statement after the last verdict on an option."""
    end = verdicts_end(said.text) if said.lettered else 0
    if said.multiple and labelled_verdicts(said.text, said.texts):
        end = max(end, labelled_verdicts_end(said.text, said.texts))
    return _statement(said, end)


def _verdicts(said: Said) -> Found:
    if said.texts.common or not VERDICT_WORDS.isdisjoint(said.texts.leads):
        return None
    found = verdicts(said.text, said.count, said.multiple)
    return labelled_verdicts(said.text, said.texts) if found is None and said.multiple else found


def _leading(said: Said) -> Found:
    """The leading letter, unless it is followed by the text of another option."""
    text, count, texts = said.text, said.count, said.named
    led = leading_letters(text, count)
    if led is None:
        return None
    if len(places(text, ONE_LETTER)) > 1 and len(labelled_options(text, 0, texts, 80 if said.multiple else 0)) > 1:
        end = list_of_all(text, texts)[1]
        goes_on = any(mention.start >= end > 0 for mention in text_mentions(text, texts))
        return None if said.multiple or goes_on else ()
    found = led[0]
    if found == (0,) and len({item[1] for item in _ITEMS.finditer(text)}) > 2 and text.lstrip("*( \n").startswith("A"):
        return None
    if said.yes_no and found == (-1,):
        return None
    if _ALL_OR_NONE.match(text, led[1]):
        return ()
    if len(found) == 1 and denies_own_text(text, led[1], found[0], texts):
        return None
    rest = text[led[1] :]
    if len(rest) < 120 and len(found) == 1 and found[0] >= 0:
        meant = distinguishing_words(rest, texts, said.multiple)
        if meant is not None and len(meant) == 1 and meant != found:
            return ()
    if found == (-1,) and asserted_texts(text, texts, said.multiple):
        return None
    return agreeing(text, 0, texts, found)


_ITEMS = re.compile(r"(?:^|[;\n])\s*\**\(?([A-Z])\)?\** [-–—] (?=[a-z])")
"""Items of a list that says something of every option ("A - the heart is normal; B - ...; C - ...")."""


def _declining_option(said: Said) -> Found:
    """An option that itself declines to judge, where the response does so in its words."""
    if not (declines(said.text) or cannot_know(said.text)):
        return None
    place = _declining_place(said.texts)
    if place is None or lists_options(said.text, said.texts):
        return None
    if cannot_know(" ".join(said.texts.words[place])) and cannot_know(said.text) and _names_no_other(said, place):
        return (place,)
    return (place,) if declines(said.text) and says_all_words(said.text, place, said.texts) else None


@lru_cache(maxsize=65536)
def _declining_place(texts: OptionTexts) -> int | None:
    """The one option that declines to judge."""
    options = [" ".join(option) if len(option) > 1 else "" for option in texts.words]
    declining = [place for place, option in enumerate(options) if option and (declines(option) or cannot_know(option))]
    return declining[0] if len(declining) == 1 else None


def _names_no_other(said: Said, but: int) -> bool:
    return all(but in mention.options for mention in text_mentions(said.text, said.texts))


def _bracketed(said: Said) -> Found:
    if not said.by_text:
        return None
    return () if is_crossed(said.text, said.texts) else bracketed_letters(said.text, said.count, said.multiple)


def _bare(said: Said) -> Found:
    if not said.by_text:
        return None
    found = bare_letters(said.text, said.count, said.multiple)
    if found is None or _GEOMETRY.search(said.text):
        return None
    named = {option for mention in text_mentions(said.text, said.texts) for option in mention.options}
    return found if named <= set(found) else None  # "solution B" may be the text of another option


_GEOMETRY = re.compile(
    r"\b(?:angles?|triangles?|points?|segments?|vert(?:ex|ices)|sides?|arcs?)\s+[A-Z]{1,3}\b|\bdistance (?:between|from)\b|∠|△"
)
"""Where capitals are points of a figure."""


def _texts(said: Said) -> Found:
    if _ASKS_BACK.search(said.text, len(said.text) - 200):
        return ()
    if (
        said.texts.numeric
        and len(said.text) <= 300
        and (end := _ENDS_FORMULA.search(said.raw, max(0, len(said.raw) - 120)))
    ):
        place = said.texts.formula(end[1])
        if place is not None:
            return (place,)
    return asserted_texts(said.text, said.texts, said.multiple, said.question)


_ENDS_FORMULA = re.compile(r"(?:\b(?:is|equals)|=)\s*([^=\n]{1,80}?)\s*[.$]*\s*$")
"""A formula that ends a short response ("The arc is 3*\\pi/5.")."""
_ASKS_BACK = re.compile(r"(?:^|[.!\n])\s*which (?:of|one|option)\b[^.!?\n]*\?\W*$", re.IGNORECASE)


def _distinguishing(said: Said) -> Found:
    return distinguishing_words(said.text, said.texts, said.multiple, said.question)


def _ticked(said: Said) -> Found:
    return ticked(said.text, said.count, said.multiple)


def _labelled(said: Said) -> Found:
    return labelled_mentions(said.text, said.count, said.texts, said.multiple)


def _declines(declines: Callable[[str], bool]) -> Callable[[Said], Found]:
    return lambda said: () if declines(said.text) else None


RULES: tuple[Rule, ...] = (
    Rule("whole response", "whole", "", _whole, "one option: its text, its letter, its formula, yes or no"),
    Rule("option text after its label", "whole", "by_text", _after_prefix, "only a label or 'the answer is' before"),
    Rule("letter on the last line", "explicit", "", _last_line, "a letter by itself ends the response"),
    Rule("answer statement", "explicit", "", _final_statement, "'the answer is B', 'B is correct'; the last counts"),
    Rule("ticked box", "explicit", "lettered", _ticked, "[ ] A [x] B"),
    Rule("verdict on each option", "explicit", "lettered", _verdicts, "'A: wrong. B: correct.'"),
    Rule("leading letter", "explicit", "lettered", _leading, "the response begins with a letter: 'B: a mass'"),
    Rule("leading yes or no", "explicit", "yes_no", yes_no_rules.leading_word, "the response begins with yes or no"),
    Rule("option text", "explicit", "by_text", _first_line, "an option's text is the first line"),
    Rule("letter with its option", "explicit", "lettered", _labelled, "'C. rib fracture' within a sentence"),
    Rule("option text", "explicit", "", _declining_option, "the option 'cannot be determined', in its words"),
    Rule("refusal", "declining", "", _declines(declines), "the response declines to judge"),
    Rule("undecided", "declining", "yes_no", _declines(is_undecided), "it does not know whether yes or no"),
    Rule("yes or no by itself", "implied", "yes_no", yes_no_rules.by(spoken.alone), "between commas or stops"),
    Rule("question repeated", "implied", "yes_no", yes_no_rules.repeats, "what the question asks, or its negation"),
    Rule("denial", "implied", "yes_no", yes_no_rules.denies, "'there is no nodule', 'I cannot see any'"),
    Rule("affirmation", "implied", "yes_no", yes_no_rules.affirms, "'there is a nodule', where that is asked"),
    Rule("letter", "rest", "lettered", _bracketed, "a letter in brackets or after 'option' that is not denied"),
    Rule("bare letter", "rest", "lettered", _bare, "a capital by itself in a short response"),
    Rule("option text", "rest", "by_text", _texts, "an option's text where the sentence says that it is there"),
    Rule(
        "telling words", "rest", "by_text", _distinguishing, "the words that only one option has, in any order and form"
    ),
    Rule("refusal", "declining", "", _declines(disclaims), "nothing but the advice to see a doctor"),
)
"""Every rule, in the order of the promise: the whole response is an option; an explicit answer, of which the last counts; declining;
what is implied by a denial or an assertion; the rest. The first that finds anything decides. Names are stored in `answers.parquet`
(column `rule`): they are not changed, and what a rule decides is versioned by `DERIVE_VERSION`."""
EXPLICIT = tuple(
    rule
    for rule in RULES
    if (rule.stage in ("whole", "explicit") and rule.name != "letter with its option") or rule.name == "refusal"
)
"""What may be read of a response that was cut off: an explicit answer, or that it declines."""
STATEMENTS = tuple(
    rule for rule in RULES if rule.name in ("letter on the last line", "answer statement", "verdict on each option")
)
"""What comes before a marked answer that holds no option."""


_LONE_LABEL = re.compile(r"\W*(?:(?:the )?answer(?: is)?\W+)?(?:option )?([A-Za-z])\W{1,4}([A-Za-z])\W*", re.IGNORECASE)


def _lone(said: Said, rules: Sequence[Rule]) -> Reading:
    """Options that are themselves letters (blood group O, class I): a letter may be the option's place or its text. Where these are two
    options, the letter that a prompt asks for ("B", "Answer: B") is the place; otherwise nobody can say which is meant, unless the
    response itself lists the options with their letters."""
    texts = said.texts
    label = _LONE_LABEL.fullmatch(said.text)
    if label is not None and (place := texts.lone.get(label[2].lower())) is not None:
        return _decide((place,) if LETTERS.find(label[1].upper()) == place else (), said.multiple, "whole response")
    by_place = lists_itself(said.text, texts) or _ANSWERS_A_LETTER.search(said.text) is not None
    alphabet = replace(said, texts=_ALPHABET, letters=True, yes_no=False, by_text=True, question=None)
    for rule in rules:
        if rule.stage == "rest" and rule.name not in ("letter", "bare letter", "option text"):
            continue
        if rule.name in ("option text after its label", "letter with its option"):
            continue
        asked = said if rule.name == "option text" else alphabet
        if (rule.only and not getattr(asked, rule.only)) or (found := rule.find(asked)) is None:
            continue
        if rule.stage == "declining":
            return Reading((), "refused", rule.name)
        meant: list[int] = []
        for place in found:
            named = texts.lone.get(LETTERS[place].lower(), place)
            if rule.name == "option text" or (by_place and place < said.count):
                named = place
            elif place < said.count and named != place:
                return nothing("more than one option")
            meant.append(named if named < said.count else -1)
        return _decide(tuple(meant), said.multiple, rule.name)
    return nothing("no option named")


_ANSWERS_A_LETTER = re.compile(r"(?:^|\banswer\s*:|\banswer is(?=\s*\())\W*[A-Z]\W*$", re.IGNORECASE)
_ALPHABET = option_texts(("",) * len(LETTERS))
