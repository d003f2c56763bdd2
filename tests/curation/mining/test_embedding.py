"""Embedding with small random weights: batches, cache, bad files, and images at any address."""

import io
import json
import os
import pickle
import shutil
import time
from dataclasses import replace
from types import SimpleNamespace

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

from curation.images.image_index import RemoteImages, decode_rgb, index_images, list_images, open_image_source
from curation.images.image_table import align_to_images, read_image_table
from curation.images.privacy import load_file_names
from curation.mining.embedding import Encoder, EncoderSpec, embed, load_encoder, open_embeddings, parse_encoder
from dataset_builders.errors import BadInput
from tests.curation.commands import curate
from tests.helpers import refused
from tests.localhub.accounts import CURATOR
from tests.processes import start
from tests.sampling import few


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    (folder / "deep").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for k in range(9):
        side = 30 + 7 * k
        Image.fromarray(rng.integers(0, 256, (side, side + 5, 3), dtype=np.uint8)).save(folder / f"{k}.png")

    Image.fromarray(rng.integers(0, 4000, (40, 40), dtype=np.uint16)).save(folder / "deep" / "grey16.png")
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 no picture")
    (folder / "notes.txt").write_text("not an image")
    return folder


@pytest.mark.parametrize(
    ("encoder", "pooling", "dimensions"),
    few(
        [
            ("transformers:dinov2", "mean", 32),
            ("transformers:clip", "projected", 24),
            ("open_clip:local-dir:biomedclip", "mean", 64),
            ("transformers:clip", "mean", 32),
            ("open_clip:local-dir:biomedclip", "projected", 24),
            ("open_clip:local-dir:biomedclip", "cls", 64),
            ("transformers:dinov2", "cls", 32),
        ],
        3,
    ),
)
def test_batches_equal_single_images(models, images, tmp_path, encoder, pooling, dimensions):
    library, *local, name = encoder.split(":")
    spec = parse_encoder(":".join([library, *local, str(models / name)]), pooling)
    loaded = load_encoder(spec)
    array = np.load(embed(images, tmp_path / "a", loaded, batch_size=4))
    assert array.shape == (10, dimensions)
    index = pd.read_parquet(tmp_path / "a" / "images.parquet")
    files = load_file_names(tmp_path / "a")
    file_names = index["image"].map(files).tolist()
    assert file_names == [*(f"{k}.png" for k in range(9)), "deep/grey16.png"]
    for row, image in enumerate(file_names):
        vector = loaded.encode(loaded.prepare(decode_rgb((images / image).read_bytes()))[None]).numpy()[0]
        np.testing.assert_allclose(array[row], vector, rtol=1e-4, atol=1e-5)
    # All vectors differ, so the comparison above notices a row in the wrong place.
    assert len(np.unique(array.round(4), axis=0)) == 10
    unreadable = pd.read_csv(tmp_path / "a" / "unreadable.csv")
    assert unreadable["image"].map(files).tolist() == ["broken.jpg"]
    assert unreadable["reason"].str.len().min() > 5


@pytest.mark.parametrize("encoder", ["transformers:dinov2", "transformers:clip", "open_clip:local-dir:biomedclip"])
def test_local_model_folders_need_no_network(models, tmp_path, monkeypatch, encoder):
    """Local folders are enough, even if they refer to pretrained models on the Hub, as BiomedCLIP's
    does.
    """
    connections = []
    for name in ("socket.socket.connect", "socket.getaddrinfo", "socket.create_connection"):
        monkeypatch.setattr(name, lambda *args, **_: connections.append(args) or pytest.fail("asked the network"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    library, name = encoder.rsplit(":", 1)
    folder = tmp_path / name
    shutil.copytree(models / name, folder)
    if library != "transformers":
        described = json.loads((folder / "open_clip_config.json").read_text())
        described["model_cfg"]["vision_cfg"]["timm_model_pretrained"] = True
        described["model_cfg"]["text_cfg"] = {
            "hf_model_name": "nobody/nothing",
            "hf_proj_type": "mlp",
        }
        (folder / "open_clip_config.json").write_text(json.dumps(described))
    loaded = load_encoder(parse_encoder(f"{library}:{folder}"))
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 70, 3), dtype=np.uint8))
    assert loaded.encode(loaded.prepare(picture)[None]).isfinite().all() and connections == []
    # The weights are the same, so the description must not change the cache's key.
    assert loaded.fingerprint == load_encoder(parse_encoder(f"{library}:{models / name}")).fingerprint


