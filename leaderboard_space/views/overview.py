"""The first screen: one sentence, chips of modalities and departments, and the matrix of models and benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from eval_harness.records.result import Score, Verdict
from leaderboard_space import sentences
from leaderboard_space.benchmarks import LABELS
from leaderboard_space.data.published_results import table_of
from leaderboard_space.data.topics import Label, counts, known_topics
from leaderboard_space.export import Table, as_file, cited
from leaderboard_space.html import count, interval, options, percent, plural, prose, text
from leaderboard_space.overview import SIZES, Cell, Column, Line, Overview, selected
from leaderboard_space.views.addresses import address_of, benchmark_address, model_address
from leaderboard_space.views.parts import CITE_BOX, KINDS, Axis, acts, fitted

FIRST, MORE = 15, 100
"""Models that are drawn at first, and how many at most when the reader asks for more."""
LONGEST_PINS = 4000
"""Characters of an address that name models to show first."""
NARROW = 12.0
"""Percent of a column's axis under which an interval would hide behind its dot."""
WORD: dict[Verdict | None, str] = {
    "better": "better than guessing",
    "no different": "not significantly different from guessing",
    "worse": "worse than guessing",
    None: "not tested against guessing",
}
CLASS: dict[Verdict | None, str] = {"better": "better", "no different": "same", "worse": "worse", None: "untested"}
KIND_CLASS = {"proprietary": "p", "open": "o", "medical": "m"}
SIZE_NAMES = {"small": "under 8 billion", "middle": "8 to 20 billion", "large": "20 billion and more"}

Request = Mapping[str, Any]


def page(found: Overview, labels: Sequence[Label], request: Request) -> str:
    """Everything under the search, as HTML."""
    lines = _lines(found, request)
    unknown = str(request.get("unknown") or "")
    said = f'<p class="note">There is no page {text(unknown)} here. This is the overview.</p>' if unknown else ""
    return (
        f'{said}<h2 class="finding">{prose(sentences.trust(found.finding), 400)}</h2>'
        f"{_chips(labels)}{_bar(found, request, len(lines))}{_matrix(found, lines, request)}"
        f'<div class="bar-head below only-narrow"><span class="acts">{acts("matrix")}</span></div>{_legend(found)}'
    )


def _lines(found: Overview, request: Request) -> list[Line]:
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


def _chips(labels: Sequence[Label]) -> str:
    """Chips of modalities and departments: how many questions or images the benchmarks label so, and in which."""
    held, rows = counts(labels), ""
    for kind in ("modality", "department"):
        topics = [topic for topic in known_topics().values() if topic.kind == kind]
        size = {topic.slug: sum(label.n for label in held[topic.slug]) for topic in topics}
        topics.sort(key=lambda topic: (-size[topic.slug], topic.name))
        chips = ""
        for topic in topics:
            which = ", ".join(f"{LABELS[label.family]} {label.shown}: {count(label.n)}" for label in held[topic.slug])
            title = (
                f"Questions or images with this label: {which}"
                if which
                else "No benchmark here has this label; see related labels"
            )
            shown = f" <em>{count(size[topic.slug])}</em>" if size[topic.slug] else ""
            chips += (
                f'<a href="{address_of("topic", topic.slug)}" title="{text(title, 300)}">{text(topic.name)}{shown}</a>'
            )
        rows += f'<div class="topics" role="group" aria-label="{kind.title()}"><span>{kind.title()}</span><div>{chips}</div></div>'
    return rows


