"""Format results as text.

The summary of a run contains its headline score or why it has none; every score with interval,
chance level and verdict; the number of unread answers with examples; and the command that lets a
judge model read them.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

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
from eval_harness.scores.grading import LOST_STATUSES, NONRESPONSE_STATUSES

PHANTOM_NOTE = "phantoms: synthetic images without medical content; these scores say nothing about medical use"
"""Note below every table with scores on phantoms."""
_VERDICT_PHRASES = {
    "better": "better than chance",
    "no different": "no different from chance",
    "worse": "worse than chance",
}


def ordered_metrics(result: Result, all_metrics: bool = False) -> list[str]:
    """Return the metrics of a result: the headline metric, then the others of the benchmark.

    Args:
        result: The result.
        all_metrics: Also append the metrics that every benchmark has, such as the share of
            refusals.
    """
    own_metrics, headline_metric = (
        eval_spec(result.benchmark.family).metrics,
        HEADLINE_METRICS[result.benchmark.family],
    )
    return sorted(
        (name for name in result.scores if all_metrics or name in own_metrics),
        key=lambda name: (name != headline_metric, name not in own_metrics),
    )


def format_headline(result: Result) -> str:
    """Format the headline score in one line, or say why there is none."""
    main_score = headline_score(result)
    return (
        str(main_score)
        if isinstance(main_score, NoScore)
        else _score_sentence(HEADLINE_METRICS[result.benchmark.family], main_score)
    )


def format_summary(result: Result, all_metrics: bool = False) -> str:
    """Format a result's overall scores as a plain-text table.

    The first line is the headline score, or why there is none. In the table, a horizontal line
    separates the headline metric from the others. Values are percent unless the metric is a count.

    Args:
        result: The result.
        all_metrics: See `ordered_metrics`.
    """
    benchmark = result.benchmark
    about = f"{benchmark.name} · {benchmark.split} · {benchmark.questions} questions"
    lines = [format_headline(result)]
    lines.append(f"{result.model.name} on {about}")
    if benchmark.origin == "phantom":
        lines.append(PHANTOM_NOTE)
    if result.method.image != "real":
        lines.append(f"with {result.method.image} images: what the model answers without the right images; not ranked")
    if benchmark.selection:
        lines.append(f"partial: {benchmark.selection}; not comparable with complete runs")
    metrics = ordered_metrics(result, all_metrics)
    width = max(map(len, metrics), default=6)
    n_width = max(6, *(len(format_sample_size(result.scores[name])) for name in metrics))
    lines.append(f"{'metric':<{width}}  {'value':>7}  {'95% interval':>13}  {'n':>{n_width}}  {'chance':>6}")
    rows = [_score_row(name, result.scores[name], width, n_width) for name in metrics]
    # The headline metric comes first, with a horizontal line below it.
    lines += [*rows[:1], *(["-" * len(lines[-1])] if rows[1:] else []), *rows[1:]]
    if hidden_count := len(result.scores) - len(metrics):
        lines.append(f"{hidden_count} more with --all-metrics, and in result.json")
    if result.statuses:
        answered = result.scores.get("answered_accuracy")
        has_accuracy = answered is not None and answered.value is not None
        accuracy_text = (
            f"; {_score_sentence('accuracy where answered', answered)}" if has_accuracy and answered is not None else ""
        )
        lines.append(_format_statuses(result.statuses) + accuracy_text)

    if result.kind == "aggregate":
        lines += _cell_lines(result.breakdown)
    elif benchmark.name != benchmark.family:  # no other table shows the labels of a custom set
        lines += _label_sentences(result)
    permuted = result.environment.get("permuted") or {}
    if permuted.get("questions"):
        lines.append(
            f"options in every order, {permuted['questions']} questions: the same option "
            f"throughout {permuted['same_option']:.1f} %, the same letter "
            f"{permuted['same_letter']:.1f} %"
        )

    return "\n".join(lines)


MAX_FACET_VALUES = 40
"""A facet with more values than this is not printed; the result file contains all of them."""


def _cell_lines(breakdown: Breakdown) -> list[str]:
    """Format the cells of an aggregate, one table per facet."""
    lines: list[str] = []
    for facet, values in breakdown.items():
        metrics = list(dict.fromkeys(name for scores in values.values() for name in scores))
        if len(values) > MAX_FACET_VALUES or not metrics:
            continue
        width = max(len(facet), *map(len, values))
        lines += [
            "",
            "  ".join(
                [
                    f"{facet:<{width}}",
                    *(f"{name:>{max(len(name), 7)}}" for name in metrics),
                    "     n",
                ]
            ),
        ]
        for label, scores in values.items():
            numbers = [f"{_format_value(name, scores.get(name)):>{max(len(name), 7)}}" for name in metrics]
            # The metrics of a cell may have different denominators; the largest is shown.
            largest = max((score.n for score in scores.values()), default=0)
            lines.append("  ".join([f"{label:<{width}}", *numbers, f"{largest:>6}"]))
    return lines


def _label_sentences(result: Result) -> list[str]:
    """Format the headline score of each label, for a set with one facet (`category` of pairs)."""
    metric = HEADLINE_METRICS[result.benchmark.family]
    scores_by_label = {
        label: scores[metric]
        for values in result.breakdown.values()
        for label, scores in values.items()
        if len(result.breakdown) == 1 and metric in scores
    }
    return [
        f"{label}: {format_score(score.value)} % ({format_interval(score).replace(' - ', ' to ')}), "
        f"chance {format_score(score.chance)}{', too few independent cases' if score.is_small else ''}"
        for label, score in scores_by_label.items()
        if score.value is not None
    ]


def interval_decimals(low: float, high: float, level: float | None, min_decimals: int = 1) -> int:
    """Return how many decimals an interval needs.

    With these, rounding moves neither end to or across `level`.

    Args:
        low: Lower end.
        high: Upper end.
        level: A value to compare the interval with, e.g. chance; None if there is none.
        min_decimals: Smallest number of decimals.

    >>> interval_decimals(25.03, 37.2, 25.0), interval_decimals(12.1, 24.7, 25.0, 0)
    (2, 1)
    >>> interval_decimals(20.0, 37.2, 25.0)
    1
    """
    for digits in range(min_decimals, 9):
        if level is None or (
            (low > level) == (round(low, digits) > level) and (high < level) == (round(high, digits) < level)
        ):
            return digits
    return 9


def format_image_points(score: float, value: float, low: float, high: float) -> str:
    """Say how many of a score's points come from the image (`store/sight.py`).

    Args:
        score: The score with the right images, in percent.
        value: The points that need the image.
        low: Lower end of their interval.
        high: Upper end of their interval.

    >>> format_image_points(54.2, 9.4, 5.1, 13.3)
    'Of 54 points, 9 need the image (5 to 13).'
    >>> format_image_points(54.2, 0.4, -3.1, 3.3)
    'Of 54 points, none is shown to need the image (-3 to 3).'
    """
    digits = interval_decimals(low, high, 0.0, 0)
    points = f"{value:.{digits}f} need" if low > 0 else "none is shown to need"
    return f"Of {score:.{digits}f} points, {points} the image ({low:.{digits}f} to {high:.{digits}f})."


def format_score(value: float | None, unit: str = "percent") -> str:
    """Format a score in the way that the terminal and the board share.

    A score has one decimal, a whole count none. Only an exact 100 and 0 become "100.0" and "0.0". A
    missing score is "-".

    >>> format_score(99.97), format_score(0.01), format_score(29.545), format_score(None)
    ('>99.9', '<0.1', '29.5', '-')
    >>> format_score(12.0, "count"), format_score(12.5, "count"), format_score(1e308)
    ('12', '12.5', '1e+308')
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
    """Return the unit of a metric; unknown metrics are taken as percentages."""
    return METRICS[metric].unit if metric in METRICS else "percent"


