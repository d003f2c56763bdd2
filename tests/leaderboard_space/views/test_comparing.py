"""Test comparisons of two and more results: paired where answers are known, otherwise by their
printed numbers.
"""

import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import medprobe
from eval_harness.derive.metrics import compute_units
from eval_harness.records.result import Score
from eval_harness.scores.comparisons import compute_unpaired_difference, paired_test
from eval_harness.scores.intervals import printed_interval
from leaderboard_space import sentences
from leaderboard_space.comparing import load_comparison
from leaderboard_space.data import published_results
from leaderboard_space.data.board import Board
from leaderboard_space.service import Service
from leaderboard_space.views import compare
from tests.helpers import write_lines
from tests.leaderboard_space.checks.claims import plain, rounds_to
from tests.leaderboard_space.stores import add_run, answers, change, questions


def of_answers(value: float, n: int, sharing: float) -> Score:
    """Return a printed score with its interval."""
    interval = printed_interval(value, n, (1.0, sharing))
    ends = {"low": 100 * interval.low, "high": 100 * interval.high, "n_effective": interval.n_effective}
    return Score(value=value, n=n, n_cases=n, **ends)


SHARES = st.builds(of_answers, st.floats(0, 100), st.integers(1, 30_000), st.floats(1, 9))


@given(SHARES, SHARES, st.booleans())
def test_a_verdict_against_a_random_run_is_what_the_test_of_the_two_says(score: Score, run: Score, up: bool) -> None:
    """Each keeps its own interval; where the two do not overlap, the verdict is never "no
    different".
    """
    difference, p = (
        published_results.with_run_verdict(score, run, "accuracy" if up else "confusion"),
        compute_unpaired_difference(score, run)[2],
    )
    fields = ("value", "low", "high", "n", "n_effective", "interval_method")
    assert all(getattr(difference, name) == getattr(score, name) for name in fields)
    if score.is_small or run.is_small:
        assert difference == score
        return
    assert difference.chance == run.value and difference.chance_interval == (run.low, run.high)
    assert abs(p - 0.05) < 1e-6 or (difference.verdict == "no different") == (p >= 0.05)
    assert difference.verdict == "no different" or (difference.verdict == "better") == ((score.value > run.value) == up)  # type: ignore[operator]
    is_apart = score.low > run.high or score.high < run.low  # type: ignore[operator]
    assert not (is_apart and difference.verdict == "no different"), (score, run)
    # an exact chance takes precedence over the run
    exact = score.model_copy(update={"chance": 25.0, "verdict": "no different"})
    assert published_results.with_run_verdict(exact, run, "accuracy") == exact


def test_published_numbers_are_compared_without_answers(papers_board: Service) -> None:
    """As on the day of launch: two models of Table 1 are compared, and the sentence names them."""
    page = compare.page(
        papers_board.board, {"set": "mediconfusion/test.complete", "first": "Gemini 2.0 Flash", "second": "o1"}
    )
    page_text = plain(page)
    assert (
        "do not differ significantly in set accuracy" in page_text
        and "unpaired: only the published scores are known" in page_text
    )
    rows = json.loads(
        compare.file(
            papers_board.board,
            {"set": "gmai-mmbench/test.complete", "first": "GPT-4o", "second": "RadFM", "as": "json"},
        )["text"]
    )
    (row,) = rows
    assert (row["first_value"], row["second_value"]) == (53.96, 22.93) and math.isclose(row["difference"], 31.03)
    assert row["low"] < 31.03 < row["high"] and row["p"] < 0.001 and row["test"].startswith("unpaired")
    other_name = {"set": "mediconfusion/test.complete", "first": "Gemini 2.0 Flash", "second": "o1"}
    assert plain(compare.page(papers_board.board, {**other_name, "second": "gpt-4o-2024-08-06"})).count("GPT-4o") > 1
    for key, page_text in (
        ("set", "Set of questions no/where: not on this board"),
        ("metric", "Score no/where: not known for these results"),
    ):
        assert page_text in compare.page(papers_board.board, {**other_name, key: "no/where"})
    assert "Another one is shown" not in page
    missing = compare.page(papers_board.board, {"first": "<i>nobody</i>"})
    assert "<i>nobody" not in missing and "There is no result named" in missing


