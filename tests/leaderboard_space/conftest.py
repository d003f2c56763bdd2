"""Provide what several tests of the board share."""

from __future__ import annotations

import pytest

from leaderboard_space.data.board import Board
from leaderboard_space.data.published_results import board_results
from leaderboard_space.service import Service


@pytest.fixture(scope="session")
def papers_board() -> Service:
    """Return a board with the papers' numbers and no store."""
    return Service(Board(None, board_results()))
