"""Test wrong requests by programs: each gets one clear line, never an internal error, and never an
empty answer without an explanation.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dataset_builders.errors import BadInput
from leaderboard_space.api import tools
from leaderboard_space.service import Service

Tools = dict[str, Callable[..., Any]]


@pytest.fixture(scope="module")
def offered(measured_board: Service) -> Tools:
    return {tool.__name__: tool for tool in tools(measured_board.board, measured_board)}


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("leaderboard", {"benchmark": "x" * 100_000}, "Available: mediconfusion"),
        ("leaderboard", {"benchmark": 5}, "benchmark: Input should be a valid string"),
        ("leaderboard", {"benchmark": "probmed", "branches": "chest_xray"}, "branches: Input should be a valid list"),
        ("leaderboard", {"benchmark": "probmed", "branches": ["chst"]}, "Did you mean chest"),
        ("leaderboard", {"benchmark": "probmed", "metric": "accurcy"}, "Available: overall"),
        ("leaderboard", {"benchmark": "probmed", "question_set": "nowhere"}, "`question_sets` names them"),
        ("leaderboard", {"benchmark": "probmed", "every_run": "maybe"}, "every_run: Input should be a valid boolean"),
        ("leaderboard", {"benchmark": "probmed", "branches": ["organ: chest"], "metric": "organ"}, "given away by the selection"),
        ("breakdown", {"benchmark": "probmed", "facet": "organs"}, "Available: image_type"),
        ("breakdown", {"benchmark": "probmed", "facet": "image_type", "metric": "overall"}, "Available: condition"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_one_clear_line(offered: Tools, tool: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as error:
        offered[tool](**arguments)
    line = str(error.value)
    assert message in line and "\n" not in line and len(line) < 400


def test_labels_may_be_written_as_the_board_shows_them(offered: Tools) -> None:
    source = offered["leaderboard"]("probmed", ["chest_xray"], "abnormality")
    assert len(source) == 11 and source[0]["table"] == "Table 16"
    for spelling in ("chest X-ray", "image_type: Chest X-Ray", " CHEST_XRAY "):
        assert offered["leaderboard"]("ProbMed", [spelling], "abnormality") == source
    assert offered["branches_of"]("probmed", contains="X-ray") != []


def test_without_a_score_named_one_that_is_known_is_taken(offered: Tools) -> None:
    """No overall score is printed by image type: an empty table would suggest that nothing is
    known.
    """
    assert {row["metric"] for row in offered["leaderboard"]("probmed", ["chest_xray"])} == {"condition"}
    assert {row["metric"] for row in offered["breakdown"]("probmed", "image_type")} == {"condition"}
    assert {row["metric"] for row in offered["leaderboard"]("probmed")} == {"overall"}


def test_no_place_on_this_machine_is_told(offered: Tools, tmp_path: Path) -> None:
    responses = repr(offered["question_sets"]()) + repr(offered["leaderboard"]("halt-medvqa", every_run=True))
    assert str(tmp_path.parent) not in responses
