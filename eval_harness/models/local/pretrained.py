"""Load a pretrained model of transformers with its processor.

Chooses the class and the device, quantizes, adds an adapter, and digests the files. See also:
running it (`transformers_vlm.py`).
"""

import hashlib
import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dataset_builders.errors import BadInput, first_line, missing_extra, require
from dataset_builders.files import replace_file
from eval_harness.models.interface import Settings, short_digest

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
"""Options of `generate` that `--generation` may set.

They affect each row alone, token by token; options such as beams would change what an answer is.
"""


def load_pretrained(model_id: str, settings: Settings) -> tuple[Any, Any, list[str]]:
    """Load a processor and its model.

    Args:
        model_id: Hub id or folder.
        settings: Dtype, device, quantization, adapter and the like.

    Returns:
        (processor, model in evaluation mode on its device, deviations to record).

    Raises:
        BadInput: If either cannot be loaded with these settings.
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
        is_quantized = getattr(config, "quantization_config", None) is not None
        if settings.quantization:
            options["quantization_config"] = _quantization_config(model_id, settings.quantization, dtype, is_quantized)
        if settings.device_map:
            options["device_map"] = settings.device_map
        elif is_quantized or settings.quantization:
            options["device_map"] = {"": _process_device(device)}  # quantized models cannot be moved after loading
        with suppress(OSError):  # the model may have no generation config
            # A generation config may ask for several answers, or for another form of output.
            overrides = {"num_return_sequences": 1, "return_dict_in_generate": False}
            options["generation_config"] = GenerationConfig.from_pretrained(model_id, **overrides)
        model, loading_info = _load_model(model_id, options)
        missing_weights = sorted(loading_info["missing_keys"])
        _check_class_of_checkpoint(model_id, model, config, loading_info)
        if missing_weights and not settings.allow_missing_weights:
            raise BadInput(
                f"--model {model_id}: the checkpoint lacks {len(missing_weights)} of the model's weights "
                f"({', '.join(missing_weights[:3])}), which would be drawn at random at each load. Get the complete checkpoint, "
                "or allow it with --allow-missing-weights."
            )
        if settings.adapter:
            model = _with_adapter(model, settings.adapter)
    except LOADING_ERRORS as error:
        raise _loading_error(model_id, error) from None

    placed_model: Any = model if "device_map" in options else model.to(_process_device(device))
    deviations = []
    if missing_weights:
        deviations.append(
            f"the checkpoint lacks {len(missing_weights)} of the model's weights, which were drawn at random: "
            f"{', '.join(missing_weights[:3])}"
        )
    return processor, placed_model.eval(), deviations


def load_processor(model: str, model_id: str, settings: Settings) -> tuple[Any, Any]:
    """Load a model's processor and config.

    Args:
        model: The `--model` argument, for messages.
        model_id: The Hub id or folder that `model` contains.
        settings: Bounds of the image size, and whether to trust the model's own code.

    Returns:
        (processor, config) of transformers.

    Raises:
        BadInput: If they cannot be loaded with these settings.
    """
    from transformers import AutoConfig, AutoProcessor

    try:
        pixels = {
            name: value
            for name, value in (
                ("min_pixels", settings.min_pixels),
                ("max_pixels", settings.max_pixels),
            )
            if value is not None
        }
        processor = AutoProcessor.from_pretrained(model_id, trust_remote_code=settings.trust_remote_code, **pixels)
        if getattr(processor, "image_processor", None) is None:
            raise BadInput(
                f"--model {model}: its processor accepts no images, so it cannot answer questions about them."
            )
        supported = getattr(getattr(type(processor.image_processor), "valid_kwargs", None), "__annotations__", {})
        if pixels and "max_pixels" not in supported:  # supported by Qwen-VL and related models
            raise BadInput(
                f"--model-args {', '.join(pixels)}: --model {model} does not support these bounds. Use --max-image-side."
            )
        return processor, AutoConfig.from_pretrained(model_id, trust_remote_code=settings.trust_remote_code)
    except LOADING_ERRORS as error:
        raise _loading_error(model, error) from None


def _load_model(model_id: str, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Load a model; return it and transformers' loading info.

    It is loaded as an image-text-to-text class, or as a causal model if transformers has no such
    class for it (Phi-4-multimodal, many models with their own code). Whether a causal model sees
    images is left to the self-test.
    """
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    options = options | {"output_loading_info": True}
    try:
        return AutoModelForImageTextToText.from_pretrained(model_id, **options)
    except ValueError as error:
        if "Unrecognized configuration class" not in str(error):
            raise
    return AutoModelForCausalLM.from_pretrained(model_id, **options)