def test_a_mixed_comparison_is_paired_only_where_answers_are(tmp_path: Path) -> None:
    question_table = questions("halt-medvqa", 60)
    given_ = {
        name: answers(question_table, skill, seed=at)
        for at, (name, skill) in enumerate([("One", 0.2), ("Two", 0.8), ("Three", 0.5)])
    }
    for name, answer_table in given_.items():
        add_run(tmp_path, "halt-medvqa", question_table, answer_table, name)
    next((tmp_path / "results/halt-medvqa").glob("Three/*/units.parquet")).unlink()
    (warm,) = (tmp_path / "results/halt-medvqa").glob("One/*")
    change(warm, lambda result: result["method"].update(generation={"temperature": 0.5}))
    board = Board(tmp_path)
    comparison = load_comparison(board, {"first": "One", "second": "Two", "third": "Three"})
    assert comparison is not None
    (row,) = compare.setting_rows(comparison)
    assert [row[name] for name in ("setting", "first", "second", "third")] == ["temperature", "0.5", None, None]
    pairs = {
        (pair.entry_a.result.model.name, pair.entry_b.result.model.name): pair
        for pair in comparison.differences("average")
    }
    assert pairs["One", "Two"].is_paired and not pairs["One", "Three"].is_paired and not pairs["Two", "Three"].is_paired
    paired = paired_test(
        compute_units("halt-medvqa", question_table, given_["One"]),
        compute_units("halt-medvqa", question_table, given_["Two"]),
        "average",
    )
    assert math.isclose(pairs["One", "Two"].value, paired.difference, abs_tol=1e-6) and math.isclose(
        pairs["One", "Two"].p, paired.p, rel_tol=1e-6
    )
    assert pairs["One", "Two"].corrected >= paired.p


def test_answers_are_shown_as_texts_with_a_link_to_the_case(tmp_path: Path) -> None:
    question_table = questions("gmai-mmbench", 30)
    for name, skill in (("One", 0.1), ("Two", 0.9)):
        add_run(tmp_path, "gmai-mmbench", question_table, answers(question_table, skill, seed=3), name)
    board = Board(tmp_path)
    rows = json.loads(compare.file(board, {"of": "flips", "as": "json"})["text"])
    texts = {row.question_id: list(row.options) for row in question_table.itertuples()}
    assert rows
    for row in rows:
        for answer in (row["key"], row["first_answer"], row["second_answer"]):
            letter, _, option_text = answer.partition(" ")
            assert answer in ("refused", "irrelevant") or texts[row["question_id"]][ord(letter) - 65] == option_text
    page = compare.page(board, {})
    assert len(re.findall(r'href="#/cases/\w+\?set=[^"]*first=[^"]*second=', page)) == min(len(rows), compare.MAX_FLIPS)


@given(st.floats(0, 1))
def test_a_p_value_never_looks_larger_or_smaller_than_the_level(p: float) -> None:
    formatted = sentences.format_p_value(p)
    if formatted == "p < 0.001":
        assert p < 0.001
        return
    number = re.match(r"p = (\S+)", formatted)
    assert number and rounds_to(number[1], p)
    assert ("under 0.05" in formatted) == (p < 0.05 and number[1] == "0.050")


@pytest.mark.exhaustive
def test_bars_of_causes_add_up_to_the_difference(phantoms: Path, tmp_path: Path) -> None:
    """The bars agree with `medprobe.why`; a comparison of three results, or on a selection, has no
    bars.
    """
    data = phantoms / "gmai-mmbench"
    keys = {
        row["question_id"]: "ABCDEFGH"[row["answer"][0]]
        for row in medprobe.open_dataset(data).questions("validation").to_dict("records")
    }
    letters = {
        "Right": lambda key: key,
        "Shifted": lambda key: chr(ord(key) + 1),
        "Mute": lambda key: "No idea, really.",
    }
    folders = {}
    for name, letter in letters.items():
        records = [{"question_id": question, "response": letter(key)} for question, key in keys.items()]
        file = write_lines(tmp_path / f"{name}.jsonl", records)
        folders[name] = medprobe.submit(
            file, tmp_path / "store", benchmark="gmai-mmbench", model=name, data=data
        ).location
    board = Board(tmp_path / "store", [])
    request = {"first": "Right", "second": "Shifted"}
    rows = json.loads(compare.file(board, {**request, "of": "causes", "as": "json"})["text"])
    table = medprobe.why(folders["Right"], folders["Shifted"])
    assert [row["factor"] for row in rows] == table["factor"].tolist()
    assert rows[0]["factor"] == "letters shifted by one"
    assert [row["points"] for row in rows] == pytest.approx(table["points"].tolist())
    page = compare.page(board, request)
    assert "Why first − second is +100.0 points" in plain(page)
    ends = [
        (float(left), float(width)) for left, width in re.findall(r'"bar" style="left:([\d.]+)%;width:([\d.]+)%"', page)
    ]
    assert ends[-len(rows) :] == [(0, 100), (100, 0)]
    assert "Each bar begins" not in compare.page(board, {**request, "third": "Mute"})
