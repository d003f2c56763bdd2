"""Draw a topic's page: one label of one benchmark, with its models side by side in every aspect.

Links lead to the topic's other labels. Scores of different labels are never pooled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dataset_builders.benchmarks import BENCHMARKS, spec as dataset_spec
from dataset_builders.terms import load_terms
from eval_harness.derive.metrics import HEADLINE_METRICS
from leaderboard_space import headlines, sentences
from leaderboard_space.benchmarks import BENCHMARK_LABELS, board_spec, gives_away, metric_info
from leaderboard_space.data.board import Board
from leaderboard_space.data.sections import ONE_PER_MODEL, Row, Section
from leaderboard_space.data.standings import Standings
from leaderboard_space.data.topics import (
    Hit,
    Relation,
    Topic,
    TopicLabel,
    all_topics,
    matching_labels,
    search,
)
from leaderboard_space.data.tree import facet_title
from leaderboard_space.export import Table, breakdown_table, citation_file, table_file
from leaderboard_space.html import count, plural, prose, text
from leaderboard_space.query import parse_query
from leaderboard_space.views.overview import by_model
from leaderboard_space.views.parts import (
    CITE_BOX,
    MAX_FIRST_MODELS,
    Request,
    action_buttons,
    address_of,
    all_rows_button,
    benchmark_address,
    compare_address,
    links_row,
    model_address,
    set_name,
    set_title,
)
from leaderboard_space.views.search import MAX_QUERY_LENGTH, SEARCHED_TERM_KINDS, board_labels, search_index
from leaderboard_space.views.tables.leaderboard import rank_cell
from leaderboard_space.views.tables.table import Column, matrix_cell, table


@dataclass(frozen=True)
class Aspect:
    """One score on a label.

    `does` is what a model does to earn it; `given` is True if the label is its answer.
    """

    metric: str
    does: str
    standings: Standings
    given: bool


@dataclass(frozen=True)
class LabelSet:
    """The scores of a label in one set of questions.

    `aspects`: those that rank models come first.
    """

    section: Section
    aspects: tuple[Aspect, ...]

    @property
    def models(self) -> int:
        """Number of models that have a score."""
        return len(set().union(*(by_model(aspect.standings) for aspect in self.aspects)))


@dataclass(frozen=True)
class LabelSummary(LabelSet):
    """A label with its scores in one question set; `sets` lists all question sets that have scores
    on it.
    """

    label: TopicLabel
    relation: Relation
    sets: tuple[LabelSet, ...]

    @property
    def ranking(self) -> list[Aspect]:
        """The aspects that can rank models: those whose answer is not the label itself."""
        return [aspect for aspect in self.aspects if not aspect.given]

    @property
    def tested(self) -> int:
        """Number of scores that are tested against guessing."""
        return sum(row.score.verdict is not None for aspect in self.ranking for row in aspect.standings.models)


def label_name(label: TopicLabel) -> str:
    """Return a label as a title: `Brain MRI`."""
    return label.display_name[:1].upper() + label.display_name[1:]


def label_id(label: TopicLabel) -> str:
    """Return the name of a label in the page's address."""
    return f"{label.family}:{label.facet}:{label.value}"


