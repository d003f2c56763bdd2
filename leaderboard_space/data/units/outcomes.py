"""The answers of a section's runs as aligned units, so that any selection of questions is scored in milliseconds.

See also: which runs belong together (`sections.py`), statistics (`ranking.py`), the tree of branches (`tree.py`).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from dataset_builders.errors import BadInput
from dataset_builders.fingerprints import fingerprint_of
from eval_harness.derive.derivation import UNIT_NAMES, UNIT_NUMBERS
from eval_harness.derive.metrics import BALANCED, METRICS
from leaderboard_space.benchmarks import spec
from leaderboard_space.data.tree import labels_of
from leaderboard_space.data.units import stored_units
from leaderboard_space.data.units.scoring import Bools, Floats, Ints
from leaderboard_space.data.units.stored_units import (
    NOT_COUNTED,
    Column,
    Columns,
    StoredUnits,
    compact,
    compact_run,
    stack,
)


@dataclass(frozen=True)
class Layout:
    """What is the same for every run on the same questions: per metric the part of the table that its units are, sorted by cluster."""

    order: dict[str, slice]
    table: pd.DataFrame
    """What the units are: UNIT_NAMES, and the facets that BALANCED needs."""
    chance: dict[str, Floats] = field(default_factory=dict)
    """Per metric what a guesser gets for each unit (see `stored_units.compact_run`)."""
    columns: dict[str, tuple[Column, ...]] = field(default_factory=dict)
    """The first run's `base`, `count` and `ends` per metric. Most runs have the same: they hold these arrays instead of copies."""


@dataclass(frozen=True)
class RunUnits:
    """The units of one run, per metric, ordered as the layout says."""

    metrics: Mapping[str, Columns]
    layout: Layout


@dataclass(frozen=True)
class UnitIndex:
    """What the units of a metric belong to: a question (`question` >= 0) or, where it is -1, the case `case`."""

    question: Ints
    case: Ints
    per_image: bool
    """A unit of a case counts once per selected question of the case (MediConfusion's pairs), else once."""


