"""Check that one selection gives the same questions by every route: the tree, an address, the API,
`--branch`, and a stored run.
"""

from __future__ import annotations

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
from dataset_builders.lexical_tree import STEP_SEPARATOR, UNLABELLED, group_by_subject, select_by_branches
from eval_harness.records.selection import select_questions
from leaderboard_space.api import tools
from leaderboard_space.data.board import Board
from leaderboard_space.data.tree import build_tree
from leaderboard_space.query import parse_query, parse_selection
from leaderboard_space.service import Service
from leaderboard_space.views.parts import benchmark_address
from tests.commands import medprobe
from tests.leaderboard_space.stores import add_run, answers, questions
from tests.processes import made_once

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

    leaderboard = next(tool for tool in tools(service.board, service) if tool.__name__ == "leaderboard")
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
