"""The leaderboard of one section: toolbar, finding, dots with intervals against chance, legend, and what is set aside."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from eval_harness.results import Result, Score
from eval_harness.results.landing import Standing
from leaderboard_space import findings, sentences
from leaderboard_space.data.groups import FIRST_READER, called, group_of, newest_reader
from leaderboard_space.data.groups import GROUPS as APART
from leaderboard_space.data.published_results import table_of
from leaderboard_space.data.sections import Entry, Section, Snapshot
from leaderboard_space.data.standings import (
    ALL,
    ONE,
    Row,
    Standings,
    info_of,
    methods_of,
    own_cell,
    shown_method,
    with_interval,
)
from leaderboard_space.data.tree import Path, cells_under, shown_label
from leaderboard_space.html import count, interval, number, options, percent, plural, score_text, text
from leaderboard_space.sentences import FEW

KINDS = {"proprietary": "proprietary", "open": "open weights", "medical": "medical", "baseline": "baseline"}
"""Kind of model -> what the legend says; a result that does not say is "kind not stated"."""
NARROW = "\N{NO-BREAK SPACE}"
ABSTAINED = "Responses that choose no option, in percent of all asked for; point at one for the accuracy where an option was chosen"
GROUPS = (("better", "surely better than"), ("no different", "not told apart from"), ("worse", "surely worse than"))


def panel(
    snapshot: Snapshot,
    section: Section,
    found: Standings,
    metrics: list[str],
    branches: Sequence[Path],
    shown: str,
    ready: bool,
) -> str:
    """Everything right of the tree, as HTML."""
    info = info_of(found.metric, section.format)
    scale = _scale(found, info.unit)
    return "".join(
        [
            _toolbar(snapshot, section, found.metric, metrics, shown),
            f'<h2 class="finding">{text(findings.headline(section.format, found), 300)}</h2>',
            f'<p class="sub">{text(findings.caption(section.format, found, branches, any(_tags(found).values())), 2000)}</p>',
            _notes(snapshot, section, found, branches, ready),
            _table(section, found, scale, branches) if found.rows else "",
            _legend(found) if found.rows else "",
            _published_cells(found, branches, section.format),
        ]
    )


def empty(format: str, problems: list[str]) -> str:
    """What stands where a benchmark has no results yet."""
    remarks = "".join(f'<li class="note">{text(line, 400)}</li>' for line in problems)
    return (
        '<h2 class="finding">No results yet.</h2><p class="sub">A run joins this board with '
        f"<code>medprobe eval {text(format)} --model MODEL</code>, then <code>medprobe submit RUN_DIR --to STORE</code>.</p>"
        + (f'<ul class="notes">{remarks}</ul>' if remarks else "")
    )


def _toolbar(snapshot: Snapshot, section: Section, metric: str, metrics: list[str], shown: str) -> str:
    sections = snapshot.sections[section.format]
    pills = ""
    if len(sections) > 1 or section.kind != "complete":
        pills = "".join(
            f'<button type="button" role="radio" aria-checked="{"true" if other.key == section.key else "false"}" '
            f'tabindex="{0 if other.key == section.key else -1}" '
            f'class="pill" data-section="{text(other.key, 300)}">{text(other.title())}'
            f" <small>{_set_size(other, sections)}</small></button>"
            for other in sections
        )
        pills = f'<div class="pills" role="radiogroup" aria-label="Set of questions">{pills}</div>'
    choices = options([(name, info_of(name, section.format).label) for name in metrics], metric)
    runs = [(ONE, "one per model"), *((name, shown_method(name)) for name in methods_of(section)), (ALL, "all")]
    chooser = ""
    if len(section.entries) > len({entry.result.model.name for entry in section.entries}):
        chooser = f"<label>Results <select data-shown>{options(runs, shown)}</select></label>"
    score = f'<label class="metric">Score <select data-metric>{choices}</select></label>'
    return f'<div class="toolbar">{pills}<span class="choices">{chooser}{score}</span></div>'


def _set_size(section: Section, sections: Sequence[Section]) -> str:
    """How a set is told apart from its neighbours."""
    parts = [plural(section.questions, "question")] if section.questions else []
    if len({other.split for other in sections}) > 1:
        parts.insert(0, text(section.split))
    if sum(1 for other in sections if other.title() == section.title() and other.split == section.split) > 1:
        parts.append(text((section.fingerprint or section.key)[:8]))
    return " · ".join(parts)


def _notes(snapshot: Snapshot, section: Section, found: Standings, branches: Sequence[Path], ready: bool) -> str:
    lines = []
    if section.kind == "phantom":
        lines.append("Drawn test images: these numbers show that everything runs, and nothing about medicine.")
    elif section.kind in ("sample", "partial"):
        part = f" ({section.selection})" if section.selection else ""
        lines.append(f"Not the complete official set{part}: results on it are ranked among themselves.")
    elif section.kind == "unconfirmed":
        lines.append(
            "As many questions as the paper counts, but no released file is known to us that would prove them to be the same: "
            "ranked among results on it, not with the paper's numbers."
        )
    elif section.kind == "retired":
        lines.append("Answers to an earlier version of the dataset, which has been replaced: ranked among themselves.")
    elif section.kind == "custom":
        lines.append("Not the benchmark's own set, but one in its format: results on it are ranked among themselves.")
    lines += _unranked(found, branches)
    if not ready:
        lines.append("The answers are still being read: scores as handed in, places without pairing.")
    lines += section.notes
    lines += [note for entry in section.entries for note in entry.notes]
    problems = [f"Set aside, unreadable: {problem}" for problem in snapshot.problems]
    lines += problems if len(problems) == 1 else []
    if not lines and not problems:
        return ""
    shown = "".join(f'<li class="note">{text(line, 400)}</li>' for line in lines[:8])
    more = f'<li class="note">and {len(lines) - 8} more</li>' if len(lines) > 8 else ""
    if len(problems) > 1:
        inner = "".join(f"<p>{text(line, 400)}</p>" for line in problems[:50])
        title = f"<summary>{count(len(problems))} files were set aside</summary>"
        more += f'<li class="note"><details data-keep="problems">{title}{inner}</details></li>'
    return f'<ul class="notes">{shown}{more}</ul>'


def _unranked(found: Standings, branches: Sequence[Path]) -> list[str]:
    """What a selection leaves out, and what it takes from elsewhere than answers."""
    if not branches:
        return []
    ranked = {row.entry.result.model.name for row in found.rows}  # by another method, or measured
    left = [entry.result for entry in found.hidden if entry.result.model.kind != "baseline"]
    left = [result for result in left if result.model.name not in ranked]
    measured = {result.model.name for result in left if result.kind != "published"}
    lines = []
    for names, published in (({result.model.name for result in left} - measured, True), (measured, False)):
        if names:
            below = published and bool(published_cells(found, branches)[1])
            lines.append(sentences.not_ranked(len(names), published, below))
    taken = [row.entry.result.kind == "published" for row in found.rows if not row.recomputed]
    return lines + ([sentences.as_printed(sum(taken), len(taken) - sum(taken))] if taken and not lines else [])


def _scale(found: Standings, unit: str) -> float:
    """The right end of the axis: the first round number beyond every interval and chance."""
    ends = [0.0]
    for row in found.rows:
        score = with_interval(row.score)
        ends += [
            value for value in (score.value, score.high, score.chance) if value is not None and math.isfinite(value)
        ]
    largest = max(ends)
    if unit == "percent":
        return next((end for end in (10.0, 20.0, 50.0) if largest <= end), 100.0)
    power = 10 ** math.floor(math.log10(max(largest, 1.0)))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if largest <= step * power)


def _table(section: Section, found: Standings, scale: float, branches: Sequence[Path]) -> str:
    info = info_of(found.metric, section.format)
    sign = "%" if info.unit == "percent" else ""
    ticks = "".join(
        f'<span style="left:{100 * part:.0f}%">{number(part * scale, 0)}{sign if part == 1 else ""}</span>'
        for part in (0.0, 0.5, 1.0)
    )
    unit = " (%)" if sign else ""
    head = (
        f"<thead><tr>{_head('place', 'Place', 'place', 'The places this model may hold')}"
        f"{_head('name', 'Model', 'model')}"
        f'<th scope="col" class="chart"><span class="axis" aria-label="Axis from 0 to {number(scale, 0)}{sign}">{ticks}</span></th>'
        f"{_head('num val', '%' if sign else 'Count', 'score', f'{info.label}{unit}')}"
        f"{_head('num ci', '95% interval', 'interval', 'Sorts by the lower end')}"
        f"{_head('num n', 'n', 'n', 'What the score divides by; in brackets the independent cases')}"
        f"{_head('num abst', 'Abstained', 'abstained', ABSTAINED) if _abstentions(found) else ''}"
        f"{_head('src', 'Source', 'source')}</tr></thead>"
    )
    tags = _tags(found)
    names = called([row.entry for row in found.rows])
    body = ""
    for title, rows in _groups(section.format, found.rows):
        heading = ""
        if title:
            heading = (
                f'<tr class="group"><th colspan="4" scope="rowgroup">{text(title)} '
                f"<span>{plural(len(rows), 'result')}</span></th></tr>"
            )
        lines = "".join(
            _row(row, scale, names[row.entry.key], tags[row.entry.key], found, branches, format=section.format)
            for row in rows
        )
        body += f"<tbody>{heading}{lines}</tbody>"
    label = f"{info.label}, {section.title()}"
    return f'<div class="scroll"><table class="board" data-table="leaderboard" aria-label="{text(label)}">{head}{body}</table></div>'


def _groups(format: str, rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Rows by their verdict against chance; those that have none (no chance known, no value) follow."""
    guess = findings.short_guess(format)
    ranked = [row for row in rows if row.group == "ranked"]
    groups = [
        (f"{words} {guess}", [row for row in ranked if row.score.verdict == verdict]) for verdict, words in GROUPS
    ]
    rest = [row for row in ranked if row.score.verdict is None]
    judged, apart = any(found for _, found in groups), len(ranked) < len(rows)
    groups.append(("not compared with chance" if judged else "ranked" if apart else "", rest))
    groups += [(title, [row for row in rows if row.group == group]) for group, title in APART.items() if title]
    return [(title, found) for title, found in groups if found]


