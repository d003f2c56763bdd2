"""Find all image pairs that one encoder confuses and another tells apart.

A pair is confusing if sim_med >= 0.9 and sim_gen <= 0.75 (MediConfusion, section 2.1; cosines of
the BiomedCLIP and DINOv2 embeddings). The paper sampled pairs at random.

Here all pairs i < j are searched, exactly. Cosines are computed in float32. If one is so close to a
threshold that rounding could decide, it is recomputed in float64, and if it then lies within 1e-12
of the threshold, it counts and is reported as equal to the threshold. The search therefore finds
the same pairs as one in float64, on CPU and GPU alike; reported cosines have float32 precision.
"""

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
"""A cosine this close to a threshold counts as equal to it. Rounding errors of float64 are smaller
than this; true differences rarely are.
"""
TILE_ROWS, TILE_COLUMNS = 512, 2048
"""Size of a tile; its cosines fit into a CPU cache. Pairs are returned per strip of `TILE_ROWS`
rows, which limits memory even if all pairs match.
"""
HEAD_DIVISOR = 4
"""The first 1 / HEAD_DIVISOR of the principal axes are enough to rule out most pairs
(`EncoderVectors.head`).
"""
DENSE_DIVISOR = 64
"""If more than 1 / DENSE_DIVISOR of a tile's pairs are candidates, a full matrix product is faster
than one dot product per candidate.
"""
AXES_SAMPLE_SIZE = 4096
"""Number of vectors from which the principal axes are computed."""
CHUNK_ROWS = 256
"""Number of vectors that are converted or gathered at a time, so that they stay in a CPU cache."""


@dataclass(frozen=True)
class Thresholds:
    """Bounds on the cosines of a pair; the defaults include every pair."""

    med_at_least: float = -1.0
    med_at_most: float = 1.0
    gen_at_least: float = -1.0
    gen_at_most: float = 1.0


SEARCH_MODES: dict[str, Thresholds] = {
    "confusing": Thresholds(med_at_least=0.9, gen_at_most=0.75),  # section 2.1
    "easy": Thresholds(med_at_most=0.4),  # appendix E
    "reversed": Thresholds(med_at_most=0.5, gen_at_least=0.5),  # appendix G
}
"""The searches of the paper."""

SIMILARITY_COLUMNS = ("sim_med", "sim_gen")
"""Columns (float64) of a table of pairs, in addition to i < j (int64)."""


