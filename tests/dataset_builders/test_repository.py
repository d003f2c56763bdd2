"""Test repositories as users load them, as the harness opens them, and their size."""

import random
import shutil
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from datasets import load_dataset
from PIL import Image

from dataset_builders import parquet as parquet_files
from dataset_builders.benchmarks import BENCHMARKS, question_columns, spec
from dataset_builders.contents.card import Description
from dataset_builders.contents.repository_files import write_repository
from dataset_builders.errors import BadInput
from dataset_builders.fingerprints import fingerprint_questions
from dataset_builders.hub.repository import open_repository
from dataset_builders.images.lookup import encode_png
from dataset_builders.schema import (
    COMMON_COLUMNS,
    EXTRA_IMAGE_COLUMNS,
    Case,
    CaseImage,
    Question,
    SourceContent,
)
from tests.helpers import build_and_open
from tests.sampling import few


@pytest.mark.parametrize("family", BENCHMARKS)
def test_built_repository_is_read_back(family, phantoms):
    repository = open_repository(phantoms / family)
    for split in repository.splits:
        questions = repository.questions(split)
        cases = list(repository.cases(split))
        assert [i for case in cases for i in case.question_ids] == list(questions["question_id"])
        assert {i for case in cases for i in case.images} == set(questions["image_id"])

        # A selection must be read in its order, without the other cases.
        selected_ids = list(questions["case_id"].unique()[::3])
        assert [case.case_id for case in repository.cases(split, selected_ids)] == selected_ids
    with pytest.raises(BadInput, match="no split"):
        repository.questions("train")


@pytest.mark.parametrize("seed", few(range(6), 2))
def test_only_columns_with_values_are_stored(seed, tmp_path):
    """A split's frame has all declared columns; the fingerprint does not depend on which are
    stored.
    """
    rng = random.Random(seed)
    family = rng.choice(BENCHMARKS)
    extra_columns = [name for name, kind in spec(family).columns.items() if kind.name == "string"]
    optional = ["task", "modality", "department", "granularity", "keyword", "categories", "group", *extra_columns]
    chosen = set(rng.sample(optional, rng.randrange(len(optional) + 1)))
    filled: set[str] = set()

    def value(name):
        if name not in chosen or rng.random() < 0.6:
            return () if name == "categories" else None
        filled.add(name)
        return ("a",) if name == "categories" else "a"

    def case(number):
        image = CaseImage(f"i{number}", tiny_png, 1, f"{number}.png", group=value("group"))
        plain = {name: value(name) for name in optional if name not in (*extra_columns, "group")}
        extra = {name: value(name) for name in extra_columns}
        question = Question(
            f"q{number}",
            f"c{number}",
            image.image_id,
            "Which?",
            ("x", "y"),
            (),
            extra=extra,
            **plain,
        )
        return Case(question.case_id, (image,), (question,))

    cases = {
        "validation": [case(number) for number in range(3)],
        "test": [case(number) for number in range(3, 6)],
    }
    write_repository(tmp_path, Description("own", family, "custom", None, False), SourceContent(cases))

    # Columns that are stored whether or not they have values.
    always = {name for name, kind in COMMON_COLUMNS.items() if name not in optional and name != "image_source"}
    repository = open_repository(tmp_path)
    for split in cases:
        for config, expected_columns in (
            ("questions", always | filled),
            ("questions_text", always - {"image"} | filled),
        ):
            (path,) = (tmp_path / config).glob(f"{split}-*.parquet")
            assert set(pq.read_schema(path).names) == expected_columns
        frame = repository.questions(split)
        assert set(frame.columns) == set(question_columns(family)) - {"image", *EXTRA_IMAGE_COLUMNS}
        assert fingerprint_questions(frame) == repository.manifest["splits"][split]["fingerprint"]
        stated = load_dataset(str(tmp_path), split=split, cache_dir=str(tmp_path / "cache")).features
        assert set(stated) == always | filled


def test_readme_example_loads(phantoms, tmp_path, monkeypatch, capsys):
    """Run the README's lines after `make demo`."""
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    shutil.copytree(phantoms / "mediconfusion", tmp_path / "demo" / "data" / "mediconfusion")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    exec(text.split("```python\n", 1)[1].split("```", 1)[0], {})
    assert "(256, 256)" in capsys.readouterr().out


def tiny_png():
    return encode_png(Image.new("L", (2, 2)))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (shutil.rmtree, "no such folder"),
        (lambda folder: [path.unlink() for path in folder.rglob("*.parquet")], "no Parquet files"),
        (lambda folder: (folder / "manifest.json").unlink(), "not a manifest"),
        (
            lambda folder: (folder / "manifest.json").write_text('{"schema_version": 1}'),
            "not a manifest",
        ),
        (
            lambda folder: (folder / "manifest.json").write_text('{"schema_version": 9}'),
            "has version 9, this medprobe reads version 1",
        ),
        (
            lambda folder: [path.write_bytes(b"PAR1") for path in folder.rglob("*.parquet")],
            "changed or damaged",
        ),
    ],
)
def test_invalid_repository_is_rejected(phantoms, tmp_path, spoil, words):
    folder = tmp_path / "d"
    shutil.copytree(phantoms / "halt-medvqa", folder)
    spoil(folder)
    with pytest.raises(BadInput, match=words):
        open_repository(folder).questions("test")


