"""A pair search as files: blocks of rows written one by one (a killed search goes on), then near-duplicates and
same-group pairs set aside, and the largest gaps chosen.

A search folder holds `search.json` (what was asked, of which embeddings), `blocks/<first row>.parquet`, and when it is
done `pairs.parquet`, `set_aside.parquet` and `report.json` (counts). Memory stays bounded: a block and a piece of the
result are held at a time.

See also: the search itself (`pair_search.py`), which pairs are kept (`pair_choice.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from curation.mining.pair_choice import (
    BATCH,
    NONE,
    PAIR_SCHEMA,
    REASONS,
    Choice,
    Images,
    Largest,
    batches,
    finish,
    largest_of,
    reasons,
)
from curation.mining.pair_search import Pairs, PairSearch, sample_pairs
from dataset_builders.errors import BadInput
from dataset_builders.files import lock, remove_temp_files, replace_file, write_json

CONFIG = "search.json"
LOCK = "search"
BLOCK_ROWS = 1024


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
    return Pairs.join(list(batches([path])))


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
    if sample is not None and sample < 1:
        raise BadInput(f"--sample {sample}: give a positive integer.")
    if seed < 0:
        raise BadInput(f"--seed {seed}: give a non-negative integer.")
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
        return _mine(search, images, out, choice, config, sample, seed, run)


def _mine(
    search: PairSearch,
    images: Images,
    out: Path,
    choice: Choice,
    config: dict[str, Any],
    sample: int | None,
    seed: int,
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
        _search(BlockWriter(search, images, choice), blocks, run)
    elif not (blocks / block_name(0)).is_file():
        drawn = sample_pairs(search, sample, seed)
        effort |= {"drawn": drawn.drawn, "all_there_are": drawn.complete}
        write_json(out / "effort.json", effort, indent=None)
        _write_block(blocks / block_name(0), iter([drawn.pairs]))  # last: a sample that is there is complete
    if (out / "effort.json").is_file():
        effort = json.loads((out / "effort.json").read_text())
    report = (
        config
        | effort
        | {"images": search.n, "choice": asdict(choice)}
        | finish(sorted(blocks.glob("*.parquet")), images, out, choice)
    )
    write_json(out / "report.json", report)
    return report


def _fingerprint(search: PairSearch, images: Images) -> str:
    """sha256 of both encoders' vectors and of the images' names: blocks of another set must not be mixed in."""
    digest = hashlib.sha256("\n".join(images.names).encode() + images.rows.tobytes())
    for part in search.embeddings:
        for first in range(0, search.n, 8192):
            digest.update(part.x[first : first + 8192].tobytes())
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


def _search(writer: BlockWriter, blocks: Path, run: Runner) -> None:
    """Write the blocks that are not there yet."""
    search = writer.search
    firsts = range(0, search.n, BLOCK_ROWS)
    todo = [first for first in firsts if not (blocks / block_name(first)).is_file()]
    work = np.array([search.n - first for first in firsts])
    bar = tqdm(total=int(work.sum()), desc="searching pairs", unit="row", disable=None)
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
