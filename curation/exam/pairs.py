"""Choose the pairs of an exam and write them as a set in MediConfusion's format.

The pictures and drafts go through the same steps as those of `curate write` and `curate export`:
keyed names, groups by patient, the search for burned-in text, withdrawals.

Pictures are square, of one size and one file length, with a black frame. Both of a pair go through
one path (crop, resampling, the change, the frame), so that neither border nor size nor compression
tells the answer.
"""

import hashlib
import io
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from tqdm import tqdm

from curation.exam.exam_tasks import SIZE_PX, TASKS, Proposal, third
from curation.exam.series import SourceSlice, read_slices
from curation.images.privacy import DEIDENTIFICATION_REPORT, find_text, write_private_csv
from curation.mediconfusion_export import export_pairs
from curation.readers.dataset import WINDOWS
from curation.readers.pictures import Skip, count_skip_reasons, is_volume, relative_name, skip_from_error
from curation.readers.pixels import Skipped, read_frame, resample_square, to_grey
from curation.readers.volumes import read_oriented
from curation.writing.captions import CATEGORIES_FILE
from curation.writing.question_writing import DRAFTS_FILE, FUNNEL_FILE
from dataset_builders.contents.pseudonyms import KEYED_IDS
from dataset_builders.errors import BadInput
from dataset_builders.files import temporary_folder, write_json

SIDE_LETTERS = "LRDG"
"""Lone letters that may mark a side: left, right, and French and Italian initials."""
PROPOSALS_PER_PAIR = 20
"""Maximum number of proposals tried per pair, since some are left out and some repeat."""
FRAME_PX = 8
"""Width of a picture's black frame."""
MIN_CROP = 0.9
"""Smallest part of a slice's square that a picture shows, as a share of its side."""
MIN_GREY_LEVELS, MAX_FLAT_SHARE = 32, 0.8
"""Minimum number of grey levels (empty slices have fewer), and maximum share of pixels that equal
their left neighbours (label maps have more)."""

AcceptedPair = tuple[str, Proposal, list[str]]
"""The name of a task, a pair, and the names of its two pictures."""


