"""Draw the leaderboard of a question set: toolbar, finding, notes, the table of results, and its
legend."""

from collections import Counter
from collections.abc import Mapping, Sequence

from eval_harness.records.result import Result, Score
from eval_harness.store.sight import ImageShare, Sight
from leaderboard_space import headlines, sentences
from leaderboard_space.benchmarks import board_spec, method_name, metric_info
from leaderboard_space.data.cache import COMPUTING, cached
from leaderboard_space.data.published_results import is_random_run
from leaderboard_space.data.sections import (
    ALL_RESULTS,
    GROUP_HEADINGS as APART,
    ONE_PER_MODEL,
    Row,
    Section,
    canonical_name,
    display_names,
    entry_source,
)
from leaderboard_space.data.standings import Standings, metric_sights, own_cell, section_mirages
from leaderboard_space.data.tree import TreePath, facet_title, group_by_subject, selection_group_names
from leaderboard_space.html import count, interval, number, options, plural, prose, score_text, text
from leaderboard_space.query import BoardQuery, section_methods
from leaderboard_space.sentences import MIN_CASES
from leaderboard_space.views.parts import (
    CITE_BOX,
    MAX_FIRST_RESULTS,
    MODEL_KIND_TITLES,
    action_buttons,
    all_rows_button,
    benchmark_address,
    distinguishing_tags,
    explanation_button,
    model_address,
    source_tables,
)
from leaderboard_space.views.tables.breakdown import misprint_mark
from leaderboard_space.views.tables.table import (
    Axis,
    Column,
    column,
    draw_chart,
    fit_axis,
    mark_classes,
    scrollable,
    sort_attribute,
    table,
)

NO_DIRECTION = "Neither direction of this score is better, so there are no ranks."
NBSP = "\N{NO-BREAK SPACE}"
SIZE_HINT = "Denominator of the score; in brackets how many independent units it is worth, if fewer; hover over a value for the cases"
ABSTAINED_HINT = "Percentage of requested responses that choose no option; hover over a value for the accuracy where an option was chosen"
IMAGE_HINT = (
    "Points that the score loses without the right image (95% interval); the hollow dot is the best score without it"
)
MIRAGE_HINT = "Percent of the questions answered although the image was withheld"
MAX_NOTES = 8
"""Maximum number of notes listed above the table."""


@cached(COMPUTING)
def panel(query: BoardQuery, every: bool) -> str:
    """Draw everything to the right of the tree, as HTML, cached.

    Args:
        query: Question set, selection and score.
        every: Draw all rows of a long table, not only the first.
    """
    section, family, standings = query.section, query.section.family, query.standings
    finding = f'<h2 class="finding">{prose(headlines.leaderboard_headline(family, standings), 300)}</h2>'
    caption = f'<p class="sub">{prose(headlines.leaderboard_caption(family, standings, query.branches), 2000)}</p>'
    # Runs without images are compared on the whole set only.
    sights = {} if query.branches else metric_sights(section, standings.metric)
    parts = (
        _toolbar(query),
        _dead_end(query) if _is_dead_end(query) else finding + caption,
        _notes(query),
        _table(section, standings, query.branches, every, sights) if standings.rows else "",
        _legend(standings, bool(sights)) if standings.rows else "",
    )
    return "".join(parts)


def _dead_end(query: BoardQuery) -> str:
    """Explain why no result covers the selected labels together, and link to each label alone."""
    groups, names = group_by_subject(query.branches), selection_group_names(query.branches)
    unprinted = [facet_title(group[0][0]) for group in groups if query.tree.is_unprinted(group[0])]
    finding = headlines.empty_selection_headline(names, query.tree.size > 0 and not query.standings.selected, unprinted)
    links = "".join(
        f'<a class="choice" href="{benchmark_address(query.section, None, group)}">Show {text(name, 80)}</a> '
        for group, name in zip(groups, names, strict=True)
        if not query.tree.is_unprinted(group[0])
    )
    return f'<h2 class="finding">{prose(finding, 300)}</h2><p class="choices">{links}</p>'


def empty_panel(family: str, problems: list[str]) -> str:
    """Draw the page of a benchmark that has no results yet.

    Args:
        family: Key of the benchmark.
        problems: Files of the store that cannot be read.
    """
    notes = "".join(f'<li class="note">{prose(problem, 400)}</li>' for problem in problems)
    return (
        '<h2 class="finding">No results yet.</h2><p class="sub">A run joins this board with '
        f"<code>medprobe eval {text(family)} --model MODEL</code>, then <code>medprobe submit RUN_DIR --to STORE</code>.</p>"
        + (f'<ul class="notes">{notes}</ul>' if notes else "")
    )


