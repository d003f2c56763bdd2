"""Sentences on differences, on one result and on cases, and captions of tables and charts: each from the numbers it speaks of and nothing
else, so that a test can hold it against them.

See also: what heads a page (`headlines.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from eval_harness.derive.metrics import untested_reason
from eval_harness.records.result import Result, Score, Verdict
from eval_harness.scores.nonresponse import NONRESPONSE_STATUSES
from eval_harness.scores.sight import Sight
from eval_harness.store.formatting import format_image_points, interval_decimals
from leaderboard_space.benchmarks import spec
from leaderboard_space.data.ranks.standings import info_of
from leaderboard_space.data.store.sections import Section
from leaderboard_space.html import count, in_words, interval, number, plural, score_text

SAME = 1e-9
"""Scores nearer than this are equal (they are rounded to ten decimals)."""
RANDOM_RUN = "the paper's random run"
"""What a score is compared with where exact chance is not known."""
FEW = 30
"""Cases under which a number is shown in grey."""
MARK: dict[Verdict | None, str] = {"better": "▲", "no different": "≈", "worse": "▼", None: "·"}
"""The sign of a cell's test against chance, in every table that has such signs; None: not tested."""


def mark(score: Score) -> str:
    """The sign of a score's test against chance; none for a score of too few independent cases, which says so in words."""
    return "" if score.is_small else MARK[score.verdict]


def too_few(score: Score, case: str) -> str:
    """What stands in a cell instead of such a sign."""
    return f"too few independent {case}s" if score.is_small else ""


RANKS = "Rank 1 is shared by every model that none significantly beats; click a rank to see why."
"""What the column of ranks says (`ranks.RankRanges`)."""
SHADES = "Teal: better side of guessing; orange: worse side. The stronger the colour, the larger the difference, up to 50 points"


def listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


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
    worth = f" (worth {count(score.independent_n)} independent)" if score.independent_n is not None else ""
    return f"n {count(score.n)}{worth}, {plural(score.n_cases, 'case')}" if score.n_cases else "n not known"


def behind(score: Score) -> str:
    """What a number rests on, as its tooltip says it."""
    said = behind_n(score)
    if score.low is None or score.high is None:
        return f"no interval, {said}"
    return f"95% interval {interval(score)}, {said}"


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


def ranks_in_words(first: int, last: int, ahead: int, behind: int, tied: int) -> str:
    """What a row's ranks stand for: how many others are significantly better, significantly worse, and neither (`ranks.RankRanges`).

    >>> ranks_in_words(1, 2, 0, 0, 1)
    'Rank 1 to 2: no model is significantly better; 1 model is not significantly different.'
    """
    models = ahead + behind + tied + 1
    ranks = f"Rank {first}" if first == last else f"Rank {first} to {last}"
    parts = [_so_many(ahead, "significantly better")]
    parts += [
        _so_many(n, said) for n, said in ((behind, "significantly worse"), (tied, "not significantly different")) if n
    ]
    corrected = f" ({corrected_for(0, models)})" if models > 2 else ""
    return f"{ranks}: {'; '.join(parts)}{corrected}."


def _so_many(models: int, said: str) -> str:
    return f"{plural(models, 'model') if models else 'no model'} {'are' if models > 1 else 'is'} {said}"


def corrected_for(tests: int, models: int = 0) -> str:
    """That a significance is corrected: for the ranking of so many models, or for several tests.

    >>> corrected_for(15), corrected_for(1), corrected_for(3, 14)
    ('corrected for 15 comparisons', 'one comparison, not corrected', 'corrected for the ranking of 14 models')
    """
    if models:
        return f"corrected for the ranking of {plural(models, 'model')}"
    return f"corrected for {count(tests)} comparisons" if tests > 1 else "one comparison, not corrected"


def each_alone(tests: int) -> str:
    """What marks of many scores do not say: that each is tested by itself, so that some are chance.

    >>> each_alone(84), each_alone(6)
    ('Each score is tested by itself: if all 84 were guesses, about 4 would be marked.', 'Each score is tested by itself.')
    """
    chance = round(tests / 20)
    many = f": if all {count(tests)} were guesses, about {count(chance)} would be marked" if chance else ""
    return f"Each score is tested by itself{many}."


