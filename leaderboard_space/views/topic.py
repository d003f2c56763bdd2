"""A topic's page: one label of one benchmark, its models side by side in every aspect. The topic's other labels are a click away; nothing
is pooled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eval_harness.derive.metrics import HEADLINE_METRICS
from leaderboard_space import headlines, sentences
from leaderboard_space.benchmarks import BENCHMARK_LABELS, board_spec
from leaderboard_space.data.ranks.standings import Row, Standings, metric_info
from leaderboard_space.data.search import Hit
from leaderboard_space.data.store.sections import Section
from leaderboard_space.data.topics import Relation, Topic, TopicLabel
from leaderboard_space.export import breakdown_table, citation_file, table_file
from leaderboard_space.html import count, plural, prose, text
from leaderboard_space.overview import by_model
from leaderboard_space.views.parts import (
    CITE_BOX,
    FIRST_MODELS,
    acts,
    address_of,
    all_rows,
    benchmark_address,
    compare_address,
    links_row,
    model_address,
    set_name,
    set_title,
)
from leaderboard_space.views.tables.leaderboard import rank_cell
from leaderboard_space.views.tables.table import Column, matrix_cell, table


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
    return label.display_name[:1].upper() + label.display_name[1:]


def label_id(label: TopicLabel) -> str:
    """How the page's address names a label."""
    return f"{label.family}:{label.facet}:{label.value}"


def page(
    topic: Topic,
    labels: Sequence[tuple[TopicLabel, Relation]],
    summary: LabelSummary | None,
    missing: Sequence[str],
    every: str,
    term: str = "",
) -> str:
    """Draw the page as HTML.

    Args:
        topic: The topic.
        labels: All of its labels, exact matches first.
        summary: The label whose models are drawn; None if no benchmark has results on the topic.
        missing: What the other benchmarks lack, a sentence each.
        every: Draw all models, not only the first, unless "".
        term: What was searched for, if no label has that name.
    """
    chips = _chips(topic, labels, summary)
    gaps = f'<p class="fine">{" ".join(text(line, 300) for line in missing)}</p>' if missing else ""
    crumbs = f'<p class="crumbs"><a href="{address_of("overview")}">Overview</a> / {text(topic.name)}</p>'
    finding = f"{topic.name}: no benchmark here has results."
    if summary is not None:
        lead = f"No benchmark labels {term} by itself. " if term else ""
        lead += "" if summary.relation == "same" else f"No results on {topic.name} itself; related: "
        finding = lead + headline(summary)
    title = f'{crumbs}<h2 class="finding" data-title="{text(topic.name)}">{prose(finding, 400)}</h2>'
    if summary is None:
        return f"{title}{chips}{gaps}"
    return (
        f'{title}<p class="sub">{_about(summary)}</p>{chips}{_sets(topic, summary)}{_table(summary, bool(every))}'
        f"{_links(summary)}{CITE_BOX}{gaps}"
    )


def headline(summary: LabelSummary) -> str:
    """The finding of a label."""
    ranking, name = summary.ranking, label_name(summary.label)
    if len(ranking) == 1:
        return f"{name}: {headlines.finding(summary.section.family, ranking[0].standings)}"
    return headlines.by_aspect(name, [(aspect.does, headlines.ranked(aspect.standings)) for aspect in ranking])


def _about(summary: LabelSummary) -> str:
    """What the table is of, and what its marks mean."""
    rows = [row for aspect in summary.aspects for row in aspect.standings.models]
    cases = plural(max((row.score.n for row in rows), default=summary.label.n), board_spec(summary.section.family).case)
    against_run = any(row.run for aspect in summary.ranking for row in aspect.standings.models)
    guess = "the paper's random run" if against_run else "guessing"
    return f"{text(set_title(summary.section))}, {cases}. Bars: 95% intervals; dashed: {guess}."


def _sets(topic: Topic, summary: LabelSummary) -> str:
    """The switch between the question sets with scores of the label: each is a table of its own."""
    links = "".join(
        f'<a href="{address_of("topic", topic.slug, label=label_id(summary.label), set=one.section.key)}"'
        f"{' aria-current=true' if one.section is summary.section else ''}>{text(one.section.title())} "
        f"<em>{text(one.section.split)} · {plural(one.models, 'model')}</em></a>"
        for one in summary.sets
    )
    return links_row("Sets of questions", "Set of questions", links) if len(summary.sets) > 1 else ""


def _chips(topic: Topic, labels: Sequence[tuple[TopicLabel, Relation]], summary: LabelSummary | None) -> str:
    """The topic's labels, a row for each benchmark; the numbers count the benchmark's cases."""
    rows: dict[str, str] = {}
    for relation, prefix in (("same", ""), ("related", "Related · ")):
        for label in [label for label, how in labels if how == relation]:
            title = prefix + BENCHMARK_LABELS[label.family]
            current = " aria-current=true" if summary and label == summary.label else ""
            link = f'<a href="{address_of("topic", topic.slug, label=label_id(label))}"{current}>'
            name = f"{text(label_name(label))} <em>{count(label.n)}</em>"
            rows[title] = f"{rows.get(title, '')}{link}{name}</a>"
    return "".join(links_row(title, title, links) for title, links in rows.items())


