"""`medprobe compare`: the differences between two results in settings, answers and scores. The place to start if a number differs from
the paper's.

See also: comparing many models (`scores/comparisons.py`), drawing (the board).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.derive.metrics import nonresponse_cause
from eval_harness.derive.run_files import READINGS_FILE, read_question_file, read_readings
from eval_harness.derive.scoring import compute_units
from eval_harness.records.names import single_line
from eval_harness.records.result import Result, Score, read_result
from eval_harness.scores.comparisons import paired_test
from eval_harness.scores.unpaired import UNPAIRED_METHOD as UNPAIRED
from eval_harness.scores.unpaired import compute_unpaired_difference
from eval_harness.store.formatting import format_score, interval_decimals, metric_unit, ordered_metrics

MAX_EXAMPLES = 8
MIN_PRINTED_P = 1e-12
"""Smaller p-values are shown as less than this."""


@dataclass(frozen=True)
class Side:
    """One side of a comparison: its result and, if it was measured, its answers and questions."""

    source: str
    result: Result
    answers: pd.DataFrame | None = None
    questions: pd.DataFrame | None = None

    def units(self) -> pd.DataFrame | None:
        """The units that its scores are computed from; None if its answers or questions are missing."""
        if self.answers is None or self.questions is None:
            return None
        return compute_units(self.result.benchmark.family, self.questions, self.answers)


def load_side(source: str, published: Callable[[], Iterable[Result]]) -> Side:
    """Load a run folder, a result.json (in a run folder or a store), or `published:MODEL/BENCHMARK/METHOD/Table 1` (as many parts as
    needed to be unique).

    Raises BadInput if it is none of these, or the published name matches several results.
    """
    if source.startswith("published:"):
        return Side(source, _find_published(source.removeprefix("published:"), published()))
    path = Path(source) / "result.json" if Path(source).is_dir() else Path(source)
    result = read_result(path)
    if result.kind != "measured":  # an aggregate may lie beside the answers of a run it was computed from
        return Side(source, result)
    held = [path.parent / "questions.parquet", *_stored_questions_paths(path, result)]
    questions = next((file for file in held if file.is_file()), None)
    if not (path.parent / READINGS_FILE).is_file() or questions is None:
        return Side(source, result)
    try:
        return Side(source, result, read_readings(path.parent), read_question_file(questions))
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{path.parent}: its answers cannot be read ({error}). Run `medprobe score` on the run folder."
        ) from None


def _stored_questions_paths(path: Path, result: Result) -> list[Path]:
    """The file in which a store keeps the questions of a result: STORE/questions/<fingerprint>.parquet, four folders up from the result."""
    parents = path.resolve().parents
    return [parents[4] / "questions" / f"{result.benchmark.fingerprint}.parquet"] if len(parents) > 4 else []


def _find_published(name: str, results: Iterable[Result]) -> Result:
    model, *rest = (part.strip().casefold() for part in name.split("/"))
    found = [
        result
        for result in results
        if result.model.name.casefold() == model
        and set(rest) <= {word.casefold() for word in _identifying_parts(result)}
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise BadInput(f"published:{name}: no paper has it. `medprobe results --published` lists them.")
    names = list(dict.fromkeys("/".join([result.model.name, *_identifying_parts(result)]) for result in found))
    several = ", ".join(f"'published:{each}'" for each in names[:MAX_EXAMPLES])
    raise BadInput(f"published:{name}: matches {len(found)} results. Name one, e.g. {several}.")


def _identifying_parts(result: Result) -> list[str]:
    """The parts that identify one of a model's published results."""
    method, table = result.method, result.source.table if result.source else None
    samples = f"{method.samples} samples" if method.samples else None
    return [word for word in (result.benchmark.name, method.name, method.prompt, samples, table) if word]


def compare_results(a: Side, b: Side, all_metrics: bool = False) -> str:
    """The differences as text: scores (`formatting.ordered_metrics`), answers, settings.

    Raises BadInput for results of different benchmarks.
    """
    _check_same_format(a, b)
    lines = [f"A  {_format_title(a.result)}", f"B  {_format_title(b.result)}", "", "scores (percent, or a count)"]
    lines += _score_lines(a, b, all_metrics)
    if a.answers is not None and b.answers is not None:
        lines += ["", "answers", *_answer_lines(a, b)]
    return "\n".join(map(single_line, [*lines, "", "settings that differ", *_setting_lines(a.result, b.result)]))


