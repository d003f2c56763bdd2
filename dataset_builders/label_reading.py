"""Read what a label of a data set says: a plain positive finding of a known or unknown concept, or why it is none.

A label is taken for true of its image, so anything else than a plain name is refused: questioned, negated, signed, past, normal, one
of several possibilities, in a script that these rules cannot read. The words that refuse a label are the `cue` rows of `terms.csv`.

See also: the vocabulary (`terms.py`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from dataset_builders.terms import (
    UNKNOWN_CONTEXT,
    ImageContext,
    Term,
    applies_in_context,
    find_terms,
    load_terms,
    normalize_term,
    singular,
    split_camel_case,
    terms_by_name,
)

SIDE_WORDS = frozenset({"left", "right", "bilateral", "l", "r", "lt", "rt", "sided"})
SIDED_STRUCTURES = frozenset(
    {"ventricle", "atrium", "ventricular", "atrial", "bundle", "coronary", "heart", "cardiac", "lobe", "colon"}
)
"""Words beside which left and right are part of the name, not a side of a paired organ."""
PART_OF_NAME, NO_FINDING, DESCRIBES_FINDING = "part of a name", "names no finding", "describes a finding"
DASH_CHARACTERS = "-‐‑‒–—−﹣－"
DASH_PATTERN = re.compile(rf"[{DASH_CHARACTERS}]")
DASH_SIGN_PATTERN = re.compile(r"^\W*-|-\W*$|[(\[{/:=]\s*-|-\s*[)\]}]|-\s*-|-\s*ve\b|\s-\w|\w-\s", re.IGNORECASE)
SIGN_PATTERN = re.compile(
    r"[^\w\s\-.,()/&:'’°]|:\s*[\d-]|^\W*:|:\W*$|\d\.\d|\(\s*\d\s*\)|^\(.*\)$|^'.*'$|\.\.|\bv\.|^_|_$"
)
TRAILING_PUNCTUATION = re.compile(r"(?<=\w)[.,;]\s*$")


@dataclass(frozen=True)
class ParsedLabel:
    """A label as read. `problem`: why it is no plain positive finding, "" where it is; `term`: its concept, None where the vocabulary
    does not know it, or it was refused; `side`: left, right, bilateral, or ""."""

    text: str
    term: Term | None = None
    side: str = ""
    problem: str = ""


@cache
def parse_label(text: str, place: ImageContext = UNKNOWN_CONTEXT) -> ParsedLabel:
    """The meaning of a data set's label for an image.

    >>> label = parse_label("Left pleural effusion")
    >>> label.term.concept, label.side, label.problem
    ('pleural effusion', 'left', '')
    >>> parse_label("Pneumonia?").problem, parse_label("no pneumothorax").problem, parse_label("our grade III").problem
    ("holds the sign '?'", "is negated ('no')", '')
    """
    shown = " ".join(text.split())
    problem = _find_problem(unicodedata.normalize("NFKC", shown))
    if problem:
        return ParsedLabel(shown, problem=problem)
    term, side = _find_concept(shown, place)
    return ParsedLabel(shown, term, side)


@cache
def parse_finding(text: str, place: ImageContext = UNKNOWN_CONTEXT) -> ParsedLabel:
    """`parse_label` of a finding as reports write it: words of size, degree, side and place may stand beside a concept. A label in which
    any other word stands beside one is refused, since it may say that the finding is not there.

    >>> parse_finding("small left pneumothorax at the apex").term.concept, parse_finding("hardly any pneumothorax").problem
    ('pneumothorax', "holds words beside 'pneumothorax' that may change what it says")
    """
    label = parse_label(text, place)
    if label.term or label.problem:
        return label
    words = normalize_term(split_camel_case(text)).split()
    spans = [(at, at + size) for size in range(len(words) - 1, 0, -1) for at in range(len(words) - size + 1)]
    for start, stop in spans:
        beside = set(words[:start] + words[stop:]) - _cue_words(DESCRIBES_FINDING) - SIDE_WORDS
        # A bare word ("mass") beside an organ is of that organ, not of the one that its place makes of it.
        core = parse_label(" ".join(words[start:stop]), UNKNOWN_CONTEXT if beside else place).term
        if core is not None and core.kind == "finding" and all(map(_is_anatomy, beside)):
            return ParsedLabel(label.text, core, split_side(text)[1])
    known = find_terms(text, "finding") or [term for word in words if (term := _find_bare_term(word, place))]
    if known:
        return ParsedLabel(label.text, problem=f"holds words beside {known[0].concept!r} that may change what it says")
    return label


def _is_anatomy(word: str) -> bool:
    known = terms_by_name("organ", "region", "site", "position")
    return word in known or singular(word) in known


def label_key(text: str, place: ImageContext = UNKNOWN_CONTEXT) -> str:
    """Labels with one key are spellings of one: the concept where it is known, else the folded words in the singular; with the side."""
    label = parse_label(text, place)
    if label.term is not None:
        return " ".join((label.side, normalize_term(label.term.concept))).strip()
    return " ".join(map(singular, normalize_term(text).split()))


def split_side(text: str) -> tuple[str, str]:
    """(the folded text without left and right, the side); words of which a side is part of the name stay as they are."""
    words = normalize_term(split_camel_case(text)).split()
    if SIDED_STRUCTURES & set(words):
        return " ".join(words), ""
    sides = [word for word in words if word in SIDE_WORDS - {"sided"}]
    side = {"l": "left", "lt": "left", "r": "right", "rt": "right"}.get(sides[0], sides[0]) if sides else ""
    return " ".join(word for word in words if word not in SIDE_WORDS), side if len(set(sides)) < 2 else "bilateral"


def _find_concept(text: str, place: ImageContext) -> tuple[Term | None, str]:
    plain, side = split_side(text)
    for candidate, found_side in (
        (normalize_term(text), ""),
        (normalize_term(split_camel_case(text)), ""),
        (plain, side),
    ):
        for name in (candidate, " ".join(map(singular, candidate.split()))):
            term = terms_by_name("finding", "organ").get(name) or _find_bare_term(name, place)
            if term is not None:
                return term, found_side
    return None, ""


def _find_bare_term(name: str, place: ImageContext) -> Term | None:
    """The concept of a word that means it only beside certain regions and modalities; None where none or several fit."""
    found = [term for term in _terms_by_bare_word().get(name, ()) if applies_in_context(term, place)]
    return found[0] if len(found) == 1 else None


@cache
def _terms_by_bare_word() -> dict[str, list[Term]]:
    found: dict[str, list[Term]] = {}
    for term in load_terms("finding", "organ"):
        for word in term.bare:
            found.setdefault(normalize_term(word), []).append(term)
    return found


def describe_requirements(text: str) -> str:
    """What a data set has to state so that a bare word is unambiguous; "" if it is not a bare word."""
    held = _terms_by_bare_word().get(split_side(text)[0], ())
    return "; ".join(f"{term.concept}: {', '.join(term.needs)}" for term in held)


@cache
def _find_problem(text: str) -> str:
    """Why a text is no plain positive finding; "" where it is."""
    if not normalize_term(text):
        return "is empty"
    if not re.search(r"[^\W\d_]", text):
        return "is a number"
    if any(sign.isalpha() and not unicodedata.name(sign, "").startswith(("LATIN", "GREEK")) for sign in text):
        return "is not in Latin letters: negation and doubt would not be recognized"
    plain = TRAILING_PUNCTUATION.sub("", DASH_PATTERN.sub("-", text))
    if DASH_SIGN_PATTERN.search(plain):
        return "has a dash as a sign"
    words = normalize_term(split_camel_case(plain)).split()
    if normalize_term(plain) in terms_by_name("finding", "organ"):
        words = []
    cue = next(_describe_cues(words, plain), None)
    if cue is not None:
        return cue
    if words and set(words) <= _cue_words(NO_FINDING):
        return "names no finding"
    sign = SIGN_PATTERN.search(plain)
    if sign is not None and not (sign[0] == "/" and normalize_term(plain) in terms_by_name("finding", "organ")):
        return f"holds the sign {sign[0]!r}"
    if "/" in plain and words:
        return "names alternatives (a slash)"
    return ""


@cache
def _cue_words(name: str) -> frozenset[str]:
    return frozenset(next(word for word in load_terms("cue") if word.concept == name).names)


CUE_PROBLEMS = {
    "negated": "is negated", "uncertain": "is uncertain", "not current": "is not of now", "normal": "says that something is normal",
    "signed": "is signed",
}  # fmt: skip


def find_cues(text: str) -> list[tuple[str, str]]:
    """(kind of cue, the words) of everything in a text that denies, questions or dates what it names."""
    words = normalize_term(split_camel_case(text)).split()
    return [(kind, " ".join(words[at : at + size])) for kind, at, size in _find_cue_spans(tuple(words))]


def _describe_cues(words: list[str], text: str) -> Iterator[str]:
    for kind, at, size in _find_cue_spans(tuple(words)):
        yield f"{CUE_PROBLEMS[kind]} ({' '.join(words[at : at + size])!r})"
    for word in words:
        glued = _find_glued_cue(word)
        if glued:
            yield f"is negated or uncertain ({glued!r})"


@cache
def _find_cue_spans(words: tuple[str, ...]) -> tuple[tuple[str, int, int], ...]:
    """(kind, position, number of words) of every cue in a text, but for those in the name of a known term."""
    masked = set(_masked_positions(words, _names_with_cues()))
    found = []
    for kind, pattern, starts, ends in _cue_patterns():
        size = len(pattern)
        for at in range(len(words) - size + 1):
            if (starts and at) or (ends and at + size != len(words)) or masked & set(range(at, at + size)):
                continue
            if all(_matches_pattern(word, wanted) for word, wanted in zip(words[at : at + size], pattern, strict=True)):
                found.append((kind, at, size))
    return tuple(sorted(found, key=lambda each: each[1]))


def _matches_pattern(word: str, wanted: str) -> bool:
    return word.startswith(wanted[:-1]) if wanted.endswith("*") else word == wanted


def _masked_positions(words: tuple[str, ...], names: Iterable[tuple[str, ...]]) -> Iterator[int]:
    for name in names:
        for at in range(len(words) - len(name) + 1):
            if words[at : at + len(name)] == name:
                yield from range(at, at + len(name))


@cache
def _cue_patterns() -> tuple[tuple[str, tuple[str, ...], bool, bool], ...]:
    """(kind, words, only at the start, only at the end) of every cue."""
    found = []
    for term in load_terms("cue"):
        for cue in term.synonyms if term.concept in CUE_PROBLEMS else ():
            body = tuple(cue.strip("^$").casefold().split())
            found.append((term.concept, body, cue.startswith("^"), cue.endswith("$")))
    return tuple(found)


@cache
def _names_with_cues() -> tuple[tuple[str, ...], ...]:
    """Names that hold a cue word and mean no denial: `normal pressure hydrocephalus`, `clear cell`."""
    given = next(term for term in load_terms("cue") if term.concept == PART_OF_NAME).synonyms
    known = [name for term in load_terms("finding", "organ") for name in term.names]
    return tuple(
        tuple(name.split()) for name in (*map(normalize_term, given), *(name for name in known if " " in name))
    )


GLUED_PREFIXES = (
    "no", "non", "not", "without", "possible", "possibly", "probable", "suspected", "likely", "maybe", "questionable", "resolved",
    "negative", "absent", "normal", "pseudo",
)  # fmt: skip
GLUED_SUFFIXES = ("free", "negative", "neg", "absent", "less", "like")


def _find_glued_cue(word: str) -> str:
    """A word that joins a cue and a finding or organ, as folders and columns are named: `nopneumonia`, `tumorfree`, `edema0`; "" for
    any other."""
    if word in terms_by_name("finding", "organ") or word in _cue_words(PART_OF_NAME):
        return ""
    rests = [word.removeprefix(cue) for cue in GLUED_PREFIXES] + [
        word.removesuffix(cue) for cue in (*GLUED_SUFFIXES, "0", "1")
    ]
    return word if any(rest != word and len(rest) > 3 and rest in _words_of_names() for rest in rests) else ""


@cache
def _words_of_names() -> frozenset[str]:
    names = (
        terms_by_name("finding", "organ", "region", "site").keys()
        | _terms_by_bare_word().keys()
        | _cue_words(NO_FINDING)
    )
    return frozenset(word for name in names for word in name.split())
