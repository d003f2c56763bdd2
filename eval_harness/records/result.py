"""The record of a run (`run.json`) and its result (`result.json`), as pydantic models.

A record holds the run's request and all parts of a result that cannot be derived from the answers;
a result adds the scores.

See also: records that stores refuse (`limits.py`), reading a store (`store/contents.py`).
"""

import codecs
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from dataset_builders.errors import BadInput, first_validation_error

SCHEMA_VERSION = 1
"""Version of the format of `run.json`, `result.json` and a store's records."""

DERIVE_VERSION = 1
"""Version of reading and scoring.

It is incremented whenever the same answers may give a different reading, score or interval;
`medprobe rescore STORE` then derives a store's results again.
"""


def _of_this_version(version: int) -> int:
    if version != SCHEMA_VERSION:
        raise PydanticCustomError(
            "version",
            "the file has version {version}, this medprobe reads version {ours}. Write it again "
            "with this medprobe, or use the "
            "one that wrote the file",
            {"version": version, "ours": SCHEMA_VERSION},
        )
    return version


SchemaVersion = Annotated[int, AfterValidator(_of_this_version)]

STATUSES: tuple[str, ...] = ("answered", "irrelevant", "refused", "truncated", "failed", "missing")
"""How a response was read. Only an `answered` one chooses an option.

`irrelevant`: no option could be read; `refused`: it declines to answer; `truncated`: cut off by the
output limit before an answer; `failed`: asked, but no response arrived; `missing`: no record of it.
"""

DELIVERIES: dict[str, str] = {
    "answered": "answered",
    "refused": "held back",
    "failed": "no response",
    "missing": "missing",
}
"""Status in the journal -> value of the column `delivery` in `answers.parquet`.

It says what the server did, regardless of the text.
"""

UNDELIVERED = ("failed", "missing")
"""Journal statuses whose questions are asked again."""

Images = Literal["real", "withheld", "blank", "swapped"]
"""Which images a run shows. `real`: the question's own.

A run with other images is an arm of the run with the real ones, and is never ranked.
"""

ARMS: tuple[Images, ...] = ("withheld", "blank", "swapped")
"""What replaces a question's images, to measure how much of a score depends on them.

In this order: no image, a grey one, or the images of another case.
"""

Verdict = Literal["better", "no different", "worse"]

METHOD_NAMES = ("mc", "gd", "ps", "ps_official", "ff")

EXTRACTIONS = ("ours", "official")

REFERENCE_KINDS = ("baseline", "human")
"""Kinds of `Model` that are shown beside models for comparison and never ranked."""

MIN_INDEPENDENT_CASES = 5
"""With fewer independent cases a score is neither tested nor ranked: its interval is too wide."""

NOTABLE_SHARE = 0.9
"""An effective sample size below this share of n is displayed next to n."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, serialize_by_alias=True)


class Benchmark(_Strict):
    """The questions that a run asked.

    `fingerprint` covers the scored questions, so a partial run cannot pass as complete.
    """

    name: str
    family: str = Field(alias="format")
    """The benchmark whose columns, prompts and metrics this one uses; named `format` in files."""
    repo: str | None = None
    revision: str | None = None
    split: str
    questions: int
    fingerprint: str | None = None
    facets: str | None = None
    """Digest of the labels that scores are broken down by (`fingerprints.digest_facets`)."""
    asked: str | None = None
    """Digest of the prompts' content (`fingerprints.digest_prompts`); unaffected by later
    corrections to the answer key.
    """
    origin: Literal["official", "phantom", "custom"] | None = None
    validated: bool | None = None
    """True if a person has checked a custom set's questions; None if the set does not state it."""
    selection: str | None = None
    """What `--limit`, `--branch` or a partial dataset left out; None for a complete run."""


class Model(_Strict):
    name: str
    revision: str | None = None
    kind: Literal["open", "proprietary", "medical", "baseline", "human"] | None = None
    responder: Literal["model", "guessing", "oracle"] = "model"
    """What gave the answers.

    `guessing` and `oracle` are medprobe's own baselines, whose answers a store reproduces. They
    have the kind `baseline`. Neither they nor people (kind `human`, responder `model`) are ranked.
    """
    parameters: int | None = None
    snapshot_date: str | None = None


class Method(_Strict):
    name: str
    """`mc`, `gd`, `ps`, `ff`; a published number may have another, or `best` (best over methods).
    """
    prompt: str | None = None
    shots: int | None = None
    samples: int | None = None
    image: Images = "real"
    generation: dict[str, Any] = Field(default_factory=dict)
    extraction: str | None = None
    judge: dict[str, Any] | None = None


# --- the record of a run ---


