"""Upload of a new version of a dataset: bytes that Xet's own chunker finds new after a question was added, removed or edited.

Writes a repository of drawn images, publishes it to a loopback Hub with the real client and hf_xet, changes one case, publishes again and
counts what the Hub received.

    python benchmarks/dataset_builders/update_upload.py --cases 1000 --seed 1
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

SIDE = 128


def drawn(number: int, seed: int) -> bytes:
    """A JPEG of noise (about 20 kB), which nothing compresses."""
    import numpy as np
    from PIL import Image

    pixels = np.random.default_rng([seed, number]).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=92)
    return file.getvalue()


def cases_of(count: int, seed: int):
    """Pairs of two questions about two images, as MediConfusion's."""
    from dataset_builders.schema import Case, CaseImage, Question

    def image(number: int) -> CaseImage:
        data = drawn(number, seed)
        return CaseImage(f"image-{number}", lambda: data, len(data), f"{number}.jpg", "CC0-1.0", "drawn by medprobe")

    def question(pair: int, side: int) -> Question:
        words = f"Which of these describes what image {side} of pair {pair} shows, noise or no noise?"
        options = (f"noise of kind {pair}", f"nothing of kind {pair}")
        return Question(f"{pair:05d}-{side}", f"{pair:05d}", f"image-{2 * pair + side}", words, options, (side - 1,))

    return [
        Case(f"{pair:05d}", (image(2 * pair + 1), image(2 * pair + 2)), (question(pair, 1), question(pair, 2)))
        for pair in range(count)
    ]


def changes(cases: list, seed: int) -> dict[str, list]:
    """Versions of the set, each with one change in its middle."""
    middle = len(cases) // 2
    [new] = cases_of(1, seed + 1)
    new = replace(
        new,
        case_id="new",
        images=tuple(replace(image, image_id=f"new-{image.image_id}") for image in new.images),
        questions=tuple(
            replace(q, question_id=f"new-{q.question_id}", case_id="new", image_id=f"new-{q.image_id}")
            for q in new.questions
        ),
    )
    first, second = cases[middle].questions
    halved = replace(cases[middle], images=cases[middle].images[:1], questions=(first,))
    edited = replace(cases[middle], questions=(replace(first, question=first.question + " Look twice."), second))
    return {
        "case added": [*cases[:middle], new, *cases[middle:]],
        "case removed": [*cases[:middle], *cases[middle + 1 :]],
        "question removed": [*cases[:middle], halved, *cases[middle + 1 :]],
        "question edited": [*cases[:middle], edited, *cases[middle + 1 :]],
    }


def measure(folder: Path, count: int, seed: int) -> dict[str, tuple[int, int]]:
    """Change -> (bytes the Hub received, bytes of the version's files)."""
    from tests.localhub.accounts import CURATOR
    from tests.localhub.server import LocalHub

    with LocalHub() as hub:
        os.environ |= {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": CURATOR, "HF_HOME": str(folder / "home")}
        os.environ.pop("HF_HUB_DISABLE_XET", None)
        from dataset_builders.contents.card import Description
        from dataset_builders.contents.repository_files import write_repository
        from dataset_builders.hub.publish import publish
        from dataset_builders.schema import Content

        def version(name: str, cases: list, at: str) -> tuple[int, int]:
            here = folder / name.replace(" ", "-")
            here.mkdir()
            write_repository(
                here, Description("noise", "mediconfusion", "custom", None, False), Content({"test": cases})
            )
            before = len(hub.record.of("*", "^/xet/"))
            publish(here, at)
            received = sum(request.received for request in hub.record.of("*", "^/xet/")[before:])
            return received, sum(path.stat().st_size for path in here.rglob("*.parquet"))

        cases = cases_of(count, seed)
        found = {"first version": version("first version", cases, "ORG/noise")}
        for name, changed in changes(cases, seed).items():
            found[name] = version(name, changed, "ORG/noise")
            version(f"back from {name}", cases, "ORG/noise")
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, (received, size) in measure(Path(folder), args.cases, args.seed).items():
            print(f"{name:18} {received:12,} of {size:12,} bytes  {100 * received / size:6.2f} %")


if __name__ == "__main__":
    main()
