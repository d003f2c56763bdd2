"""Tiny models with random weights, one per family: the real classes and processors, made from the table below, nothing downloaded.

In the table a text that begins with "=" is a size of the text model (`sizes`), and a token stands for its id wherever a key asks for one
(`..._token_id`, `..._token_index`, `..._token_ids`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

CHAT = (
    "{% for m in messages %}<|turn|>{{ m['role'] }}\n{% for p in m['content'] %}{% if p['type'] == 'image' %}IMAGE"
    "{% else %}{{ p['text'] }}{% endif %}{% endfor %}\n{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)
WORDS = "the image shows a lesion on left right yes no A B C D which side of chest brain is this Question Answer"

Options = dict[str, Any]
Piece = tuple[str, Options]
"""A class of transformers by name, and what it is made with."""


def sizes(width: int, layers: int) -> Options:
    head = 8 if width == 32 else 64
    heads = width // head
    return {
        "=width": width,
        "=inner": 2 * width,
        "=layers": layers,
        "=head": head,
        "=heads": heads,
        "=pairs": heads // 2,
    }


def square(side: int) -> Options:
    return {"height": side, "width": side}


VISION = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
PATCHES = {**VISION, "image_size": 28, "patch_size": 14}
CLIP = {**PATCHES, "model_type": "clip_vision_model"}
SIGLIP = {**PATCHES, "model_type": "siglip_vision_model"}
QWEN_VISION = {
    **{"depth": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "out_hidden_size": "=width"},
    "patch_size": 14,
}
QWEN3_VISION = {**QWEN_VISION, "num_position_embeddings": 16}
TEXT = {
    "hidden_size": "=width",
    "intermediate_size": "=inner",
    "num_hidden_layers": "=layers",
    "num_attention_heads": "=heads",
    "num_key_value_heads": "=pairs",
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
SLIDING, FULL = "sliding_attention", "full_attention"
OPT = {
    **{"model_type": "opt", "hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"word_embed_proj_dim": 32, "max_position_embeddings": 512},
}
LINEAR = {
    **{"head_dim": "=head", "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2},
    **{"linear_num_value_heads": 4, "layer_types": ["linear_attention", FULL]},
}
BERT = {
    **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"max_position_embeddings": 512, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    **{"encoder_hidden_size": 16, "projection_dim": 16, "sep_token_id": 2},
}
T5 = {
    **{"model_type": "t5", "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_decoder_layers": 2},
    **{"num_heads": 4, "decoder_start_token_id": 0},
}
BART = {
    **{"model_type": "bart", "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4},
    **{"decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 512},
    **{"decoder_start_token_id": 2, "is_encoder_decoder": True},
}
CLIP_IMAGES = ("CLIPImageProcessor", {"size": square(28), "crop_size": square(28), "do_center_crop": False})
BLIP_IMAGES = ("BlipImageProcessor", {"size": square(28)})
LLAVA_PROCESSOR = {"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
QUERIES = {"qformer_config": {**VISION, "encoder_hidden_size": 16, "vocab_size": 20}, "num_query_tokens": 3}
QWEN_PIXELS = {"patch_size": 14, "merge_size": 2, "min_pixels": 28 * 28, "max_pixels": 56 * 56}
QWEN_MARKS = {
    f"{part}_token_id": f"<|{mark}|>"
    for part, mark in [("image", "image_pad"), ("video", "video_pad")]
    + [(f"vision_{end}", f"vision_{end}") for end in ("start", "end")]
}
SMOL = {"size": {"longest_edge": 56}, "max_image_size": {"longest_edge": 28}}
COHERE_MARKS = ("<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>", "<|IMG_LINE_BREAK|>")


def text(kind: str | None = None, **more: Any) -> Options:
    """A decoder's config; `kind`: its model type, where the family leaves the choice."""
    return {**TEXT, **({"model_type": kind} if kind else {}), **more}


def rope(*, sections: list[int] | None = None, **more: Any) -> Options:
    return {
        "rope_parameters": {"rope_type": "default", "mrope_section": sections or [2, 1, 1], "rope_theta": 1e4, **more}
    }


