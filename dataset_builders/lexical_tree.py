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

from dataset_builders.benchmark_names import folded, known_name
from dataset_builders.errors import BadInput
from dataset_builders.source_files import read_text

if TYPE_CHECKING:
    import pandas as pd

SUBJECTS = ("task", "department", "granularity")
SUBJECT_OF_ID = {"clinical-tasks": "task", "departments": "department", "granularities": "granularity"}
"""The ids of the three containers on the authors' page."""
COLUMNS = ("subject", "category", "modality", "keyword")
CHAINS = tuple((subject, "modality", "keyword") for subject in SUBJECTS)
"""The facets of each subject's branches from the trunk outwards. A branch that names no subject belongs to the first that has it."""
SEPARATOR = ">"
UNLABELLED = "unlabelled"
"""The label of a question that its source does not label."""

TreePath = tuple[str, ...]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

Row = tuple[str, str, str, str]


def read_tree(file: Path) -> tuple[list[Row], list[str]]:
    """The rows (subject, category, modality, keyword) of the official LexicalTree.html, in its order, and notes on its oddities.

    An entry without a name is kept with an empty text and reported. Raises BadInput if the page holds no such tree.
    """
    parser = _Page()
    parser.feed(read_text(file))
    if not parser.rows:
        raise BadInput(f"{file}: holds no lexical tree (lists below clinical-tasks, departments, granularities).")
    rows = parser.rows
    modalities, keywords = {row[2] for row in rows}, {row[3] for row in rows}
    notes = [
        f"Lexical tree: {len({row[:3] for row in rows})} lists, {len(modalities)} modalities (the paper says 39), "
        f"{len(keywords)} keywords, {len({row[2:] for row in rows})} (modality, keyword) paths."
    ]
    for subject in SUBJECTS:
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


def tree_page(rows: Iterable[Row], title: str) -> str:
    """A page of these rows in the layout of the authors' page, which `read_tree` reads."""
    trees: dict[str, dict[str, dict[str, set[str]]]] = {subject: {} for subject in SUBJECTS}
    for subject, category, modality, keyword in rows:
        trees[subject].setdefault(category, {}).setdefault(modality, set()).add(keyword)
    parts = [
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="UTF-8"><title>{html.escape(title)}</title></head>\n<body>'
    ]
    for container, subject in SUBJECT_OF_ID.items():
        parts.append(f'<div id="{container}" class="category-container"><ul class="category-list">')
        for category, modalities in sorted(trees[subject].items()):
            parts.append(f'<li><a href="#">{html.escape(category)}</a>\n<ul class="sub-category-list">')
            for modality, keywords in sorted(modalities.items()):
                leaves = "".join(f"<li>{html.escape(keyword)}</li>" for keyword in sorted(keywords))
                parts.append(f'<li><a href="#">{html.escape(modality)}</a>\n<ul class="label-list">{leaves}</ul></li>')
            parts.append("</ul></li>")
        parts.append("</ul></div>")
    return "\n".join([*parts, "</body>", "</html>", ""])