def build_exam(
    folder: Path,
    out: Path,
    tasks: Sequence[str] = tuple(TASKS),
    limit: int = 30,
    seed: int = 0,
    patient_pattern: str | None = None,
    body_part: str = "",
    search_text: bool = True,
) -> tuple[dict[str, int], list[Skip]]:
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

    Returns:
        Number of pairs of each task, and what was left out.

    Raises:
        BadInput: `out` exists, a task is unknown, or no pair can be made.
    """
    if out.exists():
        raise BadInput(f"{out}: already exists. Give another --out, or delete it.")
    if unknown := [name for name in tasks if name not in TASKS]:
        raise BadInput(f"--tasks: {unknown[0]!r} is not a task. Give some of {', '.join(TASKS)}.")
    slices, skips = read_slices(folder, patient_pattern, body_part)
    candidates = _thin_out(slices, limit, np.random.default_rng(seed))

    def list_skip(source: SourceSlice, error: Skipped) -> None:
        skips.append(skip_from_error("exam", relative_name(source.path, folder), error))

    @cache
    def load(source: SourceSlice) -> np.ndarray | None:
        """Return the square of a slice, or list why it cannot be used."""
        try:
            return _render_slice(source, search_text)
        except Skipped as error:
            list_skip(source, error)
            return None

    pairs: list[AcceptedPair] = []
    with temporary_folder(out.absolute().parent, f".{out.name}-exam.") as work:
        (work / "images").mkdir()
        for name in tqdm(tasks, desc="making pairs", unit="task", disable=None):
            # A state of its own per task: leaving out one task does not change the others.
            rng = np.random.default_rng([seed, list(TASKS).index(name)])
            asked_slices: set[tuple[SourceSlice, ...]] = set()
            for proposal in islice(TASKS[name].propose(candidates, rng), PROPOSALS_PER_PAIR * limit):
                if len(asked_slices) == limit:
                    break
                if proposal.slices in asked_slices:
                    continue
                squares = [load(source) for source in proposal.slices]
                try:
                    pictures = _make_pictures(proposal, squares, rng)
                except Skipped as error:
                    list_skip(proposal.slices[0], error)
                    continue
                if pictures:
                    asked_slices.add(proposal.slices)
                    pairs.append((name, proposal, [_write_picture(work, name, picture) for picture in pictures]))

        # Written even if no pair could be made, since it says why.
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
        counts = Counter(name for name, _, _ in pairs)
        pair_counts = {name: counts[name] for name in tasks}
        left_out = {reason: count for (_, reason), count in sorted(count_skip_reasons(skips).items())}
        write_json(work / FUNNEL_FILE, {"pairs": pair_counts, "left_out": left_out})
        _write_drafts(work, pairs, np.random.default_rng([seed, len(TASKS)]))
        if search_text:
            # With this report, `export_pairs` does not search the pictures again.
            text = {"searched": True, "images_with_text": 0, "decisions": {}}
            report = {"made_by": "medprobe curate exam", "ids": KEYED_IDS, "method": METHOD, "text": text}
            write_json(work / DEIDENTIFICATION_REPORT, report | {"at": datetime.now(UTC).isoformat(timespec="seconds")})
        groups = {
            image: source.patient
            for _, proposal, images in pairs
            for image, source in zip(images, proposal.slices * 2, strict=False)
        }
        table = pd.DataFrame({"image": list(groups), "group": list(groups.values())})
        export_pairs(
            out.name, work, work / "images", out, None, table, unreviewed=True, text_search=search_text, notes=NOTES
        )
    return pair_counts, skips


def _thin_out(slices: Sequence[SourceSlice], limit: int, rng: np.random.Generator) -> list[SourceSlice]:
    """Keep a few slices of each third of each series, in a random order of patients.

    The pairs need no more, and every slice used must be searched for text.
    """
    ranks = {patient: rng.random() for patient in sorted({source.patient for source in slices})}
    max_per_third = 1 + 2 * limit // max(len(ranks), 1)
    counts: Counter[tuple[str, str, int, str]] = Counter()
    chosen = []
    for index in rng.permutation(len(slices)):
        source = slices[index]
        # A series of radiographs may hold several views.
        place = source.series, source.plane, third(source), source.view
        counts[place] += 1
        if counts[place] <= max_per_third:
            chosen.append(source)
    return sorted(chosen, key=lambda source: ranks[source.patient])


def _make_pictures(
    proposal: Proposal, squares: Sequence[np.ndarray | None], rng: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Return both pictures of a proposal; () if a slice cannot be used. Raises Skipped as its
    `change` does.
    """
    # The same cut for both pictures, so that it tells nothing about the answer.
    crop_seed = rng.integers(2**32)
    pictures = [_crop_square(square, np.random.default_rng(crop_seed)) for square in squares if square is not None]
    if len(pictures) < len(squares):
        return ()
    return proposal.change(pictures[0], rng) if proposal.change else tuple(pictures)


