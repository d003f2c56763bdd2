"""Check that one score, interval, verdict and rank is the same everywhere: page, chart, headline,
API, files, Compare, `medprobe results`.
"""

import csv
import html
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.errors import BadInput
from eval_harness.derive.metrics import HEADLINE_METRICS
from eval_harness.store.comparison import compare_results, load_side
from leaderboard_space.benchmarks import metric_info
from leaderboard_space.data.topics import all_topics, matching_labels
from leaderboard_space.data.tree import PATH_SEPARATOR
from leaderboard_space.html import interval, score_text
from leaderboard_space.model_results import all_models, main_lines, model_lines
from leaderboard_space.service import Service, tools
from leaderboard_space.views import compare, model, topic
from leaderboard_space.views.search import board_labels
from medprobe import load_results
from tests.leaderboard_space.checks.claims import plain
from tests.sampling import few

NUMBERS = ("value", "low", "high", "chance", "verdict", "n")


def same(value: Any, other_value: Any) -> bool:
    """Return True if unrounded values from two places are equal."""
    missing = [number is None or pd.isna(number) for number in (value, other_value)]
    if any(missing) or isinstance(value, str):
        return all(missing) or str(value) == str(other_value)
    return abs(float(value) - float(other_value)) < 1e-6


@pytest.mark.parametrize("seed", few(range(16), 6))
def test_a_selection_has_one_number_one_verdict_and_one_rank_on_every_route(measured_board: Service, seed: int) -> None:
    """For a random set, selection and pair, the page, its chart, the API, the saved file and
    Compare agree.
    """
    rng = np.random.default_rng(seed)
    sections = measured_board.board.snapshot.all_sections
    section = sections[int(rng.integers(len(sections)))]
    _, tree = measured_board.board.outcomes(section)
    labels = [path for path in tree.rows if len(path) == 2]
    chosen = [labels[int(rng.integers(len(labels)))]] if labels and rng.random() < 0.7 else []
    parameters = {
        "format": section.family,
        "section": section.key,
        "branches": [list(path) for path in chosen],
        "shown": "one",
    }
    view = measured_board.view(parameters)
    metric = view["state"]["metric"]
    try:
        saved = json.loads(measured_board.export({**parameters, "metric": metric, "as": "json"})["text"])
    except BadInput:  # nothing is known of this selection
        assert 'data-table="leaderboard"' not in view["html"]
        return
    (leaderboard,) = (tool for tool in tools(measured_board.board) if tool.__name__ == "leaderboard")
    facet_options = [f"{path[0]}={path[1]}" for path in chosen]
    of_api = leaderboard(section.family, facets=facet_options, metric=metric, question_set=section.key)
    assert [(row["run"], *(row[name] for name in NUMBERS)) for row in of_api] == [
        (row["run"], *(row[name] for name in NUMBERS)) for row in saved
    ]
    table = list(
        csv.DictReader(io.StringIO(measured_board.export({**parameters, "metric": metric, "as": "csv"})["text"]))
    )
    assert [(row["run"], *(row[name] for name in NUMBERS)) for row in table] == [
        (row["run"], *("" if row[name] is None else str(row[name]) for name in NUMBERS)) for row in saved
    ]
    unit, cells_by_run = metric_info(metric, section.family).unit, {}
    for key, line in re.findall(r'<tr class="k-[^"]*" data-key="([^"]*)">(.*?)</tr>', view["html"], re.DOTALL):
        matches = [re.search(rf'<td class="{kind}"[^>]*>(.*?)</td>', line) for kind in ("num val", "num ci")]
        assert all(matches)
        cells_by_run[html.unescape(key)] = [plain(cell[1].partition("<button")[0]) for cell in matches if cell] + [line]
    for row in saved:
        score, ends, line = cells_by_run.get(row["run"], ("", "", ""))
        assert not line or row["value"] is None or score.startswith(score_text(row["value"], unit)), (score, row)
        if line and row["low"] is not None:
            low, high = map(float, ends.split("–"))
            assert abs(low - row["low"]) <= 0.051 and abs(high - row["high"]) <= 0.051, (ends, row)
            # the sign of a verdict follows from the printed interval, or from the drawn band
            levels = [row["chance_low"], row["chance_high"]] if row["chance_low"] is not None else [row["chance"]] * 2
            if row["verdict"] in ("better", "worse") and row["chance_low"] is None:
                assert high < levels[0] or low > levels[1], (ends, row)
            if row["verdict"] == "no different":
                assert low <= levels[1] and levels[0] <= high, (ends, row)
            assert ('class="band"' in line) == (row["chance_low"] is not None)
        if row["no_score"]:
            assert row["verdict"] is None and row["place_first"] is None, row
    ranked = [row for row in saved if row["place_first"] is not None and row["group"] == "ranked"]
    if len(ranked) < 2:
        return
    row_a, row_b = (ranked[int(at)] for at in rng.choice(len(ranked), 2, replace=False))
    address_parameters = {"facet": [f"{path[0]}:{PATH_SEPARATOR.join(path[1:])}" for path in chosen]}
    request = {
        "set": f"{section.family}/{section.key}",
        "metric": metric,
        "first": row_a["run"],
        "second": row_b["run"],
        **address_parameters,
    }
    pairs = json.loads(compare.file(measured_board.board, {**request, "as": "json"})["text"])
    (pair,) = (row for row in pairs if row["metric"] == metric and "difference" in row)
    by_run = {row["run"]: row for row in ranked}
    assert same(pair["first_value"], by_run[pair["first_run"]]["value"])
    assert same(pair["second_value"], by_run[pair["second_run"]]["value"])
    folders = {entry.key: entry.folder for entry in section.entries}
    if not chosen and all(folders[pair[f"{side}_run"]] for side in ("first", "second")):
        sides = [load_side(str(folders[pair[f"{side}_run"]]), list) for side in ("first", "second")]
        line = re.search(rf"^  {metric} .*$", compare_results(*sides, all_metrics=True), re.MULTILINE)
        printed = [score_text(pair[f"{side}_value"], unit) for side in ("first", "second")]
        assert line is not None and line[0].split()[1:3] == printed, (line, printed)
        assert abs(float(line[0].split()[3]) - pair["difference"]) < 0.051, (line, pair)
    places = {by_run[pair[side]]["place_first"] for side in ("first_run", "second_run")}
    headline = plain(re.search(r'<h2 class="finding">(.*?)</h2>', compare.page(measured_board.board, request))[1])  # type: ignore[index]
    if places == {1}:  # the headline says that either may be the best
        assert pair["p_corrected"] >= 0.05 and " is significantly " not in headline, (headline, pair)
    if pair["p_corrected"] < 0.05:
        assert max(places) > 1 and (" is significantly " in headline), (headline, places)


