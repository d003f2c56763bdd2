"""Choose slices of volumes with masks, and read NIfTI.

At most `slices` slices per label become pictures: those on which the label's area is largest. Only
one plane is used, in radiological view (SA-Med2D-20M uses all three). Slices that one question
shows together are evenly spaced instead, since neighbours are nearly identical. Picture and mask go
through the same steps.

See also: DICOM series and the table of readers (`units.py`).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from curation.images.pairing import split_path, strip_suffix
from curation.readers.dataset import SourceDataset
from curation.readers.pictures import (
    Annotation,
    ClassNames,
    Contradiction,
    DatasetFiles,
    Picture,
    PictureLabel,
    Unit,
    is_volume,
    merge_facts,
    patient_from_name,
    read_class_names,
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


def select_pictures(
    dataset: SourceDataset,
    unit: Unit,
    render_slice: Callable[[int, tuple[float, float] | None], np.ndarray],
    masks: Mapping[str, np.ndarray],
    spacing: tuple[float, float],
    slice_numbers: Sequence[int],
    has_hu_scale: bool,
    header: Mapping[str, str],
) -> list[Picture]:
    """Choose the slices of a volume in display orientation and render them.

    A slice whose labels need different windows becomes one picture per window.

    Args:
        dataset: its dataset, which sets the number of slices, the minimum area and the window.
        unit: the volume's unit; records labels that are too small on every slice.
        render_slice: renders a slice, given its index and window: uint8, (height, width) grey or
            (height, width, 3) RGB.
        masks: label -> (n_slices, height, width) bool.
        spacing: (row, column) spacing in mm.
        slice_numbers: the source's number of each slice.
        has_hu_scale: True if its values are in HU.
        header: facts that the file states (`Picture.facts`).

    Returns:
        Pictures with square pixels.
    """
    choose_slices = spaced_slices if dataset.together else largest_slices

    chosen: dict[tuple[int, tuple[float, float] | None], list[str]] = defaultdict(list)
    for label, mask in sorted(masks.items()):
        areas = mask.reshape(len(mask), -1).sum(1)
        slices = choose_slices(areas, dataset.slices, dataset.min_area * mask[0].size)
        if not slices:
            unit.skips.append(f"the target is too small on every slice ({label})")

        # Without a HU scale a window in HU is meaningless, unless the dataset configures one.
        window = display_window(label, dataset.window) if has_hu_scale or dataset.window is not None else None
        for slice_index in slices:
            chosen[slice_index, window].append(label)

    pictures = []
    patient = patient_from_name(unit.key, dataset)
    facts = merge_facts({"study": unit.key}, header, {"patient": patient})
    for (slice_index, window), labels in sorted(
        chosen.items(), key=lambda chosen_slice: (chosen_slice[0][0], str(chosen_slice[0][1]))
    ):
        picture = resample_square(np.ascontiguousarray(render_slice(slice_index, window)), spacing)
        targets = {
            label: PictureLabel(label, mask=resample_square(np.ascontiguousarray(mask[slice_index]), spacing))
            for label, mask in masks.items()
            if mask[slice_index].any()
        }

        pictures.append(
            Picture(
                f"{unit.key} slice {slice_numbers[slice_index]}",
                picture if picture.ndim == 3 else to_rgb(picture),
                [targets[label] for label in labels],
                also=[target for label, target in targets.items() if label not in labels],
                facts=facts,
            )
        )
    return pictures


def largest_slices(areas: np.ndarray, max_slices: int, min_area_px: float) -> list[int]:
    """Return the ascending indices of the slices with the largest areas of a label.

    Args:
        areas: (n_slices,) area in pixels.
        max_slices: maximum number of slices.
        min_area_px: minimum area.
    """
    order = np.lexsort((np.arange(len(areas)), -areas))
    return sorted(
        int(slice_index)
        for slice_index in order[:max_slices]
        if areas[slice_index] > 0 and areas[slice_index] >= min_area_px
    )


def spaced_slices(areas: np.ndarray, max_slices: int, min_area_px: float) -> list[int]:
    """Return evenly spaced indices among the slices that show a label.

    The step between them is n / max_slices for n such slices, but at least 2; the margins at both
    ends are equal.

    Args:
        areas: (n_slices,) area in pixels.
        max_slices: maximum number of slices.
        min_area_px: minimum area for a slice to count.
    """
    labelled_slices = np.flatnonzero((areas > 0) & (areas >= min_area_px))
    # At least every second slice: adjacent slices are nearly identical.
    step = max(2, len(labelled_slices) // max_slices)
    count = min(max_slices, -(-len(labelled_slices) // step))
    start = (len(labelled_slices) - 1 - step * (count - 1)) // 2
    return [int(labelled_slices[start + step * step_index]) for step_index in range(count)]


# NIfTI


def read_nifti(dataset: SourceDataset, files: DatasetFiles) -> Iterator[Annotation]:
    """Read label volumes; each belongs to the image volume of the same path, or of the same case.

    nibabel reorients both to radiological view. Raises BadInput as `read_volume_classes` does.
    """
    label_volumes: dict[str, list[tuple[str, Path]]] = defaultdict(list)
    for path in filter(is_volume, files.annotation_files):
        if (case := dataset.case_of(dataset.label, relative_name(path, files.annotation_root))) is not None:
            label_volumes[case[0]].append((case[1], path))

    is_by_file = any(label for volumes in label_volumes.values() for label, _ in volumes)
    classes, lists = (
        (dataset.named_classes, ()) if is_by_file or dataset.named_classes else read_volume_classes(dataset)
    )
    for name, volumes in label_volumes.items():
        is_double = len(dict(volumes)) < len(volumes)  # a.nii and a.nii.gz: ambiguous, so pairing refuses both
        for part in ([pair] for pair in volumes) if is_double else [volumes]:
            load = partial(_load_volume, classes, [label for label, _ in part])
            yield Annotation(name, (*(path for _, path in part), *lists), unusable_targets("a volume"), load=load)


def strip_channel_suffixes(images: Iterable[str], labels: Iterable[str]) -> list[str]:
    """Return image names as label files have them: without nnU-Net's `_0000` (first channel)."""
    label_names = {split_path(label)[-1:] for label in labels}
    return [
        name if split_path(name)[-1:] in label_names else name.removesuffix("_0000")
        for name in map(strip_suffix, images)
    ]


