"""The frame of the board's pages: style sheets, scripts, the strip of tabs, and each page before the server has drawn it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dataset_builders.benchmarks import BENCHMARKS
from leaderboard_space.benchmarks import LABELS
from leaderboard_space.html import text

ASSETS = Path(__file__).parents[1] / "assets"
SHEETS = ("board.css", "pages.css", "plots.css", "narrow.css")
SCRIPTS = ("router.js", "table.js", "page.js", "plots.js", "selection.js", "board.js", "search.js")
TITLE = "medprobe: can you trust your AI radiologist?"
READING = '<h2 class="finding">Reading the results.</h2>'
SEARCH = (
    '<div class="mp-search"><input type="search" aria-label="Search departments, modalities, findings, categories, scores and models" '
    'placeholder="Department, modality, finding or model" autocomplete="off" spellcheck="false"><kbd aria-hidden="true">/</kbd>'
    '<ul aria-label="Hits" hidden></ul><p class="hear" role="status"></p></div>'
)
"""The search of the first screen (`assets/search.js`)."""
DRAWN = (
    "for (const one of element.querySelectorAll('.mp')) medprobeBenchmark(one.parentElement);"
    "for (const one of element.querySelectorAll('.mp-page')) medprobePage(one.parentElement, () => {});"
    "medprobeSearch(element);"
)
"""What makes the pages work, once they are drawn."""


def scripts() -> str:
    """The page's own scripts, which stand once in its head."""
    return _read(SCRIPTS)


def header() -> str:
    """The style sheets, the name of the board, and the strip of tabs."""
    said = "medprobe <span>Can you trust your AI radiologist?</span>"
    skip = '<a class="skip" href="#mp-pages">Skip to the results</a>'
    return f"<style>{_read(SHEETS)}</style>{skip}<header><h1>{said}</h1></header>{_navigation()}"


def pages(first: Mapping[str, str]) -> str:
    """Every page but Submit, which is a form of Gradio's: benchmarks, which draw themselves and ask the server for what changes
    (`assets/board.js`), and those that the server draws whole. `first`: what some of these show at first."""
    drawn = {family: _benchmark(family) for family in BENCHMARKS}
    drawn |= {
        name: page(name, first.get(name, READING))
        for name in ("overview", "compare", "cases", "topic", "model", "about")
    }
    drawn["overview"] = SEARCH + drawn["overview"]
    return "".join(f'<div id="page-{name}"><div id="mp-{name}">{inner}</div></div>' for name, inner in drawn.items())


def _benchmark(family: str) -> str:
    return (
        f'<div class="mp" data-format="{family}"><aside class="side" aria-label="Selection"></aside>'
        '<div class="panel"><p class="sub">Reading the results.</p></div><section class="breakdown" aria-label="Breakdown">'
        '</section><p class="heard" role="status"></p></div>'
    )


def about() -> str:
    """The page About."""
    return _read(("about.html",))


def page(name: str, first: str = READING) -> str:
    """A page that the server draws whole (`assets/page.js`). `first`: what it shows at first."""
    return f'<div class="mp-page" data-page="{name}">{first}</div>'


def _read(names: tuple[str, ...]) -> str:
    return "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in names)


def _navigation() -> str:
    """The strip of tabs: links, since every page has an address (`assets/router.js`)."""
    pages = [("overview", "Overview", "#/overview")]
    pages += [(family, LABELS[family], f"#/b/{family}") for family in BENCHMARKS]
    pages += [(name.lower(), name, f"#/{name.lower()}") for name in ("Compare", "Cases", "Submit", "About")]
    links = "".join(
        f'<a href="{home}" data-home="{home}" data-page="{page}">{text(label)}</a>' for page, label, home in pages
    )
    return f'<nav id="mp-nav" aria-label="Pages"><div>{links}</div></nav>'
