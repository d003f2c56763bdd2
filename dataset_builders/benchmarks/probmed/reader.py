"""Read ProbMed: a JSON file of yes/no questions (id, image, image_type, qa_type, question, answer).

See also: the weights of the authors' scorer (`eval_harness/benchmarks/probmed.py`).
"""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from dataset_builders.benchmarks.probmed import PAPER_IMAGES, PAPER_QUESTIONS
from dataset_builders.errors import BadInput, Problems, clip
from dataset_builders.images.lookup import ImageFolders, SourceImages, read_image_records
from dataset_builders.schema import (
    ASPECTS,
    Case,
    CaseImage,
    CountComparison,
    Question,
    SourceContent,
)
from dataset_builders.source_files import ORIGIN_MARKER, SourceEntry, read_json_records

PAPER_IMAGE_TYPES: dict[str, tuple[int, int, int]] = {
    "abdomen_mri": (84, 757, 375),
    "brain_mri": (566, 5046, 2509),
    "chest_mri": (40, 382, 189),
    "spine_mri": (324, 3346, 1664),
    "abdomen_ct": (751, 6855, 3410),
    "brain_ct": (270, 2417, 1200),
    "chest_ct": (548, 5161, 2572),
    "spine_ct": (87, 941, 470),
    "abdomen_xray": (232, 2046, 1018),
    "brain_xray": (79, 599, 298),
    "chest_xray": (3178, 27530, 13278),
    "spine_xray": (202, 2052, 1020),
}
"""Table 2: images, questions, and questions with answer "yes" per image type.

The image rows add up to 6,361; the table's total is 6,303.
"""

YES_NO_OPTIONS = ("yes", "no")
PROBMED_REMEDY = "Fix the entries, or get the file again from rippleripple/ProbMed."


def read(source: Path, images: ImageFolders | None) -> SourceContent:
    """Read the questions; all questions on one image are a case.

    Args:
        source: the source folder.
        images: folders with images; None in a text-only build.

    Raises:
        BadInput: lists all problems of the files.
    """
    problems = Problems()
    files = _read_question_files(source)
    cases = _parse_cases(files, index_images(source, images, files, problems), problems)
    problems.check(PROBMED_REMEDY)
    return SourceContent(cases={"test": cases}, counts=_compare_counts(cases))


def _read_question_files(source: Path) -> list[tuple[Path, list[Any]]]:
    """Read the files with `qa_type` in the folder or in its `test` folder."""
    paths = [
        *source.glob("*.json"),
        *source.glob("*.jsonl"),
        *source.glob("test/*.json"),
        *source.glob("test/*.jsonl"),
    ]
    # JSON files that builds, curation and the Hub put beside the questions.
    other_files = (ORIGIN_MARKER, "dataset_info.json", "image_dict.json", "manifest.json")
    records = [(file, read_json_records(file)) for file in sorted(paths) if file.name not in other_files]
    files = [(file, rows) for file, rows in records if any(isinstance(row, dict) and "qa_type" in row for row in rows)]
    if not files:
        raise BadInput(
            f"{source}: no file of questions found (a JSON list with id, image, image_type, qa_type, question, answer). Get "
            "probmed.json (or test/test.json) from rippleripple/ProbMed."
        )

    return files


