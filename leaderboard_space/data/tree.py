"""The labels a reader can select, with counts and question rows.

A selection is a list of paths: a label of a facet ("modality", "CT"), or a branch below one ("department", "Ophthalmology", "MRI").
Paths of one facet are united, those of different facets intersected (`lexical_tree.group_by_subject`).
See also: drawing (`assets/selection.js`), the same on the command line (`dataset_builders.lexical_tree`, `dataset_builders.facets`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import pandas as pd

from dataset_builders.benchmark_names import fold_name
from dataset_builders.benchmarks import FACETS_BY_BENCHMARK
from dataset_builders.errors import BadInput
from dataset_builders.facets import parse_facets
from dataset_builders.lexical_tree import (
    BoolArray,
    IntArray,
    TreePath,
    branch_positions,
    group_by_subject,
    largest_first_key,
    selection_mask,
)
from dataset_builders.terms import load_terms
from leaderboard_space.benchmarks import board_spec, branch_chains


def organ_and_modality(image_type: str) -> tuple[str, str]:
    """The two halves of a ProbMed image type; the source joins them by an underscore.

    >>> organ_and_modality("chest_xray")
    ('chest', 'xray')
    """
    organ, _, modality = image_type.partition("_" if "_" in image_type else " ")
    return organ, modality


def path_cells(path: TreePath, breakdown: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The cells (facet, facet value) of a result's breakdown that a path consists of; empty where the breakdown does not say.

    An organ or a modality of ProbMed is its image types, an organ's modality is one image type.
    """
    facet, labels = path[0], path[1:]
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


