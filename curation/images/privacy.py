"""Keyed ids in place of file names, and the search for text that is burned into images.

A file name may contain the patient's name, so tables have keyed ids:

    FOLDER.key, FOLDER.names.csv    beside an embeddings folder, readable by the owner only: the
                                    key, and the file name of each id
    FOLDER/names_file.txt           in the folders of later steps: relative path of that list

Images written by `medprobe curate deidentify` already have keyed hashes as file names. Folders made
from them need no list: these names serve as ids.

Text is detected with rapidocr (its models ship with the package; no downloads). Only its position
is used and stored, never the recognised characters. A person decides what happens to an image with
text (`deidentify/review_texts.py`).
"""

import csv
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from tqdm import tqdm

from dataset_builders.contents.pseudonyms import KEYED_IDS, load_pseudonyms
from dataset_builders.errors import BadInput, Problems
from dataset_builders.files import read_journal, replace_file
from dataset_builders.images.lookup import ImageError
from dataset_builders.images.picture import decode_image

POINTER_FILE = "names_file.txt"
DEIDENTIFIED_TABLE = "table.csv"
DEIDENTIFICATION_REPORT = "deidentification.json"
"""Report that `medprobe curate deidentify` writes beside its images (counts of removals); copied
into the manifest of every set made from them.
"""


def privacy_manifest(images: Path) -> dict[str, Any]:
    """Return manifest entries about ids and de-identification, for sets made from the images."""
    report_path = images.absolute().parent / DEIDENTIFICATION_REPORT
    deidentification = json.loads(report_path.read_text(encoding="utf-8")) if report_path.is_file() else None
    return {
        "ids": KEYED_IDS,
        **({"deidentification": deidentification} if isinstance(deidentification, dict) else {}),
    }


def load_patient_groups(images: Path) -> dict[str, str]:
    """Return file name -> keyed patient group from the table of `deidentify`, if there is one."""
    path = images.absolute().parent / DEIDENTIFIED_TABLE
    if "deidentification" not in privacy_manifest(images) or not path.is_file():
        return {}
    csv.field_size_limit(sys.maxsize)  # cells may have any length
    with path.open(encoding="utf-8", newline="") as file:
        return {row["image"]: row.get("group", "") for row in csv.DictReader(file) if row.get("image")}


def assign_image_ids(images: Path | None, names: Iterable[str], out: Path) -> dict[str, str]:
    """Assign an id to each image for the tables of `out`, and write the private list of ids.

    Args:
        images: folder of the images; None if they are at a remote address.
        names: file names.
        out: working folder; its key is beside it.

    Returns:
        File name -> id. The ids are the names themselves if `deidentify` wrote the images.
    """
    if images is not None and privacy_manifest(images).get("deidentification", {}).get("ids") == KEYED_IDS:
        return {name: name for name in names}

    pseudonyms = load_pseudonyms(out)
    ids = {name: pseudonyms.id_for("i", name) for name in names}
    write_private_csv(name_list_path(out), ((image_id, name) for name, image_id in ids.items()))
    return ids


def name_list_path(folder: Path) -> Path:
    """Return the path of a working folder's list of file names, which is beside the folder."""
    folder = folder.absolute()
    return folder.with_name(f"{folder.name}.names.csv")


def write_private_csv(
    path: Path, rows: Iterable[tuple[str, ...]], columns: tuple[str, ...] = ("image", "file")
) -> None:
    """Write a CSV file that only its owner can read (mode 0600)."""

    def write(partial: Path) -> None:
        with os.fdopen(
            os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
            "w",
            newline="",
            encoding="utf-8",
            errors="surrogateescape",  # names that are not UTF-8 keep their bytes
        ) as file:
            csv.writer(file).writerows([columns, *rows])

    replace_file(path, write)


def load_file_names(folder: Path) -> dict[str, str]:
    """Return id -> file name for the tables of a working folder.

    Returns:
        An empty dict if the ids are the file names.

    Raises:
        BadInput: the list is missing.
    """
    path = _find_name_list(folder)
    if path is None:
        return {}

    if not path.is_file():
        raise BadInput(f"{path}: not found; it maps the ids in {folder} to files. Restore it.")
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        return {row["image"]: row["file"] for row in csv.DictReader(file)}


def share_name_list(source: Path, folder: Path) -> None:
    """Let `folder`, which was derived from `source`, use the same list of file names."""
    path = _find_name_list(source)
    if path is None:
        (folder / POINTER_FILE).unlink(missing_ok=True)
    else:
        replace_file(folder / POINTER_FILE, f"{os.path.relpath(path, folder.absolute())}\n".encode())


def _find_name_list(folder: Path) -> Path | None:
    """Return the list of a working folder; None if its ids are the file names."""
    # A folder of a later step contains a pointer; an embeddings folder has the list beside it.
    pointer = folder / POINTER_FILE
    if pointer.is_file():
        return Path(os.path.normpath(folder.absolute() / pointer.read_text(encoding="utf-8").strip()))
    return name_list_path(folder) if name_list_path(folder).is_file() else None


# Burned-in text

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
            if boxes := find_text(decode_image((images / name).read_bytes()).pixels):
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
