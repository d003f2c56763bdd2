"""Writes reviewed pairs in the official MediConfusion layout, which `medprobe build mediconfusion --as NAME --source
FOLDER` reads.

The folder holds dataset.json, statistics.json (images per category), images/<number><suffix>, image_dict.json (each
image's sha256, and its licence, source and PMC article where the table names them), and beside the official files:
manifest.json (what it is and how it was made), rejected.json (pairs not kept, with all scores), funnel.json (how many
fell at each stage).

See also: deciding what is kept (`review_log.py`).
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from curation.review.agreement import agreement
from curation.review.review_log import LOG, Pair, ReviewLog
from curation.writing.question_writing import FUNNEL, records
from dataset_builders.errors import BadInput
from dataset_builders.images.terms import allows_copies
from dataset_builders.temporary import temporary_folder

UNLABELLED = "Other"
"""Category of an image that has none: the official layout wants one, and `Other` is the paper's own (appendix A.2)."""


def export(
    name: str,
    questions: Path,
    images: Path,
    out: Path,
    search: Path | None = None,
    known: pd.DataFrame | None = None,
    unreviewed: bool = False,
) -> dict[str, Any]:
    """Write the kept pairs of a questions folder to `out` (which must not exist); returns the funnel.

    images: the folder that was embedded. search: the pairs' folder, for its counts. known: table of the images
    (license, source). unreviewed: export pairs that no one reviewed, too, and say so in the manifest (as the paper's
    MediConfusion-unfiltered, appendix E).
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise BadInput(f"export {name}: give a name of small letters, digits and hyphens.")
    if out.exists():
        raise BadInput(f"{out}: exists already. Give another --out, or delete it.")
    log = ReviewLog(questions)
    wanted = {"kept", "unreviewed"} if unreviewed else {"kept"}
    kept = {pair_id: pair for pair_id, pair in log.pairs.items() if pair.decision in wanted}
    if not kept:
        counts = Counter(pair.decision for pair in log.pairs.values())
        raise BadInput(
            f"{questions}: no pair is kept ({dict(counts)}). Review some with `medprobe curate review {questions}`."
        )
    numbers = {
        image: number
        for number, image in enumerate(
            sorted({pair.draft[side] for pair in kept.values() for side in ("image_1", "image_2")}), 1
        )
    }
    missing = [image for image in numbers if not (images / image).is_file()]
    if missing:
        raise BadInput(
            f"--images {images}: {missing[0]} and {len(missing) - 1} more of {len(numbers)} images are not there. "
            "Give the folder that was embedded."
        )
    funnel = _funnel(log, questions, search, len(kept))
    out.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(out.parent, f".{out.name}.") as work:
        _write(work, name, log, kept, numbers, images, known, funnel, unreviewed)
        work.chmod(0o755)
        work.rename(out)
    return funnel


def _write(
    work: Path,
    name: str,
    log: ReviewLog,
    kept: dict[str, Pair],
    numbers: dict[str, int],
    images: Path,
    known: pd.DataFrame | None,
    funnel: dict[str, Any],
    unreviewed: bool,
) -> None:
    (work / "images").mkdir()
    about = {} if known is None else {row["image"]: row for row in records(known)}
    shas, places = {}, {}
    for image, number in numbers.items():
        target = work / "images" / f"{number}{Path(image).suffix.lower()}"
        shutil.copyfile(images / image, target)
        shas[target.name] = hashlib.sha256(target.read_bytes()).hexdigest()
        places[image] = _place(image, number, shas[target.name], about.get(image, {}))
    dataset = {pair_id: _entry(pair, numbers) for pair_id, pair in kept.items()}
    labels: Counter[str] = Counter()
    for entry in dataset.values():
        for number in (1, 2):
            for category in entry[f"category_{number}"]:
                labels[category] += 1
    manifest = {
        "name": name,
        "format": "mediconfusion",
        "made_by": "medprobe curate export",
        "reviewed": not unreviewed,
        "pairs": len(dataset),
        "images": shas,
        "image_of": {
            str(number): {"name": image, **{name: places[image].get(name, "unknown") for name in ("license", "source")}}
            for image, number in numbers.items()
        },
        "reviewers": sorted({reviewer for pair in log.pairs.values() for reviewer in pair.reviews}),
        "agreement": asdict(agreement(log.scores())),
    }
    _json(work / "dataset.json", dataset)
    _json(work / "statistics.json", dict(labels.most_common()))
    _json(work / "image_dict.json", places)
    _json(
        work / "rejected.json", {pair_id: _rejected(pair) for pair_id, pair in log.pairs.items() if pair_id not in kept}
    )
    _json(work / "funnel.json", funnel)
    _json(work / "manifest.json", manifest)
    if (log.folder / LOG).is_file():
        shutil.copyfile(log.folder / LOG, work / LOG)


def _entry(pair: Pair, numbers: dict[str, int]) -> dict[str, Any]:
    """A pair as dataset.json has it."""
    draft = pair.draft
    entry: dict[str, Any] = {}
    for number in (1, 2):
        image = draft[f"image_{number}"]
        entry |= {
            f"im_{number}": image,
            f"im_{number}_local": numbers[image],
            f"cap_{number}": draft[f"caption_{number}"],
            f"category_{number}": (pair.categories_1, pair.categories_2)[number - 1] or [UNLABELLED],
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


def _rejected(pair: Pair) -> dict[str, Any]:
    draft = pair.draft
    return {
        "decision": pair.decision,
        "im_1": draft["image_1"],
        "im_2": draft["image_2"],
        "question": pair.question,
        "option_A": pair.option_A,
        "option_B": pair.option_B,
        "reviews": {reviewer: asdict(review) for reviewer, review in pair.reviews.items()},
    }


def _place(image: str, number: int, sha256: str, row: dict[str, Any]) -> dict[str, Any]:
    """An image's entry in image_dict.json: the authors' fields where its source names a PMC article, and what the table
    says of it.

    ROCO writes `PMC4608653_cro-0008-0385-g01.jpg`: the article and the file in it.
    """
    place: dict[str, Any] = {"local": number, "sha256": sha256}
    place |= {name: row[name] for name in ("license", "source") if row.get(name)}
    if re.search(r"PMC\d+", row.get("source", "")):
        named = re.fullmatch(r"PMC\d+_(\S+\.\w+)", row["source"])
        place |= {"dlink": row["source"], "file_name": named[1] if named else Path(image).name}
    return place


def without_licence(folder: Path) -> list[str]:
    """The images of an exported folder whose licence is unknown or lets nobody pass copies on."""
    document = json.loads((folder / "image_dict.json").read_text(encoding="utf-8"))
    return [image for image, place in document.items() if not allows_copies(place.get("license"))]


def _funnel(log: ReviewLog, questions: Path, search: Path | None, exported: int) -> dict[str, Any]:
    """Counts of every stage whose folder is at hand."""
    funnel: dict[str, Any] = {}
    if search is not None:
        if not (search / "report.json").is_file():
            raise BadInput(f"--pairs {search}: holds no report.json. Give the folder of `medprobe curate pairs`.")
        report = json.loads((search / "report.json").read_text())
        funnel["search"] = {"images": report["images"], **report["counts"]}
    if (questions / FUNNEL).is_file():
        funnel["questions"] = json.loads((questions / FUNNEL).read_text())
    decisions = Counter(pair.decision for pair in log.pairs.values())
    edited = sum(
        (pair.question, pair.option_A, pair.option_B)
        != tuple(pair.draft[name] for name in ("question", "option_A", "option_B"))
        for pair in log.pairs.values()
    )
    funnel["review"] = {"drafts": len(log.pairs), **dict(sorted(decisions.items())), "edited": edited}
    funnel["exported"] = exported
    return funnel


def _json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=4, ensure_ascii=False) + "\n", encoding="utf-8")
