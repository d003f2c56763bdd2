"""Test facets: any label within one, all facets together, with counts and scores checked against a
filter of the raw questions; one selection gives the same questions by every route.
"""

import json
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset_builders.errors import BadInput
from dataset_builders.facets import STEP_SEPARATOR, UNLABELLED, group_by_subject, select_by_branches, select_by_facets
from eval_harness.records.selection import select_questions
from eval_harness.store.results_table import tidy_table
from leaderboard_space.data.board import Board
from leaderboard_space.data.published_results import board_results, published_results
from leaderboard_space.data.tree import (
    Tree,
    build_tree,
    filter_by_facets,
    path_facets,
    selection_cells,
)
from leaderboard_space.query import parse_query, parse_selection
from leaderboard_space.service import Service, tools
from leaderboard_space.views.parts import benchmark_address
from tests.commands import medprobe
from tests.leaderboard_space.checks.claims import plain
from tests.leaderboard_space.stores import add_run, answers, questions
from tests.processes import made_once

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


FAMILY = "gmai-mmbench"


def _asked() -> pd.DataFrame:
    """Make questions some of which have no task, department, modality or keyword; one keyword
    equals a modality's name.
    """
    question_table, rng = questions(FAMILY, 90, seed=47), np.random.default_rng(47)
    for column in ("task", "department", "modality", "keyword"):
        question_table[column] = question_table[column].where(rng.random(len(question_table)) > 0.1, None)
    question_table.loc[question_table["keyword"] == "finding 5", "keyword"] = "CT"
    return question_table


@cache
def _service() -> Service:
    def fill(store: Path) -> None:
        add_run(store, FAMILY, _asked(), answers(_asked(), 0.5), "One")

    return Service(Board(made_once("selection-routes", fill)))


def _by_hand(question_table: pd.DataFrame, paths: list[tuple[str, ...]]) -> list[int]:
    """Apply the rule without the product's code: a group is any of its paths, and all groups must
    match.
    """

    def is_on(row: pd.Series, path: tuple[str, ...]) -> bool:
        columns = [path[0], "modality", "keyword"]
        return all(
            (UNLABELLED if pd.isna(row[column]) else row[column]) == label
            for column, label in zip(columns, path[1:], strict=False)
        )

    return [
        at
        for at, (_, row) in enumerate(question_table.iterrows())
        if all(any(is_on(row, path) for path in group) for group in group_by_subject(paths))
    ]


TREE = build_tree(FAMILY, _asked())
BRANCHES = [path for path in TREE.rows if path[0] in ("task", "department", "granularity")]


@given(st.lists(st.sampled_from(BRANCHES), min_size=1, max_size=5, unique=True))
def test_every_route_gives_the_same_questions(paths: list[tuple[str, ...]]) -> None:
    question_table, service = _asked(), _service()
    expected = _by_hand(question_table, paths)
    section = parse_query(service.board, {"format": FAMILY}).section
    branch_options = [f"{path[0]}: {STEP_SEPARATOR.join(path[1:])}" for path in paths]

    assert np.flatnonzero(TREE.mask(paths)).tolist() == expected  # the tree
    assert service.view({"format": FAMILY, "branches": [list(path) for path in paths]})["selected"] == len(expected)

    address_parameters = parse_qs(urlsplit(unescape(benchmark_address(section, None, paths)).removeprefix("#")).query)
    assert np.flatnonzero(TREE.mask(parse_selection(address_parameters))).tolist() == expected  # an address

    leaderboard = next(tool for tool in tools(service.board) if tool.__name__ == "leaderboard")
    if not expected:
        with pytest.raises(BadInput, match="narrow each other"):
            select_by_branches(question_table, branch_options)
        return
    assert np.flatnonzero(select_by_branches(question_table, branch_options)).tolist() == expected  # the command line
    assert {row["n"] for row in leaderboard(FAMILY, branch_options)} == {len(expected)}  # the API


@pytest.mark.parametrize(
    ("branches", "n"),
    [
        (["Ophthalmology > Fundus Photography", "Severity Grading > Fundus Photography"], 4),
        (["Ophthalmology > Fundus Photography"], None),
        (["Fundus Photography", "Ophthalmology"], None),
    ],
)
def test_a_stored_run_asked_what_its_branches_select(
    phantoms: Path, tmp_path: Path, branches: list[str], n: int | None
) -> None:
    out, data = tmp_path / "run", phantoms / FAMILY
    options = [word for branch in branches for word in ("--branch", branch)]
    medprobe("eval", FAMILY, "--model", "baseline:chance", "--data", data, "--out", out, *options, cwd=tmp_path)
    stored = json.loads((out / "run.json").read_text())["request"]
    assert stored["branches"] == branches
    again = select_questions(FAMILY, str(data), None, stored["branches"])
    ids = set(pd.read_parquet(out / "answers.parquet")["question_id"])
    assert ids == set(again.questions["question_id"]) and (n is None or len(ids) == n)
