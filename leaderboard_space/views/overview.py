"""The first screen: one sentence, chips of modalities and departments, and the matrix of models and benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from leaderboard_space import sentences
from leaderboard_space.benchmarks import LABELS
from leaderboard_space.data.published_results import table_of
from leaderboard_space.data.topics import Topic, TopicLabel, counts, known_topics
from leaderboard_space.export import Table, as_file, cited, number_columns
from leaderboard_space.html import count, options, plural, prose, text
from leaderboard_space.overview import SIZES, Column, ModelRow, Overview, ScoreCell, selected
from leaderboard_space.views.addresses import address_of, benchmark_address, model_address, set_name
from leaderboard_space.views.parts import CITE_BOX, KINDS, WORD, acts, cell, no_cell

FIRST, MORE = 20, 100
"""Models that are drawn at first, and how many at most when the reader asks for more."""
CHIPS = {"modality": 3, "department": 4}
"""Topics of each kind that are shown at first."""
LONGEST_PINS = 4000
"""Characters of an address that name models to show first."""
KIND_CLASS = {"proprietary": "p", "open": "o", "medical": "m"}
SIZE_NAMES = {"small": "under 8 billion", "middle": "8 to 20 billion", "large": "20 billion and more"}

Request = Mapping[str, Any]


def page(found: Overview, labels: Sequence[TopicLabel], request: Request) -> str:
    """Everything under the search, as HTML."""
    lines = _lines(found, request)
    unknown = str(request.get("unknown") or "")
    said = f'<p class="note">There is no page {text(unknown)} here. This is the overview.</p>' if unknown else ""
    return (
        f'{said}<h2 class="finding">{prose(sentences.trust(found.finding), 400)}</h2>'
        f"{_chips(labels)}{_bar(found, request, len(lines))}{_matrix(found, lines, request)}"
        f'<div class="bar-head below only-narrow"><span class="acts">{acts("matrix")}</span></div>{_legend(found)}'
    )


def _lines(found: Overview, request: Request) -> list[ModelRow]:
    """The lines that the request selects, pinned ones first."""
    name, _, way = str(request.get("order") or "").partition(":")
    kind, size, since = (str(request.get(key) or "") for key in ("kind", "size", "since"))
    lines = selected(found, kind, size, since, name, way == "a")
    pinned = _pinned(request)
    of_all = {line.name: line for line in found.lines}
    return [of_all[name] for name in pinned if name in of_all] + [line for line in lines if line.name not in pinned]


def _pinned(request: Request) -> list[str]:
    """The models to show first; every line's link to pin it repeats them, so there may not be any number of them."""
    return [unquote(name) for name in str(request.get("pin") or "")[:LONGEST_PINS].split(",") if name]


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
    sizes = [("", "every size"), *((size, f"{SIZE_NAMES[size]} parameters") for size in SIZES)]
    years = sorted({line.date[:4] for line in found.lines}, reverse=True)
    since = [("", "any date"), *((year, f"results since {year}") for year in years[:-1])]
    selects = "".join(
        f'<select data-name="{name}" aria-label="{label}">{options(pairs, str(request.get(name) or ""))}</select>'
        for name, label, pairs in (("size", "Size", sizes), ("since", "Date", since))
    )
    hidden = _hidden(request)
    columns = "".join(
        _choice("hide", ",".join(sorted(hidden ^ {column.family})), column.label, column.family not in hidden)
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
        f'<details class="filters" data-keep="filters"><summary>More filters, columns</summary><span>{selects}'
        f'<span class="choices" role="group" aria-label="Columns">{columns}</span></span></details>'
        f'{_compare_pins(found, request)}<span class="acts">{acts("matrix")}</span></div>{CITE_BOX}'
    )


def _choice(name: str, value: str, said: str, on: bool) -> str:
    """A button that chooses a filter or a column."""
    return (
        f'<button type="button" class="choice" data-name="{name}" data-focus="{name} {text(said)}" value="{text(value, 200)}" '
        f'aria-pressed="{"true" if on else "false"}">{text(said)}</button>'
    )


def _hidden(request: Request) -> frozenset[str]:
    """The benchmarks whose columns are left out."""
    return frozenset(str(request.get("hide") or "").split(",")) & frozenset(LABELS)


def _compare_pins(found: Overview, request: Request) -> str:
    """The first two pinned models side by side, on the first benchmark that both have a result of."""
    lines = {line.name: line for line in found.lines}
    pinned = [lines[name] for name in _pinned(request) if name in lines][:2]
    for column in found.columns if len(pinned) == 2 else ():
        one, other = (line.cells.get(column.family) for line in pinned)
        if one is not None and other is not None and one.row.entry in column.section.entries:
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
            '<p class="sub">No model matches these filters. '
            '<button type="button" class="link" data-clear="kind size since">Show all models</button></p>'
        )
    said = str(request.get("all") or "")
    steps = int(said) if said.isascii() and said.isdigit() and len(said) < 4 else 0
    pinned = _pinned(request)
    drawn = list(lines[: max(steps * MORE or FIRST, len(pinned))])
    hidden = _hidden(request)
    columns = [column for column in found.columns if column.family not in hidden]
    body = "".join(_line(columns, line, pinned) for line in drawn)
    rest = len(lines) - len(drawn)
    label = (
        f"All {count(len(lines))} models" if rest <= MORE else f"Show {count(MORE)} more of {count(len(lines))} models"
    )
    more = (
        f'<p class="turn"><button type="button" class="link" data-name="all" value="{steps + 1}">{label}</button></p>'
        if rest
        else ""
    )
    return f'<table class="matrix" aria-label="Every model on every benchmark">{_head(columns, request)}<tbody>{body}</tbody></table>{more}'


