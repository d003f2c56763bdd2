"""Draw the page Submit: how to submit, the scores of answers, and their problems."""

import re
from collections.abc import Sequence

import pandas as pd

from eval_harness.derive.metrics import METRICS
from eval_harness.records.result import Result, Score, Verdict
from eval_harness.store.contents import Submission
from eval_harness.store.hidden_test import HiddenScore
from leaderboard_space.benchmarks import metric_info
from leaderboard_space.html import count, interval, plural, prose, score_text, text
from leaderboard_space.sentences import VERDICT_WORDS
from leaderboard_space.views.tables.table import html_columns, scrollable, table

MAX_PROBLEM_KINDS = 50
"""Maximum number of kinds of problems that are listed; the rest are only counted."""
DETAILS = re.compile(r"'[^']*'|\"[^\"]*\"|[0-9][0-9,.]*")
"""What may differ between problems of one kind: quoted texts and numbers."""
VERDICTS: dict[Verdict | None, str] = {verdict: f"{words} guessing" for verdict, words in VERDICT_WORDS.items()}
HIDDEN_ANSWERS_NOTE = (
    '<p class="sub">The answers of GMAI-MMBench\'s test set are hidden here, but not secret: anybody can derive them from the column '
    "<code>category</code> of the benchmark's public TSV. A score on it does not show that the model had not seen them.</p>"
)
"""What a score on the hidden test does not show."""
MAX_LINE_LENGTH = 400
"""Maximum number of characters shown of a problem or a note."""


def page(destination: str, choices: Sequence[tuple[str, str]], has_store: bool, has_hidden: bool = False) -> str:
    """Draw the page Submit above its form, as HTML.

    Args:
        destination: Where a submission goes, in a sentence.
        choices: Label and key of each question set that answers can be submitted for.
        has_store: Whether the board has a results store.
        has_hidden: Whether it offers the test with hidden answers.
    """
    return (
        '<h2 class="finding" data-title="Submit">Submit a model\'s answers</h2>'
        '<p class="sub">Upload one file (JSON Lines, JSON, CSV or Parquet with <code>question_id</code> and <code>response</code>, or '
        "the output of ProbMed's or MediConfusion's scripts), or a run folder's <code>run.json</code> and <code>answers.parquet</code>.</p>"
        '<p class="sub">Every score is computed here from the answers. Missing answers count as wrong (where most are missing there is no '
        f"score); unknown and duplicate questions are refused. {text(destination, 300)}</p>"
        '<p class="sub">The answer keys of these benchmarks are public, so a result shows what was submitted, not how it was made: it is '
        "marked <em>measured</em>; only what we ran ourselves is marked <em>measured · by us</em>.</p>"
        f"{HIDDEN_ANSWERS_NOTE if has_hidden else ''}"
        f"{_choices(choices) if choices else _no_choices(has_store)}"
    )


def _choices(choices: Sequence[tuple[str, str]]) -> str:
    """List the question sets that accept answers, each with a template and its question ids."""
    rows = [
        (
            text(label, 200),
            f'<button type="button" class="link" data-act="csv" data-of="template:{text(key, 400)}">Template (CSV)'
            f'<span class="unseen"> for {text(label, 200)}</span></button> '
            f'<button type="button" class="link" data-act="txt" data-of="ids:{text(key, 400)}">Question ids'
            f'<span class="unseen"> of {text(label, 200)}</span></button>',
        )
        for label, key in choices
    ]
    label = "Sets of questions that can be answered"
    choice_table = scrollable(table("", label, html_columns(("Questions", "Files")), [("", rows)], "plain left"))
    return (
        '<details class="also" data-keep="targets"><summary>Templates and question ids: '
        f"{plural(len(choices), 'set')} of questions</summary>"
        f'{choice_table}<p class="fine">A template has one line per question: fill in '
        "<code>response</code> with the model's answer, or leave it empty if there was none.</p></details>"
    )


