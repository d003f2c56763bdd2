"""Small pieces that several views draw: addresses, heads that sort, the chart of one row, the menu that saves a table, fields of a form."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from eval_harness.records.result import Score, Verdict
from leaderboard_space import sentences
from leaderboard_space.benchmarks import LABELS, spec
from leaderboard_space.data.board import Board
from leaderboard_space.data.model_names import labels
from leaderboard_space.data.store.sections import Entry, Section
from leaderboard_space.data.tree import SEPARATOR, TreePath
from leaderboard_space.html import LONGEST_NAME, number, options, plural, prose, score_text, text

Request = Mapping[str, Any]
"""What the browser asks for: the keys and values of an address."""
LONGEST_ID = 300
"""Characters of an id in an address."""


def address_of(page: str, id: str = "", /, **named: str | Sequence[str] | None) -> str:
    """A link within the board, escaped for an attribute; a key with several values repeats, one without any is left out.

    >>> address_of("model", "A & B"), address_of("compare", result=["a", "b"], set=None)
    ('#/model/A%20%26%20B', '#/compare?result=a&amp;result=b')
    """
    values = {name: [value] if isinstance(value, str) else value or () for name, value in named.items()}
    pairs = [(name, one) for name, held in values.items() for one in held if one]
    path = f"#/{page}/{quote(id, safe='')}" if id else f"#/{page}"
    return text(f"{path}?{urlencode(pairs, quote_via=quote, safe='/')}" if pairs else path, 8000)


def set_name(section: Section) -> str:
    """How an address names a set of questions on the pages Compare and Cases."""
    return f"{section.family}/{section.key}"


def set_title(section: Section) -> str:
    """What a set of questions is called beside those of other benchmarks."""
    return f"{LABELS[section.family]}: {section.title()}, {section.split}"


def benchmark_address(
    section: Section, metric: str | None = None, selection: Sequence[TreePath] = (), every: bool = False
) -> str:
    """The leaderboard of a set of questions, by a metric, on a selection; `every`: with all rows of a long table."""
    where = selection_address(selection)
    return address_of("b", section.family, s=section.key, m=metric, all="yes" if every else None, **where)


def selection_address(selection: Sequence[TreePath]) -> dict[str, list[str]]:
    """How an address names a selection: `facet` a label, `branch` what is below one."""
    named: dict[str, list[str]] = {}
    for path in selection:
        named.setdefault("branch" if len(path) > 2 else "facet", []).append(f"{path[0]}:{SEPARATOR.join(path[1:])}")
    return named


def compare_address(section: Section, metric: str | None, branches: Sequence[TreePath] = (), **results: str) -> str:
    """The comparison of results (by the slots `first`, `second` ...) on a selection of a set of questions, by a metric."""
    return address_of("compare", set=set_name(section), metric=metric, **selection_address(branches), **results)


def model_address(name: str) -> str:
    """The page of a model; for a name that no honest model has, the page that says so."""
    return address_of("model", name if len(name) <= LONGEST_ID else "")


def case_address(section: Section, case_id: str) -> str:
    """One case of a set of questions."""
    return address_of("cases", case_id, set=set_name(section))


KINDS = {"proprietary": "proprietary", "open": "open weights", "medical": "medical", "baseline": "baseline"}
"""Kind of model -> what the legend says; a result that does not say is "kind not stated"."""


TONE: dict[Verdict | None, str] = {"better": "better", "worse": "worse", "no different": "same", None: "untested"}
"""The class that colours a mark."""
WORD: dict[Verdict | None, str] = {
    "better": "better than guessing",
    "no different": "not significantly different from guessing",
    "worse": "worse than guessing",
    None: "not tested against guessing",
}


def look(kind: str | None, verdict: Verdict | None) -> str:
    """The classes of a result's mark: its shape says the kind of model, its colour the verdict, on every page."""
    return f"k-{kind if kind in KINDS else 'unstated'} v-{TONE[verdict]}"


def column_head(kind: str, said: str, name: str, title: str = "", small: str = "") -> str:
    """A column's head, a button that sorts by it. `small`: HTML under it."""
    hint = f' title="{text(title)}"' if title else ""
    button = f'<button type="button" class="sorts"{hint}><span>{text(said, 80)}</span></button>'
    return f'<th scope="col" class="{kind}" data-sort="{text(name, 200)}">{button}{small}</th>'


def sorted_by(value: float | None) -> str:
    """The number a cell is sorted by, in full; nothing where there is none."""
    return f' data-v="{value!r}"' if value is not None and math.isfinite(value) else ' data-v=""'


def behind_with_chance(score: Score) -> str:
    """What a number rests on, and what guessing gets, as its tooltip says it."""
    chance = f", chance {number(score.chance)}" if score.chance is not None else ""
    run = " (a random run, {} to {})".format(*map(number, score.chance_interval)) if score.chance_interval else ""
    return f"{sentences.behind(score)}{chance}{run}"