def _head(kind: str, said: str, name: str, title: str = "") -> str:
    """A column's head, a button that sorts by it."""
    hint = f' title="{text(title)}"' if title else ""
    return f'<th scope="col" class="{kind}" data-sort="{name}"><button type="button" class="sorts"{hint}>{text(said)}</button></th>'


def sorted_by(value: float | None) -> str:
    """The number a cell is sorted by, in full; nothing where there is none."""
    return f' data-v="{value!r}"' if value is not None and math.isfinite(value) else ' data-v=""'


def _row(
    row: Row, scale: float, name: str, tag: str, found: Standings, branches: Sequence[Path], format: str = ""
) -> str:
    result, score, metric = row.entry.result, with_interval(row.score), found.metric
    kind = result.model.kind if result.model.kind in KINDS else "unstated"
    few = " few" if score.n_cases < FEW and score.value is not None else ""
    n = count(score.n) if score.n == score.n_cases else f"{count(score.n)} ({count(score.n_cases)})"
    ends = interval(score.low, score.high)
    known = score.value is not None
    mark = entry_mark(row.entry, metric, own_cell(row.entry, branches))
    said = [f"n {n}", mark] if known else [mark]  # what a narrow screen has no columns for
    if row.abstained:
        said.insert(1, f"{percent(row.abstained)}% abstained")
    small = " · ".join(part for part in (tag, *_remarks(row, found)) if part)
    beside = sentences.beside(row.abstained, row.answered_accuracy)
    abstained = (
        f'<td class="num abst" title="{text(beside, 200)}"{sorted_by(row.abstained)}>{percent(row.abstained)}</td>'
        if _abstentions(found)
        else ""
    )
    return (
        f'<tr class="k-{kind}{few}" data-key="{text(row.entry.key, 400)}">{_place(row, found)}'
        f'<th scope="row" class="name"><button type="button" class="more" aria-expanded="false" '
        f'data-said="{text(" · ".join(part.replace(" ", NARROW) for part in said))}"><i class="dot"></i>'
        f"<span>{text(name)}</span>{f' <small>{text(small, 160)}</small>' if small else ''}</button></th>"
        f'<td class="chart">{dots(score, scale)}</td>'
        f'<td class="num val" data-ci="{ends}" title="{text(f"{score.value}; {beside}" if beside else score.value, 200)}"'
        f"{sorted_by(score.value)}>{score_text(score.value, info_of(metric, format).unit)}</td>"
        f'<td class="num ci"{sorted_by(score.low)}>{ends}</td>'
        f'<td class="num n"{sorted_by(score.n if known else None)}>{n if known else "–"}</td>'
        f"{abstained}"
        f'<td class="src"{_tables(result)}>{text(mark, 60)}</td></tr>'
    )


