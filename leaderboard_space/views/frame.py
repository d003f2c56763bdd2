"""Draw the frame of the board: style sheets, scripts, tabs, and placeholders of the pages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dataset_builders.benchmarks import FORMATS
from leaderboard_space.benchmarks import BENCHMARK_LABELS
from leaderboard_space.html import text

ASSETS = Path(__file__).parents[1] / "assets"
STYLE_SHEETS = ("board.css", "pages.css", "plots.css", "narrow.css")
SCRIPTS = ("router.js", "table.js", "page.js", "plots.js", "selection.js", "board.js", "search.js")
TITLE = "medprobe: can you trust your AI radiologist?"
READING = '<h2 class="finding">Reading the results.</h2>'
SEARCH = (
    '<div class="mp-search"><input type="search" aria-label="Search departments, modalities, findings, categories, scores and models" '
    'placeholder="Department, modality, finding or model" autocomplete="off" spellcheck="false"><kbd aria-hidden="true">/</kbd>'
    '<ul aria-label="Hits" hidden></ul><p class="hear" role="status"></p></div>'
)
"""The search of the first screen (`assets/search.js`)."""
START_SCRIPT = (
    "for (const one of element.querySelectorAll('.mp')) medprobeBenchmark(one.parentElement);"
    "for (const one of element.querySelectorAll('.mp-page')) medprobePage(one.parentElement, () => {});"
    "medprobeSearch(element);"
)
"""Starts the pages once they are drawn."""


def scripts() -> str:
    """Return the scripts in the head of the page."""
    return _read(SCRIPTS)


def header() -> str:
    """Draw the style sheets, the name of the board, and the tabs."""
    name = "medprobe <span>Can you trust your AI radiologist?</span>"
    skip = '<a class="skip" href="#mp-pages">Skip to the results</a>'
    return f"<style>{_read(STYLE_SHEETS)}</style>{skip}<header><h1>{name}</h1></header>{_navigation()}"


def pages(initial_html: Mapping[str, str]) -> str:
    """Draw every page except Submit, which is a Gradio form.

    Benchmark pages draw themselves and ask the server for what changes (`assets/board.js`); the
    others are drawn by the server.

    Args:
        initial_html: Page -> HTML that it shows at first.
    """
    names = ("overview", "compare", "cases", "topic", "model", "about")
    html_by_page = {family: _benchmark(family) for family in FORMATS}
    html_by_page |= {name: page(name, initial_html.get(name, READING)) for name in names}
    html_by_page["overview"] = SEARCH + html_by_page["overview"]
    return "".join(
        f'<div id="page-{name}"><div id="mp-{name}">{content}</div></div>' for name, content in html_by_page.items()
    )


def _benchmark(family: str) -> str:
    """Draw the page of a benchmark as it is before its script fills it."""
    return (
        f'<div class="mp" data-format="{family}"><aside class="side" aria-label="Selection"></aside>'
        '<div class="panel"><p class="sub">Reading the results.</p></div><section class="breakdown" aria-label="Breakdown">'
        '</section><p class="heard" role="status"></p></div>'
    )


def about() -> str:
    """Return the page About."""
    return _read(("about.html",))


def page(name: str, initial_html: str = READING) -> str:
    """Draw a page that the server fills (`assets/page.js`).

    `initial_html` is what it shows at first.
    """
    return f'<div class="mp-page" data-page="{name}">{initial_html}</div>'


def _read(names: tuple[str, ...]) -> str:
    return "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in names)


def _navigation() -> str:
    """Draw the tabs as links, since every page has an address (`assets/router.js`)."""
    tabs = [("overview", "Overview", "#/overview")]
    tabs += [(family, BENCHMARK_LABELS[family], f"#/b/{family}") for family in FORMATS]
    tabs += [(name.lower(), name, f"#/{name.lower()}") for name in ("Compare", "Cases", "Submit", "About")]
    links = "".join(
        f'<a href="{address}" data-home="{address}" data-page="{name}">{text(label)}</a>'
        for name, label, address in tabs
    )
    return f'<nav id="mp-nav" aria-label="Pages"><div>{links}</div></nav>'
