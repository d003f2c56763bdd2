"""The options of a question made ready to be found in a response: their texts, other names for them, and the words that tell them apart."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from dataset_builders.schema import LETTERS
from eval_harness.answer_reading.names import (
    Name,
    abbreviation_of,
    is_everyday,
    numeric_options,
    other_names,
    plain_words,
    words_of,
    words_of_each,
)
from eval_harness.answer_reading.plain_text import exact, has_status, holds, of_each, spell_status
from eval_harness.answer_reading.words import Beginnings, first_letters, is_wide, lowered_of, once, places, words_in

_TOO_COMMON = frozenset(
    {"yes", "no", "none", "all", "both", "true", "false", "other", "others", "unknown", "present", "absent"}
)
"""Options that are everyday words: named only where the response leads with them or an answer statement does."""


STOP = words_in("the of in on at to and or with for by from is are was be an as it its this that into other than both")
_NEGATIVE = frozenset({"no", "not", "without", "absence", "absent", "negative", "none", "non"})
_IRREGULAR = {
    "torn": "tear",
    "broken": "break",
    "bled": "bleed",
    "swollen": "swell",
    "grown": "grow",
    "expansion": "expand",
    "hyperexpansion": "hyperexpand",
}
_REGULAR = {stem: word for word, stem in _IRREGULAR.items()}
_SUFFIX = re.compile(
    r"(?<=\w{4})(?:ication|isation|ization|ations?|ements?|ances?|ancy|ants?|ions?|ities|ity|ures?|ured|uring|ings?|ously|ial|ally|al|ly|(?<=\w{4})at(?:ed|es?|ing)"
    r"|ies|ied|edly|ed|es|e|s|y|ous|ive)$"
)


_DOUBLED = re.compile(r"(?<=\w\w)([bdgmnprt])\1$")
"""A consonant that "-ing" and "-ed" double (stopping, stop)."""


@lru_cache(maxsize=16384)
def stem(word: str) -> str:
    """A crude stem: "fractured" and "fracture", "dislocation" and "dislocated" come out the same; short words and numbers stay."""
    word = _IRREGULAR.get(word, word)
    if not word.isalpha() or len(word) < 4 or word.endswith("iae"):
        return word
    if (cut := _SUFFIX.sub("", word, count=1)) != word:
        return _DOUBLED.sub(r"\1", cut)
    return word[:-1] if word[-1] in "se" and len(word) > 4 else word


def _stems(option: tuple[str, ...]) -> frozenset[str]:
    """Stems of an option's words; none where a single letter is among them ("stage I"), which other words can not replace."""
    if any(
        len(word) == 1 and word.isalpha() and (word != "a" or place == len(option) - 1)
        for place, word in enumerate(option)
    ):
        return frozenset()
    signed, sign = [], ""
    for word in option:
        sign = DENIED if word in _NEGATORS else "" if word in ("with", "but") else sign
        if word not in STOP and word != "a" and word not in _NEGATORS:
            signed.append(sign + stem(word))
    return frozenset(signed)


DENIED = "not:"
"""Before the stem of a word that the option denies ("no residual lesion")."""
_NEGATORS = frozenset({"no", "not", "without"})


_CUES = ("answer", "correct", "option", "choice")
_MAY_BE_LONE = re.compile(r"^[\W_]*[^\W\d_][\W_]*$|[\\\x80-\U0010ffff]", re.MULTILINE)
"""An option that is one letter, or of which nobody can say so before it is made plain."""
_STATUS_WORDS = frozenset({"positive", "negative"})


_UNIT = re.compile(
    r"(?:(?<=[^a-z])|^)(?:sq\.?|square)?(?:mm|cm|km|m|in|ft|inches|feet|met(?:er|re)s?|kg|g|mg|ml|l|s|h|hp|min|hours?|minutes?|units?|°|%)"
    r"(?:\^?[23])?$"
)
"""The unit that a formula ends with."""


class Named(NamedTuple):
    """An option's name at text[start:end]; `option` is None where two options have it."""

    option: int | None
    start: int
    end: int


