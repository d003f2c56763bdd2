"""Draw the breakdown: a heat map of results by facet values, or by metrics.

Cells are shaded by score, and grey if they are based on few cases.
"""

from collections.abc import Callable, Mapping, Sequence

from dataset_builders.benchmarks import facets_of
from dataset_builders.facets import UNLABELLED
from dataset_builders.schema import ASPECTS as PROBED
from eval_harness.records.result import Score
from leaderboard_space import sentences
from leaderboard_space.benchmarks import board_spec, metric_info
from leaderboard_space.data.published_results import misprint
from leaderboard_space.data.sections import Entry, Section, display_names, entry_source
from leaderboard_space.data.standings import Standings
from leaderboard_space.data.tree import display_label, facet_title, organ_and_modality
from leaderboard_space.html import count, is_shown_as, options, plural, score_text, text
from leaderboard_space.query import METRICS_FACET, Cells
from leaderboard_space.sentences import MIN_CASES
from leaderboard_space.views.parts import (
    address_of,
    benchmark_address,
    distinguishing_tags,
    explanation_button,
    name_input,
    save_menu,
    set_name,
)
from leaderboard_space.views.tables.table import (
    Column,
    name_column,
    score_tooltip,
    scrollable,
    sort_attribute,
    table,
)

MAX_COLUMNS = 60
"""Maximum number of columns drawn; saved files have all."""
FULL_SHADE_POINTS = 50.0
"""Distance from guessing, in points, at which a cell's colour is strongest."""


def view(
    section: Section,
    cells: Cells,
    standings: Standings,
    facet: str,
    facets: list[str],
    entries: Sequence[Entry],
    below: str = "",
) -> str:
    """Draw the breakdown as HTML: its choice of facet, the heat map, and what the shades mean.

    Args:
        section: The question set.
        cells: Column -> entry key -> score.
        standings: The table above.
        facet: The facet to break down by, or `METRICS_FACET`.
        facets: The facets to choose from.
        entries: The results.
        below: HTML below the heat map.
    """
    is_by_metric, label = facet == METRICS_FACET, facet_title(facet).lower()
    title = (
        "All metrics side by side"
        if is_by_metric
        else f"{metric_info(standings.metric, section.family).label} by {label}"
    )
    choices = [(name, "Metrics" if name == METRICS_FACET else facet_title(name)) for name in facets]
    select = f'<label>Break down by <select data-name="facet">{options(choices, facet)}</select></label>'
    head = f'<div class="bar-head"><h3>{text(title)}</h3>{select}{save_menu("breakdown")}</div>'
    columns = known_columns(cells, facet)
    # A single column would repeat the scores of the leaderboard above.
    if len(columns) == 1 and standings.rows:
        only = f'<p class="sub">Only one label is known here: {text(display_label(facet, columns[0]))}.</p>'
        return below if facets == [METRICS_FACET] else f"{head}{'' if is_by_metric else only}{below}"
    if not columns:
        nothing = '<p class="sub">No numbers are known by this facet for this selection.</p>'
        return f"{head}{nothing}{below}" if standings.rows else below
    dropped = len(columns) - MAX_COLUMNS
    dropped_note = f"{plural(dropped, 'smaller column')} left out; the saved files contain all" if dropped > 0 else ""
    # Facet values are sorted by size, so this leaves out the smallest.
    columns = columns[:MAX_COLUMNS]
    entries = [entry for entry in entries if any(entry.key in cells[name] for name in columns)]
    tag, names = distinguishing_tags(entries), display_names(entries)

    def model_name(entry: Entry) -> str:
        small = f" <small>{text(tag[entry.key], 60)}</small>" if tag[entry.key] else ""
        return f"<bdi>{text(names[entry.key], 80)}</bdi>{small}"

    score_columns = [_score_column(section, standings.metric, facet, name, cells[name]) for name in columns]
    heat_map = table(
        "breakdown",
        title,
        [name_column("Model", model_name, "model"), *score_columns],
        [("", entries)],
        "heat",
    )
    scores = [(cells[name].get(entry.key), name) for entry in entries for name in columns]
    return (
        f'{head}<div class="scroll tall" tabindex="0" role="group" aria-label="{text(title)}">{heat_map}</div>{below}'
        f"{legend(scores, standings.metric, facet, dropped_note)}"
    )


def legend(cells: Sequence[tuple[Score | None, str]], metric: str | None, facet: str, extra_note: str = "") -> str:
    """Explain the shades and signs that occur in a heat map.

    Args:
        cells: Score and column of each cell.
        metric: Metric of the whole table; None if every column has its own.
        facet: Facet of the columns, or `METRICS_FACET`.
        extra_note: A sentence to add.
    """
    scored = [(score, name) for score, name in cells if score is not None and score.value is not None]
    is_shaded = any(_shade(score, _metric_of(metric, name, facet)) is not None for score, name in scored)
    verdicts = {score.verdict for score, _ in scored if not score.is_small}
    signs = sentences.sign_legend(verdicts, any(score.n_cases < MIN_CASES for score, _ in scored))
    lines = [
        *([sentences.SHADES_NOTE] if is_shaded else []),
        *map(text, signs),
        *([text(extra_note)] if extra_note else []),
    ]
    return f'<p class="fine signs">{"".join(f"<span>{line}</span>" for line in lines)}</p>' if lines else ""


