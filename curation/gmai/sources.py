"""sources.yaml: the datasets, how each is read, and how the benchmark is drawn from them.

This module also contains the values of the official lexical tree: 18 clinical tasks, 18
departments, 4 granularities (GMAI-MMBench, tables 5 to 7).

See also: one dataset (`readers/dataset.py`), the label table (`label_table.py`).
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from curation.images.file_names import privacy_manifest
from curation.readers.dataset import ExistingPath, SourceDataset, StrictModel
from dataset_builders.errors import BadInput
from dataset_builders.source_files import read_yaml
from dataset_builders.terms import load_terms

CLINICAL_TASKS = tuple(term.concept for term in load_terms("task"))
"""Table 5 of the paper has a nineteenth task, Anatomical Structure Recognition, which is neither in
the paper's text nor in the public tree.
"""
DEPARTMENTS = (
    "Cardiovascular Surgery", "Dermatology", "Endocrinology", "Gastroenterology and Hepatology",
    "General Surgery", "Hematology", "Infectious Diseases", "Laboratory Medicine and Pathology",
    "Nephrology and Hypertension", "Neurosurgery",
    "Obstetrics and Gynecology", "Oncology (Medical)", "Ophthalmology", "Orthopedic Surgery",
    "Otolaryngology (ENT)/Head and Neck Surgery", "Pulmonary Medicine", "Sports Medicine", "Urology",
)  # fmt: skip
IMAGE_LEVEL, BOX_LEVEL, MASK_LEVEL, CONTOUR_LEVEL = (
    "Image Level",
    "Box Level",
    "Mask Level",
    "Contour Level",
)
GRANULARITIES = (IMAGE_LEVEL, BOX_LEVEL, MASK_LEVEL, CONTOUR_LEVEL)
KIND_GRANULARITIES = {
    "class": (IMAGE_LEVEL,),
    "box": (BOX_LEVEL,),
    "mask": (MASK_LEVEL, CONTOUR_LEVEL),
}
"""Kind of annotation -> granularities of its questions; a mask gets two questions."""


class Overlay(StrictModel):
    """How a target is marked on a copy of its image."""

    color: Annotated[str, Field(pattern=r"^#[0-9a-fA-F]{6}$")] = "#ff2020"
    opacity: Annotated[float, Field(gt=0, le=0.5)] = 0.3
    """Opacity of a mask; more than 0.5 would hide the target."""
    width: Annotated[int, Field(ge=1, le=20)] = 2
    """Line width of a box or contour in pixels; both are drawn outside the target."""


class Sources(StrictModel):
    """The content of sources.yaml."""

    labels: ExistingPath | None = None
    questions: ExistingPath | None = None
    """Custom templates: columns task, granularity, question (with <modality>)."""
    tasks: tuple[str, ...] = CLINICAL_TASKS
    departments: tuple[str, ...] = DEPARTMENTS
    seed: int = 0
    options: tuple[int, int] = (2, 5)
    per_answer: Annotated[int, Field(ge=1)] = 30
    per_patient: Annotated[int, Field(ge=1)] | None = 1
    """Cases per patient and answer; null: unlimited."""
    even: tuple[Literal["source", "age", "sex", "site"], ...] = ("source",)
    near_duplicate: Annotated[int, Field(ge=-1, le=64)] = 6
    """Pictures count as near-duplicates if their perceptual hashes differ in at most this many of
    64 bits; -1: never.
    """
    validation: Annotated[float, Field(ge=0, le=1)] = 0.18
    """Share of questions with public answers (4,550 of 25,831 in the paper)."""
    separate_registries: bool = False
    """Set by the user to state that no patient is in two registries."""
    overlay: Overlay = Overlay()
    longest_side: Annotated[int, Field(ge=32, le=4096)] = 1024
    datasets: tuple[SourceDataset, ...]

    @model_validator(mode="after")
    def _consistent(self) -> "Sources":
        names = [dataset.name for dataset in self.datasets]
        if not names:  # `min_length` would only count valid datasets
            raise ValueError("datasets: give at least one")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two datasets are called {twice[0]!r}")
        if not 2 <= self.options[0] <= self.options[1] <= 5:
            raise ValueError("options: give a minimum and a maximum, from 2 to 5")
        return self


def read_sources(path: Path) -> Sources:
    """Read sources.yaml and resolve its paths.

    Raises:
        BadInput: fields are invalid or paths are missing; the message lists up to ten.
    """
    if not path.is_file():
        raise BadInput(f"{path}: file not found. docs/gmai_pipeline.md shows how to write one.")
    try:
        raw = read_yaml(path)
        sources = Sources.model_validate(raw, context=path.parent)
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: not valid YAML ({' '.join(str(error).split())}).") from None
    except ValidationError as error:
        messages = [
            f"{_error_location(raw, problem['loc'])}{problem['msg'].removeprefix('Value error, ')}"
            for problem in error.errors()
        ]
        raise BadInput(f"{path}: {'; '.join(messages[:10])}. docs/gmai_pipeline.md lists the fields.") from None
    _check_registries(sources, path)
    return sources


def _check_registries(sources: Sources, path: Path) -> None:
    """Raise BadInput if patient ids of different datasets cannot be compared.

    Otherwise a patient of two datasets could end up in both splits.
    """
    # `deidentify` derives patient ids with a key, so ids made with different keys cannot be
    # compared.
    registries = {
        (
            dataset.patients,
            privacy_manifest(dataset.path).get("deidentification", {}).get("key", ""),
        ): dataset.name
        for dataset in sources.datasets
        if dataset.names_patients
    }

    if len(registries) > 1 and not sources.separate_registries:
        raise BadInput(
            f"{path}: the patient ids of datasets {' and '.join(sorted(registries.values()))} "
            "belong to different registries, or were made with different `deidentify` keys, so a "
            "patient "
            "of both may end up in both splits. Omit `patients` and de-identify all datasets with "
            "one key "
            "(copy CLEAN.key to OTHER.key before --out OTHER), or set `separate_registries: true` "
            "if no patient is in two of them."
        )


def _error_location(raw: Any, location: tuple[int | str, ...]) -> str:
    """Return the location of a validation error, with the dataset's name; "" for the whole file."""
    # Skip union members, such as "dict[int,str]".
    parts = [str(part) for part in location if "[" not in str(part)]
    if len(location) > 1 and location[0] == "datasets" and isinstance(raw["datasets"][location[1]], dict):
        parts[:2] = [f"dataset {raw['datasets'][location[1]].get('name', location[1])}"]
    return f"{' '.join(parts)}: " if parts else ""
