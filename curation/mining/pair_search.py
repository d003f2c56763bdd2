"""Find image pairs that one encoder confuses and another tells apart: every pair i < j, exactly, not a sample.

A pair is confusing if sim_med >= 0.9 and sim_gen <= 0.75 (MediConfusion, section 2.1; sim = cosine of the two images' embeddings by
BiomedCLIP and DINOv2). The paper sampled pairs at random. Here a float32 product rules pairs out tile by tile, with a slack that covers
its rounding, and whatever it does not rule out is decided in float64; a similarity within 1e-12 of a threshold lies on it and is
reported as the threshold itself. It is the same on a processor and on a GPU.

The product is narrower than the embeddings where that pays: rotate the unit vectors so that the first k axes carry most of their length
(uncentred PCA), keep those k numbers and append the length r of the rest. By Cauchy-Schwarz x.y <= x[:k].y[:k] + r_x r_y, so that the
product of the (k+1)-vectors bounds the cosine from above.

See also: blocks on disk, resuming, setting pairs aside (`pair_mining.py`); which pairs are kept (`pair_mining.py`).
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numba
import numpy as np
import torch

from dataset_builders.errors import BadInput

TIE = 1e-12
"""A similarity this close to a threshold lies on it: float64 rounding of a cosine stays below it, a true difference rarely does."""
TILE = {"cpu": 1024, "cuda": 8192}
"""Rows and columns of a tile."""
HELD = 4_000_000
"""Pairs held before a block of rows is split, so that memory stays bounded where everything matches."""
WIDTHS = (32, 64, 128, 256)
"""Widths of the bound that are tried."""
CANDIDATE = 12.0
"""Time of deciding a pair, per entry of its vectors, in columns of the product (measured by benchmarks/curation/bench_pairs.py)."""
MANY, DENSE = 0.03, 0.1
"""Shares of a tile's pairs from which on whole products are quicker than those of the pairs left, one by one: in float32, in float64."""
DECIDED = 2**15
"""Pairs gathered at a time."""
SAMPLE, SEEN = 8192, 1024
"""Rows that the axes are found from (any rotation is valid, a better one only prunes more), and rows whose pairs tell how many are left."""


@dataclass(frozen=True)
class Thresholds:
    """What a pair must meet; None = free. Raises BadInput for what is no cosine."""

    med_at_least: float | None = None
    med_at_most: float | None = None
    gen_at_least: float | None = None
    gen_at_most: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not -1 <= value <= 1:
                raise BadInput(
                    f"--{name.replace('_', '-')} {value}: a cosine lies between -1 and 1. Give such a number."
                )

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

    @staticmethod
    def join(parts: list[Pairs]) -> Pairs:
        """One after the other."""
        parts = parts or [Pairs(*(np.empty(0, kind) for kind in (np.int64, np.int64, np.float64, np.float64)))]
        return Pairs(
            *(np.concatenate([vars(part)[name] for part in parts]) for name in ("i", "j", "sim_med", "sim_gen"))
        )


