"""Find the texts of options in a response, as sequences of words: their own and other names for the same.

Words are compared without case, plural, British spelling and leading zeros after the decimal point; signs beside numbers (`<`, `-`, `%`)
and a sign that ends a word ("ER-", "contrast +") are words of their own, so that `< 50%` is never read as `>= 50%`, or `2-1` as `2+1`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

from eval_harness.reader.text import CJK, plain
from eval_harness.reader.yes_no import FOREIGN

_TOKEN = re.compile(
    rf"\d+(?:\.\d+)*(?![^\W_{CJK}])|[{CJK}]|[^\W_{CJK}]+"
    r"|[<>]=|[<>=±√π°%^]|(?P<status>\([+\-]\)|[+\-](?:(?<=[^\W_].)(?=$|[\s,.;:)\]\"'])(?!\s?\d)"
    r"|(?<=[^\W_] .)(?=\s*(?:$|[,.;:()\]\"'\n]))))"
    r"|[+\-](?=\s?(?:\.?\d|[√π(]))"
    r"|\*(?=\s?[\w(√])|/(?=\s?[\d√π(])"
)  # fmt: skip
_BRITISH = re.compile(
    r"(?<=\w)a(?=em)|^o(?=edem|esoph|estr)|(?<=rrh)o(?=e)|(?<=pn)o(?=e)|(?<=^f)(?:o(?=et)|a(?=ec))|(?<=^c)a(?=ec)"
    r"|(?<=p)a(?=ed)"
    r"|(?<=an)a(?=esth)|^a(?=etiol)|(?<=tumo|colo)u(?=r)"
)
_ENDS_IN_RE = re.compile(r"(?:(?<=met|lit|fib|tit)|(?<=cent))re$")
NUMBER_WORDS = {
    word: str(number)
    for number, word in enumerate(("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"), 2)
}  # fmt: skip
"""Not "one", which is an everyday word."""


_STATUS = {"+": "positive", "(+)": "positive", "-": "negative", "(-)": "negative"}


def vocabulary(words: str) -> frozenset[str]:
    """Words written as one text."""
    return frozenset(words.split())


@lru_cache(maxsize=65536)
def normal(word: str) -> str:
    """A word as it is compared: in lower case, American, singular, number words as digits, numbers without a decimal of zero."""
    word = word.strip(" ()").lower()
    if word[:1].isdigit():
        return re.sub(r"\.0+$", "", word)
    if not word.isalpha() or len(word) < 3:
        return word
    if word in NUMBER_WORDS:
        return NUMBER_WORDS[word]
    word = _ENDS_IN_RE.sub("er", _BRITISH.sub("", word))
    if len(word) > 3 and word.endswith(("ae", "i")):  # "vertebrae", "nevi"
        return word[:-1] if word.endswith("ae") else word[:-1] + "us"
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith("is") or (len(word) > 5 and word.endswith(("ses", "xes", "ches", "shes"))):
        return word[:-2]
    return word[:-1]


class Words(NamedTuple):
    """The words of a text as they are compared, and as they were found."""

    words: tuple[str, ...]
    found: list[re.Match[str]]

    def start(self, place: int) -> int:
        return self.found[place].start()

    def end(self, place: int) -> int:
        return self.found[place].end()


def words_of(text: str) -> Words:
    """The words of a text that has been made plain."""
    found = list(_TOKEN.finditer(text))
    return Words(tuple([_STATUS[each[0]] if each.lastgroup else normal(each[0]) for each in found]), found)


_LEADING = ("the", "a", "an")
_ARTICLE = re.compile(r"\W*(?:[Tt]he|THE|an?|An?(?= [a-z]))\s+\w")
"""Not "A" before a capital, which may be the letter of an option."""
_ABBREVIATED = re.compile(r"(.*?\w)\s*\(([A-Za-z][A-Za-z0-9-]{1,9})\)(.*)", re.DOTALL)
_EXPLAINED = re.compile(r"(\S.{1,60}?)\s*\((\S{2,}\s[^()]+)\)\W*")
"""An option with an explanation in brackets ("Grade 2 (definite osteophytes)"): either names it."""
_EVERYDAY = vocabulary(
    "ai all am an and are as at be by can do due ex for go had has he her his if in is it me may my no nor not "
    "of off on one or our out per so the to up us use via vs was we who di el es et la le los ma mi nos se si "
    "son su te tu un und ist der die das oh ok hi dr mr"
)
_MODALITIES = (
    ("ct", "computed tomography", "computer tomography"),
    ("mri", "magnetic resonance imaging", "magnetic resonance", "mr imaging", "mr"),
    ("x ray", "xray", "radiograph", "radiography", "plain film"),
    ("ultrasound", "ultrasonography", "sonography"),
    ("pet", "positron emission tomography"),
    ("oct", "optical coherence tomography"),
    ("ecg", "ekg", "electrocardiogram", "electrocardiography"),
)
"""Names of one imaging modality, which mean the same wherever they stand."""
_NONE = ("none", "of", "the", "above")
"""`text.plain` writes "none of these options" and the like in this way."""
COMMON = vocabulary("yes no none all both true false other unknown present absent up down in out on off a an the")
"""Options that are everyday words: by themselves they name an option only where nothing else is said, or an answer is stated."""
_FORMULA_WORDS = vocabulary(
    "mm cm m km nm um µm ml l mg g kg cc hz khz mmhg bpm ms s min h hu pi minute hour day week month year "
    "percent degree"
)  # fmt: skip


_MERELY = (("evidence", "of"), ("sign", "of"), ("visible",), ("definite",), ("acute",))
"""What may stand between "no" and the rest of an option ("no evidence of fracture" for "no fracture")."""


_SIDES = vocabulary("left right both bilateral neither")
_VERBS = vocabulary("is are was has have show")
EVERYDAY = vocabulary("normal abnormal healthy left right positive negative")
"""Options of one word that also say something of a part ("the heart is normal", "on the left")."""
_YES_NO = {
    kind: tuple(words_of(word).words for word in f"{words} {FOREIGN[kind]}".split())
    for kind, words in {"yes": "yes true correct affirmative yeah yep yup", "no": "no false incorrect nope nah"}.items()
}
"""Yes and no as models say them."""


class Named(NamedTuple):
    """An option's name at words[first:last] of a text; `option` is None where two options have it."""

    option: int | None
    first: int
    last: int


