"""Every page of the board over a generated store, held against scores computed from its raw files.

`python -m tests.leaderboard_space.page_checks --stores 200 --seed 7` checks many; a few are a test (`test_generated_stores.py`).
See also: the stores (`generated.py`), what a sentence claims (`claims.py`), the first screen, models and topics (`front_checks.py`),
comparisons (`comparison_checks.py`).
"""

from __future__ import annotations

import argparse
import html
import json
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from eval_harness.results import Result, Score
from eval_harness.scores import METRICS
from eval_harness.scores.comparing.comparisons import paired_test
from eval_harness.scores.comparing.pooled import pooled_p_values
from eval_harness.scores.outcomes import pack
from eval_harness.submissions.submission import Submission
from leaderboard_space.data.board import Board
from leaderboard_space.data.ranks.standings import info_of
from leaderboard_space.data.store.sections import Section
from leaderboard_space.data.tree import shown_label
from leaderboard_space.service import Service
from leaderboard_space.views import submit
from leaderboard_space.views.charts.slopes import ASPECTS as SLOPES
from tests.leaderboard_space.claims import (
    Truth,
    check_behind,
    check_caption,
    check_headline,
    check_marks,
    check_words,
    plain,
    rounds_to,
)
from tests.leaderboard_space.comparison_checks import check_comparison
from tests.leaderboard_space.front_checks import check_front
from tests.leaderboard_space.generated import (
    APART,
    CASES,
    FACET,
    Raw,
    apart,
    by_shown_name,
    make,
    printed,
    raw,
)


class Line(NamedTuple):
    """A row of a leaderboard as it is read. `beside`: the tooltip and the cell of how often it abstained, where there is such a column."""

    key: str
    group: str
    place: str
    value: str
    ends: str
    n: str
    beside: tuple[str, str]


def rows_of(page: str) -> list[Line]:
    """The rows of a leaderboard."""
    table = page[page.index('<table class="board"') : page.index("</table>")] if '<table class="board"' in page else ""
    rows = []
    for body in table.split("<tbody>")[1:]:
        head = re.search(r'<tr class="group"[^>]*><th[^>]*>(.*?) <span>(.*?)</span></th></tr>', body)
        group = plain(head[1]) if head else ""
        lines = re.findall(
            r'<tr class="k-[^"]*" data-key="([^"]*)"><td class="place"[^>]*>(.*?)</td>.*?<td class="num val"[^>]*>(.*?)</td>'
            r'<td class="num ci"[^>]*>(.*?)</td><td class="num n"[^>]*>(.*?)</td>(?:<td class="num abst" title="(.*?)"[^>]*>(.*?)</td>)?',
            body,
        )
        if head:
            said = re.fullmatch(r"([\d,]+) (results?)", plain(head[2]))
            assert said and int(said[1]) == len(lines) and (said[2] == "result") == (len(lines) == 1), head[0]
        rows += [
            Line(html.unescape(key), group, *map(plain, line), (html.unescape(title), plain(abstained)))
            for key, *line, title, abstained in lines
        ]
    return rows


def check_store(store: Path, family: str, extra: list[Result]) -> int:
    """Every page of the board over a store; returns how many pages were checked. Raises AssertionError."""
    board = Board(store, extra)
    service = Service(board)
    pages, truths = 0, []
    for section in board.snapshot.sections[family]:
        board.outcomes(section)
        truth = raw(store, section)
        truths.append(truth)
        whole = service.view({"format": family, "section": section.key, "shown": "all"})
        metrics = re.findall(
            r'<option value="([^"]*)"', re.search(r"<select data-metric>(.*?)</select>", whole["html"])[1]
        )
        labels = {label for found in truth.values() for label in found.cells.get(FACET.get(family, ""), {})}
        every = {
            label for label in labels if _holds_everything(family, label, truth)
        }  # selecting it is selecting nothing
        for metric in metrics:
            for label in [None, *sorted(labels - every)[:1]]:
                branches = [[FACET[family], label]] if label is not None else []
                asked = {
                    "format": family,
                    "section": section.key,
                    "shown": "all",
                    "metric": metric,
                    "branches": branches,
                }
                shown = service.view(asked)
                assert shown["state"]["metric"] in METRICS, shown["state"]
                if shown["state"]["metric"] == metric:
                    check_panel(
                        check_words(shown["html"]), truth, metric, (FACET[family], label) if label else None, family
                    )
                    pages += 1
        check_breakdown(service, family, section, truth)
        check_comparison(board, family, section, truth)
        check_other_views(service, family, section, truth, whole["state"]["metric"])
        check_printed(service, family, section, truth)
        pages += 3
    if not board.snapshot.sections[family]:
        assert "No results yet." in service.view({"format": family})["html"]
    else:
        check_front(service, family, truths)
    return pages


