"""The branches a reader can select: a tree over the facets that a benchmark's source really gives, with counts and question rows.

See also: drawing (`assets/board.js`), the parsing of branch expressions of the command line (`dataset_builders.lexical_tree`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from leaderboard_space.benchmarks import chains_of
from leaderboard_space.data.ranking import Bools, Ints

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
    "source_dataset": "Source",
}
UNLABELLED = "unlabelled"
SPELT = {"xray": "X-ray", "ct": "CT", "mri": "MRI"}
"""How parts of ProbMed's labels (`chest_xray`) are shown."""
SEPARATOR = " > "
Path = tuple[str, ...]


@dataclass
class Node:
    """A branch: its label, the facet it is a value of, how many questions it holds, and its own branches."""

    label: str
    facet: str
    count: int
    children: list[Node] = field(default_factory=list)

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
    """Groups of branches; `rows` gives the question positions of every branch by its path (facet, label, label, ...)."""

    groups: list[tuple[str, list[Node]]]
    rows: dict[Path, Ints]
    size: int

    def mask(self, branches: Sequence[Path]) -> Bools | None:
        """The questions (Q,) in the union of the branches; None (everything) for no branches.

        Raises BadInput for a branch that is not there.
        """
        if not branches:
            return None
        selected = np.zeros(self.size, dtype=bool)
        for branch in branches:
            if branch not in self.rows:
                raise BadInput(f"branch {SEPARATOR.join(branch[1:])!r}: not in this set of questions.")
            selected[self.rows[branch]] = True
        return selected

    def as_json(self) -> list[dict[str, Any]]:
        """What the browser draws. `questions`: whether the counts are of questions; a paper's n may be of images."""
        return [
            {
                "facet": facet,
                "label": FACET_LABEL.get(facet, facet),
                "questions": self.size > 0,
                "nodes": [node.as_list() for node in nodes],
            }
            for facet, nodes in self.groups
        ]


def shown_label(facet: str, label: str) -> str:
    """A label as it is shown: the source's own name, with ProbMed's underscores and abbreviations spelt out.

    >>> shown_label("image_type", "chest_xray"), shown_label("task", "Disease Diagnosis")
    ('chest X-ray', 'Disease Diagnosis')
    """
    if facet == "image_type":
        return " ".join(SPELT.get(part, part) for part in label.split("_"))
    return SPELT.get(label, label) if facet == "modality" else label


def branch_name(branch: Path) -> str:
    """A branch as it is shown: its labels without the facet."""
    last = "modality" if len(branch) > 2 else branch[0]
    return SEPARATOR.join([*branch[1:-1], shown_label(last, branch[-1])])


def organ_and_modality(image_type: str) -> tuple[str, str]:
    """The two halves of a ProbMed image type; the source joins them by an underscore.

    >>> organ_and_modality("chest_xray")
    ('chest', 'xray')
    """
    organ, _, modality = image_type.partition("_" if "_" in image_type else " ")
    return organ, modality


def cells_under(branch: Path, breakdown: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The cells (facet, facet value) of a result's breakdown that a branch consists of; empty where the breakdown does not say.

    An organ of ProbMed is its image types, an organ's modality is one image type.
    """
    if len(branch) == 2 and branch[1] in breakdown.get(branch[0], {}):
        return [(branch[0], branch[1])]
    if branch[0] != "organ":
        return []
    wanted = branch[1:]
    return [
        ("image_type", name)
        for name in breakdown.get("image_type", {})
        if organ_and_modality(name)[: len(wanted)] == wanted
    ]


def tree_of(format: str, questions: pd.DataFrame) -> Tree:
    """The tree over `questions` (columns of `questions_text`). A facet nobody gave in a branch adds no level to it."""
    rows: dict[Path, Ints] = {}
    groups: list[tuple[str, list[Node]]] = []
    for chain in chains_of(format):
        nodes = _grow(chain, questions, np.arange(len(questions)), (chain[0],), rows)
        if nodes:
            groups.append((chain[0], nodes))
    return Tree(groups, rows, len(questions))


def published_tree(format: str, breakdowns: Sequence[dict[str, dict[str, Any]]]) -> Tree:
    """The tree of a section of which only published tables are known: the first facet of every chain, with what the tables count (n).

    ProbMed's image types are organ and modality at once, so that they make the branches of organs, too.
    """
    rows: dict[Path, Ints] = {}
    groups: list[tuple[str, list[Node]]] = []
    for chain in chains_of(format):
        facet = chain[0]
        sizes = _printed_sizes(facet, breakdowns)
        nodes = [Node(label, facet, size) for label, size in _sorted(sizes)]
        if not sizes and facet == "organ":
            nodes = _organs(_printed_sizes("image_type", breakdowns))
        for node in nodes:
            rows[(facet, node.label)] = np.zeros(0, np.int64)
            rows |= {(facet, node.label, child.label): np.zeros(0, np.int64) for child in node.children}
        if nodes:
            groups.append((facet, nodes))
    return Tree(groups, rows, 0)


def _printed_sizes(facet: str, breakdowns: Sequence[dict[str, dict[str, Any]]]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for breakdown in breakdowns:
        for label, scores in breakdown.get(facet, {}).items():
            n = max((score.n for score in scores.values()), default=0)
            sizes[label] = max(sizes.get(label, 0), n)
    return sizes


def _organs(image_types: dict[str, int]) -> list[Node]:
    found: dict[str, dict[str, int]] = {}
    for name, size in image_types.items():
        organ, modality = organ_and_modality(name)
        found.setdefault(organ, {})[modality] = size
    sizes = {organ: sum(held.values()) for organ, held in found.items()}
    return [
        Node(organ, "organ", size, [Node(name, "modality", n) for name, n in _sorted(found[organ])])
        for organ, size in _sorted(sizes)
    ]


def _grow(
    chain: tuple[str, ...], questions: pd.DataFrame, held: Ints, path: Path, rows: dict[Path, Ints]
) -> list[Node]:
    values = values_of(questions, chain[0], held)
    if not any(label != UNLABELLED for label in values):
        return []
    nodes = []
    for label, count in _sorted({label: len(found) for label, found in values.items()}):
        here = (*path, label)
        rows[here] = values[label]
        children = _grow(chain[1:], questions, values[label], here, rows) if len(chain) > 1 else []
        nodes.append(Node(label, chain[0], count, children))
    return nodes


def values_of(questions: pd.DataFrame, facet: str, held: Ints) -> dict[str, Ints]:
    """Label -> positions. A question with several categories is in each of them; one without is "unlabelled"."""
    column = "categories" if facet == "category" else facet
    if column not in questions.columns or not held.size:
        return {}
    cells = questions[column].iloc[held]
    if facet == "category":
        cells = pd.Series([list(dict.fromkeys(cell)) or [None] if cell is not None else [None] for cell in cells])
        cells = cells.explode()
        position = held[cells.index.to_numpy()]
    else:
        position = held
    labels = cells.where(cells.notna(), UNLABELLED).astype(str).to_numpy()
    codes, names = pd.factorize(labels)
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(names) + 1))
    return {str(name): position[order[bounds[i] : bounds[i + 1]]].astype(np.int64) for i, name in enumerate(names)}


def _sorted(sizes: dict[str, int]) -> list[tuple[str, int]]:
    """Largest first, then by name; what has no label comes last."""
    return sorted(sizes.items(), key=lambda item: (item[0] == UNLABELLED, -item[1], item[0].lower()))
