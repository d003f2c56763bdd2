"""Find image pairs that one encoder confuses and another tells apart: every pair i < j, exactly, not a sample.

A pair is confusing if sim_med >= 0.9 and sim_gen <= 0.75 (MediConfusion, section 2.1; sim = cosine of the two images'
embeddings by BiomedCLIP and DINOv2). The paper sampled pairs at random; here an upper bound (`prefix_bound.py`) rules
out nearly all pairs cheaply and the rest are decided in float64 (`pair_kernels.py`). Where the bound lets too many
through (embeddings of one modality lie in a narrow cone), or is not worth making for few images, both encoders' products
rule pairs out instead. A similarity within 1e-12 of a threshold lies on it and is reported as the threshold itself.

See also: files, resuming, setting pairs aside (`pair_mining.py`); thresholds that 40% of all pairs meet
(`pair_sampling.py`).
"""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import DTypeLike

from curation.mining.pair_kernels import TIE, accept_tile, decide_tile, gather_tile, rule_out_tile, similarities
from curation.mining.prefix_bound import Prefix, make_prefix, unit_rows
from dataset_builders.errors import BadInput

TILE = 1024
"""Rows and columns decided at once: 4 MB of bounds, which stay in the processor's cache."""
HELD = 4_000_000
"""Pairs held before a block of rows is split, so that memory stays bounded where everything matches."""
NO_BOUND = np.int32(-(2**31))
SETUP, CODES, LOOK, DECIDE, PRODUCT = 1.5e9, 3.0, 0.26, 0.3, 0.033
"""Nanoseconds of one thread (measured on embeddings of 512 and 768 entries): to choose codes; then per pair of images to look at its codes;
per entry of its vectors to turn away one that the codes let through, to decide it in float64, and for its products in float32."""
LET_THROUGH = 3.0
"""Pairs that the codes let through for one that reaches their threshold, where many do (measured on narrow cones)."""
DENSE = 0.13
"""Share of a tile's pairs from which on all its products in float64 are quicker than those of the pairs let through, one by one."""
SAMPLE = 1024
"""Images whose pairs tell how many meet both encoders' thresholds."""


