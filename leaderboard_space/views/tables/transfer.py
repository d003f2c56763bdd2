"""One ProbMed result at a glance. Figure 4: does what a model knows of an organ in one modality carry over to the organ's other modalities?

A table of organs and their modalities, with the paper's two aspects (organ; condition) side by side: score, interval, chance, and the same
modality in the other organs together; and one of its image types against all aspects (Tables 7 to 18).
See also: computing the cells (`data/cells.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dataset_builders.schema import ASPECTS as PROBED
from eval_harness.records.result import Score
from leaderboard_space.data.cells import Cells
from leaderboard_space.data.ranks.standings import info_of, with_interval
from leaderboard_space.data.store.sections import Entry
from leaderboard_space.data.tree import UNLABELLED, organ_and_modality, shown_label
from leaderboard_space.html import LONGEST_NAME, count, interval, is_shown_as, number, text
from leaderboard_space.sentences import FEW
from leaderboard_space.views.parts import WHOLE, behind_with_chance, dots, files, sorted_by
from leaderboard_space.views.tables.breakdown import heat_cell, legend

ASPECTS = ("organ", "condition")
"""What the paper's figure shows."""
OF_THE_PAPER = "CheXagent"
"""The model that the figure is about: trained on chest X-rays alone. Shown first where it is on the board."""


def choose(entries: Sequence[Entry], cells: dict[str, Cells], wanted: str, name_of: Mapping[str, str]) -> Entry | None:
    """The result to show: the wanted one (by key, by its name in the list, or by model), else the paper's example, else the first of which
    anything is known."""
    known = [entry for entry in entries if any(entry.key in held for of in cells.values() for held in of.values())]
    tests: tuple[Callable[[Entry], bool], ...] = (
        lambda entry: entry.key == wanted,
        lambda entry: wanted != "" and is_shown_as(name_of.get(entry.key, ""), wanted),
        lambda entry: wanted == entry.result.model.name,
        lambda entry: entry.result.model.name == OF_THE_PAPER,
    )
    for is_it in tests:
        found = next((entry for entry in known if is_it(entry)), None)
        if found is not None:
            return found
    return known[0] if known else None


def others(held: dict[str, Score], image_type: str) -> float | None:
    """The score in the same modality over the organs but this one, each image weighing the same; None where there is no other organ."""
    organ, modality = organ_and_modality(image_type)
    rest = [
        score
        for name, score in held.items()
        if organ_and_modality(name)[1] == modality and organ_and_modality(name)[0] != organ and score.value is not None
    ]
    weight = sum(score.n for score in rest)
    return sum(score.n * (score.value or 0.0) for score in rest) / weight if weight else None


def view(
    entries: Sequence[Entry], cells_of: Callable[[str], Cells], wanted: str, name_of: dict[str, str], metric: str
) -> str:
    """The table with its choice of result, as HTML; nothing where no result has a score by image type."""
    aspects = [*ASPECTS, *([metric] if metric not in ASPECTS and info_of(metric).unit == "percent" else [])]
    cells = {aspect: cells_of(aspect) for aspect in aspects}
    cells = {aspect: of for aspect, of in cells.items() if any(held for held in of.values())}
    entry = choose(entries, cells, wanted, name_of)
    if entry is None:
        return ""
    mine = {
        aspect: {
            name: with_interval(held[entry.key], aspect)
            for name, held in of.items()
            if entry.key in held and held[entry.key].value is not None and name != UNLABELLED
        }
        for aspect, of in cells.items()
    }
    mine = {aspect: held for aspect, held in mine.items() if held}
    names = {name for held in mine.values() for name in held}
    size = {name: max(held[name].n_cases for held in mine.values() if name in held) for name in names}
    if len({organ_and_modality(name)[0] for name in names}) < 2:
        return ""
    known = [
        (one.key, name_of[one.key])
        for one in entries
        if any(one.key in held for of in cells.values() for held in of.values())
    ]
    offered = "".join(
        f'<option value="{text(name, LONGEST_NAME)}"></option>'
        for name in sorted({name for _, name in known}, key=str.lower)
    )
    head = "".join(
        f'<th scope="col" class="chart">{text(info_of(aspect).label)} (%)<span class="axis">'
        '<span style="left:0%">0</span><span style="left:50%">50</span><span style="left:100%">100</span></span></th>'
        '<th scope="col" class="num val">%</th><th scope="col" class="num ci">95% interval</th>'
        '<th scope="col" class="num ci" title="The same modality in the other organs together">other organs</th>'
        for aspect in mine
    )
    organs: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda name: -size[name]):
        organs.setdefault(organ_and_modality(name)[0], []).append(name)
    kind = entry.result.model.kind or "unstated"
    body = ""
    for organ in sorted(organs, key=lambda organ: -sum(size[name] for name in organs[organ])):
        body += f'<tr class="group"><th colspan="{2 + 4 * len(mine)}" scope="rowgroup">{text(organ)}</th></tr>'
        for name in organs[organ]:
            few = " few" if size[name] < FEW else ""
            line = "".join(_columns(held, name) for held in mine.values())
            body += (
                f'<tr class="k-{text(kind)}{few}"><th scope="row" class="name">{text(shown_label("modality", organ_and_modality(name)[1]))}'
                f'</th><td class="num n">{count(size[name])}</td>{line}</tr>'
            )
    title = "Does knowledge of an organ in one modality transfer to the others?"
    return (
        f'<div class="bar-head"><h3>{title}</h3><label>Result <input data-one type="search" list="mp-one" '
        f'value="{text(name_of[entry.key], LONGEST_NAME)}" autocomplete="off"></label><datalist id="mp-one">{offered}</datalist>'
        f"{files('transfer')}</div>"
        '<p class="sub">Accuracy by organ and modality. Dots: scores; bars: 95% intervals; dashed: guessing where known; hollow: the same '
        "modality in the other organs together. Knowledge of an organ shows as dots to the right of the hollow mark in every modality.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Organs and modalities">'
        '<table class="board transfer" data-table="transfer" '
        f'aria-label="{title} {text(name_of[entry.key])}"><thead><tr>'
        f'<th scope="col" class="name">Modality</th><th scope="col" class="num n">n (images)</th>{head}</tr></thead><tbody>{body}</tbody>'
        "</table></div>"
    )