def _toolbar(query: BoardQuery) -> str:
    """Draw the fields that choose the question set, the results and the score."""
    section, pills, chooser = query.section, "", ""
    sections = query.snapshot.sections[section.family]
    if len(sections) > 1 or section.kind != "complete":
        pills = "".join(
            f'<label class="pill"><input type="radio" name="set-{section.family}" data-name="section" value="{text(option.key, 300)}"'
            f"{' checked' if option.key == section.key else ''}>{text(option.title())} <small>{_set_size(option, sections)}</small></label>"
            for option in sections
        )
        pills = f'<div class="pills" role="radiogroup" aria-label="Set of questions">{pills}</div>'
    if len(section.entries) > len({entry.result.model.name for entry in section.entries}):
        methods = [
            (ONE_PER_MODEL, "one per model"),
            *((name, method_name(name)) for name in section_methods(section)),
            (ALL_RESULTS, "all"),
        ]
        chooser = f'<label>Results <select data-name="shown">{options(methods, query.result_filter)}</select></label>'
    choices = options([(name, metric_info(name, section.family).label) for name in query.metrics], query.metric)
    score = f'<label class="metric">Score <select data-name="metric">{choices}</select></label>'
    return f'<div class="toolbar">{pills}<span class="choices">{chooser}{score}</span></div>'


def _set_size(section: Section, sections: Sequence[Section]) -> str:
    """Return what distinguishes a set from the benchmark's others.

    As far as needed, this is its split, number of questions and fingerprint.
    """
    twins = [
        candidate for candidate in sections if (candidate.title(), candidate.split) == (section.title(), section.split)
    ]
    parts = (
        text(section.split) if len({candidate.split for candidate in sections}) > 1 else "",
        plural(section.questions, "question") if section.questions else "",
        text((section.fingerprint or section.key)[:8]) if len(twins) > 1 else "",
    )
    return " · ".join(filter(None, parts))


def _table(
    section: Section,
    standings: Standings,
    branches: Sequence[TreePath],
    every: bool,
    sights: Mapping[str, Sight],
) -> str:
    """Draw the results in groups by their verdict.

    `sights`: entry key -> how much of a score comes from the image.
    """
    groups = _groups(section.family, standings.rows)
    # The limit counts rows across groups.
    in_order = [row.entry.key for _, rows in groups for row in rows]
    keys = set(in_order if every else in_order[:MAX_FIRST_RESULTS])
    parts = [
        (
            f"{text(title)} <span>{plural(len(rows), 'result')}</span>" if title else "",
            [row for row in rows if row.entry.key in keys],
        )
        for title, rows in groups
    ]
    mirages = {} if branches else section_mirages(section)
    columns = _columns(section.family, standings, branches, sights, mirages)
    label = f"{metric_info(standings.metric, section.family).label}, {section.title()}"
    board_table = table("leaderboard", label, columns, parts, "board", _row_marks)
    return f"{scrollable(board_table)}{all_rows_button(len(keys), len(standings.rows))}"


def _row_marks(row: Row) -> str:
    """Return the HTML attributes of a row."""
    few = " few" if row.score.n_cases < MIN_CASES and row.score.value is not None else ""
    return f' class="{mark_classes(row.entry.result.model.kind, row.score.verdict)}{few}" data-key="{text(row.entry.key, 400)}"'


