"""The first screen: one sentence, chips of modalities and departments, and the matrix of models and benchmarks."""

from __future__ import annotations

from collections.abc import Sequence

from leaderboard_space import headlines, sentences
from leaderboard_space.benchmarks import LABELS
from leaderboard_space.data.published_results import table_of
from leaderboard_space.data.topics import Topic, TopicLabel, counts, known_topics
from leaderboard_space.export import Table, as_file, cited, number_columns
from leaderboard_space.html import count, plural, prose, text
from leaderboard_space.overview import Column, ModelRow, Overview
from leaderboard_space.query import listed
from leaderboard_space.views.parts import (
    CITE_BOX,
    FIRST_MODELS,
    KINDS,
    WORD,
    Request,
    acts,
    address_of,
    all_rows,
    benchmark_address,
    cell,
    column_head,
    model_address,
    no_cell,
    set_name,
    set_title,
)

CHIPS = {"modality": 3, "department": 4}
"""Topics of each kind that are shown at first."""
KIND_CLASS = {"proprietary": "p", "open": "o", "medical": "m"}


def page(found: Overview, labels: Sequence[TopicLabel], request: Request) -> str:
    """Everything under the search, as HTML."""
    lines = _lines(found, request)
    unknown = str(request.get("unknown") or "")
    said = f'<p class="note">There is no page {text(unknown)} here. This is the overview.</p>' if unknown else ""
    return (
        f'{said}<h2 class="finding">{prose(headlines.trust(found.finding), 400)}</h2>'
        f"{_chips(labels)}{_apart(found)}{_bar(found, request, len(lines))}{_matrix(found, lines, request)}"
        f'<div class="bar-head below only-narrow"><span class="acts">{acts("matrix")}</span></div>{_legend(found)}'
    )


def _lines(found: Overview, request: Request) -> list[ModelRow]:
    """The lines that the request selects, pinned ones first."""
    pinned = _named(request, "pin")
    kind = str(request.get("kind") or "")
    rest = [line for line in found.lines if line.name not in pinned and kind in ("", line.kind)]
    return [line for line in found.lines if line.name in pinned] + rest


def _named(request: Request, key: str) -> list[str]:
    """What an address names under a key: the models to show first (`pin`), the columns to leave out (`hide`)."""
    return [str(one) for one in listed(request.get(key))]


def _chips(labels: Sequence[TopicLabel]) -> str:
    """A row of topics, the largest modalities and departments; the numbers count the questions or images that benchmarks label so."""
    held = counts(labels)
    size = {slug: sum(label.n for label in of) for slug, of in held.items()}
    by_size = sorted(known_topics().values(), key=lambda topic: (-size[topic.slug], topic.name))
    first = [topic for kind, n in CHIPS.items() for topic in [one for one in by_size if one.kind == kind][:n]]

    def link(topic: Topic) -> str:
        which = ", ".join(f"{LABELS[label.family]} {label.shown}: {count(label.n)}" for label in held[topic.slug])
        shown = f" <em>{count(size[topic.slug])}</em>" if size[topic.slug] else ""
        title = text(which or "Related labels only", 300)
        return f'<a href="{address_of("topic", topic.slug)}" title="{title}">{text(topic.name)}{shown}</a>'

    rest = "".join(link(topic) for topic in by_size if topic not in first)
    return (
        f'<div class="topics row" role="group" aria-label="Topics"><span>Questions on</span><div>{"".join(map(link, first))}</div>'
        f'<details data-keep="topics"><summary>All {len(by_size)}</summary><div>{rest}</div></details></div>'
    )


def _bar(found: Overview, request: Request, shown: int) -> str:
    """The heading of the matrix, and what chooses its rows and columns."""
    kinds = "".join(
        _choice("kind", kind, said, str(request.get("kind") or "") == kind)
        for kind, said in [("", "All"), *((kind, KINDS[kind].capitalize()) for kind in KIND_CLASS)]
    )
    hidden = _named(request, "hide")
    columns = "".join(
        _choice("hide", column.family, column.label, column.family not in hidden, " data-toggle")
        for column in found.columns
    )
    of = (
        plural(shown, "model")
        if shown == len(found.lines)
        else f"{count(shown)} of {plural(len(found.lines), 'model')}"
    )
    news = max((line.date for line in found.lines), default="")
    updated = f" <small>newest result: {text(news)}</small>" if news else ""
    return (
        f'<div class="bar-head"><h3>{of}{updated}</h3><span class="choices" role="group" aria-label="Kind of model">{kinds}</span>'
        '<details class="filters" data-keep="filters"><summary>Columns</summary>'
        f'<span class="choices" role="group" aria-label="Columns">{columns}</span></details>'
        f'{_compare_pins(found, request)}<span class="acts">{acts("matrix")}</span></div>{CITE_BOX}'
    )