def format_interval(score: Score) -> str:
    """Format the 95 % interval of a score; empty if it has none."""
    return format_bounds(score.low, score.high, score.chance_interval or (score.chance,))


def format_bounds(low: float | None, high: float | None, levels: Sequence[float | None]) -> str:
    """Format an interval; empty if it has no ends.

    It has enough decimals that rounding moves neither end across any of the levels.

    Args:
        low: Lower end.
        high: Upper end.
        levels: Chance, or both ends of its interval; None where it is unknown.

    >>> format_bounds(25.3, 37.2, [25.0]), format_bounds(25.03, 37.2, [25.0])
    ('25.3 - 37.2', '25.03 - 37.20')
    >>> format_bounds(0.0, 0.2, [None])
    '0.0 - 0.2'
    """
    if low is None or high is None:
        return ""
    digits = max(interval_decimals(low, high, level) for level in levels)
    return f"{low:.{digits}f} - {high:.{digits}f}"


def _format_value(metric: str, score: Score | None) -> str:
    """Format the value of a score in the unit of its metric."""
    return format_score(None if score is None else score.value, metric_unit(metric))


def format_sample_size(score: Score) -> str:
    """Format the denominator of a score, e.g. "14 (worth 5)".

    The number in parentheses is the effective number of independent observations. It is given only
    if it is notably smaller.
    """
    return str(score.n) if score.independent_n is None else f"{score.n} (worth {score.independent_n})"


