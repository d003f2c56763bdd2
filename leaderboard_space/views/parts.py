"""Draw the small parts that several pages share: addresses, buttons that share and save, the fields
of a form, notes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from leaderboard_space.benchmarks import BENCHMARK_LABELS, board_spec
from leaderboard_space.data.board import Board
from leaderboard_space.data.model_names import entry_labels
from leaderboard_space.data.store.sections import Entry, Section
from leaderboard_space.data.tree import PATH_SEPARATOR, TreePath
from leaderboard_space.html import MAX_CHOICE_LENGTH, options, plural, prose, text

Request = Mapping[str, Any]
"""What the browser asks for: keys and values of an address."""
MAX_ID_LENGTH = 300
"""Characters of an id in an address."""


def address_of(page: str, id: str = "", /, **parameters: str | Sequence[str] | None) -> str:
    """A link within the board, escaped for an attribute.

    Args:
        page: Name of the page.
        id: What the page is about.
        parameters: Keys and values; a key with several values is repeated, one without any is left
            out.

    >>> address_of("model", "A & B"), address_of("compare", result=["a", "b"], set=None)
    ('#/model/A%20%26%20B', '#/compare?result=a&amp;result=b')
    """
    # A key may have one value or several.
    values = {key: [value] if isinstance(value, str) else value or () for key, value in parameters.items()}
    pairs = [(key, value) for key, of_key in values.items() for value in of_key if value]
    path = f"#/{page}/{quote(id, safe='')}" if id else f"#/{page}"
    return text(f"{path}?{urlencode(pairs, quote_via=quote, safe='/')}" if pairs else path, 8000)


def set_name(section: Section) -> str:
    """The name of a question set in addresses of the pages Compare and Cases."""
    return f"{section.family}/{section.key}"


def set_title(section: Section) -> str:
    """The title of a question set beside those of other benchmarks."""
    return f"{BENCHMARK_LABELS[section.family]}: {section.title()}, {section.split}"


def benchmark_address(
    section: Section,
    metric: str | None = None,
    selection: Sequence[TreePath] = (),
    every: bool = False,
) -> str:
    """The leaderboard of a question set.

    Args:
        section: The question set.
        metric: The score; None for the headline metric.
        selection: The selected branches.
        every: Show all rows of a long table.
    """
    branches = selection_address(selection)
    return address_of("b", section.family, s=section.key, m=metric, all="yes" if every else None, **branches)


def selection_address(selection: Sequence[TreePath]) -> dict[str, list[str]]:
    """A selection as parameters of an address: `facet` for a label, `branch` for what is below
    one."""
    parameters: dict[str, list[str]] = {}
    for path in selection:
        key = "branch" if len(path) > 2 else "facet"
        parameters.setdefault(key, []).append(f"{path[0]}:{PATH_SEPARATOR.join(path[1:])}")
    return parameters


def compare_address(section: Section, metric: str | None, branches: Sequence[TreePath] = (), **results: str) -> str:
    """The comparison of results.

    Args:
        section: The question set.
        metric: The score; None for the headline metric.
        branches: The selected branches.
        results: Result by slot (`first`, `second` ...).
    """
    return address_of("compare", set=set_name(section), metric=metric, **selection_address(branches), **results)


def model_address(name: str) -> str:
    """The page of a model; for an overlong name, the page that lists all models."""
    return address_of("model", name if len(name) <= MAX_ID_LENGTH else "")


def case_address(section: Section, case_id: str) -> str:
    """One case of a question set."""
    return address_of("cases", case_id, set=set_name(section))


MODEL_KIND_TITLES = {
    "proprietary": "proprietary",
    "open": "open weights",
    "medical": "medical",
    "baseline": "baseline",
}
"""Kind of model -> its words in the legend; a result without a kind is "kind not stated"."""


def links_row(label: str, title: str, links: str) -> str:
    """A row of links after their title.

    Args:
        label: What screen readers announce.
        title: The title.
        links: The links (HTML).
    """
    return f'<div class="topics" role="group" aria-label="{text(label)}"><span>{text(title)}</span><div>{links}</div></div>'


def explanation_button(content: str, explanation: str, name: str, kind: str = "") -> str:
    """A button that opens an explanation by click, touch and key.

    Args:
        content: HTML of the button.
        explanation: The text that it opens.
        name: Makes its id unique on the page.
        kind: CSS classes of the button.
    """
    # An id must not contain spaces; names do.
    element_id = f"why-{zlib.crc32(name.encode()):08x}"
    return (
        f'<button type="button" class="ask-why {kind}" popovertarget="{element_id}">{content}</button>'
        f'<span class="why" popover id="{element_id}">{text(explanation, 600)}</span>'
    )


MAX_FIRST_RESULTS, MAX_FIRST_MODELS = 60, 20
"""Rows of a long table that are drawn at first: of results, and of models, which have a chart in
every column."""


def all_rows_button(n_drawn: int, n_total: int, row_noun: str = "result") -> str:
    """The button that draws all rows of a table; sorting draws them, too (`assets/table.js`).

    Args:
        n_drawn: Number of rows that are drawn.
        n_total: Number of rows.
        row_noun: What a row is.
    """
    button = f'<button type="button" class="link" data-name="all" value="yes">All {plural(n_total, row_noun)}</button>'
    return f'<p class="turn" data-part>{button}</p>' if n_drawn < n_total else ""


def save_menu(table: str) -> str:
    """The menu that saves a table."""
    buttons = "".join(
        f'<button type="button" class="link" data-act="{form}" data-of="{table}">{form.upper()}</button>'
        for form in ("csv", "json")
    )
    return f'<details class="save" data-keep="save-{table}"><summary>Save</summary><span>{buttons}</span></details>'


CITE_BOX = '<div class="cite" hidden></div>'
"""Where the citation appears that a button of `action_buttons` asks for."""


def action_buttons(table: str = "", can_save: bool = True) -> str:
    """The buttons that share, save and cite a page.

    Args:
        table: The table to save.
        can_save: Whether to offer saving.
    """
    saves = {"csv": "CSV", "json": "JSON"} if can_save else {}
    labels_by_act = {"link": "Copy link", **saves, "cite": "Cite"}
    return "".join(
        f'<button type="button" class="link" data-act="{act}"{f" data-of={chr(34)}{table}{chr(34)}" if table else ""}>{label}</button>'
        for act, label in labels_by_act.items()
    )


def measured_sections(board: Board) -> list[Section]:
    """Question sets with known answers: complete official ones first, then by the number of
    results."""
    measured = [section for section in board.snapshot.all_sections if _measured(section)]
    return sorted(measured, key=lambda section: (section.kind != "complete", -len(_measured(section))))


def _measured(section: Section) -> list[Entry]:
    """The results of a section whose answers are known."""
    return [entry for entry in section.entries if entry.result.kind == "measured" and entry.answers is not None]


def chosen_section(board: Board, request: Request) -> Section | None:
    """The question set that a request names, else the first with answers; None if no answers are
    known at all."""
    sections = measured_sections(board)
    matches = [section for section in sections if set_name(section) == str(request.get("set") or "")]
    return next(iter(matches or sections), None)


def answer_key(section: Section, question: Any) -> list[int]:
    """The correct options of a question; empty if its source hides them, even if the store has a
    key.

    Args:
        section: The question set.
        question: A row of its table of questions.
    """
    is_hidden = section.kind != "phantom" and section.split in board_spec(section.family).hidden_splits
    return [] if is_hidden else [int(option) for option in question["answer"]]


def set_select(sections: Sequence[Section], chosen: Section) -> str:
    """The field that chooses a question set.

    Args:
        sections: The question sets to choose from.
        chosen: The one that is chosen.
    """
    titles = {
        set_name(section): f"{set_title(section)}, {plural(section.questions, 'question')}" for section in sections
    }
    choices = options(list(titles.items()), set_name(chosen))
    return f'<label>Questions <select data-name="set">{choices}</select></label>'


def result_input(label: str, name: str, chosen: str, entries: Sequence[Entry], hint: str) -> str:
    """A text field that suggests results by name, since a list of hundreds cannot be scrolled.

    Args:
        label: Its label.
        name: Its key in an address.
        chosen: Its content.
        entries: The results.
        hint: Its placeholder.
    """
    return name_input(
        label,
        name,
        chosen,
        [(result_name, "") for result_name in sorted(entry_labels(entries).values(), key=str.lower)],
        hint,
    )


def name_input(label: str, name: str, chosen: str, suggestions: Sequence[tuple[str, str]], hint: str) -> str:
    """A text field that suggests names.

    Args:
        label: Its label.
        name: Its key in an address.
        chosen: Its content.
        suggestions: Names, each with a note beside it, or "".
        hint: Its placeholder.
    """
    items = "".join(
        '<option value="{}"{}></option>'.format(
            text(suggestion, MAX_CHOICE_LENGTH), f' label="{text(note)}"' if note else ""
        )
        for suggestion, note in suggestions
    )
    return (
        f'<label>{text(label)} <input data-name="{name}" type="search" list="results-{name}" value="{text(chosen, MAX_CHOICE_LENGTH)}" '
        f'placeholder="{text(hint)}" autocomplete="off"></label><datalist id="results-{name}">{items}</datalist>'
    )


def no_answers_page() -> str:
    """The text of a page that needs answers on a board that has none: what is missing, and how to
    add it."""
    return (
        '<h2 class="finding">No questions are known yet.</h2><p class="sub">This board has only what papers print: scores, but neither '
        "questions nor answers. Both come with a run: <code>medprobe eval BENCHMARK --model MODEL</code>, then <code>medprobe submit "
        'RUN_DIR --to STORE</code>. Published scores can be compared on <a href="#/compare">Compare</a>.</p>'
    )


def unknown_name_note(noun: str, requested: object, actual: str, scope: str = "on this board") -> str:
    """A note if an address names something that does not exist; "" otherwise.

    Args:
        noun: What it names, such as "Score".
        requested: The name in the address.
        actual: The name of what the page shows.
        scope: Where it does not exist.
    """
    note = prose(f"{noun} {requested}: not {scope}. Another one is shown.", 400)
    return f'<p class="note">{note}</p>' if requested and str(requested) != actual else ""
