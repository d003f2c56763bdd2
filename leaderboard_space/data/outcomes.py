"""Align the scored units of a section's runs, so that any selection of questions is scored in
milliseconds.

See also: which runs belong together (`store/sections.py`), scores of units (`unit_scores.py`), the
tree of branches (`tree.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dataset_builders.errors import BadInput
from dataset_builders.fingerprints import fingerprint_questions
from dataset_builders.lexical_tree import positions_by_labels
from eval_harness.derive.derivation import UNIT_ID_COLUMNS, UNIT_NUMBER_COLUMNS
from eval_harness.derive.metrics import BALANCED_METRICS, METRICS
from leaderboard_space.benchmarks import board_spec
from leaderboard_space.data.cache import COMPUTING, cached
from leaderboard_space.data.unit_scores import Bools, Ints, MetricUnits


@dataclass(frozen=True)
class UnitIndex:
    """Positions of each unit's question (-1 for units of a whole case) and case."""

    question: Ints
    case: Ints
    per_image: bool
    """True if a case unit counts once per selected question (MediConfusion's pairs), False if once
    per case."""


@dataclass(frozen=True, eq=False)
class Outcomes:
    """The scored units of runs on the same questions: per metric, an array of runs x units.

    `runs` are the entry keys in row order.
    """

    family: str
    questions: pd.DataFrame
    runs: list[str]
    metrics: dict[str, MetricUnits]
    unit_index: dict[str, UnitIndex]
    case_of_question: Ints

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Entry key -> row of its run."""
        return {key: at for at, key in enumerate(self.runs)}

    @cached(COMPUTING)
    def rows_by_label(self, facet: str) -> dict[str, Ints]:
        """Map a facet's labels to question positions; empty without such a facet."""
        return {label: at for (label,), at in positions_by_labels(self.questions, (facet,)).items()}

    def rows(self, metric: str, selected: Bools | None) -> Ints | None:
        """Select the units that count for a selection of questions.

        Args:
            metric: The metric.
            selected: (Q,) mask of questions; None for all.

        Returns:
            Unit positions in ascending order, repeated as often as they count; None for all units.
        """
        if selected is None:
            return None
        index = self.unit_index[metric]
        per_case = np.bincount(self.case_of_question, selected, minlength=int(self.case_of_question.max(initial=0)) + 1)
        of_case = per_case[index.case].astype(np.int64)
        if not index.per_image:
            of_case = np.minimum(of_case, 1)
        # A unit of one question counts once if the question is selected, a unit of a case as above.
        times = np.where(index.question >= 0, selected[index.question].astype(np.int64), of_case)
        return np.repeat(np.arange(times.size), times)


def read_questions(path: Path, expected: str) -> pd.DataFrame:
    """Read a questions file.

    Args:
        path: The Parquet file.
        expected: The fingerprint that its questions must have.

    Returns:
        The questions; list columns contain Python lists.

    Raises:
        BadInput: If the file is missing, unreadable, or contains questions with another
            fingerprint.
    """
    try:
        table = pq.read_table(path)
        frame = pd.DataFrame(
            {name: column.to_pylist() for name, column in zip(table.column_names, table.columns, strict=True)}
        )
        is_named = fingerprint_questions(frame) == expected
    except FileNotFoundError:
        raise BadInput(f"{path.name}: the questions are not in the store.") from None
    except Exception as error:  # a damaged file must not stop the board, whatever is wrong with it
        raise BadInput(f"{path.name}: the questions cannot be read ({type(error).__name__}: {error}).") from None
    if not is_named:
        raise BadInput(f"{path.name}: its questions do not match its name (different fingerprint).")
    return frame


NumberArray = NDArray[Any]


