"""The pictures of docs/statistics.md are those that its script draws now, and its words say what they show."""

from __future__ import annotations

import re

from benchmarks.scoring.statistics_pictures import DOCS, PICTURES


def test_the_pictures_are_those_that_the_script_draws() -> None:
    page = (DOCS / "statistics.md").read_text(encoding="utf-8")
    for name, draw in PICTURES.items():
        drawn = draw()
        assert (DOCS / name).read_text(encoding="utf-8") == drawn, (
            f"{name}: run benchmarks/scoring/statistics_pictures.py"
        )
        told = re.search(rf"!\[([^]]*)\]\({name}\)", page)
        assert told, name
        for low, high in re.findall(r"(\d+) to (\d+) from", told[1]):
            assert f">{low} to {high}<" in drawn, (name, low, high)
    worth = re.search(r"worth (\d+) independent\)", page)
    assert worth and f"worth {worth[1]} independent" in PICTURES["one_score.svg"]()
