"""Parts of a model's page: one benchmark's scores and weak spots, its wrong answers, all of its results, and a card for its page
elsewhere (a badge per benchmark as SVG, a table as Markdown)."""

from __future__ import annotations

import html
from collections.abc import Sequence

from eval_harness.records.result import Score
from leaderboard_space import headlines, sentences
from leaderboard_space.benchmarks import LABELS
from leaderboard_space.data.board import Board
from leaderboard_space.data.model_names import Identity, entry_mark
from leaderboard_space.data.ranks.groups import group_of
from leaderboard_space.data.ranks.standings import info_of, metrics_of, shown_method
from leaderboard_space.data.store.sections import Entry, Section
from leaderboard_space.data.tree import FACET_LABEL, shown_label
from leaderboard_space.html import interval, plural, prose, score_text, text
from leaderboard_space.model_results import Ends, Line, Spot, ends_of, scores_by_metric, shares_of
from leaderboard_space.sentences import FEW
from leaderboard_space.views import cases
from leaderboard_space.views.parts import (
    TONE,
    WHOLE,
    address_of,
    behind_with_chance,
    benchmark_address,
    dots,
    files,
    set_name,
)
from leaderboard_space.views.tables.provenance import detail


def benchmark(line: Line) -> str:
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
        selection = [(spot.facet, spot.label)] if spot.facet else ()
        score = info_of(spot.metric, section.family).label if spot.facet else ""
        where = " · ".join(part for part in (spot.line.questions, score) if part)
        cases = ""
        if spot.line.outcomes is not None and spot.line.row.entry.key in spot.line.outcomes.row_of:
            label = f"{spot.facet}:{spot.label}" if spot.facet else None
            address = address_of("cases", set=set_name(section), label=label, model=spot.line.row.entry.key)
            cases = f'<a href="{address}">cases</a>'
        rows += _small_row(spot.name, spot.score, benchmark_address(section, spot.metric, selection), where, cases)
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
                benchmark_address(line.section, found.metric, [(found.facet, label)]),
            )
            for label, score in part
        )

    label = info_of(found.metric, line.section.family).label
    said = sentences.ends(label, found.known, found.left_out, found.against_chance)
    body = (
        f'<tr class="group"><th colspan="4" scope="rowgroup">lowest</th></tr>{rows(found.weakest)}'
        f'<tr class="group"><th colspan="4" scope="rowgroup">highest</th></tr>{rows(found.strongest)}'
    )
    return (
        f"<h4>By {text(facet)} (%)</h4>{_small_table(body, f'Lowest and highest by {facet}')}"
        f'<p class="fine">{prose(said, 400)}</p>'
    )


def _small_table(rows: str, name: str) -> str:
    return (
        f'<div class="scroll"><table class="lines small" aria-label="{text(name)}"><tbody>{rows}</tbody></table></div>'
    )


def _small_row(label: str, score: Score, address: str, where: str = "", cases: str = "") -> str:
    few = " few" if score.n_cases < FEW or score.is_small else ""
    said = behind_with_chance(score)
    return (
        f'<tr class="v-{TONE[score.verdict]}{few}"><th scope="row"><a href="{address}">{text(label, 80)}</a>'
        f"{f'<small>{text(where, 120)}</small>' if where else ''}</th>"
        f'<td class="num" title="{text(said, 200)}"><b>{score_text(score.value)}</b> <i>{sentences.mark(score)}</i></td>'
        f'<td class="chart">{dots(score, WHOLE)}</td><td class="num">{interval(score)}</td>'
        f"{f'<td>{cases}</td>' if cases else ''}</tr>"
    )


def _bias(line: Line) -> str:
    """What letters it chose, against how often each is the key; papers do not print it."""
    shares = shares_of(line)
    if not shares:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{text(share.name)}</th><td class="num"><b>{score_text(share.chosen.value)}</b></td>'
        f'<td class="chart">{dots(share.chosen, WHOLE, share.key)}</td>'
        f'<td class="num">{score_text(share.key) if share.key is not None else "not known"}</td></tr>'
        for share in shares
    )
    return (
        f"<h4>What it chooses (%)</h4>{_small_table(rows, 'Shares of the options')}"
        '<p class="fine">Share of the readable answers to questions that offer the option; the hollow mark and the last number show how '
        "often it is the key. A wide gap is a response bias, not knowledge.</p>"
    )