@dataclass(frozen=True)
class Outcomes:
    """Runs x units per metric, on the same questions. `runs` are the keys of the entries, in row order."""

    family: str
    questions: pd.DataFrame
    runs: list[str]
    metrics: dict[str, StoredUnits]
    unit_index: dict[str, UnitIndex]
    case_of_question: Ints
    memory: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """What was computed of them and is asked for again."""

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Entry key -> row of its run."""
        return {key: at for at, key in enumerate(self.runs)}

    def rows_by_label(self, facet: str) -> dict[str, Ints]:
        """Label -> positions of the questions that have it, by a facet of the source; empty where it gives none."""
        if ("labels", facet) not in self.memory:
            self.memory["labels", facet] = labels_of(self.questions, facet).rows()
        found: dict[str, Ints] = self.memory["labels", facet]
        return found

    def rows(self, metric: str, selected: Bools | None) -> Ints | None:
        """The units of `metric` that a selection of questions (Q,) counts, repeats included; None for all of them."""
        if selected is None or selected.all():
            return None
        index = self.unit_index[metric]
        if (index.question >= 0).all():
            return np.flatnonzero(selected[index.question])
        per_case = np.bincount(self.case_of_question, selected, minlength=int(self.case_of_question.max(initial=0)) + 1)
        of_case = per_case[index.case].astype(np.int64)
        if not index.per_image:
            of_case = np.minimum(of_case, 1)
        times = np.where(index.question >= 0, selected[index.question].astype(np.int64), of_case)
        return np.repeat(np.arange(times.size), times)


def read_questions(path: Path, expected: str) -> pd.DataFrame:
    """The questions of a fingerprint, lists as Python lists.

    Raises BadInput when the file is missing, unreadable, or holds other questions than its name says.
    """
    try:
        table = pq.read_table(path)
        frame = pd.DataFrame(
            {name: column.to_pylist() for name, column in zip(table.column_names, table.columns, strict=True)}
        )
        is_named = fingerprint_of(frame) == expected
    except FileNotFoundError:
        raise BadInput(f"{path.name}: the questions are not in the store.") from None
    except Exception as error:  # whatever is wrong with one file, the board stays up and says so
        raise BadInput(f"{path.name}: the questions cannot be read ({type(error).__name__}: {error}).") from None
    if not is_named:
        raise BadInput(f"{path.name}: its questions do not match its name (different fingerprint).")
    return frame


def read_run(path: Path, layout: Layout | None = None) -> RunUnits:
    """Units of the run that are kept at `path` (`derive/files.py`); `layout` is that of another run on the same questions, which it shares
    where its units are the same. Raises BadInput when they cannot be read."""
    try:
        table = pq.read_table(path).to_pandas().astype(dict.fromkeys(("metric", "unit", "case_id"), object))
        names = table.drop(columns=list(UNIT_NUMBERS))
        if not set(UNIT_NAMES) <= set(names.columns):
            raise BadInput(f"lacks the column {min(set(UNIT_NAMES) - set(names.columns))}")
    except FileNotFoundError:
        raise BadInput("what was derived from its answers is not in the store.") from None
    except Exception as error:  # whatever is wrong with one file, the board stays up and says so
        reason = str(error).replace(f"{path.parent}{os.sep}", "")  # not where the store lies
        raise BadInput(f"its units cannot be read ({type(error).__name__}: {reason}).") from None
    if layout is None or not _are_same(layout.table, names):
        layout = _layout(names)
    top, base, expected, count, *ends = (compact(table[name].to_numpy(float)) for name in UNIT_NUMBERS)
    metrics = {}
    for name, rows in layout.order.items():
        chance = layout.chance.setdefault(name, np.full(rows.stop - rows.start, NOT_COUNTED))
        found = compact_run(
            top[rows], base[rows], expected[rows], count[rows], [column[rows] for column in ends], chance
        )
        own = (found.base, found.count, *found.ends)
        old = layout.columns.setdefault(name, own)
        same = [a if np.array_equal(a, b) else b for a, b in zip(old, own, strict=True)]
        metrics[name] = replace(found, base=same[0], count=same[1], ends=tuple(same[2:]))
    return RunUnits(metrics, layout)


def _are_same(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """True if two tables hold the same, whichever type pandas gives a column that was read from a file."""
    if one.equals(other):
        return True
    left, right = (pd.util.hash_pandas_object(table, index=False).to_numpy() for table in (one, other))
    return list(one.columns) == list(other.columns) and np.array_equal(left, right)


def _layout(table: pd.DataFrame) -> Layout:
    codes, names = pd.factorize(table["metric"])
    bounds = np.searchsorted(codes, np.arange(len(names) + 1)).tolist()
    return Layout({str(name): slice(bounds[i], bounds[i + 1]) for i, name in enumerate(names)}, table)


def stacked(runs: Sequence[RunUnits]) -> dict[str, Columns]:
    """The numbers of runs on the same questions, and of the same layout, per metric."""
    chance = runs[0].layout.chance
    return {name: stack([run.metrics[name] for run in runs], chance[name]) for name in runs[0].layout.order}


def apart(numbers: Mapping[str, Columns], layout: Layout, runs: int) -> list[RunUnits]:
    """The runs again, without memory of their own; with no metric at all where the source keeps every key to itself."""
    metrics = {name: stored_units.apart(held, runs) for name, held in numbers.items()}
    return [RunUnits({name: columns[run] for name, columns in metrics.items()}, layout) for run in range(runs)]


def align(
    family: str,
    questions: pd.DataFrame,
    runs: Sequence[str],
    layout: Layout,
    numbers: Mapping[str, Columns],
    official: Collection[str] = (),
) -> Outcomes:
    """What runs (their keys) on the same questions answered, ready to be scored on any selection of them. `official`: those that a
    paper's own reader read."""
    by_official = np.array([run in official for run in runs], dtype=bool)
    case_codes, case_names = pd.factorize(questions["case_id"])
    question_index, case_index = pd.Index(questions["question_id"]), pd.Index(case_names)
    metrics: dict[str, StoredUnits] = {}
    unit_index: dict[str, UnitIndex] = {}
    for name, rows in layout.order.items():
        part = layout.table.iloc[rows]
        facet = BALANCED.get(name)
        metrics[name] = StoredUnits(
            numbers[name],
            case=pd.factorize(part["case_id"])[0].astype(np.int64),
            cluster=part["cluster"].to_numpy(np.int64),
            shown=by_official | (name in METRICS and METRICS[name].of_ends),
            balanced=pd.factorize(part[facet])[0].astype(np.int64) if facet in part.columns else None,
            is_count=name in METRICS and METRICS[name].unit == "count",
        )
        unit_index[name] = UnitIndex(
            question=question_index.get_indexer(pd.Index(part["unit"])).astype(np.int64),
            case=case_index.get_indexer(pd.Index(part["case_id"])).astype(np.int64),
            per_image=spec(family).per_image,
        )
    return Outcomes(
        family=family,
        questions=questions,
        runs=list(runs),
        metrics=metrics,
        unit_index=unit_index,
        case_of_question=case_codes.astype(np.int64),
    )