@dataclass(frozen=True, slots=True)
class Family:
    """`name`: what its classes begin with. `tokens`, `named`: special tokens, the latter with their names in the tokenizer. `pieces`: of
    the processor, beside the tokenizer. `image`: what its chat template writes for an image (None: it has no template). `text`: of its
    text model; at the top of the config where it is `flat`. `later`: set on the processor once it is made."""

    name: str
    images: Piece
    text: Options = field(default_factory=dict)
    vision: Options | None = None
    config: Options = field(default_factory=dict)
    tokens: tuple[str, ...] = ()
    named: dict[str, str] = field(default_factory=dict)
    processor: Options = field(default_factory=dict)
    pieces: dict[str, Piece] = field(default_factory=dict)
    image: str | None = None
    bos: bool = False
    flat: bool = False
    model: str | None = None
    processor_name: str | None = None
    bert: bool = False
    """Its tokenizer puts a text between a first and a last token, as BERT's does."""
    image_tokens: int | None = None
    """Tokens of an image, where they are an attribute of the image processor."""


def qwen(name: str, vision: Options, rope_options: Options, **more: Any) -> Family:
    newer = name.startswith("Qwen3")
    videos = {"patch_size": 14, "merge_size": 2} if newer else QWEN_PIXELS
    return Family(
        name,
        ("Qwen2VLImageProcessor", QWEN_PIXELS),
        text(**more, **rope(**rope_options)),
        vision,
        QWEN_MARKS,
        tokens=("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"),
        pieces={"video_processor": ("Qwen3VLVideoProcessor" if newer else "Qwen2VLVideoProcessor", videos)},
        image="<|vision_start|><|image_pad|><|vision_end|>",
        processor_name="Qwen3VLProcessor" if newer else f"{name}Processor",
    )


def glm(name: str, pieces: str, **more: Any) -> Family:
    """`pieces`: what the classes of its processor begin with."""
    sizes = {"patch_size": 14, "merge_size": 2}
    return Family(
        name,
        (f"{pieces}ImageProcessor", {**sizes, "size": {"shortest_edge": 28 * 28, "longest_edge": 56 * 56 * 2}}),
        text(**more, **rope(partial_rotary_factor=1.0)),
        {**QWEN_VISION, "image_size": 56},
        {
            **{"image_token_id": "<|image|>", "video_token_id": "<|video|>"},
            **{"image_start_token_id": "<|begin_of_image|>", "image_end_token_id": "<|end_of_image|>"},
            **{"video_start_token_id": "<|begin_of_video|>", "video_end_token_id": "<|end_of_video|>"},
        },
        tokens=tuple(f"<|{name}|>" for name in GLM_MARKS),
        pieces={"video_processor": (f"{pieces}VideoProcessor", sizes)},
        image="<|begin_of_image|><|image|><|end_of_image|>",
        processor_name=f"{pieces}Processor",
    )


def llava(name: str, **config: Any) -> Family:
    return Family(
        name,
        CLIP_IMAGES,
        text("llama"),
        CLIP,
        {"image_token_index": "<image>", **config},
        tokens=("<image>",),
        processor=LLAVA_PROCESSOR,
        image="<image>\n",
        processor_name="LlavaProcessor",
    )


def blip(name: str, language: Options) -> Family:
    return Family(
        name,
        BLIP_IMAGES,
        language,
        PATCHES,
        {**QUERIES, "image_token_index": "<image>"},
        tokens=("<image>",),
        processor={"num_query_tokens": 3},
    )


INTERLEAVED = {"mrope_interleaved": True, "partial_rotary_factor": 1.0}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
GRID = [[28, 28], [28, 56], [56, 28]]
TILES = [[28, 56], [56, 28], [56, 56]]
GLM_MARKS = ("begin_of_image", "end_of_image", "begin_of_video", "end_of_video", "image", "video")
OVIS_MARKS = tuple(f"<IMG_{name}>" for name in ("START", "END", "GRID", "COL", "ROW"))
LLAMA4_MARKS = ("image", "image_start", "image_end", "patch", "tile_x_separator", "tile_y_separator")
JANUS_VQ = {
    **{"embed_dim": 8, "num_embeddings": 8, "latent_channels": 8, "base_channels": 32, "channel_multiplier": [1, 1]},
    **{"num_res_blocks": 1, "num_patches": 2, "projection_dim": "=width", "image_token_embed_dim": "=width"},
}

