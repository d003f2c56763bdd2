"""The page Compare over a generated store, held against the paired tests of its raw files' own units.

See also: the other pages (`pages.py`).
"""

from __future__ import annotations

import html
import re
from collections import Counter
from itertools import combinations

import numpy as np
import pandas as pd

from eval_harness.scores.comparisons import PairedTest, paired_test
from leaderboard_space import comparing, sentences
from leaderboard_space.comparing import SLOTS, Comparison
from leaderboard_space.data.board import Board
from leaderboard_space.data.ranks.standings import info_of
from leaderboard_space.data.store.sections import Section
from leaderboard_space.html import text
from leaderboard_space.views import cases, compare
from tests.leaderboard_space.checks.claims import check_words, plain, rounds_to
from tests.leaderboard_space.generated import Raw, apart


def check_comparison(board: Board, family: str, section: Section, truth: dict[str, Raw]) -> None:
    """The finding of the page Compare, against the paired test of the two runs' own units."""
    key = f"{family}/{section.key}"
    page = check_words(compare.page(board, {"set": key}))
    found = cases.page(board, {"set": key, "order": "wrong"})
    if f'value="{key}" selected' in found and cases.UNREADABLE not in found:
        of = pd.read_parquet(board.store / "questions" / f"{section.fingerprint}.parquet")  # type: ignore[operator]
        number = of["case_id"].nunique()
        assert f'<h2 class="finding" data-title="Cases">{number} case{"" if number == 1 else "s"}.</h2>' in found
    answered = [entry for entry, one in truth.items() if one.units is not None]
    if f'value="{key}" selected' not in page or len(answered) < 2:
        return
    if "no known score in common" in page:
        assert all(score.value is None for entry in answered for score in truth[entry].scores.values()), page[:300]
        return
    found = comparing.compared(board, {"set": key})
    assert found is not None
    chosen = [entry.key for entry in found.chosen]
    for entry in found.chosen:
        assert text(found.named[entry.key], 300) in page
    metric = re.search(r'data-name="metric">.*?value="([^"]*)" selected', page)[1]  # type: ignore[index]
    finding = plain(re.search(r'<h2 class="finding">(.*?)</h2>', page)[1])  # type: ignore[index]
    one, other = (truth[name] for name in chosen)
    if one.scores[metric].value is None or other.scores[metric].value is None:
        assert "cannot be compared" in finding, finding
        return
    test = paired_test(one.units, other.units, metric)  # type: ignore[arg-type]
    if test.p >= 0.05:
        assert "do not differ significantly" in finding, (finding, test)
    else:
        upper = one if test.difference > 0 else other
        word = {True: "better than", False: "worse than", None: "above"}[info_of(metric, family).higher_is_better]
        assert re.match(rf"{upper.result.model.name}( \(.*?\))?( · .*)? is significantly {word} ", finding), (
            finding,
            test,
        )
        assert _near(re.search(r" by (\S+) points of ", finding)[1], abs(test.difference)), (finding, test)  # type: ignore[index]
    check_default(found, truth, metric, plain(page))
    check_compared_in_full(plain(page), test)
    check_every_score(page, family, one, other)
    check_flips(plain(page), found, one, other, metric)
    if len(answered) > 2:
        check_three(
            compare.page(board, {"set": key, **dict(zip(SLOTS, answered[:3], strict=False))}),
            [truth[name] for name in answered[:3]],
        )


def check_default(found: Comparison, truth: dict[str, Raw], metric: str, page: str) -> None:
    """Where no result is named, the best of those ranked is compared with another model, and the page says that it is an example."""
    values = {
        key: one.scores[metric].value or 0.0
        for key, one in truth.items()
        if one.units is not None
        and key not in apart(truth)
        and one.result.model.kind != "baseline"
        and one.scores[metric].value is not None
    }
    first, second = (entry.key for entry in found.chosen)
    assert found.is_example and sentences.EXAMPLE in page
    if len({truth[key].result.model.name for key in values}) > 1:
        assert values[first] == max(values.values()), (first, values)
        assert truth[first].result.model.name != truth[second].result.model.name


