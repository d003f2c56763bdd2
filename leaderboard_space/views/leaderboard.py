"""The leaderboard of one section: toolbar, finding, dots with intervals against chance, legend, and what is set aside."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from eval_harness.results import Result, Score
from leaderboard_space import findings
from leaderboard_space.html import count, interval, number, options, plural, text
from leaderboard_space.sections import Entry, Section, Snapshot
from leaderboard_space.standings import ALL, ONE, Row, Standings, info_of, methods_of, own_score, with_interval
from leaderboard_space.tree import FACET_LABEL, SEPARATOR, Path

KINDS = {"proprietary": "proprietary", "open": "open weights", "medical": "medical", "baseline": "baseline"}
"""Kind of model -> what the legend says; a result that does not say is "kind not stated"."""
METHODS = {
    "best": "best over methods",
    "mc": "multiple choice",
    "gd": "greedy decoding",
    "ps": "prefix scoring",
    "ff": "free form",
}
FEW = 30
"""Cases under which a number is shown in grey."""
GROUPS = (("better", "better than"), ("no different", "no different from"), ("worse", "worse than"))


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
    info = info_of(found.metric)
    scale = _scale(found, info.unit)
    return "".join(
        [
            _toolbar(snapshot, section, found.metric, metrics, shown),
            f'<h2 class="finding">{text(findings.headline(section.format, found), 300)}</h2>',
            f'<p class="sub">{_caption(section, found, branches)}</p>',
            _notes(snapshot, section, found, branches, ready),
            _table(section, found, scale) if found.rows else "",
            _legend(found) if found.rows else "",
            _published_cells(found, branches),
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
            f'class="pill" data-section="{text(other.key, 300)}">{text(other.title())}'
            f" <small>{_set_size(other, sections)}</small></button>"
            for other in sections
        )
        pills = f'<div class="pills" role="radiogroup" aria-label="Set of questions">{pills}</div>'
    choices = options([(name, info_of(name).label) for name in metrics], metric)
    runs = [(ONE, "one per model"), *((name, METHODS.get(name, name)) for name in methods_of(section)), (ALL, "all")]
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


def _caption(section: Section, found: Standings, branches: Sequence[Path]) -> str:
    info = info_of(found.metric)
    case = findings.CASES.get(section.format, "case")
    sizes = {(row.score.n, row.score.n_cases) for row in found.rows if row.score.value is not None}
    said = [
        f"{info.label}: {info.description[:1].lower()}{info.description[1:]}" if info.description else info.label + "."
    ]
    if len(sizes) == 1:
        n, n_cases = sizes.pop()
        said.append(f"n = {count(n)}" + (f" from {plural(n_cases, case)}." if n != n_cases else f" {case}s."))
    where = " or ".join(SEPARATOR.join(branch[1:]) for branch in branches)
    said.append(f"Only {where}." if where else "Everything selected.")
    chances = {round(row.score.chance, 6) for row in found.rows if row.score.chance is not None}
    line = ""
    if len(chances) == 1:
        line = f", the dashed line is chance ({number(chances.pop(), 0)}%)"
    elif chances:
        line = ", the dashed line is each row's chance"
    said.append(f"Dots are scores, bars 95% intervals{line}.")
    if info.higher_is_better is False:
        said.append("Lower is better.")
    return text(" ".join(said), 2000)


def _notes(snapshot: Snapshot, section: Section, found: Standings, branches: Sequence[Path], ready: bool) -> str:
    lines = []
    if section.kind == "phantom":
        lines.append("Drawn test images: these numbers show that everything runs, and nothing about medicine.")
    elif section.kind in ("sample", "partial"):
        part = f" ({section.selection})" if section.selection else ""
        lines.append(f"Not the complete official set{part}: ranked only with itself.")
    elif section.kind == "custom":
        lines.append("Not the benchmark's own set, but one in its format: ranked only with itself.")
    if found.hidden and branches:
        models = len({entry.result.model.name for entry in found.hidden})
        them = "it" if models == 1 else "them"
        lines.append(
            f"{plural(models, 'model')} not ranked here: only published numbers are known of {them}, and no finer "
            "answers. Cells that are exactly one of the selected branches stand below."
        )
        if not found.rows and len(branches) == 1 and len(branches[0]) == 2:
            facet, label = branches[0]
            printed = {m for entry in found.hidden for m in entry.result.breakdown.get(facet, {}).get(label, {})}
            if printed:
                lines.append(f"Scores that are known here: {', '.join(sorted(info_of(m).label for m in printed))}.")
    elif any(not row.recomputed for row in found.rows) and branches:
        lines.append("Published cells are shown as printed; no finer answers are known of them.")
    if not ready:
        lines.append("The answers are still being read: scores as handed in, places without pairing.")
    lines += section.notes
    lines += [f"Set aside, unreadable: {problem}" for problem in snapshot.problems]
    if not lines:
        return ""
    shown = "".join(f'<li class="note">{text(line, 400)}</li>' for line in lines[:8])
    more = f'<li class="note">and {len(lines) - 8} more</li>' if len(lines) > 8 else ""
    return f'<ul class="notes">{shown}{more}</ul>'


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


def _table(section: Section, found: Standings, scale: float) -> str:
    info = info_of(found.metric)
    sign = "%" if info.unit == "percent" else ""
    ticks = "".join(
        f'<span style="left:{100 * part:.0f}%">{number(part * scale, 0)}{sign if part == 1 else ""}</span>'
        for part in (0.0, 0.5, 1.0)
    )
    head = (
        '<thead><tr><th scope="col" class="place" title="Places this model may hold: tied models overlap">Place</th>'
        '<th scope="col" class="name">Model</th>'
        f'<th scope="col" class="chart"><span class="axis" aria-label="Axis from 0 to {number(scale, 0)}">{ticks}</span></th>'
        f'<th scope="col" class="num val" aria-label="{text(info.label)}">{"%" if sign else "Count"}</th>'
        '<th scope="col" class="num ci">95% interval</th>'
        '<th scope="col" class="num n" title="n: what the score divides by; in brackets the independent cases">n</th>'
        '<th scope="col" class="src">Source</th></tr></thead>'
    )
    tags = _tags(found)
    body = ""
    for title, rows in _groups(section.format, found.rows):
        heading = ""
        if title:
            heading = (
                f'<tr class="group"><th colspan="2" scope="rowgroup">{text(title)} '
                f"<span>{plural(len(rows), 'result')}</span></th></tr>"
            )
        body += "<tbody>" + heading + "".join(_row(row, scale, tags[row.entry.key]) for row in rows) + "</tbody>"
    label = f"{info.label}, {section.title()}"
    return f'<div class="scroll"><table class="board" aria-label="{text(label)}">{head}{body}</table></div>'


def _groups(format: str, rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Rows by their verdict against chance; those that have none (no chance known, no value) follow."""
    guess = findings.short_guess(format)
    groups = [(f"{words} {guess}", [row for row in rows if row.score.verdict == verdict]) for verdict, words in GROUPS]
    rest = [row for row in rows if row.score.verdict is None]
    judged = any(found for _, found in groups)
    groups.append(("not compared with chance" if judged else "", rest))
    return [(title, found) for title, found in groups if found]


