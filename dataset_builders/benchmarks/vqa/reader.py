"""Read any set of visual questions with a key: rows of any table, in any of the usual forms.

A set is whole or refused: an answer that is no option, equal options or a missing key are errors
that name the row. Open questions are left out and counted.

See also: columns and rows (`rows.py`), options and answers (`keys.py`).
"""

import hashlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from dataset_builders.benchmarks.vqa.keys import (
    ANSWER_FORMS,
    Key,
    as_list,
    is_empty,
    normalize_cell,
    read_key,
    read_options,
    read_yes_no,
)
from dataset_builders.benchmarks.vqa.presets import PRESETS
from dataset_builders.benchmarks.vqa.rows import COMMON_FACETS, Fields, SourceRow, parse_fields, read_rows
from dataset_builders.errors import BadInput, Problems, clip
from dataset_builders.images.lookup import MAX_REFERENCE_LENGTH, ImageError, ImageFolders, decode_base64_image
from dataset_builders.schema import LETTERS, Case, CaseImage, CountComparison, Question, SourceContent
from dataset_builders.source_files import OPTION_LETTER_MARK, SourceEntry, check_text, parse_literal

SOURCE_REMEDY = "Correct the source, or name other columns with --map."
FALLBACK_IMAGE_COLUMNS = ("image_path", "file_name")
"""Columns of paths where a row has no image in the column of images."""
_BASE64 = re.compile(r"[A-Za-z0-9+/=_\s-]+")


@dataclass(slots=True)
class _Draft:
    """A question before the form of the set's answers is known.

    `keys`: form -> key, None if the answer is no option in this form; a yes/no question has one
    key. No cell of the row is kept, since cells hold images.
    """

    place: str
    split: str
    question: Question
    images: list[CaseImage | str]
    keys: dict[str, Key | None]
    answer: str
    is_list: bool


def read(
    source: str | Path,
    images: ImageFolders | None,
    *,
    fields: str = "",
    preset: str | None = None,
    spool_folder: Path,
) -> SourceContent:
    """Read a set.

    Args:
        source: a table, a folder of tables, or ORG/NAME on the Hub.
        images: folders with images; None in a text-only build.
        fields: the meaning of the columns, as the text of `--map`.
        preset: a known set, whose fields hold where `fields` names none.
        spool_folder: where embedded images wait on the disk.

    Raises:
        BadInput: lists all problems with their rows.
    """
    known_set = PRESETS.get(preset or "")
    licence, citation = (known_set.licence, known_set.citation) if known_set else ("unknown", "")
    base = parse_fields(known_set.map if known_set else "")
    columns = parse_fields(fields, base)
    reader = _SetReader(columns, SetImages(images, spool_folder), licence)
    for row in read_rows(str(source), columns):
        reader.add(row)
    reader.check_columns(str(source), base)
    form = reader.choose_form()
    reader.problems.check(SOURCE_REMEDY)
    if not reader.drafts:
        counted = "; ".join(f"{quantity}: {number:,}" for quantity, number in reader.counts.items())
        raise BadInput(
            f"--source {source}: no question with options, or with the answer yes or no ({counted}). {SOURCE_REMEDY}"
        )
    cases = reader.cases(form)
    types = Counter(
        question.question_type for splits in cases.values() for case in splits for question in case.questions
    )
    counts = {**reader.counts, **{f"{kind.replace('_', '/')} questions": number for kind, number in types.items()}}
    return SourceContent(
        cases=cases,
        counts=[CountComparison(quantity, number) for quantity, number in counts.items()],
        notes=[f"Each answer is the {form} of an option."] if form else [],
        facets=tuple(name for name in columns.labels if name not in COMMON_FACETS),
        patients={"license": licence, "deidentification": "by the authors of the set"} if citation else None,
        citation=citation,
    )


