"""Test the board in headless Chromium: the real server as a process of its own, real clicks,
numbers read from the page.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from leaderboard_space.data.board import Board
from leaderboard_space.data.standings import compute_standings
from leaderboard_space.html import number
from tests.browser import eventually, fits, here, mark, tab
from tests.leaderboard_space.serving import board
from tests.leaderboard_space.stores import STORE_MODELS, add_run, answers, make_store, questions

pytestmark = pytest.mark.browser

HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>${window.hacked=1}{{value}}`'


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = make_store(tmp_path_factory.mktemp("board"))
    question_table = questions("gmai-mmbench", 22, seed=77)
    add_run(store, "gmai-mmbench", question_table, answers(question_table, 0.5), HOSTILE, origin="official")
    (store / "results" / "probmed" / "broken" / "run").mkdir(parents=True)
    (store / "results" / "probmed" / "broken" / "run" / "result.json").write_text("{not json <b>")
    return store


@pytest.fixture(scope="module")
def address(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with board(store, tmp_path_factory.mktemp("home")) as (address, _):
        yield address


def open_page(chromium: Any, address: str, width: int = 1440) -> Any:
    page = chromium.new_page(width)
    open_board(page, address if "?" in address or "#" in address else f"{address}/#/b/mediconfusion")
    return page


def open_board(page: Any, address: str) -> None:
    """Reload a page of the board, and wait for its tables."""
    if page.url != "about:blank":
        page.goto("about:blank")  # an address that differs only in its fragment would not be loaded
    page.goto(address)
    page.locator("table[data-table=leaderboard]:visible").first.wait_for()
    page.locator(".breakdown .bar-head:visible").first.wait_for()


def shown(page: Any, family: str) -> dict[str, str]:
    """Return model -> score as the page shows them at one moment."""
    rows = page.locator(f"#mp-{family} table[data-table=leaderboard] tbody tr[data-key]")
    script = "rows => rows.map(row => ['.name span', '.val'].map(cell => row.querySelector(cell).innerText))"
    return dict(rows.evaluate_all(script))


def expected(store: Path, family: str, metric: str, *branches: tuple[str, ...]) -> dict[str, str]:
    board = Board(store)
    section = next(s for s in board.snapshot.sections[family] if s.kind == "phantom")
    outcomes, tree = board.outcomes(section) or pytest.fail("not loaded")
    ranking = compute_standings(section, outcomes, tree, metric, branches)
    return {row.entry.result.model.name: number(row.score.value) for row in ranking.rows}


def phantoms(page: Any, family: str) -> Any:
    """Show the section of the test data (the papers' numbers come first): its table, which is drawn
    with the choice of question sets, and then its breakdown.
    """
    area = page.locator(f"#mp-{family}")
    area.get_by_role("radio", name="Phantoms").click()
    area.locator("table[data-table=leaderboard]", has_text=STORE_MODELS[0][0]).wait_for()
    area.locator(".breakdown", has_text=STORE_MODELS[0][0]).wait_for()
    return area


def test_ticking_branches_changes_the_numbers_to_those_of_the_selection(
    chromium: Any, address: str, store: Path
) -> None:
    page = open_page(chromium, address)
    tab(page, "HALT-MedVQA").click()
    phantoms(page, "halt-medvqa")
    area = page.locator("#mp-halt-medvqa")
    area.get_by_label("Score").select_option("average")
    all_scores = expected(store, "halt-medvqa", "average")
    assert len(all_scores) == len(STORE_MODELS)
    eventually(lambda: shown(page, "halt-medvqa"), all_scores)
    scenario = area.get_by_role("group", name="Scenario", exact=True)
    scenario.get_by_role("checkbox", name="Nonsense question").check()
    fake = expected(store, "halt-medvqa", "average", ("scenario", "fake"))
    assert fake != all_scores
    eventually(lambda: shown(page, "halt-medvqa"), fake)
    scenario.get_by_role("checkbox", name="Correct option removed").check()
    two_branches = (("scenario", "fake"), ("scenario", "none"))
    eventually(lambda: shown(page, "halt-medvqa"), expected(store, "halt-medvqa", "average", *two_branches))
    area.get_by_role("button", name="invert").click()
    swap = expected(store, "halt-medvqa", "average", ("scenario", "swap"))
    eventually(lambda: shown(page, "halt-medvqa"), swap)
    area.get_by_role("button", name="clear").click()
    eventually(lambda: shown(page, "halt-medvqa"), all_scores)


def test_the_tree_works_by_keyboard_with_three_states_and_search(chromium: Any, address: str, store: Path) -> None:
    page = open_page(chromium, address)
    tab(page, "ProbMed").click()
    area = phantoms(page, "probmed")
    area.locator(".facet > summary", has_text="Organ").click()
    tree = area.get_by_role("group", name="Organ", exact=True)
    tree.get_by_role("button", name="Branches of chest").press("Enter")
    chest = tree.get_by_role("checkbox", name="chest")
    for branch, state in (("X-ray", "some"), ("CT", "all")):
        tree.locator(f'input[data-key=\'["organ","chest","{branch}"]\']').press("Space")
        eventually(lambda: chest.evaluate("one => one.checked ? 'all' : one.indeterminate ? 'some' : 'none'"), state)
        chosen = ("organ", "chest", branch) if state == "some" else ("organ", "chest")
        eventually(lambda chosen=chosen: shown(page, "probmed"), expected(store, "probmed", "overall", chosen))
        page.locator("#mp-probmed input[data-key]:focus").wait_for()
    area.get_by_role("searchbox", name="Search labels").fill("MRI")
    eventually(tree.locator(".label").all_inner_texts, ["brain", "MRI"])
    area.get_by_role("searchbox", name="Search labels").fill("cheese")
    expect(area.locator(".filter .none")).to_contain_text("Near: chest")


def test_who_chooses_by_keyboard_keeps_the_place(chromium: Any, address: str) -> None:
    """Every choice redraws the page; the focus stays on the control that was used."""
    page = open_page(chromium, address)
    area = page.locator("#mp-mediconfusion")
    mark(area.locator("[data-name=metric]")).press("ArrowDown")
    area.locator("[data-name=metric]:focus:not([data-before])").wait_for()
    chosen = area.locator("input[type=radio]:checked")
    last_value = mark(area.locator("input[type=radio]").last).get_attribute("value")
    chosen.press("ArrowLeft")  # from the first to the last
    area.locator(f"input[type=radio][value='{last_value}']:checked:focus:not([data-before])").wait_for()


def test_on_a_phone_all_tabs_are_in_reach_and_a_link_opens_its_own(chromium: Any, address: str) -> None:
    page = open_page(chromium, f"{address}/#/b/halt-medvqa", width=390)
    page.locator("#mp-halt-medvqa table[data-table=leaderboard]").wait_for()
    strip = "(name) => { const r = [...document.querySelectorAll('#mp-nav a')].find((tab) => tab.textContent.trim() === name)"
    strip += ".getBoundingClientRect(); return r.left >= 0 && r.right <= innerWidth; }"
    eventually(lambda: page.evaluate(strip, "HALT-MedVQA"), True)  # the selected tab is scrolled into view
    page.goto(f"{address}/#/about")
    page.get_by_text("What it is not").wait_for()
    eventually(lambda: page.evaluate(strip, "About"), True)
    tab(page, "Overview").click()
    page.locator("table.matrix tbody tr").first.wait_for()
    fits(page, 390)


def test_hostile_names_and_unreadable_files_are_shown_as_text(chromium: Any, address: str) -> None:
    page = open_page(chromium, address)
    tab(page, "GMAI-MMBench").click()
    page.locator("#mp-gmai-mmbench").get_by_role("radio", name="Same size as the official set, unverified").click()
    eventually(lambda: HOSTILE in shown(page, "gmai-mmbench"), True)
    page.locator("#mp-gmai-mmbench .more").click()
    page.locator("#mp-gmai-mmbench .detail").wait_for()
    assert page.evaluate("window.hacked") is None
    tab(page, "ProbMed").click()
    expect(page.locator("#mp-probmed .notes")).to_contain_text("Set aside, unreadable")


@pytest.mark.exhaustive
def test_the_leaderboard_sorts_by_number_and_a_link_keeps_the_order(chromium: Any, address: str) -> None:
    page = open_page(chromium, address)
    tab(page, "GMAI-MMBench").click()
    table = page.locator("#mp-gmai-mmbench table[data-table=leaderboard]")
    table.wait_for()

    def column(name: str) -> list[str]:
        return table.locator(f"tbody tr[data-key] td.{name}").all_inner_texts()

    numbers = sorted(float(cell.split()[0]) for cell in column("val"))
    assert min(numbers) < 10 <= max(numbers)  # compared as strings, 9.x would come before 53.x
    table.get_by_role("button", name="%", exact=True).click()
    eventually(lambda: [float(cell.split()[0]) for cell in column("val")], numbers[::-1])
    expect(table.locator("tr.group")).to_have_count(0)
    table.get_by_role("button", name="%", exact=True).press("Enter")
    table.locator("thead th.val[aria-sort=ascending]").wait_for()
    link = here(page)
    table.get_by_role("button", name="%", exact=True).press("Enter")
    expect(table.locator("tr.group").first).to_be_visible()  # back in the board's own order
    open_board(page, link)
    eventually(lambda: [float(cell.split()[0]) for cell in column("val")], numbers)


@pytest.mark.exhaustive
def test_what_the_reader_opened_stays_open_when_the_page_is_drawn_anew(chromium: Any, address: str) -> None:
    """Open menus, a result's details, the citation and the focus survive a new selection and news
    from the store.
    """
    page = open_page(chromium, address)
    tab(page, "ProbMed").click()
    area = phantoms(page, "probmed")
    row = area.locator("table[data-table=leaderboard] tr[data-key]", has_text="Test Small")
    row.locator(".more").click()
    area.locator(".detail").wait_for()
    area.locator("[data-act=cite]").click()
    area.locator(".cite").wait_for()
    menu = area.locator("details[data-keep=save-breakdown]")
    menu.locator("summary").click()
    for element in (row, menu):
        mark(element)
    # redraw without a click, which would move the focus
    page.evaluate("document.querySelector('#mp-probmed .facet input').click()")
    for element in ("tr", "details"):
        area.locator(f"{element}[data-before]").wait_for(state="detached")
    expect(row.locator("xpath=following-sibling::tr[1]")).to_have_attribute("class", "more-row")
    expect(row.locator(".more")).to_have_attribute("aria-expanded", "true")
    expect(area.locator(".more-row .detail")).to_be_visible()
    expect(area.locator(".cite")).to_contain_text("@misc{")
    expect(menu).to_have_attribute("open", "")
    row.locator(".more").click()  # what the reader closes stays closed
    expect(area.locator(".more-row")).to_have_count(0)
    tab(page, "Cases").click()
    cases = page.locator("#mp-cases")
    cases.locator("details.save summary").click()
    cases.get_by_label("Search").press_sequentially("pair 7:", delay=80)
    cases.get_by_text("3 cases match").wait_for()
    expect(cases.get_by_label("Search")).to_have_value("pair 7:")
    expect(cases.locator("details.save")).to_have_attribute("open", "")
    expect(cases.locator("[data-name=find]")).to_be_focused()


def test_a_look_for_news_takes_no_choice_away(chromium: Any, address: str) -> None:
    """The reply to a choice, which the test delays, is still shown although the page has asked for
    news meanwhile.
    """
    page, held_requests = open_page(chromium, address), list[Any]()
    metric = page.locator("#mp-mediconfusion [data-name=metric]")

    def hold(route: Any) -> None:  # not the list's method: playwright sets an attribute on the handler
        held_requests.append(route)

    page.route("**/board/mediconfusion/view", hold)
    mark(metric).select_option(index=1)
    eventually(lambda: page.evaluate("0") or len(held_requests), 1)
    tab(page, "About").click()
    tab(page, "MediConfusion").click()  # the page is still drawn, so only news are requested
    eventually(lambda: page.evaluate("0") or len(held_requests), 2)
    with page.expect_response("**/board/mediconfusion/view"):
        held_requests[1].continue_()
    page.unroute("**/board/mediconfusion/view")  # which releases the delayed requests
    page.locator("#mp-mediconfusion [data-name=metric]:not([data-before])").wait_for()
