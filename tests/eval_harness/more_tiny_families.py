"""More families of tiny models (`tiny_families.py`): encoder-decoders, classes with their own `generate`, image tokens of many kinds."""

from tests.eval_harness.tiny_families import CHAT, TEXT, VISION, ids, square, tokenizer

CLIP = {**VISION, "image_size": 28, "patch_size": 14}
OPT = {
    "model_type": "opt",
    "hidden_size": 32,
    "ffn_dim": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "word_embed_proj_dim": 32,
    "max_position_embeddings": 512,
}
T5 = {
    "model_type": "t5",
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}


def index(tok, name):
    return tok.convert_tokens_to_ids(name)


def chat(image):
    return CHAT.replace("IMAGE", image)


def clip_processor():
    from transformers import CLIPImageProcessor

    return CLIPImageProcessor(size=square(28), crop_size=square(28), do_center_crop=False)


def llava():
    from transformers import LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor

    tok = tokenizer("<image>")
    processor = LlavaProcessor(
        image_processor=clip_processor(),
        tokenizer=tok,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=chat("<image>\n"),
    )
    config = LlavaConfig(
        vision_config={**CLIP, "model_type": "clip_vision_model"},
        text_config={"model_type": "llama", **TEXT, **ids(tok)},
        image_token_index=index(tok, "<image>"),
    )
    return LlavaForConditionalGeneration(config), processor


def vipllava():
    from transformers import LlavaProcessor, VipLlavaConfig, VipLlavaForConditionalGeneration

    tok = tokenizer("<image>")
    processor = LlavaProcessor(
        image_processor=clip_processor(),
        tokenizer=tok,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=chat("<image>\n"),
    )
    config = VipLlavaConfig(
        vision_config={**CLIP, "model_type": "clip_vision_model"},
        text_config={"model_type": "llama", **TEXT, **ids(tok)},
        image_token_index=index(tok, "<image>"),
        vision_feature_layers=[-1, -2],
    )
    return VipLlavaForConditionalGeneration(config), processor


def llava_next():
    from transformers import (
        LlavaNextConfig,
        LlavaNextForConditionalGeneration,
        LlavaNextImageProcessor,
        LlavaNextProcessor,
    )

    tok = tokenizer("<image>")
    points = [[28, 56], [56, 28], [56, 56]]
    processor = LlavaNextProcessor(
        image_processor=LlavaNextImageProcessor(
            size={"shortest_edge": 28}, crop_size=square(28), image_grid_pinpoints=points
        ),
        tokenizer=tok,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=chat("<image>\n"),
    )
    config = LlavaNextConfig(
        vision_config={**CLIP, "model_type": "clip_vision_model"},
        text_config={"model_type": "llama", **TEXT, **ids(tok)},
        image_token_index=index(tok, "<image>"),
        image_grid_pinpoints=points,
    )
    return LlavaNextForConditionalGeneration(config), processor


def blip2_t5():
    from transformers import Blip2Config, Blip2ForConditionalGeneration, Blip2Processor, BlipImageProcessor

    tok = tokenizer("<image>")
    processor = Blip2Processor(image_processor=BlipImageProcessor(size=square(28)), tokenizer=tok, num_query_tokens=3)
    config = Blip2Config(
        vision_config=CLIP,
        qformer_config={**VISION, "encoder_hidden_size": 16, "vocab_size": 20},
        text_config={**T5, **ids(tok)},
        num_query_tokens=3,
        image_token_index=index(tok, "<image>"),
    )
    return Blip2ForConditionalGeneration(config), processor


def _instructblip(text):
    from transformers import (
        BlipImageProcessor,
        InstructBlipConfig,
        InstructBlipForConditionalGeneration,
        InstructBlipProcessor,
    )

    tok, other = tokenizer("<image>"), tokenizer()
    processor = InstructBlipProcessor(
        image_processor=BlipImageProcessor(size=square(28)), tokenizer=tok, qformer_tokenizer=other, num_query_tokens=3
    )
    processor.image_token = tok.added_tokens_decoder[index(tok, "<image>")]
    config = InstructBlipConfig(
        vision_config=CLIP,
        qformer_config={**VISION, "encoder_hidden_size": 16, "vocab_size": len(other)},
        text_config={**text, **ids(tok)},
        num_query_tokens=3,
        image_token_index=index(tok, "<image>"),
    )
    return InstructBlipForConditionalGeneration(config), processor


