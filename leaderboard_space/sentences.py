"""Every sentence that the board computes, each from the numbers it speaks of and nothing else, so that a test can hold it against them.

See also: where the numbers come from (`standings.py`, `findings.py`), HTML (`views/`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from eval_harness.results import Verdict
from leaderboard_space.html import count, in_words, interval, number, percent, plural, score_text

FEW = 30
"""Cases under which a number is shown in grey."""
MARK: dict[Verdict | None, str] = {"better": "▲", "no different": "≈", "worse": "▼", None: "·"}
"""The sign of a cell's test against chance, in every table that has such signs; None: nobody tested it."""
PLACES = (
    "Rank 1 is every model that may be the best. Another rank counts the models significantly ahead and significantly behind; ranks that "
    "overlap do not by themselves say that two models are tied: point at one to see."
)
"""What the column of ranks says (`ranks.Places`)."""
RANDOM_RUN = "the paper's random run"
"""What a score is compared with where exact chance is not known."""
SAME = 1e-9
"""Scores nearer than this are equal (they are rounded to ten decimals)."""


@dataclass(frozen=True)
class Ranked:
    """What a sentence knows of one row that holds ranks: `verdict` None where chance is not known, `first` the first rank it may hold."""

    name: str
    value: float
    verdict: Verdict | None
    first: int


@dataclass(frozen=True)
class Finding:
    """What the headline speaks of. `ranked`: best first. `guess`: what chance is called ("guessing"). `are_models`: every row is a model of
    its own (else they are results). `higher`: whether the first row has the highest value. `baselines`: baselines with a score;
    `uncounted`: results whose score is undefined here; `partial`: results of which only other
    selections are known; `apart`: results that are shown and not ranked with the others."""

    label: str
    guess: str
    ranked: tuple[Ranked, ...]
    are_models: bool = True
    higher: bool = True
    baselines: int = 0
    uncounted: int = 0
    partial: int = 0
    apart: int = 0
    unit: str = "percent"


@dataclass(frozen=True)
class Trust:
    """What the first sentence of the board speaks of: `models` tested against guessing in one benchmark, where they are asked to `task`;
    `better` and `worse`: how many surely are."""

    task: str
    models: int
    better: int
    worse: int
    guess: str


def trust(found: Trust | None) -> str:
    """The first sentence of the board.

    >>> trust(Trust("tell two images apart", 14, 0, 9, "a coin flip"))
    'Not yet. Of 14 models asked to tell two images apart, none is significantly better than a coin flip; nine are significantly worse.'
    """
    if found is None:
        return "No model here has been tested against guessing yet."
    if found.models == 1:
        one = {(1, 0): "is significantly better than", (0, 1): "is significantly worse than"}
        verb = one.get((found.better, found.worse), "cannot be told apart from")
        return f"The one model asked to {found.task} {verb} {found.guess}."
    if found.better == found.models:
        return f"All {in_words(found.models)} models asked to {found.task} are significantly better than {found.guess}."
    lead = "" if found.better else "Not yet. "
    many = in_words(found.better) if found.better else "none"
    verb = "is" if found.better < 2 else "are"
    said = f"{lead}Of {count(found.models)} models asked to {found.task}, {many} {verb} significantly better than {found.guess}"
    if not found.worse:
        return f"{said}."
    worse = "all" if found.worse == found.models else in_words(found.worse)
    return f"{said}; {worse} {'is' if found.worse == 1 else 'are'} significantly worse."


def by_random_run(names: Sequence[str]) -> str:
    """What guessing is in the benchmarks of which nobody knows exact chance; empty where there is none.

    >>> by_random_run(["A", "B"])
    "In A and B exact chance is not known: guessing is the paper's random run there, tested as the sample that it is. "
    """
    if not names:
        return ""
    return f"In {_listed(names)} exact chance is not known: guessing is {RANDOM_RUN} there, tested as the sample that it is. "


def topic(name: str, knowing: Sequence[str], related: Sequence[str]) -> str:
    """Who knows of a topic.

    >>> topic("CT", ["A", "B"], []), topic("Eyes", [], ["A"]), topic("Eyes", [], [])
    ('CT: what A and B know of it.', 'Eyes: no benchmark labels it; A knows something related.', 'Eyes: no benchmark here knows of it.')
    """
    if knowing:
        return f"{name}: what {_listed(knowing)} {'knows' if len(knowing) == 1 else 'know'} of it."
    if related:
        verb = "knows" if len(related) == 1 else "know"
        return f"{name}: no benchmark labels it; {_listed(related)} {verb} something related."
    return f"{name}: no benchmark here knows of it."


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def headline(found: Finding) -> str:
    """What to take away before looking at any number: how many beat chance; where nobody knows chance, who has the highest score."""
    if not found.ranked:
        return _nothing(found)
    judged = [row for row in found.ranked if row.verdict is not None]
    if judged and 2 * len(judged) >= len(found.ranked):
        return _against_chance(found, judged)
    return _extreme(found)