class OptionTexts:
    """The options of a question, ready to be found in a text. What is made of them is made when it is first asked for: most responses are
    read before they need it."""

    def __init__(self, options: tuple[str, ...]) -> None:
        self._options = options
        self.count = len(options)
        self.longest = max(map(len, options), default=0)
        """The most characters an option has."""

    @once
    def _joined(self) -> str:
        """The options, one under the other, in lower case: some words and signs are looked for before anything is made of the options."""
        return "\n".join(self._options).lower()

    def may_be(self, text: str) -> bool:
        """False where a text says a word of answer statements that no option says: then it is none of them."""
        lowered = text.lower()
        for cue in _CUES:
            if cue in lowered and cue not in self._joined:
                return "none" in self._joined
        return True

    @once
    def _marked(self) -> bool:
        """Whether an option says "+" or "-" of a marker ("ER-")."""
        return holds(self._joined, "+-−") and any(map(has_status, self._options))

    @once
    def status(self) -> bool:
        """Whether options say that a marker is positive or negative."""
        if self._marked or not holds(self._joined, _STATUS_WORDS):
            return self._marked
        return not _STATUS_WORDS.isdisjoint(option[-1] for option in self.words if len(option) > 1)

    @once
    def words(self) -> tuple[tuple[str, ...], ...]:
        """The words of each option."""
        return words_of_each(tuple(map(spell_status, self._options)) if self._marked else self._options)

    @once
    def leads(self) -> tuple[str, ...]:
        """The first word of each option; yes and no for true and false."""
        leads = tuple(option[0] if option else "" for option in self.words)
        if set(leads) == {"true", "false"}:
            leads = tuple("yes" if lead == "true" else "no" for lead in leads)
        return leads

    @once
    def yes_no(self) -> bool:
        """Whether the two options are yes and no."""
        return self.count == 2 and self.leads in (("yes", "no"), ("no", "yes"))

    @once
    def lone(self) -> dict[str, int]:
        """Options that are one letter."""
        if min(map(len, self._options), default=9) > 8 or not _MAY_BE_LONE.search(self._joined):
            return {}
        return {
            option[0]: place
            for place, option in enumerate(self.words)
            if len(option) == 1 and len(option[0]) == 1 and option[0].isalpha()
        }

    @once
    def _own(self) -> dict[str, int | None]:
        """The options by their own words; None where two read the same."""
        own: dict[str, int | None] = {}
        for place, option in enumerate(self.words):
            key = " ".join(option)
            if key and not (len(key) == 1 and key.isalpha()):
                own[key] = None if key in own else place
        return own

    @once
    def index(self) -> dict[str, int | None]:
        """The words that name each option, its own and others; None where two options read the same."""
        return other_names(self._options, self.words, self.numeric) | self._own

    def named(self, text: str) -> int | None:
        """The option of which a text that has been made plain is a name, word for word."""
        words = plain_words(text)
        if len(words) < 2 and "(" not in self._joined and (not words or words.isalpha()):
            return None
        return self._own[words] if words in self._own else self.index.get(words)

    @once
    def _names(self) -> dict[str, list[Name]]:
        """The names of the options by their first letter, the longest first."""
        names: dict[str, list[Name]] = {}
        for key in sorted(self.index, key=len, reverse=True):
            place = self.index[key]
            unit = " ".join(self.words[place][1:]) if place is not None and " " not in key else ""
            names.setdefault(key[0], []).append(Name(key, place, unit))
        return names

    @once
    def _begins(self) -> Beginnings:
        """What the names begin with."""
        names = (name for group in self._names.values() for name in group)
        return Beginnings(frozenset(form.partition(".")[0][:4] for name in names for form in name.beginnings()))

    @once
    def _wide_begins(self) -> frozenset[str]:
        """First words in scripts without blanks between words, which may stand within others."""
        return frozenset(name.words[0] for group in self._names.values() for name in group if name.begins_wide)

    def find(self, text: str, start: int = 0, stop: int | None = None) -> Iterator[Named]:
        """Every name of an option in text[start:stop], none of which overlaps the one before."""
        stop = len(text) if stop is None else stop
        found = places(text, self._begins)
        if not found and not self._wide_begins:
            return
        if self._wide_begins and is_wide(text):
            within = (match.start() for word in self._wide_begins for match in re.finditer(word, text))
            found = sorted({*found, *within})
        lowered = lowered_of(text)
        for place in found[bisect_left(found, start) : bisect_left(found, stop)]:
            if place >= start and (named := self._at(text, lowered, place, stop)) is not None:
                yield named
                start = named.end

    def at(self, text: str, start: int) -> Named | None:
        """The longest name of an option that stands at text[start]."""
        return self._at(text, lowered_of(text), start, len(text))

    def _at(self, text: str, lowered: str, start: int, stop: int) -> Named | None:
        for name in self._names.get(lowered[start : start + 1], ()):
            if (end := name.end(lowered, start, stop)) > 0:
                said = text[start:end]
                if said.lower() in self._everyday and (not said.isupper() or (text.isupper() and said != text.strip())):
                    continue  # "It tells us nothing." names no ultrasound (US)
                return Named(name.option, start, end)
        return None

    @once
    def _everyday(self) -> frozenset[str]:
        """Abbreviations of options, in small letters, that are everyday words otherwise: they name an option in capitals alone."""
        found = (abbreviation_of(option) for option in self._options)
        own = {" ".join(option) for option in self.words}
        return frozenset(short[1].lower() for short in found if short and is_everyday(short[1])) - own

    @once
    def common(self) -> frozenset[int]:
        """Options that are everyday words, or of which nothing is left but prepositions and a letter ("on A")."""
        return frozenset(
            i
            for i, option in enumerate(self.words)
            if (len(option) == 1 and (option[0] in _TOO_COMMON or option[0] in STOP))
            or (len(option) == 2 and option[0] in STOP and len(option[1]) == 1 and option[1].isalpha())
        )

    @once
    def negative(self) -> frozenset[int]:
        """Options that begin with a negation."""
        return frozenset(i for i, option in enumerate(self.words) if option and option[0] in _NEGATIVE)

    @once
    def numeric(self) -> frozenset[int]:
        """Options that are numbers or formulas."""
        return numeric_options(self._options, self.words)

    @once
    def stems(self) -> tuple[frozenset[str], ...]:
        """The stems of each option's words but for their abbreviation in brackets; none of options that other words can not replace."""
        bare = self.common | self.negative | self.numeric
        return tuple(
            frozenset() if i in bare or has_status(self._options[i]) else _stems(self._without_abbreviation(i))
            for i in range(self.count)
        )

    def _without_abbreviation(self, option: int) -> tuple[str, ...]:
        found = abbreviation_of(self._options[option])
        return self.words[option] if found is None else words_of(f"{found[0]} {found[2]}")

    @once
    def heads(self) -> tuple[frozenset[str], ...]:
        """The stems before the first comma of each option ("femoral neck fracture, Garden II"); none where it has no comma, or another
        option has them all."""
        heads = [
            _stems(words_of(option.partition(",")[0])) if "," in option else frozenset() for option in self._options
        ]
        return tuple(
            head
            if len(head) > 1
            and self.stems[i]
            and not any(head <= other for other in (*self.stems[:i], *self.stems[i + 1 :]))
            else frozenset()
            for i, head in enumerate(heads)
        )

    @once
    def distinguishing(self) -> tuple[frozenset[str], ...]:
        """The stems of each option that no other has."""
        own = self.stems
        return tuple(stems - frozenset().union(*own[:i], *own[i + 1 :]) for i, stems in enumerate(own))

    @once
    def known(self) -> frozenset[str]:
        """All stems, denied or not."""
        return frozenset(word.removeprefix(DENIED) for stems in self.stems for word in stems)

    @once
    def beginnings(self) -> frozenset[str]:
        """How words with these stems begin."""
        return first_letters(" ".join(f"{stem} {stem}{stem[-1]} {_REGULAR.get(stem, '')}" for stem in self.known))

    def formula(self, text: str) -> int | None:
        """The option that a text is as a formula."""
        formula = exact(text)
        return self._formulas.get(formula) if self._signs.issuperset(formula) or not self._joined.isascii() else None

    @once
    def _signs(self) -> frozenset[str]:
        """The letters and signs of options in ASCII, and what their LaTeX stands for."""
        return frozenset(self._joined + "()/*√π°<>=-")

    @once
    def _formulas(self) -> dict[str, int | None]:
        """The options as formulas; None where two are the same."""
        formulas: dict[str, int | None] = {}
        keys = [option.rstrip(".,;:!") for option in of_each(exact, self._options)]
        unit = _UNIT.search(keys[0]) if len(keys) > 1 else None
        bare = (
            [key.removesuffix(unit[0]) for key in keys] if unit and all(key.endswith(unit[0]) for key in keys) else []
        )
        for place, key in chain(enumerate(keys), enumerate(bare)):
            if key and not (len(key) == 1 and key.isalpha()):
                formulas[key] = None if key in formulas else place
        return formulas

    @once
    def listed(self) -> str:
        """The words of the list of the options, each after its letter."""
        return " ".join(
            " ".join((letter.lower(), *option)) for letter, option in zip(LETTERS, self.words, strict=False)
        )


@lru_cache(maxsize=65536)
def option_texts(options: tuple[str, ...]) -> OptionTexts:
    """The options of a question (cached: questions of one run repeat theirs)."""
    return OptionTexts(options)
