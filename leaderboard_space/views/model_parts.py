"""Draw parts of a model's page: scores and weak spots, wrong answers, all results, and a table for
its model card."""

from collections.abc import Sequence

from eval_harness.records.result import Score
from leaderboard_space import headlines, sentences
from leaderboard_space.benchmarks import BENCHMARK_LABELS
from leaderboard_space.data.board import Board
from leaderboard_space.data.model_names import ModelMetadata, entry_source
from leaderboard_space.data.ranks.standings import method_name, metric_info, section_metrics
from leaderboard_space.data.store.sections import Entry, Section, ranking_group
from leaderboard_space.data.tree import display_label, facet_title
from leaderboard_space.html import interval, plural, prose, score_text, text
from leaderboard_space.model_results import (
    Ends,
    Line,
    Share,
    Spot,
    facet_ends,
    option_shares,
    scores_by_metric,
)
from leaderboard_space.views import cases
from leaderboard_space.views.parts import address_of, benchmark_address, save_menu, set_name
from leaderboard_space.views.tables.provenance import provenance_details
from leaderboard_space.views.tables.table import (
    PERCENT_AXIS,
    TONE_CLASSES,
    Column,
    column,
    draw_chart,
    few_class,
    html_columns,
    name_column,
    score_column_group,
    score_tooltip,
    scrollable,
    table,
)

NamedScore = tuple[str, Score, str]
"""A row of a small table: (HTML of its name, score, HTML of the links beside it)."""


def benchmark_scores(line: Line) -> str:
    """Draw a benchmark's scores, extreme categories and option shares; "" if none are known."""
    ends = facet_ends(line)
    parts = [_scores(line), *(_ends(line, of_facet) for of_facet in ends), _bias(line)]
    body = "".join(f'<section class="part">{part}</section>' for part in parts if part)
    save = save_menu("categories") if ends else ""
    heading = f'<div class="bar-head"><h3>{text(line.questions)}</h3>{save}</div>'
    return f'{heading}<div class="side-by-side">{body}</div>' if body else ""


def weak_spot_table(weakest: Sequence[Spot]) -> str:
    """Draw the weakest spots over all benchmarks.

    Each links to the ranking, and to its cases if answers are known.
    """
    return f"<h3>Weakest spots</h3>{_small_table('Weakest spots', [('', [*map(_spot, weakest)])])}" if weakest else ""


def _spot(spot: Spot) -> NamedScore:
    section, entry, outcomes, cases = spot.line.section, spot.line.row.entry, spot.line.outcomes, ""
    address = benchmark_address(section, spot.metric, [(spot.facet, spot.label)] if spot.facet else ())
    metric = metric_info(spot.metric, section.family).label if spot.facet else ""
    about = " · ".join(filter(None, (spot.line.questions, metric)))
    if outcomes is not None and entry.key in outcomes.row_of:
        label = f"{spot.facet}:{spot.label}" if spot.facet else None
        cases = f'<a href="{address_of("cases", set=set_name(section), label=label, model=entry.key)}">cases</a>'
    return f"{_link(spot.name, address)}<small>{text(about, 120)}</small>", spot.score, cases


def _link(name: str, address: str) -> str:
    return f'<a href="{address}">{text(name, 80)}</a>'


def _scores(line: Line) -> str:
    """Draw every score of a line; "" if it has only one."""
    family = line.section.family
    rows = [
        (_link(metric_info(metric, family).label, benchmark_address(line.section, metric)), score, "")
        for metric, score in scores_by_metric(line).items()
        if metric_info(metric, family).unit == "percent"
    ]
    return f"<h4>Every score (%)</h4>{_small_table('Scores', [('', rows)])}" if len(rows) > 1 else ""


def _ends(line: Line, ends: Ends) -> str:
    """Draw the weakest and the strongest values of a facet, each a link to its leaderboard."""
    facet = facet_title(ends.facet).lower()

    def row(label: str, score: Score) -> NamedScore:
        address = benchmark_address(line.section, ends.metric, [(ends.facet, label)])
        return _link(display_label(ends.facet, label), address), score, ""

    groups = [
        ("lowest", [row(*end) for end in ends.weakest]),
        ("highest", [row(*end) for end in ends.strongest]),
    ]
    metric = metric_info(ends.metric, line.section.family).label
    caption = sentences.ends_caption(metric, ends.known, ends.left_out, ends.against_chance)
    ends_table = _small_table(f"Lowest and highest by {facet}", groups)
    part = f'<h4>By {text(facet)} (%)</h4>{ends_table}<p class="fine">{prose(caption, 400)}</p>'
    return part if ends.weakest else ""


