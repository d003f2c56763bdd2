"""Test plots, the heat map, and the table of image types and aspects with the papers' numbers."""

import json
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from dataset_builders.benchmarks import BENCHMARKS
from leaderboard_space.data.board import Board
from leaderboard_space.data.published_results import board_results
from leaderboard_space.service import Service


@pytest.fixture(scope="module")
def service() -> Service:
    return Service(Board(None, board_results()))


def test_image_types_and_aspects_of_one_result(service: Service) -> None:
    """Table 12, chest MRI of CheXagent: 0, 75, 50, 15, 0; without adversarial questions 5, 100, -,
    27.5, 23.52.
    """
    request = {"format": "probmed", "one": "CheXagent"}
    page = service.breakdown(request)
    table = page[page.index('data-table="aspects"') :]
    line = re.search(r"<tr><th scope=\"row\">chest MRI.*?</tr>", table)
    assert line is not None
    cells = re.findall(r">([\d.]+)<i>", line[0])
    assert cells == ["0.0", "5.0", "75.0", "100.0", "50.0", "15.0", "27.5", "0.0", "23.5"]
    rows = json.loads(service.export({**request, "of": "aspects", "as": "json"})["text"])
    assert len(rows) == 12 * 9 and {row["model"] for row in rows} == {"CheXagent"}
    (entry,) = (
        row for row in rows if row["facet_value"] == "chest_mri" and row["metric"] == "position_without_adversarial"
    )
    assert entry["value"] == 23.52 and entry["table"] == "Table 12"
    sizes = {row["facet_value"]: row["n"] for row in rows if row["metric"] == "condition"}
    assert max(sizes, key=lambda name: sizes[name]) == "chest_xray" and "chest X-ray, the largest" in page


@pytest.mark.parametrize("family", list(BENCHMARKS))
def test_every_point_of_a_plot_stands_where_its_numbers_say_and_names_cover_none(service: Service, family: str) -> None:
    page = service.breakdown({"format": family})
    assert 'data-plot="size"' in page and ('data-plot="confusion"' in page) == (family == "mediconfusion")
    for name, svg_text in re.findall(r'data-plot="(\w+)".*?(<svg.*?</svg>)', page, re.DOTALL):
        boxes, places = [], []
        for point in ElementTree.fromstring(svg_text).iter("g"):
            numbers = [
                float(digits) for digits in re.findall("[0-9.]+", (point.findtext("title") or "").rpartition(": ")[2])
            ]
            if (mark := point.find("circle")) is not None:
                x, y = float(mark.get("cx", "")), float(mark.get("cy", ""))
                places.append((numbers if name in ("confusion", "slopes") else numbers[1::-1], x, y))
            for label in point.findall("text"):
                x, base, width = float(label.get("x", "")), float(label.get("y", "")), 5 * len(label.text or "")
                start = x - width if label.get("class") == "name end" else x
                boxes.append((start, base - 9, start + width, base))
        for at, (start, top, right, bottom) in enumerate(boxes):
            assert all(start > r or right < a or top > b or bottom < t for a, t, r, b in boxes[:at])
            assert not any(start < x < right and top < y < bottom for _, x, y in places)
        assert len(boxes) >= min(len(places), 4)
        ups = sorted((numbers[1], y) for numbers, _, y in places)
        assert all(low[1] >= high[1] - 1.5 for low, high in pairwise(ups))  # a higher number is drawn higher
        if name != "date":
            acrosses = sorted((numbers[0], x) for numbers, x, _ in places)
            # a model's size is written with one digit
            assert all(low[1] <= high[1] + 6 for low, high in pairwise(acrosses)), name


def test_every_cell_of_the_heat_map_is_coloured_by_its_distance_from_guessing(service: Service) -> None:
    page = service.breakdown({"format": "gmai-mmbench"})
    cells = re.findall(
        r'<td class="([a-z ]+)" style="--s:([\d.]+)" data-v="([\d.]+)" title="[^"]*chance ([\d.]+)', page
    )
    assert len(cells) > 500
    for kind, strength, value, chance in cells:
        assert ("up" in kind) == (float(value) >= float(chance)) or abs(float(value) - float(chance)) < 0.1
        assert abs(float(strength) - min(abs(float(value) - float(chance)) / 50, 1)) < 0.002
    assert "▲" in page and "≈" in page and "▼" in page  # tested against the paper's random run, cell by cell
