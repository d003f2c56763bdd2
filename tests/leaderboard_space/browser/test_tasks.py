"""Test what visitors do on a board with answers, in headless Chromium, from the first screen: by
mouse, by keyboard, on a phone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from dataset_builders.build import build
from dataset_builders.hub.repository import open_repository
from tests.browser import eventually, here, tab
from tests.eval_harness.store.submitting import responses
from tests.helpers import write_lines
from tests.leaderboard_space.serving import board
from tests.leaderboard_space.stores import add_run, answers

pytestmark = pytest.mark.browser


@dataclass(frozen=True)
class Served:
    address: str
    data: Path
    store: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve a board with two models' answers to phantoms, whose images it may show."""
    folder = tmp_path_factory.mktemp("tasks")
    data, store = folder / "mediconfusion", folder / "store"
    build("mediconfusion", out=data)
    repository = open_repository(data)
    question_table = repository.questions(repository.splits[0])
    for seed, (name, skill) in enumerate((("Model A", 0.7), ("Model B", 0.4))):
        add_run(store, "mediconfusion", question_table, answers(question_table, skill, seed=seed), name, repo=str(data))
    with board(store, folder / "home", [data]) as (address, _):
        yield Served(address, data, store)


@pytest.mark.exhaustive
def test_two_models_and_an_image_they_differ_on(chromium: Any, served: Served) -> None:
    """On a phone, Compare and two names show such an image; a fourth step leads to both answers,
    the key and the neighbouring cases.
    """
    page = chromium.new_page(390, 844)
    page.goto(served.address)
    tab(page, "Compare").click()
    area = page.locator("#mp-compare")
    area.locator('#results-first option[value="Model A"]').wait_for(state="attached")
    area.get_by_label("First").fill("Model A")
    eventually(lambda: "first=Model" in here(page), True)
    area.get_by_label("Second").fill("Model B")
    area.get_by_role("heading", name="Model A").or_(area.get_by_role("heading", name="Model B")).first.wait_for()
    flipped = area.locator("article.case").first
    flipped.scroll_into_view_if_needed()  # images load when they come near the screen
    eventually(lambda: flipped.locator("img").first.evaluate("one => one.naturalWidth") > 0, True)
    flipped.locator("li.key").first.wait_for()
    flipped.get_by_role("link", name="both answers and neighbouring cases").press("Enter")
    case = page.locator("#mp-cases article.case")
    case.locator("img").first.wait_for()
    focused = "document.activeElement.matches('.here') && document.activeElement.contains(document.querySelector('#mp-cases'))"
    eventually(lambda: page.evaluate(focused), True)
    for name in ("Model A", "Model B", "key"):
        expect(case).to_contain_text(name)
    page.get_by_role("navigation", name="Neighbouring cases").get_by_role("link").first.wait_for()
    case_text, address = case.inner_text(), here(page)
    page.goto("about:blank")
    page.goto(address)  # every step has its own address
    case.locator("img").first.wait_for()
    eventually(case.inner_text, case_text)
    image = case.get_by_role("button", name="Image").first
    width = image.bounding_box()["width"]
    image.click()
    expect(image).to_have_attribute("aria-expanded", "true")
    eventually(lambda: image.bounding_box()["width"] > 1.4 * width, True)


OUTLINED = (
    "getComputedStyle(document.activeElement).outlineStyle !== 'none' && document.activeElement.checkVisibility()"
)


def tab_to(page: Any, name: str) -> None:
    """Press Tab until the element with this name has the focus; every stop on the way must show
    that it has the focus.
    """
    seen = []
    for _ in range(30):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "(one => one.labels?.[0]?.innerText || one.ariaLabel || one.innerText)(document.activeElement)"
            )
        )
        if page.evaluate("document.activeElement !== document.body"):
            page.wait_for_function(OUTLINED)
        if str(seen[-1]).strip().startswith(name):
            return
    raise AssertionError((name, seen))


