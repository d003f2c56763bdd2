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
    NOWHERE,
    Place,
    Term,
    by_name,
    folded,
    holds_at,
    singular,
    split_camel_case,
    terms,
    words_within,
)

SIDES = frozenset({"left", "right", "bilateral", "l", "r", "lt", "rt", "sided"})
SIDED = frozenset(
    {"ventricle", "atrium", "ventricular", "atrial", "bundle", "coronary", "heart", "cardiac", "lobe", "colon"}
)
"""Words beside which left and right are part of the name, not a side of a paired organ."""
PART_OF_A_NAME, NO_FINDING, DESCRIBES = "part of a name", "names no finding", "describes a finding"
DASHES = "-‐‑‒–—−﹣－"
DASH = re.compile(rf"[{DASHES}]")
DASH_AS_SIGN = re.compile(r"^\W*-|-\W*$|[(\[{/:=]\s*-|-\s*[)\]}]|-\s*-|-\s*ve\b|\s-\w|\w-\s", re.IGNORECASE)
SIGN = re.compile(r"[^\w\s\-.,()/&:'’°]|:\s*[\d-]|^\W*:|:\W*$|\d\.\d|\(\s*\d\s*\)|^\(.*\)$|^'.*'$|\.\.|\bv\.|^_|_$")
ENDING = re.compile(r"(?<=\w)[.,;]\s*$")


@dataclass(frozen=True)
class Label:
    """A label as read. `problem`: why it is no plain positive finding, "" where it is; `term`: its concept, None where the vocabulary
    does not know it, or it was refused; `side`: left, right, bilateral, or ""."""

    text: str
    term: Term | None = None
    side: str = ""
    problem: str = ""


@cache
def read_label(text: str, place: Place = NOWHERE) -> Label:
    """The meaning of a data set's label for an image.

    >>> label = read_label("Left pleural effusion")
    >>> label.term.concept, label.side, label.problem
    ('pleural effusion', 'left', '')
    >>> read_label("Pneumonia?").problem, read_label("no pneumothorax").problem, read_label("our grade III").problem
    ("holds the sign '?'", "is negated ('no')", '')
    """
    shown = " ".join(text.split())
    problem = _problem(unicodedata.normalize("NFKC", shown))
    if problem:
        return Label(shown, problem=problem)
    term, side = _concept(shown, place)
    return Label(shown, term, side)


@cache
def read_finding(text: str, place: Place = NOWHERE) -> Label:
    """`read_label` of a finding as reports write it: words of size, degree, side and place may stand beside a concept. A label in which any
    other word stands beside one is refused, since it may say that the finding is not there.

    >>> read_finding("small left pneumothorax at the apex").term.concept, read_finding("hardly any pneumothorax").problem
    ('pneumothorax', "holds words beside 'pneumothorax' that may change what it says")
    """
    label = read_label(text, place)
    if label.term or label.problem:
        return label
    words = folded(split_camel_case(text)).split()
    spans = [(at, at + size) for size in range(len(words) - 1, 0, -1) for at in range(len(words) - size + 1)]
    for start, stop in spans:
        beside = set(words[:start] + words[stop:]) - _group(DESCRIBES) - SIDES
        # A bare word ("mass") beside an organ is of that organ, not of the one that its place makes of it.
        core = read_label(" ".join(words[start:stop]), NOWHERE if beside else place).term
        if core is not None and core.kind == "finding" and all(map(_is_anatomy, beside)):
            return Label(label.text, core, without_side(text)[1])
    known = words_within(text, "finding") or [term for word in words if (term := _bare(word, place))]
    if known:
        return Label(label.text, problem=f"holds words beside {known[0].concept!r} that may change what it says")
    return label


def _is_anatomy(word: str) -> bool:
    known = by_name("organ", "region", "site", "position")
    return word in known or singular(word) in known


def key_of(text: str, place: Place = NOWHERE) -> str:
    """Labels with one key are spellings of one: the concept where it is known, else the folded words in the singular; with the side."""
    label = read_label(text, place)
    if label.term is not None:
        return " ".join((label.side, folded(label.term.concept))).strip()
    return " ".join(map(singular, folded(text).split()))


def without_side(text: str) -> tuple[str, str]:
    """(the folded text without left and right, the side); words of which a side is part of the name stay as they are."""
    words = folded(split_camel_case(text)).split()
    if SIDED & set(words):
        return " ".join(words), ""
    sides = [word for word in words if word in SIDES - {"sided"}]
    side = {"l": "left", "lt": "left", "r": "right", "rt": "right"}.get(sides[0], sides[0]) if sides else ""
    return " ".join(word for word in words if word not in SIDES), side if len(set(sides)) < 2 else "bilateral"


def _concept(text: str, place: Place) -> tuple[Term | None, str]:
    plain, side = without_side(text)
    for candidate, found_side in ((folded(text), ""), (folded(split_camel_case(text)), ""), (plain, side)):
        for name in (candidate, " ".join(map(singular, candidate.split()))):
            term = by_name("finding", "organ").get(name) or _bare(name, place)
            if term is not None:
                return term, found_side
    return None, ""


def _bare(name: str, place: Place) -> Term | None:
    """The concept of a word that means it only beside certain regions and modalities; None where none or several fit."""
    found = [term for term in _bare_words().get(name, ()) if holds_at(term, place)]
    return found[0] if len(found) == 1 else None


@cache
def _bare_words() -> dict[str, list[Term]]:
    found: dict[str, list[Term]] = {}
    for term in terms("finding", "organ"):
        for word in term.bare:
            found.setdefault(folded(word), []).append(term)
    return found


