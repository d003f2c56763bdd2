"""Find option texts in a response, as sequences of normalized words, including their synonyms.

Words are compared regardless of case, plural, British spelling and trailing decimal zeros. Signs
next to numbers (`<`, `-`, `%`) and a sign that ends a word ("ER-", "contrast +") are separate
tokens, so `< 50%` is never read as `>= 50%`, or `2-1` as `2+1`.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

from eval_harness.reader.text import CJK_RANGES, normalize_text
from eval_harness.reader.yes_no import YES_NO_TRANSLATIONS

_TOKEN = re.compile(
    rf"\d+(?:\.\d+)*(?![^\W_{CJK_RANGES}])|[{CJK_RANGES}]|[^\W_{CJK_RANGES}]+"
    r"|[<>]=|[<>=±√π°%^]|(?P<status>\([+\-]\)|[+\-](?:(?<=[^\W_].)(?=$|[\s,.;:)\]\"'])(?!\s?\d)"
    r"|(?<=[^\W_] .)(?=\s*(?:$|[,.;:()\]\"'\n]))))"
    r"|[+\-](?=\s?(?:\.?\d|[√π(]))"
    r"|\*(?=\s?[\w(√])|/(?=\s?[\d√π(])"
)  # fmt: skip
_BRITISH_LETTER = re.compile(
    r"(?<=\w)a(?=em)|^o(?=edem|esoph|estr)|(?<=rrh)o(?=e)|(?<=pn)o(?=e)|(?<=^f)(?:o(?=et)"
    r"|a(?=ec))|(?<=^c)a(?=ec)"
    r"|(?<=p)a(?=ed)"
    r"|(?<=an)a(?=esth)|^a(?=etiol)|(?<=tumo|colo)u(?=r)"
)
_RE_ENDING = re.compile(r"(?:(?<=met|lit|fib|tit)|(?<=cent))re$")
DIGITS_BY_NUMBER_WORD = {
    word: str(number)
    for number, word in enumerate(("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"), 2)
}  # fmt: skip
"""Number word -> digits. "one" is left out: it is an everyday word."""

_STATUS_SIGNS = {"+": "positive", "(+)": "positive", "-": "negative", "(-)": "negative"}


def word_set(words: str) -> frozenset[str]:
    """Return the set of the words of a string."""
    return frozenset(words.split())


@lru_cache(maxsize=65536)
def normalize_word(word: str) -> str:
    """Return the canonical form of a word for comparison.

    Lower case, American spelling, singular; number words as digits, numbers without a zero decimal
    part ("2.0" -> "2").
    """
    word = word.strip(" ()").lower()
    if word[:1].isdigit():
        return re.sub(r"\.0+$", "", word)
    if not word.isalpha() or len(word) < 3:
        return word
    if word in DIGITS_BY_NUMBER_WORD:
        return DIGITS_BY_NUMBER_WORD[word]
    word = _RE_ENDING.sub("er", _BRITISH_LETTER.sub("", word))
    if len(word) > 3 and word.endswith(("ae", "i")):  # "vertebrae", "nevi"
        return word[:-1] if word.endswith("ae") else word[:-1] + "us"
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith("is") or (len(word) > 5 and word.endswith(("ses", "xes", "ches", "shes"))):
        return word[:-2]
    return word[:-1]


class Tokens(NamedTuple):
    """The tokens of a text: canonical forms and their matches in the text."""

    words: tuple[str, ...]
    matches: list[re.Match[str]]

    def start(self, index: int) -> int:
        return self.matches[index].start()

    def end(self, index: int) -> int:
        return self.matches[index].end()


def tokenize(text: str) -> Tokens:
    """Tokenize a normalized text (`text.normalize_text`)."""
    matches = list(_TOKEN.finditer(text))
    return Tokens(
        tuple([_STATUS_SIGNS[match[0]] if match.lastgroup else normalize_word(match[0]) for match in matches]),
        matches,
    )


_ARTICLES = ("the", "a", "an")
_LEADING_ARTICLE = re.compile(r"\W*(?:[Tt]he|THE|an?|An?(?= [a-z]))\s+\w")
"""A leading article; "A" before a capital may be an option letter and does not match."""
_TRAILING_ABBREVIATION = re.compile(r"(.*?\w)\s*\(([A-Za-z][A-Za-z0-9-]{1,9})\)(.*)", re.DOTALL)
_TRAILING_EXPLANATION = re.compile(r"(\S.{1,60}?)\s*\((\S{2,}\s[^()]+)\)\W*")
"""An option with an explanation in brackets: either part names it ("Grade 2 (osteophytes)")."""
_EVERYDAY_ABBREVIATIONS = word_set(
    "ai all am an and are as at be by can do due ex for go had has he her his if in is it me may "
    "my no nor not "
    "of off on one or our out per so the to up us use via vs was we who di el es et la le los ma "
    "mi nos se si "
    "son su te tu un und ist der die das oh ok hi dr mr"
)
"""Everyday words that are not taken for abbreviations in lower case."""
_MODALITIES = (
    ("ct", "computed tomography", "computer tomography"),
    ("mri", "magnetic resonance imaging", "magnetic resonance", "mr imaging", "mr"),
    ("x ray", "xray", "radiograph", "radiography", "plain film"),
    ("ultrasound", "ultrasonography", "sonography"),
    ("pet", "positron emission tomography"),
    ("oct", "optical coherence tomography"),
    ("ecg", "ekg", "electrocardiogram", "electrocardiography"),
)
"""Synonyms of each imaging modality, interchangeable within an option."""
_NONE_OF_THE_ABOVE = ("none", "of", "the", "above")
"""`text.normalize_text` rewrites "none of these options" and similar phrases to this one."""
COMMON_WORDS = word_set("yes no none all both true false other unknown present absent up down in out on off a an the")
"""Options that are everyday words.

