"""Explain the difference of two scores, or of a score and a printed number, and report it.

A printed number has no answers, so only what one side's answers determine can be exchanged: the
reader, the judge, answers that are left out, parts of the questions, slips, or another score. Each
single factor that brings the score to the number is named, and how often one does by chance. The
report has the form of lines for `medprobe compare`, of a table, and of JSON.

See also: the causes of two results with answers (`causes.py`), docs/why.md.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.benchmarks import eval_spec
from eval_harness.derive.metrics import HEADLINE_METRICS, compute_units
from eval_harness.derive.run_files import USAGE_FIELDS
from eval_harness.records.result import EXTRACTIONS, Result
from eval_harness.scores.grading import LOST_STATUSES
from eval_harness.store.causes import (
    ANSWERS,
    Cause,
    Explanation,
    align_questions,
    explain,
    find_factors,
    hybrid_units,
    read_side_answers,
    score_of_units,
)
from eval_harness.store.comparison import Side, differing_settings, format_difference_interval
from eval_harness.store.slips import ROWS, Slip, letter_orders, named_position

CHANCE_RANGE = 10.0
"""Points on either side of a printed number in which unrelated numbers are counted."""
PRINTED_NUMBER = re.compile(r"\d{1,3}(\.\d+)?")
"""A number as it is printed."""
LEFT_OUT = {
    "lost answers left out": LOST_STATUSES,
    "refused answers left out": ("refused",),
    "answers without a choice left out": (*LOST_STATUSES, "refused", "irrelevant"),
}
"""Factor -> statuses of the answers whose cases it leaves out."""
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


def explain_difference(a: Side, b: Side | str, metric: str | None = None) -> Explanation:
    """Explain the difference of two results, or of a result and a printed number.

    Args:
        a: A result with answers and questions, or a published one.
        b: Another one, or a printed number as text, with its decimals.
        metric: The score to explain; None for the benchmark's headline score.

    Raises:
        BadInput: As `causes.explain` and `match_printed`.
    """
    if isinstance(b, str):
        return match_printed(a, b, metric)
    for side, paper in ((a, b), (b, a)):
        if paper.result.provenance == "published":
            scores = paper.result.scores
            score = scores.get(metric or HEADLINE_METRICS[paper.result.benchmark.family])
            if score is None or score.value is None:
                raise BadInput(f"{paper.source}: the paper does not print this score.")
            # All numbers of a table have the decimals of the one with most. Papers print two at
            # most; recomputed numbers have more.
            decimals = max(
                len(repr(printed_score.value).partition(".")[2])
                for printed_score in scores.values()
                if printed_score.value is not None
            )
            return match_printed(side, f"{score.value:.{min(decimals, 2)}f}", metric)
    return explain(a, b, metric)


def match_printed(side: Side, printed: str, metric: str | None = None) -> Explanation:
    """Exchange one factor at a time, and compare each score with a printed number.

    Args:
        side: A result with answers and questions.
        printed: The number with its printed decimals, in percent.
        metric: The score that it is; None for the benchmark's headline score.

    Raises:
        BadInput: The side has no answers, or the score is unknown.
    """
    metric = metric or HEADLINE_METRICS[side.result.benchmark.family]
    score = side.result.scores.get(metric)
    if score is None or score.value is None:
        raise BadInput(f"{side.source}: has no score {metric}.")
    number, half = float(printed), 0.5 * 10.0 ** -len(printed.partition(".")[2])
    exchanged = [
        (name, value, n)
        for name, value, n in dict.fromkeys(_exchanged_scores(side, metric))
        if n and value != score.value
    ]
    causes = [
        Cause(name, score.value - value, n, f"gives {value:.2f}")
        for name, value, n in exchanged
        if abs(value - number) <= half + 1e-9
    ]
    # The part of the range that is within the rounding of some exchanged score.
    grid = number + np.arange(-CHANCE_RANGE, CHANCE_RANGE + half, half / 5)
    is_near = np.zeros(len(grid), bool)
    for _, value, _ in exchanged:
        is_near |= np.abs(grid - value) <= half
    return Explanation(metric, score.value, number, causes, chance=100 * float(is_near.mean()))


def _exchanged_scores(side: Side, metric: str) -> Iterator[tuple[str, float, int]]:
    """Yield (factor, score with it exchanged, number of answers concerned)."""
    method = side.result.method
    # A format without a reader of its authors has no second one.
    readers = EXTRACTIONS if eval_spec(side.result.benchmark.family).read_official is not None else ("ours",)
    other_reader = next((name for name in readers if name != (method.extraction or "ours")), "ours")
    unjudged = method.model_copy(update={"extraction": other_reader, "judge": None})
    aligned = align_questions(side, replace(side, result=side.result.model_copy(update={"method": unjudged})), metric)
    factors, kinds = find_factors(aligned)
    for key, factor in factors.items():
        exchanged = score_of_units(hybrid_units(aligned, kinds, frozenset([key])))
        yield f"{factor.factor} {factor.detail}".strip(), exchanged, factor.answers

    questions = aligned.questions[0]
    table = read_side_answers(aligned, 0, aligned.extractions[0], 0)
    for factor_name, statuses in LEFT_OUT.items():
        rows = table[table["status"].isin(statuses)]
        cases = questions["case_id"][questions["question_id"].isin(rows["question_id"])]
        kept_questions = questions[~questions["case_id"].isin(cases)].reset_index(drop=True)
        answers = table[table["question_id"].isin(kept_questions["question_id"])]
        units = compute_units(side.result.benchmark.family, kept_questions, answers)
        if len(kept_questions) and (units := units[units["metric"] == metric])["denominator"].sum() > 0:
            yield factor_name, score_of_units(units), len(rows)

    positions = np.array(list(map(named_position, table["response"], table["choice"])))
    orders = letter_orders(questions["options"].tolist(), positions)
    slips = [Slip(0, 0, order, (name,), 0.0) for name, order in orders] if not aligned.runs[0].request.permute else []
    for slip in (*slips, Slip(0, -1, None, (ROWS,), 0.0), Slip(0, 1, None, (ROWS,), 0.0)):
        undone = hybrid_units(replace(aligned, slip=slip, readings={}), kinds, frozenset())
        yield slip.names[0], score_of_units(undone), len(table)

    for name, score in side.result.scores.items():
        if name != metric and name in eval_spec(side.result.benchmark.family).metrics and score.value is not None:
            yield f"another score: {name}", score.value, len(table)
    for facet, scores_by_label in side.result.breakdown.items():
        for label, scores in scores_by_label.items():
            if metric in scores and scores[metric].value is not None:
                yield f"only {facet} = {label}", float(scores[metric].value or 0), scores[metric].n


def cause_table(explained: Explanation) -> pd.DataFrame:
    """Return one row per cause.

    Args:
        explained: From `explain_difference`.

    Returns:
        CAUSE_COLUMNS. Of two results the largest cause comes first, and last the row `different
            answers`; `points`: contribution to A - B, which add up to the difference. Of a printed
            number each row alone brings the score to it. `low`, `high`: 95 % interval, of different
            answers only. `answers`: number of answers concerned.
    """
    rows: list[dict[str, Any]] = [vars(cause) for cause in explained.causes]
    if explained.chance is None:
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


def cause_document(explained: Explanation, settings: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what `medprobe compare --format json` prints about causes.

    Args:
        explained: From `explain_difference`.
        settings: From `unexplained_settings`.
    """
    remainder: dict[str, Any] = (
        {"matched_by_chance": explained.chance}
        if explained.chance is not None
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


def format_causes(explained: Explanation, settings: list[dict[str, Any]]) -> list[str]:
    """Return the lines that say what each difference is worth; args as `cause_document`."""
    if explained.chance is not None:
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
