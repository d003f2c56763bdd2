"""The command line in a process of its own that starts at once, for tests that start and kill many."""

from __future__ import annotations

from pathlib import Path

from tests.processes import MODELS, Process
from tests.processes import start as start_program

CODE = "import torch, medprobe; torch.set_num_threads(1); medprobe.main()"


def start(arguments, cwd: Path, **environment: str) -> Process:
    """A running `medprobe ARGUMENTS`."""
    return start_program(MODELS, CODE, *arguments, cwd=cwd, **environment)
