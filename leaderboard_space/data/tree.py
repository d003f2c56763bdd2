"""The labels that visitors can select, with counts and question positions.

A selection is a list of paths: a facet's label ("modality", "CT"), or a branch below one
("department", "Ophthalmology", "MRI"). Paths of one facet are united, those of different facets
intersected (`facets.group_by_subject`). See also: drawing (`assets/selection.js`), selecting
on the command line (`dataset_builders.facets`).
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import pandas as pd

from dataset_builders.benchmark_names import fold_name
from dataset_builders.benchmarks import facets_of
from dataset_builders.errors import BadInput
from dataset_builders.facets import (
    BoolArray,
    IntArray,
    TreePath,
    branch_positions,
    group_by_subject,
    largest_first_key,
    parse_facets,
    selection_mask,
)
from dataset_builders.terms import load_terms
from leaderboard_space.benchmarks import board_spec, branch_chains


def organ_and_modality(image_type: str) -> tuple[str, str]:
    """Split a ProbMed image type into organ and modality; the source joins them by an underscore.

    >>> organ_and_modality("chest_xray")
    ('chest', 'xray')
    """
    organ, _, modality = image_type.partition("_" if "_" in image_type else " ")
    return organ, modality


def path_cells(path: TreePath, breakdown: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """List the breakdown cells that make up a path.

    An organ or modality of ProbMed consists of its image types; an organ's modality is a single
    image type.

    Args:
        path: The path.
        breakdown: A result's breakdown: facet -> value -> scores.

    Returns:
        (facet, value) cells; empty if the breakdown does not have them.
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
    """List the breakdown cells that lie entirely within a selection.

    Papers print by one facet at a time, so selections of two facets have no cells, except ProbMed's
    image types, which combine organ and modality.

    Args:
        selection: The selected paths.
        breakdown: A result's breakdown: facet -> value -> scores.

    Returns:
        (facet, value) cells that every group of the selection contains.
    """
    of_groups = [
        [cell for path in group for cell in path_cells(path, breakdown)] for group in group_by_subject(selection)
    ]
    group_cells, *other_groups = of_groups or [[]]
    return [cell for cell in dict.fromkeys(group_cells) if all(cell in cells for cells in other_groups)]


def filter_by_facets(table: pd.DataFrame, filters: Sequence[str]) -> pd.DataFrame:
    """Filter a table of results by facet labels.

    Args:
        table: Results with the columns `facet` and `facet_value`.
        filters: Labels as FACET=VALUE.

    Returns:
        The rows with numbers for all of these labels.

    Raises:
        BadInput: If a facet or label is unknown, or no row has all labels: papers print by one
            facet at a time.
    """
    if not filters:
        return table
    pairs = list(table[["facet", "facet_value"]].dropna().drop_duplicates().itertuples(index=False, name=None))
    labels: dict[str, dict[str, None]] = {}
    for facet, value in pairs:
        labels.setdefault(facet, {})[value] = None
        if facet == "image_type":
            for half, label in zip(("organ", "modality"), organ_and_modality(value), strict=True):
                labels.setdefault(half, {})[label] = None
    chosen_labels = parse_facets(filters, labels)  # benchmarks spell a label in their own ways: CT, ct
    choices = [
        (facet, spelling)
        for facet, label in chosen_labels
        for spelling in labels[facet]
        if fold_name(spelling) == fold_name(label)
    ]
    kept_cells = {(facet, value) for facet, value in pairs if selection_cells(choices, {facet: {value: {}}})}
    if not kept_cells:
        raise BadInput(
            f"--facet {' --facet '.join(filters)}: no number for all of them together; results are broken down by one facet at a time."
        )
    return table[[pair in kept_cells for pair in zip(table["facet"], table["facet_value"], strict=True)]]


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
"""HALT-MedVQA scenario -> display name."""
PATH_SEPARATOR = " > "


@dataclass
class FacetNode:
    """A label with its facet, number of questions, and the branches below it."""

    label: str
    facet: str
    count: int
    children: "list[FacetNode]" = field(default_factory=list)

    def as_list(self) -> list[Any]:
        """Return the node for the browser: [label, count, [children]], plus the display name if it
        differs.
        """
        name = display_label(self.facet, self.label)
        return [
            self.label,
            self.count,
            [child.as_list() for child in self.children],
            *([name] if name != self.label else []),
        ]


@dataclass(frozen=True, eq=False)
class Tree:
    """The facets with their labels and branches.

    `rows`: path -> question positions, parents before children.
    """

    facets: list[tuple[str, list[FacetNode]]]
    rows: dict[TreePath, IntArray]
    size: int

    def mask(self, selection: Sequence[TreePath]) -> BoolArray | None:
        """Return the (Q,) mask of the selected questions; None without a selection (all
        questions).
        """
        return selection_mask(self.rows, selection, self.size) if selection else None

    def counts(self, selection: Sequence[TreePath]) -> dict[str, list[int]]:
        """Count the questions of every path that match the selection in the other facets.

        Args:
            selection: The selected paths.

        Returns:
            Facet -> counts in the order of `rows`; empty if only printed tables are known.
        """
        counts = {}
        for facet, (positions, begins) in self._positions.items():
            mask = selection_mask(self.rows, [path for path in selection if path[0] != facet], self.size)
            # One pass over the concatenated positions counts all paths of the facet.
            counts[facet] = np.add.reduceat(mask[positions].astype(np.int64), begins).tolist()
        return counts

    def is_unprinted(self, path: TreePath) -> bool:
        """Return True if the path's facet is offered although no paper prints scores by it."""
        return any(facet == path[0] and not nodes for facet, nodes in self.facets)

    @cached_property
    def _positions(self) -> dict[str, tuple[IntArray, IntArray]]:
        """Facet -> concatenated question positions of its paths, and the start of each path."""
        positions = {}
        for facet in dict(self.facets) if self.size else ():
            rows = [at for path, at in self.rows.items() if path[0] == facet]
            positions[facet] = np.concatenate(rows), np.cumsum([0, *(at.size for at in rows[:-1])])
        return positions

    @cached_property
    def as_json(self) -> list[dict[str, Any]]:
        """The tree for the browser.

        `questions`: False if the counts are a paper's n, possibly of images.
        """
        return [
            {
                "facet": facet,
                "label": facet_title(facet),
                "questions": self.size > 0,
                "nodes": [node.as_list() for node in nodes],
            }
            for facet, nodes in self.facets
        ]

    @cached_property
    def digest(self) -> str:
        """Cache key: the browser skips refetching an identical tree."""
        return hashlib.sha256(json.dumps(self.as_json).encode()).hexdigest()[:16]