def _bar(found: Overview, request: Request, shown: int) -> str:
    """The heading of the matrix and what filters it."""
    kinds = [("", "every kind"), *((kind, KINDS[kind]) for kind in KIND_CLASS)]
    sizes = [("", "every size"), *((size, f"{SIZE_NAMES[size]} parameters") for size in SIZES)]
    years = sorted({line.date[:4] for line in found.lines}, reverse=True)
    since = [("", "any date"), *((year, f"results since {year}") for year in years[:-1])]
    selects = "".join(
        f'<select data-name="{name}" aria-label="{label}">{options(pairs, str(request.get(name) or ""))}</select>'
        for name, label, pairs in (("kind", "Kind of model", kinds), ("size", "Size", sizes), ("since", "Date", since))
    )
    of = (
        plural(shown, "model")
        if shown == len(found.lines)
        else f"{count(shown)} of {plural(len(found.lines), 'model')}"
    )
    return (
        f'<div class="bar-head"><h3>{of}, {plural(len(found.columns), "benchmark")}</h3>'
        f'<details class="filters" data-keep="filters"><summary>Filter</summary><span>{selects}</span></details>'
        f'<span class="acts">{acts("matrix")}</span></div>{CITE_BOX}'
    )


def _matrix(found: Overview, lines: Sequence[Line], request: Request) -> str:
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
    scales = {column.family: _scale(found, column.family) for column in found.columns}
    body = "".join(_line(found.columns, line, scales, pinned, found.tested) for line in drawn)
    rest = len(lines) - len(drawn)
    label = (
        f"All {count(len(lines))} models" if rest <= MORE else f"Show {count(MORE)} more of {count(len(lines))} models"
    )
    more = (
        f'<p class="turn"><button type="button" class="link" data-name="all" value="{steps + 1}">{label}</button></p>'
        if rest
        else ""
    )
    return f'<table class="matrix" aria-label="Every model on every benchmark">{_head(found, request)}<tbody>{body}</tbody></table>{more}'


def _head(found: Overview, request: Request) -> str:
    order = str(request.get("order") or "")

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
    for column in found.columns:
        aria, button = sorts(column.family, column.label, "d")
        guess = (
            f"guessing {'≈ ' if column.drawn else ''}{sentences.percent_of_chance(column.chance)}"
            if column.chance is not None
            else ""
        )
        cells += f'<th scope="col"{aria}>{button}<small>{text(column.task)}</small><small>{guess}</small></th>'
    return f"<thead><tr>{cells}</tr></thead>"


def _line(columns: Sequence[Column], line: Line, scales: Mapping[str, Axis], pinned: Sequence[str], tested: int) -> str:
    is_pinned = line.name in pinned
    names = [name for name in pinned if name != line.name] if is_pinned else [*pinned, line.name]
    value = ",".join(quote(name, safe="") for name in names)
    kind = KINDS.get(line.kind or "", "kind not stated")
    pin = (
        f'<button type="button" class="pin" data-focus="pin {text(line.name, 300)}" aria-pressed="{"true" if is_pinned else "false"}" '
        f'aria-label="Pin {text(line.name)}" title="{"Unpin" if is_pinned else "Keep at the top"}" data-name="pin" '
        f'value="{text(value, 8000)}"></button>'
    )
    cells = "".join(_cell(column, line.cells.get(column.family), scales[column.family], tested) for column in columns)
    return (
        f'<tr data-key="{text(line.name, 300)}"><th scope="row"><span class="who">{pin}'
        f'<i class="k k-{KIND_CLASS.get(line.kind or "", "u")}" title="{kind}"></i>'
        f'<a href="{model_address(line.name)}"><bdi>{text(line.name)}</bdi></a></span></th>{cells}</tr>'
    )


def _cell(column: Column, cell: Cell | None, scale: Axis, tested: int) -> str:
    if cell is None:
        return f'<td class="none" data-b="{text(column.label)}">not run</td>'
    score, row = cell.score, cell.row
    mark = sentences.MARK[cell.verdict]
    kind = row.entry.result.kind
    source = table_of(row.entry.result, column.metric) if kind == "published" else kind
    word = f"{WORD[cell.verdict]}, {sentences.corrected_for(tested)}" if cell.verdict else WORD[None]
    said = [word, sentences.behind(score), source or "published"]
    if column.section.key and cell.results > 1:
        said.append(f"1 of {cell.results} results")
    spoken = f'<span class="hear"> {word}, {_range(score)}</span>'
    return (
        f'<td class="{CLASS[cell.verdict]}" data-b="{text(column.label)}" title="{text(", ".join(said), 300)}">'
        f'<a class="c" href="{benchmark_address(column.section, column.metric)}"><b>{percent(score.value)}</b>'
        f'<span class="mark" aria-hidden="true">{mark}</span>{spoken}{_track(score, scale)}</a></td>'
    )