def _no_choices(has_store: bool) -> str:
    """Explain why nothing can be submitted, and who can change that."""
    lacks = "its store holds no questions yet" if has_store else "it has no results store"
    return (
        '<h3>Nothing can be submitted here yet</h3><p class="sub">Answers are scored against questions that this board has, and it has '
        f"none: {lacks}, and no dataset was given when it was started. Its operator can name the datasets to accept answers for "
        "(<code>medprobe board --results STORE --data DATASET</code>), or add a first run, which includes its questions "
        "(<code>medprobe submit RUN_DIR --to STORE</code>).</p>"
    )


def template(ids: Sequence[str]) -> str:
    """Return a CSV file to fill in: every question id with an empty response."""
    return pd.DataFrame({"question_id": ids, "response": ""}).to_csv(index=False, lineterminator="\n")


def report(submission: Submission) -> str:
    """Draw the outcome of a check: scores with intervals, chance and verdict, problems, and flags.

    A file with problems has no scores: answers that cannot be read would count as missing.
    """
    result = submission.result
    scores = "" if submission.problems else _table(result) + _statuses(result)
    notes = "".join(f'<p class="fine">{prose(note, MAX_LINE_LENGTH)}</p>' for note in submission.notes)
    return _report(f"{_headline(submission)}{_problems(submission.problems)}{_flags(submission.flags)}{scores}{notes}")


def refusal(problems: Sequence[str], outcome: str = "Nothing could be scored.") -> str:
    """Draw the problems of a file that could not be scored or submitted.

    Args:
        problems: The problems.
        outcome: The headline.
    """
    return _report(_alert(outcome) + _problems(problems))


def submission_outcome(location: str, is_new: bool, is_pull_request: bool, row: str = "", model: str = "") -> str:
    """Draw where a submission went.

    Args:
        location: Address of the pull request, or path in the store.
        is_new: False if it had been submitted before.
        is_pull_request: True if it waits for verification on the Hub.
        row: Address of its row on the board.
        model: Address of its model's page.
    """
    if is_pull_request:
        outcome = "A pull request is open" if is_new else "This was submitted before and is waiting here"
        link = f'<a href="{text(location, 500)}" target="_blank" rel="noopener">{text(location, 500)}</a>'
        below = "It appears on the board once it is verified; the verifier comments on the pull request."
    else:
        outcome = "Added to the store" if is_new else "The store has it already"
        link = f'<a href="{row}">see its row on the board</a>.'
        below = f'<a href="{model}">The page of the model</a> · {text(location, 500)}'
    return _report(f'{_alert(f"{outcome}: {link}")}<p class="sub">{below}</p>')


def hidden_checked(problems: Sequence[str], per_day: int) -> str:
    """Draw the check of a file of answers to the hidden test.

    Args:
        problems: Problems of the file.
        per_day: Attempts that a user has each day.
    """
    if problems:
        return refusal(problems)
    costs = f"Each user has {plural(per_day, 'attempt')} a day (UTC); scoring the same file again does not count."
    gives = "Scoring it gives the overall score, rounded, and nothing else: the answers stay hidden."
    return _report(f'{_alert("The file answers every question of the test.")}<p class="sub">{gives} {costs}</p>')


def hidden_scored(score: HiddenScore) -> str:
    """Draw the score of the hidden test, the only number that is disclosed."""
    label, questions = text(metric_info(score.metric).label), plural(score.questions, "question")
    remaining = f"{plural(score.remaining, 'attempt')} left on {text(score.day)} (UTC)."
    return _report(f'{_alert(f"{label}: {score_text(score.value)} % of {questions}.")}<p class="sub">{remaining}</p>')


def how_to_add(command: str) -> str:
    """Draw the instructions for a submission bundle. `command` is the command that submits it."""
    return (
        '<div class="mp-page short"><p class="sub">The submission bundle holds the exact bytes to submit. Unpack it, then run</p>'
        f'<pre class="command"><code>{text(command, 600)}</code></pre></div>'
    )


def _report(content: str) -> str:
    return f'<div class="mp-page report">{content}</div>'


def _alert(outcome: str) -> str:
    """Draw the outcome so that screen readers announce it.

    It appears long after the button was pressed.
    """
    return f'<div role="alert"><h2 class="finding">{outcome}</h2></div>'


