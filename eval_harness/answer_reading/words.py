"""The words of a text: where each begins, so that a pattern is tried only where one of its first words stands.

A search of a pattern through a text costs 0.1 to 0.3 us a character; the words are found once, and most patterns nowhere.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

_WORD = re.compile(r"[^\W_]+")
_WIDE = re.compile(r"[\u3040-\uffff✓✔✅✗❌✘×☐☑☒]")
"""Scripts without blanks between words, and signs that patterns look for."""


def words_in(text: str) -> frozenset[str]:
    """A vocabulary written as one string."""
    return frozenset(text.split())


def beginnings(words: str) -> frozenset[str]:
    """Words to be looked for: of each the first four letters."""
    return frozenset(word[:4] for word in _WORD.findall(words.lower()))


ONE_LETTER = beginnings("a b c d e f g h i j k l m n o p q r s t u v w x y z")


def in_lower_case(text: str) -> str:
    """A text in lower case, every letter where it was."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)


@lru_cache(maxsize=64)
def _starts(text: str) -> Mapping[str, list[int]]:
    """Where the words of a text begin, by their first four letters."""
    starts: dict[str, list[int]] = {}
    for word in _WORD.finditer(in_lower_case(text)):
        starts.setdefault(word[0][:4], []).append(word.start())
    return starts


@lru_cache(maxsize=64)
def _wide_letters(text: str) -> frozenset[str]:
    return frozenset() if text.isascii() else frozenset(_WIDE.findall(text))


def is_wide(text: str) -> bool:
    """Whether a text holds a script without blanks between words, or a sign that patterns look for: they may begin anywhere."""
    return bool(_wide_letters(text))


def says(text: str, words: frozenset[str]) -> bool:
    """Whether a text may say one of the words (`beginnings`)."""
    return not _starts(text).keys().isdisjoint(words)


@lru_cache(maxsize=256)
def places(text: str, words: frozenset[str]) -> list[int]:
    """Where words with these beginnings begin, ascending."""
    starts = _starts(text)
    said = words.intersection(starts) if len(starts) < len(words) else starts.keys() & words
    return sorted(chain.from_iterable([starts[word] for word in said])) if said else []


def says_between(text: str, words: frozenset[str], start: int, stop: int) -> bool:
    """Whether one of the words may begin in text[start:stop]; true of every text that is wide."""
    if is_wide(text):
        return True
    if not says(text, words):
        return False
    found = places(text, words)
    first = bisect_left(found, start)
    return first < len(found) and found[first] < stop


@dataclass(frozen=True, slots=True, eq=False)
class Phrase:
    """A pattern that begins with one of some words (`first`): tried only where one of them stands, and only in a text that says one of
    the words that it `needs`, if any. A text that holds one of the pattern's wide letters or signs (`wide`) is searched as a whole."""

    pattern: re.Pattern[str]
    first: frozenset[str]
    needs: frozenset[str] = frozenset()
    wide: frozenset[str] = frozenset()

    def find(self, text: str, start: int = 0, stop: int | None = None) -> Iterable[re.Match[str]]:
        """Every match in text[start:stop], none of which overlaps the one before."""
        stop = len(text) if stop is None else stop
        if self.wide and not self.wide.isdisjoint(_wide_letters(text)):
            return self.pattern.finditer(text, start, stop)
        said = _starts(text).keys()
        if said.isdisjoint(self.first) or (self.needs and said.isdisjoint(self.needs) and not is_wide(text)):
            return ()
        return self._matches(text, start, stop)

    def _matches(self, text: str, start: int, stop: int) -> Iterator[re.Match[str]]:
        found = places(text, self.first)
        for index in range(bisect_left(found, start), bisect_left(found, stop)):
            place = found[index]
            if place >= start and (match := self.pattern.match(text, place, stop)) is not None:
                yield match
                start = max(match.end(), place + 1)

    def last(self, text: str, most: int) -> list[re.Match[str]]:
        """The last matches, the last first; at most so many words are looked at. Matches may overlap."""
        found = places(text, self.first)[: -most - 1 : -1]
        return [match for place in found if (match := self.pattern.match(text, place)) is not None]

    def match(self, text: str, start: int) -> re.Match[str] | None:
        """A match at text[start]."""
        return self.pattern.match(text, start)

    def search(self, text: str, start: int = 0, stop: int | None = None) -> re.Match[str] | None:
        """The first match in text[start:stop]."""
        return next(iter(self.find(text, start, stop)), None)


NEVER = Phrase(re.compile("(?!)"), frozenset())


def phrase(first: str, pattern: str, needs: str = "") -> Phrase:
    """A phrase in any case, with its words as strings."""
    return phrase_of(re.compile(pattern, re.IGNORECASE), beginnings(first), beginnings(needs))


def phrase_of(pattern: re.Pattern[str], first: frozenset[str], needs: frozenset[str] = frozenset()) -> Phrase:
    return Phrase(pattern, first, needs, frozenset(_WIDE.findall(pattern.pattern)))


def by_word(phrases: Iterable[Phrase]) -> dict[str, list[Phrase]]:
    """Phrases by the words, wide letters and signs that they may begin with."""
    found: defaultdict[str, list[Phrase]] = defaultdict(list)
    for each in phrases:
        for word in each.first | each.wide:
            found[word].append(each)
    return dict(found)


def says_any(text: str, phrases: Mapping[str, list[Phrase]]) -> bool:
    """Whether a text says any of the phrases (`by_word`): only those are tried that may begin with one of its words."""
    words = chain(_starts(text).keys() & phrases.keys(), _wide_letters(text) & phrases.keys())
    tried = {phrase for word in words for phrase in phrases[word]}
    return any(phrase.search(text) is not None for phrase in tried)
