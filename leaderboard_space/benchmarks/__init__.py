"""Board-specific declarations of each benchmark, one module each."""

from collections.abc import Iterable
from functools import cache

from dataset_builders.benchmarks import FORMATS
from dataset_builders.benchmarks import spec as dataset_spec
from dataset_builders.benchmarks.spec import load_spec, module_name
from leaderboard_space.benchmarks.spec import BoardSpec


@cache
def board_spec(name: str) -> BoardSpec:
    """Load the board's declarations of a benchmark; without a module, only its title."""
    if name not in FORMATS:
        return BoardSpec(label=name)
    try:
        return load_spec(__name__, name, BoardSpec)
    except ModuleNotFoundError as error:
        if error.name != module_name(__name__, name):
            raise
        return BoardSpec(label=dataset_spec(name).card.title)


BENCHMARK_LABELS: dict[str, str] = {name: board_spec(name).label for name in FORMATS}
"""Benchmark -> display name."""


def gives_away(family: str, metric: str, facets: Iterable[str]) -> bool:
    """Return True if labels of one of these facets are the answer to a metric's questions."""
    return not set(board_spec(family).given_away.get(metric, ())).isdisjoint(facets)


def branch_chains(name: str) -> tuple[tuple[str, ...], ...]:
    """Return the facet chains of a benchmark's tree, each from trunk to leaves."""
    chains = board_spec(name).chains
    if chains is not None:
        return chains
    return tuple((facet,) for facet in dataset_spec(name).facets) if name in FORMATS else ()