class OptionTexts:
    """The options of a question, ready to be found in a text."""

    def __init__(self, options: tuple[str, ...]) -> None:
        self.count = len(options)
        self.plain = tuple(plain(option) for option in options)
        self.words = tuple(words_of(option).words for option in self.plain)
        self.longest = max(map(len, options), default=0)

    @cached_property
    def lone(self) -> dict[str, int]:
        """Options that are one letter (blood group O, class I)."""
        return {words[0]: place for place, words in enumerate(self.words) if len(words) == 1 and _is_letter(words[0])}

    @cached_property
    def numeric(self) -> frozenset[int]:
        """Options that are numbers or formulas."""
        return frozenset(place for place, words in enumerate(self.words) if _is_numeric(words))

    @cached_property
    def common(self) -> frozenset[int]:
        """Options that are one everyday word."""
        return frozenset(place for place, words in enumerate(self.words) if len(words) == 1 and words[0] in COMMON)

    @cached_property
    def yes_no(self) -> tuple[str, ...]:
        """`yes` and `no` in the order of the options, where these are the two (or true and false); else empty."""
        leads = tuple({"true": "yes", "false": "no"}.get(words[0], words[0]) if words else "" for words in self.words)
        return leads if set(leads) == {"yes", "no"} and self.count == 2 else ()

    @cached_property
    def names(self) -> dict[tuple[str, ...], int | None]:
        """Every name of an option, as words; None where two options have it."""
        own: dict[tuple[str, ...], int | None] = {}
        other: dict[tuple[str, ...], int | None] = {}
        for place, words in enumerate(self.words):
            if words and not (len(words) == 1 and _is_letter(words[0])):
                own[words] = None if words in own else place
            for name in self._other_names(place):
                if name and name != words and not (len(name) == 1 and _is_letter(name[0])):
                    other[name] = place if other.get(name, place) == place else None
        return other | own

    def _other_names(self, place: int) -> Iterator[tuple[str, ...]]:
        words = self.words[place]
        if self.yes_no:
            yield from _YES_NO[self.yes_no[place]]
        if words[:1] and words[0] in _LEADING and len(words) > 1:
            yield words[1:]
        if (found := _ABBREVIATED.fullmatch(self.plain[place])) and _abbreviates(found[2], found[1]):
            before, short, after = (words_of(part).words for part in found.groups())
            yield from (before + after, short, short + after, before)
        for group in _MODALITIES:
            yield from _renamed(words, [tuple(map(normal, name.split())) for name in group])
        if place == self.none:
            yield from (_NONE, _NONE[:1])
        if (bare := self._bare[place]) != words:
            yield bare
        if self._shared > 1 and len(words) > self._shared + 1:
            yield words[self._shared :]
        if self.count > 1 and (found := _EXPLAINED.fullmatch(self.plain[place])):
            yield from (words_of(part).words for part in found.groups())
        if words[:1] == ("no",):
            yield from (("no", *between, *words[1:]) for between in _MERELY)
        if place in self.numeric and words[0] == "+":
            yield words[1:]

    @cached_property
    def none(self) -> int | None:
        """The option "none of the above" (or "none"); the first where it stands twice."""
        places = [place for place, words in enumerate(self.words) if words in (_NONE, _NONE[:1])]
        return places[0] if len({self.words[place] for place in places}) == 1 else None

    @cached_property
    def twice(self) -> dict[tuple[str, ...], int]:
        """Texts that stand twice among the options (47 questions of HALT-MedVQA), with the first place: their text alone means that."""
        texts = [text.rstrip(".").lower() for text in self.plain]
        return {self.words[texts.index(text)]: texts.index(text) for text in texts if texts.count(text) > 1}

    @cached_property
    def clauses(self) -> frozenset[int]:
        """Options that are a whole sentence ("It is a kitchen")."""
        return frozenset(at for at, words in enumerate(self.words) if not _VERBS.isdisjoint(words[1:-1]))

    @cached_property
    def are_sides(self) -> bool:
        """True if the options are left and right, perhaps with both."""
        return {"left", "right"} <= {" ".join(words) for words in self.words} <= _SIDES

    @cached_property
    def _bare(self) -> tuple[tuple[str, ...], ...]:
        """The words of each option with a number without those that all such begin or end with ("number of cells: 3", "3 cm")."""
        words, first, last = [each for each in self.words if re.search(r"\d", " ".join(each))], 0, 0
        shortest = min(map(len, words), default=0) if len(words) > 1 else 0
        while first < shortest - 1 and len({each[first] for each in words}) == 1:
            first += 1
        while last < shortest - 1 - first and len({each[-1 - last] for each in words}) == 1:
            last += 1
        bare = [each[first : len(each) - last] for each in words]
        left_out = (*words[0][:first], *words[0][len(words[0]) - last :]) if words else ()
        units = all(word.isalpha() or word in ("%", "°", "^", "2", "3") for word in left_out)
        named = dict(zip(words, bare, strict=True)) if units and all(map(_is_numeric, bare)) else {}
        return tuple(named.get(each, each) for each in self.words)

    @cached_property
    def _shared(self) -> int:
        """How many words all options begin with ("The tumor is in the ...")."""
        return (
            sum(1 for _ in itertools.takewhile(lambda alike: len(set(alike)) == 1, zip(*self.words, strict=False)))
            if self.count > 1
            else 0
        )

    @cached_property
    def _unit(self) -> tuple[str, ...]:
        """The unit that every option with a number has after it."""
        numbers = [words for words in self.words if words and words[0][0].isdigit()]
        units = {words[1:] for words in numbers}
        return units.pop() if len(units) == 1 and len(numbers) > 1 else ()

    @cached_property
    def _by_first(self) -> dict[str, list[tuple[tuple[str, ...], int | None]]]:
        """The names by their first word, the longest first."""
        found: dict[str, list[tuple[tuple[str, ...], int | None]]] = {}
        for name in sorted(self.names, key=len, reverse=True):
            found.setdefault(name[0], []).append((name, self.names[name]))
        return found

    @cached_property
    def _everyday(self) -> frozenset[tuple[str, ...]]:
        """Abbreviations that are everyday words in small letters ("US", "IT"): they name an option in capitals alone."""
        return frozenset(
            name for name in self.names if len(name) == 1 and name[0] in _EVERYDAY and name not in self.words
        )

    def named(self, text: str) -> int | None:
        """The option of which a text is a name, word for word; sign for sign where two have these words ("180-w-y", "180-w+y")."""
        words = words_of(text).words
        if words not in self.names and _ARTICLE.match(text):
            words = words[1:]
        place = self.names.get(words) if len(words) <= self._most else None
        return self.plain.index(text) if place is None and words in self.names and text in self.plain else place

    @cached_property
    def _most(self) -> int:
        return max(map(len, self.names), default=0)

    def find(self, said: Words, text: str) -> Iterator[Named]:
        """Every name of an option in a text, none of which overlaps the one before."""
        by_first, last = self._by_first, 0
        for place in [at for at, word in enumerate(said.words) if word in by_first]:
            if place >= last and (found := self._at(said, text, place)) is not None:
                yield found
                last = found.last

    def _at(self, said: Words, text: str, first: int) -> Named | None:
        words = said.words
        for name, option in self._by_first[words[first]]:
            last = first + len(name)
            if words[first:last] != name or _is_part(said, text, first, last, self._unit):
                continue
            if len(name) < 9 and any(
                _BREAK.search(text, said.end(at), said.start(at + 1)) for at in range(first, last - 1)
            ):
                continue
            if name in self._everyday and not text[said.start(first) : said.end(first)].isupper():
                continue  # "It tells us nothing." names no ultrasound (US)
            return Named(option, first, last)
        return None

    def begin_with(self, words: tuple[str, ...], but: Sequence[int]) -> bool:
        """True if options other than `but` begin with these words, of which there are several, and those do not."""
        beginning = {place for place, own in enumerate(self.words) if own[: len(words)] == words}
        return len(words) > 1 and bool(beginning) and beginning.isdisjoint(but)


