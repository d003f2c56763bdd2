"""Board-specific declarations of each benchmark, one module each; names of metrics and methods."""

from collections.abc import Iterable
from functools import cache, lru_cache

from dataset_builders.benchmarks import FORMATS, spec as dataset_spec
from dataset_builders.benchmarks.spec import load_spec, module_name
from eval_harness.benchmarks import eval_spec
from eval_harness.benchmarks.spec import MetricInfo
from eval_harness.derive.metrics import METRICS
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


ONLY_PRINTED: dict[str, MetricInfo] = {
    "set_accuracy_std": MetricInfo("Set accuracy, std", "Standard deviation of set accuracy over samples.", False),
    "total_irrelevant": MetricInfo("Irrelevant, total", "Responses that name no option (a count).", False, "count"),
    "refused_of_errors": MetricInfo(
        "Refused, of the errors", "Share of the errors on this step that say neither yes nor no.", False
    ),
}
"""Metrics that papers print and we do not compute, and `refused_of_errors`
(ProbMed's Table 6)."""

METHOD_TITLES = {
    "best": "best over methods",
    "mc": "multiple choice",
    "gd": "greedy decoding",
    "ps": "prefix scoring",
    "ff": "free form",
}
"""Method -> display name."""


def method_name(name: str) -> str:
    """Return the display name of a method."""
    return METHOD_TITLES.get(name, name)


@lru_cache(maxsize=1000)
def metric_info(metric: str, family: str = "") -> MetricInfo:
    """Describe a metric of a benchmark; unknown metrics are described by their name alone."""
    benchmark_metric = eval_spec(family).metrics.get(metric) if family in FORMATS else None
    return (
        benchmark_metric
        or METRICS.get(metric)
        or ONLY_PRINTED.get(metric)
        or MetricInfo(metric.replace("_", " "), "", None)
    )
