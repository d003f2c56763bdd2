"""Map raw labels to canonical names (labels.csv), with synonyms, parents, MeSH ids and tags.

The table determines which labels are synonymous, which are subtypes of others, and which cannot
appear on an image at all.

A custom table takes precedence over the built-in vocabulary (`dataset_builders/terms.csv`). Labels
that are in neither are left out and listed in `unmapped.csv`. So are labels that are not a plain
positive finding ("Pneumonia?", "no effusion"), unless the custom table has them verbatim.

The task and department of a label are the majority vote of three taggers (`pipeline.py`;
GMAI-MMBench, "label categorization").
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from curation.images.image_table import cell_text, read_dataframe, require_columns
from dataset_builders.errors import BadInput, Problems
from dataset_builders.label_reading import describe_requirements, parse_label, split_side
from dataset_builders.terms import (
    UNKNOWN_CONTEXT,
    ImageContext,
    cannot_show,
    find_modalities,
    find_regions,
    load_terms,
    normalize_term,
    regions_overlap,
    terms_by_name,
)
from eval_harness.scores.comparisons import krippendorff_alpha

LABEL_COLUMNS = ("name", "raw", "synonyms", "parents", "mesh", "task", "department", "region", "modalities")
IGNORED_COLUMNS = ("count", "datasets", "why")
"""Columns of unmapped.csv and private/labels.csv that are ignored in a custom table, so that these
files can be edited and used as custom tables.
"""
LIST_COLUMNS = ("raw", "synonyms", "parents", "region", "modalities")
MESH_ID = re.compile(r"D\d{6}(\d{3})?")
NA_TEXTS = {
    "",
    "#n/a",
    "#na",
    "-nan",
    "1.#ind",
    "1.#qnan",
    "<na>",
    "n/a",
    "na",
    "nan",
    "none",
    "null",
}
"""Casefolded texts that pandas reads as an empty cell. VLMEvalKit reads its TSVs with pandas, so no
label can have these names.
"""


@dataclass
class CanonicalLabel:
    """A canonical label."""

    name: str
    synonyms: set[str] = field(default_factory=set)
    parents: set[str] = field(default_factory=set)
    """Canonical names of the direct parents."""
    mesh: str = ""
    task: str = ""
    department: str = ""
    regions: set[str] = field(default_factory=set)
    modalities: set[str] = field(default_factory=set)
    """Modalities that can show it, as written in the table; empty if any can."""


def parse_regions(texts: Iterable[str]) -> set[str]:
    """Return the vocabulary's names of regions; a region that it does not know is casefolded."""
    return {region for text in texts for region in (find_regions(text) or {text.casefold()})}


def _fold_spaces(text: str) -> str:
    """Casefold a text and collapse its spaces."""
    return " ".join(text.casefold().split())


