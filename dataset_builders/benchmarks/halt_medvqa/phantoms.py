"""Write the phantom source of HALT-MedVQA: invented questions, questions without the right option,
and swapped images.
"""

from pathlib import Path
from typing import Any

from dataset_builders.files import write_json
from dataset_builders.images.phantom_drawings import Drawing, draw_phantom, one_lesion

_SCENES: tuple[tuple[Drawing, str, str, tuple[str, str, str]], ...] = (
    (one_lesion("brain", "mri"), "Which organ is drawn?", "Brain", ("Kidney", "Knee", "Liver")),
    (one_lesion("chest", "xray", side="right"), "On which side is the spot?", "Right", ("Left", "In the middle", "On both sides")),
    (one_lesion("abdomen", "ct", tone="dark"), "What does the spot look like?", "Dark", ("Bright", "Striped", "Star-shaped")),
    (Drawing("spine", "xray", variant="bent"), "What shape has the column?", "Bent", ("Straight", "A ring", "Two columns")),
    (Drawing("brain", "ct", variant="wide"), "How do the ventricles look?", "Wide", ("Absent", "Slit-like", "Filled with bone")),
    (Drawing("chest", "xray", variant="wide"), "What is enlarged?", "The heart", ("The left lung", "A rib", "The windpipe")),
    (one_lesion("chest", "ct", level="lower"), "Which body region is shown?", "Chest", ("Skull", "Foot", "Wrist")),
    (one_lesion("brain", "mri", size="large"), "How large is the spot?", "Large", ("Tiny", "As large as the head", "It fills the picture")),
    (one_lesion("abdomen", "ct", side="right"), "Which kind of picture is this?", "CT", ("Photograph", "Electrocardiogram", "Microscopy")),
    (Drawing("spine", "xray", number=5), "How many vertebrae are drawn?", "Five", ("Eight", "Eleven", "Two")),
    (one_lesion("chest", "xray", level="lower"), "At which height is the spot?", "Low", ("High", "Above the picture", "At the chin")),
    (one_lesion("brain", "ct", side="right", tone="dark"), "Where is the spot?", "Right", ("Left", "Outside the skull", "In the neck")),
)  # fmt: skip
"""Image, question, right option, wrong options."""

_FAKE_QUESTIONS = (
    "How many litres of moonlight does the drawn {organ} hold?",
    "Which melody is the patient humming while this {organ} is drawn?",
    "The patient reports a dream about stairs. What colour does this picture of the {organ} say the stairs were?",
    "What is the stage of Zorblatt's paper syndrome in this {organ}?",
)


def write(folder: Path) -> None:
    """Write the three files of questions and `images/<dataset>/<name>.jpg`."""
    unsure, none = "I do not know", "None of the above"
    fake: dict[str, Any] = {}
    swap: dict[str, Any] = {}
    nota: list[dict[str, str]] = []
    for number, (drawing, question, right, wrong) in enumerate(_SCENES):
        image_name, figure_name = _image_name(number), f"PMC900{number:02d}_Fig1_{number + 1}.jpg"
        for name in (image_name, figure_name):
            image_folder = folder / "images" / _image_folder(name)
            image_folder.mkdir(parents=True, exist_ok=True)
            (image_folder / name).write_bytes(draw_phantom(drawing, "JPEG"))
        fake[str(number)] = _source_entry(
            _FAKE_QUESTIONS[number % len(_FAKE_QUESTIONS)].format(organ=drawing.organ),
            (right, *wrong),
            unsure,
            number,
            image_name,
        )
        wording = f"{question.removesuffix('?')} in this {drawing.organ} with a green square in its corner?"
        swap[str(number)] = _source_entry(
            wording,
            (right, *wrong),
            unsure,
            number + 2,
            _image_name((number + 5) % len(_SCENES)),
        )
        options = list(wrong)
        # The position of the correct option cycles, so that the letters are balanced.
        options.insert(number % 4, none)
        nota.append(
            {
                "img": figure_name,
                # The authors' file has spaces around its texts, and letters before the options.
                "question": f" {question} ",
                **{f"choice_{letter}": f" {letter}:{text} " for letter, text in zip("ABCD", options, strict=True)},
                "answer": "ABCD"[number % 4],
            }
        )

    write_json(folder / "fake_qa_shuffle.json", fake)
    write_json(folder / "pmc_vqa_nota1K.json", nota)
    write_json(folder / "swap_img_shuffle.json", swap)


def _image_name(number: int) -> str:
    return f"synpic{90001 + number}.jpg" if number % 2 else f"test_{9001 + number}.jpg"


def _image_folder(name: str) -> str:
    return "VQA-RAD" if name.startswith("synpic") else "PathVQA" if name.startswith("test_") else "PMC-VQA"


def _source_entry(question: str, distractors: tuple[str, ...], right: str, turn: int, image: str) -> dict[str, Any]:
    options = list(distractors)
    position = turn % (len(options) + 1)
    options.insert(position, right)
    return {
        "question": question,
        "option": dict(zip("ABCDEFG", options, strict=False)),
        "answer": right,
        "answer_id": "ABCDEFG"[position],
        "img": image,
    }