def shown_instead(section: Section, wanted: str, metric: str) -> str:
    """Why a selection of a set of questions shows another score than the one that is wanted, or the headline."""
    labels = (info_of(name, section.family).label for name in (wanted, metric))
    printed = all(entry.result.kind == "published" for entry in section.entries)
    why = "the papers do not print it, and no answers are known" if printed else "no result has it"
    return f"{next(labels)} is not known for this selection ({why}): {next(labels)} is shown."


def points(found: Sight) -> str:
    """The points of a score that come from the image, with their interval, which is never rounded across 0."""
    digits = interval_decimals(found.low, found.high, 0.0, 0)
    return f"{found.value:.{digits}f} ({found.low:.{digits}f} to {found.high:.{digits}f})"


def from_the_image(questions: str, found: Sight) -> str:
    """What a model's score on a set of questions owes to the image."""
    return f"{questions}: {format_image_points(found.score, found.value, found.low, found.high)}"


def beside(abstained: float | None, answered_accuracy: float | None, ends: Sequence[int] = ()) -> str:
    """How much of a score rests on answers: what stands beside it. `ends`: how the responses ended (`nonresponse.COUNTS`).

    >>> beside(25.0, 80.0, (28, 5, 1, 0, 0)), beside(0.0, None)
    ('abstained 25.0% (7 of 28: 5 cut off, 1 failed, 1 refused), accuracy where answered 80.0%', 'abstained 0.0%')
    """
    parts = []
    if abstained is not None:
        parts.append(
            f"abstained {score_text(abstained)}%{_by_reason(round(abstained * ends[0] / 100), ends) if ends else ''}"
        )
    if answered_accuracy is not None:
        parts.append(f"accuracy where answered {score_text(answered_accuracy)}%")
    return ", ".join(parts)


ENDS = {"truncated": "cut off", "failed": "failed", "missing": "missing", "irrelevant": "unreadable"}
"""How a response that says nothing is called in a list of reasons."""


def _by_reason(abstained: int, ends: Sequence[int]) -> str:
    responses, *silent = ends
    counts = [(number, ENDS[reason]) for reason, number in zip(NONRESPONSE_STATUSES, silent, strict=True)]
    counts.append((abstained - sum(silent), "refused"))
    told = ", ".join(f"{count(number)} {said}" for number, said in counts if number)
    return f" ({count(abstained)} of {count(responses)}: {told})" if told else ""


def no_score(score: Score, result: Result) -> str:
    """Why a score has no verdict and no rank, and perhaps no value; empty where it may have them."""
    why = untested_reason(score, result, spec(result.benchmark.family).case)
    lead = "" if score.nonresponse is None else "no score: " if score.value is None else "no verdict: "
    return f"{lead}{why}"


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


def compared(
    first: str, second: str, label: str, higher_is_better: bool | None, difference: float, p: float, corrected: float
) -> str:
    """The finding of a test of two results: `difference` = first - second in points; `p` two-sided, `corrected` for the comparisons of the
    ranking, whose word is the finding's."""
    if p >= 0.05 or abs(difference) <= SAME:
        return f"{first} and {second} do not differ significantly in {in_running_text(label)}."
    word = {True: "better than", False: "worse than", None: "above"}[higher_is_better]
    upper, lower = (first, second) if difference > 0 else (second, first)
    sure, alone = ("significantly ", "") if corrected < 0.05 else ("", ", but not significantly in the ranking")
    return f"{upper} is {sure}{word} {lower} by {number(abs(difference))} points of {in_running_text(label)}{alone}."


def in_running_text(label: str) -> str:
    """A score's name within a sentence.

    >>> in_running_text("Wrong image: picks “I do not know”")
    'wrong image: picks “I do not know”'
    """
    return label[:1].lower() + label[1:]


EXAMPLE = "Example pair. Choose your own above."
"""What is said of two results that the reader did not name."""


def difference_interval(low: float, high: float) -> str:
    """The ends of the interval of a difference, neither rounded to the other side of 0.

    >>> difference_interval(-0.3, 5.14), difference_interval(0.03, 5.14)
    ('−0.3 to 5.1', '0.03 to 5.14')
    """
    digits = interval_decimals(low, high, 0.0)
    return f"{number(low, digits)} to {number(high, digits)}"