def _parse_cases(files: list[tuple[Path, list[Any]]], source_images: SourceImages, problems: Problems) -> list[Case]:
    questions: dict[str, list[Question]] = {}
    images: dict[str, CaseImage] = {}
    seen: set[str] = set()

    # The authors' files do not say whether ids are unique across image types.
    by_type = _ids_restart_per_type(files)
    for file, rows in files:
        for position, row in enumerate(rows):
            entry = SourceEntry(row, str(file), position, problems)
            case_id = entry.text("id")
            if case_id:
                entry.name = f"{position} (id {case_id})"
            if by_type:
                case_id = f"{entry.text('image_type')}-{case_id}"
            image = find_image(source_images, entry, case_id)
            question = _parse_question(entry, case_id, image)
            if question is None or image is None:
                continue
            if question.question_id in seen:
                entry.add_problem(f"the qa_type {entry.text('qa_type')!r} occurs twice for this image")
                continue
            first_question = questions.get(case_id, [question])[0]
            if (
                images.setdefault(case_id, image) != image
                or first_question.extra["image_type"] != question.extra["image_type"]
            ):
                entry.add_problem("its image or image type differs from that of the image's other questions")
                continue
            seen.add(question.question_id)
            questions.setdefault(case_id, []).append(question)

    return [Case(case_id, (images[case_id],), _keep_complete_pairs(group)) for case_id, group in questions.items()]


def _ids_restart_per_type(files: list[tuple[Path, list[Any]]]) -> bool:
    """Return True if ids restart in each image type, which the authors' scorer allows.

    This is so if an id has different images in different types; images are then named by type and
    id.
    """
    images_by_id: dict[Any, set[tuple[str, str]]] = {}
    for row in (row for _, rows in files for row in rows if isinstance(row, dict)):
        if isinstance(row.get("id"), (str, int)):
            images_by_id.setdefault(row["id"], set()).add((str(row.get("image_type")), image_path(row)))

    return any(
        len({kind for kind, _ in paths}) == len({path for _, path in paths}) == len(paths) > 1
        for paths in images_by_id.values()
    )


def _parse_question(entry: SourceEntry, case_id: str, image: CaseImage | None) -> Question | None:
    kind, text, image_type = entry.text("qa_type"), entry.text("question"), entry.text("image_type")
    answer = parse_yes_no(entry)
    aspect, adversarial, pair = _parse_qa_type(entry, kind)
    if image_type and "_" not in image_type:
        entry.add_problem(f'"image_type" {image_type!r} is not ORGAN_MODALITY (such as chest_xray)')
    if not entry.ok or image is None or answer is None:
        return None
    organ, _, modality = image_type.partition("_")
    return Question(
        question_id=f"{case_id}-{kind}",
        case_id=case_id,
        image_id=image.image_id,
        question=text,
        options=YES_NO_OPTIONS,
        answer=(answer,),
        question_type="yes_no",
        modality=modality,
        extra={
            "aspect": aspect,
            "adversarial": adversarial,
            "organ": organ,
            "image_type": image_type,
            "pair_id": f"{case_id}-{pair}" if pair else None,
            "qa_type": kind,
        },
    )


def _parse_qa_type(entry: SourceEntry, kind: str) -> tuple[str, bool, str | None]:
    """Return aspect, whether adversarial, and the pair's name (None without a counterpart), as the
    authors' scorer reads them.

    `modality_gt`, `body_part_hallu`, `abnormality`, `entity_gt_0`, `entity_hallu_0`,
    `grounding_gt_1`; a normal image has a single `entity_hallu` without a number.
    """
    names = {
        "modality": "modality",
        "body_part": "organ",
        "entity": "condition",
        "grounding": "position",
    }
    if kind == "abnormality":
        return "abnormality", False, None
    match = re.fullmatch(r"(modality|body_part|entity|grounding)_(gt|hallu)(?:_(\w+))?", kind)
    if match is None:
        if kind:
            entry.add_problem(f'"qa_type" {kind!r} is unknown to the authors\' scorer (expected e.g. entity_gt_0)')
        return "", False, None

    aspect = names[match[1]]
    return aspect, match[2] == "hallu", f"{aspect}-{match[3]}" if match[3] else aspect


def _keep_complete_pairs(questions: list[Question]) -> tuple[Question, ...]:
    """Return the questions of an image, keeping `pair_id` only if both questions of the
    pair exist.
    """
    size = Counter(question.extra["pair_id"] for question in questions)
    return tuple(
        question
        if size[question.extra["pair_id"]] == 2
        else replace(question, extra={**question.extra, "pair_id": None})
        for question in questions
    )


