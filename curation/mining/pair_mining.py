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