def _columns(held: dict[str, Score], name: str) -> str:
    score = held.get(name)
    if score is None or score.value is None:
        return '<td class="chart"></td><td class="num val">–</td><td class="num ci">–</td><td class="num ci">–</td>'
    rest = others(held, name)
    chart = dots(score, WHOLE, rest)
    said = behind_with_chance(score)
    return (
        f'<td class="chart">{chart}</td>'
        f'<td class="num val" title="{text(said, 200)}"{sorted_by(score.value)}>{number(score.value)}</td>'
        f'<td class="num ci">{interval(score.low, score.high, score.chance)}</td><td class="num ci">{number(rest)}</td>'
    )


COLUMNS = tuple(
    name
    for aspect in PROBED
    for name in (aspect, f"{aspect}_without_adversarial")
    if name != "abnormality_without_adversarial"
)
"""The scores, in the papers' order; abnormality has no adversarial questions."""


def aspects(entry: Entry, cells_of: Callable[[str], Cells], name: str) -> str:
    """ProbMed's Tables 7 to 18 for one result: its image types against the five aspects, with and without adversarial questions; nothing
    where less than two of its image types are known."""
    known = {metric: cells_of(metric) for metric in COLUMNS}
    held = {
        metric: {label: scores[entry.key] for label, scores in cells.items() if entry.key in scores}
        for metric, cells in known.items()
    }
    columns = [metric for metric in COLUMNS if any(score.value is not None for score in held[metric].values())]
    size: dict[str, int] = {}
    for metric in columns:
        for label, score in held[metric].items():
            if label != UNLABELLED and score.value is not None:
                size[label] = max(size.get(label, 0), score.n)
    if len(size) < 2:
        return ""
    head = "".join(
        f'<th scope="col" data-sort="{metric}"><button type="button" class="sorts"><span>{text(info_of(metric).label)}</span></button></th>'
        for metric in columns
    )
    body = "".join(
        f'<tr><th scope="row">{text(shown_label("image_type", label))} <small>n {count(size[label])}</small></th>'
        + "".join(heat_cell(entry, held[metric].get(label), label, metric, "image_type") for metric in columns)
        + "</tr>"
        for label in sorted(size, key=lambda label: -size[label])
    )
    title = f"{name}: every image type and aspect (%)"
    return (
        f'<div class="bar-head"><h3>{text(title, 200)}</h3>{files("aspects")}</div>'
        '<p class="sub">An image counts if all questions of the aspect were answered correctly; &ldquo;no adversarial&rdquo; excludes the '
        "questions about what is not there. The result is the one chosen above.</p>"
        '<div class="scroll"><table class="heat" data-table="aspects" aria-label="Image types and aspects"><thead><tr>'
        '<th scope="col" data-sort="type"><button type="button" class="sorts">Image type</button></th>'
        f"{head}</tr></thead><tbody>{body}</tbody></table></div>"
        f"{legend([(held[metric].get(label), metric) for metric in columns for label in size], None, 'image_type')}"
    )
