"""Choose the pairs to keep: near-duplicates and same-group pairs set aside, then the largest gaps |sim_med - sim_gen| overall,
with no image too often, or those of each image.

The largest gaps of each image are chosen block by block, so that all pairs are never in memory together: what a block drops could never
have been kept, since an image's k-th largest gap only grows as more pairs are seen (pairs that tie for the k-th rank are kept).

See also: the blocks (`pair_mining.py`), workers on other machines (`on_ray.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from curation.mining.pair_search import Pairs
from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file

BATCH = 1_000_000
"""Pairs handled at a time once they are found."""
BINS = 8192
"""Bins of the gap, by which the largest gaps are taken first without sorting everything."""
PAIR_SCHEMA = pa.schema([("i", pa.int64()), ("j", pa.int64()), ("sim_med", pa.float64()), ("sim_gen", pa.float64())])
ABOUT_SCHEMA = pa.schema([*PAIR_SCHEMA, ("image_1", pa.string()), ("image_2", pa.string())])
REASONS = ("near_duplicate", "same_group")
ASIDE_SCHEMA = pa.schema([*ABOUT_SCHEMA, ("reason", pa.string())])
NONE = -1.0
"""Less than any gap."""


@dataclass(frozen=True)
class Images:
    """What is known about the n images of a search, by row: name, perceptual hash (uint64), group ("" = none), and
    their row in the embeddings."""

    names: np.ndarray
    hashes: np.ndarray
    groups: np.ndarray
    rows: np.ndarray


def images_of(index: pd.DataFrame, groups: pd.Series | None, keep: np.ndarray | None = None) -> Images:
    """The images of a search from an embeddings folder's index; `keep` is a mask of those to search among."""
    rows = np.flatnonzero(keep) if keep is not None else np.arange(len(index))
    hashes = np.array([int(text, 16) for text in index["phash"]], np.uint64)
    known = groups.to_numpy(dtype=object) if groups is not None else np.full(len(index), "", dtype=object)
    return Images(index["image"].to_numpy(dtype=object)[rows], hashes[rows], known[rows], rows.astype(np.int64))


@dataclass(frozen=True)
class Choice:
    """What to keep of the pairs found. near_duplicate: largest number of differing bits of 64; -1 sets none aside. per_image: only the
    pairs with the so many largest gaps of either of their images, chosen while searching."""

    near_duplicate: int = 6
    top: int | None = None
    cap_per_image: int | None = None
    per_image: int | None = None

    def __post_init__(self) -> None:
        if not -1 <= self.near_duplicate <= 64:
            raise BadInput(f"--near-duplicate {self.near_duplicate}: give 0 to 64 differing bits, or -1 for none.")
        for name, value in (
            ("--top", self.top),
            ("--cap-per-image", self.cap_per_image),
            ("--per-image", self.per_image),
        ):
            if value is not None and value < 1:
                raise BadInput(f"{name} {value}: give a positive integer.")


def reasons(pairs: Pairs, images: Images, near_duplicate: int) -> np.ndarray:
    """Why each pair is set aside ("" = kept): near_duplicate (perceptual hashes differ in few bits) or same_group
    (patient, figure, article)."""
    found = np.full(len(pairs), "", dtype=object)
    groups = images.groups[pairs.i]
    found[(groups != "") & (groups == images.groups[pairs.j])] = "same_group"
    found[np.bitwise_count(images.hashes[pairs.i] ^ images.hashes[pairs.j]).astype(int) <= near_duplicate] = (
        "near_duplicate"
    )
    return found


def batches(blocks: list[Path]) -> Iterator[Pairs]:
    """The pairs of all blocks in order, `BATCH` at a time."""
    for block in blocks:
        with pq.ParquetFile(block) as file:
            for batch in file.iter_batches(BATCH):
                yield Pairs(*(batch.column(name).to_numpy() for name in PAIR_SCHEMA.names))


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


