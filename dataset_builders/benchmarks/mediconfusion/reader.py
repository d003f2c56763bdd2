"""Read MediConfusion: `dataset.json` (confusing pairs), `image_dict.json` (image locations),
images, and ROCO's licences.

In the authors' image_dict.json every image is part of a PMC article (`dlink`, `file_name`). In a
custom set (`medprobe curate export`) an entry may also, or instead, state `license`, `source` and
the `sha256` of the image file in the set.

See also: downloading (`images/download.py`).
"""

import csv
import hashlib
import io
import re
from collections import Counter
from pathlib import Path
from typing import Any

from dataset_builders.case_groups import group_linked_cases
from dataset_builders.errors import BadInput, Problems
from dataset_builders.images.lookup import ImageFolders, ImageRecord, SourceImages, read_image_records
from dataset_builders.schema import Case, CaseImage, CountComparison, Question, SourceContent
from dataset_builders.source_files import SourceEntry, read_json, read_text, required_file

PAIR_LETTERS = ("A", "B")
FINETUNE_SEED = "medprobe finetune 1"
PAPER_PAIRS, PAPER_QUESTIONS = 176, 352
PAPER_CATEGORY_SIZES = {
    "Cerebral": 79,
    "Vascular": 73,
    "Head and Neck": 67,
    "Spinal": 51,
    "Musculoskeletal": 42,
    "Cardiac": 52,
    "Gastrointestinal": 43,
    "Pulmonary": 20,
    "Nuclear Medicine": 14,
}
"""Images per category (the authors' statistics.json; denominators of Table 2): image labels, not
pairs.
"""

MEDICONFUSION_REMEDY = "Fix the entries, or get the files again from AIF4S/MediConfusion."


def read(source: Path, images: ImageFolders | None) -> SourceContent:
    """Read the confusing pairs. A case is a pair; its questions share text and options and differ
    in the image.

    Args:
        source: the source folder.
        images: folders with images; None in a text-only build. Images that are not found have
            `read` None.

    Raises:
        BadInput: lists all problems of the files.
    """
    file = required_file(source, "dataset.json", "the confusing pairs")
    document = read_json(file)
    if not isinstance(document, dict) or not document:
        raise BadInput(f"{file}: contains no confusing pairs (an object: pair id -> pair). {MEDICONFUSION_REMEDY}")
    problems = Problems()
    source_images = _PairImages(source, images, problems)
    entries = [SourceEntry(value, str(file), name, problems) for name, value in document.items()]
    parsed_cases = [_parse_pair(entry, source_images) for entry in entries]
    cases = [case for case in parsed_cases if case is not None]
    problems.check(MEDICONFUSION_REMEDY)
    return SourceContent(
        cases={"test": cases},
        counts=_compare_counts(cases),
        notes=_describe_oddities(cases),
        extra_configs=split_finetune_halves(cases),
    )


def _parse_pair(entry: SourceEntry, source_images: "_PairImages") -> Case | None:
    name = str(entry.name)
    question, options = entry.text("question"), (entry.text("option_A"), entry.text("option_B"))
    ai_options = (entry.text("AI_option_A"), entry.text("AI_option_B"))
    shared = {
        "sim_med": entry.number("BiomedCLIP_sim"),
        "sim_gen": entry.number("DINO_sim"),
        "ai_question": entry.text("AI_question"),
        "ai_options": ai_options,
    }
    if options[0] == options[1] and all(options):
        entry.add_problem("both options are identical")
    questions, images = [], []
    for number in (1, 2):
        answer = entry.text(f"im_{number}_correct")
        if answer and answer not in PAIR_LETTERS:
            entry.add_problem(f'"im_{number}_correct" is {answer!r}, which is not an option (A or B)')
        image = source_images.image(entry, number)
        images.append(image)
        if answer not in PAIR_LETTERS or image is None:
            continue
        questions.append(
            Question(
                question_id=f"{name}-{number}",
                case_id=name,
                image_id=image.image_id,
                question=question,
                options=options,
                answer=(PAIR_LETTERS.index(answer),),
                categories=entry.texts(f"category_{number}"),
                extra={**shared, "caption": entry.text(f"cap_{number}")},
            )
        )

    if len(questions) == 2 and questions[0].answer == questions[1].answer:
        entry.add_problem("both images have the same correct option, so the pair cannot confuse")
    if len(images) == 2 and None not in images and images[0] == images[1]:
        entry.add_problem("both images are the same")
    if not entry.ok:
        return None
    return Case(name, tuple(image for image in images if image is not None), tuple(questions))