class _Page(HTMLParser):
    """Reads the three nested lists of the page: a link names a category or a modality, a plain item is a keyword."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[Row] = []
        self.subject = self.text = ""
        self.lists = 0
        self.names = ["", ""]

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "div":
            self.subject = SUBJECT_OF_ID.get(dict(attributes).get("id") or "", self.subject)
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


def select(questions: pd.DataFrame, branches: Sequence[str], facets: Iterable[str] = ()) -> Bools:
    """Boolean mask (n_questions,) of the questions on some branches; no branches: all questions.

    A branch is steps from the trunk outwards, divided by ">": "Ophthalmology > Fundus Photography", "Fundus Photography",
    "Disease Diagnosis > CT > lung nodule". `branch_paths` says which paths it means, `mask_of` how they are joined. `facets`: what labels
    are chosen of besides (`check_apart`). Raises BadInput with near misses for a step that no question has, and for branches without a
    common question.
    """
    if not branches:
        return np.ones(len(questions), dtype=bool)
    rows = {path: at for chain in CHAINS for path, at in tree_rows(questions, chain).items()}
    if not rows:
        raise BadInput(
            "--branch: no question here has a task, department or granularity. --facet selects by other labels."
        )
    paths = [path for branch in branches for path in branch_paths(rows, CHAINS, branch, "--branch")]
    check_apart(paths, facets)
    mask = mask_of(rows, paths, len(questions))
    if not mask.any():
        raise BadInput(
            f"--branch {' --branch '.join(branches)}: no question lies on all of them (branches of different subjects narrow each "
            "other). Leave one of them out."
        )
    return mask


def branch_paths(
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
    steps = [_meant(step.strip(), labels, f"{option} {branch[:80]!r}", shown) for step in branch.split(SEPARATOR)]
    matches: dict[tuple[int, ...], list[TreePath]] = {}
    for path in on_chains:
        if depths := _depths(list(zip(levels[path[0]], path[1:], strict=False)), steps):
            matches.setdefault((*depths, list(levels).index(path[0])), []).append(path)
    if not matches:
        raise BadInput(
            f"{option} {branch[:80]!r}: no question lies on it, though each step is known. Shorten it; steps of different subjects "
            "are branches of their own."
        )
    return matches[min(matches)]


Label = tuple[str, str]
"""A facet and a label of it."""


def _meant(step: str, labels: Mapping[str, set[str]], option: str, shown: Callable[[str, str], str]) -> set[Label]:
    """The labels that a step of a branch can mean. `labels`: facet -> its labels. Raises BadInput where there is none."""
    if not step:
        raise BadInput(f'{option}: a step is empty. Write it like "Ophthalmology > Fundus Photography".')
    named, _, rest = (part.strip() for part in step.partition(":"))
    if rest and named.lower() in labels:
        labels, step = {named.lower(): labels[named.lower()]}, rest
    spellings = {
        (facet, label): (label, shown(facet, label)) for facet, held in labels.items() for label in sorted(held)
    }
    meant = {one for one, written in spellings.items() if folded(step) in map(folded, written)}
    if not meant:
        known_name(step, [label for _, label in spellings], f"{option}: the {' or '.join(labels)}")
    return meant


def _depths(labels: Sequence[Label], steps: Sequence[set[Label]]) -> tuple[int, ...]:
    """Where each step stands on a path, in order, the last at its end; empty if one is missing."""
    rest = enumerate(labels[:-1])  # a step is looked for behind the one before it
    depths = [next((at for at, label in rest if label in step), -1) for step in steps[:-1]]
    return () if -1 in depths or labels[-1] not in steps[-1] else (*depths, len(labels) - 1)


def check_apart(paths: Iterable[TreePath], facets: Iterable[str]) -> None:
    """Raise BadInput where labels of a facet are chosen besides branches of it: should the branches be united with them, or narrowed?"""
    if both := {path[0] for path in paths} & set(facets):
        subject = min(both)
        raise BadInput(
            f"{subject} is chosen by a branch and by a facet. Give its labels as branches: branches of one subject are united."
        )


def groups_of(selection: Iterable[TreePath]) -> list[list[TreePath]]:
    """The paths of each subject (or facet): a selection is the union of a group, and the intersection of the groups.

    >>> groups_of([("task", "A"), ("modality", "CT"), ("task", "B", "MRI")])
    [[('task', 'A'), ('task', 'B', 'MRI')], [('modality', 'CT')]]
    """
    groups: dict[str, list[TreePath]] = {}
    for path in selection:
        groups.setdefault(path[0], []).append(path)
    return list(groups.values())


def mask_of(rows: Mapping[TreePath, Ints], selection: Iterable[TreePath], size: int) -> Bools:
    """The selected ones (size,) of `size` questions. `rows`: path -> positions of the questions on it."""
    mask = np.ones(size, dtype=bool)
    for group in groups_of(selection):
        united = np.zeros(size, dtype=bool)
        for path in group:
            united[rows.get(path, [])] = True
        mask &= united
    return mask


def tree_rows(questions: pd.DataFrame, chain: Sequence[str]) -> dict[TreePath, Ints]:
    """Path -> positions of the questions on it, for all branches of a chain of facets; a branch before those on it, the largest first.
    Where a level has no label at all, it and what is below it is left out."""
    below: dict[TreePath, dict[str, Ints]] = {}
    for depth in range(1, len(chain) + 1):
        for labels, at in rows_by(questions, chain[:depth]).items():
            below.setdefault((chain[0], *labels[:-1]), {})[labels[-1]] = at

    def grown(path: TreePath) -> Iterator[tuple[TreePath, Ints]]:
        branches = below.get(path, {})
        if not set(branches) - {UNLABELLED}:
            return
        for label in sorted(branches, key=lambda label: size_order(label, branches[label].size)):
            yield (*path, label), branches[label]
            yield from grown((*path, label))

    return dict(grown((chain[0],)))


def size_order(label: str, n: int) -> tuple[bool, int, str]:
    """Sort key of labels: the largest first, then by name; what has no label comes last."""
    return (label == UNLABELLED, -n, label.lower())


def rows_by(questions: pd.DataFrame, facets: Sequence[str]) -> dict[TreePath, Ints]:
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
