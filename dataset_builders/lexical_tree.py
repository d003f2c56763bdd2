"""Read the authors' lexical tree (subject -> category -> modality -> keyword), and select questions by branches of it.

A subject is one of task, department, granularity; a category one of its values. A branch is a path: its subject, then labels from the
trunk outwards, ("department", "Ophthalmology", "Fundus Photography"). Branches of one subject are united, those of different subjects
are intersected. This is ours, after appendix C.2 of GMAI-MMBench ("we can intersect the keywords"): the paper then fetches questions by
keyword, and here the questions themselves are taken.

The board's trees and facets are paths of the same kind (`leaderboard_space/data/tree.py`) and use these functions.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dataset_builders.benchmark_names import normalize_name, resolve_name
from dataset_builders.errors import BadInput
from dataset_builders.source_files import read_text

if TYPE_CHECKING:
    import pandas as pd

TREE_SUBJECTS = ("task", "department", "granularity")
SUBJECT_BY_CONTAINER = {"clinical-tasks": "task", "departments": "department", "granularities": "granularity"}
"""The ids of the three containers on the authors' page."""
TREE_ROW_FIELDS = ("subject", "category", "modality", "keyword")
FACET_CHAINS = tuple((subject, "modality", "keyword") for subject in TREE_SUBJECTS)
"""The facets of each subject's branches from the trunk outwards. A branch that names no subject belongs to the first that has it."""
STEP_SEPARATOR = ">"
UNLABELLED = "unlabelled"
"""The label of a question that its source does not label."""

TreePath = tuple[str, ...]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

TreeRow = tuple[str, str, str, str]


def read_tree(file: Path) -> tuple[list[TreeRow], list[str]]:
    """The rows (subject, category, modality, keyword) of the official LexicalTree.html, in its order, and notes on its oddities.

    An entry without a name is kept with an empty text and reported. Raises BadInput if the page holds no such tree.
    """
    parser = _TreePageParser()
    parser.feed(read_text(file))
    if not parser.rows:
        raise BadInput(f"{file}: holds no lexical tree (lists below clinical-tasks, departments, granularities).")
    rows = parser.rows
    modalities, keywords = {row[2] for row in rows}, {row[3] for row in rows}
    notes = [
        f"Lexical tree: {len({row[:3] for row in rows})} lists, {len(modalities)} modalities (the paper says 39), "
        f"{len(keywords)} keywords, {len({row[2:] for row in rows})} (modality, keyword) paths."
    ]
    for subject in TREE_SUBJECTS:
        nameless = [row for row in rows if row[0] == subject and not row[1]]
        if nameless:
            notes.append(
                f"Lexical tree: one {subject} has no name; it holds {len(nameless)} keywords "
                f"({', '.join(sorted({row[2] for row in nameless}))}) and is kept with an empty name."
            )
    repeated = len(rows) - len(set(rows))
    if repeated:
        notes.append(f"Lexical tree: {repeated} keywords stand twice in the same list.")
    return rows, notes


def render_tree_page(rows: Iterable[TreeRow], title: str) -> str:
    """A page of these rows in the layout of the authors' page, which `read_tree` reads."""
    trees: dict[str, dict[str, dict[str, set[str]]]] = {subject: {} for subject in TREE_SUBJECTS}
    for subject, category, modality, keyword in rows:
        trees[subject].setdefault(category, {}).setdefault(modality, set()).add(keyword)
    parts = [
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="UTF-8"><title>{html.escape(title)}</title></head>\n<body>'
    ]
    for container, subject in SUBJECT_BY_CONTAINER.items():
        parts.append(f'<div id="{container}" class="category-container"><ul class="category-list">')
        for category, modalities in sorted(trees[subject].items()):
            parts.append(f'<li><a href="#">{html.escape(category)}</a>\n<ul class="sub-category-list">')
            for modality, keywords in sorted(modalities.items()):
                leaves = "".join(f"<li>{html.escape(keyword)}</li>" for keyword in sorted(keywords))
                parts.append(f'<li><a href="#">{html.escape(modality)}</a>\n<ul class="label-list">{leaves}</ul></li>')
            parts.append("</ul></li>")
        parts.append("</ul></div>")
    return "\n".join([*parts, "</body>", "</html>", ""])


