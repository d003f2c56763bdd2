"""The leaderboard of one section: toolbar, finding, dots with intervals against chance, legend, and what is set aside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from eval_harness.records.result import Result, Score
from eval_harness.scores.sight import Sight
from leaderboard_space import headlines, sentences
from leaderboard_space.benchmarks import spec
from leaderboard_space.data.model_names import entry_mark, identity_of
from leaderboard_space.data.published_results import is_random_run
from leaderboard_space.data.ranks.groups import GROUPS as APART
from leaderboard_space.data.ranks.groups import Group, display_names
from leaderboard_space.data.ranks.sight import sights_of
from leaderboard_space.data.ranks.standings import (
    ALL,
    ONE,
    Row,
    Standings,
    info_of,
    methods_of,
    own_cell,
    shown_method,
)
from leaderboard_space.data.store.sections import Section, Snapshot
from leaderboard_space.data.tree import FACET_LABEL, TreePath, group_by_subject, selection_name
from leaderboard_space.html import count, interval, number, options, plural, prose, score_text, text
from leaderboard_space.query import BoardQuery
from leaderboard_space.sentences import FEW
from leaderboard_space.views.parts import (
    CITE_BOX,
    FIRST,
    KINDS,
    Axis,
    acts,
    all_rows,
    benchmark_address,
    column_head,
    dots,
    explained,
    fitted,
    look,
    model_address,
    sorted_by,
)
from leaderboard_space.views.tables.breakdown import misprint_mark
from leaderboard_space.views.tables.provenance import tables_title, tags

NO_DIRECTION = "Neither end of this score is the better one: no ranks."
NBSP = "\N{NO-BREAK SPACE}"
COUNTED = "What the score divides by; in brackets how many independent ones it is worth, if fewer; hover over one for the cases"
ABSTAINED = "Responses that choose no option, in percent of all requested; hover over one for the accuracy where an option was chosen"
FROM_IMAGE = (
    "Points that the score loses without the right image (95% interval); the hollow dot is the best score without it"
)
GROUPS = (
    ("better", "significantly better than"),
    ("no different", "not significantly different from"),
    ("worse", "significantly worse than"),
)


def panel(query: BoardQuery, found: Standings, every: bool) -> str:
    """Everything right of the tree, as HTML. `every`: all rows of a long table are drawn."""
    section, branches = query.section, query.branches
    seen = {} if branches else sights_of(section, found.metric)
    without = [Score(value=each.arms[each.best_arm].score, n=0, n_cases=0) for each in seen.values()]
    axis = fitted(
        [*(row.score for row in found.rows), *without],
        info_of(found.metric, section.family).unit,
    )
    tag = tags([row.entry for row in found.rows])
    said = headlines.finding(section.family, found)
    return "".join(
        [
            _toolbar(query.snapshot, section, found.metric, query.metrics, query.shown),
            _dead_end(query, found)
            if _is_dead_end(query, found)
            else f'<h2 class="finding">{prose(said, 300)}</h2>'
            f'<p class="sub">{prose(headlines.caption(section.family, found, branches), 2000)}</p>',
            _notes(query, found),
            _table(section, found, axis, branches, every, tag, seen) if found.rows else "",
            _legend(found, bool(seen)) if found.rows else "",
        ]
    )


def _dead_end(query: BoardQuery, found: Standings) -> str:
    """What stands where labels are chosen of which nothing is known together: why, and each of them alone."""
    groups = group_by_subject(query.branches)
    names = selection_name(query.branches)
    unprinted = [FACET_LABEL[group[0][0]] for group in groups if query.tree.is_unprinted(group[0])]
    said = headlines.nothing_together(names, query.tree.size > 0 and not found.selected, unprinted)
    links = "".join(
        f'<a class="choice" href="{benchmark_address(query.section, None, group)}">Show {text(name, 80)}</a> '
        for group, name in zip(groups, names, strict=True)
        if not query.tree.is_unprinted(group[0])
    )
    return f'<h2 class="finding">{prose(said, 300)}</h2><p class="choices">{links}</p>'


def empty(family: str, problems: list[str]) -> str:
    """What stands where a benchmark has no results yet."""
    notes = "".join(f'<li class="note">{prose(line, 400)}</li>' for line in problems)
    return (
        '<h2 class="finding">No results yet.</h2><p class="sub">A run joins this board with '
        f"<code>medprobe eval {text(family)} --model MODEL</code>, then <code>medprobe submit RUN_DIR --to STORE</code>.</p>"
        + (f'<ul class="notes">{notes}</ul>' if notes else "")
    )


def _toolbar(snapshot: Snapshot, section: Section, metric: str, metrics: list[str], shown: str) -> str:
    sections = snapshot.sections[section.family]
    pills = ""
    if len(sections) > 1 or section.kind != "complete":
        pills = "".join(
            f'<label class="pill"><input type="radio" name="set-{section.family}" data-name="section" value="{text(other.key, 300)}"'
            f"{' checked' if other.key == section.key else ''}>{text(other.title())} <small>{_set_size(other, sections)}</small></label>"
            for other in sections
        )
        pills = f'<div class="pills" role="radiogroup" aria-label="Set of questions">{pills}</div>'
    choices = options([(name, info_of(name, section.family).label) for name in metrics], metric)
    runs = [(ONE, "one per model"), *((name, shown_method(name)) for name in methods_of(section)), (ALL, "all")]
    chooser = ""
    if len(section.entries) > len({entry.result.model.name for entry in section.entries}):
        chooser = f'<label>Results <select data-name="shown">{options(runs, shown)}</select></label>'
    score = f'<label class="metric">Score <select data-name="metric">{choices}</select></label>'
    return f'<div class="toolbar">{pills}<span class="choices">{chooser}{score}</span></div>'


def _set_size(section: Section, sections: Sequence[Section]) -> str:
    """What distinguishes a set from the other sections."""
    parts = [plural(section.questions, "question")] if section.questions else []
    if len({other.split for other in sections}) > 1:
        parts.insert(0, text(section.split))
    if sum(1 for other in sections if other.title() == section.title() and other.split == section.split) > 1:
        parts.append(text((section.fingerprint or section.key)[:8]))
    return " · ".join(parts)


def _table(
    section: Section,
    found: Standings,
    axis: Axis,
    branches: Sequence[TreePath],
    every: bool,
    tag: Mapping[str, str],
    seen: Mapping[str, Sight],
) -> str:
    names = display_names([row.entry for row in found.rows])
    groups = _groups(section.family, found.rows)
    in_order = [row.entry.key for _, rows in groups for row in rows]
    keys = set(in_order if every else in_order[:FIRST])
    abstentions = any(
        row.abstained is not None for row in found.rows
    )  # papers do not print how often a model abstained
    info = info_of(found.metric, section.family)
    sign = "%" if info.unit == "percent" else ""
    ticks = "".join(
        f'<span style="left:{100 * part:.0f}%">{number(axis[0] + part * (axis[1] - axis[0]), 0)}{sign if part == 1 else ""}</span>'
        for part in (0.0, 0.5, 1.0)
    )
    unit = " (%)" if sign else ""
    ends = f"Axis from {number(axis[0], 0)} to {number(axis[1], 0)}{sign}"
    head = (
        f"<thead><tr>{column_head('place', 'Rank', 'place')}"
        f"{column_head('name', 'Model', 'model')}"
        f'<th scope="col" class="chart"><span class="axis" aria-label="{ends}">{ticks}</span></th>'
        f"{column_head('num val', '%' if sign else 'Count', 'score', f'{info.label}{unit}')}"
        f"{column_head('num ci', '95% interval', 'interval', 'Sorts by the lower end')}"
        f"{column_head('num n', 'n', 'n', COUNTED)}"
        f"{column_head('num img', 'From the image', 'image', FROM_IMAGE) if seen else ''}"
        f"{column_head('num abst', 'Abstained', 'abstained', ABSTAINED) if abstentions else ''}"
        f"{column_head('src', 'Source', 'source')}</tr></thead>"
    )
    others = Counter(row.group for row in found.rows if row.first is not None)
    body = ""
    for title, rows in groups:
        heading = ""
        if title:
            heading = (
                f'<tr class="group"><th colspan="4" scope="rowgroup">{text(title)} '
                f"<span>{plural(len(rows), 'result')}</span></th></tr>"
            )
        lines = "".join(
            _row(
                row,
                axis,
                names[row.entry.key],
                tag[row.entry.key],
                found,
                branches,
                others,
                abstentions,
                section.family,
                seen,
            )
            for row in rows
            if row.entry.key in keys
        )
        body += f"<tbody>{heading}{lines}</tbody>" if lines else ""
    label = f"{info.label}, {section.title()}"
    return (
        f'<div class="scroll"><table class="board" data-table="leaderboard" aria-label="{text(label)}">{head}{body}</table></div>'
        f"{all_rows(len(keys), len(found.rows))}"
    )


def _groups(family: str, rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Rows by their verdict against chance; those that have none (no chance known, no value) follow."""
    tested = [row for row in rows if row.score.verdict is not None]
    guess = sentences.RANDOM_RUN if tested and all(row.run for row in tested) else spec(family).short_guess
    ranked = [row for row in rows if row.group == "ranked"]
    groups = [
        (f"{words} {guess}", [row for row in ranked if row.score.verdict == verdict]) for verdict, words in GROUPS
    ]
    groups.append((f"too few independent {spec(family).case}s", [row for row in ranked if row.score.is_small]))
    rest = [row for row in ranked if row.score.verdict is None and not row.score.is_small]
    if tested:
        itself = [row for row in rest if is_random_run(row.entry.result)]
        groups.append((f"{sentences.RANDOM_RUN} itself", itself))
        rest = [row for row in rest if row not in itself]
    judged, apart = any(found for _, found in groups), len(ranked) < len(rows)
    groups.append(("not compared with chance" if judged else "ranked" if apart else "", rest))
    groups += [(title, [row for row in rows if row.group == group]) for group, title in APART.items() if title]
    return [(title, found) for title, found in groups if found]


