"""A pair search as files: blocks of rows written one by one (a killed search goes on), then near-duplicates and same-group pairs set aside,
and the largest gaps |sim_med - sim_gen| chosen: overall, with no image too often, or those of each image.

A search folder holds `search.json` (what was asked, of which embeddings), `blocks/<first row>.parquet`, and when it is done
`pairs.parquet`, `set_aside.parquet` and `report.json` (counts). The largest gaps of each image are chosen block by block, so that all pairs
are never in memory together: what a block drops could never have been kept, since an image's k-th largest gap only grows as more pairs are
seen (pairs that tie for the k-th rank are kept).

See also: the search itself (`pair_search.py`), workers on other machines (`on_ray.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from curation.mining.pair_search import Pairs, PairSearch, sample_pairs
from dataset_builders.errors import BadInput
from dataset_builders.files import lock, remove_temp_files, replace_file, write_json

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


CONFIG = "search.json"
LOCK = "search"
BLOCK_ROWS = 1024
FOUND = "found"


@dataclass(frozen=True)
class BlockWriter:
    """Writes blocks of a search: all pairs of its rows, or with `per_image` those that are set aside or can be kept.

    `least`: (n,) the gap that a pair must reach, as far as was known when the writer was made; None: none.
    """

    search: PairSearch
    images: Images
    choice: Choice
    least: np.ndarray | None = None

    def write(self, blocks: Path, first: int) -> None:
        """Write the block of the rows from `first` on; how many pairs it was chosen from goes into its metadata."""
        found = 0

        def counted() -> Iterator[Pairs]:
            nonlocal found
            for part in self.search.blocks(first, min(self.search.n, first + BLOCK_ROWS)):
                found += len(part)
                yield part

        def write(partial: Path) -> None:
            with pq.ParquetWriter(partial, PAIR_SCHEMA, compression="zstd") as writer:
                for part in counted() if self.choice.per_image is None else self._can_be_kept(counted()):
                    writer.write_table(pa.table(vars(part), schema=PAIR_SCHEMA), row_group_size=BATCH)
                writer.add_key_value_metadata({FOUND: str(found)})

        replace_file(blocks / block_name(first), write)

    def _can_be_kept(self, parts: Iterator[Pairs]) -> Iterator[Pairs]:
        aside = []

        def kept() -> Iterator[Pairs]:
            for part in parts:
                is_aside = reasons(part, self.images, self.choice.near_duplicate) != ""
                aside.append(part.take(is_aside))
                yield part.take(~is_aside)

        least = np.full(self.search.n, NONE) if self.least is None else self.least
        pairs = Pairs.join([largest_of(kept(), self.choice.per_image or 1, least), *aside])
        yield pairs.take(np.lexsort((pairs.j, pairs.i)))

    def largest_so_far(self, blocks: Path) -> Largest | None:
        """The largest gaps in the blocks that are written; None where all pairs are listed."""
        if self.choice.per_image is None:
            return None
        known = Largest(self.search.n, self.choice.per_image)
        for path in sorted(blocks.glob("*.parquet")):
            self.add(known, path)
        return known

    def add(self, known: Largest, block: Path) -> None:
        """Take the gaps of a block's pairs that are not set aside."""
        for pairs in batches([block]):
            known.add(pairs.take(reasons(pairs, self.images, self.choice.near_duplicate) == ""))


Runner = Callable[[BlockWriter, Path, list[int]], Iterator[int]]
"""Writes the blocks of these first rows, and yields each when it is on the disk."""


def run_here(writer: BlockWriter, blocks: Path, todo: list[int]) -> Iterator[int]:
    """One block after the other in this process."""
    known = writer.largest_so_far(blocks)
    for first in todo:
        replace(writer, least=known.least if known else None).write(blocks, first)
        if known:
            writer.add(known, blocks / block_name(first))
        yield first


