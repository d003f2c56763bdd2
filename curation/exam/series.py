"""List the slices of a folder of DICOM and NIfTI files, with what their headers prove.

A statement counts only if a second one confirms it: the modality and the SOP class, the view and
the orientation, the side and the description, the orientation and the positions of the slices. If a
header contradicts itself or its series, the whole series is left out.

A header that is wrong everywhere in the same way (a patient entered as head first who lay feet
first) looks consistent; no program can see that in the header alone.

See also: their pictures (`pairs.py`).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from curation.images.pairing import strip_suffix
from curation.readers.dataset import SourceDataset
from curation.readers.pictures import (
    Contradiction,
    DatasetFiles,
    Skip,
    is_dicom,
    is_volume,
    patient_from_name,
    relative_name,
    skip_from_error,
)
from curation.readers.pixels import (
    DICOM_MODALITY_NAMES,
    IGNORED_ELEMENT,
    PLANE_AXCODES,
    UNUSABLE_HEADER,
    Skipped,
    read_dicom_header,
    refuse_burned_in,
    skip_on_error,
)
from curation.readers.volumes import open_volume
from dataset_builders.errors import BadInput
from dataset_builders.terms import ancestors, find_regions, regions_disjoint

PLANES = tuple(PLANE_AXCODES)
"""Plane of the slices along the first, second and third axis of the body."""
MODALITY_OF_SOP_CLASS = {
    "CT Image Storage": "CT", "MR Image Storage": "MRI", "Positron Emission Tomography Image Storage": "PET",
    "Computed Radiography Image Storage": "X-ray", "Digital X-Ray Image Storage - For Presentation": "X-ray",
}  # fmt: skip
"""SOP class -> modality. Secondary captures, multi-frame images and raw detector images are left
out."""
UNPAIRED_REGIONS = ("head", "neck", "chest", "abdomen", "pelvis", "spine")
PAIRED_REGIONS = ("hip", "knee", "shoulder")
"""Paired parts that lie in a scanner as in the anatomical position: for hands and feet, left and
right in the patient's frame need not be left and right of the part."""
FRONTAL, LATERAL = "frontal", "lateral"
VIEW_OF_POSITION = {"AP": FRONTAL, "PA": FRONTAL, "LL": LATERAL, "RL": LATERAL, "LAT": LATERAL, "LATERAL": LATERAL}
"""Defined terms of ViewPosition; oblique and decubitus views are left out."""
VIEW_OF_AXES = {frozenset((0, 2)): FRONTAL, frozenset((1, 2)): LATERAL}
VIEW_WORDS = {FRONTAL: {"ap", "pa", "frontal"}, LATERAL: {"lat", "lateral"}}
SIDE_OF_CODE = {"L": "left", "R": "right"}
SIDE_WORDS = {"left": {"left", "lt"}, "right": {"right", "rt"}}
DIRECTION_LETTERS = (("R", "L"), ("A", "P"), ("F", "H"))
"""Letters of PatientOrientation for the negative and the positive direction of each LPS axis."""
DESCRIPTIONS = ("SeriesDescription", "ProtocolName", "StudyDescription")

MIN_COSINE = float(np.cos(np.deg2rad(15)))
"""Planes and rows within 15 degrees of an axis of the body count as parallel to it."""
MIN_STACK_COSINE = 0.8
"""Slices follow one another along their normal; a gantry tilt of up to 30 degrees is allowed."""
MAX_VOXEL_RATIO = 1.5
"""A volume of longer voxels shows its acquired plane only: the others would be blurred."""
MIN_EXTENT_MM, MIN_SLICES = 60.0, 6
"""A shorter stack has no halves to tell apart."""
DEFAULT_PATIENT = r"(?:^|/)(sub-[A-Za-z0-9]+)"
"""Patient in the path of a NIfTI file, as BIDS names it; without a match each file is a patient."""


