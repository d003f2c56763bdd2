"""The same exact pair search on a GPU: one bfloat16 product per tile picks candidates, each is decided in float64.

With u the unit vectors and b their bfloat16 roundings, |u - b| <= e (measured for every vector, not assumed), the cosine and
b.b' differ by at most 2e + e^2 (Cauchy-Schwarz). Added to that: float32 accumulation over d products in any order, rounded in
any direction (d / 2^22 of a sum of magnitudes that is at most (1 + e)^2), and the product's own rounding to bfloat16 (2^-8 of
it). Whatever the tile says is out by more than this slack is out; everything else is decided by its float64 cosine, by the rule
of `pair_kernels.py`. It runs on any torch device; on a processor `confusing_pairs.PairSearch` finds the same with much less work.

See also: thresholds, the blocks' order, files (`confusing_pairs.py`, `pair_mining.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from curation.mining.confusing_pairs import (
    HELD,
    Embeddings,
    Pairs,
    PairSearch,
    Thresholds,
    as_tensor,
    read_embeddings,
)
from curation.mining.pair_kernels import TIE

ENTRIES = {"cpu": 2**20, "cuda": 2**26}
"""Entries of a tile: 2^26 bfloat16 products and what is found among them stay under 1.5 GB of a GPU."""
DECIDED = {"cpu": 2**13, "cuda": 2**16}
"""Candidates gathered at a time: 2^16 pairs of 768 numbers in float64 are 0.8 GB."""


class DeviceSearch(PairSearch):
    """All pairs of n images that meet thresholds, found on a torch device. Build it once: it puts both embeddings there."""

    def __init__(self, med: np.ndarray, gen: np.ndarray, thresholds: Thresholds, device: str = "cuda") -> None:
        self.device = torch.device(device)
        self._there: dict[str, torch.Tensor] = {}
        super().__init__(med, gen, thresholds)
        ranges = thresholds.ranges()
        # The product is taken of one encoder: that whose limits rule out more, as far as can be told without looking.
        self._main_is_med = _worth(ranges[0]) >= _worth(ranges[1])
        self._ready: tuple[_OnDevice, _OnDevice] | None = None
        kind = "cuda" if self.device.type == "cuda" else "cpu"
        self._entries, self._decided = ENTRIES[kind], DECIDED[kind]

    @property
    def step(self) -> int:
        """Rows worth asking for at once."""
        return max(1, min(4096, math.isqrt(self._entries)))

    def _read(self, x: np.ndarray, what: str) -> Embeddings:
        def norms(kept: np.ndarray) -> np.ndarray:
            there = self._there[what] = as_tensor(kept).to(self.device)
            if not len(kept):
                return np.empty(0)
            found: np.ndarray = torch.cat([part.double().norm(dim=1) for part in there.split(8192)]).cpu().numpy()
            return found

        found = read_embeddings(x, what, norms)
        if found.x.dtype != np.float32:  # may have been scaled since
            self._there[what] = as_tensor(found.x).to(self.device)
        return found

    def prepare(self, by_products: bool | None = None) -> None:
        """Put the embeddings on the device, main encoder first."""
        if self._ready is None:
            med = _OnDevice(self._there["med"], self.med.scale)
            gen = _OnDevice(self._there["gen"], self.gen.scale)
            self._ready = (med, gen) if self._main_is_med else (gen, med)

    def _rows(self, start: int, stop: int) -> Pairs | None:
        """The pairs of a block of rows, or None if they are too many to hold."""
        assert self._ready is not None
        main, other = self._ready
        ranges = self.thresholds.ranges() if self._main_is_med else self.thresholds.ranges()[::-1]
        columns = max(1, self._entries // max(1, stop - start))
        parts: list[Pairs] = []
        held = 0
        rough = main.rough()
        with _full_precision():
            for first in range(start + 1, self.n, columns):
                last = min(self.n, first + columns)
                i, j = _candidates(rough, main.slack, ranges[0], (start, stop), (first, last))
                for at in range(0, len(i), self._decided):
                    some = slice(at, at + self._decided)
                    parts.append(self._decide(main, other, ranges, i[some], j[some]))
                    held += len(parts[-1])
                    if held > HELD and stop - start > 1:
                        return None
        pairs = Pairs.join(parts)
        return pairs.take(np.lexsort((pairs.j, pairs.i))) if len(parts) > 1 else pairs

    def _decide(
        self,
        main: _OnDevice,
        other: _OnDevice,
        ranges: tuple[tuple[float, float], tuple[float, float]],
        i: torch.Tensor,
        j: torch.Tensor,
    ) -> Pairs:
        """Those of the listed candidates that meet both encoders' limits."""
        first, inside = main.cosines(i, j, *ranges[0])
        i, j, first = i[inside], j[inside], first[inside]
        second, inside = other.cosines(i, j, *ranges[1])
        found = [part[inside].cpu().numpy() for part in (i, j, first, second)]
        return Pairs(*found) if self._main_is_med else Pairs(found[0], found[1], found[3], found[2])


