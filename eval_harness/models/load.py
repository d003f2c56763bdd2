"""From a `--model` argument to a back end."""

from __future__ import annotations

from pathlib import Path

from dataset_builders.errors import BadInput
from eval_harness.models.interface import Backend, Settings, check_options

TEXT_ONLY = "baseline:text-only:"


def load_backend(model: str, settings: Settings) -> Backend:
    """The back end that a `--model` argument names. Raises BadInput when there is none of that name."""
    kind, _, rest = model.partition(":")
    if settings.engine and kind != "vllm" and ".py:" not in model:
        raise BadInput(f"--engine: is for --model vllm:ID, not for {model}. Leave it out.")
    text_only = model.startswith(TEXT_ONLY)
    if kind == "baseline" and not text_only:
        from eval_harness.models.baselines import load_baseline

        check_options(model, settings, ())
        return load_baseline(rest)
    if kind == "recorded":
        from eval_harness.models.recorded import Recorded

        check_options(model, settings, Recorded.options)
        return Recorded(Path(rest))
    if kind in ("openai", "azure"):
        from eval_harness.models.http.openai_chat import OpenAIChat

        check_options(model, settings, OpenAIChat.options)
        return OpenAIChat(model.removeprefix("openai:"), settings)
    if ".py:" in model:
        from eval_harness.models.plug_in import load_plug_in

        return load_plug_in(model, settings)
    if kind == "vllm":
        from eval_harness.models.local.vllm_vlm import VllmVLM

        return VllmVLM(rest, settings)
    if rest and not text_only and not Path(model).exists():
        raise BadInput(
            f"--model {model}: there is no kind of model called {kind!r}. Give a transformers id or folder, vllm:ID, "
            "openai:NAME, azure:DEPLOYMENT, recorded:FILE, my_model.py:MyModel, or baseline:chance | always-A | text-only:MODEL | oracle."
        )
    from eval_harness.models.local.transformers_vlm import TransformersVLM

    check_options(model, settings, TransformersVLM.options)
    return TransformersVLM(model.removeprefix(TEXT_ONLY), settings, text_only=text_only)