def check_other_views(service: Service, family: str, section: Section, truth: dict[str, Raw], metric: str) -> None:
    """Plots with their captions, the organs and modalities, and the list of what is known of a result."""
    page = check_words(service.breakdown({"format": family, "section": section.key, "shown": "all"}))
    points = set(
        re.findall(r"<title>([^<]*): set accuracy ([\d.]+), confusion ([\d.]+)</title>", page)
    )  # drawn twice, for wide and narrow
    known = by_shown_name(truth)
    assert len({name for name, _, _ in points}) == len(points), points
    for name, x, y in points:
        held = known[html.unescape(name)].scores
        assert rounds_to(x, held["set_accuracy"].value) and rounds_to(y, held["confusion"].value), (name, x, y)  # type: ignore[arg-type]
    for plot in re.findall(r'<section class="plot".*?</section>', page, re.DOTALL):
        dashed = any(
            words in plot for words in ("Dashed lines are chance.", "Short dashes are chance", "The dashed line is")
        )
        assert dashed == ('class="guess"' in plot), plain(plot)[:300]
        assert ("Bars are 95% intervals." in plot) == ('class="bar"' in plot), plain(plot)[:300]
    check_size_and_cost(page, truth, metric, family)
    if '<table class="board transfer"' in page:
        table = page[page.index('<table class="board transfer"') :]
        cells = [cell for found in truth.values() for held in found.cells.values() for cell in held.values()]
        check_behind(table[: table.index("</table>")], [score for cell in cells for score in cell.values()])
        check_aspects(page, known)
    for name, without, with_ in set(
        re.findall(r"<title>([^<]*): (\S+) without, (\S+) with adversarial questions</title>", page)
    ):
        held = known[html.unescape(name)].scores
        both = [(held[f"{one}_without_adversarial"].value, held[one].value) for one in SLOPES]
        assert any(
            a is not None and b is not None and rounds_to(without, a) and rounds_to(with_, b) for a, b in both
        ), (name, without, with_)
    for found in [found for found in truth.values() if found.units is not None][:2]:
        check_submitted(found, family)
    for key, found in truth.items():
        listed = dict(
            re.findall(
                r"<dt>(.*?)</dt><dd>(.*?)</dd>", service.detail({"format": family, "section": section.key, "key": key})
            )
        )
        said = {
            name: int(n.replace(",", "")) for n, name in re.findall(r"(\d[\d,]*) ([a-z]+)", listed.get("Answers", ""))
        }
        assert said == {name: n for name, n in found.result.statuses.items() if n}, (key, listed)
        assert int(listed["Questions"].partition(", ")[0].replace(",", "")) == found.result.benchmark.questions
        assert ("Submitted by" in listed) == (found.account is not None) and ("Withdrawn" in listed) == found.withdrawn
        assert html.unescape(listed["Model"]).startswith(found.result.model.name)
        assert listed.get("Reader") == (
            str(found.result.reader_version or 1) if found.result.kind == "measured" else None
        )


def check_aspects(page: str, known: dict[str, Raw]) -> None:
    """The table of image types and aspects: every cell is that of its type and its aspect, of the result that the table names."""
    table = re.search(r"<h3>([^<]*): every image type and aspect.*?</table>", page, re.DOTALL)
    if table is None:
        return
    cells = {
        shown_label("image_type", label): held
        for label, held in known[html.unescape(table[1])].cells["image_type"].items()
    }
    metrics = re.findall(r'<th scope="col" data-sort="([^"]*)"', table[0])[1:]
    lines = re.findall(r'<tr><th scope="row">(.*?) <small>n ([\d,]+)</small></th>(.*?)</tr>', table[0])
    assert lines and metrics
    for label, n, line in lines:
        held = cells[html.unescape(label)]
        shown = re.findall(r"<td[^>]*>(.*?)</td>", line)
        for metric, body in zip(metrics, shown, strict=True):
            score, value = held.get(metric), html.unescape(body).partition("<i>")[0]
            if score is None or score.value is None:
                assert value == "–", (label, metric, body)
            else:
                assert rounds_to(value, score.value), (label, metric, body, score)
        assert int(n.replace(",", "")) == max(held[metric].n for metric in metrics if metric in held), (label, n)


