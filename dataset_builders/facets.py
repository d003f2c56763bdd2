"""Select questions by facets such as `modality=CT`.

Values of one facet are alternatives (or); different facets narrow the selection (and). Questions,
results and the board all use these rules.

See also: branches of the lexical tree, which combine in the same way (`lexical_tree.py`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dataset_builders.benchmark_names import fold_name, resolve_name
from dataset_builders.benchmarks import FACETS_BY_BENCHMARK, free_facets
from dataset_builders.errors import BadInput
from dataset_builders.lexical_tree import UNLABELLED, IntArray, TreePath, positions_by_labels, selection_mask

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


def parse_question_facets(questions: "pd.DataFrame", facets: Sequence[str]) -> list[tuple[str, str]]:
    """Parse `FACET=VALUE` expressions against the labels that the questions have.

    Args:
        questions: a frame of questions.
        facets: what the user typed.

    Returns:
        (facet, label) pairs, spelled as in the questions.

    Raises:
        BadInput: as `parse_facets`.
    """
    return parse_facets(facets, _labelled_positions(questions))


def select_by_facets(questions: "pd.DataFrame", facets: Sequence[str]) -> np.ndarray:
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
    if not facets:
        return np.ones(len(questions), dtype=bool)

    # Questions may spell one label in several ways: all spellings of a chosen one are selected.
    positions_by_facet = _labelled_positions(questions)
    chosen = {(facet, fold_name(label)) for facet, label in parse_facets(facets, positions_by_facet)}
    rows: dict[TreePath, IntArray] = {
        (facet, label): positions
        for facet, positions_by_label in positions_by_facet.items()
        for label, positions in positions_by_label.items()
        if (facet, fold_name(label)) in chosen
    }
    mask = selection_mask(rows, rows, len(questions))
    if not mask.any():
        raise BadInput(
            f"--facet {' --facet '.join(facets)}: no question has them all, though each is known. Leave one of them out."
        )
    return mask


def _labelled_positions(questions: "pd.DataFrame") -> dict[str, dict[str, IntArray]]:
    """Return facet -> label -> positions of its questions, for the facets that have labels."""
    declared = dict.fromkeys([*(facet for facets in FACETS_BY_BENCHMARK.values() for facet in facets), "keyword"])
    by_facet: dict[str, dict[str, IntArray]] = {}
    for facet in (*declared, *free_facets(questions.columns)):
        by_label = {label: positions for (label,), positions in positions_by_labels(questions, [facet]).items()}
        by_label.pop(UNLABELLED, None)
        if by_label:
            by_facet[facet] = by_label
    return by_facet
