"""The pictures that questions show: a copy with the target burned in (a box, a translucent mask, or a contour, never over what it marks),
and without burned-in text, which is searched before anything is written and decided about by a person (`medprobe curate texts`).

A picture that seems to hold text is in no question without a decision, or with `drop`; with `mask` the marked regions are shown black.
Also the contact sheets, on which a person sees at a glance whether a mask is inverted, a box shifted, or a label another one's.
"""

from __future__ import annotations

import base64
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageColor
from tqdm import tqdm

from curation.gmai.candidate_cases import Candidate
from curation.gmai.items import PICTURES_FOLDER, SHEETS_FOLDER, Item
from curation.gmai.sources import BOX_LEVEL, CONTOUR_LEVEL, KIND_GRANULARITIES, MASK_LEVEL, Overlay, Sources
from curation.images.burned_in_text import DECISIONS_FILE, TEXT_BOXES_FILE, TextBox, find_text, read_boxes
from curation.images.burned_in_text import black_out as blacked_out
from curation.images.file_names import privacy_manifest
from curation.readers.dataset import SourceDataset
from curation.readers.shapes import decode_segmentation
from dataset_builders.files import replace_file
from dataset_builders.images.lookup import encode_png
from dataset_builders.journal import Journal, read_journal


def render_png(
    picture: str, mask: dict[str, Any] | None, folder: Path, granularity: str, box: Any, overlay: Overlay, black: Sequence[TextBox] = ()
) -> bytes:  # fmt: skip
    """The PNG that a question shows: picture `picture` of `folder`, `black` regions blacked out, with the target burned into a copy."""
    with Image.open(folder / f"{picture}.png") as image:
        pixels = np.asarray(blacked_out(image.convert("RGB"), black))
    region = None if mask is None else decode_segmentation(mask, tuple(mask["size"]))
    return encode_png(Image.fromarray(burn_overlay(pixels, granularity, box, region, overlay)))


def burn_overlay(
    pixels: np.ndarray, granularity: str, box: Any, mask: np.ndarray | None, overlay: Overlay
) -> np.ndarray:
    """A copy as a question of this granularity shows it: a frame around the box x, y, width, height (on the picture's edge where the box
    ends there), the mask's pixels tinted, or a line around each of its pieces and holes. Else the pixels themselves."""
    opacity = 1.0
    if granularity == BOX_LEVEL and box is not None:
        where = box_outline(box, (pixels.shape[0], pixels.shape[1]), overlay.width)
    elif granularity == CONTOUR_LEVEL and mask is not None:
        where = mask_outline(mask, overlay.width)
    elif granularity == MASK_LEVEL and mask is not None:
        where, opacity = mask, overlay.opacity
    else:
        return pixels
    colour = np.array(ImageColor.getrgb(overlay.color)[:3], float)
    painted = pixels.copy()
    painted[where] = (painted[where] * (1 - opacity) + colour * opacity).round().astype(np.uint8)
    return painted


def box_outline(box: Any, shape: tuple[int, int], width: int) -> np.ndarray:
    """(height, width): pixels outside a box within `width` of it, and its outermost ones at the picture's edge."""
    left, top = int(np.floor(box[0])), int(np.floor(box[1]))
    right, bottom = int(np.ceil(box[0] + box[2])), int(np.ceil(box[1] + box[3]))
    inner, outer = np.zeros(shape, bool), np.zeros(shape, bool)
    inner[max(top, 1) : min(bottom, shape[0] - 1), max(left, 1) : min(right, shape[1] - 1)] = True
    outer[max(top - width, 0) : min(bottom + width, shape[0]), max(left - width, 0) : min(right + width, shape[1])] = (
        True
    )
    return outer & ~inner


def mask_outline(mask: np.ndarray, width: int) -> np.ndarray:
    """(height, width): pixels outside the mask within `width` of it (4-neighbours)."""
    from scipy.ndimage import binary_dilation

    grown: np.ndarray = binary_dilation(mask, iterations=width)
    return grown & ~mask


# Contact sheets

PICTURES_PER_SHEET = 9
SHEET_HTML = """<!doctype html><meta charset="utf-8"><title>{0}</title>
<style>body {{ font: 15px system-ui; display: grid; grid-template-columns: repeat(3, 1fr); gap: 1rem; margin: 1rem }}
h1 {{ grid-column: 1 / -1; margin: 0; font-size: 1.2rem }} figure {{ margin: 0 }} img {{ width: 100%; background: #000 }}</style>
<h1>{0}: is each label where its picture is marked?</h1>
"""
FIGURE_HTML = '<figure><img alt="" src="data:image/png;base64,{}"><figcaption>{} ({})</figcaption></figure>\n'


