"""A pair search as files: blocks of rows written one by one (a killed search goes on), then near-duplicates and
same-group pairs set aside, and the largest gaps chosen.

A search folder holds `search.json` (what was asked, of which embeddings), `blocks/<first row>.parquet`, and when it is
done `pairs.parquet`, `set_aside.parquet` and `report.json` (counts). Memory stays bounded: a block and a piece of the
result are held at a time.

See also: the search itself (`confusing_pairs.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from curation.mining.confusing_pairs import Pairs, PairSearch
from curation.mining.pair_sampling import sample_pairs
from curation.mining.per_image import NONE, Largest, gaps_of, largest_of, reaching
from dataset_builders.errors import BadInput
from dataset_builders.files import lock, remove_temp_files, replace_file, write_json

CONFIG = "search.json"
LOCK = "search"
BLOCK_ROWS = 1024
BATCH = 1_000_000
"""Pairs handled at a time once they are found."""
BINS = 8192
"""Bins of the gap, by which the largest gaps are taken first without sorting everything."""
PAIR_SCHEMA = pa.schema([("i", pa.int64()), ("j", pa.int64()), ("sim_med", pa.float64()), ("sim_gen", pa.float64())])
ABOUT_SCHEMA = pa.schema([*PAIR_SCHEMA, ("image_1", pa.string()), ("image_2", pa.string())])
REASONS = ("near_duplicate", "same_group")
ASIDE_SCHEMA = pa.schema([*ABOUT_SCHEMA, ("reason", pa.string())])


@dataclass(frozen=True)
class Images:
    """What is known about the n images of a search, by row: name, perceptual hash (uint64), group ("" = none), and
    their row in the embeddings."""

    names: np.ndarray
    hashes: np.ndarray
    groups: np.ndarray
    rows: np.ndarray


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
                raise BadInput(f"{name} {value}: give a whole number from 1.")


@dataclass(frozen=True)
class BlockWriter:
    """Writes blocks of a search: all pairs of its rows, or with `per_image` those of them that can be kept.

    `least`: (n,) the gap that a pair must reach, as far as was known when the writer was made; None: none.
    """

    search: PairSearch
    images: Images
    choice: Choice
    least: np.ndarray | None = None

    def write(self, blocks: Path, first: int) -> None:
        """Write the block of the rows from `first` on."""
        k, stop = self.choice.per_image, min(self.search.n, first + BLOCK_ROWS)
        parts = self.search.blocks(first, stop)
        if k is None:
            _write_block(blocks / block_name(first), parts)
            return
        counts = dict.fromkeys(("found", *REASONS), 0)

        def not_set_aside() -> Iterator[Pairs]:
            for part in parts:
                why = reasons(part, self.images, self.choice.near_duplicate)
                counts["found"] += len(part)
                for reason in REASONS:
                    counts[reason] += int((why == reason).sum())
                yield part.take(why == "")

        least = np.full(self.search.n, NONE) if self.least is None else self.least
        _write_block(blocks / block_name(first), iter([largest_of(not_set_aside(), k, least)]), counts)


Runner = Callable[[BlockWriter, Path, list[int]], Iterator[int]]
"""Writes the blocks of these first rows, and yields each when it is on the disk."""


def run_here(writer: BlockWriter, blocks: Path, todo: list[int]) -> Iterator[int]:
    """One block after the other in this process."""
    known = largest_so_far(writer, blocks)
    for first in todo:
        replace(writer, least=known.least if known else None).write(blocks, first)
        if known:
            known.add(read_block(blocks / block_name(first)))
        yield first


def largest_so_far(writer: BlockWriter, blocks: Path) -> Largest | None:
    """The largest gaps in the blocks that are written; None where all pairs are listed."""
    if writer.choice.per_image is None:
        return None
    known = Largest(writer.search.n, writer.choice.per_image)
    for path in sorted(blocks.glob("*.parquet")):
        known.add(read_block(path))
    return known


def read_block(path: Path) -> Pairs:
    """All pairs of one block."""
    return Pairs.join(list(_batches([path])))


def mine(
    search: PairSearch,
    images: Images,
    out: Path,
    choice: Choice,
    sample: int | None = None,
    seed: int = 0,
    quiet: bool | None = None,
    run: Runner = run_here,
) -> dict[str, Any]:
    """Search, set aside, choose; returns the report that is also written to out/report.json.

    `sample` draws that many pairs instead of listing all. Blocks that are there already are used, if they belong to the
    same search. pairs.parquet is sorted by (i, j), with `top` or `cap_per_image` by |sim_med - sim_gen|, largest first;
    i and j are rows of the embeddings' images.parquet.
    """
    if sample is not None and sample < 1:
        raise BadInput(f"--sample {sample}: give a whole number from 1.")
    if seed < 0:
        raise BadInput(f"--seed {seed}: give a whole number from 0.")
    if choice.per_image is not None and (sample or choice.top or choice.cap_per_image):
        raise BadInput("--per-image: goes without --sample, --top and --cap-per-image. Leave one of them out.")
    config: dict[str, Any] = {
        "thresholds": asdict(search.thresholds),
        "sample": sample,
        "seed": seed if sample else None,
        "embeddings": _fingerprint(search, images),
    }
    if choice.per_image is not None:  # decided while searching, so blocks of another choice are of no use
        config["choice"] = {"per_image": choice.per_image, "near_duplicate": choice.near_duplicate}
    _check(out, config)
    with lock(out, LOCK):
        return _mine(search, images, out, choice, config, sample, seed, quiet, run)


def _mine(
    search: PairSearch,
    images: Images,
    out: Path,
    choice: Choice,
    config: dict[str, Any],
    sample: int | None,
    seed: int,
    quiet: bool | None,
    run: Runner,
) -> dict[str, Any]:
    """`mine`, once no other process is at it."""
    _check(out, config)
    if not (out / CONFIG).is_file():
        write_json(out / CONFIG, config)
    blocks = out / "blocks"
    blocks.mkdir(exist_ok=True)
    remove_temp_files(out)
    remove_temp_files(blocks)
    effort: dict[str, Any] = {"pairs_of_images": search.n * (search.n - 1) // 2}
    if sample is None:
        _search(BlockWriter(search, images, choice), blocks, quiet, run)
    elif not (blocks / block_name(0)).is_file():
        drawn = sample_pairs(search, sample, seed, quiet)
        effort |= {"drawn": drawn.drawn, "all_there_are": drawn.complete}
        write_json(out / "effort.json", effort, indent=None)
        _write_block(blocks / block_name(0), iter([drawn.pairs]))  # last: a sample that is there is complete
    if (out / "effort.json").is_file():
        effort = json.loads((out / "effort.json").read_text())
    report = (
        config
        | effort
        | {"images": search.n, "choice": asdict(choice)}
        | _finish(sorted(blocks.glob("*.parquet")), images, out, choice)
    )
    write_json(out / "report.json", report)
    return report


def _fingerprint(search: PairSearch, images: Images) -> str:
    """sha256 of both encoders' vectors and of the images' names: blocks of another set must not be mixed in."""
    digest = hashlib.sha256("\n".join(images.names).encode() + images.rows.tobytes())
    for part in (search.med.x, search.gen.x):
        for first in range(0, len(part), 8192):
            digest.update(part[first : first + 8192].tobytes())
    return digest.hexdigest()


def _check(out: Path, config: dict[str, Any]) -> None:
    """Raises BadInput where `out` holds another search, or anything else."""
    file = out / CONFIG
    if file.is_file():
        if json.loads(file.read_text()) != config:
            raise BadInput(
                f"{out}: holds another search (see {file.name}). Give another --out, or delete the folder to search anew."
            )
    elif out.exists() and (not out.is_dir() or not all(path.name.startswith(".") for path in out.iterdir())):
        raise BadInput(f"{out}: is not empty and holds no search. Give another --out.")


def block_name(first: int) -> str:
    return f"{first:010d}.parquet"


def _search(writer: BlockWriter, blocks: Path, quiet: bool | None, run: Runner) -> None:
    """Write the blocks that are not there yet."""
    search = writer.search
    firsts = range(0, search.n, BLOCK_ROWS)
    todo = [first for first in firsts if not (blocks / block_name(first)).is_file()]
    work = np.array([search.n - first for first in firsts])
    bar = tqdm(total=int(work.sum()), desc="searching pairs", unit="row", disable=quiet)
    bar.update(int(work.sum()) - sum(search.n - first for first in todo))
    with bar:
        for first in run(writer, blocks, todo):
            bar.update(search.n - first)


def _write_block(path: Path, parts: Iterator[Pairs], counts: dict[str, int] | None = None) -> None:
    """Write a block; `counts` of pairs that it was chosen from go into its metadata."""

    def write(partial: Path) -> None:
        with pq.ParquetWriter(partial, PAIR_SCHEMA, compression="zstd") as writer:
            for part in parts:
                writer.write_table(pa.table(vars(part), schema=PAIR_SCHEMA), row_group_size=BATCH)
            if counts is not None:
                writer.add_key_value_metadata({"counts": json.dumps(counts)})

    replace_file(path, write)


def _batches(blocks: list[Path]) -> Iterator[Pairs]:
    """The pairs of all blocks in order, `BATCH` at a time."""
    for block in blocks:
        with pq.ParquetFile(block) as file:
            for batch in file.iter_batches(BATCH):
                yield Pairs(*(batch.column(name).to_numpy() for name in PAIR_SCHEMA.names))


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


def _finish(blocks: list[Path], images: Images, out: Path, choice: Choice) -> dict[str, Any]:
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
            for pairs in _batches(blocks):
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
        known.add(read_block(block))
    counts["kept"] = counts["found"] - counts["near_duplicate"] - counts["same_group"]

    def write(path: Path) -> None:
        with pq.ParquetWriter(path, ABOUT_SCHEMA) as writer:
            for pairs in _batches(blocks):
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
        for pairs in _batches(blocks):
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


def images_of(index: pd.DataFrame, groups: pd.Series | None, keep: np.ndarray | None = None) -> Images:
    """The images of a search from an embeddings folder's index; `keep` is a mask of those to search among."""
    rows = np.flatnonzero(keep) if keep is not None else np.arange(len(index))
    hashes = np.array([int(text, 16) for text in index["phash"]], np.uint64)
    known = groups.to_numpy(dtype=object) if groups is not None else np.full(len(index), "", dtype=object)
    return Images(index["image"].to_numpy(dtype=object)[rows], hashes[rows], known[rows], rows.astype(np.int64))
