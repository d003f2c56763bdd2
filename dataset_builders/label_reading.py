"""Parse labels of data sets: a plain positive finding of a known or unknown concept, or the reason
why it is not one.

A label is taken as true of its image, so anything but a plain name is refused: uncertain, negated,
signed, past, normal, one of several possibilities, or in a script that these rules cannot parse.
The words that cause a refusal are the `cue` rows of `terms.csv`.

See also: the vocabulary (`terms.py`).
"""

import re
import unicodedata
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

LATERALITY_WORDS = frozenset({"left", "right", "bilateral", "l", "r", "lt", "rt", "sided"})
SIDED_STRUCTURES = frozenset(
    {
        "ventricle",
        "atrium",
        "ventricular",
        "atrial",
        "bundle",
        "coronary",
        "heart",
        "cardiac",
        "lobe",
        "colon",
    }
)
"""Words with which left and right are part of the name rather than the side of a paired organ."""
PART_OF_NAME, NO_FINDING, DESCRIBES_FINDING = "part of a name", "names no finding", "describes a finding"
DASH_CHARACTERS = "-‐‑‒–—−﹣－"
DASH_PATTERN = re.compile(rf"[{DASH_CHARACTERS}]")
# Dashes that are not hyphens within a word: they may mean "negative", "none" or a range.
# Characters that may change a label's meaning: question marks, scores, ratios, brackets.
DASH_SIGN_PATTERN = re.compile(r"^\W*-|-\W*$|[(\[{/:=]\s*-|-\s*[)\]}]|-\s*-|-\s*ve\b|\s-\w|\w-\s", re.IGNORECASE)
SIGN_PATTERN = re.compile(
    r"[^\w\s\-.,()/&:'’°]|:\s*[\d-]|^\W*:|:\W*$|\d\.\d|\(\s*\d\s*\)|^\(.*\)$|^'.*'$|\.\.|\bv\.|^_|_$"
)
TRAILING_PUNCTUATION = re.compile(r"(?<=\w)[.,;]\s*$")


@dataclass(frozen=True)
class ParsedLabel:
    """A parsed label.

    `problem` says why it is not a plain positive finding, "" if it is. `term` is its concept; None
    if the vocabulary does not contain it or the label was refused. `side` is left, right, bilateral
    or "".
    """

    text: str
    term: Term | None = None
    side: str = ""
    problem: str = ""


@cache
def parse_label(text: str, context: ImageContext = UNKNOWN_CONTEXT) -> ParsedLabel:
    """Parse a data set's label of an image.

    Args:
        text: the label.
        context: what is known about the images; it decides what bare words mean.

    >>> label = parse_label("Left pleural effusion")
    >>> label.term.concept, label.side, label.problem
    ('pleural effusion', 'left', '')
    >>> [parse_label(text).problem for text in ("Pneumonia?", "no pneumothorax", "our grade III")]
    ["contains the sign '?'", "is negated ('no')", '']
    """
    label_text = " ".join(text.split())
    problem = _find_problem(unicodedata.normalize("NFKC", label_text))
    if problem:
        return ParsedLabel(label_text, problem=problem)
    term, side = _find_concept(label_text, context)
    return ParsedLabel(label_text, term, side)


@cache
def parse_finding(text: str, context: ImageContext = UNKNOWN_CONTEXT) -> ParsedLabel:
    """Parse a finding as reports phrase it.

    Words of size, degree, side and place may accompany a concept. Any other extra word refuses the
    label, since it may say that the finding is absent.

    Args:
        text: the phrase.
        context: what is known about the images; it decides what bare words mean.

    >>> parse_finding("small left pneumothorax at the apex").term.concept
    'pneumothorax'
    >>> parse_finding("hardly any pneumothorax").problem
    "has words beside 'pneumothorax' that may change its meaning"
    """
    label = parse_label(text, context)
    if label.term or label.problem:
        return label
    words = normalize_term(split_camel_case(text)).split()

    # Longest phrases first: "pleural effusion" must win over "effusion".
    spans = [(at, at + size) for size in range(len(words) - 1, 0, -1) for at in range(len(words) - size + 1)]
    for start, stop in spans:
        extra_words = set(words[:start] + words[stop:]) - _cue_words(DESCRIBES_FINDING) - LATERALITY_WORDS

        # Beside an organ, a bare word ("mass") belongs to that organ, so the data set's context
        # must not decide.
        core = parse_label(" ".join(words[start:stop]), UNKNOWN_CONTEXT if extra_words else context).term
        if core is not None and core.kind == "finding" and all(map(_is_anatomy, extra_words)):
            return ParsedLabel(label.text, core, split_side(text)[1])

    findings = find_terms(text, "finding") or [term for word in words if (term := _find_bare_term(word, context))]
    if findings:
        return ParsedLabel(
            label.text,
            problem=f"has words beside {findings[0].concept!r} that may change its meaning",
        )

    return label


