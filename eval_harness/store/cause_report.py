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
from eval_harness.store.printed import CHANCE_RANGE, PrintedMatch

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


def cause_table(explained: Explanation | PrintedMatch) -> pd.DataFrame:
    """Return one row per cause.

    Args:
        explained: From `printed.explain_difference`.

    Returns:
        CAUSE_COLUMNS. Of two results the largest cause comes first, and last the row `different
            answers`; `points`: contribution to A - B, which add up to the difference. Of a printed
            number each row alone brings the score to it. `low`, `high`: 95 % interval, of different
            answers only. `answers`: number of answers concerned.
    """
    rows: list[dict[str, Any]] = [vars(cause) for cause in explained.causes]
    if isinstance(explained, Explanation):
        rows.append({"factor": ANSWERS, "detail": "", **_different_answers(explained)})
    return pd.DataFrame(rows, columns=list(CAUSE_COLUMNS)).astype(CAUSE_COLUMNS)


def _different_answers(explained: Explanation) -> dict[str, Any]:
    """Return what is left to different answers."""
    return {
        "points": explained.different_points,
        "low": explained.low,
        "high": explained.high,
        "answers": explained.n_different,
    }


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


def cause_document(explained: Explanation | PrintedMatch, settings: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what `medprobe compare --format json` prints about causes.

    Args:
        explained: From `printed.explain_difference`.
        settings: From `unexplained_settings`.
    """
    remainder: dict[str, Any] = (
        {"matched_by_chance": explained.chance}
        if isinstance(explained, PrintedMatch)
        else {"different_answers": _different_answers(explained)}
    )
    return {
        "metric": explained.metric,
        "a": explained.a,
        "b": explained.b,
        "difference": explained.a - explained.b,
        "causes": [vars(cause) for cause in explained.causes],
        "unexplained_settings": settings,
        **remainder,
    }


def format_causes(explained: Explanation | PrintedMatch, settings: list[dict[str, Any]]) -> list[str]:
    """Return the lines that say what each difference is worth; args as `cause_document`."""
    if isinstance(explained, PrintedMatch):
        lines = [f"why {explained.metric} is {explained.a:.2f} here and {explained.b:g} in print"]
        lines += [f"  {cause.factor}: {cause.detail} ({cause.answers:,} answers)" for cause in explained.causes]
        if not explained.causes:
            lines.append("  not determinable from the answers: no single factor brings the score to the printed number")
        chance = f"{explained.chance:.2g} % of the numbers within {CHANCE_RANGE:g} points of it"
        return [*lines, f"  (a single factor brings the score to {chance}, by chance)"]
    difference = f"A - B = {explained.a - explained.b:+.2f} points of {explained.metric}"
    lines = [f"why {difference} ({explained.a:.2f} - {explained.b:.2f})", f"  {'points':>7}  {'answers':>7}"]
    for row in cause_table(explained).to_dict("records"):
        is_last = row["factor"] == ANSWERS
        detail = format_difference_interval(row["low"], row["high"]) if is_last and row["answers"] else row["detail"]
        detail = f" ({detail})" if detail else ""
        lines.append(f"  {row['points']:>+7.2f}  {row['answers']:>7,}  {row['factor']}{detail}")
    if settings and explained.n_different:
        names = ", ".join(setting["setting"] for setting in settings)
        lines.append(f"  different answers may come from: {names}")
    return lines
