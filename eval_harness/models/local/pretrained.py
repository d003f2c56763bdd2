"""Loading a pretrained model of transformers with its processor: which class, on which device, quantized, with an adapter.

See also: running it (`transformers_vlm.py`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dataset_builders.errors import BadInput, first_line
from dataset_builders.extras import missing_extra, require
from eval_harness.models.interface import Settings

LOADING_ERRORS = (OSError, ValueError, ImportError, KeyError, RuntimeError)
QUANTIZATIONS = ("4bit", "8bit")
GENERATE_OPTIONS = (
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "bad_words_ids",
    "min_new_tokens",
)
"""Options of `generate` that `--generation` may set, those that work row by row, one token after the other."""


def load_pretrained(model_id: str, settings: Settings) -> tuple[Any, Any, list[str]]:
    """(processor, model in evaluation mode on its device, what is odd about it in words for the result's deviations).

    Raises BadInput if either cannot be had as the settings say.
    """
    import torch
    from transformers import GenerationConfig

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = getattr(torch, settings.dtype or ("bfloat16" if device == "cuda" else "float32"), None)
    if not isinstance(dtype, torch.dtype):
        raise BadInput(f"--model-args dtype {settings.dtype}: not a torch dtype. Give float32, bfloat16 or float16.")
    if settings.adapter:
        require("peft")
        check_adapter(settings.adapter)
    options: dict[str, Any] = {"dtype": dtype, "trust_remote_code": settings.trust_remote_code}
    if settings.attn_implementation:
        options["attn_implementation"] = settings.attn_implementation
    processor, config = load_processor(model_id, model_id, settings)
    try:
        quantized = getattr(config, "quantization_config", None) is not None
        if settings.quantization:
            options["quantization_config"] = _quantization_config(model_id, settings.quantization, dtype, quantized)
        if settings.device_map:
            options["device_map"] = settings.device_map
        elif quantized or settings.quantization:
            options["device_map"] = {"": _process_device(device)}  # a quantized model is not moved once it is loaded
        with suppress(OSError):  # it has none; one that asks for several answers is refused as it is
            own = {"num_return_sequences": 1, "return_dict_in_generate": False}
            options["generation_config"] = GenerationConfig.from_pretrained(model_id, **own)
        model, loading = _load_model(model_id, options)
        lacking = sorted(loading["missing_keys"])
        why_not = _unfit_checkpoint(model, config, loading)
        if why_not:
            raise BadInput(f"--model {model_id}: {why_not}.")
        if lacking and not settings.allow_missing_weights:
            raise BadInput(
                f"--model {model_id}: the checkpoint lacks {len(lacking)} of the model's weights ({', '.join(lacking[:3])}), which would "
                "be drawn at random, anew at each load. Get the whole checkpoint, or allow it with --allow-missing-weights."
            )
        if settings.adapter:
            model = _with_adapter(model, settings.adapter)
    except LOADING_ERRORS as error:
        raise _loading_error(model_id, error) from None
    placed: Any = model if "device_map" in options else model.to(_process_device(device))
    odd = []
    if lacking:
        odd.append(
            f"the checkpoint lacks {len(lacking)} of the model's weights, which were drawn at random: {', '.join(lacking[:3])}"
        )
    return processor, placed.eval(), odd


def load_processor(model: str, model_id: str, settings: Settings) -> tuple[Any, Any]:
    """(processor, config). `model`: what `--model` says. Raises BadInput if they cannot be had as the settings say."""
    from transformers import AutoConfig, AutoProcessor

    try:
        pixels = {"min_pixels": settings.min_pixels, "max_pixels": settings.max_pixels}
        pixels = {name: value for name, value in pixels.items() if value is not None}
        processor = AutoProcessor.from_pretrained(model_id, trust_remote_code=settings.trust_remote_code, **pixels)
        if getattr(processor, "image_processor", None) is None:
            raise BadInput(f"--model {model}: its processor takes no images, so it cannot answer questions about them.")
        known = getattr(getattr(type(processor.image_processor), "valid_kwargs", None), "__annotations__", {})
        if pixels and "max_pixels" not in known:  # Qwen-VL's and its kin know them
            raise BadInput(
                f"--model-args {', '.join(pixels)}: --model {model} has no such bounds. Use --max-image-side."
            )
        return processor, AutoConfig.from_pretrained(model_id, trust_remote_code=settings.trust_remote_code)
    except LOADING_ERRORS as error:
        raise _loading_error(model, error) from None


def _load_model(model_id: str, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The model as an image-text-to-text class; where transformers has none for it, as the causal model it may be (Phi-4-multimodal, many
    models with code of their own). Whether that one sees images is left to the self-test. Also what transformers says of the loading."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    options = options | {"output_loading_info": True}
    loaded: Any
    try:
        loaded = AutoModelForImageTextToText.from_pretrained(model_id, **options)
    except ValueError as error:
        if "Unrecognized configuration class" not in str(error):
            raise
        loaded = AutoModelForCausalLM.from_pretrained(model_id, **options)
    model, found = loaded
    return model, found


def _unfit_checkpoint(model: Any, config: Any, loading: dict[str, Any]) -> str | None:
    """Why a checkpoint is of another class of transformers, whose weights do not fit the one it was loaded as (a BLIP for questions has an
    encoder for them, which the BLIP for captions leaves out); None where it is not."""
    import transformers

    loaded_as, apart = type(model).__name__, [*loading["missing_keys"], *loading["unexpected_keys"]]
    saved_as = next((name for name in config.architectures or () if hasattr(transformers, name)), loaded_as)
    if saved_as == loaded_as or not apart:
        return None
    return (
        f"its checkpoint is a {saved_as}. As {loaded_as}, the class of transformers that answers in words, it would lack or lose "
        f"{len(apart)} weights ({', '.join(sorted(apart)[:2])} ...)"
    )


def _quantization_config(model_id: str, name: str, dtype: Any, quantized: bool) -> Any:
    from transformers import BitsAndBytesConfig

    if name not in QUANTIZATIONS:
        raise BadInput(f"--model-args quantization {name}: not known. Available: {', '.join(QUANTIZATIONS)}.")
    if quantized:
        raise BadInput(
            f"--model-args quantization {name}: {model_id} is quantized already and is loaded as it is. Leave it out."
        )
    require("bitsandbytes")
    if name == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)


def check_adapter(adapter: str) -> None:
    """Raise BadInput for a folder that holds no peft adapter; any other name may be one of the Hub."""
    if Path(adapter).is_dir() and not (Path(adapter) / "adapter_config.json").exists():
        raise BadInput(f"--model-args adapter {adapter}: holds no adapter_config.json, so it is not a peft adapter.")


def _with_adapter(model: Any, adapter: str) -> Any:
    """The model with a peft adapter: merged into its weights, or beside them where these are quantized.

    Raises BadInput if the adapter cannot be read, does not fit the model, or works by added prompt tokens.
    """
    from peft import PeftModel

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            adapted: Any = PeftModel.from_pretrained(model, adapter)
        except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
            raise BadInput(f"--model-args adapter {adapter}: cannot be loaded ({first_line(error)}).") from None
    if any("missing adapter keys" in str(each.message) for each in said):
        raise BadInput(
            f"--model-args adapter {adapter}: its weights do not fit this model: some of its layers found none."
        )
    if adapted.active_peft_config.is_prompt_learning:
        raise BadInput(
            f"--model-args adapter {adapter}: works by added prompt tokens, which questions on images are not put after."
        )
    return adapted.base_model.model if getattr(model, "is_quantized", False) else adapted.merge_and_unload()


def describe_source(model_id: str) -> tuple[str, str | None]:
    """(name, revision) of a model as results have them: of a folder its name, of a Hub model the commit that the cache holds."""
    from huggingface_hub import try_to_load_from_cache

    if Path(model_id).is_dir():
        return Path(model_id).name, None
    config = try_to_load_from_cache(model_id, "config.json")
    return model_id, Path(config).parent.name if isinstance(config, str) else None


def _process_device(device: str) -> str:
    """This process's GPU: processes started by torchrun or accelerate each take their own."""
    import torch

    rank = os.environ.get("LOCAL_RANK", "")
    return f"cuda:{int(rank) % torch.cuda.device_count()}" if device == "cuda" and rank.isdigit() else device


def _loading_error(model: str, error: Exception) -> BadInput:
    """Exceptions for which `--model` cannot be loaded."""
    if isinstance(error, BadInput):
        return error
    reason = first_line(error) or type(error).__name__
    if "Unrecognized configuration class" in reason:
        reason = "transformers has neither an image-text-to-text nor a causal class for it."
    elif "trust_remote_code" in str(error):
        reason = "it needs its own code; read that code, then allow it with --trust-remote-code."
    return missing_extra(error) or BadInput(
        f"--model {model}: cannot be loaded: {reason} Give a Hugging Face model id or a model folder."
    )


def check_generate_options(given: Mapping[str, Any]) -> None:
    """Raises BadInput for options that would change what an answer is (beams, several sequences), or that are not known."""
    if wrong := sorted(given.keys() - set(GENERATE_OPTIONS)):
        raise BadInput(
            f"--generation: {', '.join(wrong)} cannot be set for a local model. Available: {', '.join(GENERATE_OPTIONS)}."
        )