def _head(columns: Sequence[Column], request: Request) -> str:
    order = str(request.get("order") or "") or (f"{columns[0].family}:d" if columns else "")

    def sorts(name: str, label: str, first: str) -> tuple[str, str]:
        other = {"a": "d", "d": "a"}[first]
        now = order.partition(":")[2] if order.partition(":")[0] == name else ""
        after = {"": f"{name}:{first}", first: f"{name}:{other}"}.get(now, "")
        aria = {"a": ' aria-sort="ascending"', "d": ' aria-sort="descending"'}.get(now, "")
        return (
            aria,
            f'<button type="button" class="sorts" data-focus="order {name}" data-name="order" value="{text(after)}">{text(label)}</button>',
        )

    aria, button = sorts("model", "Model", "a")
    cells = f'<th scope="col"{aria}>{button}</th>'
    for column in columns:
        aria, button = sorts(column.family, column.label, "d")
        guess = (
            f"guessing {'≈ ' if column.drawn else ''}{sentences.percent_of_chance(column.chance)}"
            if column.chance is not None
            else ""
        )
        cells += f'<th scope="col"{aria}>{button}<small>{text(column.task)}</small><small>{guess}</small></th>'
    return f"<thead><tr>{cells}</tr></thead>"


def _line(columns: Sequence[Column], line: ModelRow, pinned: Sequence[str]) -> str:
    is_pinned = line.name in pinned
    names = [name for name in pinned if name != line.name] if is_pinned else [*pinned, line.name]
    value = ",".join(quote(name, safe="") for name in names)
    kind = KINDS.get(line.kind or "", "kind not stated")
    pin = (
        f'<button type="button" class="pin" data-focus="pin {text(line.name, 300)}" aria-pressed="{"true" if is_pinned else "false"}" '
        f'aria-label="Pin {text(line.name)}" title="{"Unpin" if is_pinned else "Keep at the top"}" data-name="pin" '
        f'value="{text(value, 8000)}"></button>'
    )
    cells = "".join(_cell(column, line.cells.get(column.family)) for column in columns)
    return (
        f'<tr data-key="{text(line.name, 300)}"><th scope="row"><span class="who">{pin}'
        f'<i class="k k-{KIND_CLASS.get(line.kind or "", "u")}" title="{kind}"></i>'
        f'<a href="{model_address(line.name)}"><bdi>{text(line.name)}</bdi></a></span></th>{cells}</tr>'
    )


def _cell(column: Column, found: ScoreCell | None) -> str:
    if found is None:
        return no_cell(column.label)
    score, result = found.score, found.row.entry.result
    source = table_of(result, column.metric) if result.kind == "published" else result.kind
    said = [WORD[score.verdict], sentences.behind(score), source or "published"]
    if column.section.key and found.results > 1:
        said.append(f"1 of {found.results} results")
    return cell(column.label, score, score.verdict, benchmark_address(column.section, column.metric), ", ".join(said))


def _legend(found: Overview) -> str:
    drawn = [column.label for column in found.columns if column.drawn]
    kinds = "".join(
        f'<span><i class="k k-{mark}"></i>{KINDS[kind]}</span>'
        for kind, mark in KIND_CLASS.items()
        if any(line.kind == kind for line in found.lines)
    )
    first = f"Sorted by {found.columns[0].label} at first; click a column to sort by it. " if found.columns else ""
    return (
        f'<p class="fine kinds">{kinds}</p><p class="fine">{text(first)}Axes run from 0 to 100%. Dot: score; bar: 95% interval; dashed: '
        f"guessing; –: no result. {sentences.MARK['better']} better than guessing, {sentences.MARK['no different']} not significantly "
        f"different, {sentences.MARK['worse']} worse. {sentences.each_alone(found.tested)} {text(sentences.by_random_run(drawn), 400)}"
        "Official question sets, papers' numbers included.</p>"
    )


def file(found: Overview, request: Request) -> dict[str, str]:
    """The lines as they are selected, one row per number; or how to cite them (`of` or `as`: cite)."""
    lines = _lines(found, request)
    if str(request.get("as")) == "cite":
        title = "Overview: " + ", ".join(f"{column.section.benchmark} ({column.metric})" for column in found.columns)
        entries = [entry for column in found.columns for entry in column.section.entries]
        return cited(title, f"Selection: {_selection(request) or 'everything'}.", entries, request)
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
    said = _selection(request)
    return as_file(rows, f"overview-{said}" if said else "overview", str(request.get("as")))


def _selection(request: Request) -> str:
    """The filters in words; empty for everything."""
    return "; ".join(f"{key} {request[key]}" for key in ("kind", "size", "since") if request.get(key))
