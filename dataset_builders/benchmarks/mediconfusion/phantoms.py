"""Write the phantom source of MediConfusion: pairs of similar drawings with different correct
options.
"""

from pathlib import Path
from typing import Any

from dataset_builders.files import write_json
from dataset_builders.images.phantom_drawings import Drawing, Lesion, draw_phantom, one_lesion

_SHARED_PAIRS = one_lesion("brain", "mri", side="left", level="upper", size="small")
"""An image that several pairs share, as in the real benchmark, where up to fourteen pairs do."""

_PAIRS: tuple[tuple[str, Drawing, str, Drawing, str, tuple[str, ...]], ...] = (
    (
        "On which side of this brain scan does the bright spot lie?",
        _SHARED_PAIRS, "On the left of the picture",
        one_lesion("brain", "mri", side="right", level="upper", size="small"), "On the right of the picture",
        ("Cerebral", "Head and Neck"),
    ),
    (
        "How large is the bright spot in this brain scan?",
        _SHARED_PAIRS, "Small, much narrower than a ventricle is long",
        one_lesion("brain", "mri", side="left", level="upper", size="large"), "Large, about as wide as both ventricles together",
        ("Cerebral",),
    ),
    (
        "At which height of this brain scan is the bright spot?",
        _SHARED_PAIRS, "In the upper half",
        one_lesion("brain", "mri", side="left", level="lower", size="small"), "In the lower half",
        ("Cerebral", "Head and Neck"),
    ),
    (
        "Is the round spot in this head CT brighter or darker than the brain around it?",
        one_lesion("brain", "ct", side="right", size="large", tone="bright"), "Brighter",
        one_lesion("brain", "ct", side="right", size="large", tone="dark"), "Darker",
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
        one_lesion("chest", "xray", side="left", level="upper", size="large"), "Upper field, left of the picture",
        one_lesion("chest", "xray", side="left", level="lower", size="large"), "Lower field, left of the picture",
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
        one_lesion("chest", "ct", side="right", level="lower"), "The one on the right of the picture",
        one_lesion("chest", "ct", side="left", level="lower"), "The one on the left of the picture",
        ("Pulmonary",),
    ),
    (
        "How many round spots does this chest radiograph show?",
        Drawing("chest", "xray", (Lesion("right", "upper"), Lesion("left", "lower"))), "Two",
        one_lesion("chest", "xray", side="right", level="upper"), "One",
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
        one_lesion("abdomen", "ct", size="large", tone="dark"), "It is darker",
        one_lesion("abdomen", "ct", size="large", tone="bright"), "It is brighter",
        ("Gastrointestinal",),
    ),
    (
        "Where in this abdominal CT is the small bright spot?",
        one_lesion("abdomen", "ct", side="left", level="upper"), "On the left of the picture",
        one_lesion("abdomen", "ct", side="right", level="upper"), "On the right of the picture",
        ("Gastrointestinal", "Vascular"),
    ),
    (
        "Does this brain scan show one spot or two?",
        Drawing("brain", "mri", (Lesion("left", "upper"), Lesion("right", "lower"))), "Two",
        _SHARED_PAIRS, "One",
        ("Cerebral", "Head and Neck"),
    ),
)  # fmt: skip
"""Question; first image, its correct option; second image, its correct option; categories of both.
"""


def write(folder: Path) -> None:
    """Write `dataset.json` and `images/<number>.png`."""
    (folder / "images").mkdir(exist_ok=True)
    numbers: dict[Drawing, int] = {}
    document: dict[str, dict[str, Any]] = {}
    for position, (question, first, first_option, second, second_option, categories) in enumerate(_PAIRS):
        for drawing in (first, second):
            if drawing not in numbers:
                numbers[drawing] = 30001 + len(numbers)
                (folder / "images" / f"{numbers[drawing]}.png").write_bytes(draw_phantom(drawing))
        # Swap the options of every other pair, so that A and B are equally often correct.
        swap = position % 2 == 1
        options = (second_option, first_option) if swap else (first_option, second_option)
        pair: dict[str, Any] = {}
        for number, drawing in ((1, first), (2, second)):
            pair[f"im_{number}"] = f"phantom/images/PHANTOM_{numbers[drawing]}.png"
            pair[f"im_{number}_local"] = numbers[drawing]
            pair[f"cap_{number}"] = f" A drawn {drawing.organ} ({drawing.modality}): {_caption(drawing)}."
            pair[f"category_{number}"] = list(categories)
        document[str(90001 + position)] = {
            **pair,
            "BiomedCLIP_sim": round(0.9 + 0.003 * position, 4),
            "DINO_sim": round(0.7 - 0.02 * position, 4),
            "question": question,
            "option_A": options[0],
            "option_B": options[1],
            "im_1_correct": "B" if swap else "A",
            "im_2_correct": "A" if swap else "B",
            # Some drafts differ from the final question, as in the authors' file.
            "AI_question": question if position % 3 else f"What can be seen here? {question}",
            "AI_option_A": options[0],
            "AI_option_B": options[1],
        }

    write_json(folder / "dataset.json", document)


def _caption(drawing: Drawing) -> str:
    if not drawing.lesions:
        return drawing.variant or (f"{drawing.number} vertebrae" if drawing.number else "nothing unusual")
    return " and ".join(f"a {spot.words} in the {spot.level} {spot.side} of the picture" for spot in drawing.lesions)
