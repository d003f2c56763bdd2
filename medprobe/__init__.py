"""The Python API: reliability benchmarks for medical vision-language models.

docs/api.md describes every name with an example. Names are imported on their first use, so `import
medprobe` alone loads no library.
"""

import re
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataset_builders.build import build as build
    from dataset_builders.errors import BadInput as BadInput
    from dataset_builders.hub.publish import publish as publish
    from dataset_builders.hub.repository import open_repository
    from eval_harness.reader import read_choice as read_choice
    from eval_harness.records.request import Request as Request, Response as Response
    from eval_harness.records.result import Model as Model
    from medprobe.runs import evaluate as evaluate, load_run as load_run
    from medprobe.stores import compare as compare, load_results as load_results, submit as submit, why as why

    open_dataset = open_repository

__version__ = "0.1.0"

_HOMES = {
    "build": "dataset_builders.build:build",
    "publish": "dataset_builders.hub.publish:publish",
    "open_dataset": "dataset_builders.hub.repository:open_repository",
    "evaluate": "medprobe.runs:evaluate",
    "load_run": "medprobe.runs:load_run",
    "compare": "medprobe.stores:compare",
    "why": "medprobe.stores:why",
    "submit": "medprobe.stores:submit",
    "load_results": "medprobe.stores:load_results",
    "read_choice": "eval_harness.reader:read_choice",
    "Model": "eval_harness.records.result:Model",
    "Request": "eval_harness.records.request:Request",
    "Response": "eval_harness.records.request:Response",
    "BadInput": "dataset_builders.errors:BadInput",
}
"""Public name -> module and attribute that define it."""

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a name when it is first used."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value = getattr(import_module(module), attribute)
    # Classes are not wrapped, so that isinstance works.
    globals()[name] = value if isinstance(value, type) else _in_python(value)
    return globals()[name]


_OPTION = re.compile(r"--([a-z][a-z-]+)")


def _in_python(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that its errors use the names of Python: base_url, not --base-url."""
    from dataset_builders.errors import BadInput

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except BadInput as error:
            message = str(error).replace("the same command", "evaluate with this folder as out")
            # Text in backticks is a command to type, and is left as it is.
            parts = message.replace("--no-resume", "resume=False").split("`")
            parts[::2] = [_OPTION.sub(lambda option: option[1].replace("-", "_"), part) for part in parts[::2]]
            error.args = ("`".join(parts),)
            raise

    return call


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