def in_the_ranking(corrected: float, models: int) -> str:
    """What the leaderboard's correction makes of a pair's p-value; `models`: how many it ranks (0: not these two together).

    >>> in_the_ranking(0.3, 14)
    'Corrected for the ranking of 14 models: p = 0.300, not significant.'
    """
    if models == 0:
        return "Not corrected for other comparisons that you may have looked at."
    word = "significant" if corrected < 0.05 else "not significant"
    return f"{corrected_for(0, models).capitalize()}: {p_value(corrected)}, {word}."


def compared_in_full(
    upper: str,
    lower: str,
    difference: float,
    low: float,
    high: float,
    p: float,
    method: str,
    alone: tuple[int, int, int],
    case: str,
) -> str:
    """What stands under the finding of a paired test. `upper` is `difference` points above `lower`; `alone`: on how many units the one
    scored more, the other did, and both did alike."""
    one, other, alike = alone
    return (
        f"Difference {number(difference)} points (95% interval {difference_interval(low, high)}; {p_value(p)}, {method}). "
        f"{upper} scored more on {plural(one, case)}, {lower} on {count(other)}; {count(alike)} were alike."
    )


def compared_unpaired(difference: float, low: float, high: float, p: float) -> str:
    """What stands under the finding of a test of two printed numbers."""
    return (
        f"Difference {number(difference)} points (95% interval {difference_interval(low, high)}; {p_value(p)}, unpaired: only the printed "
        f"scores are known, not the answers)."
    )


def pairs_apart(sure: int, pairs: int, label: str) -> str:
    """The finding of a comparison of more than two results."""
    many = in_words(sure).capitalize() if sure else "None"
    return f"{many} of {plural(pairs, 'pair')} {'differs' if sure < 2 else 'differ'} significantly in {in_running_text(label)}."


def pairs_tested(paired: int, unpaired: int, models: int) -> str:
    """What stands under it: how the pairs were tested, and what they are corrected for (`models`: a ranking of so many)."""
    parts = []
    if paired:
        parts.append(f"{plural(paired, 'pair')} on the same answers (paired)")
    if unpaired:
        parts.append(f"{plural(unpaired, 'pair')} by the scores alone (unpaired, assumed independent)")
    marks = f"Significance is {corrected_for(paired + unpaired, models)}"
    return f"Tested: {' and '.join(parts)}. {marks}; intervals and the p-values beside them are not corrected."


def p_value(p: float) -> str:
    """A p-value with three digits.

    >>> p_value(0.0004), p_value(0.0495), p_value(1.0)
    ('p < 0.001', 'p = 0.050 (under 0.05)', 'p = 1.000')
    """
    if p < 0.001:
        return "p < 0.001"
    shown = f"p = {p:.3f}"
    return f"{shown} (under 0.05)" if p < 0.05 and shown == "p = 0.050" else shown


FIRST_SAMPLE = "Of results with several samples per question, the first is shown."
"""What is said where answers are shown, and some are not."""


def flips(first: str, second: str, units: int, cases: int, shown: int) -> str:
    """What stands over the cases that two results differ on."""
    line = f"{first} and {second} differ on {plural(units, 'scored unit')} in {plural(cases, 'case')}"
    if shown < cases:
        line += f"; the first {count(shown)} are shown, the saved files contain all"
    return f"{line}. Each option is followed by the results that chose it."


def cases_found(cases: int, searched: bool) -> str:
    """How many cases a page of them has."""
    if not searched:
        return f"{plural(cases, 'case')}."
    return f"{plural(cases, 'case')} {'matches' if cases == 1 else 'match'}."


def case_result(right: int, wrong: int, scored: int) -> str:
    """How many results got a case right. `right`: all of it; `wrong`: nothing of it."""
    if not scored:
        return "No result is scored on this case."
    parts = [f"{count(right)} of {plural(scored, 'result')} scored this case in full"]
    between = scored - right - wrong
    if between:
        parts.append(f"{count(between)} in part")
    return f"{', '.join(parts)}."
