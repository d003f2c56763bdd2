"""Write reviewed pairs in the official MediConfusion layout, which `medprobe build mediconfusion --as NAME --source
FOLDER` reads.

The folder holds dataset.json, statistics.json (images per category), images/, image_dict.json (each image's sha256, and its licence,
source and group where the table names them), and beside the official files: manifest.json (what it is and how it was
made), reviews.jsonl (what reviewers said of its pairs), funnel.json (how many fell at each stage). Images, pairs and groups go by keyed
hashes; the key lies beside the folder.

See also: deciding what is kept (`review_log.py`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from curation.images.set_images import withdrawn_images, write_custom_set
from curation.review.review_log import Pair, ReviewLog, compute_agreement
from curation.writing.question_writing import FUNNEL_FILE, REVIEWS_FILE
from dataset_builders.contents.pseudonyms import load_pseudonyms
from dataset_builders.errors import BadInput
from dataset_builders.files import write_json
from dataset_builders.images.licences import allows_redistribution
from dataset_builders.journal import encode_entry, read_journal

DEFAULT_CATEGORY = "Other"
"""Category of an image that has none: the official layout wants one, and `Other` is the paper's own (appendix A.2)."""


def export_pairs(
    name: str,
    questions: Path,
    images: Path,
    out: Path,
    search: Path | None = None,
    known: pd.DataFrame | None = None,
    unreviewed: bool = False,
    text_search: bool = True,
) -> dict[str, Any]:
    """Write the kept pairs of a questions folder to `out` (which must not exist); returns the funnel.

    images: the folder that was embedded. search: the pairs' folder, for its counts. known: table of the images
    (license, source). unreviewed: export pairs that no one reviewed, too, and say so in the manifest (as the paper's
    MediConfusion-unfiltered, appendix E).
    """
    log = ReviewLog(questions)
    wanted = {"kept", "unreviewed"} if unreviewed else {"kept"}
    of_pairs = {pair.draft[side] for pair in log.pairs.values() for side in ("image_1", "image_2")}
    gone = withdrawn_images(of_pairs, images, known, out)
    kept = {
        pair_id: pair
        for pair_id, pair in log.pairs.items()
        if pair.decision in wanted and not gone & {pair.draft["image_1"], pair.draft["image_2"]}
    }
    if not kept:
        counts = Counter(pair.decision for pair in log.pairs.values())
        raise BadInput(
            f"{questions}: no pair is kept ({dict(counts)}). Review some with `medprobe curate review {questions}`."
        )
    funnel = _collect_funnel(log, questions, search, len(kept))
    used = {pair.draft[side] for pair in kept.values() for side in ("image_1", "image_2")}

    reviewers = sorted({reviewer for pair in log.pairs.values() for reviewer in pair.reviews})

    def write(work: Path, names: dict[str, str], origins: dict[str, dict[str, str]]) -> dict[str, Any]:
        origins |= {name: {"local": Path(name).stem, **origin} for name, origin in origins.items()}
        pseudonyms = load_pseudonyms(out)
        ids = {
            pair_id: pseudonyms.id_for("p", f"{pair.draft['image_1']}\0{pair.draft['image_2']}")
            for pair_id, pair in kept.items()
        }
        dataset = {ids[pair_id]: _pair_entry(pair, names) for pair_id, pair in kept.items()}
        write_json(work / "dataset.json", dataset)
        write_json(work / "statistics.json", category_counts(dataset))
        write_json(work / "funnel.json", funnel)
        changes = [
            each | {"item": ids[each["item"]]} for each in read_journal(questions / REVIEWS_FILE) if each["item"] in ids
        ]
        (work / REVIEWS_FILE).write_bytes(b"".join(map(encode_entry, changes)))
        return {"pairs": len(dataset), "reviewers": reviewers, "agreement": asdict(compute_agreement(log.scores()))}

    write_custom_set(out, "mediconfusion", images, used, known, write, name, not unreviewed, text_search)
    return funnel


def category_counts(dataset: Mapping[str, Any]) -> dict[str, int]:
    """Category -> number of images, of the entries of dataset.json."""
    labels = Counter(name for entry in dataset.values() for number in (1, 2) for name in entry[f"category_{number}"])
    return dict(labels.most_common())


def _pair_entry(pair: Pair, names: dict[str, str]) -> dict[str, Any]:
    """A pair as dataset.json has it."""
    draft = pair.draft
    entry: dict[str, Any] = {}
    for number in (1, 2):
        image = names[draft[f"image_{number}"]]
        entry |= {
            f"im_{number}": image,
            f"im_{number}_local": Path(image).stem,
            f"cap_{number}": draft[f"caption_{number}"],
            f"category_{number}": (pair.categories_1, pair.categories_2)[number - 1] or [DEFAULT_CATEGORY],
            f"im_{number}_correct": draft[f"correct_{number}"],
        }
    return entry | {
        "BiomedCLIP_sim": draft["sim_med"],
        "DINO_sim": draft["sim_gen"],
        "question": pair.question,
        "option_A": pair.option_A,
        "option_B": pair.option_B,
        "AI_question": draft["question"],
        "AI_option_A": draft["option_A"],
        "AI_option_B": draft["option_B"],
    }


def images_without_licence(folder: Path) -> list[str]:
    """The images of an exported folder whose licence is unknown or does not permit redistribution."""
    document = json.loads((folder / "image_dict.json").read_text(encoding="utf-8"))
    return [image for image, origin in document.items() if not allows_redistribution(origin.get("license"))]


def _collect_funnel(log: ReviewLog, questions: Path, search: Path | None, exported: int) -> dict[str, Any]:
    """Counts of every stage whose folder exists."""
    funnel: dict[str, Any] = {}
    if search is not None:
        if not (search / "report.json").is_file():
            raise BadInput(f"--pairs {search}: holds no report.json. Give the folder of `medprobe curate pairs`.")
        report = json.loads((search / "report.json").read_text())
        funnel["search"] = {"images": report["images"], **report["counts"]}
    if (questions / FUNNEL_FILE).is_file():
        funnel["questions"] = json.loads((questions / FUNNEL_FILE).read_text())
    decisions = Counter(pair.decision for pair in log.pairs.values())
    edited = sum(
        (pair.question, pair.option_A, pair.option_B)
        != tuple(pair.draft[name] for name in ("question", "option_A", "option_B"))
        for pair in log.pairs.values()
    )
    funnel["review"] = {"drafts": len(log.pairs), **dict(sorted(decisions.items())), "edited": edited}
    funnel["exported"] = exported
    return funnel