@pytest.mark.exhaustive
def test_submitting_with_nothing_but_the_keyboard(chromium: Any, served: Served, tmp_path: Path) -> None:
    """Name, file, scoring and submitting each show their focus; no list stays open; the outcome is
    announced; axe finds no violation.
    """
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="needs axe-playwright-python (extra dev)"
    ).Axe()
    page = chromium.new_page(1440, 900)
    choosers: list[Any] = []
    page.once("filechooser", lambda chooser: choosers.append(chooser) or None)
    page.goto(f"{served.address}/#/submit")
    page.get_by_label("Model", exact=True).wait_for()
    write_lines(tmp_path / "by-keyboard.jsonl", responses(served.data, seed=9))
    tab_to(page, "Questions")
    tab_to(page, "Model")
    page.keyboard.type("Typed")
    eventually(page.locator("#mp-submit [role=listbox]:visible").count, 0)
    tab_to(page, "Click to upload")
    page.keyboard.press("Enter")
    eventually(lambda: page.evaluate("0") or len(choosers), 1)
    choosers[0].set_files(str(tmp_path / "by-keyboard.jsonl"))
    page.locator("#mp-submit").get_by_text("by-keyb").first.wait_for()
    tab_to(page, "Score it")
    page.keyboard.press("Enter")
    page.locator("#mp-report [role=alert]", has_text="ready to be submitted").wait_for()
    page.wait_for_function("document.getAnimations().length === 0")  # Gradio fades the report in
    violations = axe.run(page, None, {"resultTypes": ["violations"]}).response["violations"]
    assert not violations, [(violation["id"], violation["nodes"][0]["html"][:160]) for violation in violations]
    expect(page.locator("#mp-send")).to_be_enabled()
    tab_to(page, "Submit")
    page.keyboard.press("Enter")
    page.locator("#mp-sent [role=alert]", has_text="Added to the store").wait_for()
    tab_to(page, "see its row")
    page.keyboard.press("Enter")
    page.locator("#mp-mediconfusion table[data-table=leaderboard] tr[data-key]", has_text="Typed").wait_for()


PAGES = {
    "#/overview": "table.matrix tbody tr",
    "#/b/mediconfusion": "#mp-mediconfusion table.board tbody tr",
    "#/b/probmed": "#mp-probmed table.heat",
    "#/topic/ct": "#mp-topic table.topic",
    "#/model": "#mp-model ul.names",
    "#/model/Model%20A": "#mp-model article.case",
    "#/compare?first=Model%20A&second=Model%20B": "#mp-compare article.case",
    "#/cases": "#mp-cases article.case",
    "#/cases/90001": "#mp-cases nav[aria-label='Neighbouring cases']",
    "#/submit": "#mp-submit-page .finding[data-title]",
    "#/about": ".about",
}
"""Page -> an element that exists once it is drawn. The five benchmarks' pages are alike, so two are
enough.
"""

