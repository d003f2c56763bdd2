"""Time of `medprobe --help` as a new process: median of several runs. The aim is under half a second."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 15


def main() -> None:
    """Print the minimum, median and maximum in seconds."""
    taken = []
    for _ in range(RUNS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "medprobe", "--help"], check=True, capture_output=True)
        taken.append(time.perf_counter() - start)
    print(f"medprobe --help: min {min(taken):.2f} s, median {statistics.median(taken):.2f} s, max {max(taken):.2f} s")


if __name__ == "__main__":
    main()
