"""Read GMAI-MMBench: VLMEvalKit TSVs with embedded images (VAL with answers, TEST without), and the
lexical tree.

A tree is rows of subject (task, department or granularity), category (one of its values), modality
and keyword.

See also: reading records (`source_files.py`), selecting by branches of the tree (`facets.py`).
"""

import hashlib
import html
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

from tqdm import tqdm

from dataset_builders.benchmarks.gmai_mmbench import PAPER_SPLIT_SIZES
from dataset_builders.benchmarks.vqa.keys import read_key
from dataset_builders.errors import BadInput, Problems, clip
from dataset_builders.images.lookup import (
    MAX_REFERENCE_LENGTH,
    ImageError,
    ImageFolders,
    decode_base64_image,
    image_format,
    parse_image_cell,
    read_image,
)
from dataset_builders.schema import (
    LETTERS,
    Case,
    CaseImage,
    CountComparison,
    Question,
    SourceContent,
)
from dataset_builders.source_files import SourceEntry, TsvRecord, check_text, read_text, read_tsv

PAPER_FACET_SIZES = {"task": 18, "department": 18, "granularity": 4, "modality": 39}
SUBJECT_BY_CONTAINER = {
    "clinical-tasks": "task",
    "departments": "department",
    "granularities": "granularity",
}
"""Id of a container on the authors' page of the tree -> its subject."""
GMAI_REMEDY = "Fix the entries, or get the file again from OpenGVLab/GMAI-MMBench."

TreeRow = tuple[str, str, str, str]
"""Subject, category, modality and keyword."""


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
    cases["test"] = [
        _as_multiple_choice(case) if len(hidden.get(case.case_id, ())) > 1 else case for case in cases["test"]
    ]
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
        if "AA" in columns:
            raise BadInput(f"{file}: has more than {len(LETTERS)} options (column AA). {GMAI_REMEDY}")
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
        self.images_by_index: dict[str, list[CaseImage]] = {}
        self.references: dict[str, str] = {}
        """Index of a row -> index of the row whose images it shows."""
        self.by_digest: dict[str, CaseImage] = {}

    def read(self, file: Path) -> None:
        """Read one file; problems are recorded."""
        size = file.stat().st_size
        with tqdm(total=size, unit="B", unit_scale=True, desc=f"reading {file.name}", disable=None) as bar:
            for record in read_tsv(file):
                self._record(file, record)
                bar.update(record.end - bar.n)

    def _record(self, file: Path, record: TsvRecord) -> None:
        text = {name: value.strip() for name, value in record.fields.items() if name != "image"}
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
        answer = _read_answer(entry, text.get("answer", ""), options)
        self._read_images(entry, file, record, index)
        if entry.ok:
            is_multiple = len(answer) > 1 or text.get("question_type", "").lower().startswith("multi")
            self.questions.append(
                Question(
                    question_id=index,
                    case_id=index,
                    image_id=index,
                    question=question,
                    options=options,
                    answer=answer,
                    question_type="multiple" if is_multiple else "single",
                    task=text.get("clinical vqa task") or text.get("l2-category") or None,
                    department=text.get("department") or None,
                    granularity=text.get("perceptual granularity") or None,
                    modality=text.get("modality") or None,
                    keyword=text.get("category") or None,
                )
            )

    def _read_images(self, entry: SourceEntry, file: Path, record: TsvRecord, index: str) -> None:
        """Register the images that are embedded in a row, or the row that it refers to."""
        cell = record.fields["image"].strip()
        if not cell:
            entry.add_problem("has no image")
        # A short cell refers to another row; no encoded image is that short.
        elif len(cell) <= MAX_REFERENCE_LENGTH and not cell.startswith("["):
            self.references[index] = cell
        else:
            try:
                contents = parse_image_cell(cell)
                names = [index] if len(contents) == 1 else [f"{index}-{at}" for at in range(1, len(contents) + 1)]
                self.images_by_index[index] = [
                    self._register(file, record, number, name, decode_base64_image(content))
                    for number, (name, content) in enumerate(zip(names, contents, strict=True))
                ]
            except ImageError as error:
                entry.add_problem(str(error))

    def _register(self, file: Path, record: TsvRecord, number: int, image_id: str, data: bytes) -> CaseImage:
        """Return an image of a row, or an equal one of an earlier row: each is stored once."""
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self.by_digest:
            fields = {name: record.fields.get(name, "").strip() or None for name in ("license", "source", "group")}
            self.by_digest[digest] = CaseImage(
                image_id,
                # Keep the position instead of the bytes, since all images together do not fit in
                # memory.
                read=partial(read_image, file, record.start, number) if self.with_images else None,
                size=len(data) if self.with_images else 0,
                name=f"{image_id}.{image_format(data).lower()}" if self.with_images else "",
                license=fields["license"] or "unknown",
                source=fields["source"],
                location=f"{file}, entry {record.fields['index'].strip()} (line {record.line})",
                group=fields["group"],
            )
        return self.by_digest[digest]

    def cases(self) -> dict[str, list[Case]]:
        """Return split -> cases, each question with its images."""
        cases_by_split: dict[str, list[Case]] = {"validation": [], "test": []}
        for question in self.questions:
            index = question.question_id
            for _ in range(2):  # a reference may lead to a second reference
                index = self.references.get(index, index)
            images = self.images_by_index.get(index)
            if not images:
                self.problems.add(
                    self.lines[question.question_id],
                    question.question_id,
                    f"its image is {clip(index)}, which is neither an image nor the index of a row that has one",
                )
                continue
            image_id, *extra_ids = (image.image_id for image in images)
            complete = replace(question, image_id=image_id, more_image_ids=tuple(extra_ids))
            cases_by_split["validation" if complete.answer else "test"].append(
                Case(complete.case_id, tuple(dict.fromkeys(images)), (complete,))
            )

        return cases_by_split


