"""Models of the user: an object with `generate`, or a class or function in a Python file.

See also: what such an object may define (`Backend` in `interface.py`, `docs/plug_in.md`).
"""

import importlib.util
import inspect
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any, cast

from dataset_builders.errors import BadInput
from eval_harness.models.interface import BACKEND_OPTIONS, Backend, Settings, check_options, short_digest
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model

PLUG_IN_DOCS = "See docs/plug_in.md."


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
        try:
            return getattr(self.plug_in, name)
        except AttributeError:
            if name in _DEFAULTS:
                return _DEFAULTS[name]
            raise

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


_DEFAULTS = {
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