They count only as a complete response or in a stated answer.
"""
_FORMULA_WORDS = word_set(
    "mm cm m km nm um µm ml l mg g kg cc hz khz mmhg bpm ms s min h hu pi minute hour day week "
    "month year "
    "percent degree"
)  # fmt: skip

_ABSENCE_FILLERS = (("evidence", "of"), ("sign", "of"), ("visible",), ("definite",), ("acute",))
"""Fillers allowed after "no" in an option ("no evidence of fracture" for "no fracture")."""

_SIDE_WORDS = word_set("left right both bilateral neither")
_CLAUSE_VERBS = word_set("is are was has have show")
DESCRIPTIVE_WORDS = word_set("normal abnormal healthy left right positive negative")
"""One-word options that may also describe a body part ("the heart is normal", "on the left")."""
_YES_NO_SYNONYMS = {
    kind: tuple(tokenize(word).words for word in f"{words} {YES_NO_TRANSLATIONS[kind]}".split())
    for kind, words in {
        "yes": "yes true correct affirmative yeah yep yup",
        "no": "no false incorrect nope nah",
    }.items()
}
"""Words and phrases for yes and no, as token tuples."""


class NameSpan(NamedTuple):
    """A name at tokens[start:stop] of a text; `option` is None if two options share the name."""

    option: int | None
    start: int
    stop: int


class OptionTexts:
    """The options of a question, compiled for searching in a text.

    Args:
        options: Option texts in the order shown; positions refer to this order.
    """

    def __init__(self, options: tuple[str, ...]) -> None:
        self.count = len(options)
        self.plain = tuple(normalize_text(option) for option in options)
        self.words = tuple(tokenize(option).words for option in self.plain)
        self.max_length = max(map(len, options), default=0)

    @cached_property
    def single_letter_options(self) -> dict[str, int]:
        """Letter -> position of the options whose text is one letter (blood group O, class I)."""
        return {
            words[0]: position for position, words in enumerate(self.words) if len(words) == 1 and _is_letter(words[0])
        }

    @cached_property
    def numeric(self) -> frozenset[int]:
        """Positions of the options that are numbers or formulas."""
        return frozenset(position for position, words in enumerate(self.words) if _is_numeric(words))

    @cached_property
    def yes_no(self) -> tuple[str, ...]:
        """`yes` and `no` in option order if these (or true and false) are the two options.

        Otherwise empty.
        """
        leads = tuple({"true": "yes", "false": "no"}.get(words[0], words[0]) if words else "" for words in self.words)
        return leads if set(leads) == {"yes", "no"} and self.count == 2 else ()

    @cached_property
    def names(self) -> dict[tuple[str, ...], int | None]:
        """Name (tokens) -> position of its option, or None if two options share the name."""
        exact: dict[tuple[str, ...], int | None] = {}
        alternative: dict[tuple[str, ...], int | None] = {}
        for position, words in enumerate(self.words):
            if words and not (len(words) == 1 and _is_letter(words[0])):
                exact[words] = None if words in exact else position
            for name in self._other_names(position):
                if name and name != words and not (len(name) == 1 and _is_letter(name[0])):
                    alternative[name] = position if alternative.get(name, position) == position else None
        # The exact text of an option overrides other names.
        return alternative | exact

    def _other_names(self, position: int) -> Iterator[tuple[str, ...]]:
        words = self.words[position]
        if self.yes_no:
            yield from _YES_NO_SYNONYMS[self.yes_no[position]]
        if words[:1] and words[0] in _ARTICLES and len(words) > 1:
            yield words[1:]
        if (match := _TRAILING_ABBREVIATION.fullmatch(self.plain[position])) and _abbreviates(match[2], match[1]):
            prefix, abbreviation, suffix = (tokenize(part).words for part in match.groups())
            yield from (prefix + suffix, abbreviation, abbreviation + suffix, prefix)
        for group in _MODALITIES:
            yield from _rename_modality(words, [tuple(map(normalize_word, name.split())) for name in group])
        if position == self.none_option:
            yield from (_NONE_OF_THE_ABOVE, _NONE_OF_THE_ABOVE[:1])
        if (bare := self._distinctive_words[position]) != words:
            yield bare
        if self._shared_prefix_length > 1 and len(words) > self._shared_prefix_length + 1:
            yield words[self._shared_prefix_length :]
        if self.count > 1 and (match := _TRAILING_EXPLANATION.fullmatch(self.plain[position])):
            yield from (tokenize(part).words for part in match.groups())
        if words[:1] == ("no",):
            yield from (("no", *filler, *words[1:]) for filler in _ABSENCE_FILLERS)
        if position in self.numeric and words[0] == "+":
            yield words[1:]

    @cached_property
    def none_option(self) -> int | None:
        """Position of the option "none of the above" (or "none"); the first if it occurs twice."""
        positions = [
            position
            for position, words in enumerate(self.words)
            if words in (_NONE_OF_THE_ABOVE, _NONE_OF_THE_ABOVE[:1])
        ]
        return positions[0] if len({self.words[position] for position in positions}) == 1 else None

    @cached_property
    def duplicate_texts(self) -> dict[tuple[str, ...], int]:
        """Tokens of texts that occur twice among the options -> their first position.

        47 questions of HALT-MedVQA have such a text; the text alone means the first one.
        """
        texts = [text.rstrip(".").lower() for text in self.plain]
        return {self.words[texts.index(text)]: texts.index(text) for text in texts if texts.count(text) > 1}

    @cached_property
    def sentence_options(self) -> frozenset[int]:
        """Positions of the options that are full sentences ("It is a kitchen")."""
        return frozenset(
            position for position, words in enumerate(self.words) if not _CLAUSE_VERBS.isdisjoint(words[1:-1])
        )

    @cached_property
    def are_sides(self) -> bool:
        """True if the options are left and right, possibly with "both" or "neither"."""
        return {"left", "right"} <= {" ".join(words) for words in self.words} <= _SIDE_WORDS

    @cached_property
    def _distinctive_words(self) -> tuple[tuple[str, ...], ...]:
        """Tokens of each option; numeric options lose the prefix and suffix that all of them share.

        For example "3" for "number of cells: 3", or for "3 cm".
        """
        words, prefix, suffix = (
            [option_words for option_words in self.words if re.search(r"\d", " ".join(option_words))],
            0,
            0,
        )
        shortest = min(map(len, words), default=0) if len(words) > 1 else 0
        while prefix < shortest - 1 and len({option_words[prefix] for option_words in words}) == 1:
            prefix += 1
        while suffix < shortest - 1 - prefix and len({option_words[-1 - suffix] for option_words in words}) == 1:
            suffix += 1
        bare = [option_words[prefix : len(option_words) - suffix] for option_words in words]
        shared = (*words[0][:prefix], *words[0][len(words[0]) - suffix :]) if words else ()
        units = all(word.isalpha() or word in ("%", "°", "^", "2", "3") for word in shared)
        distinctive = dict(zip(words, bare, strict=True)) if units and all(map(_is_numeric, bare)) else {}
        return tuple(distinctive.get(option_words, option_words) for option_words in self.words)

    @cached_property
    def _shared_prefix_length(self) -> int:
        """Number of tokens that all options start with ("The tumor is in the ...")."""
        return (
            sum(1 for _ in itertools.takewhile(lambda alike: len(set(alike)) == 1, zip(*self.words, strict=False)))
            if self.count > 1
            else 0
        )

    @cached_property
    def _unit(self) -> tuple[str, ...]:
        """Tokens of the unit after the number of every numeric option; empty if they differ."""
        numbers = [words for words in self.words if words and words[0][0].isdigit()]
        units = {words[1:] for words in numbers}
        return units.pop() if len(units) == 1 and len(numbers) > 1 else ()

    @cached_property
    def _names_by_first_word(self) -> dict[str, list[tuple[tuple[str, ...], int | None]]]:
        """First token -> (name, position) pairs, longest name first."""
        by_first_word: dict[str, list[tuple[tuple[str, ...], int | None]]] = {}
        for name in sorted(self.names, key=len, reverse=True):
            by_first_word.setdefault(name[0], []).append((name, self.names[name]))
        return by_first_word

    @cached_property
    def _everyday_abbreviations(self) -> frozenset[tuple[str, ...]]:
        """Abbreviations read only in capitals, since in lower case they are words ("US", "IT")."""
        return frozenset(
            name
            for name in self.names
            if len(name) == 1 and name[0] in _EVERYDAY_ABBREVIATIONS and name not in self.words
        )

    def find_exact(self, text: str) -> int | None:
        """Return the position of the option that a text names exactly, or None.

        Options with the same tokens are told apart by their characters ("180-w-y", "180-w+y").

        Args:
            text: A normalized text.
        """
        words = tokenize(text).words
        if words not in self.names and _LEADING_ARTICLE.match(text):
            words = words[1:]
        position = self.names.get(words) if len(words) <= self._max_name_words else None
        return self.plain.index(text) if position is None and words in self.names and text in self.plain else position

    @cached_property
    def _max_name_words(self) -> int:
        return max(map(len, self.names), default=0)

    def find_names(self, tokens: Tokens, text: str) -> Iterator[NameSpan]:
        """Yield the names of options in a text, without overlaps.

        Args:
            tokens: The tokens of the text.
            text: The text itself.

        Yields:
            Spans of token indices, in text order; the longest name wins.
        """
        by_first, stop = self._names_by_first_word, 0
        for index in [index for index, word in enumerate(tokens.words) if word in by_first]:
            if index >= stop and (span := self._name_at(tokens, text, index)) is not None:
                yield span
                stop = span.stop

    def _name_at(self, tokens: Tokens, text: str, start: int) -> NameSpan | None:
        words = tokens.words
        for name, option in self._names_by_first_word[words[start]]:
            stop = start + len(name)
            if words[start:stop] != name or _is_part_of_longer_name(tokens, text, start, stop, self._unit):
                continue
            # A long name may contain punctuation or a line break; a short one must be contiguous.
            if len(name) < 9 and any(
                _NAME_BREAK.search(text, tokens.end(index), tokens.start(index + 1)) for index in range(start, stop - 1)
            ):
                continue
            if name in self._everyday_abbreviations and not text[tokens.start(start) : tokens.end(start)].isupper():
                continue  # "It tells us nothing." does not name ultrasound (US)
            return NameSpan(option, start, stop)
        return None

    def others_begin_with(self, words: tuple[str, ...], excluded: Sequence[int]) -> bool:
        """Return True if several words begin other options, but none of the excluded ones.

        Args:
            words: Tokens to compare; a single token never matches.
            excluded: Positions of options that must not begin with them.
        """
        beginning = {
            position for position, option_words in enumerate(self.words) if option_words[: len(words)] == words
        }
        return len(words) > 1 and bool(beginning) and beginning.isdisjoint(excluded)


ABSENCE_ADJECTIVES = word_set(
    "suspected potential treated resolved healed excluded presumed feared suggested denied "
    "considered drained supposed so-called "
    "different hypothetical adjacent contralateral unrelated separate differential alternative "
    "near similar absent negative normal "
    "equivocal previous simulated repaired removed cured missed expected imaginary apparent"
)
"""Adjectives that make a finding absent, hypothetical or a different one."""


def _is_letter(word: str) -> bool:
    return len(word) == 1 and word.isalpha() and word.isascii()


def _is_numeric(words: Sequence[str]) -> bool:
    """Return True if the tokens are a number with its unit, or a formula."""
    if not any(word[0].isdigit() or word == "√" for word in words):
        return False
    return all(not word.isalpha() or len(word) < 3 or word in _FORMULA_WORDS for word in words)


def _abbreviates(abbreviation: str, words: str) -> bool:
    """Return True if bracketed letters abbreviate the words before them.

    Either in capitals, or as letters of the words in order ("Actinic keratosis (ak)").
    """
    if abbreviation.isupper():
        return True
    if (
        not abbreviation.isalpha()
        or abbreviation.lower() in _EVERYDAY_ABBREVIATIONS
        or len(words) < 2 * len(abbreviation)
    ):
        return False
    return re.search(rf"\b{'[a-z -]*?'.join(abbreviation.lower())}", words.lower()) is not None


def _rename_modality(words: tuple[str, ...], group: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield an option with its modality replaced by each synonym.

    Each synonym is also given without a following "scan" or "image".
    """
    for name in group:
        for index in range(len(words) - len(name) + 1):
            if words[index : index + len(name)] == name:
                prefix, suffix = words[:index], words[index + len(name) :]
                for synonym in group:
                    yield (*prefix, *synonym, *suffix)
                    if suffix in (("scan",), ("image",), ("imaging",)):
                        yield (*prefix, *synonym)
                return


