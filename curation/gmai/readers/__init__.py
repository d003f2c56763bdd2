"""One reader per format. A reader is a function `units(dataset, settings) -> (units, skips)`: the pieces that can be read one by one,
and what is left out before anything is read. A unit's `load` gives its pictures, or raises `Skipped` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from curation.gmai.pictures.targets import Skip, Unit
from curation.gmai.sources import Dataset, Sources

Reader = Callable[[Dataset, Sources], tuple[list[Unit], list[Skip]]]
MODULES = {"csv": "tables", "boxes": "tables"}
"""Reader -> its module where that has another name; the function is `units`, or `<reader>_units` where a module has several."""


def units_of(dataset: Dataset, sources: Sources) -> tuple[list[Unit], list[Skip]]:
    """The units of a dataset, read by its reader. Raises BadInput where its files cannot be understood at all."""
    module = import_module(f"curation.gmai.readers.{MODULES.get(dataset.reader, dataset.reader)}")
    reader: Reader = getattr(module, f"{dataset.reader}_units", None) or module.units
    return reader(dataset, sources)
