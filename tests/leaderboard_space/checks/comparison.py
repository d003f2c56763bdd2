"""Check the page Compare over a generated store, against paired tests of the units in its raw
files.

See also: the other pages (`pages.py`).
"""

import json
import re
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from eval_harness.scores.comparisons import compare_pairwise, correct_for_ranks, holm_adjust, pack_outcomes, paired_test
from leaderboard_space import comparing, sentences
from leaderboard_space.comparing import SLOTS, Comparison
from leaderboard_space.data.board import Board
from leaderboard_space.data.ranks.standings import metric_info
from leaderboard_space.data.sections import Section
from leaderboard_space.html import text
from leaderboard_space.service import Service
from leaderboard_space.views import cases, compare
from tests.leaderboard_space.checks.claims import check_words, plain
from tests.leaderboard_space.generated import Raw, apart


def check_comparison(board: Board, family: str, section: Section, truth: dict[str, Raw]) -> None:
    """Check the finding of the page Compare against the paired test of the two runs' own units."""
    key = f"{family}/{section.key}"
    page = check_words(compare.page(board, {"set": key}))
    cases_page = cases.page(board, {"set": key, "order": "wrong"})
    if f'value="{key}" selected' in cases_page and cases.UNREADABLE not in cases_page:
        question_table = pd.read_parquet(board.store / "questions" / f"{section.fingerprint}.parquet")  # type: ignore[operator]
        number = question_table["case_id"].nunique()
        assert f'<h2 class="finding" data-title="Cases">{number} case{"" if number == 1 else "s"}.</h2>' in cases_page
    answered = [entry for entry, first_run in truth.items() if first_run.units is not None]
    if f'value="{key}" selected' not in page or len(answered) < 2:
        return
    if "no known score in common" in page:
        assert all(score.value is None for entry in answered for score in truth[entry].scores.values()), page[:300]
        return
    cases_page = comparing.load_comparison(board, {"set": key})
    assert cases_page is not None
    chosen = [entry.key for entry in cases_page.chosen]
    for entry in cases_page.chosen:
        assert text(cases_page.names[entry.key], 300) in page
    metric = re.search(r'data-name="metric">.*?value="([^"]*)" selected', page)[1]  # type: ignore[index]
    finding = plain(re.search(r'<h2 class="finding">(.*?)</h2>', page)[1])  # type: ignore[index]
    first_run, second_run = (truth[name] for name in chosen)
    if first_run.scores[metric].value is None or second_run.scores[metric].value is None:
        assert "cannot be compared" in finding, finding
        return
    test = paired_test(first_run.units, second_run.units, metric)  # type: ignore[arg-type]
    assert test.difference >= 0, test  # the higher score comes first
    corrected = cases_page.differences(metric)[0].corrected
    if test.p >= 0.05:
        assert "do not differ significantly" in finding, (finding, test)
    else:
        word = {True: "better than", False: "worse than", None: "above"}[metric_info(metric, family).higher_is_better]
        sure = "significantly " if corrected < 0.05 else ""
        assert finding.endswith("but not significantly in the ranking.") == (not sure), finding
        assert re.match(rf"{first_run.result.model.name}( \(.*?\))?( · .*)? is {sure}{word} ", finding), (
            finding,
            test,
        )
    counts = (test.only_a, test.only_b, test.n - test.only_a - test.only_b)
    sentence = re.search(r" scored more on ([\d,]+) [\w ]+, .+? on ([\d,]+); ([\d,]+) were alike", plain(page))
    assert sentence and tuple(int(number.replace(",", "")) for number in sentence.groups()) == counts
    check_default(cases_page, truth, metric, plain(page))
    check_flips(plain(page), cases_page, first_run, second_run, metric)
    check_saved(board, {"set": key}, truth, 1)
    if len(answered) > 2:
        three = {"set": key, "metric": metric, **dict(zip(SLOTS, answered[:3], strict=False))}
        rows = check_saved(board, three, truth, 3)
        if len(rows) == 3:
            sure = sum(row["p_corrected"] < 0.05 and abs(row["difference"]) > 1e-9 for row in rows)
            words = [
                "None of 3 pairs differs",
                "One of 3 pairs differs",
                "Two of 3 pairs differ",
                "Three of 3 pairs differ",
            ]
            assert f"{words[sure]} significantly in " in plain(compare.page(board, three))


