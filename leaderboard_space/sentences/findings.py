"""The sentences above a table of standings, from its rows. See also: the headline's words (`headlines.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from eval_harness.derive.metrics import HEADLINE
from eval_harness.records.result import Score
from leaderboard_space import sentences
from leaderboard_space.benchmarks import spec
from leaderboard_space.data.facets import groups_of
from leaderboard_space.data.ranks.groups import display_names
from leaderboard_space.data.ranks.significance import is_random_run
from leaderboard_space.data.ranks.standings import Row, Standings, info_of, shown_method
from leaderboard_space.data.tree import Path, branch_name
from leaderboard_space.html import count, plural
from leaderboard_space.sentences import HeadlineFacts, Ranked


def guessing(family: str, metric: str) -> str:
    """What "chance" is called in a sentence about this metric."""
    return spec(family).guesses.get(metric, "guessing")


def guess_of(row: Row, family: str, metric: str) -> str:
    """What a row is compared with: the paper's random run, or what chance is called."""
    return guessing(family, metric) if row.run is None else sentences.RANDOM_RUN


def short_guess(family: str) -> str:
    """What "chance" is called in the heading of a group."""
    return spec(family).short_guess


def ranked(found: Standings) -> tuple[Ranked, ...]:
    """The ranked models as sentences speak of them, best first."""
    names = display_names([row.entry for row in found.models])
    return tuple(
        Ranked(names[row.entry.key], row.score.value or 0.0, row.score.verdict, row.first or 1) for row in found.models
    )


def headline(family: str, found: Standings) -> str:
    """The finding as one sentence, computed from the standings. Baselines never count as models."""
    models, info = found.models, info_of(found.metric, family)
    tested = [row for row in models if row.score.verdict is not None]
    among = [row for row in found.rows if row.group == "ranked"]
    return sentences.headline(
        HeadlineFacts(
            about="" if found.metric == HEADLINE.get(family) else info.label,
            guess=sentences.RANDOM_RUN if tested and all(row.run for row in tested) else guessing(family, found.metric),
            ranked=ranked(found),
            are_models=len({row.entry.result.model.name for row in models}) == len(models),
            higher=info.higher_is_better is not False,
            baselines=sum(row.is_baseline and row.score.value is not None for row in among),
            uncounted=sum(row.score.value is None for row in among),
            apart=len(found.rows) - len(among),
            partial=len(found.hidden),
            unit=info.unit,
        )
    )


def caption(family: str, found: Standings, branches: Sequence[Path], tagged: bool) -> str:
    """What stands under the headline: what the score is, of how many, of what, and what the marks of the chart are. `tagged`: the rows say
    their methods themselves."""
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
    groups = [" or ".join(branch_name(path) for path in group) for group in groups_of(branches)]
    if groups:
        where = [f"({one})" if " or " in one and len(groups) > 1 else one for one in groups]
        parts.append(f"Only {' and '.join(where)}.")
    methods = {shown_method(row.entry.result.method.name) for row in found.rows if not row.is_baseline}
    if len(methods) == 1 and not tagged:
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
        guess = f"{sentences.RANDOM_RUN}, a sample of guessing"
    elif len(levels) == 1:
        guess = f"guessing ({sentences.percent_of_chance(levels.pop())})"
    some = " where known" if any(score.chance is None for score in known) else ""
    return f"Dots: scores{bars}; dashed{some}: {guess}"