ONLY_WHAT_IS_SHOWN = """
window.whole = [...document.querySelectorAll('[id^=page-], tbody')].map(one => [one, [...one.childNodes]]);
for (const [one, children] of whole)
    one.replaceChildren(...(one.tagName === 'TBODY' ? children.slice(0, 4) : one.checkVisibility() ? children : []));
"""
"""Removes hidden pages, and all but four rows of each table: visited pages stay in the document,
where axe would take three times as long and find nothing.
"""
CUT = """() => {
  const width = document.createElement('canvas').getContext('2d'), found = [];
  const shown = [...document.querySelectorAll('#mp-header *, [id^=page-] *')].filter(
    one => one.checkVisibility({ contentVisibilityAuto: true, visibilityProperty: true }));
  for (const one of shown) {
    const style = getComputedStyle(one);
    if (one.matches('select, input:not([type=checkbox], [type=radio], [type=file])')) {
      const said = one.matches('select') ? one.selectedOptions[0]?.text || '' : one.value || one.placeholder;
      width.font = style.font;
      const room = one.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
      if (width.measureText(said).width > room + 1 && style.textOverflow !== 'ellipsis') found.push(said);
      continue;
    }
    for (const node of one.childNodes) {
      if (node.nodeType !== Node.TEXT_NODE || !node.data.trim()) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      const box = range.getBoundingClientRect();
      for (let around = one; around && around !== document.body; around = around.parentElement) {
        const its = getComputedStyle(around), edge = around.getBoundingClientRect();
        if (its.clipPath !== 'none' || its.textOverflow === 'ellipsis') break;
        if (/auto|scroll/.test(its.overflowX) && around.scrollWidth > around.clientWidth) break;
        if (/hidden|clip/.test(its.overflowX) && (box.right > edge.right + 1 || box.left < edge.left - 1)) {
          found.push(node.data.trim().slice(0, 60));
          break;
        }
      }
    }
  }
  return found;
}"""
"""Finds truncated texts: texts in boxes that hide what is beyond their edge, and choices wider than
their field.
"""
ALL_OF_IT = "for (const [one, children] of whole) one.replaceChildren(...children)"
IDS_GIVEN_TWICE = """[...document.querySelectorAll('[id]:not([id=""])')].map(one => one.id).filter((id, at, all) => all.indexOf(id) < at)"""

EVERYTHING: dict[str, Any] = {"resultTypes": ["violations"]}
CONTRAST = EVERYTHING | {"runOnly": ["color-contrast"]}
VIEWS = (("light", 1440, 900, EVERYTHING), ("dark", 390, 844, CONTRAST), ("light", 720, 450, None))
"""Theme, width and height (720: a desktop at 200 % zoom), and the rules that axe checks."""


@pytest.mark.exhaustive
def test_every_page_in_both_themes_and_on_small_screens(chromium: Any, served: Served) -> None:
    """axe finds no violation; no text is cut, and nothing is outside the screen; on small screens
    the first row of numbers is in the upper half.
    """
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="needs axe-playwright-python (extra dev)"
    ).Axe()
    page = chromium.new_page(1440, 900)
    page.goto(served.address)
    page.locator("table.matrix tbody tr").first.wait_for()
    defects = []
    for address, shows in PAGES.items():
        page.evaluate(f"medprobe.visit({address!r})")
        page.locator(shows).first.wait_for()
        # A page that still waits for the server is dimmed, but only after 150 ms.
        page.wait_for_timeout(200)
        for scheme, width, height, options in VIEWS:
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme=scheme)
            page.wait_for_function(
                f"document.body.classList.contains('dark') === {str(scheme == 'dark').lower()} && "
                "document.getAnimations().length === 0 && !document.querySelector('.busy')",
            )  # running colour transitions and fading elements are not violations
            variant = (address, scheme, width)
            if page.evaluate("document.documentElement.scrollWidth") > width:
                defects.append((*variant, "beyond the screen"))
            defects += [(*variant, "cut", element) for element in page.evaluate(CUT)]
            first_row = page.locator(
                "table[data-table=leaderboard]:visible tbody tr[data-key], table.matrix:visible tbody tr"
            ).first
            box = first_row.bounding_box() if width < 1000 and first_row.count() else None
            if box and box["y"] + page.evaluate("scrollY") > height / 2:
                defects.append((*variant, f"the first row is at {box['y']:.0f} of {height}"))
            if options:
                page.evaluate(ONLY_WHAT_IS_SHOWN)
                defects += [
                    (*variant, violation["id"], violation["impact"], violation["nodes"][0]["html"][:160])
                    for violation in axe.run(page, None, options).response["violations"]
                ]
                page.evaluate(ALL_OF_IT)
    assert not defects, defects
    assert page.evaluate(IDS_GIVEN_TWICE) == []
