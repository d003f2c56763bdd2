"""Load the vocabulary of medical terms, `terms.csv`, and derive relations between its terms.

Kinds of rows: `region` of the body (`related`: regions that may be partly visible in the same
picture), `organ`, `finding`, `site` (words that only imply a region, such as parts and adjectives),
`modality`, `technique` (words that only imply a modality), `department`, `task`, `position`
(`parents`: the axis whose positions exclude one another) and `cue` (words that make a label
something other than a plain positive finding).

Synonyms are interchangeable in a question; a subtype or part has its own row. A `bare` word means
its concept only if the regions and modalities of the data set (`ImageContext`) are known and all
listed in `needs`: "mass" is a breast mass in mammography and a pulmonary mass on a chest film.
Findings are mutually exclusive only if `excludes` lists them. MeSH and RadLex ids are given only
where they were read from the file named in `vocabulary`.

See also: parsing labels (`label_reading.py`).
"""

import csv
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

TERMS_FILE = Path(__file__).with_name("terms.csv")
ANY_REGION = "any"
"""Region of terms that can occur anywhere in the body; in `related` it means all other regions."""
# Boundaries between words (`PleuralEffusion`), before (`ChestCT`) and after abbreviations
# (`CTChest`).
CAMEL_CASE_BOUNDARY = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])|(?<=[a-z]{2})(?=[A-Z]{2})|(?<=[A-Z]{2})(?=[A-Z][a-z]{3})")


@dataclass(frozen=True)
class Term:
    """A row of the table. Lists are tuples in the table's order."""

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
        """The normalised concept and synonyms, which are valid in every data set."""
        return tuple(dict.fromkeys((normalize_term(self.concept), *map(normalize_term, self.synonyms))))


LIST_FIELDS = {field.name for field in fields(Term) if str(field.type).startswith("tuple")}


@dataclass(frozen=True)
class ImageContext:
    """What is known about the images of a data set: canonical regions and modalities, empty if
    unknown.
    """

    regions: frozenset[str] = frozenset()
    modalities: frozenset[str] = frozenset()


UNKNOWN_CONTEXT = ImageContext()


@cache
def load_terms(*kinds: str) -> tuple[Term, ...]:
    """Load the rows of the given kinds, or all rows if none is given, in the table's order."""
    with TERMS_FILE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    terms = []
    for row in rows:
        if not kinds or row["kind"] in kinds:
            lists = {name: tuple(filter(None, map(str.strip, row[name].split(";")))) for name in LIST_FIELDS}
            terms.append(Term(**(row | lists)))  # type: ignore[arg-type]
    return tuple(terms)


@cache
def normalize_term(text: str) -> str:
    """Normalise a term for comparison: lower case, no accents or apostrophes, single spaces.

    >>> normalize_term("Ménière's disease"), normalize_term("kidney_left"), normalize_term("X-Ray")
    ('menieres disease', 'kidney left', 'x ray')
    """
    plain = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(sign for sign in plain if not unicodedata.combining(sign)).replace("'", "").replace("’", "")
    return " ".join(re.findall(r"[^\W_]+", plain))


def split_camel_case(text: str) -> str:
    """Split words that a folder name joins: `NoPneumothorax` -> `No Pneumothorax`."""
    return CAMEL_CASE_BOUNDARY.sub(" ", text)