class LabelTable:
    """The canonical labels by name, and the mapping from raw labels."""

    def __init__(
        self,
        labels: dict[str, CanonicalLabel],
        raw: dict[str, str],
        written: dict[str, str] | None = None,
    ) -> None:
        """Create the table.

        Args:
            labels: canonical name -> label.
            raw: normalised raw label -> name, from a custom table.
            written: verbatim raw label (only case and spaces are folded) -> name, from a custom
                table.
        """
        self.labels, self.raw, self.written = labels, raw, written or {}
        self.resolve, self.ancestors = cache(self._resolve), cache(self._ancestors)

    def label(self, name: str) -> CanonicalLabel:
        """Return the label of a name; an empty one if there is none."""
        return self.labels.get(name) or CanonicalLabel(name)

    def canonical_name(self, raw: str, place: ImageContext = UNKNOWN_CONTEXT) -> str | None:
        """Return the canonical name of a raw label; None if it has none (see `resolve`)."""
        return self.resolve(raw, place)[0]

    def _resolve(self, raw: str, place: ImageContext) -> tuple[str | None, str]:
        """Return the canonical name of a raw label and "", or None and why it has no name.

        A label with a side ("left kidney") maps to the label without it if that one is known.

        Args:
            raw: raw label.
            place: region and modality of its dataset.
        """
        # A verbatim entry of a custom table takes precedence over everything else.
        written = self.written.get(_fold_spaces(raw))
        if written is not None:
            return written, ""
        label = parse_label(raw, place)
        if label.problem:
            return None, label.problem

        for key in (normalize_term(raw), split_side(raw)[0]):
            if key in self.raw:
                return self.raw[key], ""
        if label.term is None:
            needs = describe_requirements(raw)
            return None, f"is ambiguous outside some regions and modalities ({needs})" if needs else "is in no table"
        # The modality or region may rule out a term: "left ventricle" on a brain image is not the
        # heart's.
        name = label.term.concept
        if cannot_show(place, label.term):
            return None, f"belongs to another region ({name}: {', '.join(label.term.regions)})"
        return self.raw.get(normalize_term(name), name), ""

    def _ancestors(self, name: str) -> set[str]:
        """Return all ancestors of a label."""
        ancestors: set[str] = set()
        pending = [name]
        while pending:
            unseen = self.label(pending.pop()).parents - ancestors
            ancestors |= unseen
            pending += unseen
        return ancestors

    def are_related(self, label: str, related_label: str) -> bool:
        """Return True if two labels are synonyms or one is the other's ancestor.

        Related labels cannot be options of the same question.
        """
        if label == related_label or label in self.ancestors(related_label) or related_label in self.ancestors(label):
            return True
        return bool(self.normalised_names(label) & self.normalised_names(related_label))

    def can_be_shown(self, name: str, modality: str, regions: Set[str]) -> bool:
        """Check whether a label may be visible, given an image's modality and body regions.

        Args:
            name: canonical name.
            modality: modality of the image.
            regions: body regions of the image; empty: unknown.
        """
        label = self.label(name)
        modalities = find_modalities(modality)

        is_modality_allowed = not label.modalities or any(
            candidate.casefold() == modality.casefold() or find_modalities(candidate) & modalities
            for candidate in label.modalities
        )
        return is_modality_allowed and (not label.regions or not regions or regions_overlap(label.regions, regions))

    def normalised_names(self, name: str) -> set[str]:
        """Return the normalised name and synonyms of a label."""
        return {normalize_term(name), *map(normalize_term, self.label(name).synonyms)}

    def forbidden_words(self, name: str) -> set[str]:
        """Return the texts that a question about this label must not contain.

        These are the names, synonyms and raw labels of the label and its ancestors.
        """
        family = {name, *self.ancestors(name)}
        vocabulary = terms_by_name("organ", "finding")
        bare_words = {
            normalize_term(word)
            for family_name in family
            if (term := vocabulary.get(normalize_term(family_name)))
            for word in term.bare
        }
        raw_labels = {raw for raw, canonical in self.raw.items() if canonical in family}
        return bare_words.union(raw_labels, *map(self.normalised_names, family))


def read_label_table(path: Path | None) -> LabelTable:
    """Read the built-in vocabulary, overridden by a custom table.

    Fields that the custom table leaves blank keep the vocabulary's values.

    Args:
        path: the custom table, or None.

    Raises:
        BadInput: the table has problems, all of which are listed: a raw label or synonym with two
            names, a cycle of parents, an invalid or shared MeSH id, a name that spreadsheets read
            as an empty cell.
    """
    labels: dict[str, CanonicalLabel] = {}
    raw: dict[str, str] = {}
    spelling_to_name: dict[str, str] = {}
    problems = Problems()
    custom_rows = _read_rows(path) if path is not None else []
    for row in custom_rows:
        _add_row(row, labels, raw, spelling_to_name, problems, str(path))

    for term in load_terms("organ", "finding"):
        # If a custom table uses the vocabulary's name for something else, the vocabulary's term is
        # ignored.
        custom_name = raw.get(normalize_term(term.concept))
        if custom_name is not None and normalize_term(custom_name) != normalize_term(term.concept):
            continue
        label = labels.setdefault(custom_name or term.concept, CanonicalLabel(custom_name or term.concept))
        label.synonyms |= {
            synonym for synonym in term.synonyms if raw.get(normalize_term(synonym), label.name) == label.name
        }
        label.parents, label.regions = (
            label.parents or set(term.parents),
            label.regions or set(term.regions),
        )
        label.modalities, label.mesh = (
            label.modalities or set(term.modalities),
            label.mesh or term.mesh,
        )
        label.task, label.department = label.task or term.task, label.department or term.department

    _check_labels(labels, problems, str(path))
    problems.check("Correct labels.csv: one meaning per raw label, one name per thing (docs/gmai_pipeline.md).")
    return LabelTable(labels, raw, spelling_to_name)


