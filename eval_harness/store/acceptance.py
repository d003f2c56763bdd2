"""Define the files that a store adds to a result: acceptance and withdrawal.

A submission never contains them. `acceptance.json`: who submitted the result, when it was added and
who verified it. `withdrawn.json`: who withdrew it, and why. A result without an acceptance was not
verified: a board computes its scores itself and marks it as unverified.

See also: who may write these files (`folder_store.py`, `pull_requests.py`, `withdrawing.py`).
"""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from dataset_builders.errors import BadInput, first_validation_error
from eval_harness.records.result import SCHEMA_VERSION, SchemaVersion

ACCEPTANCE, WITHDRAWN = "acceptance.json", "withdrawn.json"
MAX_TEXT = 2_000
"""Maximum characters of a reason."""
MAX_BYTES = 64 << 10
"""Maximum bytes of one of these files."""


def _check_plain_text(text: str) -> str:
    """Check that a text is one printable line: the board and comments show it verbatim."""
    # isprintable() also excludes control and bidirectional formatting characters.
    if not 1 <= len(text) <= MAX_TEXT or not text.isprintable() or text != " ".join(text.split()):
        raise ValueError(f"give one line of 1 to {MAX_TEXT:,} characters of plain text, with single spaces")
    return text


PlainText = Annotated[str, AfterValidator(_check_plain_text)]
"""One line of printable text (`_check_plain_text`)."""


class _Record(BaseModel):
    # Unknown fields are refused, since ignoring a newer version's field could mislead.
    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: SchemaVersion = SCHEMA_VERSION
    account: str

    def to_bytes(self) -> bytes:
        """Return the content of the file: indented JSON with a final newline."""
        return (self.model_dump_json(indent=1) + "\n").encode()


RecordT = TypeVar("RecordT", bound=_Record)


class Acceptance(_Record):
    """How a result entered a store.

    Times are ISO 8601 in UTC, by the verifier's clock, never the submitter's. `account`: the
    submitter, a Hub account, or an operating system user for a folder. `flags`: the flags that the
    store's owner reviewed before adding the result.
    """

    accepted_at: str
    verified_by: str
    pull_request: int | None = None
    flags: list[str] = Field(default_factory=list)


class Withdrawal(_Record):
    """A withdrawal by the submitter or the store's owner.

    The result stays in the store, but is not ranked.
    """

    withdrawn_at: PlainText
    reason: PlainText


@dataclass(frozen=True)
class Provenance:
    """Everything that a store records about a result.

    `acceptance` is None if the result was not verified.
    """

    acceptance: Acceptance | None = None
    withdrawal: Withdrawal | None = None


def read_acceptance(folder: Path) -> Acceptance | None:
    """Return the acceptance of the result in `folder`, or None.

    Raises BadInput if the file is damaged.
    """
    return _read_record(folder / ACCEPTANCE, Acceptance)


def read_withdrawal(folder: Path) -> Withdrawal | None:
    """Return the withdrawal of the result in `folder`, or None.

    Raises BadInput if the file is damaged.
    """
    return _read_record(folder / WITHDRAWN, Withdrawal)


def read_provenance(folder: Path) -> Provenance:
    """Read everything that the store records about the result in `folder`.

    Raises:
        BadInput: If a file is damaged.
    """
    return Provenance(read_acceptance(folder), read_withdrawal(folder))


def parse_record(content: bytes, kind: type[RecordT], location: str) -> RecordT:
    """Parse one of these files.

    Args:
        content: The untrusted bytes.
        kind: Acceptance or Withdrawal.
        location: Path of the file, for messages.

    Raises:
        BadInput: If the content is invalid or larger than MAX_BYTES.
    """
    try:
        if len(content) > MAX_BYTES:
            raise BadInput(f"{location}: has {len(content):,} bytes, at most {MAX_BYTES:,} are read.")
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise BadInput(
            f"{location}: {first_validation_error(error)}. Restore the file, or ask the store's owner."
        ) from None


def utc_now() -> str:
    """Return the current time in the format of these files."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def local_account() -> str:
    """Return the user name on this machine, the submitter to a folder store without `--account`."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # in a container the user id may have no name
        return "unknown"


def _read_record(path: Path, kind: type[RecordT]) -> RecordT | None:
    """Read one of these files; None if it does not exist."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}).") from None
    return parse_record(content, kind, str(path))