def read_outcomes(
    family: str, questions: pd.DataFrame, paths: Mapping[str, Path], official: Collection[str] = ()
) -> tuple[Outcomes | None, dict[str, str]]:
    """Read and align the units of runs.

    Args:
        family: The benchmark.
        questions: The questions that all runs answered.
        paths: Entry key -> units file (`derive/run_files.py`).
        official: Keys of the entries that were read by the benchmark authors' own reader.

    Returns:
        The aligned units, None if no file could be read; and entry key -> problem.
    """
    shared_units: pa.Table | None = None
    columns: dict[str, list[NumberArray]] = {name: [] for name in UNIT_NUMBER_COLUMNS}
    runs, problems = list[str](), dict[str, str]()
    for key, path in paths.items():
        try:
            run_units, numbers = _read_units(path)
            if shared_units is not None and not run_units.equals(shared_units):
                raise BadInput("it was scored on different units than the others.")
        except BadInput as error:
            problems[key] = str(error)
            continue
        # The first readable run defines the units; later ones must match it.
        shared_units = run_units if shared_units is None else shared_units
        runs.append(key)
        for name, rows in columns.items():
            is_shared = rows and np.array_equal(rows[0], numbers[name], equal_nan=True)
            rows.append(rows[0] if is_shared else numbers[name])  # most runs have most columns in common
    return (
        _align_runs(family, questions, runs, shared_units, columns, official) if shared_units is not None else None
    ), problems


def _read_units(path: Path) -> tuple[pa.Table, dict[str, NumberArray]]:
    """Read a run's units: identifying columns and numbers.

    Raises BadInput if the file cannot be read.
    """
    try:
        table = pq.read_table(path)
        table.select(UNIT_ID_COLUMNS)
        numbers = {name: table[name].to_numpy() for name in UNIT_NUMBER_COLUMNS}
        return table.drop_columns(list(UNIT_NUMBER_COLUMNS)), numbers
    except FileNotFoundError:
        raise BadInput("the scores derived from its answers are not in the store.") from None
    except Exception as error:  # a damaged file must not stop the board, whatever is wrong with it
        raise BadInput(f"its units cannot be read ({type(error).__name__}).") from None


def _align_runs(
    family: str,
    questions: pd.DataFrame,
    runs: list[str],
    unit_names: pa.Table,
    columns: Mapping[str, Sequence[NumberArray]],
    official: Collection[str],
) -> Outcomes:
    """Stack runs with the same units, per metric."""
    table = unit_names.to_pandas()
    codes, metric_names = pd.factorize(table["metric"])
    # Units are sorted by metric, so the units of a metric are one slice.
    bounds = np.searchsorted(codes, np.arange(len(metric_names) + 1)).tolist()
    case_codes, case_names = pd.factorize(questions["case_id"])
    question_index, case_index = pd.Index(questions["question_id"]), pd.Index(case_names)
    by_official = np.array([run in official for run in runs], dtype=bool)
    metrics: dict[str, MetricUnits] = {}
    unit_index: dict[str, UnitIndex] = {}
    for at, name in enumerate(map(str, metric_names)):
        rows = slice(bounds[at], bounds[at + 1])
        part, facet = table.iloc[rows], BALANCED_METRICS.get(name)
        top, base, expected, count, *ends, unsettled = (
            _stack_rows([run[rows] for run in columns[column]]) for column in UNIT_NUMBER_COLUMNS
        )
        metrics[name] = MetricUnits(
            np.broadcast_to(top, (len(runs), top.shape[1])).astype(float),
            base.astype(float),
            expected.astype(float),
            count.astype(np.int64),
            tuple(counts.astype(np.int32) for counts in ends),
            case=pd.factorize(part["case_id"])[0].astype(np.int64),
            cluster=part["cluster"].to_numpy(np.int64),
            keeps_value=by_official | (name in METRICS and METRICS[name].of_ends),
            unsettled=unsettled if unsettled.any() else None,
            balanced=pd.factorize(part[facet])[0].astype(np.int64) if facet in part.columns else None,
            is_count=name in METRICS and METRICS[name].unit == "count",
        )
        unit_index[name] = UnitIndex(
            question=question_index.get_indexer(pd.Index(part["unit"])).astype(np.int64),
            case=case_index.get_indexer(pd.Index(part["case_id"])).astype(np.int64),
            per_image=board_spec(family).per_image,
        )
    return Outcomes(family, questions, runs, metrics, unit_index, case_codes.astype(np.int64))


def _stack_rows(rows: Sequence[NumberArray]) -> NumberArray:
    """Stack rows into an array of shape (R, U), or (1, U) if all rows are equal."""
    # Shared columns are stored once: 60 runs of 26,000 questions fit in memory.
    if all(np.array_equal(rows[0], row, equal_nan=True) for row in rows[1:]):
        return rows[0][None, :]
    return np.stack(rows)
