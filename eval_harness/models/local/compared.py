"""Which model types were compared with plain loops of transformers, on tiny random models: texts and option scores equal."""

COMPARED = frozenset(
    """
    aria aya_vision blip blip-2 chameleon cohere2_vision deepseek_vl deepseek_vl_hybrid exaone4_5 fast_vlm florence2 gemma3 gemma4
    gemma4_unified git glm46v glm4v glm4v_moe glm_ocr got_ocr2 idefics2 idefics3 instructblip internvl janus kosmos-2 lfm2_vl
    lfm3_vl lighton_ocr llama4 llava llava_next llava_next_video llava_onevision minicpmv4_6 mistral3 mllama ovis2 paddleocr_vl
    paligemma perception_lm qianfan_ocr qwen2_5_vl qwen2_vl qwen3_5 qwen3_5_moe qwen3_vl qwen3_vl_moe qwen4_exp smolvlm
    video_llama_3 video_llava vipllava
    """.split()  # noqa: SIM905
)
"""Model types of `tests/eval_harness/models/tiny_families.py`, which `benchmarks/models/families.py` runs."""
