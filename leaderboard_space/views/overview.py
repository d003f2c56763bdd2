"""Collect every model's score on every benchmark, and draw the first screen: one sentence, links to
modalities and departments, and the matrix of models and benchmarks.

No number is averaged over benchmarks, and no column mixes two question sets. The mark of a cell
shows the test of the leaderboard row to which the cell links, and the first sentence counts these
marks, so overview and leaderboard agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from leaderboard_space import headlines, sentences
from leaderboard_space.benchmarks import BENCHMARK_LABELS, board_spec
from leaderboard_space.data.board import Board
from leaderboard_space.data.cache import COMPUTING, cached
from leaderboard_space.data.published_results import printed_table
from leaderboard_space.data.sections import Row, Section, Snapshot, preference_key
from leaderboard_space.data.standings import Standings
from leaderboard_space.data.topics import Topic, TopicLabel, known_topics, labels_by_topic
from leaderboard_space.export import citation_file, number_columns, table_file
from leaderboard_space.headlines import TrustCounts
from leaderboard_space.html import count, plural, prose, text
from leaderboard_space.query import as_list, parse_query
from leaderboard_space.views.parts import (
    CITE_BOX,
    MAX_FIRST_MODELS,
    MODEL_KIND_TITLES,
    Request,
    action_buttons,
    address_of,
    all_rows_button,
    benchmark_address,
    model_address,
    set_title,
)
from leaderboard_space.views.search import board_labels
from leaderboard_space.views.tables.table import Column, matrix_cell, table


@dataclass(frozen=True)
class BenchmarkColumn:
    """A benchmark with the question set and the metric of its column.

    Args:
        family: Key of the benchmark.
        label: Its name.
        task: What models are asked to do, in words.
        section: The question set.
        metric: The headline metric.
        chance: What guessing gets, in percent; None if it differs by model or is not known.
        is_random_run: True if every test is against the paper's random run, and `chance` is its
            score.
    """

    family: str
    label: str
    task: str
    section: Section
    metric: str
    chance: float | None
    is_random_run: bool


@dataclass(frozen=True)
class ModelRow:
    """A model with its scores.

    Args:
        name: Name of the model.
        kind: proprietary, open, medical; None if not stated.
        parameters: Number of parameters; None if not stated.
        date: Day of its newest result here, YYYY-MM-DD.
        rows: Benchmark -> the model's rows there, the one that represents it first.
        elsewhere: Benchmark -> other question sets that the model has results on.
    """

    name: str
    kind: str | None
    parameters: int | None
    date: str
    rows: dict[str, list[Row]] = field(default_factory=dict)
    elsewhere: dict[str, list[Section]] = field(default_factory=dict)


@dataclass(frozen=True)
class Overview:
    """The matrix of models and benchmarks.

    Args:
        columns: Benchmarks, the one with most models first.
        rows: Models, those with most benchmarks first.
        finding: The numbers of the first sentence; None if no model is tested against guessing.
        other_sets: Question sets without a column, each with the number of the store's own results
            on it.
    """

    columns: list[BenchmarkColumn]
    rows: list[ModelRow]
    finding: TrustCounts | None
    other_sets: list[tuple[Section, int]] = field(default_factory=list)

    @property
    def tested(self) -> int:
        """Number of scores that are tested against guessing."""
        return sum(rows[0].score.verdict is not None for model in self.rows for rows in model.rows.values())


@cached(COMPUTING)
def load_overview(board: Board, snapshot: Snapshot) -> Overview:
    """Build the matrix from each benchmark's first question set, if that is official. Cached.

    If a model has several rows in a benchmark, `sections.preference_key` chooses the one that
    represents it.

    Args:
        board: The board.
        snapshot: Its current snapshot.
    """
    first_sections = [sections[0] for sections in snapshot.sections.values() if sections and sections[0].is_official]
    queries = [parse_query(board, {"format": section.family, "section": section.key}) for section in first_sections]
    # Use the section of each query: if the store has changed meanwhile, results must not be listed
    # under the earlier version of their section.
    sets = [(query.section, query.standings) for query in queries]
    columns: list[BenchmarkColumn] = []
    rows_by_model: dict[str, dict[str, list[Row]]] = {}
    for section, standings in sorted(sets, key=lambda item: -len(by_model(item[1]))):
        columns.append(_column(section, standings.metric, [rows[0] for rows in by_model(standings).values()]))
        for name, rows in by_model(standings).items():
            rows_by_model.setdefault(name, {})[section.family] = rows

    in_columns = {column.section for column in columns}
    other_sets = [section for section in snapshot.all_sections if section not in in_columns]
    # Sets are never merged: results on other sets only get a mark that links to them.
    elsewhere: dict[str, dict[str, list[Section]]] = {}
    for section in other_sets:
        for name in {entry.result.model.name for entry in section.entries}:
            elsewhere.setdefault(name, {}).setdefault(section.family, []).append(section)

    models: list[ModelRow] = []
    for name, model_rows in rows_by_model.items():
        results = [row.entry.result for rows in model_rows.values() for row in rows]
        kind = next((result.model.kind for result in results if result.model.kind), None)
        parameters = next((result.model.parameters for result in results if result.model.parameters), None)
        date = max(result.created_at for result in results)[:10]
        models.append(ModelRow(name, kind, parameters, date, model_rows, elsewhere.get(name, {})))
    # Models with most benchmarks first, so that the first rows are full.
    models.sort(key=lambda row: _order(row, columns[0].family))
    own_results = [(section, sum(entry.folder is not None for entry in section.entries)) for section in other_sets]
    return Overview(
        columns,
        models,
        _finding(columns, models),
        [(section, n) for section, n in own_results if n],
    )


def _column(section: Section, metric: str, rows: Sequence[Row]) -> BenchmarkColumn:
    """Build the column of a question set from the rows that represent its models."""
    family, tested = section.family, [row for row in rows if row.score.verdict is not None]
    # Exact chance and a random run are never mixed in one column's head.
    is_random_run = bool(tested) and all(row.run is not None for row in tested)
    chances = [row.score.chance for row in tested if is_random_run or not row.run]
    levels = {round(chance, 6) for chance in chances if chance is not None}
    chance = levels.pop() if len(levels) == 1 else None
    return BenchmarkColumn(
        family, BENCHMARK_LABELS[family], board_spec(family).task, section, metric, chance, is_random_run
    )


def by_model(standings: Standings) -> dict[str, list[Row]]:
    """Return model -> its rows, the one that represents it first."""
    rows: dict[str, list[Row]] = {}
    for row in sorted(standings.models, key=lambda row: preference_key(row.entry)):
        rows.setdefault(row.entry.result.model.name, []).append(row)
    return rows


def _order(row: ModelRow, first_family: str) -> tuple[int, bool, float, str]:
    """Return the sort key of a row: most benchmarks, then the score in the first, then the name."""
    first = row.rows.get(first_family)
    return -len(row.rows), first is None, -((first and first[0].score.value) or 0.0), row.name.lower()


def _finding(columns: list[BenchmarkColumn], rows: list[ModelRow]) -> TrustCounts | None:
    """Choose the numbers of the board's first sentence.

    They are those of the benchmark, among those with exact chance, in which the smallest share of
    models beats guessing.
    """
    findings: list[TrustCounts] = []
    for column in columns:
        # A random run is only a sample, so the first sentence uses benchmarks with exact chance.
        scored = [row.rows[column.family][0] for row in rows if column.family in row.rows and not column.is_random_run]
        verdicts = [row.score.verdict for row in scored if row.score.verdict is not None]
        if verdicts:
            guess = headlines.chance_name(column.family, column.metric)
            better, worse = verdicts.count("better"), verdicts.count("worse")
            findings.append(TrustCounts(column.task, len(verdicts), better, worse, guess))
    # The smallest share; of equal ones, the benchmark with most models.
    return min(findings, key=lambda trust: (trust.better / trust.models, -trust.models), default=None)


FIRST_TOPICS = {"modality": 3, "department": 4}
"""Kind of topic -> number of links shown at first."""
KIND_CLASS = {"proprietary": "p", "open": "o", "medical": "m"}


def page(board: Board, request: Request) -> str:
    """Draw everything below the search, as HTML.

    Args:
        board: The board.
        request: `kind` of model, `pin` and `hide` (models and columns), `all` (every row),
            `unknown` (an address without a page).
    """
    overview = load_overview(board, board.snapshot)
    rows = _selected_rows(overview, request)
    unknown = text(str(request.get("unknown") or ""))
    note = f'<p class="note">There is no page {unknown} here. This is the overview.</p>' if unknown else ""
    return (
        f'{note}<h2 class="finding">{prose(headlines.board_headline(overview.finding), 400)}</h2>'
        f"{_topics(board_labels(board, board.snapshot))}{_other_sets(overview)}"
        f"{_bar(overview, request, len(rows))}{_matrix(overview, rows, request)}"
        f'<div class="bar-head below only-narrow"><span class="acts">{action_buttons("matrix")}</span></div>{_legend(overview)}'
    )


def _selected_rows(overview: Overview, request: Request) -> list[ModelRow]:
    """Return the models that the request selects, pinned ones first."""
    pinned, kind = _names(request, "pin"), str(request.get("kind") or "")
    rows = [row for row in overview.rows if row.name in pinned or kind in ("", row.kind)]
    return sorted(rows, key=lambda row: row.name not in pinned)


def _names(request: Request, key: str) -> list[str]:
    """Return the names under a key of an address.

    They are models to show first (`pin`), or columns to leave out (`hide`).
    """
    return [str(name) for name in as_list(request.get(key))]


def _topics(labels: Sequence[TopicLabel]) -> str:
    """Draw links to topics, the largest modalities and departments first.

    The numbers count the cases with a label of the topic, over all benchmarks.
    """
    by_topic = labels_by_topic(labels)
    sizes = {slug: sum(label.n for label in of_topic) for slug, of_topic in by_topic.items()}
    by_size = sorted(known_topics().values(), key=lambda topic: (-sizes[topic.slug], topic.name))
    first_topics = [
        topic for kind, n in FIRST_TOPICS.items() for topic in [topic for topic in by_size if topic.kind == kind][:n]
    ]

    def link(topic: Topic) -> str:
        parts = (
            f"{BENCHMARK_LABELS[label.family]} {label.display_name}: {count(label.n)}" for label in by_topic[topic.slug]
        )
        size = f" <em>{count(sizes[topic.slug])}</em>" if sizes[topic.slug] else ""
        title = text(", ".join(parts) or "Related labels only", 300)
        return f'<a href="{address_of("topic", topic.slug)}" title="{title}">{text(topic.name)}{size}</a>'

    return (
        f'<div class="topics row" role="group" aria-label="Topics"><span>Questions on</span><div>{"".join(map(link, first_topics))}</div>'
        f'<details data-keep="topics"><summary>All {len(by_size)}</summary>'
        f"<div>{''.join(link(topic) for topic in by_size if topic not in first_topics)}</div></details></div>"
    )


def _bar(overview: Overview, request: Request, n_selected: int) -> str:
    """Draw the heading of the matrix, and the buttons that choose its rows and columns."""
    labels = {"": "All"} | {kind: MODEL_KIND_TITLES[kind].capitalize() for kind in KIND_CLASS}
    chosen, hidden = str(request.get("kind") or ""), _names(request, "hide")
    kinds = "".join(_choice("kind", kind, label, kind == chosen) for kind, label in labels.items())
    columns = "".join(
        _choice("hide", column.family, column.label, column.family not in hidden, " data-toggle")
        for column in overview.columns
    )
    total = plural(len(overview.rows), "model")
    selected = total if n_selected == len(overview.rows) else f"{count(n_selected)} of {total}"
    newest = max((row.date for row in overview.rows), default="")
    updated = f" <small>newest result: {text(newest)}</small>" if newest else ""
    return (
        f'<div class="bar-head"><h3>{selected}{updated}</h3><span class="choices" role="group" aria-label="Kind of model">{kinds}</span>'
        '<details class="filters" data-keep="filters"><summary>Columns</summary>'
        f'<span class="choices" role="group" aria-label="Columns">{columns}</span></details>'
        f'<span class="acts">{action_buttons("matrix")}</span></div>{CITE_BOX}'
    )


def _choice(name: str, value: str, label: str, is_on: bool, attributes: str = "") -> str:
    """Draw a button that chooses a filter, or shows and hides a column."""
    return (
        f'<button type="button" class="choice" data-name="{name}"{attributes} value="{text(value, 200)}" '
        f'aria-pressed="{"true" if is_on else "false"}">{text(label)}</button>'
    )


def _matrix(overview: Overview, rows: Sequence[ModelRow], request: Request) -> str:
    """Draw the table of models and benchmarks."""
    if not overview.columns:
        return '<p class="sub">There are no results on an official question set yet.</p>'
    if not rows:
        return (
            '<p class="sub">No model matches this filter. '
            '<button type="button" class="link" data-name="kind" value="">Show all models</button></p>'
        )
    pinned, hidden = _names(request, "pin"), _names(request, "hide")
    families = {family for row in rows for family in row.rows}
    # A column without any score of the selected models is only named below.
    benchmarks = [column for column in overview.columns if column.family in families.difference(hidden)]
    pinned_rows = [row for row in rows if row.name in pinned]
    # Pinned models are drawn even if there are many.
    drawn_rows = rows if request.get("all") == "yes" else rows[: max(MAX_FIRST_MODELS, len(pinned_rows))]
    matrix = table(
        "matrix",
        "Every model on every benchmark",
        [
            Column("Model", lambda row: _name_cell(row, row in pinned_rows), "model", "name"),
            *map(_score_column, benchmarks),
        ],
        [("", drawn_rows[len(pinned_rows) :])],
        "matrix",
        lambda row: f' data-key="{text(row.name, 300)}"',
        pinned_rows,
    )
    missing = ", ".join(column.label for column in overview.columns if column.family not in families)
    gaps = f'<p class="fine">No result of these models: {text(missing, 300)}.</p>' if missing else ""
    return f"{matrix}{all_rows_button(len(drawn_rows), len(rows), 'model')}{gaps}"


def _other_sets(overview: Overview) -> str:
    """Draw links to the store's results on question sets that have no column."""
    by_title: dict[str, list[str]] = {}
    for section, n in overview.other_sets:
        name = BENCHMARK_LABELS[section.family] + (f" {section.split}" if section.is_official else "")
        link = f'<a href="{benchmark_address(section)}">{text(name)}</a> ({count(n)})'
        by_title.setdefault(section.title(), []).append(link)
    links = "; ".join(f"{text(title)}: {', '.join(in_title)}" for title, in_title in by_title.items())
    sets = "another set" if len(overview.other_sets) == 1 else "other sets"
    total = plural(sum(n for _, n in overview.other_sets), "result")
    return f'<p class="fine apart">This store also has {total} on {sets}. {links}.</p>' if links else ""


