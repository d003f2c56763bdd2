"""Declare the data: Question and Case, the columns of a dataset repository, and what a benchmark's reader returns.

See also: a benchmark's own columns (`benchmarks/`), the columns' types in Parquet (`parquet.py`) and in the card (`contents/card.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, get_type_hints

DATASET_SCHEMA_VERSION = 1
"""Of a dataset's `manifest.json`."""
QUESTION_TYPES: tuple[str, ...] = ("single", "multiple", "yes_no")
ASPECTS: tuple[str, ...] = ("modality", "organ", "abnormality", "condition", "position")
SCENARIOS: tuple[str, ...] = ("fake", "none", "swap")
LETTERS: str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Option letters by position. No benchmark has more than 26 options; a builder refuses one that has."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a column. `label` columns hold positions in `names`; `struct` columns hold `fields`; `uri` is a text as long as an image,
    which Parquet stores once however many rows have it. `meaning`: what it holds, for the card's table of columns."""

    name: str
    names: tuple[str, ...] = ()
    fields: tuple[tuple[str, ColumnType], ...] = ()
    meaning: str = ""

    def described(self, meaning: str) -> ColumnType:
        """The same type with a meaning."""
        return replace(self, meaning=meaning)


TEXT, BOOL, NUMBER, IMAGE = ColumnType("string"), ColumnType("bool"), ColumnType("float64"), ColumnType("image")
TEXTS, INTS, IMAGES = ColumnType("list of string"), ColumnType("list of int32"), ColumnType("list of image")


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt to the model. Each annotated field is a column of a dataset repository.

    `answer` is empty where the source hides it.
    """

    question_id: Annotated[str, TEXT.described("unique within the dataset")]
    case_id: Annotated[str, TEXT.described("questions of one case are scored together")]
    image_id: Annotated[str, TEXT.described("id of the image")]
    question: Annotated[str, TEXT.described("text of the question")]
    options: Annotated[tuple[str, ...], TEXTS.described("the options, without letters; letters follow the position")]
    answer: Annotated[
        tuple[int, ...], INTS.described("positions (from 0) of the correct options; empty where the answer is hidden")
    ]
    question_type: Annotated[str, ColumnType("label", QUESTION_TYPES).described("`single`, `multiple` or `yes_no`")] = (
        "single"
    )
    task: Annotated[str | None, TEXT.described("what is asked (GMAI-MMBench: clinical task)")] = None
    modality: Annotated[str | None, TEXT.described("imaging modality")] = None
    department: Annotated[str | None, TEXT.described("clinical department")] = None
    granularity: Annotated[str | None, TEXT.described("what the question points at: image, box, mask or contour")] = (
        None
    )
    keyword: Annotated[str | None, TEXT.described("the finding or label asked about")] = None
    categories: Annotated[
        tuple[str, ...], TEXTS.described("categories of the question; it counts once in each of them")
    ] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    """The benchmark's own columns, as its `DatasetSpec.columns` names them (`aspect`, `scenario`, `sim_med` ...)."""
    more_image_ids: tuple[str, ...] = ()
    """The images shown after `image_id`, in order, of a question about several (slices, views, prior and current); all of its case."""

    @property
    def image_ids(self) -> tuple[str, ...]:
        """Every image that the question shows, in order."""
        return (self.image_id, *self.more_image_ids)


def _question_columns() -> dict[str, ColumnType]:
    hints = get_type_hints(Question, include_extras=True)
    columns = {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}
    first = {name: columns[name] for name in ("question_id", "case_id")}
    return {**first, "image": IMAGE.described("the image shown"), **columns}


COMMON_COLUMNS: dict[str, ColumnType] = {
    **_question_columns(),
    "image_license": TEXT.described("licence of the image"),
    "image_source": TEXT.described("where the image comes from"),
    "group": TEXT.described(
        "patient, study or article of the image: never in two splits, and a cluster of the intervals"
    ),
}
"""The columns of all benchmarks, in the order in which they are stored."""
EXTRA_IMAGE_COLUMNS: dict[str, ColumnType] = {
    "more_images": IMAGES.described("images after the first, in order"),
    "more_image_ids": TEXTS.described("their ids"),
}
"""The images after the first."""
TREE_COLUMNS: dict[str, ColumnType] = dict.fromkeys(("subject", "category", "modality", "keyword"), TEXT)
ANSWER_COLUMNS: dict[str, ColumnType] = {"question_id": TEXT, "answer": INTS}


def text_columns(columns: Mapping[str, ColumnType]) -> dict[str, ColumnType]:
    """The columns that hold no image."""
    return {name: kind for name, kind in columns.items() if kind.name not in ("image", "list of image", "uri")}


def case_columns(columns: Mapping[str, ColumnType]) -> dict[str, ColumnType]:
    """The columns of the config `cases`, for questions that have `columns`."""
    questions = ColumnType("list of struct", fields=tuple(text_columns(columns).items()))
    return {"case_id": TEXT, "images": IMAGES, "image_ids": TEXTS, "questions": questions}


def row_image_ids(row: Mapping[Any, Any]) -> tuple[str, ...]:
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
    """File name: the name in the source."""
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
class CountComparison:
    """A line of the count report: what a source holds beside what its paper says (None where it says nothing)."""

    what: str
    found: int
    paper: int | None = None
    note: str = ""


@dataclass(slots=True)
class SourceContent:
    """Everything that a builder read from a source: the cases of each split, in the source's order, and notes about them.

    `more` holds further configs (`finetune`) as config -> split -> cases. `hidden` are test answers that must not be
    published (question id -> option positions). `tree` are the rows of the lexical tree. `notes` name oddities of the source.
    """

    cases: dict[str, list[Case]]
    counts: list[CountComparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    more: dict[str, dict[str, list[Case]]] = field(default_factory=dict)
    hidden: dict[str, tuple[int, ...]] = field(default_factory=dict)
    tree: list[tuple[str, str, str, str]] | None = None
    patients: dict[str, str] | None = None
    """Of custom sets: how the images were de-identified, approval, consent, licence, terms, each in words."""
    validated: bool | None = None
    """Of custom sets: whether a person has checked any of the questions; None where the source does not say."""

    def all_cases(self, *, more: bool = False) -> Iterator[Case]:
        """The cases of all splits, and with `more` those of the further configs."""
        for splits in (self.cases, *(self.more.values() if more else ())):
            for cases in splits.values():
                yield from cases

    def sizes(self) -> dict[str, int]:
        """Questions of each split."""
        return {split: sum(len(case.questions) for case in cases) for split, cases in self.cases.items()}
