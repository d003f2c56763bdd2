"""What stands below a benchmark's panel held against raw scores: heat map, plots, printed parts.

See also: the panel (`panels.py`), every page of a store (`pages.py`).
"""

from __future__ import annotations

import html
import re

from leaderboard_space.benchmarks import gives_away
from leaderboard_space.data.store.sections import Section
from leaderboard_space.service import Service
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


def check_plots(service: Service, family: str, section: Section) -> None:
    """What the plots say of their marks. That their numbers are the table's: `test_promises.py`."""
    page = check_words(service.breakdown({"format": family, "section": section.key, "shown": "all"}))
    for plot in re.findall(r'<section class="plot".*?</section>', page, re.DOTALL):
        assert ("Dashed: guessing." in plot) == ('class="guess"' in plot), plain(plot)[:300]
        assert ("Bars are 95% intervals." in plot) == ('class="bar"' in plot), plain(plot)[:300]
