"""The answers of a section's runs as aligned units, so that any selection of questions is scored in milliseconds.

Not here: which runs belong together (`sections.py`), statistics (`ranking.py`), the tree of branches (`tree.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from dataset_builders.errors import BadInput
from dataset_builders.schema import fingerprint
from eval_harness.scores import METRICS, units
from leaderboard_space.ranking import Bools, Floats, Ints, MetricUnits

BALANCED = {"average": "scenario", "accuracy_macro_task": "task"}
"""Metrics that are means over the values of a facet: in a selection, every value still there weighs the same."""


@dataclass(frozen=True)
class RunUnits:
    """The units of one run: per metric `top`, `base`, `expected` (U,), and what is the same for every run on these questions."""

    metrics: Mapping[str, tuple[Floats, Floats, Floats]]
    layout: pd.DataFrame
    """Columns `metric, unit, case_id, cluster, count` and the facets that BALANCED needs; sorted by metric and cluster."""


@dataclass(frozen=True)
class Place:
    """Where the units of a metric hang: on a question (`question` >= 0) or, where it is -1, on the case `case`."""

    question: Ints
    case: Ints
    per_image: bool
    """A unit of a case counts once per selected question of the case (MediConfusion's pairs), else once."""


@dataclass(frozen=True)
class Outcomes:
    """Runs x units per metric, on the same questions. `runs` are the keys of the entries, in row order."""

    format: str
    questions: pd.DataFrame
    runs: list[str]
    metrics: dict[str, MetricUnits]
    places: dict[str, Place]
    case_of_question: Ints

    def rows(self, metric: str, selected: Bools | None) -> Ints | None:
        """The units of `metric` that a selection of questions (Q,) counts, repeats included; None for all of them."""
        if selected is None or selected.all():
            return None
        place = self.places[metric]
        per_case = np.bincount(self.case_of_question, selected, minlength=int(self.case_of_question.max(initial=0)) + 1)
        of_case = per_case[place.case].astype(np.int64)
        if not place.per_image:
            of_case = np.minimum(of_case, 1)
        times = np.where(place.question >= 0, selected[place.question].astype(np.int64), of_case)
        return np.repeat(np.arange(times.size), times)


def read_questions(path: Path, expected: str) -> pd.DataFrame:
    """The questions of a fingerprint, lists as Python lists.

    Raises BadInput when the file is missing, unreadable, or holds other questions than its name says.
    """
    try:
        frame = pd.DataFrame(pq.read_table(path).to_pylist())
        found = fingerprint(
            zip(
                frame["question_id"], frame["question"], frame["options"], frame["question_type"], frame["answer"],
                strict=True,
            )
        )  # fmt: skip
    except FileNotFoundError:
        raise BadInput(f"{path.name}: the questions are not in the store.") from None
    except Exception as error:  # whatever is wrong with one file, the board stays up and says so
        raise BadInput(f"{path.name}: the questions cannot be read ({type(error).__name__}: {error}).") from None
    if found != expected:
        raise BadInput(f"{path.name}: holds other questions than its name says (their fingerprint is {found[:12]}).")
    return frame


def read_run(format: str, questions: pd.DataFrame, path: Path) -> RunUnits:
    """Units of the run whose answers are at `path`. Raises BadInput when these cannot be read or do not fit the questions."""
    try:
        answers = pd.DataFrame(pq.read_table(path, columns=["question_id", "sample", "choice", "status"]).to_pylist())
        table = units(format, questions, answers)
    except FileNotFoundError:
        raise BadInput("its answers are not in the store.") from None
    except Exception as error:  # as above
        raise BadInput(f"its answers cannot be read ({type(error).__name__}: {error}).") from None
    table = table[~table["metric"].str.startswith("share_")]
    table = table.sort_values(["metric", "cluster"], kind="stable").reset_index(drop=True)
    metrics = {
        str(name): tuple(part[column].to_numpy(float) for column in ("numerator", "denominator", "chance"))
        for name, part in table.groupby("metric", sort=False)
    }
    facets = [facet for facet in set(BALANCED.values()) if facet in table.columns]
    layout = table[["metric", "unit", "case_id", "cluster", "count", *facets]]
    return RunUnits(metrics, layout)  # type: ignore[arg-type]


def align(format: str, questions: pd.DataFrame, runs: Mapping[str, RunUnits]) -> Outcomes:
    """Stack runs on the same questions into matrices. `count` may differ between runs only where it says how many picks were made."""
    case_codes, case_names = pd.factorize(questions["case_id"])
    question_index, case_index = pd.Index(questions["question_id"]), pd.Index(case_names)
    metrics: dict[str, MetricUnits] = {}
    places: dict[str, Place] = {}
    first = next(iter(runs.values()))
    for name, part in first.layout.groupby("metric", sort=False):
        held = [run.metrics[str(name)] for run in runs.values()]
        top, base, expected = (_stack([values[i] for values in held]) for i in range(3))
        facet = BALANCED.get(str(name))
        counts = _stack(
            [run.layout.loc[run.layout["metric"] == name, "count"].to_numpy(float) for run in runs.values()]
        )
        metrics[str(name)] = MetricUnits(
            top=np.broadcast_to(top, (len(runs), top.shape[1])),
            base=base,
            expected=expected,
            count=counts.astype(np.int64),
            case=pd.factorize(part["case_id"])[0].astype(np.int64),
            cluster=part["cluster"].to_numpy(np.int64),
            balanced=pd.factorize(part[facet])[0].astype(np.int64) if facet in part.columns else None,
            is_count=str(name) in METRICS and METRICS[str(name)].unit == "count",
        )
        places[str(name)] = Place(
            question=question_index.get_indexer(pd.Index(part["unit"])).astype(np.int64),
            case=case_index.get_indexer(pd.Index(part["case_id"])).astype(np.int64),
            per_image=format == "mediconfusion",
        )
    return Outcomes(
        format=format,
        questions=questions,
        runs=list(runs),
        metrics=metrics,
        places=places,
        case_of_question=case_codes.astype(np.int64),
    )


def _stack(rows: list[Any]) -> Floats:
    """(R, U), or (1, U) where all rows are the same."""
    if all(np.array_equal(rows[0], row, equal_nan=True) for row in rows[1:]):
        return np.asarray(rows[0], dtype=float)[None, :]
    return np.stack(rows).astype(float)
