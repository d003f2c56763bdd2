"""`medprobe compare`: show how two results differ in settings, answers and scores.

This is the place to start if a score differs from the paper's.

See also: comparing many models (`scores/comparisons.py`), charts (the board).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.fingerprints import digest_facets, digest_prompts, fingerprint_questions
from eval_harness.derive.metrics import compute_scores, compute_units, nonresponse_cause
from eval_harness.derive.run_files import JUDGE_FILE, READINGS_FILE, read_question_file, read_readings, table_to_frame
from eval_harness.records.limits import single_line
from eval_harness.records.result import Result, Score, read_result
from eval_harness.scores.comparisons import UNPAIRED_METHOD as UNPAIRED, compute_unpaired_difference, paired_test
from eval_harness.store.formatting import (
    format_score,
    interval_decimals,
    metric_unit,
    ordered_metrics,
)

MAX_EXAMPLES = 8
"""Maximum number of matching results, or differing answers, that are listed."""
READ_COLUMNS = ("response", "scores", "delivery", "finish_reason")
"""Columns of the answers that reading them depends on."""
PairedUnits = tuple[pd.DataFrame, pd.DataFrame]
"""Scoring units of both sides, for a paired test."""
MIN_PRINTED_P = 1e-12
"""Smaller p-values are printed as "p < 1e-12"."""


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a result and, if it was measured, its answers with their
    readings, its questions and its judge's replies.

    `answers` and `questions` are empty for a result without answers (`has_answers`).
    """

    source: str
    result: Result
    answers: pd.DataFrame = field(default_factory=pd.DataFrame)
    questions: pd.DataFrame = field(default_factory=pd.DataFrame)
    replies: pd.DataFrame | None = None

    @property
    def has_answers(self) -> bool:
        """Whether there are answers and their questions."""
        return not self.answers.empty and not self.questions.empty

    def units(self) -> pd.DataFrame:
        """Return the scoring units of a side with answers."""
        return compute_units(self.result.benchmark.family, self.questions, self.answers)


def align_sides(a: Side, b: Side) -> tuple[Side, Side] | None:
    """Restrict the side that answered more questions to those of the other, and score it again.

    Returns:
        Both sides on the same questions; None if one of them has no answers, or if neither answered
        all questions of the other in the same form.
    """
    if not a.has_answers or not b.has_answers:
        return None
    if a.result.benchmark.fingerprint == b.result.benchmark.fingerprint:
        return a, b
    small, large = (a, b) if len(a.questions) < len(b.questions) else (b, a)
    restricted = _restrict(large, small)
    if restricted is None:
        return None
    return (small, restricted) if small is a else (restricted, small)


def _restrict(large: Side, small: Side) -> Side | None:
    """Return a side with only its answers to the questions of another side, None if they differ."""
    ids, result = set(small.questions["question_id"]), large.result
    questions = large.questions[large.questions["question_id"].isin(ids)].reset_index(drop=True)
    fingerprint = small.result.benchmark.fingerprint
    if len(questions) != len(small.questions) or fingerprint_questions(questions) != fingerprint:
        return None
    answers = large.answers[large.answers["question_id"].isin(ids)].reset_index(drop=True)
    scored = compute_scores(result.benchmark.family, questions, answers, result.method.extraction or "ours")
    selection = f"only the {len(questions):,} questions that {small.result.model.name} answered"
    benchmark = result.benchmark.model_copy(
        update={
            "questions": len(questions),
            "fingerprint": fingerprint,
            "facets": digest_facets(questions),
            "asked": digest_prompts(questions),
            "selection": selection,
        }
    )
    scores = {"scores": scored.scores, "breakdown": scored.breakdown, "statuses": scored.statuses}
    return replace(
        large, result=result.model_copy(update=scores | {"benchmark": benchmark}), questions=questions, answers=answers
    )


