"""The benchmarks, one package each; no code outside these packages names one.

To add a benchmark, write its package and add its name to `benchmark_names.py`. The modules of the
same name in `eval_harness` and `leaderboard_space` are then found automatically.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from dataset_builders.benchmark_names import BENCHMARKS
from dataset_builders.benchmarks.spec import DatasetSpec, load_spec, module_name
from dataset_builders.schema import COMMON_COLUMNS, EXTRA_IMAGE_COLUMNS, ColumnType


def spec(name: str) -> DatasetSpec:
    """Load the spec of a benchmark.

    Args:
        name: name of the benchmark.

    Raises:
        KeyError: the name is unknown.
    """
    if name not in BENCHMARKS:
        raise KeyError(f"{name!r} is not a benchmark; there are {', '.join(BENCHMARKS)}")
    return load_spec(__name__, name, DatasetSpec)


def load_benchmark_module(name: str, module: str) -> ModuleType:
    """Load a module of a benchmark's package: `reader` (with `read`) or `phantoms` (with `write`).

    Args:
        name: name of the benchmark.
        module: name of the module.
    """
    return importlib.import_module(f"{module_name(__name__, name)}.{module}")


FACETS_BY_BENCHMARK: dict[str, tuple[str, ...]] = {name: spec(name).facets for name in BENCHMARKS}
"""Benchmark -> `DatasetSpec.facets`."""

DEFAULT_SPLITS: dict[str, str] = {name: spec(name).default_split for name in BENCHMARKS}

RELEASED_FINGERPRINTS: dict[tuple[str, str], str] = {
    (name, split): mark for name in BENCHMARKS for split, mark in spec(name).released.items()
}
"""(benchmark, split) -> fingerprint of the complete released set."""


def question_columns(name: str) -> dict[str, ColumnType]:
    """Return every column that a benchmark's questions may have.

    A repository has those with values (`parquet.used_columns`).
    """
    return {**COMMON_COLUMNS, **spec(name).columns, **EXTRA_IMAGE_COLUMNS}