def finish(blocks: list[Path], images: Images, out: Path, choice: Choice) -> dict[str, Any]:
    """Write pairs.parquet and set_aside.parquet from the blocks; returns the counts."""
    if choice.per_image is not None:
        return _finish_per_image(blocks, images, out, choice.per_image)
    counts = {"found": 0, "near_duplicate": 0, "same_group": 0, "kept": 0, "chosen": 0}
    chooses = choice.top is not None or choice.cap_per_image is not None
    histogram = np.zeros(BINS, np.int64)

    def write(pairs_path: Path, aside_path: Path) -> None:
        with (
            pq.ParquetWriter(pairs_path, ABOUT_SCHEMA) as kept_writer,
            pq.ParquetWriter(aside_path, ASIDE_SCHEMA) as aside_writer,
        ):
            for pairs in batches(blocks):
                why = reasons(pairs, images, choice.near_duplicate)
                kept, aside = pairs.take(why == ""), pairs.take(why != "")
                counts["found"] += len(pairs)
                counts["kept"] += len(kept)
                for reason in REASONS:
                    counts[reason] += int((why == reason).sum())
                aside_writer.write_table(
                    _table(aside, images).append_column("reason", pa.array(why[why != ""], pa.string()))
                )
                if chooses:
                    np.add.at(histogram, _bin(kept), 1)
                else:
                    kept_writer.write_table(_table(kept, images))
            if chooses:
                for chosen in _choose(blocks, images, choice, histogram):
                    counts["chosen"] += len(chosen)
                    kept_writer.write_table(_table(chosen, images))
            else:
                counts["chosen"] = counts["kept"]

    replace_file(
        out / "set_aside.parquet", lambda aside: replace_file(out / "pairs.parquet", lambda pairs: write(pairs, aside))
    )
    return {"counts": counts}


def _finish_per_image(blocks: list[Path], images: Images, out: Path, k: int) -> dict[str, Any]:
    """Write pairs.parquet: what reaches the k-th largest gap of either image over all blocks. What was set aside is counted, not listed."""
    counts = {"found": 0, "near_duplicate": 0, "same_group": 0, "kept": 0, "chosen": 0}
    known = Largest(len(images.names), k)
    for block in blocks:
        for name, count in json.loads(pq.read_metadata(block).metadata[b"counts"]).items():
            counts[name] += count
        known.add(Pairs.join(list(batches([block]))))
    counts["kept"] = counts["found"] - counts["near_duplicate"] - counts["same_group"]

    def write(path: Path) -> None:
        with pq.ParquetWriter(path, ABOUT_SCHEMA) as writer:
            for pairs in batches(blocks):
                chosen = reaching(pairs, known.least)
                counts["chosen"] += len(chosen)
                writer.write_table(_table(chosen, images))

    replace_file(out / "pairs.parquet", write)
    return {"counts": counts}


def _table(pairs: Pairs, images: Images) -> pa.Table:
    return pa.table(
        {
            "i": images.rows[pairs.i],
            "j": images.rows[pairs.j],
            "sim_med": pairs.sim_med,
            "sim_gen": pairs.sim_gen,
            "image_1": pa.array(images.names[pairs.i], pa.string()),
            "image_2": pa.array(images.names[pairs.j], pa.string()),
        },
        schema=ABOUT_SCHEMA,
    )


def _bin(pairs: Pairs) -> np.ndarray:
    """The bin of each pair's gap, which lies in [0, 2]."""
    return np.minimum((gaps_of(pairs) * (BINS / 2)).astype(np.int64), BINS - 1)


def _choose(blocks: list[Path], images: Images, choice: Choice, histogram: np.ndarray) -> Iterator[Pairs]:
    """The kept pairs by gap, largest first (ties by (i, j)), no image more often than the cap, until there are
    `top`."""
    used = np.zeros(len(images.names), np.int64)
    left = choice.top if choice.top is not None else int(histogram.sum())
    cap = choice.cap_per_image if choice.cap_per_image is not None else int(histogram.sum())
    for low, high in _ranges(histogram):
        if left <= 0:
            return
        parts = []
        for pairs in batches(blocks):
            inside = (_bin(pairs) >= low) & (_bin(pairs) < high)
            picked = pairs.take(inside)
            parts.append(picked.take(reasons(picked, images, choice.near_duplicate) == ""))
        pairs = Pairs.join(parts)
        pairs = pairs.take(np.lexsort((pairs.j, pairs.i, -gaps_of(pairs))))
        taken = []
        for at, (i, j) in enumerate(zip(pairs.i.tolist(), pairs.j.tolist(), strict=True)):
            if left > 0 and used[i] < cap and used[j] < cap:
                used[i] += 1
                used[j] += 1
                left -= 1
                taken.append(at)
        yield pairs.take(np.array(taken, np.int64))


def _ranges(histogram: np.ndarray) -> Iterator[tuple[int, int]]:
    """Ranges of bins from the largest gap down, each of about `BATCH` pairs."""
    high = len(histogram)
    while high > 0:
        low = high - 1
        total = int(histogram[low])
        while low > 0 and total + histogram[low - 1] <= BATCH:
            low -= 1
            total += int(histogram[low])
        if total:
            yield low, high
        high = low