class _PairImages(SourceImages):
    """The images of the source, with their PMC locations and ROCO's licences."""

    def __init__(self, source: Path, folders: ImageFolders | None, problems: Problems) -> None:
        self.locations, records = _read_locations(source, problems)
        # Different articles reuse file names such as figure1.jpg.
        super().__init__(folders, records, [location["file_name"] for location in self.locations.values()])
        self.licences = _read_licences(source, folders)
        self.roco_of: dict[str, str] = {}

    def image(self, entry: SourceEntry, number: int) -> CaseImage | None:
        """Return an image of a pair; None if there was a problem."""
        roco, local = entry.text(f"im_{number}"), entry.text(f"im_{number}_local")
        if not roco or not local:
            return None

        # The local number identifies the image, so it must always mean the same ROCO image.
        if self.roco_of.setdefault(local, roco) != roco:
            entry.add_problem(f"image {local} is {roco} here and {self.roco_of[local]} in another pair")
            return None
        location, roco_id = self.locations.get(roco), re.search(r"ROCO_\d+", roco)
        source = roco if roco_id else None
        if location:
            source = f"PMC Open Access {location['pmcid']}, {location['file_name']} ({roco})"
        return self.find(
            entry,
            [local, roco, roco.rsplit("/", 1)[-1]],
            image_id=local,
            record_name=roco,
            file_name=location["file_name"] if location else "",
            missing_name=f"{local}.jpg",
            license=self.licences.get(roco_id.group(), "unknown") if roco_id else "unknown",
            source=source,
        )


def _read_locations(source: Path, problems: Problems) -> tuple[dict[str, dict[str, str]], dict[str, ImageRecord]]:
    """Read the PMC locations of images (`pmcid`, `file_name`) and the other fields of
    image_dict.json.

    Both are keyed by the names in `im_1` and `im_2`; empty if there is no file.
    """
    file = source / "image_dict.json"
    records = read_image_records(source, problems)
    locations = {}
    for name, value in (read_json(file) if file.is_file() else {}).items():
        entry = SourceEntry(value, str(file), name, problems)
        if records[name] != ImageRecord() and "dlink" not in entry.value:
            continue
        link, file_name = entry.text("dlink"), entry.text("file_name")
        pmcid = re.search(r"PMC\d+", link)
        if link and pmcid is None:
            entry.add_problem(f'"dlink" {link!r} names no PMC article')
        if entry.ok and pmcid:
            locations[name] = {"pmcid": pmcid.group(), "file_name": file_name}

    return locations, records


def download_fields(source: Path) -> dict[str, dict[str, str]]:
    """Return image id -> fields of a URL template: pmcid, file_name, roco, local.

    Args:
        source: the source folder.

    Raises:
        BadInput: as `read`.
    """
    problems = Problems()
    locations, _ = _read_locations(source, problems)
    problems.check(MEDICONFUSION_REMEDY)
    document: dict[str, Any] = read_json(required_file(source, "dataset.json", "the confusing pairs"))
    name_pairs = [
        (str(pair.get(f"im_{n}")), str(pair.get(f"im_{n}_local"))) for pair in document.values() for n in (1, 2)
    ]
    return {local: {**locations[roco], "roco": roco, "local": local} for roco, local in name_pairs if roco in locations}


def _read_licences(source: Path, images: ImageFolders | None) -> dict[str, str]:
    """Return ROCO id -> licence, from all `licences.txt` files (columns ROCO_ID, PMC_ID, CC)."""
    licences: dict[str, str] = {}
    folders = [source, *(images.folders if images else [])]
    # Resolved paths in a set: a folder may be given twice, or lie within another.
    for path in sorted({path.resolve() for folder in folders for path in folder.rglob("licences.txt")}):
        rows = csv.reader(io.StringIO(read_text(path), newline=""))
        for row in rows:
            if len(row) >= 3 and row[0].startswith("ROCO_") and row[0] != "ROCO_ID":
                licence = row[-1].strip()
                licences[row[0]] = licence if licence.startswith("CC") else "unknown"
    return licences