FAILURES = 3
"""Example failures on the page; Cases has them all."""


def failures(board: Board, lines: Sequence[Line], spots: Sequence[Spot]) -> str:
    """Cases that the model got wrong, with their images where these may be shown: of its weakest spot of which answers are known."""
    known = [line for line in lines if line.outcomes is not None and line.row.entry.key in line.outcomes.runs]
    measured = [line for line in known if line.score.nonresponse is None]
    if known and not measured:
        why = sentences.no_score(known[0].score, known[0].row.entry.result)
        return f'<h3>What it got wrong</h3><p class="sub">Not known; {text(why, 300)}.</p>'
    if not measured:
        return (
            '<h3>What it got wrong</h3><p class="sub">Only published numbers are known for this model: no paper prints its answers. '
            "They will appear here once somebody submits a run of it.</p>"
        )
    weakest = next((spot for spot in spots if any(spot.line is line for line in measured)), None)
    for spot in (weakest, None):
        line = spot.line if spot else measured[0]
        assert line.outcomes is not None
        label = (spot.facet, spot.label) if spot and spot.facet else None
        metric = spot.metric if spot else None
        entry = line.row.entry
        if drawn := cases.failures(board, line.section, line.outcomes, entry, FAILURES, metric, label):
            more = address_of("cases", set=set_name(line.section), label=":".join(label or ()), model=entry.key)
            where = f": {spot.name}" if spot else ""
            return (
                f'<div class="bar-head"><h3>What it got wrong in {text(line.questions)}{text(where)}</h3>'
                f'<a class="link" href="{more}">All of them</a></div>{drawn}'
            )
    return f'<h3>What it got wrong</h3><p class="sub">Nothing, by {text(measured[0].questions)}.</p>'


