"""Check every page of the board over a generated store against scores, and paired tests of units,
computed from its raw files.

See also: the stores (`generated.py`), what a sentence claims (`claims.py`).
"""

import html
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from eval_harness.derive.metrics import HEADLINE_METRICS, METRICS
from eval_harness.records.result import Result, Score
from eval_harness.scores.comparisons import compare_pairwise, correct_for_ranks, holm_adjust, pack_outcomes, paired_test
from eval_harness.store.contents import Submission
from leaderboard_space import comparing, sentences
from leaderboard_space.benchmarks import metric_info
from leaderboard_space.comparing import SLOTS, Comparison
from leaderboard_space.data.board import Board
from leaderboard_space.data.sections import Section
from leaderboard_space.html import interval, score_text, text
from leaderboard_space.sentences import MIN_CASES, VERDICT_SIGNS
from leaderboard_space.service import Service
from leaderboard_space.views import cases, compare, model, overview, submit
from tests.leaderboard_space.checks.claims import (
    SIGNS,
    Truth,
    check_caption,
    check_headline,
    check_model_verdicts,
    check_trust,
    check_words,
    plain,
    rounds_to,
)
from tests.leaderboard_space.generated import APART, CASES, FACET, Raw, apart, raw

VERDICT_WORDS = {
    "better": "significantly better than",
    "worse": "significantly worse than",
    "no different": "not significantly different from",
}

NOTHING = Score(value=None, n=0, n_cases=0)


def check_store(store: Path, family: str, extra: list[Result]) -> int:
    """Check every page of the board over a store; return how many pages were checked. Raises
    AssertionError.
    """
    board = Board(store, extra)
    service = Service(board)
    pages, truths = 0, []
    for section in board.snapshot.sections[family]:
        truth = raw(store, section)
        truths.append(truth)
        set_request = {"format": family, "section": section.key, "shown": "all"}
        chooser = re.search(r'<select data-name="metric">(.*?)</select>', service.view(set_request)["html"])
        labels = {label for entry_truth in truth.values() for label in entry_truth.cells.get(FACET.get(family, ""), {})}
        for metric in re.findall(r'<option value="([^"]*)"', chooser[1] if chooser else ""):
            for cell in [None, *((FACET[family], label) for label in sorted(labels)[:1])]:
                request = {**set_request, "metric": metric, "branches": [list(cell)] if cell else []}
                view = service.view(request)
                if view["state"]["metric"] == metric:
                    check_panel(service, request, check_words(view["html"]), truth, cell)
                    pages += 1
        check_breakdown(service, set_request, truth)
        check_comparison(board, family, section, truth)
        check_details(service, family, section, truth)
        pages += 3
    if not board.snapshot.sections[family]:
        assert "No results yet." in service.view({"format": family})["html"]
    else:
        check_front(service, family, truths)
    return pages


def is_saved(row: dict[str, Any], score: Score) -> None:
    """Raise AssertionError if a saved row differs from this score. A printed score may have gained
    an interval.
    """
    names = ("value", "low", "high", "chance", "verdict") if score.low is not None else ("value", "chance", "verdict")
    for name in names:
        saved_value, raw_value = row[name], getattr(score, name)
        assert saved_value == raw_value or (saved_value is not None and abs(saved_value - raw_value) < 1e-6), (
            name,
            row,
            score,
        )
    assert (row["n"], row["n_cases"]) == (score.n, score.n_cases), (row, score)


