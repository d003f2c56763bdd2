"""Count how many honest and dishonest submissions are held for review, by kind.

    python -m benchmarks.submissions.flag_rates [RUNS_PER_KIND]

Prints the table in `docs/submitting.md`. The kinds are those of the tests
(`tests/eval_harness/store/checks/test_lies.py`), on stores with six results of other accounts.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

from dataset_builders.build import build
from eval_harness.store import examine
from tests.eval_harness.store.checks import test_lies as lies


def main(runs: int = 6) -> None:
    """Print a row per kind: its description, and how many submissions were held or refused."""
    # The phantom data stand in for a released dataset: no look-up on the Hub.
    examine.is_released = lambda repo, revision: (repo, revision) == (lies.REPO, lies.RELEASED)  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        worlds = []
        for family in lies.LIED_BENCHMARKS:
            build(family, out=Path(folder) / family, text_only=True)
            worlds.append(lies.world_of(Path(folder) / family, Path(folder) / f"{family}-store"))
        for title, kinds in (
            ("dishonest", [*lies.LIE_GENERATORS, *lies.UNSURE]),
            ("honest", dict.fromkeys(lies.HONEST)),
        ):
            print(f"| {title} | held for review or refused |\n|---|---|")
            total = caught = 0
            for kind in kinds:
                flagged = [
                    bool(worlds[number % 3].caught(attempt))
                    for number in range(runs)
                    for attempt in kind(worlds[number % 3], random.Random(f"{kind.__name__} {number}"))
                ]
                total, caught = total + len(flagged), caught + sum(flagged)
                print(
                    f"| {str(kind.__doc__).splitlines()[0]} | {sum(flagged)} of {len(flagged)} |",
                    flush=True,
                )
            print(f"| all | {caught} of {total} |\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
