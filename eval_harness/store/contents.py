"""Define the contents of a store: submissions, its own records of them, and how they are read.

A submission is its files, the scores and readings derived from them, and the problems found. A
store adds exactly these bytes (the files as rewritten by `examine.py`, and the derived files), and
records of its own, which a submission never contains. `acceptance.json`: who submitted the result,
when it was added and who verified it. `withdrawn.json`: who withdrew it, and why. A result without
an acceptance was not verified: a board computes its scores itself and marks it as unverified.

A store is a folder, or a dataset repository on the Hub with an updated local copy. Nothing is
written to it here.

See also: making the files (`submit.py`), examining them (`examine.py`), adding them
(`adding.py`, `pull_requests.py`).
"""

import getpass
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pandas as pd
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from dataset_builders.errors import BadInput, first_line, first_validation_error
from dataset_builders.hub.client import connect, is_repo_id
from eval_harness.answer_files.untrusted import join_problems
from eval_harness.derive.run_files import DERIVED_FILES, READINGS_FILE, RESULT_FILE, SubmittedFiles, table_to_frame
from eval_harness.records.limits import model_slug
from eval_harness.records.result import SCHEMA_VERSION, Result, RunRecord, SchemaVersion, read_result

ACCEPTANCE, WITHDRAWN = "acceptance.json", "withdrawn.json"
MAX_REASON_LENGTH = 2_000
"""Maximum characters of a reason."""
MAX_RECORD_BYTES = 64 << 10
"""Maximum bytes of a store's own record."""


def _check_plain_text(text: str) -> str:
    """Check that a text is one printable line: the board and comments show it verbatim."""
    # isprintable() also excludes control and bidirectional formatting characters.
    if not 1 <= len(text) <= MAX_REASON_LENGTH or not text.isprintable() or text != " ".join(text.split()):
        raise ValueError(f"give one line of 1 to {MAX_REASON_LENGTH:,} characters of plain text, with single spaces")
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


def read_provenance(folder: Path) -> Provenance:
    """Read everything that the store records about the result in `folder`.

    Raises:
        BadInput: If a file is damaged.
    """
    return Provenance(read_acceptance(folder), _read_record(folder / WITHDRAWN, Withdrawal))


def parse_record(content: bytes, kind: type[RecordT], location: str) -> RecordT:
    """Parse a store's own record.

    Args:
        content: The untrusted bytes.
        kind: Acceptance or Withdrawal.
        location: Path of the file, for messages.

    Raises:
        BadInput: If the content is invalid or larger than MAX_RECORD_BYTES.
    """
    try:
        if len(content) > MAX_RECORD_BYTES:
            raise BadInput(f"{location}: has {len(content):,} bytes, at most {MAX_RECORD_BYTES:,} are read.")
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise BadInput(
            f"{location}: {first_validation_error(error)}. Restore the file, or ask the store's owner."
        ) from None


def utc_now() -> str:
    """Return the current time in the format of a store's own records."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def local_account() -> str:
    """Return the user name on this machine, the submitter to a folder store without `--account`."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # in a container the user id may have no name
        return "unknown"


def _read_record(path: Path, kind: type[RecordT]) -> RecordT | None:
    """Read a store's own record; None if it does not exist."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}).") from None
    return parse_record(content, kind, str(path))


REPRODUCED_SUFFIX = "-reproduced"
"""Suffix of an id, which marks a result that the store's owner ran; no other id ends with it."""


