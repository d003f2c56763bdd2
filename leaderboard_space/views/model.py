"""Draw the page of one model: what it is, its verdict on every benchmark, where it is weak, what it
got wrong, and its model card.

See also: the numbers (`model_results.py`).
"""

from collections.abc import Sequence

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.errors import BadInput
from eval_harness.records.result import Score
from leaderboard_space import headlines, sentences
from leaderboard_space.benchmarks import BENCHMARK_LABELS, board_spec, method_name, metric_info
from leaderboard_space.data.board import Board
from leaderboard_space.data.published_results import is_random_run
from leaderboard_space.data.sections import (
    Entry,
    ModelMetadata,
    Section,
    entry_source,
    model_metadata,
    ranking_group,
    snapshot_of,
)
from leaderboard_space.data.standings import metric_sights
from leaderboard_space.data.tree import display_label, facet_title
from leaderboard_space.export import Table, breakdown_table, citation_file, named_file, number_columns, table_file
from leaderboard_space.html import (
    MAX_CHOICE_LENGTH,
    count,
    interval,
    is_shown_as,
    plural,
    prose,
    score_text,
    text,
    visible,
)
from leaderboard_space.model_results import (
    Ends,
    Line,
    Share,
    Spot,
    all_models,
    facet_ends,
    facet_scores,
    main_lines,
    model_entries,
    model_lines,
    option_shares,
    scores_by_metric,
    weak_spots,
)
from leaderboard_space.query import section_metrics
from leaderboard_space.sentences import VERDICT_SIGNS
from leaderboard_space.views import cases
from leaderboard_space.views.parts import (
    CITE_BOX,
    MODEL_KIND_TITLES,
    Request,
    action_buttons,
    address_of,
    benchmark_address,
    model_address,
    provenance_details,
    save_menu,
    set_name,
)
from leaderboard_space.views.tables.leaderboard import rank_range
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


def page(board: Board, request: Request) -> str:
    """Draw the page as HTML; without a known model, the list of all models.

    Args:
        board: The board.
        request: `model`, the name chosen on the page, or `id`, the name in the address. Any name of
            the model is understood.
    """
    name = _model_name(board, request)
    entries = model_entries(board, name)
    if not entries:
        problem = f"There is no model named {name[:100]!r} on this board." if name else "Which model?"
        links = "".join(f'<li><a href="{model_address(name)}">{text(name)}</a></li>' for name in all_models(board))
        return f'{_chooser(board, "")}<h2 class="finding">{prose(problem, 200)}</h2><ul class="names">{links}</ul>'
    model = model_metadata(name, [entry.result for _, entry in entries])
    lines = model_lines(board, name)
    main = main_lines(lines)
    spots = weak_spots(main)
    finding = headlines.model_headline(model.name, [(line.questions, line.score.verdict) for line in main])
    for spot in spots[:1]:
        label = sentences.uncapitalize(metric_info(spot.metric, spot.line.section.family).label) if spot.facet else ""
        finding += f" {headlines.weakest_spot_sentence(spot.name, spot.line.questions, spot.score, label)}"
    compare = f'<a class="link" href="{address_of("compare", first=model.name)}">Compare</a>'
    history = (
        f"{'All ' if len(entries) > 1 else ''}{plural(len(entries), 'result')}, withdrawn and outdated ones included"
    )
    parts = (
        _chooser(board, model.name, f"{compare}{action_buttons(can_save=False)}"),
        f'<h2 class="name" data-title="{text(model.name, 100)}">{text(model.name)}</h2>{_facts(model, entries)}',
        f'<h3 class="finding">{text(finding, 800)}</h3>',
        _from_the_image(main),
        _weak_spot_table(spots),
        _wrong_answers(board, lines, spots),
        _verdicts(lines, model),
        _folded("scores", "Every score and category", "".join(map(_benchmark_scores, main))),
        _folded("history", history, _history(entries)),
        _folded("card", "A table for a model card", _card(model, main) if main else ""),
    )
    return "".join(parts)


def _from_the_image(lines: Sequence[Line]) -> str:
    """State how much of each score comes from the images, where that was measured."""
    sights = [(line.questions, metric_sights(line.section, line.metric).get(line.row.entry.key)) for line in lines]
    parts = [sentences.image_gain_sentence(questions, sight) for questions, sight in sights if sight]
    return f'<p class="sub">{text(" ".join(parts), 800)}</p>' if parts else ""


