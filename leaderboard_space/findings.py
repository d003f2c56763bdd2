"""The finding as a sentence, computed from the standings: what a reader should take away before looking at any number."""

from __future__ import annotations

from collections.abc import Sequence

from leaderboard_space.html import in_words, number
from leaderboard_space.standings import Row, Standings, info_of

GUESS = {"mediconfusion": "a coin flip"}
"""What a guesser does, in a word, where "guessing" is not the plainest one."""
COIN = {"set_accuracy": "flipping a coin for each image", "individual_accuracy": "flipping a coin"}
CASES = {"mediconfusion": "pair", "probmed": "image", "gmai-mmbench": "question", "halt-medvqa": "question"}
"""What a case is, per format."""


def guessing(format: str, metric: str) -> str:
    """What "chance" is called in a sentence about this metric."""
    return COIN.get(metric, "guessing") if format == "mediconfusion" else "guessing"


def short_guess(format: str) -> str:
    """What "chance" is called in the heading of a group."""
    return GUESS.get(format, "guessing")


def headline(format: str, found: Standings) -> str:
    """One sentence. Baselines never count as models; where nobody knows chance, the sentence says who is in front."""
    models = found.models
    if not models:
        if found.rows:
            return "Only baselines were measured on these questions."
        if found.hidden:
            return f"{info_of(found.metric).label}: known of parts of this selection, not of the whole."
        return "No results for this selection."
    judged = [row for row in models if row.score.verdict is not None]
    if judged and len(judged) * 2 >= len(models):
        return _against_chance(format, found.metric, judged)
    return _in_front(found.metric, models)


def _against_chance(format: str, metric: str, models: Sequence[Row]) -> str:
    guess = guessing(format, metric)
    better = [row for row in models if row.score.verdict == "better"]
    worse = [row for row in models if row.score.verdict == "worse"]
    total = len(models)
    if total == 1:
        name = models[0].entry.result.model.name
        verdict = {"better": "surely better than", "worse": "worse than", "no different": "no better than"}
        return f"{name} is {verdict[models[0].score.verdict or 'no different']} {guess}."
    tail = ""
    if worse:
        tail = f"; {in_words(len(worse)) if len(worse) < total else 'all'} {'is' if len(worse) == 1 else 'are'} worse"
    one, many = _nouns(models)
    if not better:
        return f"No {one} is surely better than {guess}{tail}."
    if len(better) == total:
        return f"{'Both' if total == 2 else 'All ' + in_words(total)} {many} are surely better than {guess}{_lead(models)}."
    verb = "is" if len(better) == 1 else "are"
    return f"{in_words(len(better)).capitalize()} of {in_words(total)} {many} {verb} surely better than {guess}{tail}."


def _nouns(models: Sequence[Row]) -> tuple[str, str]:
    """What is counted, one and many: models, or results where a model has several."""
    names = {row.entry.result.model.name for row in models}
    return ("model", "models") if len(names) == len(models) else ("result", "results")


def _lead(models: Sequence[Row]) -> str:
    first = [row for row in models if row.first == 1]
    if len(first) == 1:
        return f"; {first[0].entry.result.model.name} leads"
    return f"; {in_words(len(first))} share the first place" if len(first) < len(models) else "; none stands out"


def _in_front(metric: str, models: Sequence[Row]) -> str:
    info = info_of(metric)
    label = info.label if info.label.startswith(("FAKE", "NONE", "SWAP")) else info.label.lower()
    label += " score" if label in ("overall", "average") else ""
    best = models[0]
    extreme = "lowest" if info.higher_is_better is False else "highest"
    name, value = best.entry.result.model.name, number(best.score.value)
    if len(models) == 1:
        return f"{name}: {label} {value}."
    tied = sum(1 for row in models if row.first == 1) - 1
    if tied <= 0:
        return f"{name} is surely ahead: {label} {value}."
    others = f"{in_words(tied)} {'other' if tied == 1 else 'others'}"
    return f"{name} has the {extreme} {label} ({value}); {others} cannot be told apart from it."
