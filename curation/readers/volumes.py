"""Volumes with masks: which slices become pictures (picture and mask go through the same steps), and the reader of NIfTI.

At most k slices per label, those with the largest target (SA-Med2D-20M's protocol takes all three axes; here one plane, in the orientation
in which it is read). Slices that one question asks about together lie apart instead: neighbours are near-copies of one another.

See also: DICOM series (`dicom.py`), what a reader is (`registry.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from curation.images.pairing import split_path, strip_suffix
from curation.readers.consistency import ClassNames, Contradiction, read_class_names
from curation.readers.dataset import SourceDataset
from curation.readers.pictures import (
    Annotation,
    DatasetFiles,
    Picture,
    PictureLabel,
    Unit,
    is_volume,
    patient_from_name,
    relative_name,
    unusable_targets,
)
from curation.readers.pixels import (
    PLANE_AXCODES,
    Skipped,
    display_window,
    orientation_transform,
    resample_square,
    skip_on_error,
    to_grey,
    to_rgb,
)
from dataset_builders.source_files import read_json


@dataclass
class LabelledVolume:
    """A volume in the orientation in which it is shown. masks: label -> (n_slices, height, width) of booleans."""

    key: str
    slices: Callable[[int, tuple[float, float] | None], np.ndarray]
    """Number of a slice, window -> its picture, grey (height, width) or RGB, uint8."""
    masks: dict[str, np.ndarray]
    spacing: tuple[float, float]
    """Millimetres from row to row and from column to column."""
    patient: str | None
    modality: str
    windowed: bool
    study: str | None = None
    attributes: dict[str, str] | None = None
    numbers: list[int] | None = None
    """The source's name of each slice; default: its position."""


def select_pictures(volume: LabelledVolume, dataset: SourceDataset, unit: Unit) -> list[Picture]:
    """The pictures of a volume. A slice that shows labels under different windows becomes one picture per window."""
    choose = spaced_slices if dataset.together else largest_slices
    chosen: dict[tuple[int, tuple[float, float] | None], list[str]] = defaultdict(list)
    for label, mask in sorted(volume.masks.items()):
        areas = mask.reshape(len(mask), -1).sum(1)
        slices = choose(areas, dataset.slices, dataset.min_area * mask[0].size)
        if not slices:
            unit.skips.append(f"the target is too small on every slice ({label})")
        window = display_window(label, dataset.window) if volume.windowed or dataset.window is not None else None
        for at in slices:
            chosen[at, window].append(label)
    pictures = []
    for (at, window), labels in sorted(chosen.items(), key=lambda each: (each[0][0], str(each[0][1]))):
        picture = resample_square(np.ascontiguousarray(volume.slices(at, window)), volume.spacing)
        shown = {
            label: PictureLabel(label, mask=resample_square(np.ascontiguousarray(mask[at]), volume.spacing))
            for label, mask in volume.masks.items()
            if mask[at].any()
        }
        number = volume.numbers[at] if volume.numbers else at
        pictures.append(
            Picture(
                f"{volume.key} slice {number}",
                picture if picture.ndim == 3 else to_rgb(picture),
                [shown[label] for label in labels],
                also=[target for label, target in shown.items() if label not in labels],
                patient=volume.patient,
                study=volume.study or volume.key,
                modality=volume.modality,
                attributes=dict(volume.attributes or {}),
            )
        )
    return pictures


def largest_slices(areas: np.ndarray, k: int, least: float) -> list[int]:
    """Indices of at most k slices with the largest areas of one label, ascending; none under `least` pixels. areas: (n_slices,)"""
    order = np.lexsort((np.arange(len(areas)), -areas))
    return sorted(int(at) for at in order[:k] if areas[at] > 0 and areas[at] >= least)