def _folded(name: str, title: str, content: str) -> str:
    """Draw a part of the page that most visitors do not need, folded behind its title.

    The result is "" without content.
    """
    if not content:
        return ""
    return f'<details class="more-of" data-keep="{name}"><summary>{text(title)}</summary>{content}</details>'


def file(board: Board, request: Request) -> dict[str, str]:
    """Return a part of the page as a file, or the page's citation.

    Args:
        board: The board.
        request: As for `page`; `of`: verdicts, categories or card; `as`: csv, json or cite.

    Returns:
        `name`, `text` and `type` of the file.

    Raises:
        BadInput: The model is not on the board.
    """
    name, part, form = _model_name(board, request), str(request.get("of")), str(request.get("as"))
    lines = model_lines(board, name)
    if not lines:
        raise BadInput("no results of this model are on the board.")
    model, main = model_metadata(name), main_lines(lines)
    if form == "cite":
        sets = dict.fromkeys(f"{line.section.benchmark} ({line.section.split})" for line in lines)
        note = f"Every question set it answered: {', '.join(sets)}."
        return citation_file(f"Model {model.name}", note, [entry for _, entry in model_entries(board, name)], request)
    if part == "card":
        return named_file(model.name, "md", _markdown(model, main))
    if part == "categories":
        return table_file(_category_rows(main), f"model-{model.name}-categories", form)
    verdict_rows = [
        {
            **number_columns(line.section, line.row.entry, line.metric, line.score),
            "place_first": line.row.best_rank,
            "place_last": line.row.worst_rank,
            "ranked_models": line.ranked,
            "group": line.row.group,
        }
        for line in lines
    ]
    return table_file(verdict_rows, f"model-{model.name}-verdicts", form)


def _model_name(board: Board, request: Request) -> str:
    """Return the board's name of the model that a request names.

    It is also found if the browser changed what a field showed.
    """
    # The field on the page takes precedence over the address.
    name = str(request.get("model") or request.get("id") or "")[:MAX_CHOICE_LENGTH]
    if model_entries(board, name):
        return name
    return next(
        (model_name for model_name in all_models(board) if is_shown_as(model_name, name)),
        name.strip(),
    )


def _chooser(board: Board, chosen: str, buttons: str = "") -> str:
    """Draw the field that names a model.

    `buttons` is the HTML of the actions on a model's page.
    """
    names = "".join(f'<option value="{text(name, MAX_CHOICE_LENGTH)}"></option>' for name in all_models(board))
    return (
        f'<div class="form"><label>Model <input data-name="model" data-page="model" list="mp-models" type="search" '
        f'value="{text(chosen, MAX_CHOICE_LENGTH)}" '
        f'placeholder="Name of a model" autocomplete="off"></label><datalist id="mp-models">{names}</datalist>'
        f'<span class="acts">{buttons}</span></div>{CITE_BOX}'
    )


def _facts(model: ModelMetadata, entries: Sequence[tuple[Section, Entry]]) -> str:
    """Draw kind, size, release date, licence and links of a model, and its other names."""
    fact_text = {name: text(model.facts.get(name, ""), 200) for name in ("released_by", "licence", "weights", "paper")}
    released = model.facts.get("released", "")
    by = f' title="By {fact_text["released_by"]}"' if fact_text["released_by"] else ""
    facts = (
        model.kind and text(MODEL_KIND_TITLES.get(model.kind, model.kind)),
        model.parameters and f"{model.parameters / 1e9:.2g} billion parameters",
        released and f"<span{by}>first released {text(sentences.format_month(released))}</span>",
        fact_text["licence"] and f"licence {fact_text['licence']}",
        fact_text["weights"] and f'<a href="https://huggingface.co/{fact_text["weights"]}" rel="noopener">weights</a>',
        fact_text["paper"]
        and f'<a href="https://arxiv.org/abs/{fact_text["paper"].removeprefix("arXiv:")}" rel="noopener">{fact_text["paper"]}</a>',
    )
    line = " · ".join(str(fact) for fact in facts if fact) or "Nothing is stated about this model."
    return f'<p class="sub">{line}</p>{_names(model, entries)}'


