"""Plots and the table of image types and aspects: what is drawn when papers print only parts, and where names stand."""

import json
import re
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from dataset_builders.benchmarks import BENCHMARKS
from leaderboard_space.data.board import Board
from leaderboard_space.data.published_results import board_results
from leaderboard_space.service import Service
from leaderboard_space.views.scatter import FRAMES, Frame, written


@pytest.fixture(scope="module")
def service() -> Service:
    return Service(Board(None, board_results()))


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


@pytest.mark.parametrize("frame", FRAMES)
def test_names_cover_neither_dots_nor_each_other_nor_the_edge(frame: Frame) -> None:
    taken, names = np.array([(196.0, 192.0, 204.0, 208.0)]), []
    for _ in range(8):
        name, taken = written(frame, "name", 200.0, 200.0, taken)
        names.append(name)
    assert all(names) and len(set(names)) == len(names) == len(taken) - 1
    for at, one in enumerate(taken):
        for other in taken[at + 1 :]:
            assert one[0] > other[2] or one[2] < other[0] or one[1] > other[3] or one[3] < other[1]
    everywhere = np.array([(0.0, 0.0, 2000.0, 2000.0)])
    name, taken = written(frame, "n" * 24, 300.0, 200.0, everywhere)
    assert name == "" and taken is everywhere


def check_ticks(picture: ElementTree.Element) -> None:
    """The numbers under a logarithmic axis stand where they say, as the points do: one line through them all."""
    bottom = max(float(node.get("y", "0")) for node in picture.iter("text")) - 20  # under the ticks stands the label
    ticks = [
        (float(node.get("x", "")), float((node.text or "").replace(",", "")))
        for node in picture.findall("text[@class='mid']")
        if bottom - 10 < float(node.get("y", "")) < bottom + 15 and re.fullmatch(r"[\d.,]+", node.text or "")
    ]
    points = [
        (float(mark.get("cx", "")), float((point.findtext("title") or "").rpartition(", ")[2].replace(",", "")))
        for point in picture.iter("g")
        for mark in point.findall("circle")
    ]
    assert len(ticks) >= 2 and points
    at, value = np.array(ticks).T
    slope, start = np.polyfit(np.log(value), at, 1)
    for x, size in (*ticks, *((x, size) for x, size in points if size >= 2)):  # a size is said with one digit
        assert abs(start + slope * np.log(size) - x) < 0.05 * slope, (x, size)


@pytest.mark.parametrize("family", list(BENCHMARKS))
def test_every_point_of_a_plot_is_named_and_stands_where_its_numbers_say(service: Service, family: str) -> None:
    page = service.breakdown({"format": family})
    assert ('data-plot="confusion"' in page) == (family == "mediconfusion") and 'data-plot="size"' in page
    for name in ("confusion", "size"):
        if f'data-plot="{name}"' not in page:
            continue
        drawn = page[page.index(f'data-plot="{name}"') :].partition("</figure>")[0]
        wide, slim = (
            ElementTree.fromstring(one + "</svg>") for one in drawn[drawn.index("<svg") :].split("</svg>")[:2]
        )
        assert (wide.get("class"), slim.get("class")) == ("wide", "slim")
        assert len(list(wide.iter("g"))) == len(list(slim.iter("g"))) >= 3
        for picture in (wide, slim):
            if name == "size":
                check_ticks(picture)
            heights = []
            named = 0
            for point in picture.iter("g"):
                said = point.findtext("title") or ""
                texts = [node.get("class") for node in point.iter("text")]
                assert texts in (["name"], []), said
                named += len(texts)
                mark = next(node for node in point if node.get("class") == "pt")
                shown = re.findall(r" ([\d.]+)", said.partition(":")[2])[1 if name == "confusion" else 0]
                if mark.tag == "circle":
                    heights.append((float(shown), float(mark.get("cy", ""))))
            assert all(
                low[1] >= high[1] - 1.5 for low, high in pairwise(sorted(heights))
            )  # a higher number stands higher
            assert named >= min(len(list(picture.iter("g"))), 8)


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