class _TreePageParser(HTMLParser):
    """Reads the three nested lists of the page: a link names a category or a modality, a plain item is a keyword."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[TreeRow] = []
        self.subject = self.text = ""
        self.lists = 0
        self.names = ["", ""]

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "div":
            self.subject = SUBJECT_BY_CONTAINER.get(dict(attributes).get("id") or "", self.subject)
        elif tag == "ul":
            self.lists += bool(self.subject)
        elif tag in ("a", "li"):
            self.text = ""

    def handle_endtag(self, tag: str) -> None:
        text = " ".join(self.text.split())
        if tag == "ul":
            self.lists -= bool(self.subject)
        elif tag == "a" and 1 <= self.lists <= 2:
            self.names[self.lists - 1] = text
        elif tag == "li" and self.lists == 3:
            self.rows.append((self.subject, self.names[0], self.names[1], text))

    def handle_data(self, data: str) -> None:
        self.text += data


def select_by_branches(questions: pd.DataFrame, branches: Sequence[str], facets: Iterable[str] = ()) -> BoolArray:
    """Boolean mask (n_questions,) of the questions on some branches; no branches: all questions.

    A branch is steps from the trunk outwards, divided by ">": "Ophthalmology > Fundus Photography", "Fundus Photography",
    "Disease Diagnosis > CT > lung nodule". `resolve_branch` says which paths it means, `selection_mask` how they are joined. `facets`: what
    labels are chosen of besides (`check_facet_conflicts`).
    Raises BadInput with near misses for a step that no question has, and for branches without a common question.
    """
    if not branches:
        return np.ones(len(questions), dtype=bool)
    rows = {path: at for chain in FACET_CHAINS for path, at in branch_positions(questions, chain).items()}
    if not rows:
        raise BadInput(
            "--branch: no question here has a task, department or granularity. --facet selects by other labels."
        )
    paths = [path for branch in branches for path in resolve_branch(rows, FACET_CHAINS, branch, "--branch")]
    check_facet_conflicts(paths, facets)
    mask = selection_mask(rows, paths, len(questions))
    if not mask.any():
        raise BadInput(
            f"--branch {' --branch '.join(branches)}: no question lies on all of them (branches of different subjects narrow each "
            "other). Leave one of them out."
        )
    return mask


def resolve_branch(
    paths: Iterable[TreePath],
    chains: Sequence[Sequence[str]],
    branch: str,
    option: str = "branch",
    shown: Callable[[str, str], str] = lambda facet, label: label,
) -> list[TreePath]:
    """The paths that a branch means: those that end in its last step and have the others before it, in this order.

    Args:
        paths: the paths of a tree.
        chains: the facets of each of its subjects from the trunk outwards.
        branch: steps divided by ">", in any case of letters. A step is a label, or `facet: label` where a label is several things.
        option: what messages call the branch.
        shown: how a label of a facet is shown, which is understood as well as the label itself.

    Returns:
        Paths of one subject. Where a name is several things, what stands nearer to the trunk is meant, then the earlier subject.

    Raises:
        BadInput: no path has such steps; with near misses for an unknown one.
    """
    levels = {chain[0]: chain for chain in chains}
    on_chains = [path for path in paths if path[0] in levels]
    labels: dict[str, set[str]] = {}
    for path in on_chains:
        labels.setdefault(levels[path[0]][len(path) - 2], set()).add(path[-1])
    steps = [
        _match_step(step.strip(), labels, f"{option} {branch[:80]!r}", shown) for step in branch.split(STEP_SEPARATOR)
    ]
    matches: dict[tuple[int, ...], list[TreePath]] = {}
    for path in on_chains:
        if depths := _step_depths(list(zip(levels[path[0]], path[1:], strict=False)), steps):
            matches.setdefault((*depths, list(levels).index(path[0])), []).append(path)
    if not matches:
        raise BadInput(
            f"{option} {branch[:80]!r}: no question lies on it, though each step is known. Shorten it; steps of different subjects "
            "are branches of their own."
        )
    return matches[min(matches)]


FacetLabel = tuple[str, str]
"""A facet and a label of it."""


def _match_step(
    step: str, labels: Mapping[str, set[str]], option: str, shown: Callable[[str, str], str]
) -> set[FacetLabel]:
    """The labels that a step of a branch can mean. `labels`: facet -> its labels. Raises BadInput where there is none."""
    if not step:
        raise BadInput(f'{option}: a step is empty. Write it like "Ophthalmology > Fundus Photography".')
    named, _, rest = (part.strip() for part in step.partition(":"))
    if rest and named.lower() in labels:
        labels, step = {named.lower(): labels[named.lower()]}, rest
    spellings = {
        (facet, label): (label, shown(facet, label)) for facet, held in labels.items() for label in sorted(held)
    }
    meant = {one for one, written in spellings.items() if normalize_name(step) in map(normalize_name, written)}
    if not meant:
        resolve_name(step, [label for _, label in spellings], f"{option}: the {' or '.join(labels)}")
    return meant


def _step_depths(labels: Sequence[FacetLabel], steps: Sequence[set[FacetLabel]]) -> tuple[int, ...]:
    """Where each step stands on a path, in order, the last at its end; empty if one is missing."""
    rest = enumerate(labels[:-1])  # a step is looked for behind the one before it
    depths = [next((at for at, label in rest if label in step), -1) for step in steps[:-1]]
    return () if -1 in depths or labels[-1] not in steps[-1] else (*depths, len(labels) - 1)


def check_facet_conflicts(paths: Iterable[TreePath], facets: Iterable[str]) -> None:
    """Raise BadInput where labels of a facet are chosen besides branches of it: should the branches be united with them, or narrowed?"""
    if both := {path[0] for path in paths} & set(facets):
        subject = min(both)
        raise BadInput(
            f"{subject} is chosen by a branch and by a facet. Give its labels as branches: branches of one subject are united."
        )


def group_by_subject(selection: Iterable[TreePath]) -> list[list[TreePath]]:
    """The paths of each subject (or facet): a selection is the union of a group, and the intersection of the groups.

    >>> group_by_subject([("task", "A"), ("modality", "CT"), ("task", "B", "MRI")])
    [[('task', 'A'), ('task', 'B', 'MRI')], [('modality', 'CT')]]
    """
    groups: dict[str, list[TreePath]] = {}
    for path in selection:
        groups.setdefault(path[0], []).append(path)
    return list(groups.values())


def selection_mask(rows: Mapping[TreePath, IntArray], selection: Iterable[TreePath], size: int) -> BoolArray:
    """The selected ones (size,) of `size` questions. `rows`: path -> positions of the questions on it."""
    mask = np.ones(size, dtype=bool)
    for group in group_by_subject(selection):
        united = np.zeros(size, dtype=bool)
        for path in group:
            united[rows.get(path, [])] = True
        mask &= united
    return mask


def branch_positions(questions: pd.DataFrame, chain: Sequence[str]) -> dict[TreePath, IntArray]:
    """Path -> positions of the questions on it, for all branches of a chain of facets; a branch before those on it, the largest first.
    Where a level has no label at all, it and what is below it is left out."""
    below: dict[TreePath, dict[str, IntArray]] = {}
    for depth in range(1, len(chain) + 1):
        for labels, at in positions_by_labels(questions, chain[:depth]).items():
            below.setdefault((chain[0], *labels[:-1]), {})[labels[-1]] = at

    def grown(path: TreePath) -> Iterator[tuple[TreePath, IntArray]]:
        branches = below.get(path, {})
        if not set(branches) - {UNLABELLED}:
            return
        for label in sorted(branches, key=lambda label: largest_first_key(label, branches[label].size)):
            yield (*path, label), branches[label]
            yield from grown((*path, label))

    return dict(grown((chain[0],)))


def largest_first_key(label: str, n: int) -> tuple[bool, int, str]:
    """Sort key of labels: the largest first, then by name; what has no label comes last."""
    return (label == UNLABELLED, -n, label.lower())


def positions_by_labels(questions: pd.DataFrame, facets: Sequence[str]) -> dict[TreePath, IntArray]:
    """Labels by some facets -> positions of the questions that have them all. A question with several categories is in each of them; one
    without a label is "unlabelled". None where the source gives none of a facet."""
    columns = ["categories" if facet == "category" else facet for facet in facets]
    if not set(columns) <= set(questions.columns):
        return {}
    labels = questions[columns].reset_index(drop=True).astype(object)
    if "categories" in columns:
        labels["categories"] = labels["categories"].map(
            lambda cell: list(dict.fromkeys(cell if cell is not None else ()))
        )
        labels = labels.explode("categories")
    labels = labels.replace("", None).where(lambda table: table.notna(), UNLABELLED).astype(str)
    positions = labels.index.to_numpy(np.int64)
    groups = labels.groupby(columns, sort=False).indices
    return {key if isinstance(key, tuple) else (key,): positions[at] for key, at in groups.items()}