def _names(model: ModelMetadata, entries: Sequence[tuple[Section, Entry]]) -> str:
    """Draw a model's other names, in the board's table and in its results, with their snapshots."""
    on_board = {(entry.result.model.name, snapshot_of(entry.result.model)) for _, entry in entries}
    # The main name is the title, so it is not listed again.
    names = {*model.written, *on_board} - {(model.name, None)}
    items = "".join(
        f"<li>{text(name)}{f' <small>snapshot {text(day)}</small>' if day else ''}"
        f"{' <small>on this board</small>' if (name, day) in on_board else ''}</li>"
        for name, day in sorted(names, key=lambda item: (item[0].lower(), item[1] or ""))
    )
    folded = (
        f'<details class="also" data-keep="names"><summary>{plural(len(names), "other name")} for this model</summary>'
        f'<ul class="names">{items}</ul><p class="fine">Results under these names are treated as one model, by a table that is part of the '
        "board; each result keeps the name and the snapshot that it states.</p></details>"
    )
    return folded if names else ""


NamedScore = tuple[str, Score, str]
"""A row of a small table: (HTML of its name, score, HTML of the links beside it)."""


def _weak_spot_table(weakest: Sequence[Spot]) -> str:
    """Draw the weakest spots over all benchmarks.

    Each links to the ranking, and to its cases if answers are known.
    """
    return f"<h3>Weakest spots</h3>{_small_table('Weakest spots', [('', [*map(_spot, weakest)])])}" if weakest else ""


def _spot(spot: Spot) -> NamedScore:
    section, entry, outcomes, cases = spot.line.section, spot.line.row.entry, spot.line.query.outcomes, ""
    address = benchmark_address(section, spot.metric, [(spot.facet, spot.label)] if spot.facet else ())
    metric = metric_info(spot.metric, section.family).label if spot.facet else ""
    about = " · ".join(filter(None, (spot.line.questions, metric)))
    if outcomes is not None and entry.key in outcomes.row_of:
        label = f"{spot.facet}:{spot.label}" if spot.facet else None
        cases = f'<a href="{address_of("cases", set=set_name(section), label=label, model=entry.key)}">cases</a>'
    return f"{_link(spot.name, address)}<small>{text(about, 120)}</small>", spot.score, cases


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


def _link(name: str, address: str) -> str:
    return f'<a href="{address}">{text(name, 80)}</a>'


MAX_FAILURES = 3
"""Maximum number of example failures on the page; the page Cases lists all."""


def _wrong_answers(board: Board, lines: Sequence[Line], weakest: Sequence[Spot]) -> str:
    """Draw cases that the model got wrong.

    They are from its weakest spot with known answers, or else from its first benchmark with known
    answers.

    Args:
        board: The board.
        lines: The model's results.
        weakest: Its weak spots.
    """
    title = "<h3>What it got wrong</h3>"
    answered = [
        line for line in lines if line.query.outcomes is not None and line.row.entry.key in line.query.outcomes.runs
    ]
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
        assert line.query.outcomes is not None
        section, entry = line.section, line.row.entry
        if cases_html := cases.failed_cases(board, section, line.query.outcomes, entry, MAX_FAILURES, metric, label):
            all_cases = address_of("cases", set=set_name(section), label=":".join(label or ()), model=entry.key)
            return (
                f'<div class="bar-head"><h3>What it got wrong in {text(line.questions)}{text(spot_suffix)}</h3>'
                f'<a class="link" href="{all_cases}">All of them</a></div>{cases_html}'
            )
    return f'{title}<p class="sub">Nothing, by {text(scored[0].questions)}.</p>'


