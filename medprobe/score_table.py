"""Results as a table of models x benchmarks, for the terminal, Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from dataset_builders.benchmark_names import BENCHMARKS
from eval_harness.derive.metrics import METRICS
from eval_harness.records.names import printable_line, single_line
from eval_harness.store.formatting import format_bounds, format_score, metric_unit

GUESSING = "guessing"
PHANTOMS = r"(?:^|; )phantoms$"
"""Matches a variant that says that the images are phantoms."""
MAX_NOTE_LENGTH = 300
"""Maximum characters of a cell or note in the terminal."""
MAX_REASONS = 5
"""Maximum number of reasons for missing scores and withdrawals that are printed."""


def score_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Pivot rows of `medprobe.load_results` into a table of models x benchmarks; every cell is a text, empty if there is no result.

    Columns: `model`, `asked` (the method, then whatever else distinguishes the result), then one per benchmark, metric and label, whose
    cells are "value (low-high)" or "no score", in the order of the rows. Models are sorted by the first of these, the best first: complete
    runs, then parts, then what was withdrawn, then what papers print; the last row is guessing.
    """
    standing = rows["part"].notna() + 2 * rows["withdrawn"].notna() + 4 * (rows["kind"] == "published")
    rows = rows.assign(column=_columns(rows), asked=_asked(rows), standing=standing)
    key = ["model", "asked", "column"]
    several = rows[rows.duplicated(key, keep=False)]
    prompts = rows["prompt"].map(lambda name: f", {name}", na_action="ignore").fillna("")
    several_runs = pd.MultiIndex.from_frame(rows[key[:2]]).isin(pd.MultiIndex.from_frame(several[key[:2]]))
    rows["asked"] += prompts.where(several_runs, "")
    rows["number"] = rows.groupby(key).cumcount()  # identical runs get a line each
    order = sorted(rows["column"].unique(), key=_official_first)  # within a benchmark as the rows have them
    rows["cell"] = [_cell(row) for row in rows.to_dict("records")]
    index = ["standing", "model", "asked", "number"]
    table = rows.pivot(index=index, columns="column", values="cell")[order]
    values = rows.pivot(index=index, columns="column", values="value")[order].astype(float)
    first = METRICS.get(rows.loc[rows["column"] == order[0], "metric"].iloc[0])
    lowest = first is not None and first.higher_is_better is False
    best = values.iloc[:, 0].sort_values(ascending=lowest, kind="stable", na_position="last")
    best = best.sort_index(level="standing", sort_remaining=False, kind="stable")
    table = table.loc[best.index].reset_index().drop(columns=["standing", "number"]).fillna("")
    guessing = {column: _chance(held["chance"]) for column, held in rows.groupby("column")}
    table.loc[len(table)] = {"model": GUESSING, "asked": "", **guessing}
    table.columns.name = None
    return table


def as_text(rows: pd.DataFrame) -> str:
    """`score_table` for the terminal, with notes below it."""
    table = score_table(rows)
    columns = [[printable_line(str(cell), MAX_NOTE_LENGTH) for cell in (name, *table[name])] for name in table.columns]
    widths = [max(map(len, cells)) for cells in columns]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in zip(*columns, strict=True)
    ]
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join([*lines, "", *(printable_line(line, MAX_NOTE_LENGTH) for line in table_notes(rows))])


def as_markdown(rows: pd.DataFrame) -> str:
    """`score_table` in Markdown."""
    table = score_table(rows)

    def line(cells: Sequence[object]) -> str:
        return f"| {' | '.join(map(_markdown, cells))} |"

    return "\n".join(
        [line(list(table.columns)), "|" + " --- |" * len(table.columns), *map(line, table.to_numpy().tolist())]
    )


def as_latex(rows: pd.DataFrame) -> str:
    """`score_table` as a LaTeX table for the package booktabs."""
    table = score_table(rows)

    def line(cells: Sequence[object]) -> str:
        return " & ".join(single_line(str(cell)).translate(_LATEX) for cell in cells) + r" \\"

    body = [line(cells) for cells in table.to_numpy().tolist()]
    head = [rf"\begin{{tabular}}{{{'l' * len(table.columns)}}}", r"\toprule", line(list(table.columns)), r"\midrule"]
    return "\n".join([*head, *body[:-1], r"\midrule", body[-1], r"\bottomrule", r"\end{tabular}"])