def _headline(submission: Submission) -> str:
    """State what was submitted, and whether it can be added."""
    result, benchmark = submission.result, submission.result.benchmark
    about = f"{result.model.name} on {benchmark.name}, {benchmark.split}, {plural(benchmark.questions, 'question')}"
    missing, n_asked = result.statuses.get("missing", 0), max(sum(result.statuses.values()), 1)
    # Problems take precedence over missing answers, which only lower the score.
    state = "cannot be submitted as it is" if submission.problems else "ready to be submitted"
    if missing and not submission.problems:
        state = f"{count(missing)} of {plural(n_asked, 'answer')} missing, which count as wrong"
    selection = f"Partial: {text(benchmark.selection or '', MAX_LINE_LENGTH)}. It is not ranked with complete runs."
    partial = f'<p class="sub">{selection}</p>' if benchmark.selection else ""
    return f"{_alert(f'{prose(about, 300)}: {state}.')}{partial}"


def _problems(problems: Sequence[str]) -> str:
    """List the problems by kind, each with its first problem and the number of others."""
    kinds = group_problems(problems)
    twins = [f' <span class="fine">{plural(len(kind) - 1, "more time")}</span>' if kind[1:] else "" for kind in kinds]
    lines = [f"<li>{text(kind[0], MAX_LINE_LENGTH)}{twin}</li>" for kind, twin in zip(kinds, twins, strict=True)]
    items = "".join(lines[:MAX_PROBLEM_KINDS])
    hidden = len(kinds) - MAX_PROBLEM_KINDS
    hidden_note = f'<p class="fine">and {plural(hidden, "other kind")} of problem</p>' if hidden > 0 else ""
    of_kinds = f" of {plural(len(kinds), 'kind')}" if len(kinds) < len(problems) else ""
    title = f"<h3>{plural(len(problems), 'problem')}{of_kinds}</h3>"
    return f'{title}<ul class="problems" role="alert">{items}</ul>{hidden_note}' if problems else ""


def group_problems(problems: Sequence[str]) -> list[list[str]]:
    """Group problems that differ only in line, quoted text or number, in order of appearance.

    >>> group_problems(["line 1: 'x' is unknown", "line 7: 'y' is unknown", "cut off"])
    [["line 1: 'x' is unknown", "line 7: 'y' is unknown"], ['cut off']]
    """
    # A file with one mistake in every line has one problem, not a thousand.
    kinds: dict[str, list[str]] = {}
    for line in problems:
        kinds.setdefault(DETAILS.sub("…", line), []).append(line)
    return list(kinds.values())


def _flags(flags: Sequence[str]) -> str:
    """List what a person will look at before the result is verified."""
    items = "".join(f"<li>{text(flag, MAX_LINE_LENGTH)}</li>" for flag in flags)
    return f"<h3>A person will look at this</h3><ul>{items}</ul>" if flags else ""


def _table(result: Result) -> str:
    """Draw the table of a result's scores."""

    def cells(name: str, score: Score) -> tuple[str, ...]:
        info = metric_info(name, result.benchmark.family)
        sign = " %" if info.unit == "percent" and score.value is not None else ""
        cases = "" if score.n == score.n_cases else f" ({count(score.n_cases)} cases)"
        no_score = "no score" if score.nonresponse and score.value is None else ""
        return (
            text(info.label),
            text(score_text(score.value, info.unit) + sign),
            interval(score),
            score_text(score.chance, info.unit),
            f"{count(score.n)}{cases}",
            VERDICTS.get(score.verdict, no_score),
        )

    names = [name for name in METRICS if name in result.scores and not name.startswith("share_")]
    columns = html_columns(("Score", "Value", "95% interval", "Chance", "n", "Against chance"))
    return scrollable(table("", "Scores", columns, [("", [cells(name, result.scores[name]) for name in names])]))


def _statuses(result: Result) -> str:
    words = {
        "answered": "answered",
        "irrelevant": "not readable as an answer",
        "refused": "refused",
        "truncated": "cut off by the output limit",
        "failed": "failed",
        "missing": "missing",
    }
    counts = ", ".join(f"{count(n)} {words.get(status, status)}" for status, n in result.statuses.items() if n)
    return f'<p class="fine">Responses: {text(counts, MAX_LINE_LENGTH)}.</p>' if counts else ""