def _verdicts(lines: Sequence[Line], model: ModelMetadata) -> str:
    """Draw one line for every result of the model that has a score."""
    without = [
        BENCHMARK_LABELS[family] for family in BENCHMARKS if family not in {line.section.family for line in lines}
    ]
    missing = f'<p class="fine">No result on {text(", ".join(without))}.</p>' if without else ""
    columns: list[Column[Line]] = [
        name_column("Benchmark", lambda line: _benchmark(line, model)),
        *score_column_group(
            lambda line: line.score,
            ("Score (%)", "", "95% interval"),
            lambda line: metric_info(line.metric, line.section.family).unit,
        ),
        column("Against guessing", lambda line: text(_verdict(line), 300)),
        column(
            "Rank",
            lambda line: f"{rank_range(line.row)} of {count(line.ranked)}" if line.row.best_rank else "–",
            kind="num",
        ),
        column("Source", lambda line: text(entry_source(line.row.entry, line.metric), 60)),
    ]
    verdict_table = table(
        "verdicts",
        f"Results of {visible(model.name)}",
        columns,
        [("", lines)],
        "lines",
        lambda line: f' class="v-{TONE_CLASSES[line.score.verdict]}"',
    )
    return f'<div class="bar-head"><h3>Every set of questions</h3>{save_menu("verdicts")}</div>{scrollable(verdict_table)}{missing}'


def _benchmark(line: Line, model: ModelMetadata) -> str:
    """Draw the benchmark of a line as a link to its table.

    Below it stand the score's name and whether the model may have seen the questions.
    """
    section, group = line.section, line.row.group
    unranked_reason = "" if group in ("ranked", "no score") else f"not ranked with the others: {group}"
    about = " · ".join(
        filter(
            None,
            (_set_qualifier(section), metric_info(line.metric, section.family).label, unranked_reason),
        )
    )
    # Phantoms and custom sets do not contain the questions that the paper published.
    published = None if section.kind in ("phantom", "custom") else board_spec(section.family).published
    exposure = sentences.exposure_note(
        published, snapshot_of(line.row.entry.result.model) or model.facts.get("released")
    )
    return (
        f'<a href="{benchmark_address(section, line.metric)}">{text(BENCHMARK_LABELS[section.family])}</a>'
        f"<small>{text(about, 200)}</small>{f'<small>{text(exposure, 200)}</small>' if exposure else ''}"
    )


def _verdict(line: Line) -> str:
    """State the verdict of a line against guessing, or why it has none."""
    score, result = line.score, line.row.entry.result
    guess = headlines.comparator_name(line.row, line.section.family, line.metric)
    verdict = sentences.format_verdict(score.verdict, guess, score.chance)
    # Guessing is not tested against itself.
    if score.verdict is None and is_random_run(result):
        verdict = f"{sentences.RANDOM_RUN} itself"
    return sentences.no_score_reason(score, result) or f"{VERDICT_SIGNS[score.verdict]} {verdict}"


def _benchmark_scores(line: Line) -> str:
    """Draw a benchmark's scores, extreme categories and option shares; "" if none are known."""
    ends = facet_ends(line)
    parts = [_scores(line), *(_ends(line, of_facet) for of_facet in ends), _bias(line)]
    body = "".join(f'<section class="part">{part}</section>' for part in parts if part)
    save = save_menu("categories") if ends else ""
    heading = f'<div class="bar-head"><h3>{text(line.questions)}</h3>{save}</div>'
    return f'{heading}<div class="side-by-side">{body}</div>' if body else ""


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


def _category_rows(lines: Sequence[Line]) -> Table:
    """List the scores of the lines by every facet, one row each."""
    rows: Table = []
    for line in lines:
        entry = line.row.entry
        for ends in facet_ends(line):
            scores = {label: {entry.key: score} for label, score in facet_scores(line, ends.facet, ends.metric).items()}
            rows += breakdown_table(line.section, [entry], ends.facet, scores, ends.metric)
    return rows


def _history(results: Sequence[tuple[Section, Entry]]) -> str:
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
            f"<small>{text(_set_qualifier(section))}</small>",
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


def _set_qualifier(section: Section) -> str:
    """Return what distinguishes a set from the benchmark's main one.

    This is its title, and its split if it is not the test split.
    """
    title = "" if section.kind == "complete" else section.title()
    return ", ".join(filter(None, (title, "" if section.split == "test" else section.split)))


def _card(model: ModelMetadata, lines: Sequence[Line]) -> str:
    """Draw the Markdown table with a button that saves it."""
    return (
        '<div class="bar-head"><h3>For a model card</h3>'
        '<button type="button" class="link" data-act="md" data-of="card">Save Markdown</button></div>'
        f'<pre class="command"><code>{text(_markdown(model, lines), 6000)}</code></pre>'
    )


def _markdown(model: ModelMetadata, lines: Sequence[Line]) -> str:
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
