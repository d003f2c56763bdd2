"""Studies of known geometry, whose pictures can be recognised from their pixels; answers to exams.

A DICOM picture contains the number of its `Truth` as a code of 4 x 4 cells, and quadrants whose
grey levels show how it was turned. The grey levels of a NIfTI volume show where in the patient a
voxel is. So `read_answer` needs no code of the product to read a picture.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from nibabel import Nifti1Image
from pydicom.uid import generate_uid
from scipy import ndimage

from tests.curation.dicom_files import make_dicom, set_elements

SLICE_SIDE_PX, SPACING_MM, SLICES, GAP_MM = 128, 1.5, 12, 8.0
BASE_LEVEL, LEVELS = 60.0, np.array([100.0, 45.0, 9.0])
"""Base grey level, and how much brighter the right and the lower half of a stored picture are, or
the left, posterior and upper half of the body in a volume.
"""
CODE_CELLS, CELL_PX, CODE_LEVELS = 4, 12, (20.0, 150.0)
SOP_CLASSES = {
    "CT": "1.2.840.10008.5.1.4.1.1.2", "MR": "1.2.840.10008.5.1.4.1.1.4",
    "DX": "1.2.840.10008.5.1.4.1.1.1.1", "CR": "1.2.840.10008.5.1.4.1.1.1",
}  # fmt: skip
AXIS_LETTERS = (("R", "L"), ("A", "P"), ("F", "H"))


@dataclass
class Truth:
    """True position of a picture: directions of its rows and columns in LPS, and place from -1 to 1
    along its slices' axis.
    """

    modality: str
    part: str
    row: np.ndarray = None
    column: np.ndarray = None
    height: float = 0.0
    side: str = ""
    view: str = ""


@dataclass
class Series:
    """A series to write. `change` corrupts the header of each file, given its number."""

    truth: Truth
    patient: str
    tags: dict = field(default_factory=dict)
    change: object = lambda data, number: None
    study: str = field(default_factory=generate_uid)


class Studies:
    """Write studies below a folder; `truths` lists the picture of each code."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.rng, self.truths = folder, np.random.default_rng(seed), []

    def write_series(self, path: str, series: Series, normal_sign=1, slices=SLICES):
        """Write CT or MR slices at a random position in the scanner, in random order, or one
        radiograph.
        """
        truth, uids = series.truth, (generate_uid(), generate_uid())
        corner, inverted = self.rng.uniform(-100, 100, 3), self.rng.random() < 0.4
        for number in self.rng.permutation(slices):
            elements = {"InstanceNumber": int(number) + 1}
            height = 2 * number / max(slices - 1, 1) - 1
            if truth.row is not None:
                normal = normal_sign * np.cross(truth.row, truth.column)
                # The height grows towards the head, the front or the patient's right.
                axis = np.abs(normal).argmax()
                height *= np.sign(normal[axis]) * (1 if axis == 2 else -1)
                elements["ImageOrientationPatient"] = [f"{value:.6f}" for value in (*truth.row, *truth.column)]
                elements["ImagePositionPatient"] = [f"{value:.3f}" for value in corner + number * GAP_MM * normal]
            self.truths.append(replace(truth, height=float(height)))
            values = self.paint(len(self.truths) - 1)
            values = 255 - values if inverted else values
            if truth.modality == "CT":  # so that the soft tissue window (40, 400) shows 0 to 255
                values = values * 400 / 255 - 160 + 1024
            data = make_dicom(values, 16, **_header(series, uids, inverted), **elements)
            series.change(data, int(number))
            path_of_slice = self.folder / path / f"{data.SOPInstanceUID}.dcm"
            path_of_slice.parent.mkdir(parents=True, exist_ok=True)
            data.save_as(path_of_slice, enforce_file_format=True)

    def paint(self, code: int):
        """Draw quadrants, and in the centre a white frame around the code."""
        rows, columns = np.mgrid[:SLICE_SIDE_PX, :SLICE_SIDE_PX] >= SLICE_SIDE_PX // 2
        values = BASE_LEVEL + LEVELS[0] * columns + LEVELS[1] * rows
        values = values + self.rng.uniform(-20, 20, (SLICE_SIDE_PX, SLICE_SIDE_PX))
        bits = np.array(list(f"{code:016b}"), int).reshape(CODE_CELLS, CODE_CELLS)
        edge = (SLICE_SIDE_PX - CODE_CELLS * CELL_PX) // 2
        values[edge - 4 : 4 - edge, edge - 4 : 4 - edge] = 255
        values[edge:-edge, edge:-edge] = np.kron(np.choose(bits, CODE_LEVELS), np.ones((CELL_PX, CELL_PX)))
        return values

    def draw_axes(self, planes=(0, 1, 2), degrees=(0, 14.5)):
        """Draw directions of rows and columns along two axes of the body, tilted by an angle within
        `degrees`.
        """
        normal = self.rng.choice(planes)
        others = self.rng.permutation([axis for axis in range(3) if axis != normal])
        frame = np.eye(3)[others] * self.rng.choice([-1, 1], 2)[:, None]
        angle, cross = np.deg2rad(self.rng.uniform(*degrees)), np.cross(np.eye(3), np.eye(3)[self.rng.integers(3)])
        turn = np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
        return frame @ turn.T

    def write_volume(self, path: str, is_wrong=False):
        """Write a NIfTI volume with a random orientation of its axes (RAS+), half of the time with
        thick slices.
        """
        order, signs = self.rng.permutation(3), self.rng.choice([-1, 1], 3)
        counts, sizes = np.full(3, SLICE_SIDE_PX), np.full(3, SPACING_MM)
        if self.rng.random() < 0.5:
            axis = self.rng.integers(3)
            counts[axis], sizes[axis] = SLICES, GAP_MM
        affine = np.eye(4)
        affine[:3, :3] = (np.eye(3)[order] * (signs * sizes)[:, None]).T
        affine[:3, 3] = -affine[:3, :3] @ ((counts - 1) / 2)
        points = np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), -1) @ affine[:3, :3].T + affine[:3, 3]
        brighter = points * [-1, -1, 1] > 0
        values = BASE_LEVEL + brighter @ LEVELS + self.rng.uniform(-20, 20, counts)
        values[(np.abs(points) < 10).sum(-1) >= 2] = 255  # three crossing rods set the scale
        image = Nifti1Image(values.astype(np.int16), affine)
        image.set_sform(affine, code=1)
        image.set_qform(affine * [[-1], [1], [1], [1]] if is_wrong else affine, code=int(is_wrong or signs[0] > 0))
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        image.to_filename(self.folder / path)

    def write_patient(self, patient: str, wrong_share=0.1):
        """Write a patient: two series of CT and of MR, a knee, two radiographs, a volume."""
        study, part = generate_uid(), str(self.rng.choice(["CHEST", "ABDOMEN", "HEAD"]))

        def write(path, truth, changes, **options):
            is_wrong = self.rng.random() < wrong_share
            change = changes[self.rng.integers(len(changes))] if is_wrong else _set()
            tags = options.pop("tags", {})
            self.write_series(f"{patient}/{path}", Series(truth, patient, tags, change, study), **options)

        for modality in ("CT", "MR"):
            for plane in self.rng.permutation(3)[:2]:
                degrees = (16, 30) if self.rng.random() < 0.1 else (0, 14.5)
                truth = Truth(modality, part, *self.draw_axes([plane], degrees))
                write(f"{modality}-{plane}", truth, WRONG_SLICES, normal_sign=self.rng.choice([-1, 1]))
        side = str(self.rng.choice(["L", "R"]))
        tags = {"Laterality": side, "ProtocolName": f"knee_{'left' if side == 'L' else 'RT'}"}
        write("knee", Truth("MR", "KNEE", *self.draw_axes([1, 2]), side=side), WRONG_SLICES, tags=tags)
        for view in (self.rng.choice(["AP", "PA"]), self.rng.choice(["LL", "RL"])):
            letters = [
                str(self.rng.choice(AXIS_LETTERS[0 if "P" in view else 1])),
                str(self.rng.choice(AXIS_LETTERS[2])),
            ]
            tags = {"ViewPosition": str(view), "PatientOrientation": list(self.rng.permutation(letters))}
            truth = Truth(str(self.rng.choice(["DX", "CR"])), "CHEST", view=str(view))
            write(str(view), truth, WRONG_RADIOGRAPHS, tags=tags, slices=1)
        self.write_volume(f"{patient}/volume.nii.gz", is_wrong=self.rng.random() < wrong_share)