def _row(row: Row, scale: float, tag: str) -> str:
    result, score = row.entry.result, with_interval(row.score)
    kind = result.model.kind if result.model.kind in KINDS else "unstated"
    place = ""
    if row.first is not None:
        place = f"{row.first}" if row.first == row.last else f"{row.first}–{row.last}"
    elif row.is_baseline:
        place = '<abbr title="A baseline: shown for comparison, not ranked">ref</abbr>'
    few = " few" if score.n_cases < FEW and score.value is not None else ""
    n = count(score.n) if score.n == score.n_cases else f"{count(score.n)} ({count(score.n_cases)})"
    return (
        f'<tr class="k-{kind}{few}" data-key="{text(row.entry.key, 400)}"><td class="place">{place}</td>'
        f'<th scope="row" class="name"><button type="button" class="more" aria-expanded="false"><i class="dot"></i>'
        f"<span>{text(result.model.name)}</span>{f' <small>{text(tag, 60)}</small>' if tag else ''}</button></th>"
        f'<td class="chart">{_chart(score, scale)}</td><td class="num val" title="{text(score.value)}">{number(score.value)}</td>'
        f'<td class="num ci">{interval(score.low, score.high)}</td><td class="num n">{n if score.value is not None else "–"}</td>'
        f'<td class="src"{_tables(result)}>{text(source_mark(result))}</td></tr>'
    )


