"""A model of the user's own as a back end: an object with `generate`, or the class or function in a Python file that makes one."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from dataset_builders.errors import BadInput
from eval_harness.models.interface import OPTIONS, Backend, Settings, check_options
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model

GUIDE = "See docs/plug_in.md."


def plug_in(made: Any, name: str, called: str, settings: Settings, told: Collection[str] = ()) -> Backend:
    """An object as a back end; it needs only `generate(requests)`, and what else `Backend` has is filled in where it is missing.

    `generate` gives a Response for each request in any order, or a text for each in the requests' order. `name`: the model's, where the
    object has no `model` of the type Model (many have a network of that name). `called`: how messages name it. `told`: the settings of
    `OPTIONS` that the object honours unless it names them in `options`.
    Raises BadInput where it cannot generate, or does not honour an option that was given.
    """
    if isinstance(made, type):
        raise BadInput(f"{called}: is a class. Give an object of it: {made.__name__}(...).")
    if not callable(getattr(made, "generate", None)):
        raise BadInput(f"{called}: has no generate(requests). {GUIDE}")
    if inspect.iscoroutinefunction(made.generate):
        raise BadInput(f"{called}: generate is asynchronous. Give a plain function, which may use asyncio.run. {GUIDE}")
    words = getattr(made, "deviations", [])
    if not isinstance(words, list) or not all(isinstance(each, str) for each in words):
        raise BadInput(f"{called}: its deviations are no list of texts. {GUIDE}")
    honoured = getattr(made, "options", None)
    check_options(called.removeprefix("--model "), settings, told if honoured is None else honoured)
    return cast(Backend, _PlugIn(made, name, called))


def load_plug_in(model: str, settings: Settings) -> Backend:
    """The model that a user's own file defines: a class, or a function that returns an object, called with the settings.

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
    try:
        made = getattr(module, name)(settings)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"--model {model}: {name} cannot be made ({type(error).__name__}: {error}).") from error
    return plug_in(made, name, f"--model {model}", settings, told=OPTIONS)


class _PlugIn:
    """What the object has, and the defaults of `Backend` for what it has not."""

    def __init__(self, made: Any, name: str, called: str) -> None:
        self.made, self._called = made, called
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
        be answered all the same. Raises BadInput where nothing was given that could hold an answer.
        """
        given = self.made.generate(list(requests))
        if given is None or isinstance(given, str | Response | Mapping):
            what = "nothing" if given is None else f"one {type(given).__name__}"
            raise BadInput(
                f"{self._called}: generate(requests) returned {what}, not a response for each request. {GUIDE}"
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
                raise TypeError(f"generate gave texts among responses ({GUIDE[:-1]})")
            if len(texts) > len(requests):  # they may have no end
                break
        if texts and len(texts) != len(requests):
            raise ValueError(f"generate gave {len(texts)} texts for {len(requests)} requests ({GUIDE[:-1]})")
        for request, text in zip(requests, texts, strict=False):
            yield Response(request.question_id, request.sample, text)


_DEFAULTS = {
    "needs_images": True,
    "one_token": True,
    "describe": dict,
    "several_images": False,
    **{name: getattr(Backend, name) for name in ("sees_prompts", "is_api", "template_hash")},
}
