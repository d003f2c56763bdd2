"""The page of one model: what it is, its verdict in every benchmark, where it is weak, what it leans to, what it got wrong, and its card.

See also: the numbers (`model_results.py`), its parts (`model_parts.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.errors import BadInput
from leaderboard_space import headlines, sentences
from leaderboard_space.benchmarks import LABELS, spec
from leaderboard_space.data.board import Board
from leaderboard_space.data.model_names import Identity, entry_mark, identity, snapshot_of
from leaderboard_space.data.published_results import is_random_run
from leaderboard_space.data.ranks.sight import sights_of
from leaderboard_space.data.ranks.standings import info_of
from leaderboard_space.data.store.sections import Entry, Section
from leaderboard_space.export import Table, as_file, breakdown_table, cited, number_columns
from leaderboard_space.html import LONGEST_NAME, count, interval, is_shown_as, plural, prose, score_text, text
from leaderboard_space.model_results import (
    Line,
    all_models,
    cells_of,
    ends_of,
    entries_of,
    lines_of,
    main_lines,
    weak_spots,
)
from leaderboard_space.sentences import MARK
from leaderboard_space.views import model_parts
from leaderboard_space.views.model_parts import part_name
from leaderboard_space.views.parts import (
    CITE_BOX,
    KINDS,
    TONE,
    WHOLE,
    Request,
    acts,
    address_of,
    benchmark_address,
    dots,
    files,
    model_address,
    sorted_by,
)


def page(board: Board, request: Request) -> str:
    """The page of the model that `request["id"]` names (any of its names), or the one chosen on it. Without one, the list of all."""
    wanted = _wanted(board, request)
    found = entries_of(board, wanted)
    if not found:
        unknown = f"There is no model named {wanted[:100]!r} on this board." if wanted else "Which model?"
        return f'{_chooser(board, "")}<h2 class="finding">{prose(unknown, 200)}</h2>{_list(board)}'
    who = identity(wanted, [entry.result for _, entry in found])
    lines = lines_of(board, wanted)
    main = main_lines(lines)
    judged = [(line.questions, line.score.verdict) for line in main]
    spots = weak_spots(main)
    finding = headlines.model_verdicts(who.name, judged)
    if spots:
        worst = spots[0]
        finding += " " + headlines.weakest(
            worst.name,
            worst.line.questions,
            worst.score.value or 0.0,
            worst.score.chance or 0.0,
            sentences.in_running_text(info_of(worst.metric, worst.line.section.family).label) if worst.facet else "",
        )
    return "".join(
        [
            _chooser(
                board,
                who.name,
                f'<a class="link" href="{address_of("compare", first=who.name)}">Compare</a>{acts(tables=False)}',
            ),
            f'<h2 class="name" data-title="{text(who.name, 100)}">{text(who.name)}</h2>{_facts(who, found)}',
            f'<h3 class="finding">{text(finding, 800)}</h3>',
            _from_the_image(main),
            model_parts.spots(spots),
            model_parts.failures(board, lines, spots),
            _verdicts(lines, who),
            _folded("scores", "Every score and category", "".join(model_parts.benchmark(line) for line in main)),
            _folded(
                "history",
                f"{'All ' if len(found) > 1 else ''}{plural(len(found), 'result')}, withdrawn and outdated ones included",
                model_parts.history(found),
            ),
            _folded("card", "Badges and a table for a model card", model_parts.card(who, main)) if main else "",
        ]
    )


def _from_the_image(lines: Sequence[Line]) -> str:
    """What each score owes to the images, where runs without the right ones are known."""
    said = [
        sentences.from_the_image(line.questions, found)
        for line in lines
        if (found := sights_of(line.section, line.metric).get(line.row.entry.key))
    ]
    return f'<p class="sub">{text(" ".join(said), 800)}</p>' if said else ""


def _folded(name: str, title: str, inner: str) -> str:
    """A part that most readers do not need: behind its title."""
    return (
        f'<details class="more-of" data-keep="{name}"><summary>{text(title)}</summary>{inner}</details>'
        if inner
        else ""
    )


def file(board: Board, request: Request) -> dict[str, str]:
    """A part of the page as a file (`name`, `text`, `type`). `of`: verdicts, categories, card, or badge (of the benchmark `set`);
    or how to cite the page (`as`: cite).

    Raises BadInput for a model that is not on the board.
    """
    wanted, of = _wanted(board, request), str(request.get("of"))
    lines = lines_of(board, wanted)
    if not lines:
        raise BadInput("no results of this model are on the board.")
    who = identity(wanted)
    if str(request.get("as")) == "cite":
        sets = dict.fromkeys(f"{line.section.benchmark} ({line.section.split})" for line in lines)
        note = f"Every question set it answered: {', '.join(sets)}."
        return cited(f"Model {who.name}", note, [entry for _, entry in entries_of(board, wanted)], request)
    if of.startswith("badge"):
        line = next((line for line in main_lines(lines) if line.section.family == of.removeprefix("badge:")), None)
        if line is None:
            raise BadInput("this model has no ranked result in this benchmark.")
        return as_named(f"{who.name}-{line.section.family}", "svg", model_parts.badge(line))
    if of == "card":
        return as_named(who.name, "md", model_parts.markdown(who, main_lines(lines)))
    table = _category_rows(lines) if of == "categories" else _verdict_rows(lines)
    return as_file(
        table, f"model-{who.name}-{'categories' if of == 'categories' else 'verdicts'}", str(request.get("as"))
    )


def _wanted(board: Board, request: Request) -> str:
    """The model a request means: the one chosen on the page, else the address's own; by the name that the board has for it, where what is
    said is how a field shows it."""
    said = str(request.get("model") or request.get("id") or "")[:LONGEST_NAME]
    if entries_of(board, said):
        return said
    return next((name for name in all_models(board) if is_shown_as(name, said)), said.strip())


def as_named(name: str, ending: str, content: str) -> dict[str, str]:
    """A text as what the browser saves."""
    types = {"svg": "image/svg+xml", "md": "text/markdown"}
    safe = re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-.")[:100]
    return {"name": f"medprobe-{safe}.{ending}", "text": content, "type": types[ending]}


def _chooser(board: Board, chosen: str, buttons: str = "") -> str:
    """The field that names a model; `buttons`: what can be done with the page of one."""
    names = "".join(f'<option value="{text(name, LONGEST_NAME)}"></option>' for name in all_models(board))
    return (
        f'<div class="form"><label>Model <input data-name="model" data-page="model" list="mp-models" type="search" '
        f'value="{text(chosen, LONGEST_NAME)}" '
        f'placeholder="Name of a model" autocomplete="off"></label><datalist id="mp-models">{names}</datalist>'
        f'<span class="acts">{buttons}</span></div>{CITE_BOX}'
    )


def _list(board: Board) -> str:
    items = "".join(f"<li>{_to_model(name)}</li>" for name in all_models(board))
    return f'<ul class="names">{items}</ul>'


def _to_model(name: str) -> str:
    return f'<a href="{model_address(name)}">{text(name)}</a>'


def _facts(who: Identity, found: Sequence[tuple[Section, Entry]]) -> str:
    """Kind, size, date, licence, links; and the names under which its results stand."""
    known = []
    if who.kind:
        known.append(text(KINDS.get(who.kind, who.kind)))
    if who.parameters:
        known.append(f"{who.parameters / 1e9:.2g} billion parameters")
    if who.released:
        by = f' title="By {text(who.released_by, 100)}"' if who.released_by else ""
        known.append(f"<span{by}>first released {text(sentences.month(who.released))}</span>")
    if who.licence:
        known.append(f"licence {text(who.licence)}")
    if who.weights:
        known.append(f'<a href="https://huggingface.co/{text(who.weights, 200)}" rel="noopener">weights</a>')
    if who.paper:
        known.append(
            f'<a href="https://arxiv.org/abs/{text(who.paper.removeprefix("arXiv:"))}" rel="noopener">{text(who.paper)}</a>'
        )
    line = " · ".join(known) or "Nothing is stated about this model."
    return f'<p class="sub">{line}</p>{_names(who, found)}'


def _names(who: Identity, found: Sequence[tuple[Section, Entry]]) -> str:
    """The names that mean this model, those of the table and those of its results, with their snapshots."""
    here = {(entry.result.model.name, snapshot_of(entry.result.model)) for _, entry in found}
    rows = sorted({*who.written, *here} - {(who.name, None)}, key=lambda row: (row[0].lower(), row[1] or ""))
    if not rows:
        return ""
    items = "".join(
        f"<li>{text(name)}{f' <small>snapshot {text(day)}</small>' if day else ''}"
        f"{' <small>on this board</small>' if (name, day) in here else ''}</li>"
        for name, day in rows
    )
    return (
        f'<details class="also" data-keep="names"><summary>{plural(len(rows), "other name")} for this model</summary>'
        f'<ul class="names">{items}</ul><p class="fine">Results under these names are treated as one model, by a table that is part of the '
        "board; each result keeps the name and the snapshot that it states.</p></details>"
    )


# ---- the verdicts


def _verdicts(lines: Sequence[Line], who: Identity) -> str:
    rows = "".join(_verdict(line, who) for line in lines)
    without = [LABELS[family] for family in BENCHMARKS if family not in {line.section.family for line in lines}]
    missing = f'<p class="fine">No result on {text(", ".join(without))}.</p>' if without else ""
    top = (
        '<th scope="col">Benchmark</th><th scope="col" class="num">Score (%)</th><td></td><th scope="col" class="num">95% interval</th>'
        '<th scope="col">Against guessing</th><th scope="col" class="num">Rank</th><th scope="col">Source</th>'
    )
    return (
        f'<div class="bar-head"><h3>Every set of questions</h3>{files("verdicts")}</div>'
        f'<div class="scroll"><table class="lines" data-table="verdicts" aria-label="Results of {text(who.name)}"><thead><tr>'
        f"{top}</tr></thead><tbody>{rows}</tbody></table></div>{missing}"
    )


def _verdict(line: Line, who: Identity) -> str:
    section, score, row = line.section, line.score, line.row
    info = info_of(line.metric, section.family)
    where = benchmark_address(section, line.metric)
    of = [part for part in (part_name(section), info.label, _apart(row.group)) if part]
    own = section.kind not in (
        "phantom",
        "custom",
    )  # drawn images and others' sets are not the questions that were published then
    published = spec(section.family).published if own else None
    shown = sentences.exposure(published, snapshot_of(row.entry.result.model) or who.released)
    verdict = sentences.in_short(score.verdict, headlines.guess_of(line.row, section.family, line.metric), score.chance)
    if score.verdict is None and is_random_run(row.entry.result):
        verdict = f"{sentences.RANDOM_RUN} itself"
    verdict = sentences.no_score(score, row.entry.result) or f"{MARK[score.verdict]} {verdict}"
    ranks = f"{row.first}" if row.first == row.last else f"{row.first}–{row.last}"
    return (
        f'<tr class="v-{TONE[score.verdict]}"><th scope="row"><a href="{where}">{text(LABELS[section.family])}</a>'
        f"<small>{text(' · '.join(of), 200)}</small>{f'<small>{text(shown, 200)}</small>' if shown else ''}</th>"
        f'<td class="num"{sorted_by(score.value)}><b>{score_text(score.value, info.unit)}</b></td>'
        f'<td class="chart">{dots(score, WHOLE)}</td><td class="num">{interval(score)}</td>'
        f"<td>{text(verdict, 300)}</td>"
        f'<td class="num">{f"{ranks} of {count(line.ranked)}" if row.first else "–"}</td>'
        f"<td>{text(entry_mark(row.entry, line.metric), 60)}</td></tr>"
    )


def _apart(group: str) -> str:
    return "" if group in ("ranked", "no score") else f"not ranked with the others: {group}"


def _verdict_rows(lines: Sequence[Line]) -> Table:
    return [
        {
            **number_columns(line.section, line.row.entry, line.metric, line.score),
            "place_first": line.row.first,
            "place_last": line.row.last,
            "ranked_models": line.ranked,
            "group": line.row.group,
        }
        for line in lines
    ]


def _category_rows(lines: Sequence[Line]) -> Table:
    table: Table = []
    for line in main_lines(list(lines)):
        entry = line.row.entry
        for found in ends_of(line):
            cells = cells_of(line, found.facet, found.metric)
            held = {label: {entry.key: score} for label, score in cells.items()}
            table += breakdown_table(line.section, [entry], found.facet, held, found.metric)
    return table
