"""The words of the Submit tab: how it goes, what answers are worth, and what is wrong with them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from eval_harness.derive.metrics import METRICS
from eval_harness.records.result import Result, Score
from eval_harness.store.hidden_test import HiddenScore
from eval_harness.store.submission import Submission
from leaderboard_space.data.ranks.standings import info_of
from leaderboard_space.html import count, interval, plural, prose, score_text, text
from leaderboard_space.views.tables.leaderboard import GROUPS

MOST_PROBLEMS = 50
"""Kinds of problems that are spelled out; the rest are counted."""
DETAILS = re.compile(r"'[^']*'|\"[^\"]*\"|[0-9][0-9,.]*")
"""What may differ between problems of one kind."""
VERDICTS = {verdict: f"{words} guessing" for verdict, words in GROUPS}
LONGEST = 400


def page(lands: str, choices: Sequence[tuple[str, str]], has_store: bool) -> str:
    """What happens here. `lands`: where a submission goes, in words; `choices`: (label, key) of what answers can be submitted for."""
    return (
        '<h2 class="finding" data-title="Submit">Submit a model\'s answers</h2>'
        '<p class="sub">Upload one file (JSON Lines, JSON, CSV or Parquet with <code>question_id</code> and <code>response</code>, or '
        "the output of ProbMed's or MediConfusion's scripts), or a run folder's <code>run.json</code> and <code>answers.parquet</code>.</p>"
        '<p class="sub">Every score is computed here from the answers. Missing answers count as wrong (where most are missing there is no '
        f"score); unknown and duplicate questions are refused. {text(lands, 300)}</p>"
        '<p class="sub">The answer keys of these benchmarks are public, so a result shows what was submitted, not how it was made: it is '
        "marked <em>measured</em>; only what we ran ourselves is marked <em>measured · by us</em>.</p>"
        f"{_choices(choices) if choices else _no_choices(has_store)}"
    )


def _choices(choices: Sequence[tuple[str, str]]) -> str:
    """What can be answered, each set of questions with a file to fill in and the list of its ids."""
    rows = "".join(
        f'<tr><th scope="row">{text(label, 200)}</th><td>'
        f'<button type="button" class="link" data-act="csv" data-of="template:{text(key, 400)}">Template (CSV)'
        f'<span class="unseen"> for {text(label, 200)}</span></button> '
        f'<button type="button" class="link" data-act="txt" data-of="ids:{text(key, 400)}">Question ids'
        f'<span class="unseen"> of {text(label, 200)}</span></button></td></tr>'
        for label, key in choices
    )
    return (
        '<details class="also" data-keep="targets"><summary>Templates and question ids: '
        f"{plural(len(choices), 'set')} of questions</summary>"
        '<div class="scroll"><table class="plain left" aria-label="Sets of questions that can be answered"><thead><tr>'
        '<th scope="col">Questions</th><th scope="col">Files</th></tr></thead>'
        f'<tbody>{rows}</tbody></table></div><p class="fine">A template has one line per question: fill in '
        "<code>response</code> with the model's answer, or leave it empty if there was none.</p></details>"
    )


def _no_choices(has_store: bool) -> str:
    """Why nothing can be submitted, and who can change that."""
    lacks = "its store holds no questions yet" if has_store else "it has no results store"
    return (
        '<h3>Nothing can be submitted here yet</h3><p class="sub">Answers are scored against questions that this board has, and it has '
        f"none: {lacks}, and no dataset was given when it was started. Its operator can name the datasets to accept answers for "
        "(<code>medprobe board --results STORE --data DATASET</code>), or add a first run, which includes its questions "
        "(<code>medprobe submit RUN_DIR --to STORE</code>).</p>"
    )


def template(ids: Sequence[str]) -> str:
    """A CSV to fill in: every question id, with an empty response."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([("question_id", "response"), *((one, "") for one in ids)])
    return buffer.getvalue()


def report(submission: Submission) -> str:
    """Scores with intervals, chance and verdict, and everything that is wrong or remarkable, as HTML.

    A file with problems has no scores: what part of it could be read would be scored as if the rest had not been answered."""
    result = submission.result
    scores = "" if submission.problems else _table(result) + _statuses(result)
    return (
        f'<div class="mp-page report">{_headline(submission)}{_problems(submission.problems)}'
        f"{_flags(submission.flags)}{scores}{_notes(submission.notes)}</div>"
    )


def refused(problems: Sequence[str], said: str = "Nothing could be scored.") -> str:
    """What is wrong where nothing could be scored, or nothing was submitted."""
    return f'<div class="mp-page report">{_told(said)}{_problems(problems)}</div>'


def sent(where: str, new: bool, is_pull_request: bool, row: str = "", model: str = "") -> str:
    """Where a submission went. `row`, `model`: the addresses of its row on the board and of its model's page."""
    if is_pull_request:
        said = "A pull request is open" if new else "This was submitted before and is waiting here"
        link = f'<a href="{text(where, 500)}" target="_blank" rel="noopener">{text(where, 500)}</a>'
        rest = "It appears on the board once it is verified; what the verifier says stands there."
        return f'<div class="mp-page report">{_told(f"{said}: {link}")}<p class="sub">{rest}</p></div>'
    said = "Added to the store" if new else "The store has it already"
    link = f'<a href="{row}">see its row on the board</a>'
    return (
        f'<div class="mp-page report">{_told(f"{said}: {link}.")}'
        f'<p class="sub"><a href="{model}">The page of the model</a> · {text(where, 500)}</p></div>'
    )


