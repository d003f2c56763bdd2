"""Options named by their text: where they stand, which stand in a row, which are lists with letters, and the verdicts on them.

Functions return positions, None where they find nothing. See also: whether a text by itself is meant (`asserted/`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from dataset_builders.schema import LETTERS
from eval_harness.answer_reading.letters import CLOSE, CLOSED, OPEN, Found, is_named_thing, most
from eval_harness.answer_reading.names import WORD
from eval_harness.answer_reading.options import OptionTexts, stem
from eval_harness.answer_reading.plain_text import plain
from eval_harness.answer_reading.polarity import DENIALS, denied_after, is_denied
from eval_harness.answer_reading.words import phrase, says_between

LABEL_GAP = re.compile(r"[.:)\s,–—-]{0,4}[\"'(]?")
_LABEL_BEFORE = re.compile(rf"(?:^|[^\w']){OPEN}([A-Za-z])(?:{CLOSE}\s*[.:)\]\-–=]+|{CLOSED})\s*{OPEN}$")
_JOIN = re.compile(
    r"\s*(?:,|\band\b|\bor\b|\bnor\b|/|\bvs\.?|\bversus\b|,\s*(?:and|or|nor)\b|\band/or\b|或者?|、|还是|以及)\s*(?:(?:a|an|the|both|either)\s+)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Mention:
    """Option texts in a row (text[start:end]; `start` takes in the letter of a label) and their options; `labelled`: with
    their own letters; `crossed`: with the letter of another option ("A. <text of B>", "<text of B> (C)")."""

    options: tuple[int, ...]
    start: int
    end: int
    labelled: bool
    crossed: bool = False


@lru_cache(maxsize=16)
def text_mentions(text: str, texts: OptionTexts, start: int = 0, stop: int | None = None) -> tuple[Mention, ...]:
    """All option texts in text[start:stop], those joined by commas, "and", "or", "vs" as one mention."""
    mentions: list[Mention] = []
    for option, begin, end in texts.find(text, start, stop):
        if option is None or (
            COMPOUND.search(text, max(start, begin - 8), begin) and not (mentions and mentions[-1].end == begin - 1)
        ):
            continue
        edge = max(start - 1, begin - 14, 0)
        label = _LABEL_BEFORE.search(text[edge:begin])
        if label is not None and (
            ("=" in label[0] and label[1].islower())
            or text[edge + label.start(1) - 1] in "∠△Δ"
            or is_named_thing(text, edge + label.start(1))
        ):  # "a = 45°", "∠A = 45°", "angle A = 45°"
            label = None
        labelled = label is not None and LETTERS.find(label[1].upper()) == option
        crossed = not labelled and _is_crossed(text, label, end, option, len(texts.words))
        begin = edge + label.start(1) if label is not None and labelled else begin
        if mentions and not labelled and not crossed:
            last = mentions[-1]
            alike = texts.negative.isdisjoint((*last.options, option))
            if alike and not last.labelled and _JOIN.fullmatch(text, last.end, begin):
                mentions[-1] = Mention((*last.options, option), last.start, end, False)
                continue
        mentions.append(Mention((option,), begin, end, labelled, crossed))
    return tuple(mentions)


def begins_item(text: str, mention: Mention) -> bool:
    """Whether option texts begin an item of a list."""
    return _ITEM.search(text[max(0, mention.start - 8) : mention.start]) is not None


COMPOUND = re.compile(r"[A-Z]{2,}[/-]$")
"""What makes the next word part of another name ("PET/CT")."""
_BRACKETED = re.compile(r"\([A-Z]\)\s*$")
_LETTER_AFTER = re.compile(r"\s*[(\[](?:[Oo]ption |[Cc]hoice |[Aa]nswer )?([A-Z])[)\]]")


def _is_crossed(text: str, label: re.Match[str] | None, end: int, option: int, count: int) -> bool:
    """Whether an option's text carries the letter of another, before it ("A. <text of B>") or after it in brackets."""
    before = LETTERS.find(label[1]) if label is not None else -1
    if before >= count and label is not None and _BRACKETED.search(label[0]):
        return True
    after = _LETTER_AFTER.match(text, end)
    place = LETTERS.find(after[1]) if after else -1
    return (0 <= before < count and before != option) or (0 <= place < count and place != option)