def _chart(score: Score, scale: float) -> str:
    """Interval bar, dot and chance line, positioned in percent of the axis; decoration for eyes, the numbers stand beside it."""

    def place(value: float) -> float:
        return min(max(100 * value / scale, 0.0), 100.0)

    parts = ""
    if score.chance is not None and math.isfinite(score.chance):
        parts += f'<i class="chance" style="left:{place(score.chance):.2f}%"></i>'
    if score.low is not None and score.high is not None:
        left, right = place(score.low), place(score.high)
        parts += f'<i class="bar" style="left:{left:.2f}%;width:{right - left:.2f}%"></i>'
    if score.value is not None and math.isfinite(score.value):
        parts += f'<i class="pt" style="left:{place(score.value):.2f}%"></i>'
    return f'<span class="track" aria-hidden="true">{parts}</span>'


def _tags(found: Standings) -> dict[str, str]:
    """What tells results of one model apart: the method, and the prompt or extraction where these differ within the section."""
    results = {row.entry.key: row.entry.result for row in found.rows}
    varied_prompt = len({(r.method.name, r.method.prompt) for r in results.values()}) > len(
        {r.method.name for r in results.values()}
    )
    tags: dict[str, str] = {}
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
        tags[key] = " · ".join(parts)
    return tags


def source_mark(result: Result) -> str:
    """Where a number comes from, in two words: `published · T1`, `measured` (submitted to us), `measured · by us`."""
    if result.kind == "published":
        tables = re.findall(r"[0-9]+", result.source.table or "") if result.source else []
        return f"published · T{tables[0]}{'+' if len(tables) > 1 else ''}" if tables else "published"
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
    return (
        f'<div class="legend">{marks}<span class="say">Models whose places overlap cannot be told apart by this benchmark.'
        f'</span><span class="acts">{buttons}</span></div><div class="cite" hidden></div>'
    )


def _published_cells(found: Standings, branches: Sequence[Path]) -> str:
    """The cells that papers print for the single branches of a selection which cannot be scored as one."""
    rows = ""
    for entry in found.hidden:
        cells = [own_score(entry, found.metric, [branch]) for branch in branches]
        if any(score is not None and score.value is not None for score in cells):
            numbers = "".join(
                f'<td title="n {score.n}, {score.n_cases} cases">{number(score.value)}</td>' if score else "<td>–</td>"
                for score in cells
            )
            name = f"{text(entry.result.model.name, 48)} <small>{text(source_mark(entry.result))}</small>"
            rows += f'<tr><th scope="row">{name}</th>{numbers}</tr>'
    if not rows:
        return ""
    head = "".join(f'<th scope="col"><span>{text(SEPARATOR.join(branch[1:]), 60)}</span></th>' for branch in branches)
    return (
        '<h3 class="cells">Published cells of the selected branches</h3><div class="scroll"><table class="heat" '
        f'aria-label="Published cells"><thead><tr><th scope="col">Model</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


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
        ("Deviations", "; ".join(result.deviations)),
        ("Questions", f"{count(benchmark.questions)}, {benchmark.split}"),
        ("Fingerprint", benchmark.fingerprint),
        ("Dataset", " ".join(str(x) for x in (benchmark.repo, benchmark.revision) if x)),
        ("Made", result.created_at),
        ("Command", result.command),
        ("Runs combined", ", ".join(result.run_ids or [])),
    ]
    if result.source:
        pairs += [("Source", result.source.citation), ("Table", result.source.table), ("Note", result.source.note)]
    items = "".join(
        f"<div><dt>{name}</dt><dd>{text(value, 600)}</dd></div>" for name, value in pairs if value not in (None, "")
    )
    return f'<dl class="detail">{items}</dl>'


def facet_name(facet: str) -> str:
    """A facet in words."""
    return FACET_LABEL.get(facet, facet.replace("_", " "))
