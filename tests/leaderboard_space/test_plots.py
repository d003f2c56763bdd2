"""Plots and the table of image types and aspects: what is drawn when papers print only parts, and where names stand."""

import json
import re

import pytest

from leaderboard_space.data.board import Board
from leaderboard_space.data.published_results import board_results
from leaderboard_space.service import Service
from leaderboard_space.views.plots import _written


@pytest.fixture(scope="module")
def service() -> Service:
    return Service(Board(None, board_results()))


def test_the_slope_is_shown_of_the_largest_image_type_where_papers_print_no_whole(service: Service) -> None:
    page = service.breakdown({"format": "probmed"})
    assert "What adversarial questions do" in page and "this is chest X-ray, the largest" in page
    assert "GPT-4o: 91.8 without, 98.0 with adversarial questions" in page  # Table 16, as printed
    brain = service.breakdown({"format": "probmed", "branches": [["organ", "brain"]], "metric": "modality"})
    assert "this is brain MRI, the largest" in brain
    ticked = service.breakdown({"format": "probmed", "branches": [["image_type", "spine_ct"]], "metric": "modality"})
    assert "What adversarial questions do" in ticked and "the largest" not in ticked


def test_image_types_and_aspects_of_one_result(service: Service) -> None:
    """Table 12, chest MRI of CheXagent: 0, 75, 50, 15, 0; without adversarial questions 5, 100, -, 27.5, 23.52."""
    asked = {"format": "probmed", "one": "CheXagent"}
    page = service.breakdown(asked)
    table = page[page.index('data-table="aspects"') :]
    line = re.search(r"<tr><th scope=\"row\">chest MRI.*?</tr>", table)
    assert line is not None
    cells = re.findall(r">([\d.]+)<i>", line[0])
    assert cells == ["0.0", "5.0", "75.0", "100.0", "50.0", "15.0", "27.5", "0.0", "23.5"]
    rows = json.loads(service.export({**asked, "of": "aspects", "as": "json"})["text"])
    assert len(rows) == 12 * 9 and {row["model"] for row in rows} == {"CheXagent"}
    (one,) = (
        row for row in rows if row["facet_value"] == "chest_mri" and row["metric"] == "position_without_adversarial"
    )
    assert one["value"] == 23.52 and one["table"] == "Table 12"


def test_names_cover_neither_dots_nor_each_other_nor_the_edge() -> None:
    taken = [(96.0, 92.0, 104.0, 108.0)]
    places = [_written("name", 4, 100.0, 100.0, taken) for _ in range(8)]
    written = [place for place in places if place]
    assert 2 <= len(written) == len(set(written)) == len(taken) - 1
    for at, one in enumerate(taken):
        for other in taken[at + 1 :]:
            assert one[0] > other[2] or one[2] < other[0] or one[1] > other[3] or one[3] < other[1]
    assert all(left > 42 or at == 0 for at, (left, *_) in enumerate(taken))
    assert _written("n" * 24, 24, 440.0, 100.0, [(430.0, 90.0, 450.0, 110.0), (300.0, 90.0, 430.0, 130.0)]) == ""