_BOTH = phrase(
    "both sowohl tanto à",
    r"(?:\b(?:both|sowohl|à la fois)\b|(?<!por )(?<!lo )\btanto\b|既)(?P<one>[^.;:,\n]{1,100}?)"
    r"(?:\b(?:and|als auch|wie auch|et|como)\b|又|也)\W*(?:(?:an?|the|of|in|on|with|ein\w*|d\w{2}|une?|l[ae]s?|el|una?|有|是)\W+)*",
)
_SHOWS = re.compile(r"\b(?:is|are|was|were|has|have|shows?|appears?|looks?|seems?|contains?|suggests?|indicates?)\b")
_PLURAL = re.compile(r"[^\W\d_]{2,}(?<![aisu])s\W*$", re.IGNORECASE)
Both = tuple[tuple[int, int, int], ...]


@lru_cache(maxsize=16)
def both_named(text: str) -> Both:
    """Where "both X and Y" stands, in several languages: where X begins and ends, and where Y begins; -1 where Y may stand by itself
    ("opacities in both lungs and an effusion")."""
    return tuple(
        (*match.span("one"), -1 if _PLURAL.search(match["one"]) else match.end())
        for match in _BOTH.find(text)
        if not _SHOWS.search(match["one"])
    )


def part_of_both(start: int, end: int, both: Both) -> Literal[0, 1, 2]:
    """Whether text[start:end] is the first or the second of two things said together ("features of both X and Y"), of which neither is
    chosen, whether or not the other is an option; 0 where it is neither."""
    for first, last, other in both:
        if first <= start and end <= last:
            return 1
        if start == other:
            return 2
    return 0


def lists_options(text: str, texts: OptionTexts) -> bool:
    """Whether the response names two or more options as items of a list, each with a letter or on a line of its own; or has a list of
    all letters, whatever stands beside them."""
    items = {
        mention.options
        for mention in text_mentions(text, texts)
        if mention.labelled or mention.crossed or begins_item(text, mention)
    }
    return len(items) > 1 or (len(texts.words) > 3 and _all_letters(text, len(texts.words)))


def _all_letters(text: str, count: int) -> bool:
    return {label[1].upper() for label in _LABEL.finditer(text)}.issuperset(LETTERS[:count])


_LABEL = re.compile(r"\(\s?([A-Za-z])\s?\)")


def is_crossed(text: str, texts: OptionTexts) -> bool:
    """Whether any option's text stands with the letter of another: then nobody can say which of the two is meant."""
    return any(mention.crossed for mention in text_mentions(text, texts))


def labelled_mentions(text: str, count: int, texts: OptionTexts, multiple: bool) -> Found:
    """Options named by letter and text together ("C. rib fracture"): the one that is meant, or the ones for multiple choice.

    A list of all options with a verdict on each counts by the verdicts.
    """
    mentions = text_mentions(text, texts)
    if not any(mention.labelled for mention in mentions) or is_crossed(text, texts):
        return None
    meant, denied = _labelled(text, texts)
    if len(meant) + len(denied) == 1 and only_lists(text, texts):
        return None
    if not multiple and (after := _after_list(text, count, texts)) is not None:
        return after
    alive = [option for option in meant if option not in denied]
    right = [option for option in alive if meant[option]]
    if right and len(meant) + len(denied) > len(right):
        alive = right
    return tuple(alive) if len(alive) == 1 or (multiple and 0 < len(alive) < count) else None


def _after_list(text: str, count: int, texts: OptionTexts) -> Found:
    """The one option that is named, with its letter, after a list of all options with one a line."""
    mentions = text_mentions(text, texts)
    _, end = list_of_all(text, texts)
    if end > 0 and (after := tuple(mention for mention in mentions if mention.start >= end)):
        return _one_named(text, after)
    for first, items in _in_order(mentions, count):
        if len(mentions) > first + count and all(item.labelled and begins_item(text, item) for item in items):
            return _one_named(text, mentions[first + count :])
    return None


def _one_named(text: str, after: tuple[Mention, ...]) -> Found:
    named = {option for mention in after for option in mention.options}
    meant = [mention for mention in after if not is_denied(text, mention.start, mention.end)]
    clear = len(named) == 1 and len(meant) == len(after) and any(mention.labelled for mention in after)
    return tuple(named) if clear else None


def list_of_all(text: str, texts: OptionTexts) -> tuple[int, int]:
    """Where the list of all options begins and ends, one right after the other, each with its letter or on a line of its own; (-1, -1)
    where there is none."""
    mentions, count = text_mentions(text, texts), texts.count
    for _, items in _in_order(mentions, count):
        if all(
            (item.labelled or begins_item(text, item))
            and (place == 0 or not _BETWEEN.sub("", text[items[place - 1].end : item.start]))
            for place, item in enumerate(items)
        ):
            return items[0].start, items[-1].end
    return -1, -1


