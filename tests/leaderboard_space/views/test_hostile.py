"""Test a store full of hostile content: the board shows it as text, sets aside what it cannot read,
and still serves every page. Model names in any script are found by the text that a field offers.
"""

import html
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dataset_builders.benchmarks import BENCHMARKS
from leaderboard_space.data.board import Board
from leaderboard_space.html import prose, visible
from leaderboard_space.service import Service
from leaderboard_space.views import cases, compare, model
from tests.leaderboard_space.checks.claims import plain
from tests.leaderboard_space.stores import add_run, answers, change, questions

TAGS = '<img src=x onerror="alert(1)"><script>alert(1)</script>'
HOSTILE_NAMES = [
    TAGS,
    "x" * 10_000,
    "\u202egnp.exe\u2066 \u200fmodel",
    '=HYPERLINK("http://example.org")',
    "]]>--></style>",
    "\u0000\u0007 bell",
]
BENCHMARK = "probmed"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("hostile")
    question_table = questions(BENCHMARK, 12)
    question_table.loc[0, "question"] = TAGS
    question_table.at[0, "options"] = [TAGS, "y" * 10_000]
    question_table["organ"] = [TAGS if organ == "brain" else organ for organ in question_table["organ"]]
    folders = [
        add_run(store, BENCHMARK, question_table, answers(question_table, 0.4, seed=number), f"model {number}")
        for number in range(len(HOSTILE_NAMES))
    ]
    for name, folder in zip(HOSTILE_NAMES, folders, strict=True):
        change(folder, lambda result, name=name: result["model"].update(name=name))
        change(folder, lambda result, name=name: result["method"].update(prompt=name, generation={"variant": name}))
        change(
            folder,
            lambda result, name=name: result.update(deviations=[name], command=name, environment={"permuted": name}),
        )
    wrong = add_run(store, BENCHMARK, question_table, answers(question_table, 0.4), "wrong")
    change(wrong, lambda result: result["scores"]["overall"].update(value=1e308, low=-1e308, high=1e308))
    change(
        folders[3],
        lambda result: result.update(
            environment={"permuted": {"same_option": float("nan"), "same_letter": TAGS, "questions": -1}}
        ),
    )
    (folders[4] / "units.parquet").write_bytes(b"PAR1 not really")
    for number, body in enumerate((b"", b"[" * 100_000, TAGS.encode())):
        workdir = store / "results" / BENCHMARK / f"broken-{number}" / TAGS.replace("/", "|")
        workdir.mkdir(parents=True)
        (workdir / "result.json").write_bytes(body)
    return store


def pages(store: Path) -> dict[str, str]:
    board = Board(store)
    service = Service(board)
    html_by_page = {}
    for family in BENCHMARKS:
        for section in board.snapshot.sections[family] or [None]:
            request: dict[str, Any] = {"format": family, "section": section.key if section else None, "shown": "all"}
            for branches in ([], [["organ", TAGS]], [["organ", "chest"], ["image_type", "chest X-ray"]]):
                request["branches"] = branches
                place = f"{family} {section.key if section else ''} {branches}"
                html_by_page[f"view {place}"] = service.view(request)["html"]
                html_by_page[f"breakdown {place}"] = service.breakdown(request)
            for entry in section.entries if section else []:
                html_by_page[f"detail {entry.key}"] = service.detail({**request, "key": entry.key})
    html_by_page["compare"] = compare.page(board, {})
    html_by_page["cases"] = cases.page(board, {}) + cases.page(board, {"find": TAGS, "page": "1e308", "order": TAGS})
    return html_by_page


def test_no_tag_of_theirs_is_a_tag_of_ours(store: Path) -> None:
    html_by_page = pages(store)
    for name, page in html_by_page.items():
        for tag in ("<img src=x", "<script", "</style"):
            assert tag not in page, name
        assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f\u0000\u0007]", page), name
        assert "x" * 1000 not in page and "y" * 1000 not in page, name
    all_html = "".join(html_by_page.values())
    assert "&lt;script&gt;" in all_html and "gnp.exe" in all_html
    assert str(store) not in all_html
    assert sum("Set aside, unreadable" in page for page in html_by_page.values()) >= 1


def test_files_of_hostile_results_run_nothing_and_are_json(store: Path) -> None:
    board = Board(store)
    service = Service(board)
    request = {"format": BENCHMARK, "section": board.snapshot.sections[BENCHMARK][0].key, "shown": "all"}
    for table_name in ("leaderboard", "breakdown", "aspects"):
        json.loads(service.export({**request, "of": table_name, "as": "json"})["text"], parse_constant=pytest.fail)
        body = service.export({**request, "of": table_name, "as": "csv"})["text"]
        assert not re.search(r'(^|,)"?=HYPERLINK', body, re.MULTILINE)
    for view, tables in ((compare, ("scores", "settings", "flips")), (cases, ("cases",))):
        for table_name in tables:
            file = view.file(board, {"of": table_name, "as": "csv"})
            assert not re.search(r'(^|,)"?=HYPERLINK', file["text"], re.MULTILINE)
            assert re.fullmatch(r"medprobe-[A-Za-z0-9.-]+\.csv", file["name"])