def _columns(
    family: str,
    standings: Standings,
    branches: Sequence[TreePath],
    sights: Mapping[str, Sight],
    mirages: Mapping[str, ImageShare],
) -> list[Column[Row]]:
    """Build the columns of the table.

    Those on abstentions and on the image are left out if nothing is known about them.
    """
    metric, info = standings.metric, metric_info(standings.metric, family)
    entries = [row.entry for row in standings.rows]
    names, tag = display_names(entries), distinguishing_tags(entries)
    ranked = Counter(row.group for row in standings.rows if row.best_rank is not None)
    cells = {row.entry.key: None if row.from_answers else own_cell(row.entry, branches) for row in standings.rows}
    sources = {entry.key: entry_source(entry, metric, cells[entry.key]) for entry in entries}
    abstentions_by_key = {
        row.entry.key: sentences.format_abstention(row.abstained, row.answered_accuracy, row.ends)
        for row in standings.rows
    }
    hollow = {key: sight.arms[sight.best_arm].score for key, sight in sights.items()}
    without_image = [Score(value=value, n=0, n_cases=0) for value in hollow.values()]
    axis = fit_axis([*(row.score for row in standings.rows), *without_image], info.unit)

    def name_cell(row: Row) -> str:
        key, name, score = row.entry.key, text(names[row.entry.key]), row.score
        remarks = " · ".join(part for part in (tag[key], *_remarks(row, standings)) if part)
        worth = f" (worth {count(score.independent_n)})" if score.independent_n is not None else ""
        facts = (  # a narrow screen has no columns for them
            f"n {count(score.n)}{worth}" if score.value is not None else "",
            f"from the image: {sentences.format_image_gain(sights[key])}" if key in sights else "",
            f"{score_text(row.abstained)}% abstained" if row.abstained else "",
            sources[key],
        )
        return (
            f'<th scope="row" class="name"><a class="who" href="{model_address(canonical_name(row.entry.result.model.name))}">'
            f'<i class="dot"></i><span>{name}</span>{f" <small>{text(remarks, 240)}</small>" if remarks else ""}</a>'
            f'<button type="button" class="more" aria-expanded="false" aria-label="Provenance of this result of {name}" '
            f'data-said="{text(" · ".join(fact.replace(" ", NBSP) for fact in facts if fact))}"></button></th>'
        )

    def score_cell(row: Row) -> str:
        key, score = row.entry.key, row.score
        value = "" if score.value is None else str(score.value)
        exact = filter(
            None,
            (value, sentences.no_score_reason(score, row.entry.result), abstentions_by_key[key]),
        )
        return (
            f'<td class="num val" data-ci="{interval(score)}" title="{text("; ".join(exact), 400)}"{sort_attribute(score.value)}>'
            f"{text(score_text(score.value, info.unit))}{misprint_mark(row.entry, metric, cells[key])}</td>"
        )

    def size(score: Score) -> str:
        return count(score.n) if score.independent_n is None else f"{count(score.n)} ({count(score.independent_n)})"

    sign = "%" if info.unit == "percent" else ""
    columns = [
        Column("Rank", lambda row: rank_cell(row, ranked[row.group] - 1, family), "place", "place"),
        Column("Model", name_cell, "model", "name"),
        Column(
            "",
            lambda row: f'<td class="chart">{draw_chart(row.score, axis, hollow.get(row.entry.key))}</td>',
            kind="chart",
            under=_axis(axis, sign),
        ),
        Column(
            sign or "Count",
            score_cell,
            "score",
            "num val",
            f"{info.label} (%)" if sign else info.label,
        ),
        column(
            "95% interval",
            lambda row: interval(row.score),
            "interval",
            "num ci",
            "Sorts by the lower end",
            lambda row: row.score.low,
        ),
        column(
            "n",
            lambda row: size(row.score) if row.score.value is not None else "–",
            "n",
            "num n",
            SIZE_HINT,
            lambda row: row.score.n if row.score.value is not None else None,
            lambda row: sentences.describe_sample_size(row.score) if row.score.value is not None else "",
        ),
        column(
            "From the image",
            lambda row: sentences.format_image_gain(sights[row.entry.key]) if row.entry.key in sights else "–",
            "image",
            "num img",
            IMAGE_HINT,
            lambda row: sights[row.entry.key].value if row.entry.key in sights else None,
        ),
        column(
            "Answered without image (%)",
            lambda row: number(mirages[row.entry.key].value) if row.entry.key in mirages else "–",
            "mirage",
            "num abst",
            MIRAGE_HINT,
            lambda row: mirages[row.entry.key].value if row.entry.key in mirages else None,
            lambda row: (
                f"95% interval {mirages[row.entry.key].low:.1f} to {mirages[row.entry.key].high:.1f}"
                if row.entry.key in mirages
                else ""
            ),
        ),
        column(
            "Abstained",
            lambda row: score_text(row.abstained),
            "abstained",
            "num abst",
            ABSTAINED_HINT,
            lambda row: row.abstained,
            lambda row: abstentions_by_key[row.entry.key],
        ),
        column(
            "Source",
            lambda row: text(sources[row.entry.key], 60),
            "source",
            "src",
            tooltip=lambda row: source_tables(row.entry.result),
        ),
    ]
    abstentions = any(row.abstained is not None for row in standings.rows)  # papers do not print them
    # A column of dashes would only take space.
    absent = {"image": not sights, "mirage": not mirages, "abstained": not abstentions}
    return [column for column in columns if not absent.get(column.key)]


