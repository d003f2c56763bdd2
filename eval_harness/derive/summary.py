"""Compute scores from units: value, interval, chance and verdict of every metric, for all units or any subset.

See also: what a unit of a metric is (the benchmark modules), the statistics (`intervals.py`).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from eval_harness.benchmarks.spec import MetricInfo
from eval_harness.derive.metrics import BALANCED_METRICS, METRICS
from eval_harness.records.result import Score
from eval_harness.scores.clustered import renumber_labels
from eval_harness.scores.intervals import INTERVAL_METHOD, clustered_interval, verdict_against_chance
from eval_harness.scores.nonresponse import (
    RESPONSE_COUNT_COLUMNS,
    UNSETTLED_COLUMN,
    apply_nonresponse,
    decisive_nonresponse,
    numerator_if_lost_right,
)

UNKNOWN = MetricInfo("", "")
"""Default for a metric that no benchmark defines: percent, and higher is better."""
Known = dict[tuple[object, ...], Score]
"""Inputs of a score -> the score. More than half of a breakdown's cells hold the same units in the same clusters as others:
metrics that nothing speaks for, labels of one question, labels that go together."""


def summarise_units(units: pd.DataFrame, official: bool = False) -> dict[str, Score]:
    """The score of each metric among `units` (see `derive.scoring.units`; any subset of its rows), in order of first appearance.

    Percent = 100 x sum(numerator) / sum(denominator); a metric that is a count is sum(numerator), without interval. A verdict that depends
    on answers that are not there is left out, and where most say nothing (`nonresponse`) the value, too, but of metrics that count how
    responses ended, and of those of a paper's `official` reader, which count every response.
    """
    return _grouped(units, np.zeros(len(units), np.int64), {}, official).get(0, {})


def break_down_by_facet(
    units: pd.DataFrame, facets: tuple[str, ...], official: bool = False
) -> dict[str, dict[str, dict[str, Score]]]:
    """Facet -> facet value -> metric -> Score, as `summarise` gives it. Units without a value are left out; list facets count once per
    label."""
    result: dict[str, dict[str, dict[str, Score]]] = {}
    known: Known = {}
    for facet in facets:
        if facet not in units.columns:
            continue
        by_label = explode_facet(units, facet)
        if len(by_label):
            codes, labels = pd.factorize(by_label[facet], sort=True)
            grouped = _grouped(_balanced(by_label, codes), codes.astype(np.int64), known, official)
            result[facet] = {str(label): grouped[index] for index, label in enumerate(labels)}
    return result


def _balanced(units: pd.DataFrame, group: np.ndarray) -> pd.DataFrame:
    """The units, with those of BALANCED metrics reweighted as if each group (U,) were the whole set."""
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


def _grouped(units: pd.DataFrame, group: np.ndarray, known: Known, official: bool) -> dict[int, dict[str, Score]]:
    """Scores per group number (U,) and metric. `known` holds those computed so far, and takes the new ones."""
    metric, names = pd.factorize(units["metric"])
    columns = {name: units[name].to_numpy(float) for name in ("numerator", "denominator", "chance", UNSETTLED_COLUMN)}
    columns |= {"count": units["count"].to_numpy(np.int64), "cluster": units["cluster"].to_numpy()}
    columns |= {name: units[name].to_numpy(np.int64) for name in RESPONSE_COUNT_COLUMNS}
    columns["case"] = units["case"].to_numpy() if "case" in units.columns else pd.factorize(units["case_id"])[0]
    key = group * len(names) + metric
    order = np.argsort(key, kind="stable")
    bounds = np.flatnonzero(np.diff(key[order], prepend=-1, append=-2)) if len(order) else np.zeros(0, np.int64)
    columns = {name: values[order] for name, values in columns.items()}
    result: dict[int, dict[str, Score]] = {}
    for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        index, which = divmod(int(key[order[start]]), len(names))
        name = str(names[which])
        info = METRICS.get(name, UNKNOWN)
        part = {column: values[start:stop] for column, values in columns.items()}
        part |= {column: renumber_labels(part[column]) for column in ("case", "cluster")}
        same = (info.unit, info.higher_is_better, info.of_ends, *(values.tobytes() for values in part.values()))
        if same not in known:
            scored, stands = _score(info, part), True
            if part[UNSETTLED_COLUMN].any():
                best = numerator_if_lost_right(part["numerator"], part["denominator"], part[UNSETTLED_COLUMN])
                stands = _score(info, part | {"numerator": best}).verdict == scored.verdict
            silent = decisive_nonresponse([part[count].sum() for count in RESPONSE_COUNT_COLUMNS], stands)
            known[same] = apply_nonresponse(scored, silent, official or info.of_ends)
        result.setdefault(index, {})[name] = known[same].model_copy()
    return result


def explode_facet(units: pd.DataFrame, facet: str) -> pd.DataFrame:
    """One row per unit and label of a facet; rows without a label are dropped.

    A MediConfusion pair carries the labels of both its images, so one with two Cerebral images counts twice, as in Table 2.
    """
    column = units[facet]
    if facet == "category":
        units = units.explode(facet)
        column = units[facet]
    return units[column.notna()]


def _score(info: MetricInfo, columns: dict[str, np.ndarray]) -> Score:
    top, base, expected = columns["numerator"], columns["denominator"], columns["chance"]
    counted = base > 0
    cases = int(renumber_labels(columns["case"][counted]).max(initial=-1)) + 1
    n = int(columns["count"][counted].sum())
    if info.unit == "count":
        return Score(value=_round(float(top.sum())), n=n, n_cases=cases)
    total = float(base.sum())
    if total <= 0:
        return Score(value=None, n=0, n_cases=0)
    interval = clustered_interval(top, base, columns["cluster"])
    assert interval is not None
    low, high, worth = _round(100 * interval.low), _round(100 * interval.high), _round(interval.n_effective)
    has_chance = bool(np.isfinite(expected[counted]).all())
    chance = _round(100 * float(expected[counted].sum()) / total) if has_chance else None
    return Score(
        value=_round(100 * float(top.sum()) / total),
        low=low,
        high=high,
        n=n,
        n_cases=cases,
        n_effective=worth,
        chance=chance,
        verdict=verdict_against_chance(low, high, worth, chance, info.higher_is_better),
        interval_method=INTERVAL_METHOD,
    )


def _round(value: float) -> float:
    """Ten decimals: more than any use needs, and the same number whatever the order of summation."""
    return round(value, 10) + 0.0
