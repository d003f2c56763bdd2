"""Writes tiny sources of drawn phantoms in the official layout of each benchmark, so that everything works offline, from nothing.

Every question has one right answer by construction, and the letters are balanced. The texts are ours. Not here: the drawings
(`phantom_drawings.py`), ProbMed's and GMAI-MMBench's questions (`phantom_facets.py`).
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from dataset_builders.errors import BadInput
from dataset_builders.phantom_drawings import Drawing, Lesion, draw
from dataset_builders.phantom_facets import write_gmai_mmbench, write_probmed
from dataset_builders.source_files import ORIGIN_MARKER

LESIONS = {"brain": "spot in the brain", "chest": "spot in the lung", "abdomen": "spot in the liver or spleen"}


def write_sources(format: str, folder: Path) -> None:
    """Write the phantom source of a format into `folder` (made if need be): the same bytes every time."""
    writers = {
        "mediconfusion": _write_mediconfusion,
        "probmed": write_probmed,
        "gmai-mmbench": write_gmai_mmbench,
        "halt-medvqa": _write_halt,
    }
    if format not in writers:
        raise BadInput(f"{format}: there are phantoms of {', '.join(writers)} only.")
    folder.mkdir(parents=True, exist_ok=True)
    writers[format](folder)
    write_json(folder / ORIGIN_MARKER, {"origin": "phantom"})


def write_json(path: Path, document: Any) -> None:
    """Write a JSON file, the same bytes for the same document."""
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _shot(organ: str, modality: str, **lesion: str) -> Drawing:
    return Drawing(organ, modality, (Lesion(**lesion),))


_SHARED = _shot("brain", "mri", side="left", level="upper", size="small")
"""One image that sits in three pairs, as images of the real benchmark sit in up to fourteen."""

_PAIRS: tuple[tuple[str, Drawing, str, Drawing, str, tuple[str, ...]], ...] = (
    (
        "On which side of this brain scan does the bright spot lie?",
        _SHARED, "On the left of the picture",
        _shot("brain", "mri", side="right", level="upper", size="small"), "On the right of the picture",
        ("Cerebral", "Head and Neck"),
    ),
    (
        "How large is the bright spot in this brain scan?",
        _SHARED, "Small, much narrower than a ventricle is long",
        _shot("brain", "mri", side="left", level="upper", size="large"), "Large, about as wide as both ventricles together",
        ("Cerebral",),
    ),
    (
        "At which height of this brain scan is the bright spot?",
        _SHARED, "In the upper half",
        _shot("brain", "mri", side="left", level="lower", size="small"), "In the lower half",
        ("Cerebral", "Head and Neck"),
    ),
    (
        "Is the round spot in this head CT brighter or darker than the brain around it?",
        _shot("brain", "ct", side="right", size="large", tone="bright"), "Brighter",
        _shot("brain", "ct", side="right", size="large", tone="dark"), "Darker",
        ("Cerebral", "Vascular"),
    ),
    (
        "What do the ventricles look like in this brain scan?",
        Drawing("brain", "mri", variant="wide"), "Widened",
        Drawing("brain", "mri", variant="narrow"), "Slit-like",
        ("Cerebral",),
    ),
    (
        "In which part of this chest radiograph is the round spot?",
        _shot("chest", "xray", side="left", level="upper", size="large"), "Upper field, left of the picture",
        _shot("chest", "xray", side="left", level="lower", size="large"), "Lower field, left of the picture",
        ("Pulmonary",),
    ),
    (
        "How wide is the heart in this chest radiograph?",
        Drawing("chest", "xray", variant="wide"), "More than half as wide as the chest",
        Drawing("chest", "xray", variant="narrow"), "Less than half as wide as the chest",
        ("Cardiac", "Pulmonary"),
    ),
    (
        "Which lung field of this CT slice holds the small bright spot?",
        _shot("chest", "ct", side="right", level="lower"), "The one on the right of the picture",
        _shot("chest", "ct", side="left", level="lower"), "The one on the left of the picture",
        ("Pulmonary",),
    ),
    (
        "How many round spots does this chest radiograph show?",
        Drawing("chest", "xray", (Lesion("right", "upper"), Lesion("left", "lower"))), "Two",
        _shot("chest", "xray", side="right", level="upper"), "One",
        ("Pulmonary", "Cardiac"),
    ),
    (
        "What is the shape of the column of vertebrae in this radiograph?",
        Drawing("spine", "xray", variant="bent"), "Bent to one side",
        Drawing("spine", "xray"), "Straight",
        ("Spinal", "Musculoskeletal"),
    ),
    (
        "How many vertebrae can be counted in this radiograph of the spine?",
        Drawing("spine", "xray", number=5), "Five",
        Drawing("spine", "xray", number=8), "Eight",
        ("Spinal", "Musculoskeletal"),
    ),
    (
        "How does the large round spot in this abdominal CT compare with the organ around it?",
        _shot("abdomen", "ct", size="large", tone="dark"), "It is darker",
        _shot("abdomen", "ct", size="large", tone="bright"), "It is brighter",
        ("Gastrointestinal",),
    ),
    (
        "Where in this abdominal CT is the small bright spot?",
        _shot("abdomen", "ct", side="left", level="upper"), "On the left of the picture",
        _shot("abdomen", "ct", side="right", level="upper"), "On the right of the picture",
        ("Gastrointestinal", "Vascular"),
    ),
    (
        "Does this brain scan show one spot or two?",
        Drawing("brain", "mri", (Lesion("left", "upper"), Lesion("right", "lower"))), "Two",
        _SHARED, "One",
        ("Cerebral", "Head and Neck"),
    ),
)  # fmt: skip
"""Question; image and its right option, twice; categories of both images."""


def _write_mediconfusion(folder: Path) -> None:
    (folder / "images").mkdir(exist_ok=True)
    numbers: dict[Drawing, int] = {}
    labels: Counter[str] = Counter()
    document: dict[str, dict[str, Any]] = {}
    for position, (question, first, first_option, second, second_option, categories) in enumerate(_PAIRS):
        for drawing in (first, second):
            if drawing not in numbers:
                numbers[drawing] = 30001 + len(numbers)
                (folder / "images" / f"{numbers[drawing]}.png").write_bytes(draw(drawing))
        swap = position % 2 == 1
        options = (second_option, first_option) if swap else (first_option, second_option)
        pair: dict[str, Any] = {}
        for number, drawing in ((1, first), (2, second)):
            pair[f"im_{number}"] = f"phantom/images/PHANTOM_{numbers[drawing]}.png"
            pair[f"im_{number}_local"] = numbers[drawing]
            pair[f"cap_{number}"] = f" A drawn {drawing.organ} ({drawing.modality}): {_caption(drawing)}."
            pair[f"category_{number}"] = list(categories)
            labels.update(categories)
        document[str(90001 + position)] = {
            **pair,
            "BiomedCLIP_sim": round(0.9 + 0.003 * position, 4),
            "DINO_sim": round(0.7 - 0.02 * position, 4),
            "question": question,
            "option_A": options[0],
            "option_B": options[1],
            "im_1_correct": "B" if swap else "A",
            "im_2_correct": "A" if swap else "B",
            "AI_question": question if position % 3 else f"What can be seen here? {question}",
            "AI_option_A": options[0],
            "AI_option_B": options[1],
        }
    write_json(folder / "dataset.json", document)
    write_json(folder / "statistics.json", dict(labels))


def _caption(drawing: Drawing) -> str:
    if not drawing.lesions:
        return drawing.variant or (f"{drawing.number} vertebrae" if drawing.number else "nothing unusual")
    return " and ".join(f"a {spot.words} in the {spot.level} {spot.side} of the picture" for spot in drawing.lesions)


_HALT_SCENES: tuple[tuple[Drawing, str, str, tuple[str, str, str]], ...] = (
    (_shot("brain", "mri"), "Which organ is drawn?", "Brain", ("Kidney", "Knee", "Liver")),
    (_shot("chest", "xray", side="right"), "On which side is the spot?", "Right", ("Left", "In the middle", "On both sides")),
    (_shot("abdomen", "ct", tone="dark"), "What does the spot look like?", "Dark", ("Bright", "Striped", "Star-shaped")),
    (Drawing("spine", "xray", variant="bent"), "What shape has the column?", "Bent", ("Straight", "A ring", "Two columns")),
    (Drawing("brain", "ct", variant="wide"), "How do the ventricles look?", "Wide", ("Absent", "Slit-like", "Filled with bone")),
    (Drawing("chest", "xray", variant="wide"), "What is enlarged?", "The heart", ("The left lung", "A rib", "The windpipe")),
    (_shot("chest", "ct", level="lower"), "Which body region is shown?", "Chest", ("Skull", "Foot", "Wrist")),
    (_shot("brain", "mri", size="large"), "How large is the spot?", "Large", ("Tiny", "As large as the head", "It fills the picture")),
    (_shot("abdomen", "ct", side="right"), "Which kind of picture is this?", "CT", ("Photograph", "Electrocardiogram", "Microscopy")),
    (Drawing("spine", "xray", number=5), "How many vertebrae are drawn?", "Five", ("Eight", "Eleven", "Two")),
    (_shot("chest", "xray", level="lower"), "At which height is the spot?", "Low", ("High", "Above the picture", "At the chin")),
    (_shot("brain", "ct", side="right", tone="dark"), "Where is the spot?", "Right", ("Left", "Outside the skull", "In the neck")),
)  # fmt: skip
"""Image, question, right option, wrong options."""

_FAKE = (
    "How many litres of moonlight does the drawn {organ} hold?",
    "Which melody is the patient humming while this {organ} is drawn?",
    "The patient reports a dream about stairs. What colour does this picture of the {organ} say the stairs were?",
    "What is the stage of Zorblatt's paper syndrome in this {organ}?",
)


def _write_halt(folder: Path) -> None:
    unsure, none = "I do not know", "None of the above"
    fake: dict[str, Any] = {}
    swap: dict[str, Any] = {}
    nota: list[dict[str, str]] = []
    for number, (drawing, question, right, wrong) in enumerate(_HALT_SCENES):
        places = {
            "fake": f"synpic{90001 + number}.jpg" if number % 2 else f"test_{9001 + number}.jpg",
            "none": f"PMC900{number:02d}_Fig1_{number + 1}.jpg",
        }
        for name in places.values():
            home = folder / "images" / _home(name)
            home.mkdir(parents=True, exist_ok=True)
            (home / name).write_bytes(draw(drawing, "JPEG"))
        fake[str(number)] = _halt_entry(
            _FAKE[number % len(_FAKE)].format(organ=drawing.organ), (right, *wrong), unsure, number, places["fake"]
        )
        other = (number + 5) % len(_HALT_SCENES)
        elsewhere = f"synpic{90001 + other}.jpg" if other % 2 else f"test_{9001 + other}.jpg"
        asked = (
            f"{question.removesuffix('?')} in this {_HALT_SCENES[number][0].organ} with a green square in its corner?"
        )
        swap[str(number)] = _halt_entry(asked, (right, *wrong), unsure, number + 2, elsewhere)
        options = list(wrong)
        options.insert(number % 4, none)
        nota.append(
            {
                "img": places["none"],
                "question": f" {question} ",
                **{f"choice_{letter}": f" {letter}:{text} " for letter, text in zip("ABCD", options, strict=True)},
                "answer": "ABCD"[number % 4],
            }
        )
    write_json(folder / "fake_qa_shuffle.json", fake)
    write_json(folder / "pmc_vqa_nota1K.json", nota)
    write_json(folder / "swap_img_shuffle.json", swap)


def _home(name: str) -> str:
    return "VQA-RAD" if name.startswith("synpic") else "PathVQA" if name.startswith("test_") else "PMC-VQA"


def _halt_entry(question: str, others: tuple[str, ...], right: str, turn: int, image: str) -> dict[str, Any]:
    options = list(others)
    place = turn % (len(options) + 1)
    options.insert(place, right)
    return {
        "question": question,
        "option": dict(zip("ABCDEFG", options, strict=False)),
        "answer": right,
        "answer_id": "ABCDEFG"[place],
        "img": image,
    }
