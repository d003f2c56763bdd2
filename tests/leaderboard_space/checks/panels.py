"""A benchmark's panel held against raw scores: headline, caption, groups, ranks and numbers of its table.

See also: what stands below it (`breakdowns.py`), every page of a store (`pages.py`).
"""

from __future__ import annotations

import html
import re
from typing import NamedTuple

from eval_harness.benchmarks import spec
from eval_harness.derive.metrics import METRICS
from eval_harness.records.result import Score
from eval_harness.scores.comparisons import paired_test
from leaderboard_space.data.ranks.standings import info_of
from tests.leaderboard_space.checks.claims import (
    Truth,
    check_caption,
    check_headline,
    plain,
    rounds_to,
)
from tests.leaderboard_space.generated import (
    APART,
    CASES,
    Raw,
    apart,
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
            r'<tr class="k-[^"]*" data-key="([^"]*)"><td class="place"[^>]*><(?:abbr|button)[^>]*>(.*?)</.*?'
            r'<td class="num val"[^>]*>(.*?)</td>'
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


def check_panel(page: str, truth: dict[str, Raw], metric: str, cell: tuple[str, str] | None, family: str) -> None:
    """The headline, the caption, the table's groups and numbers, and the notes of one panel."""
    info = info_of(metric)
    rows = rows_of(page)
    held: dict[str, Score] = {}
    stand_apart = apart(truth)
    for key, group, place, value, ends, n, beside in rows:
        found = truth[key].scores if cell is None else truth[key].cells.get(cell[0], {}).get(cell[1], {})
        score = found.get(metric, Score(value=None, n=0, n_cases=0))
        held[key] = score
        if score.nonresponse is not None and stand_apart.get(key) in (None, "official"):
            stand_apart[key] = "silent"
        assert group.startswith(tuple(APART.values())) == (key in stand_apart), (key, group)
        if key in stand_apart:
            assert group.startswith(APART[stand_apart[key]]), (key, group)
            assert place in ("–", "ref") or stand_apart[key] == "official", (key, place)
        if score.value is None:
            assert value == "–", (key, metric, value)
            assert n == "–", (key, n)
        else:
            assert rounds_to(value, score.value), (key, metric, value, score.value)
            of = f"{score.n:,}" if score.worth is None else f"{score.n:,} ({score.worth:,})"
            assert n == of, (key, metric, n, score)
            check_beside(beside, found, any(row.beside[1] not in ("", "–") for row in rows))
        assert info.unit == "percent" or ends == "–", (key, metric, ends)  # a count has no interval
        if score.low is not None and score.high is not None:
            low, high = ends.split("–")
            assert rounds_to(low, score.low) and rounds_to(high, score.high), (ends, score)
            if score.verdict is not None and score.chance is not None:
                outside = not float(low) <= score.chance <= float(high)
                assert outside == (score.verdict != "no different"), (ends, score)
        words = {
            "better": "significantly better than",
            "worse": "significantly worse than",
            "no different": "not significantly different from",
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
    about = f"{info_of(metric, family).label}. "
    assert headline.startswith(about) == (metric != spec(family).headline), headline
    check_headline(
        headline.removeprefix(about), ranked, baselines=sum(held[key].value is not None for key in baselines),
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
    said = re.fullmatch(
        r"(?:abstained ([\d.<>]+)%(?: \(([^)]*)\))?)?(?:, )?(?:accuracy where answered ([\d.<>]+)%)?", title
    )
    assert said and (abstained is None or is_column), (beside, found)
    if said[2]:  # by reason, which add up
        total, reasons = said[2].split(":")
        numbers = [int(part.split()[0].replace(",", "")) for part in reasons.split(", ")]
        assert sum(numbers) == int(total.split()[0].replace(",", "")), title
    for text_, value in ((said[1], abstained), (said[3], accuracy), (shown.strip("–"), abstained)):
        assert not is_column or (bool(text_) == (value is not None) and (not text_ or rounds_to(text_, value or 0.0)))


def check_place_titles(page: str, places: dict[str, str]) -> None:
    """What the control of a rank says of the other ranked rows."""
    for key, said in re.findall(
        r'data-key="([^"]*)"><td class="place"[^>]*>.*?<span class="why"[^>]*>(.*?)</span>', page
    ):
        if html.unescape(key) not in places:
            continue
        counted = {word: re.search(rf"(no|[\d,]+) models? (?:is|are) {word}", said) for word in
                   ("significantly better", "significantly worse", "not significantly different")}  # fmt: skip
        numbers = [int(found[1].replace(",", "")) for found in counted.values() if found and found[1] != "no"]
        pairs = len(places) * (len(places) - 1) // 2
        corrected = re.search(r"corrected for ([\d,]+) comparisons", said)
        assert sum(numbers) == len(places) - 1, (said, places)
        assert (corrected[1] if corrected else None) == (f"{pairs:,}" if pairs > 1 else None), (said, places)
        first = places[html.unescape(key)].partition("–")[0]
        assert ("no model is significantly better" in said) == (first == "1"), said


def check_places(
    rows: list[Line],
    truth: dict[str, Raw],
    held: dict[str, Score],
    metric: str,
    up: bool,
    cell: tuple[str, str] | None,
) -> None:
    """Who is shown behind rank 1 is significantly worse than somebody by the test of that pair alone; who shares rank 1 is not beaten by
    anybody even at the strictest correction for all pairs (Bonferroni's)."""
    if cell is not None or (METRICS.get(metric) and METRICS[metric].unit == "count"):
        return
    compared = {
        key: truth[key].units for key, *_ in rows if truth[key].units is not None and held[key].value is not None
    }
    compared = {key: frame for key, frame in compared.items() if truth[key].result.model.kind != "baseline"}
    place = {key: int(shown.partition("–")[0]) for key, _, shown, *_ in rows if key in compared}
    for key in compared:
        ahead = [other for other in compared if (held[other].value - held[key].value) * (1 if up else -1) > 1e-9]  # type: ignore[operator]
        p = [paired_test(compared[key], compared[other], metric).p for other in ahead]  # type: ignore[arg-type]
        if place[key] > 1 and all(raw.units is not None for raw in truth.values()):
            assert p and min(p) < 0.05, (metric, key, place[key], p)
        if place[key] == 1:
            pairs = len(compared) * (len(compared) - 1) / 2
            assert not p or min(p) * pairs >= 0.05, (metric, key, p)