def counting_encoder_of(loaded):
    seen = []

    def encode(batch):
        seen.extend(range(len(batch)))
        return loaded.encode(batch)

    return replace(loaded, encode=encode), seen


SLOW_EMBEDDING_SCRIPT = """
import sys, time
from pathlib import Path
from curation.mining.embedding import Encoder, embed, load_encoder, parse_encoder
loaded = load_encoder(parse_encoder(sys.argv[1]))
def slowly(batch):
    time.sleep(0.2)
    return loaded.encode(batch)
embed(Path(sys.argv[2]), Path(sys.argv[3]), Encoder(loaded.spec, loaded.prepare, slowly, loaded.fingerprint), 1)
"""


@pytest.mark.exhaustive
def test_a_killed_process_loses_no_embedded_image(models, images, tmp_path):
    """After kill -9, the next run embeds only the unfinished images, and the result is the same."""
    name = f"transformers:{models / 'dinov2'}"
    process = start(SLOW_EMBEDDING_SCRIPT, name, images, tmp_path / "a", cwd=tmp_path)
    for _ in range(6000):
        # Kill the process in the middle: some images are finished, others are not.
        if len(list((tmp_path / "a").glob("cache/*/*.npz"))) >= 3:
            break
        assert process.poll() is None, process.output_file.read_text()
        time.sleep(0.05)
    process.kill()
    process.wait(30)
    files = list((tmp_path / "a").glob("cache/*/*.npz"))
    finished_count = len(files)

    # A torn temporary file, as a killed write leaves it.
    (files[0].parent / f".{files[0].name}.1.part").write_bytes(b"torn")
    resumed, encoded_after_kill = counting_encoder_of(load_encoder(parse_encoder(name)))
    resumed_array = np.load(embed(images, tmp_path / "a", resumed, batch_size=1))
    assert 3 <= finished_count < 10
    assert len(encoded_after_kill) == 10 - finished_count
    reference = embed(images, tmp_path / "b", load_encoder(parse_encoder(name)), batch_size=1)
    np.testing.assert_array_equal(resumed_array, np.load(reference))
    (images / "copy.png").write_bytes((images / "0.png").read_bytes())  # a copy costs nothing
    counting_encoder, encoded_again = counting_encoder_of(load_encoder(parse_encoder(name)))
    assert len(np.load(embed(images, tmp_path / "a", counting_encoder, batch_size=2))) == 11 and encoded_again == []


def test_changed_weights_or_preprocessing_change_the_encoder_key(models, images, tmp_path):
    from transformers import Dinov2Model

    shutil.copytree(models / "dinov2", tmp_path / "model")
    name = f"transformers:{tmp_path / 'model'}"
    first_path = embed(images, tmp_path / "a", load_encoder(parse_encoder(name)))
    assert embed(images, tmp_path / "a", load_encoder(parse_encoder(name))) == first_path

    # New random weights under the same name.
    torch.manual_seed(9)
    Dinov2Model(Dinov2Model.from_pretrained(tmp_path / "model").config).save_pretrained(tmp_path / "model")
    second_path = embed(images, tmp_path / "a", load_encoder(parse_encoder(name)))
    settings = tmp_path / "model" / "preprocessor_config.json"
    settings.write_text(settings.read_text().replace('"shortest_edge": 32', '"shortest_edge": 40'))
    third_path = embed(images, tmp_path / "a", load_encoder(parse_encoder(name)))
    assert len({first_path, second_path, third_path}) == 3
    assert len(np.unique([np.load(path)[0, 0] for path in (first_path, second_path, third_path)])) == 3