def singular(word: str) -> str:
    """Return the singular of an English word, judged by its ending."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "is", "us")) else word


@cache
def terms_by_name(*kinds: str) -> Mapping[str, Term]:
    """Return normalised concept or synonym -> row, for the given kinds."""
    by_name: dict[str, Term] = {}
    for term in load_terms(*kinds):
        for name in term.names:
            by_name.setdefault(name, term)
    return by_name


def _find_term(kind: str, concept: str) -> Term | None:
    return terms_by_name(kind).get(normalize_term(concept))


@cache
def ancestors(kind: str, concept: str) -> frozenset[str]:
    """Return all concepts above a concept.

    Args:
        kind: kind of the rows, such as "region".
        concept: name of the concept.
    """
    term = _find_term(kind, concept)
    parents = term.parents if term else ()
    return frozenset(parents).union(*(ancestors(kind, parent) for parent in parents))


# Regions of the body ------------------------------------------------------------------------------


def find_terms(text: str, *kinds: str) -> list[Term]:
    """Find terms whose names occur in a text as whole words.

    Args:
        text: free text.
        kinds: the kinds of rows to search; all if none is given.

    Returns:
        Matching rows, longest name first. Each word of the text belongs to one name only.
    """
    return list(dict.fromkeys(term for group in _find_term_groups(normalize_term(text), kinds) for term in group))


@cache
def _find_term_groups(text: str, kinds: tuple[str, ...]) -> tuple[tuple[Term, ...], ...]:
    """Return the rows of each name that occurs in a text."""
    words = text.split()
    by_name: dict[str, list[Term]] = {}
    for term in load_terms(*kinds):
        for name in term.names:
            # A name may belong to several terms, such as a region and an organ.
            by_name.setdefault(name, []).append(term)

    is_matched = [False] * len(words)
    groups: list[tuple[Term, ...]] = []

    # Longest names first, so that "carotid artery" is not read as "artery" alone.
    for size in range(len(words), 0, -1):
        for at in range(len(words) - size + 1):
            span = words[at : at + size]
            matches = by_name.get(" ".join(span)) or by_name.get(" ".join([*span[:-1], singular(span[-1])]))
            if matches and not any(is_matched[at : at + size]):
                is_matched[at : at + size] = [True] * size
                groups.append(tuple(matches))

    return tuple(groups)


@cache
def find_regions(text: str) -> frozenset[str]:
    """Find the body regions that a text names, directly or through an organ.

    Args:
        text: free text, such as an organ's name.

    Returns:
        Regions; all candidates of an ambiguous word; empty if none is known.

    >>> [sorted(find_regions(text)) for text in ("left knee", "aorta", "thorax")]
    [['knee'], ['abdomen', 'chest'], ['chest']]
    """
    regions: set[str] = set()
    for group in _find_term_groups(normalize_term(text), ("region", "organ", "site")):
        concepts = {term.concept for term in group if term.kind == "region"}

        # A region named directly is more specific than the regions that an organ may be in.
        regions |= concepts or {region for term in group for region in term.regions if region != ANY_REGION}

    return frozenset(regions)


def _top_region(region: str) -> str:
    above = [name for name in ancestors("region", region) if not ancestors("region", name)]
    return above[0] if above else region


def regions_overlap(regions: Iterable[str], other_regions: Iterable[str]) -> bool:
    """Check whether two sets of regions share a region, one contains another, or either is `any`.

    Args:
        regions: body regions.
        other_regions: body regions.
    """
    region_set, other_set = set(regions), set(other_regions)
    if ANY_REGION in region_set or ANY_REGION in other_set:
        return True
    return any(
        a == b or a in ancestors("region", b) or b in ancestors("region", a) for a in region_set for b in other_set
    )


def regions_disjoint(regions: Iterable[str], other_regions: Iterable[str]) -> bool:
    """Check that a picture of some regions cannot show any of the others.

    Args:
        regions: body regions.
        other_regions: body regions.

    Returns:
        True if all regions are known and none is adjacent to any of the others.
    """
    region_set, other_set = set(regions), set(other_regions)
    if not region_set or not other_set or ANY_REGION in region_set or ANY_REGION in other_set:
        return False
    return not any(_are_adjacent(_top_region(a), _top_region(b)) for a in region_set for b in other_set)


@cache
def _are_adjacent(region: str, other_region: str) -> bool:
    term, other_term = _find_term("region", region), _find_term("region", other_region)
    if term is None or other_term is None or region == other_region:
        return True
    return bool({ANY_REGION, other_region} & {*term.related} or {ANY_REGION, region} & {*other_term.related})


# Modalities ---------------------------------------------------------------------------------------


@cache
def find_modalities(text: str) -> frozenset[str]:
    """Find the modalities that a text names.

    Args:
        text: free text.

    Returns:
        Modalities; empty if none is known.

    >>> [sorted(find_modalities(text)) for text in ("contrast-enhanced CT", "PET/CT", "biopsy")]
    [['CT'], ['PET/CT'], []]
    """
    matches = find_terms(text, "modality", "technique")
    return frozenset(
        name for term in matches for name in ([term.concept] if term.kind == "modality" else term.modalities)
    )


def modalities_disjoint(modalities: Iterable[str], other_modalities: Iterable[str]) -> bool:
    """Check that two sets of modalities are known and share no modality or parent modality.

    Args:
        modalities: modality names.
        other_modalities: modality names.
    """
    kinds, other_kinds = (
        set(names) | {up for name in names for up in ancestors("modality", name)}
        for names in (modalities, other_modalities)
    )
    return bool(kinds) and bool(other_kinds) and not kinds & other_kinds


def parse_image_context(regions: Iterable[str], modality: str | None) -> ImageContext:
    """Determine body regions and modality of images from a data set's own words.

    A modality that shows only one region, such as mammography, implies that region.

    Args:
        regions: texts that name body regions.
        modality: text that names the modality; None if unknown.
    """
    modalities = find_modalities(modality or "")
    implied = {region for name in modalities for region in terms_by_name("modality")[normalize_term(name)].regions}
    stated = {region for text in regions for region in find_regions(text)}

    # Keep stated regions only if they lie within those that the modality can show.
    if implied and not (stated and all(({region} | ancestors("region", region)) & implied for region in stated)):
        stated = implied
    return ImageContext(frozenset(stated), modalities)


# Findings -----------------------------------------------------------------------------------------


def applies_in_context(term: Term, context: ImageContext) -> bool:
    """Check whether the bare words of a term mean it in this context.

    Args:
        term: the term.
        context: what is known about the images.

    Returns:
        True if all regions and modalities of the context are known and among those that the term
            needs.
    """
    regions = {need for need in term.needs if normalize_term(need) in terms_by_name("region")}
    modalities = set(term.needs) - regions
    return (
        (not regions or (bool(context.regions) and context.regions <= regions))
        and (not modalities or (bool(context.modalities) and context.modalities <= modalities))
    )  # fmt: skip


def mutually_exclusive(finding: str, other_finding: str) -> bool:
    """Check whether the table states that two findings, or findings above them, exclude each other.

    Args:
        finding: name of a finding.
        other_finding: name of another.
    """
    ancestry, other_ancestry = ({name, *ancestors("finding", name)} for name in (finding, other_finding))

    # The table states an exclusion in one of the two rows.
    pairs = [(name, other) for name in ancestry for other in other_ancestry]
    pairs += [(other, name) for name, other in pairs]
    terms = {name: term for name in ancestry | other_ancestry if (term := _find_term("finding", name))}
    return any(name in terms and other in terms[name].excludes for name, other in pairs)


def cannot_show(context: ImageContext, term: Term) -> bool:
    """Check that images with this context cannot show an organ or finding.

    This is the rule behind ProbMed's adversarial organs: the term lies in no adjacent region.

    Args:
        context: what is known about the images.
        term: the organ or finding.
    """
    return regions_disjoint(context.regions, term.regions)


def find_ct_window(text: str) -> str:
    """Return the CT window for a label: that of the longest organ or finding it names, else `soft
    tissue`.
    """
    matches = find_terms(split_camel_case(text), "finding", "organ")
    return next((term.window for term in matches if term.window), "soft tissue")


def find_task_noun(task: str) -> str:
    """Return a noun phrase for what a task asks about."""
    term = _find_term("task", task)
    return term.noun if term else task[:1].lower() + task[1:]