def read_volume_classes(dataset: SourceDataset) -> ClassNames:
    """Return value -> label from a dataset's dataset.json files.

    Raises the same errors as `read_class_names`.
    """
    roots = [root for root in (dataset.path, dataset.annotations) if root is not None]
    files = {folder / "dataset.json" for root in roots for folder in (root, root.parent)}
    form, remedy = (
        "a dataset.json whose `labels` are names and whole numbers",
        "Give `classes: {1: name, ...}` in sources.yaml.",
    )
    return read_class_names(f"dataset {dataset.name}", filter(Path.is_file, files), _read_dataset_json, form, remedy)


def _read_dataset_json(path: Path) -> list[tuple[int, Any]]:
    """Return (value, label) pairs of a dataset.json.

    nnU-Net maps names to values, the Medical Segmentation Decathlon maps values to names.
    """
    pairs = [(key, value) if str(key).isdigit() else (value, key) for key, value in read_json(path)["labels"].items()]
    return [(int(value), name) for value, name in pairs if int(value)]


def _load_volume(
    classes: dict[int, str], labels: list[str], image: Path, annotation: Annotation, dataset: SourceDataset, unit: Unit,
) -> list[Picture]:  # fmt: skip
    """Load a volume with its label volumes.

    Args:
        classes: value -> label.
        labels: class of each label volume; "" if the volume's values are class numbers.
        image: image volume.
        annotation: its label volumes.
        dataset: its dataset.
        unit: collects the reasons for skipped labels.
    """
    volume, affine, spacing = read_oriented(image, dataset.plane)
    if not np.isfinite(volume).any():
        raise Skipped("has no finite values")

    masks: dict[str, np.ndarray] = {}
    for label, path in zip(labels, annotation.files, strict=False):
        values, label_affine, _ = read_oriented(path, dataset.plane)

        if values.shape != volume.shape:
            raise Skipped(f"its label and its image differ in size ({values.shape} and {volume.shape})")
        # Equal shapes do not suffice: a label volume that is flipped or shifted would mark the
        # wrong side.
        if not np.allclose(affine, label_affine, atol=1e-2):
            raise Skipped("its label and its image have different affines")

        class_values = np.nan_to_num(values).astype(np.int64)
        if not np.array_equal(class_values, values):
            raise Skipped("its label has values that are not whole numbers")

        names = {int(value): label or classes.get(int(value), "") for value in np.unique(class_values) if value}
        if unnamed := [value for value, name in names.items() if not name]:
            raise Contradiction(f"a value of the label has no name (value {unnamed[0]})")
        for value, name in names.items():
            masks[name] = masks.get(name, False) | (class_values == value)

    return select_pictures(
        dataset,
        unit,
        render_slice=lambda index, window: to_grey(volume[index], window),
        masks=masks,
        spacing=spacing,
        slice_numbers=range(len(volume)),
        has_hu_scale=(dataset.modality or "").upper() in ("CT", "CTA"),
        header={},
    )


