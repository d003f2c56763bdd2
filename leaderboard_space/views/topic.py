"""A topic's page: one label of one benchmark, its models side by side in every aspect. The topic's other labels are a click away; nothing
is pooled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eval_harness.derive.metrics import HEADLINE_METRICS
from leaderboard_space import headlines, sentences
from leaderboard_space.benchmarks import LABELS, spec
from leaderboard_space.data.ranks.standings import Row, Standings, info_of
from leaderboard_space.data.search import Hit
from leaderboard_space.data.store.sections import Section
from leaderboard_space.data.topics import Relation, Topic, TopicLabel
from leaderboard_space.export import Table, as_file, breakdown_table, cited
from leaderboard_space.html import count, plural, prose, text
from leaderboard_space.overview import by_model
from leaderboard_space.views.parts import (
    CITE_BOX,
    FIRST_MODELS,
    WORD,
    acts,
    address_of,
    all_rows,
    benchmark_address,
    cell,
    column_head,
    compare_address,
    model_address,
    no_cell,
    set_name,
    set_title,
)
from leaderboard_space.views.tables.leaderboard import rank_cell


@dataclass(frozen=True)
class Aspect:
    """One score of a label. `does`: what a model does to earn it; `given`: the label is its answer."""

    metric: str
    does: str
    standings: Standings
    given: bool


@dataclass(frozen=True)
class LabelSet:
    """What is known of a label in one set of questions. `aspects`: those that rank models first."""

    section: Section
    aspects: tuple[Aspect, ...]

    @property
    def models(self) -> int:
        """How many models have a score."""
        return len(set().union(*(by_model(one.standings) for one in self.aspects)))


@dataclass(frozen=True)
class LabelSummary(LabelSet):
    """A label with what is known of it in one of its `sets` of questions."""

    label: TopicLabel
    relation: Relation
    sets: tuple[LabelSet, ...]

    @property
    def ranking(self) -> list[Aspect]:
        """The aspects that say who is better: those that the label does not give away."""
        return [aspect for aspect in self.aspects if not aspect.given]

    @property
    def tested(self) -> int:
        """How many scores are tested against guessing."""
        return sum(row.score.verdict is not None for one in self.ranking for row in one.standings.models)


def label_name(label: TopicLabel) -> str:
    """A label as a title: `Brain MRI`."""
    return label.shown[:1].upper() + label.shown[1:]


def label_id(label: TopicLabel) -> str:
    """How the page's address names a label."""
    return f"{label.family}:{label.facet}:{label.value}"


def page(
    topic: Topic,
    labels: Sequence[tuple[TopicLabel, Relation]],
    shown: LabelSummary | None,
    silent: Sequence[str],
    every: str,
    term: str = "",
) -> str:
    """The page. `labels`: all of the topic's, those that are it first; `shown`: the one whose models are drawn; `silent`: what the other
    benchmarks lack, a line each; `every`: whether all models are drawn; `term`: what was searched for, where no label is it."""
    chips = _chips(topic, labels, shown)
    missing = f'<p class="fine">{" ".join(text(line, 300) for line in silent)}</p>' if silent else ""
    title = f'<p class="crumbs"><a href="{address_of("overview")}">Overview</a> / {text(topic.name)}</p>'
    if shown is None:
        said = f"{topic.name}: no benchmark here has results."
        return f'{title}<h2 class="finding" data-title="{text(topic.name)}">{prose(said, 300)}</h2>{chips}{missing}'
    said = f"No benchmark labels {term} by itself. " if term else ""
    said += "" if shown.relation == "same" else f"No results on {topic.name} itself; related: "
    return (
        f'{title}<h2 class="finding" data-title="{text(topic.name)}">{prose(said + headline(shown), 400)}</h2>'
        f'<p class="sub">{_about(shown)}</p>{chips}{_sets(topic, shown)}{_table(shown, bool(every))}{_links(shown)}{CITE_BOX}{missing}'
    )


def headline(shown: LabelSummary) -> str:
    """The finding of a label."""
    ranking = shown.ranking
    name = label_name(shown.label)
    if len(ranking) == 1:
        return f"{name}: {headlines.finding(shown.section.family, ranking[0].standings)}"
    return headlines.by_aspect(name, [(one.does, headlines.ranked(one.standings)) for one in ranking])


def _about(shown: LabelSummary) -> str:
    size = max((row.score.n for one in shown.aspects for row in one.standings.models), default=shown.label.n)
    family = shown.section.family
    drawn = any(row.run for one in shown.ranking for row in one.standings.models)
    guess = "the paper's random run" if drawn else "guessing"
    return f"{text(set_title(shown.section))}, {plural(size, spec(family).case)}. Bars: 95% intervals; dashed: {guess}."


def _sets(topic: Topic, shown: LabelSummary) -> str:
    """The switch between the sets of questions that have scores of the label: each is a table of its own."""
    if len(shown.sets) < 2:
        return ""
    links = "".join(
        f'<a href="{address_of("topic", topic.slug, label=label_id(shown.label), set=one.section.key)}"'
        f"{' aria-current=true' if one.section is shown.section else ''}>{text(one.section.title())} "
        f"<em>{text(one.section.split)} · {plural(one.models, 'model')}</em></a>"
        for one in shown.sets
    )
    return f'<div class="topics" role="group" aria-label="Sets of questions"><span>Set of questions</span><div>{links}</div></div>'


