"""Write the phantom source of GMAI-MMBench: a TSV with answers, one without, and a lexical tree."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataset_builders.images.phantom_drawings import Drawing, Lesion, draw_phantom
from dataset_builders.lexical_tree import render_tree_page

MODALITY_NAMES = {"mri": "MRI", "ct": "CT", "xray": "X-ray"}


@dataclass(frozen=True)
class _PhantomQuestion:
    """A phantom question.

    `right` and `wrong` are options; `facets` are task, department, granularity and modality.
    """

    drawing: Drawing
    question: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    facets: tuple[str, str, str, str]


TSV_COLUMNS = (
    "index", "image", "question", "A", "B", "C", "D", "E", "answer", "category", "l2-category", "split",
    "clinical vqa task", "department", "perceptual granularity", "modality",
)  # fmt: skip


def _single_choice(
    drawing: Drawing,
    question: str,
    right: str,
    names: Iterable[str],
    facets: tuple[str, str, str, str],
) -> _PhantomQuestion:
    """Build a question whose wrong options are the other `names`."""
    return _PhantomQuestion(drawing, question, (right,), tuple(name for name in names if name != right), facets)


def _validation_questions() -> Iterator[_PhantomQuestion]:
    counts = ("2", "3", "5", "7", "9", "12")
    facets = ("Counting", "Hematology", "Image Level", "Microscopy")
    for index, count in enumerate(counts):
        wrong_counts = [wrong_count for wrong_count in counts if wrong_count != count][index % 2 : index % 2 + 3]
        drawing = Drawing("cells", "microscopy", number=int(count))
        yield _single_choice(
            drawing,
            "How many cells are drawn in this microscopy picture?",
            count,
            wrong_counts,
            facets,
        )

    names: Sequence[str] = ("round cells", "long cells", "star-shaped cells", "square cells")
    facets = ("Cell Recognition", "Hematology", "Box Level", "Microscopy")
    for variant, number in (("round", 4), ("long", 4), ("round", 6), ("long", 6)):
        drawing = Drawing("cells", "microscopy", variant=variant, number=number)
        yield _single_choice(
            drawing,
            "What shape have the cells in this microscopy picture?",
            f"{variant} cells",
            names,
            facets,
        )

    names = ("large cup", "small cup", "two cups")
    facets = ("Severity Grading", "Ophthalmology", "Image Level", "Fundus Photography")
    for variant, name in (("wide", "large cup"), ("", "small cup")):
        for lesions in ((), (Lesion("left", "upper", "small", "dark"),)):
            drawing = Drawing("retina", "fundus", lesions, variant)
            yield _single_choice(
                drawing,
                "What does the bright disc of this fundus picture look like?",
                name,
                names,
                facets,
            )

    names = [f"{size} {tone} spot" for size in ("small", "large") for tone in ("bright", "dark")]
    facets = ("Disease Diagnosis", "Ophthalmology", "Mask Level", "Fundus Photography")
    for level, size, tone in (
        ("upper", "large", "dark"),
        ("lower", "small", "bright"),
        ("lower", "large", "dark"),
    ):
        drawing = Drawing("retina", "fundus", (Lesion("left", level, size, tone),))
        question = "Which finding lies on the retina of this fundus picture?"
        yield _single_choice(drawing, question, f"{size} {tone} spot", names, facets)

    names = ("widened ventricles", "slit-like ventricles", "no ventricles")
    for modality, word in (("mri", "MRI"), ("ct", "CT")):
        facets = ("Attribute Recognition", "Neurosurgery", "Contour Level", word)
        for variant, name in (("wide", "widened ventricles"), ("narrow", "slit-like ventricles")):
            drawing = Drawing("brain", modality, variant=variant)
            yield _single_choice(drawing, f"What do the ventricles look like in this {word}?", name, names, facets)

    names = ("brain", "chest", "abdomen", "spine")
    for organ, modality, department in (
        ("brain", "ct", "Neurosurgery"), ("chest", "ct", "Pulmonary Medicine"),
        ("abdomen", "ct", "Gastroenterology and Hepatology"), ("spine", "xray", "Orthopedic Surgery"),
        ("chest", "xray", "Pulmonary Medicine"),
    ):  # fmt: skip
        facets = ("Organ Recognition", department, "Image Level", MODALITY_NAMES[modality])
        question = f"Which part of the body does this {MODALITY_NAMES[modality]} show?"
        yield _single_choice(Drawing(organ, modality), question, organ, names, facets)

    names = [f"{level} {side}" for level in ("upper", "lower") for side in ("left", "right")]
    facets = ("Disease Diagnosis", "Pulmonary Medicine", "Box Level", "X-ray")
    for name in names:
        level, side = name.split()
        drawing = Drawing("chest", "xray", (Lesion(side, level, "large"),))
        yield _single_choice(drawing, "Where in this X-ray is the round spot?", name, names, facets)

    spots = (
        Lesion("left", "upper", "large", "bright"),
        Lesion("right", "lower", "small", "dark"),
        Lesion("right", "upper", "small", "bright"),
    )
    labels = {spot: f"a spot in the {spot.level} {spot.side}" for spot in spots}
    for chosen in (spots[:2], spots[1:], spots):
        wrong = (
            *(labels[spot] for spot in spots if spot not in chosen),
            "a spot in the lower left",
            "a third lung",
        )
        question = "Which of these does this CT show? Several are right."
        right = tuple(labels[spot] for spot in chosen)
        facets = ("Disease Diagnosis", "Pulmonary Medicine", "Image Level", "CT")
        # The TSV has five columns of options.
        yield _PhantomQuestion(Drawing("chest", "ct", chosen), question, right, wrong[: 5 - len(chosen)], facets)


def _test_questions() -> Iterator[_PhantomQuestion]:
    facets = ("Disease Diagnosis", "Orthopedic Surgery", "Image Level", "X-ray")
    for variant, number in (("bent", 7), ("", 6), ("bent", 5), ("", 8), ("bent", 8), ("", 5)):
        drawing = Drawing("spine", "xray", variant=variant, number=number)
        question = "What is the shape of the column of vertebrae in this X-ray?"
        name = "bent" if variant else "straight"
        yield _single_choice(drawing, question, name, ("bent", "straight", "ring-shaped"), facets)


def write(folder: Path) -> None:
    """Write `GMAI-MMBench_VAL.tsv` with answers, a TEST part without, and `LexicalTree.html`."""
    questions, hidden = list(_validation_questions()), list(_test_questions())
    _write_tsv(folder / "GMAI-MMBench_VAL.tsv", questions, 1, "VAL")
    _write_tsv(folder / "GMAI_mm_bench_TEST_part_1.tsv", hidden, len(questions) + 1, "TEST")
    (folder / "LexicalTree.html").write_text(_tree_page(questions), encoding="utf-8")


def _write_tsv(path: Path, questions: list[_PhantomQuestion], first_index: int, split: str) -> None:
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, TSV_COLUMNS, delimiter="\t", lineterminator="\n")
    writer.writeheader()
    turns: dict[int, int] = {}
    for number, question in enumerate(questions):
        size = len(question.right) + len(question.wrong)
        turn = turns[size] = turns.get(size, -1) + 1
        options = [*question.right, *question.wrong]
        # Rotate the options, so that the correct letters are balanced for every number of options.
        options = options[-turn % size :] + options[: -turn % size]
        answer = ",".join(sorted("ABCDE"[options.index(right)] for right in question.right))
        task, department, granularity, modality = question.facets
        row: dict[str, Any] = {
            "index": first_index + number,
            "image": base64.b64encode(draw_phantom(question.drawing)).decode("ascii"),
            "question": question.question,
            **dict(zip("ABCDE", options, strict=False)),
            "answer": answer if split == "VAL" else "",
            "category": question.right[0] if split == "VAL" else "",
            "l2-category": task,
            "split": split,
            "clinical vqa task": task,
            "department": department,
            "perceptual granularity": granularity,
            "modality": modality,
        }
        writer.writerow(row)

    path.write_text(stream.getvalue(), encoding="utf-8")


def _tree_page(questions: list[_PhantomQuestion]) -> str:
    """Render the questions' tree in the layout of the authors' page."""
    subjects = enumerate(("task", "department", "granularity"))
    rows = [
        (subject, question.facets[at], question.facets[3], question.right[0])
        for at, subject in subjects
        for question in questions
    ]
    return render_tree_page(rows, "Lexical tree of the phantoms")
