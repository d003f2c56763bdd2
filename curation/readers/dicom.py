"""DICOM folders: every file below the path, sorted by what it is. SEG and RTSTRUCT give masks for the slices that they refer to by their
UIDs, a table (`annotations`) gives labels for single pictures.

See also: pixels (`pixels.py`), what a reader is (`registry.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from curation.readers.consistency import Contradiction, Skip, skip_from_error
from curation.readers.dataset import SourceDataset
from curation.readers.pictures import (
    DatasetFiles,
    Picture,
    Unit,
    is_dicom,
    load_picture,
    pair_annotations,
    patient_from_name,
    relative_name,
)
from curation.readers.pixels import (
    UNUSABLE_HEADER,
    Skipped,
    header_facts,
    orient_upright,
    read_header,
    refuse_burned_in,
    render_frame,
    skip_on_error,
)
from curation.readers.shapes import fill_polygons
from curation.readers.table_readers import read_table_rows
from curation.readers.volumes import LabelledVolume, select_pictures

PICTURE_MODALITIES = ("CR", "DX", "RG", "CT", "MR", "MG", "US", "XA", "OP", "ES")
"""Modalities whose single pictures can carry a label of a table or folder."""
ANNOTATION_MODALITIES = ("SEG", "RTSTRUCT")


def dicom_units(dataset: SourceDataset) -> Iterator[Unit | Skip]:
    """A unit per SEG and RTSTRUCT with the slices it refers to, and one per picture that a table labels.

    A table names pictures by their SOP instances, or as other tables do. Files that share a SOP instance cannot be told apart by what
    refers to it: none of them is used.
    """
    files = DatasetFiles(dataset)
    found: list[tuple[Path, str, str]] = []
    for path in files.all:
        if path != dataset.annotations and path.name != "DICOMDIR":
            try:
                if not is_dicom(path):
                    raise Skipped("is no DICOM file")
                data = read_header(path)
                with skip_on_error(UNUSABLE_HEADER):
                    found.append((path, str(data.get("SOPInstanceUID", "")), str(data.get("Modality", ""))))
            except Skipped as error:
                yield skip_from_error(dataset.name, relative_name(path, dataset.path), error)
    times = Counter(uid for _, uid, _ in found)
    by_uid = {uid: path for path, uid, _ in found if uid and times[uid] == 1}
    used: set[Path] = set()
    for path, _, modality in found:
        name = relative_name(path, dataset.path)
        if modality not in ANNOTATION_MODALITIES:
            continue
        try:
            with skip_on_error(UNUSABLE_HEADER):
                referred = _referenced_uids(read_header(path))
        except Skipped as error:
            yield skip_from_error(dataset.name, name, error)
            continue
        slices = [by_uid[uid] for uid in referred if uid in by_uid]
        if not slices:
            why = f"none of the images it refers to is there ({modality}, {len(referred)} images)"
            yield Skip(dataset.name, name, why)
            continue
        used |= set(slices)
        yield Unit(name, [path, *slices], partial(_load_annotated_series, path, slices, dataset))
    annotations = list(read_table_rows(dataset, files)) if dataset.annotations else []
    uids = {path: uid for uid, path in by_uid.items()}
    paths = [path for path, _, _ in found]
    # A table names all pictures by their SOP instances, or all by files.
    by_files = {each.image.strip() for each in annotations}.isdisjoint(by_uid)
    called = [relative_name(path, dataset.path) if by_files else uids.get(path, "") for path in paths]
    pairs, skips, _ = pair_annotations(annotations, paths, called, dataset)
    yield from files.skips + skips
    pictures = {path for path, _, modality in found if modality in PICTURE_MODALITIES}
    for annotation, path in pairs:
        if path in pictures:
            used.add(path)
            load = partial(load_picture, path, annotation, dataset)
            yield Unit(relative_name(path, dataset.path), [path, *annotation.files], load)
    for path, uid, modality in found:
        name = relative_name(path, dataset.path)
        if modality not in (*ANNOTATION_MODALITIES, *PICTURE_MODALITIES):
            yield Skip(dataset.name, name, f"DICOM of {modality or 'no modality'} holds no picture to ask about")
        elif modality in PICTURE_MODALITIES and path not in used:
            is_copy = uid and times[uid] > 1
            why = "several files have its SOP instance" if is_copy else "no table, SEG or RTSTRUCT labels it"
            yield Skip(dataset.name, name, why)


def _referenced_uids(data: Any) -> list[str]:
    """The SOP instances that a SEG or RTSTRUCT refers to, each once."""
    found = [str(element.value) for element in data.iterall() if element.keyword == "ReferencedSOPInstanceUID"]
    return list(dict.fromkeys(found))


def _load_annotated_series(path: Path, files: list[Path], dataset: SourceDataset, unit: Unit) -> list[Picture]:
    """The pictures of one SEG or RTSTRUCT: its slices in order along the patient, turned upright with their masks."""
    data = read_header(path, unit.skips)
    with skip_on_error(UNUSABLE_HEADER):
        volume = _labelled_volume(data, path, [read_header(file, unit.skips) for file in files], dataset, unit)
        return select_pictures(volume, dataset, unit)


def _labelled_volume(data: Any, path: Path, slices: list[Any], dataset: SourceDataset, unit: Unit) -> LabelledVolume:
    if len({(each.get("Rows"), each.get("Columns")) for each in slices}) != 1:
        raise Skipped("the slices it refers to differ in size")
    for each in slices:
        refuse_burned_in(each)
    slices.sort(key=_slice_position)
    masks = _segmentation_masks(path, slices) if data.Modality == "SEG" else _structure_masks(data, slices, unit)
    if not masks:
        raise Skipped("holds no contour or segment on the slices that are there")
    first = slices[0]
    orientation = np.asarray(first.get("ImageOrientationPatient") or (1, 0, 0, 0, 1, 0), np.float64)
    spacing = [float(each) for each in first.get("PixelSpacing") or (1, 1)]
    swapped = orient_upright(np.zeros((1, 2)), orientation).shape == (2, 1)
    said = header_facts(first)
    return LabelledVolume(
        key=unit.key,
        slices=lambda at, window: orient_upright(render_frame(slices[at], window, unit.skips), orientation),
        masks={
            label: np.stack([orient_upright(plane, orientation) for plane in mask]) for label, mask in masks.items()
        },
        spacing=(spacing[1], spacing[0]) if swapped else (spacing[0], spacing[1]),
        patient=patient_from_name(unit.key, dataset) or said.get("patient"),
        study=said.get("study"),
        modality=dataset.modality or said.get("modality", ""),
        windowed=str(first.get("Modality", "")) == "CT",
        numbers=[int(each.get("InstanceNumber", at) or at) for at, each in enumerate(slices)],
        attributes={name: said[name] for name in ("age", "sex") if name in said},
    )


def _slice_position(data: Any) -> tuple[float, int]:
    """Position of a slice along the normal of its plane, then its number."""
    position, orientation = data.get("ImagePositionPatient"), data.get("ImageOrientationPatient")
    number = int(data.get("InstanceNumber", 0) or 0)
    if not position or not orientation:
        return 0.0, number
    normal = np.cross(np.asarray(orientation[:3], float), np.asarray(orientation[3:], float))
    return float(normal @ np.asarray(position, float)), number


def _segmentation_masks(path: Path, slices: list[Any]) -> dict[str, np.ndarray]:
    """Label -> (n_slices, rows, columns), by highdicom. Raises Skipped where the SEG lies on another grid than its images."""
    import highdicom

    uids = [str(each.SOPInstanceUID) for each in slices]
    with skip_on_error("a SEG that highdicom cannot read"):
        segmentation = highdicom.seg.segread(path)
        if (segmentation.Rows, segmentation.Columns) != (slices[0].Rows, slices[0].Columns):
            raise Skipped(
                f"its mask has another size than its image ({segmentation.Columns} x {segmentation.Rows} and "
                f"{slices[0].Columns} x {slices[0].Rows})"
            )
        _check_segmentation(segmentation, slices)
        planes = segmentation.get_pixels_by_source_instance(
            uids, ignore_spatial_locations=True, assert_missing_frames_are_empty=True
        )
        names = {
            number: str(segmentation.get_segment_description(number).segment_label)
            for number in segmentation.segment_numbers
        }
    found: dict[str, np.ndarray] = {}
    for at, number in enumerate(sorted(names)):
        mask = planes[..., at] > 0.5
        if mask.any():
            found[names[number]] = found[names[number]] | mask if names[number] in found else mask
    return found


def _check_segmentation(segmentation: Any, slices: list[Any]) -> None:
    """Raise Contradiction if segments share a number, a frame shows one that is not listed, or lies or is turned otherwise than the images
    that it refers to."""
    images = {str(image.SOPInstanceUID): image for image in slices}
    numbers = [int(segment.SegmentNumber) for segment in segmentation.SegmentSequence]
    shared = segmentation.get("SharedFunctionalGroupsSequence") or [{}]
    frames = segmentation.PerFrameFunctionalGroupsSequence
    identities = [
        (groups.get(SEGMENT_IDENTIFICATION) or shared[0].get(SEGMENT_IDENTIFICATION) or [{}])[0] for groups in frames
    ]
    marked = {int(identity.get("ReferencedSegmentNumber", numbers[0])) for identity in identities}
    if segmentation.SegmentationType == "LABELMAP":  # the values of its pixels are the numbers
        marked = set(np.unique(segmentation.pixel_array).tolist()) - {0}
    if len(set(numbers)) < len(numbers) or not marked <= set(numbers):
        raise Contradiction("a SEG gives several segments one number, or shows one that it does not list")
    for groups in frames:
        sources = (
            source
            for derived in groups.get("DerivationImageSequence", [])
            for source in derived.get("SourceImageSequence", [])
        )
        referred = [images[uid] for source in sources if (uid := str(source.ReferencedSOPInstanceUID)) in images]
        for sequence, keyword, tolerance in PLANE_ATTRIBUTES:
            plane = groups.get(sequence) or shared[0].get(sequence) or [{}]
            stated = [(plane[0].get(keyword), image.get(keyword)) for image in referred]
            pairs = [(np.asarray(own, float), np.asarray(other, float)) for own, other in stated if own and other]
            if pairs and not any(np.allclose(own, other, rtol=0, atol=tolerance) for own, other in pairs):
                raise Contradiction(f"a frame of a SEG has another {keyword} than the image it refers to")


SEGMENT_IDENTIFICATION = "SegmentIdentificationSequence"
PLANE_ATTRIBUTES = (
    ("PlanePositionSequence", "ImagePositionPatient", 0.1),
    ("PlaneOrientationSequence", "ImageOrientationPatient", 0.01),
    ("PixelMeasuresSequence", "PixelSpacing", 0.01),
)
"""Sequence of a frame, element that its image has too, and by how much they may differ (mm)."""


def _structure_masks(data: Any, slices: list[Any], unit: Unit) -> dict[str, np.ndarray]:
    """Label -> (n_slices, rows, columns) of an RTSTRUCT: closed planar contours, filled; a contour inside another of its region cuts a
    hole, and regions of one name are united. A contour that names no image lies on the slice whose plane it is in, within a millimetre.

    Raises Contradiction where one number stands for two regions or none, contours of one region cross, or one lies outside its image."""
    regions = [(int(region.ROINumber), str(region.ROIName)) for region in data.get("StructureSetROISequence", [])]
    drawn = [(int(region.ReferencedROINumber), region) for region in data.get("ROIContourSequence", [])]
    names = dict(regions)
    if len(names) < len(regions) or len(dict(drawn)) < len(drawn) or not names.keys() >= dict(drawn).keys():
        raise Contradiction("an RTSTRUCT gives several regions one number, or one that it does not list")
    index_of = {str(image.SOPInstanceUID): at for at, image in enumerate(slices)}
    to_image = [_patient_to_pixel(image) for image in slices]
    axes = np.asarray(slices[0].ImageOrientationPatient, float)
    normal, planes = np.cross(axes[:3], axes[3:]), np.array([_slice_position(image)[0] for image in slices])
    masks: dict[str, np.ndarray] = {}
    shape = (len(slices), int(slices[0].Rows), int(slices[0].Columns))
    left_out = 0
    for number, region in drawn:
        contours: dict[int, list[np.ndarray]] = defaultdict(list)
        for contour in region.get("ContourSequence", []):
            corners = np.asarray(contour.ContourData, float).reshape(-1, 3)
            heights = np.abs(corners[:1] @ normal - planes)
            if images := contour.get("ContourImageSequence", []):
                at = index_of.get(str(images[0].ReferencedSOPInstanceUID))
                if at is not None and heights.size and heights[at] > heights.min() + 1.0:
                    raise Contradiction("a contour of an RTSTRUCT lies on another slice than the image it refers to")
            else:
                at = int(heights.argmin()) if min(heights, default=1.0) < 1.0 else None
            if (
                at is None
                or not names[number]
                or len(corners) < 3
                or contour.ContourGeometricType not in CLOSED_CONTOUR_TYPES
            ):
                left_out += 1
                continue
            corners_px = to_image[at](corners)[:, :2]
            # A body may leave its image (a scanner sees less than a planner draws), but what is wholly outside belongs to another.
            if (corners_px.max(0) < 0).any() or (corners_px.min(0) > shape[:0:-1]).any():
                raise Contradiction("a contour of an RTSTRUCT lies outside its image")
            contours[at].append(fill_polygons([corners_px.ravel()], shape[1:]))
        for at, areas in contours.items():
            masks.setdefault(names[number], np.zeros(shape, bool))[at] |= _fill_nested(areas)
    if left_out:
        unit.skips.append(f"contours without a name, an area, or a slice that is there ({left_out})")
    return {label: mask for label, mask in masks.items() if mask.any()}


CLOSED_CONTOUR_TYPES = ("CLOSED_PLANAR", "CLOSEDPLANAR_XOR")


def _fill_nested(areas: list[np.ndarray]) -> np.ndarray:
    """The region of several closed contours on one slice: one inside another cuts a hole. Raises Contradiction where two cross or are the
    same: nothing says what they mean."""
    for one, other in combinations(areas, 2):
        smaller, larger = sorted((int(one.sum()), int(other.sum())))
        common, slack = int((one & other).sum()), TOUCHING_SHARE * smaller + 2
        # What lies between two contours, be it a skin a pixel thick, grows with their length; between two of the same, noise.
        if common > slack and not (smaller - common <= slack and larger - common > smaller**0.5):
            raise Contradiction("contours of one region of an RTSTRUCT cross, or are there twice")
    region: np.ndarray = np.logical_xor.reduce(areas)
    return region


TOUCHING_SHARE = 0.05
"""Share of a contour's pixels, beside two of them, that one beside or around it may share: contours run through pixels."""


def _patient_to_pixel(data: Any) -> Any:
    """From millimetres of the patient to (column, row, distance from the plane) of a slice, counted from the corner of its first pixel.
    Raises Skipped without a position in space."""
    from highdicom.spatial import ReferenceToImageTransformer

    if not data.get("ImagePositionPatient") or not data.get("ImageOrientationPatient"):
        raise Skipped("an RTSTRUCT on images without a position in space")
    return ReferenceToImageTransformer(
        image_position=[float(each) for each in data.ImagePositionPatient],
        image_orientation=[float(each) for each in data.ImageOrientationPatient],
        pixel_spacing=[float(each) for each in data.PixelSpacing],
    )
