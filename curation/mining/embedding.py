"""Load an encoder, and embed the images of a folder or an address with it.

The encoders are biomedclip, clip, dinov2, and any other model of open_clip or transformers. The
paper only names them (MediConfusion, section 2.1). The other choices are ours: pooling is
`projected` for CLIP-like encoders (the vector that contrastive training compares) and `cls` for
DINOv2, preprocessing is that of each model's authors, and computation is in float32. The paper's
appendix F, which compares encoders, averages over patch tokens; `--pooling mean` does this.
open_clip and transformers are imported only when an encoder is loaded.

Images are read ahead in batches. Vectors are cached by image sha256 and encoder, and assembled into
one memory-mapped array at the end.

An embeddings folder has `images.parquet` (row k describes row k of every array), `unreadable.csv`,
and for each encoder `<key>.npy` (n, d) with its description `<key>.json`. `cache/<key>/` has one
file per finished batch with the sha256 and the vector of each of its images. A killed run therefore
resumes, and if images are added, only these are encoded.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from PIL import Image
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

Pooling = Literal["projected", "cls", "mean"]
"""projected: vector in the space shared with text; cls: class token; mean: average over patch
tokens.
"""
WEIGHT_PATTERNS = (
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.bin",
    "*.safetensors",
    "*.bin",
    "*.pth",
    "*.pt",
)
"""File names of weights in an open_clip folder, the most common first."""


@dataclass(frozen=True)
class EncoderSpec:
    """Everything that identifies an encoder; it is part of the cache key (`encoder_key`)."""

    name: str
    library: str
    model: str
    pooling: Pooling
    revision: str | None = None


BUILTIN_ENCODERS: dict[str, EncoderSpec] = {
    "biomedclip": EncoderSpec(
        "biomedclip",
        "open_clip",
        "hf-hub:microsoft/BiomedCLIP-PubMedBERT_256-vit_base_patch16_224",
        "projected",
    ),
    "clip": EncoderSpec("clip", "transformers", "openai/clip-vit-large-patch14-336", "projected"),
    "dinov2": EncoderSpec("dinov2", "transformers", "facebook/dinov2-base", "cls"),
}


@dataclass(frozen=True)
class Encoder:
    """A loaded encoder.

    `prepare` converts an RGB image to (3, height, width); `encode` converts a batch of these to (b,
    d) float32.
    """

    spec: EncoderSpec
    prepare: Callable[[Image.Image], torch.Tensor]
    encode: Callable[[torch.Tensor], torch.Tensor]
    fingerprint: str
    """Hash of the weights and the preprocessing as loaded."""


def parse_encoder(
    encoder: str,
    pooling: Pooling | None = None,
    revision: str | None = None,
    name: str | None = None,
) -> EncoderSpec:
    """Parse an --encoder option: biomedclip, clip, dinov2, open_clip:ID or transformers:ID.

    Args:
        encoder: the option; an ID may be a folder.
        pooling: overrides the default pooling.
        revision: commit on the Hub; transformers only.
        name: overrides the encoder's name.

    Raises:
        BadInput: unknown encoder, or a revision for open_clip.
    """
    library, _, model = encoder.partition(":")
    if encoder in BUILTIN_ENCODERS:
        base = BUILTIN_ENCODERS[encoder]
    elif library in ("open_clip", "transformers") and model:
        base = EncoderSpec(
            name or model.rstrip("/").rsplit("/", 1)[-1],
            library,
            model,
            "projected" if library == "open_clip" else "cls",
        )
    else:
        raise BadInput(f"--encoder {encoder}: give {', '.join(BUILTIN_ENCODERS)}, open_clip:ID or transformers:ID.")

    if revision is not None and base.library == "open_clip":
        raise BadInput(
            "--revision: not supported by open_clip. Download the model and give open_clip:local-dir:FOLDER."
        )
    return EncoderSpec(name or base.name, base.library, base.model, pooling or base.pooling, revision)


def load_encoder(spec: EncoderSpec, device: str = "cpu") -> Encoder:
    """Load a model's image encoder.

    Args:
        spec: the encoder.
        device: torch device.

    Raises:
        BadInput: the model cannot be loaded or does not support the pooling.
    """
    try:
        prepare, forward, loaded, steps = (_open_clip if spec.library == "open_clip" else _transformers)(spec, device)
    except (OSError, RuntimeError, FileNotFoundError) as error:
        reason = " ".join(str(error).split())[:300]
        raise BadInput(
            f"--encoder {spec.model}: cannot be loaded with {spec.library} ({reason}). Give an id "
            "or a folder with weights."
        ) from None

    @torch.inference_mode()
    def encode(batch: torch.Tensor) -> torch.Tensor:
        return forward(batch.to(device, non_blocking=True)).cpu()

    return Encoder(spec, prepare, encode, _fingerprint(loaded, steps))


def _fingerprint(model: torch.nn.Module, preprocessing: str) -> str:
    """Hash the weights and the preprocessing's repr, without memory addresses."""
    # The repr of a function contains its memory address, which differs between runs.
    digest = hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", preprocessing).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


