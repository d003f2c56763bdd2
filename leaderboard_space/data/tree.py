"""The branches and facets a reader can select, with counts and question rows.

A selection is a list of paths: branches of the tree (facet, label, label, ...), which are joined as the GMAI-MMBench paper joins them, and
choices (`=facet`, label), which narrow: any of the chosen labels of a facet, and all of the facets that something is chosen of.
See also: drawing (`assets/selection.js`), the same on the command line (`dataset_builders.lexical_tree`, `dataset_builders.facets`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dataset_builders.benchmark_names import folded
from dataset_builders.benchmarks import FACETS
from dataset_builders.errors import BadInput
from dataset_builders.facets import read_facets
from dataset_builders.terms import terms
from leaderboard_space.benchmarks import chains_of, spec

TreePath = tuple[str, ...]
MARK = "="


def choice(facet: str, label: str) -> TreePath:
    """The path of a chosen label."""
    return (MARK + facet, label)


def facet_of(path: TreePath) -> str | None:
    """The facet of a choice; None for a branch of the tree."""
    return path[0][1:] if path[0].startswith(MARK) else None


def groups_of(selection: Sequence[TreePath]) -> list[list[TreePath]]:
    """The paths that are joined with each other: the branches, then the choices of each facet. What is selected is in all of them.

    >>> groups_of([("task", "A"), choice("modality", "CT"), ("task", "B")])
    [[('task', 'A'), ('task', 'B')], [('=modality', 'CT')]]
    """
    found: dict[str | None, list[TreePath]] = {}
    for path in sorted(selection, key=lambda path: facet_of(path) is not None):
        found.setdefault(facet_of(path), []).append(path)
    return list(found.values())


def organ_and_modality(image_type: str) -> tuple[str, str]:
    """The two halves of a ProbMed image type; the source joins them by an underscore.

    >>> organ_and_modality("chest_xray")
    ('chest', 'xray')
    """
    organ, _, modality = image_type.partition("_" if "_" in image_type else " ")
    return organ, modality


def cells_under(path: TreePath, breakdown: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The cells (facet, facet value) of a result's breakdown that a path consists of; empty where the breakdown does not say.

    An organ or a modality of ProbMed is its image types, an organ's modality is one image type.
    """
    facet, labels = facet_of(path) or path[0], path[1:]
    if len(labels) == 1 and labels[0] in breakdown.get(facet, {}):
        return [(facet, labels[0])]
    at = {"organ": 0, "modality": 1}.get(facet)
    if at is None:
        return []
    return [
        ("image_type", name)
        for name in breakdown.get("image_type", {})
        if organ_and_modality(name)[at : at + len(labels)] == labels
    ]


