"""Fixture: `chromium`, headless, for the tests that look at real pages; skips where none is
installed.

A page is drawn in several steps, and drawn anew by what arrives later. So a test names the one
element that it means (never the first of several that may come to be there), and what it reads once
it reads through `expect` or `eventually`, which look again until it is so.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest

ARGUMENTS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]  # fmt: skip
WAIT = 60_000
"""Milliseconds: a machine that does other work beside is no fault of the page."""


class Pages:
    """Pages of a browser, each used again by later tests: a new one costs 3 seconds of processor
    time, going elsewhere in one half of it.

    `script_errors`, `errors`: what no script caught on all pages since the test began; and with it
    what the console said, such as that another machine, which none reaches, was asked.
    """

    def __init__(self, browser: Any) -> None:
        self.script_errors: list[str] = []
        self.errors: list[str] = []
        self._context = browser.new_context()
        self._context.on("weberror", lambda error: self._failed(str(error.error)))
        self._context.on(
            "console", lambda message: self.errors.append(message.text) if message.type == "error" else None
        )
        self._free: list[Any] = []
        self._taken: list[Any] = []

    def new_page(self, width: int = 1280, height: int = 900, scheme: str = "light") -> Any:
        page = self._free.pop() if self._free else self._context.new_page()
        self._taken.append(page)
        page.set_default_timeout(WAIT)
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)
        return page

    def clear(self) -> None:
        """All pages are blank again, and no user is signed in."""
        for page in self._taken:
            page.goto("about:blank")
            page.mouse.move(0, 0)
        self._free += self._taken
        self._taken = []
        self._context.clear_cookies()
        self.script_errors.clear()
        self.errors.clear()

    def _failed(self, error: str) -> None:
        self.script_errors.append(error)
        self.errors.append(error)


@pytest.fixture(scope="module")  # a longer life would keep its event loop running under other tests' own
def _pages() -> Iterator[Pages]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (extra dev)")
    program = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if program is None:
        pytest.skip("needs Chromium: `apt-get install chromium`")
    playwright.expect.set_options(timeout=WAIT)
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield Pages(browser)
        browser.close()


@pytest.fixture
def chromium(_pages: Pages) -> Iterator[Pages]:
    """`chromium.new_page()` opens a page, which is blank again after the test."""
    yield _pages
    _pages.clear()


def here(page: Any) -> str:
    """The address as the page knows it now (`page.url` waits for events)."""
    return str(page.evaluate("location.href"))


def tab(page: Any, name: str) -> Any:
    """The link to a page in the strip of tabs."""
    return page.locator("#mp-nav").get_by_role("link", name=name, exact=True)


def mark(page_object: Any) -> Any:
    """Mark what is shown now, so that a test can wait until it was drawn anew: until what is there
    is `:not([data-before])`.
    """
    page_object.evaluate("one => one.dataset.before = ''")
    return page_object


def fits(page: Any, width: int) -> None:
    """Wait until the page needs no sideways scrolling."""
    page.wait_for_function(f"document.documentElement.scrollWidth <= {width}")


def download(page: Any, button: Any) -> Any:
    """Press a button that saves a file, in its menu where it stands in one that is closed; the file
    as the browser got it.
    """
    button.wait_for(state="attached")
    if not button.is_visible():
        button.locator("xpath=ancestor::details[not(@open)]/summary").click()
    with page.expect_download() as waiting:
        button.click()
    return waiting.value


def eventually(check: Any, expected: Any) -> None:
    """Wait until `check()` gives what is wanted."""
    deadline = time.monotonic() + 60
    while check() != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    assert check() == expected
