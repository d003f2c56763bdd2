"""Check that the board computes the same for a selection as scoring those questions alone."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from eval_harness.derive.metrics import METRICS
from eval_harness.derive.run_files import read_readings
from eval_harness.derive.scoring import compute_units
from eval_harness.records.result import Score
from eval_harness.scores.comparisons import compare_pairwise, compute_unpaired_differences, pack_outcomes, paired_test
from eval_harness.scores.intervals import clustered_interval, verdict_against_chance
from eval_harness.scores.ranks import compute_rank_ranges
from leaderboard_space.data.board import Board
from leaderboard_space.data.outcomes import Outcomes, read_outcomes
from leaderboard_space.data.ranks.standings import compute_standings
from leaderboard_space.data.unit_scores import MetricUnits, pairwise_p_values, score_runs
from tests.leaderboard_space.stores import make_store, questions

FIELDS = ("value", "low", "high", "n", "n_cases", "n_effective", "chance", "verdict")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("board"))


def load(store: Path, family: str) -> Outcomes:
    board = Board(store)
    loaded = board.outcomes(board.snapshot.sections[family][0])
    assert loaded is not None and loaded[0] is not None
    return loaded[0]


@pytest.mark.parametrize("metric", ["set_accuracy", "confusion"])
def test_the_board_and_compare_use_one_test(store: Path, metric: str) -> None:
    board = Board(store)
    section = board.snapshot.sections["mediconfusion"][0]
    outcomes, tree = board.outcomes(section) or (None, None)
    assert outcomes is not None and tree is not None
    rows = compute_standings(section, outcomes, tree, metric).models
    measured = {row.entry.key: read_readings(row.entry.folder) for row in rows if row.from_answers and row.entry.folder}
    by_key = {key: compute_units("mediconfusion", outcomes.questions, readings) for key, readings in measured.items()}
    pairs = compare_pairwise(pack_outcomes(by_key, metric))
    board_p = pairwise_p_values(
        outcomes.metrics[metric].part(runs=np.array([outcomes.runs.index(key) for key in pairs.models]))
    )
    assert len(pairs.models) > 2
    for i, upper in enumerate(pairs.models):
        for j, lower in enumerate(pairs.models[:i]):
            expected = paired_test(by_key[upper], by_key[lower], metric).p
            assert board_p[i, j] == pytest.approx(expected, rel=1e-6), (upper, lower)
    if len(rows) == len(measured):
        ranks = compute_rank_ranges(pairs.value, pairs.p, METRICS[metric].higher_is_better is not False)
        for row in rows:
            index = pairs.models.index(row.entry.key)
            assert (row.best_rank, row.worst_rank) == (ranks.best_rank[index], ranks.worst_rank[index])
            differing, value = np.flatnonzero(ranks.differs[index]), pairs.value
            up = METRICS[metric].higher_is_better is not False
            ahead = sum((value[lower] > value[index]) == up and value[lower] != value[index] for lower in differing)
            assert (row.ahead, row.behind) == (ahead, len(differing) - ahead)


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


def test_runs_with_no_selection_in_common_are_undefined(store: Path) -> None:
    outcomes = load(store, "halt-medvqa")
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