def _score_row(name: str, score: Score, width: int, n_width: int) -> str:
    """Format one row of the summary table."""
    value, size = _format_value(name, score), format_sample_size(score)
    chance = "" if score.chance is None else format_score(score.chance, metric_unit(name))
    verdict = _VERDICT_PHRASES.get(score.verdict or "", "no score" if score.nonresponse and score.value is None else "")
    verdict = "too few independent cases" if score.is_small else verdict
    return (
        f"{name:<{width}}  {value:>7}  {format_interval(score):>13}  {size:>{n_width}}  {chance:>6}  {verdict}".rstrip()
    )


def _score_sentence(metric: str, score: Score) -> str:
    """Format a score with its interval, n and verdict in one line."""
    unit = "" if metric_unit(metric) == "count" else " %"
    interval, chance = format_interval(score), format_score(score.chance, metric_unit(metric))
    is_majority = score.nonresponse is not None and score.nonresponse.is_majority
    parts = (
        (interval, f"95% interval {interval.replace(' - ', ' to ')}"),
        (True, f"n = {score.n}{f' (worth {score.independent_n} independent)' if score.independent_n else ''}"),
        (score.verdict, f"{_VERDICT_PHRASES.get(score.verdict or '')} ({chance}{unit})"),
        (is_majority, "no verdict: most answers say nothing"),
        (score.nonresponse and not is_majority, "no verdict: it depends on missing answers"),
        (score.is_small, "no verdict: too few independent cases"),
    )
    ends = ", ".join(text for applies, text in parts if applies)
    return f"{metric} {_format_value(metric, score)}{unit} ({ends})"


def _format_statuses(statuses: dict[str, int]) -> str:
    """Format the number of responses that chose an option, and of the others by status."""
    abstained = {name: count for name, count in statuses.items() if name != "answered" and count}
    by_reason = f": {', '.join(f'{count:,} {name}' for name, count in abstained.items())}" if abstained else ""
    answered = statuses.get("answered", 0)
    total = answered + sum(abstained.values())
    return f"{total:,} responses: {answered:,} answered, {total - answered:,} abstained{by_reason}"


def format_pairs(scores_by_aspect: dict[str, Scores]) -> str:
    """Format the scores of adversarial pairs as a plain-text table.

    Args:
        scores_by_aspect: The return value of `aggregate.adversarial_pair_scores`.

    Returns:
        Both accuracies of each aspect with their intervals, and the change in percentage points.
    """
    lines = [
        f"{'pairs of':<12}  {'n':>6}  {'without':>7}  {'95% interval':>13}  {'with':>7}  "
        f"{'95% interval':>13}  {'change':>7}"
    ]
    for name, scores in scores_by_aspect.items():
        without, adversarial = (
            scores["accuracy_without_adversarial"],
            scores["accuracy_with_adversarial"],
        )
        if without.value is None or adversarial.value is None:
            lines.append(f"{name:<12}  {without.n:>6}  no score: most answers say nothing")
            continue
        numbers = "  ".join(
            f"{format_score(score.value):>7}  {format_interval(score):>13}" for score in (without, adversarial)
        )
        lines.append(f"{name:<12}  {without.n:>6}  {numbers}  {adversarial.value - without.value:>7.1f}")
    return "\n".join(lines)


MAX_EXAMPLE_ANSWERS = 3
MAX_EXAMPLE_CHARS = 120
"""Maximum number of example answers, and of the characters quoted from each."""
UNREAD_FIRST_SHARE = 0.05
"""With a larger share of unread answers, they are reported right below the headline score."""


