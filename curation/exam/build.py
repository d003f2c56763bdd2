"""Choose the pairs of an exam and write them as a set in MediConfusion's format.

The pictures and drafts go through the same steps as those of `curate write` and `curate export`:
keyed names, groups by patient, the search for burned-in text, withdrawals.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from tqdm import tqdm

from curation.exam.pictures import crop_square, encode_picture, render_slice
from curation.exam.series import SourceSlice, read_slices
from curation.exam.tasks import TASKS, Proposal, Task, third
from curation.images.burned_in_text import find_text
from curation.images.file_names import DEIDENTIFICATION_REPORT, write_private_csv
from curation.mediconfusion_export import export_pairs
from curation.readers.consistency import Skip, count_skip_reasons
from curation.readers.pictures import relative_name
from curation.readers.pixels import Skipped
from curation.writing.categories import CATEGORIES_FILE
from curation.writing.question_writing import DRAFTS_FILE, FUNNEL_FILE
from dataset_builders.contents.pseudonyms import KEYED_IDS
from dataset_builders.errors import BadInput
from dataset_builders.files import temporary_folder, write_json

SIDE_LETTERS = "LRDGIS"
"""Lone letters that may mark a side: left and right, and their initials in French, Italian and
Spanish."""
SLICES_PER_THIRD = 3
"""Slices of each third of a series that are considered; more would only be searched for text."""
PROPOSALS_PER_PAIR = 20
"""Proposals looked at for each pair that is wanted: some are left out, some repeat."""


@dataclass(frozen=True)
class ExamPair:
    """An accepted pair: names of its pictures and their patients."""

    task: Task
    proposal: Proposal
    images: tuple[str, str]


@dataclass(frozen=True)
class ExamOutcome:
    """Number of pairs of each task, and what was left out."""

    pairs: dict[str, int]
    skips: list[Skip]


def build_exam(
    folder: Path,
    out: Path,
    tasks: Sequence[str] = tuple(TASKS),
    limit: int = 30,
    seed: int = 0,
    patient_pattern: str | None = None,
    body_part: str = "",
    search_text: bool = True,
) -> ExamOutcome:
    """Make an exam from a folder of DICOM and NIfTI files.

    Args:
        folder: the folder.
        out: folder to write, which must not exist; the files that were left out are listed beside
            it, for its owner only.
        tasks: names of `TASKS`.
        limit: maximum number of pairs of each task.
        seed: seed of the choice of slices, places and orders.
        patient_pattern: see `read_slices`.
        body_part: see `read_slices`.
        search_text: leave out pictures with burned-in text.

    Raises:
        BadInput: `out` exists, a task is unknown, or no pair can be made.
    """
    if out.exists():
        raise BadInput(f"{out}: already exists. Give another --out, or delete it.")
    if unknown := [name for name in tasks if name not in TASKS]:
        raise BadInput(f"--tasks: {unknown[0]!r} is not a task. Give some of {', '.join(TASKS)}.")
    slices, skips = read_slices(folder, patient_pattern, body_part)
    candidates = _thin_out(slices, np.random.default_rng(seed))

    @cache
    def load(source: SourceSlice) -> np.ndarray | Skipped:
        try:
            return render_slice(source)
        except Skipped as error:
            skips.append(Skip("exam", relative_name(source.path, folder), str(error)))
            return error

    @cache
    def has_text(source: SourceSlice, lone_letters: str) -> bool:
        picture = load(source)
        assert isinstance(picture, np.ndarray)
        if not find_text(Image.fromarray(picture), lone_letters):
            return False
        skips.append(Skip("exam", relative_name(source.path, folder), "may contain burned-in text"))
        return True

    def accept(task: Task, proposal: Proposal, rng: np.random.Generator) -> list[np.ndarray]:
        """Return both pictures of a pair; [] if a slice cannot be used."""
        # Lone letters are found unreliably, and most radiographs have one.
        if task.is_sided and any(source.modality == "X-ray" for source in proposal.slices):
            return []
        loaded = [load(source) for source in proposal.slices]
        pictures = [picture for picture in loaded if isinstance(picture, np.ndarray)]
        letters = SIDE_LETTERS if task.is_sided else ""
        if len(pictures) < len(loaded) or (
            search_text and any(has_text(source, letters) for source in proposal.slices)
        ):
            return []
        crop_seed = rng.integers(2**32)
        squares = [crop_square(picture, np.random.default_rng(crop_seed)) for picture in pictures]
        if proposal.change is None:
            return squares
        try:
            return list(proposal.change(squares[0], rng))
        except Skipped:
            return []

    pairs: list[ExamPair] = []
    with temporary_folder(out.absolute().parent, f".{out.name}-exam.") as work:
        (work / "images").mkdir()
        for name in tqdm(tasks, desc="making pairs", unit="task", disable=None):
            rng = np.random.default_rng([seed, list(TASKS).index(name)])
            made: set[tuple[str, str]] = set()
            for proposal in islice(TASKS[name].propose(candidates, rng), PROPOSALS_PER_PAIR * limit):
                encoded = [encode_picture(picture) for picture in accept(TASKS[name], proposal, rng)]
                # The task is part of the name: a picture has the category of one task.
                images = [f"{name}-{hashlib.sha256(data).hexdigest()[:32]}.png" for data in encoded]
                if len(set(images)) == 2 and (images[0], images[1]) not in made:
                    made.add((images[0], images[1]))
                    for image, data in zip(images, encoded, strict=True):
                        (work / "images" / image).write_bytes(data)
                    pairs.append(ExamPair(TASKS[name], proposal, (images[0], images[1])))
                if len(made) == limit:
                    break
        counts = Counter(pair.task.ability for pair in pairs)
        outcome = ExamOutcome({name: counts[TASKS[name].ability] for name in tasks}, skips)
        write_private_csv(
            out.with_name(f"{out.name}.left_out.csv"),
            sorted({(skip.subject, skip.reason) for skip in skips}),
            ("file", "reason"),
        )
        if not pairs:
            raise BadInput(
                f"{folder}: no pair could be made from {len(slices)} slices and pictures ({len(skips)} left out, "
                f"listed in {out}.left_out.csv). Give a folder of DICOM or NIfTI files, or other --tasks."
            )
        _write_drafts(work, pairs, outcome, np.random.default_rng([seed, len(TASKS)]), search_text)
        groups = {
            image: source.patient
            for pair in pairs
            for image, source in zip(pair.images, pair.proposal.slices * 2, strict=False)
        }
        table = pd.DataFrame({"image": list(groups), "group": list(groups.values())})
        export_pairs(out.name, work, work / "images", out, metadata=table, unreviewed=True, text_search=search_text)
    return outcome


def _thin_out(slices: Sequence[SourceSlice], rng: np.random.Generator) -> list[SourceSlice]:
    """Keep `SLICES_PER_THIRD` slices of each third of each series; patients in a random order."""
    ranks = {patient: rng.random() for patient in sorted({source.patient for source in slices})}
    kept: Counter[tuple[str, str, int, str]] = Counter()
    chosen = []
    for index in rng.permutation(len(slices)):
        source = slices[index]
        # A series of radiographs may hold several views.
        place = source.series, source.plane, third(source), source.view
        kept[place] += 1
        if kept[place] <= SLICES_PER_THIRD:
            chosen.append(source)
    return sorted(chosen, key=lambda source: ranks[source.patient])


def _write_drafts(
    work: Path, pairs: Sequence[ExamPair], outcome: ExamOutcome, rng: np.random.Generator, search_text: bool
) -> None:
    """Write the pairs as a folder of `curate write`, beside images as `curate deidentify` has them.

    In half of the pairs of each task, the first picture is answered by A.
    """
    rows: list[dict[str, Any]] = []
    letters: dict[str, list[str]] = {}
    for name, task in TASKS.items():
        count = outcome.pairs.get(name, 0)
        letters[task.ability] = list(
            rng.permutation(["A", "B"] * (count // 2) + list(rng.choice(["A", "B"], count % 2)))
        )
    for number, pair in enumerate(pairs):
        first, second = rng.permutation(2)
        letter = letters[pair.task.ability].pop()
        texts = (pair.proposal.options[first], pair.proposal.options[second])
        rows.append(
            {
                "pair_id": str(number), "question": pair.proposal.question,
                "image_1": pair.images[first], "image_2": pair.images[second],
                "caption_1": texts[0], "caption_2": texts[1],
                "option_A": texts[letter == "B"], "option_B": texts[letter == "A"],
                "correct_1": letter, "correct_2": "AB"[letter == "A"],
                "sim_med": 0.0, "sim_gen": 0.0,
            }
        )  # fmt: skip
    pd.DataFrame(rows).to_parquet(work / DRAFTS_FILE)
    categories = {image: [pair.task.ability] for pair in pairs for image in pair.images}
    write_json(work / CATEGORIES_FILE, {"images": categories})
    left_out = {reason: count for (_, reason), count in sorted(count_skip_reasons(outcome.skips).items())}
    write_json(work / FUNNEL_FILE, {"pairs": outcome.pairs, "left_out": left_out})
    if search_text:
        text = {"searched": True, "images_with_text": 0, "decisions": {}}
        report = {"made_by": "medprobe curate exam", "ids": KEYED_IDS, "method": METHOD, "text": text}
        write_json(work / DEIDENTIFICATION_REPORT, report | {"at": datetime.now(UTC).isoformat(timespec="seconds")})


METHOD = "of every slice only the pixels are used; slices with burned-in text are left out"