class _SetReader:
    """Accumulates the questions of all rows."""

    def __init__(self, fields: Fields, images: "SetImages", licence: str) -> None:
        self.fields, self.images, self.licence = fields, images, licence
        self.problems, self.counts, self.columns = Problems(), Counter[str](), dict[str, None]()
        self.drafts: list[_Draft] = []
        column, _, form = fields.answer[0].rpartition(":")
        self.answer_column, self.form = (column, form) if form in ANSWER_FORMS and column else (fields.answer[0], "")

    def add(self, row: SourceRow) -> None:
        """Read a row; problems are recorded."""
        cells, fields = row.cells, self.fields
        self.counts["rows"] += 1
        self.columns |= dict.fromkeys(cells)
        for column, allowed in fields.allowed.items():
            if normalize_cell({"split": row.split, **cells}.get(column)) not in allowed:
                self.counts[f"left out: rows whose {column} is not {' or '.join(allowed)}"] += 1
                return
        place = f"{row.file}, row {row.number}"
        entry = SourceEntry(dict(cells), place, None, self.problems)
        answer = cells.get(self.answer_column)
        try:
            options = read_options([cells.get(name) for name in self._option_columns()])
        except ValueError as error:
            entry.add_problem(str(error))
            return
        parts = as_list(answer)
        yes_no = read_yes_no(parts[0]) if not options and len(parts) == 1 else None
        if is_empty(answer):
            entry.add_problem(f"has no answer (column {self.answer_column!r})")
        elif not options and yes_no is None:
            self.counts["left out: open questions"] += 1
            return
        texts = [str(cells[name]).strip() for name in fields.question if not is_empty(cells.get(name))]
        text = check_text(_without_options("\n".join(texts), options), entry, "question")
        if not text:
            entry.add_problem(f"has no question (column {fields.question[0]!r})")
        images = self._images(row, entry)
        if entry.ok:
            question = self._question(
                row, text, tuple(check_text(option, entry, "options") for option in options), images
            )
            keys: dict[str, Key | None] = {form: read_key(form, answer, options) for form in ANSWER_FORMS}
            self.drafts.append(
                _Draft(
                    place,
                    row.split,
                    question,
                    images,
                    keys=keys if options else {"": yes_no},
                    answer=clip(answer),
                    is_list=isinstance(parse_literal(answer), list),
                )
            )

    def _option_columns(self) -> Sequence[str]:
        """Return the columns of options, else `A`, `B` and so on as far as there are such columns:
        one called `Q` is no option.
        """
        if self.columns.keys() & set(self.fields.options):
            return self.fields.options
        return tuple(takewhile(lambda name: name in self.columns, (*LETTERS, "AA")))

    def _images(self, row: SourceRow, entry: SourceEntry) -> list[CaseImage | str]:
        names = [name for name in self.fields.image if not is_empty(row.cells.get(name))]
        names = names or [name for name in FALLBACK_IMAGE_COLUMNS if not is_empty(row.cells.get(name))][:1]
        group, licence = self._cell(row, self.fields.group), self._cell(row, self.fields.license)
        stub = CaseImage("", None, license=licence or self.licence, location=entry.file, group=group)
        try:
            images = [image for name in names for image in self.images.find(row.cells[name], row.folder, stub)]
        except ImageError as error:
            entry.add_problem(str(error))
            return []
        if not images and self.images.folders is not None:
            entry.add_problem(f"has no image (column {', '.join(map(repr, self.fields.image))})")
        return images

    def _cell(self, row: SourceRow, names: Sequence[str]) -> str | None:
        cell = next((row.cells[name] for name in names if not is_empty(row.cells.get(name))), None)
        return "; ".join(normalize_cell(part) for part in as_list(cell) if not is_empty(part)) or None

    def _question(
        self, row: SourceRow, text: str, options: tuple[str, ...], images: Sequence[CaseImage | str]
    ) -> Question:
        """Build a question without its key; without an id of its own, the id is a digest of what it
        asks.
        """
        image_names = [image if isinstance(image, str) else image.image_id for image in images]
        content = [row.split, text, options, image_names, self._cell(row, self.fields.case)]
        labels: dict[str, Any] = {name: self._cell(row, [column]) for name, column in self.fields.labels.items()}
        categories = as_list(row.cells.get(self.fields.labels.get("category", "")))
        return Question(
            question_id=self._cell(row, self.fields.id) or f"q-{_digest(content)}",
            case_id=self._cell(row, self.fields.case) or "",
            image_id="",
            question=text,
            options=options or ("yes", "no"),
            answer=(),
            question_type="single" if options else "yes_no",
            categories=tuple(normalize_cell(label) for label in categories if not is_empty(label)),
            extra={name: label for name, label in labels.items() if name not in COMMON_FACETS},
            **{name: label for name, label in labels.items() if name in COMMON_FACETS and name != "category"},
        )

    def check_columns(self, source: str, base: Fields) -> None:
        """Raise BadInput if no row has any of the columns of a field that --map names.

        Args:
            source: what messages call the source.
            base: the fields that --map changed.
        """
        columns_by_field = {"question": self.fields.question, "answer": (self.answer_column,)}
        for name in ("options", "image", "id", "case", "group", "license"):
            if getattr(self.fields, name) != getattr(base, name):
                columns_by_field[name] = getattr(self.fields, name)
        if self.fields.facets != base.facets:
            columns_by_field |= {f"facets={name}": (column,) for name, column in self.fields.labels.items()}
        for name, columns in columns_by_field.items():
            if not self.columns.keys() & set(columns):
                raise BadInput(
                    f"--map {name}: no row of {source} has the column {' or '.join(map(repr, columns))}. "
                    f"It has {', '.join(map(repr, self.columns)) or 'no rows'}."
                )

    def choose_form(self) -> str:
        """Return the form in which all answers of the set are options; record the answers that are
        not. Raises BadInput if two forms fit and differ.
        """
        drafts = [draft for draft in self.drafts if "" not in draft.keys]
        forms = [self.form] if self.form else list(ANSWER_FORMS)
        failures = {form: [draft for draft in drafts if draft.keys[form] is None] for form in forms}
        best = min(forms, key=lambda form: len(failures[form]))
        for draft in failures[best]:
            self.problems.add(
                draft.place,
                None,
                f"its answer {draft.answer} is none of its options ({clip(draft.question.options, 200)})",
            )
        for form in forms if not failures[best] else ():
            rival = next((d for d in drafts if not failures[form] and d.keys[form] != d.keys[best]), None)
            if rival is not None:
                letters = [",".join(LETTERS[at] for at in rival.keys[name] or ()) for name in (best, form)]
                raise BadInput(
                    f"{rival.place}: the answer {rival.answer} is option {letters[0]} by its {best}, and option {letters[1]} "
                    f"by its {form}; all answers of the set can be read in both ways. Say which: "
                    f"--map answer={self.answer_column}:{best} or :{form}."
                )
        return best if drafts else ""

    def cases(self, form: str) -> dict[str, list[Case]]:
        """Return split -> cases: by the column of cases, else questions that show the same images.

        Raises BadInput if an id occurs twice in a split.
        """
        by_id = {(draft.split, draft.question.question_id): draft for draft in self.drafts}
        # Sources often number each split from the start.
        is_numbered_anew = len({name for _, name in by_id}) < len(by_id)
        has_several = any(len(draft.keys.get(form) or ()) > 1 for draft in self.drafts)
        members: dict[str, dict[str, list[tuple[Question, list[CaseImage]]]]] = {}
        repeats = Counter[tuple[str, str]]()
        for draft in self.drafts:
            question, name = draft.question, (draft.split, draft.question.question_id)
            repeats[name] += 1
            if repeats[name] > 1 and self.fields.id:
                self.problems.add(draft.place, None, f"its id {clip(name[1])} already occurs in this split")
            key = draft.keys.get("", draft.keys.get(form)) or ()
            is_multiple = len(key) > 1 or (draft.is_list and has_several and question.question_type != "yes_no")
            number = f"-{repeats[name]}" if repeats[name] > 1 else ""
            question_id = f"{draft.split}-{name[1]}" if is_numbered_anew else f"{name[1]}{number}"
            images = [image for item in draft.images for image in self._resolve(item, draft, by_id)]
            # A text-only set without images: each question counts on its own.
            images = images or [CaseImage(question_id, None, location=draft.place)]
            ids = tuple(image.image_id for image in images)
            case_id = question.case_id or (ids[0] if len(ids) == 1 else f"c-{_digest(ids)}")
            question = replace(
                question,
                question_id=question_id,
                case_id=case_id,
                image_id=ids[0],
                more_image_ids=ids[1:],
                answer=key,
                question_type="multiple" if is_multiple else question.question_type,
            )
            members.setdefault(draft.split, {}).setdefault(case_id, []).append((question, images))

        self.problems.check(SOURCE_REMEDY)
        return {
            split: [
                Case(
                    case_id,
                    tuple({image.image_id: image for _, images in pairs for image in images}.values()),
                    tuple(question for question, _ in pairs),
                )
                for case_id, pairs in cases.items()
            ]
            for split, cases in members.items()
        }

    def _resolve(self, item: CaseImage | str, draft: _Draft, by_id: dict[tuple[str, str], _Draft]) -> list[CaseImage]:
        """Return an image, or the images of the row that a text names; else a missing image."""
        if not isinstance(item, str):
            return [item]
        owner = by_id.get((draft.split, item))
        images = [image for image in owner.images if not isinstance(image, str)] if owner else []
        return images or [CaseImage(f"i-{_digest(item)}", None, name=item, location=draft.place)]


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _without_options(question: str, options: Sequence[str]) -> str:
    """Remove a list of the options with their letters from the end of a question, since the prompt
    lists them.
    """
    listed = [
        OPTION_LETTER_MARK.format(letter) + r"\s+".join(map(re.escape, option.split()))
        for letter, option in zip(LETTERS, options, strict=False)
    ]
    pattern = r"\s*(?:(?:answer\s+)?(?:choices|options)\s*:)?" + r"[\s,;.]*".join(listed) + r"[\s.]*$"
    return re.sub(pattern, "", question, flags=re.IGNORECASE) if options else question


