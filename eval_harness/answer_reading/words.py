"""The words of a text: where each begins, so that a pattern is tried only where one of its first words stands.

A search of a pattern through a text costs 0.1 to 0.3 us a character; the words are found once, and most patterns nowhere.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, count
from typing import Any, Generic, TypeVar

_BEGINNING = re.compile(r"([^\W_]{1,4})[^\W_]*")
_WIDE = re.compile(r"[\u3040-\uffff✓✔✅✗❌✘×☐☑☒]")
"""Scripts without blanks between words, and signs that patterns look for."""


Value = TypeVar("Value")


class once(Generic[Value]):
    """A property that is computed when it is first asked for. Like `functools.cached_property`, but without its lock (until Python 3.12),
    which costs more than most of what is computed here."""

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute, self.__doc__ = compute, compute.__doc__

    def __get__(self, owner: Any, kind: type) -> Value:
        value = owner.__dict__[self._compute.__name__] = self._compute(owner)
        return value


def words_in(text: str) -> frozenset[str]:
    """A vocabulary written as one string."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True, eq=False)
class Beginnings:
    """Words to be looked for, each by its first four letters (`words`). `bit` is set in the `says` of a text that holds one of them."""

    words: frozenset[str]
    bit: int = 0


_SAYS: dict[str, int] = {}
"""The bits of the vocabularies that hold a word."""
_NUMBERS = count()


def first_letters(words: str) -> frozenset[str]:
    """The first four letters of each word."""
    return frozenset(_BEGINNING.findall(words.lower()))


def beginnings(words: str) -> Beginnings:
    """Words to be looked for in every text, written as one string."""
    found = Beginnings(first_letters(words), 1 << next(_NUMBERS))
    for word in found.words:
        _SAYS[word] = _SAYS.get(word, 0) | found.bit
    return found


ONE_LETTER = beginnings("a b c d e f g h i j k l m n o p q r s t u v w x y z")