def _read_options(entry: SourceEntry, text: dict[str, str]) -> tuple[str, ...]:
    letters = [name for name in LETTERS if text.get(name)]
    if len(letters) < 2:
        entry.add_problem("has fewer than two options")
    elif letters != list(LETTERS[: len(letters)]):
        entry.add_problem(f"has the options {', '.join(letters)}: an option between them is empty")
    return tuple(text[name] for name in letters)


def _read_answer(entry: SourceEntry, cell: str, options: tuple[str, ...]) -> tuple[int, ...]:
    """Return the positions of the correct options; none of a row without an answer."""
    key = read_key("letter", cell, options) if cell else ()
    if key is None:
        entry.add_problem(
            f'"answer" {clip(cell)} is not an option ({", ".join(LETTERS[: len(options)])}) or several different ones, such as "A,C"'
        )
    return key or ()


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
            hidden[index] = _read_answer(entry, record.fields["answer"].strip(), question_of[index].options)
            if not hidden[index] and entry.ok:
                entry.add_problem("has no answer")

    return hidden


def _as_multiple_choice(case: Case) -> Case:
    """Mark a case as multiple choice: the prompt then says that several options may be correct."""
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


def read_tree(file: Path) -> tuple[list[TreeRow], list[str]]:
    """Read the official LexicalTree.html.

    An entry without a name is kept with an empty string and reported.

    Args:
        file: the page.

    Returns:
        Rows (subject, category, modality, keyword) in the page's order, and notes on its oddities.

    Raises:
        BadInput: the page contains no such tree.
    """
    parser = _TreePageParser()
    parser.feed(read_text(file))
    if not parser.rows:
        raise BadInput(f"{file}: contains no lexical tree (lists below clinical-tasks, departments, granularities).")
    rows = parser.rows
    modalities, keywords = {row[2] for row in rows}, {row[3] for row in rows}
    notes = [
        f"Lexical tree: {len({row[:3] for row in rows})} lists, {len(modalities)} modalities (the paper says 39), "
        f"{len(keywords)} keywords, {len({row[2:] for row in rows})} (modality, keyword) paths."
    ]
    for subject in SUBJECT_BY_CONTAINER.values():
        nameless = [row for row in rows if row[0] == subject and not row[1]]
        if nameless:
            notes.append(
                f"Lexical tree: one {subject} has no name; it contains {len(nameless)} keywords "
                f"({', '.join(sorted({row[2] for row in nameless}))}) and is kept with an empty name."
            )

    repeated = len(rows) - len(set(rows))
    if repeated:
        notes.append(f"Lexical tree: {repeated} keywords occur twice in the same list.")
    return rows, notes


def render_tree_page(rows: Iterable[TreeRow], title: str) -> str:
    """Render a tree in the layout of the authors' page, which `read_tree` reads.

    Args:
        rows: (subject, category, modality, keyword).
        title: title of the page.

    Returns:
        HTML.
    """
    trees: dict[str, dict[str, dict[str, set[str]]]] = {subject: {} for subject in SUBJECT_BY_CONTAINER.values()}
    for subject, category, modality, keyword in rows:
        trees[subject].setdefault(category, {}).setdefault(modality, set()).add(keyword)

    parts = [
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="UTF-8"><title>{html.escape(title)}</title></head>\n<body>'
    ]
    for container, subject in SUBJECT_BY_CONTAINER.items():
        parts.append(f'<div id="{container}" class="category-container"><ul class="category-list">')
        for category, modalities in sorted(trees[subject].items()):
            parts.append(f'<li><a href="#">{html.escape(category)}</a>\n<ul class="sub-category-list">')
            for modality, keywords in sorted(modalities.items()):
                leaves = "".join(f"<li>{html.escape(keyword)}</li>" for keyword in sorted(keywords))
                parts.append(f'<li><a href="#">{html.escape(modality)}</a>\n<ul class="label-list">{leaves}</ul></li>')
            parts.append("</ul></li>")
        parts.append("</ul></div>")

    return "\n".join([*parts, "</body>", "</html>", ""])


class _TreePageParser(HTMLParser):
    """Parser of the page's three nested lists: links name categories and modalities, items
    keywords.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[TreeRow] = []
        self.subject = self.text = ""
        self.lists = 0
        self.names = ["", ""]

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        # The three containers have fixed ids; nested divs keep the current subject.
        if tag == "div":
            self.subject = SUBJECT_BY_CONTAINER.get(dict(attributes).get("id") or "", self.subject)
        elif tag == "ul":
            self.lists += bool(self.subject)
        elif tag in ("a", "li"):
            self.text = ""

    def handle_endtag(self, tag: str) -> None:
        text = " ".join(self.text.split())
        if tag == "ul":
            self.lists -= bool(self.subject)
        # Links in the first two levels of lists name category and modality; items of the third are
        # keywords.
        elif tag == "a" and 1 <= self.lists <= 2:
            self.names[self.lists - 1] = text
        elif tag == "li" and self.lists == 3:
            self.rows.append((self.subject, self.names[0], self.names[1], text))

    def handle_data(self, data: str) -> None:
        self.text += data