def _markdown(cell: object) -> str:
    """A cell in which nothing is markup: no image, link, emphasis or HTML, nor an address that readers would make a link."""
    escaped = re.sub(r"([\\`*_\[\]<>|~!&#])", r"\\\1", single_line(str(cell)))
    return re.sub(r"(?<=:)(?=//)|(?<=www)(?=\.)", r"\\", escaped, flags=re.IGNORECASE)


FORMATTERS: dict[str, Callable[[pd.DataFrame], str]] = {"table": as_text, "md": as_markdown, "latex": as_latex}
_SIGNS = {sign: f"\\{sign}" for sign in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
_LATEX = str.maketrans(_SIGNS | {"<": "$<$", ">": "$>$"})


def table_notes(rows: pd.DataFrame) -> list[str]:
    """Notes on the numbers: units, phantoms, why scores are missing and results withdrawn."""
    found = ["percent, with the 95 % interval; better than guessing is an interval that lies above it"]
    if rows["variant"].str.contains(PHANTOMS, na=False).any():
        found.append("phantoms: drawn images, no medicine; these scores say nothing about a model's medical use")
    silent = rows[rows["no_score"].notna()]
    reasons = [f"no score: {row.model} on {row.benchmark}: {row.no_score}" for row in silent.itertuples()]
    withdrawn = rows[rows["withdrawn"].notna()]
    reasons += [f"withdrawn: {row.model} on {row.benchmark}: {row.withdrawn}" for row in withdrawn.itertuples()]
    reasons = list(dict.fromkeys(reasons))
    more = [f"and {len(reasons) - MAX_REASONS} more"] if len(reasons) > MAX_REASONS else []
    return [*found, *reasons[:MAX_REASONS], *more]


def _columns(rows: pd.DataFrame) -> list[str]:
    """The column heading of each row: its benchmark; the split if there are several; its metric; phantoms and label where they apply."""
    splits = rows.groupby("benchmark")["split"].nunique()
    drawn = rows["variant"].str.contains(PHANTOMS, na=False)
    mixed = bool(drawn.any()) and not bool(drawn.all())
    names = []
    for row, phantom in zip(rows.to_dict("records"), drawn, strict=True):
        parts = [row["benchmark"], row["split"] if splits[row["benchmark"]] > 1 else ""]
        parts += ["(phantoms)" if mixed and phantom else "", row["metric"]]
        parts.append(f"{row['facet']}={row['facet_value']}" if pd.notna(row["facet"]) else "")
        names.append(" ".join(filter(None, parts)))
    return names


def _asked(rows: pd.DataFrame) -> list[str]:
    """Method and variant of each row; for a published number, also the paper and table."""
    found = []
    for row in rows.to_dict("records"):
        variant = "" if pd.isna(row["variant"]) else re.sub(PHANTOMS, "", row["variant"]).replace("; ", ", ")
        paper = "" if pd.isna(row["source"]) else row["source"].split(', "')[0]
        printed = ", ".join(filter(None, [paper, "" if pd.isna(row["table"]) else row["table"]]))
        kind = {"published": printed, "aggregate": "aggregate"}.get(row["kind"], "")
        withdrawn = "" if pd.isna(row["withdrawn"]) else "withdrawn"
        method = "" if pd.isna(row["method"]) else row["method"]
        found.append(", ".join(filter(None, [withdrawn, method, variant, kind])))
    return found


def _official_first(column: str) -> tuple[int, str]:
    """The place of a column's benchmark, others by their names."""
    name = column.split(" ", maxsplit=1)[0]
    return (BENCHMARKS.index(name), "") if name in BENCHMARKS else (len(BENCHMARKS), name)


def _cell(row: Mapping[Any, Any]) -> str:
    if pd.isna(row["value"]):
        return "no score"
    low, high, *levels = (
        None if pd.isna(row[name]) else float(row[name])
        for name in ("low", "high", "chance", "chance_low", "chance_high")
    )
    between = format_bounds(low, high, levels).replace(" ", "")
    of = " (count)" if metric_unit(row["metric"]) == "count" else ""
    return f"{format_score(float(row['value']), metric_unit(row['metric']))}{f' ({between})' if between else ''}{of}"


def _chance(chances: pd.Series) -> str:
    """The score of guessing on the questions of a column; a range if its results are on different questions."""
    known = chances.dropna().astype(float)
    if known.empty:
        return ""
    return "-".join(dict.fromkeys([format_score(known.min()), format_score(known.max())]))
