"""Load the back end that a `--model` argument names.

Baselines, recorded answers and the user's own objects are defined here; every other kind has a
module of its own. A model has a digest of its files or code (a recorded file, a plug-in's code, a
folder's weights), so that a run is never continued by a different model of the same name. Servers,
baselines and people have no digest, because only their names are known.

See also: what a back end may define (`Backend` in `interface.py`, `docs/plug_in.md`).
"""

import importlib.util
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any, cast

import pandas as pd

from dataset_builders.errors import BadInput, describe_error, require
from dataset_builders.hub.client import connect, http_status
from eval_harness.derive.reading import STATUS_BY_DELIVERY
from eval_harness.models.interface import (
    BACKEND_OPTIONS,
    MODEL_ARGS,
    Backend,
    PromptlessBackend,
    Settings,
    check_options,
    short_digest,
)
from eval_harness.records.baseline_rules import make_baseline
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model

PLUG_IN_DOCS = "See docs/plug_in.md."


def load_backend(model: str, settings: Settings) -> Backend:
    """Load the back end of a `--model` argument and set its `digest`.

    Args:
        model: The argument: a prefix with a name (`openai:NAME`), a file with a class
            (`my_model.py:MyModel`), or a model id or folder for transformers.
        settings: Options for running the model.

    Returns:
        The back end, ready to answer.

    Raises:
        BadInput: If there is no such model, or it does not support a setting.
    """
    kind, _, name = model.partition(":")
    if settings.engine and kind != "vllm" and ".py:" not in model:
        keys = ", ".join(sorted(settings.engine))
        raise BadInput(f"--model-args: --model {model} does not support {keys}. Available: {', '.join(MODEL_ARGS)}.")
    backend: Any
    match kind:
        case "baseline":
            backend = Baseline(name)
        case "recorded":
            from eval_harness.answer_files.harness_formats import find_reader
            from eval_harness.answer_files.untrusted import check_file

            backend = Recorded(Path(name))
            if find_reader(backend.path) is None:
                check_file(backend.path)  # in the words of `submit`, before the digest reads it
            backend.digest = short_digest(backend.path.read_bytes())
        case "human":
            from eval_harness.models.human_reader import HumanReader

            require("fastapi", "uvicorn")
            backend = HumanReader(name)
        case "openai" | "azure":
            from eval_harness.models.http.openai_chat import OpenAIChat

            backend = OpenAIChat(model.removeprefix("openai:"), settings)
        case _ if ".py:" in model:
            return load_plug_in(model, settings)
        case _:
            backend = _load_weights(model, settings)
    check_options(model, settings, backend.options)
    return cast(Backend, backend)


def _load_weights(model: str, settings: Settings) -> Backend:
    """Load a model for transformers, or for vLLM with the prefix `vllm:`. Raises BadInput."""
    kind, _, name = model.partition(":")
    if model.endswith(".py"):
        problem = f"there is no file {model}."
        if Path(model).is_file():
            problem = f"does not say which class of the file is the model. Add :ClassName, e.g. {model}:MyModel."
        raise BadInput(f"--model {model}: {problem}")
    # A folder's own name may contain a colon.
    if kind != "vllm" and name and not Path(model).exists():
        raise BadInput(
            f"--model {model}: there is no kind of model called {kind!r}. Give a transformers id "
            "or folder, vllm:ID, "
            "openai:NAME, azure:DEPLOYMENT, recorded:FILE, my_model.py:MyModel, human:NAME, or "
            "baseline:chance | always-A | oracle."
        )
    model_id = name if kind == "vllm" else model
    check_model_exists(model, model_id)
    from eval_harness.models.local.pretrained import weights_digest

    backend: Backend
    if kind == "vllm":
        from eval_harness.models.http.vllm_server import VllmServer

        backend = VllmServer(model_id, settings)
    else:
        from eval_harness.models.local.transformers_vlm import TransformersVLM

        backend = TransformersVLM(model_id, settings)
    # After loading: a model of the Hub is in the cache then.
    backend.digest = weights_digest(model_id, settings.adapter)
    return backend


