"""Branches of what only papers know, and breakdowns that are read when they are asked for."""

from pathlib import Path

import pytest

from eval_harness.records.result import read_result
from leaderboard_space.data import board
from leaderboard_space.data.facets import cells_under
from leaderboard_space.data.published_results import board_results
from leaderboard_space.data.ranks.standings import own_score
from leaderboard_space.data.store import result_files
from leaderboard_space.data.store.sections import Entry
from leaderboard_space.data.tree import published_tree, tree_of
from tests.leaderboard_space.stores import add_run, answers, questions

PUBLISHED = board_results()


def breakdowns(benchmark: str) -> list[dict]:
    return [result.breakdown for result in PUBLISHED if result.benchmark.name == benchmark]


@pytest.mark.parametrize("family", ["mediconfusion", "probmed", "halt-medvqa"])
def test_no_department_is_invented(family: str) -> None:
    asked = questions(family, 12)
    assert "department" not in {facet for facet, _ in tree_of(family, asked).groups}
    assert "department" not in {facet for facet, _ in published_tree(family, breakdowns(family)).groups}


def test_published_image_types_are_branches_of_their_organs() -> None:
    tree = published_tree("probmed", breakdowns("probmed"))
    organs = {node.label: node for node in dict(tree.groups)["organ"]}
    assert organs["chest"].count == 3120 + 548 + 40
    assert [child.label for child in organs["chest"].children] == ["xray", "ct", "mri"]
    result = next(r for r in PUBLISHED if r.benchmark.name == "probmed" and r.model.name == "CheXagent")
    entry = Entry("published/0", result)
    cell = own_score(entry, "organ", [("organ", "chest", "mri")])
    assert cell is not None and (cell.value, cell.n) == (75.0, 40)
    assert own_score(entry, "organ", [("organ", "chest")]) is None  # three cells: no paper prints them as one
    assert len(cells_under(("organ", "chest"), result.breakdown)) == 3


def test_a_breakdown_that_is_read_later_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_files, "LARGE", 0)
    asked = questions("halt-medvqa", 30)
    folder = add_run(tmp_path, "halt-medvqa", asked, answers(asked, 0.5), "One")
    (entry,) = board.Board(tmp_path).snapshot.sections["halt-medvqa"][0].entries
    assert isinstance(entry.result.breakdown, result_files.LateBreakdown)
    whole = read_result(folder / "result.json").breakdown
    assert {facet: dict(held) for facet, held in entry.result.breakdown.items()} == whole
