"""The one vocabulary of medical terms: `terms.csv`, and what follows from it.

Kinds of rows: `region` of the body (`related`: regions of which one picture may show part of the other), `organ`, `finding`, `site`
(words that tell only a region: its parts, adjectives), `modality`, `technique` (words that tell only a modality: its kinds),
`department`, `task`, `position` (`parents`: the axis on which positions exclude one another) and `cue` (words that make a label no plain
positive finding). Synonyms may stand for one another in a question; what is a kind or a part is a row of its own. A `bare` word names its
concept only where everything known of the data set (`ImageContext`) is among the regions and modalities in `needs`: "mass" is a breast mass
in mammography and a pulmonary mass on a chest film. `excludes` states the only findings that rule one another out. An id of MeSH or RadLex
stands only where it was read from the file that `vocabulary` names.

See also: what a label says (`label_reading.py`).
"""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

TERMS_FILE = Path(__file__).with_name("terms.csv")
ANY_REGION = "any"
"""The region of what can be anywhere, and the neighbour of a region that borders on every other."""
LIST_SEPARATOR = re.compile(r"\s*;\s*")
CAMEL_CASE_BOUNDARY = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])|(?<=[a-z]{2})(?=[A-Z]{2})|(?<=[A-Z]{2})(?=[A-Z][a-z]{3})")


@dataclass(frozen=True)
class Term:
    """A row of the table; lists are tuples in the table's order."""

    kind: str
    concept: str
    synonyms: tuple[str, ...]
    bare: tuple[str, ...]
    needs: tuple[str, ...]
    parents: tuple[str, ...]
    regions: tuple[str, ...]
    modalities: tuple[str, ...]
    excludes: tuple[str, ...]
    related: tuple[str, ...]
    noun: str
    window: str
    task: str
    department: str
    mesh: str
    radlex: str
    vocabulary: str

    @property
    def names(self) -> tuple[str, ...]:
        """The folded concept and synonyms, which hold in every data set."""
        return tuple(dict.fromkeys((normalize_term(self.concept), *map(normalize_term, self.synonyms))))


LIST_FIELDS = {field.name for field in fields(Term) if str(field.type).startswith("tuple")}


@dataclass(frozen=True)
class ImageContext:
    """The known origin of an image: canonical body regions and modalities, empty if unknown."""

    regions: frozenset[str] = frozenset()
    modalities: frozenset[str] = frozenset()


UNKNOWN_CONTEXT = ImageContext()


@cache
def load_terms(*kinds: str) -> tuple[Term, ...]:
    """The rows of the given kinds, of all kinds without any, in the table's order."""
    with TERMS_FILE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    made = (
        Term(**{name: _split_list(text) if name in LIST_FIELDS else text for name, text in row.items()})  # type: ignore[arg-type]
        for row in rows
        if not kinds or row["kind"] in kinds
    )
    return tuple(made)


def _split_list(text: str) -> tuple[str, ...]:
    return tuple(part for part in LIST_SEPARATOR.split(text.strip()) if part)


@cache
def normalize_term(text: str) -> str:
    """Terms are compared like this: small letters without accents, words divided by one space, no apostrophes.

    >>> normalize_term("Ménière's disease"), normalize_term("kidney_left"), normalize_term("X-Ray")
    ('menieres disease', 'kidney left', 'x ray')
    """
    plain = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(sign for sign in plain if not unicodedata.combining(sign)).replace("'", "").replace("’", "")
    return " ".join(re.findall(r"[^\W_]+", plain))


def split_camel_case(text: str) -> str:
    """Words that a folder's name joins, apart: `NoPneumothorax` -> `No Pneumothorax`."""
    return CAMEL_CASE_BOUNDARY.sub(" ", text)


