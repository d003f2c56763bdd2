"""Image encoders: biomedclip, clip, dinov2, and any other model of open_clip or transformers.

The paper only names the encoders (MediConfusion, section 2.1). The other choices are ours: pooling
is `projected` for CLIP-like encoders (the vector that contrastive training compares) and `cls` for
DINOv2, preprocessing is that of each model's authors, and computation is in float32. The paper's
appendix F, which compares encoders, averages over patch tokens; `--pooling mean` does this.

This module imports torch; open_clip and transformers are imported only when an encoder is loaded.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from PIL import Image

from dataset_builders.errors import BadInput

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
            lambda batch: _vector(model.get_image_features(pixel_values=batch)),
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


def _vector(output: Any) -> torch.Tensor:
    """Return the projected vectors, which newer versions of transformers wrap in an object."""
    return output if isinstance(output, torch.Tensor) else output.pooler_output
