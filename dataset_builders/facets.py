"""Choosing questions by their facets, `modality=CT`: or within a facet, and across facets.

See also: branches of the lexical tree, which are joined (`lexical_tree.py`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dataset_builders.benchmarks import BENCHMARKS, spec
from dataset_builders.errors import BadInput

if TYPE_CHECKING:
    import pandas as pd


def select_by_facets(questions: pd.DataFrame, facets: Sequence[str]) -> np.ndarray:
    """Boolean mask (n_questions,) of the questions that have one of the named values of every named facet.

    `facets`: `FACET=VALUE` each, in any case of letters; a facet that is named several times takes any of its values. No facets: all
    questions. A question with several categories has each of them; one that a source does not label has none.
    Raises BadInput, with near misses, for a facet or a value that no question has, and where no question has them all.
    """
    mask = np.ones(len(questions), dtype=bool)
    for facet, values in _wanted(questions, facets).items():
        labels = _labels(questions, facet)
        known = {label.lower(): label for held in labels for label in held}
        for value in values:
            if value.lower() not in known:
                near = difflib.get_close_matches(value.lower(), known, n=3, cutoff=0.5)
                near += sorted(name for name in known if value.lower() in name and name not in near)[:3]
                hints = ", ".join(repr(known[name]) for name in near)
                remedy = f"Did you mean {hints}?" if hints else f"Available: {_some(known.values())}."
                raise BadInput(f"--facet {facet}={value}: no question has this {facet}. {remedy}")
        folded = {value.lower() for value in values}
        mask &= np.array([any(label.lower() in folded for label in held) for held in labels], dtype=bool)
    if facets and not mask.any():
        raise BadInput(
            f"--facet {' --facet '.join(facets)}: no question has them all, though each is known. Leave one of them out."
        )
    return mask


def _wanted(questions: pd.DataFrame, facets: Sequence[str]) -> dict[str, list[str]]:
    """Facet -> the values asked for. Raises BadInput for what is no FACET=VALUE, and a facet that these questions do not have."""
    there = [
        name
        for name in dict.fromkeys([*(facet for benchmark in BENCHMARKS for facet in spec(benchmark).facets), "keyword"])
        if (column := _column(name)) in questions.columns and questions[column].notna().any()
    ]
    wanted: dict[str, list[str]] = {}
    for said in facets:
        name, equals, value = (part.strip() for part in said.partition("="))
        facet = name.lower().replace(" ", "_")
        if not equals or not name or not value:
            raise BadInput(f"--facet {said!r}: write FACET=VALUE, e.g. --facet modality=CT.")
        if facet not in there:
            remedy = (
                f"They are labelled by: {', '.join(there)}." if there else "They have no labels: leave --facet out."
            )
            raise BadInput(f"--facet {said}: these questions have no facet {name!r}. {remedy}")
        wanted.setdefault(facet, []).append(value)
    return wanted


def _column(facet: str) -> str:
    return "categories" if facet == "category" else facet


def _labels(questions: pd.DataFrame, facet: str) -> list[list[str]]:
    """Every question's labels of a facet."""
    column = questions[_column(facet)]
    if facet == "category":
        return [[str(label).strip() for label in held] if held is not None else [] for held in column]
    return [[str(value).strip()] if known else [] for value, known in zip(column, column.notna(), strict=True)]


def _some(labels: Iterable[str]) -> str:
    names = sorted(set(labels))
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
