"""Read the authors' lexical tree (subject -> category -> modality -> keyword), and select questions by branches of it.

A subject is one of task, department, granularity; a category one of its values.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dataset_builders.benchmark_names import folded, known_name
from dataset_builders.errors import BadInput
from dataset_builders.source_files import read_text

if TYPE_CHECKING:
    import pandas as pd

SUBJECTS = ("task", "department", "granularity")
SUBJECT_OF_ID = {"clinical-tasks": "task", "departments": "department", "granularities": "granularity"}
"""The ids of the three containers on the authors' page."""
COLUMNS = ("subject", "category", "modality", "keyword")
LEVELS = ("task", "department", "granularity", "modality", "keyword")
"""Facets that a step of a branch can name, in the order they are tried."""
SEPARATOR = ">"

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


def select(questions: pd.DataFrame, branches: Sequence[str]) -> np.ndarray:
    """Boolean mask (n_questions,) of the questions that lie on any of the branches.

    A branch is steps from the outside in, divided by ">": "Ophthalmology > Fundus Photography", "Fundus Photography",
    "Disease Diagnosis > CT > lung nodule". A step is a task, department, granularity, modality or keyword that the questions
    have (in any case of letters); a step may be given as `department: Ophthalmology` where a name is several things. No branches:
    all questions. Raises BadInput naming near misses for a step that no question has, and for a branch without questions.
    """
    mask = np.zeros(len(questions), dtype=bool)
    if not branches:
        return ~mask
    for branch in branches:
        mask |= _on_branch(questions, branch)
    return mask


def _on_branch(questions: pd.DataFrame, branch: str) -> np.ndarray:
    mask = np.ones(len(questions), dtype=bool)
    steps = [step.strip() for step in branch.split(SEPARATOR)]
    if not all(steps):
        raise BadInput(f'--branch {branch!r}: a step is empty. Write it like "Ophthalmology > Fundus Photography".')
    for step in steps:
        mask &= _has_step(questions, step, branch)
    if not mask.any():
        raise BadInput(f"--branch {branch!r}: no question lies on it, though each step is known. Shorten the branch.")
    return mask


def _has_step(questions: pd.DataFrame, step: str, branch: str) -> np.ndarray:
    facets = [level for level in LEVELS if level in questions.columns]
    named, _, rest = step.partition(":")
    wanted = step
    if named.strip().lower() in facets and rest.strip():
        facets, wanted = [named.strip().lower()], rest.strip()
    names: list[str] = []
    for facet in facets:
        labels = questions[facet].map(lambda label: str(label).strip() if isinstance(label, str) else "")
        found = (labels.map(folded) == folded(wanted)).to_numpy(dtype=bool)
        if found.any():
            return found
        names += [name for name in labels.unique() if name]
    known_name(wanted, names, f"--branch {branch!r}: the {' or '.join(facets) or 'facet'}")
    raise AssertionError("unreachable: the name is none of these")