EncoderParts = tuple[Callable[..., Any], Callable[..., Any], torch.nn.Module, str]
"""prepare, forward, the module whose weights are hashed, and a description of the preprocessing."""


def _open_clip(spec: EncoderSpec, device: str) -> EncoderParts:
    import open_clip

    if spec.model.startswith("local-dir:"):
        model, prepare = _vision_tower(Path(spec.model.removeprefix("local-dir:")))
    else:
        model, prepare = open_clip.create_model_from_pretrained(spec.model)
    visual = model.visual.to(device).eval()
    if spec.pooling == "projected":
        return prepare, visual, visual, str(prepare)

    trunk = getattr(visual, "trunk", None)  # a timm model, e.g. BiomedCLIP
    special = getattr(trunk, "num_prefix_tokens", None)
    if trunk is None or special is None or (spec.pooling == "cls" and not special):
        raise BadInput(f"--pooling {spec.pooling}: {spec.model} has no such output. Use --pooling projected.")
    return prepare, _pool_tokens(trunk.forward_features, spec.pooling, special), visual, str(prepare)


def _pool_tokens(
    encode: Callable[[torch.Tensor], torch.Tensor], pooling: Pooling, special: int
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function from a batch to its class tokens (`cls`) or to means of its patch tokens.

    `encode` returns all tokens of a batch; the first `special` ones are no patches.
    """
    if pooling == "cls":
        return lambda batch: encode(batch)[:, 0]
    return lambda batch: encode(batch)[:, special:].mean(1)


def _vision_tower(folder: Path) -> tuple[Any, Callable[..., Any]]:
    """Load the vision tower of an open_clip folder, with a stub for the text tower.

    The folder may refer to a text tower on the Hub (BiomedCLIP's does); the stub avoids downloading
    it.
    """
    import open_clip
    from open_clip.factory import load_state_dict
    from open_clip.transform import PreprocessCfg, image_transform_v2

    weights = next((path for pattern in WEIGHT_PATTERNS for path in sorted(folder.glob(pattern))), None)
    if weights is None:
        raise FileNotFoundError(f"no weights in {folder} ({', '.join(WEIGHT_PATTERNS)})")

    text_config = {"context_length": 8, "vocab_size": 8, "width": 8, "heads": 1, "layers": 1}
    model = open_clip.create_model(
        f"local-dir:{folder}",
        load_weights=False,
        pretrained_image=False,
        pretrained_text=False,
        text_cfg=text_config,
    )
    visual: Any = model.visual

    state = load_state_dict(str(weights))
    visual.load_state_dict({key[7:]: value for key, value in state.items() if key.startswith("visual.")})
    steps = PreprocessCfg(**(visual.preprocess_cfg | {"size": visual.image_size}))
    return model, image_transform_v2(steps, is_train=False)


def _transformers(spec: EncoderSpec, device: str) -> EncoderParts:
    from transformers import AutoImageProcessor, AutoModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    processor = AutoImageProcessor.from_pretrained(spec.model, revision=spec.revision)
    model = AutoModel.from_pretrained(spec.model, revision=spec.revision, dtype=torch.float32).to(device).eval()
    # A vision-language model has a vision tower; a pure vision model is used as it is.
    vision = getattr(model, "vision_model", model)

    steps = processor.to_json_string()

    def prepare(image: Image.Image) -> torch.Tensor:
        return processor(images=image, return_tensors="pt")["pixel_values"][0]

    if spec.pooling == "projected":
        if not hasattr(model, "get_image_features"):
            raise BadInput(
                f"--pooling projected: {spec.model} has no projection to a shared text space. Use "
                "--pooling cls or mean."
            )
        return (
            prepare,
            lambda batch: model.get_image_features(pixel_values=batch).pooler_output,
            model,
            steps,
        )

    registers = getattr(vision.config, "num_register_tokens", 0) or 0
    has_cls = any("cls_token" in key or "class_embedding" in key for key, _ in vision.named_parameters())
    if spec.pooling == "cls" and not has_cls:
        raise BadInput(f"--pooling cls: {spec.model} has no class token. Use --pooling mean.")
    # Patch tokens come after the class token and the register tokens.
    pool = _pool_tokens(
        lambda batch: vision(pixel_values=batch).last_hidden_state, spec.pooling, int(has_cls) + registers
    )
    return prepare, pool, vision, steps


# Embedding images


def encoder_key(encoder: Encoder) -> str:
    """Return the key of an encoder, which names its files.

    The key consists of the encoder's name and a hash of everything that determines its vectors: the
    spec, and the weights and preprocessing as loaded. A model may change under the same name (on
    the Hub or in a folder).
    """
    settings = json.dumps([asdict(encoder.spec), encoder.fingerprint], sort_keys=True)
    return f"{encoder.spec.name}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"


EncodingBackend = Callable[[ImageSource, pd.DataFrame, Path, Encoder, int], Iterator[int]]
"""Encodes images into a cache and yields the number of images of each finished batch.

Its arguments are those of `encode_in_process`.
"""


def embed(
    images: Path | str,
    out: Path,
    encoder: Encoder,
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
            for count in (encode or encode_in_process)(files, pending, cache, encoder, batch_size):
                progress.update(count)
        return _assemble(out, key, index, encoder)


def encode_in_process(
    images: ImageSource, pending: pd.DataFrame, cache: Path, encoder: Encoder, batch_size: int
) -> Iterator[int]:
    """Encode in this process; a batch is yielded once it is on disk.

    Args:
        images: where the images are read.
        pending: the images to encode: image (name in `images`) and sha256.
        cache: folder of the vectors.
        encoder: loaded encoder.
        batch_size: images per forward pass.
    """
    for hashes, batch in _batches(images, pending, encoder, batch_size):
        _store_batch(cache, hashes, encoder.encode(batch).numpy())
        yield len(hashes)


def _batches(
    images: ImageSource, pending: pd.DataFrame, encoder: Encoder, batch_size: int
) -> Iterable[tuple[list[str], Any]]:
    """Yield (sha256 of each image, pixels) of each batch, which threads prepare in advance."""

    def prepare(row: tuple[str, str]) -> tuple[str, Any]:
        image, sha256 = row
        data = images.read(image)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise BadInput(f"{images}/{image}: changed while it was being embedded. Run the command again.")
        return sha256, encoder.prepare(decode_rgb(data))

    hashes: list[str] = []
    pixels: list[Any] = []

    rows = zip(pending["image"], pending["sha256"], strict=True)
    for sha256, picture in prefetch(prepare, rows, window=2 * batch_size):
        hashes.append(sha256)
        pixels.append(picture)
        if len(hashes) == batch_size:
            yield hashes, torch.stack(pixels)
            hashes, pixels = [], []
    if hashes:
        yield hashes, torch.stack(pixels)


def _store_batch(cache: Path, hashes: list[str], vectors: np.ndarray) -> None:
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

    replace_file(cache / f"{uuid.uuid4().hex}.npz", write)


def _stored_batches(cache: Path) -> Iterator[tuple[list[str], np.ndarray]]:
    """Yield (sha256 of each image, vectors (b, d)) of every stored batch."""
    for path in sorted(cache.glob("*.npz")):
        with np.load(path) as batch:
            yield batch["sha256"].tolist(), batch["vectors"]


def _assemble(out: Path, key: str, index: pd.DataFrame, encoder: Encoder) -> Path:
    """Write all vectors as one array in index order, with one batch in memory at a time."""
    rows = index.groupby("sha256").indices
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