def _nothing(found: Finding) -> str:
    if found.uncounted:
        return f"{found.label}: nothing of this selection counts for it, or the key is hidden."
    if found.baselines:
        return "Only baselines are known for these questions."
    if found.apart:
        stands = "the one result stands" if found.apart == 1 else f"the {in_words(found.apart)} results stand"
        return f"Nothing is ranked here: {stands} apart, with the reason."
    if found.partial:
        return f"{found.label}: known of parts of this selection, not of the whole."
    return "No results for this selection."


def _against_chance(found: Finding, judged: Sequence[Ranked]) -> str:
    better, worse = (sum(row.verdict == verdict for row in judged) for verdict in ("better", "worse"))
    total, all_judged = len(judged), len(judged) == len(found.ranked)
    one, many = ("model", "models") if found.are_models else ("result", "results")
    if not all_judged:
        one, many = f"{one} compared with chance", f"{many} compared with chance"
    if total == 1:
        verdicts = {"better": "is significantly better than", "worse": "is significantly worse than"}
        verb = verdicts.get(judged[0].verdict or "", "cannot be told apart from")
        return f"{judged[0].name if all_judged else f'The one {one}'} {verb} {found.guess}."
    tail = ""
    if worse:
        tail = f"; {in_words(worse) if worse < total else 'all'} {'is' if worse == 1 else 'are'} significantly worse"
    if not better:
        return f"No {one} is significantly better than {found.guess}{tail}."
    if better == total:
        everyone = "Both" if total == 2 else f"All {in_words(total)}"
        lead = _lead(found.ranked) if all_judged else ""
        return f"{everyone} {many} are significantly better than {found.guess}{lead}."
    verb = "is" if better == 1 else "are"
    return f"{in_words(better).capitalize()} of {in_words(total)} {many} {verb} significantly better than {found.guess}{tail}."


def _lead(ranked: Sequence[Ranked]) -> str:
    """Who may hold the first rank; in words, since several often may."""
    first = [row for row in ranked if row.first == 1]
    if len(first) == 1:
        return f"; {first[0].name} alone holds rank 1"
    if len(first) < len(ranked):
        return f"; {in_words(len(first))} may hold rank 1"
    return f"; {'either' if len(ranked) == 2 else 'any'} may hold rank 1"


def _extreme(found: Finding) -> str:
    label = found.label if found.label.startswith(("FAKE", "NONE", "SWAP")) else found.label.lower()
    label += " score" if label in ("overall", "average") else ""
    extreme, best = "highest" if found.higher else "lowest", found.ranked[0]
    value = score_text(best.value, found.unit)
    if len(found.ranked) == 1:
        return f"{best.name}: {label} {value}."
    equal = [row for row in found.ranked if abs(row.value - best.value) <= SAME]
    tied = sum(row.first == 1 for row in found.ranked) - len(equal)
    many = "models" if found.are_models else "results"
    if len(equal) == len(found.ranked):
        everyone = f"Both {many}" if len(equal) == 2 else f"All {in_words(len(equal))} {many}"
        return f"{everyone} have the same {label} ({value})."
    if len(equal) == 1 and tied <= 0:
        return f"{best.name} surely has the {extreme} {label} ({value})."
    who, verb, it = best.name, "has", "it"
    if len(equal) > 1:
        who = (
            " and ".join(row.name for row in equal)
            if len(equal) == 2
            else f"{in_words(len(equal)).capitalize()} {many}"
        )
        verb, it = "share", "them"
    others = f"; {in_words(tied)} {'other' if tied == 1 else 'others'} may be as good as {it}" if tied > 0 else ""
    return f"{who} {verb} the {extreme} {label} ({value}){others}."


