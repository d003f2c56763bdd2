"""Questions with several images: source TSV, requests, models, exports and clusters."""

import base64
import io
import json
import random
from dataclasses import replace

import datasets
import networkx
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import medprobe
from dataset_builders.build import build
from dataset_builders.errors import BadInput
from dataset_builders.fingerprints import fingerprint_questions
from dataset_builders.hub.repository import open_repository
from dataset_builders.images.lookup import encode_png
from dataset_builders.schema import row_image_ids
from eval_harness.interop import exports
from eval_harness.records.request import Request
from eval_harness.scores.grading import image_clusters
from tests.eval_harness.models.naive_loops import loaded
from tests.eval_harness.models.tiny_families import make


def picture(number, size=(40, 32)):
    """Make a distinct PNG for every number."""
    pixels = np.random.default_rng(number).integers(0, 255, (size[1] // 4, size[0] // 4, 3), np.uint8)
    return encode_png(Image.fromarray(pixels).resize(size))


def write_source(folder, several):
    """Write a TSV of 12 rows; returns the pictures of each.

    `several`: up to four per row, some shared with other rows.
    """
    rng = random.Random(0)
    pictures_by_row: dict[str, list[bytes]] = {}
    rows = []
    for number in range(12):
        pictures = [picture(rng.randrange(36)) for _ in range(rng.choice([1, 2, 3, 4]) if several else 1)]
        texts = [base64.b64encode(data).decode() for data in pictures]
        # Lists are written as JSON or as Python prints them; both occur in the official files.
        cell = texts[0] if len(texts) == 1 else (json.dumps(texts) if number % 2 else str(texts))
        if number in (3, 8, 9):  # the pictures of an earlier row
            cell = str(number // 2)
            pictures = pictures_by_row[cell]
        pictures_by_row[str(number)] = pictures
        rows.append([number, cell, f"Question {number}?", "one", "two", "three", "ABC"[number % 3], "CC BY"])
    folder.mkdir(parents=True)
    table = pd.DataFrame(rows, columns=["index", "image", "question", "A", "B", "C", "answer", "license"])
    table.to_csv(folder / "set_VAL.tsv", sep="\t", index=False)
    return pictures_by_row


@pytest.fixture(scope="module")
def several_set(tmp_path_factory):
    base = tmp_path_factory.mktemp("several")
    pictures_by_row = write_source(base / "source", several=True)
    build("gmai-mmbench", source=base / "source", out=base / "set", eval_yaml=True)
    return base, pictures_by_row


def test_image_paths_and_text_only_build_give_the_same_dataset(several_set, tmp_path):
    """`image_path` may be a list; a text-only build has the same fingerprint; a missing second
    image is reported.
    """
    base, pictures_by_row = several_set
    folder = tmp_path / "named"
    folder.mkdir()
    rows = pd.read_csv(base / "source" / "set_VAL.tsv", sep="\t", dtype=str)
    paths = []
    for index in rows["index"]:
        names = [f"{index}_{number}.png" for number in range(len(pictures_by_row[index]))]
        for name, data in zip(names, pictures_by_row[index], strict=True):
            (folder / name).write_bytes(data)
        paths.append(names[0] if len(names) == 1 else json.dumps(names))
    columns = ["index", "image_path", "question", "A", "B", "C", "answer"]
    rows.assign(image_path=paths)[columns].to_csv(folder / "set_VAL.tsv", sep="\t", index=False)
    build("gmai-mmbench", name="own", source=folder, out=tmp_path / "set")
    build("gmai-mmbench", name="own", source=folder, out=tmp_path / "text", text_only=True)
    full_build, text = (open_repository(tmp_path / name) for name in ("set", "text"))
    images = {name: data for case in full_build.cases("validation") for name, data in case.images.items()}
    questions = full_build.questions("validation").to_dict("records")
    assert {row["question_id"]: [images[name] for name in row_image_ids(row)] for row in questions} == pictures_by_row
    assert text.manifest["splits"] == full_build.manifest["splits"]
    several = next(index for index, pictures in pictures_by_row.items() if len(pictures) > 1)
    (folder / f"{several}_1.png").unlink()
    with pytest.raises(BadInput, match=f"1 of .* images are missing.*{several}_1.png"):
        build("gmai-mmbench", name="own", source=folder, out=tmp_path / "set")


class Listener:
    """A model that records its requests."""

    several_images = True

    def __init__(self):
        self.requests = []

    def generate(self, requests):
        self.requests += requests
        return ["A" for _ in requests]


def test_images_reach_the_model_in_order(several_set, tmp_path):
    base, pictures_by_row = several_set
    listener = Listener()
    medprobe.evaluate("gmai-mmbench", listener, data=base / "set", out=tmp_path / "run")
    assert {request.question_id: list(request.images) for request in listener.requests} == pictures_by_row
    listener.several_images = False
    with pytest.raises(BadInput, match=r"takes one image per question, and \d+ of 12 questions show several"):
        medprobe.evaluate("gmai-mmbench", listener, data=base / "set", out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_more_images_columns_exist_only_in_datasets_with_several_images(several_set, tmp_path):
    """`datasets` reads them as images; without them, columns and fingerprint are unchanged."""
    base, pictures_by_row = several_set
    rows = datasets.load_dataset(str(base / "set"), "questions", split="validation", cache_dir=str(tmp_path / "c"))
    for row in rows:
        pictures = [row["image"], *row["more_images"]]
        expected = [Image.open(io.BytesIO(data)) for data in pictures_by_row[row["question_id"]]]
        assert [np.asarray(p).tolist() for p in pictures] == [np.asarray(p).tolist() for p in expected]
    write_source(tmp_path / "source", several=False)
    build("gmai-mmbench", source=tmp_path / "source", out=tmp_path / "plain", eval_yaml=True)
    plain = open_repository(tmp_path / "plain")
    frame = plain.questions("validation")
    assert "more_image_ids" not in frame
    assert (tmp_path / "plain" / "eval.yaml").is_file()
    assert not (base / "set" / "eval.yaml").exists()
    assert fingerprint_questions(frame.assign(more_image_ids=[[] for _ in range(len(frame))])) == fingerprint_questions(
        frame
    )
    several = open_repository(base / "set").questions("validation")
    assert (
        fingerprint_questions(several) == open_repository(base / "set").manifest["splits"]["validation"]["fingerprint"]
    )
    # The order of the images is part of a question.
    turned = several.assign(more_image_ids=[list(reversed(names)) for names in several["more_image_ids"]])
    assert fingerprint_questions(turned) != fingerprint_questions(several)


def test_exports_contain_all_images(several_set, tmp_path):
    """Rebuilding VLMEvalKit's TSV gives the same dataset; lmms-eval's conversation has all images
    before the text.
    """
    base, pictures_by_row = several_set
    path, _ = exports.export_tsv(str(base / "set"), "validation", tmp_path)
    build("gmai-mmbench", source=path.parent, out=tmp_path / "again")
    again = open_repository(tmp_path / "again").questions("validation")
    images = {
        name: data
        for case in open_repository(tmp_path / "again").cases("validation")
        for name, data in case.images.items()
    }
    assert [[images[name] for name in row_image_ids(row)] for row in again.to_dict("records")] == list(
        pictures_by_row.values()
    )
    doc = {"question": "Q?", "options": ["a", "b"], "question_type": "single", "answer": [0]}
    first_image, *more_images = ({"bytes": encode_png(Image.new("L", (side, side)))} for side in (4, 5, 6))
    doc |= {"image": first_image, "more_images": more_images}
    (turn,) = exports.question_messages("gmai-mmbench", doc)
    assert [part["type"] for part in turn["content"]] == ["image", "image", "image", "text"]
    assert [image.size for image in exports.rgb_images(doc)] == [(4, 4), (5, 5), (6, 6)]


def test_questions_that_share_an_image_form_one_cluster():
    for seed in range(20):
        rng = random.Random(seed)
        image_ids = [[f"i{rng.randrange(25)}" for _ in range(rng.randint(1, 3))] for _ in range(12)]
        frame = pd.DataFrame({"case_id": [f"c{n}" for n in range(12)], "image_id": [names[0] for names in image_ids]})
        clusters = image_clusters(frame.assign(more_image_ids=[names[1:] or None for names in image_ids]))
        graph = networkx.Graph((f"c{n}", name) for n, names in enumerate(image_ids) for name in names)
        expected = {frozenset(n for n in range(12) if f"c{n}" in part) for part in networkx.connected_components(graph)}
        assert {frozenset(np.flatnonzero(clusters == number).tolist()) for number in clusters} == expected


@pytest.mark.parametrize("cell", ["['abc'", "[]", '[""]', "['abc', 3]", "[" * 500])
def test_invalid_image_list_is_reported_with_its_row(tmp_path, cell):
    (tmp_path / "x_VAL.tsv").write_text(f"index\timage\tquestion\tA\tB\tanswer\n7\t{cell}\tQ?\ta\tb\tA\n")
    with pytest.raises(BadInput, match=r"7 \(line 2\).*(list of images|base64)"):
        build("gmai-mmbench", source=tmp_path, out=tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize(("family", "takes"), [("qwen2_5_vl", True), ("blip2", False)])
def test_model_reads_every_image_or_is_refused(family, takes, tmp_path):
    """Batches of questions with different numbers of images equal one at a time, and the third
    image matters.
    """
    torch.set_num_threads(1)
    folder = make(family, tmp_path / family)
    backend, many = (loaded(folder, size) for size in (1, 8))
    assert backend.several_images == many.several_images == takes
    if not takes:
        return
    requests = [
        Request(
            str(n), 0, f"Which side, {'left ' * (n % 3)}?", picture(n // 2), ("left", "right"), "single", max_tokens=4,
            more_images=tuple(picture(50 + n // 2 + k) for k in range(n // 2 % 3)),
        )
        for n in range(8)
    ]  # fmt: skip
    single_responses, together = ({r.question_id: r.text for r in m.generate(requests)} for m in (backend, many))
    assert single_responses == together
    third = replace(requests[5], more_images=(requests[5].more_images[0], picture(99)))
    with torch.inference_mode():
        logits = [
            backend.network.next_logits(backend.processing.full_prompts([request])) for request in (requests[5], third)
        ]
    assert float((logits[0] - logits[1]).abs().max()) > 1e-4
