"""Select by facets, `modality=CT`: several values of a facet are joined by or, several facets by and. The same for questions, results and
the board.

See also: branches of the lexical tree, joined in the same way (`lexical_tree.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dataset_builders.benchmark_names import normalize_name, resolve_name
from dataset_builders.benchmarks import BENCHMARKS, spec
from dataset_builders.errors import BadInput

if TYPE_CHECKING:
    import pandas as pd


def parse_facets(said: Sequence[str], labels: Mapping[str, Iterable[str]]) -> list[tuple[str, str]]:
    """The facet and the label of each `FACET=VALUE`, as `labels` (facet -> its labels) spells them, in any case of letters.

    Raises BadInput, with near misses or the available names, for an unknown facet or label.
    """
    found = []
    for one in said:
        name, equals, value = (part.strip() for part in one.partition("="))
        if not equals or not name or not value:
            raise BadInput(f"--facet {one[:80]!r}: write FACET=VALUE, e.g. --facet modality=CT.")
        facet = resolve_name(name, labels, "--facet: the facet")
        found.append((facet, resolve_name(value, sorted(labels[facet]), f"--facet {facet}: the label")))
    return found


def parse_question_facets(questions: pd.DataFrame, facets: Sequence[str]) -> list[tuple[str, str]]:
    """The facets and labels that are meant, as the questions spell them. Raises BadInput as `parse_facets` does."""
    return parse_facets(facets, {name: set().union(*held) for name, held in question_labels(questions).items()})


def select_by_facets(questions: pd.DataFrame, facets: Sequence[str]) -> np.ndarray:
    """Boolean mask (n_questions,) of the questions that have one of the named labels of every named facet.

    `facets`: as `parse_facets` takes them; a facet that is named several times takes any of its labels. No facets: all questions. A
    question with several categories has each of them; one that a source does not label has none.
    Raises BadInput for a facet or a label that no question has, and where no question has them all.
    """
    mask = np.ones(len(questions), dtype=bool)
    if not facets:
        return mask
    held = question_labels(questions)
    wanted: dict[str, set[str]] = {}
    for facet, label in parse_question_facets(questions, facets):
        wanted.setdefault(facet, set()).add(normalize_name(label))
    for facet, chosen in wanted.items():
        mask &= np.array([not chosen.isdisjoint(map(normalize_name, labels)) for labels in held[facet]], dtype=bool)
    if not mask.any():
        raise BadInput(
            f"--facet {' --facet '.join(facets)}: no question has them all, though each is known. Leave one of them out."
        )
    return mask


def question_labels(questions: pd.DataFrame) -> dict[str, list[set[str]]]:
    """Facet -> the labels of every question, for the facets that some question has."""
    found = {}
    for facet in dict.fromkeys([*(facet for benchmark in BENCHMARKS for facet in spec(benchmark).facets), "keyword"]):
        name = "categories" if facet == "category" else facet
        if name not in questions.columns or not questions[name].notna().any():
            continue
        column = questions[name]
        if facet == "category":
            found[facet] = [{str(label).strip() for label in held} if held is not None else set() for held in column]
        else:
            found[facet] = [
                {str(value).strip()} if known else set() for value, known in zip(column, column.notna(), strict=True)
            ]
    return found
