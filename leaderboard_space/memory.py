"""Keep computed results, so that many readers of the same selection cost one computation.

See also: queries (`query.py`), pages (`service.py`, `views/`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from leaderboard_space.data.board import Board
from leaderboard_space.data.ranks.standings import Standings, standings
from leaderboard_space.data.store.sections import Entry
from leaderboard_space.query import BoardQuery, checked

REMEMBERED = 512


class ViewCache:
    """A board, and what was computed of it: the last REMEMBERED values by their keys, the standings of queries. Thread-safe."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._values: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._lock = threading.RLock()

    def remember(self, key: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
        """The value of a key, computed where it is not there; one value after the other: all of it is the interpreter's work. What is
        there waits for none of it."""
        with suppress(KeyError):
            self._values.move_to_end(key)
            return self._values[key]
        with self._lock:
            if key not in self._values:
                self._values[key] = compute()
            while len(self._values) > REMEMBERED:
                self._values.popitem(last=False)
            return self._values[key]

    def query(self, request: Mapping[str, Any]) -> BoardQuery:
        """A request, checked (`query.checked`). Raises BadInput for a benchmark without results."""
        return checked(self.board, request)

    def standings(self, query: BoardQuery) -> Standings:
        """The ranked rows of a query."""
        return self.remember(
            ("standings", *query.key),
            lambda: standings(query.section, query.outcomes, query.tree, query.metric, query.branches, query.shown),
        )

    def fitting(self, query: BoardQuery) -> BoardQuery:
        """The same with the first score of which something is known for the selection, where nothing is known of the wanted one: no
        choice of branches empties the board as long as anything is known of them."""
        are_measured = all(entry.result.kind == "measured" for entry in query.section.entries)
        if are_measured and query.tree.size and not self.standings(query).selected:
            return query  # no question, no score
        for metric in dict.fromkeys((query.metric, *query.metrics)):
            found = replace(query, metric=metric)
            if self._is_known(found):
                return found
        return query

    def _is_known(self, query: BoardQuery) -> bool:
        """True if a score of the selection is known, or a printed cell within it (of everything: any cell)."""
        found = self.standings(query)
        if any(row.score.value is not None or row.score.nonresponse is not None for row in found.rows):
            return True
        return bool(found.facets_of_parts(query.branches))

    def entries(self, query: BoardQuery) -> list[Entry]:
        """The results shown, in the order of the table, then those of which this selection says nothing as a whole."""
        found = self.standings(query)
        return [*(row.entry for row in found.standing), *found.hidden]
