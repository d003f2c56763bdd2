"""Embed the images of a folder or an address with an encoder.

Images are read ahead in batches. Vectors are cached by image sha256 and encoder, and assembled into
one memory-mapped array at the end.

An embeddings folder has `images.parquet` (row k describes row k of every array), `unreadable.csv`,
and for each encoder `<key>.npy` (n, d) with its description `<key>.json`. `cache/<key>/` has one
file per finished batch with the sha256 and the vector of each of its images. A killed run therefore
resumes, and if images are added, only these are encoded.
"""

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


def encoder_key(encoder: "Encoder") -> str:
    """Return the key of an encoder, which names its files.

    The key consists of the encoder's name and a hash of everything that determines its vectors: the
    spec, and the weights and preprocessing as loaded. A model may change under the same name (on
    the Hub or in a folder).
    """
    settings = json.dumps([asdict(encoder.spec), encoder.fingerprint], sort_keys=True)
    return f"{encoder.spec.name}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class EncodingJob:
    """Images to encode.

    `pending` has the columns image (name in `images`) and sha256; `cache` is the folder for the
    vectors.
    """

    images: ImageSource
    pending: pd.DataFrame
    cache: Path
    encoder: "Encoder"
    batch_size: int


EncodingBackend = Callable[[EncodingJob], Iterator[int]]
"""Encodes a job's images into its cache and yields the number of images of each finished batch."""


def embed(
    images: Path | str,
    out: Path,
    encoder: "Encoder",
    batch_size: int = 32,
    encode: EncodingBackend | None = None,
) -> Path:
    """Embed all readable images of a folder or an address (`image_index.py`).

    Vectors are stored as float32 and are not normalised.

    Args:
        images: folder or address.
        out: embeddings folder.
        encoder: loaded encoder.
        batch_size: images per forward pass.
        encode: backend that does the work; None: this process.

    Returns:
        Path of the array (n, d), whose rows are in the order of out/images.parquet.

    Raises:
        BadInput: there are no readable images, or an image changed during the run.
    """
    files = open_image_source(images)
    list_images(files)  # raises BadInput before anything is written if there are no images

    with lock_folder(out, "embed"):
        remove_temp_files(out)
        index = index_images(files, out)

        key = encoder_key(encoder)
        cache = out / "cache" / key
        cache.mkdir(parents=True, exist_ok=True)
        remove_temp_files(cache)

        # Vectors are cached by content, so identical files are encoded once.
        unique_images = index.drop_duplicates("sha256")
        cached_hashes = {sha for names, _ in _stored_batches(cache) for sha in names}
        pending = unique_images[~unique_images["sha256"].isin(cached_hashes)][["file", "sha256"]].rename(
            columns={"file": "image"}
        )

        progress = tqdm(
            total=len(unique_images),
            initial=len(unique_images) - len(pending),
            desc=f"embedding ({encoder.spec.name})",
            unit="image",
            disable=None,
        )

        with progress:
            for count in (encode or encode_in_process)(EncodingJob(files, pending, cache, encoder, batch_size)):
                progress.update(count)
        return _assemble(out, key, index, encoder)


def encode_in_process(job: EncodingJob) -> Iterator[int]:
    """Encode in this process; a batch is yielded once it is on disk."""
    for hashes, batch in _batches(job):
        _store_batch(job, hashes, job.encoder.encode(batch).numpy())
        yield len(hashes)


def _batches(work: EncodingJob) -> Iterable[tuple[list[str], Any]]:
    """Yield (sha256 of each image, pixels) of each batch, which threads prepare in advance."""
    import torch

    def prepare(row: tuple[str, str]) -> tuple[str, Any]:
        image, sha256 = row
        data = work.images.read(image)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise BadInput(f"{work.images}/{image}: changed while it was being embedded. Run the command again.")
        return sha256, work.encoder.prepare(decode_rgb(data))

    hashes: list[str] = []
    pixels: list[Any] = []

    rows = zip(work.pending["image"], work.pending["sha256"], strict=True)
    for sha256, picture in prefetch(prepare, rows, window=2 * work.batch_size):
        hashes.append(sha256)
        pixels.append(picture)
        if len(hashes) == work.batch_size:
            yield hashes, torch.stack(pixels)
            hashes, pixels = [], []
    if hashes:
        yield hashes, torch.stack(pixels)