class RunRequest(BaseModel):
    """Everything that determines a run's answers. Runs share a folder only if their requests are
    equal.

    `data` is the location of the questions as the user gave it; `fingerprint` identifies their
    content. `model_digest` identifies the model: the digest of the local file, folder or code that
    answers, or a commit on the Hub.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    benchmark: str
    data: str
    split: str
    fingerprint: str
    model: str
    method: str
    prompt: str | None
    samples: int
    generation: dict[str, Any]
    branches: tuple[str, ...] = ()
    facets: tuple[str, ...] = ()
    limit: int | None = None
    shots: int = 0
    permute: bool = False
    image: Images = "real"
    model_digest: str | None = None

    @property
    def of_arms(self) -> "RunRequest":
        """The request with the real images, which is equal for a run and its arms."""
        return self.model_copy(update={"image": "real"})


class RunRecord(BaseModel):
    """Content of `run.json`."""

    model_config = ConfigDict(extra="forbid")

    schema_version: SchemaVersion = SCHEMA_VERSION
    run_id: str
    request: RunRequest
    benchmark: Benchmark
    model: Model
    method: Method
    deviations: list[str] = Field(default_factory=list)
    environment: dict[str, Any] = Field(default_factory=dict)
    command: str | None = None
    created_at: str

    def to_json(self) -> str:
        """Serialize as `run.json`: indented, newline at the end."""
        return self.model_dump_json(indent=1) + "\n"


def read_run(folder: Path) -> RunRecord:
    """Read `run.json`.

    Raises:
        BadInput: not a run folder, or an invalid file.
    """
    path = folder / "run.json"
    try:
        # Some editors start a UTF-8 file with a byte order mark.
        return RunRecord.model_validate_json(path.read_bytes().removeprefix(codecs.BOM_UTF8))
    except FileNotFoundError:
        raise BadInput(f"{folder}: not a run folder (it has no run.json). `medprobe eval --out` makes one.") from None
    except NotADirectoryError:
        raise BadInput(f"{folder}: not a run folder but a file.") from None
    except ValidationError as error:
        raise BadInput(f"{path}: not a run file: {first_validation_error(error)}.") from None


# --- the result of a run ---


class Nonresponse(_Strict):
    """Why a score has no verdict and no rank (`scores/grading.py`).

    Either most of the `responses` neither choose an option nor decline to answer, or the verdict
    depends on the responses that were truncated, failed or missing. The other fields count these,
    and the unreadable ones (`irrelevant`).
    """

    responses: int = Field(ge=0)
    truncated: int = Field(default=0, ge=0)
    failed: int = Field(default=0, ge=0)
    missing: int = Field(default=0, ge=0)
    irrelevant: int = Field(default=0, ge=0)

    @property
    def is_majority(self) -> bool:
        """True if most responses contain no answer."""
        return 2 * (self.truncated + self.failed + self.missing + self.irrelevant) > self.responses


class Score(_Strict):
    """One number and its basis. Percent, unless the metric's name marks a count (`*_irrelevant`).

    Attributes:
        value: None if the metric is undefined (no such case), or if most responses contain no
            answer (`nonresponse`).
        low, high: the 95 % interval.
        n: the denominator (questions, pairs or images).
        n_cases: number of cases.
        n_effective: number of independent units that would give the same interval: below `n` if
            cases share images, above `n` if `value` is a mean over samples.
        chance: the score of guessing.
        chance_interval: 95 % interval of `chance` if that is itself an estimate (a paper's run of
            random answers); `verdict` is then based on the difference of the two.
        verdict: against `chance`, read from the interval; None with `nonresponse` or fewer than
            MIN_INDEPENDENT_CASES independent cases (`is_small`).
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int
    n_cases: int
    n_effective: float | None = None
    chance: float | None = None
    chance_interval: tuple[float, float] | None = None
    verdict: Verdict | None = None
    interval_method: str | None = None
    nonresponse: Nonresponse | None = None

    @property
    def independent_n(self) -> int | None:
        """`n_effective`, rounded, if it is notably smaller than `n`; otherwise None.

        It is then displayed next to `n`.

        >>> Score(value=14.3, n=14, n_cases=14, n_effective=5.2).independent_n
        5
        >>> Score(value=14.3, n=14, n_cases=14, n_effective=13.9).independent_n is None
        True
        """
        if self.n_effective is None or self.n_effective >= NOTABLE_SHARE * self.n:
            return None
        return max(round(self.n_effective), 1)

    @property
    def is_small(self) -> bool:
        """True if the score is based on fewer than MIN_INDEPENDENT_CASES independent cases."""
        return self.value is not None and self.n_effective is not None and self.n_effective < MIN_INDEPENDENT_CASES


class Source(_Strict):
    citation: str
    table: str | None = None
    note: str | None = None


Scores = dict[str, Score]

Breakdown = dict[str, dict[str, Scores]]


class Result(_Strict):
    """A run's scores with their provenance.

    `breakdown`: facet -> facet value -> metric -> Score.
    """

    schema_version: SchemaVersion = SCHEMA_VERSION
    kind: Literal["measured", "recomputed", "printed", "aggregate"]
    provenance: Literal["submitted", "reproduced", "published"]
    benchmark: Benchmark
    model: Model
    method: Method
    scores: Scores
    breakdown: Breakdown = Field(default_factory=dict)
    statuses: dict[str, int] = Field(default_factory=dict)
    deviations: list[str] = Field(default_factory=list)
    environment: dict[str, Any] = Field(default_factory=dict)
    command: str | None = None
    created_at: str
    source: Source | None = None
    run_ids: list[str] | None = None
    derive_version: int = DERIVE_VERSION
    """`DERIVE_VERSION` of the code that read the answers and computed the numbers."""
    key: str | None = None
    """For a measured result in a store: digest of everything that determines its numbers.

    See `derive/derivation.py`.
    """

    def to_json(self) -> str:
        """Serialize as `result.json`: indented, keys in schema order, newline at the end."""
        return self.model_dump_json(indent=1, exclude_none=False) + "\n"


def read_result(path: Path) -> Result:
    """Read a `result.json`.

    Raises:
        BadInput: the file is missing, not JSON, or does not match the schema (the first error is
            quoted).
    """
    try:
        # Some editors start a UTF-8 file with a byte order mark.
        return Result.model_validate_json(path.read_bytes().removeprefix(codecs.BOM_UTF8))
    except FileNotFoundError:
        raise BadInput("no such result file. `medprobe score RUN_DIR` writes one.", path) from None
    except ValidationError as error:
        raise BadInput(f"not a result file: {first_validation_error(error)}.", path) from None
