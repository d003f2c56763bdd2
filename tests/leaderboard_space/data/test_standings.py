"""Test selections and their standings: a selection is the same questions by every route, and its
scores are those of these questions alone; which of a model's results represents it, and which are
ranked together.
"""

import json
import re
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as npst

from dataset_builders.errors import BadInput
from dataset_builders.facets import STEP_SEPARATOR, UNLABELLED, group_by_subject, select_by_branches, select_by_facets
from eval_harness.records.result import Score
from eval_harness.records.selection import select_questions
from eval_harness.scores.comparisons import compute_unpaired_differences
from eval_harness.scores.intervals import clustered_interval, verdict_against_chance
from eval_harness.store.results_table import tidy_table
from leaderboard_space.data.board import Board
from leaderboard_space.data.outcomes import MetricUnits, read_outcomes, score_runs
from leaderboard_space.data.published_results import published_results
from leaderboard_space.data.sections import ALL_RESULTS, ONE_PER_MODEL
from leaderboard_space.data.standings import Standings, compute_standings
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
from tests.leaderboard_space.stores import add_run, answers, change, land, questions, withdraw
from tests.processes import made_once


def test_counts_are_compared_as_shares_of_what_they_count() -> None:
    """Table 1 of HALT: of 543, 538 irrelevant answers are significantly more than 138, and 43 are
    not more than 40; as percentages both would exceed 100.
    """
    scores = [Score(value=value, n=543, n_cases=543) for value in (538.0, 138.0, 43.0, 40.0)]
    p = compute_unpaired_differences(scores, are_counts=True)[2]
    assert p[0, 1] < 1e-6 and p[1, 2] < 1e-6 and p[2, 3] > 0.5


