"""The result file: the scores of a run with their provenance (`result.json`), as pydantic models.

See also: what a model and a run may be called (`names.py`), reading a store of results (`store/scan.py`).
"""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from dataset_builders.errors import BadInput, first_validation_error

SCHEMA_VERSION = 1
"""Format version of every file that the harness writes: `run.json`, `result.json` and a store's files about a result."""
DERIVE_VERSION = 1
"""Incremented whenever the same answers may give a different reading, score or interval. `medprobe rescore STORE` then derives the results
of a store again."""


def _of_this_version(version: int) -> int:
    if version != SCHEMA_VERSION:
        raise PydanticCustomError(
            "version",
            "the file has version {version}, and this medprobe reads version {ours}. Make it again with this medprobe, or use the "
            "one that wrote it",
            {"version": version, "ours": SCHEMA_VERSION},
        )
    return version


SchemaVersion = Annotated[int, AfterValidator(_of_this_version)]

STATUSES: tuple[str, ...] = ("answered", "irrelevant", "refused", "truncated", "failed", "missing")
"""How the text of a response was read; all but `answered` choose no option. `irrelevant`: no option could be read; `refused`: it
declines to answer; `truncated`: the output limit cut it before it stated an answer; `failed`: asked for and not delivered; `missing`: no
record of it."""

DELIVERIES: dict[str, str] = {
    "answered": "answered",
    "refused": "held back",
    "failed": "no response",
    "missing": "missing",
}
"""The server's outcome, regardless of the text: status of a journal line -> column `delivery` of `answers.parquet`."""

Images = Literal["real", "withheld", "blank", "swapped"]
"""`real`: the question's own. A run with other images is an arm of the run with the real ones, and is never ranked."""
ARMS: tuple[Images, ...] = ("withheld", "blank", "swapped")
"""Replacements for a question's images, to measure how much of a score comes from them: nothing, grey, those of another case."""

UNDELIVERED = ("failed", "missing")
"""Statuses of a journal line whose question is asked again."""

Verdict = Literal["better", "no different", "worse"]


FEWEST = 5
"""Independent cases under which a score is neither tested nor ranked: its interval spans nearly everything."""
NOTABLE = 0.9
"""An effective sample size below this share of n is shown beside n."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, serialize_by_alias=True)


class Nonresponse(_Strict):
    """Why a score has no verdict and no rank: most of its `responses` neither choose an option nor decline, or its verdict depends on those
    that the output limit cut off, that failed or are missing (`scores/nonresponse.py`).

    The other numbers: how many of them the output limit cut off, failed, are missing, or could not be read (`irrelevant`).
    """

    responses: int = Field(ge=0)
    truncated: int = Field(default=0, ge=0)
    failed: int = Field(default=0, ge=0)
    missing: int = Field(default=0, ge=0)
    irrelevant: int = Field(default=0, ge=0)

    @property
    def is_majority(self) -> bool:
        """True if most responses say nothing."""
        return 2 * (self.truncated + self.failed + self.missing + self.irrelevant) > self.responses


class Score(_Strict):
    """One number and its basis. Percent, unless the metric's name says that it is a count (`*_irrelevant`).

    `value` is None where the metric is undefined (no case of that kind), and where most responses behind it say nothing (`nonresponse`).
    `n` counts what the metric divides by (questions, pairs, images), `n_cases` the cases behind it, `n_effective` how many independent
    ones give the same 95 % interval (`low`, `high`): less than `n` where cases share images, and more where `value` is a mean over
    samples. `verdict` is against `chance`, read off the interval; a score with `nonresponse` has none, and is not ranked, nor has one of
    fewer than FEWEST independent cases (`is_small`). `chance_interval`: where guessing is itself a sample, a paper's run of random
    answers, the 95 % interval of that run's score; `verdict` is then that of the difference between the two.
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
    def worth(self) -> int | None:
        """`n_effective` if it is notably less than `n`, so that it has to be shown beside n.

        >>> Score(value=14.3, n=14, n_cases=14, n_effective=5.2).worth, Score(value=14.3, n=14, n_cases=14, n_effective=13.9).worth
        (5, None)
        """
        if self.n_effective is None or self.n_effective >= NOTABLE * self.n:
            return None
        return max(round(self.n_effective), 1)

    @property
    def is_small(self) -> bool:
        """True for a share of fewer than FEWEST independent cases."""
        return self.value is not None and self.n_effective is not None and self.n_effective < FEWEST


class Benchmark(_Strict):
    """The questions asked. `fingerprint` covers the questions scored, so a partial run can never pass for a complete one."""

    name: str
    family: str = Field(alias="format")
    """The benchmark whose columns, prompts and metrics it has; called `format` in files."""
    repo: str | None = None
    revision: str | None = None
    split: str
    questions: int
    fingerprint: str | None = None
    facets: str | None = None
    """The digest of the labels that scores are broken down by (`fingerprints.digest_facets`)"""
    asked: str | None = None
    """The digest of what was put to the model (`fingerprints.digest_prompts`), which an answer key that is corrected later leaves alone."""
    origin: Literal["official", "phantom", "custom"] | None = None
    validated: bool | None = None
    """True if a person has checked any question of a custom set; None if the set does not state it."""
    selection: str | None = None
    """Description of what a `--limit`, `--branch` or partial dataset left out; None for a complete run."""


class Model(_Strict):
    name: str
    revision: str | None = None
    kind: Literal["open", "proprietary", "medical", "baseline"] | None = None
    responder: Literal["model", "guessing", "oracle"] = "model"
    """The source of the answers. `guessing` and `oracle` are baselines of medprobe, which a store reproduces; all but `model` have the
    kind `baseline` and are not ranked."""
    parameters: int | None = None
    snapshot_date: str | None = None


class Method(_Strict):
    name: str
    """`mc`, `gd`, `ps`, `ff`; a published number may say another, or `best` (best over methods)."""
    prompt: str | None = None
    shots: int | None = None
    samples: int | None = None
    image: Images = "real"
    generation: dict[str, Any] = Field(default_factory=dict)
    extraction: str | None = None
    judge: dict[str, Any] | None = None


class Source(_Strict):
    citation: str
    table: str | None = None
    note: str | None = None


Scores = dict[str, Score]
Breakdown = dict[str, dict[str, Scores]]


class Result(_Strict):
    """The scores of a run with their provenance. `breakdown` is facet -> facet value -> metric -> Score."""

    schema_version: SchemaVersion = SCHEMA_VERSION
    kind: Literal["measured", "published", "aggregate"]
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
    """Of a measured result in a store: a digest of everything its numbers follow from (`derive/derivation.py`)."""

    def to_json(self) -> str:
        """The text of `result.json`: indented, keys in schema order, newline at the end."""
        return self.model_dump_json(indent=1, exclude_none=False) + "\n"


def read_result(path: Path) -> Result:
    """Read one `result.json`.

    Raises BadInput if the file is missing, is not JSON, or does not fit the schema (the first misfit is named).
    """
    try:
        return Result.model_validate_json(path.read_bytes().removeprefix(codecs.BOM_UTF8))  # some editors put one there
    except FileNotFoundError:
        raise BadInput(f"{path}: no such result file. `medprobe score RUN_DIR` writes one.") from None
    except ValidationError as error:
        raise BadInput(f"{path}: not a result file: {first_validation_error(error)}.") from None