def _check_class_of_checkpoint(model_id: str, model: Any, config: Any, loading_info: dict[str, Any]) -> None:
    """Raise BadInput if a checkpoint belongs to another class of transformers.

    For example, a BLIP for questions has a question encoder, which the BLIP for captions lacks.
    """
    import transformers

    mismatched_keys = [*loading_info["missing_keys"], *loading_info["unexpected_keys"]]
    loaded_as = type(model).__name__
    saved_as = next((name for name in config.architectures or () if hasattr(transformers, name)), loaded_as)
    if saved_as != loaded_as and mismatched_keys:
        raise BadInput(
            f"--model {model_id}: its checkpoint is a {saved_as}. Loaded as {loaded_as}, the class of transformers that answers in words, "
            f"it would lack or lose {len(mismatched_keys)} weights ({', '.join(sorted(mismatched_keys)[:2])} ...)."
        )


def _quantization_config(model_id: str, name: str, dtype: Any, is_quantized: bool) -> Any:
    from transformers import BitsAndBytesConfig

    if name not in QUANTIZATIONS:
        raise BadInput(f"--model-args quantization {name}: not known. Available: {', '.join(QUANTIZATIONS)}.")
    if is_quantized:
        raise BadInput(
            f"--model-args quantization {name}: {model_id} is quantized already and is loaded as it is. Leave it out."
        )
    require("bitsandbytes")
    if name == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)


def check_adapter(adapter: str) -> None:
    """Raise BadInput for a folder without a peft adapter; any other name may be a Hub id."""
    if Path(adapter).is_dir() and not (Path(adapter) / "adapter_config.json").exists():
        raise BadInput(f"--model-args adapter {adapter}: contains no adapter_config.json, so it is not a peft adapter.")


def _with_adapter(model: Any, adapter: str) -> Any:
    """Add a peft adapter to a model, merged into its weights unless these are quantized.

    Raises BadInput if the adapter cannot be read, does not fit the model, or uses added prompt
    tokens.
    """
    from peft import PeftModel

    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        try:
            adapted: Any = PeftModel.from_pretrained(model, adapter)
        except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
            raise BadInput(f"--model-args adapter {adapter}: cannot be loaded ({first_line(error)}).") from None
    # peft only warns about layers for which the adapter has no weights.
    if any("missing adapter keys" in str(warning.message) for warning in caught_warnings):
        raise BadInput(f"--model-args adapter {adapter}: its weights do not fit this model: some layers got none.")
    if adapted.active_peft_config.is_prompt_learning:
        raise BadInput(
            f"--model-args adapter {adapter}: uses added prompt tokens, which do not work for questions about images."
        )
    return adapted.base_model.model if getattr(model, "is_quantized", False) else adapted.merge_and_unload()


def describe_source(model_id: str) -> tuple[str, str | None]:
    """Return (name, revision) of a model for results.

    A folder has its name and no revision; a Hub model's revision is the commit in the cache.
    """
    from huggingface_hub import try_to_load_from_cache

    if Path(model_id).is_dir():
        return Path(model_id).name, None
    config = try_to_load_from_cache(model_id, "config.json")
    return model_id, Path(config).parent.name if isinstance(config, str) else None


def weights_digest(model_id: str, adapter: str | None) -> str:
    """Digest the files of a model folder, or the commit of a model on the Hub.

    Args:
        model_id: Hub id or folder.
        adapter: Hub id or folder of an adapter, which becomes part of the digest.

    Returns:
        Hex digest.
    """
    digests = [
        folder_digest(Path(source)) if Path(source).is_dir() else describe_source(source)[1] or source
        for source in (model_id, adapter)
        if source
    ]
    return short_digest(" ".join(digests).encode())


def folder_digest(folder: Path) -> str:
    """Digest the files of a model folder.

    Reading weights takes minutes, so the digest is cached. The cache key is made of the files'
    names, sizes and modification times.
    """
    from huggingface_hub.constants import HF_HOME

    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    # Nanoseconds, so that a quick rewrite with the same size is noticed.
    stats = [(path.relative_to(folder).as_posix(), path.stat()) for path in files]
    state = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
    cache_file = Path(HF_HOME) / "medprobe" / f"{short_digest(repr((folder.resolve(), state)).encode())}.digest"
    if cache_file.is_file():
        return cache_file.read_text()

    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            digest.update(path.relative_to(folder).as_posix().encode() + hashlib.file_digest(file, "sha256").digest())
    cache_file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(cache_file, digest.hexdigest().encode())
    return digest.hexdigest()


def _process_device(device: str) -> str:
    """Return this process's device: processes of torchrun or accelerate use one GPU each."""
    import torch

    rank = os.environ.get("LOCAL_RANK", "")
    return f"cuda:{int(rank) % torch.cuda.device_count()}" if device == "cuda" and rank.isdigit() else device


def _loading_error(model: str, error: Exception) -> BadInput:
    """Make the BadInput for an exception raised while loading `--model`."""
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


def check_generate_options(generation: Mapping[str, Any]) -> None:
    """Raise BadInput for options that are unknown or would change what an answer is.

    Examples of the latter are beams and several returned sequences.
    """
    if unsupported := sorted(generation.keys() - set(GENERATE_OPTIONS)):
        raise BadInput(
            f"--generation: {', '.join(unsupported)} cannot be set for a local model. Available: {', '.join(GENERATE_OPTIONS)}."
        )
