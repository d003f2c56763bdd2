"""The one error that means "the input is wrong, and here is what to do about it". The command line turns it into one
line on standard error and exit code 2; everything else that escapes is a defect of ours and shows its traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class BadInput(ValueError):
    """Input from outside (a file, an option, a server) that cannot be used.

    The message says what is wrong, where (file and entry), and the remedy; it is shown to the user as it stands.
    """


class Unavailable(BadInput):
    """A server could not be asked, so nothing was found out: the same call may well succeed later.

    Whoever judges the work of others says "later" then, and never refuses.
    """


def first_misfit(error: ValidationError) -> str:
    """The first value of a document that does not fit its schema: where it stands, and why."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}"
