"""A topic's page: what each benchmark knows of it, side by side and by its own labels. Nothing is pooled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leaderboard_space import sentences
from leaderboard_space.data.facets import choice
from leaderboard_space.data.ranks.groups import order_of
from leaderboard_space.data.ranks.standings import Row, Standings, info_of
from leaderboard_space.data.search import Hit
from leaderboard_space.data.store.sections import Section
from leaderboard_space.data.topics import Label, Relation, Topic, topic_table
from leaderboard_space.export import Table, as_file, breakdown_table, cited
from leaderboard_space.html import count, interval, percent, plural, prose, text
from leaderboard_space.sentences import findings
from leaderboard_space.views.addresses import address_of, benchmark_address, model_address
from leaderboard_space.views.overview import CLASS, WORD
from leaderboard_space.views.parts import CITE_BOX, acts, sorted_by

FIRST = 10
"""Models per benchmark that are drawn before the reader asks for all."""


@dataclass(frozen=True)
class Known:
    """A label of a topic with its standings, whose verdicts are corrected for all of the page."""

    label: Label
    relation: Relation
    standings: Standings


@dataclass(frozen=True)
class Part:
    """One benchmark's part of the page. `rest`: related labels that are only named; `facets`: what it labels its questions by;
    `labels_kind`: whether it labels questions by what the topic is, and nothing is known by any of these labels yet."""

    family: str
    label: str
    task: str
    section: Section
    known: list[Known]
    rest: list[str]
    facets: tuple[str, ...]
    labels_kind: bool


def page(topic: Topic, parts: Sequence[Part], every: str) -> str:
    """The page; `every`: the benchmark whose models are all drawn."""
    knowing = [part for part in parts if any(known.relation == "same" for known in part.known)]
    related = [part for part in parts if part.known and part not in knowing]
    without = [part for part in parts if not part.known]
    silent = "".join(f"<p>{_why_nothing(part)}</p>" for part in without)
    tested = sum(
        row.score.verdict is not None for part in parts for known in part.known for row in known.standings.models
    )
    drawn = "".join(_part(part, every == part.family, tested) for part in [*knowing, *related])
    said = sentences.topic(topic.name, [part.label for part in knowing], [part.label for part in related])
    return (
        f'<h2 class="finding" data-title="{text(topic.name)}">{prose(said, 400)}</h2>'
        f'<p class="sub">Each benchmark asks different questions and has its own labels: every label is shown separately, and nothing is '
        f"pooled. {_marks(tested, _by_random_run(parts))}</p>"
        f'<div class="bar-head"><span class="acts">{acts("topic")}</span></div>{CITE_BOX}'
        f'<div class="parts">{drawn}</div>{f"<h3>No results</h3>{silent}" if silent else ""}{_synonyms(topic)}'
    )


def _marks(tested: int, by_random_run: Sequence[str]) -> str:
    """What the marks mean; nothing where there are none."""
    if not tested:
        return ""
    return (
        f"{sentences.MARK['better']} better than guessing, {sentences.MARK['no different']} not significantly different from it, "
        f"{sentences.MARK['worse']} worse "
        f"(at 95%, {sentences.corrected_for(tested)} of this page, Holm; intervals are not corrected); · not tested. "
        f"{text(sentences.by_random_run(by_random_run), 400)}"
    )


def _by_random_run(parts: Sequence[Part]) -> list[str]:
    """The benchmarks whose rows are compared with a paper's random run."""
    return [part.label for part in parts if any(row.run for known in part.known for row in known.standings.models)]


def _part(part: Part, every: bool, tested: int) -> str:
    same = [known for known in part.known if known.relation == "same"]
    first = (same or part.known)[0]
    headline = findings.headline(part.family, first.standings)
    said = f"{first.label.shown}: {headline}" if len(part.known) > 1 or not same else headline
    link = benchmark_address(part.section, first.standings.metric, choice(first.label.facet, first.label.value))
    rest = f'<p class="fine">Also related: {text(", ".join(part.rest), 400)}.</p>' if part.rest else ""
    table = _table(part, every, tested)
    return (
        f'<section class="part"><h3><a href="{address_of("b", part.family)}">{text(part.label)}</a> '
        f'<small>{text(part.task)}</small></h3><p class="asked">{text(said, 400)}</p>'
        f'{table}{rest}<p class="fine"><a href="{link}">The leaderboard of {text(first.label.shown)}</a></p></section>'
    )


def _table(part: Part, every: bool, tested: int) -> str:
    """Models by labels, each cell with its own interval: that of the result that stands for the model (`groups.order_of`)."""
    cells: dict[str, dict[int, list[Row]]] = {}
    for at, known in enumerate(part.known):
        for row in sorted(known.standings.models, key=lambda row: order_of(row.entry)):
            cells.setdefault(row.entry.result.model.name, {}).setdefault(at, []).append(row)
    if not cells:
        return '<p class="sub">No numbers are known for it yet.</p>'
    names = sorted(cells, key=lambda name: _order(cells[name], part))
    shown = names if every else names[:FIRST]
    heads = "".join(
        f'<th scope="col" data-sort="{at}"><button type="button" class="sorts">{text(known.label.shown, 80)}</button>'
        f"<small>{'' if known.relation == 'same' else 'related · '}"
        f"{text(info_of(known.standings.metric, part.family).label)} · n {count(_size(known))}</small></th>"
        for at, known in enumerate(part.known)
    )
    body = "".join(
        f'<tr data-key="{text(name, 300)}"><th scope="row"><a href="{model_address(name)}"><bdi>{text(name)}</bdi></a></th>'
        + "".join(_cell(cells[name].get(at, []), tested) for at in range(len(part.known)))
        + "</tr>"
        for name in shown
    )
    more = (
        f'<p class="turn"><button type="button" class="link" data-name="all" value="{text(part.family)}">'
        f"All {plural(len(names), 'model')}</button></p>"
        if len(shown) < len(names)
        else ""
    )
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{text(part.label)}"><table class="known" '
        f'data-table="{text(part.family)}" aria-label="{text(part.label)} by its labels"><thead><tr>'
        f'<th scope="col" data-sort="model"><button type="button" class="sorts">Model</button></th>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{more}"
    )


