"""The benchmarks, one package each; nothing outside these packages names one.

To add one, write its package and add its name to `benchmark_names.py`; the folders of the same name in `eval_harness` and
`leaderboard_space` are found by it.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from dataset_builders.benchmark_names import BENCHMARKS
from dataset_builders.benchmarks.spec import DatasetSpec, load_spec, module_name
from dataset_builders.schema import COMMON_COLUMNS, EXTRA_IMAGE_COLUMNS, ColumnType


def spec(name: str) -> DatasetSpec:
    """The spec of a benchmark, from its package. Raises KeyError for an unknown name."""
    if name not in BENCHMARKS:
        raise KeyError(f"{name!r} is not a benchmark; there are {', '.join(BENCHMARKS)}")
    return load_spec(__name__, name, DatasetSpec)


def load_benchmark_module(name: str, module: str) -> ModuleType:
    """A module of a benchmark's package: `reader` (with `read`), `phantoms` (with `write`)."""
    return importlib.import_module(f"{module_name(__name__, name)}.{module}")


FACETS_BY_BENCHMARK: dict[str, tuple[str, ...]] = {name: spec(name).facets for name in BENCHMARKS}
"""Benchmark -> `DatasetSpec.facets`."""

DEFAULT_SPLITS: dict[str, str] = {name: spec(name).default_split for name in BENCHMARKS}

RELEASED_FINGERPRINTS: dict[tuple[str, str], str] = {
    (name, split): mark for name in BENCHMARKS for split, mark in spec(name).released.items()
}
"""(benchmark, split) -> fingerprint of the complete released set."""


def question_columns(name: str) -> dict[str, ColumnType]:
    """Every column that a question of a benchmark may have; a repository has those of which it has values (`parquet.used_columns`)."""
    return {**COMMON_COLUMNS, **spec(name).columns, **EXTRA_IMAGE_COLUMNS}
