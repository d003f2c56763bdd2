"""labels.csv: raw labels to canonical names with synonyms, parents, MeSH id, tags, regions and modalities; and what follows from it:
which labels are the same thing, which lie within one another, and which cannot be on an image at all.

A custom table goes before the built-in `vocabulary.csv`. What neither maps is left out and named in `unmapped.csv`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from curation.images.image_table import cell_text, need_columns, read_any
from dataset_builders.errors import BadInput
from dataset_builders.sources.problems import Problems

VOCABULARY = Path(__file__).with_name("vocabulary.csv")
COLUMNS = ("name", "raw", "synonyms", "parents", "mesh", "task", "department", "region", "modalities")
LISTED = ("raw", "synonyms", "parents", "region", "modalities")
MESH = re.compile(r"D\d{6}(\d{3})?")
SIDES = re.compile(r"\b(left|right|l|r|lt|rt|sin|dex)\b")
SIDED = {"ventricle", "atrium", "ventricular", "atrial", "bundle", "coronary", "heart", "lobe", "colon"}
"""Words beside which left and right are part of the name, not a side of a paired organ."""
BLANK = {"", "#n/a", "#na", "-nan", "1.#ind", "1.#qnan", "<na>", "n/a", "na", "nan", "none", "null"}
"""What pandas, with which VLMEvalKit reads its TSV, takes for an empty cell (casefolded): no label can be called so."""
ANY = "any"
"""The region of what can be anywhere (skin, bone marrow ...)."""


@dataclass
class Label:
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


def folded(text: str) -> str:
    """How labels are compared: small letters, words divided by one space; signs other than letters and digits divide words."""
    return " ".join(re.findall(r"[^\W_]+", text.casefold()))


class LabelTable:
    """The canonical labels by name, and the way from raw labels to them."""

    def __init__(self, labels: dict[str, Label], raw: dict[str, str]) -> None:
        self.labels, self.raw = labels, raw
        self._ancestors: dict[str, set[str]] = {}

    def name_of(self, raw: str) -> str | None:
        """The canonical name of a raw label; left and right are merged where the label is known without its side. None: unmapped."""
        key = folded(raw)
        if key in self.raw:
            return self.raw[key]
        if SIDED & set(key.split()):
            return None
        return self.raw.get(" ".join(SIDES.sub("", key).split()))

    def ancestors(self, name: str) -> set[str]:
        """All labels above this one."""
        if name not in self._ancestors:
            found: set[str] = set()
            waiting = list(self.labels[name].parents) if name in self.labels else []
            while waiting:
                parent = waiting.pop()
                if parent not in found:
                    found.add(parent)
                    waiting += self.labels[parent].parents if parent in self.labels else []
            self._ancestors[name] = found
        return self._ancestors[name]

    def related(self, one: str, other: str) -> bool:
        """Whether two labels are the same thing, or one lies above the other: they cannot be options of one question."""
        if one == other or one in self.ancestors(other) or other in self.ancestors(one):
            return True
        return bool(self.words(one) & self.words(other))

    def words(self, name: str) -> set[str]:
        """The folded name and synonyms of a label."""
        label = self.labels.get(name)
        return {folded(name), *(folded(each) for each in (label.synonyms if label else ()))}

    def forbidden_words(self, name: str) -> set[str]:
        """What must not stand in a question about this label: its names, synonyms, raw labels and those of its ancestors."""
        family = {name, *self.ancestors(name)}
        found = {word for each in family for word in self.words(each)}
        return found | {raw for raw, canonical in self.raw.items() if canonical in family}


def read_labels(path: Path | None) -> LabelTable:
    """The built-in vocabulary under a custom table, whose names, raw labels and fields win.

    What it leaves blank of a name that the vocabulary knows stays as it is there.

    Raises BadInput listing every problem: a raw label or synonym of two names, parents that go in a circle, a MeSH id that is none or
    belongs to two names, a name that a spreadsheet takes for an empty cell.
    """
    labels: dict[str, Label] = {}
    raw: dict[str, str] = {}
    problems = Problems()
    own = _rows(path) if path is not None else []
    claimed = {folded(text) for row in own for text in (row["name"], *row["raw"], *row["synonyms"])}
    for row in _rows(VOCABULARY):
        same = [each for each in own if folded(each["name"]) == folded(row["name"])]
        variants = [text for text in row["raw"] if folded(text) not in claimed]
        if same:
            _complete(same, row | {"raw": variants})
        elif folded(row["name"]) not in claimed:
            _add(row | {"raw": variants}, labels, raw, problems, str(VOCABULARY.name))
    for row in own:
        _add(row, labels, raw, problems, str(path))
    _check(labels, problems, str(path))
    problems.check("Correct labels.csv: one meaning per raw label, one name per thing (docs/gmai_pipeline.md).")
    return LabelTable(labels, raw)


def _rows(path: Path) -> list[dict]:  # type: ignore[type-arg]
    table = read_any(path)
    need_columns(table, path, ["name"], "It holds the canonical labels.")
    unknown = [str(name) for name in table.columns if name not in (*COLUMNS, "count", "datasets")]
    if unknown:
        raise BadInput(f"{path}: has a column {unknown[0]!r}. It can have {', '.join(COLUMNS)}.")
    rows = []
    for given in table.to_dict("records"):
        row = {column: cell_text(given.get(column)) for column in COLUMNS}
        listed = {c: [part.strip() for part in row[c].split(";") if part.strip()] for c in LISTED}
        if row["name"]:
            rows.append(row | listed)
    return rows


def _complete(rows: list[dict], known: dict) -> None:  # type: ignore[type-arg]
    """Fill the fields that no custom row gives with those of the vocabulary."""
    rows[0]["raw"] += known["raw"]
    for column in ("parents", "mesh", "task", "department", "region", "modalities"):
        if not any(row[column] for row in rows):
            rows[0][column] = known[column]


def _add(row: dict, labels: dict[str, Label], raw: dict[str, str], problems: Problems, file: str) -> None:  # type: ignore[type-arg]
    name = row["name"]
    if name.casefold() in BLANK or not folded(name):
        problems.add(file, name, "is a name that spreadsheets and VLMEvalKit take for an empty cell")
        return
    label = labels.setdefault(name, Label(name))
    for variant in (name, *row["raw"], *row["synonyms"]):
        before = raw.setdefault(folded(variant), name)
        if before != name:
            problems.add(file, name, f"{variant!r} stands for {before!r} already")
    label.synonyms |= {each for each in (*row["raw"], *row["synonyms"]) if folded(each) != folded(name)}
    label.parents |= set(row["parents"])
    label.regions |= {each.casefold() for each in row["region"]}
    label.modalities |= set(row["modalities"])
    for one in ("mesh", "task", "department"):
        before, given = getattr(label, one), row[one]
        if before and given and before != given:
            problems.add(file, name, f"has two values of {one}: {before!r} and {given!r}")
        setattr(label, one, before or given)
    if label.mesh and not MESH.fullmatch(label.mesh):
        problems.add(file, name, f"{label.mesh!r} is no MeSH id (D and six or nine digits)")


def _check(labels: dict[str, Label], problems: Problems, file: str) -> None:
    by_mesh: dict[str, str] = {}
    table = LabelTable(labels, {})
    for name, label in labels.items():
        if label.mesh and by_mesh.setdefault(label.mesh, name) != name:
            problems.add(file, name, f"has the MeSH id of {by_mesh[label.mesh]!r}: give both the same name")
        if name in table.ancestors(name):
            problems.add(file, name, "is above itself: its parents go in a circle")


class Possible:
    """Which labels can be on an image, learned from the tables: where each label was seen (dataset, modality), and where the label
    table says it can be (modalities, regions)."""

    def __init__(self, table: LabelTable, seen: Iterable[tuple[str, str, str]]) -> None:
        """seen: (dataset, modality, canonical label) of every item."""
        self.table = table
        self.datasets: dict[str, set[str]] = defaultdict(set)
        self.modalities: dict[str, set[str]] = defaultdict(set)
        for dataset, modality, name in seen:
            self.datasets[name].add(f"{dataset}\0{modality}")
            self.modalities[name].add(modality.casefold())

    def in_modality(self, name: str, modality: str) -> bool:
        """Whether a label can be seen in this modality: as the table says, else where it was seen."""
        label = self.table.labels.get(name)
        given = {each.casefold() for each in label.modalities} if label else set()
        return modality.casefold() in (given or self.modalities[name])

    def in_region(self, name: str, regions: set[str], dataset: str, modality: str) -> bool:
        """Whether a label can be in one of an image's regions. Where its region or the image's is unknown, only labels of the same
        dataset and modality are taken to share it."""
        label = self.table.labels.get(name)
        own = label.regions if label else set()
        if ANY in own or ANY in regions:
            return True
        if own and regions:
            return bool(own & regions)
        return f"{dataset}\0{modality}" in self.datasets[name]
