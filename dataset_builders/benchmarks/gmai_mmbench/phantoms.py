"""Phantom source of GMAI-MMBench: a TSV with answers, one without, and the page of the lexical tree."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataset_builders.images.phantom_drawings import Drawing, Lesion, draw
from dataset_builders.lexical_tree import tree_page

MODALITY = {"mri": "MRI", "ct": "CT", "xray": "X-ray"}


@dataclass(frozen=True)
class _Drawn:
    """A question of the GMAI-MMBench phantoms; `right` are the true options, `facets` task, department, granularity, modality."""

    drawing: Drawing
    question: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    facets: tuple[str, str, str, str]


COLUMNS = (
    "index", "image", "question", "A", "B", "C", "D", "E", "answer", "category", "l2-category", "split",
    "clinical vqa task", "department", "perceptual granularity", "modality",
)  # fmt: skip


def _gmai() -> Iterator[_Drawn]:
    counts = ("2", "3", "5", "7", "9", "12")
    for index, count in enumerate(counts):
        others = tuple(other for other in counts if other != count)[index % 2 : index % 2 + 3]
        yield _Drawn(
            Drawing("cells", "microscopy", number=int(count)),
            "How many cells are drawn in this microscopy picture?", (count,), others,
            ("Counting", "Hematology", "Image Level", "Microscopy"),
        )  # fmt: skip
    for variant, number in (("round", 4), ("long", 4), ("round", 6), ("long", 6)):
        yield _Drawn(
            Drawing("cells", "microscopy", variant=variant, number=number),
            "What shape have the cells in this microscopy picture?",
            (f"{variant} cells",), tuple(f"{other} cells" for other in ("round", "long", "star-shaped", "square") if other != variant),
            ("Cell Recognition", "Hematology", "Box Level", "Microscopy"),
        )  # fmt: skip
    for variant, name in (("wide", "large cup"), ("", "small cup")):
        for lesions in ((), (Lesion("left", "upper", "small", "dark"),)):
            yield _Drawn(
                Drawing("retina", "fundus", lesions, variant),
                "What does the bright disc of this fundus picture look like?",
                (name,), tuple(other for other in ("large cup", "small cup", "two cups") if other != name),
                ("Severity Grading", "Ophthalmology", "Image Level", "Fundus Photography"),
            )  # fmt: skip
    for lesion in (
        Lesion("left", "upper", "large", "dark"),
        Lesion("left", "lower", "small", "bright"),
        Lesion("left", "lower", "large", "dark"),
    ):
        yield _Drawn(
            Drawing("retina", "fundus", (lesion,)),
            "Which finding lies on the retina of this fundus picture?",
            (lesion.words,), tuple(
                f"{size} {tone} spot" for size in ("small", "large") for tone in ("bright", "dark") if f"{size} {tone} spot" != lesion.words
            ),
            ("Disease Diagnosis", "Ophthalmology", "Mask Level", "Fundus Photography"),
        )  # fmt: skip
    for modality, word in (("mri", "MRI"), ("ct", "CT")):
        for variant, name in (("wide", "widened ventricles"), ("narrow", "slit-like ventricles")):
            yield _Drawn(
                Drawing("brain", modality, variant=variant),
                f"What do the ventricles look like in this {word}?",
                (name,), tuple(other for other in ("widened ventricles", "slit-like ventricles", "no ventricles") if other != name),
                ("Attribute Recognition", "Neurosurgery", "Contour Level", word),
            )  # fmt: skip
    organs = {"brain": "brain", "chest": "chest", "abdomen": "abdomen", "spine": "spine"}
    for organ, modality, department in (
        ("brain", "ct", "Neurosurgery"), ("chest", "ct", "Pulmonary Medicine"),
        ("abdomen", "ct", "Gastroenterology and Hepatology"), ("spine", "xray", "Orthopedic Surgery"),
        ("chest", "xray", "Pulmonary Medicine"),
    ):  # fmt: skip
        yield _Drawn(
            Drawing(organ, modality),
            f"Which part of the body does this {MODALITY[modality]} show?",
            (organ,), tuple(other for other in organs if other != organ),
            ("Organ Recognition", department, "Image Level", MODALITY[modality]),
        )  # fmt: skip
    for level in ("upper", "lower"):
        for side in ("left", "right"):
            yield _Drawn(
                Drawing("chest", "xray", (Lesion(side, level, "large"),)),
                "Where in this X-ray is the round spot?",
                (f"{level} {side}",), tuple(f"{a} {b}" for a in ("upper", "lower") for b in ("left", "right") if (a, b) != (level, side)),
                ("Disease Diagnosis", "Pulmonary Medicine", "Box Level", "X-ray"),
            )  # fmt: skip
    spots = (
        Lesion("left", "upper", "large", "bright"),
        Lesion("right", "lower", "small", "dark"),
        Lesion("right", "upper", "small", "bright"),
    )
    labels = {spot: f"a spot in the {spot.level} {spot.side}" for spot in spots}
    for chosen in (spots[:2], spots[1:], spots):
        yield _Drawn(
            Drawing("chest", "ct", chosen),
            "Which of these does this CT show? Several are right.",
            tuple(labels[spot] for spot in chosen),
            (*(labels[spot] for spot in spots if spot not in chosen), "a spot in the lower left", "a third lung")[: 5 - len(chosen)],
            ("Disease Diagnosis", "Pulmonary Medicine", "Image Level", "CT"),
        )  # fmt: skip


def _hidden() -> Iterator[_Drawn]:
    for variant, number in (("bent", 7), ("", 6), ("bent", 5), ("", 8), ("bent", 8), ("", 5)):
        yield _Drawn(
            Drawing("spine", "xray", variant=variant, number=number),
            "What is the shape of the column of vertebrae in this X-ray?",
            ("bent",) if variant else ("straight",), ("straight", "ring-shaped") if variant else ("bent", "ring-shaped"),
            ("Disease Diagnosis", "Orthopedic Surgery", "Image Level", "X-ray"),
        )  # fmt: skip


def write(folder: Path) -> None:
    """`GMAI-MMBench_VAL.tsv` with answers, a TEST part without, and `LexicalTree.html`."""
    drawn, hidden = list(_gmai()), list(_hidden())
    _write_tsv(folder / "GMAI-MMBench_VAL.tsv", drawn, 1, "VAL")
    _write_tsv(folder / "GMAI_mm_bench_TEST_part_1.tsv", hidden, len(drawn) + 1, "TEST")
    (folder / "LexicalTree.html").write_text(_tree_page(drawn), encoding="utf-8")


def _write_tsv(path: Path, drawn: list[_Drawn], first: int, split: str) -> None:
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, COLUMNS, delimiter="\t", lineterminator="\n")
    writer.writeheader()
    turns: dict[int, int] = {}
    for number, each in enumerate(drawn):
        size = len(each.right) + len(each.wrong)
        turn = turns[size] = turns.get(size, -1) + 1
        options = [*each.right, *each.wrong]
        options = options[-turn % size :] + options[: -turn % size]
        answer = ",".join(sorted("ABCDE"[options.index(right)] for right in each.right))
        task, department, granularity, modality = each.facets
        row: dict[str, Any] = {
            "index": first + number,
            "image": base64.b64encode(draw(each.drawing)).decode("ascii"),
            "question": each.question,
            **dict(zip("ABCDE", options, strict=False)),
            "answer": answer if split == "VAL" else "",
            "category": each.right[0] if split == "VAL" else "",
            "l2-category": task,
            "split": split,
            "clinical vqa task": task,
            "department": department,
            "perceptual granularity": granularity,
            "modality": modality,
        }
        writer.writerow(row)
    path.write_text(stream.getvalue(), encoding="utf-8")


def _tree_page(drawn: list[_Drawn]) -> str:
    """The tree of the questions in the layout of the authors' page."""
    subjects = enumerate(("task", "department", "granularity"))
    rows = [(subject, each.facets[at], each.facets[3], each.right[0]) for at, subject in subjects for each in drawn]
    return tree_page(rows, "Lexical tree of the phantoms")
