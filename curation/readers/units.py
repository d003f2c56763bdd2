"""List the units of a dataset, which are loaded one at a time; the readers of all formats.

A reader of annotated images yields annotations, which are paired with images here. A folder of
DICOM files yields units itself, and the modality of each file decides what it is used for: SEG and
RTSTRUCT give masks on the slices that they reference by UID, and a table (`annotations`) gives
labels of single pictures. A unit's `load` returns its pictures or raises `Skipped`.

See also: pixels of DICOM files (`pixels.py`).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from curation.readers.dataset import SourceDataset
from curation.readers.pictures import (
    AnnotatedImages,
    Annotation,
    Contradiction,
    DatasetFiles,
    Picture,
    Skip,
    Unit,
    is_dicom,
    load_picture,
    pair_annotations,
    relative_name,
)
from curation.readers.pixels import (
    UNUSABLE_HEADER,
    Skipped,
    header_facts,
    orient_upright,
    read_dicom_header,
    refuse_burned_in,
    render_frame,
    skip_on_error,
)
from curation.readers.shapes import fill_polygons, read_coco, read_masks, read_voc, read_yolo
from curation.readers.table_readers import read_class_folders, read_label_columns, read_table_rows
from curation.readers.volumes import read_nifti, select_pictures, strip_channel_suffixes

ANNOTATION_READERS: dict[str, tuple[Callable[[SourceDataset, DatasetFiles], Iterator[Annotation]], str]] = {
    "folders": (read_class_folders, "not in a class folder"),
    "csv": (read_table_rows, "has no row in the table"),
    "wide": (read_label_columns, "has no row in the table"),
    "boxes": (read_table_rows, "has no row in the table"),
    "coco": (read_coco, "not listed in the JSON"),
    "voc": (read_voc, "has no XML"),
    "yolo": (read_yolo, "has no text file of the same name"),
    "masks": (read_masks, "has no mask"),
    "nifti": (read_nifti, "has no label volume"),
}
"""Reader of annotated images -> function, and the skip reason of images without an annotation."""

NON_PICTURE_SUFFIXES = {
    "", ".txt", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".md", ".pdf", ".html", ".names",
}  # fmt: skip
"""Suffixes of files that are expected beside pictures; any other file is reported as "not a
picture".
"""


def list_units(dataset: SourceDataset) -> tuple[list[Unit], list[Skip]]:
    """List the units of a dataset and what its reader skipped.

    Raises BadInput as `pair_dataset` does.
    """
    files = DatasetFiles(dataset)
    if dataset.reader == "dicom":
        return list(dicom_units(dataset, files)), files.skips

    pairs, skips, unannotated, _ = pair_dataset(dataset, files)
    skip_reasons = dict.fromkeys(unannotated, ANNOTATION_READERS[dataset.reader][1])

    if dataset.reader != "nifti":
        not_pictures = sorted(set(files.all_files) - set(files.pictures))
        skip_reasons |= {
            path: "not a picture" for path in not_pictures if path.suffix.lower() not in NON_PICTURE_SUFFIXES
        }

    units = [
        Unit(
            relative_name(path, dataset.path),
            [path, *result.files],
            partial(result.load, path, result, dataset),
        )
        for result, path in pairs
    ]
    return units, skips + [
        Skip(dataset.name, relative_name(path, dataset.path), reason) for path, reason in skip_reasons.items()
    ]


def pair_dataset(
    dataset: SourceDataset, files: DatasetFiles
) -> tuple[AnnotatedImages, list[Skip], list[Path], set[Path]]:
    """Read a dataset's annotations and pair them with its images.

    Args:
        dataset: a dataset with a reader of annotated images.
        files: its files.

    Returns:
        Annotations with their images; what was skipped; images without an annotation; annotation
        files.

    Raises:
        BadInput: the files are not in the reader's format at all.
    """
    annotations = list(ANNOTATION_READERS[dataset.reader][0](dataset, files))
    annotation_files = {file for annotation in annotations for file in annotation.files}
    is_nifti = dataset.reader == "nifti"

    # Masks and label volumes may be in the image folder; they are not images themselves.
    images = [path for path in (files.volumes if is_nifti else files.pictures) if path not in annotation_files]
    names = [relative_name(path, dataset.path) for path in images]
    image_names = strip_channel_suffixes(names, [annotation.image for annotation in annotations]) if is_nifti else names

    unmatched: list[Path] = []
    if dataset.image:
        # With a pattern, images are compared by their case instead of their path.
        cases = {path: dataset.case_of(dataset.image, name) for path, name in zip(images, names, strict=True)}
        unmatched = [path for path in images if cases[path] is None]
        images = [path for path in images if cases[path]]
        image_names = [case[0] for case in cases.values() if case]

    pairs, skips, unannotated = pair_annotations(annotations, images, image_names, dataset)
    return pairs, files.skips + skips, [*unannotated, *unmatched], annotation_files


# DICOM


PICTURE_MODALITIES = ("CR", "DX", "RG", "CT", "MR", "MG", "US", "XA", "OP", "ES")
"""Modalities whose single pictures can be labelled by a table."""

ANNOTATION_MODALITIES = ("SEG", "RTSTRUCT")


def dicom_units(dataset: SourceDataset, files: DatasetFiles) -> Iterator[Unit]:
    """Yield a unit for each SEG, each RTSTRUCT and each labelled picture of a folder.

    The unit of a SEG or RTSTRUCT includes the slices that it references.

    A table names pictures either by SOP instance UID or, like the tables of other readers, by file
    name. Files that share a SOP instance UID are ambiguous for anything that references them, so
    none of them is used. `files.skips` lists what is not used.
    """

    def skip(path: Path, reason: str) -> None:
        files.skips.append(Skip(dataset.name, relative_name(path, dataset.path), reason))

    dicom_files: list[tuple[Path, str, str]] = []
    # Each SEG and RTSTRUCT, its modality, and the SOP instance UIDs of its images.
    references: list[tuple[Path, str, list[str]]] = []
    for path in files.all_files:
        if path != dataset.annotations and path.name != "DICOMDIR":
            try:
                if not is_dicom(path):
                    raise Skipped("not a DICOM file")
                data = read_dicom_header(path)
                with skip_on_error(UNUSABLE_HEADER):
                    modality = str(data.get("Modality", ""))
                    dicom_files.append((path, str(data.get("SOPInstanceUID", "")), modality))
                    if modality in ANNOTATION_MODALITIES:
                        elements = [
                            element for element in data.iterall() if element.keyword == "ReferencedSOPInstanceUID"
                        ]
                        uids = dict.fromkeys(str(element.value) for element in elements)
                        references.append((path, modality, list(uids)))
            except Skipped as error:
                skip(path, str(error))

    uid_counts = Counter(uid for _, uid, _ in dicom_files)
    by_uid = {uid: path for path, uid, _ in dicom_files if uid and uid_counts[uid] == 1}

    used_paths: set[Path] = set()
    for path, modality, referenced_uids in references:
        slices = [by_uid[uid] for uid in referenced_uids if uid in by_uid]
        if not slices:
            skip(path, f"none of its referenced images was found ({modality}, {len(referenced_uids)} images)")
            continue
        used_paths |= set(slices)
        load_unit = partial(_load_annotated_series, path, slices, dataset)
        yield Unit(relative_name(path, dataset.path), [path, *slices], load_unit)

    annotations = list(read_table_rows(dataset, files)) if dataset.annotations else []
    uid_of_path = {path: uid for uid, path in by_uid.items()}
    paths = [path for path, _, _ in dicom_files]
    # A table names either all pictures by SOP instance UID, or all by file.
    by_files = {row_annotation.image.strip() for row_annotation in annotations}.isdisjoint(by_uid)
    image_names = [relative_name(path, dataset.path) if by_files else uid_of_path.get(path, "") for path in paths]
    pairs, skips, _ = pair_annotations(annotations, paths, image_names, dataset)
    files.skips += skips

    pictures = {path for path, _, modality in dicom_files if modality in PICTURE_MODALITIES}
    for annotation, path in pairs:
        if path in pictures:
            used_paths.add(path)
            load_unit = partial(load_picture, path, annotation, dataset)
            yield Unit(relative_name(path, dataset.path), [path, *annotation.files], load_unit)

    # Report the remaining files: pictures without labels, and files that are not pictures.
    for path, uid, modality in dicom_files:
        if modality not in (*ANNOTATION_MODALITIES, *PICTURE_MODALITIES):
            skip(path, f"DICOM of {modality or 'no modality'} is not a picture to ask about")
        elif path in pictures - used_paths:
            is_duplicate = uid and uid_counts[uid] > 1
            skip(
                path,
                "several files share its SOP instance UID" if is_duplicate else "no table, SEG or RTSTRUCT labels it",
            )


def _load_annotated_series(path: Path, files: list[Path], dataset: SourceDataset, unit: Unit) -> list[Picture]:
    """Load the slices of a SEG or RTSTRUCT, sorted by position and upright, with their masks."""
    data = read_dicom_header(path, unit.skips)
    with skip_on_error(UNUSABLE_HEADER):
        slices = [read_dicom_header(file, unit.skips) for file in files]
        if len({(image.get("Rows"), image.get("Columns")) for image in slices}) != 1:
            raise Skipped("its referenced slices differ in size")
        for image in slices:
            refuse_burned_in(image)
        # SEG and RTSTRUCT reference slices in any order, but a volume needs them in order of
        # position.
        slices.sort(key=_slice_position)
        masks = _segmentation_masks(path, slices) if data.Modality == "SEG" else _structure_masks(data, slices, unit)
        if not masks:
            raise Skipped("has no contour or segment on the available slices")

        first_slice = slices[0]
        orientation = np.asarray(first_slice.get("ImageOrientationPatient") or (1, 0, 0, 0, 1, 0), np.float64)
        spacing = [float(distance) for distance in first_slice.get("PixelSpacing") or (1, 1)]
        # Turning the plane upright may swap its rows and columns, and then its spacing too.
        is_transposed = orient_upright(np.zeros((1, 2)), orientation).shape == (2, 1)
        return select_pictures(
            dataset,
            unit,
            render_slice=lambda index, window: orient_upright(
                render_frame(slices[index], window, unit.skips), orientation
            ),
            masks={
                label: np.stack([orient_upright(plane, orientation) for plane in mask]) for label, mask in masks.items()
            },
            spacing=(spacing[1], spacing[0]) if is_transposed else (spacing[0], spacing[1]),
            slice_numbers=[int(image.get("InstanceNumber", index) or index) for index, image in enumerate(slices)],
            has_hu_scale=str(first_slice.get("Modality", "")) == "CT",
            header=header_facts(first_slice),
        )


def _slice_position(data: Any) -> tuple[float, int]:
    """Return the sort key of a slice: position along the normal in mm, then instance number."""
    position, orientation = data.get("ImagePositionPatient"), data.get("ImageOrientationPatient")

    number = int(data.get("InstanceNumber", 0) or 0)
    if not position or not orientation:
        return 0.0, number

    normal = np.cross(np.asarray(orientation[:3], float), np.asarray(orientation[3:], float))
    return float(normal @ np.asarray(position, float)), number


def _segmentation_masks(path: Path, slices: list[Any]) -> dict[str, np.ndarray]:
    """Read the masks of a SEG with highdicom.

    Returns:
        Label -> (n_slices, rows, columns) bool; segments with the same label are united.

    Raises:
        Skipped: highdicom cannot read the SEG, or its grid differs from its images'.
    """
    import highdicom

    uids = [str(image.SOPInstanceUID) for image in slices]
    with skip_on_error("highdicom cannot read the SEG"):
        segmentation = highdicom.seg.segread(path)
        if (segmentation.Rows, segmentation.Columns) != (slices[0].Rows, slices[0].Columns):
            raise Skipped(
                f"its mask and its image differ in size ({segmentation.Columns} x "
                f"{segmentation.Rows} and "
                f"{slices[0].Columns} x {slices[0].Rows})"
            )

        # highdicom matches frames by UID only, so their geometry is checked here.
        _check_segmentation(segmentation, slices)
        planes = segmentation.get_pixels_by_source_instance(
            uids, ignore_spatial_locations=True, assert_missing_frames_are_empty=True
        )
        names = {
            number: str(segmentation.get_segment_description(number).segment_label)
            for number in segmentation.segment_numbers
        }
    masks: dict[str, np.ndarray] = {}
    for index, number in enumerate(sorted(names)):
        mask = planes[..., index] > 0.5
        if mask.any():
            masks[names[number]] = masks.get(names[number], False) | mask
    return masks


def _check_segmentation(segmentation: Any, slices: list[Any]) -> None:
    """Check a SEG's segment numbers, and the geometry of its frames against the referenced images.

    Raises:
        Contradiction: segments share a number, a frame has an unlisted segment, or a frame's
            position, orientation or spacing differs from that of every image that it references.
    """
    images = {str(image.SOPInstanceUID): image for image in slices}
    numbers = [int(segment.SegmentNumber) for segment in segmentation.SegmentSequence]
    shared = segmentation.get("SharedFunctionalGroupsSequence") or [{}]
    frames = segmentation.PerFrameFunctionalGroupsSequence
    identities = [
        (groups.get(SEGMENT_IDENTIFICATION) or shared[0].get(SEGMENT_IDENTIFICATION) or [{}])[0] for groups in frames
    ]
    marked = {int(identity.get("ReferencedSegmentNumber", numbers[0])) for identity in identities}
    if segmentation.SegmentationType == "LABELMAP":  # pixel values are segment numbers
        marked = set(np.unique(segmentation.pixel_array).tolist()) - {0}

    if len(set(numbers)) < len(numbers) or not marked <= set(numbers):
        raise Contradiction("several segments of a SEG share a number, or a frame has a segment that is not listed")

    for groups in frames:
        referenced_images = [
            images[str(source.ReferencedSOPInstanceUID)]
            for derived in groups.get("DerivationImageSequence", [])
            for source in derived.get("SourceImageSequence", [])
            if str(source.ReferencedSOPInstanceUID) in images
        ]
        for sequence, keyword, tolerance in PLANE_ATTRIBUTES:
            plane = groups.get(sequence) or shared[0].get(sequence) or [{}]
            attribute_pairs = [(plane[0].get(keyword), image.get(keyword)) for image in referenced_images]
            # One matching image suffices: a frame may derive from several.
            matches = [
                np.allclose(np.asarray(frame_numbers, float), np.asarray(image_numbers, float), rtol=0, atol=tolerance)
                for frame_numbers, image_numbers in attribute_pairs
                if frame_numbers and image_numbers
            ]
            if matches and not any(matches):
                raise Contradiction(f"a frame of a SEG and its referenced image differ in {keyword}")


SEGMENT_IDENTIFICATION = "SegmentIdentificationSequence"

PLANE_ATTRIBUTES = (
    ("PlanePositionSequence", "ImagePositionPatient", 0.1),
    ("PlaneOrientationSequence", "ImageOrientationPatient", 0.01),
    ("PixelMeasuresSequence", "PixelSpacing", 0.01),
)
"""Functional group of a SEG frame, the attribute in it that must equal the image's, and the
tolerance (in mm; for the orientation, in direction cosines).
"""


def _structure_masks(data: Any, slices: list[Any], unit: Unit) -> dict[str, np.ndarray]:
    """Rasterise the closed planar contours of an RTSTRUCT.

    A contour inside another of its ROI cuts a hole; ROIs of the same name are united. A contour
    without a referenced image belongs to the slice whose plane is within a millimetre.

    Args:
        data: the RTSTRUCT.
        slices: its referenced slices, in order.
        unit: records how many contours were skipped.

    Returns:
        Label -> (n_slices, rows, columns) bool.

    Raises:
        Contradiction: ROI numbers are ambiguous or unlisted, contours of one ROI cross, or a
            contour lies outside its image.
    """
    roi_names = [(int(region.ROINumber), str(region.ROIName)) for region in data.get("StructureSetROISequence", [])]
    roi_contours = [(int(region.ReferencedROINumber), region) for region in data.get("ROIContourSequence", [])]

    names = dict(roi_names)
    if (
        len(names) < len(roi_names)
        or len(dict(roi_contours)) < len(roi_contours)
        or not names.keys() >= dict(roi_contours).keys()
    ):
        raise Contradiction("several ROIs of an RTSTRUCT share a number, or a contour has an ROI that is not listed")

    index_of = {str(image.SOPInstanceUID): slice_index for slice_index, image in enumerate(slices)}
    to_image = [_patient_to_pixel(image) for image in slices]
    axes = np.asarray(slices[0].ImageOrientationPatient, float)
    normal, planes = (
        np.cross(axes[:3], axes[3:]),
        np.array([_slice_position(image)[0] for image in slices]),
    )
    masks: dict[str, np.ndarray] = {}
    shape = (len(slices), int(slices[0].Rows), int(slices[0].Columns))
    skipped_contours = 0

    for number, region in roi_contours:
        contours: dict[int, list[np.ndarray]] = defaultdict(list)
        for contour in region.get("ContourSequence", []):
            corners = np.asarray(contour.ContourData, float).reshape(-1, 3)
            plane_distances = np.abs(corners[:1] @ normal - planes)
            if images := contour.get("ContourImageSequence", []):
                slice_index = index_of.get(str(images[0].ReferencedSOPInstanceUID))
                if (
                    slice_index is not None
                    and plane_distances.size
                    and plane_distances[slice_index] > plane_distances.min() + 1.0
                ):
                    raise Contradiction("a contour of an RTSTRUCT is not in the plane of its referenced image")
            else:
                slice_index = int(plane_distances.argmin()) if min(plane_distances, default=1.0) < 1.0 else None
            if (
                slice_index is None
                or not names[number]
                or len(corners) < 3
                or contour.ContourGeometricType not in CLOSED_CONTOUR_TYPES
            ):
                skipped_contours += 1
                continue
            corners_px = to_image[slice_index](corners)[:, :2]
            # Body contours may extend beyond the field of view; one that is wholly outside belongs
            # to another image.
            if (corners_px.max(0) < 0).any() or (corners_px.min(0) > shape[:0:-1]).any():
                raise Contradiction("a contour of an RTSTRUCT lies outside its image")
            contours[slice_index].append(fill_polygons([corners_px.ravel()], shape[1:]))
        for slice_index, contour_areas in contours.items():
            masks.setdefault(names[number], np.zeros(shape, bool))[slice_index] |= _fill_nested(contour_areas)

    if skipped_contours:
        unit.skips.append(f"contours without a name, an area or an available slice ({skipped_contours})")
    return {label: mask for label, mask in masks.items() if mask.any()}


CLOSED_CONTOUR_TYPES = ("CLOSED_PLANAR", "CLOSEDPLANAR_XOR")


def _fill_nested(areas: list[np.ndarray]) -> np.ndarray:
    """Combine the filled contours of an ROI on one slice by XOR, so that inner ones cut holes.

    Raises Contradiction if two contours cross or coincide, since their meaning is ambiguous.
    """
    for first_area, second_area in combinations(areas, 2):
        smaller, larger = sorted((int(first_area.sum()), int(second_area.sum())))
        shared_px, slack = int((first_area & second_area).sum()), TOUCHING_SHARE * smaller + 2
        # The area between two nested contours, even a one-pixel rim, grows with their length;
        # between two tracings of the same contour there is only noise.
        if shared_px > slack and not (smaller - shared_px <= slack and larger - shared_px > smaller**0.5):
            raise Contradiction("contours of one ROI of an RTSTRUCT cross or are duplicated")

    return np.logical_xor.reduce(areas)


TOUCHING_SHARE = 0.05
"""Share of a contour's pixels (plus two) that it may have in common with a neighbouring or
enclosing one: contours run through pixels.
"""


def _patient_to_pixel(data: Any) -> Any:
    """Return the transformer from patient coordinates (mm) to (column, row, plane distance).

    Coordinates count from the corner of the first pixel. Raises Skipped if the images have no
    position in space.
    """
    from highdicom.spatial import ReferenceToImageTransformer

    if not data.get("ImagePositionPatient") or not data.get("ImageOrientationPatient"):
        raise Skipped("an RTSTRUCT whose images have no ImagePositionPatient")
    return ReferenceToImageTransformer(
        image_position=[float(number) for number in data.ImagePositionPatient],
        image_orientation=[float(number) for number in data.ImageOrientationPatient],
        pixel_spacing=[float(number) for number in data.PixelSpacing],
    )
