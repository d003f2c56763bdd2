"""The sentences that head a page, from the numbers they speak of and nothing else: who scores highest, who may be as good, how many beat
guessing; and what stands above a table of standings, from its rows.

See also: sentences on single numbers (`sentences.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eval_harness.derive.metrics import HEADLINE_METRICS
from eval_harness.records.result import Score, Verdict
from leaderboard_space.benchmarks import spec
from leaderboard_space.data.published_results import is_random_run
from leaderboard_space.data.ranks.groups import display_names
from leaderboard_space.data.ranks.standings import Row, Standings, info_of, shown_method
from leaderboard_space.data.tree import TreePath, selection_name
from leaderboard_space.html import count, in_words, plural, score_text
from leaderboard_space.sentences import RANDOM_RUN, SAME, listed, percent_of_chance

NAMED = 3
"""Models that a sentence names; of more it says how many."""


@dataclass(frozen=True)
class Ranked:
    """What a sentence knows of one row that holds ranks: `verdict` None where chance is not known, `first` the first rank it may hold
    (0: it holds none)."""

    name: str
    value: float
    verdict: Verdict | None
    first: int


@dataclass(frozen=True)
class HeadlineFacts:
    """What the headline speaks of. `ranked`: best first. `about`: the score where the sentence has to name it, empty for a benchmark's own.
    `guess`: what chance is called ("guessing"). `are_models`: every row is a model of its own (else they are results). `higher`: whether
    the first row has the highest value. `baselines`: baselines with a score; `uncounted`: results whose score is undefined here;
    `small`: models of which too few independent cases are known;
    `partial`: results of which only other selections are known; `apart`: results that are shown and not ranked with the others."""

    about: str
    guess: str
    ranked: tuple[Ranked, ...]
    are_models: bool = True
    higher: bool = True
    baselines: int = 0
    uncounted: int = 0
    small: int = 0
    partial: int = 0
    apart: int = 0
    case: str = "case"
    unit: str = "percent"


@dataclass(frozen=True)
class Trust:
    """What the first sentence of the board speaks of: `models` tested against guessing in one benchmark, where they are asked to `task`;
    `better` and `worse`: how many significantly are."""

    task: str
    models: int
    better: int
    worse: int
    guess: str


def trust(found: Trust | None) -> str:
    """The first sentence of the board.

    >>> trust(Trust("tell two images apart", 14, 0, 9, "a coin flip"))
    'Not yet. Of 14 models asked to tell two images apart, none beats a coin flip; nine do worse.'
    """
    if found is None:
        return "No model here has been tested against guessing yet."
    asked = f"asked to {found.task}"
    if found.models == 1:
        verb = "beats" if found.better else "does worse than" if found.worse else "does not beat"
        return f"The one model {asked} {verb} {found.guess}."
    if found.better == found.models:
        return f"All {in_words(found.models)} models {asked} beat {found.guess}."
    many = in_words(found.better) if found.better else "none"
    said = f"Of {count(found.models)} models {asked}, {many} beat{'s' if found.better < 2 else ''} {found.guess}"
    return f"{'' if found.better else 'Not yet. '}{said}{_worse(found.worse, found.models)}."


def _worse(worse: int, of: int) -> str:
    """How many do worse than guessing, as the end of a sentence on how many beat it."""
    said = "all" if worse == of else in_words(worse)
    return f"; {said} {'does' if worse == 1 else 'do'} worse" if worse else ""


def headline(found: HeadlineFacts) -> str:
    """What to take away before looking at any number: who scores highest, who may be as good, how many beat guessing."""
    said = (
        _nothing(found)
        if not found.ranked
        else " ".join(part for part in (_leader(found), _against_chance(found)) if part)
    )
    return f"{found.about}. {said}" if found.about else said


def _nothing(found: HeadlineFacts) -> str:
    if found.uncounted and not found.baselines:
        return "The answer key of these questions is hidden, or none of them counts towards this score."
    if found.small:
        return f"Too few independent {found.case}s to compare the {plural(found.small, 'model')} here."
    if found.baselines:
        return "Only baselines have this score here."
    if found.apart:
        return f"Nothing is ranked here: {plural(found.apart, 'result')} below, with the reason."
    if found.partial:
        return "Known for parts of this selection, not for all of it."
    return "No results for this selection."


def _leader(found: HeadlineFacts) -> str:
    """Who has the best score, and who else may be the best."""
    best = found.ranked[0]
    value = score_text(best.value, found.unit) + ("%" if found.unit == "percent" else "")
    if len(found.ranked) == 1:
        return f"{best.name} scores {value}."
    many = "models" if found.are_models else "results"
    equal = [row for row in found.ranked if abs(row.value - best.value) <= SAME]
    end = "highest" if found.higher else "lowest"
    if len(equal) == len(found.ranked):
        return f"{'Both' if len(equal) == 2 else f'All {in_words(len(equal))}'} {many} score {value}."
    who = _few([row.name for row in equal], many)
    who = who if equal[0].name in who else who.capitalize()  # a model's name stays as it is
    lead = f"{who} {'scores' if len(equal) == 1 else 'score'} {end} ({value})"
    rivals = [row.name for row in found.ranked if row.first == 1 and row not in equal]
    return f"{lead}; {_few(rivals, 'others')} may be as good." if rivals else f"{lead}."


def _few(names: Sequence[str], many: str) -> str:
    return listed(names) if len(names) <= NAMED and len(set(names)) == len(names) else f"{in_words(len(names))} {many}"


def _against_chance(found: HeadlineFacts) -> str:
    """How many beat guessing; nothing where that is not known of most."""
    judged = [row for row in found.ranked if row.verdict is not None]
    if 2 * len(judged) < len(found.ranked):
        return ""
    better, worse = (sum(row.verdict == verdict for row in judged) for verdict in ("better", "worse"))
    total, many = len(judged), "models" if found.are_models else "results"
    if total == 1:
        words = {"better": "It beats", "worse": "It does worse than"}
        return f"{words.get(judged[0].verdict or '', 'It does not beat')} {found.guess}."
    if better == total:
        return f"{'Both' if total == 2 else 'All'} beat {found.guess}."
    lead = f"{in_words(better).capitalize()} of {in_words(total)} {many} beat{'s' if better == 1 else ''} {found.guess}"
    if not better:
        lead = f"{'Neither' if total == 2 else 'None'} beats {found.guess}"
    return f"{lead}{_worse(worse, total)}."


def nothing_together(names: Sequence[str], labelled: bool, unprinted: Sequence[str] = ()) -> str:
    """Why a selection of several facets has no result. `labelled`: the questions are known, and none has all of the labels; `unprinted`:
    facets by which the paper prints no scores.

    >>> nothing_together(["Ophthalmology", "Microscopy"], True)
    'No question is labelled both Ophthalmology and Microscopy.'
    >>> nothing_together(["Ophthalmology", "Disease Diagnosis"], False)
    'The paper reports Ophthalmology and Disease Diagnosis separately.'
    >>> nothing_together(["Ophthalmology", "MRI"], False, ["Modality"])
    'The paper prints no scores by modality, so none for Ophthalmology and MRI together.'
    >>> nothing_together(["MRI"], False, ["Modality"])
    'The paper prints no scores by modality; measured results will have them.'
    """
    if unprinted:
        tail = f", so none for {listed(names)} together" if len(names) > 1 else "; measured results will have them"
        return f"The paper prints no scores by {listed(unprinted).lower()}{tail}."
    both = "both " if len(names) == 2 else ""
    return (
        f"No question is labelled {both}{listed(names)}."
        if labelled
        else f"The paper reports {listed(names)} separately."
    )


def by_aspect(label: str, aspects: Sequence[tuple[str, Sequence[Ranked]]]) -> str:
    """The headline of a label that is scored in several aspects. `aspects`: what a model does to earn the score ("says where"), and the
    ranked models of it, best first.

    >>> poor, good = Ranked("A", 25.0, "worse", 1), Ranked("B", 78.6, "better", 1)
    >>> by_aspect("Brain MRI", [("says what is wrong", [poor]), ("says where", [poor])])
    'On brain MRI, no model says what is wrong or says where better than guessing.'
    >>> by_aspect("Brain MRI", [("says where", [poor]), ("sees that something is wrong", [good])])
    'On brain MRI, no model says where better than guessing. B sees that something is wrong most often (78.6%).'
    """
    judged = [(does, rows) for does, rows in aspects if any(row.verdict is not None for row in rows)]
    none_better = [does for does, rows in judged if not any(row.verdict == "better" for row in rows)]
    parts = [f"no model {' or '.join(none_better)} better than guessing"] if none_better else []
    for does, rows in aspects:
        if rows and does not in none_better:
            best, rivals = rows[0], [row.name for row in rows[1:] if row.first == 1]
            also = f"; {_few(rivals, 'others')} may be as good" if rivals else ""
            parts.append(f"{best.name} {does} most often ({score_text(best.value)}%{also})")
    if not parts:
        return f"{label}: too few independent cases to compare models."
    return f"On {_in_small_letters(label)}, {'. '.join(parts)}."


def _in_small_letters(label: str) -> str:
    """A label within a sentence, but for its abbreviations.

    >>> _in_small_letters("Nuclear Medicine"), _in_small_letters("Chest X-ray"), _in_small_letters("Brain MRI")
    ('nuclear medicine', 'chest X-ray', 'brain MRI')
    """
    return " ".join(word.lower() if word.isalpha() and word == word.capitalize() else word for word in label.split(" "))


def model_verdicts(name: str, judged: Sequence[tuple[str, Verdict | None]]) -> str:
    """What is to be known of a model at once: the verdict in each benchmark, named. `judged`: (benchmark, verdict of its first score).

    >>> model_verdicts("M", [("A", "better"), ("B", "better"), ("C", None)])
    'M beats guessing on A and B; is not tested on C.'
    """
    if not judged:
        return f"This board has no ranked result of {name}."
    words: dict[Verdict | None, str] = {
        "better": "beats guessing on",
        "no different": "does no better than guessing on",
        "worse": "does worse than guessing on",
        None: "is not tested on",
    }
    parts = [
        f"{said} {listed([where for where, found in judged if found == verdict])}"
        for verdict, said in words.items()
        if any(found == verdict for _, found in judged)
    ]
    return f"{name} {'; '.join(parts)}."


def weakest(label: str, where: str, value: float, chance: float, score: str = "") -> str:
    """The weakest spot of a model, in a sentence. `score`: what is measured, where the label does not say it.

    >>> weakest("says where", "ProbMed", 24.1, 36.6)
    'Weakest: “says where” in ProbMed, 24.1% where guessing gets 36.6%.'
    >>> weakest("brain MRI", "ProbMed", 23.2, 50.0, "abnormality")
    'Weakest: “brain MRI” in ProbMed, abnormality 23.2% where guessing gets 50%.'
    """
    measured = f"{score} {score_text(value)}".strip()
    return f"Weakest: “{label}” in {where}, {measured}% where guessing gets {percent_of_chance(chance)}."


def guessing(family: str, metric: str) -> str:
    """What "chance" is called in a sentence about this metric."""
    return spec(family).guesses.get(metric, "guessing")


def guess_of(row: Row, family: str, metric: str) -> str:
    """What a row is compared with: the paper's random run, or what chance is called."""
    return guessing(family, metric) if row.run is None else RANDOM_RUN