def _read_rows(path: Path) -> list[dict[str, Any]]:
    """Read a custom table; cells of columns that allow several values become lists."""
    table = read_dataframe(path)
    require_columns(table, path, ["name"], "It has the canonical labels.")

    # An unknown column is probably a typo, and its values would be lost silently.
    unknown = [str(name) for name in table.columns if name not in (*LABEL_COLUMNS, *IGNORED_COLUMNS)]
    if unknown:
        raise BadInput(f"{path}: has a column {unknown[0]!r}. Allowed columns: {', '.join(LABEL_COLUMNS)}.")

    rows = []
    for record in table.to_dict("records"):
        row = {column: cell_text(record.get(column)) for column in LABEL_COLUMNS}
        lists = {column: [part.strip() for part in row[column].split(";") if part.strip()] for column in LIST_COLUMNS}
        if row["name"]:
            rows.append(row | lists)
    return rows


def _add_row(
    row: dict[str, Any],
    labels: dict[str, CanonicalLabel],
    raw: dict[str, str],
    spelling_to_name: dict[str, str],
    problems: Problems,
    file: str,
) -> None:
    """Add a row of a custom table to the mappings; report its problems."""
    name = row["name"]
    if name.casefold() in NA_TEXTS or not normalize_term(name):
        problems.add(file, name, "is read as an empty cell by spreadsheets and VLMEvalKit")
        return
    label = labels.setdefault(name, CanonicalLabel(name))
    for variant in (name, *row["raw"], *row["synonyms"]):
        spelling_to_name.setdefault(_fold_spaces(variant), name)
        if variant != name and parse_label(variant).problem:
            continue  # mapped only verbatim: an entry `Pneumonia?` must not apply to `Pneumonia`
        current = raw.setdefault(normalize_term(variant), name)
        if current != name:
            problems.add(file, name, f"{variant!r} is already mapped to {current!r}")

    label.synonyms |= {
        alias for alias in (*row["raw"], *row["synonyms"]) if normalize_term(alias) != normalize_term(name)
    }
    label.parents |= set(row["parents"])
    label.regions |= parse_regions(row["region"])
    label.modalities |= set(row["modalities"])

    for field_name in ("mesh", "task", "department"):
        current, new_value = getattr(label, field_name), row[field_name]
        if current and new_value and current != new_value:
            problems.add(file, name, f"has two values for {field_name}: {current!r} and {new_value!r}")
        setattr(label, field_name, current or new_value)
    if label.mesh and not MESH_ID.fullmatch(label.mesh):
        problems.add(file, name, f"{label.mesh!r} is not a MeSH id (D and six or nine digits)")


def _check_labels(labels: dict[str, CanonicalLabel], problems: Problems, file: str) -> None:
    """Report shared MeSH ids and cycles of parents."""
    by_mesh: dict[str, str] = {}
    table = LabelTable(labels, {})
    for name, label in labels.items():
        if label.mesh and by_mesh.setdefault(label.mesh, name) != name:
            problems.add(file, name, f"has the same MeSH id as {by_mesh[label.mesh]!r}: give both the same name")
        if name in table.ancestors(name):
            problems.add(file, name, "is its own ancestor: its parents form a cycle")


