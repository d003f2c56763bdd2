"""Progress of a run: a bar on a terminal, elsewhere (Slurm, CI) a line every 30 s or 5 %."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

EVERY_SECONDS, EVERY_PART, AT_MOST_EVERY = 30.0, 0.05, 1.0


@contextmanager
def progress(total: int, done: int, name: str) -> Iterator[Callable[[], None]]:
    """Call what it yields once for each answer; `done` of `total` are there already."""
    if sys.stderr.isatty():
        with tqdm(total=total, initial=done, desc=name, unit="answer", file=sys.stderr) as bar:

            def update() -> None:
                bar.update()

            yield update
        return
    start = said_at = time.monotonic()
    first = said = done

    def say() -> None:
        nonlocal said, said_at
        said, said_at = done, time.monotonic()
        rate = (done - first) / max(said_at - start, 1e-9)
        left = tqdm.format_interval((total - done) / rate) if rate else "?"
        print(
            f"{name}: {done:,} of {total:,} answers ({done / total:.0%}), {rate:,.1f}/s, {left} left", file=sys.stderr
        )

    def one_more() -> None:
        nonlocal done
        done += 1
        waited = time.monotonic() - said_at
        if waited >= EVERY_SECONDS or (waited >= AT_MOST_EVERY and done - said >= EVERY_PART * total):
            say()

    try:
        yield one_more
    finally:
        if done > said:
            say()
