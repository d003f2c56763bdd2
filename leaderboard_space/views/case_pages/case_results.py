"""Choose the results beside the cases of a set: those with answers, those that count, those that are shown; locate its images."""

from __future__ import annotations

import numpy as np

from leaderboard_space.data.board import Board
from leaderboard_space.data.evidence.case_images import Dataset
from leaderboard_space.data.evidence.case_lists import headline_of
from leaderboard_space.data.store.sections import Entry, Section
from leaderboard_space.data.units.outcomes import Outcomes

MOST_RUNS = 60


def answered_of(section: Section, outcomes: Outcomes) -> list[Entry]:
    """The results of which answers are known."""
    return [entry for entry in section.entries if entry.key in outcomes.row_of]


def counted_of(section: Section, outcomes: Outcomes) -> list[str]:
    """The results by which a case counts as wrong or disputed: all that are neither baselines nor withdrawn, where there are any."""
    models = [
        entry.key
        for entry in section.entries
        if entry.key in outcomes.row_of
        and entry.result.model.kind != "baseline"
        and entry.provenance.withdrawal is None
    ]
    return models or list(outcomes.runs)


def shown_of(section: Section, outcomes: Outcomes) -> list[Entry]:
    """The results of which answers are shown: all, or the best where there are more than a reader can take in."""
    name = headline_of(outcomes)
    if name is None:
        return [entry for entry in section.entries if entry.key in outcomes.row_of][:MOST_RUNS]
    share = dict(zip(outcomes.runs, outcomes.metrics[name].shares(None).tolist(), strict=True))
    entries = [entry for entry in section.entries if entry.key in share]
    best = {entry.key for entry in sorted(entries, key=lambda entry: -np.nan_to_num(share[entry.key]))[:MOST_RUNS]}
    return [entry for entry in entries if entry.key in best]


def datasets_of(board: Board, section: Section) -> list[Dataset]:
    """The datasets that the board's owner vouches for and that hold the questions of a section: their images may be shown, too."""
    return [
        (str(split.benchmark.repo), split.benchmark.revision)
        for split in board.trusted.splits
        if split.benchmark.fingerprint == section.fingerprint and split.benchmark.repo
    ]
