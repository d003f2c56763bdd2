"""Check that the board computes the same for a selection as scoring those questions alone; which of
a model's results represents it, and which are ranked together.
"""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from eval_harness.records.result import Score
from eval_harness.scores.comparisons import compute_unpaired_differences
from eval_harness.scores.intervals import clustered_interval, verdict_against_chance
from leaderboard_space.data.board import Board
from leaderboard_space.data.outcomes import MetricUnits, read_outcomes, score_runs
from leaderboard_space.data.ranks.standings import ALL_RESULTS, ONE_PER_MODEL, Standings, compute_standings
from leaderboard_space.service import Service, tools
from tests.leaderboard_space.stores import add_run, answers, change, land, questions, withdraw


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
    page = Service(Board(tmp_path)).view({"format": FORMAT})["html"]
    assert "1 of 3 runs" in page


def test_tries_of_an_account_count_under_every_model_name(tmp_path: Path) -> None:
    for at in range(4):
        land(run(tmp_path, f"try-{at}", model=f"Model {at % 3}"), "alice")
    assert {row.account_tries for row in shown(tmp_path).rows} == {0}  # a store of one's own
    land(run(tmp_path, "other"), "bob")
    tries = {(row.entry.account, row.entry.result.model.name): row.account_tries for row in shown(tmp_path).rows}
    assert tries == {("alice", "Model 0"): 4, ("alice", "Model 1"): 4, ("alice", "Model 2"): 4, ("bob", "GPT-4o"): 1}
    page = Service(Board(tmp_path)).view({"format": FORMAT})["html"]
    assert page.count("1 of 4 tries by this account") == 3 and "1 of 1 tries" not in page


def test_a_stranger_neither_replaces_nor_joins_anothers_model(tmp_path: Path) -> None:
    land(run(tmp_path, "honest", created_at="2026-01-01T00:00:00+00:00"), "alice", "2026-11-20T00:00:00+00:00")
    land(
        run(tmp_path, "newest", skill=0.9, created_at="9999-01-01T00:00:00+00:00", name="best"),
        "mallory",
        "2026-11-21T00:00:00+00:00",
    )
    standings = shown(tmp_path)
    assert sorted(names(standings)) == [("honest", "alice", "ranked"), ("newest", "mallory", "ranked")]
    page = Service(Board(tmp_path)).view({"format": FORMAT})["html"]
    assert "GPT-4o (alice)" in page and "GPT-4o (mallory)" in page and "measured · alice" in page


def test_what_the_owner_reproduced_comes_before_anything_else(tmp_path: Path) -> None:
    land(run(tmp_path, "first"), "alice", "2026-11-20T00:00:00+00:00")
    land(run(tmp_path, "reproduced", provenance="reproduced", name="ff"), "alice", "2026-11-25T00:00:00+00:00")
    assert names(shown(tmp_path)) == [("reproduced", "alice", "ranked")]
    page = Service(Board(tmp_path)).view({"format": FORMAT, "shown": "all"})["html"]
    sources = [re.search(rf'data-key="[^"]*/{name}".*?</tr>', page)[0] for name in ("first", "reproduced")]  # type: ignore[index]
    assert ["measured · alice" in row for row in sources] == [True, False]
    assert ["measured · by us" in row for row in sources] == [False, True]


def test_default_settings_come_before_an_earlier_landing(tmp_path: Path) -> None:
    land(run(tmp_path, "many-samples", samples=16), "alice", "2026-11-01T00:00:00+00:00")
    land(run(tmp_path, "plain"), "alice", "2026-11-20T00:00:00+00:00")
    assert names(shown(tmp_path)) == [("plain", "alice", "ranked")]


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


def test_flags_and_abstentions_are_shown_and_exported(tmp_path: Path) -> None:
    folder = run(tmp_path, "run")
    land(folder, "=cmd()", flags=["nearly perfect", "half <i>seen</i>"])
    service = Service(Board(tmp_path))
    page = service.view({"format": FORMAT})["html"]
    assert "flagged" in page and "accuracy where answered" in page and "<i>seen" not in page
    (section,) = service.board.snapshot.sections[FORMAT]
    detail = service.detail({"format": FORMAT, "key": section.entries[0].key})
    assert "nearly perfect" in detail and "&lt;i&gt;seen" in detail and "=cmd()" in detail
    (row,) = json.loads(service.export({"format": FORMAT, "as": "json"})["text"])
    raw = section.entries[0].result.scores
    assert row["abstained"] == pytest.approx(raw["abstained"].value) and row["answered_accuracy"] == pytest.approx(
        raw["answered_accuracy"].value
    )
    assert (
        row["account"] == "=cmd()" and row["flags"] == "nearly perfect; half <i>seen</i>" and row["group"] == "ranked"
    )
    body = service.export({"format": FORMAT, "as": "csv"})["text"]
    assert not re.search(r'(^|,)"?[=+]cmd', body, re.MULTILINE)
    leaderboard = tools(service.board)[1]
    assert leaderboard(FORMAT)[0]["runs_tried"] == 1
