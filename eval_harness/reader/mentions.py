"""Find every place where a response names an option, by letter, by text, or by both; those named in a row are one mention."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from eval_harness.reader.letters import AFTER_OPTION, letters_in, position
from eval_harness.reader.options import OptionTexts, Words, words_of
from eval_harness.reader.text import lower


class Mention(NamedTuple):
    """Options named at text[start:end]: more than one where they stand in a row ("A, B and D"). `letter`, `text`: how they are named;
    `crossed`: the letter of one option stands with the text of another, so that it is unclear which is meant; `either`: joined by "or";
    `bracketed`: the letter stands in brackets or quotes."""

    options: tuple[int, ...]
    start: int
    end: int
    letter: bool
    text: bool
    crossed: bool = False
    either: bool = False
    bracketed: bool = False


_SENTENCE = re.compile(
    r"[.!?\n](?:(?<=\n)|(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bvs\.)(?<!\b[Ff]ig\.)(?<!\bDr\.)(?<!\b\d\.)(?<!\b\d\d\.)(?<!\bapprox\.)"
    r"[.!?]*[\"')\]]*(?=\s|$))"
)
_LABEL_GAP = re.compile(r"[^\S\n]*[.:)\]=,–—-]{0,2}[^\S\n]?[\"'(]{0,2}(?:(?<![.,] )(?:the|an?)\s)?")
_LETTER_AFTER = re.compile(r"[\"']?\s*[(\[](?:option |choice |answer )?\"?([a-z])\"?[)\]]")
_JOIN = re.compile(
    r"[\"')\]?]*[^\S\n]*(?:\([^()\n]{2,80}\))?[^\S\n]*(?:,|;(?=\s*\W?[a-z]\W)|/|&|\+)?[^\S\n]*"
    r"(?P<by>and/or|then|and|or(?: (?:maybe|possibly|perhaps))?|nor|vs\.?|versus|et|und|y|oder|ou|或者?|还是|以及|和|与|及|、)?"
    r"[^\S\n]*(?:(?:both|either|the|an?|options?|choices?)[^\S\n]+)*[\"'(\[]*"
)
_PAIR = re.compile(r"\s*(?:/\s*)?(?P<by>and|or|nor)?\s*(?<=[/r d] )?|/")
"""Between yes and no that are offered both."""
_WORD = re.compile(r"\w{2}")
_EITHER = frozenset(["or", "nor", "vs", "vs.", "versus", "oder", "ou", "and/or", "或", "或者", "还是"])


MOST = 40
"""Mentions that are looked at: a response with more is a model in a loop."""


class PlainResponse:
    """A response made plain, with what is looked up in it more than once."""

    def __init__(self, text: str, options: OptionTexts, question_type: str) -> None:
        self.text, self.options, self.type = text, options, question_type
        self.multiple = question_type == "multiple"
        self.lettered = question_type != "yes_no"
        self.count, self.lowered = options.count, lower(text)

    @cached_property
    def words(self) -> Words:
        return words_of(self.text)

    @cached_property
    def sentence_ends(self) -> list[int]:
        """Where the sentences and lines end."""
        return [match.end() for match in _SENTENCE.finditer(self.text)]

    def sentence(self, place: int) -> tuple[int, int]:
        """Where the sentence begins and ends that holds text[place]."""
        at = bisect_right(self.sentence_ends, place)
        start = self.sentence_ends[at - 1] if at else 0
        return start, self.sentence_ends[at] if at < len(self.sentence_ends) else len(self.text)

    def before(self, place: int) -> str:
        """The sentence before text[place] in lower case, at most 160 characters."""
        return self.lowered[max(self.sentence(place)[0], place - 160) : place]

    def lead(self, place: int) -> str:
        """The same; what begins a line has the line above before it ("The correct answer is:\\n\\nB")."""
        start = self.sentence(place)[0]
        if start and not _WORD.search(self.lowered, start, place):
            start = self.sentence(start - 1)[0]
        return self.lowered[max(start, place - 160) : place]

    def line_end(self, place: int) -> int:
        """Where the line ends that holds text[place], at most 600 characters on."""
        end = self.text.find("\n", place, place + 600)
        return end if end >= 0 else min(len(self.text), place + 600)

    def is_asked(self, mention: Mention) -> bool:
        """True if the sentence of a mention is a question; not where a question mark is the end of an option."""
        stop = self.sentence(max(mention.end - 1, mention.start))[1]
        if not self.lowered[max(mention.end, stop - 3) : stop].rstrip("\"') \n").endswith("?"):
            return False
        return self.lowered[mention.end : mention.end + 1] != "?" or not any(
            o.endswith("?") for o in self.options.plain
        )

    @cached_property
    def named(self) -> list[Mention]:
        """Every mention of one option, in the order of the text."""
        found = _merged(self._letters() if self.lettered else [], self._texts(), self.lowered)
        if self.options.twice:
            said = (words_of(self.text[each.start : each.end]).words if each.options == (-2,) else () for each in found)
            first = (self.options.twice.get(words) for words in said)
            found = [
                m if place is None else m._replace(options=(place,)) for m, place in zip(found, first, strict=True)
            ]
        return found if len(found) <= MOST else found[: MOST // 4] + found[-3 * MOST // 4 :]

    @cached_property
    def mentions(self) -> tuple[Mention, ...]:
        """The same, those in a row ("A, B and D") as one."""
        join = _JOIN if self.lettered else _PAIR
        return _joined(self.named, self.lowered, join)

    def is_only_text(self, mention: Mention) -> bool:
        """True if no other option is named by its text, or by its letter in brackets."""
        return {each.options for each in self.named if each.text or each.bracketed} == {mention.options}

    def is_only_label(self, mention: Mention) -> bool:
        """True if no other option is named by its letter and text, or by its letter in brackets."""
        labels = {each.options for each in self.named if each.letter and (each.text or each.bracketed)}
        return labels == {mention.options}

    def begins_line(self, mention: Mention) -> bool:
        """True if a mention begins a line or an item of a list."""
        return _ITEM.search(self.text, max(0, mention.start - 14), mention.start) is not None

    def listed(self) -> tuple[int, int]:
        """Where a list of all options in their order begins and ends, each with its letter or on a line of its own, with nothing said of
        any; (-1, 0) where there is none."""
        count = self.count if self.lettered else 0
        for first in range(len(self.named) - count + 1 if count > 1 else 0):
            items = self.named[first : first + count]
            if any(item.options != (place,) for place, item in enumerate(items)):
                continue
            gaps = [self.text[before.end : after.start] for before, after in pairwise(items)]
            if all(item.letter or self.begins_line(item) for item in items[1:]) and not any(map(_words_of_gap, gaps)):
                return items[0].start, items[-1].end
        return -1, 0

    def _letters(self) -> list[Mention]:
        found, lone = [], self.options.lone
        words = [self.words.start(at) for at, word in enumerate(self.words.words) if len(word) == 1]
        words = words if len(words) <= 8 * MOST else words[: 2 * MOST] + words[-6 * MOST :]
        for match in letters_in(self.text, self.lowered, words):
            start = match.start()
            while start > 0 and self.text[start - 1] in "\"'([{<「":
                start -= 1
            place = position(match["letter"], self.count)
            named = lone.get(
                match["letter"].lower(), place
            )  # options that are themselves letters: the place, or the text?
            crossed = named != place and place >= 0
            options = (place if crossed else named,)
            found.append(Mention(options, start, match.end(), True, False, crossed, bracketed=bool(match["close"])))
        small = [each for each in found if not each.bracketed and self.text[each.end - 1].islower()]
        return found if len(small) < 3 else [each for each in found if each not in small]  # variables of a formula

    def _texts(self) -> list[Mention]:
        said = self.words
        return [
            Mention(
                (-2 if named.option is None else named.option,),
                said.start(named.first),
                said.end(named.last - 1),
                False,
                True,
            )
            for named in self.options.find(said, self.text)
        ]


_ITEM = re.compile(r"(?:(?:^|\n)\W*(?:[Oo]ption\s+)?(?:\d{1,2}\W{1,3})?|\(\s?[A-Za-z]\s?\)\s*)$")
_NO_WORDS = re.compile(r"[^\w✓✔✅✗❌✘×☐☑☒]|\b(?:and|or|option|[A-Za-z]|\d{1,2})\b", re.IGNORECASE)


def _words_of_gap(gap: str) -> str:
    return _NO_WORDS.sub("", gap)


def _merged(letters: list[Mention], texts: list[Mention], lowered: str) -> list[Mention]:
    """Letters and texts in the order of the text; a letter that labels a text is one mention with it."""
    inside = [letter.start for letter in letters]
    covered: set[int] = set()  # letters that are part of an option's text
    for number, each in enumerate(texts):
        places = range(bisect_left(inside, each.start), bisect_left(inside, each.end))
        covered.update(at for at in places if letters[at].end <= each.end + 1)
        last = letters[places[-1]] if places else each
        if (
            last.end >= each.end
            and last.options != each.options
            and AFTER_OPTION.search(lowered, each.start, last.start)
        ):
            texts[number] = each._replace(crossed=True)  # "option C", where this is the text of option E
    merged: list[Mention] = []
    text_at = 0
    for at, letter in enumerate(letters):
        if at in covered:
            continue
        while text_at < len(texts) and texts[text_at].start < letter.end:
            merged.append(texts[text_at])
            text_at += 1
        named = texts[text_at] if text_at < len(texts) else None
        if (
            merged
            and not merged[-1].letter
            and (after := _LETTER_AFTER.match(lowered, merged[-1].end)) is not None
            and (letter.start <= after.start(1) <= letter.end)
        ):
            merged.append(_labelled(letter, merged.pop(), after.end()))
        elif named is not None and _labels(letter, named, lowered):
            closed = "(" in lowered[letter.end : named.start] and lowered[named.end : named.end + 1] == ")"
            merged.append(_labelled(letter, named, named.end + closed))
            text_at += 1
        else:
            merged.append(letter)
    return merged + texts[text_at:]


def _labels(letter: Mention, named: Mention, lowered: str) -> bool:
    gap = _LABEL_GAP.match(lowered, letter.end)
    if gap is None or not letter.end < named.start <= gap.end():
        return False
    return (
        letter.bracketed or bool(lowered[letter.end : named.start].strip()) or named.options in (letter.options, (-2,))
    )


def _labelled(letter: Mention, named: Mention, end: int) -> Mention:
    """A letter and a text as one; `crossed` where they are of different options."""
    same = named.options in (letter.options, (-2,))
    options = letter.options if same else (*letter.options, *named.options)
    start = min(letter.start, named.start)
    return letter._replace(options=options, start=start, end=end, text=True, crossed=not same)


def _joined(mentions: list[Mention], lowered: str, row: re.Pattern[str]) -> tuple[Mention, ...]:
    """Mentions in a row ("A, B and D", "oedema or effusion") as one."""
    joined: list[Mention] = []
    for mention in mentions:
        last = joined[-1] if joined else None
        join = row.fullmatch(lowered, last.end, mention.start) if last and mention.start - last.end < 110 else None
        if (
            last is None
            or join is None
            or not lowered[last.end : mention.start].strip(" \n\"'()[]")
            or not set(mention.options).isdisjoint(last.options)
        ):
            joined.append(mention)
        else:
            either = last.either or (join["by"] or "").split(" ")[0] in _EITHER
            joined[-1] = last._replace(
                options=(*last.options, *mention.options), end=mention.end, letter=last.letter and mention.letter,
                text=last.text and mention.text, crossed=last.crossed or mention.crossed, either=either,
            )  # fmt: skip
    return tuple(joined)