class SetImages:
    """The images that cells refer to, each distinct one once.

    Their ids are digests of their bytes, so they reveal no file name. Embedded images go to a file
    on the disk, since all of a set do not fit in memory.
    """

    def __init__(self, folders: ImageFolders | None, spool_folder: Path) -> None:
        self.folders, self.spool_folder = folders, spool_folder
        self.by_digest: dict[str, CaseImage] = {}
        self.spool: Any = None

    def find(self, cell: Any, folder: Path | None, image: CaseImage) -> list[CaseImage | str]:
        """Return the images of a cell.

        Args:
            cell: encoded bytes, base64, a path, `{"bytes", "path"}` of `datasets`, or a list of
                these.
            folder: where paths begin; None on the Hub.
            image: licence, group and location of the images.

        Returns:
            Images, `read` None if a file is missing or images are not wanted; a text that is not
                the path of a file stands as it is: it may be the id of the row that has the image.

        Raises:
            ImageError: the image is a URL or not base64, or is another patient's elsewhere.
        """
        images: list[CaseImage | str] = []
        for part in self._parts(parse_literal(cell)):
            data = self._read(part, folder)
            if isinstance(data, str) and len(data) <= MAX_REFERENCE_LENGTH and "." not in data:
                images.append(data)
                continue
            file_name = re.split(r"[\\/]", data)[-1] if isinstance(data, str) else ""
            images.append(self._register(data, replace(image, name=file_name)))
        return images

    def _parts(self, cell: Any) -> Iterator[Any]:
        if isinstance(cell, list):
            yield from (part for value in cell for part in self._parts(value))
        elif isinstance(cell, dict):
            yield from self._parts(cell.get("bytes") or cell.get("path"))
        elif not is_empty(cell):
            yield cell.strip() if isinstance(cell, str) else cell

    def _read(self, part: Any, folder: Path | None) -> bytes | Path | str:
        """Return embedded bytes, the path of a file, or the text itself if there is no file."""
        if isinstance(part, bytes):
            return part
        if not isinstance(part, str):
            raise ImageError(f"the image is {clip(part)}; expected bytes, base64 or a path")
        if re.match(r"(?i)https?://", part):
            raise ImageError(
                f"the image is a URL ({clip(part)}): download the images, and name their folder with --images"
            )
        if part.startswith("data:") or (len(part) > MAX_REFERENCE_LENGTH and _BASE64.fullmatch(part)):
            return decode_base64_image(part)
        roots = [*([folder] if folder else []), *(self.folders.folders if self.folders else [])]
        for root in roots:
            # Absolute paths and `..` may name what is in the source, nothing else.
            if (root / part).is_file() and (root / part).resolve().is_relative_to(root.resolve()):
                return root / part
        return (self.folders.find([part]) if self.folders else None) or part

    def _register(self, data: bytes | Path | str, image: CaseImage) -> CaseImage:
        content = data.read_bytes() if isinstance(data, Path) else data.encode() if isinstance(data, str) else data
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self.by_digest:
            is_wanted = self.folders is not None and not isinstance(data, str)
            read_image = data.read_bytes if isinstance(data, Path) else self._store(content) if is_wanted else None
            self.by_digest[digest] = replace(
                image,
                image_id=f"i-{digest[:16]}",
                read=read_image if is_wanted else None,
                size=len(content) if is_wanted else 0,
            )
        registered = self.by_digest[digest]
        if registered.group != image.group:
            raise ImageError(f"its image is that of another patient in {registered.location}")  # names no patient
        return registered

    def _store(self, content: bytes) -> Callable[[], bytes]:
        """Append an image to the file on the disk; return a function that reads it there."""
        if self.spool is None:
            self.spool = tempfile.TemporaryFile(dir=self.spool_folder)  # noqa: SIM115  (read until the set is written)
        position = self.spool.tell()
        self.spool.write(content)
        self.spool.flush()
        return partial(self._unspool, len(content), position)

    def _unspool(self, size: int, position: int) -> bytes:
        # Unlike seek and read, this may be called by several threads.
        return os.pread(self.spool.fileno(), size, position)
