"""Find image pairs that one encoder confuses and another tells apart: every pair i < j, exactly, not a sample.

A pair is confusing if sim_med >= 0.9 and sim_gen <= 0.75 (MediConfusion, section 2.1; sim = cosine of the two images' embeddings by
BiomedCLIP and DINOv2). The paper sampled pairs at random.

Float32 decides, except for a similarity that lies within its rounding error of a threshold: that one
is computed in float64, and within 1e-12 of the threshold it counts as, and is reported as, the
threshold itself. So the pairs are those of a search in float64, on a processor and on a GPU alike;
the reported similarities have the precision of float32.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch

from dataset_builders.errors import BadInput, first_line

TIE_TOLERANCE = 1e-12
"""A similarity this close to a threshold lies on it: float64 rounding of a cosine stays below it, a true difference rarely does."""
TILE_ROWS, TILE_COLUMNS = 512, 2048
"""Size of a tile: its cosines stay in a processor's cache. Pairs are handed out by strips of so many
rows, so that memory stays bounded where everything matches."""
HEAD_DIVISOR = 4
"""The first of so many parts of the principal axes decide most pairs (`EncoderVectors.head`)."""
DENSE_DIVISOR = 64
"""If more than one pair in so many is left, a product over the whole tile is cheaper than the
vectors of these pairs one by one."""
AXES_SAMPLE_SIZE = 4096
"""Vectors that the principal axes are computed from."""
CHUNK_ROWS = 256
"""Vectors that are converted or gathered at a time; they stay in a processor's cache."""


@dataclass(frozen=True)
class Thresholds:
    """Bounds on the cosines of a pair; the defaults include every cosine."""

    med_at_least: float = -1.0
    med_at_most: float = 1.0
    gen_at_least: float = -1.0
    gen_at_most: float = 1.0


SEARCH_MODES: dict[str, Thresholds] = {
    "confusing": Thresholds(med_at_least=0.9, gen_at_most=0.75),  # section 2.1
    "easy": Thresholds(med_at_most=0.4),  # appendix E
    "reversed": Thresholds(med_at_most=0.5, gen_at_least=0.5),  # appendix G
}
"""The paper's searches."""


SIMILARITY_COLUMNS = ("sim_med", "sim_gen")
"""A table of pairs has the columns i < j (int64) and these cosines (float64)."""


