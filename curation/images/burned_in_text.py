"""Burned-in text: where an image seems to hold some (rapidocr, whose models come with it: nothing is downloaded).

What is read is used nowhere and kept nowhere: only where it stands. A person decides (`deidentify/review_texts.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from dataset_builders.images.lookup import ImageError
from dataset_builders.journal import read_journal

TextBox = tuple[int, int, int, int]
"""left, top, right, bottom in pixels."""
TEXT_BOXES_FILE, DECISIONS_FILE = "texts.jsonl", "decisions.jsonl"
"""Of a folder whose images are searched: where text seems to be in each (never what it says), and what a person decided."""
ENLARGE_FROM_PX, ENLARGE_BELOW_PX = 500, 1000
"""Images whose longer side lies between are read at twice the size too: small letters are found only there."""
MIN_SIDE_PX = 64
"""Images whose longer side has fewer pixels hold no readable line of text."""
MARGIN_PX = 3


@cache
def _text_detector() -> Any:
    from rapidocr import RapidOCR

    return RapidOCR(params={"Global.text_score": 0.3, "Global.log_level": "critical"})


def find_text(image: Image.Image) -> list[TextBox]:
    """Boxes around what looks like text of two or more characters, with a small margin, in an image of any size."""
    if max(image.size) < MIN_SIDE_PX:
        return []
    picture = image.convert("RGB")
    # The detector itself enlarges what is smaller than 736 pixels.
    scales = (1, 2) if ENLARGE_FROM_PX <= max(picture.size) < ENLARGE_BELOW_PX else (1,)
    found: list[TextBox] = []
    for scale in scales:
        shown = (
            picture
            if scale == 1
            else picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.BICUBIC)
        )
        lines = _text_detector()(np.asarray(shown)[:, :, ::-1])
        for corners, text in zip(lines.boxes, lines.txts, strict=True) if lines.txts else ():
            if sum(sign.isalnum() for sign in text) < 2:
                continue
            xs, ys = [x / scale for x, _ in corners], [y / scale for _, y in corners]
            box = (
                max(0, int(min(xs)) - MARGIN_PX), max(0, int(min(ys)) - MARGIN_PX),
                min(picture.width, int(max(xs)) + MARGIN_PX + 1), min(picture.height, int(max(ys)) + MARGIN_PX + 1),
            )  # fmt: skip
            if not any(covered_share(box, other) > 0.8 for other in found):
                found.append(box)
    return found


def read_boxes(folder: Path) -> dict[str, list[TextBox]]:
    """Image -> where text seems to be in it, by the folder's `TEXTS`."""
    entries = read_journal(folder / TEXT_BOXES_FILE)
    return {entry["image"]: [(box[0], box[1], box[2], box[3]) for box in entry["boxes"]] for entry in entries}


def covered_share(box: TextBox, by: TextBox) -> float:
    """Share of a box that another covers."""
    wide, high = min(box[2], by[2]) - max(box[0], by[0]), min(box[3], by[3]) - max(box[1], by[1])
    area = (box[2] - box[0]) * (box[3] - box[1])
    return max(0, wide) * max(0, high) / area if area else 0.0


def burned_in_note(images: Path, used: Iterable[str], search: bool) -> str:
    """The sentence of the card on burned-in text. Raises BadInput listing the used images that may hold some; a folder that
    `medprobe curate deidentify` wrote was searched there, and a person decided."""
    if not search:
        return "Burned-in text: not searched."
    if "deidentification" in privacy_manifest(images):
        return "Burned-in text: searched when the images were de-identified."
    problems = Problems()
    names = sorted(set(used))
    for name in tqdm(names, desc="looking for burned-in text", unit="image", disable=None):
        with suppress(ImageError, OSError):  # `copy_images` says what cannot be opened
            if boxes := find_text(decode_rgb((images / name).read_bytes())):
                problems.add(str(images / name), None, f"may hold burned-in text, in {len(boxes)} places")
    problems.check(
        f"Names in pixels would be published: run `medprobe curate deidentify {images}` first and decide about them, or give "
        "--no-text-search where the images hold none."
    )
    return f"Burned-in text: none found in {len(names)} images."


def black_out(image: Image.Image, boxes: Sequence[TextBox]) -> Image.Image:
    """The image with the boxes filled black."""
    masked = image.copy()
    draw = ImageDraw.Draw(masked)
    for left, top, right, bottom in boxes:
        draw.rectangle((left, top, right - 1, bottom - 1), fill=0)
    return masked
