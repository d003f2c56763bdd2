"""Read GMAI-MMBench: VLMEvalKit TSVs with embedded images (VAL with answers, TEST without), and the
lexical tree.

See also: reading records (`tsv.py`), the tree and its branches (`lexical_tree.py`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from tqdm import tqdm

from dataset_builders.benchmarks.gmai_mmbench import PAPER_SPLIT_SIZES
from dataset_builders.benchmarks.gmai_mmbench.tsv import (
    MAX_REFERENCE_LENGTH,
    TsvRecord,
    decode_base64_image,
    parse_image_cell,
    read_image,
    read_tsv,
)
from dataset_builders.errors import BadInput, Problems, clip
from dataset_builders.images.lookup import ImageError, ImageFolders, image_format
from dataset_builders.lexical_tree import read_tree
from dataset_builders.schema import (
    LETTERS,
    Case,
    CaseImage,
    CountComparison,
    Question,
    SourceContent,
)
from dataset_builders.source_files import SourceEntry, check_text

PAPER_FACET_SIZES = {"task": 18, "department": 18, "granularity": 4, "modality": 39}
GMAI_REMEDY = "Fix the entries, or get the file again from OpenGVLab/GMAI-MMBench."


def read(source: Path, images: ImageFolders | None) -> SourceContent:
    """Read the benchmark. Rows with an answer become split `validation`, others `test`; a question
    is a case.

    An image that several rows show is stored once, named after the first. A TSV with only `index`
    and `answer` provides hidden test answers.

    Args:
        source: the source folder.
        images: None in a text-only build; the images are in the TSV files.

    Raises:
        BadInput: lists all problems of the files.
    """
    problems = Problems()
    questions, keys = _find_source_files(source)
    tsv = _TsvReader(images is not None, problems)
    for file in questions:
        tsv.read(file)

    cases = tsv.cases()
    hidden = _read_hidden_answers(keys, cases["test"], problems)
    problems.check(GMAI_REMEDY)

    # The question type of test rows is known only from the hidden answers.
    cases["test"] = [_with_question_type(case, hidden) for case in cases["test"]]
    tree, notes = read_tree(source / "LexicalTree.html") if (source / "LexicalTree.html").is_file() else (None, [])
    return SourceContent(
        cases={split: split_cases for split, split_cases in cases.items() if split_cases},
        counts=_compare_counts(cases),
        notes=notes,
        hidden_answers=hidden,
        tree_rows=tree,
    )


def _find_source_files(source: Path) -> tuple[list[Path], list[Path]]:
    """Return the TSVs of questions and those of hidden answers, distinguished by their columns."""
    questions, keys = [], []
    for file in sorted(source.glob("*.tsv")):
        record = next(read_tsv(file), None)
        if record is None:
            raise BadInput(f"{file}: contains a header but no questions. {GMAI_REMEDY}")
        columns = set(record.fields)
        if "question" not in columns and {"index", "answer"} <= columns:
            keys.append(file)
            continue
        if missing := sorted({"index", "question", "A", "B", "image"} - columns):
            raise BadInput(f"{file}: the column {', '.join(missing)} is missing. {GMAI_REMEDY}")
        questions.append(file)

    if not questions:
        raise BadInput(
            f"{source}: no TSV file of questions found. Get GMAI-MMBench_VAL.tsv from OpenGVLab/GMAI-MMBench "
            f"and give its folder."
        )

    return questions, keys


class _TsvReader:
    """Accumulates the questions of all files and the images that they show."""

    def __init__(self, with_images: bool, problems: Problems) -> None:
        self.with_images, self.problems = with_images, problems
        self.lines: dict[str, str] = {}
        self.questions: list[Question] = []
        self.images: dict[str, CaseImage] = {}
        self.image_ids_by_index: dict[str, list[str]] = {}
        """Index of a row -> ids of its images."""
        self.references: dict[str, str] = {}
        """Index of a row -> index of the row whose images it shows."""
        self.by_digest: dict[str, str] = {}

    def read(self, file: Path) -> None:
        """Read one file; problems are recorded."""
        size = file.stat().st_size
        with tqdm(total=size, unit="B", unit_scale=True, desc=f"reading {file.name}", disable=None) as bar:
            for record in read_tsv(file):
                self._record(file, record)
                bar.update(record.end - bar.n)

    def _record(self, file: Path, record: TsvRecord) -> None:
        text = {name: value.strip() for name, value in record.fields.items() if name not in ("image", "image_path")}
        index = text["index"]
        entry = SourceEntry(text, str(file), f"{index} (line {record.line})", self.problems)
        if not index:
            entry.add_problem("has no index")
        elif index in self.lines:
            entry.add_problem(f"the index already occurs in {self.lines[index]}")

        self.lines.setdefault(index, f"{file.name}, line {record.line}")
        for name, value in text.items():
            check_text(value, entry, name)

        options = _read_options(entry, text)
        question = entry.text("question")
        answer, multiple = _read_answer(entry, text.get("answer", ""), options, text)
        self._image(entry, file, record, index)
        if not entry.ok:
            return
        self.questions.append(
            Question(
                question_id=index,
                case_id=index,
                image_id=index,
                question=question,
                options=options,
                answer=answer,
                question_type="multiple" if multiple else "single",
                task=_first_column(text, "clinical vqa task", "l2-category"),
                department=_first_column(text, "department"),
                granularity=_first_column(text, "perceptual granularity"),
                modality=_first_column(text, "modality"),
                keyword=_first_column(text, "category"),
            )
        )

    def _image(self, entry: SourceEntry, file: Path, record: TsvRecord, index: str) -> None:
        cell = record.fields.get("image", "").strip()
        if not cell:
            entry.add_problem("has no image")
        # A short cell refers to another row; no encoded image is that short.
        elif len(cell) <= MAX_REFERENCE_LENGTH and not cell.startswith("["):
            self.references[index] = cell
        else:
            try:
                contents = parse_image_cell(cell)
            except ImageError as error:
                entry.add_problem(str(error))
                return
            names = [index] if len(contents) == 1 else [f"{index}-{number}" for number in range(1, len(contents) + 1)]
            self.image_ids_by_index[index] = [
                self._inline(entry, file, record, name, number, content)
                for number, (name, content) in enumerate(zip(names, contents, strict=True))
            ]

    def _inline(
        self,
        entry: SourceEntry,
        file: Path,
        record: TsvRecord,
        name: str,
        number: int,
        encoded: str,
    ) -> str:
        """Register an image embedded in a row and return its id.

        An image that equals an earlier one gets the earlier one's id.
        """
        try:
            data = decode_base64_image(encoded)
            suffix = image_format(data).lower() if self.with_images else ""
        except ImageError as error:
            if self.with_images:
                entry.add_problem(str(error))
            else:
                self.images[name] = _read_image(name, record)
            return name

        # Equal images are stored once, under the id of the first row that shows them.
        image_id = self.by_digest.setdefault(hashlib.sha256(data).hexdigest(), name)
        if image_id == name:
            # Keep the position instead of the bytes, since all images together do not fit in
            # memory.
            fetch = partial(read_image, file, record.start, number) if self.with_images else None
            location = f"{file}, entry {entry.name}"
            self.images[name] = _read_image(name, record, fetch, len(data), f"{name}.{suffix}", location)

        return image_id

    def cases(self) -> dict[str, list[Case]]:
        """Return split -> cases, each question with its images."""
        cases_by_split: dict[str, list[Case]] = {"validation": [], "test": []}
        for question in self.questions:
            index = question.question_id
            for _ in range(2):  # a reference may lead to a second reference
                index = self.references.get(index, index)
            images = [self.images[name] for name in self.image_ids_by_index.get(index, ()) if name in self.images]
            if not images:
                self.problems.add(
                    self.lines[question.question_id],
                    question.question_id,
                    f"its image is {clip(index)}, which is neither an image nor the index of a row that has one",
                )
                continue
            image_id, *extra_ids = (image.image_id for image in images)
            complete = replace(question, image_id=image_id, more_image_ids=tuple(extra_ids))
            distinct = {image.image_id: image for image in images}
            cases_by_split["validation" if complete.answer else "test"].append(
                Case(complete.case_id, tuple(distinct.values()), (complete,))
            )

        return cases_by_split


def _read_image(
    name: str,
    record: TsvRecord,
    read_file: Callable[[], bytes] | None = None,
    size: int = 0,
    file_name: str = "",
    location: str = "",
) -> CaseImage:
    """Build an image of a row, with licence, source and group from the row's columns."""
    fields = {
        column: record.fields.get(column, "").strip() or None for column in ("license", "source", "group", "patient")
    }
    group = fields["group"] or fields["patient"]
    return CaseImage(
        name,
        read_file,
        size,
        file_name,
        fields["license"] or "unknown",
        fields["source"],
        location,
        group,
    )


