"""Long tables: which rows are drawn, in which order, and that every row can be reached."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderboard_space.data.board import Board
from leaderboard_space.service import Service
from leaderboard_space.views.tables.row_window import FIRST, MORE, Window, first, matching, window_of
from tests.leaderboard_space.stores import add_run, answers, questions

MODELS = 83
VALUES = st.lists(st.one_of(st.none(), st.floats(-100, 100), st.integers(0, 9)), max_size=200)


@given(values=VALUES, down=st.booleans(), rows=st.integers(FIRST, 200))
def test_the_first_rows_are_those_that_the_browser_would_sort_to_the_top(
    values: list[Any], down: bool, rows: int
) -> None:
    """As `sortTable` in table.js: by value, ties in the board's order, what has none last."""
    items = [(at, value) for at, value in enumerate(values)]
    drawn = first(Window(rows=rows, sorts=(("t", "column", down),)), "t", items, lambda item, column: item[1])
    if len(items) <= rows:
        assert drawn == items
        return
    sign = -1 if down else 1
    by_value = sorted((item for item in items if item[1] is not None), key=lambda item: (sign * item[1], item[0]))
    assert drawn == [*by_value, *(item for item in items if item[1] is None)][:rows]


@given(
    names=st.lists(st.text("abc D", max_size=8), max_size=30),
    words=st.lists(st.text("abcD", min_size=1, max_size=2), max_size=2),
)
def test_a_search_keeps_what_holds_every_word(names: list[str], words: list[str]) -> None:
    found = matching(Window(find=" ".join(words)), names, lambda name: name)
    assert found == [name for name in names if all(word.lower() in name.lower() for word in words)]


@given(
    request=st.dictionaries(
        st.sampled_from(["find", "rows", "sorts"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=9),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
        ),
    )
)
def test_whatever_a_browser_sends_is_a_window(request: dict[str, Any]) -> None:
    window = window_of(request)
    assert FIRST <= window.rows <= 2_000 and len(window.find) <= 100 and len(window.sorts) <= 4
    hash(window)


def made(store: Path, models: int) -> Service:
    asked = questions("gmai-mmbench", 24)
    for number in range(models):
        add_run(store, "gmai-mmbench", asked, answers(asked, number / 100, seed=number), f"Model {number:03}")
    return Service(Board(store))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Service:
    return made(tmp_path_factory.mktemp("many"), MODELS)


def drawn(html: str) -> list[str]:
    return re.findall(r"Model \d{3}(?=</span>|</bdi>)", html)


def test_every_result_of_a_long_table_can_be_reached(service: Service) -> None:
    """The first rows, then more; by search; by the other end of an order: in the table and in the breakdown alike."""
    asked = {"format": "gmai-mmbench"}
    for page in (lambda one: service.view(one)["html"], service.breakdown):
        short, whole = drawn(page(asked)), drawn(page({**asked, "rows": FIRST + MORE}))
        assert len(short) == FIRST and len(set(whole)) == MODELS and whole[:FIRST] == short
        assert f"{FIRST} of {MODELS}" in page(asked) and f'data-more="{FIRST + MORE}"' in page(asked)
        assert "data-part" not in page({**asked, "rows": FIRST + MORE})
        assert sorted(drawn(page({**asked, "find": "model 01"}))) == [
            name for name in sorted(set(whole)) if "01" in name
        ]
        assert "match “nobody”" in page({**asked, "find": "nobody"})
        table = "leaderboard" if page(asked) != service.breakdown(asked) else "breakdown"
        last = drawn(page({**asked, "sorts": {table: ["model", "descending"]}}))
        assert set(last) == {f"Model {number:03}" for number in range(MODELS - FIRST, MODELS)}


@pytest.mark.parametrize("down", [False, True])
def test_the_server_sorts_by_the_numbers_that_the_browser_sorts_by(service: Service, down: bool) -> None:
    asked = {"format": "gmai-mmbench"}
    rows = re.findall(r'<tr class="k-.*?</tr>', service.view({**asked, "rows": FIRST + MORE})["html"])
    cells = {"place": "place", "score": "num val", "interval": "num ci", "n": "num n", "abstained": "num abst"}
    for column, kind in cells.items():
        found = [re.search(rf'<td class="{kind}"[^>]* data-v="([^"]*)"', row) for row in rows]
        values = [float(one[1]) if one and one[1] else None for one in found]
        names = [drawn(row)[0] for row in rows]
        order = sorted(
            (at for at, value in enumerate(values) if value is not None),
            key=lambda at: (-1 if down else 1) * values[at],
        )  # type: ignore[operator]
        expected = [names[at] for at in [*order, *(at for at, value in enumerate(values) if value is None)]][:FIRST]
        way = "descending" if down else "ascending"
        assert set(drawn(service.view({**asked, "sorts": {"leaderboard": [column, way]}})["html"])) == set(expected), (
            column
        )
