"""Screenshots of every page of the board, in both themes and three sizes, and how large and how high each page is.

python board_pages.py STORE OUT [--data DATASET] [--only cases,model] [--sizes 1440,720,390] [--themes light,dark]

STORE as for `medprobe board --results`. Pages are OUT/PAGE-WIDTH-THEME.png; 720 is a desktop at 200 % zoom, 390 a phone. The picture of the
README is overview-1440-light.png, cut to 1440 x 900.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

SERVE = (
    "import sys; from leaderboard_space.app import serve; serve(sys.argv[1], port=int(sys.argv[2]), data=sys.argv[3:])"
)
CHROMIUM = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
HEIGHTS = {1440: 900, 720: 450, 390: 844}
PAGES = {
    "overview": ("#/overview", "table.matrix tbody tr"),
    "mediconfusion": ("#/b/mediconfusion", "#mp-mediconfusion table.board tbody tr"),
    "probmed": ("#/b/probmed", "#mp-probmed table.heat"),
    "gmai": ("#/b/gmai-mmbench", "#mp-gmai-mmbench table.heat"),
    "halt": ("#/b/halt-medvqa", "#mp-halt-medvqa table.board tbody tr"),
    "vqa-rad": ("#/b/probmed-vqa-rad", "#mp-probmed-vqa-rad .finding"),
    "topic": ("#/topic/ct", "#mp-topic table.topic"),
    "model": ("#/model/GPT-4o", "#mp-model table.lines"),
    "models": ("#/model", "#mp-model ul.names"),
    "measured-model": ("", "#mp-model table.lines"),
    "compare": ("#/compare", "#mp-compare table, #mp-compare .finding"),
    "cases": ("#/cases", "#mp-cases .case, #mp-cases .finding"),
    "case": ("", "#mp-cases h2.finding"),
    "submit": ("#/submit", "#mp-submit-page .finding[data-title]"),
    "about": ("#/about", ".about"),
}
"""Page -> address and what is there when it is drawn. Of those without an address the first link to one is followed."""


def start(store: str, data: list[str]) -> tuple[subprocess.Popen[str], str]:
    """The board in a process of its own, and its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, store, str(port), *data],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    if "http://" not in process.stdout.readline():
        raise SystemExit("the server ended before it gave its address")
    return process, f"http://127.0.0.1:{port}"


def address_of(page: Any, name: str) -> str:
    """The address of a page: as PAGES has it, or where a link of another page leads; empty where the board has none."""
    if PAGES[name][0]:
        return PAGES[name][0]
    other, links = {
        "case": ("cases", "#mp-cases .case h3 a[href^='#/cases/']"),
        "measured-model": ("compare", "#mp-compare table.lines a[href^='#/model/']"),
    }[name]
    page.evaluate(f"medprobe.visit('{PAGES[other][0]}')")
    page.locator(PAGES[other][1]).first.wait_for(timeout=60_000)
    found = page.locator(links)
    return str(found.first.get_attribute("href")) if found.count() else ""


def shoot(page: Any, address: str, name: str, path: Path) -> None:
    """Visit a page, wait until it stands still, and save it whole."""
    page.evaluate(f"medprobe.visit({address!r})")
    page.locator(PAGES[name][1]).first.wait_for(timeout=60_000)
    page.wait_for_timeout(700)
    page.wait_for_function("document.querySelectorAll('[data-waiting], .busy').length === 0", timeout=20_000)
    panel = "[...document.querySelectorAll('.mp, .mp-page, .about')].filter((one) => one.offsetParent)"
    size, height, sideways = page.evaluate(
        f"[{panel}.map((one) => one.outerHTML.length).reduce((a, b) => a + b, 0), document.documentElement.scrollHeight, "
        "document.documentElement.scrollWidth - innerWidth]"
    )
    beyond = f", {sideways} px beyond the screen" if sideways > 0 else ""
    print(f"{path.stem}: {size / 1000:.0f} kB, {height} px high{beyond}", flush=True)
    page.screenshot(path=path, full_page=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", action="append", default=[])
    parser.add_argument("--only", default=",".join(PAGES))
    parser.add_argument("--sizes", default="1440,720,390")
    parser.add_argument("--themes", default="light,dark")
    said = parser.parse_args()
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("no Chromium here")
    said.out.mkdir(parents=True, exist_ok=True)
    process, address = start(said.store, said.data)
    try:
        with sync_playwright() as engine:
            browser = engine.chromium.launch(executable_path=program, args=CHROMIUM)
            for theme in said.themes.split(","):
                for width in map(int, said.sizes.split(",")):
                    page = browser.new_page(
                        viewport={"width": width, "height": HEIGHTS.get(width, 900)}, color_scheme=theme
                    )
                    page.on("pageerror", lambda error: print("page error:", error, flush=True))
                    page.goto(address)
                    page.locator("table.matrix tbody tr").first.wait_for(timeout=60_000)
                    for name in said.only.split(","):
                        if where := address_of(page, name):
                            shoot(page, where, name, said.out / f"{name}-{width}-{theme}.png")
                    page.close()
            browser.close()
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
