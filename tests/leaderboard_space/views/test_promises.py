"""What the board promises of every selection of the papers' numbers: charts show the table's values, and no choice of labels leads to a
blank page. See also: headlines and what a label gives away (`test_overview.py`)."""

import html
import re
from itertools import combinations

import numpy as np
import pytest

from dataset_builders.benchmarks import BENCHMARKS
from leaderboard_space.data.board import Board
from leaderboard_space.data.published_results import board_results
from leaderboard_space.data.ranks.standings import info_of
from leaderboard_space.sentences import in_running_text
from leaderboard_space.service import Service
from tests.leaderboard_space.checks.claims import check_words, plain

SLOPES = ("modality", "organ", "condition", "position")


@pytest.fixture(scope="module")
def service() -> Service:
    return Service(Board(None, board_results()))


def table_of(page: str) -> dict[str, str]:
    """Model -> its score, of a leaderboard."""
    rows = re.findall(r'<tr class="k-[^"]*" data-key.*?<span>(.*?)</span>.*?<td class="num val"[^>]*>([^<]*)', page)
    return {html.unescape(name): html.unescape(value) for name, value in rows}


def selections(service: Service, family: str) -> list[list[list[str]]]:
    """Nothing selected, and every label of every facet."""
    tree = service.memory.query({"format": family}).tree
    return [[], *([[f"={facet}", node.label]] for facet, nodes in tree.facets for node in nodes)]


@pytest.mark.parametrize("family", list(BENCHMARKS))
def test_a_chart_shows_the_tables_values(service: Service, family: str) -> None:
    """Every chart of every selection by every score: the value that it gives for a model stands in the table above it, and it says the set
    of questions and the method."""
    points = 0
    metrics = service.memory.query({"format": family}).metrics
    for at, branches in enumerate(selections(service, family)):
        for metric in metrics if not branches else metrics[at % len(metrics) :][:1]:
            asked = {"format": family, "branches": branches, "metric": metric}
            view = service.view(asked)
            asked["metric"] = shown = view["state"]["metric"]
            table = table_of(view["html"])
            page = html.unescape(service.breakdown(asked))
            label = in_running_text(info_of(shown, family).label)
            for plot in re.findall(
                r'<section class="plot" data-plot="(?:size|date|cost|confusion)".*?</section>', page, re.DOTALL
            ):
                assert "Complete official set, " in plain(plot)
                for said in set(re.findall(r"<title>(.*?)</title>", plot)):
                    found = re.match(rf"(.+?): {re.escape(label)} ([^,]+)", said)
                    assert found is None or table[found[1]] == found[2], (branches, shown, said)
                    points += found is not None
            if "Known by image type only" not in page:
                points += check_slopes(service, asked, page)
    assert points >= 3 or family == "probmed-vqa-rad", points


def check_slopes(service: Service, asked: dict[str, object], page: str) -> int:
    found = re.search(r'data-plot="slopes".*?</svg>', page, re.DOTALL)
    panels = re.split(r'<text class="head"', found[0])[1:] if found else []
    checked = 0
    for panel in panels:
        aspect = next(one for one in SLOPES if f">{info_of(one).label} (%)" in panel)
        view = service.view({**asked, "metric": aspect})
        if view["state"]["metric"] != aspect:
            continue  # the label gives it away: it ranks no model
        table = table_of(view["html"])
        for name, value in re.findall(r"<title>(.*?): \S+ without, (\S+) with", panel):
            assert table[name] == value, (asked, aspect, name)
            checked += 1
    return checked


@pytest.mark.parametrize("family", list(BENCHMARKS))
def test_no_pair_of_labels_leads_to_a_blank_page(service: Service, family: str) -> None:
    """Two labels of two facets: a ranking, the parts that a paper prints, or what is printed instead with a link to each."""
    rng = np.random.default_rng(36)
    for one, other in combinations(
        [facet for facet in service.memory.query({"format": family}).tree.facets if facet[1]], 2
    ):
        for _ in range(12):
            labels = [[f"={facet}", str(rng.choice([node.label for node in nodes]))] for facet, nodes in (one, other)]
            asked = {"format": family, "branches": labels}
            page = check_words(service.view(asked)["html"])
            links = re.findall(r'<a class="choice" href="([^"]*)">Show (.*?)</a>', page)
            parts = 'data-table="breakdown"' in service.breakdown(asked)
            assert table_of(page) or parts or len(links) == 2, (labels, plain(page)[:300])
            assert "No results for this selection" not in page
            for address, _ in links:
                label = re.search(r"facet=([^:&]+):([^&]+)", html.unescape(address).replace("%3A", ":"))
                assert label is not None
