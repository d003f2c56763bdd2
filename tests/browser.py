"""Provide the fixture `chromium`: a headless browser for tests of real pages; without Chromium they
are skipped.

A page is drawn in several steps, and redrawn when new data arrives. So a test selects exactly the
element that it means (never the first of several, to which others may be added), and reads values
through `expect` or `eventually`, which retry until the page has settled.
"""

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
"""Timeout in milliseconds; generous, because the machine may be under other load."""


class Pages:
    """Hand out browser pages and reuse them: a new page costs 3 seconds of CPU time, navigating an
    existing one half a second.

    `script_errors`: uncaught script errors of all pages since the test began. `errors`: these and
    the console's error messages, for example about a request to another machine (all of which are
    blocked).
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
        """Blank all pages and sign the user out."""
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


# with a longer scope, its event loop would still run during other tests that need their own
@pytest.fixture(scope="module")
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
    """Provide the browser; pages that `chromium.new_page()` opens are blanked after the test."""
    yield _pages
    _pages.clear()


def here(page: Any) -> str:
    """Return the address as the page knows it now (`page.url` waits for events)."""
    return str(page.evaluate("location.href"))


def tab(page: Any, name: str) -> Any:
    """Return the link to a page in the tab bar."""
    return page.locator("#mp-nav").get_by_role("link", name=name, exact=True)


def mark(page_object: Any) -> Any:
    """Mark what is displayed now, so that a test can wait until it has been redrawn, that is, until
    the element matches `:not([data-before])`.
    """
    page_object.evaluate("one => one.dataset.before = ''")
    return page_object


def fits(page: Any, width: int) -> None:
    """Wait until the page does not scroll sideways."""
    page.wait_for_function(f"document.documentElement.scrollWidth <= {width}")


def download(page: Any, button: Any) -> Any:
    """Press a button that saves a file, after opening its menu if it is in a closed one; return the
    file as the browser received it.
    """
    button.wait_for(state="attached")
    if not button.is_visible():
        button.locator("xpath=ancestor::details[not(@open)]/summary").click()
    with page.expect_download() as waiting:
        button.click()
    return waiting.value


def eventually(check: Any, expected: Any) -> None:
    """Wait until `check()` returns the wanted value."""
    deadline = time.monotonic() + 60
    while check() != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    assert check() == expected