def test_the_command_line_prints_the_boards_numbers(measured_board: Service) -> None:
    """Headlines of every benchmark, measured and printed: `load_results` has the board's score,
    interval, chance and verdict, and the model's page the same interval.
    """
    store = measured_board.board.store
    assert isinstance(store, Path)
    table = load_results(store, published=True)
    overall = table[table["facet"].isna() & table["headline"]]
    for family in BENCHMARKS:
        assert set(overall.loc[overall["benchmark"] == family, "metric"]) == {HEADLINE_METRICS[family]}
        for section in measured_board.board.snapshot.sections[family]:
            request = {
                "format": family,
                "section": section.key,
                "metric": HEADLINE_METRICS[family],
                "shown": "all",
                "as": "json",
            }
            for row in (
                json.loads(measured_board.export(request)["text"]) if section.kind in ("complete", "phantom") else ()
            ):
                command_rows = overall[(overall["benchmark"] == row["benchmark"]) & (overall["split"] == row["split"])]
                command_rows = command_rows[
                    (command_rows["model"] == row["model"]) & (command_rows["method"] == row["method"])
                ]
                names = (*NUMBERS, "chance_low", "chance_high")
                are_equal = [
                    all(same(record[name], row[name]) for name in names) for record in command_rows.to_dict("records")
                ]
                assert any(are_equal), (row, command_rows)
    page = plain(model.page(measured_board.board, {"id": "GPT-4o"}))
    (gmai,) = (
        row
        for row in json.loads(
            measured_board.export({"format": "gmai-mmbench", "section": "test.complete", "as": "json"})["text"]
        )
        if row["model"] == "GPT-4o"
    )
    assert f"{gmai['low']:.1f}–{gmai['high']:.1f}" in page


@pytest.mark.parametrize("seed", few(range(10), 4))
def test_a_topic_and_a_model_card_have_the_leaderboards_numbers(measured_board: Service, seed: int) -> None:
    """A random label has the same numbers on its topic's page, in its file and on the leaderboard;
    a random model's card has those of its leaderboards.
    """
    rng, board = np.random.default_rng(seed), measured_board.board
    labels = board_labels(board, board.snapshot)
    label = labels[int(rng.integers(len(labels)))]
    label_topic = next(
        candidate
        for candidate in all_topics(labels).values()
        if label in [topic_label for topic_label, _ in matching_labels(candidate, labels)]
    )
    request = {"id": label_topic.slug, "label": topic.label_id(label), "all": "yes"}
    summary, page = (
        topic.label_summary(board, label_topic, topic.label_id(label)),
        plain(topic.page(board, request)),
    )
    saved = json.loads(topic.file(board, {**request, "as": "json"})["text"]) if summary else []
    for aspect in summary.aspects if summary else ():
        for rows in (row for row in aspect.standings.models if row.score.value is not None):
            assert score_text(rows.score.value) in page
        # A leaderboard ranks by no score that its selection gives away: if one is requested, it
        # shows its default score, with other rows or none.
        if aspect.given:
            continue
        parameters = {"format": label.family, "section": summary.section.key, "metric": aspect.metric, "as": "json"}  # type: ignore[union-attr]
        table_rows = summary and json.loads(
            measured_board.export({**parameters, "branches": [list(summary.label.path)]})["text"]
        )
        on_board = {row["run"]: row for row in table_rows or ()}
        for row in (row for row in saved if row["metric"] == aspect.metric and row["run"] in on_board):
            assert all(same(row[name], on_board[row["run"]][name]) for name in NUMBERS), (row, on_board[row["run"]])
    names = all_models(board)
    name = names[int(rng.integers(len(names)))]
    lines = main_lines(model_lines(board, name))
    card = model.file(board, {"id": name, "of": "card"})["text"] if lines else ""
    for line in lines:
        family, info = line.section.family, metric_info(line.metric, line.section.family)
        parameters = {"format": family, "section": line.section.key, "metric": line.metric, "as": "json"}
        (row,) = (
            candidate
            for candidate in json.loads(measured_board.export(parameters)["text"])
            if candidate["run"] == line.row.entry.key
        )
        assert f" {score_text(row['value'], info.unit)} | {interval(line.row.score)} |" in card.replace("\\", "")