def page(board: Board, request: Request) -> str:
    """Draw the page as HTML: one of the topic's labels, in every aspect.

    Args:
        board: The board.
        request: `id`, the topic's slug; `label` and `set`, those to draw; `term`, what was searched
            for if no label has that name; `all` (every model).
    """
    slug, labels = str(request.get("id") or ""), board_labels(board, board.snapshot)
    topic = all_topics(labels).get(slug)
    if topic is None:
        words = slug.replace("-", " ")[:MAX_QUERY_LENGTH]
        return _unknown_topic(slug, search(words, search_index(board, board.snapshot)))
    matches = matching_labels(topic, labels)
    summary = label_summary(board, topic, str(request.get("label")), str(request.get("set")))
    chips = _chips(topic, matches, summary)
    families = {label.family for label, _ in matches}
    missing = _absence_reasons(topic, [family for family in BENCHMARKS if family not in families], labels)
    gaps = f'<p class="fine">{" ".join(text(line, 300) for line in missing)}</p>' if missing else ""
    crumbs = f'<p class="crumbs"><a href="{address_of("overview")}">Overview</a> / {text(topic.name)}</p>'
    # A label that is only related to the topic is introduced before its finding.
    finding = f"{topic.name}: no benchmark here has results."
    if summary is not None:
        term, concepts = str(request.get("term")), {term.concept for term in load_terms(*SEARCHED_TERM_KINDS)}
        lead = f"No benchmark labels {term} by itself. " if term in concepts else ""
        lead += "" if summary.relation == "same" else f"No results on {topic.name} itself; related: "
        finding = lead + label_headline(summary)
    title = f'{crumbs}<h2 class="finding" data-title="{text(topic.name)}">{prose(finding, 400)}</h2>'
    if summary is None:
        return f"{title}{chips}{gaps}"
    return (
        f'{title}<p class="sub">{_about(summary)}</p>{chips}{_sets(topic, summary)}{_table(summary, bool(request.get("all")))}'
        f"{_links(summary)}{CITE_BOX}{gaps}"
    )


def label_summary(board: Board, topic: Topic, requested_id: str, key: str = "") -> LabelSummary | None:
    """Summarise a label of a topic.

    Args:
        board: The board.
        topic: The topic.
        requested_id: `label_id` of the requested label; by default the first with scores.
        key: Key of the requested question set; by default the largest official one.

    Returns:
        The summary; None if no label has scores.
    """
    matches = matching_labels(topic, board_labels(board, board.snapshot))
    requested = [item for item in matches if label_id(item[0]) == requested_id]
    for label, relation in [*requested, *matches]:
        if sets := _label_sets(board, label):
            label_set = next((item for item in sets if item.section.key == key), sets[0])
            return LabelSummary(label_set.section, label_set.aspects, label, relation, tuple(sets))
    return None


def _label_sets(board: Board, label: TopicLabel) -> list[LabelSet]:
    """List the question sets that have scores on a label, with the standings in each aspect.

    Official sets come first, then those with most models.
    """
    sets = []
    for section in board.snapshot.sections[label.family]:
        request = {"format": label.family, "section": section.key, "branches": [label.path], "shown": ONE_PER_MODEL}
        query = parse_query(board, request)
        aspects = []
        for metric, does in (board_spec(label.family).aspects or {query.metric: ""}).items() if query.branches else ():
            ranked = replace(query, metric=metric).standings
            if ranked.models:
                aspects.append(Aspect(metric, does, ranked, gives_away(label.family, metric, (label.facet,))))
        if aspects:
            sets.append(LabelSet(query.section, tuple(sorted(aspects, key=lambda aspect: aspect.given))))
    return sorted(sets, key=lambda item: (not item.section.is_official, -item.models))


def _absence_reasons(topic: Topic, families: Sequence[str], labels: Sequence[TopicLabel]) -> list[str]:
    """Explain which benchmarks have no scores for a topic: no such label, or labels without known
    scores.
    """
    first_set_labels = [label for label in labels if not label.section]
    labelled_families = {
        label.family
        for label in first_set_labels
        if topic.kind in (label.facet, label.facet == "image_type" and "modality")
    }
    labelled = [
        family
        for family in families
        if family not in labelled_families
        and topic.kind in (facet_title(facet).lower() for facet in dataset_spec(family).facets)
    ]
    lines = [
        f"{BENCHMARK_LABELS[family]} has {topic.kind} labels, but its paper prints no scores for them: measured results will appear here."
        for family in labelled
    ]
    unlabelled = [BENCHMARK_LABELS[family] for family in families if family not in labelled]
    return [*lines, *([f"No such label: {', '.join(unlabelled)}."] if unlabelled else [])]


def label_headline(summary: LabelSummary) -> str:
    """Write the headline of a label."""
    ranking, name = summary.ranking, label_name(summary.label)
    # With one aspect, the finding is that of a leaderboard.
    if len(ranking) == 1:
        return f"{name}: {headlines.leaderboard_headline(summary.section.family, ranking[0].standings)}"
    return headlines.aspects_headline(
        name, [(aspect.does, headlines.ranked_models(aspect.standings)) for aspect in ranking]
    )


