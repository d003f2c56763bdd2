"""Read the authors' VQA-RAD pairs: rows of `image`, `question`, `gt_ans`, alternating yes and no
(JSON list or JSON Lines).
"""

from pathlib import Path
from typing import Any

from dataset_builders.benchmarks.probmed.reader import (
    YES_NO_OPTIONS,
    find_image,
    image_path,
    index_images,
    parse_yes_no,
)
from dataset_builders.benchmarks.probmed_vqa_rad import PAPER_PAIRS
from dataset_builders.errors import BadInput, Problems
from dataset_builders.images.lookup import ImageFolders, SourceImages
from dataset_builders.schema import Case, CaseImage, CountComparison, Question, SourceContent
from dataset_builders.source_files import ORIGIN_MARKER, SourceEntry, read_json_records

VQA_RAD_REMEDY = "Fix the entries: each question whose answer is yes is followed by its counterpart whose answer is no."


def read(source: Path, images: ImageFolders | None) -> SourceContent:
    """Read the pairs from the question files in the folder; a pair is a case.

    Args:
        source: the source folder.
        images: folders with images; None in a text-only build.

    Raises:
        BadInput: lists all problems of the files.
    """
    problems = Problems()
    paths = [file for file in sorted(source.glob("*.json*")) if file.suffix in (".json", ".jsonl")]
    files = [(file, read_json_records(file)) for file in paths if file.name not in (ORIGIN_MARKER, "image_dict.json")]
    if not files:
        raise BadInput(
            f"{source}: contains no file of questions (a JSON list or JSON Lines of image, question, gt_ans)."
        )

    pairs = _read_pairs(files, index_images(source, images, files, problems), problems)
    problems.check(VQA_RAD_REMEDY)
    if not pairs:
        raise BadInput(f"{paths[0]}: contains no pair of questions. {VQA_RAD_REMEDY}")
    return SourceContent(cases={"test": pairs}, counts=[CountComparison("pairs", len(pairs), PAPER_PAIRS)])


def _read_pairs(files: list[tuple[Path, list[Any]]], images: SourceImages, problems: Problems) -> list[Case]:
    """Pair each question answered yes with the adversarial counterpart that follows,
    answered no.
    """
    cases = []
    for file, rows in files:
        # The files have no pair ids: pairing relies on the order of the rows.
        if len(rows) % 2:
            problems.add(str(file), len(rows) - 1, "has no counterpart (rows come in pairs: yes, then no)")
        for position in range(0, len(rows) - 1, 2):
            case_id = f"vqa-rad-{position // 2}"
            pair = []
            for row, expected in ((position, 0), (position + 1, 1)):
                entry = SourceEntry(rows[row], str(file), row, problems)
                image = find_image(images, entry, image_path(entry.value))
                text, answer = entry.text("question"), parse_yes_no(entry)
                if answer is not None and answer != expected:
                    entry.add_problem(
                        f"its answer is {YES_NO_OPTIONS[answer]} where {YES_NO_OPTIONS[expected]} was expected (rows alternate)"
                    )
                if entry.ok and image is not None:
                    pair.append((text, image))
            if len(pair) == 2:
                cases.append(_parse_case(case_id, pair))

    return cases


def _parse_case(case_id: str, pair: list[tuple[str, CaseImage]]) -> Case:
    questions = [
        Question(
            question_id=f"{case_id}-{'hallu' if adversarial else 'gt'}",
            case_id=case_id,
            image_id=image.image_id,
            question=text,
            options=YES_NO_OPTIONS,
            answer=(int(adversarial),),
            question_type="yes_no",
            extra={"adversarial": adversarial, "pair_id": case_id},
        )
        for adversarial, (text, image) in zip((False, True), pair, strict=True)
    ]
    return Case(case_id, tuple(dict.fromkeys(image for _, image in pair)), tuple(questions))