class _OnDevice:
    """One encoder's vectors (n, d) on a device, with 1 / norm (n,) in float64 and the slack of a bfloat16 product."""

    def __init__(self, x: torch.Tensor, scale: np.ndarray) -> None:
        self.x = x
        self.scale = torch.from_numpy(scale).to(x.device)
        self._rough: torch.Tensor | None = None
        self.slack = math.inf

    def rough(self) -> torch.Tensor:
        """The unit vectors in bfloat16; `slack` is known from then on."""
        if self._rough is None:
            parts, worst = [], 0.0
            for first in range(0, len(self.x), 8192):
                unit = self.x[first : first + 8192].double() * self.scale[first : first + 8192, None]
                parts.append(unit.to(torch.bfloat16))
                worst = max(worst, float((unit - parts[-1].double()).norm(dim=1).max()))
            self._rough = torch.cat(parts)
            length = (1 + worst) ** 2
            self.slack = 2 * worst + worst**2 + length * (self.x.shape[1] * 2.0**-22 + 2.0**-8) + 1e-9
        return self._rough

    def cosines(self, i: torch.Tensor, j: torch.Tensor, low: float, high: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines (m,) in float64 of the listed pairs, those on a threshold as the threshold, and whether they meet both."""
        values = (self.x[i].double() * self.x[j]).sum(dim=1) * (self.scale[i] * self.scale[j])
        snapped = values.clamp(-1.0, 1.0)
        for limit in (high, low):
            if math.isfinite(limit):
                snapped = torch.where((values - limit).abs() <= TIE, limit, snapped)
        return snapped, (snapped >= low) & (snapped <= high)


def _worth(limits: tuple[float, float]) -> float:
    """How much a pair of limits can be expected to rule out: a high lower one most, then a low upper one, then nothing."""
    low, high = limits
    if math.isfinite(low):
        return 10 + low
    return -high


def _candidates(
    rough: torch.Tensor,
    slack: float,
    limits: tuple[float, float],
    rows: tuple[int, int],
    columns: tuple[int, int],
) -> tuple[torch.Tensor, torch.Tensor]:
    """i, j of the pairs i < j of a tile that may meet the limits, by the bfloat16 product."""
    product = rough[rows[0] : rows[1]] @ rough[columns[0] : columns[1]].t()
    low, high = (_bfloat16(limits[0] - slack, down=True), _bfloat16(limits[1] + slack, down=False))
    maybe = product >= low
    if math.isfinite(limits[1]):
        maybe &= product <= high
    if columns[0] < rows[1]:  # some of the tile lies on or below the diagonal
        maybe = maybe.triu(rows[0] - columns[0] + 1)
    found = maybe.nonzero()
    return found[:, 0] + rows[0], found[:, 1] + columns[0]


def _bfloat16(value: float, down: bool) -> float:
    """The next number that bfloat16 holds: torch rounds a limit to the tensor's type, and must not round it inwards."""
    if not math.isfinite(value):
        return value
    near = torch.tensor(value, dtype=torch.bfloat16)
    if (float(near) > value) if down else (float(near) < value):
        near = torch.nextafter(near, torch.tensor(-math.inf if down else math.inf, dtype=torch.bfloat16))
    return float(near)


@contextmanager
def _full_precision() -> Iterator[None]:
    """Sums of bfloat16 products stay float32: torch lets a GPU add partial sums in bfloat16, which the slack does not cover."""
    flags = torch.backends.cuda.matmul
    before = flags.allow_bf16_reduced_precision_reduction
    flags.allow_bf16_reduced_precision_reduction = False
    try:
        yield
    finally:
        flags.allow_bf16_reduced_precision_reduction = before
