"""Test two shares beside `sight`: questions answered without an image, and the four quarters."""

from pathlib import Path

import numpy as np
import pytest

import medprobe
from eval_harness.store.sight import answered_shares, consistency_quarters, load_arms
from tests.commands import medprobe as command
from tests.sides import write_sides

SHY_MODELS = """
import zlib

class Shy:
    def __init__(self, settings):
        pass

    def generate(self, requests):
        for request in requests:
            number = zlib.crc32(request.question_id.encode())
            if request.image is None and number % 3 == 0:
                yield "I cannot see any image, so I cannot answer."
            elif number % 5 == 0 or request.image is None:
                yield "A"  # the letter, whatever option it is
            else:
                yield "AB"[request.options.index(sorted(request.options)[number % 2])]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_sides(tmp_path_factory.mktemp("shares"))
    (folder / "models.py").write_text(SHY_MODELS)
    model = f"{folder / 'models.py'}:Shy"
    medprobe.evaluate("sides", model, data=folder / "data", arms=True, permute=True, out=folder / "run")
    return folder


def test_shares_are_counts_of_the_answers(folder: Path) -> None:
    (arms,) = load_arms([folder / "run"])
    tables = {image: medprobe.load_run(side.source).answers for image, side in arms.sides.items()}
    withheld, blank = answered_shares(arms)
    assert withheld.value == pytest.approx(100 * (tables["withheld"]["status"] == "answered").mean()) != 100
    assert withheld.low < withheld.value < withheld.high and blank.value == 100
    choices = {
        image: table.pivot(index="question_id", columns="sample", values="choice") for image, table in tables.items()
    }
    quarters = {share.name: share.value for share in consistency_quarters(arms)}
    expected = dict.fromkeys(quarters, 0.0)
    for question in choices["real"].index:
        real, *others = (choices[image].loc[question].tolist() for image in ("real", "withheld", "blank"))
        is_kept = any(sum(a == b for a, b in zip(real, arm, strict=True)) > len(real) / 2 for arm in others)
        words = ("consistent" if len(set(real)) == 1 else "inconsistent", "does not need" if is_kept else "needs")
        expected[f"{words[0]}, {words[1]} the image"] += 100 / len(choices["real"])
    assert quarters == pytest.approx(expected)
    assert np.sum(list(quarters.values())) == pytest.approx(100) and max(quarters.values()) < 100


def test_the_command_prints_both(folder: Path) -> None:
    printed = command("sight", folder / "run", cwd=folder).stdout
    assert "answered although the image is withheld: " in printed
    assert "\ninconsistent, does not need the image: " in printed
