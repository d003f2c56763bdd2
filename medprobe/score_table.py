"""Format results as a table of models x benchmarks, for the terminal, Markdown or LaTeX."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from dataset_builders.benchmark_names import BENCHMARKS
from eval_harness.derive.metrics import METRICS
from eval_harness.records.limits import printable_line, single_line
from eval_harness.store.formatting import PHANTOM_NOTE, format_bounds, format_score, metric_unit

GUESSING = "guessing"
PHANTOMS = r"(?:^|; )phantoms$"
"""Regular expression for the variant of a result on phantoms."""
MAX_NOTE_LENGTH = 300
"""Maximum length of a cell or note in the terminal, in characters."""
MAX_REASONS = 5
"""Maximum number of printed reasons for missing scores and withdrawals."""


def score_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Pivot rows of `medprobe.load_results` into a table of models x benchmarks.

    The columns are `model`, `asked` (the method and whatever else distinguishes the result), and
    one per benchmark, metric and label, official benchmarks first. Their cells are "value
    (low-high)", "no score", or "" if there is no result. Complete runs come first, then partial
    runs, withdrawn results and published numbers; each of these groups is sorted by the first
    column of scores, best first. The last row is guessing.
    """
    sort_group = rows["part"].notna() + 2 * rows["withdrawn"].notna() + 4 * rows["kind"].isin(("printed", "recomputed"))
    rows = rows.assign(column=_columns(rows), asked=_describe_methods(rows), standing=sort_group)
    key = ["model", "asked", "column"]
    rows["is_duplicate"] = rows.duplicated(key, keep=False)
    # Results that otherwise look the same are told apart by the name of their prompt.
    prompts = rows["prompt"].map(lambda name: f", {name}", na_action="ignore").fillna("")
    has_duplicates = rows.groupby(key[:2])["is_duplicate"].transform("any")
    rows["asked"] += prompts.where(has_duplicates, "")
    # Repeated runs, which not even the prompt tells apart, get one line each.
    rows["number"] = rows.groupby(key).cumcount()
    # The sort is stable, so a benchmark's metrics keep the order that they have in `rows`.
    order = sorted(rows["column"].unique(), key=_benchmark_sort_key)
    rows["cell"] = [_cell(row) for row in rows.to_dict("records")]
    index = ["standing", "model", "asked", "number"]
    # Cells are texts, so the rows are sorted by a second table with the values.
    table = rows.pivot(index=index, columns="column", values="cell")[order]
    values = rows.pivot(index=index, columns="column", values="value")[order].astype(float)
    sort_metric = METRICS.get(rows.loc[rows["column"] == order[0], "metric"].iloc[0])
    ascending = sort_metric is not None and sort_metric.higher_is_better is False
    best = values.iloc[:, 0].sort_values(ascending=ascending, kind="stable", na_position="last")
    best = best.sort_index(level="standing", sort_remaining=False, kind="stable")
    table = table.loc[best.index].reset_index().drop(columns=["standing", "number"]).fillna("")
    guessing = {column: _chance(column_rows["chance"]) for column, column_rows in rows.groupby("column")}
    table.loc[len(table)] = {"model": GUESSING, "asked": "", **guessing}
    table.columns.name = None
    return table


def as_text(rows: pd.DataFrame) -> str:
    """Format `score_table` for the terminal, with notes below it.

    Args:
        rows: rows of `medprobe.load_results`.
    """
    table = score_table(rows)
    columns = [[printable_line(str(cell), MAX_NOTE_LENGTH) for cell in (name, *table[name])] for name in table.columns]
    # Names come from submissions, so they are made printable and cut to length.
    widths = [max(map(len, cells)) for cells in columns]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in zip(*columns, strict=True)
    ]
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join([*lines, "", *(printable_line(line, MAX_NOTE_LENGTH) for line in table_notes(rows))])


def as_markdown(rows: pd.DataFrame) -> str:
    """Format `score_table` in Markdown.

    Args:
        rows: rows of `medprobe.load_results`.
    """
    table = score_table(rows)

    def line(cells: Sequence[object]) -> str:
        return f"| {' | '.join(map(_markdown, cells))} |"

    return "\n".join(
        [
            line(list(table.columns)),
            "|" + " --- |" * len(table.columns),
            *map(line, table.to_numpy().tolist()),
        ]
    )


def as_latex(rows: pd.DataFrame) -> str:
    """Format `score_table` as a LaTeX table that uses the package booktabs.

    Args:
        rows: rows of `medprobe.load_results`.
    """
    table = score_table(rows)

    def line(cells: Sequence[object]) -> str:
        return " & ".join(single_line(str(cell)).translate(_LATEX) for cell in cells) + r" \\"

    body = [line(cells) for cells in table.to_numpy().tolist()]
    head = [
        rf"\begin{{tabular}}{{{'l' * len(table.columns)}}}",
        r"\toprule",
        line(list(table.columns)),
        r"\midrule",
    ]
    return "\n".join([*head, *body[:-1], r"\midrule", body[-1], r"\bottomrule", r"\end{tabular}"])


