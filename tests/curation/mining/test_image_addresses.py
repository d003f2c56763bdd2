"""Images give the same vectors from folders, object stores and Hub datasets, as files or as
Parquet.
"""

import io
import pickle

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem
from huggingface_hub import HfApi
from PIL import Image

from curation.images.file_names import load_file_names
from curation.images.image_index import RemoteImages, open_image_source
from curation.mining.embedding import embed
from curation.mining.encoders import Encoder, EncoderSpec
from dataset_builders.errors import BadInput
from tests.localhub.accounts import CURATOR

ENCODER = Encoder(
    EncoderSpec("pixels", "none", "none", "none"),
    lambda picture: torch.from_numpy(np.asarray(picture.resize((4, 4)), np.float32)).permute(2, 0, 1) + 1,
    lambda batch: batch.flatten(1),
    "fixed",
)
"""Encoder that returns sixteen pixels unchanged, for vectors that are easy to compare."""


def draw_images(count, seed=0):
    """Return name -> bytes of images, of which the last is invalid."""
    chance, images = np.random.default_rng(seed), {}
    for number in range(count):
        buffer = io.BytesIO()
        Image.fromarray(chance.integers(0, 256, (9, 12, 3), dtype=np.uint8)).save(buffer, "PNG")
        images[f"{'deep/' * (number % 2)}{number}.png"] = buffer.getvalue()
    return images | {"broken.jpg": b"\xff\xd8\xff\xe0 no picture"}


def as_parquet(images):
    """Return Parquet files with two image columns, as `datasets` stores them, in row groups of 3
    rows.
    """
    rows = [{"bytes": data, "path": name} for name, data in images.items()]
    file = io.BytesIO()

    # A second struct column: the one called `image` must be preferred.
    table = pa.table({"id": range(len(rows)), "other": [{"bytes": b"", "path": ""}] * len(rows), "image": rows})
    pq.write_table(table, file, row_group_size=3)
    return {
        "data/test-0.parquet": file.getvalue(),
        "README.md": b"# Images",
        # files without images, which are ignored
        "data/plain.parquet": _plain(),
    }


def _plain():
    file = io.BytesIO()
    pq.write_table(pa.table({"id": [1]}), file)
    return file.getvalue()


def in_memory(files, _):
    MemoryFileSystem.store.clear()
    for name, data in files.items():
        fsspec.filesystem("memory").pipe(f"/bucket/{name}", data)
    return "memory://bucket"


def in_folder(files, request):
    folder = request.getfixturevalue("tmp_path") / "object-store"
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return f"file://{folder}"


def on_the_hub(files, request):
    hub = request.getfixturevalue("local_hub")
    api = HfApi(endpoint=hub.endpoint, token=CURATOR)
    repository = "ORG/images"
    api.create_repo(repository, repo_type="dataset")
    for name, data in files.items():
        api.upload_file(path_or_fileobj=data, path_in_repo=name, repo_id=repository, repo_type="dataset")
    return f"hf://datasets/{repository}"


def vectors_by_sha256(out):
    """Return sha256 -> vector of each image."""
    index, array = pd.read_parquet(out / "images.parquet"), np.load(next(out.glob("*.npy")))
    return dict(zip(index["sha256"], array, strict=True))


@pytest.mark.parametrize("form", [dict, as_parquet])
@pytest.mark.parametrize("store", [in_memory, in_folder, on_the_hub])
def test_addresses_give_the_same_vectors_as_a_folder(store, form, request, tmp_path):
    images = draw_images(7)
    embed(_folder(images, tmp_path), tmp_path / "a", ENCODER)
    address = store(form(images), request)
    embed(address, tmp_path / "b", ENCODER, batch_size=3)
    address_array, folder_array = (
        vectors_by_sha256(tmp_path / "b"),
        vectors_by_sha256(tmp_path / "a"),
    )
    assert address_array.keys() == folder_array.keys()
    assert len(address_array) == 7
    for sha, vector in folder_array.items():
        np.testing.assert_array_equal(address_array[sha], vector)
    [broken] = pd.read_csv(tmp_path / "b" / "unreadable.csv")["image"]
    assert load_file_names(tmp_path / "b")[broken] == (
        "data/test-0.parquet#0000007" if form is as_parquet else "broken.jpg"
    )
    again = pickle.loads(pickle.dumps(open_image_source(address)))  # as sent to a remote worker
    assert again.names() == open_image_source(address).names()


def _folder(images, tmp_path):
    folder = tmp_path / "images"
    for name, data in images.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def test_only_changed_images_are_read_again(tmp_path, monkeypatch):
    images, names_read = draw_images(5), []
    address = in_memory(images, None)
    read_image = RemoteImages.read
    monkeypatch.setattr(RemoteImages, "read", lambda self, name: names_read.append(name) or read_image(self, name))
    embed(address, tmp_path / "out", ENCODER)
    names_read.clear()
    embed(address, tmp_path / "out", ENCODER)
    # Unreadable images are not in the index, so they are tried again.
    assert names_read == ["broken.jpg"]
    names_read.clear()
    fsspec.filesystem("memory").pipe("/bucket/0.png", draw_images(1, seed=9)["0.png"])
    embed(address, tmp_path / "out", ENCODER)
    assert set(names_read) == {"broken.jpg", "0.png"}


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("nothing://bucket", "cannot be opened"),
        ("memory://empty", "contains no images"),
    ],
)
def test_an_address_without_images_is_one_line_and_nothing_is_written(address, words, tmp_path):
    with pytest.raises(BadInput, match=words):
        embed(address, tmp_path / "out", ENCODER)
    assert not list(tmp_path.iterdir())


def test_an_address_that_fails_while_it_is_read_lists_no_image_as_broken(tmp_path, monkeypatch):
    address = in_memory(draw_images(5), None)

    def gone(self, path, **_):
        raise OSError("connection reset")

    # A lost connection says nothing about the images.
    monkeypatch.setattr(MemoryFileSystem, "cat_file", gone)
    with pytest.raises(BadInput, match=r"cannot be read .*connection reset"):
        embed(address, tmp_path / "out", ENCODER)
    assert not (tmp_path / "out" / "unreadable.csv").exists()