def instructblip():
    return _instructblip(OPT)


def instructblip_llama():
    return _instructblip({"model_type": "llama", **TEXT})


def instructblip_t5():
    return _instructblip(T5)


def kosmos2():
    from transformers import Kosmos2Config, Kosmos2ForConditionalGeneration, Kosmos2Processor

    tok = tokenizer()
    processor = Kosmos2Processor(image_processor=clip_processor(), tokenizer=tok, num_patch_index_tokens=4)
    processor.num_image_tokens = 4
    config = Kosmos2Config(
        vision_config=CLIP,
        text_config={
            "embed_dim": 32,
            "layers": 2,
            "ffn_dim": 64,
            "attention_heads": 4,
            "max_position_embeddings": 512,
            "dropout": 0.0,
            "attention_dropout": 0.0,
            **ids(tok),
            "vocab_size": len(tok) + 8,
        },
        latent_query_num=64,
    )
    return Kosmos2ForConditionalGeneration(config), processor


def florence2():
    from transformers import Florence2Config, Florence2ForConditionalGeneration, Florence2Processor

    tok = tokenizer(named={"image_token": "<image>"})
    images = clip_processor()
    images.image_seq_length = 17
    processor = Florence2Processor(image_processor=images, tokenizer=tok)
    config = Florence2Config(
        vision_config={
            "depths": (1, 1),
            "patch_size": (7, 3),
            "patch_stride": (4, 2),
            "patch_padding": (3, 1),
            "patch_prenorm": (False, True),
            "embed_dim": (8, 16),
            "num_heads": (2, 4),
            "num_groups": (2, 4),
            "window_size": 4,
            "drop_path_rate": 0.0,
            "projection_dim": 32,
        },
        text_config={
            "model_type": "bart",
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "max_position_embeddings": 512,
            "decoder_start_token_id": 2,
            "is_encoder_decoder": True,
            **ids(tok),
        },
        image_token_id=index(tok, "<image>"),
    )
    return Florence2ForConditionalGeneration(config), processor


def idefics2():
    from transformers import Idefics2Config, Idefics2ForConditionalGeneration, Idefics2ImageProcessor, Idefics2Processor

    tok = tokenizer("<fake_token_around_image>", "<image>", "<end_of_utterance>")
    processor = Idefics2Processor(
        image_processor=Idefics2ImageProcessor(
            size={"shortest_edge": 14, "longest_edge": 28}, do_image_splitting=False
        ),
        tokenizer=tok,
        image_seq_len=3,
        chat_template=chat("<image>"),
    )
    config = Idefics2Config(
        vision_config={**CLIP},
        perceiver_config={
            "hidden_size": 32,
            "resampler_n_latents": 3,
            "resampler_depth": 1,
            "resampler_n_heads": 4,
            "resampler_head_dim": 8,
            "num_key_value_heads": 2,
        },
        text_config={"model_type": "mistral", **TEXT, **ids(tok)},
        image_token_id=index(tok, "<image>"),
    )
    return Idefics2ForConditionalGeneration(config), processor


def mllama():
    from transformers import MllamaConfig, MllamaForConditionalGeneration, MllamaImageProcessor, MllamaProcessor

    tok = tokenizer("<|image|>", "<|python_tag|>")
    processor = MllamaProcessor(
        image_processor=MllamaImageProcessor(size=square(28), max_image_tiles=2),
        tokenizer=tok,
        chat_template="{{ bos_token }}" + chat("<|image|>"),
    )
    config = MllamaConfig(
        vision_config={
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_global_layers": 1,
            "attention_heads": 2,
            "intermediate_size": 32,
            "vision_output_dim": 32,
            "image_size": 28,
            "patch_size": 14,
            "max_num_tiles": 2,
            "intermediate_layers_indices": [0],
            "supported_aspect_ratios": [[1, 1], [1, 2], [2, 1]],
        },
        text_config={
            **{name: value for name, value in TEXT.items() if name != "tie_word_embeddings"},
            "num_hidden_layers": 3,
            "cross_attention_layers": [1],
            **ids(tok),
            "vocab_size": index(tok, "<|image|>"),
        },
        image_token_index=index(tok, "<|image|>"),
    )
    config.text_config.vocab_size = len(tok)
    return MllamaForConditionalGeneration(config), processor


