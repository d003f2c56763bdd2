"""Make a dataset whose key is in the pixels, and three kinds of models: one reads the pixels, one
only the question, one always says A.
"""

import json
from pathlib import Path

import numpy as np
from PIL import Image

import medprobe

MODELS = """
import io
import zlib

import numpy as np
from PIL import Image


class Pixels:
    def __init__(self, settings):
        pass

    def generate(self, requests):
        for request in requests:
            side = "left"
            if request.image is not None:
                grey = np.asarray(Image.open(io.BytesIO(request.image)).convert("L"))
                side = "left" if grey[:, :8].mean() >= grey[:, 8:].mean() else "right"
            yield "AB"[[side in option for option in request.options].index(True)]


class Question(Pixels):
    def generate(self, requests):
        yield from ("AB"[zlib.crc32(request.prompt.encode()) % 2] for request in requests)


class SaysA(Pixels):
    def generate(self, requests):
        yield from ("A" for _ in requests)
"""
PAIRS = 40
NAMES = ("Pixels", "Question", "SaysA")


def write_sides(folder: Path) -> Path:
    """Write `folder/data`, pairs of images with a bright left or right half, and
    `folder/models.py`.
    """
    (folder / "source" / "images").mkdir(parents=True)
    rng, document = np.random.default_rng(1), {}
    for n in range(PAIRS):
        first_left, a_left = n % 2 == 0, n % 3 == 0
        for number, bright_left in ((1, first_left), (2, not first_left)):
            grey = rng.integers(0, 100, (16, 16)).astype(np.uint8)
            grey[:, slice(8) if bright_left else slice(8, 16)] += 120
            Image.fromarray(grey).save(folder / "source" / "images" / f"{2 * n + number}.png")
        document[str(n)] = {
            "im_1": f"x/{2 * n + 1}.png", "im_2": f"x/{2 * n + 2}.png", "im_1_local": 2 * n + 1, "im_2_local": 2 * n + 2,
            "cap_1": "drawn", "cap_2": "drawn", "category_1": ["Spinal"], "category_2": ["Spinal"],
            "BiomedCLIP_sim": 0.9, "DINO_sim": 0.5,
            "question": f"Which half is bright in picture {n}?", "AI_question": "drawn?", "AI_option_A": "left", "AI_option_B": "right",
            "option_A": "the left half" if a_left else "the right half", "option_B": "the right half" if a_left else "the left half",
            "im_1_correct": "A" if first_left == a_left else "B", "im_2_correct": "B" if first_left == a_left else "A",
        }  # fmt: skip
    (folder / "source" / "dataset.json").write_text(json.dumps(document))
    medprobe.build(
        "mediconfusion",
        name="sides",
        source=folder / "source",
        images=[folder / "source" / "images"],
        out=folder / "data",
    )
    (folder / "models.py").write_text(MODELS)
    return folder


def run_arms(folder: Path) -> dict[str, Path]:
    """Run each model with its arms, in neighbouring folders."""
    for model in NAMES:
        medprobe.evaluate(
            "sides", f"{folder / 'models.py'}:{model}", data=folder / "data", arms=True, out=folder / model
        )
    return {model: folder / model for model in NAMES}