NOT_THERE = vocabulary(
    "suspected potential treated resolved healed excluded presumed feared suggested denied considered drained supposed so-called "
    "different hypothetical adjacent contralateral unrelated separate differential alternative near similar absent negative normal "
    "equivocal previous simulated repaired removed cured missed expected imaginary apparent"
)
"""What says of a finding that it is not there, or not this one."""


def _is_letter(word: str) -> bool:
    return len(word) == 1 and word.isalpha() and word.isascii()


def _is_numeric(words: Sequence[str]) -> bool:
    """True if an option is a number with its unit, or a formula."""
    if not any(word[0].isdigit() or word == "√" for word in words):
        return False
    return all(not word.isalpha() or len(word) < 3 or word in _FORMULA_WORDS for word in words)


def _abbreviates(short: str, words: str) -> bool:
    """True if letters in brackets abbreviate the words before: capitals, or letters of them in their order ("Actinic keratosis (ak)")."""
    if short.isupper():
        return True
    if not short.isalpha() or short.lower() in _EVERYDAY or len(words) < 2 * len(short):
        return False
    return re.search(rf"\b{'[a-z -]*?'.join(short.lower())}", words.lower()) is not None


def _renamed(words: tuple[str, ...], group: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """An option with the name of a modality replaced by another of the same, also without "scan" or "image" after it."""
    for own in group:
        for at in range(len(words) - len(own) + 1):
            if words[at : at + len(own)] == own:
                before, after = words[:at], words[at + len(own) :]
                for name in group:
                    yield (*before, *name, *after)
                    if after in (("scan",), ("image",), ("imaging",)):
                        yield (*before, *name)
                return


_BREAK = re.compile(r"(?<!\b\w)[.!?]\s|\n|.{5}")
"""Between two words, what no name goes across."""
_FACTOR = re.compile(r"[\dπ√]\)?\s?$")
_NON = re.compile(r"\bnon[- ]$")
_COMPOUND, _COMPOUND_AFTER = re.compile(r"[A-Z]{2,}[/-]$"), re.compile(r"[/-][A-Z]{2,}")
"""What makes a word part of another name ("PET/CT")."""
_GOES_ON = re.compile(r"[.,]\d|\s?[/√^*]\s?[\d√π(]|\s?[×*]")
UNIT = re.compile(r"\s?(mm|cm|dm|m|km|µm|nm|mg|g|kg|ml|dl|l|hu|%|mmhg|bpm|min|ms)(?![^\W\d_])", re.IGNORECASE)


def _is_part(said: Words, text: str, first: int, last: int, unit: tuple[str, ...]) -> bool:
    """True if a name is part of a longer word or number: "non-union", "PET/CT", "2-1", "2 mm" where 2 cm is meant."""
    start, end = said.start(first), said.end(last - 1)
    if unit and last - first == 1 and said.words[first].isdigit() and text[start].isalpha():
        return True  # "two" is not "2 cm"
    if said.words[first] in ("π", "√") and _FACTOR.search(text, max(0, start - 4), start):
        return True
    if _NON.search(text[max(0, start - 4) : start].lower()) or _COMPOUND.search(text, max(0, start - 8), start):
        return True
    if text[end : end + 1] in "/-" and _COMPOUND_AFTER.match(text, end):
        return True
    if said.words[first][0].isdigit() or said.words[first] in _SIGNS:
        before = text[max(0, start - 2) : start]
        if (
            first
            and said.words[first - 1] in _SIGNS
            and said.end(first - 1) >= start - 1
            and said.words[first - 1] != "="
        ):
            return True
        if before[-1:] in ("/", ".", ",") and before[:1].isdigit():
            return True
    if said.words[last - 1][-1].isdigit() or said.words[last - 1] in _SIGNS:
        if _GOES_ON.match(text, end) or (
            last < len(said.words) and said.words[last] in _SIGNS - {"=", "°", "%"} and said.start(last) <= end + 1
        ):
            return True
        found = UNIT.match(text, end) if unit else None
        return found is not None and normal(found[1]) not in unit
    return bool(
        last < len(said.words)
        and said.words[last] in ("+", "-")
        and said.start(last) <= end + 1
        and text[end : end + 1] in "+-"
    )


_SIGNS = frozenset((">=", "<=", *"<>=±√π°%^+-*/"))


@lru_cache(maxsize=16384)
def option_texts(options: tuple[str, ...]) -> OptionTexts:
    """The options of a question (cached: questions of one run repeat theirs)."""
    return OptionTexts(options)
