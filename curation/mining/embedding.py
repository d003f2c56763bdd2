"""Embed the images of a folder or an address with an encoder: batches with prefetch, a cache by image sha256 and encoder, one
memory-mapped array at the end.

An embeddings folder holds `images.parquet` (row k = row k of every array), `unreadable.csv`, and per encoder
`<key>.npy` (n, d) with `<key>.json`. `cache/<key>/` has a file per batch with its images' sha256 and vectors, from the moment
it is done: a run that was killed goes on where it stopped, and added images cost only themselves.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from curation.images.image_index import (
    INDEX_FILE,
    ImageSource,
    decode_rgb,
    index_images,
    list_images,
    open_image_source,
    prefetch,
)
from dataset_builders.errors import BadInput
from dataset_builders.files import lock_folder, remove_temp_files, replace_file, write_json

if TYPE_CHECKING:
    from curation.mining.encoders import Encoder


def encoder_key(encoder: Encoder) -> str:
    """Name of an encoder's files: its own name and a hash of everything that decides its vectors: what was asked for, its
    weights and preprocessing as loaded (a model on the Hub, or in a folder, may change under its name)."""
    settings = json.dumps([asdict(encoder.spec), encoder.fingerprint], sort_keys=True)
    return f"{encoder.spec.name}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class EncodingJob:
    """An encoding job: `todo` has the columns image (its name in `images`) and sha256; the vectors go into `cache`."""

    images: ImageSource
    todo: pd.DataFrame
    cache: Path
    encoder: Encoder
    batch_size: int


EncodingBackend = Callable[[EncodingJob], Iterator[int]]
"""Encodes images into a cache and yields how many are done, batch by batch."""


def embed(
    images: Path | str,
    out: Path,
    encoder: Encoder,
    batch_size: int = 32,
    encode: EncodingBackend | None = None,
) -> Path:
    """Embed all readable images of a folder or an address (`image_index.py`); returns the path of the array (n, d), whose rows follow
    out/images.parquet.

    Vectors are stored in float32 as the encoder gives them, not normalised. `encode`: who does the work; None: this process.
    """
    files = open_image_source(images)
    list_images(files)  # before anything is made: raises where there are none
    with lock_folder(out, "embed"):
        remove_temp_files(out)
        index = index_images(files, out)
        key = encoder_key(encoder)
        cache = out / "cache" / key
        cache.mkdir(parents=True, exist_ok=True)
        remove_temp_files(cache)
        wanted = index.drop_duplicates("sha256")
        known = {sha for names, _ in _stored_batches(cache) for sha in names}
        todo = wanted[~wanted["sha256"].isin(known)][["file", "sha256"]].rename(columns={"file": "image"})
        bar = tqdm(
            total=len(wanted),
            initial=len(wanted) - len(todo),
            desc=f"embedding ({encoder.spec.name})",
            unit="image",
            disable=None,
        )
        with bar:
            for count in (encode or encode_in_process)(EncodingJob(files, todo, cache, encoder, batch_size)):
                bar.update(count)
        return _assemble(out, key, index, encoder)


def encode_in_process(work: EncodingJob) -> Iterator[int]:
    """Encode in this process, batch by batch: once a batch is counted, a killed run has it."""
    for names, batch in _batches(work):
        _store_batch(work, names, work.encoder.encode(batch).numpy())
        yield len(names)


def _batches(work: EncodingJob) -> Iterable[tuple[list[str], Any]]:
    """Batches of (sha256 list, pixels), decoded and preprocessed by threads while the encoder is busy."""
    import torch

    def prepare(row: tuple[str, str]) -> tuple[str, Any]:
        image, sha = row
        data = work.images.read(image)
        if hashlib.sha256(data).hexdigest() != sha:
            raise BadInput(f"{work.images}/{image}: changed while it was being embedded. Run the command again.")
        return sha, work.encoder.prepare(decode_rgb(data))

    names: list[str] = []
    pixels: list[Any] = []
    rows = zip(work.todo["image"], work.todo["sha256"], strict=True)
    for sha, picture in prefetch(prepare, rows, window=2 * work.batch_size):
        names.append(sha)
        pixels.append(picture)
        if len(names) == work.batch_size:
            yield names, torch.stack(pixels)
            names, pixels = [], []
    if names:
        yield names, torch.stack(pixels)


def _store_batch(work: EncodingJob, names: list[str], vectors: np.ndarray) -> None:
    """Keep the vectors (b, d) of these images."""
    bad = np.flatnonzero(~np.isfinite(vectors).all(1) | ~vectors.any(1))
    if len(bad):
        raise BadInput(f"image with sha256 {names[bad[0]]}: its embedding is zero or not finite. Use another encoder.")

    def write(partial: Path) -> None:
        with partial.open("wb") as file:
            np.savez(file, sha256=names, vectors=vectors)

    replace_file(work.cache / f"{uuid.uuid4().hex}.npz", write)


def _stored_batches(cache: Path) -> Iterator[tuple[list[str], np.ndarray]]:
    """(sha256 of its images, their vectors (b, d)) of each batch that was kept."""
    for path in sorted(cache.glob("*.npz")):
        with np.load(path) as kept:
            yield kept["sha256"].tolist(), kept["vectors"]


def _assemble(out: Path, key: str, index: pd.DataFrame, encoder: Encoder) -> Path:
    """One array from the cache, in the order of the index, without holding more than a batch of it."""
    rows: dict[str, list[int]] = {}
    for row, sha in enumerate(index["sha256"]):
        rows.setdefault(sha, []).append(row)
    target, cache = out / f"{key}.npy", out / "cache" / key
    size = next(vectors.shape[1] for _, vectors in _stored_batches(cache))

    def write(path: Path) -> None:
        array = np.lib.format.open_memmap(path, "w+", np.dtype("float32"), (len(index), size))
        for names, vectors in _stored_batches(cache):
            for sha, vector in zip(names, vectors, strict=True):
                array[rows.get(sha, [])] = vector
        array.flush()

    replace_file(target, write)
    about = {
        "encoder": asdict(encoder.spec),
        "weights_and_preprocessing": encoder.fingerprint,
        "images": len(index),
        "dimensions": size,
        "index_sha256": index_sha256(index),
    }
    write_json(out / f"{key}.json", about, ensure_ascii=True)
    return target


def index_sha256(index: pd.DataFrame) -> str:
    """Identity of an array's rows: sha256 over the images' names and hashes, in order."""
    return hashlib.sha256("\n".join(index["image"] + " " + index["sha256"]).encode()).hexdigest()


def open_embeddings(folder: Path, encoder: str) -> np.memmap:
    """The memory-mapped array (n, d) of an encoder in an embeddings folder, by the encoder's name or its key.

    Raises BadInput if it is not there, several match the name, or images were added since it was made.
    """
    if not (folder / INDEX_FILE).is_file():
        raise BadInput(f"{folder}: holds no {INDEX_FILE}. Make it with `medprobe curate embed IMAGES --out {folder}`.")
    known = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    fits = [key for key, about in known.items() if encoder in (key, about.get("encoder", {}).get("name"))]
    if not fits:
        raise BadInput(
            f"{folder}: has no embeddings called {encoder} (it has {', '.join(known) or 'none'}). "
            "Run `medprobe curate embed` for it."
        )
    if len(fits) > 1:
        raise BadInput(f"{folder}: {encoder} could be {' or '.join(fits)}. Give one of these.")
    if known[fits[0]]["index_sha256"] != index_sha256(pd.read_parquet(folder / INDEX_FILE)):
        raise BadInput(
            f"{folder}: images changed since {fits[0]} was made. Run `medprobe curate embed` for it again; only new images cost."
        )
    return np.load(folder / f"{fits[0]}.npy", mmap_mode="r")
