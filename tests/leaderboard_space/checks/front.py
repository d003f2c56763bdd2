"""The first screen, the pages of models and of topics over a generated store, held against scores computed from its raw files.

See also: the other pages (`pages.py`).
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from eval_harness.benchmarks import spec
from eval_harness.records.result import Score
from leaderboard_space.data.ranks.standings import Standings, info_of
from leaderboard_space.data.store.sections import Section
from leaderboard_space.data.topics import Label, matching, topics
from leaderboard_space.front import Front
from leaderboard_space.service import Service
from leaderboard_space.views.model_pages import model
from tests.leaderboard_space.checks.claims import (
    SIGNS,
    Truth,
    check_behind,
    check_headline,
    check_model_verdicts,
    check_trust,
    check_words,
    plain,
    rounds_to,
)
from tests.leaderboard_space.generated import FACET, Raw, apart, in_order, standing


def check_front(service: Service, family: str, sections: list[dict[str, Raw]]) -> None:
    """The first screen's matrix and sentence, and the first sentence of models' own pages, by what the store holds."""
    front, metric = Front(service), spec(family).headline
    rows = [found for truth in sections for found in truth.values()]
    every = [score for found in rows for score in found.scores.values()]
    page = check_words(front.page({"all": "1"}))
    check_behind(page, every)
    table = re.search(r'<table class="matrix".*?</table>', page, re.DOTALL)
    marks = []
    for key, line in re.findall(r'<tr data-key="([^"]*)">(.*?)</tr>', table[0] if table else "", re.DOTALL):
        for value, mark in re.findall(r'<b>(.*?)</b><span class="mark" aria-hidden="true">(.)</span>', line):
            known = [found.scores.get(metric) for found in rows if found.result.model.name == html.unescape(key)]
            assert any(score and score.value is not None and rounds_to(value, score.value) for score in known), (
                key,
                value,
            )
            marks.append(mark)
    sentence = plain(re.search(r'<h2 class="finding">(.*?)</h2>', page)[1])  # type: ignore[index]
    counts = {mark: marks.count(mark) for mark in "▲≈▼"}
    tested = sum(counts.values())
    if sentence != "No model here has been tested against guessing yet.":
        check_trust(sentence, tested, counts["▲"], counts["▼"])
    elif "the paper's random run" not in page:  # which has no exact chance to be tested against
        assert tested == 0, (sentence, marks)
    check_topics(front, family, sections)
    for name in sorted({found.result.model.name for found in rows if found.result.model.kind != "baseline"})[:3]:
        own = check_words(model.page(service.memory, service.claims, {"id": name}))
        check_model_lines(own, name, service.board.snapshot.sections[family], sections, metric)
        said = plain(re.search(r'<h3 class="finding">(.*?)</h3>', own)[1])  # type: ignore[index]
        check_model_verdicts(
            said,
            [
                found.scores[metric].verdict
                for found in rows
                if found.result.model.name == name and metric in found.scores
            ],
        )


def check_model_lines(
    page: str, name: str, shown: Sequence[Section], sections: list[dict[str, Raw]], metric: str
) -> None:
    """Each line of a model's page is one of its results: value, interval, verdict, chance, and among how many of its group it is ranked."""
    table = re.search(r'data-table="verdicts".*?</table>', page, re.DOTALL)
    lines = re.findall(
        r'<tr class="v-[^"]*"><th scope="row">(.*?)</th><td class="num"[^>]*><b>(.*?)</b></td><td class="chart">.*?</td>'
        r'<td class="num">(.*?)</td><td>(.*?)</td><td class="num">(.*?)</td>',
        table[0] if table else "",
        re.DOTALL,
    )
    known = 0
    for section, truth in zip(shown, sections, strict=True):
        title = "" if section.kind == "complete" else section.title()
        group = dict.fromkeys(truth, "ranked") | apart(truth)
        scores = {key: found.scores.get(metric) for key, found in truth.items()}
        valued = {key: score for key, score in scores.items() if score is not None and score.value is not None}
        models = [key for key in valued if truth[key].result.model.kind != "baseline"]
        for key, score in valued.items():
            if truth[key].result.model.name != name:
                continue
            known += 1
            of = sum(group[other] == group[key] for other in models)
            assert any(
                _is_line_of(score, group[key], of, *map(plain, line)) and _names_set(plain(line[0]), title)
                for line in lines
            ), (key, score, of, title, lines)
    assert len(lines) == known, (name, lines)