def pick_device(name: str) -> str:
    """The torch device for `--device auto | cpu | cuda | cuda:1`. Raises BadInput for one that is not there."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        raise BadInput(f"--device {name}: is not available ({first_line(error)}). Give auto, cpu or cuda.") from None
    return name


class EncoderVectors:
    """One encoder's vectors (n, d) in float32, on a device, and the limits of their cosines."""

    def __init__(self, x: np.ndarray, low: float = -1.0, high: float = 1.0, device: str = "cpu") -> None:
        """x: (n, d) numbers; memory maps of float32 are used where they lie.

        Raises BadInput for vectors whose products float32 cannot hold: zero, or about as short or long as its range.
        """
        with warnings.catch_warnings():  # memory maps cannot be written to, and nothing here writes
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            self.x = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32)).to(device)
        squares = [part.double().square_().sum(1) for part in self.x.split(CHUNK_ROWS)]
        self.inverse_norms = torch.cat(squares).rsqrt()
        if not ((self.inverse_norms > 1e-15) & (self.inverse_norms < 1e15)).all():
            raise BadInput(
                "embeddings: a vector has no length, or one that float32 cannot multiply. Embed the images again."
            )
        self.low, self.high = low, high
        self.rounding = float(np.finfo(np.float32).eps) * (self.x.shape[1] + 16) + 2 * TIE_TOLERANCE
        """Largest error of a float32 cosine, in any order of summation."""

    @cached_property
    def head(self) -> torch.Tensor:
        """Each unit vector by its first principal axes, and the length of what is left: (n, axes + 1), float32.

        The product of two such rows is at least the cosine of their vectors (Cauchy-Schwarz on what is
        left), at a fraction of its cost.
        """
        sample = slice(None, None, max(1, len(self.x) // AXES_SAMPLE_SIZE))  # any orthogonal axes are exact
        unit = self.x[sample].double() * self.inverse_norms[sample, None]
        axes = torch.linalg.eigh(unit.T @ unit).eigenvectors[:, -max(1, unit.shape[1] // HEAD_DIVISOR) :]

        heads = []
        for x, inverse_norms in zip(self.x.split(CHUNK_ROWS), self.inverse_norms.split(CHUNK_ROWS), strict=True):
            head = (x.double() * inverse_norms[:, None]) @ axes
            rest = (1 - head.square().sum(1)).clamp_min_(0).sqrt()
            heads.append(torch.cat([head, rest[:, None]], 1).float())
        return torch.cat(heads)

    def candidates(self, rows: slice, columns: slice) -> torch.Tensor:
        """Positions (m,) in the flattened tile (rows, columns) of all pairs i < j whose cosine may reach `low`."""
        bounds = self.head[rows] @ self.head[columns].t()
        if columns.start == rows.start:
            bounds.masked_fill_(torch.ones_like(bounds, dtype=torch.bool).tril(), -math.inf)
        limit = self.low - self.rounding
        if bounds.is_cuda:
            return (bounds >= limit).flatten().nonzero()[:, 0]
        return torch.from_numpy(np.flatnonzero(bounds.numpy() >= np.float32(limit)))  # much faster than torch's

    def tile(self, rows: slice, columns: slice) -> torch.Tensor:
        """Cosines (rows * columns,) in float32 of a tile."""
        inverse_norms = self.inverse_norms.float()
        product = (self.x[rows] * inverse_norms[rows, None]) @ self.x[columns].t()
        return product.mul_(inverse_norms[columns]).flatten()

    def cosines(self, i: torch.Tensor, j: torch.Tensor, precision: str = "float32") -> torch.Tensor:
        """Cosines (m,) in float64 of the listed pairs, their products computed in `precision`."""
        parts = [
            self._products(first, second, precision)
            for first, second in zip(i.split(CHUNK_ROWS), j.split(CHUNK_ROWS), strict=True)
        ]
        return torch.cat(parts).double() * self.inverse_norms[i] * self.inverse_norms[j]

    def _products(self, i: torch.Tensor, j: torch.Tensor, precision: str) -> torch.Tensor:
        if self.x.is_cuda:
            kind = getattr(torch, precision)
            return torch.linalg.vecdot(self.x[i].to(kind), self.x[j].to(kind))
        x = self.x.numpy()  # much faster than torch on a processor
        return torch.from_numpy(
            np.einsum(
                "ij,ij->i", x[i.numpy()].astype(precision, copy=False), x[j.numpy()].astype(precision, copy=False)
            )
        )

    def may_meet(self, cosines: torch.Tensor) -> torch.Tensor:
        """Whether each float32 cosine is inside the limits or within its rounding error of one (bool)."""
        return (cosines >= self.low - self.rounding) & (cosines <= self.high + self.rounding)

    def settle(self, cosines: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        """Float32 cosines (m,) as float64, those that lie too near a limit to decide computed anew.

        One that lies on a limit is that limit exactly.
        """
        cosines = cosines.double().clamp_(-1.0, 1.0)
        for limit in (self.high, self.low):
            near = ((cosines - limit).abs() <= self.rounding).nonzero()[:, 0]
            exact = self.cosines(i[near], j[near], "float64").clamp_(-1.0, 1.0)
            cosines[near] = torch.where((exact - limit).abs() <= TIE_TOLERANCE, limit, exact)
        return cosines


class PairSearch:
    """All pairs of n images that meet thresholds, in strips of rows.

    med: (n, d) and gen: (n, e) embeddings, row k of both for image k; they need not have unit length. `device`: auto (a GPU if there is
    one), cpu, cuda; it changes no pair.
    """

    def __init__(self, med: np.ndarray, gen: np.ndarray, thresholds: Thresholds, device: str = "auto") -> None:
        self.device = pick_device(device)
        self.thresholds = thresholds
        self.n = len(med)
        self.med = EncoderVectors(med, thresholds.med_at_least, thresholds.med_at_most, self.device)
        self.gen = EncoderVectors(gen, thresholds.gen_at_least, thresholds.gen_at_most, self.device)

    def rows(self, start: int, stop: int) -> Iterator[pd.DataFrame]:
        """The pairs with start <= i < stop in (i, j) order, a strip of rows at a time."""
        for first in range(start, stop, TILE_ROWS):
            rows = slice(first, min(stop, first + TILE_ROWS))
            tiles = [
                self._tile_pairs(rows, slice(left, min(self.n, left + TILE_COLUMNS)))
                for left in range(first, self.n, TILE_COLUMNS)
            ]
            i, j, med, gen = (torch.cat(parts) for parts in zip(*tiles, strict=True))
            order = i.argsort(stable=True)  # tiles come in order of j
            yield self._decided(i[order], j[order], med[order], gen[order])

    def all(self) -> Iterator[pd.DataFrame]:
        """All pairs in (i, j) order, a piece at a time."""
        return self.rows(0, self.n)

    def decide(self, i: np.ndarray, j: np.ndarray) -> pd.DataFrame:
        """Those of the listed pairs that meet the thresholds, in the order given, by the same rule as the full search."""
        first, second = (torch.from_numpy(ends).to(self.device) for ends in (i, j))
        return self._decided(first, second, self.med.cosines(first, second), self.gen.cosines(first, second))

    def _tile_pairs(self, rows: slice, columns: slice) -> Iterable[torch.Tensor]:
        """i, j and both float32 cosines of a tile's pairs that may meet the thresholds; i in `rows`, j > i in `columns`."""
        width = columns.stop - columns.start
        positions = self.med.candidates(rows, columns)
        cosines: list[torch.Tensor] = []
        for side in (self.med, self.gen):
            i, j = positions // width + rows.start, positions % width + columns.start
            is_dense = len(positions) * DENSE_DIVISOR > width * (rows.stop - rows.start)
            values = side.tile(rows, columns)[positions] if is_dense else side.cosines(i, j)
            kept = side.may_meet(values)
            positions, i, j = positions[kept], i[kept], j[kept]
            cosines = [part[kept] for part in (*cosines, values)]
        return i, j, *cosines

    def _decided(self, i: torch.Tensor, j: torch.Tensor, med: torch.Tensor, gen: torch.Tensor) -> pd.DataFrame:
        """Those of the listed pairs, with float32 cosines by both encoders, that meet the thresholds."""
        med, gen = self.med.settle(med, i, j), self.gen.settle(gen, i, j)
        met = (med >= self.med.low) & (med <= self.med.high) & (gen >= self.gen.low) & (gen <= self.gen.high)
        columns = zip(("i", "j", *SIMILARITY_COLUMNS), (i, j, med, gen), strict=True)
        return pd.DataFrame({name: part[met].cpu().numpy() for name, part in columns})


# Samples of thresholds that too many pairs meet to list them (easy, reversed)

PAIRS_PER_DRAW = 2**18
MAX_DRAWN_PAIRS = 2**23
"""Pairs drawn at most; if they do not suffice, few pairs meet the thresholds, and all are searched."""


def sample_pairs(search: PairSearch, count: int, seed: int = 0) -> pd.DataFrame:
    """`count` different pairs drawn uniformly from those that meet `search.thresholds`, or as many as there are, in (i, j) order.

    The same seed, embeddings and thresholds give the same pairs. Every matching pair is equally likely to be in the sample.
    """
    rng = np.random.default_rng(seed)
    n = search.n
    none = search.decide(*np.empty((2, 0), np.int64))
    kept, drawn = none, 0 if n * (n - 1) // 2 > MAX_DRAWN_PAIRS else MAX_DRAWN_PAIRS
    while len(kept) < count and drawn < MAX_DRAWN_PAIRS:
        ends = np.sort(rng.integers(0, n, (PAIRS_PER_DRAW, 2)), axis=1)
        ends = ends[ends[:, 0] < ends[:, 1]]
        drawn += len(ends)
        kept = pd.concat([kept, search.decide(ends[:, 0], ends[:, 1])]).drop_duplicates(["i", "j"]).head(count)
    if len(kept) < count:  # each of all pairs gets a random number, the smallest are kept
        kept = none.assign(key=0.0)
        for found in search.all():
            kept = pd.concat([kept, found.assign(key=rng.random(len(found)))]).nsmallest(count, "key")
    return kept.sort_values(["i", "j"], ignore_index=True)[list(none)]