def pick_device(name: str) -> str:
    """Resolve --device (auto, cpu, cuda, cuda:1) to a torch device.

    Raises BadInput if the device is not available.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # builds of torch without CUDA raise AssertionError
        raise BadInput(f"--device {name}: not available ({first_line(error)}). Give auto, cpu or cuda.") from None
    return name


class EncoderVectors:
    """One encoder's vectors (n, d) in float32 on a device, and the limits of their cosines."""

    def __init__(self, x: np.ndarray, low: float = -1.0, high: float = 1.0, device: str = "cpu") -> None:
        """Load the vectors; float32 memory maps are used without a copy.

        Args:
            x: (n, d) vectors, none of which is zero; they need not be normalised.
            low: lower limit of the cosine.
            high: upper limit of the cosine.
            device: torch device.

        Raises:
            BadInput: a vector is zero, or its products leave the range of float32.
        """
        with warnings.catch_warnings():  # memory maps are read-only, which is fine: nothing writes to them
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            self.x = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32)).to(device)

        squares = [part.double().square_().sum(1) for part in self.x.split(CHUNK_ROWS)]
        self.inverse_norms = torch.cat(squares).rsqrt()
        if not ((self.inverse_norms > 1e-15) & (self.inverse_norms < 1e15)).all():
            raise BadInput(
                "embeddings: a vector is zero or outside the range of float32 products. Embed the images again."
            )

        self.low, self.high = low, high
        self.rounding = float(np.finfo(np.float32).eps) * (self.x.shape[1] + 16) + 2 * TIE_TOLERANCE
        """Upper bound on the error of a float32 cosine, in any order of summation."""

    @cached_property
    def head(self) -> torch.Tensor:
        """Compute the heads of all vectors, (n, axes + 1) float32, for a cheap bound on cosines.

        A head contains the coordinates of the normalised vector on the first principal axes, and
        the norm of the rest. By the Cauchy-Schwarz inequality, the product of two heads is an upper
        bound on the cosine, at a fraction of its cost.
        """
        sample = slice(
            None, None, max(1, len(self.x) // AXES_SAMPLE_SIZE)
        )  # a sample of vectors suffices, since the bound holds for any orthogonal axes
        unit = self.x[sample].double() * self.inverse_norms[sample, None]
        axes = torch.linalg.eigh(unit.T @ unit).eigenvectors[:, -max(1, unit.shape[1] // HEAD_DIVISOR) :]

        heads = []
        for x, inverse_norms in zip(self.x.split(CHUNK_ROWS), self.inverse_norms.split(CHUNK_ROWS), strict=True):
            head = (x.double() * inverse_norms[:, None]) @ axes
            residual = (1 - head.square().sum(1)).clamp_min_(0).sqrt()
            heads.append(torch.cat([head, residual[:, None]], 1).float())
        return torch.cat(heads)

    def candidates(self, rows: slice, columns: slice) -> torch.Tensor:
        """Find the pairs i < j of a tile whose cosine may reach `low`.

        Args:
            rows: range of i.
            columns: range of j.

        Returns:
            Positions (m,) in the flattened tile.
        """
        bounds = self.head[rows] @ self.head[columns].t()
        if columns.start == rows.start:
            bounds.masked_fill_(torch.ones_like(bounds, dtype=torch.bool).tril(), -math.inf)

        limit = self.low - self.rounding
        if bounds.is_cuda:
            return (bounds >= limit).flatten().nonzero()[:, 0]
        return torch.from_numpy(np.flatnonzero(bounds.numpy() >= np.float32(limit)))  # much faster than torch's nonzero

    def tile(self, rows: slice, columns: slice) -> torch.Tensor:
        """Return the float32 cosines (rows * columns,) of a tile."""
        inverse_norms = self.inverse_norms.float()
        product = (self.x[rows] * inverse_norms[rows, None]) @ self.x[columns].t()
        return product.mul_(inverse_norms[columns]).flatten()

    def cosines(self, i: torch.Tensor, j: torch.Tensor, precision: str = "float32") -> torch.Tensor:
        """Compute the cosines of the given pairs.

        Args:
            i: (m,) rows of the first vectors.
            j: (m,) rows of the second vectors.
            precision: torch and NumPy dtype of the products.

        Returns:
            (m,) float64.
        """
        products = [
            self._products(i_chunk, j_chunk, precision)
            for i_chunk, j_chunk in zip(i.split(CHUNK_ROWS), j.split(CHUNK_ROWS), strict=True)
        ]
        return torch.cat(products).double() * self.inverse_norms[i] * self.inverse_norms[j]

    def _products(self, i: torch.Tensor, j: torch.Tensor, precision: str) -> torch.Tensor:
        if self.x.is_cuda:
            kind = getattr(torch, precision)
            return torch.linalg.vecdot(self.x[i].to(kind), self.x[j].to(kind))
        x = self.x.numpy()  # much faster than torch on a CPU
        return torch.from_numpy(
            np.einsum(
                "ij,ij->i",
                x[i.numpy()].astype(precision, copy=False),
                x[j.numpy()].astype(precision, copy=False),
            )
        )

    def may_be_within(self, cosines: torch.Tensor) -> torch.Tensor:
        """Return a bool per float32 cosine: may be within the limits, given its rounding error."""
        return (cosines >= self.low - self.rounding) & (cosines <= self.high + self.rounding)

    def resolve_ties(self, cosines: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        """Recompute in float64 the cosines for which float32 is not precise enough.

        These are the cosines within the rounding error of a limit. A cosine that is equal to a
        limit (within `TIE_TOLERANCE`) is set to exactly that limit.

        Args:
            cosines: (m,) float32.
            i: (m,) rows of the first vectors.
            j: (m,) rows of the second vectors.

        Returns:
            (m,) float64.
        """
        cosines = cosines.double().clamp_(-1.0, 1.0)
        for limit in (self.high, self.low):
            near = ((cosines - limit).abs() <= self.rounding).nonzero()[:, 0]
            exact = self.cosines(i[near], j[near], "float64").clamp_(-1.0, 1.0)
            cosines[near] = torch.where((exact - limit).abs() <= TIE_TOLERANCE, limit, exact)
        return cosines


class PairSearch:
    """Search of all pairs of n images within the thresholds.

    Args:
        med: (n, d) vectors of the medical encoder; need not be normalised.
        gen: (n, e) vectors of the general encoder, in the same order.
        thresholds: limits of both cosines.
        device: auto (GPU if available), cpu or cuda; all find the same pairs.
    """

    def __init__(self, med: np.ndarray, gen: np.ndarray, thresholds: Thresholds, device: str = "auto") -> None:
        self.device = pick_device(device)
        self.thresholds = thresholds
        self.n = len(med)
        self.med = EncoderVectors(med, thresholds.med_at_least, thresholds.med_at_most, self.device)
        self.gen = EncoderVectors(gen, thresholds.gen_at_least, thresholds.gen_at_most, self.device)

    def pairs_of_rows(self, start: int, stop: int) -> Iterator[pd.DataFrame]:
        """Yield the pairs with start <= i < stop in (i, j) order, one strip of rows at a time."""
        for strip_start in range(start, stop, TILE_ROWS):
            rows = slice(strip_start, min(stop, strip_start + TILE_ROWS))
            tiles = [
                self._tile_pairs(rows, slice(tile_start, min(self.n, tile_start + TILE_COLUMNS)))
                for tile_start in range(strip_start, self.n, TILE_COLUMNS)
            ]
            i, j, med, gen = (torch.cat(parts) for parts in zip(*tiles, strict=True))

            order = i.argsort(stable=True)  # tiles are in order of j, which a stable sort preserves
            yield self._meeting_thresholds(i[order], j[order], med[order], gen[order])

    def all_pairs(self) -> Iterator[pd.DataFrame]:
        """Yield all pairs in (i, j) order, in pieces."""
        return self.pairs_of_rows(0, self.n)

    def filter_pairs(self, i: np.ndarray, j: np.ndarray) -> pd.DataFrame:
        """Return the given pairs that meet the thresholds, by the rules of the full search.

        Args:
            i: (m,) row numbers.
            j: (m,) row numbers.

        Returns:
            A table in the given order, with `SIMILARITY_COLUMNS`.
        """
        i_rows, j_rows = (torch.from_numpy(ends).to(self.device) for ends in (i, j))
        return self._meeting_thresholds(
            i_rows, j_rows, self.med.cosines(i_rows, j_rows), self.gen.cosines(i_rows, j_rows)
        )

    def _tile_pairs(self, rows: slice, columns: slice) -> Iterable[torch.Tensor]:
        """Return i, j and both float32 cosines of a tile's candidate pairs."""
        width = columns.stop - columns.start
        positions = self.med.candidates(rows, columns)

        # First the cheap bound, then the cosines of one encoder, then those of the other: most
        # pairs are ruled out early.
        cosines: list[torch.Tensor] = []
        for vectors in (self.med, self.gen):
            i, j = positions // width + rows.start, positions % width + columns.start

            is_dense = len(positions) * DENSE_DIVISOR > width * (rows.stop - rows.start)
            values = vectors.tile(rows, columns)[positions] if is_dense else vectors.cosines(i, j)
            is_candidate = vectors.may_be_within(values)
            positions, i, j = positions[is_candidate], i[is_candidate], j[is_candidate]
            cosines = [part[is_candidate] for part in (*cosines, values)]
        return i, j, *cosines

    def _meeting_thresholds(
        self, i: torch.Tensor, j: torch.Tensor, med: torch.Tensor, gen: torch.Tensor
    ) -> pd.DataFrame:
        """Return those of the given pairs that meet the thresholds.

        `med` and `gen` are their float32 cosines."""
        med, gen = self.med.resolve_ties(med, i, j), self.gen.resolve_ties(gen, i, j)
        met = (med >= self.med.low) & (med <= self.med.high) & (gen >= self.gen.low) & (gen <= self.gen.high)
        columns = zip(("i", "j", *SIMILARITY_COLUMNS), (i, j, med, gen), strict=True)
        return pd.DataFrame({name: part[met].cpu().numpy() for name, part in columns})


# Samples, for thresholds with too many matches to list (easy, reversed)

PAIRS_PER_DRAW = 2**18
"""Number of random pairs per iteration."""
MAX_DRAWN_PAIRS = 2**23
"""Maximum number of random pairs. If too few of them match, matches are rare, and all pairs are
searched.
"""


def sample_pairs(search: PairSearch, count: int, seed: int = 0) -> pd.DataFrame:
    """Draw pairs uniformly from those that meet `search.thresholds`.

    The same seed, embeddings and thresholds give the same pairs.

    Args:
        search: embeddings and thresholds.
        count: number of different pairs to draw.
        seed: random seed.

    Returns:
        `count` pairs in (i, j) order, or all matching pairs if there are fewer.
    """
    rng = np.random.default_rng(seed)
    n = search.n
    empty = search.filter_pairs(*np.empty((2, 0), np.int64))
    sample, drawn_count = empty, 0 if n * (n - 1) // 2 > MAX_DRAWN_PAIRS else MAX_DRAWN_PAIRS

    # Rejection sampling is uniform, and cheap unless matches are rare.
    while len(sample) < count and drawn_count < MAX_DRAWN_PAIRS:
        draws = np.sort(rng.integers(0, n, (PAIRS_PER_DRAW, 2)), axis=1)
        draws = draws[draws[:, 0] < draws[:, 1]]
        drawn_count += len(draws)
        sample = (
            pd.concat([sample, search.filter_pairs(draws[:, 0], draws[:, 1])]).drop_duplicates(["i", "j"]).head(count)
        )

    if len(sample) < count:  # the matches with the `count` smallest random keys are a uniform sample
        sample = empty.assign(key=0.0)
        for matches in search.all_pairs():
            sample = pd.concat([sample, matches.assign(key=rng.random(len(matches)))]).nsmallest(count, "key")
    return sample.sort_values(["i", "j"], ignore_index=True)[list(empty)]
