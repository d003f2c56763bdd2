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
from leaderboard_space.export import format_csv
from leaderboard_space.service import Service
from leaderboard_space.views import cases, compare
from tests.leaderboard_space.checks.claims import check_words
from tests.leaderboard_space.stores import MADE_AT, add_run, answers, make_store, questions


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("board"))


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
def test_nothing_a_browser_sends_takes_the_board_down(store: Path, request_: dict) -> None:
    service = Service(Board(store))
    for function in (service.view, service.tree, service.breakdown):
        assert function(request_) is not None
    for function in (service.detail, service.export, service.cite):
        try:
            function(request_)
        except BadInput as error:
            assert str(error)


def test_a_download_runs_no_formula(store: Path) -> None:
    rows = [{"model": "=HYPERLINK(1)", "note": " +1", "at": "@x", "value": -1.5, "text": 'plain, "quoted"\nline'}]
    body = format_csv(rows)
    assert "'=HYPERLINK" in body and "' +1" in body and "'@x" in body and ",-1.5," in body
    exported = Service(Board(store)).export({"format": "probmed", "as": "json", "branches": [["organ", "chest"]]})
    table = json.loads(exported["text"])
    assert (
        len(table) == 7
        and {row["selection"] for row in table} == {"organ=chest"}
        and exported["name"].endswith(".json")
    )


@pytest.mark.exhaustive
def test_news_are_picked_up_and_the_rest_is_kept(tmp_path: Path) -> None:
    store = make_store(tmp_path, cases=8)
    board = Board(store)
    old_snapshot, service = board.snapshot, Service(board)
    board.prepare()
    tree = service.view({"format": "probmed"})["tree"]
    question_table = questions("probmed", 8, seed=1)
    add_run(store, "probmed", question_table, answers(question_table, 0.9), "Newcomer")
    new_snapshot = board.refresh()
    assert new_snapshot.stamp != old_snapshot.stamp
    assert len(new_snapshot.sections["probmed"][0].entries) == len(old_snapshot.sections["probmed"][0].entries) + 1
    assert new_snapshot.sections["halt-medvqa"][0] is old_snapshot.sections["halt-medvqa"][0]
    assert "Newcomer" in service.view({"format": "probmed"})["html"]
    assert (
        service.view({"format": "probmed"})["tree"] == tree
    )  # the same questions, so browsers do not request the branches again


def test_a_folder_that_is_no_store_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a results store"):
        Board(tmp_path)
    assert Board(None).snapshot.problems == ()


def test_published_results_alone_make_a_board() -> None:
    board = Board(None, [published(29.5, Cerebral=20.0), published(8.5, "Other")])
    service = Service(board)
    page = service.view({"format": "mediconfusion"})["html"]
    assert "printed · T1" in page and "Neither beats flipping a coin for each image" in page
    assert service.tree({"format": "mediconfusion"})[0]["nodes"] == [["Cerebral", 79, []]]
    assert "20.0" in service.view({"format": "mediconfusion", "branches": [["category", "Cerebral"]]})["html"]
    board = Board(None, [published(29.5, Cerebral=20.0, Spinal=17.25)])
    branches = [["category", "Cerebral"], ["category", "Spinal"]]
    service, request = Service(board), {"format": "mediconfusion", "branches": branches}
    page = check_words(service.view(request)["html"])
    assert "Known for parts of this selection" in page and "are listed below" in page
    parts = service.breakdown(request)
    assert ">20.0</a>" in parts and ">17.2</a>" in parts and "the underlying answers" in page


def test_pages_without_any_answers_say_so() -> None:
    board = Board(None, [published(29.5)])
    assert "nothing to compare" in compare.page(board, {}) and "No questions" in cases.page(board, {})


def test_no_branch_empties_the_board_as_long_as_anything_is_known_of_it() -> None:
    """ProbMed prints no overall score by image type: the first score that it does print, and that
    the selection does not give away, is shown.
    """
    service = Service(Board(None, board_results()))
    request = {"format": "probmed", "branches": [["organ", "chest"]]}
    organ_view = service.view(request)
    assert organ_view["state"]["metric"] == "condition"
    assert "Known for parts" in organ_view["html"] and "chest X-ray" in service.breakdown(
        {**request, "metric": "modality"}
    )
    image_type_view = service.view({**request, "branches": [["image_type", "chest_xray"]], "metric": "overall"})
    assert image_type_view["state"]["metric"] == "condition" and "printed · T16" in image_type_view["html"]
    full_view = service.view({"format": "probmed", "branches": []})
    assert full_view["state"]["metric"] == "overall" and "is not known" not in full_view["html"]


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