@dataclass(frozen=True)
class Caption:
    """What stands under the headline. `sizes`: (n, n_cases) of the rows with a score; `case`: what a case is; `where`: the selection in
    words, what all of it is in; `methods`: of the rows but baselines, as they are shown; `chances`: of the rows, None where it is not
    known; `rows`, `bars`: how many rows have a score, and how many of them an interval. `chance_is_drawn`: every level of chance is a
    paper's run of random answers, a sample."""

    label: str
    description: str
    case: str
    sizes: frozenset[tuple[int, int]]
    where: tuple[str, ...]
    methods: tuple[str, ...]
    chances: frozenset[float | None]
    rows: int
    bars: int
    lower_is_better: bool
    chance_is_drawn: bool = False


def caption(said: Caption) -> str:
    """What the score is, of how many, of what, and what the marks of the chart are."""
    description = said.description[:1].lower() + said.description[1:]
    parts = [f"{said.label}: {description}" if description else f"{said.label}."]
    if len(said.sizes) == 1:
        n, n_cases = next(iter(said.sizes))
        if n == n_cases:
            parts.append(f"n = {plural(n, said.case)}.")
        elif n_cases:
            parts.append(f"n = {count(n)} from {plural(n_cases, said.case)}.")
    where = [f"({one})" if " or " in one and len(said.where) > 1 else one for one in said.where]
    parts.append(f"Only {' and '.join(where)}." if where else "Everything selected.")
    if len(said.methods) == 1:
        parts.append(f"Method: {said.methods[0]}.")
    if said.rows:
        parts.append(f"{_chart(said)}.")
    if said.lower_is_better:
        parts.append("Lower is better.")
    return " ".join(parts)


def _chart(said: Caption) -> str:
    bars = ", bars 95% intervals" + (" where one is known" if said.bars < said.rows else "") if said.bars else ""
    known = {chance for chance in said.chances if chance is not None}
    where = " where it is known" if None in said.chances else ""
    line = ""
    if known and said.chance_is_drawn:
        line = f", the dashed line is the paper's own random run (a sample of guessing){where}"
    elif len(known) == 1:
        line = f", the dashed line is chance ({percent_of_chance(next(iter(known)))}){where}"
    elif known:
        line = f", the dashed line is each row's chance{where}"
    return f"Dots are scores{bars}{line}"


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
        "no different": "cannot be told apart from guessing",
        "worse": "significantly worse than guessing",
        None: "not tested (no exact chance is known)",
    }
    lines = [f"{MARK[verdict]} {said}" for verdict, said in meaning.items() if verdict in seen]
    if set(seen) - {None}:
        lines.append("each cell is tested by itself, at 95%")
    return [*lines, *([f"italic grey: fewer than {FEW} cases"] if few else [])]


SHADES = "Teal lies on the better side of guessing, orange on the worse: the stronger, the further, full at 50 points"


def behind(low: float | None, high: float | None, n: int, n_cases: int) -> str:
    """What a number rests on, as its tooltip says it."""
    said = f"n {count(n)}, {plural(n_cases, 'case')}" if n_cases else "n not known"
    return (
        f"95% interval {interval(low, high)}, {said}"
        if low is not None and high is not None
        else f"no interval, {said}"
    )


def left_out(dropped: int) -> str:
    """Columns for which a table has no room."""
    if not dropped:
        return ""
    which = "The smallest column is" if dropped == 1 else f"The {count(dropped)} smallest columns are"
    return f"{which} left out; the files hold them all."


def not_ranked(models: int, published: bool, below: bool) -> str:
    """Models that the selection says nothing of. `published`: nothing but papers' numbers is known of them; `below`: some of those are
    printed for one of the selected branches, and stand in a table of their own."""
    them = "it" if models == 1 else "them"
    why = (
        f"only published numbers are known of {them}, and no finer answers."
        if published
        else f"this score is not known of {them} for this selection."
    )
    tail = " Cells that are exactly one of the selected branches stand below." if below else ""
    return f"{plural(models, 'model')} not ranked here: {why}{tail}"


def as_printed(published: int, handed_in: int) -> str:
    """Rows of a selection that were not computed from answers: papers' cells, and cells of results whose answers cannot be read."""
    parts = []
    if published:
        parts.append("Published cells are shown as printed; no finer answers are known of them.")
    if handed_in:
        parts.append(f"{plural(handed_in, 'result')} shown with the cell as handed in: no answers are at hand.")
    return " ".join(parts)


