"""Check every number and sentence of the board over generated stores (`checks/pages.py` can check
more).
"""

from pathlib import Path

import pytest

from leaderboard_space.views import frame
from leaderboard_space.views.case import MAX_RUNS
from tests.leaderboard_space.checks.claims import plain
from tests.leaderboard_space.checks.pages import check_store
from tests.leaderboard_space.generated import make, printed
from tests.sampling import few

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", few([3008, 100, 7, 103, 16, 5176, 84, 102, 10], 2))
def test_every_page_says_what_the_raw_files_show(tmp_path: Path, seed: int) -> None:
    family = make(tmp_path, seed)
    check_store(tmp_path, family, printed(family, seed))


def test_the_page_about_names_the_numbers_that_the_board_uses() -> None:
    page = plain(frame.about())
    assert "Fewer than 30 cases are grey" in page and f"the best {MAX_RUNS}, where there are more" in page
