"""sources.yaml: which data sets there are, how each is read, and how the benchmark is drawn from them; and the values of the official
lexical tree: 18 clinical tasks and departments, 4 granularities (GMAI-MMBench, tables 5 to 7).

See also: the readers (`read_*.py`), the label table (`labels.py`).
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from dataset_builders.errors import BadInput
from dataset_builders.source_files import read_text
from dataset_builders.terms import terms


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


WINDOWS: dict[str, tuple[float, float]] = {
    "soft tissue": (40.0, 400.0),
    "lung": (-600.0, 1500.0),
    "bone": (400.0, 1800.0),
    "brain": (40.0, 80.0),
    "liver": (60.0, 160.0),
    "mediastinum": (50.0, 350.0),
}
"""Centre and width in Hounsfield units, as they are customary at the viewing station."""


TASKS = {term.concept: term.synonyms[0] for term in terms("task")}
"""Name -> abbreviation. Table 5 has a nineteenth, Anatomical Structure Recognition, which the text and the public tree do not."""
DEPARTMENTS = {
    "Cardiovascular Surgery": "CS",
    "Dermatology": "D",
    "Endocrinology": "E",
    "Gastroenterology and Hepatology": "GH",
    "General Surgery": "GS",
    "Hematology": "H",
    "Infectious Diseases": "ID",
    "Laboratory Medicine and Pathology": "LMP",
    "Nephrology and Hypertension": "NH",
    "Neurosurgery": "N",
    "Obstetrics and Gynecology": "OG",
    "Oncology (Medical)": "OM",
    "Ophthalmology": "O",
    "Orthopedic Surgery": "OS",
    "Otolaryngology (ENT)/Head and Neck Surgery": "ENT/HNS",
    "Pulmonary Medicine": "PM",
    "Sports Medicine": "SM",
    "Urology": "U",
}
IMAGE, BOX, MASK, CONTOUR = "Image Level", "Box Level", "Mask Level", "Contour Level"
GRANULARITIES = (IMAGE, BOX, MASK, CONTOUR)
OF_KIND = {"class": (IMAGE,), "box": (BOX,), "mask": (MASK, CONTOUR)}
"""Annotation -> the granularities at which it is asked about; a mask is asked about twice."""


class SourceColumns(_Strict):
    """Which column of a dataset's table holds what. A column that is named here must be in the table."""

    image: str = "image"
    label: str = "label"
    labels: tuple[str, ...] = ()
    """A column per label (reader `wide`); default: all that hold nothing but 1, 0, -1 and blanks."""
    patient: str | None = None
    study: str | None = None
    age: str | None = None
    sex: str | None = None
    site: str | None = None
    box: tuple[str, str, str, str] | None = None
    """x, y, width, height in pixels (reader `boxes`)."""


NEEDS: dict[str, tuple[str, bool]] = {
    "folders": ("", False), "csv": ("file", True), "wide": ("file", True), "boxes": ("file", True), "coco": ("file", True),
    "voc": ("folder", False), "yolo": ("folder", False), "masks": ("folder", True), "nifti": ("folder", True), "dicom": ("file", False),
    "tsv": ("", False),
}  # fmt: skip
"""Reader -> what its `annotations` are, and whether it needs them."""


