"""`medprobe compare`: what differs between two results, in settings, answers and scores. "My number differs from the paper's" starts here.

See also: comparing many models (`scores/comparing/comparisons.py`), drawing (the board).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.derive.files import READINGS, read_readings
from eval_harness.derive.headline import cause
from eval_harness.derive.metrics import METRICS
from eval_harness.derive.scoring import units
from eval_harness.records.result import Result, Score, read_result
from eval_harness.results.summary import decimals, shown
from eval_harness.runs.folder import read_question_file
from eval_harness.scores.comparing.comparisons import paired_test
from eval_harness.scores.comparing.unpaired import METHOD as UNPAIRED
from eval_harness.scores.comparing.unpaired import unpaired_difference

MOST_LISTED = 8
SMALLEST = 1e-12
"""No p-value is shown as smaller."""


@dataclass(frozen=True)
class Side:
    """One of the two: its result, and its answers and questions where it was measured."""

    source: str
    result: Result
    answers: pd.DataFrame | None = None
    questions: pd.DataFrame | None = None


def load_side(source: str, published: Callable[[], Iterable[Result]]) -> Side:
    """A run folder, a result.json (in a run folder or a store), or `published:MODEL/BENCHMARK/METHOD/Table 1` (as many words as it takes).

    Raises BadInput when it is none of them, or the published name fits several results.
    """
    if source.startswith("published:"):
        return Side(source, _published(source.removeprefix("published:"), published()))
    path = Path(source) / "result.json" if Path(source).is_dir() else Path(source)
    result = read_result(path)
    if result.kind != "measured":  # an aggregate may lie beside the answers of a run it was computed from
        return Side(source, result)
    held = [path.parent / "questions.parquet", *_in_store(path, result)]
    questions = next((file for file in held if file.is_file()), None)
    if not (path.parent / READINGS).is_file() or questions is None:
        return Side(source, result)
    try:
        return Side(source, result, read_readings(path.parent), read_question_file(questions))
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{path.parent}: its answers cannot be read ({error}). Run `medprobe score` on the run folder."
        ) from None


def _in_store(path: Path, result: Result) -> list[Path]:
    """Where a store keeps the questions of a result: STORE/questions/<fingerprint>.parquet, four folders up from the result."""
    parents = path.resolve().parents
    return [parents[4] / "questions" / f"{result.benchmark.fingerprint}.parquet"] if len(parents) > 4 else []


def _published(name: str, results: Iterable[Result]) -> Result:
    model, *rest = (part.strip().casefold() for part in name.split("/"))
    found = [
        result
        for result in results
        if result.model.name.casefold() == model and set(rest) <= {word.casefold() for word in _marks(result)}
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise BadInput(f"published:{name}: no paper has it. `medprobe results --published` lists what there is.")
    names = list(dict.fromkeys("/".join([result.model.name, *_marks(result)]) for result in found))
    several = ", ".join(f"'published:{each}'" for each in names[:MOST_LISTED])
    raise BadInput(f"published:{name}: fits {len(found)} results. Say which, e.g. {several}.")


def _marks(result: Result) -> list[str]:
    """What tells the published results of one model apart."""
    method, table = result.method, result.source.table if result.source else None
    samples = f"{method.samples} samples" if method.samples else None
    return [word for word in (result.benchmark.name, method.name, method.prompt, samples, table) if word]


def compare_results(a: Side, b: Side) -> str:
    """The differences as text. Raises BadInput for results of different benchmarks."""
    if a.result.benchmark.family != b.result.benchmark.family:
        raise BadInput(
            f"{a.source} is of {a.result.benchmark.name}, {b.source} of {b.result.benchmark.name}: these cannot be compared."
        )
    lines = [f"A  {_title(a.result)}", f"B  {_title(b.result)}", "", "settings"]
    lines += _settings(a.result, b.result)
    lines += ["", "scores (percent, or a count)", *_scores(a, b)]
    if a.answers is not None and b.answers is not None:
        lines += ["", "answers", *_answers(a, b)]
    return "\n".join(lines)


def _title(result: Result) -> str:
    source = result.source
    where = f", {source.citation}" + (f", {source.table}" if source.table else "") if source else ""
    return f"{result.model.name} on {result.benchmark.name} ({result.kind}{where})"


def _flat(result: Result) -> dict[str, Any]:
    """Everything that may explain a difference, one name per value."""
    document = result.model_dump()
    found: dict[str, Any] = {}
    for part in ("benchmark", "model", "method", "environment"):
        for name, value in document[part].items():
            if isinstance(value, dict):
                found |= {f"{part}.{name}.{inner}": deeper for inner, deeper in value.items()}
            else:
                found[f"{part}.{name}"] = value
    silent = None if result.kind == "published" else "none"  # a paper may only not say them
    found["deviations"] = document["deviations"] or silent
    return found


def _settings(a: Result, b: Result) -> list[str]:
    """Settings that differ; for a published number, those that the paper leaves open."""
    first, second = _flat(a), _flat(b)
    names = sorted(first.keys() | second.keys())
    unknown = {side: set() for side in ("A", "B")}  # type: dict[str, set[str]]
    lines = []
    for name in names:
        left, right = first.get(name), second.get(name)
        if left == right or name in ("method.judge", "benchmark.repo"):
            continue
        for side, result, value in (("A", a, left), ("B", b, right)):
            if result.kind == "published" and value is None:
                unknown[side].add(name)
        if not any(name in missing for missing in unknown.values()):
            lines.append(f"  {name}: {_say(left)} | {_say(right)}")
    for side, missing in unknown.items():
        if missing:
            lines.append(f"  {side} is a published number; the paper leaves open: {', '.join(sorted(missing))}")
    return lines or ["  no difference"]


def _say(value: Any) -> str:
    text = "not said" if value is None else "; ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 100 else text[:97] + "..."


def _scores(a: Side, b: Side) -> list[str]:
    common = [name for name in a.result.scores if name in b.result.scores]
    named = {name: f"{name} (count)" if _is_count(name) else name for name in common}
    width = max(map(len, named.values()), default=6)
    tables = _units(a, b)
    lines = [f"  {'metric':<{width}}  {'A':>7}  {'B':>7}  {'A - B':>7}"]
    for name in common:
        left, right = a.result.scores[name], b.result.scores[name]
        silent = [(side, score.nonresponse) for side, score in ((a, left), (b, right)) if score.nonresponse is not None]
        if silent:
            numbers = f"{shown(left.value):>7}  {shown(right.value):>7}  {'':>7}"
            why = "; ".join(f"{'A' if side is a else 'B'}: {cause(found, side.result)}" for side, found in silent)
            lines.append(f"  {named[name]:<{width}}  {numbers}  no comparison: {why}")
            continue
        if left.value is None or right.value is None:
            continue
        numbers = f"{shown(left.value):>7}  {shown(right.value):>7}  {left.value - right.value:>+7.2f}"
        lines.append(f"  {named[name]:<{width}}  {numbers}  {_test(tables, name, left, right)}".rstrip())
    if tables is None:
        why = (
            "one of them has no answers"
            if a.answers is None or b.answers is None
            else "they were asked different questions"
        )
        lines.append(f"  no paired test: {why}; the scores are compared as if independent")
    return lines


def _is_count(metric: str) -> bool:
    return metric in METRICS and METRICS[metric].unit == "count"


def _units(a: Side, b: Side) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    if a.answers is None or b.answers is None or a.questions is None or b.questions is None:
        return None
    if a.result.benchmark.fingerprint != b.result.benchmark.fingerprint:
        return None
    family = a.result.benchmark.family
    tables = units(family, a.questions, a.answers), units(family, b.questions, b.answers)
    if any(side.result.method.generation.get("permute") for side in (a, b)):
        # Their shares of letters are of the letters as shown; units are in the question's own order.
        tables = tables[0][~tables[0]["metric"].str.startswith("share_")], tables[1]
    return tables


def _test(tables: tuple[pd.DataFrame, pd.DataFrame] | None, metric: str, left: Score, right: Score) -> str:
    """The 95 % interval of a difference, and the p-value that it implies; of a count the p-value alone, as the interval is of a share."""
    if tables is None:
        if _is_count(metric):
            return ""
        low, high, p = unpaired_difference(left, right)
        return "" if math.isnan(low) else f"{_interval(low, high)}, {_p_value(p)} ({UNPAIRED})"
    if not all((table["metric"] == metric).any() for table in tables):
        return ""
    try:
        test = paired_test(*tables, metric)
    except BadInput:
        return ""
    p_value = f"{_p_value(test.p)} ({test.method})"
    return p_value if _is_count(metric) else f"{_interval(test.low, test.high)}, {p_value}"


def _interval(low: float, high: float) -> str:
    digits = decimals(low, high, 0.0)
    return f"95% interval {low:+.{digits}f} to {high:+.{digits}f}"


def _p_value(p: float) -> str:
    if p < SMALLEST:
        return f"p < {SMALLEST:g}"
    return "p < 0.05" if p < 0.05 and f"{p:.3g}" == "0.05" else f"p = {p:.3g}"


def _answers(a: Side, b: Side) -> list[str]:
    """How many questions both were asked, and how many responses and choices differ; the first that do."""
    assert a.answers is not None
    assert b.answers is not None
    both = a.answers.merge(b.answers, on=["question_id", "sample"], suffixes=("_a", "_b"))
    if a.result.benchmark.fingerprint != b.result.benchmark.fingerprint:  # an id may be another question there
        both = both[both["question_id"].isin([name for name, _, _ in _question_keys(a) & _question_keys(b)])]
    if both.empty:
        return ["  no question was asked of both"]
    choices = [tuple(x) != tuple(y) for x, y in zip(both["choice_a"], both["choice_b"], strict=True)]
    text = (both["response_a"].fillna("") != both["response_b"].fillna("")).sum()
    status = (both["status_a"] != both["status_b"]).sum()
    lines = [
        f"  {len(both)} answers to the same questions: {text} texts, {sum(choices)} choices and {status} statuses differ"
    ]
    for row in both[choices].head(MOST_LISTED).itertuples():
        left, right = _shown(row.response_a, row.status_a), _shown(row.response_b, row.status_b)
        lines.append(f"  {row.question_id}: {left} | {right}")
    return lines


def _question_keys(side: Side) -> set[tuple[str, str, tuple[str, ...]]]:
    """The questions of a side: id, text, options."""
    if side.questions is None:
        return set()
    columns = (side.questions[name] for name in ("question_id", "question", "options"))
    return {(name, words, tuple(options)) for name, words, options in zip(*columns, strict=True)}


def _shown(response: object, status: object) -> str:
    """The first characters of a response, with its status where no choice was read."""
    words = [repr(str(response)[:40])] if response else []
    return " ".join([*words, *([f"({status})"] if status != "answered" else [])])
