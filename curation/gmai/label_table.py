"""labels.csv: raw labels to canonical names with synonyms, parents, MeSH id, tags, regions and modalities; and what follows from it:
which labels are the same thing, which lie within one another, and which cannot be on an image at all.

A custom table goes before the vocabulary (`dataset_builders/terms.csv`). What neither maps is left out and named in `unmapped.csv`, and
so is a label that is no plain positive finding ("Pneumonia?", "no effusion"), unless the custom table has it just as it is written.

Task and department of each label are what the majority of three taggers says on a page (`validation.py`; GMAI-MMBench, "label
categorization").
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from curation.images.image_table import cell_text, read_dataframe, require_columns
from dataset_builders.errors import BadInput, Problems
from dataset_builders.label_reading import describe_requirements, parse_label, split_side
from dataset_builders.terms import (
    UNKNOWN_CONTEXT,
    ImageContext,
    Term,
    cannot_show,
    find_modalities,
    find_regions,
    load_terms,
    normalize_term,
    regions_overlap,
    terms_by_name,
)

LABEL_COLUMNS = ("name", "raw", "synonyms", "parents", "mesh", "task", "department", "region", "modalities")
IGNORED_COLUMNS = ("count", "datasets", "why")
"""Columns of unmapped.csv and private/labels.csv that may stand in a custom table."""
LIST_COLUMNS = ("raw", "synonyms", "parents", "region", "modalities")
MESH_ID = re.compile(r"D\d{6}(\d{3})?")
NA_TEXTS = {"", "#n/a", "#na", "-nan", "1.#ind", "1.#qnan", "<na>", "n/a", "na", "nan", "none", "null"}
"""Texts (casefolded) that pandas, with which VLMEvalKit reads its TSV, treats as an empty cell: no label can have these names."""


@dataclass
class CanonicalLabel:
    """A canonical label."""

    name: str
    synonyms: set[str] = field(default_factory=set)
    parents: set[str] = field(default_factory=set)
    """canonical names, direct"""
    mesh: str = ""
    task: str = ""
    department: str = ""
    regions: set[str] = field(default_factory=set)
    modalities: set[str] = field(default_factory=set)
    """as the table gives them; empty: those it was seen in"""


def parse_regions(texts: Iterable[str]) -> set[str]:
    """Regions in the vocabulary's words where it knows them, else in small letters as they are."""
    return {region for text in texts for region in (find_regions(text) or {text.casefold()})}


def _fold_spaces(text: str) -> str:
    return " ".join(text.casefold().split())


class LabelTable:
    """The canonical labels by name, and the way from raw labels to them."""

    def __init__(
        self, labels: dict[str, CanonicalLabel], raw: dict[str, str], written: dict[str, str] | None = None
    ) -> None:
        """raw: folded label -> name, of a custom table; written: its labels with all their signs -> name."""
        self.labels, self.raw, self.written = labels, raw, written or {}
        self.name_of, self.ancestors = cache(self._name_of), cache(self._ancestors)

    def label(self, name: str) -> CanonicalLabel:
        """The entry of a name, which may be empty."""
        return self.labels.get(name) or CanonicalLabel(name)

    def _name_of(self, raw: str, place: ImageContext = UNKNOWN_CONTEXT) -> str | None:
        """The canonical name of a raw label of a data set (`place`: its region and modality); None where it has none, for the reason
        that `why_not` gives. Left and right are merged where the label is known without its side."""
        written = self.written.get(_fold_spaces(raw))
        if written is not None:
            return written
        label = parse_label(raw, place)
        if label.problem:
            return None
        for key in (normalize_term(raw), split_side(raw)[0]):
            if key in self.raw:
                return self.raw[key]
        if label.term is None or cannot_show(place, label.term):  # the left ventricle of a brain is none of the heart
            return None
        name = label.term.concept
        return self.raw.get(normalize_term(name), name)

    def why_not(self, raw: str, place: ImageContext = UNKNOWN_CONTEXT) -> str:
        """Why a raw label has no name."""
        label = parse_label(raw, place)
        if label.problem:
            return label.problem
        if label.term is not None:
            return f"is a thing of another region ({label.term.concept}: {', '.join(label.term.regions)})"
        needs = describe_requirements(raw)
        return f"means a thing only in some regions and modalities ({needs})" if needs else "is in no table"

    def _ancestors(self, name: str) -> set[str]:
        """All labels above this one."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            fresh = self.label(waiting.pop()).parents - found
            found |= fresh
            waiting += fresh
        return found

    def related(self, one: str, other: str) -> bool:
        """True where two labels are the same thing, or one lies above the other: they cannot be options of one question."""
        if one == other or one in self.ancestors(other) or other in self.ancestors(one):
            return True
        return bool(self.words(one) & self.words(other))

    def can_be_shown(self, name: str, modality: str, regions: Set[str]) -> bool:
        """False where the table says that a label is not visible in a modality, or in none of an image's regions."""
        label = self.label(name)
        shown = find_modalities(modality)
        seen = not label.modalities or any(
            each.casefold() == modality.casefold() or find_modalities(each) & shown for each in label.modalities
        )
        return seen and (not label.regions or not regions or regions_overlap(label.regions, regions))

    def words(self, name: str) -> set[str]:
        """The folded name and synonyms of a label."""
        return {normalize_term(name), *map(normalize_term, self.label(name).synonyms)}

    def forbidden_words(self, name: str) -> set[str]:
        """Texts that must not occur in a question about this label: its names, synonyms, raw labels and those of its ancestors."""
        family = {name, *self.ancestors(name)}
        found = {word for each in family for word in self.words(each)}
        found |= {normalize_term(word) for each in family if (term := _vocabulary_term(each)) for word in term.bare}
        return found | {raw for raw, canonical in self.raw.items() if canonical in family}