def selection_cells(selection: Sequence[TreePath], breakdown: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The cells of a result's breakdown that lie wholly within a selection: those of every group. Papers print by one facet at a time, so
    that of two facets together they say nothing, but for ProbMed's image types, which are organ and modality at once."""
    of_groups = [
        [cell for path in group for cell in path_cells(path, breakdown)] for group in group_by_subject(selection)
    ]
    first, *others = of_groups or [[]]
    return [cell for cell in dict.fromkeys(first) if all(cell in other for other in others)]


def filter_by_facets(table: pd.DataFrame, said: Sequence[str]) -> pd.DataFrame:
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
    named = parse_facets(said, labels)  # benchmarks spell a label in their own ways: CT, ct
    choices = [(facet, each) for facet, label in named for each in labels[facet] if fold_name(each) == fold_name(label)]
    wanted = {
        (facet, value)
        for facet, held in breakdown.items()
        for value in held
        if selection_cells(choices, {facet: {value: None}})
    }
    if not wanted:
        raise BadInput(
            f"--facet {' --facet '.join(said)}: no number for all of them together; results are broken down by one facet at a time."
        )
    return table[[pair in wanted for pair in zip(table["facet"], table["facet_value"], strict=True)]]


FACET_NAMES = {
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
SCENARIO_NAMES = {"none": "Correct option removed", "fake": "Nonsense question", "swap": "Wrong image"}
"""How HALT-MedVQA's scenarios are shown."""
PATH_SEPARATOR = " > "


@dataclass
class FacetNode:
    """A label: the facet it is a value of, how many questions it holds, and the branches below it."""

    label: str
    facet: str
    count: int
    children: list[FacetNode] = field(default_factory=list)

    def as_list(self) -> list[Any]:
        """Compact form for the browser: [label, count, [children]], and how the label is shown where that differs."""
        name = display_label(self.facet, self.label)
        return [
            self.label,
            self.count,
            [child.as_list() for child in self.children],
            *([name] if name != self.label else []),
        ]


@dataclass(frozen=True, eq=False)
class Tree:
    """The facets with their labels, and the branches below these; `rows` gives the question positions of every label and branch by its
    path, a label before what is below it."""

    facets: list[tuple[str, list[FacetNode]]]
    rows: dict[TreePath, IntArray]
    size: int

    def mask(self, selection: Sequence[TreePath]) -> BoolArray | None:
        """The selected questions (Q,); None (everything) where nothing is selected."""
        return selection_mask(self.rows, selection, self.size) if selection else None

    def counts(self, selection: Sequence[TreePath]) -> dict[str, list[int]]:
        """Facet -> how many questions each of its labels and branches (in the order of `rows`) has within what is selected of the other
        facets; empty where only printed tables are known, which count one facet at a time."""
        found = {}
        for facet, (positions, begins) in self._positions.items():
            mask = selection_mask(self.rows, [path for path in selection if path[0] != facet], self.size)
            found[facet] = np.add.reduceat(mask[positions].astype(np.int64), begins).tolist()
        return found

    def is_unprinted(self, path: TreePath) -> bool:
        """True for a label of a facet that the benchmark has, and of whose labels nothing is known: no paper prints them."""
        return any(facet == path[0] and not nodes for facet, nodes in self.facets)

    @cached_property
    def _positions(self) -> dict[str, tuple[IntArray, IntArray]]:
        """Facet -> the questions of its paths, one path after the other, and where each begins."""
        found = {}
        for facet in dict(self.facets) if self.size else ():
            rows = [at for path, at in self.rows.items() if path[0] == facet]
            found[facet] = np.concatenate(rows), np.cumsum([0, *(at.size for at in rows[:-1])])
        return found

    @cached_property
    def as_json(self) -> list[dict[str, Any]]:
        """What the browser draws. `questions`: whether the counts are of questions; a paper's n may be of images."""
        return [
            {
                "facet": facet,
                "label": FACET_NAMES.get(facet, facet),
                "questions": self.size > 0,
                "nodes": [node.as_list() for node in nodes],
            }
            for facet, nodes in self.facets
        ]

    @cached_property
    def digest(self) -> str:
        """Cache key: the browser skips refetching an identical tree."""
        return hashlib.sha256(json.dumps(self.as_json).encode()).hexdigest()[:16]


def display_label(facet: str, label: str) -> str:
    """A label as it is shown: the source's own name, with ProbMed's underscores and abbreviations spelt out.

    >>> shown_label("image_type", "chest_xray"), shown_label("task", "Disease Diagnosis")
    ('chest X-ray', 'Disease Diagnosis')
    """
    if facet == "scenario":
        return SCENARIO_NAMES.get(label, label)
    if facet == "image_type":
        return " ".join(_modality_name(part) for part in label.split("_"))
    return _modality_name(label) if facet == "modality" else label


@cache
def _modality_name(label: str) -> str:
    """A part of ProbMed's labels (`chest_xray`) as the vocabulary writes the modality that it names."""
    written = (term.concept for term in load_terms("modality") if re.sub(r"\W", "", term.concept).lower() == label)
    return next(written, label)


def branch_name(branch: TreePath) -> str:
    """A path as it is shown: its labels without the facet."""
    last = "modality" if len(branch) > 2 else branch[0]
    return PATH_SEPARATOR.join([*branch[1:-1], display_label(last, branch[-1])])


def selection_group_names(selection: Sequence[TreePath]) -> list[str]:
    """What each group of a selection is called: "CT or MRI"."""
    return [" or ".join(map(branch_name, group)) for group in group_by_subject(selection)]


def path_facets(family: str, path: TreePath) -> tuple[str, ...]:
    """The facets whose labels a path consists of."""
    return _facet_chain(family, path[0])[: len(path) - 1]


def _facet_chain(family: str, facet: str) -> tuple[str, ...]:
    """The facets of the branches under a facet's labels, itself first."""
    return next((chain for chain in branch_chains(family) if chain[0] == facet), (facet,))


def build_tree(family: str, questions: pd.DataFrame) -> Tree:
    """The tree over `questions` (columns of `questions_text`)."""
    rows: dict[TreePath, IntArray] = {}
    facets = []
    for facet in tree_facets(family):
        chain = _facet_chain(family, facet)
        if branches := branch_positions(questions, chain):
            rows |= branches
            facets.append((facet, _build_nodes(chain, {path: at.size for path, at in branches.items()})))
    return Tree(facets, rows, len(questions))


def tree_facets(family: str) -> list[str]:
    """The facets of a benchmark, what its breakdown shows first before the others; the leaves of its tree are one, too."""
    leaves = [facet for chain in branch_chains(family) for facet in chain]
    first = board_spec(family).first_facet
    return sorted(dict.fromkeys((*FACETS_BY_BENCHMARK.get(family, ()), *leaves)), key=lambda facet: facet != first)


def build_published_tree(family: str, breakdowns: Sequence[dict[str, dict[str, Any]]]) -> Tree:
    """The tree of a section of which only published tables are known: the labels of each facet, with what the tables count (n).

    ProbMed's image types are organ and modality at once, so that they are the labels and the branches of organs, too.
    """
    facets: list[tuple[str, list[FacetNode]]] = []
    rows: dict[TreePath, IntArray] = {}
    image_types = {organ_and_modality(name): n for name, n in _printed_sizes("image_type", breakdowns).items()}
    for facet in tree_facets(family):
        sizes: dict[TreePath, int] = {(facet, label): n for label, n in _printed_sizes(facet, breakdowns).items()}
        for halves, n in image_types.items() if not sizes and facet in ("organ", "modality") else ():
            label = halves[facet == "modality"]
            sizes[facet, label] = sizes.get((facet, label), 0) + n
            if facet == "organ":
                sizes[facet, *halves] = n
        if sizes or facet == "modality":  # readers look for a modality: the page says where no paper prints it
            facets.append((facet, _build_nodes(_facet_chain(family, facet), sizes)))
        rows |= dict.fromkeys(sizes, np.zeros(0, np.int64))
    return Tree(facets, rows, 0)


def _printed_sizes(facet: str, breakdowns: Sequence[dict[str, dict[str, Any]]]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for breakdown in breakdowns:
        for label, scores in breakdown.get(facet, {}).items():
            n = max((score.n for score in scores.values()), default=0)
            sizes[label] = max(sizes.get(label, 0), n)
    return sizes


def _build_nodes(chain: Sequence[str], sizes: Mapping[TreePath, int]) -> list[FacetNode]:
    """The nodes of a facet's labels and of the branches below them. `sizes`: path -> how many questions it holds."""
    nodes: dict[TreePath, FacetNode] = {(chain[0],): FacetNode("", chain[0], 0)}
    for path in sorted(sizes, key=len):
        nodes[path] = FacetNode(path[-1], chain[len(path) - 2], sizes[path])
        nodes[path[:-1]].children.append(nodes[path])
    for node in nodes.values():
        node.children.sort(key=lambda child: largest_first_key(child.label, child.count))
    return nodes[chain[0],].children
