"""What the browser asks for, answered from the current snapshot: views, trees, details, downloads. Knows no Gradio.

Every answer is computed from one immutable snapshot and remembered by (snapshot, question), so that many readers of the same
selection cost one computation.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from dataset_builders.errors import BadInput
from leaderboard_space.benchmarks import spec
from leaderboard_space.data.board import Board
from leaderboard_space.data.models.claims import Claims
from leaderboard_space.data.models.cost import tokens_of
from leaderboard_space.data.ranks.groups import called
from leaderboard_space.data.ranks.outcomes import Outcomes
from leaderboard_space.data.ranks.standings import ALL, ONE, Standings, info_of, methods_of, metrics_of, standings
from leaderboard_space.data.store.sections import Entry, Section, Snapshot
from leaderboard_space.data.tree import Path, Tree, branch_name
from leaderboard_space.export import (
    as_file,
    breakdown_table,
    citation,
    leaderboard_table,
    plot_note,
    selection_in_words,
)
from leaderboard_space.html import text
from leaderboard_space.views.charts import plots
from leaderboard_space.views.tables import aspects, breakdown, leaderboard, provenance, transfer
from leaderboard_space.views.tables.breakdown import Cells
from leaderboard_space.views.tables.choices import labels
from leaderboard_space.views.tables.published_cells import published_cells
from leaderboard_space.views.tables.row_window import Value, Window, first, matching, more, window_of

MOST_BRANCHES = 2000
MANY = 100
"""Results beyond which a selection is shown before its ranks are known: the tests of all pairs take seconds then."""
REMEMBERED = 512
PATIENCE, LONG_PATIENCE = 0.2, 20.0
"""Seconds a reader waits for answers that are still being read, before seeing the scores as handed in; and, for a selection of branches,
before seeing what the first answers say: without any, nothing is known of a selection."""


@dataclass(frozen=True)
class BoardQuery:
    """A request of the browser, checked: the section it names exists, the metric and branches are there."""

    snapshot: Snapshot
    section: Section
    outcomes: Outcomes | None
    tree: Tree
    metric: str
    metrics: list[str]
    branches: tuple[Path, ...]
    shown: str
    dropped: tuple[str, ...]
    ready: bool
    unknown: tuple[str, ...] = ()
    """What the request names and the board does not know, one line each."""

    @property
    def key(self) -> tuple[Any, ...]:
        read = len(self.outcomes.runs) if self.outcomes is not None else -1
        return (id(self.section), self.snapshot.stamp, self.metric, self.branches, self.shown, self.ready, read)


class Service:
    """Answers the board's requests. Thread-safe: many readers, one store."""

    def __init__(self, board: Board, waits: bool = True, claims: Claims | None = None) -> None:
        """`waits`: answers still being read are waited for; else the caller has done so (see `wait`), and gets what is known.
        `claims`: what the Hub's model repositories state, where the board is told to ask."""
        self.board = board
        self.claims = claims or Claims()
        self._waits = waits
        self._memory: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._lock = threading.Lock()
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="ranks")
        self._ranking: set[tuple[Any, ...]] = set()

    def view(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The panel of a benchmark: `html`, the `state` as understood, `stamp` of the data, `tree` (key to ask the tree for)."""
        format = str(request.get("format"))
        if self.board.snapshot.section(format, None) is None:
            return {
                "html": leaderboard.empty(format, self.board.snapshot.problems),
                "stamp": self.board.snapshot.stamp,
                "state": {},
                "tree": None,
            }
        if request.get("stamp") is not None and request["stamp"] == self.board.snapshot.stamp:
            return {"unchanged": True}
        wanted = self.query(request)
        query = self.fitting(wanted)
        found, window = self.known_standings(query), window_of(request)
        html = self.remember(
            ("panel", window, found.pending, *query.key),
            lambda: leaderboard.panel(
                query.snapshot, query.section, found, query.metrics, query.branches, query.shown, query.ready, window
            ),
        )
        if query.metric != wanted.metric:
            before, now = (info_of(name, query.section.format).label for name in (wanted.metric, query.metric))
            said = f"{before} is not known of this selection: {now} is shown."
            html = f'<p class="note">{text(said)}</p>' + html
        if query.dropped:
            gone = ", ".join(query.dropped[:5])
            html = (
                f'<p class="note">Not in this set of questions, and left out of the selection: {text(gone, 400)}.</p>'
                + html
            )
        html = "".join(f'<p class="note">{text(line, 400)}</p>' for line in query.unknown) + html
        state = {
            "section": query.section.key,
            "metric": query.metric,
            "branches": [list(branch) for branch in query.branches],
            "shown": query.shown,
        }
        return {
            "html": html,
            "stamp": query.snapshot.stamp,
            "state": state,
            "tree": f"{query.section.key}@{query.outcomes is not None}@{query.snapshot.stamp}",
            "ready": query.ready and not found.pending,
            "selected": found.selected,
            "counts": self.remember(("counts", *query.key), lambda: query.tree.counts(query.branches)),
        }

    def tree(self, request: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
        """The branches and facets of a section, for the browser to draw."""
        if self.board.snapshot.section(str(request.get("format")), None) is None:
            return {"groups": [], "facets": []}
        query = self.query(request)
        return self.remember(("tree", *query.key[:2], query.outcomes is not None), query.tree.as_json)

    def breakdown(self, request: Mapping[str, Any]) -> str:
        """The plots and the breakdown table of a selection, as HTML."""
        if self.board.snapshot.section(str(request.get("format")), None) is None:
            return ""
        query = self.query(request)
        facet, facets = self._facet(query, request)
        one, window = str(request.get("one") or ""), window_of(request)

        def draw() -> str:
            chosen, under = self._drawn(query, facet, window)
            keys = frozenset(entry.key for entry in chosen)
            found, format = self.known_standings(query), query.section.format
            about = plot_note(query.section, found, query.branches)
            rows = [row for row in found.standing if row.entry.key in keys]
            drawn = self._plot(query, keys, about) + plots.by_size(rows, query.metric, format, about)
            drawn += plots.by_cost(rows, tokens_of(rows), query.metric, format, about)
            if spec(query.section.format).by_image_type:
                entries = self._entries(query)
                named = (one, transfer.OF_THE_PAPER)
                keys |= {entry.key for entry in entries if entry.key == one or entry.result.model.name in named}
                cells_of = self._by_image_type(query, keys)
                drawn += transfer.view(entries, cells_of, one, labels(entries), query.metric)
                entry = self._one(query, one, keys)
                drawn += aspects.view(entry, cells_of, labels(entries)[entry.key]) if entry is not None else ""
            cells = self._cells(query, facet, keys=frozenset(entry.key for entry in chosen))
            return breakdown.view(query.section, cells, found, facet, facets, chosen, under, about) + drawn

        return self.remember(("breakdown", facet, one, window, *query.key), draw)

    def _drawn(self, query: BoardQuery, facet: str, window: Window) -> tuple[list[Entry], str]:
        """The results that the breakdown shows, and what stands under it: how many of how many."""
        entries = [
            entry for entry in self._entries(query) if breakdown.speaks_of(entry, query.outcomes, facet, query.metric)
        ]
        names = called(entries)
        held = matching(window, entries, lambda entry: names[entry.key])
        column = (window.sort_of("breakdown") or ("",))[0]
        cells = self._cells(query, facet, column=column).get(column, {}) if len(held) > window.rows and column else {}

        def value_of(entry: Entry, column: str) -> Value:
            score = cells.get(entry.key)
            return names[entry.key].lower() if column == "model" else score.value if score is not None else None

        chosen = first(window, "breakdown", held, value_of)
        return chosen, more(window, len(chosen), len(held), len(entries))

    def _plot(self, query: BoardQuery, keys: frozenset[str], about: str) -> str:
        """The benchmark's plot of the results `keys`; where a selection as a whole has none, that of the largest image type in it
        (papers print by these)."""
        drawn = self._plot_of(query, keys, "", about)
        if drawn or not spec(query.section.format).by_image_type:
            return drawn
        for branch in plots.image_types(query.tree, query.branches):
            name = branch_name(branch)
            drawn = self._plot_of(
                replace(query, branches=(branch,)),
                keys,
                f"Known by image type only: this is {name}, the largest; tick another to see it.",
                about,
            )
            if drawn:
                return drawn
        return ""

    def _plot_of(self, query: BoardQuery, keys: frozenset[str], where: str, about: str) -> str:
        format = query.section.format
        rows = self.known_standings(replace(query, metric=spec(format).plot_metric or query.metric)).standing
        # By model: papers print the plot's score of another of its results than the one that stands for it.
        models = {entry.result.model.name for entry in query.section.entries if entry.key in keys}
        rows = [row for row in rows if row.entry.result.model.name in models]
        plotted = frozenset(row.entry.key for row in rows)
        return plots.plot(
            format,
            rows,
            lambda name: breakdown.scores_by_entry(
                query.section, query.outcomes, query.tree, name, query.branches, plotted
            ),
            where,
            about,
        )

    def _one(self, query: BoardQuery, wanted: str, keys: frozenset[str] | None = None) -> Entry | None:
        """The result (of `keys`) that the views of a single one show."""
        cells = {aspect: self._by_image_type(query, keys)(aspect) for aspect in transfer.ASPECTS}
        entries = self._entries(query)
        return transfer.choose(entries, cells, wanted, labels(entries))

    def _facet(self, query: BoardQuery, request: Mapping[str, Any]) -> tuple[str, list[str]]:
        """The facet to break down by (the wanted one, else the first of which anything is known), and all there are."""
        facets = breakdown.facets_of(query.section, query.outcomes)
        wanted = str(request.get("facet") or "")
        known = (
            name
            for name in facets
            if any(breakdown.speaks_of(entry, query.outcomes, name, query.metric) for entry in query.section.entries)
        )
        return (wanted if wanted in facets else next(known)), facets

    def _cells(
        self,
        query: BoardQuery,
        facet: str,
        metric: str | None = None,
        keys: frozenset[str] | None = None,
        column: str | None = None,
    ) -> Cells:
        return breakdown.cells_of(
            query.section, query.outcomes, query.tree, metric or query.metric, facet, query.branches, query.metrics,
            keys, column,
        )  # fmt: skip

    def _by_image_type(self, query: BoardQuery, keys: frozenset[str] | None = None) -> Callable[[str], Cells]:
        return lambda metric: self._cells(query, "image_type", metric, keys)

    def _entries(self, query: BoardQuery) -> list[Entry]:
        """The results shown, in the order of the table, then those of which this selection says nothing as a whole."""
        found = self.known_standings(query)
        return [*(row.entry for row in found.standing), *found.hidden]

    def detail(self, request: Mapping[str, Any]) -> str:
        """The provenance of one result, as HTML."""
        query = self.query(request)
        wanted = str(request.get("key"))
        entry = next((entry for entry in query.section.entries if entry.key == wanted), None)
        if entry is None:
            raise BadInput("this result is no longer on the board. Reload the page.")
        return provenance.detail(entry, query.section)

    def export(self, request: Mapping[str, Any]) -> dict[str, str]:
        """A table as a file (`name`, `text`, `type`). `of`: leaderboard, breakdown, cells, transfer or aspects; `as`: csv or json."""
        query = self.query(request)
        section, found, of = query.section, self.standings(query), str(request.get("of") or "leaderboard")
        name = f"{section.benchmark}-{section.key}-{query.metric}"
        if of == "breakdown":
            facet, _ = self._facet(query, request)
            metric = None if facet == breakdown.METRICS_FACET else query.metric
            cells = self._cells(query, facet)
            table = breakdown_table(section, self._entries(query), facet, cells, metric, query.branches)
            name += f"-by-{facet}"
        elif of == "transfer":
            table = []
            for metric in dict.fromkeys((*transfer.ASPECTS, query.metric)):
                cells = self._by_image_type(query)(metric)
                table += breakdown_table(section, self._entries(query), "image_type", cells, metric, query.branches)
            name += "-by-image-type"
        elif of == "aspects":
            one = self._one(query, str(request.get("one") or ""))
            table = []
            for metric in aspects.COLUMNS if one is not None else ():
                cells = self._by_image_type(query)(metric)
                table += breakdown_table(section, [one], "image_type", cells, metric, query.branches) if one else []
            name = f"{section.benchmark}-{section.key}-{one.result.model.name if one else ''}-aspects"
        elif of == "cells":
            entries, printed = published_cells(found, query.branches)
            table = []
            for (facet, value), held in printed.items():
                table += breakdown_table(section, entries, facet, {value: held}, query.metric, query.branches)
            name += "-published-cells"
        else:
            table = leaderboard_table(section, found, query.branches)
        if query.branches:
            name += f"-{selection_in_words(query.branches)}"
        return as_file(table, name, str(request.get("as")))

    def cite(self, request: Mapping[str, Any]) -> str:
        """How to cite what is shown."""
        query = self.query(request)
        return citation(query.section, self.standings(query), query.branches, str(request.get("link") or "")[:4000])

    def ready(self, request: Mapping[str, Any]) -> bool:
        """Whether a request can be answered without waiting for answers that are still being read."""
        section = self.board.snapshot.section(str(request.get("format")), request.get("section"))
        return section is None or section.ready

    def wait(self, request: Mapping[str, Any]) -> None:
        """Wait for the answers a request needs, as long as is decent: all of them for a moment, then the first ones."""
        section = self.board.snapshot.section(str(request.get("format")), request.get("section"))
        if section is not None and self.board.outcomes(section, PATIENCE) is None and request.get("branches"):
            self.board.begun(section, LONG_PATIENCE)

    def refresh(self) -> str:
        """Look at the store now; the stamp of what is there."""
        return self.board.refresh().stamp

    def standings(self, query: BoardQuery) -> Standings:
        """The ranked rows of a checked request."""
        return self.remember(
            ("standings", *query.key),
            lambda: standings(query.section, query.outcomes, query.tree, query.metric, query.branches, query.shown),
        )

    def known_standings(self, query: BoardQuery) -> Standings:
        """The same, of hundreds of results without their ranks until these are computed, which begins now."""
        key = ("standings", *query.key)
        with self._lock:
            if key in self._memory:
                return self._memory[key]
            begins = len(query.section.entries) > MANY and key not in self._ranking
            if begins:
                self._ranking.add(key)
        if len(query.section.entries) <= MANY:
            return self.standings(query)
        if begins:
            self._beside.submit(self._rank, key, query)
        return self.remember(
            ("unranked", *query.key),
            lambda: standings(
                query.section, query.outcomes, query.tree, query.metric, query.branches, query.shown, with_ranks=False
            ),
        )

    def _rank(self, key: tuple[Any, ...], query: BoardQuery) -> None:
        try:
            self.standings(query)
        finally:
            with self._lock:
                self._ranking.discard(key)

    def fitting(self, query: BoardQuery) -> BoardQuery:
        """The same with the first score of which something is known for the selection, where nothing is known of the wanted one: no
        choice of branches empties the board as long as anything is known of them."""
        are_measured = all(entry.result.kind == "measured" for entry in query.section.entries)
        if are_measured and query.tree.size and not self.known_standings(query).selected:
            return query  # no question, no score
        for metric in dict.fromkeys((query.metric, *query.metrics)):
            found = replace(query, metric=metric)
            if self.known(found):
                return found
        return query

    def known(self, query: BoardQuery) -> bool:
        """Whether a score of the selection is known, or a printed cell within it."""
        found = self.known_standings(query)
        return any(row.score.value is not None for row in found.rows) or bool(published_cells(found, query.branches)[1])

    def query(self, request: Mapping[str, Any]) -> BoardQuery:
        """A request, checked against what is there; what it does not say is chosen. Raises BadInput for a benchmark without results."""
        snapshot = self.board.snapshot
        section = snapshot.section(str(request.get("format")), request.get("section"))
        if section is None:
            raise BadInput(f"benchmark {request.get('format')!r}: this board has no results of it.")
        wanted = _branches(request.get("branches"))
        loaded = self.board.outcomes(section, (None if wanted else PATIENCE) if self._waits else 0)
        outcomes, tree = loaded or self.board.begun(section, 0) or self.board.outline(section)
        branches = tuple(branch for branch in wanted if branch in tree.rows)
        dropped = tuple(branch_name(branch) for branch in wanted if branch not in tree.rows)
        metrics = metrics_of(section, outcomes)
        wanted_shown = str(request.get("shown"))
        shown = wanted_shown if wanted_shown == ALL or wanted_shown in methods_of(section) else ONE
        metric = str(request.get("metric"))
        unknown = [
            f"{what} {request[key]}: not on this board. What is shown is another."
            for what, key, known in (
                ("Set of questions", "section", str(request.get("section")) == section.key),
                ("Score", "metric", metric in metrics),
                ("Results", "shown", wanted_shown == shown),
            )
            if request.get(key) and not known
        ]
        if metric not in metrics:
            metric = metrics[0] if metrics else metric
        ready = loaded is not None
        return BoardQuery(
            snapshot, section, outcomes, tree, metric, metrics, branches, shown, dropped, ready, tuple(unknown)
        )

    def remember(self, key: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
        with self._lock:
            if key in self._memory:
                self._memory.move_to_end(key)
                return self._memory[key]
        value = compute()
        with self._lock:
            self._memory[key] = value
            while len(self._memory) > REMEMBERED:
                self._memory.popitem(last=False)
        return value


def _branches(value: Any) -> list[Path]:
    """Paths (facet, label, ...) from whatever the browser sent; anything else is dropped."""
    if not isinstance(value, list):
        return []
    found = [
        tuple(str(part) for part in branch)
        for branch in value[:MOST_BRANCHES]
        if isinstance(branch, list | tuple) and 2 <= len(branch) <= 6
    ]
    return list(dict.fromkeys(found))