def _vocabulary_term(name: str) -> Term | None:
    return terms_by_name("organ", "finding").get(normalize_term(name))


def read_label_table(path: Path | None) -> LabelTable:
    """The vocabulary under a custom table, whose names, raw labels and fields win.

    What it leaves blank of a name that the vocabulary knows stays as it is there.

    Raises BadInput listing every problem: a raw label or synonym of two names, parents that go in a circle, a MeSH id that is none or
    belongs to two names, a name that a spreadsheet takes for an empty cell.
    """
    labels: dict[str, CanonicalLabel] = {}
    raw: dict[str, str] = {}
    written: dict[str, str] = {}
    problems = Problems()
    own = _read_rows(path) if path is not None else []
    for row in own:
        _add_row(row, labels, raw, written, problems, str(path))
    for term in load_terms("organ", "finding"):
        mine = raw.get(normalize_term(term.concept))
        if mine is not None and normalize_term(mine) != normalize_term(term.concept):
            continue
        label = labels.setdefault(mine or term.concept, CanonicalLabel(mine or term.concept))
        label.synonyms |= {each for each in term.synonyms if raw.get(normalize_term(each), label.name) == label.name}
        label.parents, label.regions = label.parents or set(term.parents), label.regions or set(term.regions)
        label.modalities, label.mesh = label.modalities or set(term.modalities), label.mesh or term.mesh
        label.task, label.department = label.task or term.task, label.department or term.department
    _check_labels(labels, problems, str(path))
    problems.check("Correct labels.csv: one meaning per raw label, one name per thing (docs/gmai_pipeline.md).")
    return LabelTable(labels, raw, written)


def _read_rows(path: Path) -> list[dict[str, Any]]:
    table = read_dataframe(path)
    require_columns(table, path, ["name"], "It holds the canonical labels.")
    unknown = [str(name) for name in table.columns if name not in (*LABEL_COLUMNS, *IGNORED_COLUMNS)]
    if unknown:
        raise BadInput(f"{path}: has a column {unknown[0]!r}. It can have {', '.join(LABEL_COLUMNS)}.")
    rows = []
    for given in table.to_dict("records"):
        row = {column: cell_text(given.get(column)) for column in LABEL_COLUMNS}
        listed = {c: [part.strip() for part in row[c].split(";") if part.strip()] for c in LIST_COLUMNS}
        if row["name"]:
            rows.append(row | listed)
    return rows


def _add_row(
    row: dict[str, Any],
    labels: dict[str, CanonicalLabel],
    raw: dict[str, str],
    written: dict[str, str],
    problems: Problems,
    file: str,
) -> None:
    name = row["name"]
    if name.casefold() in NA_TEXTS or not normalize_term(name):
        problems.add(file, name, "is a name that spreadsheets and VLMEvalKit take for an empty cell")
        return
    label = labels.setdefault(name, CanonicalLabel(name))
    for variant in (name, *row["raw"], *row["synonyms"]):
        written.setdefault(_fold_spaces(variant), name)
        if variant != name and parse_label(variant).problem:
            continue  # it is known just as it is written: `Pneumonia?` says nothing of `Pneumonia`
        before = raw.setdefault(normalize_term(variant), name)
        if before != name:
            problems.add(file, name, f"{variant!r} stands for {before!r} already")
    label.synonyms |= {each for each in (*row["raw"], *row["synonyms"]) if normalize_term(each) != normalize_term(name)}
    label.parents |= set(row["parents"])
    label.regions |= parse_regions(row["region"])
    label.modalities |= set(row["modalities"])
    for one in ("mesh", "task", "department"):
        before, given = getattr(label, one), row[one]
        if before and given and before != given:
            problems.add(file, name, f"has two values of {one}: {before!r} and {given!r}")
        setattr(label, one, before or given)
    if label.mesh and not MESH_ID.fullmatch(label.mesh):
        problems.add(file, name, f"{label.mesh!r} is no MeSH id (D and six or nine digits)")


