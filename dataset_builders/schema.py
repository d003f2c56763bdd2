"""Declare the data: questions, cases, the columns of a dataset repository, and a reader's result.

See also: a benchmark's own columns (`benchmarks/`), the columns' types in Parquet (`parquet.py`)
and in the card (`contents/card.py`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, get_type_hints

DATASET_SCHEMA_VERSION = 1
"""Version of a dataset's `manifest.json`."""
QUESTION_TYPES: tuple[str, ...] = ("single", "multiple", "yes_no")
ASPECTS: tuple[str, ...] = ("modality", "organ", "abnormality", "condition", "position")
SCENARIOS: tuple[str, ...] = ("fake", "none", "swap")
LETTERS: str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Option letters by position. Builders refuse a question with more than 26 options."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a column.

    `label` columns store an index into `names`; `struct` columns have `fields`; `uri` is a string
    as long as an image, which Parquet stores once however many rows have it. `meaning` describes
    the column in the card's table.
    """

    name: str
    names: tuple[str, ...] = ()
    fields: "tuple[tuple[str, ColumnType], ...]" = ()
    meaning: str = ""

    def described(self, meaning: str) -> "ColumnType":
        """Return the same type with a description."""
        return replace(self, meaning=meaning)


TEXT, BOOL, NUMBER, IMAGE = (
    ColumnType("string"),
    ColumnType("bool"),
    ColumnType("float64"),
    ColumnType("image"),
)
TEXTS, INTS, IMAGES = (
    ColumnType("list of string"),
    ColumnType("list of int32"),
    ColumnType("list of image"),
)


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt to a model. Each annotated field is a column of a dataset repository.

    `answer` is empty if the source hides it.
    """

    question_id: Annotated[str, TEXT.described("unique within the dataset")]
    case_id: Annotated[str, TEXT.described("questions of one case are scored together")]
    image_id: Annotated[str, TEXT.described("id of the image")]
    question: Annotated[str, TEXT.described("text of the question")]
    options: Annotated[
        tuple[str, ...],
        TEXTS.described("the options, without letters; letters follow the position"),
    ]
    answer: Annotated[
        tuple[int, ...],
        INTS.described("positions (from 0) of the correct options; empty where the answer is hidden"),
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
        tuple[str, ...],
        TEXTS.described("categories of the question; it counts once in each of them"),
    ] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    """The benchmark's own columns, named as in `DatasetSpec.columns` (`aspect`, `scenario` ...)."""
    more_image_ids: tuple[str, ...] = ()
    """Further images shown after `image_id`, in order (slices, views, prior and current study).

    All belong to the question's case.
    """

    @property
    def image_ids(self) -> tuple[str, ...]:
        """All images that the question shows, in order."""
        return (self.image_id, *self.more_image_ids)


def _question_columns() -> dict[str, ColumnType]:
    hints = get_type_hints(Question, include_extras=True)
    columns = {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}

    # Viewers show columns in stored order: ids first, then the image.
    leading = {name: columns[name] for name in ("question_id", "case_id")}
    return {**leading, "image": IMAGE.described("the image shown"), **columns}


COMMON_COLUMNS: dict[str, ColumnType] = {
    **_question_columns(),
    "image_license": TEXT.described("licence of the image"),
    "image_source": TEXT.described("where the image comes from"),
    "group": TEXT.described(
        "patient, study or article of the image: stays in one split, and is one cluster in confidence intervals"
    ),
}
"""The columns of all benchmarks, in stored order."""
EXTRA_IMAGE_COLUMNS: dict[str, ColumnType] = {
    "more_images": IMAGES.described("images after the first, in order"),
    "more_image_ids": TEXTS.described("their ids"),
}
"""The columns for images after the first."""
TREE_COLUMNS: dict[str, ColumnType] = dict.fromkeys(("subject", "category", "modality", "keyword"), TEXT)
HIDDEN_ANSWER_COLUMNS: dict[str, ColumnType] = {"question_id": TEXT, "answer": INTS}