def in_lower_case(text: str) -> str:
    """A text in lower case, every letter where it was."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)


WIDE = 1 << next(_NUMBERS)
"""A bit that `bits_of` has for texts that are wide."""


class _Index:
    """The words of a text in lower case, by their first four letters (`words`); the vocabularies of which it says a word (`says`); its
    wide letters; where words of a vocabulary have been found (`found`)."""

    __slots__ = ("found", "lowered", "says", "spaced", "wide", "words")

    def __init__(self, text: str) -> None:
        self.lowered = lowered = in_lower_case(text)
        blanked = lowered.translate(_SIGNS_AS_BLANKS) if text.isascii() else _SIGN.sub(" ", lowered)
        self.spaced = f" {blanked} "
        self.words: defaultdict[str, list[str]] = defaultdict(list)
        for word in set(blanked.split()):
            self.words[word[:4]].append(word)
        self.wide = frozenset() if text.isascii() else frozenset(_WIDE.findall(text))
        says = WIDE if self.wide else 0
        for beginning in self.words:
            says |= _SAYS.get(beginning, 0)
        self.says = says
        self.found: dict[Beginnings, list[int]] = {}

    def places(self, vocabulary: Beginnings) -> list[int]:
        """Where words of a vocabulary begin, ascending."""
        found = self.found.get(vocabulary)
        if found is None:
            said = [word for beginning in vocabulary.words.intersection(self.words) for word in self.words[beginning]]
            found = sorted(chain.from_iterable([self._places(word) for word in said])) if said else []
            self.found[vocabulary] = found
        return found

    def _places(self, word: str) -> list[int]:
        by_itself, found = f" {word} ", []
        place = self.spaced.find(by_itself)
        while place >= 0:
            found.append(place)
            place = self.spaced.find(by_itself, place + 1)
        return found


_SIGN = re.compile(r"[\W_]")
_SIGNS_AS_BLANKS = {code: " " for code in range(128) if not chr(code).isalnum()}
_index = lru_cache(maxsize=64)(_Index)


def lowered_of(text: str) -> str:
    """A text in lower case, every letter where it was."""
    return _index(text).lowered


def is_wide(text: str) -> bool:
    """Whether a text holds a script without blanks between words, or a sign that patterns look for: they may begin anywhere."""
    return bool(_index(text).wide)


def bits_of(text: str) -> int:
    """The bits of all vocabularies of which a text may say a word."""
    return _index(text).says


@lru_cache(maxsize=16384)
def asks(question: str, pattern: re.Pattern[str]) -> bool:
    """Whether a question holds a pattern: looked for once, whatever is answered."""
    return pattern.search(question) is not None


def says(text: str, words: Beginnings) -> bool:
    """Whether a text may say one of the words."""
    return _index(text).says & words.bit != 0


def places(text: str, words: Beginnings) -> list[int]:
    """Where the words begin, ascending."""
    return _index(text).places(words)


def says_between(text: str, words: Beginnings, start: int, stop: int) -> bool:
    """Whether one of the words may begin in text[start:stop]; true of every text that is wide."""
    index = _index(text)
    if index.wide:
        return True
    if not index.says & words.bit:
        return False
    found = index.places(words)
    first = bisect_left(found, start)
    return first < len(found) and found[first] < stop


@dataclass(frozen=True, slots=True, eq=False)
class Phrase:
    """A pattern that begins with one of some words (`first`): tried only where one of them stands, and only in a text that says a word of
    each vocabulary whose bit is in `bits`. A text that holds one of the pattern's wide letters or signs (`wide`) is searched as a whole."""

    pattern: re.Pattern[str]
    first: Beginnings
    bits: int = 0
    wide: frozenset[str] = frozenset()

    def find(self, text: str, start: int = 0, stop: int | None = None) -> Iterable[re.Match[str]]:
        """Every match in text[start:stop], none of which overlaps the one before."""
        index = _index(text)
        if self.wide and not self.wide.isdisjoint(index.wide):
            return self.pattern.finditer(text, start, len(text) if stop is None else stop)
        if index.says & self.bits != self.bits:
            return ()
        return self._matches(text, index.places(self.first), start, len(text) if stop is None else stop)

    def _matches(self, text: str, found: list[int], start: int, stop: int) -> Iterator[re.Match[str]]:
        for place in found[bisect_left(found, start) : bisect_left(found, stop)]:
            if place >= start and (match := self.pattern.match(text, place, stop)) is not None:
                yield match
                start = max(match.end(), place + 1)

    def last(self, text: str, most: int) -> list[re.Match[str]]:
        """The last matches, the last first; at most so many words are looked at. Matches may overlap."""
        index = _index(text)
        found = index.places(self.first)[: -most - 1 : -1] if index.says & self.bits == self.bits else ()
        return [match for place in found if (match := self.pattern.match(text, place)) is not None]

    def match(self, text: str, start: int) -> re.Match[str] | None:
        """A match at text[start]."""
        return self.pattern.match(text, start)

    def search(self, text: str, start: int = 0, stop: int | None = None) -> re.Match[str] | None:
        """The first match in text[start:stop]."""
        index = _index(text)
        if self.wide and not self.wide.isdisjoint(index.wide):
            return self.pattern.search(text, start, len(text) if stop is None else stop)
        if index.says & self.bits != self.bits:
            return None
        stop, found = len(text) if stop is None else stop, index.places(self.first)
        for place in found[bisect_left(found, start) : bisect_left(found, stop)]:
            if (match := self.pattern.match(text, place, stop)) is not None:
                return match
        return None


def phrase(first: str, pattern: str, needs: str = "") -> Phrase:
    """A phrase in any case, with its words as strings."""
    return phrase_of(re.compile(pattern, re.IGNORECASE), beginnings(first), beginnings(needs) if needs else None)


def phrase_of(pattern: re.Pattern[str], first: Beginnings, needs: Beginnings | None = None) -> Phrase:
    bits = first.bit | (needs.bit if needs else 0)
    return Phrase(pattern, first, bits, wide=_wide_in(pattern))


def _wide_in(pattern: re.Pattern[str]) -> frozenset[str]:
    return frozenset(_WIDE.findall(pattern.pattern))


def says_stems(text: str, stems: frozenset[str]) -> bool:
    """Whether a text may say a word with one of these stems, each cut to four letters."""
    return bool(stems) and not _index(text).words.keys().isdisjoint(stems)


def says_any(text: str, phrases: Iterable[Phrase]) -> bool:
    """Whether a text says any of the phrases."""
    index = _index(text)
    for phrase in phrases:
        may = index.says & phrase.bits == phrase.bits or not phrase.wide.isdisjoint(index.wide)
        if may and phrase.search(text) is not None:
            return True
    return False