def _write_drafts(work: Path, pairs: Sequence[AcceptedPair], rng: np.random.Generator) -> None:
    """Write the pairs as a folder of `curate write`, beside images as `curate deidentify` has them.

    In half of the pairs of each task, the first picture is answered by A.
    """
    letters: dict[str, list[str]] = {}
    for name, count in Counter(name for name, _, _ in pairs).items():
        odd_letter = rng.choice(["A", "B"], count % 2)
        letters[name] = list(rng.permutation([*["A", "B"] * (count // 2), *odd_letter]))
    rows: list[dict[str, Any]] = []
    for name, proposal, images in pairs:
        # The picture of the first option must not always come first.
        order, letter = rng.permutation(2), letters[name].pop()
        options = [proposal.options[index] for index in order]
        rows.append(
            {
                "pair_id": str(len(rows)), "question": proposal.question,
                "image_1": images[order[0]], "image_2": images[order[1]],
                "caption_1": options[0], "caption_2": options[1],
                "option_A": options["AB".index(letter)], "option_B": options["BA".index(letter)],
                "correct_1": letter, "correct_2": "BA"["AB".index(letter)],
                "sim_med": 0.0, "sim_gen": 0.0,
            }
        )  # fmt: skip
    pd.DataFrame(rows).to_parquet(work / DRAFTS_FILE)
    categories = {image: [TASKS[name].ability] for name, _, images in pairs for image in images}
    write_json(work / CATEGORIES_FILE, {"images": categories})


METHOD = "of every slice only the pixels are used; slices with burned-in text are left out"
NOTES = (
    "Exam: the keys follow from headers and geometry, see docs/exam.md of medprobe.",
    "No encoder compared the images: sim_med and sim_gen are 0.",
)


def _render_slice(source: SourceSlice, search_text: bool) -> np.ndarray:
    """Render the central square of a slice in radiological view.

    CT is shown in the soft tissue window, other DICOM images in their own, NIfTI from the 0.5th to
    the 99.5th percentile.

    Returns:
        Square uint8 array, large enough for `_crop_square` not to enlarge it.

    Raises:
        Skipped: it cannot be decoded, is in colour, is empty, is a label map, or has text.
    """
    if is_volume(source.path):
        values, _, spacing = _read_volume(source.path, source.plane)
        grey = resample_square(to_grey(values[source.index]), spacing)
    else:
        window = WINDOWS["soft tissue"] if source.modality == "CT" else None
        pixels, _ = read_frame(source.path, window, [])
        if np.ptp(pixels, axis=2).any():
            raise Skipped("is in colour")
        grey = pixels[..., 0]
    is_flat = (grey[:, 1:] == grey[:, :-1])[grey[:, 1:] > 0]
    if len(np.unique(grey)) < MIN_GREY_LEVELS or is_flat.mean() > MAX_FLAT_SHARE:
        raise Skipped("is empty or a label map")
    side = min(grey.shape)
    corner = ((grey.shape[1] - side) / 2, (grey.shape[0] - side) / 2)
    square = _resize(grey, round(SIZE_PX / MIN_CROP), (*corner, corner[0] + side, corner[1] + side))
    # Most radiographs have a lone letter; no question about sides uses radiographs.
    letters = "" if source.modality == "X-ray" else SIDE_LETTERS
    if search_text and find_text(Image.fromarray(square), letters):
        raise Skipped("may contain burned-in text")
    return square


_read_volume = lru_cache(maxsize=2)(read_oriented)
"""Consecutive slices are often of the same volume."""


def _crop_square(square: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Cut a random smaller square out of a square and resample it to `SIZE_PX`.

    Args:
        square: from `_render_slice`.
        rng: draws size and place; equal states cut equal squares.
    """
    side = rng.uniform(MIN_CROP, 1) * len(square)
    corner = rng.uniform(0, len(square) - side, 2)
    return _resize(square, SIZE_PX, (*corner, *(corner + side)))


def _resize(grey: np.ndarray, size_px: int, box: tuple[float, float, float, float]) -> np.ndarray:
    """Resample the part of a picture in a box (left, top, right, bottom) to a square."""
    return np.array(Image.fromarray(grey).resize((size_px, size_px), Image.Resampling.BILINEAR, box))


def _write_picture(work: Path, task: str, picture: np.ndarray) -> str:
    """Write a picture with its frame as an uncompressed PNG: every file has the same length.

    Returns:
        The name of the file: the task, since a picture has the category of one task, and a hash.
    """
    # The frame hides what resampling, blur or noise leave at the edges.
    framed = np.zeros_like(picture)
    inner = slice(FRAME_PX, -FRAME_PX)
    framed[inner, inner] = picture[inner, inner]
    buffer = io.BytesIO()
    Image.fromarray(framed).save(buffer, "PNG", compress_level=0)
    name = f"{task}-{hashlib.sha256(buffer.getvalue()).hexdigest()}.png"
    (work / "images" / name).write_bytes(buffer.getvalue())
    return name