def _names_set(head: str, title: str) -> bool:
    """Whether a line says which set of questions it is of; of the complete official one it says nothing."""
    return title in head if title else "official set" not in head.lower()


def _is_line_of(score: Score, group: str, of: int, head: str, value: str, ends: str, verdict: str, ranks: str) -> bool:
    """Whether a line says this of a result. `of`: how many results hold ranks in its group."""
    low, _, high = ends.partition("–")
    words = {"better": "significantly better than ", "worse": "significantly worse than ",
             "no different": "not significantly different from ", None: "not tested"}  # fmt: skip
    level = re.search(r"([\d.]+)%", verdict)
    ranked = re.fullmatch(r"(\d+)(?:–(\d+))? of (\d+)", ranks)
    return (
        rounds_to(value, score.value or 0.0)
        and ("not ranked with the others" in head) == (group != "ranked")
        and (score.low is None or (rounds_to(low, score.low) and rounds_to(high, score.high or 0.0)))
        and verdict.startswith(
            f"{next(sign for sign, word in SIGNS.items() if word == score.verdict)} {words[score.verdict]}"
        )
        and (level is None) == (score.chance is None)
        and (level is None or rounds_to(level[1], score.chance or 0.0))
        and "random run" not in verdict  # no paper of a generated store has one
        and (ranked is None) == (group in ("withdrawn", "outdated"))
        and (ranked is None or 1 <= int(ranked[1]) <= int(ranked[2] or ranked[1]) <= int(ranked[3]) == of)
    )


def check_topics(front: Front, family: str, sections: list[dict[str, Raw]]) -> None:
    """The page of a topic: its first sentence, how many tests are corrected together, and every number in its tables."""
    ranked = [{key: found for key, found in truth.items() if key not in apart(truth)} for truth in sections]
    rows = [found for truth in ranked for found in standing(truth).values()]
    is_one_each = len(rows) == sum(map(len, ranked))
    labels = front.labels()
    for id, topic in list(topics(labels).items())[:40]:
        held = matching(topic, labels)
        facet = held[0][0].facet if held else ""
        if facet not in (FACET.get(family), "image_type") or any(label.facet != facet for label, _ in held):
            continue
        page = check_words(front.topic({"id": id, "all": family}))
        sentence = plain(re.search(r'<h2 class="finding"[^>]*>(.*?)</h2>', page)[1])  # type: ignore[index]
        same = any(how == "same" for _, how in held)
        assert (": results from " in sentence) if same else sentence.endswith(" covers something related."), (
            sentence,
            held,
        )
        marks = re.findall(r'<span class="mark">(.)</span>', page)
        number = re.search(r"at 95%, (?:corrected for ([\d,]+) comparisons|one comparison)", page)
        tests, shown = int((number[1] or "1").replace(",", "")) if number else -1, sum(mark != "·" for mark in marks)
        tests = max(tests, 0)  # nothing is said of none
        assert tests == shown if is_one_each else tests >= shown >= 0, (number, marks)
        cells = [
            (found.result.model.name, score)
            for found in rows
            for cell in [
                *found.cells.get(facet, {}).values(),
                found.scores,
            ]  # a label of every question selects nothing
            for score in cell.values()
        ]
        check_behind(page, [score for _, score in cells])
        section = front.service.query({"format": family}).section
        own = ranked[front.service.board.snapshot.sections[family].index(section)]
        for part in re.findall(r'<section class="part">.*?</section>', page, re.DOTALL):
            check_topic_cells(part, family, [label for label, _ in held], own)
            check_topic_part(part, front._of(next((label for label, how in held if how == "same"), held[0][0])))
        return