def _row(
    row: Row,
    axis: Axis,
    name: str,
    tag: str,
    found: Standings,
    branches: Sequence[TreePath],
    ranked: Mapping[Group, int],
    abstentions: bool,
    family: str,
    seen: Mapping[str, Sight],
) -> str:
    """One row of the table. `ranked`: how many rows of each group have ranks; `abstentions`: whether there is a column of them; `seen`:
    what of scores comes from the images, which is a column where any is known."""
    result, score, metric = row.entry.result, row.score, found.metric
    few = " few" if score.n_cases < FEW and score.value is not None else ""
    n = count(score.n) if score.independent_n is None else f"{count(score.n)} ({count(score.independent_n)})"
    behind = f' title="{text(sentences.behind_n(score), 100)}"' if score.value is not None else ""
    ends = interval(score)
    known = score.value is not None
    cell = None if row.recomputed else own_cell(row.entry, branches)
    mark = entry_mark(row.entry, metric, cell)
    said = (
        [
            f"n {count(score.n)}{f' (worth {count(score.independent_n)})' if score.independent_n is not None else ''}",
            mark,
        ]
        if known
        else [mark]
    )  # what a narrow screen has no columns for
    if row.abstained:
        said.insert(1, f"{score_text(row.abstained)}% abstained")
    small = " · ".join(part for part in (tag, *_remarks(row, found)) if part)
    beside = sentences.beside(row.abstained, row.answered_accuracy, row.ends)
    why = sentences.no_score(score, result)
    exact = "; ".join(part for part in (str(score.value) if known else "", why, beside) if part)
    note = misprint_mark(row.entry, metric, cell)
    abstained = (
        f'<td class="num abst" title="{text(beside, 300)}"{sorted_by(row.abstained)}>{score_text(row.abstained)}</td>'
        if abstentions
        else ""
    )
    sight = seen.get(row.entry.key)
    rest = sight.arms[sight.best_arm].score if sight is not None else None
    if sight is not None:
        said.insert(1, f"from the image: {sentences.points(sight)}")
    image = (
        f'<td class="num img"{sorted_by(sight.value if sight else None)}>{sentences.points(sight) if sight else "–"}</td>'
        if seen
        else ""
    )
    return (
        f'<tr class="{look(result.model.kind, score.verdict)}{few}" data-key="{text(row.entry.key, 400)}">'
        f"{rank_cell(row, ranked[row.group] - 1, family)}"
        f'<th scope="row" class="name"><a class="who" href="{model_address(identity_of(result.model.name))}"><i class="dot"></i>'
        f"<span>{text(name)}</span>{f' <small>{text(small, 240)}</small>' if small else ''}</a>"
        f'<button type="button" class="more" aria-expanded="false" aria-label="Provenance of this result of {text(name)}" '
        f'data-said="{text(" · ".join(part.replace(" ", NBSP) for part in said))}"></button></th>'
        f'<td class="chart">{dots(score, axis, rest)}</td>'
        f'<td class="num val" data-ci="{ends}" title="{text(exact, 400)}"'
        f"{sorted_by(score.value)}>{text(score_text(score.value, info_of(metric, family).unit))}{note}</td>"
        f'<td class="num ci"{sorted_by(score.low)}>{ends}</td>'
        f'<td class="num n"{behind}{sorted_by(score.n if known else None)}>{n if known else "–"}</td>'
        f"{image}{abstained}"
        f'<td class="src"{tables_title(result)}>{text(mark, 60)}</td></tr>'
    )