@dataclass(frozen=True, slots=True)
class SourceSlice:
    """One picture of a folder and what its header proves about it; "" where nothing does."""

    path: Path
    patient: str
    series: str
    modality: str = ""
    region: str = ""
    plane: str = ""
    """axial, coronal or sagittal; the rows are parallel to an axis of the body, too."""
    view: str = ""
    side: str = ""
    index: int = 0
    """Slice of a NIfTI file, in radiological view (`PLANE_AXCODES`)."""
    share: float = 0.5
    """Position in the series, from 0 to 1 towards the head, the front or the patient's right."""
    has_halves: bool = False
    axes: tuple[float, ...] = ()
    """ImageOrientationPatient."""
    position: tuple[float, ...] = ()
    """ImagePositionPatient in mm."""
    constants: tuple[str, ...] = ()
    """Header values that do not change within a series."""


def read_slices(folder: Path, patient_pattern: str | None, body_part: str) -> tuple[list[SourceSlice], list[Skip]]:
    """Read the headers of all DICOM and NIfTI files below a folder.

    Args:
        folder: the folder.
        patient_pattern: regular expression on the path of a NIfTI file; its first group is the
            patient.
        body_part: body part of files that state none, such as NIfTI.

    Returns:
        The slices, and the files and series that are left out.

    Raises:
        BadInput: not a folder, or an invalid pattern.
    """
    try:
        dataset = SourceDataset(name="exam", reader="dicom", path=folder, patient=patient_pattern or DEFAULT_PATIENT)
    except ValidationError as error:
        raise BadInput(f"{folder}: {error.errors()[0]['msg']}. Give a folder, and a pattern with a group.") from None
    files = DatasetFiles(dataset)
    slices: list[SourceSlice] = []
    skips = files.skips
    series: dict[str, list[SourceSlice]] = defaultdict(list)
    contradicted_series: set[str] = set()
    for path in files.all_files:
        name, series_id, ignored = relative_name(path, folder), "", list[str]()
        try:
            if is_volume(path):
                slices += _volume_slices(path, name, dataset, _known_region(body_part))
            elif is_dicom(path) and path.name != "DICOMDIR":
                data = read_dicom_header(path, ignored)
                with skip_on_error(UNUSABLE_HEADER):
                    series_id = str(data.get("SeriesInstanceUID") or name)
                    image = _read_image(path, series_id, data, ignored, body_part)
                series[series_id].append(image)
        except Skipped as error:
            skips.append(skip_from_error(dataset.name, name, error))
            if isinstance(error, Contradiction):
                contradicted_series.add(series_id)
    # What is wrong in one header of a series is probably wrong in the others, too.
    for series_id, images in series.items():
        try:
            if series_id in contradicted_series:
                raise Contradiction("another image of its series contradicts itself")
            slices += _check_series(images)
        except Contradiction as error:
            skips += [skip_from_error(dataset.name, relative_name(image.path, folder), error) for image in images]
    return slices, skips