def chameleon():
    from transformers import (
        ChameleonConfig,
        ChameleonForConditionalGeneration,
        ChameleonImageProcessor,
        ChameleonProcessor,
    )

    tok = tokenizer(
        *(f"IMGIMG{letter}Z" for letter in "ABCDEFGH"), "<image>", "<racm3:break>", "<eoss>", "<reserved08706>"
    )
    tok.sep_token = "<reserved08706>"
    processor = ChameleonProcessor(
        image_processor=ChameleonImageProcessor(size={"shortest_edge": 32}, crop_size=square(32)),
        tokenizer=tok,
        image_seq_length=4,
    )
    processor.chat_template = chat("<image>")
    config = ChameleonConfig(
        **TEXT,
        **ids(tok),
        vocabulary_map=dict(tok.get_vocab()),
        vq_config={
            "embed_dim": 8,
            "num_embeddings": 8,
            "latent_channels": 8,
            "resolution": 32,
            "base_channels": 32,
            "channel_multiplier": [1, 1, 1, 1, 1],
            "num_res_blocks": 1,
        },
    )
    return ChameleonForConditionalGeneration(config), processor


def _qwen(name, vision, rope, text=None):
    import transformers
    from transformers import Qwen2VLImageProcessor, Qwen2VLVideoProcessor

    tok = tokenizer("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    sizes = {"patch_size": 14, "merge_size": 2, "min_pixels": 28 * 28, "max_pixels": 56 * 56}
    newer = name.startswith("Qwen3")
    videos = transformers.Qwen3VLVideoProcessor if newer else Qwen2VLVideoProcessor
    processor = getattr(transformers, "Qwen3VLProcessor" if newer else f"{name}Processor")(
        image_processor=Qwen2VLImageProcessor(**sizes),
        tokenizer=tok,
        video_processor=videos(patch_size=14, merge_size=2) if newer else videos(**sizes),
        chat_template=chat("<|vision_start|><|image_pad|><|vision_end|>"),
    )
    token = {
        f"{part}_token_id": index(tok, f"<|{mark}|>")
        for part, mark in (
            ("image", "image_pad"),
            ("video", "video_pad"),
            ("vision_start", "vision_start"),
            ("vision_end", "vision_end"),
        )
    }
    config = getattr(transformers, f"{name}Config")(
        text_config={
            **TEXT,
            **ids(tok),
            **(text or {}),
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, **rope},
        },
        vision_config=vision,
        **token,
    )
    return getattr(transformers, f"{name}ForConditionalGeneration")(config), processor


def qwen2_5_vl():
    vision = {
        "depth": 2,
        "hidden_size": 16,
        "num_heads": 2,
        "intermediate_size": 32,
        "out_hidden_size": 32,
        "patch_size": 14,
        "window_size": 28,
        "fullatt_block_indexes": [1],
    }
    return _qwen("Qwen2_5_VL", vision, {"mrope_section": [2, 1, 1]})


def qwen3_vl():
    vision = {
        "depth": 2,
        "hidden_size": 16,
        "num_heads": 2,
        "intermediate_size": 32,
        "out_hidden_size": 32,
        "patch_size": 14,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
    }
    return _qwen("Qwen3VL", vision, {"mrope_section": [2, 1, 1], "mrope_interleaved": True})


def mistral3():
    from transformers import Mistral3Config, Mistral3ForConditionalGeneration, PixtralImageProcessor, PixtralProcessor

    tok = tokenizer("[IMG]", "[IMG_BREAK]", "[IMG_END]")
    processor = PixtralProcessor(
        image_processor=PixtralImageProcessor(size={"longest_edge": 56}, patch_size=square(14)),
        tokenizer=tok,
        patch_size=14,
        spatial_merge_size=2,
        chat_template=chat("[IMG]"),
    )
    config = Mistral3Config(
        vision_config={**VISION, "model_type": "pixtral", "image_size": 56, "patch_size": 14, "head_dim": 8},
        text_config={"model_type": "mistral", **TEXT, **ids(tok), "head_dim": 8, "sliding_window": None},
        image_token_index=index(tok, "[IMG]"),
        spatial_merge_size=2,
        vision_feature_layer=-1,
    )
    return Mistral3ForConditionalGeneration(config), processor


