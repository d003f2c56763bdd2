"""Draw the scores of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from dataset_builders.extras import require
from eval_harness.derive.metrics import METRICS
from eval_harness.records.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, GREY = "#2563eb", "#64748b"


def plot_scores(scores: pd.DataFrame, result: Result) -> Figure:
    """A point with its 95 % interval for each metric in percent that has a value, and a tick at chance; `scores`: as `Run.scores`."""
    require("matplotlib")
    from matplotlib import pyplot

    is_count = [name in METRICS and METRICS[name].unit == "count" for name in scores["metric"]]
    rows = scores[scores["value"].notna() & ~pd.Series(is_count, index=scores.index)]
    figure, axes = pyplot.subplots(figsize=(7, 1.2 + 0.32 * len(rows)), layout="constrained")
    places = range(len(rows))
    axes.hlines(places, rows["low"], rows["high"], color=BLUE)
    axes.plot(rows["value"], places, "o", color=BLUE, label="score, 95 % interval")
    axes.plot(rows["chance"], places, "|", color=GREY, markersize=14, label="chance")
    axes.set(yticks=places, yticklabels=rows["metric"], xlim=(-2, 102), xlabel="percent")
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    axes.set_title(f"{result.model.name} on {result.benchmark.name}")
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    pyplot.close(figure)  # a notebook shows the figure that is returned, and would show an open one once more
    return figure
