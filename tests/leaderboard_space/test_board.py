"""Test the board without a browser: how it reads a store, which may change meanwhile or be a
repository on the Hub; its sections, its cache, and wrong requests by browsers and programs, each of
which gets one clear line.
"""

import json
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi

from dataset_builders import benchmarks
from dataset_builders.errors import BadInput
from eval_harness.records.result import Benchmark, Method, Model, Result, Score, Source
from eval_harness.store.contents import scan_store
from leaderboard_space.data import cache
from leaderboard_space.data.board import Board
from leaderboard_space.data.published_results import board_results
from leaderboard_space.data.sections import Section
from leaderboard_space.data.standings import compute_standings
from leaderboard_space.query import parse_query
from leaderboard_space.service import Service, tools
from leaderboard_space.views import cases, compare
from tests.commands import medprobe
from tests.eval_harness.store.submitting import REPO
from tests.leaderboard_space.stores import MADE_AT, add_run, answers, change, questions
from tests.localhub.accounts import CURATOR


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


def test_a_share_of_the_errors_has_its_own_name_in_every_kind_of_result(tmp_path: Path) -> None:
    question_table = questions("probmed", 60)
    add_run(tmp_path, "probmed", question_table, answers(question_table, 0.5), "One")
    sections = Board(tmp_path).snapshot.sections["probmed"]
    steps = [
        scores
        for section in sections
        for entry in section.entries
        for scores in entry.result.breakdown.get("aspect", {}).values()
    ]
    measured = [scores for scores in steps if "diagnosis_accuracy" not in scores]
    assert measured and any("refused_of_errors" in scores for scores in steps)
    assert not any("refused" in scores for scores in steps)


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


def test_scores_of_unknown_n_are_compared_by_no_test() -> None:
    names = ("One", "Two", "Three")
    unknown_n = {"scores": {"set_accuracy": Score(value=29.5, n=0, n_cases=0)}}
    board = Board(None, [published(29.5, name).model_copy(update=unknown_n) for name in names])
    page = compare.page(board, dict(zip(("first", "second", "third"), names, strict=True)))
    assert all(name in page for name in names) and 'data-table="pairs"' not in page


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
        change(folder, lambda result, prompt=prompt, shots=shots: result["method"].update(prompt=prompt, shots=shots))
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


Tools = dict[str, Callable[..., Any]]


