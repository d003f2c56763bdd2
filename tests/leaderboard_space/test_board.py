"""Test the board without a browser: sections, what is set aside, hostile input, downloads, news
from the store.
"""

import json
import re
from pathlib import Path

import pytest

from dataset_builders import benchmarks
from dataset_builders.errors import BadInput
from eval_harness.records.result import Benchmark, Method, Model, Result, Score, Source
from leaderboard_space.data.board import Board
from leaderboard_space.data.published_results import board_results
from leaderboard_space.data.ranks.standings import compute_standings
from leaderboard_space.service import Service
from leaderboard_space.views import cases, compare
from tests.leaderboard_space.stores import MADE_AT, add_run, answers, questions


def published(value: float, name: str = "Paper Model", **breakdown: float) -> Result:
    cells = {"category": {key: {"set_accuracy": Score(value=v, n=79, n_cases=45)} for key, v in breakdown.items()}}
    return Result(
        kind="printed",
        provenance="published",
        benchmark=Benchmark(name="mediconfusion", format="mediconfusion", split="test", questions=352),
        model=Model(name=name, kind="proprietary"),
        method=Method(name="best"),
        scores={"set_accuracy": Score(value=value, n=176, n_cases=176, chance=25.0, verdict="no different")},
        breakdown=cells,
        created_at=MADE_AT,
        source=Source(citation="A paper, 2025", table="Table 1"),
    )


def test_each_fingerprint_is_a_section_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    complete, sample = questions("halt-medvqa", 30, seed=1), questions("halt-medvqa", 9, seed=2)
    for name in ("A", "B"):
        folder = add_run(tmp_path, "halt-medvqa", complete, answers(complete, 0.5), name, origin="official")
        add_run(tmp_path, "halt-medvqa", sample, answers(sample, 0.5), name, origin="official")
    mark = json.loads((folder / "result.json").read_text())["benchmark"]["fingerprint"]
    monkeypatch.setitem(benchmarks.RELEASED_FINGERPRINTS, ("halt-medvqa", "test"), mark)
    add_run(tmp_path, "halt-medvqa", complete, answers(complete, 0.5), "C", name="my-own", origin="custom")
    sections = Board(tmp_path).snapshot.sections["halt-medvqa"]
    assert [(section.kind, len(section.entries)) for section in sections] == [
        ("complete", 2),
        ("sample", 2),
        ("custom", 1),
    ]


def test_without_a_released_fingerprint_the_counts_are_all_there_is(tmp_path: Path) -> None:
    complete, part, few = (questions("probmed", count, seed=count) for count in (10, 7, 5))
    # The builder's manifest calls a set with the paper's counts `official`.
    add_run(tmp_path, "probmed", complete, answers(complete, 0.5), "A", origin="official")
    add_run(tmp_path, "probmed", part, answers(part, 0.5), "B", origin="official", selection="--limit 10")
    add_run(tmp_path, "probmed", few, answers(few, 0.5), "C", origin="custom")
    kinds = [section.kind for section in Board(tmp_path).snapshot.sections["probmed"]]
    assert sorted(kinds) == ["partial", "sample", "unconfirmed"]


def test_published_and_measured_results_of_the_complete_set_share_a_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question_table = questions("mediconfusion", 30)
    folder = add_run(
        tmp_path, "mediconfusion", question_table, answers(question_table, 0.9), "Measured", origin="official"
    )
    mark = json.loads((folder / "result.json").read_text())["benchmark"]["fingerprint"]
    monkeypatch.setitem(benchmarks.RELEASED_FINGERPRINTS, ("mediconfusion", "test"), mark)
    board = Board(tmp_path, [published(29.5, Cerebral=20.0), published(1.1, "Other Model")])
    (section,) = board.snapshot.sections["mediconfusion"]
    outcomes, tree = board.outcomes(section) or pytest.fail("not loaded")
    everything = compute_standings(section, outcomes, tree, "set_accuracy")
    assert [row.entry.result.model.name for row in everything.rows] == ["Measured", "Paper Model", "Other Model"]
    assert [row.best_rank for row in everything.rows] == [1, 2, 3]
    category_standings = compute_standings(section, outcomes, tree, "set_accuracy", [("category", "Cerebral")])
    assert [(row.entry.result.model.name, row.score.value) for row in category_standings.rows][1:] == [
        ("Paper Model", 20.0)
    ]
    assert [entry.result.model.name for entry in category_standings.hidden] == ["Other Model"]
    two = compute_standings(section, outcomes, tree, "set_accuracy", [("category", "Cerebral"), ("category", "Spinal")])
    assert len(two.rows) == 1 and len(two.hidden) == 2


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"format": "nothing"},
        {"format": "probmed", "metric": 3, "branches": "x", "section": []},
        {"format": "probmed", "branches": [["organ"], [["organ"]], None, 5, ["organ", "nowhere"]]},
        {"format": "probmed", "facet": "<b>"},
    ],
)
def test_nothing_a_browser_sends_takes_the_board_down(measured_board: Service, request_: dict) -> None:
    for function in (measured_board.view, measured_board.tree, measured_board.breakdown):
        assert function(request_) is not None
    for function in (measured_board.detail, measured_board.export, measured_board.cite):
        try:
            function(request_)
        except BadInput as error:
            assert str(error)


def test_a_folder_that_is_no_store_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a results store"):
        Board(tmp_path)
    assert Board(None).snapshot.problems == ()


def test_pages_without_any_answers_say_so() -> None:
    board = Board(None, [published(29.5)])
    assert "nothing to compare" in compare.page(board, {}) and "No questions" in cases.page(board, {})


def test_scenarios_of_the_paper_are_branches_beside_measured_ones() -> None:
    """HALT's paper prints its scenarios as columns: GPT-4-turbo-vision's 72.93 on FAKE is the score
    of that branch.
    """
    service = Service(Board(None, board_results()))
    page = service.view({"format": "halt-medvqa", "branches": [["scenario", "fake"]]})["html"]
    line = next(row for row in page.split("<tr") if "GPT-4-turbo-vision" in row and "data-key" in row)
    assert ">72.9</td>" in line and ">543</td>" in line and "printed · T1" in line
    table = service.breakdown({"format": "halt-medvqa", "facet": "scenario"})
    assert "by scenario" in table
    assert "Wrong image: unreadable" in service.breakdown(
        {"format": "halt-medvqa"}
    )  # the scenarios come first, with their counts


def test_results_of_one_model_are_told_apart_everywhere(tmp_path: Path) -> None:
    question_table = questions("gmai-mmbench", 30)
    for at, (prompt, shots) in enumerate((("single", 0), ("single", 4), ("other", 0), ("single", 0))):
        folder = add_run(tmp_path, "gmai-mmbench", question_table, answers(question_table, 0.5, seed=at), "Same")
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        result["method"].update(prompt=prompt, shots=shots)
        (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
        folder.rename(folder.with_name(f"run-{at}"))
    service = Service(Board(tmp_path))
    request = {"format": "gmai-mmbench", "shown": "all"}
    finding = re.search(r'class="finding">([^<]*)', service.view(request)["html"])
    assert finding is not None and "model" not in finding[1]  # one model, four results
    for page in (service.view(request)["html"], service.breakdown({**request, "facet": "task"})):
        remarks = re.findall(r"<small>([^<]*)</small></(?:a|th)>", page)
        names = [tag for tag in remarks if tag.startswith(("single", "other"))]
        assert len(names) == len(set(names)) == 4, page
        assert set(names) == {"single · run-0", "single · run-3", "single · 4 shots", "other"}