def check_size_and_cost(page: str, truth: dict[str, Raw], metric: str, family: str) -> None:
    """The plots by size and by tokens: who stands in them, with which numbers, and how many models state no size."""
    shown = {key: one for key, one in truth.items() if one.result.model.kind != "baseline" and not one.withdrawn}
    sizes = {key: (one.result.model.parameters or 0) / 1e9 for key, one in shown.items()}
    for name, of in {"size": sizes, "cost": {key: one.tokens for key, one in shown.items()}}.items():
        known = {
            key
            for key in shown
            if of[key] and (metric in shown[key].scores) and shown[key].scores[metric].value is not None
        }
        found = re.search(rf'<section class="plot" data-plot="{name}".*?</section>', page, re.DOTALL)
        assert (found is not None) == (len(known) >= 3 and info_of(metric).unit == "percent"), (name, known)
        if found is None:
            continue
        points = re.findall(r"<title>([^<]*)</title>", found[0].partition('<svg class="slim"')[0])
        assert len(points) == len(known), (points, known)
        for key in known:
            one, at = shown[key], f"{of[key]:,.1f}" if name == "size" else f"{round(of[key]):,}"
            words = rf"{re.escape(one.result.model.name)}(?: \(.*\))?: {re.escape(info_of(metric, family).label.lower())} (\S+), {at}"
            said = [match[1] for point in points if (match := re.fullmatch(words, html.unescape(point)))]
            assert any(rounds_to(value, one.scores[metric].value or 0.0) for value in said), (key, words, points)
        silent = {one.result.model.name for one in shown.values() if not one.result.model.parameters}
        number = re.search(r"([\d,]+) models? states? no size", plain(found[0]))
        assert name == "cost" or (int(number[1]) if number else 0) == len(silent), (number, silent)


def check_printed(service: Service, family: str, section: Section, truth: dict[str, Raw]) -> None:
    """The table of what papers print within a selection of two parts: every cell is the number printed for that part."""
    facet = FACET.get(family, "")
    printed = {
        one.result.model.name: one.cells.get(facet, {}) for one in truth.values() if one.result.kind == "published"
    }
    if {"one", "two"} - {label for cells in printed.values() for label in cells}:
        return
    asked = {"format": family, "section": section.key, "shown": "all", "branches": [[facet, "one"], [facet, "two"]]}
    shown = service.view(asked)
    page, metric = check_words(shown["html"]), shown["state"]["metric"]
    check_behind(page, [score for cells in printed.values() for scores in cells.values() for score in scores.values()])
    table = re.search(r'data-table="cells".*?</table>', page, re.DOTALL)
    assert table is not None, page[:500]
    heads = re.findall(r'<th scope="col" data-sort="(one|two)">', table[0])
    for name, line in re.findall(r'<tr><th scope="row">(.*?) <small>.*?</th>(.*?)</tr>', table[0]):
        for label, body in zip(heads, re.findall(r"<td[^>]*>(.*?)</td>", line), strict=True):
            score = printed[html.unescape(name)].get(label, {}).get(metric)
            value = html.unescape(body).partition(" <small>")[0]
            assert (value == "–") == (score is None) and (score is None or rounds_to(value, score.value or 0.0)), (
                name,
                body,
            )


def _holds_everything(family: str, label: str, truth: dict[str, Raw]) -> bool:
    """Whether every question carries a label."""
    held = [
        (raw.cells.get(FACET[family], {}).get(label, {}), raw.scores) for raw in truth.values() if raw.units is not None
    ]
    return any("irrelevant" in cell and cell["irrelevant"].n == whole["irrelevant"].n for cell, whole in held)