def _format_title(result: Result) -> str:
    source = result.source
    where = f", {source.citation}" + (f", {source.table}" if source.table else "") if source else ""
    return f"{result.model.name} on {result.benchmark.name} ({result.kind}{where})"


def _flatten_settings(result: Result) -> dict[str, Any]:
    """Every setting that may explain a difference, by name; None if a result does not state it."""
    document = result.model_dump()
    found: dict[str, Any] = {}
    for part in ("benchmark", "model", "method", "environment"):
        for name, value in document[part].items():
            if isinstance(value, dict):
                found |= {f"{part}.{name}.{inner}": deeper for inner, deeper in value.items()}
            else:
                found[f"{part}.{name}"] = value
    silent = None if result.kind == "published" else "none"  # a paper may simply not report them
    found["deviations"] = document["deviations"] or silent
    return found


def _setting_lines(a: Result, b: Result) -> list[str]:
    """Settings that differ. A setting that only one side states is unknown for the other and omitted, except for options of a run: if
    another measured run does not name one, it was not set."""
    first, second = _flatten_settings(a), _flatten_settings(b)
    measured = a.kind == b.kind == "measured"
    lines = []
    for name in sorted(first.keys() | second.keys()):
        left, right = first.get(name), second.get(name)
        asked_for = measured and name.startswith(("method.", "benchmark."))
        known = asked_for or (left is not None and right is not None)
        if left != right and known and name not in ("method.judge", "benchmark.repo"):
            lines.append(f"  {name}: {_format_setting(left)} | {_format_setting(right)}")
    return lines or ["  none that both state"]


def _format_setting(value: Any) -> str:
    text = "not set" if value is None else "; ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 100 else text[:97] + "..."


DIFFERENCE_COLUMNS = ("metric", "a", "b", "difference", "low", "high", "p", "test", "note")


def score_differences(a: Side, b: Side) -> pd.DataFrame:
    """One row per metric that both have, in A's order. Raises BadInput for results of different benchmarks.

    `a`, `b`, `difference` (a - b): percent, or a count; `low`, `high`: 95 % interval of the difference in percentage points, none for a
    count; `p`: two-sided, below 5 % exactly if the interval excludes 0; `test`: paired by case if both have answers to the same questions,
    else as if independent; `note`: why two values are not compared. Values that do not apply are missing.
    """
    _check_same_format(a, b)
    tables = _paired_units(a, b)
    rows = [_metric_difference(a, b, name, tables) for name in a.result.scores if name in b.result.scores]
    kinds = dict.fromkeys(("a", "b", "difference", "low", "high", "p"), "float64") | {"test": "str", "note": "str"}
    return pd.DataFrame(rows, columns=list(DIFFERENCE_COLUMNS)).astype(kinds)


def _check_same_format(a: Side, b: Side) -> None:
    if a.result.benchmark.family != b.result.benchmark.family:
        raise BadInput(
            f"{a.source} is of {a.result.benchmark.name}, {b.source} of {b.result.benchmark.name}: these cannot be compared."
        )


def _metric_difference(a: Side, b: Side, name: str, tables: tuple[pd.DataFrame, pd.DataFrame] | None) -> dict[str, Any]:
    left, right = a.result.scores[name], b.result.scores[name]
    row: dict[str, Any] = {"metric": name, "a": left.value, "b": right.value}
    silent = [(side, score.nonresponse) for side, score in (("A", left), ("B", right)) if score.nonresponse is not None]
    if silent:
        results = {"A": a.result, "B": b.result}
        return row | {"note": "; ".join(f"{side}: {nonresponse_cause(found, results[side])}" for side, found in silent)}
    if left.value is None or right.value is None:
        return row
    return row | {"difference": left.value - right.value} | _difference_test(tables, name, left, right)


