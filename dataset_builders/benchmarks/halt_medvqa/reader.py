"""Read HALT-MedVQA: `fake_qa_shuffle.json`, `pmc_vqa_nota1K.json`, `swap_img_shuffle.json`, and
images of three other datasets.

See also: the authors' prompts (`eval_harness/benchmarks/halt_medvqa.py`).
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any

from dataset_builders.errors import BadInput, Problems
from dataset_builders.images.lookup import ImageFolders, SourceImages, read_image_records
from dataset_builders.schema import (
    LETTERS,
    Case,
    CountComparison,
    Question,
    SourceContent,
)
from dataset_builders.source_files import (
    SourceEntry,
    read_json,
    required_file,
    strip_option_letters,
)

SCENARIO_FILES = {
    "fake": "fake_qa_shuffle.json",
    "none": "pmc_vqa_nota1K.json",
    "swap": "swap_img_shuffle.json",
}
PAPER_COUNTS = {"fake": 542, "none": 1000, "swap": 817}
"""n in Table 1. The files have 543 and 818 entries numbered from 0: 542 and 817 are their last
indices.
"""
IMAGE_NAME_PATTERNS = ((r"synpic\d+", "VQA-RAD"), (r"test_\d+", "PathVQA"), (r"PMC\d+", "PMC-VQA"))
HALT_REMEDY = "Fix the entries, or get the files again from knowlab/halt-medvqa."


def read(source: Path, images: ImageFolders | None) -> SourceContent:
    """Read the questions of the three scenarios; each question is a case.

    Args:
        source: the source folder.
        images: folders with images; None in a text-only build.

    Raises:
        BadInput: lists all problems of the files.
    """
    problems = Problems()
    cases: list[Case] = []
    entry_counts: Counter[str] = Counter()
    notes: list[str] = []
    source_images = SourceImages(images, read_image_records(source, problems))
    for scenario, name in SCENARIO_FILES.items():
        file = required_file(source, name, f"the questions of scenario {scenario}")
        entries = _parse_entries(file, read_json(file), scenario, problems)
        entry_counts[scenario] = len(entries)
        parsed_cases = [_parse_case(entry, scenario, key, source_images) for key, entry in entries]
        scenario_cases = [case for case in parsed_cases if case is not None]
        cases += scenario_cases
        options_by_case = {case.case_id: case.questions[0].options for case in scenario_cases}
        duplicates = [name for name, options in options_by_case.items() if len(set(options)) < len(options)]
        if duplicates:
            notes.append(f"The same option text occurs twice in {', '.join(duplicates)} (as in the authors' file).")

    problems.check(HALT_REMEDY)
    nota = [case.questions[0] for case in cases if case.case_id.startswith("none-")]
    twice = sum(sum("none of the above" in option.lower() for option in question.options) > 1 for question in nota)
    if twice:
        notes.append(
            f'{twice} questions of scenario none have a second "None of the above" (as in the authors\' file).'
        )

    letters = Counter(LETTERS[question.answer[0]] for question in nota)

    # If the correct letters were unbalanced, a model that always answers one letter would profit.
    balanced = not letters or max(letters.values()) <= 1.25 * letters.total() / len(letters)
    notes.append(
        f"Correct letters in scenario none: {', '.join(f'{a} {letters[a]}' for a in sorted(letters))}"
        f"{'' if balanced else ' (not balanced)'}."
    )
    counts = [
        CountComparison(
            f"questions of scenario {scenario}",
            entry_counts[scenario],
            PAPER_COUNTS[scenario],
            "" if scenario == "none" else "the paper's n is the file's last index, counted from 0",
        )
        for scenario in SCENARIO_FILES
    ]
    return SourceContent(cases={"test": cases}, counts=counts, notes=notes)


def _parse_entries(file: Path, document: Any, scenario: str, problems: Problems) -> list[tuple[str, SourceEntry]]:
    """Return (key, entry) pairs of a file.

    The list of `none` is keyed by `entry_id` (in custom sets, so that removing an entry changes no
    other id) or by position.
    """
    if scenario == "none" and isinstance(document, list):
        fields = [value.get("entry_id") if isinstance(value, dict) else None for value in document]
        pairs = [
            (str(position if key is None else key), value)
            for position, (key, value) in enumerate(zip(fields, document, strict=True))
        ]
        if len({key for key, _ in pairs}) < len(pairs):
            raise BadInput(f"{file}: two entries have the same entry_id. {HALT_REMEDY}")
    elif scenario != "none" and isinstance(document, dict):
        pairs = list(document.items())
    else:
        raise BadInput(
            f"{file}: is not a {'list' if scenario == 'none' else 'JSON object (number -> question)'}. {HALT_REMEDY}"
        )

    if not pairs:
        raise BadInput(f"{file}: contains no questions. {HALT_REMEDY}")
    return [(key, SourceEntry(value, str(file), key, problems)) for key, value in pairs]


def _parse_case(entry: SourceEntry, scenario: str, key: str, images: SourceImages) -> Case | None:
    text, name = entry.text("question"), entry.text("img")
    options, answer = _parse_options(entry, scenario)
    dataset = _source_dataset(name)
    image = images.find(entry, [name], image_id=name, record_name=name, source=dataset) if name else None
    if not entry.ok or image is None or answer is None:
        return None
    question_id = f"{scenario}-{key}"
    question = Question(
        question_id=question_id,
        case_id=question_id,
        image_id=image.image_id,
        question=text,
        options=options,
        answer=(answer,),
        extra={"scenario": scenario, "source_dataset": dataset},
    )
    return Case(question_id, (image,), (question,))


def _parse_options(entry: SourceEntry, scenario: str) -> tuple[tuple[str, ...], int | None]:
    """Return the options without letters ("B: None of the above"), and the position of the correct
    one.
    """
    raw_options, right = entry.value.get("option"), "answer_id"
    if scenario == "none":
        raw_options = {
            letter: entry.value[f"choice_{letter}"] for letter in LETTERS if f"choice_{letter}" in entry.value
        }
        right = "answer"

    if (
        not isinstance(raw_options, dict)
        or len(raw_options) < 2
        or list(raw_options) != list(LETTERS[: len(raw_options)])
    ):
        entry.add_problem("needs 2 to 26 options, lettered A, B, C ... without a gap")
        return (), None

    # A nested entry checks each option like a field of its own.
    texts = SourceEntry(raw_options, entry.file, entry.name, entry.problems)
    options = tuple(texts.text(letter) for letter in raw_options)
    if scenario == "none":
        options = strip_option_letters(options)
    letter = entry.text(right)
    entry.ok = entry.ok and texts.ok
    if not entry.ok:
        return options, None
    if not all(options):
        entry.add_problem("an option has a letter but no text")
    elif letter not in raw_options:
        entry.add_problem(f'"{right}" {letter!r} is not an option')
    elif scenario != "none" and options[list(raw_options).index(letter)] != entry.text("answer"):
        entry.add_problem(f'"answer" {entry.text("answer")!r} is not the option {letter}')

    return options, list(raw_options).index(letter) if entry.ok else None


def _source_dataset(name: str) -> str | None:
    """Return the dataset that an image comes from, judged by its file name; None if unknown."""
    base = name.rsplit("/", 1)[-1]
    return next((dataset for pattern, dataset in IMAGE_NAME_PATTERNS if re.match(pattern, base)), None)
