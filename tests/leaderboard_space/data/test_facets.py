"""Test facets: any label within one, all facets together, with counts and scores checked against a
filter of the raw questions.
"""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset_builders.errors import BadInput
from dataset_builders.facets import select_by_facets
from dataset_builders.lexical_tree import UNLABELLED
from eval_harness.store.results_table import tidy_table
from leaderboard_space.data.board import Board
from leaderboard_space.data.published_results import board_results, published_results
from leaderboard_space.data.ranks.standings import own_scores
from leaderboard_space.data.store.sections import Entry
from leaderboard_space.data.tree import (
    Tree,
    build_published_tree,
    build_tree,
    filter_by_facets,
    path_cells,
    path_facets,
    selection_cells,
)
from leaderboard_space.query import parse_query
from leaderboard_space.service import Service
from tests.leaderboard_space.checks.claims import plain
from tests.leaderboard_space.stores import add_run, answers, questions

FACETED_BENCHMARKS = ("mediconfusion", "probmed", "gmai-mmbench", "halt-medvqa")


@cache
def drawn(family: str) -> tuple[pd.DataFrame, Tree]:
    """Return questions of a format, and their tree."""
    question_table = questions(family, 60, seed=4)
    return question_table, build_tree(family, question_table)


@given(st.sampled_from(FACETED_BENCHMARKS), st.data())
def test_a_selection_is_what_the_command_line_selects(family: str, data: st.DataObject) -> None:
    """Labels are joined by "or" within a facet and by "and" across facets (the reference is
    `dataset_builders.facets`, which is independent of the board); a count is what one more choice
    of that facet would leave.
    """
    question_table, tree = drawn(family)
    labels = [(facet, node.label) for facet, nodes in tree.facets for node in nodes if node.label != UNLABELLED]
    chosen = data.draw(st.lists(st.sampled_from(labels), unique=True, max_size=5))
    try:
        expected = select_by_facets(question_table, [f"{facet}={label}" for facet, label in chosen])
    except BadInput:  # no question has all of them
        expected = np.zeros(len(question_table), dtype=bool)
    mask = tree.mask(chosen)
    assert (mask is None and not chosen) or (mask == expected).all()
    counts = tree.counts(chosen)
    facet, _ = data.draw(st.sampled_from(tree.facets))
    paths = [path for path in tree.rows if path[0] == facet]
    path = data.draw(st.sampled_from(paths))
    other_labels = [f"{name}={label}" for name, label in chosen if name != facet]
    if UNLABELLED not in path:
        on_path = np.isin(np.arange(len(question_table)), tree.rows[path])
        try:
            expected_count = int((select_by_facets(question_table, other_labels) & on_path).sum())
        except BadInput:
            expected_count = 0
        assert counts[facet][paths.index(path)] == expected_count


@pytest.mark.parametrize("family", FACETED_BENCHMARKS)
def test_a_branch_is_the_questions_with_all_of_its_labels(family: str) -> None:
    question_table, tree = drawn(family)
    for path, rows in tree.rows.items():
        if UNLABELLED not in path:
            facet_options = [
                f"{facet}={label}" for facet, label in zip(path_facets(family, path), path[1:], strict=True)
            ]
            assert sorted(rows) == np.flatnonzero(select_by_facets(question_table, facet_options)).tolist(), path


def test_scores_are_of_the_questions_in_all_facets(tmp_path: Path) -> None:
    question_table, _ = drawn("gmai-mmbench")
    add_run(tmp_path, "gmai-mmbench", question_table, answers(question_table, 0.5), "One")
    service = Service(Board(tmp_path))
    expected = select_by_facets(question_table, ["modality=CT", "modality=MRI", "task=Counting"])
    request = {
        "format": "gmai-mmbench",
        "branches": [("modality", "CT"), ("modality", "MRI"), ("task", "Counting")],
    }
    (row,) = parse_query(service.board, request).standings.rows
    assert row.score.n == expected.sum() > 0
    assert "Only (CT or MRI) and Counting." in plain(service.view(request)["html"]).replace(
        "(MRI or CT)", "(CT or MRI)"
    )
    assert {line["selection"] for line in json.loads(service.export({**request, "as": "json"})["text"])} == {
        "modality=CT; modality=MRI; task=Counting"
    }


def test_parts_that_papers_print_stand_by_themselves_and_only_where_they_lie_in_all_of_it() -> None:
    service = Service(Board(None, board_results()))
    request = {"format": "probmed", "branches": [("modality", "ct")]}
    request["metric"] = service.view(request)["state"][
        "metric"
    ]  # as the browser requests it: the first metric that is known for parts
    page = service.breakdown(request)
    table = page[page.index('data-table="breakdown"') : page.index("</table>")]
    assert all(f"{organ} CT" in table for organ in ("abdomen", "chest", "brain", "spine"))
    assert "95% interval" in table and "X-ray" not in table
    modality_view = service.view({"format": "probmed", "branches": [("modality", "ct"), ("organ", "brain")]})
    assert "printed · T7" in modality_view["html"] and "GPT-4o" in modality_view["html"]  # exactly one image type
    two_branches = {"format": "gmai-mmbench", "branches": [("department", "Ophthalmology"), ("task", "Counting")]}
    # the paper prints results by one facet at a time
    assert not parse_query(service.board, two_branches).standings.rows
    assert (
        selection_cells(two_branches["branches"], {"department": {"Ophthalmology": {}}, "task": {"Counting": {}}}) == []
    )  # type: ignore[arg-type]


def test_results_by_facets() -> None:
    table = tidy_table(published_results())
    assert len(filter_by_facets(table, [])) == len(table)
    eyes = filter_by_facets(table, ["department=ophthalmology"])
    assert len(eyes) > 50 and set(eyes["facet_value"]) == {"Ophthalmology"}
    ct = filter_by_facets(table, ["modality=ct", "organ=brain", "organ=chest"])
    assert set(ct["facet_value"]) == {"brain_ct", "chest_ct"}
    spelt = table[:3].assign(facet="modality", facet_value=["CT", "ct", "MRI"])
    assert list(filter_by_facets(spelt, ["Modality=Ct"])["facet_value"]) == ["CT", "ct"]
    for option, why in (("modality=petrol", "Available: "), ("colour=red", "Available: "), ("modality", "FACET=VALUE")):
        with pytest.raises(BadInput, match=why):
            filter_by_facets(table, [option])
    with pytest.raises(BadInput, match="one facet at a time"):
        filter_by_facets(table, ["department=Ophthalmology", "organ=brain"])


PUBLISHED = board_results()


def breakdowns(benchmark: str) -> list[dict]:
    return [result.breakdown for result in PUBLISHED if result.benchmark.name == benchmark]


def test_published_image_types_are_branches_of_their_organs() -> None:
    tree = build_published_tree("probmed", breakdowns("probmed"))
    organs = {node.label: node for node in dict(tree.facets)["organ"]}
    assert organs["chest"].count == 3120 + 548 + 40
    assert [child.label for child in organs["chest"].children] == ["xray", "ct", "mri"]
    result = next(r for r in PUBLISHED if r.benchmark.name == "probmed" and r.model.name == "CheXagent")
    entry = Entry("published/0", result)
    cell = own_scores(entry, [("organ", "chest", "mri")])["organ"]
    assert cell is not None and (cell.value, cell.n) == (75.0, 40)
    assert "organ" not in own_scores(entry, [("organ", "chest")])  # three cells, which no paper prints as one
    assert len(path_cells(("organ", "chest"), result.breakdown)) == 3
