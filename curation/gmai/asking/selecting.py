"""Which cases are kept of each answer: at most 30, at most one per patient, far apart in appearance, even over source, age and sex."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from curation.gmai.cases import Case
from curation.gmai.items import PICTURES
from curation.gmai.sources import Sources
from curation.images.file_names import file_names
from dataset_builders.case_groups import connected
from dataset_builders.errors import BadInput

THUMBNAIL = 16


class Appearance:
    """Vectors of pictures, of length one: rows of an embeddings folder where one is given, else grey thumbnails of 16 x 16."""

    def __init__(self, private: Path, embeddings: Path | None) -> None:
        self.folder = private / PICTURES
        self._known: dict[str, np.ndarray] = {}
        if embeddings is not None:
            arrays = sorted(embeddings.glob("*.npy"))
            if not arrays or not (embeddings / "images.parquet").is_file():
                raise BadInput(
                    f"--embeddings {embeddings}: is not an embeddings folder. Make it with `medprobe curate embed {self.folder}`."
                )
            index = pd.read_parquet(embeddings / "images.parquet")
            vectors = np.load(arrays[0], mmap_mode="r")
            files = file_names(embeddings)
            for image, vector in zip(index["image"], vectors, strict=True):
                self._known[Path(files.get(image, image)).stem] = _unit(np.asarray(vector, np.float64))

    def of(self, picture: str) -> np.ndarray:
        """The vector of a picture (its sha256)."""
        if picture not in self._known:
            with Image.open(self.folder / f"{picture}.png") as image:
                small = image.convert("L").resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
            vector = np.asarray(small, np.float64).ravel()
            self._known[picture] = _unit(vector - vector.mean())
        return self._known[picture]


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / max(float(np.linalg.norm(vector)), 1e-12)


def select(cases: list[Case], sources: Sources, appearance: Appearance) -> tuple[list[Case], Counter[str]]:
    """The chosen cases in order of `order`, and how many fell to each limit."""
    counts: Counter[str] = Counter()
    cells: dict[tuple[str, ...], list[Case]] = defaultdict(list)
    for case in sorted(cases, key=lambda case: case.order):
        cells[(*case.cell, case.answer)].append(case)
    chosen: list[Case] = []
    for own in cells.values():
        per_patient = _limit_patients(own, sources.per_patient)
        counts["more cases of one patient and answer"] += len(own) - len(per_patient)
        kept = _far_apart(per_patient, sources, appearance)
        counts[f"over {sources.per_answer} cases per answer"] += len(per_patient) - len(kept)
        chosen += kept
    return sorted(chosen, key=lambda case: case.order), counts


def _limit_patients(cases: list[Case], most: int | None) -> list[Case]:
    """At most `most` cases of each patient, those with the largest target."""
    if most is None:
        return cases
    kept: list[Case] = []
    taken: Counter[str] = Counter()
    for case in sorted(cases, key=lambda case: (-case.item.area, case.order)):
        if taken[case.item.patient] < most:
            taken[case.item.patient] += 1
            kept.append(case)
    return sorted(kept, key=lambda case: case.order)


def _far_apart(cases: list[Case], sources: Sources, appearance: Appearance) -> list[Case]:
    """Farthest-first: each next case is the one farthest from all chosen ones, within the stratum that has the fewest so far."""
    if len(cases) <= sources.per_answer:
        return cases
    vectors = np.stack([appearance.of(case.item.picture) for case in cases])
    strata = [tuple(_value(case, name) for name in sources.even) for case in cases]
    nearest = np.full(len(cases), np.inf)
    chosen: list[int] = []
    open_ = set(range(len(cases)))
    used: Counter[tuple[str, ...]] = Counter()
    while len(chosen) < sources.per_answer:
        fewest = min(used[strata[at]] for at in open_)
        pool = [at for at in sorted(open_) if used[strata[at]] == fewest]
        best = max(pool, key=lambda at: nearest[at]) if chosen else pool[0]
        chosen.append(best)
        open_.remove(best)
        used[strata[best]] += 1
        nearest = np.minimum(nearest, 1 - vectors @ vectors[best])
    return [cases[at] for at in sorted(chosen)]


def _value(case: Case, name: str) -> str:
    if name == "source":
        return case.item.dataset
    value = case.item.attributes.get(name, "")
    if name == "age":  # by decade: "045Y" (DICOM) and "45" alike
        digits = "".join(sign for sign in value.split(".")[0] if sign.isdigit())
        return str(int(digits) // 10 if digits and not value.upper().endswith(("M", "W", "D")) else "")
    return value.casefold()


def split(cases: list[Case], sources: Sources, earlier: Mapping[str, str] | None = None) -> dict[str, str]:
    """Case -> validation or test, by patient, and where two share a picture by both: patients go to validation, in an order drawn with the
    seed, until its share is full.

    `earlier`: patient -> split of earlier runs, which stays (a validation answer has been shown, a test answer has not); of patients of
    both who share a picture now, all go to validation.
    """
    earlier = earlier or {}

    def shown_by(case: Case) -> list[str]:
        return [case.item.patient, *(picture for picture, _ in case.item.pictures)]

    def split_before(patient_cases: list[Case]) -> str:
        before = {earlier.get(case.item.patient, "") for case in patient_cases}
        return "validation" if "validation" in before else "test" if "test" in before else ""

    wanted = round(sources.validation * len(cases))
    parts = sorted(connected(cases, shown_by), key=lambda each: min(case.order for case in each))
    shown = sum(len(part) for part in parts if split_before(part) == "validation")
    splits: dict[str, str] = {}
    for part in parts:
        name = split_before(part)
        if not name:
            name = "validation" if shown < wanted else "test"
            shown += len(part) if name == "validation" else 0
        splits |= {case.case: name for case in part}
    return splits