@dataclass(frozen=True)
class Thresholds:
    """What a pair must meet; None = free. All are cosines; a number beyond -1 or 1 is met by all pairs or by none."""

    med_at_least: float | None = None
    med_at_most: float | None = None
    gen_at_least: float | None = None
    gen_at_most: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and math.isnan(value):
                raise BadInput(f"{name} {value}: a cosine lies between -1 and 1. Give such a number.")

    def ranges(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """(at least, at most) for med and for gen, infinite where free."""
        low, high = -math.inf, math.inf
        return (
            (low if self.med_at_least is None else self.med_at_least, high if self.med_at_most is None else self.med_at_most),
            (low if self.gen_at_least is None else self.gen_at_least, high if self.gen_at_most is None else self.gen_at_most),
        )  # fmt: skip


MODES: dict[str, Thresholds] = {
    "confusing": Thresholds(med_at_least=0.9, gen_at_most=0.75),  # section 2.1
    "easy": Thresholds(med_at_most=0.4),  # appendix E
    "reversed": Thresholds(med_at_most=0.5, gen_at_least=0.5),  # appendix G
}
"""The paper's searches."""


@dataclass(frozen=True)
class Pairs:
    """Pairs as columns of equal length: i < j (int64) and both cosines (float64)."""

    i: np.ndarray
    j: np.ndarray
    sim_med: np.ndarray
    sim_gen: np.ndarray

    def __len__(self) -> int:
        return len(self.i)

    def take(self, rows: np.ndarray) -> Pairs:
        """Some of the pairs: rows are positions or a mask."""
        return Pairs(self.i[rows], self.j[rows], self.sim_med[rows], self.sim_gen[rows])

    def frame(self) -> pd.DataFrame:
        """The pairs as a table with the columns i, j, sim_med, sim_gen."""
        return pd.DataFrame(vars(self))

    @staticmethod
    def join(parts: list[Pairs]) -> Pairs:
        """One after the other."""
        parts = parts or [Pairs(*(np.empty(0, kind) for kind in (np.int64, np.int64, np.float64, np.float64)))]
        return Pairs(
            *(np.concatenate([vars(part)[name] for part in parts]) for name in ("i", "j", "sim_med", "sim_gen"))
        )


@dataclass(frozen=True)
class Embeddings:
    """Vectors of n images, (n, d) float32 or float64 in C order, with `scale` (n,) = 1 / norm in float64."""

    x: np.ndarray
    scale: np.ndarray

    @property
    def rounding(self) -> float:
        """`rounding_of` a cosine in the vectors' own precision."""
        return rounding_of(self.x.shape[1], self.x.dtype)


def rounding_of(width: int, kind: DTypeLike) -> float:
    """Largest rounding error of a cosine of vectors with `width` entries computed in this precision, in any order of summation; what lies
    on a threshold (within `TIE`) stays inside it."""
    return float(np.finfo(kind).eps) * (width + 8) + 2 * TIE


def as_tensor(x: np.ndarray) -> torch.Tensor:
    """The array as a tensor that shares its memory, for reading only."""
    with warnings.catch_warnings():  # memory maps cannot be written to, and nothing here writes
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(x)


def norms_of(x: np.ndarray) -> np.ndarray:
    """Norms (n,) of the rows of x (n, d), in float64."""
    norms = np.empty(len(x))
    for first in range(0, len(x), 8192):
        block = x[first : first + 8192].astype(np.float64)
        norms[first : first + 8192] = np.sqrt(np.einsum("ij,ij->i", block, block))
    return norms


def read_embeddings(x: np.ndarray, what: str, norms_of: Callable[[np.ndarray], np.ndarray] = norms_of) -> Embeddings:
    """Check embeddings and take their norms. x: (n, d), any number type; memory maps of float32 are used where they
    lie.

    Raises BadInput for another shape, for entries that are not finite, and for a vector of zeros (it has no direction).
    """
    x = np.asarray(x)
    if x.ndim != 2 or (len(x) and not x.shape[1]) or x.dtype.kind not in "fiu":
        raise BadInput(
            f"{what}: has shape {x.shape} and type {x.dtype}, not (images, dimensions) of numbers. Embed the images again."
        )
    kind = np.float32 if x.dtype in (np.float16, np.float32) else np.float64
    x = np.ascontiguousarray(x, dtype=kind)
    norms = norms_of(x)
    if kind is np.float64 and not ((norms > 1e-100) & (norms < 1e100)).all():  # squares may have left float64's range
        x = _evened(x)
        norms = norms_of(x)
    bad = np.flatnonzero(~(np.isfinite(norms) & (norms > 0)))
    if len(bad):
        raise BadInput(
            f"{what}: row {bad[0]} and {len(bad) - 1} more are zero or not finite. Embed these images again."
        )
    if len(x) and not (norms.min() > 1e-12 and norms.max() < 1e12):  # products would leave float32's range
        x = x.astype(np.float64) / norms[:, None]
        norms = np.ones(len(x))
    return Embeddings(x, 1 / norms)


def _evened(x: np.ndarray) -> np.ndarray:
    """Rows (n, d) float64 divided by their largest entry, which keeps their directions; rows of zeros, or with entries that are
    not finite, as they are."""
    largest = np.abs(x).max(axis=1, keepdims=True, initial=0.0)
    usable = np.isfinite(largest) & (largest > 0)
    rows: np.ndarray = np.divide(x, largest, out=x.copy(), where=usable)
    return rows


class _Scratch(threading.local):
    """A thread's memory for one tile; taking it anew for every tile costs more than the work done in it."""

    def __init__(self) -> None:
        self.bounds = torch.zeros(TILE * TILE, dtype=torch.int32)
        self.sims = np.empty((2, TILE, TILE))
        self.products = torch.empty(2, TILE * TILE)


def _threads() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class PairSearch:
    """All pairs of n images that meet thresholds, in blocks of rows. Build it once: it takes the bound's codes of all
    images."""

    def __init__(self, med: np.ndarray, gen: np.ndarray, thresholds: Thresholds) -> None:
        self.med, self.gen = self._read(med, "med"), self._read(gen, "gen")
        if len(self.med.x) != len(self.gen.x):
            raise BadInput(
                f"med has {len(self.med.x)} rows and gen {len(self.gen.x)}: embed the same images with both encoders."
            )
        self.n = len(self.med.x)
        self.thresholds = thresholds
        (self._med_low, _), (self._gen_low, _) = thresholds.ranges()
        # The bound works on one encoder: the one with the higher lower threshold.
        self._main_is_med = self._med_low >= self._gen_low
        self.prefix: Prefix | None = None
        self.by_products = False
        """Whether products of both encoders rule pairs out instead of the bound; known once prepared."""
        self._prepared = False
        self._met = 0.0
        """Share of pairs that meet all thresholds, estimated once prepared."""
        self.threads = _threads()
        self._scratch = _Scratch()

    @property
    def step(self) -> int:
        """Rows worth asking for at once."""
        return TILE

    def _read(self, x: np.ndarray, what: str) -> Embeddings:
        return read_embeddings(x, what)

    def prepare(self, by_products: bool | None = None) -> None:
        """Choose what rules pairs out, and make it: the codes of all images, where a lower threshold lets them, or both encoders' products
        (`by_products`; None: whichever is expected to be quicker)."""
        if self._prepared:
            return
        self._prepared = True
        low = max(self._med_low, self._gen_low)
        has_bound = math.isfinite(low) and self.n > 1
        reach, met = self._shares(low)
        self._met = met
        self.by_products = self._by_products(reach, met, has_bound) if by_products is None else by_products
        if has_bound and not self.by_products:
            main = self.med if self._main_is_med else self.gen
            self.prefix = make_prefix(main.x, main.scale, low)

    def _by_products(self, reach: float, met: float, has_bound: bool) -> bool:
        """Whether both encoders' products are expected to rule pairs out more quickly than the codes."""
        widths = self.med.x.shape[1], self.gen.x.shape[1]
        let_through = min(1.0, LET_THROUGH * reach) if has_bound else 1.0
        first = SETUP / max(1, self.n * (self.n - 1) // 2) + CODES if has_bound else 0.0
        by_codes = first + LOOK * widths[not self._main_is_med] * let_through + DECIDE * sum(widths) * reach
        return (PRODUCT + DECIDE * min(met, DENSE)) * sum(widths) < by_codes

    def _shares(self, low: float) -> tuple[float, float]:
        """The shares of pairs that reach the bound's threshold and that meet all thresholds, estimated on a sample of the images."""
        rows = np.sort(np.random.default_rng(0).choice(self.n, min(self.n, SAMPLE), replace=False))
        upper = np.triu(np.ones((len(rows), len(rows)), bool), 1)
        total = max(1, int(upper.sum()))
        met, reach = upper, 0.0
        for part, (least, most) in zip((self.med, self.gen), self.thresholds.ranges(), strict=True):
            unit = unit_rows(part.x, part.scale, rows)
            sims = unit @ unit.T
            least, most, bound = np.clip((least, most, low), -2.0, 2.0)  # a float32 holds no limit of 1e300
            if (part is self.med) == self._main_is_med:
                reach = int((upper & (sims >= bound)).sum()) / total
            met = met & (sims >= least) & (sims <= most)
        return reach, int(met.sum()) / total

    def blocks(self, start: int, stop: int) -> Iterator[Pairs]:
        """The pairs with start <= i < stop, sorted by (i, j), a piece of at most about `HELD` at a time."""
        self.prepare()
        found = self._rows(start, stop)
        if found is not None:
            yield found
        else:
            middle = (start + stop) // 2
            yield from self.blocks(start, middle)
            yield from self.blocks(middle, stop)

    def _rows(self, start: int, stop: int) -> Pairs | None:
        """The pairs of a block of rows, or None if they are too many to hold."""
        corners = [(i, j) for i in range(start, stop, TILE) for j in range(i, self.n, TILE)]
        parts: list[Pairs] = []
        held = 0
        with ThreadPoolExecutor(self.threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            tiles = [pool.submit(self._tile, i, min(stop, i + TILE), j, min(self.n, j + TILE)) for i, j in corners]
            for tile in tiles:
                parts.append(tile.result())
                held += len(parts[-1])
                if held > HELD and stop - start > 1:
                    pool.shutdown(wait=True, cancel_futures=True)
                    return None
        pairs = Pairs.join(parts)
        return pairs.take(np.argsort(pairs.i, kind="stable"))  # tiles come in order of j

    def _tile(self, i0: int, i1: int, j0: int, j1: int) -> Pairs:
        """The pairs with i0 <= i < i1, j0 <= j < j1 and i < j."""
        main, other = (self.med, self.gen) if self._main_is_med else (self.gen, self.med)
        ranges = self.thresholds.ranges()
        main_range, other_range = ranges if self._main_is_med else ranges[::-1]
        shape = (i1 - i0, j1 - j0)
        scratch = self._scratch
        tile, (main_sim, other_sim) = (
            scratch.bounds[: math.prod(shape)].view(shape),
            scratch.sims[:, : shape[0], : shape[1]],
        )
        counts = np.zeros(shape[0], np.int64)
        floor = NO_BOUND
        quick, dense = main.rounding, False
        if self.by_products:
            dense = self._met > DENSE
            if dense:
                tile.fill_(1)
            else:
                dense = self._rule_out((i0, i1), (j0, j1), tile.numpy()) > DENSE * tile.numel()
            floor, quick = np.int32(1), -1.0
        elif self.prefix is not None:
            torch._int_mm(self.prefix.codes[i0:i1], self.prefix.codes[j0:j1].t(), out=tile)
            floor = np.int32(max(self.prefix.floor, int(NO_BOUND)))
        if dense:
            for part, sims in ((main, main_sim), (other, other_sim)):
                left, right = (as_tensor(part.x[start:stop]).double() for start, stop in ((i0, i1), (j0, j1)))
                torch.mm(left, right.t(), out=torch.from_numpy(sims))
            accept_tile(
                tile.numpy(), i0, j0, main.scale, main_range, other.scale, other_range, main_sim, other_sim, counts
            )
        else:
            decide_tile(
                tile.numpy(), floor, i0, j0, main.x, main.scale, main_range, other.x, other.scale, other_range,
                quick, main_sim, other_sim, counts,
            )  # fmt: skip
        total = int(counts.sum())
        i, j = np.empty(total, np.int64), np.empty(total, np.int64)
        first, second = np.empty(total), np.empty(total)
        gather_tile(tile.numpy(), i0, j0, main_sim, other_sim, counts, i, j, first, second)
        return Pairs(i, j, first, second) if self._main_is_med else Pairs(i, j, second, first)

    def _rule_out(self, rows: tuple[int, int], columns: tuple[int, int], tile: np.ndarray) -> int:
        """Put 1 into `tile` (rows, columns) where both cosines, in float32, may meet the thresholds, and else 0; returns how many may."""
        arguments: list[Any] = []
        for part, out, (low, high) in zip(
            (self.med, self.gen), self._scratch.products, self.thresholds.ranges(), strict=True
        ):
            left, right = (as_tensor(part.x[start:stop]).float() for start, stop in (rows, columns))
            products = out[: tile.size].view(tile.shape)
            torch.mm(left, right.t(), out=products)
            rounding = rounding_of(part.x.shape[1], np.float32)
            limits = np.clip((low - rounding, high + rounding), -4, 4).astype(
                np.float32
            )  # cosines: 4 is as good as 1e300
            arguments.append((products.numpy(), part.scale.astype(np.float32), (limits[0], limits[1])))
        (med, med_scale, med_limits), (gen, gen_scale, gen_limits) = arguments
        found: int = rule_out_tile(med, gen, rows[0], columns[0], med_scale, med_limits, gen_scale, gen_limits, tile)
        return found

    def decide(self, i: np.ndarray, j: np.ndarray) -> Pairs:
        """Those of the listed pairs that meet the thresholds, in the order given, by the same rule as the full
        search."""
        (low, high), (other_low, other_high) = self.thresholds.ranges()
        first = similarities(self.med.x, self.med.scale, low, high, i, j)
        second = similarities(self.gen.x, self.gen.scale, other_low, other_high, i, j)
        met = (first >= low) & (first <= high) & (second >= other_low) & (second <= other_high)
        return Pairs(i[met], j[met], first[met], second[met])
