"""Compare: two results on the same questions, with a paired test, what differs in their settings, and the questions that flip."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.scores.statistics import PairedTest, paired_test
from leaderboard_space.answers_shown import responses
from leaderboard_space.html import count, number, options, text
from leaderboard_space.outcomes import Outcomes
from leaderboard_space.sections import Board, Entry, Section
from leaderboard_space.standings import info_of, metrics_of
from leaderboard_space.views.choices import Request, chosen_section, labels, section_select

MOST_FLIPS = 40


def page(board: Board, request: Request) -> str:
    """The page for what `request` chooses: `set`, `first`, `second`, `metric`."""
    found = chosen_section(board, request)
    if found is None:
        return _nothing("No answers are known yet, so there is nothing to compare.")
    key, section = found
    loaded = board.outcomes(section)
    outcomes = loaded[0] if loaded else None
    if outcomes is None or len(outcomes.runs) < 2:
        return f'<div class="form">{section_select(board, key)}</div>' + _nothing(
            "Fewer than two results with answers on these questions."
        )
    entries = {entry.key: entry for entry in section.entries if entry.key in outcomes.runs}
    ranked = sorted(entries.values(), key=lambda entry: entry.result.model.kind == "baseline")
    a = entries.get(str(request.get("first")), ranked[0])
    b = entries.get(str(request.get("second")), next(entry for entry in ranked if entry is not a))
    metrics = [
        name for name in metrics_of(section, outcomes) if name in outcomes.metrics and info_of(name).unit != "count"
    ]
    metric = str(request.get("metric")) if str(request.get("metric")) in metrics else metrics[0]
    return _form(board, key, entries, a, b, metrics, metric) + _comparison(section, outcomes, a, b, metrics, metric)


def _nothing(line: str) -> str:
    return f'<h2 class="finding">{text(line)}</h2>'


def _form(
    board: Board, key: str, entries: dict[str, Entry], a: Entry, b: Entry, metrics: list[str], metric: str
) -> str:
    named = sorted(labels(list(entries.values())).items(), key=lambda item: item[1].lower())
    choices = options([(name, info_of(name).label) for name in metrics], metric)
    return (
        f'<div class="form">{section_select(board, key)}<label>First <select data-name="first">{options(named, a.key)}</select></label>'
        f'<label>Second <select data-name="second">{options(named, b.key)}</select></label>'
        f'<label>Score <select data-name="metric">{choices}</select></label></div>'
    )


def _comparison(section: Section, outcomes: Outcomes, a: Entry, b: Entry, metrics: list[str], metric: str) -> str:
    if a is b:
        return _nothing("Choose two different results.")
    named = labels([entry for entry in section.entries if entry.key in outcomes.runs])
    first, second = named[a.key], named[b.key]
    frames = {entry.key: _units(outcomes, entry.key, metrics) for entry in (a, b)}
    tests = {}
    for name in metrics:
        if _share(frames[a.key], name) is not None and _share(frames[b.key], name) is not None:
            tests[name] = paired_test(frames[a.key], frames[b.key], name)
    parts = [f'<h2 class="finding">{text(_finding(first, second, metric, tests.get(metric)), 400)}</h2>']
    if metric in tests:
        parts.append(f'<p class="sub">{text(_caption(tests[metric]), 600)}</p>')
    parts.append(_table(frames, a, b, first, second, tests))
    parts.append(_settings(a, b, first, second))
    parts.append(_flips(outcomes, a, b, first, second, metric))
    return "".join(parts)


def _units(outcomes: Outcomes, run: str, metrics: list[str]) -> pd.DataFrame:
    """The run's units as a table, as the paired test takes them. A unit is named by its place, which is the same for both runs."""
    row = outcomes.runs.index(run)
    parts = []
    for name in metrics:
        units = outcomes.metrics[name]
        parts.append(
            pd.DataFrame(
                {
                    "metric": name,
                    "unit": np.arange(units.cluster.size).astype(str),
                    "cluster": units.cluster,
                    "numerator": units.top[row].astype(float),
                    "denominator": units.base[row if units.base.shape[0] > 1 else 0],
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def _share(frame: pd.DataFrame, metric: str) -> float | None:
    """A run's score in percent; None where nothing is counted."""
    part = frame[frame["metric"] == metric]
    total = float(part["denominator"].sum())
    return 100 * float(part["numerator"].sum()) / total if total > 0 else None


def _finding(first: str, second: str, metric: str, test: PairedTest | None) -> str:
    label = info_of(metric).label
    if test is None:
        return f"{label} cannot be compared between these two."
    if test.p >= 0.05:
        return f"{first} and {second} cannot be told apart by {label.lower()}."
    higher, lower = (first, second) if test.difference > 0 else (second, first)
    word = {True: "surely better than", False: "surely worse than", None: "surely above"}[
        info_of(metric).higher_is_better
    ]
    return f"{higher} is {word} {lower}: {number(abs(test.difference))} points of {label.lower()}."


def _caption(test: PairedTest) -> str:
    p = "p < 0.001" if test.p < 0.001 else f"p = {test.p:.3f}"
    return (
        f"Difference {number(test.difference)} points, 95% interval {number(test.low)} to {number(test.high)}, {p} ({test.method}). "
        f"Of {count(test.n)} scored units, {count(test.only_a)} were won by the first alone and {count(test.only_b)} by the second alone; "
        f"{number(100 * (test.n - test.only_a - test.only_b) / max(test.n, 1))}% ended alike. The p-value is of this one comparison, "
        "chosen by you: not corrected for others you may have looked at."
    )


def _table(
    frames: dict[str, pd.DataFrame], a: Entry, b: Entry, first: str, second: str, tests: dict[str, PairedTest]
) -> str:
    rows = ""
    for name, test in tests.items():
        values = [_share(frames[entry.key], name) for entry in (a, b)]
        mark = "" if test.p >= 0.05 else "surely"
        rows += (
            f'<tr><th scope="row">{text(info_of(name).label)}</th><td>{number(values[0])}</td><td>{number(values[1])}</td>'
            f"<td>{number(test.difference)}</td><td>{number(test.low)} to {number(test.high)}</td><td>{mark}</td></tr>"
        )
    return (
        '<h3>Every score</h3><div class="scroll"><table class="plain"><thead><tr><th scope="col">Score</th>'
        f'<th scope="col">{text(first, 60)}</th>'
        f'<th scope="col">{text(second, 60)}</th><th scope="col">Difference</th><th scope="col">95% interval</th>'
        f'<th scope="col">Different?</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _settings(a: Entry, b: Entry, first: str, second: str) -> str:
    """What differs in how the two were run; a comparison is only about the models where nothing does."""
    one, other = a.result, b.result
    pairs = [
        (name, getattr(one.method, name), getattr(other.method, name))
        for name in ("name", "prompt", "shots", "samples", "extraction", "generation", "judge")
    ]
    pairs.append(("deviations", "; ".join(one.deviations) or None, "; ".join(other.deviations) or None))
    different = [(name, x, y) for name, x, y in pairs if x != y]
    if not different:
        return '<h3>Settings</h3><p class="sub">Both were run with the same settings.</p>'
    rows = "".join(
        f'<tr><th scope="row">{text("method" if name == "name" else name)}</th><td>{text("–" if x is None else x, 300)}</td>'
        f"<td>{text('–' if y is None else y, 300)}</td></tr>"
        for name, x, y in different
    )
    return (
        f'<h3>Settings that differ</h3><div class="scroll"><table class="plain left"><thead><tr><th scope="col">Setting</th>'
        f'<th scope="col">{text(first, 60)}</th><th scope="col">{text(second, 60)}</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _flips(outcomes: Outcomes, a: Entry, b: Entry, first: str, second: str, metric: str) -> str:
    """The units that one of the two won alone, with what was asked and answered."""
    units, place = outcomes.metrics[metric], outcomes.places[metric]
    one, other = (units.top[outcomes.runs.index(entry.key)] for entry in (a, b))
    flips = np.flatnonzero(one != other)
    if not flips.size:
        return '<h3>Questions that flip</h3><p class="sub">None: both have the same outcome everywhere.</p>'
    assert a.answers is not None and b.answers is not None
    try:
        said = responses(a.answers), responses(b.answers)
    except BadInput as error:
        return f'<h3>Questions that flip</h3><p class="sub">{text(error, 300)}</p>'
    questions = outcomes.questions
    body = ""
    for unit in flips[:MOST_FLIPS]:
        where = (
            [int(place.question[unit])]
            if place.question[unit] >= 0
            else np.flatnonzero(outcomes.case_of_question == place.case[unit]).tolist()
        )
        winner = first if one[unit] > other[unit] else second
        lines = "".join(_asked(questions.iloc[row], said) for row in where[:12])
        body += f'<tr><td class="left">{text(winner, 60)}</td><td class="left">{lines}</td></tr>'
    more = f" The first {MOST_FLIPS} of {count(int(flips.size))} are listed." if flips.size > MOST_FLIPS else ""
    return (
        f'<h3>Questions that flip</h3><p class="sub">Only one of the two was right.{more}</p>'
        '<div class="scroll"><table class="plain left"><thead><tr><th scope="col">Higher here</th>'
        f'<th scope="col">Question, key, and what each answered</th></tr></thead><tbody>{body}</tbody></table></div>'
    )


def _asked(question: pd.Series, said: tuple[pd.DataFrame, pd.DataFrame]) -> str:
    letters = [chr(65 + option) for option in question["answer"]]
    given = []
    for frame in said:
        if question["question_id"] not in frame.index:
            given.append("no answer")
            continue
        row = frame.loc[question["question_id"]]
        given.append(", ".join(chr(65 + int(option)) for option in row["choice"]) or str(row["status"]))
    return (
        f'<p class="asked">{text(question["question"], 300)} <span class="fine">{text(question["question_id"], 60)}: '
        f"key {text(', '.join(letters) or 'hidden')}, first {text(given[0])}, second {text(given[1])}</span></p>"
    )