def format_run(folder: Path, result: Result, all_metrics: bool = False) -> str:
    """Format the summary of a run folder, including unread answers and what to do about them.

    Unread answers come last, or right below the headline score if their share is above
    UNREAD_FIRST_SHARE. If there is no headline score, an example answer follows the reason.

    Args:
        folder: The run folder.
        result: The run's result.
        all_metrics: See `ordered_metrics`.
    """
    answers = read_readings(folder, ("response", "reasoning"))
    main_score = headline_score(result)
    command = f"medprobe score {folder} --judge openai:NAME"
    unread = unread_lines(answers, command, counted=not isinstance(main_score, NoScore))
    is_unread_first = len(unread_answers(answers)) > UNREAD_FIRST_SHARE * len(answers)
    is_silent = isinstance(main_score, NoScore) and main_score.nonresponse is not None

    headline, *table = format_summary(result, all_metrics).split("\n")
    example = [_silent_example(answers)] if is_silent and not is_unread_first else []
    body = [*unread, *table] if is_unread_first else [*table, *unread]
    return "\n".join([headline, *example, *failure_lines(folder, result), *body])


def failure_lines(folder: Path, result: Result) -> list[str]:
    """Say how many answers were cut off, failed or are missing, and what to do about it.

    Args:
        folder: The run folder, whose journal contains the errors.
        result: The run's result.

    Returns:
        Lines with the counts, then with the errors, most frequent first; none if nothing was lost.
    """
    # Imported here: the board formats scores, and needs no code that asks models.
    from eval_harness.runs.run_folder import answer_id, read_answer_journal

    counts = {status: result.statuses.get(status, 0) for status in LOST_STATUSES}
    if not any(counts.values()):
        return []
    lost = Nonresponse(responses=sum(result.statuses.values()), **counts)
    lines = []
    # Without a score, the headline already gives the counts.
    if not isinstance(headline_score(result), NoScore):
        lines.append(f"{nonresponse_cause(lost, result)}, counted as wrong; {nonresponse_remedy(lost, result)}")
    # A retry appends another record, so the last one of each answer counts.
    latest = {answer_id(record): record for record in read_answer_journal(folder / "answers.jsonl")}
    errors = [
        str(record["error"]) for record in latest.values() if record["status"] in LOST_STATUSES and record.get("error")
    ]
    # Otherwise equal errors may differ in numbers (times, ids), which are ignored in grouping.
    kinds = Counter(re.sub(r"\d+", "#", error) for error in errors)

    for kind, count in kinds.most_common(MAX_EXAMPLE_ANSWERS):
        example = next(error for error in errors if re.sub(r"\d+", "#", error) == kind)
        lines.append(f"  {count:,} x {_quote_response(example)[1:-1]}")

    # Servers word this differently, so any mention of images and their size counts.
    if any(
        re.search(r"\bimages?\b.*\b(large|exceed|size|MB|pixels|dimension)", error, re.IGNORECASE) for error in errors
    ):
        lines.append("  images may be shrunk: --max-image-side 1568")

    return lines


def _silent_example(answers: pd.DataFrame) -> str:
    """Quote a response that contains no answer, of the most frequent status among these."""
    silent = answers[answers["status"].isin(NONRESPONSE_STATUSES)]
    row = silent[silent["status"] == silent["status"].mode()[0]].iloc[0]
    return f"for example {row['question_id']} ({row['status']}): {_quote_response(row['response'] or row.get('reasoning') or '')}"


def _quote_response(response: str) -> str:
    """Quote the start of a response in one line."""
    text = " ".join(response.split())
    return f"{text[:MAX_EXAMPLE_CHARS]!r}{' ...' if len(text) > MAX_EXAMPLE_CHARS else ''}" if text else "no text"


def unread_answers(answers: pd.DataFrame) -> pd.DataFrame:
    """Return the responses that arrived but neither a rule nor a judge could read."""
    return answers[(answers["status"] == "irrelevant") & (answers["response"].fillna("").str.strip() != "")]


def unread_lines(answers: pd.DataFrame, command: str, counted: bool = True) -> list[str]:
    """Report the unread answers: their number, examples, and a command that lets a judge read them.

    Args:
        answers: Readings, with the columns `response` and `rule`.
        command: The recommended command.
        counted: Whether there is a score, in which unread answers count as wrong.

    Returns:
        Lines; empty if all answers were read.
    """
    rows = unread_answers(answers)
    if rows.empty:
        return []
    share = 100 * len(rows) / len(answers)
    penalty = ", counted as wrong" if counted else ""
    lines = [f"not read: {len(rows):,} of {len(answers):,} answers ({share:.1f} %){penalty}, for instance"]

    examples = rows.head(MAX_EXAMPLE_ANSWERS).to_dict("records")
    lines += [f"  {row['question_id']} ({row['rule']}): {_quote_response(row['response'])}" for row in examples]
    was_judged = any(rows["rule"].str.startswith("judge: "))
    return lines if was_judged else [*lines, f"a judge model can read them: {command}"]