FAMILIES = {
    "aya_vision": Family(
        "AyaVision",
        ("GotOcr2ImageProcessor", {"size": square(28), "crop_to_patches": True, "max_patches": 2}),
        text("cohere2", sliding_window=64, layer_types=[FULL]),
        {**SIGLIP, "vision_use_head": False},
        {"image_token_index": "<|IMG_PATCH|>", "downsample_factor": 1},
        tokens=("<image>", *COHERE_MARKS, "TILE", "TILE_GLOBAL"),
        processor={"patch_size": 14, "img_size": 28, "downsample_factor": 1},
        image="<image>",
    ),
    "blip": Family("Blip", BLIP_IMAGES, BERT, {**PATCHES, "projection_dim": 16}, {"projection_dim": 16}, bert=True),
    "blip2": blip("Blip2", OPT),
    "blip2_t5": blip("Blip2", T5),
    "chameleon": Family(
        "Chameleon",
        ("ChameleonImageProcessor", {"size": {"shortest_edge": 32}, "crop_size": square(32)}),
        text(),
        config={
            "vq_config": {
                **{"embed_dim": 8, "num_embeddings": 8, "latent_channels": 8, "resolution": 32, "base_channels": 32},
                **{"channel_multiplier": [1, 1, 1, 1, 1], "num_res_blocks": 1},
            },
        },
        tokens=(*(f"IMGIMG{a}Z" for a in "ABCDEFGH"), "<image>", "<racm3:break>", "<eoss>", "<reserved08706>"),
        processor={"image_seq_length": 4},
        image="<image>",
        flat=True,
    ),
    "cohere2_vision": Family(
        "Cohere2Vision",
        (
            "Cohere2VisionImageProcessor",
            {"size": square(28), "patch_size": 1, "downsample_factor": 2, "max_patches": 2},
        ),
        text("cohere2", sliding_window=64, layer_types=[SLIDING, FULL]),
        {**SIGLIP, "vision_use_head": False},
        {"image_token_id": "<|IMG_PATCH|>", "alignment_intermediate_size": 64},
        named=dict(zip(("boi_token", "eoi_token", "image_token", "img_line_break_token"), COHERE_MARKS, strict=True)),
        image="<|IMG_PATCH|>",
    ),
    "deepseek_vl": Family(
        "DeepseekVL",
        ("DeepseekVLImageProcessor", {"size": square(28), "min_size": 14}),
        text("llama"),
        {**SIGLIP, "vision_use_head": False},
        {"image_token_id": "<image_placeholder>"},
        named={"image_token": "<image_placeholder>"},
        processor={"num_image_tokens": 4},
        image="<image_placeholder>",
    ),
    "exaone4_5": Family(
        "Exaone4_5_",
        ("Qwen2VLImageProcessor", QWEN_PIXELS),
        text("exaone4", head_dim="=head", sliding_window=None, layer_types=[FULL]),
        {**QWEN_VISION, "num_key_value_heads": 1, "window_size": 28, "fullatt_block_indexes": [1]},
        {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"},
        tokens=("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"),
        pieces={"video_processor": ("Qwen2VLVideoProcessor", QWEN_PIXELS)},
        image="<|vision_start|><|image_pad|><|vision_end|>",
    ),
    "florence2": Family(
        "Florence2",
        CLIP_IMAGES,
        BART,
        {
            **{"depths": (1, 1), "patch_size": (7, 3), "patch_stride": (4, 2), "patch_padding": (3, 1)},
            **{"patch_prenorm": (False, True), "embed_dim": (8, 16), "num_heads": (2, 4), "num_groups": (2, 4)},
            **{"window_size": 4, "drop_path_rate": 0.0, "projection_dim": 32},
        },
        {"image_token_id": "<image>"},
        named={"image_token": "<image>"},
        image_tokens=17,
    ),
    "gemma3": Family(
        "Gemma3",
        ("Gemma3ImageProcessor", {"size": square(28)}),
        text(head_dim="=head", sliding_window=16, layer_types=[SLIDING, FULL]),
        SIGLIP,
        {
            "image_token_index": "<image_soft_token>",
            "boi_token_index": "<start_of_image>",
            "eoi_token_index": "<end_of_image>",
            "mm_tokens_per_image": 4,
        },
        named={"image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"},
        processor={"image_seq_length": 4},
        image="<start_of_image>",
        bos=True,
    ),
    "gemma4": Family(
        "Gemma4",
        ("Gemma4ImageProcessor", {"patch_size": 8, "max_soft_tokens": 70, "pooling_kernel_size": 2}),
        text(
            head_dim="=head",
            global_head_dim="=head",
            sliding_window=64,
            layer_types=[SLIDING, FULL],
            hidden_size_per_layer_input=0,
            num_kv_shared_layers=0,
        ),
        {
            **{**VISION, "num_key_value_heads": 2, "head_dim": 8, "patch_size": 8, "pooling_kernel_size": 2},
            "position_embedding_size": 64,
        },
        {
            "audio_config": None,
            "image_token_id": "<|image|>",
            "boi_token_id": "<|image>",
            "eoi_token_id": "<image|>",
        },
        named={
            **{"image_token": "<|image|>", "boi_token": "<|image>", "eoi_token": "<image|>"},
            **{"audio_token": "<|audio|>", "boa_token": "<|audio>", "eoa_token": "<audio|>"},
            "video_token": "<|video|>",
        },
        processor={"image_seq_length": 70},
        pieces={
            "feature_extractor": ("Gemma4AudioFeatureExtractor", {}),
            "video_processor": ("Gemma4VideoProcessor", {}),
        },
        image="<|image|>",
        bos=True,
    ),
    "git": Family(
        "Git",
        CLIP_IMAGES,
        {
            **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
            **{"max_position_embeddings": 512, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        },
        PATCHES,
        flat=True,
        model="GitForCausalLM",
    ),
    "glm46v": glm("Glm46V", "Glm46V"),
    "glm4v": glm("Glm4v", "Glm4v"),
    "glm4v_moe": glm(
        "Glm4vMoe",
        "Glm4v",
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        n_shared_experts=1,
        first_k_dense_replace=1,
        head_dim="=head",
    ),
    "got_ocr2": Family(
        "GotOcr2",
        ("GotOcr2ImageProcessor", {"size": square(256)}),
        text("qwen2"),
        {
            **{"hidden_size": 16, "output_channels": 8, "num_hidden_layers": 1, "num_attention_heads": 2},
            **{"image_size": 256, "patch_size": 4, "mlp_dim": 32, "global_attn_indexes": [], "window_size": 8},
        },
        {"image_token_index": "<imgpad>"},
        tokens=("<imgpad>", "<img>", "</img>", "<|im_start|>", "<|im_end|>"),
    ),
    "idefics2": Family(
        "Idefics2",
        (
            "Idefics2ImageProcessor",
            {"size": {"shortest_edge": 14, "longest_edge": 28}, "do_image_splitting": False},
        ),
        text("mistral"),
        PATCHES,
        {
            "perceiver_config": {
                **{"hidden_size": "=width", "resampler_n_latents": 3, "resampler_depth": 1, "resampler_n_heads": 4},
                **{"resampler_head_dim": 8, "num_key_value_heads": 2},
            },
            "image_token_id": "<image>",
        },
        tokens=("<fake_token_around_image>", "<image>", "<end_of_utterance>"),
        processor={"image_seq_len": 3},
        image="<image>",
    ),
    "idefics3": Family(
        "Idefics3",
        ("Idefics3ImageProcessor", {**SMOL, "do_image_splitting": True}),
        text("llama"),
        PATCHES,
        {"image_token_id": "<image>", "scale_factor": 2, "pad_token_id": 0},
        tokens=("<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>"),
        processor={"image_seq_len": 1},
        image="<image>",
    ),
    "instructblip": blip("InstructBlip", OPT),
    "instructblip_llama": blip("InstructBlip", text("llama")),
    "instructblip_t5": blip("InstructBlip", T5),
    "internvl": Family(
        "InternVL",
        ("GotOcr2ImageProcessor", {"size": square(28), "crop_to_patches": True, "max_patches": 2}),
        text("qwen2"),
        {**VISION, "image_size": [28, 28], "patch_size": [14, 14]},
        {"image_token_id": "<IMG_CONTEXT>", "image_seq_length": 1, "downsample_ratio": 0.5},
        named={
            **{"start_image_token": "<img>", "end_image_token": "</img>"},
            **{"context_image_token": "<IMG_CONTEXT>", "video_token": "<video>"},
        },
        processor={"image_seq_length": 1},
        pieces={"video_processor": ("InternVLVideoProcessor", {"size": square(28)})},
        image="<IMG_CONTEXT>\n",
    ),
    "janus": Family(
        "Janus",
        ("JanusImageProcessor", {"size": square(28), "min_size": 14}),
        text("llama"),
        {**PATCHES, "projection_dim": "=width", "num_image_tokens": 4},
        {"vq_config": JANUS_VQ, "image_token_id": "<image_placeholder>"},
        named={
            **{"image_token": "<image_placeholder>", "boi_token": "<begin_of_image>"},
            "eoi_token": "<end_of_image>",
        },
        processor={"num_image_tokens": 4},
        image="<image_placeholder>",
    ),
    "kosmos2": Family(
        "Kosmos2",
        CLIP_IMAGES,
        {
            **{"embed_dim": 32, "layers": 2, "ffn_dim": 64, "attention_heads": 4, "max_position_embeddings": 512},
            **{"dropout": 0.0, "attention_dropout": 0.0},
        },
        PATCHES,
        {"latent_query_num": 64},
        processor={"num_patch_index_tokens": 4},
    ),
    "lfm2_vl": Family(
        "Lfm2Vl",
        (
            "Lfm2VlImageProcessor",
            {
                **{"tile_size": 32, "encoder_patch_size": 8, "downsample_factor": 2, "min_image_tokens": 1},
                **{"max_image_tokens": 8, "max_num_patches": 32, "do_image_splitting": False},
            },
        ),
        text("lfm2", layer_types=["conv", FULL], block_ff_dim=64, block_auto_adjust_ff_dim=False),
        {**VISION, "model_type": "siglip2_vision_model", "patch_size": 8, "num_patches": 16, "vision_use_head": False},
        {"image_token_id": "<image>", "projector_hidden_size": 32},
        tokens=("<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>", "<|img_row_1_col_1|>"),
        image="<image>",
    ),
    "lighton_ocr": Family(
        "LightOnOcr",
        ("PixtralImageProcessor", {"size": {"longest_edge": 56}, "patch_size": square(14)}),
        text("qwen3", head_dim="=head"),
        {**VISION, "model_type": "pixtral", "image_size": 56, "patch_size": 14, "head_dim": 8},
        {"image_token_id": "[IMG]", "spatial_merge_size": 2},
        named={"image_token": "[IMG]", "image_break_token": "[IMG_BREAK]", "image_end_token": "[IMG_END]"},
        processor={"patch_size": 14, "spatial_merge_size": 2},
        image="[IMG]",
    ),
    "llama4": Family(
        "Llama4",
        ("Llama4ImageProcessor", {"size": square(28), "max_patches": 2}),
        text(
            intermediate_size_mlp=64,
            head_dim="=head",
            num_local_experts=2,
            attention_chunk_size=64,
            layer_types=["chunked_attention", FULL],
        ),
        {
            **{**PATCHES, "intermediate_size": 64, "vision_output_dim": 32, "projector_input_dim": 32},
            "projector_output_dim": 32,
        },
        {
            **{"image_token_index": "<|patch|>", "boi_token_index": "<|image_start|>"},
            "eoi_token_index": "<|image_end|>",
        },
        tokens=tuple(f"<|{name}|>" for name in LLAMA4_MARKS),
        processor={"patch_size": 14, "pixel_shuffle_ratio": 0.5},
        image="<|image|>",
    ),
    "llava": llava("Llava"),
    "llava_next": Family(
        "LlavaNext",
        (
            "LlavaNextImageProcessor",
            {"size": {"shortest_edge": 28}, "crop_size": square(28), "image_grid_pinpoints": TILES},
        ),
        text("llama"),
        CLIP,
        {"image_token_index": "<image>", "image_grid_pinpoints": TILES},
        tokens=("<image>",),
        processor=LLAVA_PROCESSOR,
        image="<image>\n",
    ),
    "llava_onevision": Family(
        "LlavaOnevision",
        ("LlavaOnevisionImageProcessor", {"size": square(28), "image_grid_pinpoints": GRID}),
        text("qwen2"),
        SIGLIP,
        {
            **{"image_token_index": "<image>", "video_token_index": "<video>", "image_grid_pinpoints": GRID},
            **{"vision_feature_select_strategy": "full", "vision_feature_layer": -1},
        },
        tokens=("<image>", "<video>"),
        processor={"num_image_tokens": 4, "vision_feature_select_strategy": "full"},
        pieces={"video_processor": ("LlavaOnevisionVideoProcessor", {"size": square(28)})},
        image="<image>\n",
    ),
    "mistral3": Family(
        "Mistral3",
        ("PixtralImageProcessor", {"size": {"longest_edge": 56}, "patch_size": square(14)}),
        text("mistral", head_dim="=head", sliding_window=None),
        {**VISION, "model_type": "pixtral", "image_size": 56, "patch_size": 14, "head_dim": 8},
        {"image_token_index": "[IMG]", "spatial_merge_size": 2, "vision_feature_layer": -1},
        tokens=("[IMG]", "[IMG_BREAK]", "[IMG_END]"),
        processor={"patch_size": 14, "spatial_merge_size": 2},
        image="[IMG]",
        processor_name="PixtralProcessor",
    ),
    "mllama": Family(
        "Mllama",
        ("MllamaImageProcessor", {"size": square(28), "max_image_tiles": 2}),
        {
            **{name: value for name, value in TEXT.items() if name != "tie_word_embeddings"},
            **{"num_hidden_layers": 3, "cross_attention_layers": [1]},
        },
        {
            **{"hidden_size": 16, "num_hidden_layers": 2, "num_global_layers": 1, "attention_heads": 2},
            **{"intermediate_size": 32, "vision_output_dim": 32, "image_size": 28, "patch_size": 14},
            **{"max_num_tiles": 2, "intermediate_layers_indices": [0]},
            "supported_aspect_ratios": [[1, 1], [1, 2], [2, 1]],
        },
        {"image_token_index": "<|image|>"},
        tokens=("<|image|>", "<|python_tag|>"),
        image="<|image|>",
        bos=True,
    ),
    "ovis2": Family(
        "Ovis2",
        ("Ovis2ImageProcessor", {"size": square(28), "crop_to_patches": False}),
        text("qwen2"),
        {**PATCHES, "vocab_size": 24, "num_visual_indicator_tokens": 5, "hidden_stride": 1},
        {
            "image_token_id": "<IMG_ATOM>",
            "visual_indicator_token_ids": OVIS_MARKS,
            "vocab_size": "=vocabulary",
            "hidden_size": "=width",
        },
        tokens=("<image>", "<IMG_ATOM>", *OVIS_MARKS),
        processor={"image_seq_length": 4},
        image="<image>",
    ),
    "paligemma": Family(
        "PaliGemma",
        ("SiglipImageProcessor", {"size": square(28)}),
        text("gemma", head_dim="=head"),
        {**SIGLIP, "projection_dim": "=width"},
        {"image_token_index": "<image>", "projection_dim": "=width", "hidden_size": "=width"},
        tokens=("<image>",),
        image_tokens=4,
    ),
    "perception_lm": Family(
        "PerceptionLM",
        ("PerceptionLMImageProcessor", {"tile_size": 28, "max_num_tiles": 2, "vision_input_type": "vanilla"}),
        text("llama"),
        {
            "architecture": "vit_pe_core_large_patch14_336",
            "model_args": {
                **{"embed_dim": 16, "img_size": [28, 28], "depth": 2, "num_heads": 2, "global_pool": ""},
                **{"use_post_transformer_norm": False, "init_values": 0.1, "ref_feat_shape": [2, 2]},
            },
        },
        {"vision_use_cls_token": True, "image_token_id": "<|image|>", "video_token_id": "<|video|>"},
        named={"image_token": "<|image|>", "video_token": "<|video|>"},
        processor={"patch_size": 14, "pooling_ratio": 1},
        pieces={"video_processor": ("PerceptionLMVideoProcessor", {"size": square(28)})},
        image="<|image|>",
    ),
    "qwen2_5_vl": qwen("Qwen2_5_VL", {**QWEN_VISION, "window_size": 28, "fullatt_block_indexes": [1]}, {}),
    "qwen2_vl": qwen(
        "Qwen2VL",
        {"depth": 2, "embed_dim": 16, "hidden_size": "=width", "num_heads": 2, "mlp_ratio": 2, "patch_size": 14},
        {},
    ),
    "qwen3_5": qwen(
        "Qwen3_5",
        QWEN3_VISION,
        INTERLEAVED,
        **LINEAR,
    ),
    "qwen3_5_moe": qwen(
        "Qwen3_5Moe",
        QWEN3_VISION,
        INTERLEAVED,
        **LINEAR,
        **EXPERTS,
        shared_expert_intermediate_size=16,
    ),
    "qwen3_vl": qwen("Qwen3VL", {**QWEN3_VISION, "deepstack_visual_indexes": [0]}, {"mrope_interleaved": True}),
    "qwen3_vl_moe": qwen(
        "Qwen3VLMoe",
        {**QWEN3_VISION, "deepstack_visual_indexes": [0]},
        {"mrope_interleaved": True},
        **EXPERTS,
    ),
    "smolvlm": Family(
        "SmolVLM",
        ("SmolVLMImageProcessor", {**SMOL, "do_image_splitting": True}),
        text("llama"),
        PATCHES,
        {"image_token_id": "<image>", "scale_factor": 2, "pad_token_id": 0},
        tokens=("<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>"),
        processor={"image_seq_len": 1},
        pieces={
            "video_processor": (
                "SmolVLMVideoProcessor",
                {"size": {"longest_edge": 28}, "max_image_size": {"longest_edge": 28}},
            )
        },
        image="<image>",
    ),
    "vipllava": llava("VipLlava", vision_feature_layers=[-1, -2]),
}

VIDEO = {"tokens": ("<image>", "<video>"), "config": {"image_token_index": "<image>", "video_token_index": "<video>"}}
SHORT = {"size": {"shortest_edge": 28}, "crop_size": square(28)}
SAM = {
    **{"model_type": "sam_vision_model", "hidden_size": 16, "output_channels": 8, "num_hidden_layers": 1},
    **{"num_attention_heads": 2, "image_size": 56, "patch_size": 14, "mlp_dim": 32, "global_attn_indexes": [0]},
    **{"window_size": 2, "num_pos_feats": 4},
}

FAMILIES |= {
    "aria": Family(
        "Aria",
        ("AriaImageProcessor", {"max_image_size": 490, "min_image_size": 336}),
        text("aria_text", moe_num_experts=4, moe_topk=2, moe_num_shared_experts=1),
        {**VISION, "model_type": "idefics3_vision", "image_size": 490, "patch_size": 35},
        {"image_token_index": "<image>", "projector_patch_to_query_dict": {"196": 4, "784": 4}},
        named={"image_token": "<image>"},
        processor={"size_conversion": {490: 4, 980: 4}},
        image="<image>",
    ),
    "deepseek_vl_hybrid": replace(
        FAMILIES["deepseek_vl"],
        name="DeepseekVLHybrid",
        images=(
            "DeepseekVLHybridImageProcessor",
            {"size": square(28), "min_size": 14, "high_res_size": square(56)},
        ),
        config={**FAMILIES["deepseek_vl"].config, "high_res_vision_config": SAM},
    ),
    "fast_vlm": replace(
        FAMILIES["llava"],
        name="FastVlm",
        text=text("qwen2"),
        vision=None,
        processor={"patch_size": 28, "vision_feature_select_strategy": "full", "num_additional_image_tokens": 0},
    ),
    "gemma4_unified": replace(
        FAMILIES["gemma4"],
        name="Gemma4Unified",
        images=("Gemma4UnifiedImageProcessor", FAMILIES["gemma4"].images[1]),
        vision={
            **{"patch_size": 8, "pooling_kernel_size": 2, "mm_embed_dim": "=width", "mm_posemb_size": 64},
            "output_proj_dims": "=width",
        },
    ),
    "glm_ocr": glm("GlmOcr", "Glm46V", head_dim="=head"),
    "lfm3_vl": replace(
        FAMILIES["qwen3_vl"],
        name="Lfm3Vl",
        text=FAMILIES["lfm2_vl"].text,
        vision=QWEN3_VISION,
        processor_name="Lfm3VlProcessor",
    ),
    "llava_next_video": replace(
        FAMILIES["llava_next"],
        name="LlavaNextVideo",
        tokens=VIDEO["tokens"],
        config={**VIDEO["config"], "image_grid_pinpoints": TILES},
        pieces={"video_processor": ("LlavaNextVideoVideoProcessor", {"size": square(28)})},
    ),
    "minicpmv4_6": Family(
        "MiniCPMV4_6",
        ("MiniCPMV4_6ImageProcessor", {}),
        text("llama"),
        {**VISION, "image_size": 56, "patch_size": 14, "insert_layer_id": 0},
        {"insert_layer_id": 0, "image_token_id": "<image>"},
        named={"image_token": "<image>", "video_token": "<video>"}
        | {
            f"{part}_{end}_token": f"<{part}_{end}>"
            for part in ("image", "slice", "image_id")
            for end in ("start", "end")
        },
        pieces={"video_processor": ("MiniCPMV4_6VideoProcessor", {})},
        image="<image>\n",
    ),
    "paddleocr_vl": replace(
        qwen("PaddleOCRVL", {**VISION, "image_size": 56, "patch_size": 14}, {}, head_dim="=head"),
        images=("PaddleOCRVLImageProcessor", QWEN_PIXELS),
        tokens=(),
        named={"image_token": "<|IMAGE_PLACEHOLDER|>"},
        config={"image_token_id": "<|IMAGE_PLACEHOLDER|>"},
        pieces={},
        image="<|IMAGE_PLACEHOLDER|>",
    ),
    "qianfan_ocr": replace(
        FAMILIES["internvl"], name="QianfanOCR", text=text("qwen3", head_dim="=head"), pieces={}, image="<image>\n"
    ),
    "qwen4_exp": replace(
        qwen(
            "Qwen4Exp",
            QWEN3_VISION,
            INTERLEAVED,
            **LINEAR,
            **EXPERTS,
            shared_expert_intermediate_size=16,
            **{"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 8},
            **{"indexer_budget": 64, "indexer_compress_ratio": 4},
        ),
        processor_name="Qwen3VLProcessor",
        pieces=FAMILIES["qwen3_vl"].pieces,
    ),
    "video_llama_3": replace(
        FAMILIES["qwen2_vl"],
        name="VideoLlama3",
        images=("VideoLlama3ImageProcessor", QWEN_PIXELS),
        text=text("qwen2"),
        vision={**VISION, "patch_size": 14},
        config={name: QWEN_MARKS[name] for name in ("image_token_id", "video_token_id")},
        pieces={"video_processor": ("VideoLlama3VideoProcessor", QWEN_PIXELS)},
        image="<|image_pad|>",
        processor_name="VideoLlama3Processor",
    ),
    "video_llava": replace(
        FAMILIES["llava"],
        name="VideoLlava",
        images=("VideoLlavaImageProcessor", SHORT),
        **VIDEO,
        pieces={"video_processor": ("VideoLlavaVideoProcessor", SHORT)},
        processor_name="VideoLlavaProcessor",
    ),
}
"""Families that differ from one above in a few things."""


def tokenizer(*special: str, named: dict[str, str] | None = None) -> Any:
    """A byte-level tokenizer of 400 tokens with these special ones."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE(unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<pad>", "<s>", "</s>", "<unk>", *special, *(named or {}).values(), "<|turn|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator([WORDS], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=4096,
        **({"extra_special_tokens": named} if named else {}),
    )


def build(name: str, special: tuple[str, ...] = (), width: int = 32, layers: int = 2) -> tuple[Any, Any]:
    """(model, processor) of a family. `special`: more special tokens; `width`, `layers`: of its text model, where it is a decoder."""
    import transformers

    family = FAMILIES[name]
    tok = tokenizer(*family.tokens, *special, named=family.named)
    if family.bert:
        from tokenizers.processors import TemplateProcessing

        tok.backend_tokenizer.post_processor = TemplateProcessing(
            "<s> $0 </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
        )
    values = {**sizes(width, layers), "=vocabulary": len(tok)}

    def resolved(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {each: resolved(inner, each) for each, inner in value.items()}
        if key == "layer_types":
            return list(islice(cycle(value), layers))
        if key == "mrope_section":
            return [part * values["=head"] // 8 for part in value]
        if key.endswith(("token_id", "token_index", "token_ids")) and isinstance(value, str | tuple):
            return tok.convert_tokens_to_ids(list(value) if isinstance(value, tuple) else value)
        return values.get(value, value) if isinstance(value, str) else value

    def made(piece: Piece) -> Any:
        return getattr(transformers, piece[0])(**piece[1])

    pieces = {"image_processor": made(family.images), **{key: made(piece) for key, piece in family.pieces.items()}}
    if family.image_tokens is not None:
        pieces["image_processor"].image_seq_length = family.image_tokens
    if family.name == "InstructBlip":
        pieces["qformer_tokenizer"] = tokenizer(*special)
    if family.name == "Chameleon":
        tok.sep_token = "<reserved08706>"
    processor = getattr(transformers, family.processor_name or f"{family.name}Processor")(
        tokenizer=tok, **pieces, **family.processor
    )
    if family.image is not None:
        processor.chat_template = "{{ bos_token }}" * family.bos + CHAT.replace("IMAGE", family.image)
    words = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": len(tok)}
    language = {**resolved(family.text), **words}
    config: Options = language if family.flat else {"text_config": language}
    config |= resolved(family.config)
    if family.vision is not None:
        config["vision_config"] = resolved(family.vision)
    match family.name:
        case "Chameleon":
            config["vocabulary_map"] = dict(tok.get_vocab())
        case "InstructBlip":
            processor.image_token = tok.added_tokens_decoder[tok.convert_tokens_to_ids("<image>")]
            config["qformer_config"] |= {"vocab_size": len(pieces["qformer_tokenizer"])}
        case "Blip":
            language["bos_token_id"] = 5  # another one than the tokenizer puts first, as in BLIP's checkpoints
        case "Kosmos2":
            processor.num_image_tokens = 4
            language["vocab_size"] += 8
    model = family.model or f"{family.name}ForConditionalGeneration"
    return getattr(transformers, model)(getattr(transformers, f"{family.name}Config")(**config)), processor


def make(family: str, folder: Path, *special: str, width: int = 32, layers: int = 2) -> Path:
    """A model folder of that family, in float32, with weights wide enough that answers differ. See `build` for the rest."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model, processor = build(family, special, width, layers)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.ndim > 1 or name.endswith("_gate"):
                    parameter.normal_(0, 0.15)
    model.generation_config.update(max_new_tokens=5, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
