"""Compute scores from units: value, interval, chance and verdict, for all units or any subset.

See also: what a unit of a metric is (the benchmark modules), the statistics (`intervals.py`).
"""

import numpy as np
import pandas as pd

from eval_harness.benchmarks.spec import MetricInfo
from eval_harness.derive.metrics import BALANCED_METRICS, METRICS
from eval_harness.records.result import Score
from eval_harness.scores.grading import (
    RESPONSE_COUNT_COLUMNS,
    UNSETTLED_COLUMN,
    apply_nonresponse,
    decisive_nonresponse,
    numerator_if_lost_right,
)
from eval_harness.scores.intervals import round_number, score_ratio

DEFAULT_METRIC_INFO = MetricInfo("", "")
"""Used for a metric that no benchmark defines: percent, higher is better."""


def summarise_units(units: pd.DataFrame, official: bool = False) -> dict[str, Score]:
    """Compute the score of each metric among units.

    A percentage is 100 x sum(numerator) / sum(denominator); a count metric is sum(numerator),
    without an interval. A verdict that depends on absent answers is withheld. If most responses
    contain no answer (`nonresponse`), the value is withheld, too, except for metrics of nonresponse
    and for a paper's `official` reader, which counts every response.

    Args:
        units: Rows of `derive.scoring.compute_units`, any subset.
        official: Whether the paper's own reader read the answers.

    Returns:
        Metric -> score, in order of first appearance.
    """
    return _grouped(units, np.zeros(len(units), np.int64), official).get(0, {})


def break_down_by_facet(
    units: pd.DataFrame, facets: tuple[str, ...], official: bool = False
) -> dict[str, dict[str, dict[str, Score]]]:
    """Compute the scores of `summarise_units` per facet value.

    Args:
        units: Rows of `derive.scoring.compute_units`.
        facets: Facets to break down by. Units without a value are left out; units with a list count
            once per label.
        official: Whether the paper's own reader read the answers.

    Returns:
        Facet -> facet value -> metric -> score.
    """
    result: dict[str, dict[str, dict[str, Score]]] = {}
    for facet in facets:
        if facet not in units.columns:
            continue
        # A unit with several labels counts under each of them.
        by_label = explode_facet(units, facet)
        if len(by_label):
            codes, labels = pd.factorize(by_label[facet], sort=True)
            grouped = _grouped(_balanced(by_label, codes), codes.astype(np.int64), official)
            result[facet] = {str(label): grouped[index] for index, label in enumerate(labels)}
    return result


def _balanced(units: pd.DataFrame, group: np.ndarray) -> pd.DataFrame:
    """Reweight the units of BALANCED_METRICS as if each group (U,) were the whole set."""
    numbers = units[["numerator", "denominator", "chance"]].to_numpy(float, copy=True)
    for metric, facet in BALANCED_METRICS.items():
        rows = np.flatnonzero(units["metric"] == metric)
        if not len(rows):
            continue
        label = units[facet].iloc[rows]
        if METRICS[metric].unit == "count":
            numbers[rows, 0] *= label.nunique() / label.groupby(group[rows]).transform("nunique").to_numpy(float)
        else:
            base = pd.Series(numbers[rows, 1]).groupby([group[rows], label.to_numpy()]).transform("sum")
            numbers[rows] /= base.to_numpy()[:, None]
    return units.assign(numerator=numbers[:, 0], denominator=numbers[:, 1], chance=numbers[:, 2])


def _grouped(units: pd.DataFrame, group: np.ndarray, official: bool) -> dict[int, dict[str, Score]]:
    """Compute scores per group number (U,) and metric."""
    metric, names = pd.factorize(units["metric"])
    columns = {name: units[name].to_numpy(float) for name in ("numerator", "denominator", "chance", UNSETTLED_COLUMN)}
    columns |= {name: units[name].to_numpy(np.int64) for name in ("case", "cluster", "count", *RESPONSE_COUNT_COLUMNS)}
    # Sort once by (group, metric), so that each cell is a slice.
    key = group * len(names) + metric
    order = np.argsort(key, kind="stable")
    bounds = np.flatnonzero(np.diff(key[order], prepend=-1, append=-2)) if len(order) else np.zeros(0, np.int64)
    columns = {name: values[order] for name, values in columns.items()}
    result: dict[int, dict[str, Score]] = {}
    for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        index, metric_index = divmod(int(key[order[start]]), len(names))
        name = str(names[metric_index])
        info = METRICS.get(name, DEFAULT_METRIC_INFO)
        cell = {column: values[start:stop] for column, values in columns.items()}
        scored, verdict_holds = _score(info, cell), True
        if cell[UNSETTLED_COLUMN].any():
            best_case = numerator_if_lost_right(cell["numerator"], cell["denominator"], cell[UNSETTLED_COLUMN])
            verdict_holds = _score(info, cell | {"numerator": best_case}).verdict == scored.verdict
        nonresponse = decisive_nonresponse([cell[count].sum() for count in RESPONSE_COUNT_COLUMNS], verdict_holds)
        result.setdefault(index, {})[name] = apply_nonresponse(scored, nonresponse, official or info.of_ends)
    return result


def explode_facet(units: pd.DataFrame, facet: str) -> pd.DataFrame:
    """Expand units to one row per label of a facet; rows without a label are dropped.

    A MediConfusion pair carries the labels of both its images, so a pair of two Cerebral images
    counts twice, as in the paper's Table 2.

    Args:
        units: Rows of `derive.scoring.compute_units`.
        facet: Column with the labels.
    """
    column = units[facet]
    if facet == "category":
        units = units.explode(facet)
        column = units[facet]
    return units[column.notna()]


def _score(info: MetricInfo, columns: dict[str, np.ndarray]) -> Score:
    numerator, denominator, cluster = (columns[name] for name in ("numerator", "denominator", "cluster"))
    # Units that can score nothing (denominator 0) do not count as cases.
    counts = denominator > 0
    cases = len(np.unique(columns["case"][counts]))
    n = int(columns["count"][counts].sum())
    if info.unit == "count":
        return Score(value=round_number(float(numerator.sum())), n=n, n_cases=cases)
    guessed, chance = columns["chance"][counts], None
    if len(guessed) and np.isfinite(guessed).all():
        chance = round_number(100 * float(guessed.sum()) / float(denominator.sum()))
    return score_ratio(numerator, denominator, cluster, n, cases, chance, info.higher_is_better)