def check_model_exists(model: str, name: str) -> None:
    """Check that a model for transformers or vLLM exists, and that transformers is installed.

    The Hub is queried once, and only if the model is not in the local cache. vLLM may be installed
    in another environment, so it is not checked here.

    Args:
        model: The `--model` argument, for the message.
        name: The model id or folder that `model` contains.

    Raises:
        BadInput: If there is neither such a folder nor a readable model on the Hub, the Hub cannot
            be reached, or transformers is missing.
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    if Path(name).exists():
        return
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise BadInput(f"--model {model}: there is no folder {name}.")
    if not model.startswith("vllm:"):
        require("torch", "transformers")
    try:
        validate_repo_id(name)
        if not isinstance(try_to_load_from_cache(name, "config.json"), str):
            connect().model_info(name, timeout=10)
    except Exception as error:  # an invalid id, or any failure between this machine and the Hub
        if isinstance(error, HFValidationError) or http_status(error) in (401, 403, 404):
            raise BadInput(
                f"--model {model}: there is no folder of this name, and no model on the Hub that "
                "you may read. Check its name; for a "
                "private or gated one, run `hf auth login`."
            ) from None
        raise BadInput(
            f"--model {model}: there is no folder of this name, and the Hub cannot be reached "
            f"({describe_error(error)})."
        ) from None


class Baseline(PromptlessBackend):
    """A baseline: guessing, a constant letter, or the answer key itself.

    Its scores put a model's score in context. See also: the rules (`records/baseline_rules.py`),
    runs of a model without the image (`runs/requests.py`).
    """

    def __init__(self, name: str) -> None:
        """Set up `chance`, `oracle` or `always-<letter>`. Raises BadInput for any other name."""
        display_name, self._answer = make_baseline(name)
        self.model = Model(name=display_name, kind="baseline", responder="oracle" if name == "oracle" else "guessing")
        self.deviations: list[str] = []

    def generate(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Answer each request by the rule, in order."""
        yield from map(self._answer, requests)


class Recorded(PromptlessBackend):
    """Recorded answers in a file of any supported format; call `read` before `generate`.

    A question without a record is `missing`; one whose record has no text is `failed`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: dict[tuple[str, int], dict[str, Any]] = {}
        """(question id, sample number) -> record."""
        self.model = Model(name=path.stem)
        self.deviations: list[str] = ["answers were recorded elsewhere; prompt and generation settings are not known"]

    def read(self, questions: pd.DataFrame) -> int:
        """Read the answers to the questions of a split.

        Answers to questions that the run does not ask are ignored.

        Args:
            questions: All questions of the split.

        Returns:
            The number of samples per question.

        Raises:
            BadInput: If the file has problems, such as a question that the split lacks; lists all
                of them.
        """
        from eval_harness.answer_files.harness_formats import read_answer_file

        predictions = read_answer_file(self.path, questions)
        predictions.problems.check(self.path)
        self.answers = {(row["question_id"], row["sample"]): row for row in predictions.rows}
        return predictions.samples

    def generate(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Yield the recorded answer of each request, in order."""
        for request in requests:
            row = self.answers.get((request.question_id, request.sample), {"response": "", "delivery": "missing"})
            status = STATUS_BY_DELIVERY[row["delivery"]]
            details: dict[str, Any] = {name: row.get(name) for name in ("seconds", "reasoning", "finish_reason")}
            error = None if status == "answered" else "no recorded answer"
            yield Response(request.question_id, request.sample, row["response"], status, error=error, **details)

    def describe(self) -> dict[str, Any]:
        return {"recorded_file": self.path.name}


