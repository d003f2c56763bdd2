"""Read GMAI-MMBench: VLMEvalKit TSVs with images inside (VAL with answers, TEST parts without), and the lexical tree.

See also: the file's records (`tsv.py`), the tree's page and branches (`lexical_tree.py`), writing.
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
from dataset_builders.schema import LETTERS, Case, CaseImage, CountComparison, Question, SourceContent
from dataset_builders.source_files import SourceEntry, check_text

PAPER_FACET_SIZES = {"task": 18, "department": 18, "granularity": 4, "modality": 39}
GMAI_REMEDY = "Fix the entries, or get the file again from OpenGVLab/GMAI-MMBench."


def read(source: Path, images: ImageFolders | None) -> SourceContent:
    """Rows with an answer become split `validation`, rows without `test`; a question is a case.

    An image that several rows show is one image, named by the first of them. `images` is None in a text-only build. A TSV of
    `index` and `answer` alone gives hidden test answers. Raises BadInput listing every problem of the files.
    """
    problems = Problems()
    questions, keys = _find_source_files(source)
    tsv = _TsvReader(images, problems)
    for file in questions:
        tsv.read(file)
    cases = tsv.cases()
    hidden = _read_hidden_answers(keys, cases["test"], problems)
    problems.check(GMAI_REMEDY)
    cases["test"] = [_with_question_type(case, hidden) for case in cases["test"]]
    tree, notes = read_tree(source / "LexicalTree.html") if (source / "LexicalTree.html").is_file() else (None, [])
    return SourceContent(
        cases={split: found for split, found in cases.items() if found},
        counts=_compare_counts(cases),
        notes=notes,
        hidden=hidden,
        tree=tree,
    )


def _find_source_files(source: Path) -> tuple[list[Path], list[Path]]:
    """The TSVs of questions and those of hidden answers, by their columns."""
    questions, keys = [], []
    for file in sorted(source.glob("*.tsv")):
        first = next(read_tsv(file), None)
        if first is None:
            raise BadInput(f"{file}: holds a header and no question. {GMAI_REMEDY}")
        columns = set(first.fields)
        if "question" not in columns and {"index", "answer"} <= columns:
            keys.append(file)
            continue
        missing = sorted({"index", "question", "A", "B"} - columns)
        if missing or not columns & {"image", "image_path"}:
            names = ", ".join([*missing, *([] if columns & {"image", "image_path"} else ["image"])])
            raise BadInput(f"{file}: the column {names} is missing. {GMAI_REMEDY}")
        questions.append(file)
    if not questions:
        raise BadInput(
            f"{source}: there is no TSV file of questions. Get GMAI-MMBench_VAL.tsv from OpenGVLab/GMAI-MMBench "
            f"and give its folder."
        )
    return questions, keys


class _TsvReader:
    """The questions read so far, over all files, and the images they show."""

    def __init__(self, folders: ImageFolders | None, problems: Problems) -> None:
        self.folders, self.problems = folders, problems
        self.lines: dict[str, str] = {}
        self.questions: list[Question] = []
        self.images: dict[str, CaseImage] = {}
        self.shown: dict[str, list[str]] = {}
        """Index -> ids of the images in its row"""
        self.refers: dict[str, str] = {}
        """Index -> index of the row whose images it shows"""
        self.by_digest: dict[str, str] = {}

    def read(self, file: Path) -> None:
        """Read one file; problems are noted."""
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
            entry.wrong("has no index")
        elif index in self.lines:
            entry.wrong(f"the index occurs already in {self.lines[index]}")
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
        given = record.fields.get("image", "").strip()
        path = record.fields.get("image_path", "").strip()
        if not given and not path:
            entry.wrong("has no image")
        elif given and len(given) <= MAX_REFERENCE_LENGTH and not given.startswith("["):
            self.refers[index] = given
        else:
            try:
                listed = parse_image_cell(given or path)
            except ImageError as error:
                entry.wrong(str(error))
                return
            names = [index] if len(listed) == 1 else [f"{index}-{number}" for number in range(1, len(listed) + 1)]
            self.shown[index] = [
                self._inline(entry, file, record, name, number, each)
                if given
                else self._named(entry, record, name, each)
                for number, (name, each) in enumerate(zip(names, listed, strict=True))
            ]

    def _inline(self, entry: SourceEntry, file: Path, record: TsvRecord, name: str, number: int, given: str) -> str:
        """Note the image that stands in a row; returns its id, which is that of an equal image where there was one."""
        try:
            data = decode_base64_image(given)
            suffix = image_format(data).lower() if self.folders is not None else ""
        except ImageError as error:
            if self.folders is None:
                self.images[name] = _read_image(name, record)
            else:
                entry.wrong(str(error))
            return name
        first = self.by_digest.setdefault(hashlib.sha256(data).hexdigest(), name)
        if first == name:
            fetch = partial(read_image, file, record.start, number) if self.folders is not None else None
            where = f"{file}, entry {entry.name}"
            self.images[name] = _read_image(name, record, fetch, len(data), f"{name}.{suffix}", where)
        return first

    def _named(self, entry: SourceEntry, record: TsvRecord, name: str, path: str) -> str:
        """Note the image that a row names by its path; returns its id."""
        try:
            found = self.folders.find([path]) if self.folders else None
        except ImageError as error:
            entry.wrong(str(error))
            return name
        size = found.stat().st_size if found else 0
        file_name = path.rsplit("/", 1)[-1] if self.folders else ""
        where = f"{found or path} (entry {entry.name} of {entry.file})" if self.folders else ""
        self.images[name] = _read_image(name, record, found.read_bytes if found else None, size, file_name, where)
        return name

    def cases(self) -> dict[str, list[Case]]:
        """The cases of each split, every question with its images."""
        made: dict[str, list[Case]] = {"validation": [], "test": []}
        for question in self.questions:
            index = question.question_id
            for _ in range(2):  # a row may refer to one that refers on
                index = self.refers.get(index, index)
            shown = [self.images[name] for name in self.shown.get(index, ()) if name in self.images]
            if not shown:
                self.problems.add(
                    self.lines[question.question_id],
                    question.question_id,
                    f"its image is {clip(index)}, which is neither an image nor the index of a row that has one",
                )
                continue
            first, *more = (image.image_id for image in shown)
            whole = replace(question, image_id=first, more_image_ids=tuple(more))
            distinct = {image.image_id: image for image in shown}
            made["validation" if whole.answer else "test"].append(
                Case(whole.case_id, tuple(distinct.values()), (whole,))
            )
        return made


def _read_image(
    name: str,
    record: TsvRecord,
    read_file: Callable[[], bytes] | None = None,
    size: int = 0,
    file_name: str = "",
    where: str = "",
) -> CaseImage:
    """An image of a row, with what the row's columns say of it."""
    said = {
        column: record.fields.get(column, "").strip() or None for column in ("license", "source", "group", "patient")
    }
    group = said["group"] or said["patient"]
    return CaseImage(name, read_file, size, file_name, said["license"] or "unknown", said["source"], where, group)