Axis = tuple[float, float]
"""The ends of a chart."""
WHOLE: Axis = (0.0, 100.0)
NARROW_BAR = 5.0
"""Percent of an axis under which an interval would hide behind a dot; its score is marked by a fine line instead."""


def fitted(scores: Iterable[Score], unit: str = "percent") -> Axis:
    """The axis that holds every score, interval and level of chance with round ends: of percentages the tens around them; of counts from 0
    to 1, 2 or 5 times a power of ten."""
    ends = [
        value
        for score in scores
        for value in (score.value, score.low, score.high, score.chance, *(score.chance_interval or ()))
        if value is not None and math.isfinite(value)
    ]
    lowest, highest = min(ends, default=0.0), max(ends, default=0.0)
    if unit != "percent":
        power = 10 ** math.floor(math.log10(max(highest, 1.0)))
        return 0.0, next(step * power for step in (1.0, 2.0, 5.0, 10.0) if highest <= step * power)
    right = min(max(math.ceil(highest / 10 - 1e-9) * 10.0, 10.0), 100.0)
    left = max(math.floor(lowest / 10 + 1e-9) * 10.0, 0.0)
    return (left if right - left >= 10 else 0.0), right


def dots(score: Score, axis: Axis, rest: float | None = None) -> str:
    """Interval bar, dot and chance, positioned in percent of the axis; decoration for eyes, the numbers stand beside it. Chance is a
    line, or a band where it is a random run, which has an interval of its own.

    `rest`: what the score is to be seen against, a hollow mark."""

    def at(value: float) -> float:
        return min(max(100 * (value - axis[0]) / (axis[1] - axis[0]), 0.0), 100.0)

    parts, narrow = "", ""
    if score.chance_interval is not None:
        start, end = map(at, score.chance_interval)
        parts += f'<i class="band" style="left:{start:.2f}%;width:{end - start:.2f}%"></i>'
    if score.chance is not None and math.isfinite(score.chance):
        parts += f'<i class="chance" style="left:{at(score.chance):.2f}%"></i>'
    if score.low is not None and score.high is not None:
        left, right = at(score.low), at(score.high)
        parts += f'<i class="bar" style="left:{left:.2f}%;width:{right - left:.2f}%"></i>'
        narrow = " narrow" if right - left < NARROW_BAR else ""
    if rest is not None and math.isfinite(rest):
        parts += f'<i class="rest" style="left:{at(rest):.2f}%"></i>'
    if score.value is not None and math.isfinite(score.value):
        parts += f'<i class="pt" style="left:{at(score.value):.2f}%"></i>'
    return f'<span class="track{narrow}" aria-hidden="true">{parts}</span>'


def explained(shown: str, said: str, name: str, kind: str = "") -> str:
    """A control that shows `said` beside it by click, touch and key. `shown`: HTML; `name`: its id on the page."""
    name = f"why-{zlib.crc32(name.encode()):08x}"
    return (
        f'<button type="button" class="ask-why {kind}" popovertarget="{name}">{shown}</button>'
        f'<span class="why" popover id="{name}">{text(said, 600)}</span>'
    )


def cell(
    column: str, score: Score, verdict: Verdict | None, address: str, said: str, muted: bool = False, more: str = ""
) -> str:
    """A score in a table of models: number, mark, interval and dot on an axis from 0 to 100, the whole a link. `column`: its name, for
    narrow screens; `said`: the basis of the number; `muted`: it ranks no model; `more`: HTML beside it."""
    tone = "muted" if muted else f"v-{TONE[verdict]}"
    spoken = f'<span class="hear"> {text(said, 300)}</span>'
    few = " few" if score.n_cases < sentences.FEW or score.is_small else ""
    return (
        f'<td class="{tone}{few}" data-b="{text(column)}" title="{text(said, 300)}"{sorted_by(score.value)}>'
        f'<a class="c" href="{address}"><b>{score_text(score.value)}</b><span class="mark" aria-hidden="true">'
        f"{'' if muted else sentences.mark(score)}</span>{spoken}{dots(score, WHOLE)}</a>{more}</td>"
    )


def no_cell(column: str, more: str = "") -> str:
    """Where a model has no result."""
    return f'<td class="none" data-b="{text(column)}" data-v="">–{more}</td>'


FIRST, FIRST_MODELS = 60, 20
"""Rows of a long table that are drawn at first: of results, and of models where each has a chart in every column."""


def all_rows(drawn: int, total: int, what: str = "result") -> str:
    """The button for all rows of a table of which the first are drawn; to be sorted it is drawn whole, too (`assets/table.js`)."""
    if drawn == total:
        return ""
    button = f'<button type="button" class="link" data-name="all" value="yes">All {plural(total, what)}</button>'
    return f'<p class="turn" data-part>{button}</p>'