def hidden_checked(problems: Sequence[str], per_day: int) -> str:
    """A file of answers to the hidden test before it is scored."""
    if problems:
        return refused(problems)
    costs = f"Each user has {plural(per_day, 'scoring')} a day (UTC); scoring the same file again does not count."
    gives = "Scoring it gives the overall score, rounded, and nothing else: the answers stay hidden."
    head = "The file answers every question of the test."
    return f'<div class="mp-page report">{_told(head)}<p class="sub">{gives} {costs}</p></div>'


def hidden_scored(score: HiddenScore) -> str:
    """The one number that leaves the hidden test."""
    label = info_of(score.metric).label
    said = f"{text(label)}: {score_text(score.value)} % of {plural(score.questions, 'question')}."
    left = f"{plural(score.remaining, 'scoring')} left on {text(score.day)} (UTC)."
    return f'<div class="mp-page report">{_told(said)}<p class="sub">{left}</p></div>'


def how_to_add(command: str) -> str:
    """What to do with the submission bundle."""
    return (
        '<div class="mp-page short"><p class="sub">The submission bundle holds the exact bytes to submit. Unpack it, then run</p>'
        f'<pre class="command"><code>{text(command, 600)}</code></pre></div>'
    )


def _told(said: str) -> str:
    """The outcome, which appears long after the button was pressed, elsewhere on the page: readers who do not see it are told."""
    return f'<div role="alert"><h2 class="finding">{said}</h2></div>'


def _headline(submission: Submission) -> str:
    result = submission.result
    benchmark = result.benchmark
    what = f"{result.model.name} on {benchmark.name}, {benchmark.split}, {plural(benchmark.questions, 'question')}"
    missing, asked = result.statuses.get("missing", 0), max(sum(result.statuses.values()), 1)
    ready = "ready to be submitted" if not submission.problems else "cannot be submitted as it is"
    if missing and not submission.problems:
        ready = f"{count(missing)} of {plural(asked, 'answer')} missing, which count as wrong"
    part = ""
    if benchmark.selection:
        part = f'<p class="sub">Partial: {text(benchmark.selection, LONGEST)}. It is not ranked with complete runs.</p>'
    return f"{_told(f'{prose(what, 300)}: {ready}.')}{part}"


def _problems(problems: Sequence[str]) -> str:
    if not problems:
        return ""
    kinds = grouped(problems)
    items = "".join(f"<li>{text(lines[0], LONGEST)}{_alike(lines[1:])}</li>" for lines in kinds[:MOST_PROBLEMS])
    more = len(kinds) - MOST_PROBLEMS
    rest = f'<p class="fine">and {plural(more, "other kind")} of problem</p>' if more > 0 else ""
    of = f" of {plural(len(kinds), 'kind')}" if len(kinds) < len(problems) else ""
    return f'<h3>{plural(len(problems), "problem")}{of}</h3><ul class="problems" role="alert">{items}</ul>{rest}'


def grouped(problems: Sequence[str]) -> list[list[str]]:
    """Problems that differ only in the line, in what is quoted, or in a number, together; in the order of their first.

    >>> grouped(["a.csv, line 1: question 'x' is unknown", "a.csv, line 7: question 'y' is unknown", "a.csv: is cut off"])
    [["a.csv, line 1: question 'x' is unknown", "a.csv, line 7: question 'y' is unknown"], ['a.csv: is cut off']]
    """
    kinds: dict[str, list[str]] = {}
    for line in problems:
        kinds.setdefault(DETAILS.sub("…", line), []).append(line)
    return list(kinds.values())


def _alike(lines: Sequence[str]) -> str:
    """How many more problems there are like one."""
    return f' <span class="fine">{plural(len(lines), "more time")}</span>' if lines else ""


def _flags(flags: Sequence[str]) -> str:
    items = "".join(f"<li>{text(line, LONGEST)}</li>" for line in flags)
    return f"<h3>A person will look at this</h3><ul>{items}</ul>" if flags else ""


def _notes(notes: Sequence[str]) -> str:
    return "".join(f'<p class="fine">{prose(line, LONGEST)}</p>' for line in notes)


def _table(result: Result) -> str:
    known = [name for name in METRICS if name in result.scores and not name.startswith("share_")]
    rows = "".join(_row(name, result.scores[name], result.benchmark.family) for name in known)
    return (
        '<div class="scroll"><table class="plain" aria-label="Scores"><thead><tr><th scope="col">Score</th><th scope="col">Value</th>'
        '<th scope="col">95% interval</th><th scope="col">Chance</th><th scope="col">n</th><th scope="col">Against chance</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _row(name: str, score: Score, family: str) -> str:
    info = info_of(name, family)
    n = count(score.n) if score.n == score.n_cases else f"{count(score.n)} ({count(score.n_cases)} cases)"
    value = score_text(score.value, info.unit) + (" %" if info.unit == "percent" and score.value is not None else "")
    return (
        f'<tr><th scope="row">{text(info.label)}</th><td>{text(value)}</td>'
        f"<td>{interval(score)}</td><td>{score_text(score.chance, info.unit)}</td><td>{n}</td>"
        f"<td>{VERDICTS.get(score.verdict or '', 'no score' if score.nonresponse and score.value is None else '')}</td></tr>"
    )


def _statuses(result: Result) -> str:
    words = {
        "answered": "answered",
        "irrelevant": "not readable as an answer",
        "refused": "refused",
        "truncated": "cut off by the output limit",
        "failed": "failed",
        "missing": "missing",
    }
    said = ", ".join(f"{count(number)} {words.get(name, name)}" for name, number in result.statuses.items() if number)
    return f'<p class="fine">Responses: {text(said, LONGEST)}.</p>' if said else ""