def ranked(found: Standings) -> tuple[Ranked, ...]:
    """The models that can be compared as sentences speak of them, best first."""
    names = display_names([row.entry for row in found.models])
    return tuple(
        Ranked(names[row.entry.key], row.score.value or 0.0, row.score.verdict, row.first or 0)
        for row in found.models
        if not row.score.is_small
    )


def finding(family: str, found: Standings) -> str:
    """The finding as one sentence, computed from the standings. Baselines never count as models."""
    models, info = found.models, info_of(found.metric, family)
    tested = [row for row in models if row.score.verdict is not None]
    among = [row for row in found.rows if row.group == "ranked"]
    return headline(
        HeadlineFacts(
            about="" if found.metric == HEADLINE_METRICS.get(family) else info.label,
            guess=RANDOM_RUN if tested and all(row.run for row in tested) else guessing(family, found.metric),
            ranked=ranked(found),
            are_models=len({row.entry.result.model.name for row in models}) == len(models),
            higher=info.higher_is_better is not False,
            baselines=sum(row.is_baseline and row.score.value is not None for row in among),
            uncounted=sum(row.score.value is None for row in among),
            small=sum(row.score.is_small for row in models),
            apart=len(found.rows) - len(among),
            partial=len(found.hidden),
            case=spec(family).case,
            unit=info.unit,
        )
    )