def files(table: str) -> str:
    """What saves a table: a small disclosure with a button per form."""
    buttons = "".join(
        f'<button type="button" class="link" data-act="{form}" data-of="{table}">{said}</button>'
        for form, said in (("csv", "CSV"), ("json", "JSON"))
    )
    return f'<details class="save" data-keep="save-{table}"><summary>Save</summary><span>{buttons}</span></details>'


CITE_BOX = '<div class="cite" hidden></div>'
"""Where the citation appears that `acts` asks for."""


def acts(of: str = "", tables: bool = True) -> str:
    """The buttons that share, save and cite a page. `of`: the table that is saved; `tables` False: saving is offered elsewhere."""
    offered = [("link", "Copy link"), *([("csv", "CSV"), ("json", "JSON")] if tables else []), ("cite", "Cite")]
    named = f' data-of="{of}"' if of else ""
    return "".join(
        f'<button type="button" class="link" data-act="{act}"{named}>{said}</button>' for act, said in offered
    )


def framed(title: str, table: str, heads: Sequence[tuple[str, str]], rows: str, left: bool = False) -> str:
    """A table with its title, the buttons that save it, and heads that sort it."""
    top = "".join(column_head("", said, name) for name, said in heads)
    return (
        f'<div class="bar-head"><h3>{text(title)}</h3>{files(table)}</div>'
        f'<div class="scroll"><table class="plain{" left" if left else ""}" data-table="{table}" aria-label="Table of {table}">'
        f"<thead><tr>{top}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def measured_sections(board: Board) -> list[tuple[str, Section]]:
    """Sections of which answers are known, with what an address calls them; those with most results first."""
    found = [(set_name(section), section) for section in _all(board) if _measured(section)]
    return sorted(found, key=lambda item: (item[1].kind != "complete", -len(_measured(item[1]))))


def chosen_section(board: Board, request: Request) -> tuple[str, Section] | None:
    """The section that a request names, else the first with answers; None where no answers are known at all."""
    found = measured_sections(board)
    wanted = str(request.get("set") or "")
    return next((item for item in found if item[0] == wanted), found[0] if found else None)


def key_of(section: Section, question: Any) -> list[int]:
    """The true options of a question; empty where its source keeps them from the public, even where a key lies in the store."""
    if section.kind != "phantom" and section.split in spec(section.family).hidden_splits:
        return []
    return [int(option) for option in question["answer"]]


def section_select(board: Board, key: str) -> str:
    """The choice of a set of questions of which answers are known."""
    return set_select([section for _, section in measured_sections(board)], key)


def set_select(sections: Sequence[Section], key: str) -> str:
    """The choice of a set of questions."""
    pairs = [
        (
            set_name(section),
            f"{set_title(section)}, {plural(section.questions, 'question')}",
        )
        for section in sections
    ]
    return f'<label>Questions <select data-name="set">{options(pairs, key)}</select></label>'


def result_input(said: str, name: str, chosen: str, entries: Sequence[Entry], hint: str) -> str:
    """A field that takes a result by its name, and offers the names while one types: a list of hundreds cannot be scrolled."""
    return name_input(said, name, chosen, [(one, "") for one in sorted(labels(entries).values(), key=str.lower)], hint)


def name_input(said: str, name: str, chosen: str, offered: Sequence[tuple[str, str]], hint: str) -> str:
    """A field that takes one of the names `offered`, each with what is said beside it while one types."""
    listed = "".join(
        '<option value="{}"{}></option>'.format(text(one, LONGEST_NAME), f' label="{text(beside)}"' if beside else "")
        for one, beside in offered
    )
    return (
        f'<label>{text(said)} <input data-name="{name}" type="search" list="results-{name}" value="{text(chosen, LONGEST_NAME)}" '
        f'placeholder="{text(hint)}" autocomplete="off"></label><datalist id="results-{name}">{listed}</datalist>'
    )


def no_answers() -> str:
    """What stands where a page needs answers and the board has none: what is missing, and how to get it."""
    return (
        '<h2 class="finding">No questions are known yet.</h2><p class="sub">This board has only what papers print: scores, but neither '
        "questions nor answers. Both come with a run: <code>medprobe eval BENCHMARK --model MODEL</code>, then <code>medprobe submit "
        'RUN_DIR --to STORE</code>. Published scores can be compared on <a href="#/compare">Compare</a>.</p>'
    )


def not_known(what: str, wanted: object, shown: str, where: str = "on this board") -> str:
    """A note where an address names (`wanted`) something else than what is shown."""
    if not wanted or str(wanted) == shown:
        return ""
    return f'<p class="note">{prose(f"{what} {wanted}: not {where}. Another one is shown.", 400)}</p>'


def _all(board: Board) -> Iterator[Section]:
    for sections in board.snapshot.sections.values():
        yield from sections


def _measured(section: Section) -> list[Entry]:
    return [entry for entry in section.entries if entry.result.kind == "measured" and entry.answers is not None]
