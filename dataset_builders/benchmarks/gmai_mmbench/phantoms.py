"""Write the phantom source of GMAI-MMBench: a TSV with answers, one without, and a lexical tree."""

import base64
import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dataset_builders.benchmarks.gmai_mmbench.reader import render_tree_page
from dataset_builders.images.phantom_drawings import Drawing, Lesion, draw_phantom, one_lesion

Facets = tuple[str, str, str, str]
"""Task, department, granularity and modality."""


@dataclass(frozen=True)
class _PhantomQuestion:
    """A phantom question; `right` and `wrong` are options."""

    drawing: Drawing
    question: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    facets: Facets


TSV_COLUMNS = (
    "index", "image", "question", "A", "B", "C", "D", "E", "answer", "category", "l2-category", "split",
    "clinical vqa task", "department", "perceptual granularity", "modality",
)  # fmt: skip

_CUPS = ("large cup", "small cup", "two cups")
_SPOTS = ("small bright spot", "small dark spot", "large bright spot", "large dark spot")
_PLACES = ("upper left", "upper right", "lower left", "lower right")
_VENTRICLES = ("widened ventricles", "slit-like ventricles", "no ventricles")
_ORGANS = ("brain", "chest", "abdomen", "spine")
_SHAPES = ("round cells", "long cells", "star-shaped cells", "square cells")
_SINGLE_CHOICE: tuple[tuple[str, Facets, tuple[tuple[Drawing, str, tuple[str, ...]], ...]], ...] = (
    (
        "How many cells are drawn in this microscopy picture?",
        ("Counting", "Hematology", "Image Level", "Microscopy"),
        (
            (Drawing("cells", "microscopy", number=2), "2", ("3", "5", "7")),
            (Drawing("cells", "microscopy", number=3), "3", ("5", "7", "9")),
            (Drawing("cells", "microscopy", number=5), "5", ("2", "3", "7")),
            (Drawing("cells", "microscopy", number=7), "7", ("3", "5", "9")),
            (Drawing("cells", "microscopy", number=9), "9", ("2", "3", "5")),
            (Drawing("cells", "microscopy", number=12), "12", ("3", "5", "7")),
        ),
    ),
    (
        "What shape have the cells in this microscopy picture?",
        ("Cell Recognition", "Hematology", "Box Level", "Microscopy"),
        (
            (Drawing("cells", "microscopy", variant="round", number=4), "round cells", _SHAPES),
            (Drawing("cells", "microscopy", variant="long", number=4), "long cells", _SHAPES),
            (Drawing("cells", "microscopy", variant="round", number=6), "round cells", _SHAPES),
            (Drawing("cells", "microscopy", variant="long", number=6), "long cells", _SHAPES),
        ),
    ),
    (
        "What does the bright disc of this fundus picture look like?",
        ("Severity Grading", "Ophthalmology", "Image Level", "Fundus Photography"),
        (
            (Drawing("retina", "fundus", variant="wide"), "large cup", _CUPS),
            (Drawing("retina", "fundus", (Lesion(tone="dark"),), "wide"), "large cup", _CUPS),
            (Drawing("retina", "fundus"), "small cup", _CUPS),
            (one_lesion("retina", "fundus", tone="dark"), "small cup", _CUPS),
        ),
    ),
    (
        "Which finding lies on the retina of this fundus picture?",
        ("Disease Diagnosis", "Ophthalmology", "Mask Level", "Fundus Photography"),
        (
            (one_lesion("retina", "fundus", size="large", tone="dark"), "large dark spot", _SPOTS),
            (one_lesion("retina", "fundus", level="lower"), "small bright spot", _SPOTS),
            (one_lesion("retina", "fundus", level="lower", size="large", tone="dark"), "large dark spot", _SPOTS),
        ),
    ),
    (
        "What do the ventricles look like in this MRI?",
        ("Attribute Recognition", "Neurosurgery", "Contour Level", "MRI"),
        (
            (Drawing("brain", "mri", variant="wide"), "widened ventricles", _VENTRICLES),
            (Drawing("brain", "mri", variant="narrow"), "slit-like ventricles", _VENTRICLES),
        ),
    ),
    (
        "What do the ventricles look like in this CT?",
        ("Attribute Recognition", "Neurosurgery", "Contour Level", "CT"),
        (
            (Drawing("brain", "ct", variant="wide"), "widened ventricles", _VENTRICLES),
            (Drawing("brain", "ct", variant="narrow"), "slit-like ventricles", _VENTRICLES),
        ),
    ),
    (
        "Which part of the body does this CT show?",
        ("Organ Recognition", "Neurosurgery", "Image Level", "CT"),
        ((Drawing("brain", "ct"), "brain", _ORGANS),),
    ),
    (
        "Which part of the body does this CT show?",
        ("Organ Recognition", "Pulmonary Medicine", "Image Level", "CT"),
        ((Drawing("chest", "ct"), "chest", _ORGANS),),
    ),
    (
        "Which part of the body does this CT show?",
        ("Organ Recognition", "Gastroenterology and Hepatology", "Image Level", "CT"),
        ((Drawing("abdomen", "ct"), "abdomen", _ORGANS),),
    ),
    (
        "Which part of the body does this X-ray show?",
        ("Organ Recognition", "Orthopedic Surgery", "Image Level", "X-ray"),
        ((Drawing("spine", "xray"), "spine", _ORGANS),),
    ),
    (
        "Which part of the body does this X-ray show?",
        ("Organ Recognition", "Pulmonary Medicine", "Image Level", "X-ray"),
        ((Drawing("chest", "xray"), "chest", _ORGANS),),
    ),
    (
        "Where in this X-ray is the round spot?",
        ("Disease Diagnosis", "Pulmonary Medicine", "Box Level", "X-ray"),
        (
            (one_lesion("chest", "xray", size="large"), "upper left", _PLACES),
            (one_lesion("chest", "xray", side="right", size="large"), "upper right", _PLACES),
            (one_lesion("chest", "xray", level="lower", size="large"), "lower left", _PLACES),
            (one_lesion("chest", "xray", side="right", level="lower", size="large"), "lower right", _PLACES),
        ),
    ),
)
"""Question, facets, and for each drawing the right option and all options."""


