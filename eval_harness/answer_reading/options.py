"""The options of a question made ready to be found in a response: their texts, other names for them, and the words that tell them apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from dataset_builders.schema import LETTERS
from eval_harness.answer_reading.plain_text import CJK, exact, has_status, spell_out, spell_status
from eval_harness.answer_reading.words import NEVER, Phrase, first_letters, phrase_of_options, words_in

_ABBREVIATED = re.compile(r"(.*?\w)\s*\(([A-Z][A-Za-z0-9-]{1,9})\)(.*)", re.DOTALL)
_WORD = re.compile(r"\d+(?:\.\d+)+(?![^\W_])|[^\W_]+")
_TOO_COMMON = frozenset(
    {"yes", "no", "none", "all", "both", "true", "false", "other", "others", "unknown", "present", "absent"}
)
"""Options that are everyday words: named only where the response leads with them or an answer statement does."""


STOP = words_in("the of in on at to and or with for by from is are was be an as it its this that into other than both")
_NEGATIVE = frozenset({"no", "not", "without", "absence", "absent", "negative", "none", "non"})
_IRREGULAR = {"torn": "tear", "broken": "break", "bled": "bleed", "swollen": "swell", "grown": "grow"}
_REGULAR = {stem: word for word, stem in _IRREGULAR.items()}
_SUFFIX = re.compile(
    r"(?:ication|isation|ization|ations?|ements?|ances?|ancy|ants?|ions?|ities|ity|ures?|ured|uring|ings?|ously|ial|ally|al|ly|(?<=\w{4})at(?:ed|es?|ing)"
    r"|ified|ify|ies|ied|edly|ed|es|e|s|y|ous|ive)$"
)


_DOUBLED = re.compile(r"(?<=\w\w)([bdgmnprt])\1$")
"""A consonant that "-ing" and "-ed" double (stopping, stop)."""


@lru_cache(maxsize=16384)
def stem(word: str) -> str:
    """A crude stem: "fractured" and "fracture", "dislocation" and "dislocated" come out the same; short words and numbers stay."""
    word = _IRREGULAR.get(word, word)
    if not word.isalpha() or len(word) < 4 or word.endswith("iae"):
        return word
    cut = _SUFFIX.sub("", word, count=1)
    if len(cut) >= 4:
        return _DOUBLED.sub(r"\1", cut)
    return word[:-1] if word[-1] in "se" and len(word) > 4 else word


@dataclass(frozen=True, slots=True, eq=False)
class OptionTexts:
    """Options ready to be found in a text. `pattern` finds them, longest first; `index` maps the words found to the option (None where two
    options read the same); `common` are options that are everyday words, `negative` those that begin with a negation; `longest` is the
    most characters an option has; `lone` are options that are one letter; `leads` the first words; `stems` are the stems of each
    option's words, `heads` those before its first comma ("femoral neck fracture, Garden II"), `telling` those that no other option has,
    `known` all of them, denied or not (`beginnings`: how words with these stems begin); `exact` maps options as formulas to them
    (`exact_begins`: their first characters); `numeric` are options that are numbers or formulas; `status` whether options say "+" or "-"
    of a marker; `listed`: the words of the list of options, each after its letter."""

    words: tuple[tuple[str, ...], ...]
    pattern: Phrase
    index: dict[str, int | None]
    common: frozenset[int]
    negative: frozenset[int]
    stems: tuple[frozenset[str], ...]
    heads: tuple[frozenset[str], ...]
    telling: tuple[frozenset[str], ...]
    known: frozenset[str]
    beginnings: frozenset[str]
    longest: int
    lone: dict[str, int]
    leads: tuple[str, ...]
    exact: dict[str, int | None]
    exact_begins: frozenset[str]
    numeric: frozenset[int]
    status: bool
    listed: str


def words_of(text: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORD.findall(spell_out(text)))


@lru_cache(maxsize=64)
def plain_words(text: str) -> str:
    """The words of a text that has been made plain, as `OptionTexts.index` has them."""
    return " ".join(_WORD.findall(text.lower()))


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


def _aliases(options: tuple[str, ...]) -> dict[str, int | None]:
    """Other names of options that carry an abbreviation in brackets ("Anteroposterior (AP) view": "AP", "AP view", "anteroposterior
    view"); None for a name that two options would share."""
    names: dict[str, int | None] = {}
    for position, option in enumerate(options):
        match = _ABBREVIATED.fullmatch(option) if "(" in option else None
        if match is None or not match[2].isupper():
            continue
        for name in (match[1], match[2], f"{match[2]} {match[3]}", f"{match[1]} {match[3]}"):
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
_MODALITY_ENDS = frozenset({"scan", "scans", "image", "images", "imaging"})


def _modality_names(options: Sequence[tuple[str, ...]]) -> dict[str, int | None]:
    """Other names of options that name a modality: "computed tomography" for "CT", "chest radiograph" for "chest X-ray"; None for a name
    that two options would share."""
    names: dict[str, int | None] = {}
    for position, option in enumerate(options):
        for group in _MODALITIES:
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
    places = [position for position, option in enumerate(options) if _NONE.fullmatch(" ".join(option))]
    return dict.fromkeys(_NONE_NAMES, places[0]) if len(places) == 1 else {}


_WORDS_TO_TWELVE = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
NUMBER_WORDS = dict(zip(_WORDS_TO_TWELVE, map(str, range(1, 13)), strict=True))
_BOUNDS = frozenset({"minus", "plus", "lessthan", "morethan", "atleast", "atmost", "plusminus"})
_UNITS = words_in(
    "percent degrees celsius fahrenheit mm cm m km nm um µm ml l mg g kg cc hz khz mmhg bpm ms s min hu frac sqrt cdot times pi text"
    " mathrm"
)


def _number_names(options: Sequence[tuple[str, ...]], numeric: frozenset[int]) -> dict[str, int | None]:
    """Other names of options that are numbers: "3" for "three" and back (not "one", which is an everyday word), "45" for "45 degrees"
    where every option has that unit, "1" for "+1"."""
    names: dict[str, int | None] = {}
    digits = {digit: word for word, digit in NUMBER_WORDS.items() if digit != "1"}
    units = {option[-1] for option in options if option}
    same_unit = len(units) == 1 and units <= _UNITS
    for position, option in enumerate(options):
        others = []
        if len(option) == 1:
            others += [other for names_of in (NUMBER_WORDS, digits) if (other := names_of.get(option[0]))]
        if position in numeric and same_unit and len(option) > 1:
            others.append(" ".join(option[:-1]))
        if position in numeric and option[0] == "plus":
            others.append(" ".join(option[1:]))
        for other in others:
            names[other] = position if other not in names else None
    return names


def _is_numeric(option: str, words: tuple[str, ...]) -> bool:
    """Whether an option is a number with its unit, or a formula."""
    if not words or not (any(word[0].isdigit() for word in words) or "\\" in option or words[0] in NUMBER_WORDS):
        return False
    return all(word[0].isdigit() or len(word) < 3 or word in _UNITS | _BOUNDS | NUMBER_WORDS.keys() for word in words)


@lru_cache(maxsize=65536)
def option_texts(options: tuple[str, ...]) -> OptionTexts:
    """Compile the options of a question (cached: questions of one run repeat theirs)."""
    status = any(has_status(option) for option in options)
    words = tuple(words_of(spell_status(option) if status else option) for option in options)
    numeric = frozenset(i for i, option in enumerate(options) if _is_numeric(option, words[i]))
    index: dict[str, int | None] = {}
    for position, option in enumerate(words):
        key = " ".join(option)
        if not key or (len(key) == 1 and key.isalpha()):
            continue
        index[key] = None if key in index else position
    for alias, place in (
        _aliases(options) | _number_names(words, numeric) | _modality_names(words) | _none_names(words)
    ).items():
        index.setdefault(alias, place)
    formulas: dict[str, int | None] = {}
    for position, text in enumerate(options):
        key = exact(text)
        if key and not (len(key) == 1 and key.isalpha()):
            formulas[key] = None if key in formulas else position
    common = frozenset(i for i, option in enumerate(words) if len(option) == 1 and option[0] in _TOO_COMMON)
    negative = frozenset(i for i, option in enumerate(words) if option and option[0] in _NEGATIVE)
    own = tuple(
        _stems(option) if i not in common | negative | numeric and not has_status(options[i]) else frozenset()
        for i, option in enumerate(words)
    )
    telling = tuple(stems - frozenset().union(*own[:i], *own[i + 1 :]) for i, stems in enumerate(own))
    longest = max(map(len, options), default=0)
    leads = tuple(option[0] if option else "" for option in words)
    if set(leads) == {"true", "false"}:
        leads = tuple("yes" if lead == "true" else "no" for lead in leads)
    lone = {
        option[0]: i
        for i, option in enumerate(words)
        if len(option) == 1 and len(option[0]) == 1 and option[0].isalpha()
    }
    found = NEVER
    if index:
        pattern = "|".join(_pattern(key.split(" ")) for key in sorted(index, key=len, reverse=True))
        first = " ".join(" ".join(_forms(key.split(" ")[0])) for key in index)
        longest_words = " ".join(" ".join(_forms(max(key.split(" "), key=len))) for key in index)
        anywhere = re.compile(rf"(?<!\d[.,])(?<!non-)(?<!non )(?:{pattern})", re.IGNORECASE)
        found = phrase_of_options(anywhere, first, longest_words)
    listed = " ".join(" ".join((letter.lower(), *option)) for letter, option in zip(LETTERS, words, strict=False))
    status = status or any(option[-1:] in (("positive",), ("negative",)) and len(option) > 1 for option in words)
    known = frozenset(word.removeprefix(DENIED) for stems in own for word in stems)
    return OptionTexts(
        words,
        found,
        index,
        common,
        negative,
        own,
        _heads(options, own),
        telling,
        known,
        first_letters(" ".join(f"{stem} {stem}{stem[-1]} {_REGULAR.get(stem, '')}" for stem in known)),
        longest,
        lone,
        leads,
        formulas,
        frozenset(key[0] for key in formulas),
        numeric,
        status,
        listed,
    )


def _heads(options: Sequence[str], own: Sequence[frozenset[str]]) -> tuple[frozenset[str], ...]:
    """The stems before the first comma of each option; none where it has no comma, or another option has them all."""
    heads = [_stems(words_of(option.partition(",")[0])) if "," in option else frozenset() for option in options]
    return tuple(
        head
        if len(head) > 1 and own[i] and not any(head <= other for other in (*own[:i], *own[i + 1 :]))
        else frozenset()
        for i, head in enumerate(heads)
    )


def _forms(word: str) -> tuple[str, ...]:
    """How a word of an option may begin in a text: as it is, or in the plural ("lyses")."""
    return (word, word + "s", word + "es", word[:-2] + "es" if word.endswith("sis") else word)


_UNBOUND = "".join(rf"(?<!{word} )" for word in sorted(_BOUNDS - {"plus"})) + r"(?<!\d/)"


_WIDE = re.compile(rf"[{CJK}]")
"""Scripts without blanks between words."""


def _pattern(words: Sequence[str]) -> str:
    body = r"[\W_]{1,4}".join(re.escape(word) for word in words)
    if words[0] == "no" and len(words) > 1:
        body = body.replace(r"[\W_]{1,4}", rf"[\W_]{{1,4}}(?:(?:{_MERELY})[\W_]{{1,4}})?", 1)
    plural = "" if words[-1][-1].isdigit() or len(words[-1]) == 1 else "(?:e?s)?"
    if words[-1].endswith("sis"):  # metastasis, metastases
        body, plural = body[:-2], "[ie]s"
    decimal = r"(?![.,]\d)(?!\s?/\d)" if words[-1][-1].isdigit() else ""
    starts = "" if _WIDE.match(words[0][0]) else r"(?<![^\W_])"
    ends = "" if _WIDE.match(words[-1][-1]) else rf"{plural}(?![^\W_]){decimal}"
    return rf"{starts}{_UNBOUND if words[0][0].isdigit() else ''}{body}{ends}"


_MERELY = r"(?:obvious |clear )?(?:evidence|signs?) of|acute|definite|obvious|significant|visible|clear"
"""What may stand between "no" and the rest of an option ("no acute fracture" for "no fracture")."""
_MERELY_NO = re.compile(rf"^no (?:{_MERELY}) ")


@lru_cache(maxsize=4096)
def named_option(found: str, options: OptionTexts) -> int | None:
    """The option whose words were found (a plural ending may have been added); None where two read the same."""
    key = " ".join(words_of(found))
    if key not in options.index:
        key = _MERELY_NO.sub("no ", key)
    for candidate in (key, key.removesuffix("s"), key.removesuffix("es"), key.removesuffix("es") + "is"):
        if candidate in options.index:
            return options.index[candidate]
    return None