class SourceDataset(_Strict):
    """One data set. Paths are relative to the folder of sources.yaml."""

    name: str
    reader: Literal["folders", "csv", "wide", "boxes", "coco", "voc", "yolo", "masks", "nifti", "dicom", "tsv"]
    path: Path
    modality: str | None = None
    task: str | None = None
    department: str | None = None
    region: tuple[str, ...] = ()
    license: str = "unknown"
    ethics: str | None = None
    exhaustive: bool = False
    """Every class of the set is labelled on every image: a label that is not there is absent."""
    annotations: Path | None = None
    """Table (csv, wide, boxes, dicom), JSON (coco), or folder (voc, yolo, masks, nifti: the label volumes)."""
    classes: dict[int, str] | tuple[str, ...] = {}
    """Value in a mask, or class number of YOLO -> raw label, where the files do not say. A list: the classes after `<image>_` in the names
    of masks, where these have several words."""
    columns: SourceColumns = SourceColumns()
    separator: str = "|"
    """Between several labels of one cell."""
    nothing: tuple[str, ...] = ()
    """Cells that stand for no label at all (`No Finding`)."""
    patient: str | None = None
    """Regular expression over an image's path below `path`; its first group is the patient."""
    patients: str | None = None
    """Name of the registry that the patient ids belong to. Default: one registry of all sets, in which an id is one patient."""
    plane: Literal["axial", "coronal", "sagittal"] = "axial"
    window: str | tuple[float, float] | None = None
    """A preset of `WINDOWS`, or (centre, width); default: by label for CT, the file's own, or percentiles."""
    slices: Annotated[int, Field(ge=1)] | None = None
    together: bool = False
    """The slices of a volume that show a label are one question about several images (nifti; dicom with SEG or RTSTRUCT)."""

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value):
            raise ValueError("a name has letters, digits, '-', '_' and '.'")
        return value

    @field_validator("patient")
    @classmethod
    def _pattern(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                pattern = re.compile(value)
            except re.error as error:
                raise ValueError(f"is not a regular expression ({error})") from None
            if not pattern.groups:
                raise ValueError("needs a group: the part in parentheses is the patient")
        return value

    @field_validator("region", "nothing", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("window")
    @classmethod
    def _window(cls, value: str | tuple[float, float] | None) -> str | tuple[float, float] | None:
        if isinstance(value, str) and value not in WINDOWS:
            raise ValueError(f"is none of {', '.join(WINDOWS)}; or give [centre, width]")
        if isinstance(value, tuple) and not (all(map(math.isfinite, value)) and value[1] > 0):
            raise ValueError("give [centre, width], two numbers, the second above 0")
        return value

    @model_validator(mode="after")
    def _complete(self) -> SourceDataset:
        if self.modality is None and self.reader not in ("dicom", "tsv"):
            raise ValueError(f"reader {self.reader} needs `modality` (what kind of image this is)")
        if self.annotations is None and NEEDS[self.reader][1]:
            raise ValueError(f"reader {self.reader} needs `annotations`")
        if self.reader == "boxes" and self.columns.box is None:
            raise ValueError("reader boxes needs `columns.box`: the columns of x, y, width, height")
        if self.together and self.reader not in ("nifti", "dicom"):
            raise ValueError(f"reader {self.reader} reads no volumes, so it takes no `together`")
        if self.listed_classes and self.reader != "masks":
            raise ValueError(f"reader {self.reader} needs `classes` as number: name")
        return self

    @property
    def named_classes(self) -> dict[int, str]:
        """Number -> raw label."""
        return self.classes if isinstance(self.classes, dict) else {}

    @property
    def listed_classes(self) -> tuple[str, ...]:
        """Raw labels in the names of masks."""
        return self.classes if isinstance(self.classes, tuple) else ()

    @property
    def registry(self) -> str:
        """The namespace of its patient ids; "" for the common one."""
        return self.patients or ""

    @property
    def names_patients(self) -> bool:
        """Whether its files can say whose they are."""
        return bool(self.patient or self.columns.patient or self.patients) or self.reader in ("dicom", "coco")


class Overlay(_Strict):
    """How a target is marked on a copy of its image."""

    color: str = "#ff2020"
    opacity: Annotated[float, Field(gt=0, le=0.5)] = 0.3
    """Of a mask: over half would hide what it marks."""
    width: Annotated[int, Field(ge=1, le=20)] = 2
    """Pixels of a box or a contour; both are drawn outside the target."""

    @field_validator("color")
    @classmethod
    def _color(cls, value: str) -> str:
        if not re.fullmatch(r"#[0-9a-fA-F]{6}", value):
            raise ValueError("give a colour like '#ff2020'")
        return value


class Sources(_Strict):
    """The whole file."""

    labels: Path | None = None
    tags: Path | None = None
    """Table of taggers: label, tagger, task, department."""
    questions: Path | None = None
    """Custom templates: task, granularity, question with <modality>."""
    tasks: tuple[str, ...] | None = None
    departments: tuple[str, ...] | None = None
    seed: int = 0
    options: tuple[int, int] = (2, 5)
    per_answer: Annotated[int, Field(ge=1)] = 30
    per_patient: Annotated[int, Field(ge=1)] | None = 1
    """Cases per patient and answer; null: no limit."""
    even: tuple[Literal["source", "age", "sex", "site"], ...] = ("source",)
    slices: Annotated[int, Field(ge=1)] = 3
    min_area: Annotated[float, Field(ge=0, lt=1)] = 0.00153
    """Share of the picture under which a target is dropped: 100 of 256 x 256 pixels."""
    near_duplicate: Annotated[int, Field(ge=-1, le=64)] = 6
    """Perceptual hashes (64 bits) that differ in so many bits or fewer are one picture; -1: never."""
    validation: Annotated[float, Field(ge=0, le=1)] = 0.18
    """Share of the questions whose answers are shown (4,550 of 25,831 in the paper)."""
    separate_registries: bool = False
    """Nobody is a patient of two of the registries that the sets name."""
    overlay: Overlay = Overlay()
    longest_side: Annotated[int, Field(ge=32, le=4096)] = 1024
    datasets: Annotated[tuple[SourceDataset, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _consistent(self) -> Sources:
        names = [dataset.name for dataset in self.datasets]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two datasets are called {twice[0]!r}")
        registries = {dataset.registry: dataset.name for dataset in self.datasets if dataset.names_patients}
        if len(registries) > 1 and not self.separate_registries:
            raise ValueError(
                f"datasets {' and '.join(sorted(registries.values()))} name their patients in different registries, so a patient of both "
                "may come to both sides of the split. Leave out `patients` (equal ids are then one patient), or state "
                "`separate_registries: true` (no patient is in two of them)"
            )
        if not 2 <= self.options[0] <= self.options[1] <= 5:
            raise ValueError("options: give the fewest and the most, from 2 to 5")
        return self


def read_sources(path: Path) -> Sources:
    """The file, its paths made absolute. Raises BadInput naming every field that is wrong, and paths that are not there."""
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file. Write one as docs/gmai_pipeline.md shows.")
    try:
        raw = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: is not YAML ({' '.join(str(error).split())}).") from None
    if not isinstance(raw, dict):
        raise BadInput(
            f"{path}: holds no fields. Write `datasets:` with one entry per data set (docs/gmai_pipeline.md)."
        )
    try:
        sources = Sources.model_validate(raw)
    except ValidationError as error:
        found = [f"{_where(raw, each['loc'])}: {each['msg']}" for each in error.errors()]
        raise BadInput(f"{path}: {'; '.join(found[:10])}. docs/gmai_pipeline.md lists the fields.") from None
    return _absolute(sources, path.parent)


def _where(raw: dict[str, Any], location: tuple[int | str, ...]) -> str:
    """The location of an error, with a dataset's name in place of its number."""
    parts = [str(part) for part in location] or ["the file"]
    if len(location) > 1 and location[0] == "datasets" and isinstance(location[1], int):
        entry = raw["datasets"][location[1]]
        if isinstance(entry, dict) and entry.get("name"):
            parts[:2] = [f"dataset {entry['name']}"]
    return " ".join(parts)


def _absolute(sources: Sources, base: Path) -> Sources:
    def there(what: str, path: Path | None, kind: str) -> Path | None:
        """The path made absolute. kind: file, folder, or "" for either."""
        try:
            found = None if path is None else (base / path.expanduser()).resolve()
            is_there = found is None or found.exists()
        except (OSError, ValueError, RuntimeError):  # too long, or no name at all
            raise BadInput(f"{what}: {str(path)[:60]!r} is not a path. Paths are relative to sources.yaml.") from None
        if not is_there:
            raise BadInput(f"{what}: {found} does not exist. Paths are relative to sources.yaml.")
        if found is not None and not {"file": found.is_file, "folder": found.is_dir, "": found.exists}[kind]():
            raise BadInput(f"{what}: {found} is not a {kind}. Give one (docs/gmai_pipeline.md, the table of readers).")
        return found

    datasets = tuple(
        each.model_copy(
            update={
                "path": there(f"dataset {each.name}: path", each.path, "" if each.reader == "tsv" else "folder"),
                "annotations": there(f"dataset {each.name}: annotations", each.annotations, NEEDS[each.reader][0]),
            }
        )
        for each in sources.datasets
    )
    files = {name: there(name, getattr(sources, name), "file") for name in ("labels", "tags", "questions")}
    return sources.model_copy(update={"datasets": datasets, **files})