def _abstentions(found: Standings) -> bool:
    """Whether it is known of any row how often it abstained; papers do not print it."""
    return any(row.abstained is not None for row in found.rows)


def _remarks(row: Row, found: Standings) -> list[str]:
    """What the store says of a result, in a word each; the details have it in full."""
    standing = row.entry.standing
    parts = []
    if row.tried > 1 and found.one_per_model:
        parts.append(f"1 of {count(row.tried)} runs")
    parts += _unread(row.entry.result)
    if standing.withdrawal is not None:
        parts.append(f"withdrawn: {standing.withdrawal.reason}")
    if standing.landing is not None and standing.landing.flags:
        parts.append("flagged" if row.group != "withdrawn" else "was flagged")
    if standing.notes:
        parts.append(plural(len(standing.notes), "note"))
    return parts


def _unread(result: Result) -> list[str]:
    """Answers that are counted as wrong although nobody could read them: a score of 0 may be a limit that was too low."""
    asked = sum(result.statuses.values())
    found = {words: result.statuses.get(name, 0) for name, words in _UNREAD.items()}
    return [f"{count(n)} of {count(asked)} answers {words}" for words, n in found.items() if 100 * n >= asked > 0]


_UNREAD = {"truncated": "cut off by the output limit", "failed": "missing or failed"}