def load_side(source: str, published: Callable[[], Iterable[Result]]) -> Side:
    """Load one side of a comparison.

    Args:
        source: A run folder, a result.json (in a run folder or a store), or
            `published:MODEL/BENCHMARK/METHOD/Table 1`, with as many parts as are needed to make it
            unique.
        published: Returns the papers' results; called only for `published:`.

    Raises:
        BadInput: If the source is none of these, or matches several published results.
    """
    if source.startswith("published:"):
        return Side(source, _find_published(source.removeprefix("published:"), published()))
    path = Path(source) / "result.json" if Path(source).is_dir() else Path(source)
    result = read_result(path)
    # The answers in an aggregate's folder, if any, are those of a run that it was computed from.
    if result.kind != "measured":
        return Side(source, result)
    # A run folder has its own questions; a store shares them between results.
    question_paths = [path.parent / "questions.parquet", *_stored_questions_paths(path, result)]
    question_path = next((file for file in question_paths if file.is_file()), None)
    if not (path.parent / READINGS_FILE).is_file() or question_path is None:
        return Side(source, result)

    try:
        judge_path = path.parent / JUDGE_FILE
        replies = table_to_frame(judge_path.read_bytes()) if judge_path.is_file() else None
        answers = read_readings(path.parent, READ_COLUMNS)
        return Side(source, result, answers, read_question_file(question_path), replies)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{path.parent}: its answers cannot be read ({error}). Run `medprobe score` on the run folder."
        ) from None


def _stored_questions_paths(path: Path, result: Result) -> list[Path]:
    """Return where a store would keep the questions of a result, if the path can be in a store.

    A result is STORE/results/<benchmark>/<model>/<id>/result.json, its questions are
    STORE/questions/<fingerprint>.parquet.
    """
    parents = path.resolve().parents
    return [parents[4] / "questions" / f"{result.benchmark.fingerprint}.parquet"] if len(parents) > 4 else []


def _find_published(name: str, results: Iterable[Result]) -> Result:
    """Find the one published result that a name matches."""
    # The parts after the model may be in any order and in either case, and some may be left out.
    model, *criteria = (part.strip().casefold() for part in name.split("/"))
    matches = [
        result
        for result in results
        if result.model.name.casefold() == model
        and set(criteria) <= {word.casefold() for word in _identifying_parts(result)}
    ]

    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise BadInput(f"published:{name}: not in any paper's tables. `medprobe results --published` lists them.")
    names = list(dict.fromkeys("/".join([result.model.name, *_identifying_parts(result)]) for result in matches))
    examples = ", ".join(f"'published:{match_name}'" for match_name in names[:MAX_EXAMPLES])
    raise BadInput(f"published:{name}: matches {len(matches)} results. Name one, e.g. {examples}.")


def _identifying_parts(result: Result) -> list[str]:
    """Return the parts that identify one of a model's published results."""
    method, table = result.method, result.source.table if result.source else None
    samples = f"{method.samples} samples" if method.samples else None
    return [word for word in (result.benchmark.name, method.name, method.prompt, samples, table) if word]


def compare_results(a: Side, b: Side, all_metrics: bool = False, causes: Sequence[str] = ()) -> str:
    """Describe the differences between two results as text: causes, scores, answers, settings.

    Args:
        a: The first result.
        b: The second result.
        all_metrics: Also list metrics that are not specific to the benchmark.
        causes: Lines from `cause_report.format_causes`.

    Raises:
        BadInput: If the results are of different benchmarks.
    """
    check_same_format(a, b)
    lines = [
        f"A  {_format_title(a.result)}",
        f"B  {_format_title(b.result)}",
        "",
        *([*causes, ""] if causes else []),
        "scores (percent, or a count)",
    ]

    lines += _score_lines(a, b, all_metrics)
    settings = [
        f"  {name}: {_format_setting(a_value)} | {_format_setting(b_value)}"
        for name, a_value, b_value in differing_settings(a.result, b.result)
    ]
    if a.has_answers and b.has_answers:
        lines += ["", "answers", *_answer_lines(a, b)]
    lines += ["", "settings that differ", *(settings or ["  none that both state"])]
    return "\n".join(map(single_line, lines))


def _format_title(result: Result) -> str:
    """Return one line that identifies a result."""
    source = result.source
    citation = f", {source.citation}" + (f", {source.table}" if source.table else "") if source else ""
    kind = "a person" if result.model.kind == "human" else result.kind
    return f"{result.model.name} on {result.benchmark.name} ({kind}{citation})"


def _flatten_settings(result: Result) -> dict[str, Any]:
    """Return every setting that may explain a difference, by name; None if it is not stated."""
    document = result.model_dump()
    settings: dict[str, Any] = {}
    for part in ("benchmark", "model", "method", "environment"):
        for name, value in document[part].items():
            if isinstance(value, dict):
                settings |= {f"{part}.{name}.{inner}": inner_value for inner, inner_value in value.items()}
            else:
                settings[f"{part}.{name}"] = value

    # A paper may have deviations that it does not report.
    unstated = None if result.provenance == "published" else "none"
    settings["deviations"] = document["deviations"] or unstated
    return settings