def compared(first: str, second: str, label: str, higher_is_better: bool | None, difference: float, p: float) -> str:
    """The finding of a paired test: `difference` = first - second in points, `p` two-sided."""
    if p >= 0.05 or abs(difference) <= SAME:
        return f"{first} and {second} cannot be told apart by {label.lower()}."
    word = {True: "significantly better than", False: "significantly worse than", None: "significantly above"}[
        higher_is_better
    ]
    upper, lower = (first, second) if difference > 0 else (second, first)
    return f"{upper} is {word} {lower}: {number(abs(difference))} points of {label.lower()}."


def compared_in_full(
    difference: float, low: float, high: float, p: float, method: str, n: int, only_a: int, only_b: int
) -> str:
    """What stands under the finding of a paired test."""
    alike = n - only_a - only_b
    return (
        f"Difference {number(difference)} points, 95% interval {number(low)} to {number(high)}, {p_value(p)} ({method}). "
        f"Of {plural(n, 'scored unit')}, {count(only_a)} {_was(only_a)} won by the first alone and {count(only_b)} by the second alone; "
        f"{count(alike)} ended alike. The p-value is of this one comparison, "
        "chosen by you: not corrected for others you may have looked at."
    )


def _was(value: int) -> str:
    return "was" if value == 1 else "were"


def cases_found(cases: int, searched: bool) -> str:
    """How many cases a page of them has."""
    if not searched:
        return f"{plural(cases, 'case')}."
    return f"{plural(cases, 'case')} {'matches' if cases == 1 else 'match'}."


def ranks_pending(name: str, label: str, higher: bool, value: float, models: int) -> str:
    """What heads a table of hundreds of models while their ranks are computed.

    >>> ranks_pending("A", "Accuracy", True, 54.04, 500)
    'A has the highest accuracy of 500 results (54.0); which differences are significant is being computed.'
    """
    end = "highest" if higher else "lowest"
    return (
        f"{name} has the {end} {label.lower()} of {plural(models, 'result')} ({number(value)}); "
        "which differences are significant is being computed."
    )


def place_in_words(ahead: int, behind: int, tied: int, may_lead: bool) -> str:
    """What a row's ranks stand for: how many of the others are significantly ahead, significantly behind, and not told apart from it."""
    lead = "may be the best" if may_lead else "not the best"
    others = f"{count(ahead)} significantly ahead, {count(behind)} significantly behind, {count(tied)} not told apart from it"
    return f"{lead}; of the others {others}"


def beside(abstained: float | None, answered_accuracy: float | None) -> str:
    """How much of a score rests on answers: what stands beside it."""
    parts = [] if abstained is None else [f"abstained {percent(abstained)}%"]
    if answered_accuracy is not None:
        parts.append(f"accuracy where answered {percent(answered_accuracy)}%")
    return ", ".join(parts)


MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip


def month(date: str) -> str:
    """The month of a date YYYY-MM or YYYY-MM-DD in words; what is no such date stays as it is.

    >>> month("2024-05"), month("2024-08-06"), month("soon")
    ('May 2024', 'August 2024', 'soon')
    """
    year, _, rest = date.partition("-")
    at = rest[:2]
    return f"{MONTHS[int(at) - 1]} {year}" if year.isdecimal() and at.isdecimal() and 1 <= int(at) <= 12 else date


def model_verdicts(judged: Sequence[tuple[str, Verdict | None, bool]]) -> str:
    """What is to be known of a model at once: the verdict in each benchmark, named. `judged`: (benchmark, verdict of its first score,
    whether that is against the paper's random run).

    >>> model_verdicts([("A", "better", False), ("B", "better", True), ("C", None, False)])
    "Significantly better than guessing on A and B (there the paper's random run); not tested on C, where chance is not known."
    """
    if not judged:
        return "No ranked result of it is on this board."
    words: dict[Verdict | None, str] = {
        "better": "Significantly better than guessing on",
        "no different": "not told apart from guessing on",
        "worse": "significantly worse than guessing on",
        None: "not tested on",
    }
    parts = [
        f"{said} {_listed([f'{name} (there {RANDOM_RUN})' if drawn else name for name, found, drawn in judged if found == verdict])}"
        + ("" if verdict else ", where chance is not known")
        for verdict, said in words.items()
        if any(found == verdict for _, found, _ in judged)
    ]
    line = "; ".join(parts)
    return f"{line[0].upper()}{line[1:]}."


