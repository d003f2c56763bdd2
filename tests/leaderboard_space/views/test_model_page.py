"""Test the page of one model over the papers' numbers and over stores with answers: its sentences
follow from them.
"""

import re
from pathlib import Path

import numpy as np
import pytest

from dataset_builders.errors import BadInput
from eval_harness.derive.metrics import compute_units
from leaderboard_space.benchmarks import metric_info
from leaderboard_space.data.board import Board
from leaderboard_space.data.published_results import board_results, published_models, read_table
from leaderboard_space.data.sections import canonical_name
from leaderboard_space.html import number
from leaderboard_space.model_results import (
    all_models,
    main_lines,
    model_entries,
    model_lines,
    option_shares,
    weak_spots,
)
from leaderboard_space.sentences import uncapitalize
from leaderboard_space.service import Service
from leaderboard_space.views import model
from tests.leaderboard_space.checks.claims import plain
from tests.leaderboard_space.generated import FACET
from tests.leaderboard_space.stores import add_run, answers, change, land, questions, withdraw


def test_names_that_mean_one_model_are_one_page(papers_board: Service) -> None:
    pages = {
        model.page(papers_board.board, {"id": name})
        for name in ("GPT-4o", "gpt-4o-2024-08-06", "openai/gpt-4o", "GPT-4O")
    }
    assert len(pages) == 1
    (page,) = pages
    page_text = plain(page)
    assert "gpt-4o-2024-08-06" in page_text and "snapshot 2024-08-06" in page_text
    verdict = "does no better than guessing on MediConfusion"  # Table 1: 18.75 of 176 pairs
    assert verdict in page_text and "Head and Neck" in page and "9.0" in page_text
    assert "its answers are not on this board" in page_text


def test_every_model_of_the_papers_has_a_page(papers_board: Service) -> None:
    """Every link leads to a set that exists."""
    names = all_models(papers_board.board)
    assert {canonical_name(result.model.name) for result in board_results()} == set(names)
    keys = {
        (family, section.key)
        for family, sections in papers_board.board.snapshot.sections.items()
        for section in sections
    }
    for name in names[::6]:
        page = model.page(papers_board.board, {"id": name})
        for family, key in re.findall(r'href="#/b/([^"?]+)\?s=([^"&]+)', page):
            assert (family, key) in keys


def test_the_tables_of_names_and_facts_fit_the_models() -> None:
    model_names = set(published_models())
    for row in read_table("model_facts"):
        # A model without results here is listed for the date that a source states.
        assert row["name"] in model_names or row["released"], row
        assert bool(row["released"]) == bool(row["released_by"]), row
        assert not row["released"] or re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", row["released"]), row
        if row["released_by"].startswith("arXiv:"):  # a paper's arXiv number begins with its year and month
            assert row["released"][2:] == f"{row['paper'][6:8]}-{row['paper'][8:10]}", row
    written = [row["written"].lower() for row in read_table("model_names")]
    assert len(written) == len(set(written)) and not set(written) & {name.lower() for name in model_names}
    for row in read_table("model_names"):
        assert row["name"] in model_names and canonical_name(row["written"].upper()) == row["name"]


def test_results_under_several_names_stand_on_one_page_with_accounts_and_what_was_withdrawn(tmp_path: Path) -> None:
    question_table = questions("mediconfusion", 40)
    folder = add_run(
        tmp_path, "mediconfusion", question_table, answers(question_table, 0.6), "gpt-4o-2024-05-13", "proprietary"
    )
    land(folder, "alice")
    gone = add_run(tmp_path, "mediconfusion", question_table, answers(question_table, 0.9), "GPT-4o", "proprietary")
    land(gone, "bob")
    withdraw(gone, "bob", "<b>wrong</b> prompt")
    service = Service(Board(tmp_path, board_results()))
    page = model.page(service.board, {"id": "GPT-4o"})
    page_text = plain(page)
    assert "withdrawn: <b>wrong</b> prompt" in page_text and "measured · alice" in page_text
    lines = model_lines(service.board, "gpt-4o")
    assert [line.section.kind for line in main_lines(lines)].count("complete") == len(main_lines(lines))
    assert "What it got wrong in MediConfusion (drawn images)" in page_text
    history = page[page.index('data-table="history"') :]
    assert history.count("<tr data-key") == len(model_entries(service.board, "GPT-4o"))