def needs_of(text: str) -> str:
    """What a data set has to state so that a bare word is unambiguous; "" if it is not a bare word."""
    held = _bare_words().get(without_side(text)[0], ())
    return "; ".join(f"{term.concept}: {', '.join(term.needs)}" for term in held)


@cache
def _problem(text: str) -> str:
    """Why a text is no plain positive finding; "" where it is."""
    if not folded(text):
        return "is empty"
    if not re.search(r"[^\W\d_]", text):
        return "is a number"
    if any(sign.isalpha() and not unicodedata.name(sign, "").startswith(("LATIN", "GREEK")) for sign in text):
        return "is not in Latin letters: negation and doubt would not be recognized"
    plain = ENDING.sub("", DASH.sub("-", text))
    if DASH_AS_SIGN.search(plain):
        return "has a dash as a sign"
    words = folded(split_camel_case(plain)).split()
    if folded(plain) in by_name("finding", "organ"):
        words = []
    cue = next(_cues(words, plain), None)
    if cue is not None:
        return cue
    if words and set(words) <= _group(NO_FINDING):
        return "names no finding"
    sign = SIGN.search(plain)
    if sign is not None and not (sign[0] == "/" and folded(plain) in by_name("finding", "organ")):
        return f"holds the sign {sign[0]!r}"
    if "/" in plain and words:
        return "names alternatives (a slash)"
    return ""


@cache
def _group(name: str) -> frozenset[str]:
    return frozenset(next(word for word in terms("cue") if word.concept == name).names)


SENTENCE = {
    "negated": "is negated", "uncertain": "is uncertain", "not current": "is not of now", "normal": "says that something is normal",
    "signed": "is signed",
}  # fmt: skip


def cues_in(text: str) -> list[tuple[str, str]]:
    """(kind of cue, the words) of everything in a text that denies, questions or dates what it names."""
    words = folded(split_camel_case(text)).split()
    return [(kind, " ".join(words[at : at + size])) for kind, at, size in _spans(tuple(words))]


def _cues(words: list[str], text: str) -> Iterator[str]:
    for kind, at, size in _spans(tuple(words)):
        yield f"{SENTENCE[kind]} ({' '.join(words[at : at + size])!r})"
    for word in words:
        glued = _glued(word)
        if glued:
            yield f"is negated or uncertain ({glued!r})"


@cache
def _spans(words: tuple[str, ...]) -> tuple[tuple[str, int, int], ...]:
    """(kind, position, number of words) of every cue in a text, but for those in the name of a known term."""
    masked = set(_masked(words, _names_with_cues()))
    found = []
    for kind, pattern, starts, ends in _patterns():
        size = len(pattern)
        for at in range(len(words) - size + 1):
            if (starts and at) or (ends and at + size != len(words)) or masked & set(range(at, at + size)):
                continue
            if all(_matches(word, wanted) for word, wanted in zip(words[at : at + size], pattern, strict=True)):
                found.append((kind, at, size))
    return tuple(sorted(found, key=lambda each: each[1]))


def _matches(word: str, wanted: str) -> bool:
    return word.startswith(wanted[:-1]) if wanted.endswith("*") else word == wanted


def _masked(words: tuple[str, ...], names: Iterable[tuple[str, ...]]) -> Iterator[int]:
    for name in names:
        for at in range(len(words) - len(name) + 1):
            if words[at : at + len(name)] == name:
                yield from range(at, at + len(name))


@cache
def _patterns() -> tuple[tuple[str, tuple[str, ...], bool, bool], ...]:
    """(kind, words, only at the start, only at the end) of every cue."""
    found = []
    for term in terms("cue"):
        for cue in term.synonyms if term.concept in SENTENCE else ():
            body = tuple(cue.strip("^$").casefold().split())
            found.append((term.concept, body, cue.startswith("^"), cue.endswith("$")))
    return tuple(found)


@cache
def _names_with_cues() -> tuple[tuple[str, ...], ...]:
    """Names that hold a cue word and mean no denial: `normal pressure hydrocephalus`, `clear cell`."""
    given = next(term for term in terms("cue") if term.concept == PART_OF_A_NAME).synonyms
    known = [name for term in terms("finding", "organ") for name in term.names]
    return tuple(tuple(name.split()) for name in (*map(folded, given), *(name for name in known if " " in name)))


BEGINNINGS = (
    "no", "non", "not", "without", "possible", "possibly", "probable", "suspected", "likely", "maybe", "questionable", "resolved",
    "negative", "absent", "normal", "pseudo",
)  # fmt: skip
ENDINGS = ("free", "negative", "neg", "absent", "less", "like")


def _glued(word: str) -> str:
    """A word that joins a cue and a finding or organ, as folders and columns are named: `nopneumonia`, `tumorfree`, `edema0`; "" for
    any other."""
    if word in by_name("finding", "organ") or word in _group(PART_OF_A_NAME):
        return ""
    rests = [word.removeprefix(cue) for cue in BEGINNINGS] + [word.removesuffix(cue) for cue in (*ENDINGS, "0", "1")]
    return word if any(rest != word and len(rest) > 3 and rest in _words_of_names() for rest in rests) else ""


@cache
def _words_of_names() -> frozenset[str]:
    names = by_name("finding", "organ", "region", "site").keys() | _bare_words().keys() | _group(NO_FINDING)
    return frozenset(word for name in names for word in name.split())
