"""The vocabulary of the data: Question, Case, and what a reader returns.

See also: fingerprints of questions (`fingerprints.py`), the benchmarks (`benchmarks/`), writing files (`repository.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

SCHEMA_VERSION = 1
"""Of a dataset's `manifest.json`."""
QUESTION_TYPES: tuple[str, ...] = ("single", "multiple", "yes_no")
ASPECTS: tuple[str, ...] = ("modality", "organ", "abnormality", "condition", "position")
SCENARIOS: tuple[str, ...] = ("fake", "none", "swap")
LETTERS: str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Option letters by position. No benchmark has more than 26 options; a builder refuses one that has."""


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt to the model. `answer` holds option positions (0-based); it is empty where the source hides it."""

    question_id: str
    case_id: str
    image_id: str
    question: str
    options: tuple[str, ...]
    answer: tuple[int, ...]
    question_type: str = "single"
    task: str | None = None
    modality: str | None = None
    department: str | None = None
    granularity: str | None = None
    keyword: str | None = None
    categories: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    """The benchmark's own columns, as its `DatasetSpec.columns` names them (`aspect`, `scenario`, `sim_med` ...)."""
    more_image_ids: tuple[str, ...] = ()
    """The images shown after `image_id`, in order, of a question about several (slices, views, prior and current); all of its case."""

    @property
    def image_ids(self) -> tuple[str, ...]:
        """Every image that the question shows, in order."""
        return (self.image_id, *self.more_image_ids)


def image_ids(row: Mapping[Any, Any]) -> tuple[str, ...]:
    """The ids of the images that a stored question (a row of a repository) shows, in order."""
    more = row.get("more_image_ids")
    return (row["image_id"], *(more if more is not None and not isinstance(more, float) else ()))


@dataclass(frozen=True, slots=True)
class CaseImage:
    """An image of a case. Its bytes stay where they are until `read` fetches them, so that a build holds few images at once.

    `read` is None where the image is missing, and in a text-only build. `size` is in bytes (0 where missing).
    """

    image_id: str
    read: Callable[[], bytes] | None
    size: int = 0
    name: str = ""
    """What to call the file: the name that the source gives it."""
    license: str = "unknown"
    source: str | None = None
    where: str = ""
    """File and entry that the image comes from, for messages."""
    group: str | None = None
    """Who or what the image shows together with others: a patient, study or article; a keyed hash in custom sets."""


@dataclass(frozen=True, slots=True)
class Case:
    """The questions scored together, with each of their images once."""

    case_id: str
    images: tuple[CaseImage, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Count:
    """A line of the count report: what a source holds beside what its paper says (None where it says nothing)."""

    what: str
    found: int
    paper: int | None = None
    note: str = ""


@dataclass(slots=True)
class Content:
    """What a builder read from a source: the cases of each split, in the source's order, and what is worth knowing about them.

    `more` holds further configs (`finetune`, `vqa_rad`) as config -> split -> cases. `hidden` are test answers that must not be
    published (question id -> option positions). `tree` are the rows of the lexical tree. `notes` name oddities of the source.
    """

    cases: dict[str, list[Case]]
    counts: list[Count] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    more: dict[str, dict[str, list[Case]]] = field(default_factory=dict)
    hidden: dict[str, tuple[int, ...]] = field(default_factory=dict)
    tree: list[tuple[str, str, str, str]] | None = None
    patients: dict[str, str] | None = None
    """Of custom sets: how the images were de-identified, approval, consent, licence, terms, each in words."""
    validated: bool | None = None
    """Of custom sets: whether a person has checked any of the questions; None where the source does not say."""

    @property
    def has_several_images(self) -> bool:
        """Whether any question shows more than one image; then the repository has the columns for it."""
        return any(question.more_image_ids for case in self.all_cases(more=True) for question in case.questions)

    def all_cases(self, *, more: bool = False) -> Iterator[Case]:
        """The cases of all splits, and with `more` those of the further configs."""
        for splits in (self.cases, *(self.more.values() if more else ())):
            for cases in splits.values():
                yield from cases

    def sizes(self) -> dict[str, int]:
        """Questions of each split."""
        return {split: sum(len(case.questions) for case in cases) for split, cases in self.cases.items()}