def test_a_model_is_what_its_standing_result_is_not_its_best_account(tmp_path: Path) -> None:
    question_table = questions("mediconfusion", 60)
    for account, skill, day in (("alice", 0.0, 10), ("bob", 1.0, 20)):
        folder = add_run(
            tmp_path, "mediconfusion", question_table, answers(question_table, skill), "Model A", run=account
        )
        land(folder, account, f"2026-11-{day}T00:00:00+00:00")
    service = Service(Board(tmp_path))
    assert [line.row.entry.account for line in main_lines(model_lines(service.board, "Model A"))] == ["alice"]
    assert "does no better than guessing on" in model.page(service.board, {"id": "Model A"})


def test_letters_as_shown_stand_beside_the_key_as_shown(tmp_path: Path) -> None:
    question_table = questions("gmai-mmbench", 9)
    question_table["options"], question_table["answer"] = (
        [["a", "b", "c"]] * 9,
        [[0]] * 9,
    )  # over all orders of the options, each letter is the key equally often
    folder = add_run(tmp_path, "gmai-mmbench", question_table, answers(question_table, 0.5), "Model A")
    for permuted, keys in ((False, {"A": 100, "B": 0, "C": 0}), (True, dict.fromkeys("ABC", pytest.approx(100 / 3)))):
        change(folder, lambda result, turn=permuted: result["method"].update(samples=3, generation={"permute": turn}))
        service = Service(Board(tmp_path))
        assert {share.name: share.key for share in option_shares(model_lines(service.board, "Model A")[0])} == keys


@pytest.mark.parametrize(("family", "seed"), [(family, seed) for seed, family in enumerate(FACET)])
def test_the_weakest_spot_is_shown_by_cases_of_it_that_were_got_wrong(tmp_path: Path, family: str, seed: int) -> None:
    """The headline's weakest label is first in the table. Below it are cases with that label that
    are wrong by the same score, recomputed from the raw answers.
    """
    question_table = questions(family, 160, seed=seed)
    given_ = answers(question_table, 0.4, seed=seed)
    add_run(tmp_path, family, question_table, given_, "Mine")
    board = Board(tmp_path)
    page = model.page(board, {"id": "Mine"})
    spot = weak_spots(main_lines(model_lines(board, "Mine")))[0]
    headline = plain(re.search(r'<h3 class="finding">(.*?)</h3>', page)[1])  # type: ignore[index]
    score = f"{uncapitalize(metric_info(spot.metric, family).label)} " if spot.facet else ""
    assert (
        f"Weakest: “{spot.name}” in {spot.line.questions}, {score}{number(spot.score.value)}% where guessing"
        in headline
    )
    assert plain(re.search(r'aria-label="Weakest spots"><tbody><tr[^>]*><th[^>]*>(.*?)</a>', page)[1]) == spot.name  # type: ignore[index]
    assert f"What it got wrong in {spot.line.questions}: {spot.name}" in plain(page)
    case_ids = re.findall(r">Case (\d+)</a>", page)
    units = compute_units(family, question_table, given_.assign(sample=0))
    units = units[(units["metric"] == spot.metric) & (units["denominator"] > 0)]
    full = units["numerator"].ge(units["denominator"]).groupby(units["case_id"]).all()
    column = "categories" if spot.facet == "category" else spot.facet
    for case in case_ids:
        labels = question_table.loc[question_table["case_id"] == case, column] if column else []
        assert not full[case] and (not column or any(spot.label in np.atleast_1d(case_rows) for case_rows in labels))
    assert case_ids


def test_the_card_says_what_the_page_says(papers_board: Service) -> None:
    card = model.file(papers_board.board, {"id": "GPT-4o", "of": "card"})["text"]
    rows = [line for line in card.splitlines() if line.startswith("|")]
    assert (
        len(rows) == 2 + len(main_lines(model_lines(papers_board.board, "GPT-4o")))
        and len({line.count(" | ") for line in rows[2:]}) == 1
    )
    assert "Set accuracy 18.8" in card and "flipping a coin for each image (25%)" in card
    with pytest.raises(BadInput, match="no results of this model"):
        model.file(papers_board.board, {"id": "<nobody>", "of": "card"})


def test_an_unknown_model_leads_to_the_list(papers_board: Service) -> None:
    page = model.page(papers_board.board, {"id": '"><script>'})
    assert "<script>" not in page and "There is no model named" in page and page.count('href="#/model/') >= 70
    assert "Which model?" in model.page(papers_board.board, {})