def _read_options(entry: SourceEntry, text: dict[str, str]) -> tuple[str, ...]:
    columns = [name for name in LETTERS if name in text]
    letters = [name for name in columns if text[name]]
    double_letters = [name for name in text if re.fullmatch(r"[A-Z]{2}", name) and text[name]]
    if double_letters:
        entry.add_problem(f"has more than 26 options (column {double_letters[0]})")
    elif len(letters) < 2:
        entry.add_problem("has fewer than two options")
    elif letters != list(LETTERS[: len(letters)]):
        entry.add_problem(f"has the options {', '.join(letters)}: an option between them is empty")
    return tuple(text[name] for name in letters)


def _read_answer(
    entry: SourceEntry, cell: str, options: tuple[str, ...], text: dict[str, str]
) -> tuple[tuple[int, ...], bool]:
    """Return the positions of the correct options, and whether the question is multiple choice.

    "B" is single choice; "A,C", "AC" and "['A', 'C']" are multiple choice. A row without an answer
    is multiple choice if a column `question_type` or `type` says so.
    """
    kind = (text.get("question_type") or text.get("type") or "").lower()
    if not cell:
        return (), kind.startswith("multi")

    # Sources write several letters as "A,C", "AC", "['A', 'C']" or "A and C".
    letters = re.sub(r"[\s\[\]'\"(){},;|/&.]+|\band\b", "", cell)
    valid_letters = LETTERS[: len(options)]
    if not letters or any(letter not in valid_letters for letter in letters):
        entry.add_problem(f'"answer" {clip(cell)} is not an option ({", ".join(valid_letters)})')
        return (), False
    if len(set(letters)) < len(letters):
        entry.add_problem(f'"answer" {clip(cell)} names an option twice')
        return (), False
    is_list = cell.strip().startswith("[")
    return tuple(sorted(valid_letters.index(letter) for letter in letters)), (
        len(letters) > 1 or kind.startswith("multi") or (is_list and kind != "single")
    )