def _in_order(mentions: tuple[Mention, ...], count: int) -> Iterator[tuple[int, tuple[Mention, ...]]]:
    """Wherever mentions in a row name all options in their order: the place of the first of them, and they."""
    for first in range(len(mentions) - count + 1 if count > 1 else 0):
        items = mentions[first : first + count]
        if all(item.options == (place,) for place, item in enumerate(items)):
            yield first, items


def explained_from(text: str, texts: OptionTexts) -> int:
    """Where a response goes on to explain every option, each on a line of its own, or the other options; 0 where it does not."""
    mentions, count = text_mentions(text, texts), texts.count
    starts = [match.start()] if (match := _OTHER_OPTIONS.search(text)) else []
    for first, items in _in_order(mentions, count):
        if first and all(begins_item(text, item) for item in items):
            starts.append(items[0].start)
            break
    return min(starts, default=0)


_OTHER_OPTIONS = phrase(
    "the other remaining",
    r"(?:the )?(?:other|remaining) (?:\w+ )?(?:options|choices|answers|diagnoses|possibilities|conditions)\b",
)
_BETWEEN = re.compile(r"[^\w✓✔✅✗❌✘×☐☑☒]|\b(?:and|or|option|\d{1,2})\b", re.IGNORECASE)


def only_lists(text: str, texts: OptionTexts) -> bool:
    """Whether options are named only in a list of all of them, in their order; some of their texts may not have been recognized."""
    count, mentions = len(texts.words), text_mentions(text, texts)
    named = tuple(dict.fromkeys(mention.options for mention in mentions))
    if count < 2 or not mentions or not all(mention.labelled for mention in mentions):
        return False
    return named == tuple((place,) for place in range(count)) or (
        len(named) == 1 and count > 3 and _all_letters(text, count)
    )


def labelled_verdicts(text: str, texts: OptionTexts) -> Found:
    """Of options named by letter and text with a verdict each, those that are called right, where another is called wrong."""
    meant, denied = _labelled(text, texts)
    right = tuple(option for option in meant if meant[option] and option not in denied)
    return right if right and denied else None


def labelled_verdicts_end(text: str, texts: OptionTexts) -> int:
    """Where the last option named by letter and text together ends, 0 where there is none."""
    return max((mention.end for mention in text_mentions(text, texts) if mention.labelled), default=0)


def says_all_words(text: str, option: int, texts: OptionTexts) -> bool:
    """Whether every word of an option's own that counts is said somewhere in the response."""
    wanted = {stem(word) for word in texts.words[option] if len(word) > 2}
    return len(wanted) > 1 and wanted <= {stem(word.lower()) for word in WORD.findall(text[:PROSE])}


def _labelled(text: str, texts: OptionTexts) -> tuple[dict[int, bool], set[int]]:
    """The labelled options that are meant (with: called right?), and those denied."""
    meant: dict[int, bool] = {}
    denied: set[int] = set()
    own: list[tuple[int, int]] = []
    for mention in text_mentions(text, texts)[-most(text) :]:
        own.append((mention.start, mention.end))
        if not mention.labelled:
            continue
        option = mention.options[0]
        closing = _CLOSING_VERDICT.search(_rest_of_item(text, mention))
        if closing is not None:
            denied.add(option) if closing["wrong"] else meant.__setitem__(option, True)
            continue
        if is_denied(text, mention.start, mention.end, tuple(own[-6:-1])):
            denied.add(option)
        else:
            meant.setdefault(option, False)
    return meant, denied


_CLOSING_VERDICT = re.compile(
    r"[.;:,–—-]\s*\W*(?:(?:so |thus |therefore )?(?:this|it) is (?:the )?)?(?:(?P<wrong>(?:very |less |highly )?unlikely|incorrect|wrong"
    r"|not (?:correct|likely|consistent|supported)|ruled out|excluded)|correct|most (?:likely|consistent)|best (?:fit|match|answer))\W*$",
    re.IGNORECASE,
)


def _rest_of_item(text: str, mention: Mention) -> str:
    """The rest of the line after an option that begins it; empty where it stands within a line."""
    begin = text.rfind("\n", max(0, mention.start - 12), mention.start) + 1
    if (begin == 0 and mention.start > 12) or REST.search(text, begin, mention.start):
        return ""
    end = text.find("\n", mention.end, mention.end + 600)
    return text[mention.end : end] if end >= 0 else text[mention.end : mention.end + 600]


