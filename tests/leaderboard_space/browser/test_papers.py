"""Answer visitors' typical questions in headless Chromium, with the papers' numbers only: from the
first screen, in a few actions each.

Submitting a file and finding it: `test_tasks.py`.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests.browser import download, eventually, here, mark, tab
from tests.leaderboard_space.serving import board
from tests.sampling import few

pytestmark = [pytest.mark.browser, pytest.mark.exhaustive]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store = tmp_path_factory.mktemp("empty")
    (store / "results").mkdir()
    with board(store, tmp_path_factory.mktemp("home")) as (address, _):
        yield address


@pytest.fixture
def start(chromium: Any, address: str) -> Callable[..., Any]:
    """Return a function that opens the first screen: (width, colour scheme, address within it) ->
    page.
    """

    def first_screen(width: int = 1440, scheme: str = "light", path: str = "/") -> Any:
        page = chromium.new_page(width, 844 if width < 500 else 900, scheme)
        page.goto(address + path)
        if path == "/":
            page.locator("table.matrix tbody tr").first.wait_for()
        return page

    return first_screen


def find(words: str) -> list[Callable[[Page], Any]]:
    """Two actions: type, Enter."""
    field = "#mp-overview .mp-search input"
    return [lambda page: page.locator(field).fill(words), lambda page: page.locator(field).press("Enter")]


def name_model(slot: str, name: str) -> Callable[[Page], Any]:
    def act(page: Page) -> None:
        field = page.locator(f"#mp-compare input[data-name={slot}]")
        field.fill(name)
        field.press("Enter")

    return act


QUESTIONS: dict[str, tuple[list[Callable[[Page], Any]], str]] = {
    "best for ophthalmology": (find("ophthalmology"), r"GPT-4o scores highest \(55.2%\); Gemini 1.5 may be as good"),
    "anyone better than guessing on look-alikes": ([], r"none beats flipping a coin for each image; nine do worse"),
    "who leads on MRI": (
        find("mri"),
        r"MRI: HuatuoGPT-Vision-34B scores highest \(70.4%\); .* All beat guessing",
    ),
    "department and task together": (
        find("ophthalmology disease diagnosis"),
        r"The paper reports Ophthalmology and Disease Diagnosis separately",
    ),
    "a model's weakest spot": (
        find("gpt-4o"),
        r"GPT-4o beats guessing on .*Weakest: “abdomen MRI” in ProbMed, condition 21.4%",
    ),
    "GPT-4o against LLaVA-Med": (
        [lambda page: tab(page, "Compare").click(), name_model("first", "GPT-4o"), name_model("second", "LLaVA-Med")],
        r"GPT-4o is significantly better than LLaVA-Med by [\d.]+ points",
    ),
    "who picks none of the above": (
        find("none of the above"),
        r"^GPT-4-turbo-vision scores highest \(44.4%\)",
    ),
}


@pytest.mark.parametrize(("width", "scheme"), few([(1440, "light"), (390, "dark")]))
def test_a_question_is_answered_by_the_headline(start: Callable[..., Any], width: int, scheme: str) -> None:
    """Each takes two actions from the first screen (a comparison three), and the page's headline is
    the answer.
    """
    page = start(width, scheme)
    for actions, answer in QUESTIONS.values():
        page.evaluate("medprobe.visit('#/overview')")
        for act in actions:
            act(page)
        expect(page.locator(".finding:visible").first).to_have_text(re.compile(answer))


def test_a_name_is_read_as_it_was_typed_whenever_the_reply_to_the_choice_before_arrives(start: Any) -> None:
    """The reply, which the test delays, brings a new default for a field in which half a name has
    been typed meanwhile.
    """
    page, name = start(path="/#/compare"), "LLaVA-Med"
    second = page.locator("#mp-compare input[data-name=second]")
    second.wait_for()
    held_requests: list[Any] = []

    def hold(route: Any) -> None:  # not the list's method: playwright sets an attribute on the handler
        held_requests.append(route)

    page.route("**/board/compare/page", hold)
    name_model("first", "GPT-4o")(page)
    eventually(lambda: page.evaluate("0") or len(held_requests) > 0, True)
    second.select_text()
    page.keyboard.type(name[:5])
    mark(page.locator("#mp-compare .finding"))
    page.unroute("**/board/compare/page")  # which releases the delayed requests
    page.locator("#mp-compare [data-before]").wait_for(state="detached")
    page.keyboard.type(name[5:])
    expect(second).to_have_value(name)
    page.keyboard.press("Enter")
    expect(page.locator("#mp-compare .finding").first).to_have_text(re.compile("GPT-4o is significantly .* LLaVA-Med"))
    page.go_back()  # the field again shows the result that is compared
    expect(second).not_to_have_value(name)


def test_a_rank_says_why_by_key_and_by_touch(start: Callable[..., Any]) -> None:
    page = start(390, path="/#/b/mediconfusion")
    rank, why = page.locator("#mp-mediconfusion .ask-why").first, page.locator("#mp-mediconfusion .why:popover-open")
    rank.press("Enter")
    expect(why).to_contain_text("no model is significantly better")
    page.keyboard.press("Escape")
    expect(why).to_have_count(0)
    rank.click()
    expect(why).to_have_count(1)


@pytest.mark.exhaustive
def test_cite_save_share_reload(start: Any) -> None:
    page = start()
    kinds = page.get_by_role("group", name="Kind of model")
    kinds.get_by_role("button", name="Medical").click()
    kinds.get_by_role("button", name="Medical", pressed=True).wait_for()
    names = page.locator("table.matrix tbody th a").all_inner_texts()
    page.locator("#mp-overview [data-act=cite]").first.click()
    cite = page.locator("#mp-overview .cite")
    expect(cite).to_contain_text("urldate")
    citation = cite.inner_text()
    assert (
        citation.startswith("@misc{")
        and "kind medical" in citation
        and here(page) in citation
        and "urldate" in citation
    )
    saved = download(page, page.locator("#mp-overview [data-act=json]").first)
    rows = json.loads(Path(saved.path()).read_text(encoding="utf-8"))
    assert saved.suggested_filename == "medprobe-overview-kind-medical.json"
    assert {row["model_kind"] for row in rows} == {"medical"}
    page.reload()
    page.locator("table.matrix tbody tr").first.wait_for()
    eventually(page.locator("table.matrix tbody th a").all_inner_texts, names)


def test_by_keyboard_alone(start: Any) -> None:
    page = start()
    page.keyboard.press("/")
    page.locator(".mp-search input:focus").wait_for()
    page.keyboard.type("puls")
    page.keyboard.press("Backspace")
    with page.expect_response(lambda answer: "pulmonary" in (answer.request.post_data or "")) as answer:
        page.keyboard.type("monary")
    names = [hit["name"] for hit in answer.value.json()["ok"]]
    expect(page.locator(".mp-search li b")).to_have_text(names)
    page.keyboard.press("Tab")
    page.locator(".mp-search li:first-child a:focus").wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Pulmonary medicine").wait_for()
    page.keyboard.press("/")  # from any page back to the search
    page.locator(".mp-search input:focus").wait_for()
    page.keyboard.type("qqqqzzz")
    page.get_by_text("No match for").wait_for()


@pytest.mark.exhaustive
def test_pins_order_and_all_models(start: Any) -> None:
    page = start()
    rows, first_link = page.locator("table.matrix tbody tr"), page.locator("table.matrix tbody th a").first
    expect(rows).to_have_count(20)
    page.locator("table.matrix").get_by_role("button", name="HALT-MedVQA").click()
    expect(rows).to_have_count(70)  # a table is complete before it is sorted
    eventually(first_link.inner_text, "GPT-4-turbo-vision")
    page.get_by_role("button", name="Pin RadFM").press("Enter")
    eventually(first_link.inner_text, "RadFM")
    page.locator("button[value=RadFM]:focus").wait_for()
    page.go_back()
    eventually(first_link.inner_text, "GPT-4-turbo-vision")
    page.go_back()
    eventually(first_link.inner_text, "GPT-4o")  # models with scores on most benchmarks come first
    page.get_by_role("button", name="All 70 models").click()
    page.get_by_role("button", name="Pin GPT-4o", exact=True).click()


def test_facets_are_searched_ticked_and_addressed(start: Any) -> None:
    page = start(path="/#/b/gmai-mmbench")
    area = page.locator("#mp-gmai-mmbench")
    board = area.locator("table[data-table=leaderboard]")
    board.wait_for()
    area.get_by_role("searchbox", name="Search labels").fill("ophth")
    area.get_by_role("group", name="Department").get_by_role("checkbox", name="Ophthalmology").check()
    eventually(lambda: "facet=department%3AOphthalmology" in here(page), True)
    expect(board.locator("tbody tr[data-key]").first).to_contain_text("55.2")  # Table 12
    area.get_by_role("searchbox", name="Search labels").fill("dermat")
    area.get_by_role("group", name="Department").get_by_role("checkbox", name="Dermatology").check()
    cells = area.locator("table[data-table=breakdown]")
    # each with its own number, and no number for both together
    for printed in ("Ophthalmology", "Dermatology"):
        cells.locator("thead span", has_text=printed).wait_for()
    expect(cells.locator("thead th")).to_have_count(3)
    page.reload()
    area.get_by_role("button", name="Remove Department: Dermatology").click()
    eventually(lambda: "Dermatology" in here(page), False)
    for go, is_ticked in ((page.go_back, True), (page.go_forward, False)):  # each choice is a step
        go()
        eventually(lambda: "Dermatology" in here(page), is_ticked)
        expect(area.locator(".chip", has_text="Dermatology")).to_have_count(int(is_ticked))
    page.evaluate("medprobe.visit('#/b/gmai-mmbench?facet=department:Petrology')")
    area.get_by_text("Not in this question set, therefore ignored: Petrology.").wait_for()


def test_a_plot_is_saved_with_its_citation(start: Any) -> None:
    page = start(path="/#/b/mediconfusion")
    for plot in ("confusion", "size"):
        save = page.locator(f"#mp-mediconfusion [data-plot={plot}] button")
        file = download(page, save.filter(has_text="SVG"))
        assert file.suggested_filename == f"medprobe-mediconfusion-{plot}.svg"
        svg_text = " ".join(" ".join(ElementTree.fromstring(Path(file.path()).read_bytes()).itertext()).split())
        assert not [
            words
            for words in ("Sepehri et al.", "medprobe board, 20", "#/b/mediconfusion", "RadFM")
            if words not in svg_text
        ], svg_text
        picture = download(page, save.filter(has_text="PNG"))
        assert picture.suggested_filename == f"medprobe-mediconfusion-{plot}.png"
        with Image.open(picture.path()) as opened:  # twice the drawing's size, and more than one colour
            drawing = ElementTree.fromstring(Path(file.path()).read_bytes())
            assert opened.size == (2 * int(drawing.attrib["width"]), 2 * int(drawing.attrib["height"]))
            assert len(opened.getcolors(1 << 24)) > 20
