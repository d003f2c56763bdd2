"""Print the summary of a run: its headline score or why it has none, every score with interval, chance and verdict, the number of unread
answers with three examples, and the command by which a judge model reads them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.journal import read_journal
from eval_harness.benchmarks import eval_spec
from eval_harness.derive.metrics import (
    HEADLINE_METRICS,
    METRICS,
    NoScore,
    headline_score,
    nonresponse_cause,
    nonresponse_remedy,
)
from eval_harness.derive.run_files import read_readings
from eval_harness.records.result import Breakdown, Nonresponse, Result, Score, Scores
from eval_harness.scores.nonresponse import LOST_STATUSES, NONRESPONSE_STATUSES

_VERDICT_PHRASES = {
    "better": "better than chance",
    "no different": "no different from chance",
    "worse": "worse than chance",
}


def ordered_metrics(result: Result, all_metrics: bool = False) -> list[str]:
    """The metrics of a result, the headline metric first, then the benchmark's own; `all_metrics`: then those that every benchmark has
    (how responses ended, shares of the letters)."""
    own, first = eval_spec(result.benchmark.family).metrics, HEADLINE_METRICS[result.benchmark.family]
    return sorted(
        (name for name in result.scores if all_metrics or name in own),
        key=lambda name: (name != first, name not in own),
    )


def format_headline(result: Result) -> str:
    """The headline score in a line, or why there is none."""
    found = headline_score(result)
    return (
        str(found) if isinstance(found, NoScore) else _score_sentence(HEADLINE_METRICS[result.benchmark.family], found)
    )


def format_summary(result: Result, all_metrics: bool = False) -> str:
    """A plain-text table of a result's overall scores (`in_order`); percent unless the metric is a count. The first line is the headline
    score, or why there is none; a line parts the headline metric from the others."""
    benchmark = result.benchmark
    about = f"{benchmark.name} · {benchmark.split} · {benchmark.questions} questions"
    lines = [format_headline(result)]
    lines.append(f"{result.model.name} on {about}")
    if benchmark.origin == "phantom":
        lines.append("phantoms: drawn images, no medicine; these scores say nothing about a model's medical use")
    if result.method.image != "real":
        lines.append(f"with {result.method.image} images: what the model answers without the right ones; not ranked")
    if benchmark.selection:
        lines.append(f"partial: {benchmark.selection}; not comparable with complete runs")
    told = ordered_metrics(result, all_metrics)
    width = max(map(len, told), default=6)
    many = max(6, *(len(format_sample_size(result.scores[name])) for name in told))
    lines.append(f"{'metric':<{width}}  {'value':>7}  {'95% interval':>13}  {'n':>{many}}  {'chance':>6}")
    rows = [_score_row(name, result.scores[name], width, many) for name in told]
    lines += [*rows[:1], *(["-" * len(lines[-1])] if rows[1:] else []), *rows[1:]]
    if left := len(result.scores) - len(told):
        lines.append(f"{left} more with --all-metrics, and in result.json")
    if result.statuses:
        answered = result.scores.get("answered_accuracy")
        known = answered is not None and answered.value is not None
        right = f"; {_score_sentence('accuracy where answered', answered)}" if known and answered is not None else ""
        lines.append(_format_statuses(result.statuses) + right)
    if result.kind == "aggregate":
        lines += _cell_lines(result.breakdown)
    permuted = result.environment.get("permuted") or {}
    if permuted.get("questions"):
        lines.append(
            f"options in every order, {permuted['questions']} questions: the same option throughout {permuted['same_option']:.1f} %, "
            f"the same letter {permuted['same_letter']:.1f} %"
        )
    return "\n".join(lines)


MAX_FACET_VALUES = 40
"""Maximum number of a facet's values for its cells to be printed; the result file holds them all."""