def check_panel(page: str, truth: dict[str, Raw], metric: str, cell: tuple[str, str] | None, family: str) -> None:
    """The headline, the caption, the table's groups and numbers, and the notes of one panel."""
    info = info_of(metric)
    rows = rows_of(page)
    held: dict[str, Score] = {}
    stand_apart = apart(truth)
    for key, group, place, value, ends, n, beside in rows:
        assert group.startswith(("read by", "withdrawn")) == (key in stand_apart), (key, group)
        if key in stand_apart:
            assert group.startswith(APART[stand_apart[key]]), (key, group)
            assert place in ("–", "ref") or stand_apart[key] == "official", (key, place)
        found = truth[key].scores if cell is None else truth[key].cells.get(cell[0], {}).get(cell[1], {})
        score = found.get(metric, Score(value=None, n=0, n_cases=0))
        held[key] = score
        if score.value is None:
            assert value == "–", (key, metric, value)
            assert n == "–", (key, n)
        else:
            assert rounds_to(value, score.value), (key, metric, value, score.value)
            of = f"{score.n:,}" if score.n == score.n_cases else f"{score.n:,} ({score.n_cases:,})"
            assert n == of, (key, metric, n, score)
            check_beside(beside, found, any(row.beside[1] not in ("", "–") for row in rows))
        assert info.unit == "percent" or ends == "–", (key, metric, ends)  # a count has no interval
        if score.low is not None and score.high is not None:
            low, high = ends.split("–")
            assert rounds_to(low, score.low) and rounds_to(high, score.high), (ends, score)
        words = {
            "better": "significantly better than",
            "worse": "significantly worse than",
            "no different": "not told apart from",
        }
        if key in stand_apart:
            continue
        if group and score.verdict:
            assert group.startswith(words[score.verdict]), (group, score)
        elif group:
            assert group in ("not compared with chance", "ranked"), (group, score)
    main = {key: score for key, score in held.items() if key not in stand_apart}
    baselines = [key for key in main if truth[key].result.model.kind == "baseline"]
    ranked, models = [], []
    sources = {
        truth[key].account or truth[key].result.kind
        for key in main
        if key not in baselines and main[key].value is not None
    }
    for key, _, place, *_ in rows:
        if key in main and key not in baselines and held[key].value is not None:
            first = int(place.partition("–")[0])
            who, account = truth[key].result.model.name, truth[key].account
            models.append(who)
            name = f"{who} ({account})" if account and len(sources) > 1 else who
            ranked.append(Truth(name, held[key].value or 0.0, held[key].verdict, first))
    up = info.higher_is_better is not False
    ranked.sort(key=lambda row: -row.value if up else row.value)
    headline = plain(re.search(r'<h2 class="finding">(.*?)</h2>', page)[1])  # type: ignore[index]
    check_headline(
        headline, ranked, baselines=sum(held[key].value is not None for key in baselines),
        uncounted=sum(score.value is None for score in main.values()), stand_apart=len(held) - len(main),
        partial=len(truth) - len(held), up=up, models=len(set(models)) == len(models),
    )  # fmt: skip
    check_places([row for row in rows if row[0] in main], truth, held, metric, up, cell)
    check_place_titles(page, {key: place for key, _, place, *_ in rows if key in main and place[:1].isdigit()})
    known = [score for score in held.values() if score.value is not None]
    drawn = [score for score in known if info.unit == "percent" and (score.low is not None or score.n_cases > 0)]
    check_caption(
        plain(re.search(r'<p class="sub">(.*?)</p>', page)[1]),  # type: ignore[index]
        sizes={(score.n, score.n_cases) for score in known}, case=CASES[family],
        chances={None if score.chance is None else round(score.chance, 6) for score in known},
        bars=(len(drawn), len(known)), selected=cell is not None, up=info.higher_is_better,
    )  # fmt: skip
    for note in re.findall(r'<li class="note">(.*?)</li>', page):
        said = plain(note)
        if found := re.match(r"(\d+) models? not ranked here: (only published|this score)", said):
            hidden = {
                raw.result.model.name
                for key, raw in truth.items()
                if key not in held and raw.result.model.kind != "baseline"
            }
            hidden -= {truth[key].result.model.name for key in held}
            kinds = {raw.result.kind for raw in truth.values() if raw.result.model.name in hidden}
            assert int(found[1]) <= len(hidden) and ("published" in kinds) >= (found[2] == "only published"), said
        if said.startswith("Published cells are shown as printed"):
            assert any(truth[key].result.kind == "published" for key in held), said