_NAME_BREAK = re.compile(r"(?<!\b\w)[.!?]\s|\n|.{5}")
"""A break between two tokens that a name cannot span."""
_FACTOR_BEFORE = re.compile(r"[\dπ√]\)?\s?$")
_NON_PREFIX = re.compile(r"\bnon[- ]$")
_COMPOUND_BEFORE, _COMPOUND_AFTER = re.compile(r"[A-Z]{2,}[/-]$"), re.compile(r"[/-][A-Z]{2,}")
"""Capitals joined by a slash or hyphen: the word is part of another name ("PET/CT")."""
_NUMBER_CONTINUES = re.compile(r"[.,]\d|\s?[/√^*]\s?[\d√π(]|\s?[×*]")
UNIT_SUFFIX = re.compile(r"\s?(mm|cm|dm|m|km|µm|nm|mg|g|kg|ml|dl|l|hu|%|mmhg|bpm|min|ms)(?![^\W\d_])", re.IGNORECASE)


def _is_part_of_longer_name(
    tokens: Tokens, text: str, first_token: int, stop_token: int, unit: tuple[str, ...]
) -> bool:
    """Return True if a name is part of a longer word or number.

    For example "non-union", "PET/CT", "2-1", or "2 mm" where the options are in cm.
    """
    start, end = tokens.start(first_token), tokens.end(stop_token - 1)
    # Number words are normalized to digits, but are not written with the options' unit.
    if unit and stop_token - first_token == 1 and tokens.words[first_token].isdigit() and text[start].isalpha():
        return True  # "two" is not "2 cm"
    if tokens.words[first_token] in ("π", "√") and _FACTOR_BEFORE.search(text, max(0, start - 4), start):
        return True
    if _NON_PREFIX.search(text[max(0, start - 4) : start].lower()) or _COMPOUND_BEFORE.search(
        text, max(0, start - 8), start
    ):
        return True
    if text[end : end + 1] in "/-" and _COMPOUND_AFTER.match(text, end):
        return True
    if tokens.words[first_token][0].isdigit() or tokens.words[first_token] in _SIGN_TOKENS:
        preceding = text[max(0, start - 2) : start]
        if (
            first_token
            and tokens.words[first_token - 1] in _SIGN_TOKENS
            and tokens.end(first_token - 1) >= start - 1
            and tokens.words[first_token - 1] != "="
        ):
            return True
        if preceding[-1:] in ("/", ".", ",") and preceding[:1].isdigit():
            return True
    if tokens.words[stop_token - 1][-1].isdigit() or tokens.words[stop_token - 1] in _SIGN_TOKENS:
        if _NUMBER_CONTINUES.match(text, end) or (
            stop_token < len(tokens.words)
            and tokens.words[stop_token] in _SIGN_TOKENS - {"=", "°", "%"}
            and tokens.start(stop_token) <= end + 1
        ):
            return True
        unit_match = UNIT_SUFFIX.match(text, end) if unit else None
        return unit_match is not None and normalize_word(unit_match[1]) not in unit
    return bool(
        stop_token < len(tokens.words)
        and tokens.words[stop_token] in ("+", "-")
        and tokens.start(stop_token) <= end + 1
        and text[end : end + 1] in "+-"
    )


_SIGN_TOKENS = frozenset((">=", "<=", *"<>=±√π°%^+-*/"))


@lru_cache(maxsize=16384)
def compile_options(options: tuple[str, ...]) -> OptionTexts:
    """Compile the options of a question; cached, since the questions of a run share options.

    Args:
        options: Option texts in the order shown.
    """
    return OptionTexts(options)