def _choice(name: str, value: str, said: str, on: bool, more: str = "") -> str:
    """A button that chooses a filter, or one of several columns."""
    return (
        f'<button type="button" class="choice" data-name="{name}"{more} value="{text(value, 200)}" '
        f'aria-pressed="{"true" if on else "false"}">{text(said)}</button>'
    )


def _compare_pins(found: Overview, request: Request) -> str:
    """The first two pinned models side by side, on the first benchmark that both have a result of."""
    lines = {line.name: line for line in found.lines}
    pinned = [lines[name] for name in _named(request, "pin") if name in lines][:2]
    for column in found.columns if len(pinned) == 2 else ():
        one, other = (line.cells.get(column.family) for line in pinned)
        if one is not None and other is not None:
            address = address_of(
                "compare", set=set_name(column.section), first=one.row.entry.key, second=other.row.entry.key
            )
            return f'<a class="link" href="{address}">Compare {text(pinned[0].name)} and {text(pinned[1].name)}</a>'
    return ""


def _matrix(found: Overview, lines: Sequence[ModelRow], request: Request) -> str:
    if not found.columns:
        return '<p class="sub">There are no results on an official question set yet.</p>'
    if not lines:
        return (
            '<p class="sub">No model matches this filter. '
            '<button type="button" class="link" data-name="kind" value="">Show all models</button></p>'
        )
    pinned, hidden = _named(request, "pin"), _named(request, "hide")
    there = {family for line in lines for family in line.cells}
    columns = [column for column in found.columns if column.family not in hidden and column.family in there]
    first = [line for line in lines if line.name in pinned]
    rest = lines[len(first) :]
    rest = rest if request.get("all") == "yes" else rest[: max(FIRST_MODELS - len(first), 0)]
    heads = "".join(_head(column) for column in columns)
    above, below = (
        "".join(_line(columns, line, held) for line in part) for part, held in ((first, True), (rest, False))
    )
    return (
        '<table class="matrix" data-table="matrix" aria-label="Every model on every benchmark">'
        f"<thead><tr>{column_head('name', 'Model', 'model')}{heads}</tr></thead>"
        f"{f'<tbody data-fixed>{above}</tbody>' if above else ''}<tbody>{below}</tbody></table>"
        f"{all_rows(len(first) + len(rest), len(lines), 'model')}{_unknown_here(found, there)}"
    )


def _unknown_here(found: Overview, there: set[str]) -> str:
    """The benchmarks that have no column because they know none of the models that are selected."""
    missing = [column.label for column in found.columns if column.family not in there]
    return f'<p class="fine">No result of these models: {text(", ".join(missing), 300)}.</p>' if missing else ""


def _apart(found: Overview) -> str:
    """What the store holds besides the columns: one's own results, on whatever set."""
    total = sum(n for _, n in found.apart)
    if not total:
        return ""
    by_title: dict[str, list[str]] = {}
    for section, n in found.apart:
        name = LABELS[section.family] + (f" {section.split}" if section.is_official else "")
        link = f'<a href="{benchmark_address(section)}">{text(name)}</a> ({count(n)})'
        by_title.setdefault(section.title(), []).append(link)
    links = "; ".join(f"{text(title)}: {', '.join(held)}" for title, held in by_title.items())
    sets = "another set" if len(found.apart) == 1 else "other sets"
    return f'<p class="fine apart">This store also holds {plural(total, "result")} on {sets}. {links}.</p>'