def load_plug_in(model: str, settings: Settings) -> Backend:
    """Load the model that a user's own file defines.

    Args:
        model: FILE.py:NAME, where NAME is a class, or a function that returns an object. It is
            called with the settings if it takes any.
        settings: Settings of the run.

    Returns:
        The back end.

    Raises:
        BadInput: If the file cannot be run, does not define the name, or the object cannot
            generate.
    """
    file, _, name = model.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise BadInput(f"--model {model}: there is no file {file}.")
    # A module with a spec and an absolute path, as an import would make it.
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # Registered before it runs, as an import would: dataclasses look their module up.
    sys.modules[path.stem] = module
    try:
        # Compile the source here: the import system would reuse stale bytecode of a file with the
        # same size and modification second.
        source = path.read_bytes()
        exec(compile(source, path, "exec"), vars(module))
    except (Exception, SystemExit) as error:
        raise BadInput(f"--model {model}: {file} cannot be run ({type(error).__name__}: {error}).") from error
    if not hasattr(module, name):
        raise BadInput(f"--model {model}: {file} defines no {name}.")

    factory = getattr(module, name)
    try:
        takes_settings = any(map(_takes_settings, inspect.signature(factory).parameters.values()))
        plug_in = factory(settings) if takes_settings else factory()
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"--model {model}: {name} cannot be made ({type(error).__name__}: {error}).") from error
    backend = wrap_plug_in(
        plug_in,
        name,
        f"--model {model}",
        settings,
        default_options=BACKEND_OPTIONS if takes_settings else (),
    )
    # The file decides, not the object's class, which may be imported and made with other arguments.
    backend.digest = short_digest(source)
    return backend


def _takes_settings(parameter: inspect.Parameter) -> bool:
    """True for a parameter that receives the settings: one called `settings`, or a required one."""
    is_positional = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    return parameter.name == "settings" or (is_positional and parameter.default is parameter.empty)


def wrap_plug_in(
    plug_in: Any, name: str, label: str, settings: Settings, default_options: Collection[str] = ()
) -> Backend:
    """Wrap a user's object as a back end.

    The object needs only `generate(requests)`; other members of `Backend` get their defaults. It
    returns a Response for each request in any order, or a text for each in the requests' order.

    Args:
        plug_in: The object.
        name: Name of the model if the object's `model` is not a Model (in many objects it is the
            network).
        label: How messages refer to the object.
        settings: Settings of the run.
        default_options: The `BACKEND_OPTIONS` that the object supports, unless its own `options`
            lists them.

    Returns:
        The back end.

    Raises:
        BadInput: If the object cannot generate or does not support a setting that is given.
    """
    if isinstance(plug_in, type):
        raise BadInput(f"{label}: is a class. Give an object of it: {plug_in.__name__}(...).")
    if not callable(getattr(plug_in, "generate", None)):
        raise BadInput(f"{label}: has no generate(requests). {PLUG_IN_DOCS}")
    if inspect.iscoroutinefunction(plug_in.generate):
        raise BadInput(
            f"{label}: generate is asynchronous. Give a plain function, which may use asyncio.run. {PLUG_IN_DOCS}"
        )
    deviations = getattr(plug_in, "deviations", [])
    if not isinstance(deviations, list) or not all(isinstance(deviation, str) for deviation in deviations):
        raise BadInput(f"{label}: `deviations` must be a list of strings. {PLUG_IN_DOCS}")
    supported = getattr(plug_in, "options", None)
    check_options(
        label.removeprefix("--model "),
        settings,
        default_options if supported is None else supported,
    )
    return cast(Backend, _PlugIn(plug_in, name, label))