def git():
    from transformers import GitConfig, GitForCausalLM, GitProcessor

    tok = tokenizer()
    processor = GitProcessor(image_processor=clip_processor(), tokenizer=tok)
    config = GitConfig(
        vision_config=CLIP,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=512,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **ids(tok),
    )
    return GitForCausalLM(config), processor


def got_ocr2():
    from transformers import GotOcr2Config, GotOcr2ForConditionalGeneration, GotOcr2ImageProcessor, GotOcr2Processor

    tok = tokenizer("<imgpad>", "<img>", "</img>", "<|im_start|>", "<|im_end|>")
    processor = GotOcr2Processor(image_processor=GotOcr2ImageProcessor(size=square(64)), tokenizer=tok)
    processor.chat_template = chat("<img><imgpad></img>")
    config = GotOcr2Config(
        vision_config={
            "hidden_size": 16,
            "output_channels": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 64,
            "patch_size": 16,
            "mlp_dim": 32,
            "global_attn_indexes": [0],
            "window_size": 2,
        },
        text_config={"model_type": "qwen2", **TEXT, **ids(tok)},
        image_token_index=index(tok, "<imgpad>"),
    )
    return GotOcr2ForConditionalGeneration(config), processor


def smolvlm():
    from transformers import (
        SmolVLMConfig,
        SmolVLMForConditionalGeneration,
        SmolVLMImageProcessor,
        SmolVLMProcessor,
        SmolVLMVideoProcessor,
    )

    tok = tokenizer("<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>")
    images = SmolVLMImageProcessor(
        size={"longest_edge": 56}, max_image_size={"longest_edge": 28}, do_image_splitting=True
    )
    processor = SmolVLMProcessor(
        image_processor=images,
        tokenizer=tok,
        video_processor=SmolVLMVideoProcessor(size={"longest_edge": 28}, max_image_size={"longest_edge": 28}),
        image_seq_len=1,
        chat_template=chat("<image>"),
    )
    config = SmolVLMConfig(
        vision_config=CLIP,
        text_config={"model_type": "llama", **TEXT, **ids(tok)},
        image_token_id=index(tok, "<image>"),
        scale_factor=2,
        pad_token_id=0,
    )
    return SmolVLMForConditionalGeneration(config), processor


def aya_vision():
    from transformers import (
        AyaVisionConfig,
        AyaVisionForConditionalGeneration,
        AyaVisionProcessor,
        GotOcr2ImageProcessor,
    )

    marks = ("<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>", "<|IMG_LINE_BREAK|>", "TILE", "TILE_GLOBAL")
    tok = tokenizer("<image>", *marks)
    processor = AyaVisionProcessor(
        image_processor=GotOcr2ImageProcessor(size=square(28), crop_to_patches=True, max_patches=2),
        tokenizer=tok,
        patch_size=14,
        img_size=28,
        downsample_factor=1,
        chat_template=chat("<image>"),
    )
    config = AyaVisionConfig(
        vision_config={**CLIP, "model_type": "siglip_vision_model", "vision_use_head": False},
        text_config={
            "model_type": "cohere2",
            **TEXT,
            **ids(tok),
            "sliding_window": 64,
            "layer_types": ["full_attention"] * 2,
        },
        image_token_index=index(tok, "<|IMG_PATCH|>"),
        downsample_factor=1,
    )
    return AyaVisionForConditionalGeneration(config), processor