def _remarks(row: Row, found: Standings) -> list[str]:
    """What the store says of a result, in a word each; the details have it in full."""
    provenance = row.entry.provenance
    parts = []
    if row.tried > 1 and found.one_per_model:
        parts.append(f"1 of {count(row.tried)} runs")
    # Too few cases are the heading's; the rank's cell says how few.
    is_only_small = row.score.is_small and row.score.nonresponse is None
    why = "" if is_only_small else sentences.no_score(row.score, row.entry.result)
    parts += [why] if why else _unread(row.entry.result)
    if provenance.withdrawal is not None:
        parts.append(f"withdrawn: {provenance.withdrawal.reason}")
    if provenance.acceptance is not None and provenance.acceptance.flags:
        parts.append("flagged" if row.group != "withdrawn" else "was flagged")
    if provenance.notes:
        parts.append(plural(len(provenance.notes), "note"))
    return parts


def _unread(result: Result) -> list[str]:
    """Answers that are counted as wrong although they were never given in full: a low score may be a limit that was too low."""
    asked = sum(result.statuses.values())
    words = {"truncated": "cut off by the output limit", "failed": "failed", "missing": "missing"}
    found = {said: result.statuses.get(name, 0) for name, said in words.items()}
    return [f"{count(n)} of {count(asked)} answers {said}" for said, n in found.items() if 100 * n >= asked > 0]