def check_panel(
    service: Service, request: dict[str, Any], page: str, truth: dict[str, Raw], cell: tuple[str, str] | None
) -> None:
    """Check that the saved table is true, that the page shows it, and that its headline and caption
    follow from it.
    """
    family, metric = request["format"], request["metric"]
    info, stand_apart, scores = metric_info(metric), apart(truth), dict[str, Score]()
    exported = service.export({**request, "as": "json"})["text"] if "data-key" in page else "[]"
    saved = {row["run"]: row for row in json.loads(exported)}
    groups = {
        html.unescape(key): plain(body.partition("</th>")[0]) if 'class="group"' in body else ""
        for body in page.split("<tbody>")[1:]
        for key in re.findall(r'<tr class="k-[^"]*" data-key="([^"]*)"', body)
    }
    assert set(groups) == set(saved)
    for key, row in saved.items():
        raw_scores = truth[key].scores if cell is None else truth[key].cells.get(cell[0], {}).get(cell[1], {})
        score = scores[key] = raw_scores.get(metric, NOTHING)
        is_saved(row, score)
        for name in ("abstained", "answered_accuracy"):
            assert row[name] is None or abs(row[name] - (raw_scores[name].value or 0)) < 1e-6, (row, raw_scores)
        if score.nonresponse is not None and stand_apart.get(key) in (None, "official"):
            stand_apart[key] = "silent"
        line = page.split(f'data-key="{html.escape(key)}"')[1].partition("</tr>")[0]
        place, value, ends, n = (
            plain(re.search(rf'<td class="{kind}"[^>]*>(.*?)</td>', line)[1].partition("<span")[0])  # type: ignore[index]
            for kind in ("place", "num val", "num ci", "num n")
        )
        has_value = score.value is not None
        assert value.removesuffix("*") == score_text(score.value, info.unit) and ends == interval(score)
        worth = "" if score.independent_n is None else f" ({score.independent_n:,})"
        assert n == (f"{score.n:,}{worth}" if has_value else "–"), (key, n, score)
        if truth[key].units is not None and score.verdict is not None:
            assert (score.low <= score.chance <= score.high) == (score.verdict == "no different"), score  # type: ignore[operator]
        if score.is_small:
            assert place in ("–", "ref") and score.verdict is None, (key, place, score)
        if key in stand_apart:
            assert groups[key].startswith(APART[stand_apart[key]]), (key, groups[key])
            assert place in ("–", "ref") or stand_apart[key] == "official", (key, place)
        else:
            word = VERDICT_WORDS.get(score.verdict or "", ("not compared with chance", "ranked", ""))
            word = f"too few independent {CASES[family]}s" if score.is_small else word
            assert groups[key].startswith(word), (key, groups[key], score)  # type: ignore[arg-type]
    main = {key: score for key, score in scores.items() if key not in stand_apart}
    models = [
        key for key, score in main.items() if score.value is not None and truth[key].result.model.kind != "baseline"
    ]
    sources = {truth[key].account or truth[key].result.kind for key in models}
    ranked = [
        Truth(
            f"{name} ({account})" if account and len(sources) > 1 else name,
            main[key].value or 0.0,
            main[key].verdict,
            saved[key]["place_first"],
        )
        for key in models
        if not main[key].is_small
        for name, account in [(truth[key].result.model.name, truth[key].account)]
    ]
    up = info.higher_is_better is not False
    ranked.sort(key=lambda row: -row.value if up else row.value)
    headline, about = (
        plain(re.search(r'<h2 class="finding">(.*?)</h2>', page)[1]),
        f"{metric_info(metric, family).label}. ",
    )  # type: ignore[index]
    assert headline.startswith(about) == (metric != HEADLINE_METRICS[family]), headline
    valued = [key for key, score in main.items() if score.value is not None]
    check_headline(
        headline.removeprefix(about), ranked, baselines=len(valued) - len(models),
        uncounted=len(main) - len(valued), stand_apart=len(scores) - len(main),
        small=sum(main[key].is_small for key in models), partial=len(truth) - len(scores), up=up,
        models=len({truth[key].result.model.name for key in models}) == len(models),
    )  # fmt: skip
    drawn_models = [
        score.model_copy(update={"low": saved[key]["low"]}) for key, score in scores.items() if score.value is not None
    ]
    caption = plain(re.search(r'<p class="sub">(.*?)</p>', page)[1])  # type: ignore[index]
    check_caption(caption, drawn_models, CASES[family], cell is not None, info.higher_is_better)
    unseen = {
        run_truth.result.model.name
        for key, run_truth in truth.items()
        if key not in scores and run_truth.result.model.kind != "baseline"
    }
    for number in re.findall(r"(\d+) models? not ranked here", plain(page)):
        assert int(number) <= len(unseen - {truth[key].result.model.name for key in scores}), page
    if cell is None and info.unit != "count":
        check_places(saved, truth, [key for key in models if truth[key].units is not None], metric, up)


def check_places(saved: dict[str, Any], truth: dict[str, Raw], keys: list[str], metric: str, up: bool) -> None:
    """Check the ranks: a model behind rank 1 is significantly worse than some other by the test of
    that pair alone, and a model at rank 1 is beaten by no other even at the strictest correction
    for all pairs (Bonferroni's).
    """
    value = {key: truth[key].scores[metric].value or 0.0 for key in keys}
    for key in keys:
        ahead = [rival for rival in keys if (value[rival] - value[key]) * (1 if up else -1) > 1e-9]
        p = [paired_test(truth[key].units, truth[rival].units, metric).p for rival in ahead]  # type: ignore[arg-type]
        if saved[key]["place_first"] is None:
            assert truth[key].scores[metric].is_small or METRICS[metric].higher_is_better is None, (metric, key)
            continue
        if saved[key]["place_first"] > 1 and all(run_truth.units is not None for run_truth in truth.values()):
            assert p and min(p) < 0.05, (metric, key, p)
        if saved[key]["place_first"] == 1:
            assert not p or min(p) * len(keys) * (len(keys) - 1) / 2 >= 0.05, (metric, key, p)