def _metric_of(metric: str | None, column: str, facet: str) -> str:
    """Return the metric of a cell: that of the whole table, or the column's own."""
    return column if facet == METRICS_FACET or metric is None else metric


def _shade(score: Score, metric: str) -> float | None:
    """Compute the colour of a cell from its distance to guessing.

    It ranges from -1 (worse side) to 1 (better side) and is full at `FULL_SHADE_POINTS`.

    A cell has no colour (None) if chance is not known, neither direction is better, the score is a
    count, or it is based on few cases.
    """
    info = metric_info(metric)
    if score.value is None or score.chance is None or score.n_cases < MIN_CASES or score.is_small:
        return None
    if info.unit != "percent" or info.higher_is_better is None:
        return None
    # Teal is always the better side, also where lower is better.
    side = 1 if info.higher_is_better else -1
    return side * min(max((score.value - score.chance) / FULL_SHADE_POINTS, -1.0), 1.0)


def known_columns(cells: Cells, facet: str) -> list[str]:
    """List the columns with any score, those with most cases first; metrics keep their order.

    Args:
        cells: Column -> entry key -> score.
        facet: The facet, or `METRICS_FACET`.
    """
    columns = [name for name, scores in cells.items() if any(score.value is not None for score in scores.values())]
    sizes = {name: max(score.n_cases for score in cells[name].values()) for name in columns}
    return columns if facet == METRICS_FACET else sorted(columns, key=lambda name: -sizes[name])


def _score_column(section: Section, metric: str, facet: str, name: str, scores: dict[str, Score]) -> Column[Entry]:
    """Build the column of a facet value or a metric; its header states the number of cases."""
    family = section.family
    label = metric_info(name, family).label if facet == METRICS_FACET else display_label(facet, name)
    scored = [score for score in scores.values() if score.value is not None]
    # Results may cover different numbers of cases: the column header states the largest.
    n, n_cases = max((score.n, score.n_cases) for score in scored)
    size = (
        (count(n) if n == n_cases else f"{count(n)} from {plural(n_cases, board_spec(family).case)}")
        if n
        else "not known"
    )
    worth = sorted({score.independent_n for score in scored if score.independent_n is not None})
    worth_range = f", worth {count(worth[0])}{f' to {count(worth[-1])}' if len(worth) > 1 else ''}" if worth else ""
    return Column(
        label,
        lambda entry: heat_cell(entry, scores.get(entry.key), name, metric, facet, _link(section, entry, facet, name)),
        name,
        under=f"<small>n {size}{worth_range}</small>",
    )


def _link(section: Section, entry: Entry, facet: str, column: str) -> str:
    """Return the address of a cell.

    If the result's answers are known, it leads to its cases with that label, else to the ranking by
    that label or metric.
    """
    if facet == METRICS_FACET:
        return benchmark_address(section, column)
    if facet in facets_of(section.family, entry.result.breakdown) and entry.answers is not None:
        return address_of("cases", set=set_name(section), label=f"{facet}:{column}", model=entry.key)
    return benchmark_address(section, None, [(facet, column)])


def heat_cell(entry: Entry, score: Score | None, column: str, metric: str, facet: str, link: str = "") -> str:
    """Draw a cell of a heat map: a number and the sign of its test, shaded by distance to chance.

    Args:
        entry: The result.
        score: Its score; None if not known.
        column: A value of the facet, or a metric.
        metric: Metric of the table.
        facet: Facet of the columns, or `METRICS_FACET`.
        link: Address of the cell; "" for none.
    """
    if score is None or score.value is None:
        why = "" if score is None else sentences.no_score_reason(score, entry.result)
        return f'<td class="none" data-v=""{f" title={chr(34)}{text(why, 300)}{chr(34)}" if why else ""}>–</td>'
    cell = None if facet == METRICS_FACET else (facet, column)
    metric = _metric_of(metric, column, facet)
    shade, mark = _shade(score, metric), sentences.verdict_sign(score)
    few = sentences.too_few_note(score, board_spec(entry.result.benchmark.family).case)
    space = (
        "" if score.verdict in ("better", "worse") else "\N{THIN SPACE}"
    )  # without it, the sign would look like part of the number
    parts = (
        score_tooltip(score),
        sentences.no_score_reason(score, entry.result),
        entry_source(entry, metric, cell),
    )
    style = "" if shade is None else f' style="--s:{abs(shade):.3f}"'
    kind = "plain" if shade is None else "shade up" if shade >= 0 else "shade down"
    kind = "few" if score.n_cases < MIN_CASES or few else kind
    number = text(score_text(score.value, metric_info(metric).unit))
    return (
        f'<td class="{kind}"{style}{sort_attribute(score.value)} title="{text(", ".join(filter(None, parts)), 400)}">'
        f"{f'<a href={chr(34)}{link}{chr(34)}>{number}</a>' if link else number}<i>{space}{mark}</i>"
        f"{misprint_mark(entry, metric, cell)}{f'<small>{few}</small>' if few else ''}</td>"
    )


