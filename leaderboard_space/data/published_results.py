"""The papers' own numbers as results: the tables in `published/` read into `published` Result objects.

See also: the tables, and what a number becomes (`published_tables.py`).

Imports no gradio and no torch.
"""

from __future__ import annotations

import re
from functools import cache

from dataset_builders.benchmarks import BENCHMARKS
from eval_harness.records.result import Benchmark, Breakdown, Method, Result, Score, Source
from leaderboard_space.benchmarks import spec
from leaderboard_space.data.published_tables import (
    Group,
    Row,
    cells,
    errors_named,
    model_of,
    models,
    read_table,
    score_of,
    selects,
)


def published_results() -> list[Result]:
    """Every number of the papers' tables: one Result per table, model, benchmark, split, method, prompt and variant.

    So every number has its own table in `source.table`; a number printed in two tables is there twice. `board_results` has one
    Result per model instead.
    """
    return [result.model_copy(deep=True) for result, _, _ in _published()]


def board_results() -> list[Result]:
    """The same with all tables of a paper on one model, benchmark, split, method, prompt and variant in one Result.

    Without the tables that try other prompts or aggregate many answers: a best of 100 picked by an oracle must not
    be ranked among models, and one model must not fill the ranking with eleven prompts.

    Where two tables print different numbers for the same thing the first table's stands, and the note says what the other prints.
    """
    merged: dict[tuple[str, ...], tuple[Result, list[str]]] = {}
    for result, notes, is_ablation in _published():
        if is_ablation:
            continue
        key = _merged_as(result)
        if key in merged:
            _merge(*merged[key], result, notes)
        else:
            merged[key] = (_own(result), list(notes))
    for result, notes in merged.values():
        assert result.source is not None
        result.source.note = _joined(notes)
        result.breakdown = errors_named(result.breakdown | _scenarios(result))
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


def table_of(result: Result, metric: str, facet: str = "", value: str = "") -> str | None:
    """The table that a number of `board_results` is printed in: its score, or a cell of its breakdown; None where it is no such number.

    >>> table_of(next(r for r in board_results() if r.benchmark.name == "probmed"), "organ", "image_type", "brain_ct")
    'Table 7'
    """
    return _tables_of_numbers().get(_merged_as(result), {}).get((facet, value, metric))


def misprint(result: Result, metric: str, facet: str = "", value: str = "") -> str | None:
    """What is known to be wrong with a printed number, where a note is of that very cell (or of its column)."""
    return _misprints().get((*_merged_as(result), facet, value, metric))


@cache
def _misprints() -> dict[tuple[str, ...], str]:
    found: dict[tuple[str, ...], str] = {}
    papers = {row["paper"]: row for row in read_table("papers")}
    noted = [row for row in read_table("notes") if row["column"] and "/" in row["column"] + row["row"]]
    for table in read_table("tables"):
        rows = [row for row in noted if row["table"] == table["table"] and not row["column"].startswith("*")]
        for group in _groups(table, papers[table["paper"]]).values() if rows else ():
            result = _result(group, [])
            for cell in group.cells:
                where = (cell.about.get("facet", ""), cell.about.get("facet_value", ""), cell.about["metric"])
                said = " ".join(row["note"] for row in rows if selects(row, cell.row, cell.column))
                if said:
                    found[(*_merged_as(result), *where)] = said
    return found


def _scenarios(result: Result) -> Breakdown:
    """HALT's scenarios, which its paper prints as columns beside their average, as cells: so they can be ticked and broken down by.

    The average over one scenario is the accuracy in it. Empty for other benchmarks.
    """
    cells: Breakdown = {}
    found = spec(result.benchmark.family).facet_metrics
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
        printed_in = found.setdefault(_merged_as(result), {})
        parts = [("", "", result.scores)]
        cells = errors_named(result.breakdown | _scenarios(result))
        parts += [(facet, value, held) for facet, values in cells.items() for value, held in values.items()]
        for facet, value, held in parts:
            for metric in held:
                printed_in.setdefault((facet, value, metric), result.source.table or "")
    return found


def _merged_as(result: Result) -> tuple[str, ...]:
    """What the tables of a paper share that become one result of the board."""
    method, benchmark = result.method, result.benchmark
    variant = str(method.generation.get("variant", ""))
    return (benchmark.name, benchmark.split, result.model.name, method.name, method.prompt or "", variant)


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


def _groups(table: Row, paper: Row) -> dict[tuple[str, ...], Group]:
    groups: dict[tuple[str, ...], Group] = {}
    for cell in cells(table["table"]):
        about = {
            key: value for key, value in paper.items() if key in ("split", "method", "prompt", "questions") and value
        }
        about |= {key: table[key] for key in ("benchmark", "questions") if table[key]}
        about |= cell.about
        if "model" not in about:
            about["model"] = model_of(cell, paper["paper"])
        key = tuple(
            about.get(name, "") for name in ("model", "benchmark", "split", "method", "prompt", "samples", "variant")
        )
        groups.setdefault(key, Group(table, paper, about)).cells.append(cell)
    return groups


def _result(group: Group, notes: list[str]) -> Result:
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
        scores = result.breakdown.setdefault(facet, {}).setdefault(value, {}) if facet else result.scores
        scores[metric] = score_of(cell, group)
        if cell.spread is not None:
            scores[f"{metric}_std"] = Score(value=cell.spread, n=scores[metric].n, n_cases=scores[metric].n_cases)
    return result


def _notes(group: Group) -> list[str]:
    notes = [group.table["note"]] if group.table["note"] else []
    for row in read_table("notes"):
        if row["table"] == group.table["table"] and any(selects(row, cell.row, cell.column) for cell in group.cells):
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
            known = kept.breakdown.setdefault(facet, {}).setdefault(value, {})
            for metric, score in scores.items():
                known.setdefault(metric, score)
    numbers = re.findall(r"\d+", f"{kept.source.table} {other.source.table}")
    kept.source.table = f"Tables {', '.join(dict.fromkeys(numbers))}"