def _head(column: Column) -> str:
    guess = (
        f"guessing {'≈ ' if column.drawn else ''}{sentences.percent_of_chance(column.chance)}"
        if column.chance is not None
        else ""
    )
    small = f"<small>{text(column.task)}</small><small>{guess}</small>"
    return column_head("", column.label, column.family, small=small)


def _line(columns: Sequence[Column], line: ModelRow, is_pinned: bool) -> str:
    kind = KINDS.get(line.kind or "", "kind not stated")
    pin = (
        f'<button type="button" class="pin" aria-pressed="{"true" if is_pinned else "false"}" aria-label="Pin {text(line.name)}" '
        f'title="{"Unpin" if is_pinned else "Keep at the top"}" data-name="pin" data-toggle value="{text(line.name, 300)}"></button>'
    )
    cells = "".join(_cell(column, line) for column in columns)
    return (
        f'<tr data-key="{text(line.name, 300)}"><th scope="row"><span class="who">{pin}'
        f'<i class="k k-{KIND_CLASS.get(line.kind or "", "u")}" title="{kind}"></i>'
        f'<a href="{model_address(line.name)}"><bdi>{text(line.name)}</bdi></a></span></th>{cells}</tr>'
    )


def _cell(column: Column, line: ModelRow) -> str:
    found, also = line.cells.get(column.family), _elsewhere(line, column.family)
    if found is None:
        return no_cell(column.label, also)
    score, result = found.score, found.row.entry.result
    source = table_of(result, column.metric) if result.kind == "published" else result.kind
    said = [WORD[score.verdict], sentences.behind(score), source or "published"]
    if found.results > 1:
        said.append(f"1 of {found.results} results")
    address = benchmark_address(column.section, column.metric)
    return cell(column.label, score, score.verdict, address, ", ".join(said), more=also)


def _elsewhere(line: ModelRow, family: str) -> str:
    """The mark of results on other sets of a benchmark, which leads to them."""
    sections = line.elsewhere.get(family, [])
    if not sections:
        return ""
    address = benchmark_address(sections[0]) if len(sections) == 1 else model_address(line.name)
    said = f"{line.name} also on: {'; '.join(map(set_title, sections))}"
    return f'<a class="also" href="{address}" title="{text(said, 400)}" aria-label="{text(said, 400)}">+{len(sections)}</a>'


def _legend(found: Overview) -> str:
    drawn = sentences.listed([column.label for column in found.columns if column.drawn])
    run = f"In {drawn}, guessing is the paper's own random run. " if drawn else ""
    kinds = "".join(
        f'<span><i class="k k-{mark}"></i>{KINDS[kind]}</span>'
        for kind, mark in KIND_CLASS.items()
        if any(line.kind == kind for line in found.lines)
    )
    order = f"then by {found.columns[0].label}" if found.columns else ""
    first = f"First the models that most benchmarks know, {order}; click a column to sort by it. " if order else ""
    return (
        f'<p class="fine kinds">{kinds}</p><p class="fine">{text(first)}Axes run from 0 to 100%. Dot: score; bar: 95% interval; dashed: '
        f"guessing; –: no result. {sentences.MARK['better']} better than guessing, {sentences.MARK['no different']} not significantly "
        f"different, {sentences.MARK['worse']} worse. {sentences.each_alone(found.tested)} {text(run, 400)}"
        "A column is one set of questions, that with most results; +1: a result on another set.</p>"
    )


def file(found: Overview, request: Request) -> dict[str, str]:
    """The lines as they are selected, one row per number; or how to cite them (`as`: cite)."""
    lines, kind = _lines(found, request), str(request.get("kind") or "")
    if str(request.get("as")) == "cite":
        title = "Overview: " + ", ".join(f"{column.section.benchmark} ({column.metric})" for column in found.columns)
        entries = [entry for column in found.columns for entry in column.section.entries]
        return cited(title, f"Selection: {f'kind {kind}' if kind else 'everything'}.", entries, request)
    rows: Table = [
        {
            **number_columns(column.section, cell.row.entry, column.metric, cell.score),
            "model": line.name,
            "model_kind": line.kind,
            "parameters": line.parameters,
        }
        for line in lines
        for column in found.columns
        if (cell := line.cells.get(column.family)) is not None
    ]
    return as_file(rows, f"overview-kind-{kind}" if kind else "overview", str(request.get("as")))
