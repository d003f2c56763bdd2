"""The first screen, the pages of models and of topics over a generated store, held against scores computed from its raw files.

See also: the other pages (`pages.py`).
"""

from __future__ import annotations

import html
import re

from eval_harness.records.result import Score
from leaderboard_space.benchmarks import headline_of
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
from tests.leaderboard_space.generated import Raw


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
        check_model_lines(own, name, sections, metric)
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


def check_model_lines(page: str, name: str, sections: list[dict[str, Raw]], metric: str) -> None:
    """Each result of a model is a line of its page: value, interval, verdict and chance."""
    table = re.search(r'data-table="verdicts".*?</table>', page, re.DOTALL)
    lines = re.findall(
        r'<tr class="v-[^"]*"><th scope="row">.*?</th><td class="num"[^>]*><b>(.*?)</b></td><td class="chart">.*?</td>'
        r'<td class="num">(.*?)</td><td>(.*?)</td>',
        table[0] if table else "",
        re.DOTALL,
    )
    own = [
        found.scores.get(metric) for truth in sections for found in truth.values() if found.result.model.name == name
    ]
    for score in own:
        if score is not None and score.value is not None:
            assert any(_is_line_of(score, *map(plain, line)) for line in lines), (score, lines)


def _is_line_of(score: Score, value: str, ends: str, verdict: str) -> bool:
    """True if a line says this of a result."""
    low, _, high = ends.partition("–")
    words = {"better": "significantly better than ", "worse": "significantly worse than ",
             "no different": "not significantly different from ", None: "not tested"}  # fmt: skip
    level = re.search(r"([\d.]+)%", verdict)
    sign = next(sign for sign, word in SIGNS.items() if word == score.verdict)
    return (
        rounds_to(value, score.value or 0.0)
        and (score.low is None or (rounds_to(low, score.low) and rounds_to(high, score.high or 0.0)))
        and verdict.startswith(f"{sign} {words[score.verdict]}")
        and (level is None) == (score.chance is None)
        and (level is None or rounds_to(level[1], score.chance or 0.0))
    )
