"""The numbers that the sentences of a table of standings speak of. See also: the sentences (`sentences/`)."""

from __future__ import annotations

from collections.abc import Sequence

from eval_harness.derive.metrics import HEADLINE
from leaderboard_space import sentences
from leaderboard_space.benchmarks import spec
from leaderboard_space.data.facets import groups_of
from leaderboard_space.data.ranks.groups import display_names
from leaderboard_space.data.ranks.significance import is_random_run
from leaderboard_space.data.ranks.standings import Row, Standings, info_of, shown_method, with_interval
from leaderboard_space.data.tree import Path, branch_name
from leaderboard_space.sentences import Caption, HeadlineFacts, Ranked


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
    """What stands under the headline. `tagged`: the rows say their methods themselves."""
    info = info_of(found.metric, family)
    known = [with_interval(row.score, found.metric) for row in found.rows if row.score.value is not None]
    methods = {shown_method(row.entry.result.method.name) for row in found.rows if not row.is_baseline}
    return sentences.caption(
        Caption(
            label=info.label,
            description=info.description,
            case=spec(family).case,
            sizes=frozenset((score.n, score.n_cases) for score in known),
            where=tuple(" or ".join(branch_name(path) for path in group) for group in groups_of(branches)),
            methods=() if tagged else tuple(sorted(methods)),
            chances=frozenset(None if score.chance is None else round(score.chance, 6) for score in known),
            rows=len(known),
            bars=sum(score.low is not None and score.high is not None for score in known),
            lower_is_better=info.higher_is_better is False,
            chance_is_drawn=all(
                row.run is not None or is_random_run(row.entry.result)
                for row in found.rows
                if row.score.chance is not None
            ),
        )
    )