def pick_device(name: str) -> str:
    """The torch device for `--device auto | cpu | cuda | cuda:1`. Raises BadInput for one that is not there."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise BadInput(f"--device {name}: give auto, cpu or cuda.")
    if kind == "cuda" and not (torch.cuda.is_available() and int(number or 0) < torch.cuda.device_count()):
        raise BadInput(f"--device {name}: there is no such GPU here. Give --device cpu.")
    return name


class EncoderVectors:
    """One encoder's vectors (n, d), float32 or float64, on a device, 1 / norm of each (n,) in float64, and the limits of their cosines."""

    def __init__(self, x: np.ndarray, what: str, low: float, high: float, device: str = "cpu") -> None:
        """x: (n, d), any number type; memory maps of float32 are used where they lie. Raises BadInput for another shape, for entries that
        are not finite, and for a vector of zeros (it has no direction)."""
        x = np.asarray(x)
        if x.ndim != 2 or (len(x) and not x.shape[1]) or x.dtype.kind not in "fiu":
            raise BadInput(
                f"{what}: has shape {x.shape} and type {x.dtype}, not (images, dimensions) of numbers. Embed the images again."
            )
        x = np.ascontiguousarray(x, dtype=np.float32 if x.dtype in (np.float16, np.float32) else np.float64)
        norms = _norms(x)
        bad = np.flatnonzero(~(np.isfinite(norms) & (norms > 0)))
        if len(bad):
            raise BadInput(
                f"{what}: row {bad[0]} and {len(bad) - 1} more are zero or not finite. Embed these images again."
            )
        if len(x) and not (norms.min() > 1e-12 and norms.max() < 1e12):  # products would leave float32's range
            x = x.astype(np.float64) / norms[:, None]
            norms = np.ones(len(x))
        with warnings.catch_warnings():  # memory maps cannot be written to, and nothing here writes
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            self.x = torch.from_numpy(x).to(device)
        self.scale = torch.from_numpy(1 / norms).to(device)
        self.low, self.high = low, high
        self.slack = float(np.finfo(np.float32).eps) * (self.x.shape[1] + 16) + 2 * TIE
        """Largest rounding error of a float32 cosine, in any order of summation; what lies on a threshold stays inside it."""

    def unit(self, rows: slice | torch.Tensor, kind: torch.dtype) -> torch.Tensor:
        """Rows of length one."""
        return self.x[rows].to(kind) * self.scale[rows, None].to(kind)

    def may_meet(self, rows: slice, columns: slice) -> torch.Tensor:
        """(rows, columns) bool: False where a float32 cosine says that the pair is out."""
        product = self.unit(rows, torch.float32) @ self.unit(columns, torch.float32).t()
        return (product >= self.low - self.slack) & (product <= self.high + self.slack)

    def snap(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines in float64, those on a threshold as the threshold; and which of them meet both thresholds."""
        snapped = values.clamp(-1.0, 1.0)
        for limit in (self.high, self.low):
            if math.isfinite(limit):
                snapped = torch.where((values - limit).abs() <= TIE, limit, snapped)
        return snapped, (snapped >= self.low) & (snapped <= self.high)

    def tile(self, rows: slice, columns: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """`snap` of all pairs of a tile."""
        return self.snap(self.unit(rows, torch.float64) @ self.unit(columns, torch.float64).t())

    def listed(self, i: torch.Tensor, j: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`snap` of the listed pairs."""
        dots = dots_here if self.x.device.type == "cpu" else dots_there
        return self.snap(dots(self.x, i, j) * (self.scale[i] * self.scale[j]))


def _norms(x: np.ndarray) -> np.ndarray:
    """Norms (n,) of the rows of x (n, d), in float64."""
    norms = np.empty(len(x))
    for first in range(0, len(x), 8192):
        norms[first : first + 8192] = np.linalg.norm(x[first : first + 8192].astype(np.float64), axis=1)
    return norms


@numba.njit(nogil=True, cache=True, fastmath=True)
def _dots(x: np.ndarray, i: np.ndarray, j: np.ndarray, out: np.ndarray) -> None:
    """Dot products in float64 of the listed rows of x (n, d), without the copies that gathering them would take."""
    for at in range(i.shape[0]):
        total = 0.0
        for k in range(x.shape[1]):
            total += np.float64(x[i[at], k]) * np.float64(x[j[at], k])
        out[at] = total


def dots_here(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    """Dot products (m,) in float64 of the listed rows of x (n, d) on a processor."""
    products = np.empty(len(i))
    _dots(x.numpy(), i.numpy(), j.numpy(), products)
    return torch.from_numpy(products)


def dots_there(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    """The same on any device."""
    parts = zip(i.split(DECIDED), j.split(DECIDED), strict=True)
    return torch.cat([torch.linalg.vecdot(x[some].double(), x[others].double()) for some, others in parts])


@dataclass(frozen=True)
class Bound:
    """Vectors (n, k + 1) float32 whose products are at least `floor` for every pair that reaches a side's lower limit."""

    vectors: torch.Tensor
    floor: float


def make_bound(side: EncoderVectors) -> Bound | None:
    """The bound with the width that a sample of pairs says is quickest; None where the whole product is."""
    n, d = side.x.shape
    if not math.isfinite(side.low) or n < SEEN:
        return None
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(np.sort(rng.choice(n, min(n, SAMPLE), replace=False))).to(side.x.device)
    sample = side.unit(rows, torch.float64)
    axes = torch.linalg.eigh(sample.t() @ sample).eigenvectors.flip(1)
    seen = sample[torch.from_numpy(rng.permutation(len(sample))[:SEEN]).to(side.x.device)]
    upper = torch.ones(len(seen), len(seen), dtype=torch.bool, device=side.x.device).triu(1)

    def cost(width: int) -> float:
        left = _prefix(seen, axes[:, : width - 1]) if width < d else seen.float()
        share = float((left @ left.t() >= _floor(side.low, width))[upper].float().mean())
        return width + CANDIDATE * d * share if share <= MANY else 2 * d + width % d  # else whole products decide

    best = min((*(width for width in WIDTHS if width < d), d), key=cost)
    if best == d:
        return None
    parts = [
        _prefix(side.unit(slice(first, first + 4096), torch.float64), axes[:, : best - 1])
        for first in range(0, n, 4096)
    ]
    return Bound(torch.cat(parts), _floor(side.low, best))


def _prefix(unit: torch.Tensor, axes: torch.Tensor) -> torch.Tensor:
    """(m, d) unit rows in float64, (d, k) axes -> (m, k + 1) float32: the rows along the axes, and the length of the rest, rounded up."""
    head = unit @ axes
    rest = (unit.square().sum(1) - head.square().sum(1)).clamp(min=0).sqrt()
    return torch.column_stack([head, rest * (1 + 1e-6) + 1e-7]).float()


def _floor(low: float, width: int) -> float:
    return low - float(np.finfo(np.float32).eps) * (width + 16) - 2 * TIE


class PairSearch:
    """All pairs of n images that meet thresholds, in blocks of rows. Build it once: it makes the bound of all images.

    med: (n, d) and gen: (n, e) embeddings, row k of both for image k; they need not have unit length. Raises BadInput for rows that are
    zero or not finite, and for shapes that do not fit. `device`: auto (a GPU if there is one), cpu, cuda; it changes no pair.
    """

    def __init__(self, med: np.ndarray, gen: np.ndarray, thresholds: Thresholds, device: str = "auto") -> None:
        self.device = pick_device(device)
        self.thresholds = thresholds
        self.n = len(med)
        if len(gen) != self.n:
            raise BadInput(f"med has {self.n} rows and gen {len(gen)}: embed the same images with both encoders.")
        given = zip((med, gen), ("med", "gen"), thresholds.ranges(), strict=True)
        self.sides = tuple(EncoderVectors(x, what, *limits, self.device) for x, what, limits in given)
        # The first product is of one encoder: that with the higher lower limit, else with the lower upper one.
        self._main = max((0, 1), key=lambda at: (self.sides[at].low, -self.sides[at].high))
        self._bound = make_bound(self.sides[self._main])
        self.step = TILE["cpu" if self.device == "cpu" else "cuda"]
        """Rows worth asking for at once."""
        self.threads = _processors() if self.device == "cpu" else 1

    def blocks(self, start: int, stop: int) -> Iterator[Pairs]:
        """The pairs with start <= i < stop, sorted by (i, j), a piece of at most about `HELD` at a time."""
        found = self._rows(start, stop)
        if found is not None:
            yield found
        else:
            middle = (start + stop) // 2
            yield from self.blocks(start, middle)
            yield from self.blocks(middle, stop)

    def sampled(self) -> tuple[np.ndarray, np.ndarray]:
        """Both cosines (m,) in float32 of the pairs among at most `SEEN` images, to tell what thresholds pairs would meet."""
        rows = torch.from_numpy(np.sort(np.random.default_rng(0).choice(self.n, min(self.n, SEEN), replace=False)))
        upper = torch.ones(len(rows), len(rows), dtype=torch.bool).triu(1)
        units = (side.unit(rows.to(self.device), torch.float32) for side in self.sides)
        med, gen = ((unit @ unit.t()).cpu()[upper].numpy() for unit in units)
        return med, gen

    def all(self) -> Iterator[Pairs]:
        """All pairs in (i, j) order, a piece at a time."""
        for first in range(0, self.n, self.step):
            yield from self.blocks(first, min(self.n, first + self.step))

    def decide(self, i: np.ndarray, j: np.ndarray) -> Pairs:
        """Those of the listed pairs that meet the thresholds, in the order given, by the same rule as the full search."""
        return self._decided(torch.from_numpy(i).to(self.device), torch.from_numpy(j).to(self.device))

    def _rows(self, start: int, stop: int) -> Pairs | None:
        """The pairs of a block of rows, or None if they are too many to hold."""
        corners = [(i, j) for i in range(start, stop, self.step) for j in range(i, self.n, self.step)]
        parts: list[Pairs] = []
        held = 0
        # on a processor the tiles are the threads
        alone = partial(torch.set_num_threads, 1) if self.device == "cpu" else None
        with ThreadPoolExecutor(self.threads, initializer=alone) as pool:
            tiles = [
                pool.submit(self._tile, slice(i, min(stop, i + self.step)), slice(j, min(self.n, j + self.step)))
                for i, j in corners
            ]
            for tile in tiles:
                parts.append(tile.result())
                held += len(parts[-1])
                if held > HELD and stop - start > 1:
                    pool.shutdown(wait=True, cancel_futures=True)
                    return None
        pairs = Pairs.join(parts)
        return pairs.take(np.argsort(pairs.i, kind="stable"))  # tiles come in order of j

    def _tile(self, rows: slice, columns: slice) -> Pairs:
        """The pairs i < j of a tile."""
        if self._bound is not None:
            maybe = self._bound.vectors[rows] @ self._bound.vectors[columns].t() >= self._bound.floor
        else:
            maybe = self.sides[self._main].may_meet(rows, columns)
        if columns.start < rows.stop:  # some of the tile lies on or below the diagonal
            maybe = maybe.triu(rows.start - columns.start + 1)
        i, j = _positions(maybe)
        if len(i) > MANY * maybe.numel():
            for side in self.sides if self._bound is not None else (self.sides[1 - self._main],):
                maybe &= side.may_meet(rows, columns)
            i, j = _positions(maybe)
        if len(i) <= DENSE * maybe.numel():
            return self._decided(i + rows.start, j + columns.start)
        sims = []
        for side in self.sides:
            values, met = side.tile(rows, columns)
            maybe &= met
            sims.append(values)
        i, j = _positions(maybe)
        return Pairs(
            *(part.cpu().numpy() for part in (i + rows.start, j + columns.start, *(values[i, j] for values in sims)))
        )

    def _decided(self, i: torch.Tensor, j: torch.Tensor) -> Pairs:
        first, met = self.sides[self._main].listed(i, j)
        i, j, first = i[met], j[met], first[met]
        second, met = self.sides[1 - self._main].listed(i, j)
        med, gen = (first, second) if self._main == 0 else (second, first)
        return Pairs(*(part[met].cpu().numpy() for part in (i, j, med, gen)))


def _processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _positions(maybe: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and columns of what is True; numpy finds few among many faster than torch does on a processor."""
    if maybe.device.type != "cpu":
        i, j = maybe.nonzero(as_tuple=True)
        return i, j
    flat = torch.from_numpy(np.flatnonzero(maybe.numpy()))
    return flat // maybe.shape[1], flat % maybe.shape[1]


# Samples of thresholds that too many pairs meet to list them (easy, reversed)

DRAW = 2**18
EFFORT = 2**23
"""Pairs drawn at most; if they do not suffice, few pairs meet the thresholds, and all are searched."""


@dataclass(frozen=True)
class Sample:
    """Pairs in (i, j) order; `drawn` pairs were looked at, and `complete` says that these are all that meet the thresholds."""

    pairs: Pairs
    drawn: int
    complete: bool


def sample_pairs(search: PairSearch, count: int, seed: int = 0) -> Sample:
    """`count` different pairs drawn uniformly from those that meet `search.thresholds`, or as many as there are.

    The same seed, embeddings and thresholds give the same pairs. Every matching pair is equally likely to be in the sample.
    """
    rng = np.random.default_rng(seed)
    n = search.n
    total = n * (n - 1) // 2
    if total <= EFFORT:
        return _of_all(search, count, rng)
    kept, drawn = Pairs.join([]), 0
    while len(kept) < count and drawn < EFFORT:
        ends = np.sort(rng.integers(0, n, (DRAW, 2)), axis=1)
        ends = ends[ends[:, 0] < ends[:, 1]]
        found = search.decide(np.ascontiguousarray(ends[:, 0]), np.ascontiguousarray(ends[:, 1]))
        drawn += len(ends)
        kept = Pairs.join([kept, found])
        first = np.sort(np.unique(kept.i * n + kept.j, return_index=True)[1])
        kept = kept.take(first[:count])
    if len(kept) < count:
        return _of_all(search, count, rng)
    return Sample(kept.take(np.lexsort((kept.j, kept.i))), drawn, complete=False)


def _of_all(search: PairSearch, count: int, rng: np.random.Generator) -> Sample:
    """The same from all pairs there are: each gets a random number, the smallest are kept."""
    kept, keys, met = Pairs.join([]), np.empty(0), 0
    for found in search.all():
        met += len(found)
        kept, keys = Pairs.join([kept, found]), np.append(keys, rng.random(len(found)))
        if len(kept) > count:
            smallest = np.argpartition(keys, count - 1)[:count]
            kept, keys = kept.take(smallest), keys[smallest]
    return Sample(kept.take(np.lexsort((kept.j, kept.i))), search.n * (search.n - 1) // 2, met <= count)