def _store_batch(work: EncodingJob, hashes: list[str], vectors: np.ndarray) -> None:
    """Store the vectors (b, d) of a batch. Raises BadInput if one is zero or not finite."""
    # A cosine with a zero or non-finite vector is undefined.
    invalid_rows = np.flatnonzero(~np.isfinite(vectors).all(1) | ~vectors.any(1))
    if len(invalid_rows):
        raise BadInput(
            f"image with sha256 {hashes[invalid_rows[0]]}: its embedding is zero or not finite. Use another encoder."
        )

    def write(partial: Path) -> None:
        with partial.open("wb") as file:
            np.savez(file, sha256=hashes, vectors=vectors)

    replace_file(work.cache / f"{uuid.uuid4().hex}.npz", write)


def _stored_batches(cache: Path) -> Iterator[tuple[list[str], np.ndarray]]:
    """Yield (sha256 of each image, vectors (b, d)) of every stored batch."""
    for path in sorted(cache.glob("*.npz")):
        with np.load(path) as batch:
            yield batch["sha256"].tolist(), batch["vectors"]


def _assemble(out: Path, key: str, index: pd.DataFrame, encoder: "Encoder") -> Path:
    """Write all vectors as one array in index order, with one batch in memory at a time."""
    rows: dict[str, list[int]] = {}
    for row, sha in enumerate(index["sha256"]):
        rows.setdefault(sha, []).append(row)

    target, cache = out / f"{key}.npy", out / "cache" / key
    dimensions = next(vectors.shape[1] for _, vectors in _stored_batches(cache))

    def write(path: Path) -> None:
        # A memory map is used because the array may be larger than memory.
        array = np.lib.format.open_memmap(path, "w+", np.dtype("float32"), (len(index), dimensions))
        for names, vectors in _stored_batches(cache):
            for sha, vector in zip(names, vectors, strict=True):
                array[rows.get(sha, [])] = vector
        array.flush()

    replace_file(target, write)
    metadata = {
        "encoder": asdict(encoder.spec),
        "weights_and_preprocessing": encoder.fingerprint,
        "images": len(index),
        "dimensions": dimensions,
        "index_sha256": index_sha256(index),
    }
    write_json(out / f"{key}.json", metadata, ensure_ascii=True)
    return target


def index_sha256(index: pd.DataFrame) -> str:
    """Return a hash of all image names and hashes in order, which identifies an array's rows."""
    return hashlib.sha256("\n".join(index["image"] + " " + index["sha256"]).encode()).hexdigest()


def open_embeddings(folder: Path, encoder: str) -> np.memmap:
    """Open the memory-mapped array (n, d) of an encoder.

    Args:
        folder: embeddings folder.
        encoder: name of the encoder, or its key.

    Raises:
        BadInput: no or several arrays match, or images changed since the array was made.
    """
    if not (folder / INDEX_FILE).is_file():
        raise BadInput(f"{folder}: has no {INDEX_FILE}. Create it with `medprobe curate embed IMAGES --out {folder}`.")
    metadata_by_key = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}

    matching_keys = [
        key for key, metadata in metadata_by_key.items() if encoder in (key, metadata.get("encoder", {}).get("name"))
    ]
    if not matching_keys:
        raise BadInput(
            f"{folder}: has no embeddings of {encoder} (it has "
            f"{', '.join(metadata_by_key) or 'none'}). "
            "Run `medprobe curate embed` for it."
        )
    if len(matching_keys) > 1:
        raise BadInput(f"{folder}: {encoder} matches {' and '.join(matching_keys)}. Give one of these.")

    if metadata_by_key[matching_keys[0]]["index_sha256"] != index_sha256(pd.read_parquet(folder / INDEX_FILE)):
        raise BadInput(
            f"{folder}: images changed since {matching_keys[0]} was made. Run `medprobe curate "
            "embed` again; only new images are computed."
        )
    return np.load(folder / f"{matching_keys[0]}.npy", mmap_mode="r")
