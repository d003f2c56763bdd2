"""The GMAI pipeline on real files: ChestX-ray14 and 55 radiographs."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from curation.gmai import pipeline

SOURCES = Path(__file__).resolve().parents[4] / "shared" / "sources"
pytestmark = [
    pytest.mark.sources,
    pytest.mark.skipif(
        not (SOURCES / "chestxray14").is_dir(),
        reason="the authors' files (../shared/sources) are not here",
    ),
]


@pytest.fixture(scope="module")
def real_set(tmp_path_factory):
    base = tmp_path_factory.mktemp("real")
    chestxray_folder = SOURCES / "chestxray14"
    boxes = pd.read_csv(chestxray_folder / "BBox_List_2017.csv")
    rng = np.random.default_rng(0)
    (base / "boxed").mkdir()
    for name in boxes["Image Index"].unique()[::20]:  # noise of the same size replaces the original radiographs
        coarse = rng.integers(0, 256, (16, 16), dtype=np.uint8)
        Image.fromarray(coarse).resize((1024, 1024), Image.Resampling.NEAREST).save(
            base / "boxed" / name, compress_level=1
        )
    # The published table is in Latin-1; tables are read as UTF-8.
    text = (SOURCES / "figure1_cxr" / "metadata.csv").read_text(encoding="latin-1")
    (base / "figure1.csv").write_text(text, encoding="utf-8")
    columns = {"image": "Image Index", "patient": "Patient ID", "age": "Patient Age", "sex": "Patient Gender"}
    document = {
        "longest_side": 256,
        "separate_registries": True,
        "datasets": [
            {"name": "boxes", "reader": "boxes", "path": "boxed",
             "annotations": str(chestxray_folder / "BBox_List_2017.csv"), "modality": "X-ray",
             "region": "chest", "patient": r"(\d{8})_", "patients": "nih",
             "columns": {"image": "Image Index", "label": "Finding Label", "box": list(boxes.columns[2:6])}},
            {"name": "findings", "reader": "csv", "path": str(chestxray_folder / "images"),
             "annotations": str(chestxray_folder / "Data_Entry_sample.csv"), "modality": "X-ray",
             "region": "chest", "exhaustive": True, "nothing": "No Finding", "patients": "nih",
             "columns": columns | {"label": "Finding Labels"}},
            {"name": "figure1", "reader": "csv", "path": str(SOURCES / "figure1_cxr" / "images"), "annotations": "figure1.csv",
             "modality": "X-ray", "region": "chest", "patient": r"(COVID-\d+)", "nothing": ["No finding"],
             "columns": {"image": "patientid", "label": "finding", "age": "age", "sex": "sex"}},
        ],
    }  # fmt: skip
    (base / "sources.yaml").write_text(json.dumps(document))
    return pipeline.run_pipeline(base / "sources.yaml", base / "real-set")


def test_real_boxes_become_box_questions_about_the_chest(real_set):
    boxes = [w for w in real_set.written if w.case.item.dataset == "boxes"]
    assert len(boxes) >= 25
    assert {w.case.granularity for w in boxes} == {"Box Level"}
    assert len({w.case.answer for w in boxes}) >= 5
    missing = [skip for skip in real_set.funnel["skipped"] if skip["dataset"] == "boxes"]
    # Of 880 boxed images, the fixture draws every twentieth.
    assert missing == [{"dataset": "boxes", "reason": "its image is missing", "count": 880 - 44}]


def test_real_radiographs_are_read_and_skips_are_counted(real_set):
    assert real_set.funnel["read"]["findings"]["pictures"] == 9
    assert real_set.funnel["read"]["findings"]["patients"] == 2
    assert real_set.funnel["read"]["figure1"]["pictures"] > 30
    assert any(w.case.item.dataset == "findings" for w in real_set.written)
