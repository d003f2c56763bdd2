"""Burned-in text in the pictures of questions: searched before anything is written, decided by a person (`medprobe curate texts`).

`private/texts.jsonl` holds where text seems to be in each picture that was searched (never what it says), `private/decisions.jsonl` what
was decided: a picture without a decision, or with `drop`, is in no question; of one with `mask` the marked regions are shown black.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from PIL import Image
from tqdm import tqdm

from curation.gmai.cases import Candidate
from curation.gmai.items import PICTURES
from curation.gmai.sources import SourceDataset, Sources
from curation.images.burned_in_text import Box, find_text
from curation.images.set_images import manifest_of
from dataset_builders.journal import Journal, read_journal

TEXTS, DECISIONS = "texts.jsonl", "decisions.jsonl"


def read_boxes(private: Path) -> dict[str, list[Box]]:
    """Picture -> where text seems to be in it, of all that were searched."""
    return {
        entry["picture"]: [(box[0], box[1], box[2], box[3]) for box in entry["boxes"]]
        for entry in read_journal(private / TEXTS)
    }


def read_decisions(private: Path) -> dict[str, str]:
    """Picture -> mask, keep or drop; the last decision holds."""
    return {entry["item"]: entry["value"] for entry in read_journal(private / DECISIONS)}


def undecided(private: Path) -> list[str]:
    """The pictures that seem to hold text and wait for a decision."""
    decided = read_decisions(private)
    return sorted(name for name, boxes in read_boxes(private).items() if boxes and name not in decided)


def blackened(private: Path) -> dict[str, list[Box]]:
    """Picture -> the regions that are shown black."""
    decided = read_decisions(private)
    return {name: boxes for name, boxes in read_boxes(private).items() if decided.get(name) == "mask"}


def without_text(
    cases: list[Candidate],
    choose: Callable[[list[Candidate]], tuple[list[Candidate], Counter[str]]],
    private: Path,
    sources: Sources,
) -> tuple[list[Candidate], Counter[str], dict[str, Any]]:
    """(chosen cases, how many fell to each limit, counts): the cases that `choose` takes once those whose pictures may hold a name are
    left out. Only the pictures of chosen cases are searched, each once; sets that `medprobe curate deidentify` made were searched there."""
    done = {dataset.name for dataset in sources.datasets if _searched(dataset)}
    boxes, decided = read_boxes(private), read_decisions(private)
    while True:
        held = {name for name, found in boxes.items() if found and decided.get(name, "drop") == "drop"}
        left = [case for case in cases if held.isdisjoint(name for name, _ in case.item.pictures)]
        chosen, limits = choose(left)
        shown = {name for case in chosen if case.item.dataset not in done for name, _ in case.item.pictures}
        fresh = sorted(shown - boxes.keys())
        if not fresh:
            break
        boxes |= _search(fresh, private)
    found = {name: boxes[name] for name in boxes if boxes[name]}
    decisions = Counter(decided[name] for name in found if name in decided)
    limits["burned-in text that nobody has decided about, or dropped"] = len(cases) - len(left)
    counts = {
        "searched": len(boxes), "with_text": len(found), "undecided": len(found.keys() - decided.keys()),
        "decisions": dict(decisions), "searched_by_deidentify": sorted(done),
    }  # fmt: skip
    return chosen, limits, counts


def _searched(dataset: SourceDataset) -> bool:
    """Whether `medprobe curate deidentify` made a dataset's pictures and looked for text in them; it does not look into volumes."""
    report = manifest_of(dataset.path).get("deidentification", {})
    return dataset.reader != "nifti" and bool(report.get("text", {}).get("searched"))


def _search(pictures: Iterable[str], private: Path) -> Mapping[str, list[Box]]:
    """Search pictures and put down where text was found; what was searched stays when the search is stopped."""
    found: dict[str, list[Box]] = {}
    with Journal(private / TEXTS) as journal:
        for name in tqdm(pictures, desc="looking for burned-in text", unit="picture", disable=None):
            with Image.open(private / PICTURES / f"{name}.png") as image:
                found[name] = find_text(image)
            journal.append({"picture": name, "boxes": [list(box) for box in found[name]]})
    return found
