"""The first screen, the pages of models and of topics over a generated store, held against scores computed from its raw files.

See also: the other pages (`pages.py`).
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from eval_harness.records.result import Score
from leaderboard_space.benchmarks import headline_of
from leaderboard_space.data.store.sections import Section
from leaderboard_space.front import OverviewPages
from leaderboard_space.service import Service
from leaderboard_space.views import model
from tests.leaderboard_space.checks.claims import (
    SIGNS,
    check_behind,
    check_model_verdicts,
    check_trust,
    check_words,
    plain,
    rounds_to,
)
from tests.leaderboard_space.generated import Raw, apart


def check_front(service: Service, family: str, sections: list[dict[str, Raw]]) -> None:
    """The first screen's matrix and sentence, and the first sentence of models' own pages, by what the store holds."""
    front, metric = OverviewPages(service), headline_of(family)
    rows = [found for truth in sections for found in truth.values()]
    every = [score for found in rows for score in found.scores.values()]
    page = check_words(front.page({"all": "yes"}))
    check_behind(page, every)
    table = re.search(r'<table class="matrix" .*?</table>', page, re.DOTALL)
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
    for name in sorted({found.result.model.name for found in rows if found.result.model.kind != "baseline"})[:3]:
        own = check_words(model.page(service.memory, {"id": name}))
        check_model_lines(own, name, service.board.snapshot.sections[family], sections, metric)
        said = plain(re.search(r'<h3 class="finding">(.*?)</h3>', own)[1])  # type: ignore[index]
        check_model_verdicts(
            said,
            name,
            [
                score.verdict
                for found in rows
                if found.result.model.name == name
                for key, score in found.scores.items()
                if key == metric or metric not in found.scores
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
    is_first = all(
        any(metric in found.scores for found in truth.values()) for truth in sections
    )  # else another stands there
    assert len(lines) == known or not is_first, (name, lines)


def _names_set(head: str, title: str) -> bool:
    """True if a line says which set of questions it is of; of the complete official one it says nothing."""
    return title in head if title else "official set" not in head.lower()


def _is_line_of(score: Score, group: str, of: int, head: str, value: str, ends: str, verdict: str, ranks: str) -> bool:
    """True if a line says this of a result. `of`: how many results hold ranks in its group."""
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
