"""Write reviewed pairs in the official MediConfusion layout.

`medprobe build mediconfusion --as NAME --source FOLDER` reads the folder, which contains

    dataset.json        the pairs, in the format of the official release
    statistics.json     number of images per category
    images/             the images
    image_dict.json     sha256 of each image; licence, source and group if the table has them
    manifest.json       what the set is and how it was made
    reviews.jsonl       the reviewers' changes to the exported pairs
    funnel.json         number of pairs dropped at each stage

Images, pairs and groups are identified by keyed hashes; the key is stored next to the folder.

See also: the rules by which pairs are kept (`review/review.py`).
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from curation.images.set_images import withdrawn_images, write_custom_set
from curation.review.review import Pair, ReviewLog, compute_agreement
from curation.writing.question_writing import FUNNEL_FILE, REVIEWS_FILE
from dataset_builders.contents.pseudonyms import load_pseudonyms
from dataset_builders.errors import BadInput
from dataset_builders.files import encode_entry, read_journal, write_json
from dataset_builders.images.licences import allows_redistribution

DEFAULT_CATEGORY = "Other"
"""Category of an uncategorized image: the official layout requires one; `Other` is from the paper
(appendix A.2)."""


def export_pairs(
    name: str,
    questions: Path,
    images: Path,
    out: Path,
    search: Path | None = None,
    metadata: pd.DataFrame | None = None,
    unreviewed: bool = False,
    text_search: bool = True,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Write the kept pairs of a questions folder to a new folder.

    Args:
        name: name of the benchmark.
        questions: questions folder (drafts and reviews).
        images: folder of the images that were embedded.
        out: folder to write; it must not exist.
        search: folder of the pair search, for its counts.
        metadata: table of the images, for licence, source and group.
        unreviewed: also export pairs without a review, and say so in the manifest (as the paper's
            MediConfusion-unfiltered, appendix E).
        text_search: search the images for burned-in text.
        notes: sentences for the dataset's card.

    Returns:
        The funnel: number of pairs at each stage.

    Raises:
        BadInput: no pair is kept, or `search` is not a search folder.
    """
    log = ReviewLog(questions)
    decisions = {"kept", "unreviewed"} if unreviewed else {"kept"}
    draft_images = {pair.draft[side] for pair in log.pairs.values() for side in ("image_1", "image_2")}
    # Leave out patients who withdrew after the images were embedded.
    withdrawn = withdrawn_images(draft_images, images, metadata, out)
    exported = {
        pair_id: pair
        for pair_id, pair in log.pairs.items()
        if pair.decision in decisions
        and not withdrawn
        & {
            pair.draft["image_1"],
            pair.draft["image_2"],
        }
    }
    if not exported:
        counts = Counter(pair.decision for pair in log.pairs.values())
        raise BadInput(
            f"{questions}: no pair is kept ({dict(counts)}). Review some with `medprobe curate review {questions}`."
        )

    funnel = _collect_funnel(log, questions, search, len(exported))
    exported_images = {pair.draft[side] for pair in exported.values() for side in ("image_1", "image_2")}
    reviewers = sorted({reviewer for pair in log.pairs.values() for reviewer in pair.reviews})

    def write_files(
        work: Path,
        names: dict[str, str],
        origins: dict[str, dict[str, str]],
    ) -> dict[str, Any]:
        origins |= {name: {"local": Path(name).stem, **origin} for name, origin in origins.items()}
        pseudonyms = load_pseudonyms(out)
        # The row numbers of a draft's id would reveal the order of the source images.
        pair_ids = {
            pair_id: pseudonyms.id_for("p", f"{pair.draft['image_1']}\0{pair.draft['image_2']}")
            for pair_id, pair in exported.items()
        }
        dataset = {pair_ids[pair_id]: _pair_entry(pair, names) for pair_id, pair in exported.items()}
        write_json(work / "dataset.json", dataset)
        write_json(work / "statistics.json", category_counts(dataset))
        write_json(work / "funnel.json", funnel)

        changes = [
            change | {"item": pair_ids[change["item"]]}
            for change in read_journal(questions / REVIEWS_FILE)
            if change["item"] in pair_ids
        ]
        (work / REVIEWS_FILE).write_bytes(b"".join(map(encode_entry, changes)))
        return {
            "pairs": len(dataset),
            "reviewers": reviewers,
            "agreement": asdict(compute_agreement(log.scores())),
            "notes": list(notes),
        }

    write_custom_set(
        out,
        "mediconfusion",
        images,
        exported_images,
        metadata,
        write_files,
        name,
        not unreviewed,
        text_search,
    )
    return funnel


def category_counts(dataset: Mapping[str, Any]) -> dict[str, int]:
    """Count the images of each category over the entries of dataset.json, most frequent first."""
    labels = Counter(name for entry in dataset.values() for number in (1, 2) for name in entry[f"category_{number}"])
    return dict(labels.most_common())


def _pair_entry(pair: Pair, names: dict[str, str]) -> dict[str, Any]:
    """Build the entry of dataset.json for a pair."""
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
    """List the images of an exported folder whose licence is unknown or forbids redistribution."""
    document = json.loads((folder / "image_dict.json").read_text(encoding="utf-8"))
    return [image for image, origin in document.items() if not allows_redistribution(origin.get("license"))]


def _collect_funnel(
    log: ReviewLog,
    questions: Path,
    search: Path | None,
    exported: int,
) -> dict[str, Any]:
    """Collect the counts of every stage whose folder exists."""
    funnel: dict[str, Any] = {}
    if search is not None:
        if not (search / "report.json").is_file():
            raise BadInput(
                f"--pairs {search}: contains no report.json. Give the folder of `medprobe curate pairs`.",
            )
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
    funnel["review"] = {
        "drafts": len(log.pairs),
        **dict(sorted(decisions.items())),
        "edited": edited,
    }
    funnel["exported"] = exported
    return funnel