def check_beside(beside: tuple[str, str], found: dict[str, Score], is_column: bool) -> None:
    """How often a result abstained, and its accuracy where it answered: the cell, and the tooltip with both."""
    abstained, accuracy = (found[name].value if name in found else None for name in ("abstained", "answered_accuracy"))
    title, shown = beside
    said = re.fullmatch(r"(?:abstained ([\d.<>]+)%)?(?:, )?(?:accuracy where answered ([\d.<>]+)%)?", title)
    assert said and (abstained is None or is_column), (beside, found)
    for text_, value in ((said[1], abstained), (said[2], accuracy), (shown.strip("–"), abstained)):
        assert not is_column or (bool(text_) == (value is not None) and (not text_ or rounds_to(text_, value or 0.0)))


def check_place_titles(page: str, places: dict[str, str]) -> None:
    """What the tooltip of a rank says of the other ranked rows."""
    for key, said in re.findall(r'data-key="([^"]*)"><td class="place" title="([^"]*)"', page):
        if html.unescape(key) not in places:
            continue
        found = re.fullmatch(
            r"(may be|not) the best; of the others (\d+) significantly ahead, (\d+) significantly behind, (\d+) not told apart from it",
            html.unescape(said),
        )
        assert found, said
        first = int(places[html.unescape(key)].partition("–")[0])
        assert sum(map(int, found.groups()[1:])) == len(places) - 1, (said, places)
        assert (found[1] == "may be") == (first == 1) and (first > 1 or found[2] == "0"), (said, places)


def check_submitted(found: Raw, family: str) -> None:
    """What the tab Submit says of a result's scores and responses, and how it counts problems."""
    result = found.result
    empty = pd.DataFrame()
    problems = [
        *(f"a.csv, line {at}: question 'q{at}' is unknown" for at in range(len(found.scores) % 9)),
        *["a.csv: is cut off"] * (result.benchmark.questions % 2),
    ]
    refused = plain(submit.report(Submission("run", None, result, empty, empty, problems=problems)))  # type: ignore[arg-type]
    end = "cannot be submitted as it is" if problems else "ready to be submitted"
    asked = result.benchmark.questions
    whom = f"{result.model.name} on {result.benchmark.name}, {result.benchmark.split}"
    assert refused.startswith(f"{whom}, {asked:,} question{'s' * (asked != 1)}: {end}."), refused
    assert ("Partial: " in refused) == bool(result.benchmark.selection), refused
    if problems:
        kinds = len({line[:7] for line in problems})
        assert f"{len(problems)} problem{'s' * (len(problems) > 1)}" in refused, refused
        again = re.findall(r"The same (\d+) more times?", refused)
        assert sum(map(int, again)) == len(problems) - kinds and (f"of {kinds} kind" in refused) == (
            kinds < len(problems)
        )
    page = submit.report(Submission("run", None, result, empty, empty))  # type: ignore[arg-type]
    named = {info_of(metric, family).label: score for metric, score in found.scores.items()}
    rows = re.findall(
        r'<tr><th scope="row">(.*?)</th><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td></tr>',
        page,
    )
    for label, value, ends, chance, n, verdict in rows:
        score = named[html.unescape(label)]
        assert score.value is None or rounds_to(value.removesuffix(" %"), score.value), (label, value, score)
        if score.low is not None and score.high is not None:
            low, high = ends.split("–")
            assert rounds_to(low, score.low) and rounds_to(high, score.high), (label, ends, score)
        assert chance == "–" if score.chance is None else rounds_to(chance, score.chance), (label, chance, score)
        assert n == (f"{score.n:,}" if score.n == score.n_cases else f"{score.n:,} ({score.n_cases:,} cases)"), (
            label,
            n,
        )
        said = {"better": "significantly better", "worse": "significantly worse", "no different": "not told apart"}
        assert verdict.startswith(said.get(score.verdict or "", "")) and bool(verdict) == bool(score.verdict), (
            label,
            verdict,
        )
    responses = re.search(r"Responses: (.*?)\.<", page)
    counts = sum(int(n.replace(",", "")) for n in re.findall(r"([\d,]+) [a-z]", responses[1])) if responses else 0
    assert counts == sum(result.statuses.values()), (responses, result.statuses)


