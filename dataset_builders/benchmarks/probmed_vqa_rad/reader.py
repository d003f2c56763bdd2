"""Read the authors' layout of the VQA-RAD pairs: rows `image`, `question`, `gt_ans`, in turn yes and no (JSON list or JSON Lines)."""

from __future__ import annotations

from pathlib import Path

from dataset_builders.benchmarks.probmed.rows import ImageIndex, read_pairs
from dataset_builders.benchmarks.probmed_vqa_rad import PAPER_PAIRS
from dataset_builders.errors import BadInput, Problems
from dataset_builders.images.lookup import ImageFolders, own_images
from dataset_builders.schema import Content, Count
from dataset_builders.source_files import ORIGIN_MARKER, read_records

REMEDY = "Fix the entries: each question whose answer is yes is followed by its counterpart whose answer is no."


def read(source: Path, images: ImageFolders | None) -> Content:
    """The pairs of the question files right in the folder; a pair is a case.

    `images` is None in a text-only build. Raises BadInput listing every problem of the files.
    """
    problems = Problems()
    found = [file for file in sorted(source.glob("*.json*")) if file.suffix in (".json", ".jsonl")]
    files = [(file, read_records(file)) for file in found if file.name not in (ORIGIN_MARKER, "image_dict.json")]
    if not files:
        raise BadInput(f"{source}: holds no file of questions (a JSON list or JSON Lines of image, question, gt_ans).")
    index = ImageIndex(images, [row for _, rows in files for row in rows], own_images(source, problems))
    pairs = read_pairs(files, index, problems)
    problems.check(REMEDY)
    if not pairs:
        raise BadInput(f"{found[0]}: holds no pair of questions. {REMEDY}")
    return Content(cases={"test": pairs}, counts=[Count("pairs", len(pairs), PAPER_PAIRS)])
