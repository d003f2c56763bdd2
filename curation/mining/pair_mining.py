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
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from curation.mining.confusing_pairs import Pairs, PairSearch
from curation.mining.pair_sampling import sample_pairs
from dataset_builders.errors import BadInput
from dataset_builders.files import lock, remove_temp_files, replace_file

ASKED = "search.json"
LOCK = "search"
BLOCK_ROWS = 1024
BATCH = 1_000_000
"""Pairs handled at a time once they are found."""
BINS = 8192
"""Bins of the gap, by which the largest gaps are taken first without sorting everything."""
PAIR_SCHEMA = pa.schema([("i", pa.int64()), ("j", pa.int64()), ("sim_med", pa.float64()), ("sim_gen", pa.float64())])
ABOUT_SCHEMA = pa.schema([*PAIR_SCHEMA, ("image_1", pa.string()), ("image_2", pa.string())])
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
    """What to keep of the pairs found. near_duplicate: largest number of differing bits of 64; -1 sets none aside."""

    near_duplicate: int = 6
    top: int | None = None
    cap_per_image: int | None = None

    def __post_init__(self) -> None:
        if not -1 <= self.near_duplicate <= 64:
            raise BadInput(f"--near-duplicate {self.near_duplicate}: give 0 to 64 differing bits, or -1 for none.")
        for name, value in (("--top", self.top), ("--cap-per-image", self.cap_per_image)):
            if value is not None and value < 1:
                raise BadInput(f"{name} {value}: give a whole number from 1.")


def mine(
    search: PairSearch,
    images: Images,
    out: Path,
    choice: Choice,
    sample: int | None = None,
    seed: int = 0,
    quiet: bool | None = None,
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
    asked = {
        "thresholds": asdict(search.thresholds),
        "sample": sample,
        "seed": seed if sample else None,
        "embeddings": _fingerprint(search, images),
    }
    _check(out, asked)
    with lock(out, LOCK):
        return _mine(search, images, out, choice, asked, sample, seed, quiet)


def _mine(
    search: PairSearch,
    images: Images,
    out: Path,
    choice: Choice,
    asked: dict[str, Any],
    sample: int | None,
    seed: int,
    quiet: bool | None,
) -> dict[str, Any]:
    """`mine`, once no other process is at it."""
    _check(out, asked)
    if not (out / ASKED).is_file():
        replace_file(out / ASKED, lambda path: path.write_text(json.dumps(asked, indent=1) + "\n"))
    blocks = out / "blocks"
    blocks.mkdir(exist_ok=True)
    remove_temp_files(out)
    remove_temp_files(blocks)
    effort: dict[str, Any] = {"pairs_of_images": search.n * (search.n - 1) // 2}
    if sample is None:
        _search(search, blocks, quiet)
    elif not (blocks / _name(0)).is_file():
        drawn = sample_pairs(search, sample, seed, quiet)
        effort |= {"drawn": drawn.drawn, "all_there_are": drawn.complete}
        replace_file(out / "effort.json", lambda path: path.write_text(json.dumps(effort) + "\n"))
        _write_block(blocks / _name(0), iter([drawn.pairs]))  # last: a sample that is there is complete
    if (out / "effort.json").is_file():
        effort = json.loads((out / "effort.json").read_text())
    report = (
        asked
        | effort
        | {"images": search.n, "choice": asdict(choice)}
        | _finish(sorted(blocks.glob("*.parquet")), images, out, choice)
    )
    replace_file(out / "report.json", lambda path: path.write_text(json.dumps(report, indent=1) + "\n"))
    return report


def _fingerprint(search: PairSearch, images: Images) -> str:
    """sha256 of both encoders' vectors and of the images' names: blocks of another set must not be mixed in."""
    digest = hashlib.sha256("\n".join(images.names).encode() + images.rows.tobytes())
    for part in (search.med.x, search.gen.x):
        for first in range(0, len(part), 8192):
            digest.update(part[first : first + 8192].tobytes())
    return digest.hexdigest()


def _check(out: Path, asked: dict[str, Any]) -> None:
    """Raises BadInput where `out` holds another search, or anything else."""
    file = out / ASKED
    if file.is_file():
        if json.loads(file.read_text()) != asked:
            raise BadInput(
                f"{out}: holds another search (see {file.name}). Give another --out, or delete the folder to search anew."
            )
    elif out.exists() and (not out.is_dir() or not all(path.name.startswith(".") for path in out.iterdir())):
        raise BadInput(f"{out}: is not empty and holds no search. Give another --out.")


def _name(first: int) -> str:
    return f"{first:010d}.parquet"


def _search(search: PairSearch, blocks: Path, quiet: bool | None) -> None:
    """Write the blocks that are not there yet."""
    firsts = range(0, search.n, BLOCK_ROWS)
    todo = [first for first in firsts if not (blocks / _name(first)).is_file()]
    work = np.array([search.n - first for first in firsts])
    bar = tqdm(total=int(work.sum()), desc="searching pairs", unit="row", disable=quiet)
    bar.update(int(work.sum()) - sum(search.n - first for first in todo))
    with bar:
        for first in todo:
            _write_block(blocks / _name(first), search.blocks(first, min(search.n, first + BLOCK_ROWS)))
            bar.update(search.n - first)


def _write_block(path: Path, parts: Iterator[Pairs]) -> None:
    def write(partial: Path) -> None:
        with pq.ParquetWriter(partial, PAIR_SCHEMA, compression="zstd") as writer:
            for part in parts:
                writer.write_table(pa.table(vars(part), schema=PAIR_SCHEMA), row_group_size=BATCH)

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
                for reason in ("near_duplicate", "same_group"):
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


def _gap(pairs: Pairs) -> np.ndarray:
    gap: np.ndarray = np.abs(pairs.sim_med - pairs.sim_gen)
    return gap


def _bin(pairs: Pairs) -> np.ndarray:
    """The bin of each pair's gap, which lies in [0, 2]."""
    return np.minimum((_gap(pairs) * (BINS / 2)).astype(np.int64), BINS - 1)


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
        pairs = pairs.take(np.lexsort((pairs.j, pairs.i, -_gap(pairs))))
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