def _table(summary: LabelSummary, every: bool) -> str:
    """Models by aspects, sorted by the first; each cell is of the result that represents the model (`groups.preference_key`)."""
    section, ranking = summary.section, summary.ranking
    rows: dict[str, dict[str, Row]] = {}
    for aspect in summary.aspects:
        for name, of_model in by_model(aspect.standings).items():
            rows.setdefault(name, {})[aspect.metric] = of_model[0]
    names = sorted(rows, key=lambda name: _order(rows[name], summary))
    drawn = names if every else names[:FIRST_MODELS]
    others = sum(row.best_rank is not None for row in ranking[0].standings.models) - 1 if ranking else -1

    def rank(name: str) -> str:
        row = rows[name].get(ranking[0].metric) if ranking else None
        return rank_cell(row, others, "topic") if row else '<td class="place" data-v="">–</td>'

    columns = [
        Column("Rank", rank, "place", "place"),
        Column(
            "Model",
            lambda name: f'<th scope="row"><a href="{model_address(name)}"><bdi>{text(name)}</bdi></a></th>',
            "model",
            "name",
        ),
        *(_score_column(summary, aspect, rows) for aspect in summary.aspects),
    ]
    label, metrics = label_name(summary.label), [aspect.metric for aspect in summary.aspects]
    matrix = table(
        "topic", label, columns, [("", drawn)], "matrix topic", lambda name: f' data-key="{text(name, 300)}"'
    )
    wanted = HEADLINE_METRICS[section.family]
    notes = (
        f"Ranked by “{text(ranking[0].does)}”. " if len(ranking) > 1 and others >= 0 else "",
        f"{text(sentences.shown_instead(section, wanted, metrics[0]), 300)} "
        if ranking and wanted not in metrics
        else "",
        sentences.each_alone(summary.tested),
    )
    return f'{matrix}{all_rows(len(drawn), len(names), "model")}<p class="fine">{"".join(notes)}</p>'


def _score_column(summary: LabelSummary, aspect: Aspect, rows: Mapping[str, Mapping[str, Row]]) -> Column[str]:
    """The column of an aspect: the score of every model that has one. `rows`: model -> metric -> row."""
    section, metric = summary.section, aspect.metric
    title = aspect.does or metric_info(metric, section.family).label
    address = benchmark_address(section, None if aspect.given else metric, [summary.label.path])
    levels = {round(row.score.chance, 1) for row in aspect.standings.models if row.score.chance is not None}
    guess = f"guessing {sentences.percent_of_chance(levels.pop())}" if len(levels) == 1 else ""
    under = f"<small>{text('no finding: the label says it' if aspect.given else guess)}</small>"

    def cell(name: str) -> str:
        row = rows[name].get(metric)
        return matrix_cell(title, row.score if row else None, address, is_muted=aspect.given)

    return Column(title, cell, metric, "muted" if aspect.given else "", under=under)


def _order(rows: Mapping[str, Row], summary: LabelSummary) -> tuple[int, float]:
    """Sort key of a model: the first aspect in which it has a score, then that score, the best first. `rows`: metric -> row."""
    at, metric = next((at, one.metric) for at, one in enumerate(summary.aspects) if one.metric in rows)
    value = rows[metric].score.value or 0.0
    return at, value if metric_info(metric, summary.section.family).higher_is_better is False else -value


def _links(summary: LabelSummary) -> str:
    """The links to the label's leaderboard, cases and comparison, and the buttons that share and save the page."""
    label, section = summary.label, summary.section
    metric = summary.ranking[0].metric if summary.ranking else None
    has_cases = any(entry.answers is not None for entry in section.entries)
    cases = address_of("cases", set=set_name(section), label=f"{label.facet}:{label.value}")
    links = (
        (benchmark_address(section, metric, [label.path]), "Leaderboard"),
        *([(cases, "Cases")] if has_cases else []),
        (compare_address(section, metric, [label.path]), "Compare two models"),
    )
    drawn = "".join(f'<a class="link" href="{address}">{title}</a>' for address, title in links)
    return f'<p class="acts">{drawn}{acts("topic")}</p>'


def unknown(name: str, similar: Sequence[Hit]) -> str:
    """Draw the page of an address that names no topic. `name`: what it names; `similar`: topics to suggest."""
    links = "".join(
        f'<li><a href="{hit.address}">{text(hit.name)}</a> <small>{text(hit.location, 200)}</small></li>'
        for hit in similar
    )
    suggestions = f"<p>Similar topics:</p><ul>{links}</ul>" if links else ""
    return (
        f'<h2 class="finding" data-title="No such topic">No benchmark here has a topic “{text(name)}”.</h2>{suggestions}'
        f'<p><a href="{address_of("overview")}">Back to the overview and its search</a></p>'
    )


def file(topic: Topic, summary: LabelSummary | None, request: Mapping[str, Any]) -> dict[str, str]:
    """The numbers of the page as a file, a row each; or how to cite them.

    Args:
        topic: The topic.
        summary: The label that the page shows.
        request: `as`: csv, json or cite.

    Raises:
        BadInput: The page shows no numbers.
    """
    form, rows = str(request.get("as")), list[dict[str, Any]]()
    if summary and form == "cite":
        entries = [row.entry for aspect in summary.aspects for row in aspect.standings.rows]
        title = f"{topic.name}: {summary.section.benchmark} ({summary.section.split})"
        return citation_file(title, f"Label: {label_name(summary.label)}.", entries, request)
    for aspect in summary.aspects if summary else ():
        assert summary is not None
        scores = {summary.label.value: {row.entry.key: row.score for row in aspect.standings.models}}
        entries = [row.entry for row in aspect.standings.models]
        label_rows = breakdown_table(summary.section, entries, summary.label.facet, scores, aspect.metric)
        rows += [
            {"topic": topic.name, "relation": summary.relation, "given_away": aspect.given, **row} for row in label_rows
        ]
    return table_file(rows, f"topic-{topic.slug}", form)
