"""One labelled dataset of sources.yaml: its files, its reader, and what all its images share."""

import re
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationInfo,
    field_validator,
    model_validator,
)

from curation.images.pairing import strip_suffix
from curation.images.privacy import load_patient_groups


class StrictModel(BaseModel):
    """Immutable model that rejects unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _existing(path: Path, info: ValidationInfo) -> Path:
    """Resolve a path against the folder of sources.yaml (the validation context); it must exist."""
    try:
        resolved = path if info.context is None else (info.context / path.expanduser()).resolve()
        resolved.stat()
    except (OSError, RuntimeError):  # also names that are too long, unknown home folders
        raise ValueError(f"{str(path)[:200]} does not exist; paths are relative to sources.yaml") from None
    return resolved


ExistingPath = Annotated[Path, AfterValidator(_existing)]
WindowName = Literal["soft tissue", "lung", "bone", "brain", "liver", "mediastinum"]
WINDOWS: dict[WindowName, tuple[float, float]] = {
    "soft tissue": (40.0, 400.0),
    "lung": (-600.0, 1500.0),
    "bone": (400.0, 1800.0),
    "brain": (40.0, 80.0),
    "liver": (60.0, 160.0),
    "mediastinum": (50.0, 350.0),
}
"""Window centre and width in HU, as customary in radiology."""


class SourceColumns(StrictModel):
    """Column names of a dataset's table. A column that is named here must exist."""

    image: str = "image"
    label: str = "label"
    labels: tuple[str, ...] = ()
    """One column per label (reader `wide`)."""
    patient: str | None = None
    age: str | None = None
    sex: str | None = None
    site: str | None = None
    box: tuple[str, str, str, str] | None = None
    """x, y, width, height in pixels (reader `boxes`)."""


READER_ANNOTATIONS: dict[str, tuple[str, bool]] = {
    "folders": ("", False), "csv": ("file", True), "wide": ("file", True), "boxes": ("file", True), "coco": ("file", True),
    "voc": ("folder", False), "yolo": ("folder", False), "masks": ("folder", True), "nifti": ("folder", True), "dicom": ("file", False),
}  # fmt: skip
"""Reader -> what its `annotations` are ("file" or "folder"), and whether they are required."""