def check_breakdown(service: Service, breakdown_request: dict[str, Any], truth: dict[str, Raw]) -> None:
    """Check that the saved cells are true, and that the heat map shows each with the sign of its
    test; the plots explain their marks.
    """
    facet, metric = FACET.get(breakdown_request["format"]), service.view(breakdown_request)["state"]["metric"]
    page = check_words(service.breakdown({**breakdown_request, "metric": metric, "facet": facet}))
    for plot in re.findall(r'<section class="plot".*?</section>', page, re.DOTALL):
        assert ("Dashed: guessing." in plot) == ('class="guess"' in plot), plain(plot)[:300]
        assert ("Bars are 95% intervals." in plot) == ('class="bar"' in plot), plain(plot)[:300]
    table = re.search(r'<table class="heat" data-table="breakdown".*?</table>', page, re.DOTALL)
    if table is None or f"by {facet}" not in plain(page).lower():
        return
    cells: Counter[tuple[bool, str, str]] = Counter()
    for row in json.loads(
        service.export({**breakdown_request, "metric": metric, "of": "breakdown", "facet": facet, "as": "json"})["text"]
    ):
        score = truth[row["run"]].cells[facet][row["facet_value"]][metric]  # type: ignore[index]
        is_saved(row, score)
        if score.value is not None and not truth[row["run"]].withdrawn:
            sign = "" if score.is_small else VERDICT_SIGNS[score.verdict]
            cells[score.n_cases < MIN_CASES or score.is_small, score_text(score.value), sign] += 1
    shown_cells = re.findall(r'<td class="([\w ]+)"[^>]*>(?:<a [^>]*>)?([^<]*)(?:</a>)?<i>(.*?)</i>', table[0])
    assert Counter((kind == "few", html.unescape(value), sign.strip()) for kind, value, sign in shown_cells) == cells
    legend = plain(page[page.index(table[0]) :].partition('<p class="fine signs">')[2].partition("</p>")[0])
    for verdict, words in {**VERDICT_WORDS, None: "not tested"}.items():
        assert (f"{VERDICT_SIGNS[verdict]} {words}" in legend) == any(
            sign == VERDICT_SIGNS[verdict] for _, _, sign in cells
        ), legend  # type: ignore[index]
    assert (f"fewer than {MIN_CASES} cases" in legend) == any(few for few, _, _ in cells), legend


def check_details(service: Service, family: str, section: Section, truth: dict[str, Raw]) -> None:
    """Check the list of what is known about a result, and what Submit would report about it."""
    for run_truth in [run_truth for run_truth in truth.values() if run_truth.units is not None][:2]:
        check_submitted(run_truth, family)
    for key, run_truth in truth.items():
        page = service.detail({"format": family, "section": section.key, "key": key})
        listed = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))
        counts = re.findall(r"(\d[\d,]*) ([a-z]+)", listed.get("Answers", ""))
        count_by_name = {name: int(n.replace(",", "")) for n, name in counts}
        assert count_by_name == {name: n for name, n in run_truth.result.statuses.items() if n}, (key, listed)
        assert int(listed["Questions"].partition(", ")[0].replace(",", "")) == run_truth.result.benchmark.questions
        assert ("Submitted by" in listed) == (run_truth.account is not None) and (
            "Withdrawn" in listed
        ) == run_truth.withdrawn
        assert html.unescape(listed["Model"]).startswith(run_truth.result.model.name)