def _header(series, uids, inverted):
    modality = series.truth.modality
    scale = (
        {"RescaleSlope": 1, "RescaleIntercept": -1024}
        if modality == "CT"
        else {"WindowCenter": 128, "WindowWidth": 256}
    )
    return {
        "SOPClassUID": SOP_CLASSES[modality], "SOPInstanceUID": generate_uid(), "StudyInstanceUID": series.study,
        "SeriesInstanceUID": uids[0], "FrameOfReferenceUID": uids[1],
        "PatientID": series.patient, "PatientName": "Doe^Jane", "Modality": modality, "BodyPartExamined": series.truth.part,
        "PhotometricInterpretation": "MONOCHROME1" if inverted else "MONOCHROME2",
        "PixelSpacing": [SPACING_MM, SPACING_MM], **scale, **series.tags,
    }  # fmt: skip


def _set(**elements):
    return lambda data, number: set_elements(data, elements)


def _set_one(**elements):
    return lambda data, number: set_elements(data, elements if number == 3 else {})


def _roll_axes(data, number):
    row, column = np.array(data.ImageOrientationPatient, float).reshape(2, 3)
    data.ImageOrientationPatient = [f"{value:.6f}" for value in (*column, *np.cross(row, column))]


def _other_view(data, number):
    data.ViewPosition = "LL" if data.ViewPosition in ("AP", "PA") else "PA"