def _place(row: Row, found: Standings) -> str:
    """The cell of a row's places, which tells from how many others it is told apart."""
    if row.first is None:
        why = "A baseline: shown for comparison, not ranked" if row.is_baseline else "Not ranked"
        sign = "ref" if row.is_baseline else "–"
        return f'<td class="place" data-v=""><abbr title="{why}">{sign}</abbr></td>'
    others = [
        other for other in found.rows if other.first is not None and other.group == row.group and other is not row
    ]
    up = info_of(found.metric).higher_is_better is not False
    apart = [other for other in others if other.entry.key in row.apart_from]
    ahead = sum(((other.score.value or 0) > (row.score.value or 0)) == up for other in apart)
    said = sentences.place_in_words(ahead, len(apart) - ahead, len(others) - len(apart), row.first == 1)
    places = f"{row.first}" if row.first == row.last else f"{row.first}–{row.last}"
    return f'<td class="place" title="{text(said, 200)}"{sorted_by(row.first)}>{places}</td>'


def dots(score: Score, scale: float, rest: float | None = None) -> str:
    """Interval bar, dot and chance line, positioned in percent of the axis; decoration for eyes, the numbers stand beside it.

    `rest`: what the score is to be seen against, a hollow mark."""

    def place(value: float) -> float:
        return min(max(100 * value / scale, 0.0), 100.0)

    parts = ""
    if score.chance is not None and math.isfinite(score.chance):
        parts += f'<i class="chance" style="left:{place(score.chance):.2f}%"></i>'
    if score.low is not None and score.high is not None:
        left, right = place(score.low), place(score.high)
        parts += f'<i class="bar" style="left:{left:.2f}%;width:{right - left:.2f}%"></i>'
    if rest is not None and math.isfinite(rest):
        parts += f'<i class="rest" style="left:{place(rest):.2f}%"></i>'
    if score.value is not None and math.isfinite(score.value):
        parts += f'<i class="pt" style="left:{place(score.value):.2f}%"></i>'
    return f'<span class="track" aria-hidden="true">{parts}</span>'


def _tags(found: Standings) -> dict[str, str]:
    return tags([row.entry for row in found.rows])


def tags(entries: Sequence[Entry]) -> dict[str, str]:
    """What tells results apart: the method, and the prompt or extraction where these differ; nothing where all are alike. Results of one
    model that all this does not tell apart are told by their run."""
    results, by_key = {entry.key: entry.result for entry in entries}, {entry.key: entry for entry in entries}
    newest = newest_reader(entries)
    varied_prompt = len({(r.method.name, r.method.prompt) for r in results.values()}) > len(
        {r.method.name for r in results.values()}
    )
    found: dict[str, str] = {}
    for key, result in results.items():
        method = result.method
        parts = [method.name]
        if "variant" in method.generation:
            parts.append(str(method.generation["variant"]))
        if varied_prompt and method.prompt:
            parts.append(method.prompt)
        if method.extraction not in (None, "ours"):
            parts.append(f"{method.extraction} extraction")
        if method.shots:
            parts.append(f"{method.shots} shots")
        if method.samples and method.samples > 1:
            parts.append(f"{method.samples} samples")
        if group_of(by_key[key], newest) == "older reader":
            parts.append(f"reader {result.reader_version or FIRST_READER}")
        found[key] = " · ".join(parts)
    if len(set(found.values())) < 2:
        found = dict.fromkeys(found, "")
    alike = Counter((results[key].model.name, tag, entry_mark(by_key[key])) for key, tag in found.items())
    for key, tag in found.items():
        if alike[results[key].model.name, tag, entry_mark(by_key[key])] > 1:
            found[key] = " · ".join(part for part in (tag, key.rsplit("/", 1)[-1]) if part)
    return found