def _range(score: Score) -> str:
    if score.low is None or score.high is None:
        return "no interval"
    return f"95% interval {interval(score.low, score.high, score.chance)}"


def _track(score: Score, scale: Axis) -> str:
    """Interval, dot and the line of guessing, in percent of the axis."""

    def at(value: float) -> float:
        return min(max(100 * (value - scale[0]) / (scale[1] - scale[0]), 0.0), 100.0)

    narrow = score.low is not None and score.high is not None and at(score.high) - at(score.low) < NARROW
    parts = f'<i class="ch" style="left:{at(score.chance):.1f}%"></i>' if score.chance is not None else ""
    if score.low is not None and score.high is not None:
        parts += f'<i class="iv" style="left:{at(score.low):.1f}%;width:{at(score.high) - at(score.low):.1f}%"></i>'
    kind = "track narrow" if narrow else "track"
    return f'<span class="{kind}" aria-hidden="true">{parts}<i class="dot" style="left:{at(score.value or 0.0):.1f}%"></i></span>'


def _scale(found: Overview, family: str) -> Axis:
    """The axis of a column."""
    return fitted([cell.score for line in found.lines if (cell := line.cells.get(family)) is not None])


def _legend(found: Overview) -> str:
    drawn = [column.label for column in found.columns if column.drawn]
    kinds = "".join(
        f'<span><i class="k k-{mark}"></i>{KINDS[kind]}</span>'
        for kind, mark in KIND_CLASS.items()
        if any(line.kind == kind for line in found.lines)
    )
    return (
        f'<p class="fine kinds">{kinds}</p><p class="fine">Dot: score in percent; bar: 95% interval; dashed line: what guessing gets. '
        f"{sentences.MARK['better']} better than guessing, {sentences.MARK['no different']} not significantly different from it, "
        f"{sentences.MARK['worse']} worse: at 95%, {sentences.corrected_for(found.tested)} (Holm; all marks of the table, filtered or "
        "not); intervals are not corrected, and the pages of a benchmark and of a model test each row separately. "
        f"{text(sentences.by_random_run(drawn), 400)}"
        "No number is an average over benchmarks. "
        "The columns are the official question sets and include the papers' numbers.</p>"
    )


def file(found: Overview, request: Request) -> dict[str, str]:
    """The lines as they are selected, one row per number; or how to cite them (`of` or `as`: cite)."""
    lines = _lines(found, request)
    if str(request.get("as")) == "cite":
        title = "Overview: " + ", ".join(f"{column.section.benchmark} ({column.metric})" for column in found.columns)
        entries = [entry for column in found.columns for entry in column.section.entries]
        return cited(title, f"Selection: {_selection(request) or 'everything'}.", entries, request)
    rows: Table = []
    for line in lines:
        for column in found.columns:
            cell = line.cells.get(column.family)
            if cell is None:
                continue
            result, score = cell.row.entry.result, cell.score
            rows.append(
                {
                    "benchmark": column.section.benchmark,
                    "split": column.section.split,
                    "model": line.name,
                    "model_kind": line.kind,
                    "parameters": line.parameters,
                    "metric": column.metric,
                    "value": score.value,
                    "low": score.low,
                    "high": score.high,
                    "n": score.n,
                    "n_cases": score.n_cases,
                    "guessing": column.chance,
                    "mark": cell.verdict,
                    "marks_corrected": found.tested,
                    "kind": result.kind,
                    "source": result.source.citation if result.source else None,
                    "table": table_of(result, column.metric) if result.kind == "published" else None,
                    "run": cell.row.entry.key,
                }
            )
    said = _selection(request)
    return as_file(rows, f"overview-{said}" if said else "overview", str(request.get("as")))


def _selection(request: Request) -> str:
    """The filters in words; empty for everything."""
    return "; ".join(f"{key} {request[key]}" for key in ("kind", "size", "since") if request.get(key))
