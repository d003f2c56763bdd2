"""Compare every family of tiny random models with naive loops.

The loops use batch size 1, no cache, plain `generate`, and one forward pass per option. Printed for
each family: how many texts are equal, the largest difference of a score by `ps` and by `gd`, and
the paths that the self-test at load time did not find equal.

    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/models/families.py --questions 12 --seed 0
"""

import argparse
import io
import random
import tempfile
from pathlib import Path
from typing import Any

WORDS = [
    "the",
    "image",
    "shows",
    "a",
    "lesion",
    "on",
    "left",
    "right",
    "yes",
    "no",
    "which",
    "side",
    "of",
    "chest",
    "brain",
    "is",
    "this",
]


def requests(count: int, seed: int) -> list[Any]:
    """Make questions of 2 to 12 words on `count` / 3 drawn images of different sizes."""
    from PIL import Image

    from eval_harness.records.request import Request

    chance, made_requests = random.Random(seed), []
    pictures = []
    for number in range(max(2, count // 3)):
        buffer = io.BytesIO()
        # Different sizes give different numbers of image tokens, which batches must pad.
        size = (chance.randint(30, 90), chance.randint(30, 90))
        Image.effect_noise(size, 40 + 20 * number).convert("RGB").save(buffer, "PNG")
        pictures.append(buffer.getvalue())
    for number in range(count):
        prompt = " ".join(chance.choice(WORDS) for _ in range(chance.randint(2, 12))) + "?"
        picture = chance.choice(pictures)
        made_requests.append(Request(str(number), 0, prompt, picture, ("left", "right"), "single", max_tokens=5))
    return made_requests


def main() -> None:
    from dataset_builders.errors import BadInput
    from tests.eval_harness.models.naive_loops import compare
    from tests.eval_harness.models.tiny_families import FAMILIES, make

    parser = argparse.ArgumentParser()
    parser.add_argument("families", nargs="*", default=sorted(FAMILIES))
    parser.add_argument("--questions", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    test_requests = requests(arguments.questions, arguments.seed)
    right = 0
    for family in arguments.families:
        with tempfile.TemporaryDirectory() as name:
            try:
                equal_texts, sequence, next_token, our_batches = compare(
                    make(family, Path(name) / family), test_requests
                )
            except BadInput as refusal:
                print(f"{family:<20} refused: {refusal}")
                continue
            except Exception as error:  # whatever a class of transformers raises
                print(f"{family:<20} failed: {type(error).__name__}: {str(error)[:200]}")
                continue
            # Scores may differ by rounding of float32, not more.
            right += equal_texts == len(test_requests) and max(sequence, next_token) < 1e-4
            odd = {path: words for path, words in our_batches.findings.paths.items() if words != "equal"}
            shares = "shares prefixes" if our_batches.describe()["shared_image_prefix"] else ""
            print(
                f"{family:<20} texts {equal_texts}/{len(test_requests)}  ps {sequence:.1e}  gd "
                f"{next_token:.1e}  {shares} {odd or ''}"
            )
    print(f"{right} of {len(arguments.families)} families equal their naive loops")


if __name__ == "__main__":
    main()
