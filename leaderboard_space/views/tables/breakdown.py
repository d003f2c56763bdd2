"""The breakdown: a table of results x facet values (or x metrics), shaded by score, grey where few cases stand behind a cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from dataset_builders.benchmarks import FACETS_BY_BENCHMARK
from dataset_builders.lexical_tree import UNLABELLED
from dataset_builders.schema import ASPECTS as PROBED
from eval_harness.records.result import Score
from leaderboard_space import sentences
from leaderboard_space.benchmarks import spec
from leaderboard_space.data.cells import METRICS_FACET, Cells
from leaderboard_space.data.model_names import entry_mark
from leaderboard_space.data.published_results import misprint
from leaderboard_space.data.ranks.groups import display_names
from leaderboard_space.data.ranks.standings import Standings, info_of
from leaderboard_space.data.store.sections import Entry, Section
from leaderboard_space.data.tree import FACET_LABEL, organ_and_modality, shown_label
from leaderboard_space.html import count, is_shown_as, options, plural, score_text, text
from leaderboard_space.sentences import FEW
from leaderboard_space.views.parts import (
    address_of,
    behind_with_chance,
    benchmark_address,
    column_head,
    explained,
    files,
    name_input,
    set_name,
    sorted_by,
)
from leaderboard_space.views.tables.provenance import tags

MOST_COLUMNS = 60
FULL = 50.0
"""Points from guessing at which a cell's colour is at its strongest."""


def view(
    section: Section,
    cells: Cells,
    found: Standings,
    facet: str,
    facets: list[str],
    drawn: Sequence[Entry],
    below: str = "",
) -> str:
    """The breakdown of the results `drawn` as HTML: its own choice of facet and metric, the heat map, and what the shades mean. `below`:
    what stands under the table."""
    info = info_of(found.metric, section.family)
    chosen = options(
        [(name, "Metrics" if name == METRICS_FACET else FACET_LABEL.get(name, name)) for name in facets], facet
    )
    control = f'<label>Break down by <select data-name="facet">{chosen}</select></label>{files("breakdown")}'
    title = (
        "All metrics side by side"
        if facet == METRICS_FACET
        else f"{info.label} by {FACET_LABEL.get(facet, facet).lower()}"
    )
    head = f'<div class="bar-head"><h3>{text(title)}</h3>{control}</div>'
    columns = columns_of(cells, facet)
    if len(columns) == 1 and found.rows:  # one number per result, which stands in the table above
        only = f'<p class="sub">Only one label is known here: {text(shown_label(facet, columns[0]))}.</p>'
        return below if facets == [METRICS_FACET] else head + ("" if facet == METRICS_FACET else only) + below
    if not columns and not found.rows:
        return below
    if not columns:
        return head + '<p class="sub">No numbers are known by this facet for this selection.</p>' + below
    dropped = len(columns) - MOST_COLUMNS
    rest = f"{plural(dropped, 'smaller column')} left out; the saved files contain all" if dropped > 0 else ""
    columns = columns[:MOST_COLUMNS]
    top = "".join(_column_head(name, cells[name], facet, section.family) for name in columns)
    body = ""
    entries = [entry for entry in drawn if any(entry.key in cells[name] for name in columns)]
    tag, names = tags(entries), display_names(entries)
    for entry in entries:
        line = "".join(
            heat_cell(entry, cells[name].get(entry.key), name, found.metric, facet, _link(section, entry, facet, name))
            for name in columns
        )
        more = f" <small>{text(tag[entry.key], 60)}</small>" if tag[entry.key] else ""
        body += f'<tr><th scope="row"><bdi>{text(names[entry.key], 80)}</bdi>{more}</th>{line}</tr>'
    shown = [(cells[name].get(entry.key), name) for entry in entries for name in columns]
    return (
        f'{head}<div class="scroll tall" tabindex="0" role="group" aria-label="{text(title)}">'
        f'<table class="heat" data-table="breakdown" aria-label="{text(title)}"><thead><tr>'
        f"{column_head('', 'Model', 'model')}{top}</tr></thead><tbody>{body}</tbody></table></div>{below}"
        f"{legend(shown, found.metric, facet, rest)}"
    )