def differing_settings(a: Result, b: Result) -> list[tuple[str, Any, Any]]:
    """Return (name, value of A, value of B) of the settings that differ.

    A setting that only one side states is omitted, since it is unknown for the other. Options of
    measured runs are the exception: one that is not stated was not set.
    """
    a_settings, b_settings = _flatten_settings(a), _flatten_settings(b)
    measured = a.kind == b.kind == "measured"
    settings = []
    for name in sorted(a_settings.keys() | b_settings.keys()):
        a_value, b_value = a_settings.get(name), b_settings.get(name)
        is_run_option = measured and name.startswith(("method.", "benchmark."))
        is_comparable = is_run_option or (a_value is not None and b_value is not None)
        if a_value != b_value and is_comparable and name not in ("method.judge", "benchmark.repo"):
            settings.append((name, a_value, b_value))

    return settings


def _format_setting(value: Any) -> str:
    """Format a setting in at most 100 characters."""
    text = "not set" if value is None else "; ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 100 else text[:97] + "..."


DIFFERENCE_COLUMNS = {
    "metric": "str",
    **dict.fromkeys(("a", "b", "difference", "low", "high", "p"), "float64"),
    "test": "str",
    "note": "str",
}
"""Columns of `score_differences`, with their types."""


def score_differences(a: Side, b: Side) -> pd.DataFrame:
    """Compare the scores of two results: one row per metric that both have, in A's order.

    Args:
        a: The first result.
        b: The second result.

    Returns:
        A table with the columns DIFFERENCE_COLUMNS. `a`, `b`, `difference` (a - b): percent, or a
            count. `low`, `high`: 95 % interval of the difference in percentage points, missing for
            a count. `p`: two-sided p-value, below 5 % if and only if the interval excludes 0.
            `test`: the name of the test, which is paired if both have answers to the same
            questions, and otherwise treats the scores as independent. `note`: why two values are
            not compared. Values that do not apply are missing.

    Raises:
        BadInput: If the results are of different benchmarks.
    """
    check_same_format(a, b)
    return pd.DataFrame(_metric_differences(a, b), columns=list(DIFFERENCE_COLUMNS)).astype(DIFFERENCE_COLUMNS)


def _metric_differences(a: Side, b: Side) -> list[dict[str, Any]]:
    """Return the rows of `score_differences`, each without values that do not apply."""
    tables = paired_units(a, b)
    return [metric_difference(a, b, name, tables) for name in a.result.scores if name in b.result.scores]


def check_same_format(a: Side, b: Side) -> None:
    """Raise BadInput unless both results are of one benchmark format."""
    if a.result.benchmark.family != b.result.benchmark.family:
        raise BadInput(
            f"{a.source} is of {a.result.benchmark.name}, {b.source} of {b.result.benchmark.name}: "
            "these cannot be compared."
        )


def metric_difference(a: Side, b: Side, name: str, tables: PairedUnits | None) -> dict[str, Any]:
    """Compare two sides of one benchmark on one metric that both have.

    Args:
        a: The first side.
        b: The second side.
        name: Name of the metric.
        tables: From `paired_units`.

    Returns:
        The metric's row in `score_differences`, without values that do not apply.
    """
    a_score, b_score = a.result.scores[name], b.result.scores[name]
    row: dict[str, Any] = {"metric": name, "a": a_score.value, "b": b_score.value}
    # Scores without a verdict are not compared: the reason takes the place of the difference.
    causes = [
        f"{letter}: {nonresponse_cause(score.nonresponse, side.result)}"
        for letter, side, score in (("A", a, a_score), ("B", b, b_score))
        if score.nonresponse is not None
    ]
    if causes:
        return row | {"note": "; ".join(causes)}

    if a_score.value is None or b_score.value is None:
        return row

    return row | {"difference": a_score.value - b_score.value} | _difference_test(tables, name, a_score, b_score)


def _score_lines(a: Side, b: Side, all_metrics: bool) -> list[str]:
    """Format the rows of `score_differences` as a table."""
    rows = {row["metric"]: row for row in _metric_differences(a, b)}
    metrics = [name for name in ordered_metrics(a.result, all_metrics) if name in rows]
    labels = {name: f"{name} (count)" if _is_count(name) else name for name in metrics}
    width = max(map(len, labels.values()), default=6)
    lines = [f"  {'metric':<{width}}  {'A':>7}  {'B':>7}  {'A - B':>7}"]

    for name, label in labels.items():
        row, unit = rows[name], metric_unit(name)
        numbers = f"  {label:<{width}}  {format_score(row['a'], unit):>7}  {format_score(row['b'], unit):>7}"
        if "note" in row:
            lines.append(f"{numbers}  {'':>7}  no comparison: {row['note']}")
        elif "difference" in row:
            test_parts = [format_difference_interval(row["low"], row["high"])] if "low" in row else []
            test_parts += [f"{format_p_value(row['p'])} ({row['test']})"] if "p" in row else []
            lines.append(f"{numbers}  {row['difference']:>+7.1f}  {', '.join(test_parts)}".rstrip())

    if len(rows) > len(metrics):
        lines.append(f"  {len(rows) - len(metrics)} more with --all-metrics")
    if not _are_paired(a, b):
        has_both = a.has_answers and b.has_answers
        reason = "they answered different questions" if has_both else "one of them has no answers"
        lines.append(f"  no paired test: {reason}; the scores are compared as if independent")

    return lines