def _first_column(text: dict[str, str], *columns: str) -> str | None:
    return next((text[name] for name in columns if text.get(name)), None)


def _read_hidden_answers(files: list[Path], test: list[Case], problems: Problems) -> dict[str, tuple[int, ...]]:
    """Read the answers of test questions from separate files."""
    question_of = {case.case_id: case.questions[0] for case in test}
    hidden: dict[str, tuple[int, ...]] = {}
    for file in files:
        for record in read_tsv(file):
            index = record.fields["index"].strip()
            entry = SourceEntry(dict(record.fields), str(file), f"{index} (line {record.line})", problems)
            if index not in question_of:
                entry.add_problem("there is no test question with this index")
                continue
            if index in hidden:
                entry.add_problem("the index occurs twice")
            hidden[index], _ = _read_answer(entry, record.fields["answer"].strip(), question_of[index].options, {})
            if not hidden[index] and entry.ok:
                entry.add_problem("has no answer")

    return hidden


def _with_question_type(case: Case, hidden: dict[str, tuple[int, ...]]) -> Case:
    """Mark a case as multiple choice if its hidden answer has several options.

    The prompt tells the model whether several options may be correct.
    """
    if len(hidden.get(case.case_id, ())) < 2:
        return case
    return replace(case, questions=(replace(case.questions[0], question_type="multiple"),))


def _compare_counts(cases: dict[str, list[Case]]) -> list[CountComparison]:
    counts = []
    for split, split_cases in cases.items():
        single = sum(case.questions[0].question_type == "single" for case in split_cases)
        counts.append(CountComparison(f"{split}: single-choice questions", single, PAPER_SPLIT_SIZES[split]))
        counts.append(CountComparison(f"{split}: multiple-choice questions", len(split_cases) - single))
    questions = [case.questions[0] for split_cases in cases.values() for case in split_cases]
    for facet, paper in PAPER_FACET_SIZES.items():
        values = {getattr(question, facet) for question in questions} - {None}
        counts.append(CountComparison(f"values of {facet}", len(values), paper))
    return counts