def test_the_details_of_a_permuted_run_say_option_or_letter(tmp_path: Path) -> None:
    question_table = questions("halt-medvqa", 9)
    folder = add_run(tmp_path, "halt-medvqa", question_table, answers(question_table, 0.5), "Turned")
    permuted = {"same_option": 62.5, "same_letter": 12.25, "questions": 8}
    change(folder, lambda result: result.update(environment={"permuted": permuted}))
    service = Service(Board(tmp_path))
    key = service.board.snapshot.sections["halt-medvqa"][0].entries[0].key
    page = service.detail({"format": "halt-medvqa", "key": key})
    assert "same option 62.5%, same letter 12.2% of 8 questions answered in every order" in page


ARABIC, HEBREW = "\u0637\u0628\u064a \u0646\u0645\u0648\u0630\u062c", "\u05de\u05d5\u05d3\u05dc"
SCRIPTS = [
    "Model", "\u6a21\u578b", ARABIC, HEBREW, "\ubaa8\ub378", "\u041c\u043e\u0434\u0435\u043b\u044c", "\U0001fa7b\U0001f469\U0001f3fd",
    "e\u0301", "a\u200bb", "\u202eturned", "<b>", "a/b?c=d&e#f", "100%", '"', "..", " spaced  ", "\t", "x" * 150,
]  # fmt: skip


def drawn(number: int) -> str:
    """Make a name from a few scripts; every third differs from the one before in case only."""
    dice = random.Random(number - (number % 3 == 2))
    name = f"{' '.join(dice.sample(SCRIPTS, dice.randint(1, 3)))} v{number - (number % 3 == 2)}"
    return name.swapcase() if number % 3 == 2 else name


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Board:
    store = tmp_path_factory.mktemp("foreign")
    question_table = questions("mediconfusion", 6)
    for number in range(40):
        folder = add_run(
            store, "mediconfusion", question_table, answers(question_table, 1.0, seed=number), f"model {number}"
        )
        change(folder, lambda result, number=number: result["model"].update(name=drawn(number)))
    return Board(store)


def offered(page: str, field: str) -> list[str]:
    """Return what a field offers, as a browser would send it back."""
    listed = page.split(f'<datalist id="{field}">')[1].split("</datalist>", maxsplit=1)[0]
    return [html.unescape(value).strip() for value in re.findall(r'<option value="([^"]*)"', listed)]


@pytest.mark.exhaustive
def test_every_name_that_a_field_offers_is_found_by_it(board: Board) -> None:
    service = Service(board)
    compared = offered(compare.page(board, {}), "results-first")
    assert len(compared) == len({entry.key for entry in board.snapshot.sections["mediconfusion"][0].entries}) == 40
    for name in compared[::2]:
        page_text = plain(compare.page(board, {"first": name, "second": compared[0]}))
        assert "There is no result named" not in page_text and ("Choose two" in page_text) == (name == compared[0]), (
            name
        )
        assert "No result named" not in plain(cases.page(board, {"model": name}))
    chosen = offered(model.page(service.board, {}), "mp-models")
    assert len(chosen) == len(set(chosen)) == 40  # also if two names differ in case only
    for name in chosen[::2]:
        titles = re.findall(r'<h2 class="name"[^>]*>(.*?)</h2>', model.page(service.board, {"id": name}))
        assert [html.unescape(title).strip()[:100] for title in titles] == [visible(name).strip()[:100]], name


def test_a_result_whose_model_has_no_name_is_set_aside(tmp_path: Path) -> None:
    """Its row would be an empty link."""
    question_table = questions("halt-medvqa", 6)
    folder = add_run(tmp_path, "halt-medvqa", question_table, answers(question_table, 0.7), "B")
    change(folder, lambda run: run["model"].update(name="\u3000"))
    assert "its model has no name" in Service(Board(tmp_path)).view({"format": "halt-medvqa"})["html"]


def test_cases_count_who_chose_an_option_and_name_them_on_demand(board: Board) -> None:
    (case,) = re.findall(r'href="(#/cases/0\?[^"]*)"', cases.page(board, {}))[:1]
    listed, single_case = cases.page(board, {"find": "0-1"}), cases.page(board, {"id": "0"})
    for page in (listed, single_case):
        counts = [int(digits) for digits in re.findall(r"<summary>(\d+) of 40", page)]
        name_counts = [part.count("<bdi>") for part in re.findall(r"<details><summary>\d+ of 40.*?</details>", page)]
        assert case and counts and len(counts) == len(name_counts)
        assert all(names in (size, 2 * size) for size, names in zip(counts, name_counts, strict=True))


@given(st.lists(st.sampled_from(SCRIPTS), min_size=1, max_size=3).map(" ".join), st.floats(0, 100))
def test_a_number_after_a_name_stays_behind_it(name: str, value: float) -> None:
    """After a right-to-left letter, a mark resets the direction before any of our own text
    follows.
    """
    sentence = html.unescape(prose(f"{name}: {value:.1f} points"))
    assert sentence.replace("\u200e", "") == visible(f"{name}: {value:.1f} points")
    after_left = re.findall("[\u0590-\u08ff]+([^\u0590-\u08ff]+)", sentence)
    assert all(suffix[0] == "\u200e" or suffix[0].isspace() for suffix in after_left)
    assert not re.search("[\u0590-\u08ff]: ", sentence)