def _compare_counts(cases: list[Case]) -> list[CountComparison]:
    questions = [question for case in cases for question in case.questions]
    images = {image.image_id for case in cases for image in case.images}
    labels = Counter(label for question in questions for label in question.categories)
    counts = [
        CountComparison("pairs", len(cases), PAPER_PAIRS),
        CountComparison("questions", len(questions), PAPER_QUESTIONS),
        CountComparison("distinct images", len(images)),
    ]
    for label in sorted({*labels, *PAPER_CATEGORY_SIZES}):
        paper = PAPER_CATEGORY_SIZES.get(label)
        counts.append(CountComparison(f"images labelled {label}", labels[label], paper, "image labels, not pairs"))

    return counts


def _describe_oddities(cases: list[Case]) -> list[str]:
    revised = [
        case.case_id
        for case in cases
        if case.questions[0].question != case.questions[0].extra["ai_question"]
        or case.questions[0].options != case.questions[0].extra["ai_options"]
    ]
    letters = Counter(question.answer[0] for case in cases for question in case.questions)
    revised_note = (
        f"{len(revised)} pairs were revised by radiologists after an AI wrote them (its question and options are kept)."
    )
    return [
        *([revised_note] if revised else []),
        f"The correct option is A in {letters[0]} questions and B in {letters[1]}.",
    ]


def split_finetune_halves(cases: list[Case]) -> dict[str, dict[str, list[Case]]]:
    """Split the pairs into halves for fine-tuning (appendix D), each with half of every category.

    The authors' own halves (84 and 92 pairs) are not published; these are drawn deterministically.
    An image may be in several pairs, so the halves of `finetune` may share images;
    `finetune_disjoint` keeps all pairs that share an image in one half. A patient (or other
    `group`) is in one half only, in both configs.

    Args:
        cases: the pairs.

    Returns:
        Config (`finetune`, `finetune_disjoint`) -> split (train, test) -> cases. A config with an
            empty half is omitted.
    """
    configs = {}
    for config, images in (("finetune", False), ("finetune_disjoint", True)):
        train = _choose_training_cases(group_linked_cases(cases, images=images, groups=True))
        split = {
            "train": [case for case in cases if case.case_id in train],
            "test": [case for case in cases if case.case_id not in train],
        }
        if all(split.values()):
            configs[config] = split

    return configs


def _choose_training_cases(groups: list[list[Case]]) -> set[str]:
    """Choose the training cases, one group at a time, largest first, keeping every category
    balanced.
    """
    labels = [Counter(label for case in group for label in _case_categories(case)) for group in groups]

    # Large groups first: small ones can still balance the halves afterwards.
    order = sorted(range(len(groups)), key=lambda n: (-len(groups[n]), _case_hash(groups[n][0])))
    balance: Counter[str] = Counter()
    size = 0
    train: set[str] = set()
    for number in order:
        # Positive if the training half has more of this group's categories.
        tilt = sum(balance[label] * count for label, count in labels[number].items())
        to_train = tilt < 0 or (tilt == 0 and (size < 0 or (size == 0 and _case_hash(groups[number][0]) % 2 == 0)))
        sign = 1 if to_train else -1
        for label, count in labels[number].items():
            balance[label] += sign * count
        size += sign * len(groups[number])
        if to_train:
            train.update(case.case_id for case in groups[number])

    return train


def _case_categories(case: Case) -> set[str]:
    return {label for question in case.questions for label in question.categories}


def _case_hash(case: Case) -> int:
    """Return a pseudo-random number for a case, equal on every machine."""
    # Python's own hash of a string differs between processes.
    return int.from_bytes(hashlib.sha256(f"{FINETUNE_SEED} {case.case_id}".encode()).digest()[:8], "big")