def _chips(topic: Topic, labels: Sequence[tuple[TopicLabel, Relation]], shown: LabelSummary | None) -> str:
    """The topic's labels; the numbers count the benchmark's cases."""
    rows = ""
    for relation, said in (("same", ""), ("related", "Related")):
        families = dict.fromkeys(label.family for label, how in labels if how == relation)
        for family in families:
            held = [label for label, how in labels if how == relation and label.family == family]
            links = "".join(
                f'<a href="{address_of("topic", topic.slug, label=label_id(label))}"'
                f"{' aria-current=true' if shown and label == shown.label else ''}>{text(label_name(label))} <em>{count(label.n)}</em></a>"
                for label in held
            )
            of = " · ".join(part for part in (said, LABELS[family]) if part)
            rows += f'<div class="topics" role="group" aria-label="{text(of)}"><span>{text(of)}</span><div>{links}</div></div>'
    return rows


def _table(shown: LabelSummary, every: bool) -> str:
    """Models by aspects, sorted by the first, each cell that of the result that stands for the model (`groups.order_of`)."""
    held: dict[str, dict[int, Row]] = {}
    for at, aspect in enumerate(shown.aspects):
        for name, rows in by_model(aspect.standings).items():
            held.setdefault(name, {})[at] = rows[0]
    names = sorted(held, key=lambda name: _order(held[name], shown))
    drawn = names if every else names[:FIRST_MODELS]
    ranks = shown.ranking[0].standings if shown.ranking else None
    others = sum(row.first is not None for row in ranks.models) - 1 if ranks else -1
    body = ""
    for name in drawn:
        cells = "".join(_cell(shown, aspect, held[name].get(at)) for at, aspect in enumerate(shown.aspects))
        leader = held[name].get(0) if ranks else None
        rank = rank_cell(leader, others, "topic") if leader else '<td class="place" data-v="">–</td>'
        body += (
            f'<tr data-key="{text(name, 300)}">{rank}<th scope="row"><a href="{model_address(name)}"><bdi>{text(name)}</bdi></a></th>'
            f"{cells}</tr>"
        )
    heads = "".join(_head(shown, aspect) for aspect in shown.aspects)
    told = f"Ranked by “{text(shown.ranking[0].does)}”. " if len(shown.ranking) > 1 and others >= 0 else ""
    family, aspects = shown.section.family, [one.metric for one in shown.aspects]
    if ranks and HEADLINE_METRICS[family] not in aspects:
        told += f"{text(sentences.shown_instead(shown.section, HEADLINE_METRICS[family], aspects[0]), 300)} "
    told += sentences.each_alone(shown.tested)
    return (
        f'<table class="matrix topic" data-table="topic" aria-label="{text(label_name(shown.label))}"><thead><tr>'
        f"{column_head('place', 'Rank', 'place')}{column_head('name', 'Model', 'model')}{heads}</tr></thead>"
        f'<tbody>{body}</tbody></table>{all_rows(len(drawn), len(names), "model")}<p class="fine">{told}</p>'
    )


def _head(shown: LabelSummary, aspect: Aspect) -> str:
    levels = {round(row.score.chance, 1) for row in aspect.standings.models if row.score.chance is not None}
    guess = f"guessing {sentences.percent_of_chance(levels.pop())}" if len(levels) == 1 else ""
    said = "no finding: the label says it" if aspect.given else guess
    kind = "muted" if aspect.given else ""
    label = aspect.does or info_of(aspect.metric, shown.section.family).label
    return column_head(kind, label, aspect.metric, small=f"<small>{text(said)}</small>")


def _cell(shown: LabelSummary, aspect: Aspect, row: Row | None) -> str:
    name = aspect.does or info_of(aspect.metric, shown.section.family).label
    if row is None:
        return no_cell(name)
    verdict = None if aspect.given else row.score.verdict
    said = f"{'' if aspect.given else WORD[verdict] + ', '}{sentences.behind(row.score)}"
    address = benchmark_address(shown.section, None if aspect.given else aspect.metric, [shown.label.path])
    return cell(name, row.score, verdict, address, said, aspect.given)


def _order(held: Mapping[int, Row], shown: LabelSummary) -> tuple[int, float]:
    at = min(held)
    higher = info_of(shown.aspects[at].metric, shown.section.family).higher_is_better is not False
    value = held[at].score.value or 0.0
    return (at, -value if higher else value)


def _links(shown: LabelSummary) -> str:
    label, section = shown.label, shown.section
    links = [
        (benchmark_address(section, shown.ranking[0].metric if shown.ranking else None, [label.path]), "Leaderboard"),
        (
            compare_address(section, shown.ranking[0].metric if shown.ranking else None, [label.path]),
            "Compare two models",
        ),
    ]
    if any(entry.answers is not None for entry in section.entries):
        links.insert(1, (address_of("cases", set=set_name(section), label=f"{label.facet}:{label.value}"), "Cases"))
    shown_links = "".join(f'<a class="link" href="{address}">{said}</a>' for address, said in links)
    return f'<p class="acts">{shown_links}{acts("topic")}</p>'


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


def file(topic: Topic, shown: LabelSummary | None, request: Mapping[str, Any]) -> dict[str, str]:
    """The numbers of the page, one row each; or how to cite them."""
    aspects = shown.aspects if shown else ()
    if shown and str(request.get("as")) == "cite":
        entries = [row.entry for one in aspects for row in one.standings.rows]
        title = f"{topic.name}: {shown.section.benchmark} ({shown.section.split})"
        return cited(title, f"Label: {label_name(shown.label)}.", entries, request)
    rows: Table = []
    for one in aspects:
        held = {row.entry.key: row.score for row in one.standings.models}
        entries = [row.entry for row in one.standings.models]
        assert shown is not None
        table = breakdown_table(shown.section, entries, shown.label.facet, {shown.label.value: held}, one.metric)
        rows += [{"topic": topic.name, "relation": shown.relation, "given_away": one.given, **row} for row in table]
    return as_file(rows, f"topic-{topic.slug}", str(request.get("as")))