TAG_SUBJECTS = ("task", "department")
TAGGERS_PER_LABEL = 3
TAGS_FILE = "tags.jsonl"

Tags = dict[str, dict[str, str]]
"""Canonical label -> subject (task, department) -> the taggers' majority."""


def merge_tags(
    votes: Mapping[tuple[str, str, str], str],
    table: LabelTable,
    tasks: Iterable[str],
    departments: Iterable[str],
) -> tuple[Tags, dict[str, Any]]:
    """Take the majority vote on each label that has at least three taggers.

    Labels with fewer votes keep the label table's values. Votes on labels or values that no longer
    exist are ignored.

    Args:
        votes: (label, subject, tagger) -> value.
        table: canonical labels.
        tasks: allowed tasks.
        departments: allowed departments.

    Returns:
        The majorities; and for the funnel the number of taggers and labels, and for each subject
            Krippendorff's alpha (nominal; None if no label has two taggers, or if all values are
            equal).

    Raises:
        BadInput: the label table does not break a tie; the message lists all such ties.
    """
    allowed = {"task": set(tasks), "department": set(departments)}
    rows = [
        (table.canonical_name(label), subject, tagger, value)
        for (label, subject, tagger), value in votes.items()
        if value in allowed[subject]
    ]
    ballots = pd.DataFrame(rows, columns=["label", "subject", "tagger", "value"]).dropna()
    # If a tagger voted on several synonyms of a label, the last vote counts.
    ballots = ballots.drop_duplicates(["label", "subject", "tagger"], keep="last")

    problems = Problems()
    majorities: Tags = defaultdict(dict)
    agreement: dict[str, float | None] = {}
    for subject in TAG_SUBJECTS:
        subject_ballots = ballots[ballots["subject"] == subject]
        for name, values in subject_ballots.groupby("label", sort=False)["value"]:
            if len(values) >= TAGGERS_PER_LABEL:
                majority = _majority(str(name), subject, values.mode().tolist(), table, problems)
                majorities[str(name)][subject] = majority
        codes = subject_ballots.assign(value=subject_ballots["value"].rank(method="dense"))
        ratings = codes.pivot(index="tagger", columns="label", values="value")
        agreement[subject] = krippendorff_alpha(ratings.to_numpy(float), "nominal")
    problems.check("Break each tie with a value in labels.csv.")
    counts = {"taggers": ballots["tagger"].nunique(), "labels": ballots["label"].nunique()}
    return majorities, counts | {"alpha": agreement}


def _majority(name: str, subject: str, top_values: list[str], table: LabelTable, problems: Problems) -> str:
    """Return the most frequent value; the label table breaks ties."""
    table_value = str(getattr(table.labels[name], subject))
    if len(top_values) > 1 and table_value not in top_values:
        problems.add("tags", name, f"a tie of {' and '.join(top_values)}")
    return top_values[0] if len(top_values) == 1 else table_value


def assign_labels(labels: Iterable[str], taggers: list[str], seed: int) -> dict[str, list[str]]:
    """Assign each label to three taggers, randomly but as evenly as possible.

    Args:
        labels: labels to tag.
        taggers: names of the taggers.
        seed: random seed.

    Returns:
        Tagger -> labels.
    """
    labels_of_tagger: dict[str, list[str]] = {tagger: [] for tagger in taggers}
    for label in sorted(labels, key=lambda label: hashlib.sha256(f"{seed}\0{label}".encode()).digest()):
        least_loaded: list[Any] = sorted(
            taggers,
            key=lambda tagger: (
                len(labels_of_tagger[tagger]),
                hashlib.sha256(f"{seed}\0{label}\0{tagger}".encode()).digest(),
            ),
        )

        # Ties in load are broken by a hash, so that the same three taggers do not always share
        # labels.
        for tagger in least_loaded[:TAGGERS_PER_LABEL]:
            labels_of_tagger[tagger].append(label)
    return labels_of_tagger
