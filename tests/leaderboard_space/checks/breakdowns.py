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
from leaderboard_space.views.plots import ADVERSARIAL
from tests.leaderboard_space.checks.claims import (
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
    heads = [html.unescape(name) for name in re.findall(r'<th scope="col" class="" data-sort="([^"]*)"', match[0])][1:]
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
    """Plots with their captions, and the table of image types and aspects."""
    page = check_words(service.breakdown({"format": family, "section": section.key, "shown": "all"}))
    known = by_shown_name(truth)
    for plot in re.findall(r'<section class="plot".*?</section>', page, re.DOTALL):
        assert ("Dashed: guessing." in plot) == ('class="guess"' in plot), plain(plot)[:300]
        assert ("Bars are 95% intervals." in plot) == ('class="bar"' in plot), plain(plot)[:300]
    for across, up in (("set_accuracy", "confusion"), *((f"{one}_without_adversarial", one) for one in ADVERSARIAL)):
        one, other = (re.escape(in_running_text(info_of(name).label)) for name in (across, up))
        for name, x, y in re.findall(rf"<title>([^<]*): {one} ([\d.]+), {other} ([\d.]+)</title>", page):
            held = known[html.unescape(name)].scores
            assert rounds_to(x, held[across].value) and rounds_to(y, held[up].value), (name, x, y)  # type: ignore[arg-type]
    check_size(page, truth, metric, family)
    check_aspects(page, known)


def check_aspects(page: str, known: dict[str, Raw]) -> None:
    """The table of image types and aspects: every cell is that of its type and its aspect, of the result that the table names."""
    table = re.search(r'data-name="one"[^>]*value="([^"]*)".*?data-table="aspects".*?</table>', page, re.DOTALL)
    if table is None:
        return
    cells = {
        shown_label("image_type", label): held
        for label, held in known[html.unescape(table[1])].cells["image_type"].items()
    }
    metrics = re.findall(r'<th scope="col" class="" data-sort="([^"]*)"', table[0])[1:]
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


def check_size(page: str, truth: dict[str, Raw], metric: str, family: str) -> None:
    """The plot by size: who stands in it, with which numbers, and how many models state no size."""
    shown = [one for one in truth.values() if one.result.model.kind != "baseline" and not one.withdrawn]
    known = [
        one
        for one in shown
        if one.result.model.parameters and metric in one.scores and one.scores[metric].value is not None
    ]
    found = re.search(r'<section class="plot" data-plot="size".*?</section>', page, re.DOTALL)
    assert (found is not None) == (len(known) >= 3 and info_of(metric).unit == "percent"), known
    if found is None:
        return
    points = [html.unescape(point) for point in re.findall(r"<title>([^<]*)</title>", found[0])]
    assert len(points) == len(known), (points, known)
    label = re.escape(in_running_text(info_of(metric, family).label))
    for one in known:
        words = (
            rf"{re.escape(one.result.model.name)}(?: \(.*\))?: {label} (\S+), {one.result.model.parameters / 1e9:,.1f}"  # type: ignore[operator]
        )
        said = [match[1] for point in points if (match := re.fullmatch(words, point))]
        assert any(rounds_to(value, one.scores[metric].value or 0.0) for value in said), (words, points)
    silent = {one.result.model.name for one in shown if not one.result.model.parameters}
    number = re.search(r"([\d,]+) models? states? no size", plain(found[0]))
    assert (int(number[1]) if number else 0) == len(silent), (number, silent)
