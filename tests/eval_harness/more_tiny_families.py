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


def _qwen(name, vision, rope):
    import transformers
    from transformers import Qwen2VLImageProcessor, Qwen2VLVideoProcessor

    tok = tokenizer("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    sizes = {"patch_size": 14, "merge_size": 2, "min_pixels": 28 * 28, "max_pixels": 56 * 56}
    videos = Qwen2VLVideoProcessor
    if name == "Qwen3VL":
        videos = transformers.Qwen3VLVideoProcessor
    processor = getattr(transformers, f"{name}Processor")(
        image_processor=Qwen2VLImageProcessor(**sizes),
        tokenizer=tok,
        video_processor=videos(**sizes) if name != "Qwen3VL" else videos(patch_size=14, merge_size=2),
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
        text_config={**TEXT, **ids(tok), "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, **rope}},
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
    )
}
