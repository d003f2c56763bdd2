"""Detect burned-in text in images with rapidocr (its models ship with the package; no downloads).

Only the position of the text is used and stored, never the recognised characters. A person decides
what happens to an image with text (`deidentify/image_folder.py`).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from tqdm import tqdm

from curation.images.file_names import privacy_manifest
from curation.images.image_index import decode_rgb
from dataset_builders.errors import Problems
from dataset_builders.files import read_journal, replace_file
from dataset_builders.images.lookup import ImageError

TextBox = tuple[int, int, int, int]
"""(left, top, right, bottom) in pixels; right and bottom are exclusive."""
TEXT_BOXES_FILE, DECISIONS_FILE = "texts.jsonl", "decisions.jsonl"
"""Journals beside searched images: the boxes of each image, and the reviewer's decisions."""
PENDING_FOLDER = "pending"
"""Folder of images with text that wait for a reviewer's decision."""
ENLARGE_FROM_PX, ENLARGE_BELOW_PX = 500, 1000
"""Images whose longer side is in this range are also searched at twice the size, for small letters.
"""
MIN_SIDE_PX = 64
"""Images whose longer side is shorter than this cannot contain a readable line of text."""
MARGIN_PX = 3


@cache
def _text_detector() -> Any:
    from rapidocr import RapidOCR

    return RapidOCR(params={"Global.text_score": 0.3, "Global.log_level": "critical"})


def find_text(image: Image.Image, lone_letters: str = "") -> list[TextBox]:
    """Detect text of two or more alphanumeric characters in an image.

    Args:
        image: an image of any size and mode.
        lone_letters: letters that also count if they stand alone, such as side markers. Many lone
            letters are missed.

    Returns:
        Boxes with a margin of `MARGIN_PX`, clipped to the image; a box that is mostly covered by an
        earlier one is omitted.
    """
    if max(image.size) < MIN_SIDE_PX:
        return []

    picture = image.convert("RGB")
    # The detector itself enlarges images below 736 pixels.
    scales = (1, 2) if ENLARGE_FROM_PX <= max(picture.size) < ENLARGE_BELOW_PX else (1,)
    boxes: list[TextBox] = []
    for scale in scales:
        enlarged = (
            picture
            if scale == 1
            else picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.BICUBIC)
        )
        # rapidocr expects BGR, as OpenCV does.
        lines = _text_detector()(np.asarray(enlarged)[:, :, ::-1])

        for corners, text in zip(lines.boxes, lines.txts, strict=True) if lines.txts else ():
            signs = [sign for sign in text if sign.isalnum()]
            if len(signs) < 2 and not set(signs) & set(lone_letters):
                continue

            # Convert to pixels of the original image.
            xs_px, ys_px = [x / scale for x, _ in corners], [y / scale for _, y in corners]
            box = (
                max(0, int(min(xs_px)) - MARGIN_PX), max(0, int(min(ys_px)) - MARGIN_PX),
                min(picture.width, int(max(xs_px)) + MARGIN_PX + 1), min(picture.height, int(max(ys_px)) + MARGIN_PX + 1),
            )  # fmt: skip

            if not any(covered_share(box, accepted) > 0.8 for accepted in boxes):
                boxes.append(box)
    return boxes


def read_boxes(folder: Path) -> dict[str, list[TextBox]]:
    """Read the boxes of every searched image from the folder's `TEXT_BOXES_FILE`."""
    entries = read_journal(folder / TEXT_BOXES_FILE)
    return {entry["image"]: [(box[0], box[1], box[2], box[3]) for box in entry["boxes"]] for entry in entries}


def write_boxes(folder: Path, boxes: Mapping[str, Sequence[TextBox]]) -> None:
    """Write the boxes that `read_boxes` reads: image name -> boxes."""
    lines = [json.dumps({"image": image, "boxes": image_boxes}) + "\n" for image, image_boxes in boxes.items()]
    replace_file(folder / TEXT_BOXES_FILE, "".join(lines).encode())


def covered_share(box: TextBox, other_box: TextBox) -> float:
    """Return the share of a box's area that another box covers, from 0 to 1."""
    width_px, height_px = (
        min(box[2], other_box[2]) - max(box[0], other_box[0]),
        min(box[3], other_box[3]) - max(box[1], other_box[1]),
    )
    area = (box[2] - box[0]) * (box[3] - box[1])
    return max(0, width_px) * max(0, height_px) / area if area else 0.0


def burned_in_note(images: Path, image_names: Iterable[str], search: bool) -> str:
    """Search the images of a set for burned-in text and return the sentence for the dataset card.

    A folder that `medprobe curate deidentify` wrote is not searched again, since that command has
    searched it.

    Args:
        images: folder of the images.
        image_names: names of the images that the set uses.
        search: False skips the search; the card then says so.

    Raises:
        BadInput: images may contain burned-in text; the message lists them.
    """
    if not search:
        return "Burned-in text: not searched."
    if "deidentification" in privacy_manifest(images):
        return "Burned-in text: searched when the images were de-identified."

    problems = Problems()
    names = sorted(set(image_names))
    for name in tqdm(names, desc="searching for burned-in text", unit="image", disable=None):
        with suppress(ImageError, OSError):  # `copy_images` reports unreadable images
            if boxes := find_text(decode_rgb((images / name).read_bytes())):
                problems.add(str(images / name), None, f"may contain burned-in text (boxes: {len(boxes)})")

    problems.check(
        f"Names in the pixels would be published: run `medprobe curate deidentify {images}` first "
        "and decide about these "
        "images, or pass --no-text-search if they contain no text."
    )
    return f"Burned-in text: none found in {len(names)} images."


def black_out(image: Image.Image, boxes: Sequence[TextBox]) -> Image.Image:
    """Return a copy of the image with the boxes filled black."""
    masked = image.copy()
    draw = ImageDraw.Draw(masked)
    for left_px, top_px, right_px, bottom_px in boxes:
        draw.rectangle((left_px, top_px, right_px - 1, bottom_px - 1), fill=0)
    return masked
