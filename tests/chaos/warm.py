"""Start the command line in a process of its own, for tests that start and kill many."""

from pathlib import Path

from tests.processes import Process, start as start_program

CODE = "from medprobe.__main__ import main; main()"
SLOW_AFTER = """
import time
from eval_harness.runs.run_folder import AnswerJournal
append, left = AnswerJournal.append, [{answers}]
def slowly(self, response):
    append(self, response)
    left[0] -= 1
    if left[0] <= 0:
        time.sleep(1)
AnswerJournal.append = slowly
"""


def start(arguments, cwd: Path, slow_after: int | None = None, **environment: str) -> Process:
    """Start `medprobe ARGUMENTS`.

    After `slow_after` journaled answers each takes a second, so that a test can kill the process
    before it ends.
    """
    # The patched journal sleeps in the child process only.
    code = CODE if slow_after is None else SLOW_AFTER.format(answers=slow_after) + CODE
    return start_program(code, *arguments, cwd=cwd, **environment)