def legend(drawn: Sequence[tuple[Score | None, str]], metric: str | None, facet: str, more: str = "") -> str:
    """What the shades and signs of a heat map mean: of those that are in it. `drawn`: its cells with their columns."""
    known = [(score, name) for score, name in drawn if score is not None and score.value is not None]
    shaded = any(_shade(score, _metric_of(metric, name, facet)) is not None for score, name in known)
    tested = {score.verdict for score, _ in known if not score.is_small}
    signs = sentences.legend_of_marks(tested, any(score.n_cases < FEW for score, _ in known))
    said = [*([sentences.SHADES] if shaded else []), *(text(line) for line in signs), *([text(more)] if more else [])]
    return f'<p class="fine signs">{"".join(f"<span>{line}</span>" for line in said)}</p>' if said else ""


def _metric_of(metric: str | None, column: str, facet: str) -> str:
    """The metric of a cell: that of the whole table, or the column's own."""
    return column if facet == METRICS_FACET or metric is None else metric


def _shade(score: Score, metric: str) -> float | None:
    """The colour of a cell, -1 to 1: how far it lies on the worse or the better side of guessing, full at FULL points; None where it has
    none: no chance is known, neither side is better, a count, or few cases stand behind it."""
    info = info_of(metric)
    if score.value is None or score.chance is None or score.n_cases < FEW or score.is_small or info.unit != "percent":
        return None
    if info.higher_is_better is None:
        return None
    side = 1 if info.higher_is_better else -1
    return side * min(max((score.value - score.chance) / FULL, -1.0), 1.0)


def columns_of(cells: Cells, facet: str) -> list[str]:
    """Columns in which anything is known, those with most cases first; metrics keep their order."""
    held = [name for name, scores in cells.items() if any(score.value is not None for score in scores.values())]
    if facet == METRICS_FACET:
        return held
    size = {name: max(score.n_cases for score in cells[name].values()) for name in held}
    return sorted(held, key=lambda name: -size[name])


def _column_head(name: str, scores: dict[str, Score], facet: str, family: str) -> str:
    label = info_of(name, family).label if facet == METRICS_FACET else shown_label(facet, name)
    sizes = {(score.n, score.n_cases) for score in scores.values() if score.value is not None}
    n, n_cases = max(sizes)
    size = (count(n) if n == n_cases else f"{count(n)} from {plural(n_cases, spec(family).case)}") if n else "not known"
    worth = sorted(
        {
            score.independent_n
            for score in scores.values()
            if score.value is not None and score.independent_n is not None
        }
    )
    said = f", worth {count(worth[0])}{f' to {count(worth[-1])}' if len(worth) > 1 else ''}" if worth else ""
    return column_head("", label, name, small=f"<small>n {size}{said}</small>")


def _link(section: Section, entry: Entry, facet: str, column: str) -> str:
    """Where a cell leads: to the result's cases with that label where its answers are known, else to the ranking by that label or score."""
    path = None if facet == METRICS_FACET else (facet, column)
    if path is None or facet not in FACETS_BY_BENCHMARK.get(section.family, ()) or entry.answers is None:
        return benchmark_address(section, column if path is None else None, [path] if path else ())
    return address_of("cases", set=set_name(section), label=f"{facet}:{column}", model=entry.key)


def heat_cell(entry: Entry, score: Score | None, column: str, metric: str, facet: str, link: str = "") -> str:
    """A cell of a heat map: the number, shaded by its height, with the sign of its test against chance.

    `column`: a value of the facet, or a metric."""
    if score is None or score.value is None:
        why = "" if score is None else sentences.no_score(score, entry.result)
        return f'<td class="none" data-v=""{f" title={chr(34)}{text(why, 300)}{chr(34)}" if why else ""}>–</td>'
    cell = None if facet == METRICS_FACET else (facet, column)
    metric = _metric_of(metric, column, facet)
    info = info_of(metric)
    shade = _shade(score, metric)
    mark = sentences.mark(score)
    few = sentences.too_few(score, spec(entry.result.benchmark.family).case)
    mark = (
        mark if score.verdict in ("better", "worse") else f"\N{THIN SPACE}{mark}"
    )  # they would read as part of the number
    parts = (behind_with_chance(score), sentences.no_score(score, entry.result), entry_mark(entry, metric, cell))
    said = ", ".join(part for part in parts if part)
    style = "" if shade is None else f' style="--s:{abs(shade):.3f}"'
    kind = (
        "few"
        if score.n_cases < FEW or few
        else "plain"
        if shade is None
        else "shade up"
        if shade >= 0
        else "shade down"
    )
    shown = text(score_text(score.value, info.unit))
    shown = f'<a href="{link}">{shown}</a>' if link else shown
    return (
        f'<td class="{kind}"{style}{sorted_by(score.value)} title="{text(said, 400)}">'
        f"{shown}<i>{mark}</i>{misprint_mark(entry, metric, cell)}{f'<small>{few}</small>' if few else ''}</td>"
    )