def _compare_counts(cases: list[Case]) -> list[CountComparison]:
    questions = [question for case in cases for question in case.questions]
    images = {image.image_id for case in cases for image in case.images}
    counts = [
        CountComparison("images", len(images), PAPER_IMAGES, "the rows of Table 2 add up to 6,361"),
        CountComparison("questions", len(questions), PAPER_QUESTIONS),
        CountComparison("questions whose answer is yes", sum(q.answer == (0,) for q in questions), 28003),
    ]
    of_type: dict[str, list[Question]] = {}
    for question in questions:
        of_type.setdefault(question.extra["image_type"], []).append(question)

    for name in [*PAPER_IMAGE_TYPES, *sorted(set(of_type) - set(PAPER_IMAGE_TYPES))]:
        rows, paper = of_type.get(name, []), PAPER_IMAGE_TYPES.get(name)
        note = "3,120 in the appendix" if name == "chest_xray" else ""
        counts += [
            CountComparison(f"{name}: images", len({q.image_id for q in rows}), paper and paper[0], note),
            CountComparison(f"{name}: questions", len(rows), paper and paper[1]),
            CountComparison(f"{name}: answer yes", sum(q.answer == (0,) for q in rows), paper and paper[2]),
        ]

    for aspect in ASPECTS:
        of_aspect = [q for q in questions if q.extra["aspect"] == aspect]
        note = ""
        if aspect == "abnormality" and len(images) == PAPER_IMAGES:
            note = "the paper's Table 19 gives one per image, which contradicts its Table 2"
        counts.append(CountComparison(f"questions on {aspect}", len(of_aspect), None, note))

    return counts


def index_images(
    source: Path, folders: ImageFolders | None, files: list[tuple[Path, list[Any]]], problems: Problems
) -> SourceImages:
    """Index the images of all rows.

    Args:
        source: the source folder.
        folders: where to look for images; None in a text-only build.
        files: the files of questions with their rows.
        problems: collects problems of image_dict.json.
    """
    paths = [image_path(row) for _, rows in files for row in rows if isinstance(row, dict)]
    return SourceImages(folders, read_image_records(source, problems), paths)


def find_image(images: SourceImages, entry: SourceEntry, image_id: str) -> CaseImage | None:
    """Find the image of an entry; None if there was a problem.

    Args:
        images: the images of the source.
        entry: the entry.
        image_id: id of the image if this is the first entry that shows it.
    """
    name, path = entry.text("image"), image_path(entry.value)
    if not name:
        return None
    base = path.rsplit("/", 1)[-1]
    return images.find(
        entry,
        # Try the path first, because image types reuse file names.
        list(dict.fromkeys([path, name])),
        image_id=image_id,
        record_name=name,
        file_name=base,
        missing_name=name,
        source="ChestX-ray14" if re.fullmatch(r"\d{8}_\d{3}\.png", base) else None,
    )


def image_path(row: dict[str, Any]) -> str:
    """Return the relative path of an entry's image.

    Args:
        row: the entry.

    Returns:
        `image`, in a folder named after its image type unless it already names a folder.
    """
    name, kind = str(row.get("image", "")).strip(), str(row.get("image_type", "")).strip()
    return name if "/" in name or not kind else f"{kind}/{name}"


def parse_yes_no(entry: SourceEntry) -> int | None:
    """Return the position of an entry's answer in `YES_NO_OPTIONS`; None after a problem."""
    # The file of VQA-RAD pairs names the field `gt_ans`.
    answer = entry.text("answer" if "answer" in entry.value or "gt_ans" not in entry.value else "gt_ans")
    if not answer:
        return None
    if answer.lower().rstrip(".") not in YES_NO_OPTIONS:
        entry.add_problem(f'"answer" {clip(answer)} is neither yes nor no')
        return None
    return YES_NO_OPTIONS.index(answer.lower().rstrip("."))