def rank_cell(row: Row, others: int, where: str) -> str:
    """The cell of a row's ranks, a control that says why. `others`: how many more are ranked with it; `where`: the table's name."""
    if row.first is None or row.last is None:
        why = sentences.no_score(row.score, row.entry.result) or APART[row.group] or NO_DIRECTION
        why = "A baseline: shown for comparison, not ranked." if row.is_baseline else why
        return f'<td class="place" data-v="">{explained("ref" if row.is_baseline else "–", why, f"{where} {row.entry.key}")}</td>'
    said = sentences.ranks_in_words(row.first, row.last, row.ahead, row.behind, others - row.ahead - row.behind)
    ranks = f"{row.first}" if row.first == row.last else f"{row.first}–{row.last}"
    return f'<td class="place"{sorted_by(row.first)}>{explained(ranks, said, f"{where} {row.entry.key}")}</td>'


def _legend(found: Standings, seen: bool) -> str:
    there = {row.entry.result.model.kind for row in found.rows}
    marks = "".join(
        f'<span class="k-{kind}"><i class="dot"></i>{said}</span>' for kind, said in KINDS.items() if kind in there
    )
    if seen:
        marks += '<span><i class="rest"></i>best score without the right image</span>'
    if there - set(KINDS):
        marks += '<span class="k-unstated"><i class="dot"></i>kind not stated</span>'
    said = f"<span>{text(sentences.RANKS, 300)}</span>"
    return f'<div class="legend">{marks}{said}<span class="acts">{acts()}</span></div>{CITE_BOX}'


