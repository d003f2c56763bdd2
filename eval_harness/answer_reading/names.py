"""The names by which a response may call an option: its own words, other names for the same, and where they stand in a text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain

from eval_harness.answer_reading.plain_text import CJK, of_each, plain, spell_out
from eval_harness.answer_reading.words import words_in

WORD = re.compile(r"\d+(?:\.\d+)+(?![^\W_])|[^\W_]+")


def words_of(text: str) -> tuple[str, ...]:
    return tuple(WORD.findall(_spelt(text).lower()))


def words_of_each(texts: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(WORD.findall(text.lower())) for text in of_each(_spelt, texts))


def _spelt(text: str) -> str:
    return plain(text) if "\\" in text else spell_out(text)


@lru_cache(maxsize=64)
def plain_words(text: str) -> str:
    """The words of a text that has been made plain, as `OptionTexts.index` has them."""
    return " ".join(WORD.findall(text.lower()))


def other_names(
    options: Sequence[str], words: Sequence[tuple[str, ...]], numeric: frozenset[int]
) -> dict[str, int | None]:
    """Other names of options, with the option that each names; None for a name that two would share."""
    said = frozenset(chain(*words))
    names = _aliases(options) if "(" in "".join(options) else {}
    if "it" in said:  # "the pressure would fall" for "It would fall."
        names |= {
            " ".join(option[1:]): at for at, option in enumerate(words) if option[:1] == ("it",) and len(option) > 2
        }
    if numeric or not _NUMBERS.isdisjoint(said):
        names |= _number_names(words, numeric)
    if not _MODALITY_WORDS.isdisjoint(said):
        names |= _modality_names(words)
    return names | _none_names(words) if "none" in said else names


_ABBREVIATED = re.compile(r"(.*?\w)\s*\(([A-Za-z][A-Za-z0-9-]{1,9})\)(.*)", re.DOTALL)
_EVERYDAY = words_in(
    "ai all am an and are as at be by can do due ex for go had has he her his if in is it me may my no nor not of off on one or our out"
    " das de del der des die du el en er es est et il ist la las le les los ma mi nicht nos se si son su te tu un una une und y"
    " dr hi mr mrs ms oh ok per so the to up us use via vs was we who"
)


def is_everyday(short: str) -> bool:
    """Whether an abbreviation is an everyday word in small letters ("US", "AS", "IT")."""
    return short.lower() in _EVERYDAY


def abbreviation_of(option: str) -> tuple[str, str, str] | None:
    """The abbreviation that an option carries in brackets, with what stands before and after it ("Anteroposterior (AP) view"): capitals,
    or letters of the words before, in their order and from the beginning of one ("Actinic keratosis (ak)"), that are no everyday word."""
    match = _ABBREVIATED.fullmatch(option) if "(" in option else None
    if match is None:
        return None
    before, short, after = match.groups()
    if short.isupper():
        return before, short, after
    if not short.isalpha() or is_everyday(short) or len(before) < 2 * len(short):
        return None
    return (before, short, after) if re.search(rf"\b{'[a-z -]*?'.join(short.lower())}", before.lower()) else None


def _aliases(options: Sequence[str]) -> dict[str, int | None]:
    """Other names of options that carry an abbreviation in brackets ("Anteroposterior (AP) view": "AP", "AP view", "anteroposterior
    view"); None for a name that two options would share."""
    names: dict[str, int | None] = {}
    for position, option in enumerate(options):
        if (found := abbreviation_of(option)) is None:
            continue
        before, short, after = found
        for name in (before, short, f"{short} {after}", f"{before} {after}"):
            key = " ".join(words_of(name))
            names[key] = position if names.get(key, position) == position else None
    return names


_MODALITIES = tuple(
    tuple(name.split(" ") for name in names.split("|"))
    for names in (
        "ct|computed tomography|computer tomography|computerized tomography",
        "mri|magnetic resonance imaging|mr imaging|mr",
        "x ray|xray|radiograph|radiography|plain film",
        "ultrasound|ultrasonography|sonography|sonogram",
        "pet|positron emission tomography",
        "oct|optical coherence tomography",
        "ecg|ekg|electrocardiogram|electrocardiography",
    )
)
"""Names of one imaging modality, which mean the same wherever they stand."""
_MODALITY_WORDS = frozenset(name[-1] for names in _MODALITIES for name in names)
_MODALITY_ENDS = frozenset({"scan", "scans", "image", "images", "imaging"})


def _modality_names(options: Sequence[tuple[str, ...]]) -> dict[str, int | None]:
    """Other names of options that name a modality: "computed tomography" for "CT", "chest radiograph" for "chest X-ray"; None for a name
    that two options would share."""
    names: dict[str, int | None] = {}
    for position, option in enumerate(options):
        for group in _MODALITIES if not _MODALITY_WORDS.isdisjoint(option) else ():
            hits = (
                (at, name) for name in group for at in range(len(option)) if list(option[at : at + len(name)]) == name
            )
            at, own = next(hits, (-1, []))
            if not own:
                continue
            before, after = option[:at], option[at + len(own) :]
            for name in group:
                others = [(*before, *name, *after)]
                if len(after) == 1 and after[0] in _MODALITY_ENDS:
                    others.append((*before, *name))
                for other in others:
                    key = " ".join(other)
                    if other != option:
                        names[key] = position if names.get(key, position) == position else None
    return names


_NONE = re.compile(
    r"none(?: of (?:the )?(?:above|these|those|options|choices|(?:above|given|listed|other) (?:options|choices|answers)))?"
)
_NONE_NAMES = tuple(
    f"none of {which}"
    for options in ("options", "choices", "answers")
    for which in ("the above", "these", "them", f"the {options}", f"the given {options}", f"the listed {options}",
                  f"the provided {options}", f"the above {options}", f"the {options} given")
)  # fmt: skip


def _none_names(options: Sequence[tuple[str, ...]]) -> dict[str, int | None]:
    """Other ways to say that no option is right, where exactly one option says so."""
    places = [
        position
        for position, option in enumerate(options)
        if option and option[0] == "none" and _NONE.fullmatch(" ".join(option))
    ]
    return dict.fromkeys(_NONE_NAMES, places[0]) if len(places) == 1 else {}


_WORDS_TO_TWELVE = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
NUMBER_WORDS = dict(zip(_WORDS_TO_TWELVE, map(str, range(1, 13)), strict=True))
_DIGITS = {digit: word for word, digit in NUMBER_WORDS.items() if digit != "1"}
_NUMBERS = NUMBER_WORDS.keys() | _DIGITS.keys()
_BOUNDS = frozenset({"minus", "plus", "lessthan", "morethan", "atleast", "atmost", "plusminus"})
_UNITS = words_in(
    "percent degrees celsius fahrenheit mm cm m km nm um µm ml l mg g kg cc hz khz mmhg bpm ms s min hu frac sqrt cdot times pi text"
    " mathrm"
)


def _number_names(words: Sequence[tuple[str, ...]], numeric: frozenset[int]) -> dict[str, int | None]:
    """Other names of options that are numbers: "3" for "three" and back (not "one", which is an everyday word), "45" for "45 degrees"
    where every option has that unit, "1" for "+1", "3.0" for "3" and back."""
    names: dict[str, int | None] = {}
    units = {option[1:] for option in words} if numeric else set()
    same_unit = len(units) == 1 and len(words) > 1
    for position, option in enumerate(words):
        others = []
        if len(option) == 1:
            word = option[0]
            others += [other for other in (NUMBER_WORDS.get(word), _DIGITS.get(word)) if other]
        elif same_unit and option and option[0][0].isdigit():
            others.append(option[0])
        if position in numeric and option[0] == "plus":
            others.append(" ".join(option[1:]))
        others += [other for name in (" ".join(option), *others) if (other := _to_tenths(name)) is not None]
        for other in others:
            names[other] = position if other not in names else None
    return names


def _to_tenths(name: str) -> str | None:
    """Another way to write the one number of a name: "3.0 cm" for "3 cm", "3 cm" for "3.0 cm"."""
    if len(numbers := _ANY_NUMBER.findall(name)) != 1 or not (number := numbers[0]).removesuffix(".0").isdigit():
        return None
    return name.replace(number, number[:-2] if number.endswith(".0") else f"{number}.0")


_ANY_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_NUMERIC_WORDS = _UNITS | _BOUNDS | NUMBER_WORDS.keys()
_FIGURES = re.compile(r"[\d\\]")


def numeric_options(options: Sequence[str], words: Sequence[tuple[str, ...]]) -> frozenset[int]:
    """Options that are numbers or formulas."""
    if _FIGURES.search("".join(options)) is None and NUMBER_WORDS.keys().isdisjoint(chain(*words)):
        return frozenset()
    return frozenset(i for i, option in enumerate(options) if _is_numeric(option, words[i]))


def _is_numeric(option: str, words: tuple[str, ...]) -> bool:
    """Whether an option is a number with its unit, or a formula."""
    figure = "\\" in option or bool(words and words[0] in NUMBER_WORDS)
    for word in words:
        if word[0].isdigit():
            figure = True
        elif len(word) > 2 and word not in _NUMERIC_WORDS:
            return False
    return figure and bool(words)


_WIDE = re.compile(rf"[{CJK}]")
"""Scripts without blanks between words."""
_BEFORE = ("non-", "non ")
_BEFORE_NUMBER = (*_BEFORE, *(f"{bound} " for bound in _BOUNDS - {"plus"}))
"""After which a name means something else ("non-union", "less than 3")."""
_MORE_DIGITS = re.compile(r"[.,]\d|\s?/\d|\s?(?:[√^]|[*×]\s?[\d√])")
_UNIT_AFTER = re.compile(r"\s?(mm|cm|dm|m|km|µm|nm|mg|g|kg|ml|dl|l|hu|percent|mmhg|bpm|min|ms)(?![^\W\d_])")
_FACTOR = re.compile(r"\d\s?[*\\]?\s?\\?$")
"""Before "pi" in a multiple of it ("6 pi", which is not "pi")."""
_MERELY = re.compile(
    r"(?:(?:obvious |clear )?(?:evidence|signs?) of|acute|definite|obvious|significant|visible|clear)[\W_]{1,4}"
)
"""What may stand between "no" and the rest of an option ("no acute fracture" for "no fracture")."""
_GAP = re.compile(r"[\W_]{1,4}(?![\W_])")


class Name:
    """A name of an option, None where two options have it: `text` is its words with blanks between them, `unit` what a number left out,
    instead of which no other may follow ("2 mm" is not "2 cm")."""

    __slots__ = ("_cut", "_endings", "_is_number", "_unit", "begins_wide", "option", "text", "words")

    def __init__(self, text: str, option: int | None, unit: str = "") -> None:
        self.text, self.option, self.words, self._unit = text, option, text.split(" "), unit
        last = self.words[-1]
        self.begins_wide = _WIDE.match(text) is not None
        self._is_number = last[-1].isdigit()
        self._cut = 2 if last.endswith("sis") else 0  # metastasis, metastases
        self._endings = ("is", "es") if self._cut else () if self._is_number or len(last) == 1 else ("s", "es")

    def beginnings(self) -> tuple[str, ...]:
        """How the name may begin in a text: its first word, also in the plural if it is its only one."""
        word = self.words[0]
        return (word, word + "s", word + "es", word[:-2] + "es") if len(self.words) == 1 else (word,)

    def end(self, lowered: str, start: int, stop: int) -> int:
        """Where the name ends if it stands at lowered[start:stop], perhaps in the plural; else 0. Up to four signs or blanks may stand
        between its words."""
        text = self.text[: -self._cut] if self._cut else self.text
        if lowered.startswith(text, start):
            end = start + len(text)
        elif (
            len(self.words) == 1
            or not lowered.startswith(self.words[0], start)
            or not (end := self._end_of_words(lowered, start))
        ):
            return 0
        if start and self._is_part(lowered, start):
            return 0
        if end > stop or _WIDE.match(self.words[-1]):
            return end if end <= stop else 0
        if not self._cut and (end == stop or not lowered[end].isalnum()):
            return 0 if self._is_number and self._goes_on(lowered, end, stop) else end
        for ending in self._endings:
            after = end + len(ending)
            if lowered.startswith(ending, end) and (after == stop or (after < stop and not lowered[after].isalnum())):
                return after
        return 0

    def _goes_on(self, lowered: str, end: int, stop: int) -> bool:
        """Whether what follows a number makes it another, or gives it another unit."""
        if _MORE_DIGITS.match(lowered, end, stop):
            return True
        unit = _UNIT_AFTER.match(lowered, end, stop) if self._unit else None
        return unit is not None and unit[1] != self._unit

    def _is_part(self, lowered: str, start: int) -> bool:
        """Whether what stands before makes the name part of another word or number."""
        before, number = lowered[start - 1], self.text[0].isdigit()
        if before.isalnum():
            return not self.begins_wide
        if self.words[0] == "pi" and _FACTOR.search(lowered, max(0, start - 4), start):
            return True
        if before in ".,/" and lowered[start - 2 : start - 1].isdigit():
            return before != "/" or number
        return before in " -" and lowered.endswith(_BEFORE_NUMBER if number else _BEFORE, 0, start)

    def _end_of_words(self, lowered: str, start: int) -> int:
        """Where the words end if they stand at lowered[start], without the letters of an ending; else 0."""
        end = start
        for number, word in enumerate(self.words):
            if number and (gap := _GAP.match(lowered, end)) is None:
                return 0
            end = gap.end() if number and gap else end
            wanted = word[: -self._cut] if self._cut and number == len(self.words) - 1 else word
            if number == 1 and self.words[0] == "no" and (merely := _MERELY.match(lowered, end)):
                end = merely.end() if lowered.startswith(wanted, merely.end()) else end
            if not lowered.startswith(wanted, end):
                return 0
            end += len(wanted)
        return end
