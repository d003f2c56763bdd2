"""What stands below a benchmark's panel held against raw scores: heat map, plots, printed parts.

See also: the panel (`panels.py`), every page of a store (`pages.py`).
"""

from __future__ import annotations

import html
import re

from leaderboard_space.benchmarks import gives_away
from leaderboard_space.data.ranks.standings import info_of
from leaderboard_space.data.store.sections import Section
from leaderboard_space.data.tree import shown_label
from leaderboard_space.sentences import in_running_text
from leaderboard_space.service import Service
from leaderboard_space.views.slopes import ASPECTS as SLOPES
from tests.leaderboard_space.checks.claims import (
    check_behind,
    check_marks,
    check_words,
    plain,
    rounds_to,
)
from tests.leaderboard_space.generated import (
    FACET,
    Raw,
    by_shown_name,
)


def check_breakdown(service: Service, family: str, section: Section, truth: dict[str, Raw]) -> None:
    """The heat map of everything, and that of two labels of which papers print each by itself."""
    if family not in FACET:
        return
    facet = FACET[family]
    printed = [one.cells.get(facet, {}) for one in truth.values() if one.result.kind == "published"]
    metrics = {name for cells in printed for scores in cells.values() for name in scores}
    check_heat_map(service, family, section, truth, [])
    are_two = {"one", "two"} <= {label for cells in printed for label in cells}
    if are_two and not all(gives_away(family, name, (facet,)) for name in metrics):
        check_heat_map(service, family, section, truth, [[facet, "one"], [facet, "two"]])


def check_heat_map(
    service: Service, family: str, section: Section, truth: dict[str, Raw], branches: list[list[str]]
) -> None:
    """Signs and numbers of the heat map, and the legend under it."""
    asked = {"format": family, "section": section.key, "shown": "all", "branches": branches}
    metric = service.view(asked)["state"]["metric"]
    page = service.breakdown({**asked, "metric": metric, "facet": FACET[family]})
    match = re.search(
        r'<table class="heat" data-table="breakdown".*?</table>(?:</div>)?(<p class="fine signs">.*?</p>)?',
        page,
        re.DOTALL,
    )
    if match is None:
        assert not branches, page[:500]
        return
    heads = [html.unescape(name) for name in re.findall(r'<th scope="col" data-sort="([^"]*)"', match[0])][1:]
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
            value, sign = re.fullmatch(r"(?:<a [^>]*>)?(.*?)(?:</a>)?<i>(.*?)</i>", body).groups()  # type: ignore[union-attr]
            assert rounds_to(html.unescape(value), score.value), (label, value, score)
            assert (kind == "few") == (score.n_cases < 30), (kind, score)
            cells.append((sign.strip(), score.verdict, kind == "few"))
    check_marks(plain(match[1] or ""), cells)


def check_plots(service: Service, family: str, section: Section, truth: dict[str, Raw], metric: str) -> None:
    """Plots with their captions, and the tables of organs, modalities and aspects."""
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
            words in plot for words in ("Dashed lines are chance.", "Short dashes are chance", "Dashed: guessing.")
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
            label = re.escape(in_running_text(info_of(metric, family).label))
            words = rf"{re.escape(one.result.model.name)}(?: \(.*\))?: {label} (\S+), {at}"
            said = [match[1] for point in points if (match := re.fullmatch(words, html.unescape(point)))]
            assert any(rounds_to(value, one.scores[metric].value or 0.0) for value in said), (key, words, points)
        silent = {one.result.model.name for one in shown.values() if not one.result.model.parameters}
        number = re.search(r"([\d,]+) models? states? no size", plain(found[0]))
        assert name == "cost" or (int(number[1]) if number else 0) == len(silent), (number, silent)