def _cell_lines(breakdown: Breakdown) -> list[str]:
    """The cells of an aggregate, a table per facet."""
    lines: list[str] = []
    for facet, values in breakdown.items():
        metrics = list(dict.fromkeys(name for scores in values.values() for name in scores))
        if len(values) > MAX_FACET_VALUES or not metrics:
            continue
        width = max(len(facet), *map(len, values))
        lines += ["", "  ".join([f"{facet:<{width}}", *(f"{name:>{max(len(name), 7)}}" for name in metrics), "     n"])]
        for label, scores in values.items():
            numbers = [f"{_format_value(name, scores.get(name)):>{max(len(name), 7)}}" for name in metrics]
            largest = max((score.n for score in scores.values()), default=0)
            lines.append("  ".join([f"{label:<{width}}", *numbers, f"{largest:>6}"]))
    return lines


def interval_decimals(low: float, high: float, level: float | None, least: int = 1) -> int:
    """Number of decimals of an interval: enough that neither end is rounded to the other side of a level.

    >>> decimals(25.03, 37.2, 25.0), decimals(12.1, 24.7, 25.0, 0), decimals(20.0, 37.2, 25.0)
    (2, 1, 1)
    """
    for digits in range(least, 9):
        if level is None or (
            (low > level) == (round(low, digits) > level) and (high < level) == (round(high, digits) < level)
        ):
            return digits
    return 9


def format_image_points(score: float, value: float, low: float, high: float) -> str:
    """How many of a score's points come from the image, with their interval (`scores/sight.py`).

    >>> needs_the_image(54.2, 9.4, 5.1, 13.3), needs_the_image(54.2, 0.4, -3.1, 3.3)
    ('Of 54 points, 9 need the image (5 to 13).', 'Of 54 points, none is shown to need the image (-3 to 3).')
    """
    digits = interval_decimals(low, high, 0.0, 0)
    points = f"{value:.{digits}f} need" if low > 0 else "none is shown to need"
    return f"Of {score:.{digits}f} points, {points} the image ({low:.{digits}f} to {high:.{digits}f})."


def format_score(value: float | None, unit: str = "percent") -> str:
    """A score as every route prints it, here and on the board: with one digit, a whole count with none; "100.0" and "0.0" stand for all and
    none, not for nearly.

    >>> shown(99.97), shown(0.01), shown(29.545), shown(None), shown(12.0, "count"), shown(12.5, "count"), shown(1e308)
    ('>99.9', '<0.1', '29.5', '-', '12', '12.5', '1e+308')
    """
    if value is None or not math.isfinite(value):
        return "-"
    if unit == "percent" and 0 < value < 0.05:
        return "<0.1"
    if unit == "percent" and 99.95 <= value < 100:
        return ">99.9"
    if abs(value) >= 1e6:
        return f"{value:.3g}"
    return f"{value:.{0 if unit == 'count' and value.is_integer() else 1}f}"


def metric_unit(metric: str) -> str:
    """The unit of a metric; an unknown one is a share."""
    return METRICS[metric].unit if metric in METRICS else "percent"


def format_interval(score: Score) -> str:
    """The 95 % interval of a score; empty if it has none."""
    return format_bounds(score.low, score.high, score.chance_interval or (score.chance,))


def format_bounds(low: float | None, high: float | None, levels: Sequence[float | None]) -> str:
    """An interval, with enough decimals to stay on its side of each level (chance, or the ends of a random run); empty if there is none.

    >>> bounds(25.3, 37.2, [25.0]), bounds(25.03, 37.2, [25.0]), bounds(0.0, 0.2, [None])
    ('25.3 - 37.2', '25.03 - 37.20', '0.0 - 0.2')
    """
    if low is None or high is None:
        return ""
    digits = max(interval_decimals(low, high, level) for level in levels)
    return f"{low:.{digits}f} - {high:.{digits}f}"


def _format_value(metric: str, score: Score | None) -> str:
    return format_score(None if score is None else score.value, metric_unit(metric))