def _other_description(data, number):
    data.SeriesDescription = "chest lateral" if data.ViewPosition in ("AP", "PA") else "chest pa"


WRONG_SLICES = (
    _roll_axes,
    _set(ImageOrientationPatient=[1, 0, 0, 0.5, 0.8, 0]),
    _set_one(ImageOrientationPatient=[0, 0, 1, 0, 1, 0]),
    _set(PatientOrientation=["F", "F"]),
    _set_one(SOPClassUID=SOP_CLASSES["DX"]),
    _set(SeriesDescription="MRI ANKLE", BodyPartExamined="CHEST"),
    _set(BodyPartExamined="ABDOMEN", Laterality="L", ProtocolName="LEFT"),
    _set_one(PatientPosition="FFS"),
    _set_one(BodyPartExamined="HEAD"),
    _set(AnatomicalOrientationType="QUADRUPED"),
    _set(BodyPartExamined="KNEE", ImageLaterality="L", Laterality="R"),
    _set(BodyPartExamined="KNEE", Laterality="R", ProtocolName="LEFT KNEE"),
)
"""Headers that contradict themselves, their series or their positions."""
WRONG_RADIOGRAPHS = (_other_view, _other_description, _set(PatientOrientation=["L", "P"]), _set(Laterality="L"))

WHITE_DISC_PX, RING_PX = (240, 268), (130, 268)
"""Areas in pixels of white discs, and of rings around darker or white pixels."""
PLANES = ("sagittal", "coronal", "axial")


def find_truth(picture, truths):
    """Return the `Truth` of a picture, and the directions (LPS) of its rows and columns as
    shown.
    """
    labels, _ = ndimage.label(picture > 235)
    bounds = max(ndimage.find_objects(labels), key=lambda box: box[0].stop - box[0].start, default=None)
    if bounds is None or not 90 < bounds[0].stop - bounds[0].start < 135 or not (picture[bounds] < 90).any():
        return None
    across, down, _ = differences(picture)
    row, column = np.array([1, 0]), np.array([0, 1])  # as shown, in terms of the stored picture
    if abs(across) < abs(down):
        picture, across, down, row, column = picture.T, down, across, column, row
        bounds = bounds[::-1]
    code = picture[bounds][:: 1 if down > 0 else -1, :: 1 if across > 0 else -1]
    edge = code.shape[0] / (CODE_CELLS * 6 + 4)
    centres = np.array([(2 + 6 * (cell + 0.5)) * edge for cell in range(CODE_CELLS)]).astype(int)
    bits = [code[y - 4 : y + 5, x - 4 : x + 5].mean() > np.mean(CODE_LEVELS) for y in centres for x in centres]
    truth = truths[int("".join(map(str, np.array(bits, int))), 2)]
    if truth.row is None:
        return truth, None, None
    stored = np.stack([truth.row * np.sign(across), truth.column * np.sign(down)])
    return truth, row @ stored, column @ stored


