"""A model's wrong answers and all its results, past ones included, on its page."""

from __future__ import annotations

from collections.abc import Sequence

from leaderboard_space import sentences
from leaderboard_space.benchmarks import LABELS
from leaderboard_space.data.ranks.groups import group_of
from leaderboard_space.data.ranks.standings import info_of, metrics_of, shown_method, with_interval
from leaderboard_space.data.result_names import entry_mark
from leaderboard_space.data.store.sections import Entry, Section
from leaderboard_space.html import plural, score_text, text
from leaderboard_space.memory import ViewCache
from leaderboard_space.model_results import Line, Spot
from leaderboard_space.views import cases
from leaderboard_space.views.addresses import address_of, benchmark_address, set_name
from leaderboard_space.views.tables.provenance import detail

FAILURES = 3
"""Example failures on the page; Cases has them all."""


def failures(memory: ViewCache, lines: Sequence[Line], spots: Sequence[Spot]) -> str:
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
        if drawn := cases.failures(memory.board, line.section, line.outcomes, entry, FAILURES, metric, label):
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
        metric = next(iter(_metrics(section, entry)), None)
        score = with_interval(entry.result.scores[metric], metric) if metric else None
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
    heads = ("Date", "Benchmark", "As", "Method", "Score (%)", "State")
    return (
        f'<h3>All its results</h3><p class="sub">{plural(len(found), "result")}, including withdrawn and outdated ones.</p>'
        f'<div class="scroll"><table class="lines history" data-table="history" aria-label="All results"><thead><tr>'
        f"{''.join(f'<th scope=col>{head}</th>' for head in heads)}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _metrics(section: Section, entry: Entry) -> list[str]:
    """The metrics of a result that have a value, or a reason why not, the benchmark's own first."""
    return [
        name
        for name in metrics_of(section, None)
        if (score := entry.result.scores.get(name)) is not None and (score.value is not None or score.nonresponse)
    ]


def _date(entry: Entry) -> str:
    acceptance = entry.provenance.acceptance
    return acceptance.accepted_at if acceptance else entry.result.created_at


def part_name(section: Section) -> str:
    """What tells a set from the benchmark's main one; the split where it is not the usual."""
    title = "" if section.kind == "complete" else section.title()
    return ", ".join(part for part in (title, "" if section.split == "test" else section.split) if part)
