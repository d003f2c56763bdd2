"""The CSVs in `published/`: the papers' printed tables in their shape and with their digits, and what says what they are.

`papers.csv` (citation, date), `tables.csv` (number, benchmark, a note on the table), `cells.csv` (metric, facet, method, n of the
cells of a row, a column or both), `notes.csv` (where a paper contradicts itself) and `models.csv` (one name per model; the label
that each paper prints for it; distinct versions stay distinct).

A printed number becomes a score (`score_of`): its n, its interval, chance, and the verdict. Where the counts come from, when a paper does
not print them:
- MediConfusion, Table 2: `n` counts image labels (the authors' statistics.json); `n_cases` counts the pairs that have the label
  on either image, counted once in the authors' dataset.json: 45 Cerebral ... 7 Nuclear Medicine.
- MediConfusion, confusion: `valid_pairs` below.
- ProbMed: the printed row `num`; for position `n_cases` is the smallest count of which the open models' percentages are fractions.
- GMAI-MMBench: the smallest count of which the percentages of all models but two are fractions; see the notes of the tables.
- GMAI-MMBench, multiple choice: the paper counts "the frequency of choice appearances rather than the actual number of cases" (appendix
  C.1), 15,691 in three tasks. `n` is that count; `n_cases` the fewest questions it can be: a question offers each label of its task at
  most once, so 7,614 / 18 + 40 / 4 + 8,037 / 26 (Table 5), 743.
- 0 where nothing is known: such a score has no interval.
See also: the results that these numbers make (`published_results.py`).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal, cast

from eval_harness.benchmarks.spec import MetricInfo
from eval_harness.derive.metrics import METRICS
from eval_harness.records.result import Breakdown, Model, Score, Scores
from eval_harness.scores.intervals import METHOD, printed_interval, verdict
from leaderboard_space.benchmarks import spec

FOLDER = Path(__file__).parents[1] / "published"
Row = dict[str, str]


@dataclass(frozen=True)
class Cell:
    """A printed number. `about` says what it is (keys: the columns of `cells.csv`); `spread` is what follows a plus-minus sign."""

    table: str
    row: str
    column: str
    printed: str
    value: float
    spread: float | None
    about: Row


def cells(table: str) -> Iterator[Cell]:
    """The numbers of a table of `published/` (its name without `.csv`), row by row; labels, sizes and empty cells are left out."""
    labels = int(next(row for row in read_table("tables") if row["table"] == table)["labels"])
    abouts = [row for row in read_table("cells") if row["table"] == table]
    head, *body = _raw(table)
    for line in body:
        row = " / ".join(part for part in line[:labels] if part)
        of_row = [candidate for candidate in abouts if _selects_row(candidate, row)]
        for column, printed in zip(head[labels:], line[labels:], strict=True):
            about: Row = {}
            for candidate in of_row:
                if _selects_column(candidate, column):
                    about |= {key: value for key, value in candidate.items() if value}
            number = re.match(r"-?\d+(?:\.\d+)?", printed)
            if "metric" not in about or number is None:
                continue
            spread = re.search(r"± (\d+(?:\.\d+)?)", printed)
            yield Cell(table, row, column, printed, float(number[0]), float(spread[1]) if spread else None, about)


@cache
def models() -> dict[str, Model]:
    """The models of the papers by their names, with kind and size."""
    kinds = Literal["open", "proprietary", "medical", "baseline"]
    return {
        row["name"]: Model(name=row["name"], kind=cast(kinds, row["kind"]), parameters=_parameters(row["parameters"]))
        for row in read_table("models")
    }


def _parameters(printed: str) -> int | None:
    """
    >>> _parameters("7.6B")
    7600000000
    """
    return round(float(printed.removesuffix("B")) * 1e9) if printed else None


@cache
def read_table(name: str) -> tuple[Row, ...]:
    """The rows of a table of `published/`, by its name without `.csv`."""
    head, *body = _raw(name)
    return tuple(dict(zip(head, line, strict=True)) for line in body)


@cache
def _raw(name: str) -> tuple[list[str], ...]:
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return tuple(csv.reader(file))


def selects(selector: Row, row: str, column: str) -> bool:
    """True if a line of `cells.csv` or `notes.csv` means this cell: an empty field means all, a row may be named by one label."""
    return _selects_row(selector, row) and _selects_column(selector, column)


def _selects_row(selector: Row, row: str) -> bool:
    return selector["row"] in ("", row, *row.split(" / "))


def _selects_column(selector: Row, column: str) -> bool:
    return not selector["column"] or fnmatchcase(column, selector["column"])


def model_of(cell: Cell, paper: str) -> str:
    """The canonical name of the model that a cell is of."""
    labels = (cell.row, *cell.row.split(" / "), cell.column)
    return next(_names(paper)[label] for label in labels if label in _names(paper))


@cache
def _names(paper: str) -> dict[str, str]:
    """Printed label -> canonical name, in one paper."""
    return {label: row["name"] for row in read_table("models") for label in row[paper].split("; ") if label}


ONLY_PRINTED: dict[str, MetricInfo] = {
    "set_accuracy_std": MetricInfo("Set accuracy, std", "Standard deviation of set accuracy over samples.", False),
    "total_irrelevant": MetricInfo("Irrelevant, total", "Responses that name no option (a count).", False, "count"),
    "refused_of_errors": MetricInfo(
        "Refused, of the errors", "Errors on this step that say neither yes nor no, of all its errors.", False
    ),
}
"""Metrics that papers print and we do not compute, and `refused_of_errors` (`errors_named`)."""


def errors_named(breakdown: Mapping[str, Mapping[str, Scores]]) -> Breakdown:
    """The cells of a result, with what files and Table 6 of ProbMed call `refused` within a step (its `aspect`) under a name of its own: it
    is a share of the errors, where `refused` is one of all responses everywhere else."""
    return {
        facet: {
            label: {
                "refused_of_errors" if facet == "aspect" and name == "refused" else name: one
                for name, one in held.items()
            }
            for label, held in values.items()
        }
        for facet, values in breakdown.items()
    }


@dataclass
class Group:
    """The cells of one table that are one result."""

    table: Row
    paper: Row
    about: Row
    cells: list[Cell] = field(default_factory=list)


def score_of(cell: Cell, group: Group) -> Score:
    """The score of a cell; without an interval where no number of cases is known."""
    metric = cell.about["metric"]
    n, n_cases = _counts(cell, group)
    info = METRICS.get(metric) or ONLY_PRINTED[metric]
    if info.unit == "count" or n_cases == 0:
        return Score(value=cell.value, n=n, n_cases=n_cases)
    sharing = spec(group.paper["paper"]).cases_sharing.get(cell.about.get("facet_value", ""), (1.0, 1.0))
    interval = printed_interval(cell.value, n_cases, sharing)
    low, high = round(100 * interval.low, 10), round(100 * interval.high, 10)
    exact = spec(group.about["benchmark"]).chance.get(metric, spec(group.paper["paper"]).chance.get(metric))
    return Score(
        value=cell.value,
        low=low,
        high=high,
        n=n,
        n_cases=n_cases,
        n_effective=round(interval.n_effective, 10),
        chance=exact if exact is not None else _printed_chance(cell, group.paper["paper"]),
        verdict=verdict(low, high, exact, info.higher_is_better),
        interval_method=METHOD,
    )


def _counts(cell: Cell, group: Group) -> tuple[int, int]:
    """`n`, `n_cases` of a cell; `pairs` in `cells.csv` stands for MediConfusion's pairs with two valid answers."""
    if cell.about["n"] != "pairs":
        return int(cell.about["n"]), int(cell.about["n_cases"])
    by_metric = {other.about["metric"]: other for other in group.cells}
    whole = by_metric["set_accuracy"]
    pairs = int(whole.about["n"])
    valid = valid_pairs(pairs, whole.value, by_metric["individual_accuracy"].value, cell.value)
    return valid, valid


def valid_pairs(pairs: int, set_accuracy: float, individual_accuracy: float, confusion: float) -> int:
    """How many of MediConfusion's pairs had two valid answers, which confusion divides by and the paper does not print.

    The largest count v that fits the three printed percentages (of `pairs`, of 2 x `pairs`, of v): with s = confused and c = right
    pairs, c <= v - s; a confused pair holds one right answer and a right pair two, and a pair with an invalid answer at most one.
    In most rows only one count fits. 0 where none does.
    """
    right = round(set_accuracy * pairs / 100)
    answers = round(individual_accuracy * 2 * pairs / 100)
    for valid in range(pairs, 0, -1):
        same = round(confusion * valid / 100)
        known = same + 2 * right
        fits = abs(100 * same / valid - confusion) <= 0.0051 and right <= valid - same
        if fits and known <= answers <= known + pairs - valid:
            return valid
    return 0


def _printed_chance(cell: Cell, paper: str) -> float | None:
    if not spec(paper).prints_chance:
        return None
    return _random_rows(cell.table).get(cell.column)


@cache
def _random_rows(table: str) -> dict[str, float]:
    return {cell.column: cell.value for cell in cells(table) if cell.row == "Random"}
