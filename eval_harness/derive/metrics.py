"""Labels, descriptions, directions and units of all metrics. A benchmark's own are in its package (`benchmarks/`)."""

from __future__ import annotations

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.schema import LETTERS
from eval_harness.benchmarks import spec
from eval_harness.benchmarks.spec import MetricInfo

HEADLINE: dict[str, str] = {name: spec(name).headline for name in BENCHMARKS}
"""The metric a benchmark is sorted by."""

_EVERYWHERE = {
    "irrelevant": MetricInfo(
        "Irrelevant", "Responses in which no option could be read, of all responses asked for.", False, of_ends=True
    ),
    "refused": MetricInfo(
        "Refused", "Responses that decline to answer, of all responses asked for.", False, of_ends=True
    ),
    "abstained": MetricInfo(
        "Abstained",
        "Responses without a choice for any reason (refused, cut off, failed, missing, unreadable), of all responses asked for.",
        None,
        of_ends=True,
    ),
    "answered_accuracy": MetricInfo(
        "Accuracy where answered",
        "Questions with one right option answered correctly, of those for which an option was chosen: an abstention is neither right nor "
        "wrong.",
    ),
}

_SHARES = {
    f"share_{letter}": MetricInfo(f"Share of {letter}", f"Answers that choose {letter}, of the answers read.", None)
    for letter in LETTERS
} | {
    "share_yes": MetricInfo("Share of yes", "Answers that say yes, of the answers read.", None),
    "share_no": MetricInfo("Share of no", "Answers that say no, of the answers read.", None),
}

METRICS: dict[str, MetricInfo] = {}
for _name in BENCHMARKS:
    for _metric, _info in spec(_name).metrics.items():
        METRICS.setdefault(_metric, _info)
METRICS |= {**_EVERYWHERE, **_SHARES}
"""Every metric by name; where two benchmarks have a metric of one name, the first one's (`spec(benchmark).metrics` has each)."""
BALANCED = {"average": "scenario", "average_irrelevant": "scenario", "accuracy_macro_task": "task"}
"""Metrics that are means over the values of a facet: of a part of the questions, every value still there weighs the same."""
