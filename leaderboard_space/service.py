"""Answer the browser's requests from the current snapshot: views, trees, details, downloads. Independent of Gradio.

Every answer is computed from one immutable snapshot and remembered by (snapshot, question), so that many readers of the same
selection cost one computation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dataset_builders.errors import BadInput
from leaderboard_space import breakdowns
from leaderboard_space.data.board import Board
from leaderboard_space.data.ranks.standings import info_of
from leaderboard_space.export import as_file, citation
from leaderboard_space.html import text
from leaderboard_space.memory import ViewCache
from leaderboard_space.views.tables import leaderboard, provenance


class Service:
    """Answers the board's requests. Thread-safe: many readers, one store."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.memory = ViewCache(board)

    def view(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The panel of a benchmark: `html`, the `state` as understood, `stamp` of the data, `tree` (key to ask the tree for)."""
        family = str(request.get("format"))
        if self.board.snapshot.section(family, None) is None:
            return {
                "html": leaderboard.empty(family, self.board.snapshot.problems),
                "stamp": self.board.snapshot.stamp,
                "state": {},
                "tree": None,
            }
        if request.get("stamp") is not None and request["stamp"] == self.board.snapshot.stamp:
            return {"unchanged": True}
        wanted = self.memory.query(request)
        query = self.memory.fitting(wanted)
        found, every = self.memory.standings(query), request.get("all") == "yes"
        html = self.memory.remember(
            ("panel", every, *query.key),
            lambda: leaderboard.panel(query, found, every),
        )
        if query.metric != wanted.metric:
            before, now = (info_of(name, query.section.family).label for name in (wanted.metric, query.metric))
            said = f"{before} is not known for this selection: {now} is shown."
            html = f'<p class="note">{text(said)}</p>' + html
        if query.dropped:
            gone = ", ".join(query.dropped[:5])
            html = f'<p class="note">Not in this question set, therefore ignored: {text(gone, 400)}.</p>' + html
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
            "tree": f"{query.section.key}@{query.tree.digest}",
            "selected": found.selected,
            "counts": self.memory.remember(("counts", *query.key), lambda: query.tree.counts(query.branches)),
        }

    def tree(self, request: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
        """The branches and facets of a section, for the browser to draw."""
        if self.board.snapshot.section(str(request.get("format")), None) is None:
            return {"groups": [], "facets": []}
        return self.memory.query(request).tree.as_json

    def breakdown(self, request: Mapping[str, Any]) -> str:
        """The plots and the breakdown table of a selection, as HTML."""
        if self.board.snapshot.section(str(request.get("format")), None) is None:
            return ""
        return breakdowns.view(self.memory, self.memory.query(request), request)

    def detail(self, request: Mapping[str, Any]) -> str:
        """The provenance of one result, as HTML."""
        query = self.memory.query(request)
        wanted = str(request.get("key"))
        entry = next((entry for entry in query.section.entries if entry.key == wanted), None)
        if entry is None:
            raise BadInput("this result is no longer on the board. Reload the page.")
        return provenance.detail(entry, query.section)

    def export(self, request: Mapping[str, Any]) -> dict[str, str]:
        """A table as a file (`name`, `text`, `type`). `of`: leaderboard, breakdown or aspects; `as`: csv or json."""
        table, name = breakdowns.table(self.memory, self.memory.query(request), request)
        return as_file(table, name, str(request.get("as")))

    def cite(self, request: Mapping[str, Any]) -> str:
        """How to cite what is shown."""
        query = self.memory.query(request)
        return citation(query.section, self.memory.standings(query), query.branches, request)["text"]