def spaced_slices(areas: np.ndarray, k: int, least: float) -> list[int]:
    """Indices of at most k of the n slices that show `least` pixels or more of one label: every (n / k)-th of them, at least every second,
    with as many left out before the first as after the last."""
    marked = np.flatnonzero((areas > 0) & (areas >= least))
    if not len(marked):
        return []
    step = max(2, len(marked) // k)
    count = min(k, -(-len(marked) // step))
    first = (len(marked) - 1 - step * (count - 1)) // 2
    return [int(marked[first + step * number]) for number in range(count)]


# NIfTI


def read_nifti(dataset: SourceDataset, files: DatasetFiles) -> Iterator[Annotation]:
    """Annotations of label volumes: each belongs to the image volume of the same path (or case, if the dataset says how paths are made),
    reoriented by nibabel as radiologists see it. Raises BadInput as `volume_classes` does."""
    own: dict[str, list[tuple[str, Path]]] = defaultdict(list)
    for path in filter(is_volume, files.marks):
        if (case := dataset.case_of(dataset.label, relative_name(path, files.folder))) is not None:
            own[case[0]].append((case[1], path))
    is_by_file = any(label for volumes in own.values() for label, _ in volumes)
    classes, lists = (
        (dataset.named_classes, ()) if is_by_file or dataset.named_classes else read_volume_classes(dataset)
    )
    for name, volumes in own.items():
        is_double = len(dict(volumes)) < len(volumes)  # a.nii and a.nii.gz: pairing refuses both
        for part in ([pair] for pair in volumes) if is_double else [volumes]:
            load = partial(_load_volume, classes, [label for label, _ in part])
            yield Annotation(name, (*(path for _, path in part), *lists), unusable_targets("is a volume"), load=load)


def strip_channel_suffixes(images: Iterable[str], labels: Iterable[str]) -> list[str]:
    """Paths of images as these labels call them: nnU-Net writes `_0000` after the name of the first channel's image."""
    last = {split_path(label)[-1:] for label in labels}
    return [name if split_path(name)[-1:] in last else name.removesuffix("_0000") for name in map(strip_suffix, images)]


def read_volume_classes(dataset: SourceDataset) -> ClassNames:
    """Value -> label by every dataset.json of a dataset. Raises BadInput as `listed_names` does."""
    roots = [root for root in (dataset.path, dataset.annotations) if root is not None]
    files = {folder / "dataset.json" for root in roots for folder in (root, root.parent)}
    form, remedy = (
        "a dataset.json whose `labels` are names and whole numbers",
        "Give `classes: {1: name, ...}` in sources.yaml.",
    )
    return read_class_names(f"dataset {dataset.name}", filter(Path.is_file, files), _read_dataset_json, form, remedy)


def _read_dataset_json(path: Path) -> list[tuple[int, Any]]:
    """(value, label) of a dataset.json (nnU-Net: name -> value; Medical Segmentation Decathlon: value -> name)."""
    pairs = [(key, value) if str(key).isdigit() else (value, key) for key, value in read_json(path)["labels"].items()]
    return [(int(value), name) for value, name in pairs if int(value)]


def _load_volume(
    classes: dict[int, str], labels: list[str], image: Path, annotation: Annotation, dataset: SourceDataset, unit: Unit,
) -> list[Picture]:  # fmt: skip
    """The pictures of a volume. labels: the class of each label volume; "" where its values are classes."""
    volume, affine, spacing = _read_oriented(image, dataset.plane)
    if not np.isfinite(volume).any():
        raise Skipped("holds no numbers")
    masks: dict[str, np.ndarray] = {}
    for label, path in zip(labels, annotation.files, strict=False):
        values, other, _ = _read_oriented(path, dataset.plane)
        if values.shape != volume.shape:
            raise Skipped(f"its label has another size than its image ({values.shape} and {volume.shape})")
        if not np.allclose(affine, other, atol=1e-2):
            raise Skipped("its label lies elsewhere in space than its image (their affines differ)")
        whole = np.nan_to_num(values).astype(np.int64)
        if not np.array_equal(whole, values):
            raise Skipped("its label holds what is no whole number")
        names = {int(value): label or classes.get(int(value), "") for value in np.unique(whole) if value}
        if unnamed := [value for value, name in names.items() if not name]:
            raise Contradiction(f"a value of the label has no name (value {unnamed[0]})")
        for value, name in names.items():
            masks[name] = masks.get(name, False) | (whole == value)
    labelled = LabelledVolume(
        key=unit.key,
        slices=lambda at, window: to_grey(volume[at], window),
        masks=masks,
        spacing=spacing,
        patient=patient_from_name(unit.key, dataset),
        modality=dataset.modality or "",
        windowed=(dataset.modality or "").upper() in ("CT", "CTA"),
    )
    return select_pictures(labelled, dataset, unit)


TEMPLATE_SCALE = 0.3
"""By how much the sizes of voxels may differ between the two places of a volume: a template's head is larger than a patient's."""


def open_volume(path: Path) -> Any:
    """A NIfTI image, its values not yet read. Raises Skipped where there is none, Contradiction if its two statements of its place in
    space disagree: programs differ in which of them they follow, so left and right would depend on the program."""
    import nibabel as untyped

    nibabel: Any = untyped
    with skip_on_error("is no complete NIfTI"):
        loaded = nibabel.load(path)
        (sform, s_code), (qform, q_code) = loaded.get_sform(coded=True), loaded.get_qform(coded=True)
        if s_code and q_code:
            turns = [nibabel.io_orientation(affine) for affine in (sform, qform)]
            sizes = [nibabel.affines.voxel_sizes(affine) for affine in (sform, qform)]
            axes = sform[:3, :3] / sizes[0]
            # No qform can say that a gantry was tilted, so where the sform does, it need not be equal.
            is_sheared = not np.allclose(axes.T @ axes, np.eye(3), atol=1e-2)
            is_one_place = s_code != q_code or is_sheared or np.allclose(sform, qform, rtol=1e-3, atol=1e-2)
            is_one_size = np.allclose(sizes[0], sizes[1], rtol=TEMPLATE_SCALE)
            if not (np.array_equal(turns[0], turns[1]) and is_one_size and is_one_place):
                raise Contradiction("its sform and its qform disagree")
    return loaded


def _read_oriented(path: Path, plane: str) -> tuple[np.ndarray, np.ndarray, tuple[float, float]]:
    """((slices, height, width) as a plane is shown, affine, spacing of rows and columns). Raises Skipped for what is no volume of three
    dimensions."""
    import nibabel as untyped

    nibabel: Any = untyped
    loaded = open_volume(path)
    with skip_on_error("is no complete NIfTI"):
        if len(loaded.shape) == 4 and loaded.shape[3] == 1:
            loaded = nibabel.funcs.four_to_three(loaded)[0]
        if len(loaded.shape) != 3 or loaded.get_data_dtype().fields is not None:
            raise Skipped(f"is no volume of three dimensions ({' x '.join(map(str, loaded.shape))})")
        turned = loaded.as_reoriented(orientation_transform(PLANE_AXCODES[plane], loaded.affine))
        values = np.asarray(turned.get_fdata(dtype=np.float32))
        _, rows, columns = (float(side) for side in turned.header.get_zooms()[:3])
    return values, np.asarray(turned.affine), (rows, columns)
