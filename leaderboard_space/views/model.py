"""Draw the page of one model: what it is, its verdict on every benchmark, where it is weak, what it
got wrong, and its model card.

See also: the numbers (`model_results.py`), the page's parts (`model_parts.py`).
"""

from collections.abc import Sequence

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.errors import BadInput
from leaderboard_space import headlines, sentences
from leaderboard_space.benchmarks import BENCHMARK_LABELS, board_spec
from leaderboard_space.data.board import Board
from leaderboard_space.data.model_names import ModelMetadata, entry_source, model_metadata, snapshot_of
from leaderboard_space.data.published_results import is_random_run
from leaderboard_space.data.ranks.sights import metric_sights
from leaderboard_space.data.ranks.standings import metric_info
from leaderboard_space.data.store.sections import Entry, Section
from leaderboard_space.export import Table, breakdown_table, citation_file, named_file, number_columns, table_file
from leaderboard_space.html import (
    MAX_CHOICE_LENGTH,
    count,
    is_shown_as,
    plural,
    prose,
    text,
    visible,
)
from leaderboard_space.model_results import (
    Line,
    all_models,
    facet_ends,
    facet_scores,
    main_lines,
    model_entries,
    model_lines,
    weak_spots,
)
from leaderboard_space.sentences import VERDICT_SIGNS
from leaderboard_space.views import model_parts
from leaderboard_space.views.model_parts import set_qualifier
from leaderboard_space.views.parts import (
    CITE_BOX,
    MODEL_KIND_TITLES,
    Request,
    action_buttons,
    address_of,
    benchmark_address,
    model_address,
    save_menu,
)
from leaderboard_space.views.tables.leaderboard import rank_range
from leaderboard_space.views.tables.table import (
    TONE_CLASSES,
    Column,
    column,
    name_column,
    score_column_group,
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
        model_parts.weak_spot_table(spots),
        model_parts.wrong_answers(board, lines, spots),
        _verdicts(lines, model),
        _folded("scores", "Every score and category", "".join(map(model_parts.benchmark_scores, main))),
        _folded("history", history, model_parts.history(entries)),
        _folded("card", "A table for a model card", model_parts.card(model, main) if main else ""),
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
        return named_file(model.name, "md", model_parts.markdown(model, main))
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


# ---- the verdicts


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
            (set_qualifier(section), metric_info(line.metric, section.family).label, unranked_reason),
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


def _category_rows(lines: Sequence[Line]) -> Table:
    """List the scores of the lines by every facet, one row each."""
    rows: Table = []
    for line in lines:
        entry = line.row.entry
        for ends in facet_ends(line):
            scores = {label: {entry.key: score} for label, score in facet_scores(line, ends.facet, ends.metric).items()}
            rows += breakdown_table(line.section, [entry], ends.facet, scores, ends.metric)
    return rows