def _check_labels(labels: dict[str, CanonicalLabel], problems: Problems, file: str) -> None:
    by_mesh: dict[str, str] = {}
    table = LabelTable(labels, {})
    for name, label in labels.items():
        if label.mesh and by_mesh.setdefault(label.mesh, name) != name:
            problems.add(file, name, f"has the MeSH id of {by_mesh[label.mesh]!r}: give both the same name")
        if name in table.ancestors(name):
            problems.add(file, name, "is above itself: its parents go in a circle")


TAG_SUBJECTS = ("task", "department")
TAGGERS_PER_LABEL = 3
TAGS_FILE = "tags.jsonl"


@dataclass(frozen=True)
class Tags:
    """The taggers' values: canonical label -> subject -> value, and their agreement."""

    values: dict[str, dict[str, str]]
    agreement: dict[str, float | None]
    """Krippendorff's alpha (nominal) per subject; None where no label has two taggers or all values are equal."""
    taggers: int
    labels: int


def merge_tags(
    votes: Mapping[tuple[str, str, str], str], table: LabelTable, tasks: Iterable[str], departments: Iterable[str]
) -> Tags:
    """The majority of each label's taggers, of whom there must be three; until then the label table holds. Labels and values that there
    are no longer do not count. votes: (label, subject, tagger) -> value. Raises BadInput listing ties that no value in the label table
    settles."""
    allowed = {"task": set(tasks), "department": set(departments)}
    said: dict[str, dict[str, dict[str, str]]] = {subject: defaultdict(dict) for subject in TAG_SUBJECTS}
    for (label, subject, tagger), value in votes.items():
        if (name := table.name_of(label)) is not None and value in allowed[subject]:
            said[subject][name][tagger] = value
    problems = Problems()
    values: dict[str, dict[str, str]] = defaultdict(dict)
    for subject, of_labels in said.items():
        for name, own in of_labels.items():
            if len(own) >= TAGGERS_PER_LABEL:
                values[name][subject] = _majority(name, subject, own, table, problems)
    problems.check("Settle the tie by a value in labels.csv.")
    return Tags(
        values,
        {subject: _alpha(list(of_labels.values())) for subject, of_labels in said.items()},
        len({tagger for of_labels in said.values() for own in of_labels.values() for tagger in own}),
        len({name for of_labels in said.values() for name in of_labels}),
    )


def _majority(name: str, subject: str, said: dict[str, str], table: LabelTable, problems: Problems) -> str:
    counts = Counter(said.values()).most_common()
    best = [value for value, count in counts if count == counts[0][1]]
    settled = str(getattr(table.labels[name], subject))
    if len(best) > 1 and settled not in best:
        problems.add("tags", name, f"a tie of {' and '.join(sorted(best))}")
    return best[0] if len(best) == 1 else settled


def _alpha(said: list[dict[str, str]]) -> float | None:
    """Krippendorff's alpha over labels x taggers, nominal."""
    import krippendorff

    taggers = sorted({tagger for each in said for tagger in each})
    codes = {value: float(at) for at, value in enumerate(sorted({value for each in said for value in each.values()}))}
    if len(codes) < 2 or not any(len(each) > 1 for each in said):
        return None
    data = np.array([[codes[each[tagger]] if tagger in each else np.nan for each in said] for tagger in taggers])
    return float(krippendorff.alpha(reliability_data=data, level_of_measurement="nominal"))


def assign_labels(labels: Iterable[str], taggers: list[str], seed: int) -> dict[str, list[str]]:
    """Tagger -> labels: each label goes to three taggers, drawn with the seed, as evenly as it can be."""
    shares: dict[str, list[str]] = {tagger: [] for tagger in taggers}
    for label in sorted(labels, key=lambda label: hashlib.sha256(f"{seed}\0{label}".encode()).digest()):
        fewest: list[Any] = sorted(
            taggers,
            key=lambda tagger: (len(shares[tagger]), hashlib.sha256(f"{seed}\0{label}\0{tagger}".encode()).digest()),
        )
        for tagger in fewest[:TAGGERS_PER_LABEL]:
            shares[tagger].append(label)
    return shares