def _validation_questions() -> Iterator[_PhantomQuestion]:
    for question, facets, drawings in _SINGLE_CHOICE:
        for drawing, right, names in drawings:
            wrong = tuple(name for name in names if name != right)
            yield _PhantomQuestion(drawing, question, (right,), wrong, facets)

    spots = (
        Lesion("left", "upper", "large", "bright"),
        Lesion("right", "lower", "small", "dark"),
        Lesion("right", "upper", "small", "bright"),
    )
    labels = {spot: f"a spot in the {spot.level} {spot.side}" for spot in spots}
    facets = ("Disease Diagnosis", "Pulmonary Medicine", "Image Level", "CT")
    for chosen in (spots[:2], spots[1:], spots):
        wrong = (*(labels[spot] for spot in spots if spot not in chosen), "a spot in the lower left", "a third lung")
        question = "Which of these does this CT show? Several are right."
        right_options = tuple(labels[spot] for spot in chosen)
        # The TSV has five columns of options.
        yield _PhantomQuestion(
            Drawing("chest", "ct", chosen), question, right_options, wrong[: 5 - len(chosen)], facets
        )


def _test_questions() -> Iterator[_PhantomQuestion]:
    facets = ("Disease Diagnosis", "Orthopedic Surgery", "Image Level", "X-ray")
    question = "What is the shape of the column of vertebrae in this X-ray?"
    for variant, number in (("bent", 7), ("", 6), ("bent", 5), ("", 8), ("bent", 8), ("", 5)):
        right, wrong = ("bent", "straight") if variant else ("straight", "bent")
        drawing = Drawing("spine", "xray", variant=variant, number=number)
        yield _PhantomQuestion(drawing, question, (right,), (wrong, "ring-shaped"), facets)


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
        writer.writerow(
            {
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
        )

    path.write_text(stream.getvalue(), encoding="utf-8")


def _tree_page(questions: list[_PhantomQuestion]) -> str:
    """Render the questions' tree in the layout of the authors' page."""
    rows = [
        (subject, question.facets[at], question.facets[3], question.right[0])
        for at, subject in enumerate(("task", "department", "granularity"))
        for question in questions
    ]
    return render_tree_page(rows, "Lexical tree of the phantoms")