@pytest.fixture(scope="module")
def offered(measured_board: Service) -> Tools:
    return {tool.__name__: tool for tool in tools(measured_board.board)}


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("leaderboard", {"benchmark": "x" * 100_000}, "Available: mediconfusion"),
        ("leaderboard", {"benchmark": 5}, "benchmark: Input should be a valid string"),
        ("leaderboard", {"benchmark": "probmed", "branches": "chest_xray"}, "branches: Input should be a valid list"),
        ("leaderboard", {"benchmark": "probmed", "branches": ["chst"]}, "Did you mean chest"),
        ("leaderboard", {"benchmark": "probmed", "metric": "accurcy"}, "Available: overall"),
        ("leaderboard", {"benchmark": "probmed", "question_set": "nowhere"}, "`question_sets` names them"),
        ("leaderboard", {"benchmark": "probmed", "every_run": "maybe"}, "every_run: Input should be a valid boolean"),
        ("leaderboard", {"benchmark": "probmed", "branches": ["organ: chest"], "metric": "organ"}, "given away by the selection"),
        ("breakdown", {"benchmark": "probmed", "facet": "organs"}, "Available: image_type"),
        ("breakdown", {"benchmark": "probmed", "facet": "image_type", "metric": "overall"}, "Available: condition"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_one_clear_line(offered: Tools, tool: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as error:
        offered[tool](**arguments)
    line = str(error.value)
    assert message in line and "\n" not in line and len(line) < 400


def test_labels_may_be_written_as_the_board_shows_them(offered: Tools) -> None:
    source = offered["leaderboard"]("probmed", ["chest_xray"], "abnormality")
    assert len(source) == 11 and source[0]["table"] == "Table 16"
    for spelling in ("chest X-ray", "image_type: Chest X-Ray", " CHEST_XRAY "):
        assert offered["leaderboard"]("ProbMed", [spelling], "abnormality") == source
    assert offered["branches_of"]("probmed", contains="X-ray") != []


def test_without_a_score_named_one_that_is_known_is_taken(offered: Tools) -> None:
    """No overall score is printed by image type: an empty table would suggest that nothing is
    known.
    """
    assert {row["metric"] for row in offered["leaderboard"]("probmed", ["chest_xray"])} == {"condition"}
    assert {row["metric"] for row in offered["breakdown"]("probmed", "image_type")} == {"condition"}
    assert {row["metric"] for row in offered["leaderboard"]("probmed")} == {"overall"}


def test_no_place_on_this_machine_is_told(offered: Tools, tmp_path: Path) -> None:
    responses = repr(offered["question_sets"]()) + repr(offered["leaderboard"]("halt-medvqa", every_run=True))
    assert str(tmp_path.parent) not in responses


def test_a_result_is_computed_once_for_many_threads() -> None:
    calls: list[int] = []

    @cache.cached(cache.COMPUTING)
    def square(number: int) -> int:
        time.sleep(0.01)
        calls.append(number)
        return number * number

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(square, [3, 4] * 20)) == [9, 16] * 20
    assert sorted(calls) == [3, 4]


def test_an_error_is_not_kept_and_the_least_recently_used_result_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_results", type(cache._results)())
    monkeypatch.setattr(cache, "MAX_RESULTS", 2)
    calls: list[int] = []

    @cache.cached(cache.COMPUTING)
    def inverse(number: int) -> float:
        calls.append(number)
        return 1 / number

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            inverse(0)
    for number in (1, 2, 1, 3, 1, 2):
        inverse(number)
    assert calls == [0, 0, 1, 2, 3, 2]


def test_results_of_an_unchanged_section_outlive_a_change_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    for family in ("halt-medvqa", "gmai-mmbench"):
        question_table = questions(family, 12, seed=1)
        add_run(tmp_path, family, question_table, answers(question_table, 0.5), "One")
    board = Board(tmp_path)
    (halt,), (gmai,) = (board.snapshot.sections[family] for family in ("halt-medvqa", "gmai-mmbench"))
    cached_answers = board.outcomes(halt), board.outcomes(gmai)
    query = parse_query(board, {"format": "halt-medvqa"})
    assert query.standings is parse_query(board, {"format": "halt-medvqa"}).standings
    assert board.refresh() is board.refresh()

    question_table = questions("halt-medvqa", 12, seed=1)
    add_run(tmp_path, "halt-medvqa", question_table, answers(question_table, 0.1), "Two")
    board.refresh()
    (new_section,) = board.snapshot.sections["halt-medvqa"]
    assert new_section is not halt and board.snapshot.sections["gmai-mmbench"] == (gmai,)
    assert board.outcomes(gmai) is cached_answers[1] and not any(halt in key for key in cache._results)
    assert [row.entry.result.model.name for row in parse_query(board, {"format": "halt-medvqa"}).standings.rows]


FORMAT = "halt-medvqa"


def section_of(board: Board) -> Section:
    return board.snapshot.sections[FORMAT][0]


def measured(board: Board) -> int:
    """Count the results that are scored from their answers."""
    outcomes, _ = board.outcomes(section_of(board)) or (None, None)
    return len(outcomes.runs) if outcomes is not None else 0


@pytest.fixture
def store(tmp_path: Path) -> Path:
    question_table = questions(FORMAT, 30)
    for number in range(3):
        add_run(tmp_path, FORMAT, question_table, answers(question_table, 0.5, seed=number), f"Model {number}")
    return tmp_path


@pytest.mark.parametrize(
    ("file", "expected_results", "expected_text"),
    [("results/*/Model-1/*/units.parquet", 2, "Model 1: its units"), ("questions/*.parquet", 0, "the questions")],
)
def test_what_comes_after_its_result_is_read(store: Path, file: str, expected_results: int, expected_text: str) -> None:
    late = next(store.glob(file))
    body = late.read_bytes()
    late.write_bytes(body[: len(body) // 2])
    board = Board(store)
    assert measured(board) == expected_results
    assert any(f"{expected_text} cannot be read" in note for note in board.notes(section_of(board)))
    late.write_bytes(body)
    board.refresh()
    assert measured(board) == 3
    assert board.notes(section_of(board)) == ()


def test_a_store_that_is_away_for_a_moment_keeps_its_results_on_show(store: Path) -> None:
    board = Board(store)
    old_snapshot = board.snapshot
    (store / "results").rename(store / "away")
    with pytest.raises(OSError, match="unavailable"):
        board.refresh()
    assert board.snapshot is old_snapshot
    (store / "away").rename(store / "results")
    assert board.refresh().stamp == old_snapshot.stamp


@pytest.fixture
def api(local_hub: Any, monkeypatch: pytest.MonkeyPatch) -> HfApi:
    """Return the client of an empty store's owner; the board checks for news at every refresh."""
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    monkeypatch.setattr("eval_harness.store.contents.HUB_RECHECK_SECONDS", 0)
    api = HfApi(endpoint=local_hub.endpoint, token=CURATOR)
    api.create_repo(**REPO)
    return api


def result_of(model: str, folder: Path) -> Path:
    """Return a store with one result."""
    question_table = questions("halt-medvqa", 12)
    add_run(folder, "halt-medvqa", question_table, answers(question_table, 0.5), model)
    return folder


def names(board: Board) -> list[str]:
    return [entry.result.model.name for section in board.snapshot.sections["halt-medvqa"] for entry in section.entries]


def test_a_repository_that_is_not_there_is_one_clear_line(local_hub: Any) -> None:
    with pytest.raises(BadInput, match="results store ORG/not-there"):
        Board("ORG/not-there")


def test_a_new_repository_without_results_is_a_board_to_begin_with(api: HfApi, tmp_path: Path) -> None:
    """A Space is set up before the first submission; it must start, show the first result, and
    continue when results are withdrawn.
    """
    board = Board("ORG/results")
    assert not any(board.snapshot.sections.values()) and board.snapshot.problems == ()
    board.refresh()
    api.upload_folder(**REPO, folder_path=result_of("One", tmp_path / "first"))
    board.refresh()
    assert names(board) == ["One"] and board.outcomes(board.snapshot.sections["halt-medvqa"][0])[0] is not None
    api.upload_folder(**REPO, folder_path=result_of("Two", tmp_path / "second"))
    board.refresh()
    assert names(board) == ["One", "Two"]
    api.delete_folder("results", **REPO)
    board.refresh()
    assert not any(board.snapshot.sections.values())


def test_results_of_a_repository_are_loaded_and_make_a_table(api: HfApi, tmp_path: Path) -> None:
    assert scan_store("ORG/results") == ([], [])
    api.upload_folder(**REPO, folder_path=result_of("One", tmp_path / "first"))
    assert [entry.result.model.name for entry in scan_store("ORG/results")[0]] == ["One"]
    head, first_row, *_ = medprobe("results", "ORG/results", "--format", "csv", cwd=tmp_path).stdout.splitlines()
    assert head.startswith("benchmark,split,model") and ",One," in first_row
