"""Do all honest runs land, unaltered? Generates runs of every kind, submits each to a folder store and verifies it there.

    python benchmarks/honest_runs.py --count 358 --seed 1

A seeded part of it, with the loopback Hub and the Submit page, is tests/eval_harness/submissions/test_honest_runs.py.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from eval_harness.submissions.submit import submit
from eval_harness.submissions.verification import verify
from tests.eval_harness.submissions.honest import cases, datasets, differences, run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=358)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    bad, begun = 0, time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        data = datasets(place / "data")
        for case in cases(asked.seed, asked.count):
            try:
                folder = run(case, data[case.format], place / f"run-{case.number}")
                store = place / f"store-{case.number}"
                done = submit(folder, store, data=str(data[case.format]))
                (outcome,) = verify(str(store), data=[str(data[case.format])])
                wrong = differences(folder, Path(done.place))
                wrong += [] if outcome.word in ("verified", "for a human") else [str(outcome)]
            except Exception as error:  # whatever it is, the others are still to be tried
                wrong = [f"{type(error).__name__}: {error}"]
            if wrong:
                bad += 1
                print(f"{case}: {'; '.join(wrong[:3])}")
    print(f"{asked.count - bad} of {asked.count} honest runs landed unaltered ({time.monotonic() - begun:.0f} s)")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