def _small_table(label: str, groups: Sequence[tuple[str, Sequence[NamedScore]]]) -> str:
    columns: list[Column[NamedScore]] = [
        name_column("", lambda row: row[0]),
        *score_column_group(
            lambda row: row[1],
            sign_of=lambda score: f" <i>{sentences.verdict_sign(score)}</i>",
            tooltip_of=score_tooltip,
        ),
        Column("", lambda row: f"<td>{row[2]}</td>" if row[2] else ""),
    ]
    return scrollable(
        table(
            "",
            label,
            columns,
            groups,
            "lines small",
            lambda row: f' class="v-{TONE_CLASSES[row[1].verdict]}{few_class(row[1])}"',
        )
    )


def _bias(line: Line) -> str:
    """Draw each letter's share among the choices and among the keys; papers do not print this."""
    shares = option_shares(line)
    if not shares:
        return ""
    columns: list[Column[Share]] = [
        name_column("", lambda share: text(share.name)),
        column("", lambda share: f"<b>{score_text(share.chosen.value)}</b>", kind="num"),
        column("", lambda share: draw_chart(share.chosen, PERCENT_AXIS, share.key), kind="chart"),
        column(
            "",
            lambda share: "not known" if share.key is None else score_text(share.key),
            kind="num",
        ),
    ]
    return (
        "<h4>What it chooses (%)</h4>"
        f"{scrollable(table('', 'Shares of the options', columns, [('', shares)], 'lines small'))}"
        '<p class="fine">Share of the readable answers to questions that offer the option; the hollow mark and the last number show how '
        "often it is the key. A wide gap is a response bias, not knowledge.</p>"
    )


MAX_FAILURES = 3
"""Maximum number of example failures on the page; the page Cases lists all."""


def wrong_answers(board: Board, lines: Sequence[Line], weakest: Sequence[Spot]) -> str:
    """Draw cases that the model got wrong.

    They are from its weakest spot with known answers, or else from its first benchmark with known
    answers.

    Args:
        board: The board.
        lines: The model's results.
        weakest: Its weak spots.
    """
    title = "<h3>What it got wrong</h3>"
    answered = [line for line in lines if line.outcomes is not None and line.row.entry.key in line.outcomes.runs]
    # A run that mostly failed got nothing "wrong".
    scored = [line for line in answered if line.score.nonresponse is None]
    if answered and not scored:
        why = sentences.no_score_reason(answered[0].score, answered[0].row.entry.result)
        return f'{title}<p class="sub">Not known; {text(why, 300)}.</p>'
    if not scored:
        return (
            f'{title}<p class="sub">Only published numbers are known for this model; its answers are not on this board. '
            "They will appear here once somebody submits a run of it.</p>"
        )
    # Examples of the weakest spot are the most informative ones.
    spot = next((spot for spot in weakest if any(spot.line is line for line in scored)), None)
    places: list[tuple[Line, str | None, tuple[str, str] | None, str]] = [(scored[0], None, None, "")]
    if spot:
        label = (spot.facet, spot.label) if spot.facet else None
        places.insert(0, (spot.line, spot.metric, label, f": {spot.name}"))
    for line, metric, label, spot_suffix in places:
        assert line.outcomes is not None
        section, entry = line.section, line.row.entry
        if cases_html := cases.failed_cases(board, section, line.outcomes, entry, MAX_FAILURES, metric, label):
            all_cases = address_of("cases", set=set_name(section), label=":".join(label or ()), model=entry.key)
            return (
                f'<div class="bar-head"><h3>What it got wrong in {text(line.questions)}{text(spot_suffix)}</h3>'
                f'<a class="link" href="{all_cases}">All of them</a></div>{cases_html}'
            )
    return f'{title}<p class="sub">Nothing, by {text(scored[0].questions)}.</p>'


