"""Controls shared by the pages Compare and Cases: choose a set of questions and results of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from leaderboard_space.benchmarks import LABELS, spec
from leaderboard_space.data.board import Board
from leaderboard_space.data.result_names import labels
from leaderboard_space.data.store.sections import Entry, Section
from leaderboard_space.html import LONGEST_NAME, options, plural, prose, text

Request = Mapping[str, Any]


def measured_sections(board: Board) -> list[tuple[str, Section]]:
    """Sections of which answers are known, with the text that names them in a list; those with most results first."""
    found = [(f"{section.family}/{section.key}", section) for section in _all(board) if _measured(section)]
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
            f"{section.family}/{section.key}",
            f"{LABELS[section.family]}: {section.title()}, {section.split}, {plural(section.questions, 'question')}",
        )
        for section in sections
    ]
    return f'<label>Questions <select data-name="set">{options(pairs, key)}</select></label>'


def result_input(said: str, name: str, chosen: str, entries: list[Entry], hint: str) -> str:
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


def no_answers(line: str) -> str:
    """What stands where a page needs answers and the board has none: what is missing, and how to get it."""
    return (
        f'<h2 class="finding">{text(line)}</h2><p class="sub">This board has only what papers print: scores, but neither questions nor '
        "answers. Both come with a run: <code>medprobe eval BENCHMARK --model MODEL</code>, then <code>medprobe submit RUN_DIR --to "
        'STORE</code>. Published scores can be compared on <a href="#/compare">Compare</a>.</p>'
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