def check_submitted(run_truth: Raw, family: str) -> None:
    """Check what the tab Submit reports about a result's scores, and how it counts problems."""
    result, empty = run_truth.result, pd.DataFrame()
    problems = [f"a.csv, line {at}: question 'q{at}' is unknown" for at in range(len(run_truth.scores) % 9)] + [
        "a.csv: is cut off"
    ]
    refused = plain(submit.report(Submission("run", None, result, empty, empty, problems=problems)))  # type: ignore[arg-type]
    assert "cannot be submitted as it is" in refused and ("Partial: " in refused) == bool(result.benchmark.selection)
    again = re.findall(r"\b(\d+) more times?", refused)
    assert sum(map(int, again)) == len(problems) - len({line[:7] for line in problems}), refused
    page = submit.report(Submission("run", None, result, empty, empty))  # type: ignore[arg-type]
    score_by_label = {metric_info(metric, family).label: score for metric, score in run_truth.scores.items()}
    cells = "".join("<td>(.*?)</td>" for _ in range(5))
    for label, value, ends, chance, n, verdict in re.findall(rf'<tr><th scope="row">(.*?)</th>{cells}</tr>', page):
        score = score_by_label[html.unescape(label)]
        assert score.value is None or rounds_to(value.removesuffix(" %"), score.value), (label, value, score)
        assert ends == interval(score), (label, ends, score)
        assert chance == "–" if score.chance is None else rounds_to(chance, score.chance), (label, chance, score)
        assert n == f"{score.n:,}" + (f" ({score.n_cases:,} cases)" if score.n != score.n_cases else ""), (label, n)
        words = VERDICT_WORDS.get(score.verdict or "", "no score" if score.nonresponse and score.value is None else "")
        assert verdict.startswith(words) and bool(verdict) == bool(words), (label, verdict, score)


def check_front(service: Service, family: str, sections: list[dict[str, Raw]]) -> None:
    """Check the first screen's matrix and sentence, and the first sentence and lines of the models'
    own pages, against the store's content.
    """
    metric, rows = HEADLINE_METRICS[family], [run_truth for truth in sections for run_truth in truth.values()]
    page = check_words(overview.page(service.board, {"all": "yes"}))
    marks: Counter[str] = Counter()
    for key, line in re.findall(r'<tr data-key="([^"]*)">(.*?)</tr>', page, re.DOTALL):
        model_scores = [
            run_truth.scores.get(metric, NOTHING)
            for run_truth in rows
            if run_truth.result.model.name == html.unescape(key)
        ]
        for value, mark in re.findall(r'<b>(.*?)</b><span class="mark" aria-hidden="true">(.)</span>', line):
            assert any(
                model_score.value is not None and rounds_to(value, model_score.value) for model_score in model_scores
            ), (key, value)
            marks[mark] += 1
    sentence, tested = plain(re.search(r'<h2 class="finding">(.*?)</h2>', page)[1]), marks.total() - marks["·"]  # type: ignore[index]
    if sentence != "No model here has been tested against guessing yet.":
        check_trust(sentence, tested, marks["▲"], marks["▼"])
    elif "the paper's random run" not in page:  # there is no exact chance to test against
        assert tested == 0, (sentence, marks)
    for name in sorted(
        {run_truth.result.model.name for run_truth in rows if run_truth.result.model.kind != "baseline"}
    )[:3]:
        own_page, own_row = (
            check_words(model.page(service.board, {"id": name})),
            [model_score for model_score in rows if model_score.result.model.name == name],
        )
        headline = plain(re.search(r'<h3 class="finding">(.*?)</h3>', own_page)[1])  # type: ignore[index]
        scores = [
            score
            for model_score in own_row
            for key, score in model_score.scores.items()
            if key == metric or metric not in model_score.scores
        ]
        check_model_verdicts(headline, name, [score.verdict for score in scores])
        lines = re.findall(
            r'<td class="num"[^>]*><b>(.*?)</b></td><td class="chart">.*?</td><td class="num">(.*?)</td><td>(.*?)</td>',
            own_page.partition('data-table="verdicts"')[2].partition("</table>")[0],
            re.DOTALL,
        )
        for score in (model_score.scores.get(metric, NOTHING) for model_score in own_row):
            assert score.value is None or any(_is_line_of(score, *map(plain, line)) for line in lines), (score, lines)


def _is_line_of(score: Score, value: str, ends: str, verdict: str) -> bool:
    """Return True if a line of a model's page says this about a result."""
    if score.is_small:
        return verdict.startswith("too few independent ") and rounds_to(value, score.value or 0.0)
    sign = next(sign for sign, word in SIGNS.items() if word == score.verdict)
    level = re.search(r"([\d.]+)%", verdict)
    return (
        rounds_to(value, score.value or 0.0)
        and (score.low is None or ends == interval(score))
        and verdict.startswith(f"{sign} {VERDICT_WORDS.get(score.verdict or '', 'not tested')}")
        and (rounds_to(level[1], score.chance or 0.0) if level else score.chance is None)
    )


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
