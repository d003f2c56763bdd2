"""Imports Gradio without its analytics, and without the documentation that it makes of itself.

Whenever it is imported, Gradio makes a type stub of each of its components and compares it with the one beside the component's source, and
fills in the docstring of every event of every component: three of the board's seconds of start, and nothing here reads them. It has no
switch for that. Whoever needs Gradio takes it from here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import reduce
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

__all__ = ["get_space", "get_upload_folder", "gr"]
DOCUMENTING = {"gradio.events": "EventListener.set_doc", "gradio.component_meta": "create_or_modify_pyi"}
"""Module -> its function that only documents."""


class _Undocumented(MetaPathFinder):
    """Finds these modules as Python does, and replaces the function once its module is executed, before any component is declared."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in DOCUMENTING else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                *owner, function = DOCUMENTING[name].split(".")
                setattr(reduce(getattr, owner, module), function, _nothing)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _nothing(*_: Any, **__: Any) -> None:
    return


os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # read when it is imported: the board calls nobody
_finder = _Undocumented()
sys.meta_path.insert(0, _finder)
try:
    import gradio as gr
    from gradio.utils import get_space, get_upload_folder
finally:
    sys.meta_path.remove(_finder)