def check_saved(board: Board, request: dict[str, str], truth: dict[str, Raw], pairs: int) -> list[dict[str, Any]]:
    """Check that every score of every pair has the p-value of its paired test, corrected for all
    pairs (Holm), and that the page shows it; also the rows of the chosen score.
    """
    page, rows = (
        compare.page(board, request),
        json.loads(compare.file(board, {**request, "as": "json"})["text"]),
    )
    metric = re.search(r'data-name="metric">.*?value="([^"]*)" selected', page)[1]  # type: ignore[index]
    for row in (row for row in rows if "difference" in row):
        first_units, second_units = (truth[row[side]].units for side in ("first_run", "second_run"))
        test = paired_test(first_units, second_units, row["metric"])  # type: ignore[arg-type]
        for name in ("difference", "low", "high", "p"):
            assert abs(row[name] - getattr(test, name)) < 1e-4, (row, test)
        assert (row["test"], row["units"], row["only_first"]) == (test.method, test.n, test.only_a)
        assert (row["p"] < 0.05) == (row["low"] > 0 or row["high"] < 0), row
        if pairs == 1 or row["metric"] == metric:
            assert (
                sentences.format_difference_interval(*sorted((row["low"], row["high"]))) in plain(page)
                or row["difference"] < 0
            )
    chosen = [row for row in rows if row["metric"] == metric and "difference" in row]
    check_corrected(board, request, chosen, truth, metric)
    return chosen


def check_corrected(
    board: Board, request: dict[str, str], pairs: list[dict[str, Any]], truth: dict[str, Raw], metric: str
) -> None:
    """Check the correction for several pairs: it is the leaderboard's correction of its ranks,
    computed here from the raw files; results that it does not rank together are corrected for the
    chosen pairs alone.

    So a significantly better result is ahead on the leaderboard, and one that shares rank 1 is not
    beaten.
    """
    family, _, key = request["set"].partition("/")
    keys = {row[side] for row in pairs for side in ("first_run", "second_run")}
    for result_filter in ("one", "all"):
        parameters = {"format": family, "section": key, "metric": metric, "shown": result_filter, "as": "json"}
        table = json.loads(Service(board).export(parameters)["text"])
        ranked = {row["run"]: row for row in table if row["place_first"] is not None and row["group"] == "ranked"}
        if not keys <= ranked.keys():
            continue
        for row in pairs:
            first_rank, second_rank = (ranked[row[side]]["place_first"] for side in ("first_run", "second_run"))
            behind = (
                second_rank
                if (row["difference"] > 0) == (metric_info(metric, family).higher_is_better is not False)
                else first_rank
            )
            assert row["p_corrected"] >= 0.05 or behind > 1, (row, first_rank, second_rank)
        if all(truth[run].units is not None for run in ranked):
            names = list(ranked)
            matrix = compare_pairwise(pack_outcomes({run: truth[run].units for run in names}, metric))  # type: ignore[misc]
            up = metric_info(metric, family).higher_is_better is not False
            expected = correct_for_ranks(matrix.value, matrix.p, up)
            for row in pairs:
                at = names.index(row["first_run"]), names.index(row["second_run"])
                assert abs(row["p_corrected"] - expected[at]) < 1e-4, (row, expected[at])
        return
    adjusted = holm_adjust(np.array([row["p"] for row in pairs]))
    assert all(any(abs(row["p_corrected"] - p) < 1e-9 for p in adjusted) for row in pairs) or len(pairs) < 1


def check_default(comparison: Comparison, truth: dict[str, Raw], metric: str, page: str) -> None:
    """If no result is named, a result with the best ranked score is compared with another model,
    and the page says that this is an example.
    """
    values = {
        key: raw.scores[metric].value or 0.0
        for key, raw in truth.items()
        if raw.units is not None
        and key not in apart(truth)
        and raw.result.model.kind != "baseline"
        and raw.scores[metric].value is not None
    }
    first_key, second_key = (entry.key for entry in comparison.chosen)
    assert comparison.is_example and sentences.EXAMPLE_NOTE in page
    if len({truth[key].result.model.name for key in values}) > 1:
        assert values[first_key] == max(values.values()), (first_key, values)
        assert truth[first_key].result.model.name != truth[second_key].result.model.name


def check_flips(page: str, compared: Comparison, first_run: Raw, second_run: Raw, metric: str) -> None:
    """Check on how many units two results differ, in how many cases, and how many units each got
    right alone.
    """
    first_units, second_units = (
        run.units[run.units["metric"] == metric].set_index("unit") for run in (first_run, second_run)
    )  # type: ignore[index]
    differ = first_units[first_units["numerator"] != second_units.loc[first_units.index, "numerator"]]
    run = re.search(r" differ on ([\d,]+) scored units? in ([\d,]+) cases?", page)
    counts = [int(number.replace(",", "")) for number in run.groups()] if run else [0, 0]
    assert counts == [len(differ), differ["case_id"].nunique()], (counts, len(differ))
    won = Counter({row["unit"]: row["higher_here"] for row in compare.flip_rows(compared)}.values())
    ahead = int((differ["numerator"] > second_units.loc[differ.index, "numerator"]).sum())
    assert [won[compared.name(entry)] for entry in compared.chosen] == [ahead, len(differ) - ahead], won