def facet_title(facet: str) -> str:
    """Return a facet's display name; that of a set's own facet is its column's name."""
    return FACET_NAMES.get(facet) or facet.replace("_", " ").capitalize()


def display_label(facet: str, label: str) -> str:
    """Return a label's display name: the source's own, with ProbMed's underscores and abbreviations
    spelt out.

    >>> display_label("image_type", "chest_xray"), display_label("task", "Disease Diagnosis")
    ('chest X-ray', 'Disease Diagnosis')
    """
    if facet == "scenario":
        return SCENARIO_NAMES.get(label, label)
    if facet == "image_type":
        return " ".join(_modality_name(part) for part in label.split("_"))
    return _modality_name(label) if facet == "modality" else label


@cache
def _modality_name(label: str) -> str:
    """Return the vocabulary's spelling of a modality in a ProbMed label: X-ray for `xray`."""
    written = (term.concept for term in load_terms("modality") if re.sub(r"\W", "", term.concept).lower() == label)
    return next(written, label)


def branch_name(branch: TreePath) -> str:
    """Return a path's display name: its labels without the facet."""
    leaf_facet = "modality" if len(branch) > 2 else branch[0]
    return PATH_SEPARATOR.join([*branch[1:-1], display_label(leaf_facet, branch[-1])])


def selection_group_names(selection: Sequence[TreePath]) -> list[str]:
    """Name each group of a selection: "CT or MRI"."""
    return [" or ".join(map(branch_name, group)) for group in group_by_subject(selection)]


def path_facets(family: str, path: TreePath) -> tuple[str, ...]:
    """Return the facets of a path's labels."""
    return _facet_chain(family, path[0])[: len(path) - 1]


def _facet_chain(family: str, facet: str) -> tuple[str, ...]:
    """Return the facets along the branches of a facet, from the facet itself to the leaves."""
    return next((chain for chain in branch_chains(family) if chain[0] == facet), (facet,))


def build_tree(family: str, questions: pd.DataFrame) -> Tree:
    """Build the tree of a benchmark's questions (columns of `questions_text`)."""
    rows: dict[TreePath, IntArray] = {}
    facets = []
    for facet in tree_facets(family, questions.columns):
        chain = _facet_chain(family, facet)
        if branches := branch_positions(questions, chain):
            rows |= branches
            facets.append((facet, _build_nodes(chain, {path: at.size for path, at in branches.items()})))
    return Tree(facets, rows, len(questions))


def tree_facets(family: str, columns: Iterable[str] = ()) -> list[str]:
    """List the facets of a set, including those of its tree's leaves; the breakdown's default
    first.

    Args:
        family: The benchmark.
        columns: Columns of the set's questions.
    """
    leaves = [facet for chain in branch_chains(family) for facet in chain]
    first_facet = board_spec(family).first_facet
    return sorted(dict.fromkeys((*facets_of(family, columns), *leaves)), key=lambda facet: facet != first_facet)


def build_published_tree(family: str, breakdowns: Sequence[dict[str, dict[str, Any]]]) -> Tree:
    """Build the tree of a section that has published tables only.

    ProbMed's image types combine organ and modality, so they also provide the labels and branches
    of organs.

    Args:
        family: The benchmark.
        breakdowns: The breakdowns of its results. A label's count is the largest n printed for it.
    """
    facets: list[tuple[str, list[FacetNode]]] = []
    rows: dict[TreePath, IntArray] = {}
    image_types = {organ_and_modality(name): n for name, n in _printed_sizes("image_type", breakdowns).items()}
    for facet in tree_facets(family):
        sizes: dict[TreePath, int] = {(facet, label): n for label, n in _printed_sizes(facet, breakdowns).items()}
        # Organ and modality are derived from image types if the paper prints neither.
        for halves, n in image_types.items() if not sizes and facet in ("organ", "modality") else ():
            label = halves[facet == "modality"]
            sizes[facet, label] = sizes.get((facet, label), 0) + n
            if facet == "organ":
                sizes[facet, *halves] = n
        # Visitors look for modalities, so that facet is listed even if no paper prints scores by
        # it.
        if sizes or facet == "modality":
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
    """Build the nodes of a facet's labels and branches. `sizes`: path -> number of questions."""
    # Shorter paths first, so that a parent exists before its children.
    nodes: dict[TreePath, FacetNode] = {(chain[0],): FacetNode("", chain[0], 0)}
    for path in sorted(sizes, key=len):
        nodes[path] = FacetNode(path[-1], chain[len(path) - 2], sizes[path])
        nodes[path[:-1]].children.append(nodes[path])
    for node in nodes.values():
        node.children.sort(key=lambda child: largest_first_key(child.label, child.count))
    return nodes[chain[0],].children
