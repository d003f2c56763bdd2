"""Embeds a folder of images with an encoder: batches with prefetch, a cache by image sha256 and encoder, one
memory-mapped array at the end.

An embeddings folder holds `images.parquet` (row k = row k of every array), `unreadable.csv`, and per encoder
`<key>.npy` (n, d) with `<key>.json`. `cache/<key>/` keeps each vector by its image's sha256, in shards written whole: a
run that was killed goes on where it stopped, and added images cost only themselves.

Not here: the encoders (`encoders.py`), the images' table (`image_index.py`).
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from curation.image_index import INDEX, ahead, index_images, open_rgb, replace
from dataset_builders.errors import BadInput

if TYPE_CHECKING:
    from curation.encoders import Encoder, EncoderSpec

SHARD_IMAGES = 2048
SHARD_SECONDS = 30.0
"""A shard of the cache is written after so many images, or after so long: what a killed run loses at most."""
DTYPES = ("float32", "float16")


def encoder_key(spec: EncoderSpec, dtype: str) -> str:
    """Name of an encoder's files: its own name and a hash of everything that decides its vectors."""
    settings = json.dumps([asdict(spec), dtype], sort_keys=True)
    return f"{spec.name}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"


def embed(
    images: Path, out: Path, encoder: Encoder, batch_size: int = 32, dtype: str = "float32", quiet: bool | None = None
) -> Path:
    """Embed all readable images below `images`; returns the path of the array (n, d), whose rows follow
    out/images.parquet.

    Vectors are stored as the encoder gives them, not normalised. dtype: float32 or float16 (half the disk; cosines then
    differ by up to 1e-3).
    """
    if dtype not in DTYPES:
        raise BadInput(f"--dtype {dtype}: give {' or '.join(DTYPES)}.")
    index = index_images(images, out, quiet)
    key = encoder_key(encoder.spec, dtype)
    cache = out / "cache" / key
    cache.mkdir(parents=True, exist_ok=True)
    vectors = _Cache(cache, dtype)
    wanted = index.drop_duplicates("sha256")
    todo = wanted[~wanted["sha256"].isin(vectors.known)]
    bar = tqdm(
        total=len(wanted),
        initial=len(wanted) - len(todo),
        desc=f"embedding ({encoder.spec.name})",
        unit="image",
        disable=quiet,
    )
    with bar:
        for names, batch in _batches(images, todo, encoder, batch_size):
            vectors.add(names, encoder.encode(batch).numpy())
            bar.update(len(names))
    vectors.flush()
    return _assemble(out, key, index, vectors, encoder, dtype)


def _batches(images: Path, todo: pd.DataFrame, encoder: Encoder, batch_size: int) -> Iterable[tuple[list[str], Any]]:
    """Batches of (sha256 list, pixels), decoded and preprocessed by threads while the encoder is busy."""
    import torch

    def prepare(row: tuple[str, str]) -> tuple[str, Any]:
        image, sha = row
        data = (images / image).read_bytes()
        if hashlib.sha256(data).hexdigest() != sha:
            raise BadInput(f"{images / image}: changed while it was being embedded. Run the command again.")
        return sha, encoder.prepare(open_rgb(data))

    names: list[str] = []
    pixels: list[Any] = []
    for sha, picture in ahead(prepare, zip(todo["image"], todo["sha256"], strict=True), window=2 * batch_size):
        names.append(sha)
        pixels.append(picture)
        if len(names) == batch_size:
            yield names, torch.stack(pixels)
            names, pixels = [], []
    if names:
        yield names, torch.stack(pixels)