def mine(
    search: PairSearch,
    images: Images,
    out: Path,
    choice: Choice,
    sample: int | None = None,
    seed: int = 0,
    run: Runner = run_here,
) -> dict[str, Any]:
    """Search, set aside, choose; returns the report that is also written to out/report.json.

    `sample` draws that many pairs instead of listing all. Blocks that are there already are used, if they belong to the
    same search. pairs.parquet is sorted by (i, j), with `top` or `cap_per_image` by |sim_med - sim_gen|, largest first;
    i and j are rows of the embeddings' images.parquet.
    """
    if sample is not None and (sample < 1 or choice.per_image):
        raise BadInput(f"--sample {sample}: give a positive integer, without --per-image.")
    if seed < 0:
        raise BadInput(f"--seed {seed}: give a non-negative integer.")
    config: dict[str, Any] = {
        "thresholds": asdict(search.thresholds),
        "sample": sample,
        "seed": seed if sample else None,
        "embeddings": _fingerprint(search, images),
    }
    if choice.per_image is not None:  # decided while searching, so blocks of another choice are of no use
        config["choice"] = {"per_image": choice.per_image, "near_duplicate": choice.near_duplicate}
    with lock(out, LOCK):
        _check(out, config)
        write_json(out / CONFIG, config)
        remove_temp_files(out)
        effort: dict[str, Any] = {"pairs_of_images": search.n * (search.n - 1) // 2}
        if sample is None:
            writer = BlockWriter(search, images, choice)
            blocks = _search(writer, out / "blocks", run)
            count = sum(int(pq.read_metadata(path).metadata[FOUND.encode()]) for path in blocks)
            known = writer.largest_so_far(out / "blocks")
            counts = finish(lambda: batches(blocks), known.least if known else None, images, out, choice)
            counts["kept"] = count - sum(counts[reason] for reason in REASONS)  # blocks hold some of them
        else:
            drawn = sample_pairs(search, sample, seed)
            effort |= {"drawn": drawn.drawn, "all_there_are": drawn.complete}
            count = len(drawn.pairs)
            counts = finish(lambda: iter([drawn.pairs]), None, images, out, choice)
        about = {"images": search.n, "choice": asdict(choice), "counts": {"found": count} | counts}
        report = config | effort | about
        write_json(out / "report.json", report)
    return report


def _fingerprint(search: PairSearch, images: Images) -> str:
    """sha256 of both encoders' vectors and of the images' names: blocks of another set must not be mixed in."""
    digest = hashlib.sha256("\n".join(images.names).encode() + images.rows.tobytes())
    for side in search.sides:
        for first in range(0, search.n, 8192):
            digest.update(side.x[first : first + 8192].cpu().numpy().tobytes())
    return digest.hexdigest()


def _check(out: Path, config: dict[str, Any]) -> None:
    """Raises BadInput where `out` holds another search, or anything else."""
    file = out / CONFIG
    if file.is_file():
        if json.loads(file.read_text()) != config:
            raise BadInput(
                f"{out}: holds another search (see {file.name}). Give another --out, or delete the folder to search anew."
            )
    elif not all(path.name.startswith(".") for path in out.iterdir()):
        raise BadInput(f"{out}: is not empty and holds no search. Give another --out.")


def block_name(first: int) -> str:
    return f"{first:010d}.parquet"


def _search(writer: BlockWriter, blocks: Path, run: Runner) -> list[Path]:
    """Write the blocks that are not there yet; all of them, in order."""
    blocks.mkdir(exist_ok=True)
    remove_temp_files(blocks)
    n = writer.search.n
    firsts = range(0, n, BLOCK_ROWS)
    todo = [first for first in firsts if not (blocks / block_name(first)).is_file()]
    work = sum(n - first for first in firsts)
    done = work - sum(n - first for first in todo)
    with tqdm(total=work, initial=done, desc="searching pairs", unit="row", disable=None) as bar:
        for first in run(writer, blocks, todo):
            bar.update(n - first)
    return [blocks / block_name(first) for first in firsts]


def why_none(search: PairSearch) -> list[str]:
    """What to print where no pair meets the thresholds: the range of both similarities, and a change of one threshold that finds some, as
    far as a sample of the images shows."""
    if search.n < 2:
        return [f"{search.n} images form no pair."]
    med, gen = search.sampled()
    (med_low, med_high), (gen_low, gen_high) = search.thresholds.ranges()
    among = f"among {len(med)} pairs" + ("" if len(med) == search.n * (search.n - 1) // 2 else " of a sample")
    lines = [
        f"sim_{name} is {values.min():.3f} to {values.max():.3f} (median {np.median(values):.3f}) {among}"
        for name, values in (("med", med), ("gen", gen))
    ]
    with_gen, with_med = med[(gen >= gen_low) & (gen <= gen_high)], gen[(med >= med_low) & (med <= med_high)]
    changes = []
    for name, values, low, high in (("med", with_gen, med_low, med_high), ("gen", with_med, gen_low, gen_high)):
        below, above = (
            values[values < low],
            values[values > high],
        )  # the others' limits are met, so all are one of these
        if len(below):
            changes.append(f"--{name}-at-least {max(-1.0, np.floor((below.max() - 1e-5) * 1000) / 1000):.3f}")
        elif len(above):
            changes.append(f"--{name}-at-most {min(1.0, np.ceil((above.min() + 1e-5) * 1000) / 1000):.3f}")
    return [
        *lines,
        f"{' or '.join(changes)} would find some" if changes else "no change of one threshold would find any of these",
    ]
