"""Report why two scores differ: as lines for `medprobe compare`, as a table, and as JSON.

See also: the causes themselves (`causes.py`), docs/why.md.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from eval_harness.derive.answer_table import USAGE_FIELDS
from eval_harness.records.result import Result
from eval_harness.store.causes import ANSWERS, Explanation
from eval_harness.store.comparison import differing_settings, format_difference_interval

CAUSE_COLUMNS = {
    "factor": "str",
    "points": "float64",
    "low": "float64",
    "high": "float64",
    "answers": "int64",
    "detail": "str",
}
"""Columns of `cause_table`, with their types."""
_DERIVED_SETTINGS = ("benchmark.", "method.extraction", "method.judge", "environment.permuted")
"""Beginnings of settings whose effect the answers determine, or that follow from the answers."""


def cause_table(explanation: Explanation) -> pd.DataFrame:
    """Return one row per cause, the largest first, and last the row `different answers`.

    Args:
        explanation: From `causes.explain`.

    Returns:
        CAUSE_COLUMNS. `points`: contribution to A - B; the column adds up to the difference. `low`,
            `high`: 95 % interval, of different answers only. `answers`: number of answers
            concerned.
    """
    rows: list[dict[str, Any]] = [vars(cause) for cause in explanation.causes]
    last = {
        "factor": ANSWERS,
        "points": explanation.different_points,
        "low": explanation.low,
        "high": explanation.high,
        "answers": explanation.n_different,
        "detail": "",
    }
    return pd.DataFrame([*rows, last], columns=list(CAUSE_COLUMNS)).astype(CAUSE_COLUMNS)


def unexplained_settings(a: Result, b: Result) -> list[dict[str, Any]]:
    """Return the settings that differ and whose effect the stored answers do not determine.

    Returns:
        `setting`, `a` and `b` of each.
    """
    counted = {f"environment.{name}" for name in USAGE_FIELDS}
    return [
        {"setting": name, "a": value_a, "b": value_b}
        for name, value_a, value_b in differing_settings(a, b)
        if not name.startswith(_DERIVED_SETTINGS) and name not in counted
    ]


def cause_document(explanation: Explanation, a: Result, b: Result) -> dict[str, Any]:
    """Return what `medprobe compare --format json` prints about causes."""
    return {
        "metric": explanation.metric,
        "a": explanation.a,
        "b": explanation.b,
        "difference": explanation.a - explanation.b,
        "causes": [vars(cause) for cause in explanation.causes],
        "unexplained_settings": unexplained_settings(a, b),
        "different_answers": {
            "points": explanation.different_points,
            "low": explanation.low,
            "high": explanation.high,
            "answers": explanation.n_different,
        },
    }


def format_causes(explanation: Explanation, a: Result, b: Result) -> list[str]:
    """Return the lines that say what each difference is worth, in the order of `cause_table`."""
    difference = explanation.a - explanation.b
    lines = [
        f"why A - B = {difference:+.2f} points of {explanation.metric} ({explanation.a:.2f} - {explanation.b:.2f})",
        f"  {'points':>7}  {'answers':>7}",
    ]
    for row in cause_table(explanation).to_dict("records"):
        is_last = row["factor"] == ANSWERS
        detail = format_difference_interval(row["low"], row["high"]) if is_last and row["answers"] else row["detail"]
        lines.append(
            f"  {row['points']:>+7.2f}  {row['answers']:>7,}  {row['factor']}{f' ({detail})' if detail else ''}"
        )
    settings = [setting["setting"] for setting in unexplained_settings(a, b)]
    if settings and explanation.n_different:
        lines.append(f"  different answers may come from: {', '.join(settings)}")
    return lines