def entry_mark(entry: Entry, metric: str | None = None, cell: tuple[str, str] | None = None) -> str:
    """`source_mark` with the account that submitted the result, where the store knows it: `measured · alice`."""
    mark = source_mark(entry.result, metric, cell)
    return f"{mark} · {entry.account}" if mark in ("measured", "aggregate") and entry.account else mark


def source_mark(result: Result, metric: str | None = None, cell: tuple[str, str] | None = None) -> str:
    """Where a number comes from, in two words: `published · T1`, `measured` (submitted to us), `measured · by us`.

    With `metric` (and `cell`, a facet and its value) it is the one table that prints this number, else all the result's tables.
    """
    if result.kind == "published":
        own = table_of(result, metric, *(cell or ("", ""))) if metric else None
        tables = re.findall(r"[0-9]+", own or (result.source.table if result.source else None) or "")
        shown = ", ".join(tables) if len(tables) < 4 else f"{', '.join(tables[:2])} … {tables[-1]}"
        return f"published · T{shown}" if tables else "published"
    if result.kind == "aggregate":
        return "aggregate"
    return "measured · by us" if result.provenance == "reproduced" else "measured"


def _tables(result: Result) -> str:
    """The tables of a published result, as a title to read them all."""
    return f' title="{text(result.source.table, 200)}"' if result.source and result.source.table else ""


def _legend(found: Standings) -> str:
    there = {row.entry.result.model.kind for row in found.rows}
    marks = "".join(
        f'<span class="k-{kind}"><i class="dot"></i>{said}</span>' for kind, said in KINDS.items() if kind in there
    )
    if there - set(KINDS):
        marks += '<span class="k-unstated"><i class="dot"></i>kind not stated</span>'
    buttons = "".join(
        f'<button type="button" class="link" data-act="{act}">{said}</button>'
        for act, said in (("link", "Copy link"), ("csv", "CSV"), ("json", "JSON"), ("cite", "Cite"))
    )
    said = f'<span class="say">{text(sentences.PLACES, 300)}</span>'
    return f'<div class="legend">{marks}{said}<span class="acts">{buttons}</span></div><div class="cite" hidden></div>'


def published_cells(
    found: Standings, branches: Sequence[Path]
) -> tuple[list[Entry], dict[tuple[str, str], dict[str, Score]]]:
    """The cells that papers print within a selection that cannot be scored as one: results, and (facet, value) -> entry key -> score."""
    cells: dict[tuple[str, str], dict[str, Score]] = {}
    for entry in found.hidden:
        for branch in branches:
            for facet, value in cells_under(branch, entry.result.breakdown):
                score = entry.result.breakdown[facet][value].get(found.metric)
                if score is not None and score.value is not None:
                    cells.setdefault((facet, value), {})[entry.key] = with_interval(score)
    entries = [entry for entry in found.hidden if any(entry.key in held for held in cells.values())]
    first = next(iter(cells.values()), {})
    sign = -1 if info_of(found.metric).higher_is_better is not False else 1
    return sorted(
        entries, key=lambda entry: sign * (first[entry.key].value or 0.0) if entry.key in first else math.inf
    ), cells