def cohere2_vision():
    from transformers import (
        Cohere2VisionConfig,
        Cohere2VisionForConditionalGeneration,
        Cohere2VisionImageProcessor,
        Cohere2VisionProcessor,
    )

    named = {
        "boi_token": "<|START_OF_IMG|>",
        "eoi_token": "<|END_OF_IMG|>",
        "image_token": "<|IMG_PATCH|>",
        "img_line_break_token": "<|IMG_LINE_BREAK|>",
    }
    tok = tokenizer(named=named)
    processor = Cohere2VisionProcessor(
        image_processor=Cohere2VisionImageProcessor(size=square(28), patch_size=1, downsample_factor=2, max_patches=2),
        tokenizer=tok,
        chat_template=chat("<|IMG_PATCH|>"),
    )
    config = Cohere2VisionConfig(
        vision_config={**CLIP, "model_type": "siglip_vision_model", "vision_use_head": False},
        text_config={
            "model_type": "cohere2",
            **TEXT,
            **ids(tok),
            "sliding_window": 64,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        image_token_id=index(tok, "<|IMG_PATCH|>"),
        alignment_intermediate_size=64,
    )
    return Cohere2VisionForConditionalGeneration(config), processor


def glm4v():
    from transformers import (
        Glm4vConfig,
        Glm4vForConditionalGeneration,
        Glm4vImageProcessor,
        Glm4vProcessor,
        Glm4vVideoProcessor,
    )

    names = ("begin_of_image", "end_of_image", "begin_of_video", "end_of_video", "image", "video")
    tok = tokenizer(*(f"<|{name}|>" for name in names))
    sizes = {"patch_size": 14, "merge_size": 2}
    processor = Glm4vProcessor(
        image_processor=Glm4vImageProcessor(**sizes, size={"shortest_edge": 28 * 28, "longest_edge": 56 * 56 * 2}),
        tokenizer=tok,
        video_processor=Glm4vVideoProcessor(**sizes),
        chat_template=chat("<|begin_of_image|><|image|><|end_of_image|>"),
    )
    config = Glm4vConfig(
        vision_config={
            "depth": 2,
            "hidden_size": 16,
            "num_heads": 2,
            "image_size": 56,
            "patch_size": 14,
            "out_hidden_size": 32,
            "intermediate_size": 32,
        },
        text_config={
            **TEXT,
            **ids(tok),
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "mrope_section": [2, 1, 1],
                "partial_rotary_factor": 1.0,
            },
        },
        image_token_id=index(tok, "<|image|>"),
        video_token_id=index(tok, "<|video|>"),
        image_start_token_id=index(tok, "<|begin_of_image|>"),
        image_end_token_id=index(tok, "<|end_of_image|>"),
        video_start_token_id=index(tok, "<|begin_of_video|>"),
        video_end_token_id=index(tok, "<|end_of_video|>"),
    )
    return Glm4vForConditionalGeneration(config), processor


def gemma4():
    from transformers import Gemma4AudioFeatureExtractor as Audio
    from transformers import (
        Gemma4Config,
        Gemma4ForConditionalGeneration,
        Gemma4ImageProcessor,
        Gemma4Processor,
        Gemma4VideoProcessor,
    )

    named = {
        "image_token": "<|image|>",
        "boi_token": "<|image>",
        "eoi_token": "<image|>",
        "audio_token": "<|audio|>",
        "boa_token": "<|audio>",
        "eoa_token": "<audio|>",
        "video_token": "<|video|>",
    }
    tok = tokenizer(named=named)
    processor = Gemma4Processor(
        feature_extractor=Audio(),
        image_processor=Gemma4ImageProcessor(patch_size=8, max_soft_tokens=70, pooling_kernel_size=2),
        tokenizer=tok,
        video_processor=Gemma4VideoProcessor(),
        image_seq_length=70,
        chat_template="{{ bos_token }}" + chat("<|image|>"),
    )
    config = Gemma4Config(
        vision_config={
            **VISION,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "patch_size": 8,
            "pooling_kernel_size": 2,
            "position_embedding_size": 64,
        },
        text_config={
            **TEXT,
            **ids(tok),
            "head_dim": 8,
            "global_head_dim": 8,
            "sliding_window": 64,
            "layer_types": ["sliding_attention", "full_attention"],
            "hidden_size_per_layer_input": 0,
            "num_kv_shared_layers": 0,
        },
        audio_config=None,
        image_token_id=index(tok, "<|image|>"),
        boi_token_id=index(tok, "<|image>"),
        eoi_token_id=index(tok, "<image|>"),
    )
    return Gemma4ForConditionalGeneration(config), processor


