"""A page on which a person decides about images that seem to hold burned-in text: black out the boxes, keep the image as it is, or drop it.

Every decision is in `decisions.jsonl` (who, when, which, what) before the page says so. In a folder of `deidentify` it is carried out at
once: the image goes from pending/ to images/, or is deleted, with its rows in table.csv and its labels. In one of `gmai` the next run
carries it out. Serves on this machine only.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Literal

import pandas as pd
from fastapi import FastAPI
from PIL import Image, ImageDraw, ImageOps

from curation.deidentify.folder import PENDING, REPORT, TABLE, read_boxes
from curation.deidentify.labels import drop_labels
from curation.gmai import burned_in
from curation.gmai.burned_in import DECISIONS
from curation.gmai.items import PICTURES
from curation.images.burned_in_text import mask
from curation.review.form_page import Decisions, form_app
from curation.review.serving import serve_page
from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file, write_json
from dataset_builders.images.lookup import as_png
from dataset_builders.journal import Journal

Decision = Literal["mask", "keep", "drop"]
BUTTONS = """<p><button name="decision" value="mask" accesskey="m">black out the marked regions (m)</button></p>
<p><button name="decision" value="keep" accesskey="k">keep: it names nobody (k)</button></p>
<p><button name="decision" value="drop" accesskey="d">leave the image out (d)</button></p>"""


def is_gmai(out: Path) -> bool:
    """Whether a folder is one of `medprobe curate gmai`."""
    return (out / "private" / PICTURES).is_dir()


def pending_images(out: Path) -> list[str]:
    """Images that wait for a decision."""
    if is_gmai(out):
        return burned_in.undecided(out / "private")
    return sorted(path.name for path in (out / PENDING).iterdir()) if (out / PENDING).is_dir() else []


def decide(out: Path, image: str, decision: Decision, reviewer: str) -> None:
    """Record a decision and carry it out. Raises BadInput for an image that does not wait for one, and without a name."""
    if not reviewer.strip():
        raise BadInput("Give your name first: every decision is recorded with who made it.")
    if image not in pending_images(out):
        raise BadInput(f"{image} waits for no decision in {out}.")
    with Journal((out / "private" if is_gmai(out) else out) / DECISIONS) as journal:
        when = datetime.now(UTC).isoformat(timespec="seconds")
        journal.append({"when": when, "reviewer": reviewer.strip(), "image": image, "decision": decision})
        journal.sync()
        entries = [*journal.entries, {"decision": decision}]
    if not is_gmai(out):
        _carry_out(out, image, decision)
        report = json.loads((out / REPORT).read_text(encoding="utf-8"))
        decisions = dict(Counter(entry["decision"] for entry in entries))
        report["text"] |= {"undecided": len(pending_images(out)), "decisions": decisions}
        write_json(out / REPORT, report)


def _carry_out(out: Path, image: str, decision: Decision) -> None:
    waiting = out / PENDING / image
    if decision == "mask":
        with Image.open(waiting) as opened:
            upright = ImageOps.exif_transpose(opened)  # as it was searched
            masked = mask(upright.convert("L" if opened.mode in ("L", "1") else "RGB"), read_boxes(out).get(image, []))
        # The image keeps its name, whatever its suffix: what else was made of it goes by that.
        replace_file(out / "images" / image, as_png(masked))
        waiting.unlink()
    elif decision == "keep":
        waiting.rename(out / "images" / image)
    else:
        waiting.unlink()
        drop_labels(out, image)
        table = pd.read_csv(out / TABLE, dtype=str, keep_default_na=False)
        rest = table[table["image"] != image]
        replace_file(out / TABLE, lambda path: rest.to_csv(path, index=False))


def build_app(out: Path) -> FastAPI:
    """The page. Raises BadInput for a folder that neither `deidentify` nor `gmai` wrote."""
    if not is_gmai(out) and not (out / REPORT).is_file():
        raise BadInput(
            f"{out}: holds no {REPORT}. Make it with `medprobe curate deidentify` or `medprobe curate gmai`."
        )
    boxes = burned_in.read_boxes(out / "private") if is_gmai(out) else read_boxes(out)

    def picture(image: str, number: int) -> bytes:
        if image not in pending_images(out):
            raise KeyError(image)
        path = out / "private" / PICTURES / f"{image}.png" if is_gmai(out) else out / PENDING / image
        with Image.open(path) as opened:
            shown = ImageOps.exif_transpose(opened).convert("RGB")
        draw = ImageDraw.Draw(shown)
        for left, top, right, bottom in boxes.get(image, []):
            draw.rectangle((left, top, right - 1, bottom - 1), outline=(255, 40, 40), width=2)
        return as_png(shown)

    def question(reviewer: str, image: str) -> str:
        return f"<p>{escape(image)}: {len(boxes.get(image, []))} regions are marked in red.</p>"

    def save(reviewer: str, image: str, fields: dict[str, list[str]]) -> None:
        decision = fields.get("decision", [""])[0]
        if decision not in ("mask", "keep", "drop"):
            raise BadInput("choose one of the three.")
        decide(out, image, decision, reviewer)  # type: ignore[arg-type]

    return form_app(
        Decisions(
            "Does the marked text name anyone?", lambda reviewer: pending_images(out), lambda reviewer, image: False,
            question, lambda image: 1, picture, save, BUTTONS,
        )
    )  # fmt: skip


def serve(out: Path, port: int) -> None:
    """Serve the page on 127.0.0.1 until it is stopped. Raises BadInput for a port in use, and a folder that another server has."""
    serve_page(lambda: build_app(out), out, "texts", f"deciding about {len(pending_images(out))} images", port)
