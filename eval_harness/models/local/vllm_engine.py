"""Starting vLLM's engine: what the settings become there, and what it does not take.

See also: asking it (`vllm_vlm.py`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dataset_builders.errors import BadInput, first_line, with_type
from eval_harness.models.interface import Settings
from eval_harness.models.local.pretrained import check_adapter, load_processor

GENERATION = {
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "min_new_tokens": "min_tokens",
}
"""What `--generation` may set, under transformers' names -> vLLM's."""

OWN_OPTIONS = {
    "model": "--model",
    "trust_remote_code": "--trust-remote-code",
    "enable_lora": "adapter",
    "mm_processor_kwargs": "min_pixels, max_pixels",
    "chat_template": "--chat-template",
    "seed": "--generation",
    "logprobs_mode": "no option",
    "tokenizer": "no option",
}
"""Arguments of the engine that `--model-args` may not set -> what sets them: they decide answers."""


def check_settings(settings: Settings) -> None:
    """Raise BadInput for settings that vLLM cannot honour."""
    if wrong := sorted(settings.generation.keys() - GENERATION.keys()):
        raise BadInput(f"--generation: {', '.join(wrong)} cannot be set for vLLM. Available: {', '.join(GENERATION)}.")
    if isinstance(settings.thinking, int):
        raise BadInput(
            f"--thinking {settings.thinking}: with --model vllm: it is on or off. Bound answers with --max-tokens."
        )
    for name in ("attn_implementation", "device_map"):
        if getattr(settings, name) is not None:
            raise BadInput(f"--model-args {name}: is for transformers. Leave it out, or give vLLM's own argument.")
    for name, option in OWN_OPTIONS.items():
        if name in settings.engine:
            raise BadInput(f"--model-args {name}: cannot be set there: it decides answers ({option} sets it).")


def read_model(model_id: str, settings: Settings) -> tuple[Any, int | None]:
    """(processor, the output limit of the model's generation config). Raises BadInput where they cannot be had."""
    from transformers import GenerationConfig

    processor, _ = load_processor(f"vllm:{model_id}", model_id, settings)
    try:
        limit = GenerationConfig.from_pretrained(model_id).max_new_tokens
    except OSError:
        limit = None
    return processor, limit


def load_adapter(adapter: str | None) -> Any:
    """The LoRA adapter as the engine takes it. Raises BadInput where it cannot be had."""
    if adapter is None:
        return None
    from huggingface_hub import snapshot_download
    from vllm.lora.request import LoRARequest

    if not Path(adapter).is_dir():
        try:
            adapter = snapshot_download(adapter)
        except (OSError, ValueError) as error:
            raise BadInput(f"--model-args adapter {adapter}: cannot be loaded ({first_line(error)}).") from None
    check_adapter(adapter)
    return LoRARequest("adapter", 1, str(adapter))


def start_engine(model_id: str, settings: Settings, processor: Any, adapter: Any) -> Any:
    """The engine. Raises BadInput in vLLM's own words where it does not start."""
    from vllm import LLM

    options: dict[str, Any] = {"enable_prefix_caching": True, "disable_log_stats": True, **settings.engine}
    if adapter is not None:
        options |= {"enable_lora": True, "max_lora_rank": _rank(Path(adapter.lora_path))}
    if settings.quantization:
        options["quantization"] = "bitsandbytes" if settings.quantization == "4bit" else settings.quantization
    if settings.min_pixels is not None or settings.max_pixels is not None:
        options["mm_processor_kwargs"] = {"size": dict(processor.image_processor.size)}
    try:
        return LLM(
            model=model_id, dtype=settings.dtype or "auto", trust_remote_code=settings.trust_remote_code, **options
        )
    except Exception as error:  # vLLM raises what its parts raise, from other processes too
        raise BadInput(f"--model vllm:{model_id}: vLLM cannot start: {_complaint(error)}") from error


def _complaint(error: Exception) -> str:
    """What vLLM says against its settings; where it checked several, the first complaint instead of their number."""
    if not isinstance(error, ValidationError):
        return with_type(error)
    first = error.errors()[0]
    return ": ".join([*map(str, first["loc"]), first["msg"].removeprefix("Value error, ")])[:300]


def _rank(adapter: Path) -> int:
    """The smallest rank the engine can make room for that holds the adapter's."""
    rank = int(json.loads((adapter / "adapter_config.json").read_bytes())["r"])
    return next((size for size in (8, 16, 32, 64, 128, 256, 320, 512) if size >= rank), 512)
