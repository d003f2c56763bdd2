"""The CSVs in `published/`: the papers' printed tables in their shape and with their digits, and what says what they are.

`papers.csv` (citation, date), `tables.csv` (number, benchmark, a note on the table), `cells.csv` (metric, facet, method, n of the
cells of a row, a column or both), `notes.csv` (where a paper contradicts itself) and `models.csv` (one name per model; the label
that each paper prints for it; distinct versions stay distinct).
See also: the results that these numbers make (`published_results.py`).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal, cast

from eval_harness.records.result import Model

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
