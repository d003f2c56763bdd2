"""Choose the pairs to keep: near-duplicates and same-group pairs set aside, then the largest gaps |sim_med - sim_gen| overall,
with no image too often, or those of each image.

The largest gaps of each image are chosen block by block, so that all pairs are never in memory together: what a block drops could never
have been kept, since an image's k-th largest gap only grows as more pairs are seen (pairs that tie for the k-th rank are kept).

See also: the blocks (`pair_mining.py`), workers on other machines (`on_ray.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from curation.mining.pair_search import Pairs
from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file

BATCH = 1_000_000
"""Pairs handled at a time once they are found."""
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
        if self.per_image and (self.top or self.cap_per_image):
            raise BadInput("--per-image: goes without --top and --cap-per-image. Leave one of them out.")


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


def finish(
    found: Callable[[], Iterator[Pairs]], least: np.ndarray | None, images: Images, out: Path, choice: Choice
) -> dict[str, int]:
    """Write pairs.parquet and set_aside.parquet; returns the counts of each reason, kept and chosen.

    found: gives the pairs that were found in (i, j) order, a piece at a time. least: (n,) the gap that `per_image` asks of a pair.
    `top` and `cap_per_image` sort all pairs that are kept, in memory; everything else holds a piece at a time.
    """
    counts = dict.fromkeys((*REASONS, "kept", "chosen"), 0)
    sorts = choice.top is not None or choice.cap_per_image is not None
    held: list[Pairs] = []

    def write(pairs_path: Path, aside_path: Path) -> None:
        with (
            pq.ParquetWriter(pairs_path, ABOUT_SCHEMA) as kept_writer,
            pq.ParquetWriter(aside_path, ASIDE_SCHEMA) as aside_writer,
        ):

            def keep(pairs: Pairs) -> None:
                counts["chosen"] += len(pairs)
                kept_writer.write_table(_table(pairs, images))

            for pairs in found():
                why = reasons(pairs, images, choice.near_duplicate)
                kept, aside = pairs.take(why == ""), pairs.take(why != "")
                counts["kept"] += len(kept)
                for reason in REASONS:
                    counts[reason] += int((why == reason).sum())
                named = _table(aside, images)
                aside_writer.write_table(named.append_column("reason", pa.array(why[why != ""], pa.string())))
                if sorts:
                    held.append(kept)
                else:
                    keep(kept if least is None else reaching(kept, least))
            if sorts:
                keep(_choose(Pairs.join(held), len(images.names), choice))

    replace_file(
        out / "set_aside.parquet", lambda aside: replace_file(out / "pairs.parquet", lambda pairs: write(pairs, aside))
    )
    return counts


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


def _choose(pairs: Pairs, n: int, choice: Choice) -> Pairs:
    """The pairs by gap, largest first (ties by (i, j)), none of n images more often than the cap, until there are `top`."""
    pairs = pairs.take(np.lexsort((pairs.j, pairs.i, -gaps_of(pairs))))
    top = len(pairs) if choice.top is None else choice.top
    if choice.cap_per_image is None:
        return pairs.take(np.arange(min(top, len(pairs))))
    used = np.zeros(n, np.int64)
    taken: list[int] = []
    for at, (i, j) in enumerate(zip(pairs.i.tolist(), pairs.j.tolist(), strict=True)):
        if len(taken) < top and max(used[i], used[j]) < choice.cap_per_image:
            used[[i, j]] += 1
            taken.append(at)
    return pairs.take(np.array(taken, np.int64))
