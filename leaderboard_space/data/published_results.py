"""The papers' own numbers as results: the tables in `published/` read into `published` Result objects.

`published/` holds one CSV per printed table, in its shape and with its digits, and six CSVs that say what they are:
`papers.csv` (citation, date), `tables.csv` (number, benchmark, a note on the table), `cells.csv` (metric, facet, method, n of the
cells of a row, a column or both), `notes.csv` (where a paper contradicts itself) and `models.csv` (one name per model; the label
that each paper prints for it; distinct versions stay distinct). `departments.csv` is no paper's: see `departments`.

Where the counts come from, when a paper does not print them:
- MediConfusion, Table 2: `n` counts image labels (the authors' statistics.json); `n_cases` counts the pairs that have the label
  on either image, counted once in the authors' dataset.json: 45 Cerebral ... 7 Nuclear Medicine.
- MediConfusion, confusion: `valid_pairs` below.
- ProbMed: the printed row `num`; for position `n_cases` is the smallest count of which the open models' percentages are fractions.
- GMAI-MMBench: the smallest count of which the percentages of all models but two are fractions; see the notes of the tables.
- GMAI-MMBench, multiple choice: the paper counts "the frequency of choice appearances rather than the actual number of cases" (appendix
  C.1), 15,691 in three tasks. `n` is that count; `n_cases` the fewest questions it can be: a question offers each label of its task at
  most once, so 7,614 / 18 + 40 / 4 + 8,037 / 26 (Table 5), 743.
- 0 where nothing is known: such a score has no interval.

Imports no gradio and no torch.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal, cast

import numpy as np

from dataset_builders.benchmarks import BENCHMARKS
from eval_harness.benchmarks.spec import MetricInfo
from eval_harness.results import Benchmark, Breakdown, Method, Model, Result, Score, Source, Verdict
from eval_harness.scores.metrics import METRICS
from eval_harness.scores.statistics import LEVEL, chance_p_value, published_interval
from leaderboard_space.benchmarks import spec

FOLDER = Path(__file__).parents[1] / "published"
ABOUT = ("papers", "tables", "cells", "notes", "models", "departments", "topics", "model_facts", "model_names")
"""The CSVs in `published/` that are no printed table."""

Row = dict[str, str]

ONLY_PRINTED: dict[str, MetricInfo] = {
    "set_accuracy_std": MetricInfo("Set accuracy, std", "Standard deviation of set accuracy over samples.", False),
    "total_irrelevant": MetricInfo("Irrelevant, total", "Responses that name no option (a count).", False, "count"),
}
"""Metrics that papers print and we do not compute."""


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


@dataclass
class _Group:
    """The cells of one table that are one result."""

    table: Row
    paper: Row
    about: Row
    cells: list[Cell] = field(default_factory=list)


def published_results() -> list[Result]:
    """Every number of the papers' tables: one Result per table, model, benchmark, split, method, prompt and variant.

    So every number has its own table in `source.table`; a number printed in two tables is there twice. `board_results` has one
    Result per model instead.
    """
    return [result.model_copy(deep=True) for result, _, _ in _published()]


def board_results(ablations: bool = False) -> list[Result]:
    """The same with all tables of a paper on one model, benchmark, split, method, prompt and variant in one Result.

    Without the tables that try other prompts or aggregate many answers, unless asked for: a best of 100 picked by an oracle must not
    be ranked among models, and one model must not fill the ranking with eleven prompts.

    Where two tables print different numbers for the same thing the first table's stands, and the note says what the other prints.
    """
    merged: dict[tuple[str, ...], tuple[Result, list[str]]] = {}
    for result, notes, is_ablation in _published():
        if is_ablation and not ablations:
            continue
        key = _merged_as(result)
        if key in merged:
            _merge(*merged[key], result, notes)
        else:
            merged[key] = (_own(result), list(notes))
    for result, notes in merged.values():
        assert result.source is not None
        result.source.note = _joined(notes)
        result.breakdown |= _scenarios(result)
    return [result for result, _ in merged.values()]


def _own(result: Result) -> Result:
    """A copy to which scores and words can be added; the scores themselves are shared, which a deep copy of all would make slow."""
    assert result.source is not None
    return result.model_copy(
        update={
            "scores": dict(result.scores),
            "breakdown": {
                facet: {value: dict(scores) for value, scores in values.items()}
                for facet, values in result.breakdown.items()
            },
            "source": result.source.model_copy(),
        }
    )


def departments() -> tuple[Row, ...]:
    """Which branches of other benchmarks are a department of GMAI-MMBench, and why (not): `benchmark, facet, label, department, why`.

    A department stands there only where it is beyond doubt; empty means that the branch stays unlabelled. GMAI-MMBench gives its
    departments finding by finding (oncology and infections cut through the organs), so that no area of the body is one of them: as it
    stands, no branch is mapped, and nothing reads departments into other benchmarks' questions.
    """
    return read_table("departments")


def table_of(result: Result, metric: str, facet: str = "", value: str = "") -> str | None:
    """The table that a number of `board_results` is printed in: its score, or a cell of its breakdown; None where it is no such number.

    >>> table_of(next(r for r in board_results() if r.benchmark.name == "probmed"), "organ", "image_type", "brain_ct")
    'Table 7'
    """
    return _tables_of_numbers().get(_merged_as(result), {}).get((facet, value, metric))


def _scenarios(result: Result) -> Breakdown:
    """HALT's scenarios, which its paper prints as columns beside their average, as cells: so they can be ticked and broken down by.

    The average over one scenario is the accuracy in it. Empty for other benchmarks.
    """
    cells: Breakdown = {}
    found = spec(result.benchmark.format).facet_metrics
    if found is None:
        return cells
    facet, shown, metrics = found
    for value, names in metrics.items():
        if names[0] in result.scores:
            held = {name: result.scores[name] for name in names if name in result.scores}
            cells.setdefault(facet, {})[value] = {shown: result.scores[names[0]], **held}
    return cells


@cache
def _tables_of_numbers() -> dict[tuple[str, ...], dict[tuple[str, str, str], str]]:
    """Per merged result, (facet, facet value, metric) -> the first table that prints it."""
    found: dict[tuple[str, ...], dict[tuple[str, str, str], str]] = {}
    for result, _, _ in _published():
        assert result.source is not None
        place = found.setdefault(_merged_as(result), {})
        parts = [("", "", result.scores)]
        cells = result.breakdown | _scenarios(result)
        parts += [(facet, value, held) for facet, values in cells.items() for value, held in values.items()]
        for facet, value, held in parts:
            for metric in held:
                place.setdefault((facet, value, metric), result.source.table or "")
    return found


def _merged_as(result: Result) -> tuple[str, ...]:
    """What the tables of a paper share that become one result of the board."""
    method, benchmark = result.method, result.benchmark
    variant = str(method.generation.get("variant", ""))
    return (benchmark.name, benchmark.split, result.model.name, method.name, method.prompt or "", variant)


def printed_tables() -> list[str]:
    """The names of the CSVs in `published/` that mirror a printed table."""
    return [row["table"] for row in read_table("tables")]


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


@cache
def _published() -> tuple[tuple[Result, list[str], bool], ...]:
    """Every result with the notes on it, and whether its table is an ablation (see `board_results`), one by one."""
    papers = {row["paper"]: row for row in read_table("papers")}
    found = []
    for table in read_table("tables"):
        for group in _groups(table, papers[table["paper"]]).values():
            notes = _notes(group)
            found.append((_result(group, notes), notes, bool(table["ablation"])))
    return tuple(found)


def _groups(table: Row, paper: Row) -> dict[tuple[str, ...], _Group]:
    groups: dict[tuple[str, ...], _Group] = {}
    for cell in cells(table["table"]):
        about = {
            key: value for key, value in paper.items() if key in ("split", "method", "prompt", "questions") and value
        }
        about |= {key: table[key] for key in ("benchmark", "questions") if table[key]}
        about |= cell.about
        if "model" not in about:
            about["model"] = _model_of(cell, paper["paper"])
        key = tuple(
            about.get(name, "") for name in ("model", "benchmark", "split", "method", "prompt", "samples", "variant")
        )
        groups.setdefault(key, _Group(table, paper, about)).cells.append(cell)
    return groups


def _result(group: _Group, notes: list[str]) -> Result:
    about, paper = group.about, group.paper
    benchmark = about["benchmark"]
    result = Result(
        kind="published",
        provenance="published",
        benchmark=Benchmark(
            name=benchmark,
            format=benchmark if benchmark in BENCHMARKS else paper["paper"],
            split=about["split"],
            questions=int(about["questions"]),
            origin="official" if benchmark in BENCHMARKS else "custom",
        ),
        model=models()[about["model"]],
        method=Method(
            name=about["method"],
            prompt=about.get("prompt"),
            samples=int(about["samples"]) if "samples" in about else None,
            generation={"variant": about["variant"]} if "variant" in about else {},
        ),
        scores={},
        created_at=paper["date"],
        source=Source(citation=paper["citation"], table=f"Table {group.table['number']}", note=_joined(notes)),
    )
    for cell in group.cells:
        facet, value, metric = (cell.about.get(name, "") for name in ("facet", "facet_value", "metric"))
        place = result.breakdown.setdefault(facet, {}).setdefault(value, {}) if facet else result.scores
        place[metric] = _score(cell, group)
        if cell.spread is not None:
            place[f"{metric}_std"] = Score(value=cell.spread, n=place[metric].n, n_cases=place[metric].n_cases)
    return result


def _score(cell: Cell, group: _Group) -> Score:
    metric = cell.about["metric"]
    n, n_cases = _counts(cell, group)
    info = METRICS.get(metric) or ONLY_PRINTED[metric]
    if info.unit == "count" or n_cases == 0:
        return Score(value=cell.value, n=n, n_cases=n_cases)
    size = spec(group.paper["paper"]).cases_sharing.get(cell.about.get("facet_value", ""), 1.0)
    low, high, how = (
        round(x, 10) if isinstance(x, float) else x for x in published_interval(cell.value, n_cases, size)
    )
    exact = spec(group.about["benchmark"]).chance.get(metric, spec(group.paper["paper"]).chance.get(metric))
    chance = exact if exact is not None else _printed_chance(cell, group.paper["paper"])
    return Score(
        value=cell.value,
        low=cast(float, low),
        high=cast(float, high),
        n=n,
        n_cases=n_cases,
        chance=chance,
        verdict=None if exact is None else _verdict(cell.value, n_cases, (low, high), exact, info.higher_is_better),
        interval_method=cast(str, how),
    )


def _counts(cell: Cell, group: _Group) -> tuple[int, int]:
    """`n`, `n_cases` of a cell; `pairs` in `cells.csv` stands for MediConfusion's pairs with two valid answers."""
    if cell.about["n"] != "pairs":
        return int(cell.about["n"]), int(cell.about["n_cases"])
    by_metric = {other.about["metric"]: other for other in group.cells}
    whole = by_metric["set_accuracy"]
    pairs = int(whole.about["n"])
    valid = valid_pairs(pairs, whole.value, by_metric["individual_accuracy"].value, cell.value)
    return valid, valid


