"""Draw studies for the tour in docs/exam.md: `python docs/examples/phantom_studies.py FOLDER`.

Twelve patients with CT and MR of the chest, a knee and two radiographs: ellipsoids for the organs,
in DICOM files. No medical image is involved.
"""

import sys
from pathlib import Path

import numpy as np
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

PATIENTS, SIDE_PX, SPACING_MM, SLICES, GAP_MM = 12, 128, 3.0, 12, 20.0
AXES = {  # directions of rows and columns: the patient's left, back and head count as positive
    "axial": ((1, 0, 0), (0, 1, 0)),
    "coronal": ((1, 0, 0), (0, 0, -1)),
    "sagittal": ((0, 1, 0), (0, 0, -1)),
}
CHEST = (  # centre and radii in mm, Hounsfield units, MR signal
    ((0, 0, 0), (165, 110, 400), 40, 350), ((-70, 0, 40), (55, 75, 110), -800, 40), ((70, 0, 40), (55, 75, 110), -800, 40),
    ((28, -35, 10), (50, 45, 60), 70, 600), ((-60, -5, -130), (95, 80, 60), 130, 450), ((95, 30, -110), (40, 40, 50), 160, 700),
    ((0, 80, 0), (22, 22, 400), 500, 200),
)  # fmt: skip
KNEE = (
    ((0, 0, 0), (70, 60, 400), 40, 500), ((0, 0, 90), (28, 28, 85), 400, 150), ((0, 0, -90), (32, 28, 85), 400, 150),
    ((38, 15, -100), (9, 9, 80), 400, 150), ((0, -45, 0), (20, 9, 20), 400, 250),
)  # fmt: skip
CLASSES = {
    "CT": "1.2.840.10008.5.1.4.1.1.2", "MR": "1.2.840.10008.5.1.4.1.1.4", "DX": "1.2.840.10008.5.1.4.1.1.1.1",
}  # fmt: skip


def values_at(points: np.ndarray, organs: tuple, modality: str) -> np.ndarray:
    """Values at points (..., 3) in LPS."""
    values = np.full(points.shape[:-1], -1000.0 if modality == "CT" else 0.0)
    for centre, radii, units, signal in organs:
        inside = (((points - centre) / radii) ** 2).sum(-1) <= 1
        values[inside] = units if modality == "CT" else signal
    return values


def write(folder: Path, values: np.ndarray, modality: str, uids: dict, **tags: object) -> None:
    """Write one DICOM file."""
    data = FileDataset(None, {}, file_meta=FileMetaDataset(), preamble=b"\0" * 128)
    data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data.SOPClassUID, data.SOPInstanceUID, data.Modality = CLASSES[modality], generate_uid(), modality
    data.PhotometricInterpretation, data.SamplesPerPixel = "MONOCHROME2", 1
    data.BitsAllocated, data.BitsStored, data.HighBit, data.PixelRepresentation = 16, 16, 15, 0
    data.Rows, data.Columns = values.shape
    data.PixelSpacing = [SPACING_MM, SPACING_MM]
    if modality == "CT":
        data.RescaleSlope, data.RescaleIntercept, values = 1, -1024, values + 1024
    data.PixelData = values.clip(0, 65535).astype(np.uint16).tobytes()
    for name, value in {**uids, **tags}.items():
        setattr(data, name, value)
    folder.mkdir(parents=True, exist_ok=True)
    data.save_as(folder / f"{data.SOPInstanceUID}.dcm", enforce_file_format=True)


def main(folder: Path) -> None:
    """Write all studies below a folder."""
    rng = np.random.default_rng(0)
    pixels = (np.arange(SIDE_PX) - SIDE_PX / 2 + 0.5) * SPACING_MM
    across, down = np.meshgrid(pixels, pixels)
    for number in range(PATIENTS):
        scale = rng.uniform(0.9, 1.1, 3)
        uids = {"PatientID": f"phantom-{number}", "StudyInstanceUID": generate_uid()}
        side = "LR"[number % 2]
        knee = tuple(((x if side == "L" else -x, y, z), *more) for (x, y, z), *more in KNEE)
        series = [("CT", plane, "CHEST", CHEST, {}) for plane in AXES] + [("MR", "axial", "CHEST", CHEST, {})]
        series.append(
            (
                "MR",
                "coronal",
                "KNEE",
                knee,
                {"Laterality": side, "SeriesDescription": {"L": "left", "R": "right"}[side]},
            )
        )
        for modality, plane, part, organs, tags in series:
            row, column = np.array(AXES[plane])
            uids |= {"SeriesInstanceUID": generate_uid(), "FrameOfReferenceUID": generate_uid()}
            spacing_mm = SPACING_MM if part == "CHEST" else 1.5
            for depth_mm in (np.arange(SLICES) - SLICES / 2 + 0.5) * GAP_MM * spacing_mm / SPACING_MM:
                centre = depth_mm * np.cross(row, column)
                plane_mm = (across[..., None] * row + down[..., None] * column) * spacing_mm / SPACING_MM
                values = values_at((centre + plane_mm) / scale, organs, modality)
                corner = centre + plane_mm[0, 0]
                write(
                    folder / f"{number}", values + rng.normal(0, 25, values.shape), modality, uids, BodyPartExamined=part,
                    ImageOrientationPatient=[*map(int, row), *map(int, column)], PixelSpacing=[spacing_mm] * 2,
                    ImagePositionPatient=[f"{value:.2f}" for value in corner], **tags,
                )  # fmt: skip
        for view, plane, letters in (("PA", "coronal", ["L", "F"]), ("LL", "sagittal", ["P", "F"])):
            row, column = np.array(AXES[plane])
            normal = np.cross(row, column)
            stack = [
                values_at((across[..., None] * row + down[..., None] * column + depth * normal) / scale, CHEST, "CT")
                for depth in range(-150, 151, 15)
            ]
            values = 1000 + np.mean(stack, 0) + rng.normal(0, 5, across.shape)
            uids |= {"SeriesInstanceUID": generate_uid()}
            write(
                folder / f"{number}", values, "DX", uids, BodyPartExamined="CHEST", ViewPosition=view, PatientOrientation=letters
            )  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
