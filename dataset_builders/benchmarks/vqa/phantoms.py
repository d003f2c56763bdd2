"""Write the phantom source of a set: single choice, multiple choice and yes/no on drawings."""

from __future__ import annotations

import json
from pathlib import Path

from dataset_builders.images.phantom_drawings import Drawing, Lesion, draw_phantom

LEVELS, SIDES = ("upper", "lower"), ("left", "right")
ORGANS = ("brain", "chest", "abdomen", "spine")


def write(folder: Path) -> None:
    """Write `test.jsonl` and its images; the answers are balanced over the letters."""
    rows = []
    places = [f"{level} {side}" for level in LEVELS for side in SIDES]
    for number, organ in enumerate(ORGANS):
        modality = "xray" if organ == "spine" else "ct"
        for turn, place in enumerate(places):
            level, side = place.split()
            file = f"{organ}-{level}-{side}.png"
            (folder / file).write_bytes(draw_phantom(Drawing(organ, modality, (Lesion(side, level, "large"),))))
            options = [*places[(number + turn) % 4 :], *places[: (number + turn) % 4]]
            words = place.split() if turn % 2 else [side]
            rows += [
                {"question": "Where is the round spot?", "options": options, "answer": place, "task": "place"},
                {"question": f"Is this a picture of the {ORGANS[(number + turn % 2) % 4]}?", "options": None,
                 "answer": "no" if turn % 2 else "yes", "task": "organ"},
                {"question": "Which of these words describe the place of the spot?", "options": [*LEVELS, *SIDES],
                 "answer": words, "task": "words"},
            ]  # fmt: skip
            rows[-3:] = [row | {"image": file, "modality": modality} for row in rows[-3:]]

    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