def caption(family: str, found: Standings, branches: Sequence[TreePath]) -> str:
    """What stands under the headline: what the score is, of how many, of what, and what the marks of the chart are."""
    info, case = info_of(found.metric, family), spec(family).case
    known = [row.score for row in found.rows if row.score.value is not None]
    description = info.description[:1].lower() + info.description[1:]
    parts = [f"{info.label}: {description}" if description else f"{info.label}."]
    sizes = {(score.n, score.n_cases) for score in known}
    if len(sizes) == 1:
        ((n, n_cases),) = sizes
        if n == n_cases:
            parts.append(f"n = {plural(n, case)}.")
        elif n_cases:
            parts.append(f"n = {count(n)} from {plural(n_cases, case)}.")
    groups = selection_name(branches)
    if groups:
        where = [f"({one})" if " or " in one and len(groups) > 1 else one for one in groups]
        parts.append(f"Only {' and '.join(where)}.")
    methods = {shown_method(row.entry.result.method.name) for row in found.rows if not row.is_baseline}
    if len(methods) == 1:
        parts.append(f"Method: {methods.pop()}.")
    if known:
        parts.append(f"{_chart(found, known)}.")
    if info.higher_is_better is False:
        parts.append("Lower is better.")
    return " ".join(parts)


def _chart(found: Standings, known: Sequence[Score]) -> str:
    """What the marks of the chart are. A level of chance that is a paper's run of random answers is a sample."""
    drawn = [score.low is not None and score.high is not None for score in known]
    bars = "; bars: 95% intervals" + ("" if all(drawn) else " where known") if any(drawn) else ""
    levels = {round(score.chance, 6) for score in known if score.chance is not None}
    if not levels:
        return f"Dots: scores{bars}"
    guess = "guessing, which differs by row"
    tested = [row for row in found.rows if row.score.chance is not None]
    if all(row.run is not None or is_random_run(row.entry.result) for row in tested):
        return f"Dots: scores{bars}; band: {RANDOM_RUN}, a sample of guessing, with its interval"
    elif len(levels) == 1:
        guess = f"guessing ({percent_of_chance(levels.pop())})"
    some = " where known" if any(score.chance is None for score in known) else ""
    return f"Dots: scores{bars}; dashed{some}: {guess}"