def in_short(verdict: Verdict | None, guess: str, chance: float | None) -> str:
    """A verdict in a table's cell, with what guessing gets. `guess`: RANDOM_RUN, or what exact chance is called."""
    level = "" if chance is None else f" ({percent_of_chance(chance)})"
    words: dict[Verdict | None, str] = {
        "better": f"significantly better than {guess}{level}",
        "no different": f"not told apart from {guess}{level}",
        "worse": f"significantly worse than {guess}{level}",
    }
    return words.get(verdict, "not tested" + (f"; {RANDOM_RUN} got {number(chance)}" if chance is not None else ""))


def exposure(published: str | None, released: str | None) -> str:
    """Whether a model could have seen a set's questions: by the months in which the questions were published and the model released."""
    if not published or not released:
        return ""
    one, other = published[:7], released[:7]
    if one == other:
        return f"questions public in {month(one)}, the month of this model"
    when = "before" if one < other else "after"
    return f"questions public in {month(one)}, {when} this model ({month(other)})"


def ends(facet: str, label: str, known: int, left_out: int, against_chance: bool) -> str:
    """What stands under the weakest and strongest values of a facet."""
    order = "score minus what guessing gets" if against_chance else "score"
    rest = ""
    if left_out:
        rest = f" {plural(left_out, 'other')} with fewer than {FEW} cases {'is' if left_out == 1 else 'are'} left out."
    return (
        f"{label}: the ends of {count(known)} by {order}.{rest} The ends of many look further apart than they are: "
        "each interval stands for itself."
    )


def shown_cases(show: str, counted: int) -> str:
    """What a list of cases holds, by how many results (no baselines, none withdrawn)."""
    who = f"the {plural(counted, 'result')}"
    if show == "wrong":
        return f"Of each, none of {who} scored anything." if counted != 1 else "Of each, the 1 result scored nothing."
    return f"Of each, {who}{' together' if counted != 1 else ''} scored between a third and two thirds."


def case_result(right: int, wrong: int, scored: int) -> str:
    """How many results got a case right. `right`: all of it; `wrong`: nothing of it."""
    if not scored:
        return "Nobody is scored on this case."
    parts = [f"{count(right)} of {plural(scored, 'result')} scored this case in full"]
    between = scored - right - wrong
    if between:
        parts.append(f"{count(between)} a part of it")
    return f"{', '.join(parts)}."


def p_value(p: float) -> str:
    """A p-value with three digits.

    >>> p_value(0.0004), p_value(0.0495), p_value(1.0)
    ('p < 0.001', 'p = 0.050 (under 0.05)', 'p = 1.000')
    """
    if p < 0.001:
        return "p < 0.001"
    shown = f"p = {p:.3f}"
    return f"{shown} (under 0.05)" if p < 0.05 and shown == "p = 0.050" else shown


def compared_unpaired(difference: float, low: float, high: float, p: float) -> str:
    """What stands under the finding of a test of two printed numbers."""
    return (
        f"Difference {number(difference)} points, 95% interval {number(low)} to {number(high)}, {p_value(p)} (unpaired: only the numbers "
        "are known, and they are taken as independent, each pulled in by one right and one wrong case). Answers to the same questions "
        "would tell more apart. The p-value is of this one comparison, chosen by you: not corrected for others you may have looked at."
    )


def pairs_apart(sure: int, pairs: int, label: str) -> str:
    """The finding of a comparison of more than two results."""
    if not sure:
        return f"None of {plural(pairs, 'pair')} can be told apart by {label.lower()}."
    if sure == pairs:
        every = "The one pair is" if pairs == 1 else f"All {in_words(pairs)} pairs are"
        return f"{every} told apart by {label.lower()}."
    return f"{in_words(sure).capitalize()} of {plural(pairs, 'pair')} {'is' if sure == 1 else 'are'} told apart by {label.lower()}."


def pairs_tested(paired: int, unpaired: int) -> str:
    """What stands under it: how the pairs were tested."""
    parts = []
    if paired:
        parts.append(f"{plural(paired, 'pair')} on the same answers (paired)")
    if unpaired:
        parts.append(f"{plural(unpaired, 'pair')} by the numbers alone (unpaired, taken as independent)")
    return f"Tested: {' and '.join(parts)}. Holm's correction for all of them; those told apart stand first, the largest difference first."


def flips(first: str, second: str, units: int, cases: int, shown: int) -> str:
    """What stands over the cases that two results differ on."""
    line = f"{first} and {second} differ on {plural(units, 'scored unit')} in {plural(cases, 'case')}"
    if shown < cases:
        line += f"; the first {count(shown)} are drawn, the files hold all"
    return f"{line}. After each option stands who chose it."