def _markdown(cell: object) -> str:
    """Escape a cell, so that it shows no image, link, emphasis or HTML.

    Addresses are escaped, too, since some viewers turn them into links.
    """
    escaped = re.sub(r"([\\`*_\[\]<>|~!&#])", r"\\\1", single_line(str(cell)))
    return re.sub(r"(?<=:)(?=//)|(?<=www)(?=\.)", r"\\", escaped, flags=re.IGNORECASE)


FORMATTERS: dict[str, Callable[[pd.DataFrame], str]] = {
    "table": as_text,
    "md": as_markdown,
    "latex": as_latex,
}
"""Value of `--format` -> function that formats rows of `medprobe.load_results`."""
_SIGNS = {sign: f"\\{sign}" for sign in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
_LATEX = str.maketrans(_SIGNS | {"<": "$<$", ">": "$>$"})


def table_notes(rows: pd.DataFrame) -> list[str]:
    """Return notes on the numbers: units, phantoms, reasons for missing scores and withdrawals.

    Args:
        rows: rows of `medprobe.load_results`.

    Returns:
        One line per note, with at most `MAX_REASONS` reasons.
    """
    notes = ["percent, with 95 % intervals; a score is better than guessing if its interval lies above it"]
    if rows["variant"].str.contains(PHANTOMS, na=False).any():
        notes.append(PHANTOM_NOTE)
    unscored = rows[rows["no_score"].notna()]
    reasons = [f"no score: {row.model} on {row.benchmark}: {row.no_score}" for row in unscored.itertuples()]
    withdrawn = rows[rows["withdrawn"].notna()]
    reasons += [f"withdrawn: {row.model} on {row.benchmark}: {row.withdrawn}" for row in withdrawn.itertuples()]
    reasons = list(dict.fromkeys(reasons))
    omitted = [f"and {len(reasons) - MAX_REASONS} more"] if len(reasons) > MAX_REASONS else []
    return [*notes, *reasons[:MAX_REASONS], *omitted]


def _columns(rows: pd.DataFrame) -> list[str]:
    """Return the heading of the column in which each row's score is shown.

    It consists of the benchmark, the split, "(phantoms)", the metric and the label, as far as they
    are needed.
    """
    # The split is named only if a benchmark occurs with several.
    splits = rows.groupby("benchmark")["split"].nunique()
    is_phantom = rows["variant"].str.contains(PHANTOMS, na=False)
    is_mixed = bool(is_phantom.any()) and not bool(is_phantom.all())
    # Phantoms are named only if the table also contains other results.
    names = []
    for row, phantom in zip(rows.to_dict("records"), is_phantom, strict=True):
        parts = [row["benchmark"], row["split"] if splits[row["benchmark"]] > 1 else ""]
        parts += ["(phantoms)" if is_mixed and phantom else "", row["metric"]]
        parts.append(f"{row['facet']}={row['facet_value']}" if pd.notna(row["facet"]) else "")
        names.append(" ".join(filter(None, parts)))
    return names


def _describe_methods(rows: pd.DataFrame) -> list[str]:
    """Return the method and variant of each row; for a published number also paper and table."""
    descriptions = []
    for row in rows.to_dict("records"):
        variant = "" if pd.isna(row["variant"]) else re.sub(PHANTOMS, "", row["variant"]).replace("; ", ", ")
        # A citation is 'Authors, "Title"': the authors suffice in a table.
        paper = "" if pd.isna(row["source"]) else row["source"].split(', "')[0]
        printed_source = ", ".join(filter(None, [paper, "" if pd.isna(row["table"]) else row["table"]]))
        kind = {"printed": printed_source, "recomputed": "recomputed", "aggregate": "aggregate"}.get(row["kind"], "")
        withdrawn = "" if pd.isna(row["withdrawn"]) else "withdrawn"
        method = "" if pd.isna(row["method"]) else row["method"]
        descriptions.append(", ".join(filter(None, [withdrawn, method, variant, kind])))
    return descriptions


def _benchmark_sort_key(column: str) -> tuple[int, str]:
    """Sort the official benchmarks first, in their order, then the others by name."""
    name = column.split(" ", maxsplit=1)[0]
    return (BENCHMARKS.index(name), "") if name in BENCHMARKS else (len(BENCHMARKS), name)


def _cell(row: Mapping[Any, Any]) -> str:
    if pd.isna(row["value"]):
        return "no score"
    low, high, *levels = (
        None if pd.isna(row[name]) else float(row[name])
        for name in ("low", "high", "chance", "chance_low", "chance_high")
    )
    interval = format_bounds(low, high, levels).replace(" ", "")
    unit_suffix = " (count)" if metric_unit(row["metric"]) == "count" else ""
    return f"{format_score(float(row['value']), metric_unit(row['metric']))}{f' ({interval})' if interval else ''}{unit_suffix}"


def _chance(chances: pd.Series) -> str:
    """Format the score of guessing in a column.

    It is a range if the results in the column are on different questions.
    """
    values = chances.dropna().astype(float)
    if values.empty:
        return ""
    return "-".join(dict.fromkeys([format_score(values.min()), format_score(values.max())]))
