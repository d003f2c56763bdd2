"""The words of the Submit tab: how it goes, what answers are worth, what is wrong with them, and what waits to be verified."""

from __future__ import annotations

from collections.abc import Sequence

from eval_harness.results import Result, Score
from eval_harness.scores import METRICS
from eval_harness.submissions.hidden_test import HiddenScore
from eval_harness.submissions.submission import Submission
from leaderboard_space.data.standings import info_of
from leaderboard_space.html import count, interval, number, plural, text
from leaderboard_space.submitting.waiting import Waiting
from leaderboard_space.views.leaderboard import GROUPS

MOST_PROBLEMS = 200
"""Problems that are spelled out; the rest are counted."""
VERDICTS = {verdict: f"{words} guessing" for verdict, words in GROUPS}
LONGEST = 400


def intro(lands: str) -> str:
    """What happens here. `lands`: where a submission goes, in words."""
    return (
        '<div class="mp-page short"><h2 class="finding">Answers in, scores recomputed.</h2>'
        '<p class="sub">Only answers are taken: they are read again and scored here, and a score that came with them is compared, never '
        f"believed. Missing answers count as wrong; unknown or duplicates questions are refused. {text(lands, 300)}</p>"
        '<p class="sub">Give one file (JSON Lines, JSON, CSV or Parquet with <code>question_id</code> and <code>response</code>, or '
        "the output of ProbMed's or MediConfusion's scripts), or a run folder's <code>run.json</code> and <code>answers.jsonl</code>.</p>"
        '<p class="sub">The keys of these benchmarks are public, so a submitted result says what was handed in, not how it was got: it is '
        "marked <em>measured</em>, and only what we ran ourselves <em>measured · by us</em>.</p></div>"
    )


def report(submission: Submission) -> str:
    """Scores with intervals, chance and verdict, and everything that is wrong or remarkable, as HTML."""
    result = submission.result
    return (
        f'<div class="mp-page report">{_headline(submission)}{_problems(submission.problems)}'
        f"{_flags(submission.flags)}{_table(result)}{_statuses(result)}{_notes(submission.notes)}</div>"
    )


def refused(problems: Sequence[str]) -> str:
    """What is wrong where nothing could be scored."""
    return f'<div class="mp-page report"><h2 class="finding">Nothing could be scored.</h2>{_problems(problems)}</div>'


def sent(place: str, new: bool, is_pull_request: bool) -> str:
    """Where a submission went."""
    if is_pull_request:
        said = "A pull request is open" if new else "This was handed in before; it waits here"
        link = f'<a href="{text(place, 500)}" target="_blank" rel="noopener">{text(place, 500)}</a>'
        rest = "It appears on the board when it has been verified; the state is below."
        return f'<div class="mp-page report"><h2 class="finding">{said}: {link}</h2><p class="sub">{rest}</p></div>'
    said = "Added to the store" if new else "The store has it already"
    rest = "It is on the board within a few seconds."
    return f'<div class="mp-page report"><h2 class="finding">{said}.</h2><p class="sub">{text(place, 500)}. {rest}</p></div>'


def hidden_checked(problems: Sequence[str], per_day: int) -> str:
    """A file of answers to the hidden test before it is scored."""
    if problems:
        return refused(problems)
    costs = f"Each user has {plural(per_day, 'scoring')} a day (UTC); a file that you had scored before costs none."
    gives = "Scoring it gives the overall score, rounded, and nothing else: the answers stay hidden."
    head = "The file answers every question of the test."
    return f'<div class="mp-page report"><h2 class="finding">{head}</h2><p class="sub">{gives} {costs}</p></div>'


def hidden_scored(score: HiddenScore) -> str:
    """The one number that leaves the hidden test."""
    label = info_of(score.metric).label
    return (
        f'<div class="mp-page report"><h2 class="finding">{text(label)}: {number(score.value)} % of {count(score.questions)} '
        f'questions.</h2><p class="sub">{plural(score.remaining, "scoring")} left on {text(score.day)} (UTC).</p></div>'
    )


def how_to_add(folder: str, command: str) -> str:
    """What to do with the submission bundle."""
    return (
        '<div class="mp-page short"><p class="sub">The submission bundle holds the bytes that would be submitted. Unpack it; then</p>'
        f'<pre class="command"><code>{text(command, 600)}</code></pre></div>'
    )


