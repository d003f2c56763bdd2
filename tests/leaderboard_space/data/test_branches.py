"""Branches of what only papers know, and scored answers kept on disk."""

from pathlib import Path

import pytest

from eval_harness.records.result import read_result
from leaderboard_space.data import board
from leaderboard_space.data.facets import cells_under
from leaderboard_space.data.published_results import board_results
from leaderboard_space.data.ranks.standings import own_score, standings
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


@pytest.mark.parametrize("late", [False, True])  # whether breakdowns are read later
def test_what_is_kept_on_disk_gives_the_same_numbers_and_damage_is_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    monkeypatch.setenv("MEDPROBE_BOARD_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(result_files, "LARGE", 0 if late else 10**9)
    asked = questions("halt-medvqa", 30)
    for number, name in enumerate(("One", "Two")):
        add_run(tmp_path / "store", "halt-medvqa", asked, answers(asked, 0.5, seed=number), name)

    def values() -> list[object]:
        read = board.Board(tmp_path / "store")
        section = read.snapshot.sections["halt-medvqa"][0]
        outcomes, tree = read.outcomes(section) or pytest.fail("not loaded")
        assert outcomes is not None and not section.notes
        for entry in section.entries:
            whole = read_result(entry.folder / "result.json").breakdown  # type: ignore[operator]
            assert {facet: dict(held) for facet, held in entry.result.breakdown.items()} == whole
        fake = [("scenario", "fake")]
        return [
            (row.entry.key, row.score, row.abstained, row.answered_accuracy)
            for metric in outcomes.metrics
            for row in standings(section, outcomes, tree, metric, fake).rows
        ]

    first = values()
    for path in (tmp_path / "kept").glob("*.*"):
        path.write_bytes(b"damaged")
    assert values() == first
    add_run(tmp_path / "store", "halt-medvqa", asked, answers(asked, 0.9, seed=3), "A third")
    assert len(values()) == len(first) // 2 * 3 and values() == values()
