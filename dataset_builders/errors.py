"""The error for unusable input, and a list of problems that becomes one.

The command line prints a BadInput as one line on standard error and exits with code 2; any other exception is a defect of ours and shows
its traceback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


MAX_MESSAGE_LENGTH = 3_000
"""Characters of a message."""


class BadInput(ValueError):
    """Input from outside (a file, an option, a server) that cannot be used.

    The message says what is wrong, where (file and entry), and the remedy; it is shown to the user as it stands. A long list in it is cut
    in the middle: the remedy comes last.
    """

    def __init__(self, message: str) -> None:
        left_out = len(message) - MAX_MESSAGE_LENGTH
        if left_out > 0:
            head, tail = MAX_MESSAGE_LENGTH * 2 // 3, MAX_MESSAGE_LENGTH // 3
            message = f"{message[:head]} ... ({left_out:,} more characters) ... {message[-tail:]}"
        super().__init__(message)


class Unavailable(BadInput):
    """A server could not be asked, so nothing was found out: the same call may well succeed later.

    Code that judges a submission defers it then, and never refuses it.
    """


def first_validation_error(error: ValidationError) -> str:
    """The first value of a document that does not fit its schema: where it stands, and why."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}"


MAX_LISTED_PROBLEMS = 20
"""How many problems a report spells out; the rest are counted."""


class Problems:
    """A list of problems that becomes one `BadInput` when `check` finds it not empty."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, file: str, entry: str | int | None, what: str) -> None:
        """Note that `entry` of `file` is wrong: `what` says how."""
        where = file if entry is None else f"{file}, entry {entry}"
        self._found.append(f"{where}: {what}")

    def check(self, remedy: str) -> None:
        """Raise BadInput with all problems found so far (one line), or return if there are none."""
        if not self._found:
            return
        shown = [" ".join(line.split()) for line in self._found[:MAX_LISTED_PROBLEMS]]
        more = len(self._found) - len(shown)
        count = "" if len(self._found) == 1 else f"{len(self._found)} problems: "
        rest = f"; and {more} more" if more else ""
        raise BadInput(f"{count}{'; '.join(shown)}{rest}. {remedy}")


def clip(value: object, length: int = 60) -> str:
    """`repr` of a value, short enough for a message."""
    text = repr(value)
    return text if len(text) <= length else text[: length - 3] + "..."


def first_line(error: BaseException) -> str:
    """The first line of what an error says, at most 300 characters."""
    return str(error).strip().partition("\n")[0][:300]


def describe_error(error: BaseException) -> str:
    """The same after the name of its class, for errors of other people's code."""
    return f"{type(error).__name__}: {first_line(error)}"
