"""Define the error for unusable input, a list of problems that becomes one such error, and the one
for an extra that is not installed.

The command line prints a `BadInput` as one line on standard error and exits with code 2. Any other
exception is a bug in this package and shows its traceback.
"""

from importlib.util import find_spec
from traceback import walk_tb
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

MAX_MESSAGE_LENGTH = 3_000
"""Longest error message, in characters."""


class BadInput(ValueError):
    """Input from outside (a file, an option, a server) that cannot be used.

    The message states the problem, its location (file and entry) and the remedy, and is shown to
    the user verbatim. A message that is too long is cut in the middle, because the remedy comes
    last.

    Attributes:
        where: The file or folder that has the problem, which `str` puts in front of the message;
            None if the message names it. A server sets it to the name of an uploaded file, so that
            the path of its copy is not shown.
    """

    def __init__(self, message: str, where: object = None) -> None:
        # The end of a message is the remedy, so keep two thirds from the start and one third from
        # the end.
        left_out = len(message) - MAX_MESSAGE_LENGTH
        if left_out > 0:
            head, tail = MAX_MESSAGE_LENGTH * 2 // 3, MAX_MESSAGE_LENGTH // 3
            message = f"{message[:head]} ... ({left_out:,} more characters) ... {message[-tail:]}"
        super().__init__(message)
        self.where = where

    def __str__(self) -> str:
        return str(self.args[0]) if self.where is None else f"{self.where}: {self.args[0]}"


class Unavailable(BadInput):
    """A server could not be reached, so nothing is known about the request; a retry may succeed.

    Code that judges a submission must defer it on this error, never reject it.
    """


def first_validation_error(error: "ValidationError") -> str:
    """Describe the first value of a document that does not fit its schema.

    Args:
        error: the pydantic error of the document.

    Returns:
        `path.to.field: message`.
    """
    problem = error.errors()[0]
    return f"{'.'.join(map(str, problem['loc'])) or 'the file'}: {problem['msg']}"


MAX_LISTED_PROBLEMS = 20
"""How many problems a report lists; the rest are only counted."""


class Problems:
    """A list of problems that `check` turns into one `BadInput`."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, file: str, entry: str | int | None, problem: str) -> None:
        """Record a problem.

        Args:
            file: the file that has the problem.
            entry: key or index of the entry within the file; None for the file as a whole.
            problem: a phrase that follows the location, such as "has no answer".
        """
        location = file if entry is None else f"{file}, entry {entry}"
        self._found.append(f"{location}: {problem}")

    def check(self, remedy: str) -> None:
        """Raise the recorded problems as one error; do nothing if there are none.

        Args:
            remedy: the sentence that ends the message.

        Raises:
            BadInput: lists the problems in one line.
        """
        if not self._found:
            return

        # Problems may quote source text with line breaks; a message is a single line.
        listed = [" ".join(line.split()) for line in self._found[:MAX_LISTED_PROBLEMS]]
        unlisted = len(self._found) - len(listed)
        count = "" if len(self._found) == 1 else f"{len(self._found)} problems: "
        remainder = f"; and {unlisted} more" if unlisted else ""
        raise BadInput(f"{count}{'; '.join(listed)}{remainder}. {remedy}")


def clip(value: object, length: int = 60) -> str:
    """Format a value for a message.

    Args:
        value: any object.
        length: maximum length in characters.

    Returns:
        The `repr` of the value, truncated with "..." if needed.
    """
    text = repr(value)
    return text if len(text) <= length else text[: length - 3] + "..."


def replace_surrogates(text: str) -> str:
    """Make text encodable as UTF-8: lone surrogates become question marks."""
    return text.encode("utf-8", "replace").decode()


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, at most 300 characters."""
    return str(error).strip().partition("\n")[0][:300]


def describe_error(error: BaseException) -> str:
    """Return `ClassName: first line` of an exception raised by third-party code."""
    return f"{type(error).__name__}: {first_line(error)}"


EXTRAS = {
    "accelerate": "eval",
    "jinja2": "eval",
    "tokenizers": "eval",
    "torch": "eval",
    "torchvision": "eval",
    "transformers": "eval",
    "bitsandbytes": "bitsandbytes",
    "inspect_ai": "inspect",
    "num2words": "num2words",
    "openpyxl": "vlmevalkit",
    "matplotlib": "plot",
    "peft": "peft",
    "ray": "ray",
    "fastapi": "human",
    "krippendorff": "human",
    "uvicorn": "human",
    "highdicom": "curation",
    "imagehash": "curation",
    "nibabel": "curation",
    "open_clip": "curation",
    "pycocotools": "curation",
    "timm": "curation",
    "pydicom": "dicom",
    "rapidocr": "dicom",
    "gradio": "space",
    "mcp": "space",
    "starlette": "space",
    "threadpoolctl": "space",
}
"""Import name -> extra in pyproject.toml. A test compares this with the imports and pyproject.toml.
"""


class MissingExtra(BadInput):
    """A library of an optional extra is not installed."""

    def __init__(self, *modules: str, extra: str | None = None) -> None:
        extras = extra or ",".join(dict.fromkeys(EXTRAS[module] for module in modules))
        verb = "is" if len(modules) == 1 else "are"
        super().__init__(
            f"{', '.join(modules)} {verb} needed here and not installed. Install the extra: "
            f"pip install 'medprobe[{extras}]' (in a checkout: pip install '.[{extras}]')."
        )


def require(*modules: str) -> None:
    """Check that optional libraries are installed, without importing them.

    Use this before work that would otherwise fail late. Elsewhere a plain import is enough: the
    command line turns its ModuleNotFoundError into the same message.

    Args:
        modules: import names, all keys of `EXTRAS`.

    Raises:
        MissingExtra: names the libraries that are not installed.
    """
    if missing := [module for module in modules if find_spec(module) is None]:
        raise MissingExtra(*missing)


def missing_extra(error: BaseException) -> MissingExtra | None:
    """Convert a failed import into a `MissingExtra`; None if the module belongs to no extra."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    module = error.name.partition(".")[0]

    # An installed module that fails to import is broken rather than missing.
    if module not in EXTRAS or find_spec(module) is not None:
        return None

    # The extra of curation includes the others.
    importers = [str(frame.f_globals.get("__name__")) for frame, _ in walk_tb(error.__traceback__)]
    in_curation = any(name.startswith("curation.") for name in importers)
    return MissingExtra(module, extra="curation" if in_curation else None)