class SourceDataset(StrictModel):
    """One dataset. Paths are relative to the folder of sources.yaml."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    reader: Literal["folders", "csv", "wide", "boxes", "coco", "voc", "yolo", "masks", "nifti", "dicom"]
    path: ExistingPath
    modality: str | None = None
    task: str | None = None
    department: str | None = None
    region: tuple[str, ...] = ()
    license: str = "unknown"
    ethics: str | None = None
    exhaustive: bool = False
    """Every class of the dataset is labelled on every image, so a missing label means absent."""
    annotations: ExistingPath | None = None
    """Table (csv, wide, boxes, dicom), JSON (coco), or folder (voc, yolo, masks; nifti: label
    volumes).
    """
    classes: dict[int, str] | tuple[str, ...] = {}
    """Mask value or YOLO class number -> raw label, if the files do not define it. A list instead
    names the classes that follow `<image>_` in mask names, for class names of several words.
    """
    image: str | None = None
    """Pattern of image paths below `path` (readers masks and nifti): `{case}` is what an image and
    its labels share, `*` matches anything else within a name.
    """
    label: str | None = None
    """Pattern of label paths below `annotations` or `path`; with `{class}`, each class has its own
    file.
    """
    columns: SourceColumns = SourceColumns()
    separator: str = "|"
    """Separates several labels in one cell."""
    nothing: tuple[str, ...] = ()
    """Cells that mean no label at all (`No Finding`)."""
    patient: str | None = None
    """Regular expression on an image's path below `path`; its first group is the patient."""
    patients: str = ""
    """Registry that the patient ids belong to. By default all datasets share one registry, in which
    equal ids are one patient.
    """
    plane: Literal["axial", "coronal", "sagittal"] = "axial"
    window: WindowName | tuple[FiniteFloat, Annotated[FiniteFloat, Field(gt=0)]] | None = None
    """A preset of `WINDOWS`, or (centre, width) in HU. By default, the label decides for CT
    volumes; other images use the file's own window or percentiles.
    """
    slices: Annotated[int, Field(ge=1)] = 3
    """Slices per volume and label."""
    min_area: Annotated[float, Field(ge=0, lt=1)] = 0.00153
    """Targets below this share of the picture are dropped; default: 100 of 256 x 256 pixels."""
    together: bool = False
    """Ask one question about all slices of a volume that show a label (nifti; dicom with SEG or
    RTSTRUCT).
    """

    @field_validator("patient")
    @classmethod
    def _pattern(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                pattern = re.compile(value)
            except re.error as error:
                raise ValueError(f"is not a valid regular expression ({error})") from None
            if not pattern.groups:
                raise ValueError("needs a group: the part in parentheses is the patient")
        return value

    @field_validator("region", "nothing", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _complete(self) -> "SourceDataset":
        reader, (kind, is_needed) = self.reader, READER_ANNOTATIONS[self.reader]
        patterns = [pattern for pattern in (self.image, self.label) if pattern]
        is_other_kind = self.annotations is not None and kind and (kind == "file") != self.annotations.is_file()
        by_class = reader == "masks" or "{class}" in (self.label or "")
        mistakes = (
            (not self.modality and reader != "dicom", f"reader {reader} needs `modality` (what kind of image this is)"),
            (
                len(patterns) == 1 or (patterns and reader not in ("masks", "nifti")),
                "`image` and `label` are patterns of the readers masks and nifti; give both",
            ),
            (
                not all("{case}" in pattern for pattern in patterns),
                "`image` and `label` need {case}: what the paths of an image and its labels share",
            ),
            (self.annotations is None and is_needed and not self.label, f"reader {reader} needs `annotations`"),
            (is_other_kind, f"annotations: {self.annotations} is not a {kind}"),
            (not self.path.is_dir(), f"path: {self.path} is not a folder"),
            (
                reader == "boxes" and self.columns.box is None,
                "reader boxes needs `columns.box`: the columns of x, y, width, height",
            ),
            (
                reader == "wide" and not self.columns.labels,
                "reader wide needs `columns.labels`: the columns of 1, 0, -1 and blanks",
            ),
            (
                self.together and reader not in ("nifti", "dicom"),
                f"`together` is for volumes, which reader {reader} does not read",
            ),
            (self.listed_classes and not by_class, f"reader {reader} needs `classes` as number: name"),
        )
        for is_made, message in mistakes:
            if is_made:
                raise ValueError(message)
        return self

    def case_of(self, pattern: str | None, path: str) -> tuple[str, str] | None:
        """Match a path against a pattern.

        Args:
            pattern: `image` or `label` of the dataset; None: the case is the path without suffix.
            path: path of an image or label.

        Returns:
            (case, class or ""); None if the path does not match.
        """
        if pattern is None:
            return strip_suffix(path), ""
        # If the classes are listed, the case is matched lazily, so that the longest class name wins
        # (`left_lung`, not `lung`). Otherwise it is matched greedily: only the last word is the
        # class.
        label = "|".join(map(re.escape, self.listed_classes)) or "[^/]+"
        case = "(?P<case>.+?)" if self.listed_classes else "(?P<case>.+)"
        form = re.escape(pattern).replace(r"\*", "[^/]*").replace(r"\{case\}", case, 1)
        form = form.replace(r"\{case\}", "(?P=case)").replace(r"\{class\}", f"(?P<label>{label})")

        match = re.fullmatch(form, path)
        return (match["case"], match.groupdict().get("label", "")) if match else None

    @property
    def named_classes(self) -> dict[int, str]:
        """Class number -> raw label."""
        return self.classes if isinstance(self.classes, dict) else {}

    @property
    def listed_classes(self) -> tuple[str, ...]:
        """Raw labels that occur in mask names."""
        return self.classes if isinstance(self.classes, tuple) else ()

    @property
    def is_drawn_on(self) -> bool:
        """Return True if its annotations are in coordinates of the pixels as stored."""
        return self.columns.box is not None or self.reader in ("coco", "voc", "yolo", "masks")

    @cached_property
    def groups(self) -> dict[str, str]:
        """File -> keyed patient, if `medprobe curate deidentify` wrote its images."""
        return load_patient_groups(self.path)

    @property
    def names_patients(self) -> bool:
        """Return True if its files can identify patients."""
        patient_source = self.patient or self.columns.patient or self.patients or any(self.groups.values())
        return bool(patient_source) or self.reader in ("dicom", "coco")
