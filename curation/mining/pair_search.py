"""Find image pairs that one encoder confuses and another tells apart: every pair i < j, exactly, not a sample.

A pair is confusing if sim_med >= 0.9 and sim_gen <= 0.75 (MediConfusion, section 2.1; sim = cosine of the two images' embeddings by
BiomedCLIP and DINOv2). The paper sampled pairs at random. Here float32 products rule pairs out tile by tile, with a slack that
covers their rounding, and what they do not rule out is decided in float64; a similarity within 1e-12 of a threshold lies on
it and is reported as the threshold itself. It is the same on a processor and on a GPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from dataset_builders.errors import BadInput, first_line

TIE = 1e-12
"""A similarity this close to a threshold lies on it: float64 rounding of a cosine stays below it, a true difference rarely does."""
ROWS, COLUMNS = 1024, 4096
"""Size of a tile. Pairs are handed out by strips of so many rows, so that memory stays bounded where everything matches."""
FEW = 64
"""Where at most one pair in so many is left after the first encoder's product, deciding them costs less than the second's product."""
GATHERED = 2**15
"""Pairs whose vectors are gathered at a time."""


@dataclass(frozen=True)
class Thresholds:
    """Bounds on the cosines of a pair; the defaults include every cosine."""

    med_at_least: float = -1.0
    med_at_most: float = 1.0
    gen_at_least: float = -1.0
    gen_at_most: float = 1.0


MODES: dict[str, Thresholds] = {
    "confusing": Thresholds(med_at_least=0.9, gen_at_most=0.75),  # section 2.1
    "easy": Thresholds(med_at_most=0.4),  # appendix E
    "reversed": Thresholds(med_at_most=0.5, gen_at_least=0.5),  # appendix G
}
"""The paper's searches."""


SIMILARITIES = ("sim_med", "sim_gen")
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
    """One encoder's vectors (n, d) in float32, of any length but zero, on a device, and the limits of their cosines."""

    def __init__(self, x: np.ndarray, low: float = -1.0, high: float = 1.0, device: str = "cpu") -> None:
        """x: (n, d) numbers; memory maps of float32 are used where they lie."""
        with warnings.catch_warnings():  # memory maps cannot be written to, and nothing here writes
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            self.x = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32)).to(device)
        parts = [torch.linalg.vector_norm(part.double(), dim=1) for part in self.x.split(COLUMNS)]
        self.norms = torch.cat(parts)
        self.low, self.high = low, high
        self.slack = float(np.finfo(np.float32).eps) * (self.x.shape[1] + 16) + 2 * TIE
        """Largest rounding error of a float32 cosine, in any order of summation; what lies on a threshold stays inside it."""

    def may_meet(self, rows: slice, columns: slice) -> torch.Tensor:
        """(rows, columns) bool: False where a float32 product says that the pair is out."""
        product = (self.x[rows] / self.norms[rows, None]).float() @ self.x[columns].t()
        norms, met = self.norms[columns], torch.ones_like(product, dtype=torch.bool)
        if self.low > -1:
            met &= product >= ((self.low - self.slack) * norms).float()
        if self.high < 1:
            met &= product <= ((self.high + self.slack) * norms).float()
        return met

    def cosines(self, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        """Cosines (m,) in float64 of the listed pairs, those on a threshold as the threshold."""
        parts = zip(i.split(GATHERED), j.split(GATHERED), strict=True)
        dots = torch.cat(
            [torch.linalg.vecdot(self.x[some].double(), self.x[others].double()) for some, others in parts]
        )
        values = (dots / (self.norms[i] * self.norms[j])).clamp(-1.0, 1.0)
        for limit in (self.high, self.low):
            values = torch.where((values - limit).abs() <= TIE, limit, values)
        return values


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
        for first in range(start, stop, ROWS):
            rows, parts = slice(first, min(stop, first + ROWS)), []
            for left in range(first, self.n, COLUMNS):
                columns = slice(left, min(self.n, left + COLUMNS))
                maybe = self.med.may_meet(rows, columns)
                if maybe.count_nonzero() * FEW > maybe.numel():
                    maybe &= self.gen.may_meet(rows, columns)
                i, j = (maybe.triu(1) if left == first else maybe).nonzero(as_tuple=True)
                parts.append(self._decided(i + first, j + left))
            yield pd.concat(parts).sort_values("i", kind="stable", ignore_index=True)  # tiles come in order of j

    def all(self) -> Iterator[pd.DataFrame]:
        """All pairs in (i, j) order, a piece at a time."""
        return self.rows(0, self.n)

    def decide(self, i: np.ndarray, j: np.ndarray) -> pd.DataFrame:
        """Those of the listed pairs that meet the thresholds, in the order given, by the same rule as the full search."""
        return self._decided(torch.from_numpy(i).to(self.device), torch.from_numpy(j).to(self.device))

    def _decided(self, i: torch.Tensor, j: torch.Tensor) -> pd.DataFrame:
        sims, met = [], torch.ones_like(i, dtype=torch.bool)
        for side in (self.med, self.gen):
            values = side.cosines(i, j)
            met &= (values >= side.low) & (values <= side.high)
            sims.append(values)
        columns = zip(("i", "j", *SIMILARITIES), (i, j, *sims), strict=True)
        return pd.DataFrame({name: part[met].cpu().numpy() for name, part in columns})


# Samples of thresholds that too many pairs meet to list them (easy, reversed)

DRAW = 2**18
EFFORT = 2**23
"""Pairs drawn at most; if they do not suffice, few pairs meet the thresholds, and all are searched."""


def sample_pairs(search: PairSearch, count: int, seed: int = 0) -> pd.DataFrame:
    """`count` different pairs drawn uniformly from those that meet `search.thresholds`, or as many as there are, in (i, j) order.

    The same seed, embeddings and thresholds give the same pairs. Every matching pair is equally likely to be in the sample.
    """
    rng = np.random.default_rng(seed)
    n = search.n
    none = search.decide(*np.empty((2, 0), np.int64))
    kept, drawn = none, 0 if n * (n - 1) // 2 > EFFORT else EFFORT
    while len(kept) < count and drawn < EFFORT:
        ends = np.sort(rng.integers(0, n, (DRAW, 2)), axis=1)
        ends = ends[ends[:, 0] < ends[:, 1]]
        drawn += len(ends)
        kept = pd.concat([kept, search.decide(ends[:, 0], ends[:, 1])]).drop_duplicates(["i", "j"]).head(count)
    if len(kept) < count:  # each of all pairs gets a random number, the smallest are kept
        kept = none.assign(key=0.0)
        for found in search.all():
            kept = pd.concat([kept, found.assign(key=rng.random(len(found)))]).nsmallest(count, "key")
    return kept.sort_values(["i", "j"], ignore_index=True)[list(none)]