def _size(known: Known) -> int:
    """What the scores of a column divide by: images, where one image is asked several questions."""
    return max((row.score.n for row in known.standings.models), default=known.label.n)


def _order(held: Mapping[int, Sequence[Row]], part: Part) -> tuple[int, float]:
    at = min(held)
    higher = info_of(part.known[at].standings.metric, part.family).higher_is_better is not False
    value = held[at][0].score.value or 0.0
    return (at, -value if higher else value)


def _cell(rows: Sequence[Row], tested: int) -> str:
    """A model's cell: its first row's score. `tested`: how many tests of the page its mark is corrected for."""
    if not rows:
        return '<td class="none" data-v="">–</td>'
    score = rows[0].score
    corrected = f", {sentences.corrected_for(tested)}" if score.verdict else ""
    said = f"{WORD[score.verdict]}{corrected}, {sentences.behind(score)}"
    said += f", 1 of {len(rows)} results" if len(rows) > 1 else ""
    few = " few" if score.n_cases < sentences.FEW else ""
    return (
        f'<td class="{CLASS[score.verdict]}{few}"{sorted_by(score.value)} title="{text(said, 300)}"><b>{percent(score.value)}</b> '
        f'<span class="mark">{sentences.MARK[score.verdict]}</span> <small>{interval(score.low, score.high, score.chance)}</small></td>'
    )


def _why_nothing(part: Part) -> str:
    """Why a benchmark says nothing of a topic, by what it labels."""
    name = text(part.label)
    if not part.facets:
        return f"{name} gives its questions no labels."
    if part.labels_kind:
        return (
            f"{name} labels its questions by this facet, but no paper prints scores for it: "
            "measured results will appear here."
        )
    return f"{name} labels its questions by {text(' and '.join(part.facets))} only, and none of these labels is this topic."


def _synonyms(topic: Topic) -> str:
    """The table of synonyms, the topic's own line first."""
    rows = sorted(topic_table(), key=lambda row: row["topic"] != topic.name)
    own = [row for row in rows if row["topic"] == topic.name]
    line = "".join(
        f"<p>{text(row['topic'])} is searched as {text(row['same'], 400)}"
        + (f"; related labels, which overlap with it: {text(row['related'], 400)}" if row["related"] else "")
        + ".</p>"
        for row in own
    )
    body = "".join(
        f'<tr><th scope="row">{text(row["topic"])}</th><td class="left">{text(row["same"], 400)}</td>'
        f'<td class="left">{text(row["related"], 400)}</td></tr>'
        for row in rows
    )
    return (
        f"<h3>Search terms</h3>{line or '<p>This is one label of one benchmark; the table of synonyms does not name it.</p>'}"
        '<details data-keep="synonyms"><summary>Full table of synonyms</summary><div class="scroll" tabindex="0" role="group" '
        'aria-label="Synonyms"><table class="plain left"><thead><tr>'
        f'<th scope="col">Topic</th><th scope="col">Same</th><th scope="col">Related</th></tr></thead>'
        f"<tbody>{body}</tbody></table></div></details>"
    )


def unknown(wanted: str, near: Sequence[Hit]) -> str:
    """What stands at an address that names no topic."""
    links = "".join(
        f'<li><a href="{hit.address}">{text(hit.name)}</a> <small>{text(hit.where, 200)}</small></li>' for hit in near
    )
    said = f"<p>Similar topics:</p><ul>{links}</ul>" if links else ""
    return (
        f'<h2 class="finding" data-title="No such topic">No benchmark here has a topic “{text(wanted)}”.</h2>{said}'
        f'<p><a href="{address_of("overview")}">Back to the overview and its search</a></p>'
    )


def file(topic: Topic, parts: Sequence[Part], request: Mapping[str, Any]) -> dict[str, str]:
    """The numbers of the page, one row each; or how to cite them."""
    if str(request.get("as")) == "cite":
        sets = ", ".join(f"{part.section.benchmark} ({part.section.split})" for part in parts if part.known)
        entries = [row.entry for part in parts for known in part.known for row in known.standings.rows]
        return cited(f"{topic.name}: {sets}", "By each benchmark's own labels.", entries, request)
    rows: Table = []
    for part in parts:
        for known in part.known:
            held = {row.entry.key: row.score for row in known.standings.models}
            entries = [row.entry for row in known.standings.models]
            table = breakdown_table(
                part.section, entries, known.label.facet, {known.label.value: held}, known.standings.metric
            )
            rows += [{"topic": topic.name, "relation": known.relation, **row} for row in table]
    return as_file(rows, f"topic-{topic.slug}", str(request.get("as")))