@dataclass(frozen=True)
class Submission:
    """An examined submission.

    `problems` cause refusal, `flags` are for a person to review, `notes` only inform.

    Attributes:
        run_id: Id of the submission (`submission_id`).
        sent: The files that were sent, rewritten by `examine`.
        result: The result in `result.json`.
        derived: Content of the derived files, by name.
        digests: Digests of the answers, for comparison with other submissions (see
            `similarity.Digests`).
        questions: Content of the questions file; None if the store's owner does not vouch for the
            dataset.
    """

    run_id: str
    sent: SubmittedFiles
    result: Result
    derived: Mapping[str, bytes]
    digests: pd.DataFrame
    questions: bytes | None = None
    problems: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def folder(self) -> str:
        """The submission's folder in a store: `results/<benchmark>/<model>/<id>`."""
        return f"results/{self.result.benchmark.name}/{model_slug(self.result.model.name)}/{self.run_id}"

    def readings(self) -> pd.DataFrame:
        """Return the reading of each answer (`readings.parquet`)."""
        return table_to_frame(self.derived[READINGS_FILE])

    def files(self) -> dict[str, bytes]:
        """Return the sent files, by their path in a store."""
        return {f"{self.folder}/{name}": content for name, content in self.sent.content_by_name().items()}

    def derived_files(self) -> dict[str, bytes]:
        """Return the derived files, by their path in a store; `result.json` comes last."""
        return {f"{self.folder}/{name}": self.derived[name] for name in DERIVED_FILES}

    def accepted_files(self, acceptance: bytes, with_questions: bool) -> dict[str, bytes]:
        """Return what a store on the Hub adds to the sent files, by path: see `Acceptance`."""
        questions = self.questions_file() if with_questions else {}
        return self.derived_files() | {f"{self.folder}/{ACCEPTANCE}": acceptance} | questions

    def questions_file(self) -> dict[str, bytes]:
        """Return the questions file, by its path in a store.

        Empty if the store's owner does not vouch for the questions.
        """
        path = f"questions/{self.result.benchmark.fingerprint}.parquet"
        return {} if self.questions is None else {path: self.questions}

    def reproduced(self) -> "Submission":
        """Return a copy marked as reproduced by the store's owner, under an id of its own."""
        result = self.result.model_copy(update={"provenance": "reproduced"})
        derived = {**self.derived, RESULT_FILE: result.to_json().encode()}
        return replace(
            self,
            run_id=self.run_id.removesuffix(REPRODUCED_SUFFIX) + REPRODUCED_SUFFIX,
            result=result,
            derived=derived,
        )

    def check(self, source: Path, remedy: str = "Nothing was submitted.") -> None:
        """Raise BadInput if there are problems; its message lists the first of them in one line.

        Args:
            source: The submitted path, which the message names.
            remedy: Last sentence of the message.
        """
        if self.problems:
            count = "" if len(self.problems) == 1 else f"{len(self.problems)} problems: "
            raise BadInput(f"{count}{join_problems(self.problems, ' (--dry-run lists them)')}. {remedy}", source)


def submission_id(run: RunRecord, digest: str) -> str:
    """Return the id of a submission: readable, and unique by a digest of request and answers.

    Different answers to the same request have different ids, and so do two models whose names have
    the same slug. The list of hashed fields is fixed, so that existing ids do not change when the
    run record gets a new field.

    Args:
        run: The run record.
        digest: Digest of the answers and the judge's replies (their sorted `row_digest`s).
    """
    benchmark, method = run.benchmark, run.method
    judge = {name: (method.judge or {}).get(name) for name in ("model", "prompt")} if method.judge else None
    # Do not add fields: existing ids would change.
    request = [
        *(benchmark.name, benchmark.split, benchmark.fingerprint, run.model.name),
        *(
            method.name,
            method.prompt,
            method.shots,
            run.request.samples,
            method.extraction,
            method.generation,
            judge,
        ),
        method.image,
    ]

    short = hashlib.sha256(f"{json.dumps(request, sort_keys=True)}\n{digest}".encode()).hexdigest()[:16]
    arm = [method.image] if method.image != "real" else []
    parts = (
        benchmark.name[:40],
        model_slug(run.model.name)[:60].rstrip("-."),
        method.name[:12],
        *arm,
        short,
    )

    # Its length is limited, since the id becomes a folder name.
    return "-".join(parts)


ANSWER_CONTENT_COLUMNS = ("question_id", "sample", "response", "delivery", "reasoning", "scores")
"""Columns that make up the content of an answer, as opposed to times and token counts."""


def row_digest(row: Mapping[str, Any], columns: Sequence[str] = ANSWER_CONTENT_COLUMNS) -> bytes:
    """Return the digest of one row of answers over `columns`."""
    content = [row.get(name) for name in columns]
    return hashlib.sha256(json.dumps(content).encode()).digest()


