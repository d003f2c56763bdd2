"""Entry point of `medprobe` and `python -m medprobe`: run the command line and set the exit code.

Invalid input, wrong options, a missing extra and a full or read-only disk give one line on standard
error and exit code 2; an interruption gives one line and exit code 130. Any other uncaught
exception is a bug and shows its traceback.
"""

import signal
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from typer import TyperException

EXIT_INTERRUPTED = 130
STOPPED_MESSAGE = "stopped. Everything written so far is complete; run the same command again to resume."


def main() -> NoReturn:
    """Run the command line and exit; the module docstring lists the exit codes."""
    for previous, argument in pairwise(sys.argv):
        # An empty argument is probably an unset shell variable. Only --system may be empty.
        if argument == "" and previous != "--system":
            _stop(f"the argument after {previous} is empty, perhaps a shell variable that is not set. Give a value.")
    # Schedulers such as Slurm stop jobs with SIGTERM, which is treated like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from medprobe.command_line import app

        # Without the standalone mode, Typer raises its errors, which are then reported like ours.
        code = app(prog_name="medprobe", standalone_mode=False)
    except BaseException as error:
        from typer import TyperException

        from dataset_builders.errors import BadInput, missing_extra
        from dataset_builders.files import DISK_ERRNOS

        # Checked first, as a library that is interrupted may raise any exception.
        if _was_interrupted(error):
            _stop(STOPPED_MESSAGE, EXIT_INTERRUPTED)
        if isinstance(error, BadInput):
            _stop(str(error))
        if isinstance(error, TyperException):
            _stop_usage(error)
        if isinstance(error, OSError) and error.errno in DISK_ERRNOS:
            location = f"{file}: " if (file := error.filename2 or error.filename) else ""
            _stop(
                f"{location}{error.strerror}. Free disk space or fix the permissions, and run the same command again."
            )
        if missing := missing_extra(error):
            _stop(str(missing))
        raise
    if code == EXIT_INTERRUPTED:
        _stop(STOPPED_MESSAGE, EXIT_INTERRUPTED)
    sys.exit(code or 0)


def _stop_usage(error: "TyperException") -> NoReturn:
    """Exit with the usage error and a hint at --help.

    If there is no message (a command without arguments), Typer has already printed the help.
    """
    message, context = " ".join(error.format_message().split()), getattr(error, "ctx", None)
    if not message:
        sys.exit(error.exit_code)
    # Typer's messages do not always end with a full stop.
    sentence = message if message.endswith((".", "?")) else f"{message}."
    _stop(
        f"{sentence} See `{context.command_path if context else 'medprobe'} --help`.",
        error.exit_code,
    )


def _stop(line: str, code: int = 2) -> NoReturn:
    print(f"medprobe: {line}", file=sys.stderr)
    sys.exit(code)


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether the exception, or one that led to it, comes from Ctrl-C.

    Typer turns Ctrl-C into exit code 130, and interrupted code may raise another exception.
    """
    while error is not None:
        if isinstance(error, KeyboardInterrupt) or (isinstance(error, SystemExit) and error.code == EXIT_INTERRUPTED):
            return True
        error = error.__cause__ or error.__context__
    return False


if __name__ == "__main__":
    main()
