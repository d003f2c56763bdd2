"""Pack the scores of several models on the same units into arrays for comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dataset_builders.errors import BadInput

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class OutcomeMatrix:
    """Scores of M models on the same U units, packed once for many comparisons.

    Attributes:
        models: Names of the models.
        metric: Name of the metric.
        numerator: What each unit scores (M, U), float32.
        denominator: What each unit could score (M, U), float32.
        cluster: Cluster number of each unit (U,), ascending.
        units: Ids of the units (U,).
        paired: Whether all models have the same denominators.
    """

    models: tuple[str, ...]
    metric: str
    numerator: NDArray[np.float32]
    denominator: NDArray[np.float32]
    cluster: Ints
    units: NDArray[np.object_]
    paired: bool


def pack_outcomes(units: Mapping[str, pd.DataFrame], metric: str) -> OutcomeMatrix:
    """Pack the units of several models for one metric.

    Args:
        units: Model name -> its scoring units (`derive.scoring.compute_units`).
        metric: Name of the metric.

    Raises:
        BadInput: No model, a unit that occurs twice, or models that did not answer the same
            questions.
    """
    frames = {name: frame[frame["metric"].to_numpy() == metric] for name, frame in units.items()}
    if not frames:
        raise BadInput("nothing to compare: no model was given.")
    first_name, first_frame = next(iter(frames.items()))
    ids = pd.Index(first_frame["unit"].to_numpy(dtype=object))
    if not ids.is_unique:
        raise BadInput(f"{first_name}: {metric} counts a unit twice, so it cannot be compared. Choose another metric.")
    # Sorted by cluster once, so that sums over clusters are cheap afterwards.
    order = np.argsort(first_frame["cluster"].to_numpy(), kind="stable")
    numerators, denominators = [], []
    for name, frame in frames.items():
        positions = _positions(ids, frame["unit"].to_numpy(dtype=object))
        if positions is None:
            raise BadInput(
                f"{name} and {first_name} did not answer the same questions, so {metric} cannot be compared."
            )
        numerators.append(frame["numerator"].to_numpy(np.float32)[positions][order])
        denominators.append(frame["denominator"].to_numpy(np.float32)[positions][order])
    denominator = np.stack(denominators)
    return OutcomeMatrix(
        tuple(frames),
        metric,
        np.stack(numerators),
        denominator,
        first_frame["cluster"].to_numpy(np.int64)[order],
        ids.to_numpy(dtype=object)[order],
        bool(np.all(denominator == denominator[0])),
    )


def _positions(ids: pd.Index, units: NDArray[np.object_]) -> Ints | slice | None:
    """Return the position of each id in `units`, or None if the two are not the same units."""
    if len(units) != len(ids):
        return None
    # The usual case: runs of one dataset list their units in the same order.
    if np.array_equal(units, ids.to_numpy(dtype=object)):
        return slice(None)
    index = pd.Index(units)
    if not index.is_unique:
        return None
    positions = index.get_indexer(ids)
    return None if (positions < 0).any() else positions.astype(np.int64)