def lfm2_vl():
    from transformers import Lfm2VlConfig, Lfm2VlForConditionalGeneration, Lfm2VlImageProcessor, Lfm2VlProcessor

    tok = tokenizer("<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>", "<|img_row_1_col_1|>")
    processor = Lfm2VlProcessor(
        image_processor=Lfm2VlImageProcessor(
            tile_size=32,
            encoder_patch_size=8,
            downsample_factor=2,
            min_image_tokens=1,
            max_image_tokens=8,
            max_num_patches=32,
            do_image_splitting=False,
        ),
        tokenizer=tok,
        chat_template=chat("<image>"),
    )
    config = Lfm2VlConfig(
        vision_config={
            **VISION,
            "model_type": "siglip2_vision_model",
            "patch_size": 8,
            "num_patches": 16,
            "vision_use_head": False,
        },
        text_config={
            "model_type": "lfm2",
            **TEXT,
            **ids(tok),
            "layer_types": ["conv", "full_attention"],
            "block_ff_dim": 64,
            "block_auto_adjust_ff_dim": False,
        },
        image_token_id=index(tok, "<image>"),
        projector_hidden_size=32,
    )
    return Lfm2VlForConditionalGeneration(config), processor


def ovis2():
    from transformers import Ovis2Config, Ovis2ForConditionalGeneration, Ovis2ImageProcessor, Ovis2Processor

    marks = [f"<IMG_{name}>" for name in ("START", "END", "GRID", "COL", "ROW")]
    tok = tokenizer("<image>", "<IMG_ATOM>", *marks)
    processor = Ovis2Processor(
        image_processor=Ovis2ImageProcessor(size=square(28), crop_to_patches=False),
        tokenizer=tok,
        chat_template=chat("<image>"),
        image_seq_length=4,
    )
    config = Ovis2Config(
        vision_config={
            **CLIP,
            "vocab_size": 24,
            "num_visual_indicator_tokens": 5,
            "hidden_stride": 1,
            "intermediate_size": 32,
        },
        text_config={"model_type": "qwen2", **TEXT, **ids(tok)},
        image_token_id=index(tok, "<IMG_ATOM>"),
        visual_indicator_token_ids=[index(tok, mark) for mark in marks],
        vocab_size=len(tok),
        hidden_size=32,
    )
    return Ovis2ForConditionalGeneration(config), processor


def janus():
    from transformers import JanusConfig, JanusForConditionalGeneration, JanusImageProcessor, JanusProcessor

    named = {
        "image_token": "<image_placeholder>",
        "boi_token": "<begin_of_image>",
        "eoi_token": "<end_of_image>",
    }
    tok = tokenizer(named=named)
    processor = JanusProcessor(
        image_processor=JanusImageProcessor(size=square(28), min_size=14),
        tokenizer=tok,
        num_image_tokens=4,
        chat_template=chat("<image_placeholder>"),
    )
    config = JanusConfig(
        vision_config={**CLIP, "projection_dim": 32, "num_image_tokens": 4},
        text_config={"model_type": "llama", **TEXT, **ids(tok)},
        vq_config={
            "embed_dim": 8,
            "num_embeddings": 8,
            "latent_channels": 8,
            "base_channels": 32,
            "channel_multiplier": [1, 1],
            "num_res_blocks": 1,
            "num_patches": 2,
            "projection_dim": 32,
            "image_token_embed_dim": 32,
        },
        image_token_id=index(tok, "<image_placeholder>"),
    )
    return JanusForConditionalGeneration(config), processor


def deepseek_vl():
    from transformers import (
        DeepseekVLConfig,
        DeepseekVLForConditionalGeneration,
        DeepseekVLImageProcessor,
        DeepseekVLProcessor,
    )

    tok = tokenizer(named={"image_token": "<image_placeholder>"})
    processor = DeepseekVLProcessor(
        image_processor=DeepseekVLImageProcessor(size=square(28), min_size=14),
        tokenizer=tok,
        num_image_tokens=4,
        chat_template=chat("<image_placeholder>"),
    )
    config = DeepseekVLConfig(
        vision_config={**CLIP, "model_type": "siglip_vision_model", "vision_use_head": False},
        text_config={"model_type": "llama", **TEXT, **ids(tok)},
        image_token_id=index(tok, "<image_placeholder>"),
    )
    return DeepseekVLForConditionalGeneration(config), processor