def _about(summary: LabelSummary) -> str:
    """Describe the table's questions and its marks."""
    rows = [row for aspect in summary.aspects for row in aspect.standings.models]
    cases = plural(
        max((row.score.n for row in rows), default=summary.label.n),
        board_spec(summary.section.family).case,
    )
    against_run = any(row.run for aspect in summary.ranking for row in aspect.standings.models)
    guess = "the paper's random run" if against_run else "guessing"
    return f"{text(set_title(summary.section))}, {cases}. Bars: 95% intervals; dashed: {guess}."


def _sets(topic: Topic, summary: LabelSummary) -> str:
    """Draw the switch between the question sets that have scores on the label.

    Each set has a table of its own.
    """
    links = "".join(
        f'<a href="{address_of("topic", topic.slug, label=label_id(summary.label), set=label_set.section.key)}"'
        f"{' aria-current=true' if label_set.section is summary.section else ''}>{text(label_set.section.title())} "
        f"<em>{text(label_set.section.split)} · {plural(label_set.models, 'model')}</em></a>"
        for label_set in summary.sets
    )
    return links_row("Sets of questions", "Set of questions", links) if len(summary.sets) > 1 else ""


def _chips(topic: Topic, labels: Sequence[tuple[TopicLabel, Relation]], summary: LabelSummary | None) -> str:
    """Draw the topic's labels, one row per benchmark; the numbers count the benchmark's cases."""
    rows: dict[str, str] = {}
    for relation, prefix in (("same", ""), ("related", "Related · ")):
        for label in [label for label, label_relation in labels if label_relation == relation]:
            title = prefix + BENCHMARK_LABELS[label.family]
            current = " aria-current=true" if summary and label == summary.label else ""
            link = f'<a href="{address_of("topic", topic.slug, label=label_id(label))}"{current}>'
            name = f"{text(label_name(label))} <em>{count(label.n)}</em>"
            rows[title] = f"{rows.get(title, '')}{link}{name}</a>"
    return "".join(links_row(title, title, links) for title, links in rows.items())


def _table(summary: LabelSummary, every: bool) -> str:
    """Draw models by aspects, sorted by the first aspect.

    Each cell has the result that represents the model (`sections.preference_key`).
    """
    section, ranking = summary.section, summary.ranking
    # Model -> metric -> the row that represents the model.
    rows: dict[str, dict[str, Row]] = {}
    for aspect in summary.aspects:
        for name, model_rows in by_model(aspect.standings).items():
            rows.setdefault(name, {})[aspect.metric] = model_rows[0]
    names = sorted(rows, key=lambda name: _order(rows[name], summary))
    drawn_names = names if every else names[:MAX_FIRST_MODELS]
    n_others = sum(row.best_rank is not None for row in ranking[0].standings.models) - 1 if ranking else -1

    def rank(name: str) -> str:
        row = rows[name].get(ranking[0].metric) if ranking else None
        return rank_cell(row, n_others, "topic") if row else '<td class="place" data-v="">–</td>'

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
        "topic",
        label,
        columns,
        [("", drawn_names)],
        "matrix topic",
        lambda name: f' data-key="{text(name, 300)}"',
    )
    headline_metric = HEADLINE_METRICS[section.family]
    notes = (
        f"Ranked by “{text(ranking[0].does)}”. " if len(ranking) > 1 and n_others >= 0 else "",
        f"{text(sentences.substitute_metric_note(section, headline_metric, metrics[0]), 300)} "
        if ranking and headline_metric not in metrics
        else "",
        sentences.multiple_testing_note(summary.tested),
    )
    return f'{matrix}{all_rows_button(len(drawn_names), len(names), "model")}<p class="fine">{"".join(notes)}</p>'