def _is_anatomy(word: str) -> bool:
    anatomy = terms_by_name("organ", "region", "site", "position")
    return word in anatomy or singular(word) in anatomy


def label_key(text: str, context: ImageContext = UNKNOWN_CONTEXT) -> str:
    """Compute a key that is equal for different spellings of one label.

    Args:
        text: the label.
        context: what is known about the images.

    Returns:
        The side and the concept if it is known, else the normalised words in the singular.
    """
    label = parse_label(text, context)
    if label.term is not None:
        return " ".join((label.side, normalize_term(label.term.concept))).strip()
    return " ".join(map(singular, normalize_term(text).split()))


def split_side(text: str) -> tuple[str, str]:
    """Separate left and right from a label.

    Args:
        text: the label.

    Returns:
        (normalised text without the side, side). Words of which a side is part of the name stay
            unchanged.
    """
    words = normalize_term(split_camel_case(text)).split()

    # "Left ventricle" and "left lobe" name structures; their side must stay in the name.
    if SIDED_STRUCTURES & set(words):
        return " ".join(words), ""
    sides = [word for word in words if word in LATERALITY_WORDS - {"sided"}]
    side = {"l": "left", "lt": "left", "r": "right", "rt": "right"}.get(sides[0], sides[0]) if sides else ""
    return (
        " ".join(word for word in words if word not in LATERALITY_WORDS),
        side if len(set(sides)) < 2 else "bilateral",
    )


def _find_concept(text: str, context: ImageContext) -> tuple[Term | None, str]:
    plain, side = split_side(text)

    # Try the label as written before removing the side: "left ventricle" is a name of its own.
    for candidate, found_side in (
        (normalize_term(text), ""),
        (normalize_term(split_camel_case(text)), ""),
        (plain, side),
    ):
        for name in (candidate, " ".join(map(singular, candidate.split()))):
            term = terms_by_name("finding", "organ").get(name) or _find_bare_term(name, context)
            if term is not None:
                return term, found_side

    return None, ""


def _find_bare_term(name: str, context: ImageContext) -> Term | None:
    """Return the term that a bare word means in this context; None if none or several apply."""
    matches = [term for term in _terms_by_bare_word().get(name, ()) if applies_in_context(term, context)]

    # Return nothing rather than guess between several applicable terms.
    return matches[0] if len(matches) == 1 else None


@cache
def _terms_by_bare_word() -> dict[str, list[Term]]:
    terms_by_word: dict[str, list[Term]] = {}
    for term in load_terms("finding", "organ"):
        for word in term.bare:
            terms_by_word.setdefault(normalize_term(word), []).append(term)
    return terms_by_word


def describe_requirements(text: str) -> str:
    """Describe what a data set must state so that a bare word is unambiguous; "" if it is
    not one.
    """
    terms = _terms_by_bare_word().get(split_side(text)[0], ())
    return "; ".join(f"{term.concept}: {', '.join(term.needs)}" for term in terms)


@cache
def _find_problem(text: str) -> str:
    """Explain why a text is not a plain positive finding; "" if it is."""
    if not normalize_term(text):
        return "is empty"
    if not re.search(r"[^\W\d_]", text):
        return "is a number"

    # The cue words are English: a negation in another script would go unnoticed.
    if any(sign.isalpha() and not unicodedata.name(sign, "").startswith(("LATIN", "GREEK")) for sign in text):
        return "is not in Latin letters: negation and doubt would not be recognized"
    plain = TRAILING_PUNCTUATION.sub("", DASH_PATTERN.sub("-", text))
    if DASH_SIGN_PATTERN.search(plain):
        return "uses a dash as a sign"
    words = normalize_term(split_camel_case(plain)).split()

    # A name of the vocabulary may contain cue words ("normal pressure hydrocephalus").
    if is_name := normalize_term(plain) in terms_by_name("finding", "organ"):
        words = []
    for kind, at, size in _find_cue_spans(tuple(words))[:1]:
        return f"{CUE_PROBLEMS[kind]} ({' '.join(words[at : at + size])!r})"
    if glued := next(filter(_is_glued_cue, words), ""):
        return f"is negated or uncertain ({glued!r})"
    if words and set(words) <= _cue_words(NO_FINDING):
        return "names no finding"
    sign = SIGN_PATTERN.search(plain)
    if sign is not None:
        return f"contains the sign {sign[0]!r}"
    return "names alternatives (a slash)" if "/" in plain and not is_name else ""


