"""What the browser asks for, answered from the current snapshot: views, trees, details, downloads. Knows no Gradio.

Every answer is computed from one immutable snapshot and remembered by (snapshot, question), so that many readers of the same
selection cost one computation.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dataset_builders.errors import BadInput
from leaderboard_space.export import as_csv, as_json, citation, file_name, leaderboard_table
from leaderboard_space.html import text
from leaderboard_space.outcomes import Outcomes
from leaderboard_space.sections import Board, Section, Snapshot
from leaderboard_space.standings import ALL, ONE, Standings, methods_of, metrics_of, standings
from leaderboard_space.tree import SEPARATOR, Path, Tree
from leaderboard_space.views import breakdown, leaderboard, plots

MOST_BRANCHES = 2000
REMEMBERED = 512
PATIENCE = 0.5
"""Seconds a reader waits for answers that are still being read, before seeing the scores as handed in."""


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

    @property
    def key(self) -> tuple[Any, ...]:
        return (id(self.section), self.snapshot.stamp, self.metric, self.branches, self.shown, self.ready)


class Service:
    """Answers the board's requests. Thread-safe: many readers, one store."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._memory: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._lock = threading.Lock()

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
        asked = self.asked(request)
        found = self.standings(asked)
        html = self._remember(
            ("panel", *asked.key),
            lambda: leaderboard.panel(
                asked.snapshot, asked.section, found, asked.metrics, asked.branches, asked.shown, asked.ready
            ),
        )
        if asked.dropped:
            gone = ", ".join(asked.dropped[:5])
            html = (
                f'<p class="note">Not in this set of questions, and left out of the selection: {text(gone, 400)}.</p>'
                + html
            )
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
            "tree": f"{asked.section.key}@{asked.ready}@{asked.snapshot.stamp}",
            "ready": asked.ready,
            "selected": found.selected,
        }

    def tree(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The branches of a section, for the browser to draw."""
        if self.board.snapshot.section(str(request.get("format")), None) is None:
            return []
        asked = self.asked(request)
        return self._remember(("tree", *asked.key[:2]), asked.tree.as_json)

    def breakdown(self, request: Mapping[str, Any]) -> str:
        """The breakdown table of a selection, as HTML."""
        if self.board.snapshot.section(str(request.get("format")), None) is None:
            return ""
        asked = self.asked(request)
        facets = breakdown.facets_of(asked.section, asked.outcomes)
        wanted = str(request.get("facet") or "")
        facet = (
            wanted
            if wanted in facets
            else next(
                (name for name in facets if breakdown.known(asked.section, asked.outcomes, name, asked.metric)),
                facets[-1],
            )
        )

        def draw() -> str:
            cells = breakdown.cells_of(
                asked.section, asked.outcomes, asked.tree, asked.metric, facet, asked.branches, asked.metrics
            )
            drawn = plots.plot(
                asked.section.format,
                self.standings(replace(asked, metric=plots.CHOOSING.get(asked.section.format, asked.metric))).rows,
                lambda name: breakdown.scores_by_entry(asked.section, asked.outcomes, asked.tree, name, asked.branches),
            )
            return drawn + breakdown.view(
                asked.section, asked.outcomes, cells, self.standings(asked), facet, facets, asked.metrics
            )

        return self._remember(("breakdown", facet, *asked.key), draw)

    def detail(self, request: Mapping[str, Any]) -> str:
        """The provenance of one result, as HTML."""
        asked = self.asked(request)
        wanted = str(request.get("key"))
        entry = next((entry for entry in asked.section.entries if entry.key == wanted), None)
        if entry is None:
            raise BadInput("this result is no longer on the board. Reload the page.")
        return leaderboard.detail(entry, asked.section)

    def export(self, request: Mapping[str, Any]) -> dict[str, str]:
        """The leaderboard of a selection as a file: `name`, `text`, `type`."""
        asked = self.asked(request)
        table = leaderboard_table(asked.section, self.standings(asked), asked.branches)
        form = "json" if request.get("as") == "json" else "csv"
        body = as_json(table) if form == "json" else as_csv(table)
        return {
            "name": file_name(asked.section, asked.metric, form),
            "text": body,
            "type": "application/json" if form == "json" else "text/csv",
        }

    def cite(self, request: Mapping[str, Any]) -> str:
        """How to cite what is shown."""
        asked = self.asked(request)
        return citation(asked.section, self.standings(asked))

    def refresh(self) -> str:
        """Look at the store now; the stamp of what is there."""
        return self.board.refresh().stamp

    def standings(self, asked: Asked) -> Standings:
        """The ranked rows of a checked request."""
        return self._remember(
            ("standings", *asked.key),
            lambda: standings(asked.section, asked.outcomes, asked.tree, asked.metric, asked.branches, asked.shown),
        )

    def asked(self, request: Mapping[str, Any]) -> Asked:
        """A request, checked against what is there; what it does not say is chosen. Raises BadInput for a benchmark without results."""
        snapshot = self.board.snapshot
        section = snapshot.section(str(request.get("format")), request.get("section"))
        if section is None:
            raise BadInput(f"benchmark {request.get('format')!r}: this board has no results of it.")
        wanted = _branches(request.get("branches"))
        loaded = self.board.outcomes(section, patience=None if wanted else PATIENCE)
        outcomes, tree = loaded or self.board.outline(section)
        branches = tuple(branch for branch in wanted if branch in tree.rows)
        dropped = tuple(SEPARATOR.join(branch[1:]) for branch in wanted if branch not in tree.rows)
        metrics = metrics_of(section, outcomes)
        wanted_shown = str(request.get("shown"))
        shown = wanted_shown if wanted_shown == ALL or wanted_shown in methods_of(section) else ONE
        metric = str(request.get("metric"))
        if metric not in metrics:
            metric = metrics[0] if metrics else metric
        return Asked(snapshot, section, outcomes, tree, metric, metrics, branches, shown, dropped, loaded is not None)

    def _remember(self, key: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
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
