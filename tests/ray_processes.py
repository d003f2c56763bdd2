"""Run commands on a Ray cluster that starts and ends with them, and kill its workers."""

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

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


def _parents():
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            text = path.read_text()
            parents[int(text.partition(" ")[0])] = int(text.rpartition(")")[2].split()[1])
    return parents


def workers_of(process, name):
    """Return the living actors of a class among a process's descendants."""
    parents, workers = _parents(), []
    for pid in parents:
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0 ").decode(errors="replace")
            if not line.startswith(f"ray::{name}"):
                continue
            above = pid
            while above in parents and above != process.pid:
                above = parents[above]
            if above == process.pid:
                workers.append(pid)
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
        if workers := workers_of(process, name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(workers), signal.SIGKILL)
                done, last_progress, last_kill = done + 1, progress(), time.monotonic()
    return done