def _read_image(path: Path, series_id: str, data: Any, ignored: list[str], body_part: str) -> SourceSlice:
    """Read a single-frame DICOM image. Raises Skipped, or Contradiction for the whole series."""
    refuse_burned_in(data)
    modality_of_class = MODALITY_OF_SOP_CLASS.get(data.get("SOPClassUID") and data.SOPClassUID.name)
    if modality_of_class is None:
        raise Skipped("not a single-frame CT, MR, PET, CR or DX image")
    if "LOCALIZER" in (data.get("ImageType") or ()):
        raise Skipped("is a localizer")
    if data.get("AnatomicalOrientationType", "BIPED") != "BIPED":
        raise Skipped("is of an animal")
    code = str(data.get("Modality", ""))
    modality = _agree("modality and SOP class", [DICOM_MODALITY_NAMES.get(code, code) or "none", modality_of_class])

    # Descriptions are typed by people, so they only confirm or contradict the coded elements.
    described = " ".join(str(data.get(name) or "") for name in DESCRIPTIONS)
    part = str(data.get("BodyPartExamined") or body_part)
    if regions_disjoint(find_regions(part), find_regions(described)):
        raise Contradiction("its body part contradicts its description")
    region = _known_region(part)
    sides = [SIDE_OF_CODE.get(str(data.get(name)), "") for name in ("ImageLaterality", "Laterality")]
    if any(sides) and region in UNPAIRED_REGIONS:
        raise Contradiction("it states the side of a body part that is not paired")

    axes = _orientation(data, ignored)
    letters = [str(letter)[:1] for letter in data.get("PatientOrientation") or () if str(letter)]
    letter_axes = [axis for axis, ends in enumerate(DIRECTION_LETTERS) for letter in letters if letter in ends]
    view = ""
    if modality == "X-ray":
        stated_view = VIEW_OF_POSITION.get(str(data.get("ViewPosition") or "").upper(), "")
        views = [stated_view, VIEW_OF_AXES.get(frozenset(letter_axes), "other") if letters else ""]
        if stated_view:
            view = _agree("view and orientation", [*views, *_named_values(described, VIEW_WORDS)])
    elif axes and letters and letters != [_direction_letter(axes[:3]), _direction_letter(axes[3:])]:
        raise Contradiction("its PatientOrientation contradicts its ImageOrientationPatient")
    position = str(data.get("PatientPosition") or "")
    # The table is level, so if the patient lies on one side, the rows of a CT run from front to
    # back or back to front.
    is_acquired = modality == "CT" and list(data.get("ImageType") or ())[:3:2] == ["ORIGINAL", "AXIAL"]
    if is_acquired and axes and position and (position[2:3] == "D") != (_direction_letter(axes[:3]) in "AP"):
        raise Contradiction("its PatientPosition contradicts its ImageOrientationPatient")

    spacing = data.get("PixelSpacing")
    width_mm = float(spacing[1]) * int(data.Columns) if spacing else np.inf
    side = _agree("side and description", [*sides, *_named_values(described, SIDE_WORDS)])
    patient, study = str(data.get("PatientID") or ""), str(data.get("StudyInstanceUID") or "")
    return SourceSlice(
        path,
        patient or study or series_id,
        series_id,
        modality,
        region,
        view=view,
        # A wider picture may show both sides.
        side=side if any(sides) and region in PAIRED_REGIONS and width_mm <= MAX_SIDE_WIDTH_MM else "",
        axes=axes,
        position=tuple(map(float, data.get("ImagePositionPatient") or ())),
        constants=(patient, study, modality, part, side, position, str(data.get("FrameOfReferenceUID") or "")),
    )


MAX_SIDE_WIDTH_MM = 250.0
"""Widest field of view that shows one hip, knee or shoulder only."""


def _agree(names: str, statements: Iterable[str]) -> str:
    """Return the value on which at least two statements agree; "" if there is only one statement.

    Raises Contradiction if two differ; empty statements are ignored.
    """
    values = [statement for statement in statements if statement]
    if len(set(values)) > 1:
        raise Contradiction(f"its {names} contradict each other")
    return values[0] if len(values) > 1 else ""


def _named_values(text: str, words: Mapping[str, set[str]]) -> list[str]:
    """Return the value that a text names, as a list of one; an empty list if it names none or
    several.
    """
    tokens = set(re.findall(r"[a-z]+", text.lower()))
    values = [value for value, names in words.items() if tokens & names]
    return values if len(values) == 1 else []


def _known_region(part: str) -> str:
    """Return the region of `UNPAIRED_REGIONS` and `PAIRED_REGIONS` that a body part lies in, or
    "".
    """
    regions = find_regions(part)
    for region in (*PAIRED_REGIONS, *UNPAIRED_REGIONS):
        if regions and all(region in (name, *ancestors("region", name)) for name in regions):
            return region
    return ""


def _orientation(data: Any, ignored: list[str]) -> tuple[float, ...]:
    """Return ImageOrientationPatient, () if absent. Raises Contradiction if it is invalid."""
    axes = np.array(data.get("ImageOrientationPatient") or (), np.float64).reshape(-1, 3)
    was_invalid = IGNORED_ELEMENT.format("ImageOrientationPatient") in ignored
    if was_invalid or not np.allclose(axes @ axes.T, np.eye(len(axes)), atol=0.01):
        raise Contradiction("its ImageOrientationPatient is not two perpendicular unit vectors")
    return tuple(axes.ravel().tolist())


