"""The notes above a leaderboard: what the set of questions is, and what a selection leaves out."""

from __future__ import annotations

from leaderboard_space import sentences
from leaderboard_space.data.facets import groups_of
from leaderboard_space.data.ranks.standings import Standings
from leaderboard_space.html import count, prose, text
from leaderboard_space.query import BoardQuery


def notes(query: BoardQuery, found: Standings) -> str:
    """The notes as HTML; empty where there are none."""
    section, lines = query.section, []
    if section.kind == "phantom":
        lines.append(
            "Synthetic test images: these numbers show that the pipeline works and say nothing about medicine."
        )
    elif section.kind in ("sample", "partial"):
        part = f" ({section.selection})" if section.selection else ""
        lines.append(f"Not the complete official set{part}: its results are ranked among themselves.")
    elif section.kind == "unconfirmed":
        lines.append(
            "It has as many questions as the paper reports, but we know of no released file that proves them to be the same: "
            "its results are ranked among themselves, not with the paper's numbers."
        )
    elif section.kind == "retired":
        lines.append("Answers to an earlier version of the dataset, which has been replaced: ranked among themselves.")
    elif section.kind == "custom":
        lines.append("Not the benchmark's own set, but one in its format: its results are ranked among themselves.")
    validated = {entry.result.benchmark.validated for entry in section.entries}
    if False in validated and True not in validated:
        lines.append("No person has checked the questions of this set.")
    lines += _unranked(query, found)
    lines += section.notes
    lines += [note for entry in section.entries for note in entry.notes]
    problems = [f"Set aside, unreadable: {problem}" for problem in query.snapshot.problems]
    lines += problems if len(problems) == 1 else []
    if not lines and not problems:
        return ""
    shown = "".join(f'<li class="note">{prose(line, 400)}</li>' for line in lines[:8])
    more = f'<li class="note">and {len(lines) - 8} more</li>' if len(lines) > 8 else ""
    if len(problems) > 1:
        inner = "".join(f"<p>{text(line, 400)}</p>" for line in problems[:50])
        title = f"<summary>{count(len(problems))} files were set aside</summary>"
        more += f'<li class="note"><details data-keep="problems">{title}{inner}</details></li>'
    return f'<ul class="notes">{shown}{more}</ul>'


def is_dead_end(query: BoardQuery, found: Standings) -> bool:
    """True if nothing is known of a selection because papers print by one facet at a time, or no question has all of its labels."""
    together = len(groups_of(query.branches)) > 1 or any(query.tree.is_unprinted(path) for path in query.branches)
    return together and not found.rows and not found.facets_of_parts(query.branches)


def _unranked(query: BoardQuery, found: Standings) -> list[str]:
    """What a selection leaves out, and what it takes from elsewhere than answers."""
    branches = query.branches
    if is_dead_end(query, found):
        return []  # the headline says it
    if not branches:
        told = ["The breakdown below shows what is known about its parts."]
        return told if not found.rows and found.facets_of_parts(()) else []
    ranked = {row.entry.result.model.name for row in found.rows}  # by another method, or measured
    left = [entry.result for entry in found.hidden if entry.result.model.kind != "baseline"]
    left = [result for result in left if result.model.name not in ranked]
    measured = {result.model.name for result in left if result.kind != "published"}
    lines = []
    for names, published in (({result.model.name for result in left} - measured, True), (measured, False)):
        if names:
            below = published and bool(found.facets_of_parts(branches))
            lines.append(sentences.not_ranked(len(names), published, below))
    taken = [row.entry.result.kind == "published" for row in found.rows if not row.recomputed]
    return lines + ([sentences.as_printed(sum(taken), len(taken) - sum(taken))] if taken and not lines else [])
