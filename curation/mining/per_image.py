"""The pairs with the largest gap of each image, from blocks of pairs as they are found, so that nobody ever holds all of them.

A pair is kept where its gap |sim_med - sim_gen| is among the k largest of either of its images (with those that tie for the k-th rank).
What a block drops could never have been kept: an image's k-th largest gap only grows as more pairs are seen.

See also: the blocks (`pair_mining.py`), workers on other machines (`ray_search.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from curation.mining.confusing_pairs import Pairs

NONE = -1.0
"""Less than any gap."""


class Largest:
    """The k largest gaps of each of n images so far: `gaps` (n, k) float64, largest first, NONE where there are fewer."""

    def __init__(self, n: int, k: int) -> None:
        self.k = k
        self.gaps = np.full((n, k), NONE)

    def add(self, pairs: Pairs) -> None:
        """Take the gaps of these pairs, none of which was added before."""
        if not len(pairs):
            return
        image = np.concatenate([pairs.i, pairs.j])
        gap = np.tile(gaps_of(pairs), 2)
        order = np.lexsort((-gap, image))
        image, gap = image[order], gap[order]
        rows, starts = np.unique(image, return_index=True)
        rank = np.arange(len(image)) - np.repeat(starts, np.diff([*starts, len(image)]))
        first = rank < self.k
        new = np.full((len(rows), self.k), NONE)
        new[np.searchsorted(rows, image[first]), rank[first]] = gap[first]
        self.gaps[rows] = np.sort(np.concatenate([self.gaps[rows], new], 1), 1)[:, : -self.k - 1 : -1]

    @property
    def least(self) -> np.ndarray:
        """(n,): the gap that a pair must reach to be one of the image's largest."""
        return self.gaps[:, -1]


def gaps_of(pairs: Pairs) -> np.ndarray:
    """|sim_med - sim_gen| of each pair (m,)."""
    gap: np.ndarray = np.abs(pairs.sim_med - pairs.sim_gen)
    return gap


def reaching(pairs: Pairs, least: np.ndarray) -> Pairs:
    """The pairs that reach the `least` (n,) gap of either of their images."""
    gap = gaps_of(pairs)
    return pairs.take((gap >= least[pairs.i]) | (gap >= least[pairs.j]))


def largest_of(parts: Iterable[Pairs], k: int, least: np.ndarray) -> Pairs:
    """Of one block's pairs, in parts, those that can be among the k largest of an image: they reach `least`, what is known of all blocks,
    and the block's own k-th largest."""
    kept = Pairs.join([])
    for part in parts:
        kept = Pairs.join([kept, reaching(part, least)])
        images, rows = np.unique(np.concatenate([kept.i, kept.j]), return_inverse=True)
        i, j = rows[: len(kept)], rows[len(kept) :]
        here = Pairs(i, j, kept.sim_med, kept.sim_gen)
        own = Largest(len(images), k)
        own.add(here)
        gap = gaps_of(here)
        kept = kept.take((gap >= own.least[i]) | (gap >= own.least[j]))
    return kept
