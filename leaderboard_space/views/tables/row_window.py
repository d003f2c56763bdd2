"""Choose the rows of a long table that are drawn: those whose names match the search, sorted, and of these the first ones.

A table of a few dozen rows is drawn whole and sorted in the browser; of hundreds the server picks (`assets/board.js` asks it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from leaderboard_space.html import count, text

T = TypeVar("T")
Value = float | str | None
FIRST, MORE = 60, 100
"""Rows that are drawn at first, and how many more at a time."""
MOST = 2_000
SORT = {"a": False, "d": True}


@dataclass(frozen=True)
class Window:
    """`find`: words of a name; `rows`: how many are drawn; `sorts`: table, column, whether descending."""

    find: str = ""
    rows: int = FIRST
    sorts: tuple[tuple[str, str, bool], ...] = ()

    def sort_of(self, table: str) -> tuple[str, bool] | None:
        """The column that a table is sorted by, and whether descending; None for the board's own order."""
        return next(((column, down) for name, column, down in self.sorts if name == table), None)


def window_of(request: Mapping[str, Any]) -> Window:
    """What a request says of the rows it wants; anything else that a browser may send is left out."""
    held = request.get("sorts")
    said = held.items() if isinstance(held, dict) else ()
    sorts = tuple(
        (str(table)[:40], str(way[0])[:200], SORT[str(way[1])[:1]])
        for table, way in said
        if isinstance(way, list) and len(way) == 2 and str(way[1])[:1] in SORT
    )
    rows = request.get("rows")
    rows = rows if isinstance(rows, int) and not isinstance(rows, bool) else FIRST
    return Window(" ".join(str(request.get("find") or "").split())[:100], min(max(rows, FIRST), MOST), sorts[:4])


def matching(window: Window, items: Sequence[T], name_of: Callable[[T], str]) -> list[T]:
    """The items whose names hold every word searched for."""
    words = window.find.casefold().split()
    return [item for item in items if all(word in name_of(item).casefold() for word in words)] if words else list(items)


def first(window: Window, table: str, items: Sequence[T], value_of: Callable[[T, str], Value]) -> list[T]:
    """The items that are drawn: the first by the table's order. What has no value comes last, as in the browser (`assets/table.js`)."""
    sort = window.sort_of(table)
    if sort is None or len(items) <= window.rows:
        return list(items[: window.rows])
    column, down = sort
    values = {id(item): value_of(item, column) for item in items}
    known = [item for item in items if values[id(item)] is not None]
    numbers = all(isinstance(values[id(item)], float | int) for item in known)
    known.sort(key=lambda item: values[id(item)] if numbers else str(values[id(item)]), reverse=down)  # type: ignore[arg-type, return-value]
    return [*known, *(item for item in items if values[id(item)] is None)][: window.rows]


def search_field(window: Window, total: int) -> str:
    """Where names are searched for; nothing above a table that is short."""
    if total <= FIRST and not window.find:
        return ""
    return (
        f'<label class="find">Find <input type="search" data-find data-focus="find" value="{text(window.find)}" '
        f'placeholder="{count(total)} results" autocomplete="off" spellcheck="false"></label>'
    )


def more(window: Window, drawn: int, found: int, total: int) -> str:
    """How many rows are drawn of how many, and the button for more; nothing under a table that is whole."""
    if drawn == total:
        return ""
    of = f"{count(drawn)} of {count(found)} results" + (f" that match “{text(window.find)}”" if window.find else "")
    rest = min(MORE, found - drawn)
    button = (
        f'<button type="button" class="link" data-more="{window.rows + MORE}">Show {count(rest)} more</button>'
        if rest > 0
        else ""
    )
    return f'<p class="turn" data-part><span class="fine">{of}.</span> {button}</p>'
