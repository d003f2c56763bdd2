"""sources.yaml: which data sets there are, how each is read, and how the benchmark is drawn from them; and the values of the official
lexical tree: 18 clinical tasks and departments, 4 granularities (GMAI-MMBench, tables 5 to 7).

See also: one data set (`readers/dataset.py`), the label table (`label_table.py`).
"""

from __future__ import annotations

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
"""Table 5 has a nineteenth, Anatomical Structure Recognition, which the text and the public tree do not."""
DEPARTMENTS = (
    "Cardiovascular Surgery", "Dermatology", "Endocrinology", "Gastroenterology and Hepatology", "General Surgery", "Hematology",
    "Infectious Diseases", "Laboratory Medicine and Pathology", "Nephrology and Hypertension", "Neurosurgery",
    "Obstetrics and Gynecology", "Oncology (Medical)", "Ophthalmology", "Orthopedic Surgery",
    "Otolaryngology (ENT)/Head and Neck Surgery", "Pulmonary Medicine", "Sports Medicine", "Urology",
)  # fmt: skip
IMAGE_LEVEL, BOX_LEVEL, MASK_LEVEL, CONTOUR_LEVEL = "Image Level", "Box Level", "Mask Level", "Contour Level"
GRANULARITIES = (IMAGE_LEVEL, BOX_LEVEL, MASK_LEVEL, CONTOUR_LEVEL)
KIND_GRANULARITIES = {"class": (IMAGE_LEVEL,), "box": (BOX_LEVEL,), "mask": (MASK_LEVEL, CONTOUR_LEVEL)}
"""Annotation -> the granularities at which it is asked about; a mask is asked about twice."""


class Overlay(StrictModel):
    """How a target is marked on a copy of its image."""

    color: Annotated[str, Field(pattern=r"^#[0-9a-fA-F]{6}$")] = "#ff2020"
    opacity: Annotated[float, Field(gt=0, le=0.5)] = 0.3
    """Of a mask: over half would hide what it marks."""
    width: Annotated[int, Field(ge=1, le=20)] = 2
    """Pixels of a box or a contour; both are drawn outside the target."""


class Sources(StrictModel):
    """The whole file."""

    labels: ExistingPath | None = None
    questions: ExistingPath | None = None
    """Custom templates: task, granularity, question with <modality>."""
    tasks: tuple[str, ...] = CLINICAL_TASKS
    departments: tuple[str, ...] = DEPARTMENTS
    seed: int = 0
    options: tuple[int, int] = (2, 5)
    per_answer: Annotated[int, Field(ge=1)] = 30
    per_patient: Annotated[int, Field(ge=1)] | None = 1
    """Cases per patient and answer; null: no limit."""
    even: tuple[Literal["source", "age", "sex", "site"], ...] = ("source",)
    near_duplicate: Annotated[int, Field(ge=-1, le=64)] = 6
    """Perceptual hashes (64 bits) that differ in so many bits or fewer are one picture; -1: never."""
    validation: Annotated[float, Field(ge=0, le=1)] = 0.18
    """Share of the questions whose answers are shown (4,550 of 25,831 in the paper)."""
    separate_registries: bool = False
    """No person is a patient of two of the registries that the sets name."""
    overlay: Overlay = Overlay()
    longest_side: Annotated[int, Field(ge=32, le=4096)] = 1024
    datasets: tuple[SourceDataset, ...]

    @model_validator(mode="after")
    def _consistent(self) -> Sources:
        names = [dataset.name for dataset in self.datasets]
        if not names:  # no `min_length`, which counts valid datasets alone
            raise ValueError("datasets: give at least one")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two datasets are called {twice[0]!r}")
        if not 2 <= self.options[0] <= self.options[1] <= 5:
            raise ValueError("options: give the fewest and the most, from 2 to 5")
        return self


def read_sources(path: Path) -> Sources:
    """The file, its paths made absolute. Raises BadInput naming every field that is wrong, and paths that are not there."""
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file. Write one as docs/gmai_pipeline.md shows.")
    try:
        raw = read_yaml(path)
        sources = Sources.model_validate(raw, context=path.parent)
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: is not YAML ({' '.join(str(error).split())}).") from None
    except ValidationError as error:
        found = [
            f"{_error_location(raw, each['loc'])}{each['msg'].removeprefix('Value error, ')}" for each in error.errors()
        ]
        raise BadInput(f"{path}: {'; '.join(found[:10])}. docs/gmai_pipeline.md lists the fields.") from None
    _check_registries(sources, path)
    return sources


def _check_registries(sources: Sources, path: Path) -> None:
    """Raise BadInput where ids of patients cannot be compared: one who is in two sets could come to both sides of the split."""
    registries = {
        (dataset.patients, privacy_manifest(dataset.path).get("deidentification", {}).get("key", "")): dataset.name
        for dataset in sources.datasets
        if dataset.names_patients
    }
    if len(registries) > 1 and not sources.separate_registries:
        raise BadInput(
            f"{path}: datasets {' and '.join(sorted(registries.values()))} name their patients in different registries, or by ids that "
            "`deidentify` made with different keys, so a patient of both may come to both sides of the split. Leave out `patients`, and "
            "de-identify all with one key (copy CLEAN.key to OTHER.key before --out OTHER), or state `separate_registries: true` (no "
            "patient is in two of them)."
        )


def _error_location(raw: Any, location: tuple[int | str, ...]) -> str:
    """The location of an error, with a dataset's name in place of its number; "" for the whole file."""
    parts = [
        str(part) for part in location if "[" not in str(part)
    ]  # "dict[int,str]": one of the kinds that a field can have
    if len(location) > 1 and location[0] == "datasets" and isinstance(raw["datasets"][location[1]], dict):
        parts[:2] = [f"dataset {raw['datasets'][location[1]].get('name', location[1])}"]
    return f"{' '.join(parts)}: " if parts else ""
