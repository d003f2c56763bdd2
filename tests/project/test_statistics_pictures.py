"""Check that the pictures of docs/statistics.md and docs/sight.md are those that their script draws
now, and that the text describes them correctly.
"""

import re

from benchmarks.scoring.statistics_pictures import DOCS, PICTURES


def test_the_pictures_are_those_that_the_script_draws() -> None:
    page = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("statistics.md", "sight.md"))
    for name, draw in PICTURES.items():
        pictures = draw()
        assert (DOCS / name).read_text(encoding="utf-8") == pictures, (
            f"{name}: run benchmarks/scoring/statistics_pictures.py"
        )
        caption = re.search(rf"!\[([^]]*)\]\({name}\)", page)
        assert caption, name
        assert all(
            f"{score} %<" in pictures
            for score in re.findall(r"\b[A-C](?: scores)?,?(?: which [a-z ]+,)? (\d+) ", caption[1])
        ), name
        for low, high in re.findall(r"(\d+) to (\d+) from", caption[1]):
            assert f">{low} to {high}<" in pictures, (name, low, high)
    worth = re.search(r"worth (\d+) independent\)", page)
    assert worth and f"worth {worth[1]} independent" in PICTURES["one_score.svg"]()