def cells_in(selection: Sequence[TreePath], breakdown: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The cells of a result's breakdown that lie wholly within a selection: those of every group. Papers print by one facet at a time, so
    that of two facets together they say nothing, but for ProbMed's image types, which are organ and modality at once."""
    of_groups = [[cell for path in group for cell in cells_under(path, breakdown)] for group in groups_of(selection)]
    first, *others = of_groups or [[]]
    return [cell for cell in dict.fromkeys(first) if all(cell in other for other in others)]


def of_facets(table: pd.DataFrame, said: Sequence[str]) -> pd.DataFrame:
    """The rows of a table of results (columns `facet`, `facet_value`) that are numbers of the named labels, `FACET=VALUE` each.

    Raises BadInput for a facet or a label that no row has, and where no row has them all: papers print by one facet at a time.
    """
    if not said:
        return table
    pairs = table[["facet", "facet_value"]].dropna().drop_duplicates().itertuples(index=False, name=None)
    labels: dict[str, dict[str, None]] = {}
    breakdown: dict[str, dict[str, None]] = {}
    for facet, value in pairs:
        breakdown.setdefault(facet, {})[value] = None
        labels.setdefault(facet, {})[value] = None
        if facet == "image_type":
            for half, label in zip(("organ", "modality"), organ_and_modality(value), strict=True):
                labels.setdefault(half, {})[label] = None
    named = read_facets(said, labels)  # benchmarks spell a label in their own ways: CT, ct
    choices = [choice(facet, each) for facet, label in named for each in labels[facet] if folded(each) == folded(label)]
    wanted = {
        (facet, value)
        for facet, held in breakdown.items()
        for value in held
        if cells_in(choices, {facet: {value: None}})
    }
    if not wanted:
        raise BadInput(
            f"--facet {' --facet '.join(said)}: no number for all of them together; results are broken down by one facet at a time."
        )
    return table[[pair in wanted for pair in zip(table["facet"], table["facet_value"], strict=True)]]


Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

FACET_LABEL = {
    "category": "Category",
    "organ": "Organ",
    "department": "Department",
    "task": "Clinical task",
    "granularity": "Granularity",
    "scenario": "Scenario",
    "modality": "Modality",
    "keyword": "Keyword",
    "image_type": "Image type",
    "aspect": "Aspect",
    "source_dataset": "Source",
}
UNLABELLED = "unlabelled"
SCENARIOS = {"none": "Correct option removed", "fake": "Nonsense question", "swap": "Wrong image"}
"""How HALT-MedVQA's scenarios are shown."""
SEPARATOR = " > "


@dataclass
class FacetNode:
    """A branch: its label, the facet it is a value of, how many questions it holds, and its own branches."""

    label: str
    facet: str
    count: int
    children: list[FacetNode] = field(default_factory=list)

    def as_list(self) -> list[Any]:
        """Compact form for the browser: [label, count, [children]], and how the label is shown where that differs."""
        name = shown_label(self.facet, self.label)
        return [
            self.label,
            self.count,
            [child.as_list() for child in self.children],
            *([name] if name != self.label else []),
        ]


@dataclass(frozen=True)
class Tree:
    """Groups of branches, and the facets by themselves; `rows` gives the question positions of every branch and every label of a facet by
    its path."""

    groups: list[tuple[str, list[FacetNode]]]
    rows: dict[TreePath, Ints]
    size: int
    facets: list[tuple[str, list[FacetNode]]] = field(default_factory=list)

    def mask(self, selection: Sequence[TreePath]) -> Bools | None:
        """The selected questions (Q,); None (everything) where nothing is selected."""
        selected = None
        for group in groups_of(selection):
            joined = np.zeros(self.size, dtype=bool)
            for path in group:
                joined[self.rows.get(path, [])] = True
            selected = joined if selected is None else selected & joined
        return selected

    def counts(self, selection: Sequence[TreePath]) -> dict[str, list[int]]:
        """Facet -> how many questions each of its labels has within what is selected otherwise (its own choices left out); empty where only
        printed tables are known, which count one facet at a time."""
        found = {}
        for facet, (positions, begins) in self._positions.items():
            mask = self.mask([path for path in selection if facet_of(path) != facet])
            held = np.ones(positions.size, np.int64) if mask is None else mask[positions].astype(np.int64)
            found[facet] = np.add.reduceat(held, begins).tolist()
        return found

    def is_unprinted(self, path: TreePath) -> bool:
        """True for a choice in a facet that the benchmark has, and of whose labels nothing is known: no paper prints them."""
        return any(facet == facet_of(path) and not nodes for facet, nodes in self.facets)

    @cached_property
    def _positions(self) -> dict[str, tuple[Ints, Ints]]:
        """Facet -> the questions of its labels, one label after the other, and where each begins."""
        found = {}
        for facet, nodes in self.facets if self.size else []:
            rows = [self.rows[choice(facet, node.label)] for node in nodes]
            found[facet] = np.concatenate(rows), np.cumsum([0, *(held.size for held in rows[:-1])])
        return found

    @cached_property
    def as_json(self) -> dict[str, list[dict[str, Any]]]:
        """What the browser draws: `groups` of branches, and the `facets`. `questions`: whether the counts are of questions; a paper's n may
        be of images."""

        def drawn(groups: list[tuple[str, list[FacetNode]]]) -> list[dict[str, Any]]:
            return [
                {
                    "facet": facet,
                    "label": FACET_LABEL.get(facet, facet),
                    "questions": self.size > 0,
                    "nodes": [node.as_list() for node in nodes],
                }
                for facet, nodes in groups
            ]

        deep = [(facet, nodes) for facet, nodes in self.groups if any(node.children for node in nodes)]
        return {"groups": drawn(deep), "facets": drawn(self.facets)}  # a flat group says what its facet says

    @cached_property
    def digest(self) -> str:
        """Names what the browser draws: who has drawn it once asks for no tree that looks the same."""
        return hashlib.sha256(json.dumps(self.as_json).encode()).hexdigest()[:16]


def shown_label(facet: str, label: str) -> str:
    """A label as it is shown: the source's own name, with ProbMed's underscores and abbreviations spelt out.

    >>> shown_label("image_type", "chest_xray"), shown_label("task", "Disease Diagnosis")
    ('chest X-ray', 'Disease Diagnosis')
    """
    if facet == "scenario":
        return SCENARIOS.get(label, label)
    if facet == "image_type":
        return " ".join(_spelt(part) for part in label.split("_"))
    return _spelt(label) if facet == "modality" else label


@cache
def _spelt(label: str) -> str:
    """A part of ProbMed's labels (`chest_xray`) as the vocabulary writes the modality that it names."""
    written = (term.concept for term in terms("modality") if re.sub(r"\W", "", term.concept).lower() == label)
    return next(written, label)


def branch_name(branch: TreePath) -> str:
    """A path as it is shown: its labels without the facet."""
    last = facet_of(branch) or ("modality" if len(branch) > 2 else branch[0])
    return SEPARATOR.join([*branch[1:-1], shown_label(last, branch[-1])])


def facets_in(family: str, path: TreePath) -> tuple[str, ...]:
    """The facets whose labels a path consists of."""
    if chosen := facet_of(path):
        return (chosen,)
    chain = next((chain for chain in chains_of(family) if chain[0] == path[0]), path[:1])
    return chain[: len(path) - 1]


def tree_of(family: str, questions: pd.DataFrame) -> Tree:
    """The tree over `questions` (columns of `questions_text`). A facet that no branch names adds no level to it."""
    rows: dict[TreePath, Ints] = {}
    groups: list[tuple[str, list[FacetNode]]] = []
    for chain in chains_of(family):
        found: dict[TreePath, Ints] = {}
        below: dict[TreePath, dict[str, int]] = {}
        for depth in range(1, len(chain) + 1):
            for labels, at in rows_by(questions, chain[:depth]).items():
                found[labels] = at
                below.setdefault(labels[:-1], {})[labels[-1]] = at.size
        nodes = _grow(below, chain, ())
        rows |= {(chain[0], *labels): found[labels] for labels in _paths(nodes)}
        if nodes:
            groups.append((chain[0], nodes))
    facets = []
    for facet in facets_of(family):
        held = {label: at for (label,), at in rows_by(questions, (facet,)).items()}
        if any(label != UNLABELLED for label in held):
            rows |= {choice(facet, label): at for label, at in held.items()}
            sizes = {label: at.size for label, at in held.items()}
            facets.append((facet, [FacetNode(label, facet, n) for label, n in _sorted(sizes)]))
    return Tree(groups, rows, len(questions), facets)


def rows_by(questions: pd.DataFrame, facets: Sequence[str]) -> dict[TreePath, Ints]:
    """Labels by some facets -> positions of the questions that have them all. A question with several categories is in each of them; one
    without a label is "unlabelled". None where the source gives none of a facet."""
    columns = ["categories" if facet == "category" else facet for facet in facets]
    if not set(columns) <= set(questions.columns):
        return {}
    held = questions[columns].reset_index(drop=True).astype(object)
    if "categories" in columns:
        held["categories"] = held["categories"].map(lambda cell: list(dict.fromkeys(cell if cell is not None else ())))
        held = held.explode("categories")
    held = held.where(held.notna(), UNLABELLED).astype(str)
    positions = held.index.to_numpy(np.int64)
    found = held.groupby(columns, sort=False).indices
    return {key if isinstance(key, tuple) else (key,): positions[at] for key, at in found.items()}


def facets_of(family: str) -> list[str]:
    """The facets of a benchmark, what its breakdown shows first before the others; the leaves of its tree are one, too."""
    leaves = [facet for chain in chains_of(family) for facet in chain]
    first = spec(family).first_facet
    return sorted(dict.fromkeys((*FACETS.get(family, ()), *leaves)), key=lambda facet: facet != first)


def published_tree(family: str, breakdowns: Sequence[dict[str, dict[str, Any]]]) -> Tree:
    """The tree of a section of which only published tables are known: the first facet of every chain, with what the tables count (n).

    ProbMed's image types are organ and modality at once, so that they make the branches of organs, too.
    """
    rows: dict[TreePath, Ints] = {}
    groups: list[tuple[str, list[FacetNode]]] = []
    for chain in chains_of(family):
        facet = chain[0]
        sizes = _printed_sizes(facet, breakdowns)
        nodes = [FacetNode(label, facet, size) for label, size in _sorted(sizes)]
        if not sizes and facet == "organ":
            nodes = _organs(_printed_sizes("image_type", breakdowns))
        for node in nodes:
            rows[(facet, node.label)] = np.zeros(0, np.int64)
            rows |= {(facet, node.label, child.label): np.zeros(0, np.int64) for child in node.children}
        if nodes:
            groups.append((facet, nodes))
    facets = []
    for facet in facets_of(family):
        if sizes := _printed_sizes(facet, breakdowns) or _halves(facet, _printed_sizes("image_type", breakdowns)):
            rows |= {choice(facet, label): np.zeros(0, np.int64) for label in sizes}
            facets.append((facet, [FacetNode(label, facet, n) for label, n in _sorted(sizes)]))
        elif facet == "modality":  # readers look for it: the page says that no paper prints it
            facets.append((facet, []))
    return Tree(groups, rows, 0, facets)


def _halves(facet: str, image_types: dict[str, int]) -> dict[str, int]:
    """Sizes of ProbMed's organs or modalities, from its image types."""
    at = {"organ": 0, "modality": 1}.get(facet)
    sizes: dict[str, int] = {}
    for name, size in image_types.items() if at is not None else ():
        label = organ_and_modality(name)[at or 0]
        sizes[label] = sizes.get(label, 0) + size
    return sizes


def _printed_sizes(facet: str, breakdowns: Sequence[dict[str, dict[str, Any]]]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for breakdown in breakdowns:
        for label, scores in breakdown.get(facet, {}).items():
            n = max((score.n for score in scores.values()), default=0)
            sizes[label] = max(sizes.get(label, 0), n)
    return sizes


def _organs(image_types: dict[str, int]) -> list[FacetNode]:
    found: dict[str, dict[str, int]] = {}
    for name, size in image_types.items():
        organ, modality = organ_and_modality(name)
        found.setdefault(organ, {})[modality] = size
    sizes = {organ: sum(held.values()) for organ, held in found.items()}
    return [
        FacetNode(organ, "organ", size, [FacetNode(name, "modality", n) for name, n in _sorted(found[organ])])
        for organ, size in _sorted(sizes)
    ]


def _grow(below: Mapping[TreePath, Mapping[str, int]], chain: Sequence[str], path: TreePath) -> list[FacetNode]:
    """The branches under a path. `below`: path -> its labels with how many questions each has."""
    sizes = below.get(path, {})
    if not any(label != UNLABELLED for label in sizes):
        return []
    return [FacetNode(label, chain[0], n, _grow(below, chain[1:], (*path, label))) for label, n in _sorted(sizes)]


def _paths(nodes: Sequence[FacetNode]) -> Iterator[TreePath]:
    """The labels that lead to each of some branches and those below them."""
    for node in nodes:
        yield (node.label,)
        yield from ((node.label, *rest) for rest in _paths(node.children))


def _sorted(sizes: Mapping[str, int]) -> list[tuple[str, int]]:
    """Largest first, then by name; what has no label comes last."""
    return sorted(sizes.items(), key=lambda item: (item[0] == UNLABELLED, -item[1], item[0].lower()))