def check_topic_cells(part: str, family: str, labels: Sequence[Label], truth: dict[str, Raw]) -> None:
    """One benchmark's table on a topic's page: every cell is what the result that stands for the model has under that very label, by the
    score that its column names; a model without a number there has a dash."""
    heads = re.findall(
        r'data-sort="\d+"><button[^>]*>(.*?)</button><small>(?:related · )?(.*?) · n ([\d,]+)</small>', part
    )
    lines = re.findall(r'<tr data-key="([^"]*)">(.*?)</tr>', part, re.DOTALL)
    by_shown = {label.shown: label for label in labels}
    models = {key: found for key, found in truth.items() if found.result.model.kind != "baseline"}
    columns = []
    for shown, metric, n in heads:
        label = by_shown[html.unescape(shown)]
        held = {key: found.cells.get(label.facet, {}).get(label.value, {}) for key, found in models.items()}
        named = {
            key: score
            for key, scores in held.items()
            for name, score in scores.items()
            if info_of(name, family).label == html.unescape(metric) and score.value is not None
        }
        columns.append(
            {
                one.result.model.name: (named[key], one.units is None)
                for key, one in reversed(in_order(models))
                if key in named
            }
        )
        sizes = {score.n for score in named.values()}
        # A label of every question is the whole set, whose pairs count once and not by each of their images.
        sizes |= {
            one.n for key, cell in named.items() for one in models[key].scores.values() if one.n_cases == cell.n_cases
        }
        assert not named or int(n.replace(",", "")) in sizes, (label, n)
    assert {html.unescape(name) for name, _ in lines} == {name for column in columns for name in column}, (
        lines,
        columns,
    )
    order = [html.unescape(name) for name, _ in lines]
    known = [name for name in order if name in columns[0]] if columns else []
    values = [columns[0][name][0].value or 0.0 for name in known]
    assert order[: len(known)] == known and values in (sorted(values), sorted(values, reverse=True)), (order, values)
    for name, line in lines:
        cells = re.findall(r'<td class="([\w ]+)"[^>]*>(.*?)</td>', line)
        for (kind, body), column in zip(cells, columns, strict=True):
            score, is_printed = column.get(html.unescape(name), (None, False))
            if score is None:
                assert (kind, body) == ("none", "–"), (name, kind, body)
                continue
            value, mark = re.fullmatch(r'<b>(.*?)</b> <span class="mark">(.)</span> <small>.*</small>', body).groups()  # type: ignore[union-attr]
            assert rounds_to(html.unescape(value), score.value or 0.0), (name, body, score)
            assert kind.endswith(" few") == (score.n_cases < 30), (name, kind, score)
            # Corrected for all tests of the page: no more are significant than each by itself.
            marks = {"better": "▲≈", "worse": "▼≈", "no different": "≈", None: "·≈"}
            assert is_printed or mark in marks[score.verdict], (body, score)


def check_topic_part(part: str, ranked: Standings) -> None:
    """The sentence of one benchmark's part of a topic's page, by the marks of its first column."""
    shown = {
        html.unescape(name): found[1]
        for name, line in re.findall(r'<tr data-key="([^"]*)">(.*?)</tr>', part, re.DOTALL)
        if (found := re.match(r'<th.*?</th><td class="[\w ]+"[^>]*><b>.*?</b> <span class="mark">(.)<', line))
    }
    models = [row for row in ranked.models if row.entry.result.model.name in shown]
    names = {row.entry.result.model.name for row in models}
    said = plain(re.search(r'<p class="asked">(.*?)</p>', part)[1])  # type: ignore[index]
    if len(names) < len(ranked.models) or not models:  # several rows of a model: its cell shows one of them
        return
    truth = [
        Truth(
            f"{name} ({row.entry.account})" if (name := row.entry.result.model.name) and f"{name} (" in said else name,
            row.score.value or 0.0,
            SIGNS[shown[name]],
            row.first or 0,
        )
        for row in models
    ]
    check_headline(
        re.sub(r"^[^:]+: (?=.* guessing|.* flipping)", "", said), truth, baselines=0, uncounted=0, partial=0,
        up=info_of(ranked.metric).higher_is_better is not False, models=True,
    )  # fmt: skip
