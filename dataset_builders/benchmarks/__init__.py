"""The benchmarks, one package each; no code outside these packages names one.

To add a benchmark, write its package and add its name to `benchmark_names.py`. The modules of the
same name in `eval_harness` and `leaderboard_space` are then found automatically.
"""

import importlib
from collections.abc import Iterable
from types import ModuleType

from dataset_builders.benchmark_names import BENCHMARKS as BENCHMARKS, FORMATS as FORMATS
from dataset_builders.benchmarks.spec import DatasetSpec, load_spec, module_name
from dataset_builders.schema import COMMON_COLUMNS, EXTRA_IMAGE_COLUMNS, ColumnType


def spec(name: str) -> DatasetSpec:
    """Load the spec of a benchmark.

    Args:
        name: name of the benchmark.

    Raises:
        KeyError: the name is unknown.
    """
    if name not in FORMATS:
        raise KeyError(f"{name!r} is not a benchmark; there are {', '.join(FORMATS)}")
    return load_spec(__name__, name, DatasetSpec)


def load_benchmark_module(name: str, module: str) -> ModuleType:
    """Load a module of a benchmark's package: `reader` (with `read`) or `phantoms` (with `write`).

    Args:
        name: name of the benchmark.
        module: name of the module.
    """
    return importlib.import_module(f"{module_name(__name__, name)}.{module}")


FACETS_BY_BENCHMARK: dict[str, tuple[str, ...]] = {name: spec(name).facets for name in FORMATS}
"""Format -> `DatasetSpec.facets`; see `facets_of`."""

DEFAULT_SPLITS: dict[str, str] = {name: spec(name).default_split for name in FORMATS}

RELEASED_FINGERPRINTS: dict[tuple[str, str], str] = {
    (name, split): mark for name in FORMATS for split, mark in spec(name).released.items()
}
"""(benchmark, split) -> fingerprint of the complete released set."""


def question_columns(name: str) -> dict[str, ColumnType]:
    """Return every column that a benchmark's questions may have.

    A repository has those with values (`parquet.used_columns`).
    """
    return {**COMMON_COLUMNS, **spec(name).columns, **EXTRA_IMAGE_COLUMNS}


DECLARED_COLUMNS = frozenset(name for family in FORMATS for name in question_columns(family))


def free_facets(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the columns that no format declares: each is a facet of its own set."""
    return tuple(name for name in columns if name not in DECLARED_COLUMNS)


def facets_of(family: str, columns: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the facets of a set: those of its format, and its own.

    Args:
        family: the format.
        columns: columns of the set's questions.
    """
    declared = question_columns(family) if family in FORMATS else DECLARED_COLUMNS
    return (*FACETS_BY_BENCHMARK.get(family, ()), *(name for name in columns if name not in declared))
