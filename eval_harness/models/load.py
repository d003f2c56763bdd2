"""Load the back end that a `--model` argument names; a model of the user's own is an object with `generate`, or the class or function in a
Python file that makes one.

What answers is digested, so that a run is never continued by another model of the same name: a recorded file, the code of a plug-in, the
weights of a folder. A server and a baseline have none: their names say all that is known.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any, cast

from dataset_builders.errors import BadInput, describe_error
from dataset_builders.extras import require
from dataset_builders.files import replace_file
from dataset_builders.hub.client import connect, http_status
from eval_harness.models.interface import BACKEND_OPTIONS, MODEL_ARGS, Backend, Settings, check_options
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model

PLUG_IN_DOCS = "See docs/plug_in.md."


def load_backend(model: str, settings: Settings) -> Backend:
    """The back end that a `--model` argument names, with its `digest`. Raises BadInput if there is none of that name."""
    backend = _load(model, settings)
    backend.digest = model_digest(model, settings)
    return backend


def _load(model: str, settings: Settings) -> Backend:
    kind, _, rest = model.partition(":")
    if settings.engine and kind != "vllm" and ".py:" not in model:
        names = ", ".join(sorted(settings.engine))
        raise BadInput(f"--model-args: --model {model} does not take {names}. Available: {', '.join(MODEL_ARGS)}.")
    if kind == "baseline":
        from eval_harness.models.baseline_backend import load_baseline

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
    if model.endswith(".py") or (kind != "vllm" and rest and not Path(model).exists()):
        raise BadInput(_unknown_model_message(model, kind))
    check_model_exists(model, rest if kind == "vllm" else model)
    if kind == "vllm":
        from eval_harness.models.local.vllm_vlm import VllmVLM

        return VllmVLM(rest, settings)
    from eval_harness.models.local.transformers_vlm import TransformersVLM

    check_options(model, settings, TransformersVLM.options)
    return TransformersVLM(model, settings)


def caching_loader(load: Callable[[str, Settings], Backend] = load_backend) -> Callable[[str, Settings], Backend]:
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


def _unknown_model_message(model: str, kind: str) -> str:
    if not model.endswith(".py"):
        return (
            f"--model {model}: there is no kind of model called {kind!r}. Give a transformers id or folder, vllm:ID, "
            "openai:NAME, azure:DEPLOYMENT, recorded:FILE, my_model.py:MyModel, or baseline:chance | always-A | oracle."
        )
    if not Path(model).is_file():
        return f"--model {model}: there is no file {model}."
    return f"--model {model}: does not say which class of the file is the model. Add :ClassName, e.g. {model}:MyModel."


def check_model_exists(model: str, name: str) -> None:
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
        if isinstance(error, HFValidationError) or http_status(error) in (401, 403, 404):
            raise BadInput(
                f"--model {model}: there is no folder of this name, and no model on the Hub that you may read. Check its name; for a "
                "private or gated one, run `hf auth login`."
            ) from None
        raise BadInput(
            f"--model {model}: there is no folder of this name, and the Hub cannot be asked ({describe_error(error)})."
        ) from None


def wrap_plug_in(made: Any, name: str, called: str, settings: Settings, told: Collection[str] = ()) -> Backend:
    """An object as a back end; it needs only `generate(requests)`, and what else `Backend` has is filled in where it is missing.

    `generate` gives a Response for each request in any order, or a text for each in the requests' order. `name`: the model's, where the
    object has no `model` of the type Model (many have a network of that name). `called`: how messages name it. `told`: the settings of
    `OPTIONS` that the object honours unless it names them in `options`.
    Raises BadInput if it cannot generate, or does not honour an option that was given.
    """
    if isinstance(made, type):
        raise BadInput(f"{called}: is a class. Give an object of it: {made.__name__}(...).")
    if not callable(getattr(made, "generate", None)):
        raise BadInput(f"{called}: has no generate(requests). {PLUG_IN_DOCS}")
    if inspect.iscoroutinefunction(made.generate):
        raise BadInput(
            f"{called}: generate is asynchronous. Give a plain function, which may use asyncio.run. {PLUG_IN_DOCS}"
        )
    words = getattr(made, "deviations", [])
    if not isinstance(words, list) or not all(isinstance(each, str) for each in words):
        raise BadInput(f"{called}: its deviations are no list of texts. {PLUG_IN_DOCS}")
    honoured = getattr(made, "options", None)
    check_options(called.removeprefix("--model "), settings, told if honoured is None else honoured)
    return cast(Backend, _PlugIn(made, name, called))


def load_plug_in(model: str, settings: Settings) -> Backend:
    """The model that a user's own file defines: a class, or a function that returns an object, called with the settings if it takes any.

    Raises BadInput if the file cannot be run, has no such name, or what it gives cannot generate.
    """
    file, _, name = model.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise BadInput(f"--model {model}: there is no file {file}.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        # Never by its compiled form: Python takes that of a file of the same size and second for current.
        exec(compile(path.read_bytes(), path, "exec"), vars(module))
    except (Exception, SystemExit) as error:
        raise BadInput(f"--model {model}: {file} cannot be run ({type(error).__name__}: {error}).") from error
    if not hasattr(module, name):
        raise BadInput(f"--model {model}: {file} defines no {name}.")
    maker = getattr(module, name)
    try:
        takes_settings = any(map(_takes_settings, inspect.signature(maker).parameters.values()))
        made = maker(settings) if takes_settings else maker()
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"--model {model}: {name} cannot be made ({type(error).__name__}: {error}).") from error
    return wrap_plug_in(made, name, f"--model {model}", settings, told=BACKEND_OPTIONS if takes_settings else ())


def _takes_settings(parameter: inspect.Parameter) -> bool:
    """True if a class or function is to be given the settings: by a parameter of that name, or one that has to be given."""
    named = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    return parameter.name == "settings" or (named and parameter.default is parameter.empty)


class _PlugIn:
    """The object's attributes, with the defaults of `Backend` for those it lacks."""

    def __init__(self, made: Any, name: str, called: str) -> None:
        self.made, self._called = made, called
        self.digest: str | None = code_digest(made)
        said = getattr(made, "model", None)
        self.model = said if isinstance(said, Model) else Model(name=name)
        if not hasattr(made, "deviations"):
            self.deviations: list[str] = []

    takes_stream = False

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self.made, name)
        except AttributeError:
            if name in _DEFAULTS:
                return _DEFAULTS[name]
            raise

    def generate(self, requests: Sequence[Request]) -> Iterator[Response]:
        """The object's responses; its texts as responses to the requests in order, once there is one for each.

        Raises TypeError and ValueError, as a model does, where texts cannot be assigned to the requests; asked alone, a question may
        be answered all the same. Raises BadInput if nothing was given that could hold an answer.
        """
        given = self.made.generate(list(requests))
        if given is None or isinstance(given, str | Response | Mapping):
            what = "nothing" if given is None else f"one {type(given).__name__}"
            raise BadInput(
                f"{self._called}: generate(requests) returned {what}, not a response for each request. {PLUG_IN_DOCS}"
            )
        texts: list[str] = []
        responses = False
        for reply in given:
            if isinstance(reply, str):
                texts.append(reply)
            else:
                responses = True
                yield reply
            if texts and responses:
                raise TypeError(f"generate gave texts among responses ({PLUG_IN_DOCS[:-1]})")
            if len(texts) > len(requests):  # they may have no end
                break
        if texts and len(texts) != len(requests):
            raise ValueError(f"generate gave {len(texts)} texts for {len(requests)} requests ({PLUG_IN_DOCS[:-1]})")
        for request, text in zip(requests, texts, strict=False):
            yield Response(request.question_id, request.sample, text)


