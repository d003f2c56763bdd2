"""Sentences on one result: its ranks, what stands beside its score, whether it could have seen the questions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from eval_harness.derive.metrics import cause
from eval_harness.records.result import Result, Score, Verdict
from eval_harness.scores.nonresponse import REASONS
from eval_harness.scores.sight import Sight
from eval_harness.store.printed import decimals, needs_the_image
from leaderboard_space.html import count, percent, plural
from leaderboard_space.sentences.captions import percent_of_chance


def ranks_in_words(first: int, last: int, ahead: int, behind: int, tied: int) -> str:
    """What a row's ranks stand for: how many others are significantly better, significantly worse, and neither. Rank 1 is lost by the one
    comparison with the best, which is stricter than the correction for all pairs (`ranks.RankRanges`).

    >>> ranks_in_words(1, 2, 0, 0, 1)
    'Rank 1 to 2: no model is significantly better; 1 model is not significantly different.'
    """
    models = ahead + behind + tied + 1
    ranks = f"Rank {first}" if first == last else f"Rank {first} to {last}"
    parts = [
        _so_many(ahead, "significantly better") if ahead or first == 1 else "significantly worse than the best alone"
    ]
    parts += [
        _so_many(n, said) for n, said in ((behind, "significantly worse"), (tied, "not significantly different")) if n
    ]
    corrected = f" ({corrected_for(models * (models - 1) // 2)})" if models > 2 else ""
    return f"{ranks}: {'; '.join(parts)}{corrected}."


def _so_many(models: int, said: str) -> str:
    return f"{plural(models, 'model') if models else 'no model'} {'are' if models > 1 else 'is'} {said}"


def corrected_for(tests: int) -> str:
    """That a significance is corrected for several tests.

    >>> corrected_for(15), corrected_for(1)
    ('corrected for 15 comparisons', 'one comparison, not corrected')
    """
    return f"corrected for {count(tests)} comparisons" if tests > 1 else "one comparison, not corrected"


def each_alone(tests: int) -> str:
    """What marks of many scores do not say: that each is tested by itself, so that some are chance.

    >>> each_alone(84), each_alone(6)
    ('Each score is tested by itself: if all 84 were guesses, about 4 would be marked.', 'Each score is tested by itself.')
    """
    chance = round(tests / 20)
    many = f": if all {count(tests)} were guesses, about {count(chance)} would be marked" if chance else ""
    return f"Each score is tested by itself{many}."


def points(found: Sight) -> str:
    """The points of a score that come from the image, with their interval, which is never rounded across 0."""
    digits = decimals(found.low, found.high, 0.0, 0)
    return f"{found.value:.{digits}f} ({found.low:.{digits}f} to {found.high:.{digits}f})"


def from_the_image(questions: str, found: Sight) -> str:
    """What a model's score on a set of questions owes to the image."""
    return f"{questions}: {needs_the_image(found.score, found.value, found.low, found.high)}"


def beside(abstained: float | None, answered_accuracy: float | None, ends: Sequence[int] = ()) -> str:
    """How much of a score rests on answers: what stands beside it. `ends`: how the responses ended (`nonresponse.COUNTS`).

    >>> beside(25.0, 80.0, (28, 5, 1, 0, 0)), beside(0.0, None)
    ('abstained 25.0% (7 of 28: 5 cut off, 1 failed, 1 refused), accuracy where answered 80.0%', 'abstained 0.0%')
    """
    parts = []
    if abstained is not None:
        parts.append(
            f"abstained {percent(abstained)}%{_by_reason(round(abstained * ends[0] / 100), ends) if ends else ''}"
        )
    if answered_accuracy is not None:
        parts.append(f"accuracy where answered {percent(answered_accuracy)}%")
    return ", ".join(parts)


ENDS = {"truncated": "cut off", "failed": "failed", "missing": "missing", "irrelevant": "unreadable"}
"""How a response that says nothing is called in a list of reasons."""


def _by_reason(abstained: int, ends: Sequence[int]) -> str:
    responses, *silent = ends
    counts = [(number, ENDS[reason]) for reason, number in zip(REASONS, silent, strict=True)]
    counts.append((abstained - sum(silent), "refused"))
    told = ", ".join(f"{count(number)} {said}" for number, said in counts if number)
    return f" ({count(abstained)} of {count(responses)}: {told})" if told else ""


def no_score(score: Score, result: Result) -> str:
    """Why a score has no verdict and no rank, and perhaps no value; empty where it may have them."""
    if score.nonresponse is None:
        return ""
    lead = "no score" if score.value is None else "no verdict"
    return f"{lead}: {cause(score.nonresponse, result)}"


def month(date: str) -> str:
    """The month of a date YYYY-MM or YYYY-MM-DD in words; what is no such date stays as it is.

    >>> month("2024-05"), month("2024-08-06"), month("soon")
    ('May 2024', 'August 2024', 'soon')
    """
    try:
        return datetime.strptime(date[:7], "%Y-%m").strftime("%B %Y")
    except ValueError:
        return date


def in_short(verdict: Verdict | None, guess: str, chance: float | None) -> str:
    """A verdict in a table's cell, with what guessing gets. `guess`: RANDOM_RUN, or what exact chance is called."""
    level = "" if chance is None else f" ({percent_of_chance(chance)})"
    untested = "not tested" if chance is None else f"not tested; {guess} gets {percent_of_chance(chance)}"
    words: dict[Verdict | None, str] = {
        "better": f"significantly better than {guess}{level}",
        "no different": f"not significantly different from {guess}{level}",
        "worse": f"significantly worse than {guess}{level}",
    }
    return words.get(verdict, untested)


def exposure(published: str | None, released: str | None) -> str:
    """Say whether a model could have seen a set's questions: by the months in which the questions were published and the model released."""
    if not published or not released:
        return ""
    one, other = published[:7], released[:7]
    if one == other:
        return f"questions public in {month(one)}, the month of this model"
    when = "before" if one < other else "after"
    return f"questions public in {month(one)}, {when} this model ({month(other)})"