def history(found: Sequence[tuple[Section, Entry]]) -> str:
    """Every result there ever was of it, the newest first; each opens into all that is known of where it comes from."""
    rows = ""
    for section, entry in sorted(found, key=lambda item: _date(item[1]), reverse=True):
        known = {name for name, one in entry.result.scores.items() if one.value is not None or one.nonresponse}
        metric = next((name for name in metrics_of(section, None) if name in known), None)
        score = entry.result.scores[metric] if metric else None
        info = info_of(metric or "", section.family)
        withdrawal = entry.provenance.withdrawal
        state = group_of(entry)
        why = sentences.no_score(score, entry.result) if score else ""
        said = f"withdrawn: {withdrawal.reason}" if withdrawal else why or ("" if state == "ranked" else state)
        shown = f"<small>{text(said, 200)}</small>" if said else ""
        source = f'<details data-keep="of-{text(entry.key, 300)}"><summary>where it comes from</summary>{detail(entry, section)}</details>'
        value = score_text(score.value, info.unit) if score else "–"
        rows += (
            f'<tr data-key="{text(entry.key, 400)}"><td>{text(_date(entry)[:10])}</td>'
            f'<th scope="row"><a href="{benchmark_address(section)}">{text(LABELS[section.family])}</a>'
            f"<small>{text(part_name(section))}</small></th><td>{text(entry.result.model.name)}</td>"
            f"<td>{text(shown_method(entry.result.method.name))}</td>"
            f'<td class="num">{value}<small>{text(info.label) if metric else ""}</small></td>'
            f"<td>{text(entry_mark(entry), 60)}{shown}{source}</td></tr>"
        )
    top = (
        '<th scope="col">Date</th><th scope="col">Benchmark</th><th scope="col">Model named</th><th scope="col">Method</th>'
        '<th scope="col" class="num">Score (%)</th><th scope="col">Source</th>'
    )
    return (
        f'<h3>All its results</h3><p class="sub">{plural(len(found), "result")}, including withdrawn and outdated ones.</p>'
        f'<div class="scroll"><table class="lines history" data-table="history" aria-label="All results"><thead><tr>'
        f"{top}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _date(entry: Entry) -> str:
    acceptance = entry.provenance.acceptance
    return acceptance.accepted_at if acceptance else entry.result.created_at


def part_name(section: Section) -> str:
    """What tells a set from the benchmark's main one; the split where it is not the usual."""
    title = "" if section.kind == "complete" else section.title()
    return ", ".join(part for part in (title, "" if section.split == "test" else section.split) if part)


INK = {"better": "#0f766e", "worse": "#a8481f", "no different": "#5b6675", None: "#5b6675"}
LETTER = 6.6
"""Width that is reserved for a character, in pixels, at 11 px: wider than most."""


def badge(line: Line) -> str:
    """The result of a benchmark as a small picture: name, score, verdict. It says its numbers in its title, too."""
    info, score = info_of(line.metric, line.section.family), line.score
    left = f"{line.questions}: {info.label.lower()}"
    sign = "%" if info.unit == "percent" else ""
    guess = "guessing" if line.row.run is None else sentences.RANDOM_RUN
    right = f"{score_text(score.value, info.unit)}{sign} {sentences.in_short(score.verdict, guess, None)}"
    one, other = (round(LETTER * len(part)) + 14 for part in (left, right))
    said = f"{left} {right}, 95% interval {interval(score)}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{one + other}" height="22" viewBox="0 0 {one + other} 22" role="img" '
        f'aria-label="{_in_svg(said)}">'
        f"<title>{_in_svg(said)}</title>"
        f'<rect width="{one + other}" height="22" rx="4" fill="#1d2733"/>'
        f'<path d="M{one} 0h{other - 4}a4 4 0 0 1 4 4v14a4 4 0 0 1-4 4H{one}z" fill="{INK[score.verdict]}"/>'
        f'<g fill="#fff" font-family="Verdana, DejaVu Sans, sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{one / 2:g}" y="15">{_in_svg(left)}</text><text x="{one + other / 2:g}" y="15">{_in_svg(right)}</text></g></svg>'
    )


def _in_svg(said: str) -> str:
    return html.escape(said, quote=True)


def markdown(who: Identity, lines: Sequence[Line]) -> str:
    """A table of the main results, for a model card; no cell can break out of its column."""
    rows = [
        "| Benchmark | Score | 95% interval | Against guessing | Questions | Result |",
        "|---|---|---|---|---|---|",
    ]
    for line in lines:
        info, score = info_of(line.metric, line.section.family), line.score
        result = line.row.entry.result
        source = result.source.table if result.source and result.source.table else result.kind
        verdict = sentences.in_short(
            score.verdict, headlines.guess_of(line.row, line.section.family, line.metric), score.chance
        )
        cells = (
            line.questions,
            f"{info.label} {score_text(score.value, info.unit)}",
            interval(score),
            verdict,
            f"{line.section.title()}, {line.section.split}",
            source,
        )
        rows.append(f"| {' | '.join(_in_cell(cell) for cell in cells)} |")
    return f"### Reliability of {_in_cell(who.name)}, from the medprobe board\n\n" + "\n".join(rows) + "\n"


def _in_cell(said: str) -> str:
    """Text that Markdown shows as it is, in one line."""
    plain = " ".join(said.split())
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in plain)


def card(who: Identity, lines: Sequence[Line]) -> str:
    """The badges, each with a button that saves it, and the Markdown."""
    badges = "".join(
        f'<li>{badge(line)} <button type="button" class="link" data-act="svg" data-of="badge:{line.section.family}">'
        f"Save SVG<span class=unseen> of {text(line.questions)}</span></button></li>"
        for line in lines
    )
    return (
        '<div class="bar-head"><h3>For a model card</h3>'
        '<button type="button" class="link" data-act="md" data-of="card">Save Markdown</button></div>'
        f'<ul class="badges">{badges}</ul><pre class="command"><code>{text(markdown(who, lines), 6000)}</code></pre>'
    )
