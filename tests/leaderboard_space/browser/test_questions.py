"""The questions that visitors come with, from the first screen: each in two actions (comparing: three), its answer the page's headline.

Submitting a file and finding it: `test_tasks.py`."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser import eventually
from tests.leaderboard_space.serving import board

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store = tmp_path_factory.mktemp("papers_alone")
    (store / "results").mkdir()
    with board(store, tmp_path_factory.mktemp("home")) as (address, _):
        yield address


def find(words: str) -> list[Callable[[Page], Any]]:
    """Two actions: type, Enter."""
    field = "#mp-overview .mp-search input"
    return [lambda page: page.locator(field).fill(words), lambda page: page.locator(field).press("Enter")]


def press(name: str, area: str = "body") -> Callable[[Page], Any]:
    return lambda page: page.locator(area).get_by_text(name, exact=True).first.click()


def name_model(slot: str, name: str) -> Callable[[Page], Any]:
    def act(page: Page) -> None:
        field = page.locator(f"#mp-compare input[data-name={slot}]")
        field.fill(name)
        field.press("Enter")

    return act


QUESTIONS: dict[str, tuple[list[Callable[[Page], Any]], str]] = {
    "best for ophthalmology": (find("ophthalmology"), r"GPT-4o scores highest \(55.2%\); Gemini 1.5 may be as good"),
    "anyone better than guessing on look-alikes": ([], r"none beats flipping a coin for each image; ten do worse"),
    "who leads on MRI, by aspect": (
        find("mri"),
        r"On brain MRI, no model says what is wrong or says where better than",
    ),
    "department and task together": (
        find("ophthalmology disease diagnosis"),
        r"The paper reports Ophthalmology and Disease Diagnosis separately",
    ),
    "a model's weakest spot": (find("gpt-4o"), r"GPT-4o beats guessing on .*Weakest: “says where” in ProbMed"),
    "GPT-4o against LLaVA-Med": (
        [press("Compare", "#mp-nav"), name_model("first", "GPT-4o"), name_model("second", "LLaVA-Med")],
        r"GPT-4o is significantly better than LLaVA-Med by [\d.]+ points",
    ),
    "who picks none of the above": (
        find("none of the above"),
        r"Correct option removed.* GPT-4-turbo-vision scores highest",
    ),
}


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_by_the_headline(
    chromium: Any, address: str, question: str, width: int, scheme: str
) -> None:
    actions, answer = QUESTIONS[question]
    page = chromium.new_page(width, 900, scheme)
    page.goto(address)
    page.locator("table.matrix tbody tr").first.wait_for()
    for act in actions:
        act(page)
    expect(page.locator(".finding:visible").first).to_have_text(re.compile(answer))


@pytest.mark.parametrize("typed", [None, 0, 1, 5, 9])
def test_a_name_is_read_as_it_was_typed_whenever_the_reply_to_the_choice_before_arrives(
    chromium: Any, address: str, typed: int | None
) -> None:
    """The reply, held back by the test, brings another default for the field: before the field is entered (None), once its text is
    selected, or after so many letters."""
    page, name = chromium.new_page(1440, 900), "LLaVA-Med"
    page.goto(f"{address}/#/compare")
    second = page.locator("#mp-compare input[data-name=second]")
    second.wait_for()
    held: list[Any] = []

    def hold(route: Any) -> None:  # a method of a list takes none of playwright's marks
        held.append(route)

    page.route("**/board/compare/page", hold)
    name_model("first", "GPT-4o")(page)
    eventually(lambda: page.evaluate("0") or len(held) > 0, True)
    default = second.input_value()
    if typed is not None:
        second.select_text()
        page.keyboard.type(name[:typed])
    page.locator("#mp-compare .finding").evaluate("one => one.dataset.before = ''")
    page.unroute("**/board/compare/page")  # which lets go of what is held
    page.locator("#mp-compare [data-before]").wait_for(state="detached")
    if typed is None:
        expect(second).not_to_have_value(default)
        second.select_text()
    page.keyboard.type(name[typed or 0 :])
    expect(second).to_have_value(name)
    page.keyboard.press("Enter")
    expect(page.locator("#mp-compare .finding").first).to_have_text(re.compile("GPT-4o is significantly .* LLaVA-Med"))
    page.go_back()  # the field says what is compared again
    expect(second).not_to_have_value(name)


def test_what_is_shown_can_be_cited_and_shared(chromium: Any, address: str) -> None:
    page = chromium.new_page(1440, 900)
    page.goto(f"{address}/#/b/probmed")
    page.locator("#mp-probmed table.board").wait_for()
    page.locator("#mp-probmed .legend").get_by_text("Cite").click()
    expect(page.locator("#mp-probmed .cite")).to_contain_text(re.compile(r"url = \{http.*author=\{Yan", re.DOTALL))


def test_a_rank_says_why_by_key_and_by_touch(chromium: Any, address: str, tmp_path: Path) -> None:
    page = chromium.new_page(390, 900)
    page.goto(f"{address}/#/b/mediconfusion")
    rank = page.locator("#mp-mediconfusion .ask-why").first
    rank.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#mp-mediconfusion .why:popover-open")).to_contain_text("no model is significantly better")
    page.keyboard.press("Escape")
    expect(page.locator("#mp-mediconfusion .why:popover-open")).to_have_count(0)
    rank.click()
    expect(page.locator("#mp-mediconfusion .why:popover-open")).to_have_count(1)
