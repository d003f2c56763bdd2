"""Load the back end that a `--model` argument names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dataset_builders.errors import BadInput, with_type
from dataset_builders.extras import require
from dataset_builders.hub.client import connect, status_of
from eval_harness.models.interface import MODEL_ARGS, Backend, Settings, check_options


def load_backend(model: str, settings: Settings) -> Backend:
    """The back end that a `--model` argument names. Raises BadInput when there is none of that name."""
    kind, _, rest = model.partition(":")
    if settings.engine and kind != "vllm" and ".py:" not in model:
        names = ", ".join(sorted(settings.engine))
        raise BadInput(f"--model-args: --model {model} does not take {names}. Available: {', '.join(MODEL_ARGS)}.")
    if kind == "baseline":
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
    if model.endswith(".py") or (kind != "vllm" and rest and not Path(model).exists()):
        raise BadInput(_no_such_kind(model, kind))
    check_name(model, rest if kind == "vllm" else model)
    if kind == "vllm":
        from eval_harness.models.local.vllm_vlm import VllmVLM

        return VllmVLM(rest, settings)
    from eval_harness.models.local.transformers_vlm import TransformersVLM

    check_options(model, settings, TransformersVLM.options)
    return TransformersVLM(model, settings)


def keep_loaded(load: Callable[[str, Settings], Backend] = load_backend) -> Callable[[str, Settings], Backend]:
    """A `load_backend` that keeps the last local model: the next run that takes it with the same settings gets it as it was loaded.

    Back ends of servers remember what a server takes and cost nothing to make, so each run gets a new one.
    """
    kept: dict[str, tuple[Settings, Backend, list[str]]] = {}

    def kept_or_loaded(model: str, settings: Settings) -> Backend:
        if model in kept and kept[model][0] == settings:
            backend, deviations = kept[model][1:]
            backend.deviations[:] = deviations
            return backend
        kept.clear()  # before the next one is loaded: two may not fit into memory
        backend = load(model, settings)
        if not backend.is_api:
            kept[model] = settings, backend, list(backend.deviations)
        return backend

    return kept_or_loaded


def _no_such_kind(model: str, kind: str) -> str:
    if not model.endswith(".py"):
        return (
            f"--model {model}: there is no kind of model called {kind!r}. Give a transformers id or folder, vllm:ID, "
            "openai:NAME, azure:DEPLOYMENT, recorded:FILE, my_model.py:MyModel, or baseline:chance | always-A | oracle."
        )
    if not Path(model).is_file():
        return f"--model {model}: there is no file {model}."
    return f"--model {model}: does not say which class of the file is the model. Add :ClassName, e.g. {model}:MyModel."


def check_name(model: str, name: str) -> None:
    """Raise BadInput where a model's `name` is neither a folder nor an id that this machine or the Hub knows, or the engine is not
    installed. The Hub is asked once."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    if Path(name).exists():
        return
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise BadInput(f"--model {model}: there is no folder {name}.")
    require("vllm" if model.startswith("vllm:") else "torch", "transformers")
    try:
        validate_repo_id(name)
        if not isinstance(try_to_load_from_cache(name, "config.json"), str):
            connect().model_info(name, timeout=10)
    except Exception as error:  # the name is none, or whatever stands between here and the Hub
        if isinstance(error, HFValidationError) or status_of(error) in (401, 403, 404):
            raise BadInput(
                f"--model {model}: there is no folder of this name, and no model on the Hub that you may read. Check its name; for a "
                "private or gated one, run `hf auth login`."
            ) from None
        raise BadInput(
            f"--model {model}: there is no folder of this name, and the Hub cannot be asked ({with_type(error)})."
        ) from None
