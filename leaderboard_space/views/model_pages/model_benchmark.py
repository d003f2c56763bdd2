"""One benchmark on a model's page: every score, where it is weakest and strongest, and which options it leans to."""

from __future__ import annotations

from collections.abc import Sequence

from eval_harness.records.result import Score
from leaderboard_space import sentences
from leaderboard_space.data.ranks.standings import info_of
from leaderboard_space.data.tree import FACET_LABEL, shown_label
from leaderboard_space.html import interval, percent, prose, text
from leaderboard_space.model_results import Ends, Line, Spot, ends_of, scores_by_metric, shares_of
from leaderboard_space.sentences import FEW, MARK
from leaderboard_space.views.addresses import address_of, benchmark_address, set_name
from leaderboard_space.views.parts import TONE, WHOLE, behind_with_chance, dots, files


def view(line: Line) -> str:
    ends = ends_of(line)
    parts = [_scores(line), *(_ends(line, found) for found in ends), _bias(line)]
    body = "".join(f'<section class="part">{part}</section>' for part in parts if part)
    save = files("categories") if ends else ""
    return (
        f'<div class="bar-head"><h3>{text(line.questions)}</h3>{save}</div><div class="side-by-side">{body}</div>'
        if body
        else ""
    )


def spots(weak: Sequence[Spot]) -> str:
    """Where a model is weakest, over all benchmarks; each row leads to the ranking, and to cases where answers are known."""
    if not weak:
        return ""
    rows = ""
    for spot in weak:
        section = spot.line.section
        path = (spot.facet, spot.label) if spot.facet else None
        score = info_of(spot.metric, section.family).label if spot.facet else ""
        where = " · ".join(part for part in (spot.line.questions, score) if part)
        cases = ""
        if spot.line.outcomes is not None and spot.line.row.entry.key in spot.line.outcomes.row_of:
            label = f"{spot.facet}:{spot.label}" if spot.facet else None
            address = address_of("cases", set=set_name(section), label=label, model=spot.line.row.entry.key)
            cases = f'<a href="{address}">cases</a>'
        rows += _small_row(spot.name, spot.score, benchmark_address(section, spot.metric, path), where, cases)
    return f"<h3>Weakest spots</h3>{_small_table(rows, 'Weakest spots')}"


def _scores(line: Line) -> str:
    held = {
        metric: score
        for metric, score in scores_by_metric(line).items()
        if info_of(metric, line.section.family).unit == "percent"
    }
    if len(held) < 2:
        return ""
    rows = "".join(
        _small_row(
            info_of(metric, line.section.family).label,
            score,
            benchmark_address(line.section, metric),
        )
        for metric, score in held.items()
    )
    return f"<h4>Every score (%)</h4>{_small_table(rows, 'Scores')}"


def _ends(line: Line, found: Ends) -> str:
    """The weakest and the strongest values of a facet, each a link to what the board knows of it."""
    if not found.weakest:
        return ""
    facet = FACET_LABEL.get(found.facet, found.facet).lower()

    def rows(part: Sequence[tuple[str, Score]]) -> str:
        return "".join(
            _small_row(
                shown_label(found.facet, label),
                score,
                benchmark_address(line.section, found.metric, (found.facet, label)),
            )
            for label, score in part
        )

    label = info_of(found.metric, line.section.family).label
    said = sentences.ends(facet, label, found.known, found.left_out, found.against_chance)
    body = (
        f'<tr class="group"><th colspan="4" scope="rowgroup">weakest</th></tr>{rows(found.weakest)}'
        f'<tr class="group"><th colspan="4" scope="rowgroup">strongest</th></tr>{rows(found.strongest)}'
    )
    return (
        f"<h4>By {text(facet)} (%)</h4>{_small_table(body, f'Weakest and strongest by {facet}')}"
        f'<p class="fine">{prose(said, 400)}</p>'
    )


def _small_table(rows: str, name: str) -> str:
    return (
        f'<div class="scroll"><table class="lines small" aria-label="{text(name)}"><tbody>{rows}</tbody></table></div>'
    )


def _small_row(label: str, score: Score, address: str, where: str = "", cases: str = "") -> str:
    few = " few" if score.n_cases < FEW else ""
    said = behind_with_chance(score)
    return (
        f'<tr class="v-{TONE[score.verdict]}{few}"><th scope="row"><a href="{address}">{text(label, 80)}</a>'
        f"{f'<small>{text(where, 120)}</small>' if where else ''}</th>"
        f'<td class="num" title="{text(said, 200)}"><b>{percent(score.value)}</b> <i>{MARK[score.verdict]}</i></td>'
        f'<td class="chart">{dots(score, WHOLE)}</td><td class="num">{interval(score.low, score.high, score.chance)}</td>'
        f"{f'<td>{cases}</td>' if cases else ''}</tr>"
    )


def _bias(line: Line) -> str:
    """What letters it chose, against how often each is the key; papers do not print it."""
    shares = shares_of(line)
    if not shares:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{text(share.name)}</th><td class="num"><b>{percent(share.chosen.value)}</b></td>'
        f'<td class="chart">{dots(share.chosen, WHOLE, share.key)}</td>'
        f'<td class="num">{percent(share.key) if share.key is not None else "not known"}</td></tr>'
        for share in shares
    )
    return (
        f"<h4>What it chooses (%)</h4>{_small_table(rows, 'Shares of the options')}"
        '<p class="fine">Share of the readable answers to questions that offer the option; the hollow mark and the last number show how '
        "often it is the key. A wide gap is a response bias, not knowledge.</p>"
    )