_DEFAULTS = {
    "needs_images": True,
    "one_token": True,
    "describe": dict,
    "several_images": False,
    **{name: getattr(Backend, name) for name in ("sees_prompts", "is_api", "template_hash")},
}


def model_digest(model: str, settings: Settings) -> str | None:
    """The digest of what a `--model` argument names: of the bytes of a file or folder, of a Hub model its commit.

    Call it once the model is loaded: a Hub model is in the cache then.
    """
    kind, _, rest = model.partition(":")
    if kind in ("openai", "azure", "baseline"):
        return None
    if kind == "recorded" or ".py:" in model:
        return _short_digest(Path(rest if kind == "recorded" else model.rpartition(":")[0]).read_bytes())
    from eval_harness.models.local.pretrained import describe_source

    sources = [rest if kind == "vllm" else model, *([settings.adapter] if settings.adapter else [])]
    digests = [
        folder_digest(Path(name)) if Path(name).is_dir() else describe_source(name)[1] or name for name in sources
    ]
    return _short_digest(" ".join(digests).encode())


def code_digest(made: Any) -> str:
    """The digest of the code of an object's class: what its methods do, and its source file; a notebook's has none."""
    functions = [value for value in vars(type(made)).values() if hasattr(value, "__code__")]
    code = "\n".join(part for function in functions for part in _code_parts(function.__code__)).encode()
    with suppress(OSError, TypeError):
        code += Path(inspect.getfile(type(made))).read_bytes()
    return _short_digest(code)


def folder_digest(folder: Path) -> str:
    """The digest of a model folder's files. It is kept under their names, sizes and times, since weights take minutes to read."""
    from huggingface_hub.constants import HF_HOME

    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    stats = [(path.relative_to(folder).as_posix(), path.stat()) for path in files]
    state = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
    kept = Path(HF_HOME) / "medprobe" / f"{_short_digest(repr((folder.resolve(), state)).encode())}.digest"
    if kept.is_file():
        return kept.read_text()
    whole = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            whole.update(path.relative_to(folder).as_posix().encode() + hashlib.file_digest(file, "sha256").digest())
    kept.parent.mkdir(parents=True, exist_ok=True)
    replace_file(kept, whole.hexdigest().encode())
    return whole.hexdigest()


def _code_parts(code: CodeType) -> Iterator[str]:
    """What a function does, without where it stands."""
    yield f"{code.co_name} {code.co_code.hex()} {code.co_names}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_parts(constant)
        else:
            yield repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)


def _short_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
