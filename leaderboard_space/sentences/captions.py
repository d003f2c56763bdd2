"""Captions of headlines, tables and charts: of how many, of what, and what the marks mean."""

from __future__ import annotations

from collections.abc import Collection

from eval_harness.records.result import Score, Verdict
from leaderboard_space.html import count, interval, number, plural

FEW = 30
"""Cases under which a number is shown in grey."""
MARK: dict[Verdict | None, str] = {"better": "▲", "no different": "≈", "worse": "▼", None: "·"}
"""The sign of a cell's test against chance, in every table that has such signs; None: not tested."""
RANKS = "Rank 1 is shared by every model that may be the best; click a rank to see why."
"""What the column of ranks says (`ranks.RankRanges`)."""
SHADES = "Teal: better side of guessing; orange: worse side. The stronger the colour, the larger the difference, up to 50 points"


def percent_of_chance(value: float) -> str:
    """A level of chance with one digit, none where it is whole.

    >>> percent_of_chance(25.0), percent_of_chance(22.760196)
    ('25%', '22.8%')
    """
    return f"{number(value).removesuffix('.0')}%"


def legend_of_marks(seen: Collection[Verdict | None], few: bool) -> list[str]:
    """What the signs of a table mean: those that stand in it, and no others. `few`: whether a cell is grey for its few cases."""
    meaning: dict[Verdict | None, str] = {
        "better": "significantly better than guessing",
        "no different": "not significantly different from guessing",
        "worse": "significantly worse than guessing",
        None: "not tested (chance or n is not known, most answers say nothing, or neither end is the better one)",
    }
    lines = [f"{MARK[verdict]} {said}" for verdict, said in meaning.items() if verdict in seen]
    if set(seen) - {None}:
        lines.append("each cell is tested separately, at 95%")
    return [*lines, *([f"italic grey: fewer than {FEW} cases, or not known how many"] if few else [])]


def behind_n(score: Score) -> str:
    """What a number divides by, how many independent ones that is worth, and of how many cases."""
    worth = f" (worth {count(score.worth)} independent)" if score.worth is not None else ""
    return f"n {count(score.n)}{worth}, {plural(score.n_cases, 'case')}" if score.n_cases else "n not known"


def behind(score: Score) -> str:
    """What a number rests on, as its tooltip says it."""
    said = behind_n(score)
    if score.low is None or score.high is None:
        return f"no interval, {said}"
    return f"95% interval {interval(score.low, score.high, score.chance)}, {said}"


def not_ranked(models: int, published: bool, below: bool) -> str:
    """Models that the selection says nothing of. `published`: nothing but papers' numbers is known of them; `below`: some of those are
    printed for one of the selected branches, and stand in a table of their own."""
    them = "it" if models == 1 else "them"
    why = (
        f"only published numbers are known for {them}, not the underlying answers."
        if published
        else f"this score is not known for {them} in this selection."
    )
    tail = " Cells for exactly one of the selected branches are listed below." if below else ""
    return f"{plural(models, 'model')} not ranked here: {why}{tail}"


def as_printed(published: int, handed_in: int) -> str:
    """Rows of a selection that were not computed from answers: papers' cells, and cells of results whose answers cannot be read."""
    parts = []
    if published:
        parts.append("Published cells are shown as printed; the underlying answers are not known.")
    if handed_in:
        parts.append(f"{plural(handed_in, 'result')} shown with the submitted cell: the answers are not available.")
    return " ".join(parts)


def ends(label: str, known: int, left_out: int, against_chance: bool) -> str:
    """What stands under the weakest and strongest values of a facet."""
    order = "score minus what guessing gets" if against_chance else "score"
    rest = ""
    if left_out:
        rest = f" {plural(left_out, 'other')} with fewer than {FEW} cases {'is' if left_out == 1 else 'are'} left out."
    return (
        f"{label}: the lowest and highest of {count(known)} by {order}.{rest} Extremes of many values look further apart than they are: "
        "each interval holds for its own value only."
    )
