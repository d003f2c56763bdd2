"""Sentences on differences between results, and on cases."""

from __future__ import annotations

from eval_harness.store.printed import decimals
from leaderboard_space.html import count, in_words, number, plural
from leaderboard_space.sentences.headlines import SAME
from leaderboard_space.sentences.rows import corrected_for


def compared(first: str, second: str, label: str, higher_is_better: bool | None, difference: float, p: float) -> str:
    """The finding of a paired test: `difference` = first - second in points, `p` two-sided."""
    if p >= 0.05 or abs(difference) <= SAME:
        return f"{first} and {second} do not differ significantly in {in_running_text(label)}."
    word = {True: "significantly better than", False: "significantly worse than", None: "significantly above"}[
        higher_is_better
    ]
    upper, lower = (first, second) if difference > 0 else (second, first)
    return f"{upper} is {word} {lower} by {number(abs(difference))} points of {in_running_text(label)}."


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
    digits = decimals(low, high, 0.0)
    return f"{number(low, digits)} to {number(high, digits)}"


ALONE = "Not corrected for other comparisons that you may have looked at."


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
        f"{upper} scored more on {plural(one, case)}, {lower} on {count(other)}; {count(alike)} were alike. {ALONE}"
    )


def compared_unpaired(difference: float, low: float, high: float, p: float) -> str:
    """What stands under the finding of a test of two printed numbers."""
    return (
        f"Difference {number(difference)} points (95% interval {difference_interval(low, high)}; {p_value(p)}, unpaired: only the printed "
        f"scores are known, not the answers). {ALONE}"
    )


def pairs_apart(sure: int, pairs: int, label: str) -> str:
    """The finding of a comparison of more than two results."""
    many = in_words(sure).capitalize() if sure else "None"
    return f"{many} of {plural(pairs, 'pair')} {'differs' if sure < 2 else 'differ'} significantly in {in_running_text(label)}."


def pairs_tested(paired: int, unpaired: int) -> str:
    """What stands under it: how the pairs were tested."""
    parts = []
    if paired:
        parts.append(f"{plural(paired, 'pair')} on the same answers (paired)")
    if unpaired:
        parts.append(f"{plural(unpaired, 'pair')} by the scores alone (unpaired, assumed independent)")
    marks = f"Significance is {corrected_for(paired + unpaired)} (Holm)"
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
