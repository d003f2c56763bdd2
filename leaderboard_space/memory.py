"""Cache computed results, so that many readers of the same selection cost one computation.

See also: queries (`query.py`), pages (`service.py`, `views/`).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from leaderboard_space.data.board import Board
from leaderboard_space.data.ranks.standings import Standings, standings
from leaderboard_space.data.store.sections import Entry
from leaderboard_space.query import BoardQuery, checked

MANY = 100
"""Measured results beyond which a selection is shown before its ranks are known: the tests of all pairs take seconds then. Those of printed
numbers take a few milliseconds for a hundred results."""
RANKS_AFTER = 0.3
"""Seconds after which the computing of ranks begins: until then the interpreter is the table's and the breakdown's."""
WAITED_FOR = 3.0
"""Seconds after which no page waits for the ranks of a selection any more: a page that does asks again every second and a half."""
REMEMBERED = 512


class ViewCache:
    """A board, and what was computed of it: the last REMEMBERED values by their keys, the standings of queries. Thread-safe."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._values: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._computing: dict[tuple[Any, ...], Future[Any]] = {}
        self._lock = threading.Lock()
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="ranks")
        self._ranking: dict[tuple[Any, ...], tuple[float, BoardQuery]] = {}
        """Key of a selection whose ranks are awaited -> when it was asked for last, and the query."""

    def remember(self, key: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
        """The value of a key, computed where it is not there: once, however many ask for it at the same moment."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            begun = self._computing.get(key)
            if begun is None:
                mine = self._computing[key] = Future[Any]()
        if begun is not None:
            return begun.result()
        try:
            mine.set_result(compute())
        except BaseException as error:
            mine.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._computing[key]
                if mine.exception() is None:
                    self._values[key] = mine.result()
                while len(self._values) > REMEMBERED:
                    self._values.popitem(last=False)
        return mine.result()

    def query(self, request: Mapping[str, Any]) -> BoardQuery:
        """A request, checked (`query.checked`). Raises BadInput for a benchmark without results."""
        return checked(self.board, request)

    def standings(self, query: BoardQuery) -> Standings:
        """The ranked rows of a query."""
        return self.remember(("standings", *query.key), lambda: _standings(query))

    def known_standings(self, query: BoardQuery) -> Standings:
        """The same, of hundreds of results without their ranks until these are computed, which begins now if the query asks for it."""
        if sum(entry.result.kind == "measured" for entry in query.section.entries) <= MANY:
            return self.standings(query)
        key = ("standings", *query.key)
        with self._lock:
            if key in self._values:
                return self._values[key]
        found = self.remember(("unranked", *query.key), lambda: _standings(query, with_ranks=False))
        if not query.ranks:
            return found
        with self._lock:
            begins = key not in self._ranking
            self._ranking[key] = (time.monotonic(), query)
        if begins:
            self._beside.submit(self._rank, time.monotonic() + RANKS_AFTER)
        return found

    def _rank(self, begins: float) -> None:
        """Compute the ranks that were asked for last. Who has gone on to another selection asks for the former one no more: its ranks
        would take seconds of the interpreter from those who wait."""
        time.sleep(max(0.0, begins - time.monotonic()))
        with self._lock:
            oldest = time.monotonic() - WAITED_FOR
            self._ranking = {key: asked for key, asked in self._ranking.items() if asked[0] >= oldest}
            if not self._ranking:
                return
            key, (_, query) = max(self._ranking.items(), key=lambda item: item[1][0])
        try:
            self.standings(query)
        finally:
            with self._lock:
                del self._ranking[key]

    def fitting(self, query: BoardQuery) -> BoardQuery:
        """The same with the first score of which something is known for the selection, where nothing is known of the wanted one: no
        choice of branches empties the board as long as anything is known of them."""
        are_measured = all(entry.result.kind == "measured" for entry in query.section.entries)
        if are_measured and query.tree.size and not self.known_standings(query).selected:
            return query  # no question, no score
        for metric in dict.fromkeys((query.metric, *query.metrics)):
            found = replace(query, metric=metric)
            if self._is_known(found):
                return found
        return query

    def _is_known(self, query: BoardQuery) -> bool:
        """True if a score of the selection is known, or a printed cell within it (of everything: any cell)."""
        found = self.known_standings(query)
        if any(row.score.value is not None or row.score.nonresponse is not None for row in found.rows):
            return True
        return bool(found.facets_of_parts(query.branches))

    def entries(self, query: BoardQuery) -> list[Entry]:
        """The results shown, in the order of the table, then those of which this selection says nothing as a whole."""
        found = self.known_standings(query)
        return [*(row.entry for row in found.standing), *found.hidden]


def _standings(query: BoardQuery, with_ranks: bool = True) -> Standings:
    return standings(query.section, query.outcomes, query.tree, query.metric, query.branches, query.shown, with_ranks)
