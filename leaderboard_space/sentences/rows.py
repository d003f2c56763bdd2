"""What is said of one result: its ranks, what stands beside its score, whether it could have seen the questions."""

from __future__ import annotations

from eval_harness.records.result import Verdict
from leaderboard_space.html import count, percent
from leaderboard_space.sentences.captions import percent_of_chance

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip


def ranks_in_words(ahead: int, behind: int, tied: int, may_lead: bool) -> str:
    """What a row's ranks stand for: how many others are significantly ahead, significantly behind, and neither."""
    lead = "may be the best" if may_lead else "not the best"
    others = f"{count(ahead)} significantly ahead, {count(behind)} significantly behind, {count(tied)} not significantly different"
    models = ahead + behind + tied + 1
    corrected = f", {corrected_for(models * (models - 1) // 2)}" if models > 2 else ""
    return f"{lead}; of the others {others}{corrected}"


def corrected_for(tests: int) -> str:
    """That a significance is corrected for several tests.

    >>> corrected_for(15), corrected_for(1)
    ('corrected for 15 comparisons', 'one comparison, not corrected')
    """
    return f"corrected for {count(tests)} comparisons" if tests > 1 else "one comparison, not corrected"


def beside(abstained: float | None, answered_accuracy: float | None) -> str:
    """How much of a score rests on answers: what stands beside it."""
    parts = [] if abstained is None else [f"abstained {percent(abstained)}%"]
    if answered_accuracy is not None:
        parts.append(f"accuracy where answered {percent(answered_accuracy)}%")
    return ", ".join(parts)


def month(date: str) -> str:
    """The month of a date YYYY-MM or YYYY-MM-DD in words; what is no such date stays as it is.

    >>> month("2024-05"), month("2024-08-06"), month("soon")
    ('May 2024', 'August 2024', 'soon')
    """
    year, _, rest = date.partition("-")
    at = rest[:2]
    return f"{MONTHS[int(at) - 1]} {year}" if year.isdecimal() and at.isdecimal() and 1 <= int(at) <= 12 else date


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
    """Whether a model could have seen a set's questions: by the months in which the questions were published and the model released."""
    if not published or not released:
        return ""
    one, other = published[:7], released[:7]
    if one == other:
        return f"questions public in {month(one)}, the month of this model"
    when = "before" if one < other else "after"
    return f"questions public in {month(one)}, {when} this model ({month(other)})"