def text_columns(columns: Mapping[str, ColumnType]) -> dict[str, ColumnType]:
    """Return the columns without images."""
    return {name: kind for name, kind in columns.items() if kind.name not in ("image", "list of image", "uri")}


def case_columns(columns: Mapping[str, ColumnType]) -> dict[str, ColumnType]:
    """Return the columns of the config `cases` for questions that have `columns`."""
    questions = ColumnType("list of struct", fields=tuple(text_columns(columns).items()))
    return {"case_id": TEXT, "images": IMAGES, "image_ids": TEXTS, "questions": questions}


def row_image_ids(row: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return the ids of the images that a stored question shows, in order.

    Args:
        row: a question's row of a dataset repository.
    """
    extra_ids = row.get("more_image_ids")

    # pandas reads a missing list as None or NaN (a float).
    return (
        row["image_id"],
        *(extra_ids if extra_ids is not None and not isinstance(extra_ids, float) else ()),
    )


@dataclass(frozen=True, slots=True)
class CaseImage:
    """An image of a case, whose bytes are read on demand so that a build keeps few images in
    memory.

    `read` is None if the image is missing, and in a text-only build. `size` is in bytes, 0 if
    missing.
    """

    image_id: str
    read: Callable[[], bytes] | None
    size: int = 0
    name: str = ""
    """File name in the source."""
    license: str = "unknown"
    source: str | None = None
    location: str = ""
    """File and entry of the source, for messages."""
    group: str | None = None
    """Patient, study or article that the image belongs to; a keyed hash in custom sets."""


@dataclass(frozen=True, slots=True)
class Case:
    """Questions that are scored together, with each of their images once."""

    case_id: str
    images: tuple[CaseImage, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class CountComparison:
    """A row of the count report: a count in the source and the one in the paper (None if not
    stated).
    """

    quantity: str
    count: int
    paper: int | None = None
    note: str = ""


@dataclass(slots=True)
class SourceContent:
    """Everything that a reader found in a source: the cases of each split, in source order, and
    notes.

    `extra_configs` maps further configs (`finetune`) to split -> cases. `hidden_answers` maps ids
    of test questions to option positions that must not be published. `tree_rows` are the rows of
    the lexical tree. `notes` describe oddities of the source.
    """

    cases: dict[str, list[Case]]
    counts: list[CountComparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    extra_configs: dict[str, dict[str, list[Case]]] = field(default_factory=dict)
    hidden_answers: dict[str, tuple[int, ...]] = field(default_factory=dict)
    tree_rows: list[tuple[str, str, str, str]] | None = None
    patients: dict[str, str] | None = None
    """Custom sets only: de-identification, approval, consent, licence and terms, each as text."""
    validated: bool | None = None
    """Custom sets only: whether a person has checked any question; None if unknown."""
    facets: tuple[str, ...] = ()
    """Labels of the set's own, in `Question.extra`."""
    citation: str = ""
    """BibTeX entry of a known set; empty for others."""

    def all_cases(self, *, include_extra: bool = False) -> Iterator[Case]:
        """Iterate over the cases of all splits, optionally with those of the further configs."""
        for splits in (self.cases, *(self.extra_configs.values() if include_extra else ())):
            for cases in splits.values():
                yield from cases

    def map_cases(self, change: Callable[[Case], Case]) -> "SourceContent":
        """Return this content with every case changed, those of the further configs included."""

        def map_splits(splits: dict[str, list[Case]]) -> dict[str, list[Case]]:
            return {split: [change(case) for case in cases] for split, cases in splits.items()}

        extra_configs = {config: map_splits(splits) for config, splits in self.extra_configs.items()}
        return replace(self, cases=map_splits(self.cases), extra_configs=extra_configs)

    def sizes(self) -> dict[str, int]:
        """Return split -> number of questions."""
        return {split: sum(len(case.questions) for case in cases) for split, cases in self.cases.items()}