def _score_column(summary: LabelSummary, aspect: Aspect, rows: Mapping[str, Mapping[str, Row]]) -> Column[str]:
    """Build the column of an aspect: the score of every model that has one.

    `rows`: model -> metric -> row.
    """
    section, metric = summary.section, aspect.metric
    title = aspect.does or metric_info(metric, section.family).label
    address = benchmark_address(section, None if aspect.given else metric, [summary.label.path])
    # The header states chance only if it is the same for every model.
    levels = {round(row.score.chance, 1) for row in aspect.standings.models if row.score.chance is not None}
    guess = f"guessing {sentences.format_chance(levels.pop())}" if len(levels) == 1 else ""
    under = f"<small>{text('not ranked: the label is the answer' if aspect.given else guess)}</small>"

    def cell(name: str) -> str:
        row = rows[name].get(metric)
        return matrix_cell(title, row.score if row else None, address, is_muted=aspect.given)

    return Column(title, cell, metric, "muted" if aspect.given else "", under=under)


def _order(rows: Mapping[str, Row], summary: LabelSummary) -> tuple[int, float]:
    """Return the sort key of a model.

    It is the first aspect in which the model has a score, then that score, best first. `rows`:
    metric -> row.
    """
    at, metric = next((at, aspect.metric) for at, aspect in enumerate(summary.aspects) if aspect.metric in rows)
    value = rows[metric].score.value or 0.0
    return at, value if metric_info(metric, summary.section.family).higher_is_better is False else -value


def _links(summary: LabelSummary) -> str:
    """Draw links to the label's leaderboard, cases and comparison, and share and save buttons."""
    label, section = summary.label, summary.section
    metric = summary.ranking[0].metric if summary.ranking else None
    has_cases = any(entry.answers is not None for entry in section.entries)
    cases = address_of("cases", set=set_name(section), label=f"{label.facet}:{label.value}")
    links = (
        (benchmark_address(section, metric, [label.path]), "Leaderboard"),
        *([(cases, "Cases")] if has_cases else []),
        (compare_address(section, metric, [label.path]), "Compare two models"),
    )
    link_html = "".join(f'<a class="link" href="{address}">{title}</a>' for address, title in links)
    return f'<p class="acts">{link_html}{action_buttons("topic")}</p>'


def _unknown_topic(name: str, similar: Sequence[Hit]) -> str:
    """Draw the page of an address that names no topic, with similar ones."""
    links = "".join(
        f'<li><a href="{hit.address}">{text(hit.name)}</a> <small>{text(hit.location, 200)}</small></li>'
        for hit in similar
    )
    suggestions = f"<p>Similar topics:</p><ul>{links}</ul>" if links else ""
    return (
        f'<h2 class="finding" data-title="No such topic">No benchmark here has a topic “{text(name)}”.</h2>{suggestions}'
        f'<p><a href="{address_of("overview")}">Back to the overview and its search</a></p>'
    )


def file(board: Board, request: Request) -> dict[str, str]:
    """Return the page's numbers as a file, one row each; or how to cite them.

    Args:
        board: The board.
        request: As for `page`; `as`: csv, json or cite.

    Returns:
        `name`, `text` and `type` of the file.

    Raises:
        BadInput: The page shows no numbers.
    """
    form = str(request.get("as"))
    topic = all_topics(board_labels(board, board.snapshot)).get(str(request.get("id") or ""))
    summary = label_summary(board, topic, str(request.get("label")), str(request.get("set"))) if topic else None
    if topic is None or summary is None:
        return table_file([], "topic", form)  # raises BadInput
    if form == "cite":
        entries = [row.entry for aspect in summary.aspects for row in aspect.standings.rows]
        title = f"{topic.name}: {summary.section.benchmark} ({summary.section.split})"
        return citation_file(title, f"Label: {label_name(summary.label)}.", entries, request)
    rows: Table = []
    for aspect in summary.aspects:
        scores = {summary.label.value: {row.entry.key: row.score for row in aspect.standings.models}}
        entries = [row.entry for row in aspect.standings.models]
        label_rows = breakdown_table(summary.section, entries, summary.label.facet, scores, aspect.metric)
        rows += [
            {"topic": topic.name, "relation": summary.relation, "given_away": aspect.given, **row} for row in label_rows
        ]
    return table_file(rows, f"topic-{topic.slug}", form)
