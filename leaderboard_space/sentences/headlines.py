"""The sentences that head a page: how many models beat guessing, who has the highest score, who knows of a topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eval_harness.records.result import Verdict
from leaderboard_space.html import count, in_words, number, plural, score_text

SAME = 1e-9
"""Scores nearer than this are equal (they are rounded to ten decimals)."""
RANDOM_RUN = "the paper's random run"
"""What a score is compared with where exact chance is not known."""


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
    `better` and `worse`: how many significantly are."""

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
        verb = one.get((found.better, found.worse), "is not significantly different from")
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
    "For A and B exact chance is not known: guessing means the paper's random run there, a sample: the difference is tested. "
    """
    if not names:
        return ""
    return f"For {_listed(names)} exact chance is not known: guessing means {RANDOM_RUN} there, a sample: the difference is tested. "


def topic(name: str, knowing: Sequence[str], related: Sequence[str]) -> str:
    """Who knows of a topic.

    >>> topic("CT", ["A", "B"], []), topic("Eyes", [], ["A"]), topic("Eyes", [], [])
    ('CT: results from A and B.', 'Eyes: no benchmark labels it; A covers something related.', 'Eyes: no benchmark here covers it.')
    """
    if knowing:
        return f"{name}: results from {_listed(knowing)}."
    if related:
        verb = "covers" if len(related) == 1 else "cover"
        return f"{name}: no benchmark labels it; {_listed(related)} {verb} something related."
    return f"{name}: no benchmark here covers it."


def headline(found: Finding) -> str:
    """What to take away before looking at any number: how many beat chance; where nobody knows chance, who has the highest score."""
    if not found.ranked:
        return _nothing(found)
    judged = [row for row in found.ranked if row.verdict is not None]
    if judged and 2 * len(judged) >= len(found.ranked):
        return _against_chance(found, judged)
    return _extreme(found)


def _nothing(found: Finding) -> str:
    if found.uncounted and found.baselines:
        return f"{found.label}: only baselines have this score here; it is undefined for {plural(found.uncounted, 'other result')}."
    if found.uncounted:
        return f"{found.label}: no question of this selection counts towards it, or the answer key is hidden."
    if found.baselines:
        return "Only baselines are known for these questions."
    if found.apart:
        stands = "the one result stands" if found.apart == 1 else f"the {in_words(found.apart)} results stand"
        return f"Nothing is ranked here: {stands} apart, with the reason."
    if found.partial:
        return f"{found.label}: known for parts of this selection, not for all of it."
    return "No results for this selection."


def _against_chance(found: Finding, judged: Sequence[Ranked]) -> str:
    better, worse = (sum(row.verdict == verdict for row in judged) for verdict in ("better", "worse"))
    total, all_judged = len(judged), len(judged) == len(found.ranked)
    one, many = ("model", "models") if found.are_models else ("result", "results")
    if not all_judged:
        one, many = f"{one} compared with chance", f"{many} compared with chance"
    if total == 1:
        verdicts = {"better": "is significantly better than", "worse": "is significantly worse than"}
        verb = verdicts.get(judged[0].verdict or "", "is not significantly different from")
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
        return f"{best.name} has the {extreme} {label} ({value}) and alone holds rank 1."
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


def model_verdicts(judged: Sequence[tuple[str, Verdict | None, bool]]) -> str:
    """What is to be known of a model at once: the verdict in each benchmark, named. `judged`: (benchmark, verdict of its first score,
    whether that is against the paper's random run).

    >>> model_verdicts([("A", "better", False), ("B", "better", True), ("C", None, False)])
    "Significantly better than guessing on A and B (there the paper's random run); not tested on C, where exact chance is not known."
    """
    if not judged:
        return "This board has no ranked result of this model."
    words: dict[Verdict | None, str] = {
        "better": "Significantly better than guessing on",
        "no different": "not significantly different from guessing on",
        "worse": "significantly worse than guessing on",
        None: "not tested on",
    }
    parts = [
        f"{said} {_listed([f'{name} (there {RANDOM_RUN})' if drawn else name for name, found, drawn in judged if found == verdict])}"
        + ("" if verdict else ", where exact chance is not known")
        for verdict, said in words.items()
        if any(found == verdict for _, found, _ in judged)
    ]
    line = "; ".join(parts)
    return f"{line[0].upper()}{line[1:]}."


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
