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
class Asked:
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
        wanted = self.asked(request)
        asked = self.fitting(wanted)
        found, window = self.known_standings(asked), window_of(request)
        html = self.remember(
            ("panel", window, found.pending, *asked.key),
            lambda: leaderboard.panel(
                asked.snapshot, asked.section, found, asked.metrics, asked.branches, asked.shown, asked.ready, window
            ),
        )
        if asked.metric != wanted.metric:
            before, now = (info_of(name, asked.section.format).label for name in (wanted.metric, asked.metric))
            said = f"{before} is not known of this selection: {now} is shown."
            html = f'<p class="note">{text(said)}</p>' + html
        if asked.dropped:
            gone = ", ".join(asked.dropped[:5])
            html = (
                f'<p class="note">Not in this set of questions, and left out of the selection: {text(gone, 400)}.</p>'
                + html
            )
        html = "".join(f'<p class="note">{text(line, 400)}</p>' for line in asked.unknown) + html
        state = {
            "section": asked.section.key,
            "metric": asked.metric,
            "branches": [list(branch) for branch in asked.branches],
            "shown": asked.shown,
        }
        return {
            "html": html,
            "stamp": asked.snapshot.stamp,
            "state": state,
            "tree": f"{asked.section.key}@{asked.outcomes is not None}@{asked.snapshot.stamp}",
            "ready": asked.ready and not found.pending,
            "selected": found.selected,
            "counts": self.remember(("counts", *asked.key), lambda: asked.tree.counts(asked.branches)),
        }

    def tree(self, request: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
        """The branches and facets of a section, for the browser to draw."""
        if self.board.snapshot.section(str(request.get("format")), None) is None:
            return {"groups": [], "facets": []}
        asked = self.asked(request)
        return self.remember(("tree", *asked.key[:2], asked.outcomes is not None), asked.tree.as_json)

    def breakdown(self, request: Mapping[str, Any]) -> str:
        """The plots and the breakdown table of a selection, as HTML."""
        if self.board.snapshot.section(str(request.get("format")), None) is None:
            return ""
        asked = self.asked(request)
        facet, facets = self._facet(asked, request)
        one, window = str(request.get("one") or ""), window_of(request)

        def draw() -> str:
            chosen, under = self._drawn(asked, facet, window)
            keys = frozenset(entry.key for entry in chosen)
            found, format = self.known_standings(asked), asked.section.format
            about = plot_note(asked.section, found, asked.branches)
            rows = [row for row in found.standing if row.entry.key in keys]
            drawn = self._plot(asked, keys, about) + plots.by_size(rows, asked.metric, format, about)
            drawn += plots.by_cost(rows, tokens_of(rows), asked.metric, format, about)
            if spec(asked.section.format).by_image_type:
                entries = self._entries(asked)
                named = (one, transfer.OF_THE_PAPER)
                keys |= {entry.key for entry in entries if entry.key == one or entry.result.model.name in named}
                cells_of = self._by_image_type(asked, keys)
                drawn += transfer.view(entries, cells_of, one, labels(entries), asked.metric)
                entry = self._one(asked, one, keys)
                drawn += aspects.view(entry, cells_of, labels(entries)[entry.key]) if entry is not None else ""
            cells = self._cells(asked, facet, keys=frozenset(entry.key for entry in chosen))
            return breakdown.view(asked.section, cells, found, facet, facets, chosen, under, about) + drawn

        return self.remember(("breakdown", facet, one, window, *asked.key), draw)

    def _drawn(self, asked: Asked, facet: str, window: Window) -> tuple[list[Entry], str]:
        """The results that the breakdown shows, and what stands under it: how many of how many."""
        entries = [
            entry for entry in self._entries(asked) if breakdown.speaks_of(entry, asked.outcomes, facet, asked.metric)
        ]
        names = called(entries)
        held = matching(window, entries, lambda entry: names[entry.key])
        column = (window.sort_of("breakdown") or ("",))[0]
        cells = self._cells(asked, facet, column=column).get(column, {}) if len(held) > window.rows and column else {}

        def value_of(entry: Entry, column: str) -> Value:
            score = cells.get(entry.key)
            return names[entry.key].lower() if column == "model" else score.value if score is not None else None

        chosen = first(window, "breakdown", held, value_of)
        return chosen, more(window, len(chosen), len(held), len(entries))

    def _plot(self, asked: Asked, keys: frozenset[str], about: str) -> str:
        """The benchmark's plot of the results `keys`; where a selection as a whole has none, that of the largest image type in it
        (papers print by these)."""
        drawn = self._plot_of(asked, keys, "", about)
        if drawn or not spec(asked.section.format).by_image_type:
            return drawn
        for branch in plots.image_types(asked.tree, asked.branches):
            name = branch_name(branch)
            drawn = self._plot_of(
                replace(asked, branches=(branch,)),
                keys,
                f"Known by image type only: this is {name}, the largest; tick another to see it.",
                about,
            )
            if drawn:
                return drawn
        return ""

    def _plot_of(self, asked: Asked, keys: frozenset[str], where: str, about: str) -> str:
        format = asked.section.format
        rows = self.known_standings(replace(asked, metric=spec(format).plot_metric or asked.metric)).standing
        # By model: papers print the plot's score of another of its results than the one that stands for it.
        models = {entry.result.model.name for entry in asked.section.entries if entry.key in keys}
        rows = [row for row in rows if row.entry.result.model.name in models]
        plotted = frozenset(row.entry.key for row in rows)
        return plots.plot(
            format,
            rows,
            lambda name: breakdown.scores_by_entry(
                asked.section, asked.outcomes, asked.tree, name, asked.branches, plotted
            ),
            where,
            about,
        )

    def _one(self, asked: Asked, wanted: str, keys: frozenset[str] | None = None) -> Entry | None:
        """The result (of `keys`) that the views of a single one show."""
        cells = {aspect: self._by_image_type(asked, keys)(aspect) for aspect in transfer.ASPECTS}
        entries = self._entries(asked)
        return transfer.choose(entries, cells, wanted, labels(entries))

    def _facet(self, asked: Asked, request: Mapping[str, Any]) -> tuple[str, list[str]]:
        """The facet to break down by (the wanted one, else the first of which anything is known), and all there are."""
        facets = breakdown.facets_of(asked.section, asked.outcomes)
        wanted = str(request.get("facet") or "")
        known = (
            name
            for name in facets
            if any(breakdown.speaks_of(entry, asked.outcomes, name, asked.metric) for entry in asked.section.entries)
        )
        return (wanted if wanted in facets else next(known)), facets

    def _cells(
        self,
        asked: Asked,
        facet: str,
        metric: str | None = None,
        keys: frozenset[str] | None = None,
        column: str | None = None,
    ) -> Cells:
        return breakdown.cells_of(
            asked.section, asked.outcomes, asked.tree, metric or asked.metric, facet, asked.branches, asked.metrics,
            keys, column,
        )  # fmt: skip

    def _by_image_type(self, asked: Asked, keys: frozenset[str] | None = None) -> Callable[[str], Cells]:
        return lambda metric: self._cells(asked, "image_type", metric, keys)

    def _entries(self, asked: Asked) -> list[Entry]:
        """The results shown, in the order of the table, then those of which this selection says nothing as a whole."""
        found = self.known_standings(asked)
        return [*(row.entry for row in found.standing), *found.hidden]

    def detail(self, request: Mapping[str, Any]) -> str:
        """The provenance of one result, as HTML."""
        asked = self.asked(request)
        wanted = str(request.get("key"))
        entry = next((entry for entry in asked.section.entries if entry.key == wanted), None)
        if entry is None:
            raise BadInput("this result is no longer on the board. Reload the page.")
        return provenance.detail(entry, asked.section)

    def export(self, request: Mapping[str, Any]) -> dict[str, str]:
        """A table as a file (`name`, `text`, `type`). `of`: leaderboard, breakdown, cells, transfer or aspects; `as`: csv or json."""
        asked = self.asked(request)
        section, found, of = asked.section, self.standings(asked), str(request.get("of") or "leaderboard")
        name = f"{section.benchmark}-{section.key}-{asked.metric}"
        if of == "breakdown":
            facet, _ = self._facet(asked, request)
            metric = None if facet == breakdown.METRICS_FACET else asked.metric
            cells = self._cells(asked, facet)
            table = breakdown_table(section, self._entries(asked), facet, cells, metric, asked.branches)
            name += f"-by-{facet}"
        elif of == "transfer":
            table = []
            for metric in dict.fromkeys((*transfer.ASPECTS, asked.metric)):
                cells = self._by_image_type(asked)(metric)
                table += breakdown_table(section, self._entries(asked), "image_type", cells, metric, asked.branches)
            name += "-by-image-type"
        elif of == "aspects":
            one = self._one(asked, str(request.get("one") or ""))
            table = []
            for metric in aspects.COLUMNS if one is not None else ():
                cells = self._by_image_type(asked)(metric)
                table += breakdown_table(section, [one], "image_type", cells, metric, asked.branches) if one else []
            name = f"{section.benchmark}-{section.key}-{one.result.model.name if one else ''}-aspects"
        elif of == "cells":
            entries, printed = published_cells(found, asked.branches)
            table = []
            for (facet, value), held in printed.items():
                table += breakdown_table(section, entries, facet, {value: held}, asked.metric, asked.branches)
            name += "-published-cells"
        else:
            table = leaderboard_table(section, found, asked.branches)
        if asked.branches:
            name += f"-{selection_in_words(asked.branches)}"
        return as_file(table, name, str(request.get("as")))

    def cite(self, request: Mapping[str, Any]) -> str:
        """How to cite what is shown."""
        asked = self.asked(request)
        return citation(asked.section, self.standings(asked), asked.branches, str(request.get("link") or "")[:4000])

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

    def standings(self, asked: Asked) -> Standings:
        """The ranked rows of a checked request."""
        return self.remember(
            ("standings", *asked.key),
            lambda: standings(asked.section, asked.outcomes, asked.tree, asked.metric, asked.branches, asked.shown),
        )

    def known_standings(self, asked: Asked) -> Standings:
        """The same, of hundreds of results without their ranks until these are computed, which begins now."""
        key = ("standings", *asked.key)
        with self._lock:
            if key in self._memory:
                return self._memory[key]
            begins = len(asked.section.entries) > MANY and key not in self._ranking
            if begins:
                self._ranking.add(key)
        if len(asked.section.entries) <= MANY:
            return self.standings(asked)
        if begins:
            self._beside.submit(self._rank, key, asked)
        return self.remember(
            ("unranked", *asked.key),
            lambda: standings(
                asked.section, asked.outcomes, asked.tree, asked.metric, asked.branches, asked.shown, with_ranks=False
            ),
        )

    def _rank(self, key: tuple[Any, ...], asked: Asked) -> None:
        try:
            self.standings(asked)
        finally:
            with self._lock:
                self._ranking.discard(key)

    def fitting(self, asked: Asked) -> Asked:
        """The same with the first score of which something is known for the selection, where nothing is known of the wanted one: no
        choice of branches empties the board as long as anything is known of them."""
        are_measured = all(entry.result.kind == "measured" for entry in asked.section.entries)
        if are_measured and asked.tree.size and not self.known_standings(asked).selected:
            return asked  # no question, no score
        for metric in dict.fromkeys((asked.metric, *asked.metrics)):
            found = replace(asked, metric=metric)
            if self.known(found):
                return found
        return asked

    def known(self, asked: Asked) -> bool:
        """Whether a score of the selection is known, or a printed cell within it."""
        found = self.known_standings(asked)
        return any(row.score.value is not None for row in found.rows) or bool(published_cells(found, asked.branches)[1])

    def asked(self, request: Mapping[str, Any]) -> Asked:
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
        return Asked(
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