def test_embeddings_are_opened_by_name_and_never_stale(models, images, tmp_path):
    loaded = load_encoder(parse_encoder(f"transformers:{models / 'clip'}", name="clip"))
    embed(images, tmp_path / "a", loaded)
    array = open_embeddings(tmp_path / "a", "clip")
    assert isinstance(array, np.memmap)
    assert "no embeddings of dinov2" in refused(open_embeddings, tmp_path / "a", "dinov2")
    embed(
        images,
        tmp_path / "a",
        load_encoder(parse_encoder(f"transformers:{models / 'clip'}", "mean", name="clip")),
    )
    assert "matches clip-" in refused(open_embeddings, tmp_path / "a", "clip")
    # A new image changes the index, so older arrays no longer fit its rows.
    (images / "new.png").write_bytes((images / "1.png").read_bytes())
    embed(
        images,
        tmp_path / "a",
        load_encoder(parse_encoder(f"transformers:{models / 'dinov2'}", name="dinov2")),
    )
    assert "images changed" in refused(
        open_embeddings, tmp_path / "a", sorted((tmp_path / "a").glob("clip-*.npy"))[0].stem
    )


def test_invalid_encoders_fail_in_one_line(models, tmp_path):
    dinov2 = f"transformers:{models / 'dinov2'}"
    for encoder, options, says in (
        ("resnet", {}, "--encoder resnet"),
        ("biomedclip", {"revision": "abc"}, "--revision"),
        (dinov2, {"pooling": "projected"}, "no projection to a shared text space"),
        (f"transformers:{tmp_path / 'nothing'}", {}, "cannot be loaded"),
        # The encoder is valid, but there are no images.
        (dinov2, {}, "folder not found"),
    ):
        with pytest.raises(BadInput, match=says):
            embed(tmp_path / "nothing", tmp_path / "a", load_encoder(parse_encoder(encoder, **options)))


def test_tables_are_joined_by_path_or_unique_name(tmp_path):
    table = tmp_path / "t.csv"
    # A table as Excel may write it: with a byte order mark and other column names.
    table.write_text("file,notes,patient\nx.png,  first ,p1\ny.jpg,second,\n", encoding="utf-8-sig")
    columns = {"image": "file", "caption": "notes", "group": "patient"}
    joined = align_to_images(["a/x.png", "b/y.jpg", "z.png"], table, **columns)
    assert joined["caption"].tolist() == ["first", "second", ""]
    assert joined["group"].tolist() == ["p1", "", ""]
    for images, names, says in (
        (["a/x.png", "b/x.png"], columns, "matches several"),
        (["q.png"], columns, "matches none"),
        (["q.png"], {}, "no column 'image'"),
    ):
        with pytest.raises(BadInput, match=says):
            align_to_images(images, table, **names)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("image,caption\nx,1\nx,2\n", "has 2 rows"),
        ("image,caption\na.png,left lung, clear\n", "row 1 .* has 3 cells"),
        ('image,caption\na.png,"left\nb.png,right\n', "never closed"),
        ("image,caption,caption\na.png,x,y\n", "two columns called 'caption'"),
        # A table that is not in UTF-8 is refused with a remedy.
        ("image,caption\na.png,38°\n", r"line 2.*iconv -f WINDOWS-1252"),
    ],
)
def test_tables_that_would_lose_text_are_refused(tmp_path, text, says):
    (tmp_path / "t.csv").write_text(text, encoding="cp1252")
    with pytest.raises(BadInput, match=says):
        read_image_table(tmp_path / "t.csv")


def test_captions_are_read_completely(tmp_path):
    long = "x" * 200_000
    (tmp_path / "t.csv").write_text(
        # Line breaks of Unicode and in quotation marks belong to the caption.
        '\ufeffimage, caption,\r\na.png,one\u2028two\x0bthree\x85four,,\r\nb.png,"line\nbreak, '
        f'comma"\r\nc.png\r\n,,\r\nd.png,{long}'
    )
    assert read_image_table(tmp_path / "t.csv")["caption"].tolist() == [
        "one\u2028two\x0bthree\x85four", "line\nbreak, comma", "", long
    ]  # fmt: skip
    (tmp_path / "captions.txt").write_text("a\tone\u2028two\x85three\r\nb\tfour\r\n")
    assert read_image_table(tmp_path / "captions.txt")["caption"].tolist() == [
        "one\u2028two\x85three",
        "four",
    ]