class _Cache:
    """Vectors by sha256, in shards `<random>.npz`; `known` says what is there."""

    def __init__(self, folder: Path, dtype: str) -> None:
        self.folder, self.dtype = folder, dtype
        self.known: set[str] = set()
        self._names: list[str] = []
        self._vectors: list[np.ndarray] = []
        self._written = time.monotonic()
        for shard in self.shards():
            with np.load(shard) as data:
                self.known.update(data["names"].tolist())

    def shards(self) -> list[Path]:
        return sorted(self.folder.glob("*.npz"))

    def add(self, names: list[str], vectors: np.ndarray) -> None:
        bad = np.flatnonzero(~np.isfinite(vectors.astype(self.dtype)).all(1) | ~vectors.any(1))
        if len(bad):
            raise BadInput(
                f"image with sha256 {names[bad[0]]}: its embedding is zero or not finite. Use --precision float32, --dtype float32."
            )
        self._names += names
        self._vectors.append(vectors.astype(self.dtype))
        if len(self._names) >= SHARD_IMAGES or time.monotonic() - self._written > SHARD_SECONDS:
            self.flush()

    def flush(self) -> None:
        if self._names:
            names, vectors = np.array(self._names), np.concatenate(self._vectors)

            def write(path: Path) -> None:
                with path.open("wb") as file:
                    np.savez(file, names=names, vectors=vectors)

            replace(self.folder / f"{uuid.uuid4().hex}.npz", write)
            self.known.update(self._names)
        self._names, self._vectors, self._written = [], [], time.monotonic()


def _assemble(out: Path, key: str, index: pd.DataFrame, cache: _Cache, encoder: Encoder, dtype: str) -> Path:
    """One array from the shards, in the order of the index, without holding more than a shard."""
    rows: dict[str, list[int]] = {}
    for row, sha in enumerate(index["sha256"]):
        rows.setdefault(sha, []).append(row)
    array: np.memmap | None = None
    target = out / f"{key}.npy"

    def write(path: Path) -> None:
        nonlocal array
        for shard in cache.shards():
            with np.load(shard) as data:
                names, vectors = data["names"].tolist(), data["vectors"]
            if array is None:
                array = np.lib.format.open_memmap(path, "w+", np.dtype(dtype), (len(index), vectors.shape[1]))
            for name, vector in zip(names, vectors, strict=True):
                array[rows.get(name, [])] = vector
        assert array is not None, "an index has at least one image"
        array.flush()

    replace(target, write)
    about = {
        "encoder": asdict(encoder.spec),
        "dtype": dtype,
        "images": len(index),
        "dimensions": int(array.shape[1]),  # type: ignore[union-attr]
        "index_sha256": index_sha256(index),
    }
    replace(out / f"{key}.json", lambda path: path.write_text(json.dumps(about, indent=1) + "\n"))
    return target


def index_sha256(index: pd.DataFrame) -> str:
    """What the rows of an array stand for: sha256 over the images' names and hashes, in order."""
    return hashlib.sha256("\n".join(index["image"] + " " + index["sha256"]).encode()).hexdigest()


def open_embeddings(folder: Path, encoder: str) -> np.ndarray:
    """The memory-mapped array (n, d) of an encoder in an embeddings folder, by the encoder's name or its key.

    Raises BadInput where it is not there, where several fit the name, and where images were added since it was made.
    """
    if not (folder / INDEX).is_file():
        raise BadInput(f"{folder}: holds no {INDEX}. Make it with `medprobe curate embed IMAGES --out {folder}`.")
    known = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    fits = [key for key, about in known.items() if encoder in (key, about.get("encoder", {}).get("name"))]
    if not fits:
        raise BadInput(
            f"{folder}: has no embeddings called {encoder} (it has {', '.join(known) or 'none'}). "
            "Run `medprobe curate embed` for it."
        )
    if len(fits) > 1:
        raise BadInput(f"{folder}: {encoder} could be {' or '.join(fits)}. Give one of these.")
    if known[fits[0]]["index_sha256"] != index_sha256(pd.read_parquet(folder / INDEX)):
        raise BadInput(
            f"{folder}: images changed since {fits[0]} was made. Run `medprobe curate embed` for it again; only new images cost."
        )
    return np.load(folder / f"{fits[0]}.npy", mmap_mode="r")