def _name_cell(row: ModelRow, is_pinned: bool) -> str:
    """Draw the name of a model as a link to its page, with the button that pins it."""
    kind = row.kind or ""
    pin = (
        f'<button type="button" class="pin" aria-pressed="{"true" if is_pinned else "false"}" aria-label="Pin {text(row.name)}" '
        f'title="{"Unpin" if is_pinned else "Keep at the top"}" data-name="pin" data-toggle value="{text(row.name, 300)}"></button>'
    )
    return (
        f'<th scope="row"><span class="who">{pin}<i class="k k-{KIND_CLASS.get(kind, "u")}" '
        f'title="{MODEL_KIND_TITLES.get(kind, "kind not stated")}"></i>'
        f'<a href="{model_address(row.name)}"><bdi>{text(row.name)}</bdi></a></span></th>'
    )


def _score_column(benchmark: BenchmarkColumn) -> Column[ModelRow]:
    """Build the column of a benchmark: the score of every model that has one."""

    def cell(row: ModelRow) -> str:
        rows, elsewhere = row.rows.get(benchmark.family), _elsewhere(row, benchmark.family)
        if rows is None:
            return matrix_cell(benchmark.label, None, suffix=elsewhere)
        result = rows[0].entry.result
        source = printed_table(result, benchmark.metric) if result.kind == "printed" else result.kind
        results = [f"1 of {len(rows)} results"] if len(rows) > 1 else []
        address = benchmark_address(benchmark.section, benchmark.metric)
        return matrix_cell(
            benchmark.label,
            rows[0].score,
            address,
            [source or "published", *results],
            suffix=elsewhere,
        )

    guess = ""
    if benchmark.chance is not None:
        guess = f"guessing {'≈ ' if benchmark.is_random_run else ''}{sentences.format_chance(benchmark.chance)}"
    under = f"<small>{text(benchmark.task)}</small><small>{guess}</small>"
    return Column(benchmark.label, cell, benchmark.family, under=under)


