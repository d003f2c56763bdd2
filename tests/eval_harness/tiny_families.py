"""Tiny models with random weights, one per family, made from configs: the real classes and processors, nothing downloaded."""

from __future__ import annotations

from pathlib import Path

VISION = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
CHAT = (
    "{% for m in messages %}<|turn|>{{ m['role'] }}\n{% for p in m['content'] %}{% if p['type'] == 'image' %}IMAGE"
    "{% else %}{{ p['text'] }}{% endif %}{% endfor %}\n{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)
WORDS = "the image shows a lesion on left right yes no A B C D which side of chest brain is this Question Answer"


MORE_SPECIAL: list[str] = []
"""Special tokens that `make` adds to a family's own."""


def tokenizer(*special, named=None):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE(unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    extra = [*special, *(named or {}).values(), "<|turn|>", *MORE_SPECIAL]
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<pad>", "<s>", "</s>", "<unk>", *extra],
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


def ids(tok):
    return {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": len(tok)}


def square(side):
    return {"height": side, "width": side}


def llava_onevision():
    from transformers import (
        LlavaOnevisionConfig,
        LlavaOnevisionForConditionalGeneration,
        LlavaOnevisionImageProcessor,
        LlavaOnevisionProcessor,
        LlavaOnevisionVideoProcessor,
        Qwen2Config,
        SiglipVisionConfig,
    )

    tok = tokenizer("<image>", "<video>")
    processor = LlavaOnevisionProcessor(
        image_processor=LlavaOnevisionImageProcessor(
            size=square(28), image_grid_pinpoints=[[28, 28], [28, 56], [56, 28]]
        ),
        tokenizer=tok,
        video_processor=LlavaOnevisionVideoProcessor(size=square(28)),
        num_image_tokens=4,
        vision_feature_select_strategy="full",
        chat_template=CHAT.replace("IMAGE", "<image>\n"),
    )
    config = LlavaOnevisionConfig(
        vision_config=SiglipVisionConfig(**VISION, image_size=28, patch_size=14),
        text_config=Qwen2Config(**TEXT, **ids(tok)),
        image_token_index=tok.convert_tokens_to_ids("<image>"),
        video_token_index=tok.convert_tokens_to_ids("<video>"),
        image_grid_pinpoints=[[28, 28], [28, 56], [56, 28]],
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
    )
    return LlavaOnevisionForConditionalGeneration(config), processor


def idefics3():
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration, Idefics3ImageProcessor, Idefics3Processor

    tok = tokenizer("<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>")
    processor = Idefics3Processor(
        image_processor=Idefics3ImageProcessor(
            size={"longest_edge": 56}, max_image_size={"longest_edge": 28}, do_image_splitting=True
        ),
        tokenizer=tok,
        image_seq_len=1,
        chat_template=CHAT.replace("IMAGE", "<image>"),
    )
    config = Idefics3Config(
        vision_config={**VISION, "image_size": 28, "patch_size": 14},
        text_config={"model_type": "llama", **TEXT, **ids(tok)},
        image_token_id=tok.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=0,
    )
    return Idefics3ForConditionalGeneration(config), processor


def qwen2_vl():
    from transformers import (
        Qwen2VLConfig,
        Qwen2VLForConditionalGeneration,
        Qwen2VLImageProcessor,
        Qwen2VLProcessor,
        Qwen2VLVideoProcessor,
    )

    tok = tokenizer("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    sizes = {"patch_size": 14, "merge_size": 2, "min_pixels": 28 * 28, "max_pixels": 56 * 56}
    processor = Qwen2VLProcessor(
        image_processor=Qwen2VLImageProcessor(**sizes),
        tokenizer=tok,
        video_processor=Qwen2VLVideoProcessor(**sizes),
        chat_template=CHAT.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>"),
    )
    token = {
        name: tok.convert_tokens_to_ids(f"<|{name}|>")
        for name in ("image_pad", "video_pad", "vision_start", "vision_end")
    }
    config = Qwen2VLConfig(
        text_config={
            **TEXT,
            **ids(tok),
            "rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 1e4},
        },
        vision_config={
            "depth": 2,
            "embed_dim": 16,
            "hidden_size": 32,
            "num_heads": 2,
            "mlp_ratio": 2,
            "patch_size": 14,
        },
        image_token_id=token["image_pad"],
        video_token_id=token["video_pad"],
        vision_start_token_id=token["vision_start"],
        vision_end_token_id=token["vision_end"],
    )
    return Qwen2VLForConditionalGeneration(config), processor


def internvl():
    from transformers import (
        GotOcr2ImageProcessor,
        InternVLConfig,
        InternVLForConditionalGeneration,
        InternVLProcessor,
        InternVLVideoProcessor,
    )

    named = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    tok = tokenizer(named=named)
    processor = InternVLProcessor(
        image_processor=GotOcr2ImageProcessor(size=square(28), crop_to_patches=True, max_patches=2),
        tokenizer=tok,
        video_processor=InternVLVideoProcessor(size=square(28)),
        image_seq_length=1,
        chat_template=CHAT.replace("IMAGE", "<IMG_CONTEXT>\n"),
    )
    config = InternVLConfig(
        vision_config={**VISION, "image_size": [28, 28], "patch_size": [14, 14]},
        text_config={"model_type": "qwen2", **TEXT, **ids(tok)},
        image_token_id=tok.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=1,
        downsample_ratio=0.5,
    )
    return InternVLForConditionalGeneration(config), processor


def paligemma():
    from transformers import (
        PaliGemmaConfig,
        PaliGemmaForConditionalGeneration,
        PaliGemmaProcessor,
        SiglipImageProcessor,
    )

    tok = tokenizer("<image>")
    processor = PaliGemmaProcessor(image_processor=_siglip(SiglipImageProcessor, 4), tokenizer=tok)
    config = PaliGemmaConfig(
        vision_config={
            **VISION,
            "model_type": "siglip_vision_model",
            "image_size": 28,
            "patch_size": 14,
            "projection_dim": 32,
        },
        text_config={"model_type": "gemma", **TEXT, **ids(tok), "head_dim": 8},
        image_token_index=tok.convert_tokens_to_ids("<image>"),
        projection_dim=32,
        hidden_size=32,
    )
    return PaliGemmaForConditionalGeneration(config), processor


def _siglip(kind, length):
    processor = kind(size=square(28))
    processor.image_seq_length = length
    return processor


def gemma3():
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration, Gemma3ImageProcessor, Gemma3Processor

    named = {"image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"}
    tok = tokenizer(named=named)
    processor = Gemma3Processor(
        image_processor=Gemma3ImageProcessor(size=square(28)),
        tokenizer=tok,
        image_seq_length=4,
        chat_template="{{ bos_token }}" + CHAT.replace("IMAGE", "<start_of_image>"),
    )
    config = Gemma3Config(
        vision_config={**VISION, "model_type": "siglip_vision_model", "image_size": 28, "patch_size": 14},
        text_config={
            **TEXT,
            **ids(tok),
            "head_dim": 8,
            "sliding_window": 16,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        image_token_index=tok.convert_tokens_to_ids("<image_soft_token>"),
        boi_token_index=tok.convert_tokens_to_ids("<start_of_image>"),
        eoi_token_index=tok.convert_tokens_to_ids("<end_of_image>"),
        mm_tokens_per_image=4,
    )
    return Gemma3ForConditionalGeneration(config), processor


def blip2():
    from transformers import Blip2Config, Blip2ForConditionalGeneration, Blip2Processor, BlipImageProcessor

    tok = tokenizer("<image>")
    processor = Blip2Processor(image_processor=BlipImageProcessor(size=square(28)), tokenizer=tok, num_query_tokens=3)
    config = Blip2Config(
        vision_config={**VISION, "image_size": 28, "patch_size": 14},
        qformer_config={**VISION, "encoder_hidden_size": 16, "vocab_size": 20},
        text_config={
            "model_type": "opt",
            "hidden_size": 32,
            "ffn_dim": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "word_embed_proj_dim": 32,
            "max_position_embeddings": 512,
            **ids(tok),
        },
        num_query_tokens=3,
        image_token_index=tok.convert_tokens_to_ids("<image>"),
    )
    return Blip2ForConditionalGeneration(config), processor


FAMILIES = {f.__name__: f for f in (llava_onevision, idefics3, qwen2_vl, internvl, paligemma, gemma3, blip2)}


def make(family: str, folder: Path, *special: str) -> Path:
    """A model folder of that family, in float32, with weights wide enough that answers differ. `special`: more special tokens."""
    import torch

    from tests.eval_harness.more_tiny_families import MORE_FAMILIES

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        MORE_SPECIAL[:] = special
        try:
            model, processor = {**FAMILIES, **MORE_FAMILIES}[family]()
        finally:
            MORE_SPECIAL.clear()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.ndim > 1 or name.endswith("_gate"):
                    parameter.normal_(0, 0.15)
    model.generation_config.update(max_new_tokens=5, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
