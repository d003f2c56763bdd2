"""Serve a page on which a person decides about images with suspected burned-in text.

The choices are to black out the boxes, keep the image as it is, or drop it. Every decision is
written to `decisions.jsonl` (who, when, which image, what) before the page confirms it. In a folder
of `deidentify`, a decision is applied immediately: the image moves from pending/ to images/, or is
deleted together with its labels and its rows in table.csv. In a folder of `gmai`, the next run of
`gmai` applies it. The page is served on this machine only.

It stands apart from `image_folder.py`, so that `deidentify` needs no server.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from PIL import Image, ImageDraw, ImageOps

from curation.deidentify.image_labels import delete_labels
from curation.deidentify.patient_table import delete_rows
from curation.gmai.benchmark_files import undecided_pictures
from curation.gmai.sources import PICTURES_FOLDER, PRIVATE_FOLDER, UNIT_JOURNAL
from curation.images.privacy import (
    DECISIONS_FILE,
    DEIDENTIFICATION_REPORT,
    DEIDENTIFIED_TABLE,
    PENDING_FOLDER,
    black_out,
    read_boxes,
)
from dataset_builders.browser_page.page import (
    Field,
    ItemView,
    ReviewTask,
    build_page,
    read_decisions,
    record_decision,
)
from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file, write_json
from dataset_builders.images.lookup import encode_png

TEXT_DECISION = Field(
    "decision",
    "",
    "choice",
    [
        ("mask", "black out the marked regions"),
        ("keep", "keep: it identifies no person"),
        ("drop", "leave the image out"),
    ],
    "mkx",  # not d, which shows the page's details
    advances=True,
)


def is_gmai_folder(out: Path) -> bool:
    """Return True if `medprobe curate gmai` wrote the folder."""
    # The pictures may have been deleted by hand: a withdrawal must still reach the journal.
    return any((out / PRIVATE_FOLDER / name).exists() for name in (PICTURES_FOLDER, UNIT_JOURNAL))


def pending_images(out: Path) -> list[str]:
    """List the images that wait for a decision, sorted."""
    if is_gmai_folder(out):
        return undecided_pictures(out / PRIVATE_FOLDER)
    return sorted(path.name for path in (out / PENDING_FOLDER).glob("*"))


def decide_on_image(out: Path, image: str, decision: str, reviewer: str) -> None:
    """Record a decision and apply it.

    Args:
        out: folder of `deidentify` or `gmai`.
        image: name of a pending image.
        decision: mask, keep or drop.
        reviewer: name of the person who decides.

    Raises:
        BadInput: the image is not pending, or the decision is not one of these words.
    """
    if decision not in dict(TEXT_DECISION.choices):
        raise BadInput(f"{decision!r} is not a decision: choose mask, keep or drop.")
    if image not in pending_images(out):
        raise BadInput(f"{image} does not wait for a decision in {out}.")
    journal = (out / PRIVATE_FOLDER if is_gmai_folder(out) else out) / DECISIONS_FILE
    record_decision(journal, reviewer, image, TEXT_DECISION.name, decision)
    if not is_gmai_folder(out):
        _apply_decision(out, image, decision)
        report = json.loads((out / DEIDENTIFICATION_REPORT).read_text(encoding="utf-8"))
        decisions = dict(Counter(read_decisions(journal).values()))
        report["text"] |= {"undecided": len(pending_images(out)), "decisions": decisions}
        write_json(out / DEIDENTIFICATION_REPORT, report)


def _apply_decision(out: Path, image: str, decision: str) -> None:
    """Black out, move or delete a pending image of a `deidentify` folder."""
    pending = out / PENDING_FOLDER / image
    if decision == "mask":
        with Image.open(pending) as opened:
            upright = ImageOps.exif_transpose(opened)  # the boxes refer to the upright image
            masked = black_out(
                upright.convert("L" if opened.mode in ("L", "1") else "RGB"),
                read_boxes(out).get(image, []),
            )
        # Keep the name even if its suffix is now wrong: table and labels refer to it.
        replace_file(out / "images" / image, encode_png(masked))
        pending.unlink()
    elif decision == "keep":
        pending.rename(out / "images" / image)
    else:
        pending.unlink()
        delete_labels(out, {image})
        delete_rows(out / DEIDENTIFIED_TABLE, {image})


def build_text_review(out: Path) -> FastAPI:
    """Build the page on which the pending images of a folder are decided.

    Args:
        out: folder of `deidentify` or `gmai`.

    Returns:
        The application.

    Raises:
        BadInput: neither command wrote the folder.
    """
    if not is_gmai_folder(out) and not (out / DEIDENTIFICATION_REPORT).is_file():
        raise BadInput(
            f"{out}: contains no {DEIDENTIFICATION_REPORT}. Make it with `medprobe curate "
            "deidentify` or "
            "`medprobe curate gmai`."
        )
    boxes = read_boxes(out / PRIVATE_FOLDER if is_gmai_folder(out) else out)

    def show(_: str, image: str) -> ItemView:
        return ItemView(
            "Does the marked text name anyone?",
            {},
            f"regions marked in red: {len(boxes.get(image, []))}",
            pictures=[""],
            details=f"image: {image}",
        )

    def save(reviewer: str, image: str, field: str, value: Any, seen: Any) -> str:
        decide_on_image(out, image, value, reviewer)
        return f"{image}: {value}"

    def picture(image: str, number: int) -> tuple[str, bytes]:
        if image not in pending_images(out):
            raise KeyError(image)
        file = (
            out / PRIVATE_FOLDER / PICTURES_FOLDER / f"{image}.png"
            if is_gmai_folder(out)
            else out / PENDING_FOLDER / image
        )
        with Image.open(file) as opened:
            marked = ImageOps.exif_transpose(opened).convert("RGB")
        draw = ImageDraw.Draw(marked)
        for left, top, right, bottom in boxes.get(image, []):
            # Boxes exclude their right and bottom edges; Pillow's rectangles include them.
            draw.rectangle((left, top, right - 1, bottom - 1), outline=(255, 40, 40), width=2)
        return "image/png", encode_png(marked)

    return build_page(
        ReviewTask(
            title="Burned-in text",
            fields=[TEXT_DECISION],
            items=lambda _: pending_images(out),
            show=show,
            save=save,
            is_done=lambda _, image: False,
            picture=picture,
            finished="No image waits for a decision.",
        )
    )
