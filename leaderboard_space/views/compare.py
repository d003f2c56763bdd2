"""Compare: two results on the same questions, with a paired test, what differs in their settings, and the questions that flip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.scores.statistics import PairedTest, paired_test
from leaderboard_space import sentences
from leaderboard_space.data.answers_shown import responses
from leaderboard_space.data.board import Board
from leaderboard_space.data.outcomes import Outcomes
from leaderboard_space.data.sections import Entry, Section
from leaderboard_space.data.standings import info_of, metrics_of
from leaderboard_space.export import Table, as_file
from leaderboard_space.html import count, number, options, text
from leaderboard_space.views.choices import Request, chosen_section, key_of, labels, section_select
from leaderboard_space.views.parts import files, sorted_by

MOST_FLIPS = 20


@dataclass(frozen=True)
class _Pair:
    """Two results on the same questions, as a request chooses them."""

    key: str
    section: Section
    outcomes: Outcomes
    entries: dict[str, Entry]
    a: Entry
    b: Entry
    metrics: list[str]
    metric: str
    named: dict[str, str]

    @property
    def names(self) -> tuple[str, str]:
        return self.named[self.a.key], self.named[self.b.key]


def page(board: Board, request: Request) -> str:
    """The page for what `request` chooses: `set`, `first`, `second`, `metric`."""
    found = chosen_section(board, request)
    if found is None:
        return _nothing("No answers are known yet, so there is nothing to compare.")
    pair = _pair(board, request)
    if pair is None:
        return f'<div class="form">{section_select(board, found[0])}</div>' + _nothing(
            "Fewer than two results on these questions have answers that can be scored."
        )
    return _form(board, pair) + _comparison(pair)


def file(board: Board, request: Request) -> dict[str, str]:
    """A table of the page as a file (`name`, `text`, `type`). `of`: scores, settings or flips (all of them); `as`: csv or json.

    Raises BadInput when there is nothing to compare.
    """
    pair = _pair(board, request)
    if pair is None or pair.a is pair.b:
        raise BadInput("there is nothing to compare here. Choose two different results.")
    tables = {"scores": _score_rows, "settings": _setting_rows, "flips": _flip_rows}
    of = str(request.get("of"))
    table = tables.get(of, _score_rows)(pair)
    return as_file(
        table, f"compare-{of if of in tables else 'scores'}-{pair.names[0]}-{pair.names[1]}", str(request.get("as"))
    )


def _pair(board: Board, request: Request) -> _Pair | None:
    found = chosen_section(board, request)
    if found is None:
        return None
    key, section = found
    loaded = board.outcomes(section)
    outcomes = loaded[0] if loaded else None
    if outcomes is None or len(outcomes.runs) < 2:
        return None
    entries = {entry.key: entry for entry in section.entries if entry.key in outcomes.runs}
    ranked = sorted(entries.values(), key=lambda entry: entry.result.model.kind == "baseline")
    a = entries.get(str(request.get("first")), ranked[0])
    b = entries.get(str(request.get("second")), next(entry for entry in ranked if entry is not a))
    metrics = [
        name for name in metrics_of(section, outcomes) if name in outcomes.metrics and info_of(name).unit != "count"
    ]
    if not metrics:  # every key is hidden: nothing can be scored
        return None
    metric = str(request.get("metric")) if str(request.get("metric")) in metrics else metrics[0]
    return _Pair(key, section, outcomes, entries, a, b, metrics, metric, labels(list(entries.values())))


def _nothing(line: str) -> str:
    return f'<h2 class="finding">{text(line)}</h2>'


def _form(board: Board, pair: _Pair) -> str:
    named = sorted(pair.named.items(), key=lambda item: item[1].lower())
    choices = options([(name, info_of(name, pair.section.format).label) for name in pair.metrics], pair.metric)
    return (
        f'<div class="form">{section_select(board, pair.key)}'
        f'<label>First <select data-name="first">{options(named, pair.a.key)}</select></label>'
        f'<label>Second <select data-name="second">{options(named, pair.b.key)}</select></label>'
        f'<label>Score <select data-name="metric">{choices}</select></label>'
        '<button type="button" class="link" data-act="link">Copy link</button></div>'
    )


def _comparison(pair: _Pair) -> str:
    if pair.a is pair.b:
        return _nothing("Choose two different results.")
    first, second = pair.names
    tests = _tests(pair)
    test = tests[pair.metric][2] if pair.metric in tests else None
    parts = [f'<h2 class="finding">{text(_finding(first, second, pair.metric, pair.section.format, test), 400)}</h2>']
    if test is not None:
        parts.append(f'<p class="sub">{text(_caption(test), 600)}</p>')
    return "".join([*parts, _table(tests, first, second, pair.section.format), _settings(pair), _flips(pair)])


def _tests(pair: _Pair) -> dict[str, tuple[float, float, PairedTest]]:
    """Per metric that both have: the two scores in percent, and the paired test."""
    frames = [_units(pair.outcomes, entry.key, pair.metrics) for entry in (pair.a, pair.b)]
    found = {}
    for name in pair.metrics:
        one, other = (_share(frame, name) for frame in frames)
        if one is not None and other is not None:
            found[name] = (one, other, paired_test(frames[0], frames[1], name))
    return found


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


def _finding(first: str, second: str, metric: str, format: str, test: PairedTest | None) -> str:
    info = info_of(metric, format)
    if test is None:
        return f"{info.label} cannot be compared between these two."
    return sentences.compared(first, second, info.label, info.higher_is_better, test.difference, test.p)


def _caption(test: PairedTest) -> str:
    return sentences.compared_in_full(
        test.difference, test.low, test.high, test.p, test.method, test.n, test.only_a, test.only_b
    )


def _table(tests: dict[str, tuple[float, float, PairedTest]], first: str, second: str, format: str) -> str:
    rows = ""
    for name, (one, other, test) in tests.items():
        mark = "not told apart" if test.p >= 0.05 else "surely"
        rows += (
            f'<tr><th scope="row">{text(info_of(name, format).label)}</th><td{sorted_by(one)}>{number(one)}</td>'
            f"<td{sorted_by(other)}>{number(other)}</td><td{sorted_by(test.difference)}>{number(test.difference)}</td>"
            f"<td{sorted_by(test.low)}>{number(test.low)} to {number(test.high)}</td><td>{mark}</td></tr>"
        )
    heads = (("score", "Score"), ("first", first), ("second", second), ("difference", "Difference (points)"),
             ("interval", "95% interval"), ("different", "Different?"))  # fmt: skip
    return _framed("Every score (%)", "scores", heads, rows)


def _framed(
    title: str, table: str, heads: Sequence[tuple[str, str]], rows: str, sub: str = "", left: bool = False
) -> str:
    """A table with its title, the buttons that save it, and heads that sort it."""
    top = "".join(
        f'<th scope="col" data-sort="{name}"><button type="button" class="sorts">{text(said, 60)}</button></th>'
        for name, said in heads
    )
    return (
        f'<div class="bar-head"><h3>{text(title)}</h3>{files(table)}</div>{sub}'
        f'<div class="scroll"><table class="plain{" left" if left else ""}" data-table="{table}" aria-label="Table of {table}">'
        f"<thead><tr>{top}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _score_rows(pair: _Pair) -> Table:
    return [
        {
            "benchmark": pair.section.benchmark,
            "split": pair.section.split,
            "first": pair.names[0],
            "second": pair.names[1],
            "metric": name,
            "first_value": one,
            "second_value": other,
            "difference": test.difference,
            "low": test.low,
            "high": test.high,
            "p": test.p,
            "test": test.method,
            "units": test.n,
            "only_first": test.only_a,
            "only_second": test.only_b,
            "first_run": pair.a.key,
            "second_run": pair.b.key,
        }
        for name, (one, other, test) in _tests(pair).items()
    ]


def _different(pair: _Pair) -> list[tuple[str, object, object]]:
    """What differs in how the two were run: name, first, second."""
    one, other = pair.a.result, pair.b.result
    pairs = [
        ("method" if name == "name" else name, getattr(one.method, name), getattr(other.method, name))
        for name in ("name", "prompt", "shots", "samples", "extraction", "judge")
    ]
    left, right = one.method.generation or {}, other.method.generation or {}
    pairs += [(name, left.get(name), right.get(name)) for name in sorted(left.keys() | right.keys())]
    pairs.append(("deviations", "; ".join(one.deviations) or None, "; ".join(other.deviations) or None))
    return [(name, x, y) for name, x, y in pairs if x != y]


def _setting_rows(pair: _Pair) -> Table:
    first, second = pair.names
    return [
        {"setting": name, "first": None if x is None else str(x), "second": None if y is None else str(y), "first_result": first,
         "second_result": second}
        for name, x, y in _different(pair)
    ]  # fmt: skip


def _settings(pair: _Pair) -> str:
    """What differs in how the two were run; a comparison is only about the models where nothing does."""
    different = _different(pair)
    if not different:
        return '<h3>Settings</h3><p class="sub">Both were run with the same settings.</p>'
    rows = "".join(
        f'<tr><th scope="row">{text(name)}</th><td>{text("–" if x is None else x, 300)}</td>'
        f"<td>{text('–' if y is None else y, 300)}</td></tr>"
        for name, x, y in different
    )
    heads = (("setting", "Setting"), ("first", pair.names[0]), ("second", pair.names[1]))
    return _framed("Settings that differ", "settings", heads, rows, left=True)


def _won_alone(pair: _Pair) -> Iterator[tuple[str, list[int]]]:
    """The units that one of the two won alone: who, and the positions of the questions of the unit."""
    units, place = pair.outcomes.metrics[pair.metric], pair.outcomes.places[pair.metric]
    one, other = (units.top[pair.outcomes.runs.index(entry.key)] for entry in (pair.a, pair.b))
    for unit in np.flatnonzero(one != other):
        if place.question[unit] >= 0:
            where = [int(place.question[unit])]
        else:
            where = np.flatnonzero(pair.outcomes.case_of_question == place.case[unit]).tolist()
        yield pair.names[0] if one[unit] > other[unit] else pair.names[1], where


def _said(pair: _Pair) -> tuple[pd.DataFrame, pd.DataFrame]:
    assert pair.a.answers is not None and pair.b.answers is not None
    return responses(pair.a.answers), responses(pair.b.answers)


def _flip_rows(pair: _Pair) -> Table:
    said = _said(pair)
    rows = []
    for unit, (winner, where) in enumerate(_won_alone(pair), 1):
        for row in where:
            question = pair.outcomes.questions.iloc[row]
            rows.append(
                {
                    "unit": unit,
                    "higher_here": winner,
                    "question_id": question["question_id"],
                    "question": question["question"],
                    "key": _letters(key_of(pair.section, question)) or "hidden",
                    "first": pair.names[0],
                    "first_answer": _given(said[0], question["question_id"]),
                    "second": pair.names[1],
                    "second_answer": _given(said[1], question["question_id"]),
                }
            )
    return rows


def _flips(pair: _Pair) -> str:
    """The units that one of the two won alone, with what was asked and answered."""
    found = list(_won_alone(pair))
    if not found:
        return (
            '<h3>Questions that flip</h3><p class="sub">None: of this score both have the same outcome everywhere.</p>'
        )
    try:
        said = _said(pair)
    except BadInput as error:
        return f'<h3>Questions that flip</h3><p class="sub">{text(error, 300)}</p>'
    questions = pair.outcomes.questions
    body = ""
    for winner, where in found[:MOST_FLIPS]:
        lines = "".join(_asked(pair.section, questions.iloc[row], said) for row in where[:12])
        body += f'<tr><td class="left">{text(winner, 60)}</td><td class="left">{lines}</td></tr>'
    more = (
        f" The first {MOST_FLIPS} of {count(len(found))} are listed; the files hold all."
        if len(found) > MOST_FLIPS
        else ""
    )
    heads = (("higher", "Higher here"), ("question", "Question, key, and what each answered"))
    sub = f'<p class="sub">Of each, one of the two got more right than the other.{more}</p>'
    return _framed("Questions that flip", "flips", heads, body, sub, left=True)


def _letters(chosen: Any) -> str:
    return ", ".join(chr(65 + int(option)) for option in chosen)


def _given(frame: pd.DataFrame, question_id: str) -> str:
    """The letters of an answer, else its status."""
    if question_id not in frame.index:
        return "no answer"
    row = frame.loc[question_id]
    return _letters(row["choice"]) or str(row["status"])


def _asked(section: Section, question: pd.Series, said: tuple[pd.DataFrame, pd.DataFrame]) -> str:
    first, second = (_given(frame, question["question_id"]) for frame in said)
    return (
        f'<p class="asked">{text(question["question"], 300)} <span class="fine">{text(question["question_id"], 60)}: '
        f"key {text(_letters(key_of(section, question)) or 'hidden')}, first {text(first)}, second {text(second)}</span></p>"
    )