@pytest.mark.parametrize("seed", few(range(8), 2))
def test_rebuilt_dataset_is_never_served_from_cache(seed, tmp_path):
    """`datasets` caches by folder name and card: a build that differs in one row or pixel must be
    reloaded.
    """
    rng = random.Random(seed)

    # Equal folder names share a cache entry of `datasets`.
    folders = [tmp_path / name for name in ("one/set", "other/set")]
    for number in range(4):
        folder = rng.choice(folders)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shade, size = rng.randrange(4), rng.randrange(1, 3)
        data = encode_png(Image.new("L", (2, 2), shade))
        images = [CaseImage(f"i{n}", lambda data=data: data, 1, f"{n}.png") for n in range(size)]
        questions = [
            Question(
                f"q{n}",
                f"c{n}",
                f"i{n}",
                rng.choice(["Which?", "What?"]),
                ("x", "y"),
                (rng.randrange(2),),
            )
            for n in range(size)
        ]
        cases = [Case(q.case_id, (image,), (q,)) for q, image in zip(questions, images, strict=True)]
        split = rng.choice(["test", "validation"])
        write_repository(
            folder,
            Description("set", "halt-medvqa", "custom", None, False),
            SourceContent({split: cases}),
        )
        if number % 2:  # an author edits the rest of the card
            card = (folder / "README.md").read_text().replace("license: other", "license: mit")
            (folder / "README.md").write_text(card + "More.")
        assert open_repository(folder).splits == [split]
        for config in ("questions", "questions_text", "cases"):
            loaded = load_dataset(str(folder), config, cache_dir=str(tmp_path / "cache"))
            assert list(loaded) == [split]
            rows = [row if config != "cases" else row["questions"][0] for row in loaded[split]]
            assert [(row["question"], row["answer"]) for row in rows] == [
                (q.question, list(q.answer)) for q in questions
            ]
            pictures = [row.get("image") or row["images"][0] for row in loaded[split] if config != "questions_text"]
            assert all(picture.getpixel((0, 0)) == shade for picture in pictures)


@pytest.mark.parametrize("config", ["questions", "cases", "questions_text"])
def test_files_of_another_build_are_rejected(config, phantoms, tmp_path):
    folder = tmp_path / "set"
    shutil.copytree(phantoms / "probmed", folder)
    (path,) = (folder / config).glob("*.parquet")

    # One row less, as in another build.
    pq.write_table(pq.read_table(path).slice(1), path)
    with pytest.raises(BadInput, match=f"does not match the files of {config} "):
        open_repository(folder)


def stored_bytes(folder, config):
    return sum(path.stat().st_size for path in (folder / config).glob("*.parquet"))


def test_shared_image_is_stored_once(tmp_path):
    """Nine questions share each image."""
    rng = random.Random(0)
    cases = []
    for number in range(60):
        data = encode_png(Image.frombytes("L", (200, 100), rng.randbytes(20_000)))
        image = CaseImage(f"i{number}", lambda data=data: data, len(data), f"{number}.png")
        names = [f"q{number}-{n}" for n in range(9)]
        questions = [Question(name, f"c{number}", image.image_id, "Is it?", ("yes", "no"), (0,)) for name in names]
        cases.append(Case(f"c{number}", (image,), tuple(questions)))

    description = Description("own", "mediconfusion", "custom", None, text_only=False, has_tasks=True)
    write_repository(tmp_path, description, SourceContent({"test": cases}))
    distinct, texts = 60 * 20_000, stored_bytes(tmp_path, "questions_text")
    assert stored_bytes(tmp_path, "questions") <= 1.05 * (distinct + texts)
    assert stored_bytes(tmp_path, "cases") <= 1.05 * (distinct + texts)

    # The Hub's tasks store images as text, a third longer.
    assert distinct < stored_bytes(tmp_path, "inspect") <= 1.05 * (distinct * 4 / 3 + texts)


def test_cases_sharing_an_image_are_grouped(phantoms, tmp_path, monkeypatch):
    """HALT's scenarios share images; in source order, small row groups would store them twice."""
    monkeypatch.setattr(parquet_files, "ROW_GROUP_BYTES", 30_000)
    monkeypatch.setattr(parquet_files, "SHARD_BYTES", 90_000)
    plain, small = open_repository(phantoms / "halt-medvqa"), build_and_open("halt-medvqa", out=tmp_path / "small")
    assert list(plain.questions("test")["question_id"])[:3] == ["fake-0", "fake-1", "fake-2"]
    plain_rows, small_rows = (repository.questions("test").sort_values("question_id") for repository in (plain, small))
    pd.testing.assert_frame_equal(plain_rows.reset_index(drop=True), small_rows.reset_index(drop=True))
    assert {c.case_id: c.images for c in plain.cases("test")} == {c.case_id: c.images for c in small.cases("test")}
    assert [plain.manifest[key] for key in ("splits", "images")] == [
        small.manifest[key] for key in ("splits", "images")
    ]
    files = sorted((tmp_path / "small" / "questions").glob("*.parquet"))
    assert [path.name for path in files] == [f"test-{n:05d}-of-{len(files):05d}.parquet" for n in range(len(files))]
    groups = [pq.ParquetFile(path).num_row_groups for path in files]
    assert len(files) >= 2 and max(groups) >= 2
    distinct = sum(image["bytes"] for image in small.manifest["images"].values())
    limit = 1.05 * distinct + sum(groups) * 16_000 + stored_bytes(tmp_path / "small", "questions_text")
    assert stored_bytes(tmp_path / "small", "questions") <= limit

    # Each image occurs in one uninterrupted run.
    ids = [image for case in small.cases("test") for image in case.images]
    runs = 1 + sum(a != b for a, b in pairwise(ids))
    assert runs == len(set(ids))