TEMPLATE_SCALE = 0.3
"""Relative tolerance between the voxel sizes of sform and qform: an sform into template space
scales the head to that of the template.
"""


def open_volume(path: Path) -> Any:
    """Open a NIfTI image without reading its values.

    Raises:
        Skipped: not a complete NIfTI file.
        Contradiction: sform and qform disagree. Programs differ in which of the two they use, so
            which side is left would depend on the program.
    """
    import nibabel

    with skip_on_error("not a complete NIfTI file"):
        loaded: Any = nibabel.load(path)
        (sform, s_code), (qform, q_code) = (
            loaded.get_sform(coded=True),
            loaded.get_qform(coded=True),
        )
        if s_code and q_code:
            turns = [nibabel.io_orientation(affine) for affine in (sform, qform)]
            sizes = [nibabel.affines.voxel_sizes(affine) for affine in (sform, qform)]

            axes = sform[:3, :3] / sizes[0]
            # A qform cannot express gantry tilt, so a sheared sform need not equal it.
            is_sheared = not np.allclose(axes.T @ axes, np.eye(3), atol=1e-2)
            is_one_place = s_code != q_code or is_sheared or np.allclose(sform, qform, rtol=1e-3, atol=1e-2)
            is_one_size = np.allclose(sizes[0], sizes[1], rtol=TEMPLATE_SCALE)
            if not (np.array_equal(turns[0], turns[1]) and is_one_size and is_one_place):
                raise Contradiction("its sform and its qform disagree")
    return loaded


def read_oriented(path: Path, plane: str) -> tuple[np.ndarray, np.ndarray, tuple[float, float]]:
    """Read a volume in a plane's radiological view.

    Returns:
        Values (n_slices, height, width), affine, and (row, column) spacing in mm.

    Raises:
        Skipped: not a 3D volume.
    """
    import nibabel

    loaded = open_volume(path)
    with skip_on_error("not a complete NIfTI file"):
        if len(loaded.shape) == 4 and loaded.shape[3] == 1:
            loaded = nibabel.funcs.four_to_three(loaded)[0]
        if len(loaded.shape) != 3 or loaded.get_data_dtype().fields is not None:
            raise Skipped(f"not a 3D volume ({' x '.join(map(str, loaded.shape))})")

        turned = loaded.as_reoriented(orientation_transform(PLANE_AXCODES[plane], loaded.affine))
        values = np.asarray(turned.get_fdata(dtype=np.float32))
        _, rows, columns = (float(side) for side in turned.header.get_zooms()[:3])
    return values, np.asarray(turned.affine), (rows, columns)
