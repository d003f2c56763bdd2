"""Test what the board promises for every selection of the papers' numbers: charts show the table's
values, and no choice of labels leads to an empty page.

See also: headlines, and scores that a label gives away (`test_overview.py`).
"""

import html
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from dataset_builders.benchmarks import BENCHMARKS
from leaderboard_space import service as services
from leaderboard_space.data.board import Board
from leaderboard_space.data.published_results import board_results
from leaderboard_space.data.ranks.standings import metric_info
from leaderboard_space.query import parse_query
from leaderboard_space.sentences import uncapitalize
from leaderboard_space.service import Service
from leaderboard_space.views.tables import leaderboard
from tests.leaderboard_space.checks.claims import check_words, plain
from tests.leaderboard_space.stores import add_run, answers, questions


@pytest.fixture(scope="module")
def service() -> Service:
    return Service(Board(None, board_results()))


def table_of(page: str) -> dict[str, str]:
    """Return model -> its score on a leaderboard."""
    rows = re.findall(r'<tr class="k-[^"]*" data-key.*?<span>(.*?)</span>.*?<td class="num val"[^>]*>([^<]*)', page)
    return {html.unescape(name): html.unescape(value) for name, value in rows}


def selections(service: Service, family: str) -> list[list[list[str]]]:
    """Yield no selection, and every label of every facet."""
    tree = parse_query(service.board, {"format": family}).tree
    return [[], *([[facet, node.label]] for facet, nodes in tree.facets for node in nodes)]


@pytest.mark.parametrize("family", list(BENCHMARKS))
def test_a_chart_shows_the_tables_values(service: Service, family: str) -> None:
    """For every chart of every selection by every score, its value for a model is in the table
    above it, and its text names the question set and the method.
    """
    points = 0
    metrics = parse_query(service.board, {"format": family}).metrics
    for at, branches in enumerate(selections(service, family)):
        for metric in metrics if not branches else metrics[at % len(metrics) :][:1]:
            request = {"format": family, "branches": branches, "metric": metric}
            view = service.view(request)
            request["metric"] = shown_metric = view["state"]["metric"]
            table = table_of(view["html"])
            page = html.unescape(service.breakdown(request))
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
def test_no_pair_of_labels_leads_to_a_blank_page(service: Service, family: str) -> None:
    """Two labels of two facets give a ranking, the parts that a paper prints, or a statement of
    what is printed instead, with a link to each.
    """
    rng = np.random.default_rng(36)
    for label_a, label_b in combinations(
        [facet for facet in parse_query(service.board, {"format": family}).tree.facets if facet[1]], 2
    ):
        for _ in range(12):
            labels = [[facet, str(rng.choice([node.label for node in nodes]))] for facet, nodes in (label_a, label_b)]
            request = {"format": family, "branches": labels}
            page = check_words(service.view(request)["html"])
            links = re.findall(r'<a class="choice" href="([^"]*)">Show (.*?)</a>', page)
            parts = 'data-table="breakdown"' in service.breakdown(request)
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
