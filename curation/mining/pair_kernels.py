"""Compiled loops of the pair search: read candidates off a tile of bounds, and decide each one in float64.

Each runs on one thread without the interpreter's lock: the search hands tiles to threads of its own, which never wait
for each other.

See also: where the bounds come from (`prefix_bound.py`), what is searched and in which order (`confusing_pairs.py`).
"""

# mypy: allow-untyped-defs
from __future__ import annotations

import numba
import numpy as np

TIE = 1e-12
"""A similarity this close to a threshold lies on it: float64 rounding of a cosine stays below it, a true difference
rarely does."""

CHUNK = 64
"""Entries of a line looked at together: nearly all chunks hold no candidate."""


@numba.njit(fastmath=True)
def _dot(x: np.ndarray, i: int, j: int) -> float:
    """Dot product of rows i and j of x (n, d) in float64, whatever their type. Indices, not views: a view costs an
    atomic count."""
    total = 0.0
    for k in range(x.shape[1]):
        total += np.float64(x[i, k]) * np.float64(x[j, k])
    return total


@numba.njit(fastmath=True)
def _quick_dot(x: np.ndarray, i: int, j: int) -> float:
    """The same in the rows' own precision: good enough to turn candidates away, never to accept one."""
    total = x[i, 0] * x[j, 0]
    for k in range(1, x.shape[1]):
        total += x[i, k] * x[j, k]
    return total


@numba.njit(inline="always")
def _snap(value: float, low: float, high: float) -> float:
    """`value`, or the threshold it lies on."""
    if abs(value - low) <= TIE:
        return low
    if abs(value - high) <= TIE:
        return high
    return min(1.0, max(-1.0, value))


@numba.njit(nogil=True, cache=True)
def decide_tile(
    tile, floor, first_i, first_j, main, main_scale, main_range, other, other_scale, other_range, quick, main_sim, other_sim, counts
):  # fmt: skip
    """Decide the pairs of one tile; afterwards row r holds its `counts[r]` accepted columns j - first_j in tile[r,
    :counts[r]].

    tile: (rows, columns) int32, bounds in integer units; only entries >= floor (and j > i) can meet the main threshold.
    main, other: (n, d) and (n, e) embeddings with *_scale (n,) = 1 / norm; *_range = (at least, at most).
    quick: rounding error of a cosine in the rows' own precision; below 0 where such cosines were looked at before.
    main_sim, other_sim: (rows, columns) float64, filled like tile.
    """
    rows, columns = tile.shape
    main_low, main_high = main_range
    other_low, other_high = other_range
    for r in range(rows):
        line = tile[r]
        i = first_i + r
        start = max(0, i + 1 - first_j)
        found = 0
        whole = max(0, columns - start) // CHUNK
        # Reading stays ahead of writing (found <= c), so the line can hold its own list of candidates.
        for chunk in range(whole):
            at = start + chunk * CHUNK
            part = line[at : at + CHUNK]
            hits = np.int32(0)
            for c in range(CHUNK):  # a fixed length and no branch: one vector compare per 16 entries
                hits |= np.int32(part[c] >= floor)
            if hits:
                for c in range(at, at + CHUNK):
                    if line[c] >= floor:
                        line[found] = c
                        found += 1
        for c in range(start + whole * CHUNK, columns):
            if line[c] >= floor:
                line[found] = c
                found += 1
        kept = 0
        for slot in range(found):
            c = line[slot]
            j = first_j + c
            if quick >= 0 and _quick_dot(main, i, j) * main_scale[i] * main_scale[j] < main_low - quick:
                continue
            first = _snap(_dot(main, i, j) * (main_scale[i] * main_scale[j]), main_low, main_high)
            if first < main_low or first > main_high:
                continue
            second = _snap(_dot(other, i, j) * (other_scale[i] * other_scale[j]), other_low, other_high)
            if second < other_low or second > other_high:
                continue
            line[kept] = c
            main_sim[r, kept] = first
            other_sim[r, kept] = second
            kept += 1
        counts[r] = kept


@numba.njit(nogil=True, cache=True, fastmath={"contract", "arcp", "nsz", "reassoc"})
def rule_out_tile(main, other, first_i, first_j, main_scale, main_range, other_scale, other_range, tile):
    """Put 1 into tile (rows, columns) where both cosines may lie in their ranges and j > i, else 0; returns how many those are.

    main, other: (rows, columns) float32 products; *_scale (n,) float32 = 1 / norm; *_range = (at least, at most), rounding allowed for.
    """
    main_low, main_high = main_range
    other_low, other_high = other_range
    columns = tile.shape[1]
    main_columns, other_columns = main_scale[first_j : first_j + columns], other_scale[first_j : first_j + columns]
    total = 0
    for r in range(tile.shape[0]):
        i = first_i + r
        start = min(columns, max(0, i + 1 - first_j))
        tile[r, :start] = 0
        here = np.int32(0)
        for c in range(start, columns):
            first = main[r, c] * (main_scale[i] * main_columns[c])
            second = other[r, c] * (other_scale[i] * other_columns[c])
            met = np.int32((first >= main_low) & (first <= main_high) & (second >= other_low) & (second <= other_high))
            tile[r, c] = met
            here += met
        total += int(here)
    return total


@numba.njit(nogil=True, cache=True)
def accept_tile(tile, first_i, first_j, main_scale, main_range, other_scale, other_range, main_sim, other_sim, counts):
    """`decide_tile` where the products of all rows are there already: main_sim and other_sim (rows, columns) float64 hold them before, and
    what is accepted after. Entries of tile that are not 0 (and j > i) are decided."""
    main_low, main_high = main_range
    other_low, other_high = other_range
    for r in range(tile.shape[0]):
        i = first_i + r
        kept = 0
        for c in range(max(0, i + 1 - first_j), tile.shape[1]):  # writing stays behind reading (kept <= c)
            if tile[r, c] == 0:
                continue
            j = first_j + c
            first = _snap(main_sim[r, c] * (main_scale[i] * main_scale[j]), main_low, main_high)
            second = _snap(other_sim[r, c] * (other_scale[i] * other_scale[j]), other_low, other_high)
            if main_low <= first <= main_high and other_low <= second <= other_high:
                tile[r, kept] = c
                main_sim[r, kept] = first
                other_sim[r, kept] = second
                kept += 1
        counts[r] = kept


@numba.njit(nogil=True, cache=True)
def gather_tile(tile, first_i, first_j, main_sim, other_sim, counts, i_out, j_out, main_out, other_out):
    """Copy what `decide_tile` accepted into flat arrays of length counts.sum(), ordered by (i, j)."""
    at = 0
    for r in range(tile.shape[0]):
        for slot in range(counts[r]):
            i_out[at] = first_i + r
            j_out[at] = first_j + tile[r, slot]
            main_out[at] = main_sim[r, slot]
            other_out[at] = other_sim[r, slot]
            at += 1


@numba.njit(nogil=True, cache=True)
def similarities(x, scale, low, high, i, j):
    """Cosines of the listed pairs in float64, those on a threshold as the threshold. x: (n, d), scale: (n,), i and j:
    (m,) -> (m,)"""
    out = np.empty(i.shape[0], np.float64)
    for at in range(i.shape[0]):
        out[at] = _snap(_dot(x, i[at], j[at]) * (scale[i[at]] * scale[j[at]]), low, high)
    return out
