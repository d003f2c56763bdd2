"""Test what the board promises for every selection of the papers' numbers: charts show the table's
values, every point and cell stands where its numbers say, and no choice of labels leads to an empty
page.

See also: headlines, and scores that a label gives away (`test_overview.py`).
"""

import html
import json
import re
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from dataset_builders.benchmarks import BENCHMARKS
from leaderboard_space import service as services
from leaderboard_space.benchmarks import metric_info
from leaderboard_space.data.board import Board
from leaderboard_space.query import parse_query
from leaderboard_space.sentences import uncapitalize
from leaderboard_space.service import Service
from leaderboard_space.views.tables import leaderboard
from tests.leaderboard_space.checks.claims import check_words, plain
from tests.leaderboard_space.stores import add_run, answers, questions


def table_of(page: str) -> dict[str, str]:
    """Return model -> its score on a leaderboard."""
    rows = re.findall(r'<tr class="k-[^"]*" data-key.*?<span>(.*?)</span>.*?<td class="num val"[^>]*>([^<]*)', page)
    return {html.unescape(name): html.unescape(value) for name, value in rows}


def selections(papers_board: Service, family: str) -> list[list[list[str]]]:
    """Yield no selection, and every label of every facet."""
    tree = parse_query(papers_board.board, {"format": family}).tree
    return [[], *([[facet, node.label]] for facet, nodes in tree.facets for node in nodes)]


@pytest.mark.parametrize("family", list(BENCHMARKS))
def test_a_chart_shows_the_tables_values(papers_board: Service, family: str) -> None:
    """For every chart of every selection by every score, its value for a model is in the table
    above it, and its text names the question set and the method.
    """
    points = 0
    metrics = parse_query(papers_board.board, {"format": family}).metrics
    for at, branches in enumerate(selections(papers_board, family)):
        for metric in metrics if not branches else metrics[at % len(metrics) :][:1]:
            request = {"format": family, "branches": branches, "metric": metric}
            view = papers_board.view(request)
            request["metric"] = shown_metric = view["state"]["metric"]
            table = table_of(view["html"])
            page = html.unescape(papers_board.breakdown(request))
            label = uncapitalize(metric_info(shown_metric, family).label)
            for plot in re.findall(
                r'<section class="plot" data-plot="(?:size|date|confusion)".*?</section>', page, re.DOTALL
            ):
                assert "Complete official set, " in plain(plot)
                for title in set(re.findall(r"<title>(.*?)</title>", plot)):
                    match = re.match(rf"(.+?): {re.escape(label)} ([^,]+)", title)
                    assert match is None or table[match[1]] == match[2], (branches, shown_metric, title)
                    points += match is not None
    assert points >= 3 or family == "probmed-vqa-rad", points


@pytest.mark.parametrize("family", list(BENCHMARKS))
def test_no_pair_of_labels_leads_to_a_blank_page(papers_board: Service, family: str) -> None:
    """Two labels of two facets give a ranking, the parts that a paper prints, or a statement of
    what is printed instead, with a link to each.
    """
    rng = np.random.default_rng(36)
    for label_a, label_b in combinations(
        [facet for facet in parse_query(papers_board.board, {"format": family}).tree.facets if facet[1]], 2
    ):
        for _ in range(12):
            labels = [[facet, str(rng.choice([node.label for node in nodes]))] for facet, nodes in (label_a, label_b)]
            request = {"format": family, "branches": labels}
            page = check_words(papers_board.view(request)["html"])
            links = re.findall(r'<a class="choice" href="([^"]*)">Show (.*?)</a>', page)
            parts = 'data-table="breakdown"' in papers_board.breakdown(request)
            assert table_of(page) or parts or len(links) == 2, (labels, plain(page)[:300])
            assert "No results for this selection" not in page
            for address, _ in links:
                label = re.search(r"facet=([^:&]+):([^&]+)", html.unescape(address).replace("%3A", ":"))
                assert label is not None


def test_every_result_of_a_long_table_can_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rows are shown, then all, in the table and in the breakdown alike."""
    question_table, models, n_first = questions("gmai-mmbench", 6), 8, 5
    for module in (services, leaderboard):
        monkeypatch.setattr(module, "MAX_FIRST_RESULTS", n_first)
    for number in range(models):
        add_run(
            tmp_path,
            "gmai-mmbench",
            question_table,
            answers(question_table, number / 100, seed=number),
            f"Model {number:03}",
        )
    service = Service(Board(tmp_path))
    for page in (lambda request: service.view(request)["html"], service.breakdown):
        short, full = page({"format": "gmai-mmbench"}), page({"format": "gmai-mmbench", "all": "yes"})
        drawn_names = [re.findall(r"Model \d{3}(?=</span>|</bdi>)", request) for request in (short, full)]
        assert (
            len(drawn_names[0]) == n_first
            and len(set(drawn_names[1])) == models
            and drawn_names[1][:n_first] == drawn_names[0]
        )
        assert f"All {models} results" in short and "data-part" not in full


def test_image_types_and_aspects_of_one_result(papers_board: Service) -> None:
    """Table 12, chest MRI of CheXagent: 0, 75, 50, 15, 0; without adversarial questions 5, 100, -,
    27.5, 23.52.
    """
    request = {"format": "probmed", "one": "CheXagent"}
    page = papers_board.breakdown(request)
    table = page[page.index('data-table="aspects"') :]
    line = re.search(r"<tr><th scope=\"row\">chest MRI.*?</tr>", table)
    assert line is not None
    cells = re.findall(r">([\d.]+)<i>", line[0])
    assert cells == ["0.0", "5.0", "75.0", "100.0", "50.0", "15.0", "27.5", "0.0", "23.5"]
    rows = json.loads(papers_board.export({**request, "of": "aspects", "as": "json"})["text"])
    assert len(rows) == 12 * 9 and {row["model"] for row in rows} == {"CheXagent"}
    (entry,) = (
        row for row in rows if row["facet_value"] == "chest_mri" and row["metric"] == "position_without_adversarial"
    )
    assert entry["value"] == 23.52 and entry["table"] == "Table 12"
    sizes = {row["facet_value"]: row["n"] for row in rows if row["metric"] == "condition"}
    assert max(sizes, key=lambda name: sizes[name]) == "chest_xray" and "chest X-ray, the largest" in page


@pytest.mark.parametrize("family", list(BENCHMARKS))
def test_every_point_of_a_plot_stands_where_its_numbers_say_and_names_cover_none(
    papers_board: Service, family: str
) -> None:
    page = papers_board.breakdown({"format": family})
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


def test_every_cell_of_the_heat_map_is_coloured_by_its_distance_from_guessing(papers_board: Service) -> None:
    page = papers_board.breakdown({"format": "gmai-mmbench"})
    cells = re.findall(
        r'<td class="([a-z ]+)" style="--s:([\d.]+)" data-v="([\d.]+)" title="[^"]*chance ([\d.]+)', page
    )
    assert len(cells) > 500
    for kind, strength, value, chance in cells:
        assert ("up" in kind) == (float(value) >= float(chance)) or abs(float(value) - float(chance)) < 0.1
        assert abs(float(strength) - min(abs(float(value) - float(chance)) / 50, 1)) < 0.002
    assert "▲" in page and "≈" in page and "▼" in page  # tested against the paper's random run, cell by cell
