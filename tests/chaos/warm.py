"""The command line in a process of its own that starts at once: forked from a server that has imported the heavy libraries already.

For tests that start and kill many processes. The process is a real one, and kill -9 ends it as any other.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["torch", "transformers", "pandas", "eval_harness.runs.runner", "eval_harness.models.local.network", "openai"]
)


def start(arguments, cwd, **environment):
    """A running process; what it says is in `cwd`/said.PID. Its exit code is in `exitcode` after `join`."""
    process = CONTEXT.Process(target=_run, args=([str(a) for a in arguments], str(cwd), environment), daemon=True)
    process.start()
    return process


def said(process, cwd):
    return (Path(cwd) / f"said.{process.pid}").read_text()


def _run(arguments, cwd, environment):
    os.chdir(cwd)
    os.environ.update(environment)
    output = os.open(f"said.{os.getpid()}", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = ["medprobe", *arguments]
    import torch

    import medprobe

    torch.set_num_threads(1)
    medprobe.main()
