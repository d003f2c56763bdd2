"""Provide what several tests of the board share."""

import pytest

from leaderboard_space.data.board import Board
from leaderboard_space.data.published_results import board_results
from leaderboard_space.service import Service
from tests.leaderboard_space.stores import make_store


@pytest.fixture(scope="session")
def measured_board(tmp_path_factory: pytest.TempPathFactory) -> Service:
    """Return a board with measured results of all benchmarks and the papers' numbers. Tests must
    not change its store.
    """
    return Service(Board(make_store(tmp_path_factory.mktemp("measured")), board_results()))


@pytest.fixture(scope="session")
def papers_board() -> Service:
    """Return a board with the papers' numbers and no store."""
    return Service(Board(None, board_results()))
