"""Measure the board's speed on a results store, as made by `board_store.py`.

    python benchmarks/leaderboard_space/board_speed.py STORE

Times: server start, first table, filter, click until the page is repainted, and many readers at
once. Also the server's memory, and the size and height of a page.
"""

import argparse
import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from leaderboard_space.data.board import Board
from leaderboard_space.service import Service

FORMAT = "gmai-mmbench"
USERS = 100
CHROMIUM = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
SERVE = "import sys; from leaderboard_space.app import serve; serve(sys.argv[1], port=int(sys.argv[2]))"


def selections(service: Service, section: str, number: int) -> list[list[list[str]]]:
    """Return `number` random selections in the tree, each a union of one to three branches."""
    tree = service.board.outcomes(service.board.snapshot.section(FORMAT, section))[1]  # type: ignore[arg-type, index]
    # Deeper branches only if they have enough questions for a realistic selection.
    paths = [path for path, rows in tree.rows.items() if len(path) == 2 or rows.size > 50]
    rng = np.random.default_rng(1)
    return [[list(paths[i]) for i in rng.choice(len(paths), rng.integers(1, 4), replace=False)] for _ in range(number)]


def line(label: str, seconds: list[float] | float) -> None:
    """Print one figure in milliseconds; of several values, the median and the 95th percentile."""
    values = np.atleast_1d(np.array(seconds)) * 1000
    if values.size == 1:
        print(f"{label}: {values[0]:.0f} ms", flush=True)
    else:
        print(
            f"{label}: median {np.median(values):.1f} ms, p95 {np.percentile(values, 95):.1f} ms (n = {values.size})",
            flush=True,
        )


def spent_on(function: Callable[[Any], Any], requests: Iterable[Any]) -> tuple[list[float], list[float]]:
    """Return the wall seconds and the CPU seconds (all threads of this process) of each request."""
    clock, processor = [], []
    for request in requests:
        start, start_cpu = time.perf_counter(), time.process_time()
        function(request)
        clock.append(time.perf_counter() - start)
        processor.append(time.process_time() - start_cpu)
    return clock, processor


def in_process(store: Path) -> tuple[str, list[list[list[str]]]]:
    """Measure scanning, reading and the filter event in this process, without a network.

    Returns the key of the largest section, and selections for `many_readers`.
    """
    start = time.perf_counter()
    board = Board(store)
    line("scan the store", time.perf_counter() - start)
    service = Service(board)
    section = max(
        board.snapshot.sections[FORMAT], key=lambda s: sum(entry.result.kind == "measured" for entry in s.entries)
    )
    start = time.perf_counter()
    board.outcomes(section)
    line(f"read the answers of {len(section.entries)} results (in the background)", time.perf_counter() - start)
    chosen = selections(service, section.key, 2 * USERS)
    # The first query has no branch: the whole set. Each of the others is new to the cache.
    queries = [{"format": FORMAT, "section": section.key, "branches": branches} for branches in ([], *chosen[:60])]
    line("the whole set, first request", spent_on(service.view, queries[:1])[0])
    clock, processor = spent_on(service.view, queries[1:])
    line("filter event, server side, new selection", clock)
    line("  its CPU time", processor)
    line("filter event, selection requested before", spent_on(service.view, queries[1:2])[0])
    line("breakdown of a selection, server side", spent_on(service.breakdown, queries[1:21])[0])
    start = time.perf_counter()
    board.refresh()
    line("refresh, nothing new in the store", time.perf_counter() - start)
    return section.key, chosen


def start_server(store: Path) -> "tuple[subprocess.Popen[str], str]":
    """Start the real server in its own process; return the process and its address."""
    with socket.socket() as probe:
        # Let the system choose a free port.
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(store), str(port)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    while "http://" not in process.stdout.readline():
        if process.poll() is not None:
            raise SystemExit("the server ended before it printed its address")
    line("server start, until it prints its address", time.perf_counter() - start)
    return process, f"http://127.0.0.1:{port}"