def _published_cells(found: Standings, branches: Sequence[Path], format: str) -> str:
    label = info_of(found.metric, format).label
    entries, cells = published_cells(found, branches)
    if not entries:
        return ""
    rows = ""
    for entry in entries:
        numbers = "".join(
            _published_cell(entry, found.metric, cell, held.get(entry.key)) for cell, held in cells.items()
        )
        tables = {table_of(entry.result, found.metric, *cell) for cell, held in cells.items() if entry.key in held}
        numbered = {table.removeprefix("Table ") for table in tables if table}
        said = ", ".join(sorted(numbered, key=lambda name: (len(name), name)))
        mark = f"published · T{said}" if said else source_mark(entry.result)
        rows += (
            f'<tr><th scope="row">{text(entry.result.model.name, 80)} <small>{text(mark)}</small></th>{numbers}</tr>'
        )
    head = "".join(
        f'<th scope="col" data-sort="{text(value, 200)}"><button type="button" class="sorts">'
        f"<span>{text(shown_label(facet, value), 60)}</span></button><small>n {count(max(score.n for score in held.values()))}</small></th>"
        for (facet, value), held in cells.items()
    )
    return (
        f'<div class="bar-head"><h3 class="cells">{text(label)}: published cells of the selected branches</h3>'
        f'{files("cells")}</div><div class="scroll"><table class="heat" data-table="cells" aria-label="Published cells"><thead><tr>'
        f'<th scope="col" data-sort="model"><button type="button" class="sorts">Model</button></th>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _published_cell(entry: Entry, metric: str, cell: tuple[str, str], score: Score | None) -> str:
    if score is None:
        return '<td data-v="">–</td>'
    said = sentences.behind(score.low, score.high, score.n, score.n_cases)
    table = table_of(entry.result, metric, *cell)
    return f'<td{sorted_by(score.value)} title="{text(f"{said}, {table}" if table else said, 200)}">{number(score.value)}</td>'


def files(table: str) -> str:
    """What saves a table: a small disclosure with a button per form."""
    buttons = "".join(
        f'<button type="button" class="link" data-act="{form}" data-of="{table}">{said}</button>'
        for form, said in (("csv", "CSV"), ("json", "JSON"))
    )
    return f'<details class="save" data-keep="save-{table}"><summary>Save</summary><span>{buttons}</span></details>'


def detail(entry: Entry, section: Section) -> str:
    """The provenance of one result, as a list of what was said and how."""
    result = entry.result
    method, model, benchmark = result.method, result.model, result.benchmark
    pairs: list[tuple[str, object]] = [
        ("Run", entry.key),
        ("Model", " ".join(str(x) for x in (model.name, model.revision, model.snapshot_date) if x)),
        ("Parameters", count(model.parameters) if model.parameters else None),
        ("Method", method.name),
        ("Prompt", method.prompt),
        ("Shots", method.shots),
        ("Samples", method.samples),
        ("Extraction", method.extraction),
        ("Judge", method.judge),
        ("Generation", method.generation or None),
        ("Answers", ", ".join(f"{count(n)} {name}" for name, n in result.statuses.items() if n)),
        ("Options in every order", _permuted(result.environment.get("permuted"))),
        ("Deviations", "; ".join(result.deviations)),
        ("Questions", f"{count(benchmark.questions)}, {benchmark.split}"),
        ("Fingerprint", benchmark.fingerprint),
        ("Dataset", " ".join(str(x) for x in (benchmark.repo, benchmark.revision) if x)),
        ("Reader", result.reader_version or (FIRST_READER if result.kind == "measured" else None)),
        *_said_by_store(entry.standing),
        ("Made (as submitted)" if result.kind == "measured" else "Made", result.created_at),
        ("Command", result.command),
        ("Runs combined", ", ".join(result.run_ids or [])),
    ]
    if result.source:
        pairs += [("Source", result.source.citation), ("Table", result.source.table), ("Note", result.source.note)]
    items = "".join(
        f"<div><dt>{name}</dt><dd>{text(value, 2200 if name in LONG else 600)}</dd></div>"
        for name, value in pairs
        if value not in (None, "")
    )
    return f'<dl class="detail">{items}</dl>'


LONG = ("Withdrawn", "Note")
"""What is shown in full: a reason or a remark of the greatest length."""


def _said_by_store(standing: Standing) -> list[tuple[str, object]]:
    """Who submitted a result, when it landed, what its checks found, what was remarked, and whether it was taken back."""
    landing, withdrawal = standing.landing, standing.withdrawal
    pairs: list[tuple[str, object]] = []
    if landing is not None:
        pairs += [
            ("Submitted by", landing.account),
            ("Landed", landing.landed_at),
            ("Verified by", landing.verified_by),
        ]
        pairs += [("Flagged", flag) for flag in landing.flags]
    if withdrawal is not None:
        pairs.append(("Withdrawn", f"{withdrawal.withdrawn_at} by {withdrawal.account}: {withdrawal.reason}"))
    return pairs + [("Note", f"{note.written_at} by {note.account}: {note.text}") for note in standing.notes]


def _permuted(found: object) -> str | None:
    """What a run with the options in every order says: does the model choose the option, or the letter? None for other runs."""
    if not isinstance(found, dict):
        return None

    def share(name: str) -> str:
        value = found.get(name)
        return f"{number(value)}%" if isinstance(value, int | float) and not isinstance(value, bool) else "–"

    asked = found.get("questions")
    of = f" of {plural(asked, 'question')} answered in every order" if isinstance(asked, int) else ""
    return f"same option {share('same_option')}, same letter {share('same_letter')}{of}"
