"""From a `--model` argument to a back end, also to a model in a Python file of the user's own (`my_model.py:MyModel`)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from dataset_builders.errors import BadInput
from eval_harness.models.interface import Backend, Settings, check_options
from eval_harness.records.result import Model

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


def load_plug_in(model: str, settings: Settings) -> Backend:
    """The model a user's own file defines: a class, or a function that returns an object, called with the settings.

    It needs only `generate(requests)`; what else a back end has (`interface.Backend`) is filled in where it is missing.
    Raises BadInput when the file cannot be run, has no such name, or what it gives cannot generate.
    """
    file, _, name = model.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise BadInput(f"--model {model}: there is no file {file}.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise BadInput(f"--model {model}: {file} cannot be run ({type(error).__name__}: {error}).") from error
    if not hasattr(module, name):
        raise BadInput(f"--model {model}: {file} defines no {name}.")
    made: Any = getattr(module, name)(settings)
    if getattr(made, "options", None) is not None:
        check_options(model, settings, made.options)
    if not callable(getattr(made, "generate", None)):
        raise BadInput(f"--model {model}: {name} has no generate(requests). See docs/plug_in.md.")
    for attribute, value in (
        ("model", Model(name=name)),
        ("needs_images", True),
        ("one_token", True),
        ("deviations", []),
        ("describe", dict),
        ("several_images", False),
        *((name, getattr(Backend, name)) for name in ("sees_prompts", "is_api", "takes_stream", "template_hash")),
    ):
        if not hasattr(made, attribute):
            setattr(made, attribute, value)
    backend: Backend = made
    return backend