HUB_RECHECK_SECONDS = 30.0
"""Minimum seconds between two checks for changes of the repository on the Hub."""


class StoreReader:
    """A store: a folder, or a dataset repository on the Hub.

    Only the changes to a repository are downloaded; while the Hub is unreachable, the last copy is
    used.
    """

    def __init__(self, store: str | Path) -> None:
        self.name = str(store)
        self.is_on_hub = is_hub_store(store)
        self._revision: str | None = None
        self._path = None if self.is_on_hub else Path(store)
        self._checked_at = 0.0

    def folder(self) -> Path:
        """Return the folder that contains `results/`; for the Hub, the newest copy.

        The copy's path may change from call to call.

        Raises:
            BadInput: If there is no copy and none can be downloaded.
        """
        if self._path is not None and not self.is_on_hub:
            return self._path
        from huggingface_hub.errors import HfHubHTTPError

        if self._path is not None and time.monotonic() - self._checked_at < HUB_RECHECK_SECONDS:
            return self._path
        # Set before the request, so that an unreachable Hub is not asked on every call.
        self._checked_at = time.monotonic()

        try:
            api = connect()
            revision = api.dataset_info(self.name).sha
            # Snapshots are content-addressed: unchanged files are not downloaded again.
            if revision != self._revision or self._path is None:
                copy = api.snapshot_download(
                    self.name,
                    repo_type="dataset",
                    revision=revision,
                    allow_patterns=["results/**", "questions/**"],
                )
                self._path, self._revision = Path(copy), revision
        except (HfHubHTTPError, OSError, ValueError) as error:
            if self._path is None:
                raise BadInput(
                    f"results store {self.name}: neither a folder here nor a dataset repository "
                    f"that can be read ({first_line(error) or type(error).__name__}). Check the name, and HF_TOKEN for a private one."
                ) from None

        assert self._path is not None
        return self._path


def is_hub_store(store: str | Path) -> bool:
    """Return True for ORG/NAME, a dataset repository on the Hub, unless such a folder exists."""
    return isinstance(store, str) and not Path(store).is_dir() and is_repo_id(store)


@dataclass(frozen=True)
class StoredResult:
    """A result and its folder, which also contains `answers.parquet` if the result was measured."""

    result: Result
    folder: Path
    withdrawal: Withdrawal | None = None

    @classmethod
    def read(cls, path: Path) -> "StoredResult":
        """Read a result.json and its withdrawal, if any. Raises BadInput if one is damaged."""
        return cls(read_result(path), path.parent, _read_record(path.parent / WITHDRAWN, Withdrawal))


def result_paths(root: Path) -> list[Path]:
    """Return every result.json of a folder store, sorted.

    Raises:
        BadInput: If the folder has no `results/`.
    """
    if not (root / "results").is_dir():
        # A common mistake is to give the folder `results` itself.
        hint = " Did you mean its parent folder?" if root.name == "results" else ""
        raise BadInput(
            f"{root}: not a results store (a folder that contains `results/`).{hint} "
            f"`medprobe submit RUN_DIR --to {root}` makes one."
        )
    return sorted(root.glob("results/*/*/*/result.json"))


def scan_store(store: str | Path) -> tuple[list[StoredResult], list[str]]:
    """Read every result of a store; files that cannot be read are skipped.

    Args:
        store: A folder, or ORG/NAME on the Hub.

    Returns:
        The results, sorted by path, and one line per skipped file. Both are empty for a repository
            without `results/`.

    Raises:
        BadInput: If the folder has no `results/`, or the store is neither a folder nor a readable
            repository.
    """
    source = StoreReader(store)
    root = source.folder()
    if source.is_on_hub and not (root / "results").is_dir():
        return [], []
    results: list[StoredResult] = []
    problems: list[str] = []

    for path in result_paths(root):
        try:
            results.append(StoredResult.read(path))
        except (BadInput, OSError) as error:
            problems.append(str(error))

    return results, problems