def _verdict(
    value: float, n_cases: int, interval: tuple[object, object], chance: float, higher_is_better: bool | None
) -> Verdict | None:
    """Better or worse than chance only where the interval leaves it out and the exact binomial test says so too, as for measured
    results; for confusion, less is better."""
    if higher_is_better is None:
        return None
    low, high = (cast(float, end) for end in interval)
    if low <= chance <= high:
        return "no different"
    hits = np.arange(n_cases) < round(value * n_cases / 100)
    if chance_p_value(hits, np.ones(n_cases), np.full(n_cases, chance / 100)) >= 1 - LEVEL:
        return "no different"
    return "better" if (low > chance) == higher_is_better else "worse"


def _printed_chance(cell: Cell, paper: str) -> float | None:
    if not spec(paper).prints_chance:
        return None
    return _random_rows(cell.table).get(cell.column)


@cache
def _random_rows(table: str) -> dict[str, float]:
    return {cell.column: cell.value for cell in cells(table) if cell.row == "Random"}


def _notes(group: _Group) -> list[str]:
    notes = [group.table["note"]] if group.table["note"] else []
    for row in read_table("notes"):
        if row["table"] == group.table["table"] and any(_selects(row, cell.row, cell.column) for cell in group.cells):
            notes.append(row["note"])
    return notes