@cache
def _cue_words(name: str) -> frozenset[str]:
    return frozenset(next(word for word in load_terms("cue") if word.concept == name).names)


CUE_PROBLEMS = {
    "negated": "is negated", "uncertain": "is uncertain", "not current": "is not current", "normal": "states that something is normal",
    "signed": "is signed",
}  # fmt: skip


def find_cues(text: str) -> list[tuple[str, str]]:
    """Find all words that negate, question or date what a text names.

    Args:
        text: free text.

    Returns:
        (kind of cue, matched words) in order.
    """
    words = normalize_term(split_camel_case(text)).split()
    return [(kind, " ".join(words[at : at + size])) for kind, at, size in _find_cue_spans(tuple(words))]


@cache
def _find_cue_spans(words: tuple[str, ...]) -> tuple[tuple[str, int, int], ...]:
    """Return (kind, position, number of words) of every cue outside the names of known terms."""
    # Cue words inside known names do not count.
    masked = {
        position
        for name in _names_with_cues()
        for at in range(len(words) - len(name) + 1)
        if words[at : at + len(name)] == name
        for position in range(at, at + len(name))
    }
    spans = []
    for kind, pattern, starts, ends in _cue_patterns():
        size = len(pattern)
        for at in range(len(words) - size + 1):
            if (starts and at) or (ends and at + size != len(words)) or masked & set(range(at, at + size)):
                continue
            if all(
                _matches_pattern(word, pattern_word)
                for word, pattern_word in zip(words[at : at + size], pattern, strict=True)
            ):
                spans.append((kind, at, size))

    return tuple(sorted(spans, key=lambda span: span[1]))


def _matches_pattern(word: str, pattern: str) -> bool:
    return word.startswith(pattern[:-1]) if pattern.endswith("*") else word == pattern


@cache
def _cue_patterns() -> tuple[tuple[str, tuple[str, ...], bool, bool], ...]:
    """Return (kind, words, only at the start, only at the end) of every cue."""
    patterns = []
    for term in load_terms("cue"):
        for cue in term.synonyms if term.concept in CUE_PROBLEMS else ():
            body = tuple(cue.strip("^$").casefold().split())
            patterns.append((term.concept, body, cue.startswith("^"), cue.endswith("$")))
    return tuple(patterns)


@cache
def _names_with_cues() -> tuple[tuple[str, ...], ...]:
    """Return the words of names in which a cue negates nothing (normal pressure hydrocephalus)."""
    term_names = {name for term in load_terms("finding", "organ") for name in term.names if " " in name}
    return tuple(tuple(name.split()) for name in term_names | _cue_words(PART_OF_NAME))


GLUED_PREFIXES = (
    "no", "non", "not", "without", "possible", "possibly", "probable", "suspected", "likely", "maybe", "questionable", "resolved",
    "negative", "absent", "normal", "pseudo",
)  # fmt: skip
GLUED_SUFFIXES = ("free", "negative", "neg", "absent", "less", "like", "0", "1")


def _is_glued_cue(word: str) -> bool:
    """Return True if a word joins a cue and a finding or organ.

    Folders and columns are named like this: `nopneumonia`, `tumorfree`, `edema0`.
    """
    if word in terms_by_name("finding", "organ") or word in _cue_words(PART_OF_NAME):
        return False

    # The remainder must itself be a known word of more than three letters, to avoid chance matches.
    remainders = [word.removeprefix(cue) for cue in GLUED_PREFIXES]
    remainders += [word.removesuffix(cue) for cue in GLUED_SUFFIXES]
    return any(remainder != word and len(remainder) > 3 and remainder in _words_of_names() for remainder in remainders)


@cache
def _words_of_names() -> frozenset[str]:
    names = (
        terms_by_name("finding", "organ", "region", "site").keys()
        | _terms_by_bare_word().keys()
        | _cue_words(NO_FINDING)
    )
    return frozenset(word for name in names for word in name.split())