def _read_options(entry: SourceEntry, text: dict[str, str]) -> tuple[str, ...]:
    columns = [name for name in LETTERS if name in text]
    given = [name for name in columns if text[name]]
    extra = [name for name in text if re.fullmatch(r"[A-Z]{2}", name) and text[name]]
    if extra:
        entry.wrong(f"has more than 26 options (column {extra[0]})")
    elif len(given) < 2:
        entry.wrong("has fewer than two options")
    elif given != list(LETTERS[: len(given)]):
        entry.wrong(f"has the options {', '.join(given)}: one between them is empty")
    return tuple(text[name] for name in given)


def _read_answer(
    entry: SourceEntry, given: str, options: tuple[str, ...], text: dict[str, str]
) -> tuple[tuple[int, ...], bool]:
    """Positions of the correct options, and whether the question asks for several.

    "B" is a single choice; "A,C", "AC", "['A', 'C']" are multiple choice. A row without an answer is multiple choice where a
    column `question_type` or `type` says so.
    """
    kind = (text.get("question_type") or text.get("type") or "").lower()
    if not given:
        return (), kind.startswith("multi")
    letters = re.sub(r"[\s\[\]'\"(){},;|/&.]+|\band\b", "", given)
    known = LETTERS[: len(options)]
    if not letters or any(letter not in known for letter in letters):
        entry.wrong(f'"answer" {clip(given)} is no option ({", ".join(known)})')
        return (), False
    if len(set(letters)) < len(letters):
        entry.wrong(f'"answer" {clip(given)} names an option twice')
        return (), False
    listed = given.strip().startswith("[")
    return tuple(sorted(known.index(letter) for letter in letters)), (
        len(letters) > 1 or kind.startswith("multi") or (listed and kind != "single")
    )


def _first_column(text: dict[str, str], *columns: str) -> str | None:
    return next((text[name] for name in columns if text.get(name)), None)


def _read_hidden_answers(files: list[Path], test: list[Case], problems: Problems) -> dict[str, tuple[int, ...]]:
    """The answers of test questions that a separate file gives."""
    question_of = {case.case_id: case.questions[0] for case in test}
    hidden: dict[str, tuple[int, ...]] = {}
    for file in files:
        for record in read_tsv(file):
            index = record.fields["index"].strip()
            entry = SourceEntry(dict(record.fields), str(file), f"{index} (line {record.line})", problems)
            if index not in question_of:
                entry.wrong("there is no test question of this index")
                continue
            if index in hidden:
                entry.wrong("the index occurs twice")
            hidden[index], _ = _read_answer(entry, record.fields["answer"].strip(), question_of[index].options, {})
            if not hidden[index] and entry.ok:
                entry.wrong("has no answer")
    return hidden


def _with_question_type(case: Case, hidden: dict[str, tuple[int, ...]]) -> Case:
    """The case, as multiple choice where its hidden answer has several options (the prompt has to say so)."""
    if len(hidden.get(case.case_id, ())) < 2:
        return case
    return replace(case, questions=(replace(case.questions[0], question_type="multiple"),))


def _compare_counts(cases: dict[str, list[Case]]) -> list[CountComparison]:
    counts = []
    for split, found in cases.items():
        single = sum(case.questions[0].question_type == "single" for case in found)
        counts.append(CountComparison(f"{split}: single-choice questions", single, PAPER_SPLIT_SIZES[split]))
        counts.append(CountComparison(f"{split}: multiple-choice questions", len(found) - single))
    questions = [case.questions[0] for found in cases.values() for case in found]
    for facet, paper in PAPER_FACET_SIZES.items():
        values = {getattr(question, facet) for question in questions} - {None}
        counts.append(CountComparison(f"values of {facet}", len(values), paper))
    return counts
