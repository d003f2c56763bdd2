"""An upper bound of every cosine in a tile, as one int8 matrix product a quarter as wide as the embeddings.

Rotate the unit vectors so that the first k axes carry most of their length (uncentred PCA), keep those k numbers and
append the length r of the rest. By Cauchy-Schwarz, x.y <= x[:k].y[:k] + r_x r_y: the product of the (k+1)-vectors
bounds the cosine. With each vector u rounded to s*q, |u - s*q| <= e, the bound holds for the integers too: u.v <= s^2
q_u.q_v + 2 e (1 + e) + e^2. A pair whose integers fall short of the threshold minus that slack is out; the
others are decided exactly elsewhere. An axis with large entries (the cone that embeddings sit in) is split into m equal
columns of 1/sqrt(m) of it, which changes no product and lets the step s be finer.

See also: deciding pairs (`pair_kernels.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

ROUNDING = 1e-4
"""Added to the slack for float32 rounding in rotation and norms, whose effect on a product of unit vectors stays below
1e-5."""
SAMPLE = 8192
"""Rows that the axes are found from; any rotation is valid, a better one only prunes more."""
WIDTHS = (64, 128, 256, 512)
"""Widths of the int8 codes that are tried."""
COLUMN_COST = 1.0
CANDIDATE_COST = 40_000.0
"""Time of a column of the product and of deciding a candidate, per pair and in the same unit (measured by
benchmarks/curation/bench_pairs.py)."""


@dataclass(frozen=True)
class Prefix:
    """Codes (n, width) int8; a pair can only reach the threshold if the product of its codes is at least `floor`."""

    codes: torch.Tensor
    floor: int
    width: int
    share: float
    """Share of pairs that the bound lets through, estimated on a sample."""


@cache
def _largest_code() -> int:
    """127 where int8 products come out exact; 63 on processors whose 8-bit instructions saturate at 16 bits."""
    full = torch.full((32, 64), 127, dtype=torch.int8)
    signs = torch.tensor([1, -1], dtype=torch.int8).repeat(32)
    for left, right in ((full, full), (-full, full), (full * signs, full), (full * signs, -full * signs)):
        right = right.t().contiguous()
        if not torch.equal(torch._int_mm(left, right).long(), left.long() @ right.long()):
            return 63
    return 127


def unit_rows(x: np.ndarray, scale: np.ndarray, rows: slice | np.ndarray) -> np.ndarray:
    """Rows of x divided by their norm, float32. scale: (n,) = 1 / norm"""
    return np.asarray(x[rows] * scale[rows, None], dtype=np.float32)


def make_prefix(x: np.ndarray, scale: np.ndarray, at_least: float) -> Prefix:
    """Codes of all rows for the threshold `at_least`, with the width that a sample of pairs says is quickest.

    x: (n, d) embeddings; scale: (n,) = 1 / norm.
    """
    n, d = x.shape
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(n, min(n, SAMPLE), replace=False))
    sample = unit_rows(x, scale, rows)
    _, axes = np.linalg.eigh(sample.T.astype(np.float64) @ sample)
    axes = np.ascontiguousarray(axes[:, ::-1], dtype=np.float32)
    seen = min(len(sample), 1024)
    coder = min(
        (_coder(sample, axes, width, at_least, sample[rng.permutation(len(sample))[:seen]]) for width in _widths(d)),
        key=lambda made: made.cost,
    )
    codes = np.empty((n, coder.width), np.int8)
    error = 0.0
    for first in range(0, n, 4096):
        block = slice(first, min(n, first + 4096))
        codes[block], worst = coder.encode(unit_rows(x, scale, block))
        error = max(error, worst)
    return Prefix(torch.from_numpy(codes), coder.floor(error), coder.width, coder.share)


def _widths(d: int) -> list[int]:
    """The widths worth trying for d dimensions."""
    return [width for width in WIDTHS if width < d] or [WIDTHS[0]]


@dataclass
class _Coder:
    axes: np.ndarray  # (d, k)
    copies: np.ndarray  # (k + 1,) how many columns each axis (and the rest) takes
    step: float
    width: int
    at_least: float
    share: float = 1.0

    @property
    def cost(self) -> float:
        return COLUMN_COST * self.width + CANDIDATE_COST * self.share

    def vectors(self, unit: np.ndarray) -> np.ndarray:
        """(m, d) unit rows -> (m, k + 1) prefix and length of the rest"""
        head = unit @ self.axes
        rest = np.sqrt(np.maximum(0.0, (unit**2).sum(1) - (head**2).sum(1)))
        return np.column_stack([head, rest])

    def encode(self, unit: np.ndarray) -> tuple[np.ndarray, float]:
        """(m, d) unit rows -> (m, width) int8 codes, and the largest distance between a vector and what its code stands
        for"""
        limit = _largest_code()
        vectors = self.vectors(unit) / np.sqrt(self.copies)
        codes = np.clip(np.rint(vectors / self.step), -limit, limit).astype(np.int8)
        error = np.sqrt((((vectors - codes * np.float32(self.step)) ** 2) * self.copies).sum(1).max())
        full = np.zeros((len(unit), self.width), np.int8)
        full[:, : self.copies.sum()] = np.repeat(codes, self.copies, axis=1)
        return full, float(error)

    def floor(self, error: float) -> int:
        """The smallest product of codes that a pair at the threshold can have."""
        slack = 2 * error * (1 + error) + error**2 + ROUNDING
        # No cosine reaches beyond 1: a threshold of a million asks for no more than one of 2, and stays an int32.
        return int(np.floor((min(max(self.at_least, -2.0), 2.0) - slack) / self.step**2))


def _coder(sample: np.ndarray, axes: np.ndarray, width: int, at_least: float, seen: np.ndarray) -> _Coder:
    """The coder of this width: as many axes as fit once the large ones are split, at the step that lets the fewest
    pairs through."""
    limit = _largest_code()
    rotated = sample @ axes
    largest = np.abs(rotated).max(0)
    rests = np.sqrt(np.maximum(0.0, 1.0 - np.cumsum(rotated**2, axis=1)).max(0))  # after each number of axes
    full = min(width - 1, len(axes))
    top = max(largest[0], largest.max(), rests[full - 1])
    pairs = np.triu(np.ones((len(seen), len(seen)), bool), 1)
    best: _Coder | None = None
    for parts in (1, 2, 3, 4, 6):  # the largest column is split into parts^2
        unsplit = top / parts
        copies = _copies(largest, unsplit)
        columns = np.cumsum(copies) + _copies(rests, unsplit)
        fitting = np.flatnonzero(columns[:full] <= width)
        if not len(fitting):
            continue
        k = int(fitting[-1]) + 1
        split = np.append(copies[:k], _copies(rests[k - 1 : k], unsplit))
        step = float(unsplit * 1.02 / limit)  # a little room for rows outside the sample
        coder = _Coder(np.ascontiguousarray(axes[:, :k]), split, step, width, at_least)
        codes, error = coder.encode(seen)
        wide = codes.astype(np.float32)  # exact: products stay far below 2^24
        if len(seen) > 1:
            coder.share = float((wide @ wide.T >= coder.floor(error))[pairs].mean())
        if best is None or coder.share < best.share:
            best = coder
    assert best is not None, "unsplit, every axis and the rest take one column"
    return best


def _copies(lengths: np.ndarray, unsplit: float) -> np.ndarray:
    """How many equal columns each length takes so that none is longer than `unsplit`."""
    return np.maximum(1, np.ceil((lengths / unsplit) ** 2 - 1e-6)).astype(np.int64)