def history(results: Sequence[tuple[Section, Entry]]) -> str:
    """Draw every result of the model, newest first; each expands to show its provenance."""

    def date(entry: Entry) -> str:
        acceptance = entry.provenance.acceptance
        return acceptance.accepted_at if acceptance else entry.result.created_at

    def cells(section: Section, entry: Entry) -> tuple[str, ...]:
        scores, withdrawal, state = (
            entry.result.scores,
            entry.provenance.withdrawal,
            ranking_group(entry),
        )
        # Old results may lack today's headline metric.
        known_metrics = {name for name, score in scores.items() if score.value is not None or score.nonresponse}
        metric = next((name for name in section_metrics(section, None) if name in known_metrics), None)
        info = metric_info(metric or "", section.family)
        why = sentences.no_score_reason(scores[metric], entry.result) if metric else ""
        problem = f"withdrawn: {withdrawal.reason}" if withdrawal else why or ("" if state == "ranked" else state)
        return (
            text(date(entry)[:10]),
            f'<a href="{benchmark_address(section)}">{text(BENCHMARK_LABELS[section.family])}</a>'
            f"<small>{text(set_qualifier(section))}</small>",
            text(entry.result.model.name),
            text(method_name(entry.result.method.name)),
            f"{score_text(scores[metric].value, info.unit) if metric else '–'}<small>{text(info.label) if metric else ''}</small>",
            f"{text(entry_source(entry), 60)}{f'<small>{text(problem, 200)}</small>' if problem else ''}"
            f'<details data-keep="of-{text(entry.key, 300)}"><summary>where it comes from</summary>'
            f"{provenance_details(entry, section)}</details>",
            entry.key,  # not a cell
        )

    newest_first = sorted(results, key=lambda item: date(item[1]), reverse=True)
    columns = html_columns(("Date", "Benchmark", "Model named", "Method", "Score (%)", "Source"), 1, 4)
    rows = [cells(section, entry) for section, entry in newest_first]
    history_table = table(
        "history",
        "All results",
        columns,
        [("", rows)],
        "lines history",
        lambda row: f' data-key="{text(row[-1], 400)}"',
    )
    n_results = plural(len(results), "result")
    return f'<h3>All its results</h3><p class="sub">{n_results}, including withdrawn and outdated ones.</p>{scrollable(history_table)}'


def set_qualifier(section: Section) -> str:
    """Return what distinguishes a set from the benchmark's main one.

    This is its title, and its split if it is not the test split.
    """
    title = "" if section.kind == "complete" else section.title()
    return ", ".join(filter(None, (title, "" if section.split == "test" else section.split)))


def markdown(model: ModelMetadata, lines: Sequence[Line]) -> str:
    """Format the main results as a Markdown table for a model card.

    Cells are escaped, so that none breaks out of its column.
    """
    rows = [
        "| Benchmark | Score | 95% interval | Against guessing | Questions | Result |",
        "|---|---|---|---|---|---|",
    ]
    for line in lines:
        info, score, result = (
            metric_info(line.metric, line.section.family),
            line.score,
            line.row.entry.result,
        )
        guess = headlines.comparator_name(line.row, line.section.family, line.metric)
        cells = (
            line.questions,
            f"{info.label} {score_text(score.value, info.unit)}",
            interval(score),
            sentences.format_verdict(score.verdict, guess, score.chance),
            f"{line.section.title()}, {line.section.split}",
            result.source.table if result.source and result.source.table else result.kind,
        )
        rows.append(f"| {' | '.join(map(_in_markdown, cells))} |")
    return f"### Reliability of {_in_markdown(model.name)}, from the medprobe board\n\n" + "\n".join(rows) + "\n"


def _in_markdown(value: str) -> str:
    """Escape a text so that Markdown shows it unchanged and on one line."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in " ".join(value.split()))


def card(model: ModelMetadata, lines: Sequence[Line]) -> str:
    """Draw the Markdown table with a button that saves it."""
    return (
        '<div class="bar-head"><h3>For a model card</h3>'
        '<button type="button" class="link" data-act="md" data-of="card">Save Markdown</button></div>'
        f'<pre class="command"><code>{text(markdown(model, lines), 6000)}</code></pre>'
    )