def check_places(
    rows: list[Line],
    truth: dict[str, Raw],
    held: dict[str, Score],
    metric: str,
    up: bool,
    cell: tuple[str, str] | None,
) -> None:
    """Who is shown behind rank 1 is significantly worse than somebody by the test of that pair alone; who shares rank 1 is not beaten by
    anybody even at the strictest correction for all pairs (Bonferroni's), unless the variance of all models speaks against it."""
    if cell is not None or (METRICS.get(metric) and METRICS[metric].unit == "count"):
        return
    compared = {
        key: truth[key].units for key, *_ in rows if truth[key].units is not None and held[key].value is not None
    }
    compared = {key: frame for key, frame in compared.items() if truth[key].result.model.kind != "baseline"}
    place = {key: int(shown.partition("–")[0]) for key, _, shown, *_ in rows if key in compared}
    pooled = pooled_p_values(pack(compared, metric)) if compared else np.zeros((0, 0))  # type: ignore[arg-type]
    possible = dict(zip(compared, pooled < 0.1 / max(len(compared) - 1, 2), strict=True))
    for key in compared:
        ahead = [other for other in compared if (held[other].value - held[key].value) * (1 if up else -1) > 1e-9]  # type: ignore[operator]
        p = [paired_test(compared[key], compared[other], metric).p for other in ahead]  # type: ignore[arg-type]
        if place[key] > 1 and all(raw.units is not None for raw in truth.values()):
            assert p and min(p) < 0.05, (metric, key, place[key], p)
        if place[key] == 1:
            pairs = len(compared) * (len(compared) - 1) / 2
            sure = [one for one, other in zip(p, ahead, strict=True) if possible[key][list(compared).index(other)]]
            assert not sure or min(sure) * pairs >= 0.05, (metric, key, sure)


def check_breakdown(service: Service, family: str, section: Section, truth: dict[str, Raw]) -> None:
    """Signs and numbers of the heat map, and the legend under it."""
    if family not in FACET:
        return
    page = service.breakdown({"format": family, "section": section.key, "shown": "all", "facet": FACET[family]})
    match = re.search(
        r'<table class="heat" data-table="breakdown".*?</table>(?:</div>)?(<p class="fine signs">.*?</p>)?',
        page,
        re.DOTALL,
    )
    if match is None:
        return
    heads = [html.unescape(name) for name in re.findall(r'<th scope="col" data-sort="([^"]*)"', match[0])][1:]
    metric = service.view({"format": family, "section": section.key, "shown": "all"})["state"]["metric"]
    if f"by {FACET[family]}" not in plain(page).lower():
        return
    by_name = by_shown_name(truth)
    cells = []
    for line in re.findall(r'<tr><th scope="row"><bdi>(.*?)</bdi>.*?</th>(.*?)</tr>', match[0], re.DOTALL):
        one = by_name[html.unescape(line[0])]
        for label, (kind, body) in zip(
            heads, re.findall(r'<td class="([\w ]+)"[^>]*>(.*?)</td>', line[1]), strict=True
        ):
            score = one.cells.get(FACET[family], {}).get(label, {}).get(metric)
            if score is None or score.value is None:
                assert kind == "none", (label, line[0])
                continue
            value, sign = re.fullmatch(r"(.*?)<i>(.*?)</i>", body).groups()  # type: ignore[union-attr]
            assert rounds_to(html.unescape(value), score.value), (label, value, score)
            assert (kind == "few") == (score.n_cases < 30), (kind, score)
            cells.append((sign.strip(), score.verdict, kind == "few"))
    check_marks(plain(match[1] or ""), cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    pages = 0
    for seed in range(given.seed, given.seed + given.stores):
        with tempfile.TemporaryDirectory() as folder:
            family = make(Path(folder), seed)
            try:
                pages += check_store(Path(folder), family, printed(family, seed))
            except Exception as error:
                raise SystemExit(f"seed {seed}: {type(error).__name__}: {error}") from error
    print(json.dumps({"stores": given.stores, "pages": pages}))


if __name__ == "__main__":
    main()