def test_numbers_beside_blanks_keep_their_text(tmp_path):
    # A float cannot hold this number exactly.
    large_number = 12345678901234567
    lines = [
        {"image": 1, "group": large_number},
        {"image": "02", "caption": ["a", "b"]},
        {"image": 3, "caption": "x\u2028y", "group": None},
    ]
    text = "\n\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    (tmp_path / "t.jsonl").write_text(text, encoding="utf-8-sig")
    table = read_image_table(tmp_path / "t.jsonl")
    assert table["image"].tolist() == ["1", "02", "3"]
    assert table["group"].tolist() == [str(large_number), "", ""]
    assert table["caption"].tolist() == ["", "['a', 'b']", "x\u2028y"]
    (tmp_path / "t.jsonl").write_text('{"image": "1"}\n[1]\n')
    assert "not a JSON object" in refused(read_image_table, tmp_path / "t.jsonl")
    pd.DataFrame({"image": ["a", "b"], "group": pd.array([1, None], "Int64")}).to_parquet(tmp_path / "t.parquet")
    assert read_image_table(tmp_path / "t.parquet")["group"].tolist() == ["1", ""]
    (tmp_path / "t.parquet").write_bytes((tmp_path / "t.parquet").read_bytes()[:-300])
    assert "cannot be read as parquet" in refused(read_image_table, tmp_path / "t.parquet")


def test_unreadable_files_are_listed_and_link_cycles_end(tmp_path):
    folder = tmp_path / "images"
    (folder / "deep").mkdir(parents=True)
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8))
    for name in ("a.png", "deep/b.png", "line\nbreak.png"):
        picture.save(folder / name)
    (folder / "zero.png").touch()
    (folder / "gone.png").symlink_to("nowhere.png")
    # Links to parent folders must not be followed endlessly.
    (folder / "up").symlink_to("..")
    (folder / "also").symlink_to("deep")
    (folder / "deep" / "up").symlink_to("..")
    # Opening a pipe would block forever.
    os.mkfifo(folder / "pipe.png")
    with open(os.fsencode(folder) + b"/latin_\xe9.png", "wb") as file:  # noqa: PTH123
        picture.save(file, "PNG")
    index = index_images(folder, tmp_path / "out")
    assert index["file"].tolist() == ["a.png", "deep/b.png", "line\nbreak.png"]
    bad = (
        pd.read_csv(tmp_path / "out" / "unreadable.csv")
        .set_index("image")["reason"]
        .rename(load_file_names(tmp_path / "out"))
    )
    assert sorted(bad.index) == ["gone.png", "latin_?.png", "pipe.png", "zero.png"]
    assert "rename" in bad["latin_?.png"]
    assert list_images(folder) == sorted([*index["file"], *(set(bad.index) - {"latin_?.png"})])


@pytest.mark.parametrize("is_screen", [True, False])
def test_unreadable_files_are_named_on_a_terminal_and_by_id_in_a_pipe(models, images, tmp_path, monkeypatch, is_screen):
    monkeypatch.setattr(
        "curation.commands.mining.sys",
        SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: is_screen)),
    )
    output = curate(f"embed {images} --out {tmp_path / 'a'} --encoder transformers:{models / 'dinov2'} --device cpu")
    assert "1 images could not be read" in output and ("broken.jpg: " in output) == is_screen


@pytest.mark.sources
def test_original_roco_captions_are_read(sources):
    table = read_image_table(sources / "roco" / "validation" / "radiology" / "captions.txt")
    assert len(table) == 8180
    assert table["image"].iloc[0] == "ROCO_00020"
    assert table["caption"].iloc[0].startswith("Axial computed tomography")


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
    file, plain_file = io.BytesIO(), io.BytesIO()

    # A second struct column: the one called `image` must be preferred.
    table = pa.table({"id": range(len(rows)), "other": [{"bytes": b"", "path": ""}] * len(rows), "image": rows})
    pq.write_table(table, file, row_group_size=3)
    pq.write_table(pa.table({"id": [1]}), plain_file)
    return {
        "data/test-0.parquet": file.getvalue(),
        # files without images, which are ignored
        "README.md": b"# Images",
        "data/plain.parquet": plain_file.getvalue(),
    }


def in_memory(files, _):
    MemoryFileSystem.store.clear()
    for name, data in files.items():
        fsspec.filesystem("memory").pipe(f"/bucket/{name}", data)
    return "memory://bucket"


def write_files(folder, files):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def in_folder(files, request):
    return f"file://{write_files(request.getfixturevalue('tmp_path') / 'object-store', files)}"


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
    embed(write_files(tmp_path / "images", images), tmp_path / "a", ENCODER)
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
