"""What a visitor comes to do, in headless Chromium, each from the first screen and in at most four actions; the papers' numbers alone."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from playwright.sync_api import expect

from tests.browser import download, eventually, here
from tests.leaderboard_space.serving import board

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store = tmp_path_factory.mktemp("empty")
    (store / "results").mkdir()
    with board(store, tmp_path_factory.mktemp("home")) as (address, _):
        yield address


@pytest.fixture
def start(chromium: Any, address: str) -> Callable[..., Any]:
    """Opens the first screen: (width, address within it) -> page."""

    def first_screen(width: int = 1440, where: str = "/") -> Any:
        page = chromium.new_page(width, 844 if width < 500 else 900)
        page.goto(address + where)
        if where == "/":
            page.locator("table.matrix tbody tr").first.wait_for()
        return page

    return first_screen


def test_a_topic_shows_one_label_at_a_time_and_leads_to_its_ranking(start: Any) -> None:
    page = start()
    page.get_by_role("group", name="Topics").locator("a[href='#/topic/ct']").click()
    row = page.locator('#mp-topic table.topic tr[data-key="GPT-4o"]')
    row.wait_for()
    page.locator("#mp-topic").get_by_role("link", name="Chest CT").click()
    page.get_by_role("heading", name="On chest CT").wait_for()
    expect(page.locator("#mp-topic th.muted")).to_have_count(2)  # the label names modality and organ
    page.locator("#mp-topic").get_by_role("link", name="Leaderboard").click()
    eventually(lambda: "facet=image_type%3Achest_ct" in here(page), True)
    page.evaluate("medprobe.visit('#/topic/fundus-photography')")
    expect(page.locator("#mp-topic")).to_contain_text("No such label")  # why there is no more


def test_cite_save_share_reload(start: Any) -> None:
    page = start()
    page.get_by_role("group", name="Kind of model").get_by_role("button", name="Medical").click()
    eventually(lambda: "kind=medical" in here(page), True)
    expect(page.locator("#mp-overview h3")).to_contain_text("of 71 models")
    names = page.locator("table.matrix tbody th a").all_inner_texts()
    page.locator("#mp-overview [data-act=cite]").first.click()
    cite = page.locator("#mp-overview .cite")
    expect(cite).to_contain_text("urldate")
    said = cite.inner_text()
    assert said.startswith("@misc{") and "kind medical" in said and here(page) in said and "urldate" in said
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
    expect(page.get_by_role("option").locator("b")).to_have_text(names)
    page.keyboard.press("ArrowDown")
    expect(page.locator(".mp-search input")).to_have_attribute("aria-activedescendant", "mp-hit-0")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Pulmonary medicine").wait_for()
    page.keyboard.press("/")  # from any page back to the search
    page.locator(".mp-search input:focus").wait_for()
    page.keyboard.type("qqqqzzz")
    page.get_by_text("No match for").wait_for()


def test_pins_order_and_all_models(start: Any) -> None:
    page = start()
    expect(page.locator("table.matrix tbody tr")).to_have_count(20)
    page.get_by_role("button", name="All 71 models").click()
    expect(page.locator("table.matrix tbody tr")).to_have_count(71)
    page.locator("table.matrix").get_by_role("button", name="HALT-MedVQA").click()
    first = page.locator("table.matrix tbody th a").first
    eventually(first.inner_text, "GPT-4-turbo-vision")
    page.get_by_role("button", name="Pin RadFM").press("Enter")
    eventually(first.inner_text, "RadFM")
    page.locator('[data-focus="pin RadFM"]:focus').wait_for()
    page.go_back()
    eventually(first.inner_text, "GPT-4-turbo-vision")
    page.go_back()
    eventually(first.inner_text, "Gemini 2.0 Flash")  # the first column's order
    page.get_by_role("button", name="Pin GPT-4o").click()
    page.get_by_role("button", name="Pin RadFM").click()
    page.get_by_role("link", name="Compare GPT-4o and RadFM").click()
    page.get_by_role("heading", name="GPT-4o is significantly better than RadFM").wait_for()


def test_an_unknown_topic_and_page_say_so(start: Any) -> None:
    page = start(where="/#/topic/opthalmology")
    page.get_by_text("No benchmark here has a topic").wait_for()
    page.locator("#mp-topic").get_by_role("link", name="Ophthalmology").first.click()
    page.get_by_role("heading", name="Ophthalmology: GPT-4o scores highest").wait_for()
    page = start(where="/#/nowhere/at-all")
    page.get_by_text("There is no page nowhere here.").wait_for()


def test_facets_are_searched_ticked_and_addressed(start: Any) -> None:
    page = start(where="/#/b/gmai-mmbench")
    area = page.locator("#mp-gmai-mmbench")
    board = area.locator("table[data-table=leaderboard]")
    board.wait_for()
    area.get_by_role("searchbox", name="Search department").fill("ophth")
    area.get_by_role("group", name="Department").get_by_role("checkbox", name="Ophthalmology").check()
    eventually(lambda: "facet=department%3AOphthalmology" in here(page), True)
    expect(board.locator("tbody tr[data-key]").first).to_contain_text("55.2")  # Table 12
    area.get_by_role("searchbox", name="Search department").fill("dermat")
    area.get_by_role("group", name="Department").get_by_role("checkbox", name="Dermatology").check()
    cells = area.locator("table[data-table=breakdown]")
    for printed in ("Ophthalmology", "Dermatology"):  # each with its own number, and no number of both
        cells.locator("thead span", has_text=printed).wait_for()
    expect(cells.locator("thead th")).to_have_count(3)
    page.reload()
    area.get_by_role("button", name="Remove Department: Dermatology").click()
    eventually(lambda: "Dermatology" in here(page), False)
    page.go_back()
    eventually(lambda: "Dermatology" in here(page), True)
    cells.wait_for()
    page.evaluate("medprobe.visit('#/b/gmai-mmbench?facet=department:Petrology')")
    area.get_by_text("Not in this question set, therefore ignored: Petrology.").wait_for()


def test_a_plot_is_saved_with_its_citation(start: Any) -> None:
    page = start(where="/#/b/mediconfusion")
    for plot, form in (("confusion", "svg"), ("heat", "svg"), ("heat", "png"), ("size", "png")):
        section = page.locator(f"#mp-mediconfusion [data-plot={plot}]")
        file = download(page, section.get_by_role("button", name=form.upper(), exact=True, include_hidden=True))
        saved = Path(file.path()).read_bytes()
        assert file.suggested_filename == f"medprobe-mediconfusion-{plot}.{form}"
        if form == "png":
            assert saved.startswith(b"\x89PNG") and len(saved) > 20_000
            continue
        said = " ".join(" ".join(ElementTree.fromstring(saved).itertext()).split())
        assert all(words in said for words in ("Sepehri et al.", "medprobe board, 20", "#/b/mediconfusion", "GPT-4o"))
