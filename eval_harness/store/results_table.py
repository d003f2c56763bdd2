"""Put all results into one tidy table, and escape texts that a spreadsheet would run as formulas.

The table has a row for each result, metric and facet value.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from eval_harness.derive.metrics import HEADLINE_METRICS, untested_reason
from eval_harness.records.limits import single_line
from eval_harness.records.result import Result, Score

RESULT_COLUMNS: tuple[str, ...] = (
    "benchmark", "split", "model", "kind", "method", "prompt", "variant", "metric", "headline", "facet", "facet_value",
    "value", "low", "high", "chance", "chance_low", "chance_high", "verdict", "n", "n_cases", "n_effective",
    "no_score", "part", "withdrawn", "source", "table", "note",
)  # fmt: skip
"""The columns of `medprobe results`, in order."""


def tidy_table(results: Iterable[Result], withdrawn: Mapping[int, str] | None = None) -> pd.DataFrame:
    """Build a table with one row per score.

    Each result has rows for its overall scores, with empty facet and facet_value, and then for its
    breakdown. Values are percent unless the metric is a count. Undefined values, missing bounds and
    unknown counts are empty.

    Args:
        results: The results, in the order of their rows.
        withdrawn: Position in `results` -> why that result was withdrawn.

    Returns:
        A table with RESULT_COLUMNS; empty if there are no results. `kind`: measured, recomputed,
            printed or aggregate. `variant`: what distinguishes a row besides method and prompt.
            `headline`: whether the benchmark is ranked by the metric. `chance`: the score of
            guessing. `verdict`: better, no different or worse than chance, by the interval.
            `no_score`: why a score has no value, or no verdict and rank. `part`: what was asked, if
            not everything. `source`: the citation of a published number, else the provenance.
    """
    reasons = withdrawn or {}
    rows = [row | {"withdrawn": reasons.get(at)} for at, result in enumerate(results) for row in _result_rows(result)]
    table = pd.DataFrame(rows, columns=list(RESULT_COLUMNS))
    table["headline"] = table["headline"].astype("bool")

    # Nullable types, so that missing values do not turn integers into floats.
    for name in ("value", "low", "high", "chance", "chance_low", "chance_high", "n_effective"):
        table[name] = table[name].astype("Float64")

    for name in ("n", "n_cases"):
        table[name] = table[name].astype("Int64")

    return table


def variant(result: Result) -> str | None:
    """Return what distinguishes a result besides model, method and prompt.

    This may be a person who answered, worked examples, samples, a judge, or a part of the
    questions. None for a plain run on the whole benchmark.
    """
    method, judge = result.method, result.method.judge or {}
    parts = (
        (method.generation.get("variant"), method.generation.get("variant")),
        (result.model.kind == "human", "a person"),
        (method.shots, f"{method.shots} shots"),
        ((method.samples or 1) > 1, f"{method.samples} samples"),
        (method.generation.get("permute"), "options permuted"),
        (method.image != "real", f"{method.image} images"),
        (method.extraction not in (None, "ours"), f"extraction {method.extraction}"),
        (judge, f"judge {judge.get('model', 'yes')}"),
        (result.benchmark.selection, result.benchmark.selection),
        (result.benchmark.origin == "phantom", "phantoms"),
    )
    return "; ".join(str(text) for applies, text in parts if applies) or None


def _result_rows(result: Result) -> Iterator[dict[str, Any]]:
    """Yield the rows of one result."""
    source = result.source
    shared = {
        "benchmark": result.benchmark.name,
        "split": result.benchmark.split,
        "model": result.model.name,
        "kind": result.kind,
        "method": result.method.name,
        "prompt": result.method.prompt,
        "variant": variant(result),
        "part": result.benchmark.selection,
        "source": source.citation if source else result.provenance,
        "table": source.table if source else None,
        "note": (source.note if source else None) or "; ".join(result.deviations) or None,
    }

    headline_metric = HEADLINE_METRICS[result.benchmark.family]
    cells = {(None, None): result.scores} | {
        (facet, value): scores for facet, values in result.breakdown.items() for value, scores in values.items()
    }
    for (facet, value), scores in cells.items():
        for metric, score in scores.items():
            score_keys = {
                "metric": metric,
                "headline": metric == headline_metric,
                "facet": facet,
                "facet_value": value,
            }
            yield shared | score_keys | _score_columns(score, result)


def _score_columns(score: Score, result: Result) -> dict[str, Any]:
    """Return the columns of one score.

    A published value may come without its count: the count is then empty, not 0.
    """
    unknown = score.value is not None and score.n == 0
    return {
        "value": score.value,
        "low": score.low,
        "high": score.high,
        "chance": score.chance,
        "chance_low": score.chance_interval and score.chance_interval[0],
        "chance_high": score.chance_interval and score.chance_interval[1],
        "verdict": score.verdict,
        "n": None if unknown else score.n,
        "n_cases": None if unknown else score.n_cases,
        "n_effective": score.n_effective,
        "no_score": untested_reason(score, result) or None,
    }


FORMULA_STARTS = tuple("=+-@|%")
"""Characters that start a formula in Excel, LibreOffice or Google Sheets (OWASP: CSV Injection).

Their full-width forms are covered by NFKC normalization.
"""
FORMULA_CELL_START = re.compile('([;\t\r\n]["\\s]*)(?=[=+\\-@|%\uff1d\uff0b\uff0d\uff20\uff5c\uff05])')
"""A separator within a text, followed by the start of a formula.

Spreadsheets split text at semicolons in many locales, and at tabs and line breaks.
"""


def escape_formula(value: Any) -> Any:
    """Escape the value of a cell with an apostrophe if a spreadsheet would take it for a formula.

    Separators within the text, at which a spreadsheet may start a new cell, are covered as well.

    >>> escape_formula('=HYPERLINK("https://evil")')
    '\\'=HYPERLINK("https://evil")'
    """
    if not isinstance(value, str):
        return value
    # Invisible characters must not hide the start of a formula.
    visible = "".join(sign for sign in unicodedata.normalize("NFKC", value[:200]) if sign.isprintable()).lstrip()
    is_formula = visible.startswith(FORMULA_STARTS) or value[:1] in ("\t", "\r", "\n")
    text = FORMULA_CELL_START.sub(r"\1'", value)
    return "'" + text if is_formula else text


def escape_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """Escape the texts of a table and put each of them on one line; numbers stay numbers."""
    texts = [name for name in table.columns if not pd.api.types.is_numeric_dtype(table[name])]
    lines = {name: table[name].map(lambda text: single_line(text) if isinstance(text, str) else text) for name in texts}
    return table.assign(**{name: column.map(escape_formula) for name, column in lines.items()})