def _elsewhere(row: ModelRow, family: str) -> str:
    """Draw the mark that links to a model's results on other sets of a benchmark; "" if none."""
    sections = row.elsewhere.get(family, [])
    address = benchmark_address(sections[0]) if len(sections) == 1 else model_address(row.name)
    title = text(f"{row.name} also on: {'; '.join(map(set_title, sections))}", 400)
    mark = f'<a class="also" href="{address}" title="{title}" aria-label="{title}">+{len(sections)}</a>'
    return mark if sections else ""


def _legend(overview: Overview) -> str:
    """Explain the marks of the matrix and how it is sorted."""
    against_runs = sentences.join_names([column.label for column in overview.columns if column.is_random_run])
    run = f"In {against_runs}, guessing is the paper's own random run. " if against_runs else ""
    kinds = "".join(
        f'<span><i class="k k-{mark}"></i>{MODEL_KIND_TITLES[kind]}</span>'
        for kind, mark in KIND_CLASS.items()
        if any(row.kind == kind for row in overview.rows)
    )
    order = ""
    if overview.columns:
        order = f"Models with results on most benchmarks first, then by {overview.columns[0].label}; click a column to sort by it. "
    better, same, worse = (sentences.VERDICT_SIGNS[verdict] for verdict in sentences.VERDICT_WORDS)
    return (
        f'<p class="fine kinds">{kinds}</p><p class="fine">{text(order)}Axes run from 0 to 100%. '
        f"Dot: score; bar: 95% interval; dashed: guessing; –: no result. {better} better than guessing, "
        f"{same} not significantly different, {worse} worse. "
        f"{sentences.multiple_testing_note(overview.tested)} {text(run, 400)}"
        "Each column is one set of questions, the one with most results; +1: a result on another set.</p>"
    )


def file(board: Board, request: Request) -> dict[str, str]:
    """Return the selected models as a file, one row per score; or how to cite them.

    Args:
        board: The board.
        request: As for `page`; `as`: csv, json or cite.

    Returns:
        `name`, `text` and `type` of the file.

    Raises:
        BadInput: No score is selected.
    """
    overview = load_overview(board, board.snapshot)
    form, kind = str(request.get("as")), str(request.get("kind") or "")
    if form == "cite":
        title = "Overview: " + ", ".join(f"{column.section.benchmark} ({column.metric})" for column in overview.columns)
        entries = [entry for column in overview.columns for entry in column.section.entries]
        return citation_file(title, f"Selection: {f'kind {kind}' if kind else 'everything'}.", entries, request)
    scores = [
        {
            **number_columns(column.section, rows[0].entry, column.metric, rows[0].score),
            "model": row.name,
            "model_kind": row.kind,
            "parameters": row.parameters,
        }
        for row in _selected_rows(overview, request)
        for column in overview.columns
        if (rows := row.rows.get(column.family)) is not None
    ]
    return table_file(scores, f"overview-kind-{kind}" if kind else "overview", form)