def perception_lm():
    from transformers import (
        PerceptionLMConfig,
        PerceptionLMForConditionalGeneration,
        PerceptionLMImageProcessor,
        PerceptionLMProcessor,
        PerceptionLMVideoProcessor,
    )

    tok = tokenizer(named={"image_token": "<|image|>", "video_token": "<|video|>"})
    processor = PerceptionLMProcessor(
        image_processor=PerceptionLMImageProcessor(tile_size=28, max_num_tiles=2, vision_input_type="vanilla"),
        video_processor=PerceptionLMVideoProcessor(size=square(28)),
        tokenizer=tok,
        patch_size=14,
        pooling_ratio=1,
        chat_template=chat("<|image|>"),
    )
    config = PerceptionLMConfig(
        vision_config={
            "architecture": "vit_pe_core_large_patch14_336",
            "model_args": {
                "embed_dim": 16,
                "img_size": [28, 28],
                "depth": 2,
                "num_heads": 2,
                "global_pool": "",
                "use_post_transformer_norm": False,
                "init_values": 0.1,
                "ref_feat_shape": [2, 2],
            },
        },
        text_config={"model_type": "llama", **TEXT, **ids(tok)},
        vision_use_cls_token=True,
        image_token_id=index(tok, "<|image|>"),
        video_token_id=index(tok, "<|video|>"),
    )
    return PerceptionLMForConditionalGeneration(config), processor


def llama4():
    from transformers import Llama4Config, Llama4ForConditionalGeneration, Llama4ImageProcessor, Llama4Processor

    names = ("image", "image_start", "image_end", "patch", "tile_x_separator", "tile_y_separator")
    tok = tokenizer(*(f"<|{name}|>" for name in names))
    processor = Llama4Processor(
        image_processor=Llama4ImageProcessor(size=square(28), max_patches=2),
        tokenizer=tok,
        patch_size=14,
        pixel_shuffle_ratio=0.5,
        chat_template=chat("<|image|>"),
    )
    config = Llama4Config(
        vision_config={
            **CLIP,
            "intermediate_size": 64,
            "vision_output_dim": 32,
            "projector_input_dim": 32,
            "projector_output_dim": 32,
        },
        text_config={
            **TEXT,
            **ids(tok),
            "intermediate_size_mlp": 64,
            "head_dim": 8,
            "num_local_experts": 2,
            "attention_chunk_size": 64,
            "layer_types": ["chunked_attention", "full_attention"],
        },
        image_token_index=index(tok, "<|patch|>"),
        boi_token_index=index(tok, "<|image_start|>"),
        eoi_token_index=index(tok, "<|image_end|>"),
    )
    return Llama4ForConditionalGeneration(config), processor


def qwen3_vl_moe():
    vision = {
        "depth": 2,
        "hidden_size": 16,
        "num_heads": 2,
        "intermediate_size": 32,
        "out_hidden_size": 32,
        "patch_size": 14,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
    }
    rope = {"mrope_section": [2, 1, 1], "mrope_interleaved": True}
    return _qwen("Qwen3VLMoe", vision, rope, {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16})


def qwen3_5():
    vision = {
        "depth": 2,
        "hidden_size": 16,
        "num_heads": 2,
        "intermediate_size": 32,
        "out_hidden_size": 32,
        "patch_size": 14,
        "num_position_embeddings": 16,
    }
    rope = {"mrope_section": [2, 1, 1], "mrope_interleaved": True, "partial_rotary_factor": 1.0}
    text = {
        "head_dim": 8,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "layer_types": ["linear_attention", "full_attention"],
    }
    return _qwen("Qwen3_5", vision, rope, text)


MORE_FAMILIES = {
    family.__name__: family
    for family in (
        llava,
        vipllava,
        llava_next,
        blip2_t5,
        instructblip,
        instructblip_llama,
        instructblip_t5,
        kosmos2,
        florence2,
        idefics2,
        mllama,
        chameleon,
        qwen2_5_vl,
        qwen3_vl,
        mistral3,
        git,
        got_ocr2,
        smolvlm,
        aya_vision,
        cohere2_vision,
        glm4v,
        gemma4,
        lfm2_vl,
        ovis2,
        janus,
        deepseek_vl,
        perception_lm,
        llama4,
        qwen3_vl_moe,
        qwen3_5,
    )
}
