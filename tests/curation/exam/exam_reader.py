"""Answer the questions of an exam from its pixels, given how the generated studies are drawn."""

import numpy as np
from scipy import ndimage

from tests.curation.exam.studies import BASE_LEVEL, CODE_CELLS, CODE_LEVELS, LEVELS

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
