"""Select questions by facets such as `modality=CT`.

Values of one facet are alternatives (or); different facets narrow the selection (and). Questions,
results and the board all use these rules.

See also: branches of the lexical tree, which combine in the same way (`lexical_tree.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dataset_builders.benchmark_names import fold_name, resolve_name
from dataset_builders.benchmarks import FACETS_BY_BENCHMARK, free_facets
from dataset_builders.errors import BadInput

if TYPE_CHECKING:
    import pandas as pd


def parse_facets(expressions: Sequence[str], labels: Mapping[str, Iterable[str]]) -> list[tuple[str, str]]:
    """Parse `FACET=VALUE` expressions, ignoring case.

    Args:
        expressions: what the user typed.
        labels: facet -> its labels.

    Returns:
        (facet, label) of each expression, spelled as in `labels`.

    Raises:
        BadInput: the facet or label is unknown; lists near misses or the available names.
    """
    pairs = []
    for expression in expressions:
        name, equals, value = (part.strip() for part in expression.partition("="))
        if not equals or not name or not value:
            raise BadInput(f"--facet {expression[:80]!r}: write FACET=VALUE, e.g. --facet modality=CT.")
        facet = resolve_name(name, labels, "--facet: the facet")
        pairs.append((facet, resolve_name(value, sorted(labels[facet]), f"--facet {facet}: the label")))

    return pairs


def parse_question_facets(questions: pd.DataFrame, facets: Sequence[str]) -> list[tuple[str, str]]:
    """Parse `FACET=VALUE` expressions against the labels that the questions have.

    Args:
        questions: a frame of questions.
        facets: what the user typed.

    Returns:
        (facet, label) pairs, spelled as in the questions.

    Raises:
        BadInput: as `parse_facets`.
    """
    return parse_facets(facets, {name: set().union(*labels) for name, labels in question_labels(questions).items()})


def select_by_facets(questions: pd.DataFrame, facets: Sequence[str]) -> np.ndarray:
    """Select the questions that have a chosen label in every chosen facet.

    A question with several categories matches any of them; an unlabelled question matches none.

    Args:
        questions: a frame of questions.
        facets: `FACET=VALUE` expressions; without any, all questions are selected.

    Returns:
        Boolean mask of shape (n_questions,).

    Raises:
        BadInput: a facet or label is unknown, or no question satisfies all facets.
    """
    mask = np.ones(len(questions), dtype=bool)
    if not facets:
        return mask

    # Questions may spell one label in several ways, so normalised labels are compared.
    labels_by_facet = question_labels(questions)
    chosen_labels: dict[str, set[str]] = {}
    for facet, label in parse_question_facets(questions, facets):
        chosen_labels.setdefault(facet, set()).add(fold_name(label))

    for facet, forms in chosen_labels.items():
        mask &= np.array(
            [not forms.isdisjoint(map(fold_name, labels)) for labels in labels_by_facet[facet]],
            dtype=bool,
        )

    if not mask.any():
        raise BadInput(
            f"--facet {' --facet '.join(facets)}: no question has them all, though each is known. Leave one of them out."
        )

    return mask


def question_labels(questions: pd.DataFrame) -> dict[str, list[set[str]]]:
    """Return facet -> the set of labels of each question, for the facets that occur in the
    questions.
    """
    labels_by_facet = {}
    declared = dict.fromkeys([*(facet for facets in FACETS_BY_BENCHMARK.values() for facet in facets), "keyword"])
    for facet in (*declared, *free_facets(questions.columns)):
        name = "categories" if facet == "category" else facet
        if name not in questions.columns or not questions[name].notna().any():
            continue

        # A question has at most one label per facet, except for the list column `categories`.
        column = questions[name]
        if facet == "category":
            labels_by_facet[facet] = [
                {str(label).strip() for label in cell} if cell is not None else set() for cell in column
            ]
        else:
            labels_by_facet[facet] = [
                {str(value).strip()} if is_present else set()
                for value, is_present in zip(column, column.notna(), strict=True)
            ]

    return labels_by_facet
