"""Whatever is wrong with a source is one line (BadInput) or a listed skip, never a traceback: generated damage in every format."""

import copy
import json
import os
import random
import re

import nibabel
import numpy as np
import pydicom
import pytest
import yaml
from PIL import Image

from curation.gmai.items import read_items
from curation.gmai.sources import read_sources
from curation.readers.formats import units_of
from dataset_builders.errors import BadInput
from tests.curation.gmai.phantoms import MAKERS, write_all
from tests.helpers import refused
from tests.sampling import few

JUNK = [None, "", "text", "12 cm", [], [1], [[1]], {}, {"a": 1}, -1, 0, 1e308, 1e-9, float("nan"), float("inf"), True]
JUNK += ["../../x", "\udcff", "\ud800", "é" * 300]


def places(document, path=()):
    """The path of every value of a document."""
    if isinstance(document, dict):
        items = list(document.items())
    elif isinstance(document, list):
        items = list(enumerate(document[:6]))
    else:
        return [path]
    return [path] * bool(path) + [place for key, value in items for place in places(value, (*path, key))]


def damaged(document, rng, times=1):
    """A copy with junk in place of some values."""
    document = copy.deepcopy(document)
    for _ in range(times):
        *above, last = rng.choice(places(document) or [()]) or (None,)
        inner = document
        for key in above:
            inner = inner[key]
        if last is not None:
            inner[last] = copy.deepcopy(rng.choice(JUNK))
    return document


def damage(path, rng):
    """Change one file of a source."""
    data = path.read_bytes()
    kind = rng.choice(["inside", "inside", "inside", "cut", "noise", "empty", "link", "gone", "folder", "pipe"])
    if kind == "inside":
        if path.suffix == ".json":
            path.write_text(json.dumps(damaged(json.loads(data), rng, rng.randint(1, 4)), ensure_ascii=True))
            return
        if path.suffix in (".csv", ".txt", ".xml"):
            words = re.split(r"([,\s<>])", data.decode())
            for _ in range(rng.randint(1, 5)):
                words[rng.randrange(len(words))] = rng.choice(
                    ["", "nan", "inf", "x", "-5", "1e999", "é", "'", '"', "[1]"]
                )
            path.write_text("".join(words))
            return
        if path.name.endswith(".nii.gz"):
            shape = rng.choice([(5, 5, 3), (8, 8, 1), (8, 8, 4, 2), (1, 1, 1), (0, 4, 4)])
            values = np.full(shape, rng.choice([np.nan, np.inf, 0.5, -1, 7]), np.float32)
            nibabel.save(nibabel.Nifti1Image(values, np.diag([rng.choice([1, -3]), 1, 1, 1])), path)
            return
        if path.suffix == ".dcm":
            read = pydicom.dcmread(path)
            for element in rng.sample(list(read), 4):
                if element.tag == (0x7FE0, 0x10):
                    read.PixelData = b"\0" * 10
                elif element.VR in ("DS", "IS", "US"):
                    element._value = (
                        rng.choice([None, 0, -7]) if element.VR == "US" else rng.choice([None, "", [1.0], [0.0, 0.0]])
                    )
                elif element.VR not in ("SQ", "OW"):
                    element._value = rng.choice([None, "", "x"])
            try:
                read.save_as(path)
            except Exception:  # pydicom does not write everything
                path.write_bytes(data[: rng.randrange(len(data))])
            return
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (7, 9, 4), dtype=np.uint8)).save(path)
    elif kind == "cut":
        path.write_bytes(data[: rng.randrange(len(data) + 1)])
    elif kind == "noise":
        path.write_bytes(rng.randbytes(300))
    elif kind == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
        if kind == "link":
            path.symlink_to("/MUSTERFRAU^ERIKA/nowhere")
        elif kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)


def outcome(base, out):
    """What reading gives; every other error is a failure of the test. Nothing that is said names a file."""
    try:
        items, skips, _ = read_items(read_sources(base / "sources.yaml"), out / "private")
    except BadInput as error:
        assert "\n" not in str(error)
        return
    assert not any("MUSTERFRAU" in skip.reason for skip in skips)
    for item in items:
        assert item.box is None or np.isfinite(item.box).all()
        assert 0 < item.area <= 1.001


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("reader", "seed"), few([(reader, seed) for seed in range(40) for reader in MAKERS], 6 * len(MAKERS))
)
def test_damaged_files_are_listed_or_one_line(tmp_path, reader, seed):
    rng = random.Random(f"{reader} {seed}")
    write_all(tmp_path, only={reader})
    files = [path for path in sorted((tmp_path / reader).rglob("*")) if path.is_file()]
    marks = [path for path in files if path.suffix in (".json", ".csv", ".xml", ".txt")]
    chosen = {*rng.sample(files, min(3, len(files))), *(rng.sample(marks, 1) if marks else [])}
    for path in sorted(chosen):
        damage(path, rng)
    (tmp_path / reader / os.fsdecode(b"M\xfcller.png")).write_bytes(b"")
    outcome(tmp_path, tmp_path / "out")


@pytest.mark.parametrize("seed", few(range(300), 60))
def test_damaged_sources_are_one_line(tmp_path, seed):
    rng = random.Random(seed)
    reader = rng.choice(["coco", "csv_many", "wide", "yolo", "masks", "voc"])
    path = write_all(
        tmp_path,
        only={reader},
        options=[2, 5],
        per_answer=30,
        overlay={"width": 2},
        even=["source"],
    )
    document = yaml.safe_load(path.read_text())
    entry = document["datasets"][0]
    entry |= {
        "window": rng.choice(["lungs", "lung", [40, 400], [1], "[40, 0]", 7]),
        "plane": "axial",
        "separator": "|",
        "nothing": ["None"],
    }
    path.write_text(json.dumps(damaged(document, rng, rng.randint(1, 3))))
    outcome(tmp_path, tmp_path / "out")


def test_a_coco_file_of_another_form_is_one_line(tmp_path):
    path = write_all(tmp_path, only={"coco"})
    file = tmp_path / "coco" / "instances.json"
    for place, wrong in (
        (("images", 0, "id"), [0]), (("images", 1, "height"), "64 px"), (("annotations", 0, "bbox"), ["a", "b", 3, 4]),
        (("categories",), None),
    ):  # fmt: skip
        document = json.loads(file.read_text())
        *above, last = place
        inner = document
        for key in above:
            inner = inner[key]
        inner[last] = wrong
        (tmp_path / "coco" / "wrong.json").write_text(json.dumps(document))
        dataset = read_sources(path).datasets[0].model_copy(update={"annotations": tmp_path / "coco" / "wrong.json"})
        assert f"is no COCO JSON ({'.'.join(map(str, place))}" in refused(units_of, dataset)
