"""The result file: one pydantic model for `result.json`, and the results store (a folder) it lives in.

See also: computing scores (`scores/`), assembling a result from a run (`scoring.py`), drawing it (`leaderboard_space/`).
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dataset_builders.errors import BadInput, first_misfit
from dataset_builders.sources.problems import clip

SCHEMA_VERSION: Literal[2] = 2
"""2 (November 2026) adds `reader_version`; version 1 is read as it is."""

STATUSES: tuple[str, ...] = ("answered", "irrelevant", "refused", "failed", "truncated")
"""What the text of a response was read as. `truncated`: the output limit cut it before it stated an answer; it is wrong, like the
other three without a choice."""

DELIVERIES: dict[str, str] = {"answered": "answered", "refused": "held back", "failed": "no response"}
"""What the server did, whatever the text says: the status of a journal line -> column `delivery` of `answers.parquet`."""

Verdict = Literal["better", "no different", "worse"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, serialize_by_alias=True)


class Score(_Strict):
    """One number with what it rests on. Percent unless the metric's name says it is a count (`*_irrelevant`).

    `value` is None where the metric is undefined (no case of that kind). `n` counts what the metric divides by (questions, pairs,
    images), `n_cases` the independent cases behind it. `low`, `high`: 95 % interval. `verdict` is against `chance`.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int
    n_cases: int
    chance: float | None = None
    verdict: Verdict | None = None
    interval_method: str | None = None


class Benchmark(_Strict):
    """What was asked. `fingerprint` is over the questions scored, so a partial run can never pass for a complete one."""

    name: str
    family: str = Field(alias="format")
    """The benchmark whose columns, prompts and metrics it has; called `format` in files."""
    repo: str | None = None
    revision: str | None = None
    split: str
    questions: int
    fingerprint: str | None = None
    facets: str | None = None
    """The digest of the labels that scores are broken down by (`fingerprints.facets_digest`); None in results before schema version 2."""
    origin: Literal["official", "phantom", "custom"] | None = None
    selection: str | None = None
    """What a `--limit`, `--branch` or partial dataset left out, in words; None for a complete run."""


class Model(_Strict):
    name: str
    revision: str | None = None
    kind: Literal["open", "proprietary", "medical", "baseline"] | None = None
    parameters: int | None = None
    snapshot_date: str | None = None


class Method(_Strict):
    name: str
    """`mc`, `gd`, `ps`, `ff`; a published number may say another, or `best` (best over methods)."""
    prompt: str | None = None
    shots: int | None = None
    samples: int | None = None
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

    schema_version: Literal[1, 2] = SCHEMA_VERSION
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
    reader_version: int | None = None
    """`answers.READER_VERSION` of the code that read the answers; None: 1, or no answers were read."""

    def to_json(self) -> str:
        """The text of `result.json`: indented, keys in schema order, newline at the end."""
        return self.model_dump_json(indent=1, exclude_none=False) + "\n"


@dataclass(frozen=True)
class StoredResult:
    """A result with the folder it was read from (which also holds `answers.parquet` when the result was measured)."""

    result: Result
    folder: Path
    run_id: str


def model_slug(name: str) -> str:
    """A folder name for a model's display name: ASCII letters, digits, `.`, `_`, `-`.

    >>> model_slug("org/Model 7B (v1.6)")
    'org-Model-7B-v1.6'
    """
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", ascii_name).strip("-.")[:80].rstrip("-.") or "model"
    return f"model-{slug}" if WINDOWS_DEVICES.fullmatch(slug) else slug


WINDOWS_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""What no folder can be called on Windows."""
FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")
"""What a benchmark and a result may be called, since they become folders of a store."""
LONGEST_NAME = 200
"""Characters of a display name."""


def normal_name(name: str) -> str:
    """A display name in its one form: composed characters (Unicode NFC), single spaces, none around it.

    >>> normal_name("  Me\u0301dical\u00a0VLM ")
    'M\u00e9dical VLM'
    """
    return " ".join(unicodedata.normalize("NFC", name).split())


def wrong_model_name(name: str) -> str | None:
    """What is wrong with a display name, in words; None for any text in its one form without control characters and markup.

    Whoever shows or exports a name escapes it: quotes, `=`, `%`, `&` and letters of every script may stand in it.
    """
    shown = clip(name)
    if not name or name != normal_name(name):
        return f"model name {shown}: must be text, in composed characters (NFC) and with single spaces. Give --name."
    if len(name) > LONGEST_NAME:
        return f"model name {shown}: has {len(name)} characters, at most {LONGEST_NAME}. Give a shorter --name."
    # Joiners (U+200C, U+200D) are part of how several scripts are written.
    odd = [c for c in name if c in "<>" or (unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\u200c\u200d")]
    if odd:
        return f"model name {shown}: holds {odd[0]!r}. Markup and control characters cannot stand in it; give another --name."
    return None


def read_result(path: Path) -> Result:
    """Read one `result.json`.

    Raises BadInput when the file is missing, is not JSON, or does not fit the schema (the first misfit is named).
    """
    try:
        return Result.model_validate_json(path.read_bytes().removeprefix(codecs.BOM_UTF8))  # some editors put one there
    except FileNotFoundError:
        raise BadInput(f"{path}: no such result file. `medprobe score RUN_DIR` writes one.") from None
    except ValidationError as error:
        raise BadInput(f"{path}: not a result file: {first_misfit(error)}.") from None


def scan_store(store: str | Path) -> tuple[list[StoredResult], list[str]]:
    """Read every result of a store (a folder, or ORG/NAME on the Hub); a file that cannot be read is set aside, never fatal.

    Returns the results, sorted by path, and one line per file set aside; nothing of a repository that holds no `results/` yet.
    Raises BadInput when `store` is a folder without a `results/` folder, or neither a folder nor a repository that can be read.
    """
    from eval_harness.results.store_source import HubRepository, open_store

    source = open_store(store)
    root = source.folder()
    if isinstance(source, HubRepository) and not (root / "results").is_dir():
        return [], []
    if not (root / "results").is_dir():
        hint = " Did you mean its parent folder?" if root.name == "results" else ""
        raise BadInput(
            f"{root}: not a results store (a folder that contains `results/`).{hint} "
            f"`medprobe submit RUN_DIR --to {root}` makes one."
        )
    found: list[StoredResult] = []
    problems: list[str] = []
    for path in sorted((root / "results").glob("*/*/*/result.json")):
        try:
            found.append(StoredResult(read_result(path), path.parent, path.parent.name))
        except (BadInput, OSError) as error:
            problems.append(str(error))
    return found, problems


def load_results(store: str | Path) -> list[Result]:
    """Every readable result of a store (a folder that contains `results/`, or ORG/NAME on the Hub), sorted by path.

    Raises BadInput when `store` is not a results store, or cannot be read; unreadable files are left out (see `scan_store`).
    """
    return [stored.result for stored in scan_store(store)[0]]