def check_three(page: str, three: list[Raw]) -> None:
    """The finding of three results: how many of their pairs differ significantly, corrected for all (Holm)."""
    metric = re.search(r'data-name="metric">.*?value="([^"]*)" selected', page)
    if metric is None or any(one.scores[metric[1]].value is None for one in three):
        return
    tests = [paired_test(one.units, other.units, metric[1]) for one, other in combinations(three, 2)]  # type: ignore[arg-type]
    tests.sort(key=lambda test: test.p)
    corrected = np.maximum.accumulate([test.p * (3 - at) for at, test in enumerate(tests)])
    sure = sum(p < 0.05 and abs(test.difference) > 1e-9 for p, test in zip(corrected, tests, strict=True))
    words = ["None of 3 pairs differs", "One of 3 pairs differs", "Two of 3 pairs differ", "Three of 3 pairs differ"]
    assert f"{words[sure]} significantly in " in plain(
        page
    ) and "Tested: 3 pairs on the same answers (paired)." in plain(page), (sure, page[:3000])
    rows = re.findall(
        r"<td[^>]*>([^<]*) to ([^<]*)</td><td[^>]*>p (=|&lt;) ([\d.]+)( \(under 0.05\))?</td>"
        r"<td[^>]*>(not )?significant, p [^<]*</td>",
        page,
    )
    assert len(rows) == 3 and sum(not row[5] for row in rows) == sure, (rows, sure)
    assert "Different? (corrected for 3 comparisons)" in page and "Significance is corrected for 3 comparisons" in page
    for low, high, sign, p, under, no in rows:  # the interval and the p-value beside it; the mark is corrected
        assert excludes_0(low, high) == (sign != "=" or float(p) < 0.05 or bool(under)), rows
        assert no or excludes_0(low, high), rows


def excludes_0(low: str, high: str) -> bool:
    """True if an interval, as it is shown, excludes 0."""
    ends = [float(end.replace("−", "-").replace("+", "")) for end in (low, high)]
    return ends[0] > 0 or ends[1] < 0


def _near(said: str, value: float) -> bool:
    """True if a number with one digit is the value, which was computed from sums of 32-bit numbers."""
    return abs(float(said.replace("−", "-")) - value) <= 0.05 + 1e-5


def check_compared_in_full(page: str, test: PairedTest) -> None:
    """What stands under the finding of two results, against their paired test."""
    found = re.search(
        r"Difference (\S+) points \(95% interval (\S+) to (\S+); p ([<=]) ([\d.]+)(?: \(under 0.05\))?, ([^)]*(?:\([^)]*\))?[^)]*)\)\. "
        r".+? scored more on ([\d,]+) \w+, .+? on ([\d,]+); ([\d,]+) were alike",
        page,
    )
    assert found, page[:2000]
    assert test.difference >= 0, test  # who scored more stands first
    for said, value in zip(found.groups()[:3], (test.difference, test.low, test.high), strict=True):
        assert _near(said, value), (found[0], test)
    assert test.p < 0.001 if found[4] == "<" else abs(float(found[5]) - test.p) < 0.00051, (found[0], test)
    counts = [int(number.replace(",", "")) for number in found.groups()[6:]]
    assert counts == [test.only_a, test.only_b, test.n - test.only_a - test.only_b], (found[0], test)
    assert found[6] == test.method, (found[0], test)
    assert (test.p < 0.05) == excludes_0(*found.groups()[1:3]), (found[0], test)


def check_every_score(page: str, family: str, one: Raw, other: Raw) -> None:
    """The table of every score of two results: values, differences, intervals, and which are significant."""
    table = re.search(r'<table class="plain[^>]*data-table="scores".*?</table>', page, re.DOTALL)
    named = {info_of(metric, family).label: metric for metric in one.scores}
    row = re.compile(
        r'<tr><th scope="row">(.*?)</th><td[^>]*>(.*?)</td><td[^>]*>(.*?)</td><td[^>]*>(?:<b>(.*?)</b> \((.*?)\), )?(.*?)</td></tr>'
    )
    for label, left, right, difference, ends, mark in row.findall(table[0] if table else ""):
        metric = named[html.unescape(label)]
        values = [found.scores[metric].value for found in (one, other)]
        assert all(
            rounds_to(said, value) if value is not None else said == "–"
            for said, value in zip((left, right), values, strict=True)
        ), (label, left, right)
        if None in values:
            assert mark == "not comparable", (label, mark)
            continue
        test = paired_test(one.units, other.units, metric)  # type: ignore[arg-type]
        low, _, high = ends.partition(" to ")
        assert _near(difference, test.difference) and _near(low, test.low) and _near(high, test.high), (
            label,
            ends,
            test,
        )
        sure = test.p < 0.05 and abs(test.difference) > 1e-9
        assert mark == ("significant" if sure else "not significant"), (label, mark, test)
        assert sure == excludes_0(low, high), (label, ends)


def check_flips(page: str, compared: Comparison, one: Raw, other: Raw, metric: str) -> None:
    """How many units two results differ on, in how many cases, and of how many units each got more."""
    left, right = (found.units[found.units["metric"] == metric].set_index("unit") for found in (one, other))  # type: ignore[index]
    differ = left[left["numerator"] != right.loc[left.index, "numerator"]]
    found = re.search(r" differ on ([\d,]+) scored units? in ([\d,]+) cases?", page)
    counts = [int(number.replace(",", "")) for number in found.groups()] if found else [0, 0]
    assert counts == [len(differ), differ["case_id"].nunique()], (counts, len(differ))
    won = Counter({row["unit"]: row["higher_here"] for row in compare.flip_rows(compared)}.values())
    ahead = int((differ["numerator"] > right.loc[differ.index, "numerator"]).sum())
    assert [won[compared.name(entry)] for entry in compared.chosen] == [ahead, len(differ) - ahead], won