def format_sample_size(score: Score) -> str:
    """The denominator of a score, and the effective number of independent observations if notably smaller: "14 (worth 5)"."""
    return str(score.n) if score.independent_n is None else f"{score.n} (worth {score.independent_n})"


def _score_row(name: str, score: Score, width: int, many: int) -> str:
    value, size = _format_value(name, score), format_sample_size(score)
    chance = "" if score.chance is None else format_score(score.chance, metric_unit(name))
    verdict = _VERDICT_PHRASES.get(score.verdict or "", "no score" if score.nonresponse and score.value is None else "")
    verdict = "too few independent cases" if score.is_small else verdict
    return f"{name:<{width}}  {value:>7}  {format_interval(score):>13}  {size:>{many}}  {chance:>6}  {verdict}".rstrip()


def _score_sentence(metric: str, score: Score) -> str:
    """A score in the format of the first line."""
    of = "" if metric_unit(metric) == "count" else " %"
    ends = [f"95% interval {format_interval(score).replace(' - ', ' to ')}"] if format_interval(score) else []
    ends.append(f"n = {score.n}{f' (worth {score.independent_n} independent)' if score.independent_n else ''}")
    if score.verdict is not None:
        ends.append(f"{_VERDICT_PHRASES[score.verdict]} ({format_score(score.chance, metric_unit(metric))}{of})")
    if score.nonresponse is not None:
        ends.append(
            "no verdict: most answers say nothing"
            if score.nonresponse.is_majority
            else "no verdict: it depends on answers that are not there"
        )
    if score.is_small:
        ends.append("no verdict: too few independent cases")
    return f"{metric} {_format_value(metric, score)}{of} ({', '.join(ends)})"


def _format_statuses(statuses: dict[str, int]) -> str:
    """How the responses ended: those that choose an option, and the others by reason, which add up."""
    others = {name: count for name, count in statuses.items() if name != "answered" and count}
    told = f": {', '.join(f'{count:,} {name}' for name, count in others.items())}" if others else ""
    answered = statuses.get("answered", 0)
    total = answered + sum(others.values())
    return f"{total:,} responses: {answered:,} answered, {total - answered:,} abstained{told}"


def format_pairs(found: dict[str, Scores]) -> str:
    """A plain-text table of adversarial pairs (see `aggregate.adversarial_pairs_of`): both accuracies with intervals, and the change."""
    lines = [
        f"{'pairs of':<12}  {'n':>6}  {'without':>7}  {'95% interval':>13}  {'with':>7}  {'95% interval':>13}  {'change':>7}"
    ]
    for name, scores in found.items():
        plain, both = scores["accuracy_without_adversarial"], scores["accuracy_with_adversarial"]
        if plain.value is None or both.value is None:
            lines.append(f"{name:<12}  {plain.n:>6}  no score: most answers say nothing")
            continue
        numbers = "  ".join(f"{format_score(score.value):>7}  {format_interval(score):>13}" for score in (plain, both))
        lines.append(f"{name:<12}  {plain.n:>6}  {numbers}  {both.value - plain.value:>7.1f}")
    return "\n".join(lines)


MAX_EXAMPLE_ANSWERS = 3
MAX_EXAMPLE_CHARS = 120
"""Number of example answers, and maximum characters of each."""
UNREAD_FIRST_SHARE = 0.05
"""Share of unread answers above which it is reported directly below the headline score."""


def format_run(folder: Path, result: Result, all_metrics: bool = False) -> str:
    """`summary` of a run folder's result, with what was not read and the command that lets a judge model read it: at its end, or under its
    first line, the headline score, where that is over 5 %. Where that line says why there is no score, one of the answers follows."""
    answers = read_readings(folder, ("response", "reasoning"))
    command = f"medprobe score {folder} --judge openai:NAME"
    table, found = format_summary(result, all_metrics), headline_score(result)
    lines = unread_lines(answers, command, counted=not isinstance(found, NoScore))
    rows = table.split("\n")
    lost = failure_lines(folder, result)
    rows[1:1] = lost
    place = 1 + len(lost) if len(unread_answers(answers)) > UNREAD_FIRST_SHARE * len(answers) else len(rows)
    if isinstance(found, NoScore) and found.nonresponse is not None and not (lines and place == 1 + len(lost)):
        rows[1:1] = [_silent_example(answers)]
        place += 1
    return "\n".join([*rows[:place], *lines, *rows[place:]])