class _PlugIn:
    """A user's object, with the defaults of `Backend` for attributes that it lacks."""

    def __init__(self, plug_in: Any, name: str, label: str) -> None:
        self.plug_in, self._label = plug_in, label
        self.digest: str | None = code_digest(plug_in)
        model = getattr(plug_in, "model", None)
        self.model = model if isinstance(model, Model) else Model(name=name)
        if not hasattr(plug_in, "deviations"):
            self.deviations: list[str] = []

    takes_stream = False

    def __getattr__(self, name: str) -> Any:
        default = (_PLUG_IN_DEFAULTS[name],) if name in _PLUG_IN_DEFAULTS else ()
        return getattr(self.plug_in, name, *default)

    def generate(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Yield the object's responses, or its texts as responses to the requests in order.

        Texts are used only once there is exactly one for each request.

        Args:
            requests: The requests.

        Yields:
            Responses as the object yields them.

        Raises:
            BadInput: If nothing was returned that could contain an answer.
            ValueError: If the number of texts differs from the number of requests. As after any
                exception of a model, the runner then sends the requests again in smaller batches.
        """
        output = self.plug_in.generate(list(requests))
        if output is None or isinstance(output, str | Response | Mapping):
            returned = "nothing" if output is None else f"one {type(output).__name__}"
            raise BadInput(
                f"{self._label}: generate(requests) returned {returned}, not a response for each "
                f"request. {PLUG_IN_DOCS}"
            )
        texts: list[str] = []
        for reply in output:
            if isinstance(reply, str):
                texts.append(reply)
            else:
                yield reply
            if len(texts) > len(requests):  # a generator may be endless
                break
        if texts and len(texts) != len(requests):
            raise ValueError(f"generate returned {len(texts)} texts for {len(requests)} requests ({PLUG_IN_DOCS[:-1]})")
        for request, text in zip(requests, texts, strict=False):
            yield Response(request.question_id, request.sample, text)


_PLUG_IN_DEFAULTS = {
    "describe": dict,
    "several_images": False,
    "order": lambda questions: None,
    "close": lambda: None,
    **{
        name: getattr(Backend, name)
        for name in ("needs_images", "one_token", "sees_prompts", "is_local", "uses_http", "template_hash")
    },
}


def code_digest(plug_in: Any) -> str:
    """Digest the code of an object's class: its methods' bytecode and its source file.

    A class defined in a notebook has no source file; then only the bytecode is digested.
    """
    functions = [value for value in vars(type(plug_in)).values() if hasattr(value, "__code__")]
    code = "\n".join(part for function in functions for part in _code_parts(function.__code__)).encode()
    with suppress(OSError, TypeError):
        code += Path(inspect.getfile(type(plug_in))).read_bytes()
    return short_digest(code)


def _code_parts(code: CodeType) -> Iterator[str]:
    """Yield a function's bytecode, names and constants, without file names and line numbers."""
    yield f"{code.co_name} {code.co_code.hex()} {code.co_names}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_parts(constant)
        else:
            # The order of a frozenset's elements changes between processes.
            yield repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)


class CachingLoader:
    """A `load_backend` that keeps the most recent local model loaded.

    The next run with the same model and settings gets it as if freshly loaded. Back ends of servers
    are cheap to make and remember what their server supports, so a new one is made.

    Args:
        load: The function that loads a back end.
    """

    def __init__(self, load: Callable[[str, Settings], Backend] = load_backend) -> None:
        self._load = load
        self._kept: tuple[str, Settings, Backend, list[str]] | None = None
        """Model, settings, back end, and the deviations that it had when it was loaded."""

    def __call__(self, model: str, settings: Settings) -> Backend:
        """Return the back end of a `--model` argument. Raises BadInput as `load_backend` does."""
        if self._kept is not None and self._kept[:2] == (model, settings):
            _, _, backend, deviations = self._kept
            backend.deviations[:] = deviations
            return backend

        self.close()  # before loading the next one: two may not fit into memory
        backend = self._load(model, settings)
        if backend.is_local:
            self._kept = model, settings, backend, list(backend.deviations)
        return backend

    def close(self) -> None:
        """Release the model that is kept."""
        if self._kept is not None:
            self._kept[2].close()
            self._kept = None
