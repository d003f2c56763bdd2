"""Run commands on a Ray cluster that starts and ends with them, and kill its workers."""

import contextlib
import os
import random
import subprocess
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
RAY = ("ray==2.60.0",)


def start(python, folder, *arguments):
    """Run `medprobe ARGUMENTS` in a process; its output is in `folder`/said."""
    environment = {
        name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR", "HF_HOME")
    }
    # Ray starts workers at niceness 15, at which they hardly run beside other tests.
    ray = {"RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0"}
    variables = environment | ray | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with (folder / "said").open("wb") as output:
        return subprocess.Popen(
            [python, "-m", "medprobe", *map(str, arguments)], cwd=folder, env=variables, stdout=output, stderr=output
        )


def workers_of(process, name):
    """Return the living actors of a class among a process's descendants."""
    workers = []
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if " ".join(child.cmdline()).startswith(f"ray::{name}"):
                workers.append(child)
    return workers


def kill_workers(process, name, kills, seed, progress, timeout=300.0):
    """Kill a random worker `kills` times, each time after some more work is done; return how many
    were killed.

    `progress`: how much is done; the next kill waits until it has grown.
    """
    chance, done, last_progress, last_kill = random.Random(seed), 0, progress(), time.monotonic()
    while process.poll() is None and done < kills and time.monotonic() - last_kill < timeout:
        time.sleep(chance.uniform(0.02, 0.3))
        if progress() <= last_progress:
            continue
        with contextlib.suppress(psutil.NoSuchProcess):
            if workers := workers_of(process, name):
                chance.choice(workers).kill()
                done, last_progress, last_kill = done + 1, progress(), time.monotonic()
    return done