def _score_lines(a: Side, b: Side, all_metrics: bool) -> list[str]:
    """The table of `score_differences` as text."""
    table = score_differences(a, b).set_index("metric", drop=False)
    told = [name for name in ordered_metrics(a.result, all_metrics) if name in table.index]
    left, table = len(table) - len(told), table.loc[told]
    named = [f"{name} (count)" if _is_count(name) else name for name in table["metric"]]
    width = max(map(len, named), default=6)
    lines = [f"  {'metric':<{width}}  {'A':>7}  {'B':>7}  {'A - B':>7}"]
    for name, row in zip(named, table.astype(object).where(table.notna(), None).to_dict("records"), strict=True):
        unit = metric_unit(row["metric"])
        numbers = f"  {name:<{width}}  {format_score(row['a'], unit):>7}  {format_score(row['b'], unit):>7}"
        if row["note"] is not None:
            lines.append(f"{numbers}  {'':>7}  no comparison: {row['note']}")
        elif row["difference"] is not None:
            tested = [] if row["low"] is None else [_format_difference_interval(row["low"], row["high"])]
            tested += [] if row["p"] is None else [f"{_format_p_value(row['p'])} ({row['test']})"]
            lines.append(f"{numbers}  {row['difference']:>+7.1f}  {', '.join(tested)}".rstrip())
    if left:
        lines.append(f"  {left} more with --all-metrics")
    if not _are_paired(a, b):
        why = (
            "one of them has no answers"
            if a.answers is None or b.answers is None
            else "they were asked different questions"
        )
        lines.append(f"  no paired test: {why}; the scores are compared as if independent")
    return lines


def _is_count(metric: str) -> bool:
    return metric_unit(metric) == "count"


def _are_paired(a: Side, b: Side) -> bool:
    """True if both have answers, to the same questions."""
    held = all(table is not None for side in (a, b) for table in (side.answers, side.questions))
    return held and a.result.benchmark.fingerprint == b.result.benchmark.fingerprint


def _paired_units(a: Side, b: Side) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    left, right = (a.units(), b.units()) if _are_paired(a, b) else (None, None)
    if left is None or right is None:
        return None
    if any(side.result.method.generation.get("permute") for side in (a, b)):
        # Letter frequencies refer to the letters as shown; units are in the question's own order.
        left = left[~left["metric"].str.startswith("share_")]
    return left, right


def _difference_test(
    tables: tuple[pd.DataFrame, pd.DataFrame] | None, metric: str, left: Score, right: Score
) -> dict[str, Any]:
    """`low`, `high`, `p`, `test` of a difference; a count has no interval, which would be that of a share. Empty if there is no test."""
    if tables is None:
        if _is_count(metric):
            return {}
        low, high, p = compute_unpaired_difference(left, right)
        return {} if math.isnan(low) else {"low": low, "high": high, "p": p, "test": UNPAIRED}
    if not all((table["metric"] == metric).any() for table in tables):
        return {}
    try:
        test = paired_test(*tables, metric)
    except BadInput:
        return {}
    interval = {} if _is_count(metric) else {"low": test.low, "high": test.high}
    return {**interval, "p": test.p, "test": test.method}


def _format_difference_interval(low: float, high: float) -> str:
    digits = interval_decimals(low, high, 0.0)
    return f"95% interval {low:+.{digits}f} to {high:+.{digits}f}"


def _format_p_value(p: float) -> str:
    if p < MIN_PRINTED_P:
        return f"p < {MIN_PRINTED_P:g}"
    return "p < 0.05" if p < 0.05 and f"{p:.3g}" == "0.05" else f"p = {p:.3g}"


def _answer_lines(a: Side, b: Side) -> list[str]:
    """The number of common questions, of differing responses and choices, and the first of these."""
    assert a.answers is not None
    assert b.answers is not None
    if not _are_paired(a, b):
        return ["  they were asked different questions"]
    both = a.answers.merge(b.answers, on=["question_id", "sample"], suffixes=("_a", "_b"))
    choices = [tuple(x) != tuple(y) for x, y in zip(both["choice_a"], both["choice_b"], strict=True)]
    text = (both["response_a"].fillna("") != both["response_b"].fillna("")).sum()
    status = (both["status_a"] != both["status_b"]).sum()
    lines = [
        f"  {len(both)} answers to the same questions: {text} texts, {sum(choices)} choices and {status} statuses differ"
    ]
    for row in both[choices].head(MAX_EXAMPLES).itertuples():
        left, right = _format_answer(row.response_a, row.status_a), _format_answer(row.response_b, row.status_b)
        lines.append(f"  {row.question_id}: {left} | {right}")
    return lines


def _format_answer(response: object, status: object) -> str:
    """The beginning of a response, with its status if no choice was read."""
    words = [repr(str(response)[:40])] if response else []
    return " ".join([*words, *([f"({status})"] if status != "answered" else [])])
