"""What the board is, how to read it, and what it is not: the page is `assets/about.html`."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parents[1] / "assets" / "about.html"


def page() -> str:
    """The page as HTML."""
    return PAGE.read_text(encoding="utf-8")