def _direction_letter(direction: Iterable[float]) -> str:
    """Return the letter of PatientOrientation for a direction in LPS."""
    values = np.asarray(list(direction))
    axis = int(np.abs(values).argmax())
    return DIRECTION_LETTERS[axis][int(values[axis] > 0)]


def _aligned_axes(directions: np.ndarray) -> list[int]:
    """Return the axis of the body that each of three directions is parallel to; [] if any is
    oblique.
    """
    cosines = np.abs(directions)
    return cosines.argmax(1).tolist() if (cosines.max(1) >= MIN_COSINE).all() else []


def _check_series(images: list[SourceSlice]) -> list[SourceSlice]:
    """Find plane and positions of the slices of a series. Raises Contradiction."""
    if images[0].modality == "X-ray":  # a series of radiographs may hold several views
        return images
    if len({image.constants for image in images}) > 1:
        raise Contradiction("its images differ in patient, study, body part, side, position or frame of reference")
    axes = [image.axes for image in images]
    if len(set(map(len, axes))) > 1 or np.ptp(axes, axis=0).max(initial=0) > 0.01:
        raise Contradiction("its images differ in orientation")
    if not axes[0] or any(len(image.position) != 3 for image in images):
        return images

    row, column = np.reshape(axes[0], (2, 3))
    normal = np.cross(row, column)
    places = np.array([image.position for image in images])
    offsets = places - places[0]
    farthest = offsets[np.linalg.norm(offsets, axis=1).argmax()]
    extent_mm = float(np.linalg.norm(farthest))
    if abs(farthest @ normal) < MIN_STACK_COSINE * extent_mm:
        raise Contradiction("its images do not follow one another along their normal")
    body_axes = _aligned_axes(np.stack([row, column, normal]))
    if extent_mm == 0 or not body_axes:  # a single position confirms no plane
        return images

    # Towards the head, the front and the right, as `PLANE_AXCODES` counts the slices of a volume.
    heights = places[:, body_axes[2]] * (1 if body_axes[2] == 2 else -1)
    shares = (heights - heights.min()) / max(np.ptp(heights), 1e-6)
    has_halves = extent_mm >= MIN_EXTENT_MM and len(set(shares.round(4))) >= MIN_SLICES
    return [
        replace(image, plane=PLANES[body_axes[2]], share=float(share), has_halves=has_halves)
        for image, share in zip(images, shares, strict=True)
    ]


def _volume_slices(path: Path, name: str, dataset: SourceDataset, region: str) -> Iterator[SourceSlice]:
    """List the slices of a NIfTI volume in the planes that it shows sharply.

    Raises Skipped, or Contradiction if sform and qform disagree.
    """
    loaded = open_volume(path)
    with skip_on_error("not a complete NIfTI file"):
        if not (loaded.header["sform_code"] or loaded.header["qform_code"]):
            raise Skipped("its header states no orientation (sform_code and qform_code are 0)")
        if len(loaded.shape) != 3:
            raise Skipped("not a 3D volume")
        sizes_mm = np.linalg.norm(loaded.affine[:3, :3], axis=0)
        body_axes = _aligned_axes((loaded.affine[:3, :3] / sizes_mm).T)
    if sorted(body_axes) != [0, 1, 2]:
        raise Skipped("its axes are oblique")
    patient = patient_from_name(name, dataset) or re.sub(r"_\d{4}$", "", strip_suffix(name))
    # Planes across thick slices would be recognised by their blur.
    is_isotropic = sizes_mm.max() <= MAX_VOXEL_RATIO * sizes_mm.min()
    for axis, (body_axis, count) in enumerate(zip(body_axes, loaded.shape, strict=True)):
        if is_isotropic or sizes_mm[axis] == sizes_mm.max():
            has_halves = count * sizes_mm[axis] >= MIN_EXTENT_MM and count >= MIN_SLICES
            for index in range(count):
                yield SourceSlice(
                    path,
                    patient,
                    name,
                    region=region,
                    plane=PLANES[body_axis],
                    index=index,
                    share=(index + 0.5) / count,
                    has_halves=has_halves,
                )