def misprint_mark(entry: Entry, metric: str, cell: tuple[str, str] | None) -> str:
    """A star that says what is wrong with a printed number; nothing where nothing is known to be."""
    said = misprint(entry.result, metric, *(cell or ("", ""))) if entry.result.kind == "published" else None
    return explained("*", said, f"note {entry.key} {metric} {cell}", "star") if said else ""


# ---- one result of ProbMed by image type and aspect

OF_THE_PAPER = "CheXagent"
"""The model that the paper's Figure 4 is about: trained on chest X-rays alone. Shown first where it is on the board."""
ASPECTS = tuple(
    name
    for aspect in PROBED
    for name in (aspect, f"{aspect}_without_adversarial")
    if name != "abnormality_without_adversarial"
)
"""The scores, in the papers' order; abnormality has no adversarial questions."""


def preferred(entries: Sequence[Entry], wanted: str, name_of: Mapping[str, str]) -> list[Entry]:
    """The results, the one to show first: the wanted one (by key, or by its name in the list), else the paper's example."""

    def order(entry: Entry) -> tuple[bool, bool]:
        is_wanted = wanted != "" and (entry.key == wanted or is_shown_as(name_of[entry.key], wanted))
        return not is_wanted, entry.result.model.name != OF_THE_PAPER

    return sorted(entries, key=order)


def aspects(entry: Entry, cells_of: Callable[[str], Cells], name_of: Mapping[str, str]) -> str:
    """ProbMed's Figure 4 and Tables 7 to 18 for one result: its image types, those of an organ together, against the five aspects, with and
    without adversarial questions; nothing where less than two of its image types are known. `name_of`: the results to choose from."""
    held = {
        metric: {
            label: scores[entry.key]
            for label, scores in cells_of(metric).items()
            if entry.key in scores and label != UNLABELLED and scores[entry.key].value is not None
        }
        for metric in ASPECTS
    }
    columns = [metric for metric in ASPECTS if held[metric]]
    labels = {label for scores in held.values() for label in scores}
    size = {label: max(held[metric][label].n for metric in columns if label in held[metric]) for label in labels}
    if len(size) < 2:
        return ""
    of_organ: Counter[str] = Counter()
    for label, n in size.items():
        of_organ[organ_and_modality(label)[0]] += n
    labels_in_order = sorted(
        size, key=lambda label: (-of_organ[organ_and_modality(label)[0]], organ_and_modality(label)[0], -size[label])
    )
    head = "".join(column_head("", info_of(metric).label, metric) for metric in columns)
    body = "".join(
        f'<tr><th scope="row">{text(shown_label("image_type", label))} <small>n {count(size[label])}</small></th>'
        + "".join(heat_cell(entry, held[metric].get(label), label, metric, "image_type") for metric in columns)
        + "</tr>"
        for label in labels_in_order
    )
    offered = [(name, "") for name in sorted(name_of.values(), key=str.lower)]
    return (
        f'<div class="bar-head"><h3>Every image type and aspect of one result (%)</h3>'
        f"{name_input('Result', 'one', name_of[entry.key], offered, 'a result')}{files('aspects')}</div>"
        '<p class="sub">An image counts if all questions of the aspect were answered correctly; &ldquo;no adversarial&rdquo; excludes the '
        "questions about what is not there. What is known of an organ shows in all of its modalities.</p>"
        '<div class="scroll"><table class="heat" data-table="aspects" aria-label="Image types and aspects"><thead><tr>'
        f"{column_head('', 'Image type', 'type')}{head}</tr></thead><tbody>{body}</tbody></table></div>"
        f"{legend([(held[metric].get(label), metric) for metric in columns for label in size], None, 'image_type')}"
    )