def lists_itself(text: str, texts: OptionTexts) -> bool:
    """Whether the response lists options that are letters with their letters, in the order asked ("(A) D", "(B) C")."""
    found = {
        label[1]: label[2].lower()
        for label in _LETTER_LIST.finditer(text)
        if LETTERS.index(label[1]) < len(texts.words)
    }
    return len(found) > 1 and all(texts.lone.get(said) == LETTERS.index(letter) for letter, said in found.items())


_LETTER_LIST = re.compile(r"(?<![^\W_])\(?([A-Z])[).:]\s*([A-Z])(?![^\W_])")


_LABEL_HERE = re.compile(r"[^\w\n]{0,20}\s{0,20}[^\w\n]{0,20}(?:[^\W\d_]{2,20} )?[^\w\n]{0,8}[A-Za-z](?![^\W_])")


def labelled_options(text: str, start: int, texts: OptionTexts, apart: int = 80) -> tuple[int, ...]:
    """The options of a list that begins at text[start], one label and text after the other, up to the first line without one;
    `apart`: how many characters may stand between two of them."""
    found: list[int] = []
    end = start
    if _LABEL_HERE.match(text, start) is None:
        return ()
    for mention in text_mentions(text, texts, start, min(len(text), start + 3000)):
        gap = text[end : mention.start]
        between = gap.strip(" \t\n-•*.,;?([{\"'")
        if not mention.labelled or "\n" in between or len(between) > (apart if found else 0):
            break
        found.append(mention.options[0])
        end = mention.end
    return tuple(dict.fromkeys(found))


def denies_own_text(text: str, start: int, place: int, texts: OptionTexts) -> bool:
    """Whether the option's own text stands at text[start] and is then denied ("B: stroke is not supported")."""
    if not says_between(text, DENIALS, start, len(text)):
        return False
    gap = LABEL_GAP.match(text, start)
    inner = texts.at(text, gap.end()) if gap else None
    return inner is not None and inner.option == place and denied_after(text, inner.end)


_WITH_NUMBER = r"(?:options?|choice|statement|description|caption|sentence)\s+"
_NUMBER = rf"{_WITH_NUMBER}(?P<number>\d{{1,2}})"
_LABELS_MORE = re.compile(rf"{_WITH_NUMBER}\d{{1,2}}", re.IGNORECASE)
_NUMBERED = re.compile(
    r"\W*(?:(?:the |my )?(?:(?:final|correct|best|right) )*(?:answer|choice)(?: is)?\s*[:=]?\s*)?\W{0,4}"
    rf"{_NUMBER}(?:\W*$|[\"')\]]{{0,2}}\s*[:.)–—-]\s*)",
    re.IGNORECASE,
)
_LISTED = re.compile(rf"\b{_NUMBER}\s*[:.)]\s*(?P<text>.+?)\s*(?=\b{_LABELS_MORE.pattern}\s*[:.)]|\n|$)", re.IGNORECASE)


def numbered_option(text: str, texts: OptionTexts, question: str | None) -> Found:
    """The option that a response is by its number: "Option 2" where the question lists all options with their numbers, "Option 2: <text
    of the second>" anywhere; () where the number is one option's and the text another's."""
    label = _NUMBERED.match(text)
    if label is None:
        return None
    rest, number = text[label.end() :], int(label["number"])
    listed = _numbered(question, texts) if question else {}
    named = texts.named(rest)
    if named is not None:
        return (named,) if named == listed.get(number, -1 if listed else number - 1) else ()
    place = listed.get(number)
    if place is None or denied_after(text, label.end("number")) or "\n" in rest or _LABELS_MORE.search(rest):
        return None
    if any(place not in mention.options for mention in text_mentions(rest, texts)):
        return ()
    said = {stem(word.lower()) for word in WORD.findall(rest)}
    others = [len(words & said) for words in texts.distinguishing]
    return (place,) if not rest or others.pop(place) > max(others, default=0) else None


@lru_cache(maxsize=4096)
def _numbered(question: str, texts: OptionTexts) -> dict[int, int]:
    """The options by the numbers that a question lists them with; none unless it lists each once."""
    listed = {int(item["number"]): texts.named(plain(item["text"])) for item in _LISTED.finditer(question)}
    found = {number: place for number, place in listed.items() if place is not None}
    return found if sorted(found.values()) == list(range(texts.count)) else {}


_ITEM = re.compile(r"(?:^|\n)\W*(?:\d{1,2}\W{1,3})?$")
"""Before a word that begins an item of a list of statements ("1. False", "2. True")."""
PROSE = 1000
"""Characters up to which words are put together to an option; longer prose names too many things."""
REST = re.compile(r"\w")
