"""A seeded uniform sample of the pairs that meet thresholds, for thresholds that too many pairs meet to list them (easy, reversed).

See also: the exhaustive search (`pair_search.py`), whose rule decides these pairs too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from curation.mining.pair_search import Pairs, PairSearch

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
    kept: list[Pairs] = []
    seen: set[int] = set()
    drawn = 0
    with tqdm(total=count, desc="drawing pairs", unit="pair", disable=None) as bar:
        while len(seen) < count and drawn < EFFORT:
            ends = np.sort(rng.integers(0, n, (DRAW, 2)), axis=1)
            ends = ends[ends[:, 0] < ends[:, 1]]
            found = search.decide(np.ascontiguousarray(ends[:, 0]), np.ascontiguousarray(ends[:, 1]))
            drawn += len(ends)
            new = []
            for at, key in enumerate((found.i * n + found.j).tolist()):
                if key not in seen and len(seen) < count:
                    seen.add(key)
                    new.append(at)
            kept.append(found.take(np.array(new, np.int64)))
            bar.update(len(new))
    if len(seen) < count:
        return _of_all(search, count, rng)
    pairs = Pairs.join(kept)
    return Sample(pairs.take(np.lexsort((pairs.j, pairs.i))), drawn, complete=False)


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