def differences(picture):
    """Return by how many grey levels the right half is brighter than the left, and the lower than
    the upper; and the mean level.
    """
    (top_left, top_right), (bottom_left, bottom_right) = [
        [picture[y : y + 36, x : x + 36].mean() for x in (20, 200)] for y in (20, 200)
    ]
    across, down = top_right + bottom_right - top_left - bottom_left, bottom_left + bottom_right - top_left - top_right
    return across / 2, down / 2, (top_left + top_right + bottom_left + bottom_right) / 4


def read_volume(picture):
    """Return the directions (LPS) of the rows and columns of a volume's picture, and its mean grey
    level before windowing.
    """
    across, down, mean = differences(picture)
    ratios = {
        (i, j): abs(np.log(abs(across / down) * LEVELS[j] / LEVELS[i])) for i in range(3) for j in range(3) if i != j
    }
    i, j = min(ratios, key=ratios.get)
    # The left, back and upper half of the body are the brighter ones.
    row, column = np.eye(3)[i] * np.sign(across), np.eye(3)[j] * np.sign(down)
    scale = abs(across) / LEVELS[i]
    return row, column, 255 - (picture.max() - mean) / scale


def white_shapes(picture, areas):
    """Return the centres (x, y) of white shapes with an area in this range and a side of 17 to 20
    pixels, from left to right.
    """
    labels, _ = ndimage.label(picture == 255)
    places = []
    for number, bounds in enumerate(ndimage.find_objects(labels), 1):
        shape = labels[bounds] == number
        if areas[0] <= shape.sum() <= areas[1] and min(shape.shape) >= 17 and max(shape.shape) <= 20:
            places.append((bounds[1].start + shape.shape[1] // 2, bounds[0].start + shape.shape[0] // 2))
    return sorted(places)


def read_change(question, picture):
    """Answer a question about something that was drawn on a picture or done to it."""
    if "white disc with" in question:
        (place,) = white_shapes(picture, WHITE_DISC_PX)
        halves = [("left", "right"), ("upper", "lower")]["upper" in question]
        return f"In the {halves[place['upper' in question] > 127]} half"
    if "How many" in question:
        return ("None", "One", "Two")[len(white_shapes(picture, WHITE_DISC_PX))]
    if "rings" in question:
        inside = [picture[y - 4 : y + 5, x - 4 : x + 5].mean() for x, y in white_shapes(picture, RING_PX)]
        return f"Inside the {'left' if inside[0] > inside[1] else 'right'} ring"
    smooth = ndimage.gaussian_filter(picture.astype(float), 1)
    rough = np.median(np.abs(picture - smooth)[20:-20, 20:-20])
    if "noise" in question:
        return "No noise was added" if rough < 8 else "Noise was added"
    return "It was not blurred" if rough > 1 else "It was blurred"


def read_answer(question, picture, truths):
    """Return the text of the correct option."""
    if "drawn on" in question or "rings" in question or "noise" in question or "blurred" in question:
        return read_change(question, picture)
    found = find_truth(picture, truths)
    if "technique" in question:
        return {"CT": "CT", "MR": "MRI"}[found[0].modality]
    if "frontal or a lateral" in question:
        return "A frontal view" if found[0].view in ("AP", "PA") else "A lateral view"
    if found:
        truth, row, column = found
        height = truth.height
    else:
        row, column, level = read_volume(picture)
        height = 1.0 if level > BASE_LEVEL + LEVELS.sum() / 2 else -1.0
    axes = np.abs([row, column]).argmax(1)
    if "left or of the right" in question:
        assert row[0] > 0.9, "the patient's right is on the left"
        return f"The {'left' if truth.side == 'L' else 'right'} knee"
    if "plane of the body" in question:
        normal = np.cross(row, column)
        assert min(np.abs([row, column, normal]).max(1)) > np.cos(np.deg2rad(15.01))
        return f"The {PLANES[np.abs(normal).argmax()]} plane"
    if "half of the series" in question:
        assert abs(height) > 0.32
        return f"The {'upper half, towards the top of the head' if height > 0 else 'lower half, towards the feet'}"
    if "side of the patient" in question:
        assert axes[0] == 0
        return f"The patient's {'right' if row[0] > 0 else 'left'} side"
    if "face look" in question:
        assert axes[0] == 1
        return f"To the {'left' if row[1] > 0 else 'right'}"
    if "front of the body" in question:
        assert axes[1] == 1
        return f"At the {'top' if column[1] > 0 else 'bottom'}"
    assert "towards the top of the head at" in question and axes[1] == 2
    return f"At the {'top' if column[2] < 0 else 'bottom'}"
