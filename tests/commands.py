"""Run the command line in this process, for tests that are not about processes; this saves a second
of imports per command.
"""

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch


@dataclass(frozen=True)
class Done:
    """What a command printed to standard output and standard error, and its exit code."""

    stdout: str
    stderr: str
    returncode: int


def medprobe(*arguments: object, cwd: Path | str, code: int = 0, **environment: str) -> Done:
    """Run `medprobe ARGUMENTS` in the folder `cwd` with these environment variables; fail unless it
    exits with `code`.
    """
    from medprobe.__main__ import main

    out, err, ended = io.StringIO(), io.StringIO(), 0
    previous_folder = Path.cwd()
    with (
        patch.dict(os.environ, environment),
        patch.object(sys, "argv", ["medprobe", *map(str, arguments)]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        os.chdir(cwd)
        try:
            main()
        except SystemExit as end:
            ended = _exit_code(end.code)
        finally:
            os.chdir(previous_folder)
    assert ended == code, out.getvalue() + err.getvalue()
    return Done(out.getvalue(), err.getvalue(), ended)


def _exit_code(code: Any) -> int:
    return code if isinstance(code, int) else int(code is not None)
