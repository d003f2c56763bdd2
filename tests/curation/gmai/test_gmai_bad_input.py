"""Generated damage in every format: sources are refused in one line or skipped; no crash."""

import os
import random
import re

import nibabel
import numpy as np
import pydicom
import pytest
from PIL import Image

from curation.gmai.sources import read_items, read_sources
from dataset_builders.errors import BadInput
from tests.curation.gmai.phantoms import SOURCE_WRITERS, write_all
from tests.sampling import few

JUNK_VALUES = (
    "", "nan", "NaN", "inf", "x", "-5", "1e999", "1e308", "é", "'", '"', "[1]", "[[1]]", "{}", "null", "true", '"12 cm"', '"../x"',
)  # fmt: skip


def damage(path, rng):
    """Damage one file of a source."""
    data = path.read_bytes()
    kind = rng.choice(["inside", "inside", "inside", "cut", "noise", "empty", "link", "gone", "folder", "pipe"])
    if kind == "inside":
        if path.suffix in (".json", ".csv", ".txt", ".xml"):
            # Replace words but keep separators, so that the file usually still parses.
            words = re.split(r"([,\s<>]+)", data.decode())
            for _ in range(rng.randint(1, 5)):
                words[rng.randrange(len(words))] = rng.choice(JUNK_VALUES)
            path.write_text("".join(words))
            return
        if path.name.endswith(".nii.gz"):
            shape = rng.choice([(5, 5, 3), (8, 8, 1), (8, 8, 4, 2), (1, 1, 1), (0, 4, 4)])
            values = np.full(shape, rng.choice([np.nan, np.inf, 0.5, -1, 7]), np.float32)
            nibabel.save(nibabel.Nifti1Image(values, np.diag([rng.choice([1, -3]), 1, 1, 1])), path)
        elif path.suffix == ".dcm":
            dataset = pydicom.dcmread(path)
            for element in rng.sample([candidate for candidate in dataset if candidate.VR != "SQ"], 4):
                odd_values = [b"", b"\0" * 10] if element.VR == "OW" else [None, "", "x", 0, -7, [1.0], [0.0, 0.0]]
                element._value = rng.choice(odd_values)
            try:
                dataset.save_as(path)
            except Exception:  # pydicom cannot write every value
                path.write_bytes(data[: rng.randrange(len(data))])
        else:
            Image.fromarray(np.random.default_rng(0).integers(0, 255, (7, 9, 4), dtype=np.uint8)).save(path)
    elif kind == "cut":
        path.write_bytes(data[: rng.randrange(len(data) + 1)])
    elif kind == "noise":
        corrupted = bytearray(data)
        for position in rng.sample(range(len(data)), min(len(data), 30)):
            corrupted[position] = rng.randrange(256)
        path.write_bytes(rng.choice([rng.randbytes(300), corrupted]))
    elif kind == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
        if kind == "link":
            # A path may name a patient, so no message may quote it.
            path.symlink_to("/MUSTERFRAU^ERIKA/nowhere")
        elif kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("reader", "seed"),
    few([(reader, seed) for seed in range(6) for reader in SOURCE_WRITERS], len(SOURCE_WRITERS)),
)
def test_damaged_files_are_skipped_or_refused_in_one_line(tmp_path, reader, seed):
    rng = random.Random(f"{reader} {seed}")
    write_all(tmp_path, only={reader})
    files = [path for path in sorted((tmp_path / reader).rglob("*")) if path.is_file()]
    marks = [path for path in files if path.suffix in (".json", ".csv", ".xml", ".txt")]
    chosen = {*rng.sample(files, min(3, len(files))), *(rng.sample(marks, 1) if marks else [])}
    for path in sorted(chosen):
        damage(path, rng)
    # a file name that is not UTF-8
    (tmp_path / reader / os.fsdecode(b"M\xfcller.png")).write_bytes(b"")
    try:
        items, skips, _ = read_items(read_sources(tmp_path / "sources.yaml"), tmp_path / "out" / "private")
    except BadInput as error:  # anything else fails the test
        assert "\n" not in str(error)
        return
    assert not any("MUSTERFRAU" in skip.reason for skip in skips)
    for item in items:
        assert item.box is None or np.isfinite(item.box).all()
        assert 0 < item.area <= 1.001