def misprint_mark(entry: Entry, metric: str, cell: tuple[str, str] | None) -> str:
    """Draw a star that explains a known error in a printed number; "" if none is known.

    Args:
        entry: The result.
        metric: The metric.
        cell: Facet and value of the number; None for the overall score.
    """
    error = misprint(entry.result, metric, *(cell or ("", ""))) if entry.result.kind == "printed" else None
    return explanation_button("*", error, f"note {entry.key} {metric} {cell}", "star") if error else ""


# ---- one result of ProbMed by image type and aspect

EXAMPLE_MODEL = "CheXagent"
"""The model of the paper's Figure 4, which was trained on chest X-rays only. It is shown first if
it is on the board.
"""
ASPECT_METRICS = tuple(
    name
    for aspect in PROBED
    for name in (aspect, f"{aspect}_without_adversarial")
    if name != "abnormality_without_adversarial"
)
"""The scores, in the papers' order; abnormality has no adversarial questions."""


def order_preferred(entries: Sequence[Entry], requested: str, name_of: Mapping[str, str]) -> list[Entry]:
    """Order results by preference for display: the requested one, then the paper's example.

    Args:
        entries: The results.
        requested: Key or name of the requested result; "" for none.
        name_of: Entry key -> name.
    """

    def order(entry: Entry) -> tuple[bool, bool]:
        is_wanted = requested != "" and (entry.key == requested or is_shown_as(name_of[entry.key], requested))
        return not is_wanted, entry.result.model.name != EXAMPLE_MODEL

    return sorted(entries, key=order)


def aspects_table(entry: Entry, cells_of: Callable[[str], Cells], name_of: Mapping[str, str]) -> str:
    """Draw the scores of one ProbMed result by image type and aspect; "" for fewer than two types.

    This is ProbMed's Figure 4 and Tables 7 to 18: image types, grouped by organ, against the five
    aspects, with and without adversarial questions.

    Args:
        entry: The result.
        cells_of: Metric -> the cells by image type.
        name_of: Entry key -> name of the results to choose from.
    """
    scores = {
        metric: {
            label: of_label[entry.key]
            for label, of_label in cells_of(metric).items()
            if entry.key in of_label and label != UNLABELLED and of_label[entry.key].value is not None
        }
        for metric in ASPECT_METRICS
    }
    columns = [metric for metric in ASPECT_METRICS if scores[metric]]
    labels = {label for of_metric in scores.values() for label in of_metric}
    sizes = {label: max(scores[metric][label].n for metric in columns if label in scores[metric]) for label in labels}
    if len(sizes) < 2:
        return ""
    # Image types of one organ stay together.
    organs = {label: organ_and_modality(label)[0] for label in sizes}
    organ_sizes = {organ: sum(sizes[label] for label in sizes if organs[label] == organ) for organ in organs.values()}
    ordered = sorted(sizes, key=lambda label: (-organ_sizes[organs[label]], organs[label], -sizes[label], label))

    def aspect_column(metric: str) -> Column[str]:
        title, of_metric = metric_info(metric).label, scores[metric]
        return Column(
            title,
            lambda label: heat_cell(entry, of_metric.get(label), label, metric, "image_type"),
            metric,
        )

    def label_name(label: str) -> str:
        return f"{text(display_label('image_type', label))} <small>n {count(sizes[label])}</small>"

    names = [(name, "") for name in sorted(name_of.values(), key=str.lower)]
    heat_columns = [name_column("Image type", label_name, "type"), *map(aspect_column, columns)]
    heat_map = scrollable(table("aspects", "Image types and aspects", heat_columns, [("", ordered)], "heat"))
    return (
        f'<div class="bar-head"><h3>Every image type and aspect of one result (%)</h3>'
        f"{name_input('Result', 'one', name_of[entry.key], names, 'a result')}{save_menu('aspects')}</div>"
        '<p class="sub">An image counts if all questions of the aspect were answered correctly; &ldquo;no adversarial&rdquo; excludes the '
        "questions about what is not there. A model that knows an organ should do well on it in every modality.</p>"
        f"{heat_map}{legend([(scores[metric].get(label), metric) for metric in columns for label in sizes], None, 'image_type')}"
    )