def _is_count(metric: str) -> bool:
    """Return True if the values of a metric are counts."""
    return metric_unit(metric) == "count"


def _are_paired(a: Side, b: Side) -> bool:
    """Return True if both sides have answers to the same questions."""
    return a.has_answers and b.has_answers and a.result.benchmark.fingerprint == b.result.benchmark.fingerprint


def paired_units(a: Side, b: Side) -> PairedUnits | None:
    """Return the units of both sides for a paired test; None if they cannot be paired."""
    if not _are_paired(a, b):
        return None
    a_units, b_units = a.units(), b.units()
    if any(side.result.method.generation.get("permute") for side in (a, b)):
        # Letter frequencies are about the letters shown, but units use the original order.
        a_units = a_units[~a_units["metric"].str.startswith("share_")]

    return a_units, b_units


def _difference_test(tables: PairedUnits | None, metric: str, a_score: Score, b_score: Score) -> dict[str, Any]:
    """Test the difference of one metric.

    Returns:
        `low`, `high`, `p`, `test`; empty if there is no test. A count has no interval, because the
            test's interval is that of a percentage.
    """
    if tables is None:
        if _is_count(metric):
            return {}
        low, high, p = compute_unpaired_difference(a_score, b_score)
        return {} if math.isnan(low) else {"low": low, "high": high, "p": p, "test": UNPAIRED}
    if not all((table["metric"] == metric).any() for table in tables):
        return {}
    try:
        test = paired_test(*tables, metric)
    # The two have different units for this metric.
    except BadInput:
        return {}

    interval = {} if _is_count(metric) else {"low": test.low, "high": test.high}
    return {**interval, "p": test.p, "test": test.method}


def format_difference_interval(low: float, high: float) -> str:
    """Format a 95 % interval with enough decimals that rounding moves no end across 0."""
    digits = interval_decimals(low, high, 0.0)
    return f"95% interval {low:+.{digits}f} to {high:+.{digits}f}"


def format_p_value(p: float) -> str:
    """Format a p-value; a value just below 5 % is not rounded up to 5 %."""
    if p < MIN_PRINTED_P:
        return f"p < {MIN_PRINTED_P:g}"
    # Rounding must not turn a significant difference into p = 0.05.
    return "p < 0.05" if p < 0.05 and f"{p:.3g}" == "0.05" else f"p = {p:.3g}"


def _answer_lines(a: Side, b: Side) -> list[str]:
    """Count answers that differ in text, choice or status; list the first few differing choices."""
    if not _are_paired(a, b):
        return ["  they answered different questions"]
    paired_answers = a.answers.merge(b.answers, on=["question_id", "sample"], suffixes=("_a", "_b"))
    choices_differ = [
        tuple(x) != tuple(y) for x, y in zip(paired_answers["choice_a"], paired_answers["choice_b"], strict=True)
    ]
    differing_texts = (paired_answers["response_a"].fillna("") != paired_answers["response_b"].fillna("")).sum()
    differing_statuses = (paired_answers["status_a"] != paired_answers["status_b"]).sum()
    lines = [
        f"  {len(paired_answers)} answers to the same questions: {differing_texts} texts, "
        f"{sum(choices_differ)} choices and {differing_statuses} statuses differ"
    ]

    for row in paired_answers[choices_differ].head(MAX_EXAMPLES).itertuples():
        a_text, b_text = (
            _format_answer(row.response_a, row.status_a),
            _format_answer(row.response_b, row.status_b),
        )
        lines.append(f"  {row.question_id}: {a_text} | {b_text}")

    return lines


def _format_answer(response: object, status: object) -> str:
    """Return the start of a response, followed by its status if no choice was read."""
    words = [repr(str(response)[:40])] if response else []
    return " ".join([*words, *([f"({status})"] if status != "answered" else [])])