def waiting(found: Sequence[Waiting]) -> str:
    """The open submissions of a Hub store as a table."""
    if not found:
        return '<div class="mp-page short"><h3>Open submissions</h3><p class="sub">None waits to be verified.</p></div>'
    rows = "".join(
        f'<tr><th scope="row"><a href="{text(each.url, 500)}" target="_blank" rel="noopener">#{each.number}</a></th>'
        f"<td>{text(each.title.removeprefix('Add '), 160)}</td><td>{text(each.author, 60)}</td><td>{text(each.opened)}</td>"
        f"<td>{text(each.state, 120)}</td></tr>"
        for each in found
    )
    return (
        f'<div class="mp-page short"><h3>Open submissions</h3><p class="sub">{plural(len(found), "submission")} to be verified.'
        '</p><div class="scroll"><table class="plain left" aria-label="Open submissions"><thead><tr><th scope="col">No.</th>'
        '<th scope="col">Result</th><th scope="col">By</th><th scope="col">Since</th><th scope="col">State</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div></div>"
    )


def trouble(line: str) -> str:
    """One line about what does not work just now."""
    return f'<div class="mp-page short"><p class="sub" role="status">{text(line, LONGEST)}</p></div>'


def _headline(submission: Submission) -> str:
    result = submission.result
    benchmark = result.benchmark
    what = f"{result.model.name} on {benchmark.name}, {benchmark.split}, {plural(benchmark.questions, 'question')}"
    ready = "ready to be submitted" if not submission.problems else "cannot be submitted as it is"
    part = ""
    if benchmark.selection:
        part = f'<p class="sub">Partial: {text(benchmark.selection, LONGEST)}. It is not ranked with complete runs.</p>'
    return f'<h2 class="finding">{text(what, 300)}: {ready}.</h2>{part}'


def _problems(problems: Sequence[str]) -> str:
    if not problems:
        return ""
    items = "".join(f"<li>{text(line, LONGEST)}</li>" for line in problems[:MOST_PROBLEMS])
    more = len(problems) - MOST_PROBLEMS
    rest = f'<p class="fine">and {count(more)} more</p>' if more > 0 else ""
    return f'<h3>{plural(len(problems), "problem")}</h3><ul class="problems" role="alert">{items}</ul>{rest}'


def _flags(flags: Sequence[str]) -> str:
    items = "".join(f"<li>{text(line, LONGEST)}</li>" for line in flags)
    return f"<h3>A person will look at this</h3><ul>{items}</ul>" if flags else ""


def _notes(notes: Sequence[str]) -> str:
    return "".join(f'<p class="fine">{text(line, LONGEST)}</p>' for line in notes)


def _table(result: Result) -> str:
    known = [name for name in METRICS if name in result.scores and not name.startswith("share_")]
    rows = "".join(_row(name, result.scores[name], result.benchmark.format) for name in known)
    return (
        '<div class="scroll"><table class="plain" aria-label="Scores"><thead><tr><th scope="col">Score</th><th scope="col">Value</th>'
        '<th scope="col">95% interval</th><th scope="col">Chance</th><th scope="col">n</th><th scope="col">Against chance</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _row(name: str, score: Score, format: str) -> str:
    info = info_of(name, format)
    n = count(score.n) if score.n == score.n_cases else f"{count(score.n)} ({count(score.n_cases)} cases)"
    unit = "" if info.unit == "count" or score.value is None else " %"
    return (
        f'<tr><th scope="row">{text(info.label)}</th><td>{number(score.value, 0 if info.unit == "count" else 2)}{unit}</td>'
        f"<td>{interval(score.low, score.high)}</td><td>{number(score.chance)}</td><td>{n}</td>"
        f"<td>{VERDICTS.get(score.verdict or '', '')}</td></tr>"
    )


def _statuses(result: Result) -> str:
    words = {
        "answered": "answered",
        "irrelevant": "not readable as an answer",
        "refused": "refused",
        "failed": "missing or failed",
    }
    said = ", ".join(f"{count(number)} {words.get(name, name)}" for name, number in result.statuses.items() if number)
    return f'<p class="fine">Responses: {text(said, LONGEST)}.</p>' if said else ""