# ---- the notes above the table

KIND_NOTES = {
    "phantom": "Synthetic test images: these numbers show that the pipeline works and say nothing about medicine.",
    "sample": "Not the complete official set: its results are ranked among themselves.",
    "partial": "Not the complete official set: its results are ranked among themselves.",
    "unconfirmed": "It has as many questions as the paper reports, but we know of no released file that proves them to be the same: "
    "its results are ranked among themselves, not with the paper's numbers.",
    "retired": "Answers to an earlier version of the dataset, which has been replaced: ranked among themselves.",
    "custom": "Not the benchmark's own set, but one in its format: its results are ranked among themselves.",
}
"""What a set of questions is, where it is not the complete official one."""


def _notes(query: BoardQuery, found: Standings) -> str:
    """The notes as HTML; empty where there are none."""
    section = query.section
    lines = [KIND_NOTES[section.kind]] if section.kind in KIND_NOTES else []
    validated = {entry.result.benchmark.validated for entry in section.entries}
    if False in validated and True not in validated:
        lines.append("No person has checked the questions of this set.")
    lines += _unranked(query, found)
    lines += query.notes
    lines += [note for entry in section.entries for note in entry.notes]
    problems = [f"Set aside, unreadable: {problem}" for problem in query.snapshot.problems]
    if not lines and not problems:
        return ""
    shown = "".join(f'<li class="note">{prose(line, 400)}</li>' for line in lines[:8])
    more = f'<li class="note">and {len(lines) - 8} more</li>' if len(lines) > 8 else ""
    if problems:
        inner = "".join(f"<p>{text(line, 400)}</p>" for line in problems[:50])
        title = f"<summary>{plural(len(problems), 'file')} set aside</summary>"
        more += f'<li class="note"><details data-keep="problems">{title}{inner}</details></li>'
    return f'<ul class="notes">{shown}{more}</ul>'


def _is_dead_end(query: BoardQuery, found: Standings) -> bool:
    """True if nothing is known of a selection because papers print by one facet at a time, or no question has all of its labels."""
    together = len(group_by_subject(query.branches)) > 1 or any(
        query.tree.is_unprinted(path) for path in query.branches
    )
    return together and not found.rows and not found.facets_of_parts(query.branches)


def _unranked(query: BoardQuery, found: Standings) -> list[str]:
    """What a selection leaves out, and what it takes from elsewhere than answers."""
    branches = query.branches
    if _is_dead_end(query, found):
        return []  # the headline says it
    if not branches:
        told = ["The breakdown below shows what is known about its parts."]
        return told if not found.rows and found.facets_of_parts(()) else []
    ranked = {row.entry.result.model.name for row in found.rows}  # by another method, or measured
    left = [entry.result for entry in found.hidden if entry.result.model.kind != "baseline"]
    left = [result for result in left if result.model.name not in ranked]
    measured = {result.model.name for result in left if result.kind != "published"}
    lines = []
    for names, published in (({result.model.name for result in left} - measured, True), (measured, False)):
        if names:
            below = published and bool(found.facets_of_parts(branches))
            lines.append(sentences.not_ranked(len(names), published, below))
    taken = [row.entry.result.kind == "published" for row in found.rows if not row.recomputed]
    return lines + ([sentences.as_printed(sum(taken), len(taken) - sum(taken))] if taken and not lines else [])