@given(
    outcomes=npst.arrays(np.int8, st.tuples(st.integers(1, 4), st.integers(1, 40)), elements=st.integers(0, 1)),
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(["alone", "clusters", "weights"]),
    up=st.booleans(),
)
def test_intervals_and_verdicts_of_many_runs_are_those_of_each(
    outcomes: np.ndarray, seed: int, kind: str, up: bool
) -> None:
    rng = np.random.default_rng(seed)
    size = outcomes.shape[1]
    cluster = np.arange(size) if kind == "alone" else np.sort(rng.integers(0, max(size // 2, 1), size))
    base = np.ones(size) if kind != "weights" else rng.choice([0.5, 1.0, 2.0], size)
    top = outcomes * base
    units_ = MetricUnits(
        top,
        base[None, :],
        base[None, :] / 2,
        np.ones((1, size), np.int64),
        (np.zeros((1, size), np.int32),) * 5,
        np.arange(size),
        cluster,
        np.zeros(len(outcomes), bool),
    )
    for score, row in zip(score_runs(units_, up), top, strict=True):
        expected = clustered_interval(row, base, cluster)
        assert expected is not None and score.low is not None and score.high is not None
        assert score.low == pytest.approx(100 * expected.low, abs=1e-7)
        assert score.high == pytest.approx(100 * expected.high, abs=1e-7)
        assert score.n_effective == pytest.approx(expected.n_effective, rel=1e-6)
        assert score.verdict == verdict_against_chance(score.low, score.high, score.n_effective, score.chance, up)


def test_runs_with_no_selection_in_common_are_undefined(measured_board: Service) -> None:
    sections = measured_board.board.snapshot.sections["halt-medvqa"]
    outcomes, _ = measured_board.board.outcomes(next(section for section in sections if section.kind == "phantom"))
    assert outcomes is not None
    mask = (outcomes.questions["scenario"] == "fake").to_numpy()
    scores = score_runs(outcomes.metrics["swap"].part(outcomes.rows("swap", mask)))
    assert {score_.value for score_ in scores} == {None} and {score_.n for score_ in scores} == {0}


@pytest.mark.parametrize("content", [b"", b"PAR1 no", None, {"metric": ["accuracy"]}])
def test_units_that_cannot_be_read_are_one_line(tmp_path: Path, content: bytes | dict | None) -> None:
    path = tmp_path / "units.parquet"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        pd.DataFrame(content).to_parquet(path)
    outcomes, problems = read_outcomes("halt-medvqa", questions("halt-medvqa", 3), {"one": path})
    assert outcomes is None and re.search("cannot be read|not in the store", problems["one"])
    assert "\n" not in problems["one"] and str(tmp_path) not in problems["one"]


FORMAT = "halt-medvqa"
ASKED = questions(FORMAT, 30, seed=5)


def run(store: Path, name: str, /, model: str = "GPT-4o", skill: float = 0.5, **method: object) -> Path:
    """Make a result in the folder `name`; `method` contains changes to its document's method,
    `created_at` and `provenance` to the document.
    """
    folder = add_run(store, FORMAT, ASKED, answers(ASKED, skill, seed=len(name)), model)
    moved = folder.rename(folder.with_name(name))
    outer = {key: method.pop(key) for key in ("created_at", "provenance", "derive_version") if key in method}

    def edit(document: dict) -> None:
        document.update(outer)
        document["method"].update(prompt="L+D0", **method)

    change(moved, edit)
    return moved


def shown(store: Path, which: str = ONE_PER_MODEL) -> Standings:
    board = Board(store)
    (section,) = board.snapshot.sections[FORMAT]
    outcomes, tree = board.outcomes(section) or pytest.fail("not loaded")
    return compute_standings(section, outcomes, tree, "average", result_filter=which)


Sent = tuple[str, dict[str, Any]]
"""Account and settings of a run (`run`)."""


def page_of(store: Path, **request: object) -> str:
    """Return the leaderboard's page over a store."""
    page: str = Service(Board(store)).view({"format": FORMAT, **request})["html"]
    return page


def names(standings: Standings) -> list[tuple[str, str | None, str]]:
    return [(row.entry.key.rsplit("/", 1)[-1], row.entry.account, row.group) for row in standings.rows]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_the_result_that_landed_first_stands_for_a_model_whatever_date_it_claims(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    for at in order:
        folder = run(tmp_path, f"run-{at}", created_at=f"{9999 - at}-01-01T00:00:00+00:00")
        land(folder, "alice", f"2026-11-2{at}T00:00:00+00:00")
    (row,) = shown(tmp_path).rows
    assert row.entry.key.endswith("run-0") and row.tried == 3
    assert "1 of 3 runs" in page_of(tmp_path)


def test_tries_of_an_account_count_under_every_model_name(tmp_path: Path) -> None:
    for at in range(4):
        land(run(tmp_path, f"try-{at}", model=f"Model {at % 3}"), "alice")
    assert {row.account_tries for row in shown(tmp_path).rows} == {0}  # a store of one's own
    land(run(tmp_path, "other"), "bob")
    tries = {(row.entry.account, row.entry.result.model.name): row.account_tries for row in shown(tmp_path).rows}
    assert tries == {("alice", "Model 0"): 4, ("alice", "Model 1"): 4, ("alice", "Model 2"): 4, ("bob", "GPT-4o"): 1}
    page = page_of(tmp_path)
    assert page.count("1 of 4 tries by this account") == 3 and "1 of 1 tries" not in page


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # A stranger neither replaces nor joins another's model.
        (
            ("alice", {"created_at": "2026-01-01T00:00:00+00:00"}),
            ("mallory", {"skill": 0.9, "created_at": "9999-01-01T00:00:00+00:00", "name": "best"}),
            [("first", "alice", "ranked"), ("second", "mallory", "ranked")],
        ),
        # What the owner reproduced comes before anything else,
        (("alice", {}), ("alice", {"provenance": "reproduced", "name": "ff"}), [("second", "alice", "ranked")]),
        # and default settings before an earlier landing.
        (("alice", {"samples": 16}), ("alice", {}), [("second", "alice", "ranked")]),
    ],
)
def test_which_results_represent_a_model(tmp_path: Path, first: Sent, second: Sent, expected: list[tuple]) -> None:
    for at, (name, (account, settings)) in enumerate((("first", first), ("second", second))):
        land(run(tmp_path, name, **settings), account, f"2026-11-2{at}T00:00:00+00:00")
    assert sorted(names(shown(tmp_path))) == expected
    page = page_of(tmp_path, shown="all")
    rows = {name: re.search(rf'data-key="[^"]*/{name}".*?</tr>', page)[0] for name in ("first", "second")}  # type: ignore[index]
    for name, (account, settings) in (("first", first), ("second", second)):
        source = "by us" if "provenance" in settings else account
        assert re.findall("measured · ([^<]*)", rows[name]) == [source]
        assert (f"GPT-4o ({account})" in rows[name]) == (first[0] != second[0])


def test_withdrawn_results_leave_the_ranking_and_say_why(tmp_path: Path) -> None:
    land(run(tmp_path, "good", skill=0.3), "alice")
    folder = run(tmp_path, "bad", model="Other", skill=1.0)
    land(folder, "bob")
    board = Board(tmp_path)
    service = Service(board)
    page_before = service.view({"format": FORMAT})["html"]
    withdraw(folder, "bob", "wrong <b>images</b>")
    board.refresh()
    standings = shown(tmp_path)
    assert [(row.group, row.best_rank) for row in standings.rows] == [("ranked", 1), ("withdrawn", None)]
    page = service.view({"format": FORMAT})["html"]
    assert page != page_before and "withdrawn: not ranked" in page and "withdrawn: wrong &lt;b&gt;images" in page
    key = next(row.entry.key for row in standings.rows if row.group == "withdrawn")
    assert "by bob: wrong &lt;b&gt;images" in service.detail({"format": FORMAT, "key": key})
    assert "Other" not in service.breakdown({"format": FORMAT})
    # an unreadable result is not ranked again
    (folder / "withdrawn.json").write_text("{torn", encoding="utf-8")
    board.refresh()
    assert "withdrawn.json" in board.snapshot.problems[0]


def test_judged_results_stand_apart_with_their_judge(tmp_path: Path) -> None:
    judge = {"model": "Judge <b>9B</b>", "prompt": "extract-option", "prompt_hash": "0123456789abcdef", "asked": 3}
    for at, (skill, judge_record) in enumerate([(1.0, judge), (0.0, judge), (0.9, None), (0.1, None)]):
        land(run(tmp_path, f"run-{at}", model=f"Model {at}", skill=skill, judge=judge_record), "alice")
    board = Board(tmp_path)
    ranks = {
        row.entry.result.model.name: (row.group, row.best_rank, row.worst_rank)
        for row in shown(tmp_path, ALL_RESULTS).rows
    }
    assert ranks["Model 0"] == ("judge model", 1, 1) and ranks["Model 1"] == ("judge model", 2, 2)
    assert ranks["Model 2"] == ("ranked", 1, 1) and ranks["Model 3"] == ("ranked", 2, 2)
    service, prompt_label = Service(board), "(prompt extract-option 0123456789abcdef)"
    assert [bool(row["judge"]) for row in tools(board)[1](FORMAT)] == [False, False, True, True]
    page = service.view({"format": FORMAT, "shown": "all"})["html"]
    assert "read by a judge model" in page and page.count(f"Judge &lt;b&gt;9B&lt;/b&gt; {prompt_label}") == 2


def test_flags_are_shown_and_exported(tmp_path: Path) -> None:
    land(run(tmp_path, "run"), "=cmd()", flags=["nearly perfect", "half <i>seen</i>"])
    service = Service(Board(tmp_path))
    page = service.view({"format": FORMAT})["html"]
    assert "flagged" in page and "accuracy where answered" in page and "<i>seen" not in page
    (section,) = service.board.snapshot.sections[FORMAT]
    detail = service.detail({"format": FORMAT, "key": section.entries[0].key})
    assert "nearly perfect" in detail and "&lt;i&gt;seen" in detail and "=cmd()" in detail
    (row,) = json.loads(service.export({"format": FORMAT, "as": "json"})["text"])
    columns = ("account", "flags", "group", "runs_tried")
    assert [row[name] for name in columns] == ["=cmd()", "nearly perfect; half <i>seen</i>", "ranked", 1]
    scores = section.entries[0].result.scores
    assert all(row[name] == pytest.approx(scores[name].value) for name in ("abstained", "answered_accuracy"))
    body = service.export({"format": FORMAT, "as": "csv"})["text"]
    assert not re.search(r'(^|,)"?[=+]cmd', body, re.MULTILINE)


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


def test_parts_that_papers_print_stand_by_themselves_and_only_where_they_lie_in_all_of_it(
    papers_board: Service,
) -> None:
    request = {"format": "probmed", "branches": [("modality", "ct")]}
    # As the browser requests it: the first metric that is known for parts.
    metric = papers_board.view(request)["state"]["metric"]
    page = papers_board.breakdown({**request, "metric": metric})
    table = page[page.index('data-table="breakdown"') : page.index("</table>")]
    assert all(f"{organ} CT" in table for organ in ("abdomen", "chest", "brain", "spine"))
    assert "95% interval" in table and "X-ray" not in table
    modality_view = papers_board.view({"format": "probmed", "branches": [("modality", "ct"), ("organ", "brain")]})
    assert "printed · T7" in modality_view["html"] and "GPT-4o" in modality_view["html"]  # exactly one image type
    two_branches = {"format": "gmai-mmbench", "branches": [("department", "Ophthalmology"), ("task", "Counting")]}
    # the paper prints results by one facet at a time
    assert not parse_query(papers_board.board, two_branches).standings.rows
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
