"""Small models with random weights for the tests of curation."""

import json

import pytest


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Save a DINOv2, a CLIP and a BiomedCLIP-like open_clip model.

    They have the real architectures, but few layers and random weights.
    """
    import torch
    from transformers import (
        BitImageProcessor,
        CLIPConfig,
        CLIPImageProcessor,
        CLIPModel,
        Dinov2Config,
        Dinov2Model,
    )

    # Fixed weights keep the vectors, and so the pairs found, the same in every run.
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models")
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    Dinov2Model(Dinov2Config(**small, image_size=28, patch_size=14)).save_pretrained(folder / "dinov2")
    BitImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 28, "width": 28}).save_pretrained(
        folder / "dinov2"
    )
    clip = CLIPConfig(
        text_config={**small, "vocab_size": 64, "max_position_embeddings": 16},
        vision_config={**small, "image_size": 32, "patch_size": 16},
        projection_dim=24,
    )
    CLIPModel(clip).save_pretrained(folder / "clip")
    CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(
        folder / "clip"
    )
    _open_clip_model(folder / "biomedclip")
    return folder


def _open_clip_model(folder):
    """Save a model built like BiomedCLIP: a timm vision transformer with a linear projection."""
    import open_clip
    import torch

    vision = {
        "timm_model_name": "test_vit", "timm_model_pretrained": False, "timm_pool": "", "timm_proj": "linear",
        "image_size": 160,
    }  # fmt: skip
    config = {
        "embed_dim": 24,
        "vision_cfg": vision,
        "text_cfg": {"context_length": 8, "vocab_size": 64, "width": 16, "heads": 2, "layers": 1},
    }
    folder.mkdir()
    model = open_clip.CLIP(**config)
    torch.save(model.state_dict(), folder / "open_clip_pytorch_model.bin")
    preprocess = {"mean": [0.48, 0.46, 0.41], "std": [0.27, 0.26, 0.28]}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": preprocess}))