def _joined(notes: list[str]) -> str | None:
    return " ".join(dict.fromkeys(notes)) or None


def _merge(kept: Result, kept_notes: list[str], other: Result, notes: list[str]) -> None:
    """Add a later table of the same paper; `kept` and `kept_notes` are changed."""
    assert kept.source is not None and other.source is not None
    kept_notes += notes
    for metric, score in other.scores.items():
        first = kept.scores.setdefault(metric, score)
        if first.value != score.value:
            kept_notes.append(
                f"{metric}: {first.value:.2f} in the first table, {score.value:.2f} in {other.source.table}."
            )
    for facet, values in other.breakdown.items():
        for value, scores in values.items():
            place = kept.breakdown.setdefault(facet, {}).setdefault(value, {})
            for metric, score in scores.items():
                place.setdefault(metric, score)
    numbers = re.findall(r"\d+", f"{kept.source.table} {other.source.table}")
    kept.source.table = f"Tables {', '.join(dict.fromkeys(numbers))}"


def _selects(selector: Row, row: str, column: str) -> bool:
    """Whether a line of `cells.csv` or `notes.csv` means this cell: an empty field means all, a row may be named by one label."""
    return _selects_row(selector, row) and _selects_column(selector, column)


def _selects_row(selector: Row, row: str) -> bool:
    return selector["row"] in ("", row, *row.split(" / "))


def _selects_column(selector: Row, column: str) -> bool:
    return not selector["column"] or fnmatchcase(column, selector["column"])


def _model_of(cell: Cell, paper: str) -> str:
    labels = (cell.row, *cell.row.split(" / "), cell.column)
    return next(_names(paper)[label] for label in labels if label in _names(paper))


@cache
def _names(paper: str) -> dict[str, str]:
    """Printed label -> canonical name, in one paper."""
    return {label: row["name"] for row in read_table("models") for label in row[paper].split("; ") if label}


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