def in_browser(address: str, section: str) -> None:
    """Measure the first table, and clicks until they are painted, in headless Chromium."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        print("no Chromium on this machine: browser figures are left out")
        return
    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=program, args=CHROMIUM)
        visible = []
        for _ in range(5):
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            start = time.perf_counter()
            page.goto(address, wait_until="commit")
            # The overview is the first screen.
            page.locator("table.matrix tbody tr").first.wait_for(timeout=120_000)
            visible.append(time.perf_counter() - start)
            page.close()
        line("first table visible", visible)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"{address}/#/b/{FORMAT}?s={section}")
        page.locator(f"#mp-{FORMAT} table.heat").wait_for(timeout=120_000)
        # Measured inside the page, so that the overhead of Playwright does not count.
        painted = page.evaluate(
            """async (format) => {
              const root = document.querySelector('#mp-' + format), spent = [];
              for (let at = 0; at < 12; at++) {
                const line = root.querySelectorAll('.facet .values input')[at], panel = root.querySelector('.panel');
                const start = performance.now();
                const changed = new Promise((done) => {
                  const watch = new MutationObserver((seen) => {
                    if (seen.some((one) => one.addedNodes.length)) { watch.disconnect(); done(); }
                  });
                  watch.observe(panel, { childList: true });
                });
                line.click();
                await changed;
                await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
                spent.push((performance.now() - start) / 1000);
                await new Promise((done) => setTimeout(done, 700));
              }
              return spent;
            }""",
            FORMAT,
        )
        line("click in the tree to painted", painted)
        size, height = page.evaluate(
            "(format) => [document.querySelector('#mp-' + format).outerHTML.length, "
            "document.documentElement.scrollHeight]",
            FORMAT,
        )
        print(f"the benchmark's page: {size / 1000:.0f} kB, {height} px high", flush=True)
        browser.close()


async def many_readers(address: str, section: str, chosen: list[list[list[str]]], pid: int) -> None:
    """Let all readers open the board at once; then let each change to a different selection.

    Opening the board means loading its page, the overview and a benchmark's table. One process
    sends all readers' requests, on the same two cores as the server.
    """
    # The server closes connections after 5 s of idling: close them earlier here.
    limits = httpx.Limits(max_connections=USERS, keepalive_expiry=1)
    async with httpx.AsyncClient(base_url=address, timeout=60, limits=limits) as client:

        async def ask(branches: list[list[str]]) -> None:
            query = {"format": FORMAT, "section": section, "branches": branches}
            answer = await client.post(f"/board/{FORMAT}/view", json=query)
            assert "ok" in answer.json(), answer.text[:200]

        async def open_board() -> None:
            assert "<html" in (await client.get("/")).text
            assert "ok" in (await client.post("/board/overview/page", json={})).json()
            await ask([])

        async def timed(task: Coroutine[Any, Any, None]) -> float:
            start = time.perf_counter()
            await task
            return time.perf_counter() - start

        # The first visitor fills the caches.
        await open_board()
        begun = seconds_of(pid)
        opened = await asyncio.gather(*(timed(open_board()) for _ in range(USERS)))
        line(f"{USERS} readers open the board at once", list(opened))
        line("  CPU time of the server", seconds_of(pid) - begun)
        begun = seconds_of(pid)
        spent = await asyncio.gather(*(timed(ask(branches)) for branches in chosen[USERS:]))
        line(f"{USERS} readers at once, each with a different selection", list(spent))
        line("  CPU time of the server", seconds_of(pid) - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    store = parser.parse_args().store
    section, chosen = in_process(store)
    process, address = start_server(store)
    try:
        in_browser(address, section)
        asyncio.run(many_readers(address, section, chosen, process.pid))
        print("load average:", *(f"{load:.1f}" for load in os.getloadavg()), flush=True)
        print(f"peak memory of the server: {most_memory(process.pid) / 1e9:.2f} GB", flush=True)
    finally:
        process.terminate()
        process.wait()


def seconds_of(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    # The name of a program may contain spaces and brackets: split after the last bracket.
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def most_memory(pid: int) -> int:
    """Return the peak resident memory of a process in bytes."""
    match = re.search(r"VmHWM:\s+([0-9]+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) << 10 if match else 0


if __name__ == "__main__":
    main()