def write_contact_sheets(items: list[Item], private: Path, sources: Sources) -> None:
    """Write `private/sheets/DATASET.html` for each dataset, of as many different labels as possible; the same pictures in every run.
    Private: these pictures have not been reviewed yet."""
    shutil.rmtree(private / SHEETS_FOLDER, ignore_errors=True)
    (private / SHEETS_FOLDER).mkdir()
    for dataset in sources.datasets:
        times: Counter[str] = Counter()
        by_turn = []
        for item in sorted(items, key=lambda item: item.item):  # keyed ids, so in no order of the files
            if item.dataset == dataset.name:
                by_turn.append((times[item.label], item.item, item))
                times[item.label] += 1
        page = SHEET_HTML.format(escape(dataset.name))
        for _, _, item in sorted(by_turn, key=lambda turn: turn[:2])[:PICTURES_PER_SHEET]:
            kind = KIND_GRANULARITIES[item.kind][-1]
            png = render_png(item.picture, item.mask, private / PICTURES_FOLDER, kind, item.box, sources.overlay)
            page += FIGURE_HTML.format(base64.b64encode(png).decode("ascii"), escape(item.label), kind)
        replace_file(private / SHEETS_FOLDER / f"{dataset.name}.html", page.encode())


# Burned-in text


def read_text_decisions(private: Path) -> dict[str, str]:
    """Picture -> mask, keep or drop; the last decision holds."""
    return {entry["item"]: entry["value"] for entry in read_journal(private / DECISIONS_FILE)}


def undecided_pictures(private: Path) -> list[str]:
    """The pictures that seem to hold text and wait for a decision."""
    decided = read_text_decisions(private)
    return sorted(name for name, boxes in read_boxes(private).items() if boxes and name not in decided)


def blacked_out_boxes(private: Path) -> dict[str, list[TextBox]]:
    """Picture -> the regions that are shown black."""
    decided = read_text_decisions(private)
    return {name: boxes for name, boxes in read_boxes(private).items() if decided.get(name) == "mask"}


def exclude_burned_in_text(
    cases: list[Candidate],
    choose: Callable[[list[Candidate]], tuple[list[Candidate], Counter[str]]],
    private: Path,
    sources: Sources,
    search: bool = True,
) -> tuple[list[Candidate], Counter[str], dict[str, Any] | None]:
    """(chosen cases, how many fell to each limit, counts or None without `search`): the cases that `choose` takes once those whose
    pictures may hold a name are left out. Only the pictures of chosen cases are searched, each once; sets that `medprobe curate deidentify`
    made were searched there."""
    if not search:
        return *choose(cases), None
    done = {dataset.name for dataset in sources.datasets if _was_searched(dataset)}
    boxes, decided = read_boxes(private), read_text_decisions(private)
    while True:
        held = {name for name, found in boxes.items() if found and decided.get(name, "drop") == "drop"}
        left = [case for case in cases if held.isdisjoint(name for name, _ in case.item.pictures)]
        chosen, limits = choose(left)
        shown = {name for case in chosen if case.item.dataset not in done for name, _ in case.item.pictures}
        fresh = sorted(shown - boxes.keys())
        if not fresh:
            break
        with Journal(private / TEXT_BOXES_FILE) as journal:  # what was searched stays when the search is stopped
            for name in tqdm(fresh, desc="looking for burned-in text", unit="picture", disable=None):
                with Image.open(private / PICTURES_FOLDER / f"{name}.png") as image:
                    boxes[name] = find_text(image)
                journal.append({"image": name, "boxes": [list(box) for box in boxes[name]]})
    found = {name for name in boxes if boxes[name]}
    limits["burned-in text that is undecided or dropped"] = len(cases) - len(left)
    counts = {
        "searched": len(boxes), "with_text": len(found), "undecided": len(found - decided.keys()),
        "decisions": dict(Counter(decided[name] for name in found & decided.keys())), "searched_by_deidentify": sorted(done),
    }  # fmt: skip
    return chosen, limits, counts


def _was_searched(dataset: SourceDataset) -> bool:
    """True if `medprobe curate deidentify` made a dataset's pictures and looked for text in them; it does not look into volumes."""
    report = privacy_manifest(dataset.path).get("deidentification", {})
    return dataset.reader != "nifti" and bool(report.get("text", {}).get("searched"))
