"""The whole pipeline by the command line: embed, pairs, write, categorize, patterns, review, export, build, quality."""

import csv
import json
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from curation.images.file_names import file_names
from curation.images.image_table import MIN_CAPTION, read_table
from curation.review.review_log import ReviewLog
from curation.writing.prompts import WRITE, fill, one_line
from dataset_builders.build import build
from dataset_builders.contents.pseudonyms import pseudonyms_of
from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import open_repository
from tests.curation.commands import curate
from tests.curation.model_server import model_server


def drawn_radiographs(folder):
    """A dozen pictures that differ in brightness and a spot, with long captions; the last two show one patient."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:64, :64]
    rows = []
    for k in range(14):
        spot = 150 * np.exp(-((x - rng.integers(10, 54)) ** 2 + (y - rng.integers(10, 54)) ** 2) / 60)
        picture = np.clip(60 + 5 * k + spot + rng.normal(0, 8, (64, 64)), 0, 255).astype(np.uint8)
        Image.fromarray(picture).save(folder / f"{k}.png")
        caption = f"Drawn picture {k}. " + "A bright spot on a grey ground with some noise over it. " * 3
        rows.append((f"{k}.png", caption, min(k, 12)))
    with (folder.parent / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("image", "caption", "group"), *rows])
    return folder, folder.parent / "table.csv", 14


def real_radiographs(sources, tmp_path):
    """The 55 chest radiographs with their notes as captions; the images of one patient (COVID-00003a, b) are one group."""
    table = pd.read_csv(sources / "figure1_cxr" / "metadata.csv", dtype=str, encoding="latin-1").fillna("")
    table = pd.DataFrame(
        {"image": table["patientid"], "caption": table["notes"], "group": table["patientid"].str.replace(r"[a-z]$", "", regex=True)}
    ).drop_duplicates("image")  # fmt: skip
    table.to_csv(tmp_path / "table.csv", index=False)
    return sources / "figure1_cxr" / "images", tmp_path / "table.csv", 55


def answer(prompt, before):
    if "Categories:" in prompt:
        return "Pulmonary"
    if prompt.startswith("I am analyzing"):
        return "Side and size"
    return "Question: Where is the finding?\nOption1: Left lung\nOption2: Right lung\nImage1: Option1\nImage2: Option2"


@pytest.mark.parametrize("kind", ["drawn", pytest.param("real", marks=pytest.mark.sources)])
def test_from_a_folder_of_captioned_images_to_a_benchmark(kind, models, tmp_path, request):
    if kind == "drawn":
        images, table, count = drawn_radiographs(tmp_path / "images")
    else:
        images, table, count = real_radiographs(request.getfixturevalue("sources"), tmp_path)
    e, p, q, out = (tmp_path / name for name in ("embeddings", "pairs", "questions", "my-benchmark"))
    if kind == "drawn":
        (images / "broken.png").write_bytes(b"no picture")
    for is_screen in (False, True):  # a lost file is named on a screen, and goes by its id into a pipe
        with pytest.MonkeyPatch.context() as patch:
            screen = SimpleNamespace(stdout=SimpleNamespace(isatty=lambda is_screen=is_screen: is_screen))
            patch.setattr("curation.commands.mining.sys", screen)
            said = curate(
                f"embed {images} --out {e} --encoder open_clip:local-dir:{models / 'biomedclip'} --device cpu"
            )
        assert kind != "drawn" or ("1 images could not be read" in said and ("broken.png: " in said) == is_screen)
    curate("embed", images, "--out", e, "--encoder", f"transformers:{models / 'dinov2'}", "--device", "cpu")
    assert len(pd.read_parquet(e / "images.parquet")) == count
    with pytest.raises(BadInput, match="no embeddings called clip"):
        curate("pairs", e, "--out", p, "--med", "clip", "--gen", "dinov2")
    said = curate("pairs", e, "--out", tmp_path / "none", "--med-at-least", 1, "--gen-at-most", -1)
    assert "found 0 pairs" in said and "sim_med is " in said and "sim_gen is " in said and "would find" in said
    # Random weights see hardly any difference: the thresholds are wide open, what is tested is the pipeline.
    wide = "--med biomedclip --gen dinov2 --med-at-least -1 --gen-at-most 1 --top 20 --cap-per-image 6"
    said = curate(f"pairs {e} --out {p} --table {table} {wide}")
    report = json.loads((p / "report.json").read_text())
    captions = {row["image"]: row for row in read_table(table).to_dict("records")}
    long = [row for row in captions.values() if len(row["caption"]) >= MIN_CAPTION]
    searched = min(len(long), report["images"])
    assert report["counts"]["found"] == searched * (searched - 1) // 2
    assert report["counts"]["same_group"] > 0
    assert f"kept {report['counts']['chosen']}" in said
    pairs = pd.read_parquet(p / "pairs.parquet")
    assert 5 < len(pairs) <= 20
    assert pd.concat([pairs["image_1"], pairs["image_2"]]).value_counts().max() <= 6
    said = curate("histograms", p, "--embeddings", e, "--encoder", "dinov2", "--out", tmp_path / "h.html")
    assert f"dinov2: median {pairs['sim_gen'].median():.3f}" in said
    assert (tmp_path / "h.html").read_text().count("<rect") == 24
    with model_server(answer) as (url, _):
        chat = ("--model", "stand-in", "--base-url", url)
        assert f"written: {len(pairs)}" in curate("write", p, "--table", table, "--out", q, *chat, "--price", "2.5,10")
        curate("categorize", q, *chat)
        assert "Side and size" in curate("patterns", q, *chat)
    log = ReviewLog(q)
    for k, pair in enumerate(log.pairs):
        log.change("Ada", pair, "score_1", 9)
        log.change("Ada", pair, "score_2", 2 if k == 0 else 7)
        for check in ("correctness", "relevance", "language"):
            log.change("Ada", pair, check, True)
    where = f"--questions {q} --images {images} --out {out} --pairs {p} --table {table}"
    curate(f"export my-benchmark {where} --no-text-search")
    funnel = json.loads((out / "funnel.json").read_text())
    assert funnel["exported"] == funnel["review"]["kept"] == len(pairs) - 1
    build("mediconfusion", name="my-benchmark", source=out, images=(out / "images",), out=tmp_path / "data")
    repository = open_repository(tmp_path / "data")
    rows = repository.questions("test")
    assert len(rows) == 2 * (len(pairs) - 1)
    files = file_names(q)
    named = zip(pairs["image_1"].map(files), pairs["image_2"].map(files), strict=True)
    ids = [pseudonyms_of(out).of("p", f"{a}\0{b}") for a, b in named]
    stored = pairs.assign(case_id=ids).set_index("case_id")
    assert (rows["sim_med"] == stored.loc[rows["case_id"], "sim_med"].to_numpy()).all()
    assert all(list(value) == ["Pulmonary"] for value in rows["categories"])
    curate("quality", tmp_path / "data", "--out", tmp_path / "quality.html")
    numbers = json.loads((tmp_path / "quality.json").read_text())
    assert numbers["of_pairs"]["pairs"] == len(pairs) - 1
    assert numbers["images_seen"] == numbers["images"]


@pytest.mark.sources
def test_every_roco_caption_goes_into_a_prompt_whole(sources):
    """16,353 real captions: read, filtered by length, and put into the prompt on one line each, whatever they hold."""
    tables = [read_table(sources / "roco" / part / "radiology" / "captions.txt") for part in ("validation", "test")]
    captions = pd.concat(tables)["caption"].tolist()
    kept = [caption for caption in captions if len(caption) >= MIN_CAPTION]
    assert len(captions) > 16_000
    assert 0.35 < 1 - len(kept) / len(captions) < 0.5
    lines = len(WRITE.splitlines())
    for first, second in zip(kept[::2], kept[1::2], strict=False):
        prompt = fill(WRITE, caption_of_image_1=one_line(first), caption_of_image_2=one_line(second))
        found = re.findall(r"(?m)^Image[12]: (.*)$", prompt)
        assert found[:2] == [one_line(first), one_line(second)]
        assert len(prompt.split("\n")) == lines
