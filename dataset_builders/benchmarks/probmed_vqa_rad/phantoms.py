"""Write the phantom source of the VQA-RAD pairs: one drawing and two questions per pair."""

from pathlib import Path

from dataset_builders.files import write_json
from dataset_builders.images.phantom_drawings import Drawing, draw_phantom, one_lesion

_PAIRS: tuple[tuple[Drawing, str, str], ...] = (
    (one_lesion("brain", "mri", side="left"), "Is a round spot drawn in the brain?", "Is the brain drawn without any spot?"),
    (one_lesion("chest", "xray", side="right"), "Is the spot on the right of the picture?", "Is the spot on the left of the picture?"),
    (one_lesion("abdomen", "ct", tone="dark"), "Is the spot darker than the organ?", "Is the spot brighter than the organ?"),
    (Drawing("spine", "xray", variant="bent"), "Is the column of vertebrae bent?", "Is the column of vertebrae straight?"),
    (Drawing("brain", "ct", variant="wide"), "Are the ventricles wide?", "Are the ventricles slit-like?"),
    (Drawing("chest", "xray", variant="wide"), "Is the heart wide?", "Is the heart narrow?"),
    (one_lesion("chest", "ct", level="lower"), "Is the spot in the lower half?", "Is the spot in the upper half?"),
    (one_lesion("brain", "mri", size="large"), "Is the spot large?", "Is the spot small?"),
    (Drawing("spine", "xray", number=5), "Are five vertebrae drawn?", "Are eight vertebrae drawn?"),
    (Drawing("abdomen", "ct"), "Is the drawing free of spots?", "Is a spot drawn?"),
)  # fmt: skip
"""Image, a question whose answer is yes, and one whose answer is no."""


def write(folder: Path) -> None:
    """Write `vqa_rad_pairs.json` and `images/synpic<number>.jpg`."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    rows = []
    for number, (drawing, true, false) in enumerate(_PAIRS):
        name = f"synpic{95001 + number}.jpg"
        (folder / "images" / name).write_bytes(draw_phantom(drawing, "JPEG"))
        rows += [
            {"image": name, "question": question, "gt_ans": answer}
            for question, answer in ((true, "yes"), (false, "no"))
        ]

    write_json(folder / "vqa_rad_pairs.json", rows)
