"""Scores of several models on the same units, packed into arrays for comparison."""

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
    """M models x U units of one metric, packed once, compared often.

    `numerator`, `denominator` (M, U) float32; `cluster` (U,) ascending; `units` (U,) their ids. `paired`: all models have the same
    denominators.
    """

    models: tuple[str, ...]
    metric: str
    numerator: NDArray[np.float32]
    denominator: NDArray[np.float32]
    cluster: Ints
    units: NDArray[np.object_]
    paired: bool


def pack_outcomes(units: Mapping[str, pd.DataFrame], metric: str) -> OutcomeMatrix:
    """Pack the units of several models (`derive.scoring.units` of each) for one metric.

    Raises BadInput if a model lacks units that another has: models are compared on the same questions only.
    """
    frames = {name: frame[frame["metric"].to_numpy() == metric] for name, frame in units.items()}
    if not frames:
        raise BadInput("nothing to compare: no model was given.")
    first_name, first = next(iter(frames.items()))
    ids = pd.Index(first["unit"].to_numpy(dtype=object))
    if not ids.is_unique:
        raise BadInput(f"{first_name}: {metric} counts a unit twice, so it cannot be compared. Choose another metric.")
    order = np.argsort(first["cluster"].to_numpy(), kind="stable")
    tops, bases = [], []
    for name, frame in frames.items():
        positions = _positions(ids, frame["unit"].to_numpy(dtype=object))
        if positions is None:
            raise BadInput(
                f"{name} and {first_name} did not answer the same questions, so {metric} cannot be compared."
            )
        tops.append(frame["numerator"].to_numpy(np.float32)[positions][order])
        bases.append(frame["denominator"].to_numpy(np.float32)[positions][order])
    base = np.stack(bases)
    return OutcomeMatrix(
        tuple(frames),
        metric,
        np.stack(tops),
        base,
        first["cluster"].to_numpy(np.int64)[order],
        ids.to_numpy(dtype=object)[order],
        bool(np.all(base == base[0])),
    )


def _positions(ids: pd.Index, units: NDArray[np.object_]) -> Ints | slice | None:
    """Index of each of `ids` in `units`; None if the two are not the same units."""
    if len(units) != len(ids):
        return None
    if np.array_equal(units, ids.to_numpy(dtype=object)):
        return slice(None)
    index = pd.Index(units)
    if not index.is_unique:
        return None
    positions = index.get_indexer(ids)
    return None if (positions < 0).any() else positions.astype(np.int64)