def _axis(axis: Axis, sign: str) -> str:
    """Draw the header of the chart: the ends and the middle of its axis."""
    ticks = "".join(
        f'<span style="left:{100 * part:.0f}%">{number(axis[0] + part * (axis[1] - axis[0]), 0)}{sign if part == 1 else ""}</span>'
        for part in (0.0, 0.5, 1.0)
    )
    ends = f"Axis from {number(axis[0], 0)} to {number(axis[1], 0)}{sign}"
    return f'<span class="axis" aria-label="{ends}">{ticks}</span>'


def _groups(family: str, rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Return title and rows of each part of the table.

    First come the rows by verdict against chance, then those without a verdict, then the unranked
    ones.
    """
    is_tested = any(row.score.verdict is not None for row in rows)
    # The heading names the random run only if all tests are against it.
    against_run = is_tested and all(row.run for row in rows if row.score.verdict is not None)
    guess = sentences.RANDOM_RUN if against_run else board_spec(family).short_guess
    ranked = [row for row in rows if row.group == "ranked"]
    untested = [row for row in ranked if row.score.verdict is None and not row.score.is_small]
    random_runs = [row for row in untested if is_tested and is_random_run(row.entry.result)]
    groups = [
        *(
            (f"{words} {guess}", [row for row in ranked if row.score.verdict == verdict])
            for verdict, words in sentences.VERDICT_WORDS.items()
        ),
        (
            f"too few independent {board_spec(family).case}s",
            [row for row in ranked if row.score.is_small],
        ),
        (f"{sentences.RANDOM_RUN} itself", random_runs),
    ]
    has_groups = any(in_group for _, in_group in groups)
    title = "not compared with chance" if has_groups else "ranked" if len(ranked) < len(rows) else ""
    groups.append((title, [row for row in untested if row not in random_runs]))
    groups += [(title, [row for row in rows if row.group == group]) for group, title in APART.items() if title]
    return [(title, in_group) for title, in_group in groups if in_group]


def _remarks(row: Row, standings: Standings) -> list[str]:
    """List the store's remarks on a result, in a few words each; the details have them in full."""
    provenance, result = row.entry.provenance, row.entry.result
    # If too few cases are the only reason, the group's heading and the rank's cell state it.
    is_only_small = row.score.is_small and row.score.nonresponse is None
    why = "" if is_only_small else sentences.no_score_reason(row.score, result)
    flags = provenance.acceptance.flags if provenance.acceptance is not None else []
    remarks = (
        f"1 of {count(row.tried)} runs" if row.tried > 1 and standings.one_per_model else "",
        f"1 of {count(row.account_tries)} tries by this account" if row.account_tries > max(row.tried, 1) else "",
        *([why] if why else _unread(result)),
        f"withdrawn: {provenance.withdrawal.reason}" if provenance.withdrawal is not None else "",
        ("was flagged" if row.group == "withdrawn" else "flagged") if flags else "",
    )
    return [remark for remark in remarks if remark]


def _unread(result: Result) -> list[str]:
    """List answers that count as wrong although they were not given in full.

    An output limit that is too low, for example, lowers the score.
    """
    n_asked = sum(result.statuses.values())
    reasons = (
        ("truncated", "cut off by the output limit"),
        ("failed", "failed"),
        ("missing", "missing"),
    )
    counts = [(result.statuses.get(status, 0), reason) for status, reason in reasons]
    return [f"{count(n)} of {count(n_asked)} answers {reason}" for n, reason in counts if 100 * n >= n_asked > 0]


def rank_range(row: Row) -> str:
    """Format the ranks that a row may hold: `3`, or `3–7`."""
    return f"{row.best_rank}" if row.best_rank == row.worst_rank else f"{row.best_rank}–{row.worst_rank}"


def rank_cell(row: Row, n_others: int, table_name: str) -> str:
    """Draw the cell of a row's ranks as a control that explains them.

    Args:
        row: The row.
        n_others: Number of other rows that are ranked with it.
        table_name: The table's name, which makes the control's id unique on the page.
    """
    if row.best_rank is None or row.worst_rank is None:
        why = sentences.no_score_reason(row.score, row.entry.result) or APART[row.group] or NO_DIRECTION
        kind = MODEL_KIND_TITLES.get(row.entry.result.model.kind or "")
        why = f"A {kind}: shown for comparison, not ranked." if row.is_reference else why
        ranks = "ref" if row.is_reference else "–"
    else:
        why = sentences.explain_ranks(row.best_rank, row.worst_rank, n_others + 1)
        ranks = rank_range(row)
    return f'<td class="place"{sort_attribute(row.best_rank)}>{explanation_button(ranks, why, f"{table_name} {row.entry.key}")}</td>'


def _legend(standings: Standings, has_sights: bool) -> str:
    """Draw the meaning of the chart's marks, and the buttons that share and save the table."""
    kinds = {row.entry.result.model.kind for row in standings.rows}
    marks = [(f"k-{kind}", "dot", words) for kind, words in MODEL_KIND_TITLES.items() if kind in kinds]
    if has_sights:
        marks.append(("", "rest", "best score without the right image"))
    if kinds - set(MODEL_KIND_TITLES):
        marks.append(("k-unstated", "dot", "kind not stated"))
    mark_html = "".join(f'<span class="{kind}"><i class="{shape}"></i>{words}</span>' for kind, shape, words in marks)
    ranks = f"<span>{text(sentences.RANKS_NOTE, 300)}</span>"
    return f'<div class="legend">{mark_html}{ranks}<span class="acts">{action_buttons()}</span></div>{CITE_BOX}'


# ---- the notes above the table

KIND_NOTES = {
    "phantom": "Synthetic test images: these numbers show that the pipeline works and say nothing about medicine.",
    "sample": "Not the complete official set: its results are ranked among themselves.",
    "partial": "Not the complete official set: its results are ranked among themselves.",
    "unconfirmed": "It has as many questions as the paper reports, but we know of no released file that proves them to be the same: "
    "its results are ranked among themselves, not with the paper's numbers.",
    "retired": "Answers to an earlier version of the dataset, which has been replaced: ranked among themselves.",
    "custom": "A set of its own, not the benchmark's: its results are ranked among themselves.",
}
"""Kind of question set -> note that explains it; the complete official set has none."""


def _notes(query: BoardQuery) -> str:
    """Draw the notes above the table and the store's unreadable files; "" if there are none."""
    section, problems = query.section, query.snapshot.problems
    validated = {entry.result.benchmark.validated for entry in section.entries}
    # State this once for the set, not for each result.
    unchecked = "No person has checked the questions of this set."
    notes = [
        *([KIND_NOTES[section.kind]] if section.kind in KIND_NOTES else []),
        *([unchecked] if False in validated and True not in validated else []),
        *_unranked(query),
        *query.notes,
        *(note for entry in section.entries for note in entry.notes),
    ]
    items = [prose(note, 400) for note in notes[:MAX_NOTES]]
    if len(notes) > MAX_NOTES:
        items.append(f"and {len(notes) - MAX_NOTES} more")
    if problems:
        lines = "".join(f"<p>Set aside, unreadable: {text(problem, 400)}</p>" for problem in problems[:50])
        title = f"<summary>{plural(len(problems), 'file')} set aside</summary>"
        items.append(f'<details data-keep="problems">{title}{lines}</details>')
    item_html = "".join(f'<li class="note">{item}</li>' for item in items)
    return f'<ul class="notes">{item_html}</ul>' if item_html else ""


def _is_dead_end(query: BoardQuery) -> bool:
    """Return True if a selection of several labels has no scores.

    This happens because papers print one facet at a time, or no question has all of the labels.
    """
    standings = query.standings
    if standings.rows or standings.facets_of_parts(query.branches):
        return False
    return len(group_by_subject(query.branches)) > 1 or any(map(query.tree.is_unprinted, query.branches))


def _unranked(query: BoardQuery) -> list[str]:
    """List notes on results that a selection leaves out, or whose scores are not from answers."""
    if _is_dead_end(query):
        return []  # the headline already explains it
    standings = query.standings
    has_parts = bool(standings.facets_of_parts(query.branches))
    if not query.branches:
        return ["The breakdown below shows what is known about its parts."] if has_parts and not standings.rows else []
    ranked = {row.entry.result.model.name for row in standings.rows}  # some by another of their results
    hidden = [entry.result for entry in standings.hidden if not entry.is_reference]
    left_out = {
        result.model.name: result.provenance != "published"
        for result in sorted(hidden, key=lambda result: result.provenance != "published")
        if result.model.name not in ranked
    }
    notes = []
    for is_measured in (False, True):
        if models := sum(measured == is_measured for measured in left_out.values()):
            notes.append(sentences.unranked_note(models, not is_measured, not is_measured and has_parts))
    printed = [row.entry.result.provenance == "published" for row in standings.rows if not row.from_answers]
    return notes or ([sentences.printed_scores_note(sum(printed), len(printed) - sum(printed))] if printed else [])