def singular(word: str) -> str:
    """An English plural's singular, by its ending."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "is", "us")) else word


@cache
def terms_by_name(*kinds: str) -> Mapping[str, Term]:
    """Folded concept or synonym -> row, of the given kinds."""
    found: dict[str, Term] = {}
    for term in load_terms(*kinds):
        for name in term.names:
            found.setdefault(name, term)
    return found


@cache
def ancestors(kind: str, concept: str) -> frozenset[str]:
    """All concepts of its kind above a concept."""
    found: set[str] = set()
    waiting = [concept]
    while waiting:
        term = terms_by_name(kind).get(normalize_term(waiting.pop()))
        for parent in term.parents if term else ():
            if parent not in found:
                found.add(parent)
                waiting.append(parent)
    return frozenset(found)


# Regions of the body ---------------------------------------------------------------------------------------------------------------


def find_terms(text: str, *kinds: str) -> list[Term]:
    """The rows of the given kinds whose names stand in a text as whole words, longest first; a word belongs to one name."""
    return list(dict.fromkeys(term for held in _find_term_groups(normalize_term(text), kinds) for term in held))


@cache
def _find_term_groups(text: str, kinds: tuple[str, ...]) -> tuple[tuple[Term, ...], ...]:
    """The rows of each name in a text."""
    words = text.split()
    known: dict[str, list[Term]] = {}
    for term in load_terms(*kinds):
        for name in term.names:
            known.setdefault(name, []).append(term)
    taken = [False] * len(words)
    found: list[tuple[Term, ...]] = []
    for size in range(len(words), 0, -1):
        for at in range(len(words) - size + 1):
            span = words[at : at + size]
            held = known.get(" ".join(span)) or known.get(" ".join([*span[:-1], singular(span[-1])]))
            if held and not any(taken[at : at + size]):
                taken[at : at + size] = [True] * size
                found.append(tuple(held))
    return tuple(found)


@cache
def find_regions(text: str) -> frozenset[str]:
    """The regions of the body that a text names, itself or by an organ; of the words of several regions, each. Empty where unknown.

    >>> sorted(find_regions("left knee")), sorted(find_regions("aorta")), sorted(find_regions("thorax"))
    (['knee'], ['abdomen', 'chest'], ['chest'])
    """
    found: set[str] = set()
    for held in _find_term_groups(normalize_term(text), ("region", "organ", "site")):
        own = {term.concept for term in held if term.kind == "region"}
        found |= own or {region for term in held for region in term.regions if region != ANY_REGION}
    return frozenset(found)


def _top_region(region: str) -> str:
    above = [name for name in ancestors("region", region) if not terms_by_name("region")[normalize_term(name)].parents]
    return above[0] if above else region


def regions_overlap(some: Iterable[str], others: Iterable[str]) -> bool:
    """True where a region of the one is, or lies in, a region of the other, or `any` is among them."""
    first, second = set(some), set(others)
    if ANY_REGION in first or ANY_REGION in second:
        return True
    return any(
        one == other or one in ancestors("region", other) or other in ancestors("region", one)
        for one in first
        for other in second
    )


def regions_disjoint(some: Iterable[str], others: Iterable[str]) -> bool:
    """True where a picture of the one shows nothing of the other: all regions are known, none borders on any of the other."""
    first, second = set(some), set(others)
    if not first or not second or ANY_REGION in first or ANY_REGION in second:
        return False
    return not any(_are_adjacent(_top_region(one), _top_region(other)) for one in first for other in second)


@cache
def _are_adjacent(one: str, other: str) -> bool:
    known = terms_by_name("region")
    if normalize_term(one) not in known or normalize_term(other) not in known:
        return True
    first, second = known[normalize_term(one)].related, known[normalize_term(other)].related
    return one == other or ANY_REGION in first or ANY_REGION in second or other in first or one in second


# Modalities ------------------------------------------------------------------------------------------------------------------------


@cache
def find_modalities(text: str) -> frozenset[str]:
    """The modalities that a text names, empty where unknown.

    >>> sorted(find_modalities("contrast-enhanced CT")), sorted(find_modalities("PET/CT")), sorted(find_modalities("angiography"))
    (['CT'], ['PET/CT'], [])
    """
    found = find_terms(text, "modality", "technique")
    return frozenset(
        name for term in found for name in ([term.concept] if term.kind == "modality" else term.modalities)
    )


def modalities_disjoint(some: Iterable[str], others: Iterable[str]) -> bool:
    """True where images of the one are not images of the other: both are known, with no modality or kind of modality in common."""
    first, second = (set(each) | {up for name in each for up in ancestors("modality", name)} for each in (some, others))
    return bool(first) and bool(second) and not first & second


def parse_image_context(regions: Iterable[str], modality: str | None) -> ImageContext:
    """Body region and modality of images, from a data set's own words. A modality that shows only one region (mammography) implies it."""
    modalities = find_modalities(modality or "")
    shown = {region for name in modalities for region in terms_by_name("modality")[normalize_term(name)].regions}
    named = {region for text in regions for region in find_regions(text)}
    if shown and not (named and all(_lies_within(each, shown) for each in named)):
        named = shown
    return ImageContext(frozenset(named), modalities)


def _lies_within(region: str, regions: set[str]) -> bool:
    return region in regions or bool(ancestors("region", region) & regions)


# Findings --------------------------------------------------------------------------------------------------------------------------


def applies_in_context(term: Term, place: ImageContext) -> bool:
    """True where the bare words of a term mean it: all regions and modalities of a place are known and among those the words need."""
    regions = {need for need in term.needs if normalize_term(need) in terms_by_name("region")}
    modalities = set(term.needs) - regions
    return (
        (not regions or (bool(place.regions) and place.regions <= regions))
        and (not modalities or (bool(place.modalities) and place.modalities <= modalities))
    )  # fmt: skip


def mutually_exclusive(one: str, other: str) -> bool:
    """True where the table states that two findings rule one another out, themselves or by what they are kinds of."""
    known = terms_by_name("finding")
    first, second = ({name, *ancestors("finding", name)} for name in (one, other))

    def states(some: set[str], others: set[str]) -> bool:
        return any(
            normalize_term(name) in known and set(known[normalize_term(name)].excludes) & others for name in some
        )

    return states(first, second) or states(second, first)


def cannot_show(place: ImageContext, term: Term) -> bool:
    """True where no image of a place shows an organ or finding, since it lies in no region near (ProbMed's adversarial organs)."""
    return regions_disjoint(place.regions, term.regions)


def find_ct_window(text: str) -> str:
    """The window under which a label is shown on CT: that of the longest organ or finding named in it, else `soft tissue`."""
    found = find_terms(split_camel_case(text), "finding", "organ")
    return next((term.window for term in found if term.window), "soft tissue")


def find_task_noun(task: str) -> str:
    """Description of what a task asks for."""
    known = terms_by_name("task").get(normalize_term(task))
    return known.noun if known else task[:1].lower() + task[1:]
