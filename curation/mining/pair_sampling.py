"""A seeded uniform sample of the pairs that meet thresholds, for thresholds that too many pairs meet to list them
(easy, reversed).

See also: the exhaustive search (`confusing_pairs.py`), whose rule decides these pairs too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from curation.mining.confusing_pairs import Pairs, PairSearch

ALL = 2**23
"""Up to this many pairs in all, they are gone through in random order, so that nothing is missed."""
DRAW = 2**18
LARGEST_EFFORT = 2**28
"""Pairs drawn at most."""
SEARCH_FROM = 2**23
"""After so many draws without enough pairs, the exhaustive search is quicker, where a lower limit lets it rule pairs out."""


@dataclass(frozen=True)
class Sample:
    """Pairs in (i, j) order; `drawn` pairs were looked at, and `complete` says that these are all that meet the
    thresholds."""

    pairs: Pairs
    drawn: int
    complete: bool


def sample_pairs(search: PairSearch, count: int, seed: int = 0) -> Sample:
    """`count` different pairs drawn uniformly from those that meet `search.thresholds`, or as many as there are.

    The same seed, embeddings and thresholds give the same pairs. Every matching pair is equally likely to be in the
    sample.
    """
    rng = np.random.default_rng(seed)
    n = search.n
    total = n * (n - 1) // 2
    kept: list[Pairs] = []
    seen: set[int] = set()
    drawn = 0
    left_out = False
    order = rng.permutation(total) if total <= ALL else None
    lowest = max(low for low, _ in search.thresholds.ranges())
    effort = total if order is not None else SEARCH_FROM if math.isfinite(lowest) else LARGEST_EFFORT
    bar = tqdm(total=count, desc="drawing pairs", unit="pair", disable=None)
    while len(seen) < count and drawn < effort:
        if order is not None:
            i, j = _unrank(order[drawn : drawn + DRAW], n)
        else:
            ends = rng.integers(0, n, (DRAW, 2))
            ends.sort(axis=1)
            ends = ends[ends[:, 0] < ends[:, 1]]
            i, j = np.ascontiguousarray(ends[:, 0]), np.ascontiguousarray(ends[:, 1])
        drawn += len(i)
        found = search.decide(i, j)
        new = []
        for at, key in enumerate((found.i * n + found.j).tolist()):
            if key in seen:
                continue
            if len(seen) == count:
                left_out = True
                break
            seen.add(key)
            new.append(at)
        kept.append(found.take(np.array(new, np.int64)))
        bar.update(len(new))
    bar.close()
    if len(seen) < count and order is None and math.isfinite(lowest):
        return _sample_of_all(search, count, rng)
    pairs = Pairs.join(kept)
    return Sample(
        pairs.take(np.lexsort((pairs.j, pairs.i))), drawn, order is not None and drawn >= total and not left_out
    )


def _sample_of_all(search: PairSearch, count: int, rng: np.random.Generator) -> Sample:
    """The same from all pairs there are, for thresholds that few meet: each gets a random number, the smallest are kept."""
    kept, keys, met = Pairs.join([]), np.empty(0), 0
    for first in tqdm(range(0, search.n, search.step), desc="searching pairs", unit="block", disable=None):
        for found in search.blocks(first, min(search.n, first + search.step)):
            met += len(found)
            kept, keys = Pairs.join([kept, found]), np.append(keys, rng.random(len(found)))
            if len(kept) > count:
                smallest = np.argpartition(keys, count - 1)[:count]
                kept, keys = kept.take(smallest), keys[smallest]
    return Sample(kept.take(np.lexsort((kept.j, kept.i))), search.n * (search.n - 1) // 2, met <= count)


def _unrank(rank: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The pairs i < j of n at these positions in the order (0, 1), (0, 2) ... (1, 2) ..."""
    starts = np.cumsum(np.append(0, np.arange(n - 1, 0, -1)))
    i = np.searchsorted(starts, rank, side="right") - 1
    return i, rank - starts[i] + i + 1