def failure_lines(folder: Path, result: Result) -> list[str]:
    """How many answers were cut off, failed or are missing, what to do about it, and the errors behind that, the most frequent first."""
    counts = {status: result.statuses.get(status, 0) for status in LOST_STATUSES}
    if not any(counts.values()):
        return []
    lost = Nonresponse(responses=sum(result.statuses.values()), **counts)
    lines = []
    if not isinstance(headline_score(result), NoScore):  # else the first line says it
        lines.append(f"{nonresponse_cause(lost, result)}, counted as wrong; {nonresponse_remedy(lost, result)}")
    journal = folder / "answers.jsonl"
    records = read_journal(journal, _record_key, "an answer. Restore the file") if journal.exists() else []
    latest = {_record_key(record): record for record in records}  # a later line of a question replaces an earlier one
    errors = [
        str(record["error"]) for record in latest.values() if record["status"] in LOST_STATUSES and record.get("error")
    ]
    kinds = Counter(re.sub(r"\d+", "#", error) for error in errors)
    for kind, count in kinds.most_common(MAX_EXAMPLE_ANSWERS):
        example = next(error for error in errors if re.sub(r"\d+", "#", error) == kind)
        lines.append(f"  {count:,} x {_quote_response(example)[1:-1]}")
    if any(
        re.search(r"\bimages?\b.*\b(large|exceed|size|MB|pixels|dimension)", error, re.IGNORECASE) for error in errors
    ):
        lines.append("  images may be shrunk: --max-image-side 1568")
    return lines


def _record_key(record: dict[str, Any]) -> tuple[str, int]:
    return str(record["question_id"]), int(record["sample"])


def _silent_example(answers: pd.DataFrame) -> str:
    """One of the responses that say nothing, of the most frequent reason."""
    silent = answers[answers["status"].isin(NONRESPONSE_STATUSES)]
    row = silent[silent["status"] == silent["status"].mode()[0]].iloc[0]
    return f"for example {row['question_id']} ({row['status']}): {_quote_response(row['response'] or row.get('reasoning') or '')}"


def _quote_response(response: str) -> str:
    text = " ".join(response.split())
    return f"{text[:MAX_EXAMPLE_CHARS]!r}{' ...' if len(text) > MAX_EXAMPLE_CHARS else ''}" if text else "no text"


def unread_answers(answers: pd.DataFrame) -> pd.DataFrame:
    """The responses that arrived and that neither a rule nor a judge could read."""
    return answers[(answers["status"] == "irrelevant") & (answers["response"].fillna("").str.strip() != "")]


def unread_lines(answers: pd.DataFrame, command: str, counted: bool = True) -> list[str]:
    """The number of unread answers, three examples, and the command that reads them; empty if all were read. `counted`: whether there is a
    score in which they count."""
    rows = unread_answers(answers)
    if rows.empty:
        return []
    share = 100 * len(rows) / len(answers)
    wrong = ", counted as wrong" if counted else ""
    lines = [f"not read: {len(rows):,} of {len(answers):,} answers ({share:.1f} %){wrong}, for instance"]
    for name, response, rule in zip(rows["question_id"], rows["response"], rows["rule"], strict=True):
        lines.append(f"  {name} ({rule}): {_quote_response(response)}")
        if len(lines) > MAX_EXAMPLE_ANSWERS:
            break
    judged = any(rows["rule"].str.startswith("judge: "))
    return lines if judged else [*lines, f"a judge model can read them: {command}"]
