"""A pair search as files: blocks of rows written one by one (a killed search goes on), then near-duplicates and same-group pairs set aside,
and the largest gaps |sim_med - sim_gen| chosen, overall or with no image too often.

A search folder holds `search.json` (what was asked, of which embeddings), `blocks/<first row>.parquet`, and when it is done
`pairs.parquet`, `set_aside.parquet` and `report.json` (counts).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tqdm import tqdm

from curation.mining.embedding import open_embeddings
from curation.mining.pair_search import EncoderVectors, PairSearch, sample_pairs
from dataset_builders.errors import BadInput
from dataset_builders.files import lock_folder, remove_temp_files, replace_file, write_json
from eval_harness.scores.clustered import ClusterSizes
from eval_harness.scores.grading import image_clusters

PAIRS_PER_BATCH = 1_000_000
"""Pairs handled at a time once they are found."""
PAIR_SCHEMA = pa.schema([("i", pa.int64()), ("j", pa.int64()), ("sim_med", pa.float64()), ("sim_gen", pa.float64())])
NAMED_PAIR_SCHEMA = pa.schema([*PAIR_SCHEMA, ("image_1", pa.string()), ("image_2", pa.string())])
SET_ASIDE_REASONS = ("near_duplicate", "same_group", "short_caption")
SET_ASIDE_SCHEMA = pa.schema([*NAMED_PAIR_SCHEMA, ("reason", pa.string())])
SEARCH_FILE = "search.json"
BLOCK_ROWS = 1024


def image_attributes(index: pd.DataFrame, known: pd.DataFrame | None, min_caption: int = 0) -> pd.DataFrame:
    """The images of a search by row of an embeddings folder's index: `image`, perceptual `hash`, `group` ("" = none), and whether the
    caption is too `short` to ask about. known: their caption and group, row by row."""
    hashes = np.array([int(text, 16) for text in index["phash"]], np.uint64)
    images = pd.DataFrame({"image": index["image"], "hash": hashes, "group": "", "short": False})
    if known is None:
        return images
    return images.assign(group=known["group"].to_numpy(), short=(known["caption"].str.len() < min_caption).to_numpy())


@dataclass(frozen=True)
class PairFilter:
    """Filters on the pairs found. near_duplicate: maximum number of differing bits of 64; -1 excludes none."""

    near_duplicate: int = 6
    top: int | None = None
    cap_per_image: int | None = None


def set_aside_reasons(pairs: pd.DataFrame, images: pd.DataFrame, near_duplicate: int) -> np.ndarray:
    """Why each pair is set aside ("" = kept), by the first of `REASONS` that holds: perceptual hashes that differ in few bits, one group
    (patient, figure, article), a short caption."""
    one, other = (
        images[["hash", "group", "short"]].take(pairs[end].to_numpy()).reset_index(drop=True) for end in ("i", "j")
    )
    bits = np.bitwise_count(one["hash"].to_numpy() ^ other["hash"].to_numpy()).astype(int)
    same_group = (one["group"] != "") & (one["group"] == other["group"])
    return np.select([bits <= near_duplicate, same_group, one["short"] | other["short"]], SET_ASIDE_REASONS, "")


def _finish(found: Iterable[pd.DataFrame], images: pd.DataFrame, out: Path, choice: PairFilter) -> dict[str, int]:
    """Write pairs.parquet and set_aside.parquet; returns the counts: found, of each reason, kept and chosen.

    `top` and `cap_per_image` sort all pairs that are kept, in memory; everything else holds a piece at a time.
    """
    counts = Counter(dict.fromkeys(("found", *SET_ASIDE_REASONS, "kept", "chosen"), 0))
    sorts = choice.top is not None or choice.cap_per_image is not None
    held: list[pd.DataFrame] = []

    def write(pairs_path: Path, aside_path: Path) -> None:
        with (
            pq.ParquetWriter(pairs_path, NAMED_PAIR_SCHEMA) as kept_writer,
            pq.ParquetWriter(aside_path, SET_ASIDE_SCHEMA) as aside_writer,
        ):

            def keep(pairs: pd.DataFrame) -> None:
                counts["chosen"] += len(pairs)
                kept_writer.write_table(_table(pairs, images, NAMED_PAIR_SCHEMA))

            for pairs in found:
                why = set_aside_reasons(pairs, images, choice.near_duplicate)
                kept, aside = pairs[why == ""], pairs.assign(reason=why)[why != ""]
                counts.update({"found": len(pairs), "kept": len(kept)} | Counter(aside["reason"]))
                aside_writer.write_table(_table(aside, images, SET_ASIDE_SCHEMA))
                if sorts:
                    held.append(kept)
                else:
                    keep(kept)
            if held:
                keep(_choose(pd.concat(held, ignore_index=True), len(images), choice))

    replace_file(
        out / "set_aside.parquet", lambda aside: replace_file(out / "pairs.parquet", lambda pairs: write(pairs, aside))
    )
    return dict(counts)


def _table(pairs: pd.DataFrame, images: pd.DataFrame, schema: pa.Schema) -> pa.Table:
    names = images["image"].to_numpy()
    named = pairs.assign(image_1=names[pairs["i"]], image_2=names[pairs["j"]])
    return pa.Table.from_pandas(named, schema, preserve_index=False)


def _choose(pairs: pd.DataFrame, n: int, choice: PairFilter) -> pd.DataFrame:
    """The pairs by gap, largest first (ties by (i, j)), none of n images more often than the cap, until there are `top`."""
    pairs = pairs.iloc[np.lexsort((pairs["j"], pairs["i"], -(pairs["sim_med"] - pairs["sim_gen"]).abs()))]
    top = len(pairs) if choice.top is None else choice.top
    if choice.cap_per_image is None:
        return pairs.head(top)
    used = np.zeros(n, np.int64)
    taken: list[int] = []
    for at, (i, j) in enumerate(zip(pairs["i"].tolist(), pairs["j"].tolist(), strict=True)):
        if len(taken) < top and max(used[i], used[j]) < choice.cap_per_image:
            used[[i, j]] += 1
            taken.append(at)
    return pairs.iloc[taken]


def independent_pairs(pairs: pd.DataFrame, images: pd.DataFrame) -> float:
    """Effective number of independent pairs among `pairs` (i, j), by the clusters that scores are computed with.

    Pairs that share an image or a group (patient) are one cluster; see `ClusterSizes.effective_clusters`.
    """
    ends = pd.concat([pairs["i"], pairs["j"]])
    groups = images["group"].where(images["group"] != "", None).to_numpy()[ends]
    cluster = image_clusters(pd.DataFrame({"case_id": ends.index, "image_id": ends.to_numpy(), "group": groups}))
    return ClusterSizes.from_sizes(np.unique(cluster[: len(pairs)], return_counts=True)[1]).effective_clusters


def write_block(search: PairSearch, blocks: Path, first: int) -> None:
    """Write the block of the rows from `first` on."""

    def write(partial: Path) -> None:
        with pq.ParquetWriter(partial, PAIR_SCHEMA, compression="zstd") as writer:
            for part in search.rows(first, min(search.n, first + BLOCK_ROWS)):
                writer.write_table(pa.Table.from_pandas(part, PAIR_SCHEMA, preserve_index=False))

    replace_file(blocks / block_name(first), write)


def block_name(first: int) -> str:
    return f"{first:010d}.parquet"


BlockRunner = Callable[[PairSearch, Path, list[int]], Iterator[int]]
"""Writes the blocks of these first rows, and yields each when it is on the disk."""


def search_in_process(search: PairSearch, blocks: Path, todo: list[int]) -> Iterator[int]:
    """One block after the other in this process."""
    for first in todo:
        write_block(search, blocks, first)
        yield first


def mine_pairs(
    search: PairSearch,
    images: pd.DataFrame,
    out: Path,
    choice: PairFilter,
    sample: int | None = None,
    seed: int = 0,
    run: BlockRunner = search_in_process,
) -> dict[str, Any]:
    """Search, set aside, choose; returns the report that is also written to out/report.json.

    `sample` draws that many pairs instead of listing all. Blocks that are there already are used, if they belong to the
    same search. pairs.parquet is sorted by (i, j), with `top` or `cap_per_image` by |sim_med - sim_gen|, largest first;
    i and j are rows of the embeddings' images.parquet.
    """
    config: dict[str, Any] = {
        "thresholds": asdict(search.thresholds),
        "sample": sample,
        "seed": seed if sample else None,
        "embeddings": _fingerprint(search, images["image"]),
    }
    with lock_folder(out, "search"):
        _check(out, config)
        write_json(out / SEARCH_FILE, config)
        remove_temp_files(out)
        if sample is None:
            found: Iterable[pd.DataFrame] = _batches(_search(search, out / "blocks", run))
        else:
            found = [sample_pairs(search, sample, seed)]
        counts = _finish(found, images, out, choice)
        about = {"images": search.n, "pairs_of_images": search.n * (search.n - 1) // 2}
        chosen = pd.read_parquet(out / "pairs.parquet", columns=["i", "j"])
        worth = independent_pairs(chosen, images) if len(chosen) else 0.0
        report = config | about | {"choice": asdict(choice), "counts": counts, "independent_pairs": worth}
        write_json(out / "report.json", report)
    return report


def _fingerprint(search: PairSearch, names: pd.Series) -> str:
    """sha256 of both encoders' vectors and of the images' names: blocks of another set must not be mixed in."""
    digest = hashlib.sha256("\n".join(names).encode())
    for side in (search.med, search.gen):
        for part in side.x.split(8192):
            digest.update(part.cpu().numpy().tobytes())
    return digest.hexdigest()


def _check(out: Path, config: dict[str, Any]) -> None:
    """Raises BadInput if `out` holds another search, or anything else."""
    file = out / SEARCH_FILE
    if file.is_file():
        if json.loads(file.read_text()) != config:
            raise BadInput(
                f"{out}: holds another search (see {file.name}). Give another --out, or delete the folder to search anew."
            )
    elif not all(path.name.startswith(".") for path in out.iterdir()):
        raise BadInput(f"{out}: is not empty and holds no search. Give another --out.")


def _search(search: PairSearch, blocks: Path, run: BlockRunner) -> list[Path]:
    """Write the blocks that are not there yet; all of them, in order."""
    blocks.mkdir(exist_ok=True)
    remove_temp_files(blocks)
    firsts = range(0, search.n, BLOCK_ROWS)
    todo = [first for first in firsts if not (blocks / block_name(first)).is_file()]
    with tqdm(
        total=len(firsts), initial=len(firsts) - len(todo), desc="searching pairs", unit="block", disable=None
    ) as bar:
        for _ in run(search, blocks, todo):
            bar.update()
    return [blocks / block_name(first) for first in firsts]


def _batches(blocks: list[Path]) -> Iterator[pd.DataFrame]:
    """The pairs of all blocks in order, `BATCH` at a time."""
    for block in blocks:
        with pq.ParquetFile(block) as file:
            for batch in file.iter_batches(PAIRS_PER_BATCH):
                yield batch.to_pandas()


DIAGNOSTIC_IMAGES = 1024
"""Images whose pairs tell what thresholds would find some."""


def suggest_thresholds(search: PairSearch) -> list[str]:
    """Message if no pair meets the thresholds: the range of both similarities, and a change of one threshold that finds some, as
    far as a sample of the images shows."""
    if search.n < 2:
        return [f"{search.n} images form no pair."]
    rows = np.sort(np.random.default_rng(0).choice(search.n, min(search.n, DIAGNOSTIC_IMAGES), replace=False))
    i, j = (torch.from_numpy(rows[at]).to(search.device) for at in np.triu_indices(len(rows), 1))
    sides = {"med": search.med, "gen": search.gen}
    sims = {name: side.cosines(i, j).cpu().numpy() for name, side in sides.items()}
    lines = [
        f"sim_{name} is {values.min():.3f} to {values.max():.3f} (median {np.median(values):.3f}) among {len(values)} pairs"
        for name, values in sims.items()
    ]
    met = {name: (values >= sides[name].low) & (values <= sides[name].high) for name, values in sims.items()}
    changes = []
    for name, other in (("med", "gen"), ("gen", "med")):
        values = sims[name][met[other]]  # none of these meets the limits of `name`
        below, above = values[values < sides[name].low], values[values > sides[name].high]
        if len(below):
            changes.append(f"--{name}-at-least {max(-1.0, np.floor((below.max() - 1e-5) * 1000) / 1000):.3f}")
        elif len(above):
            changes.append(f"--{name}-at-most {min(1.0, np.ceil((above.min() + 1e-5) * 1000) / 1000):.3f}")
    would = (
        f"{' or '.join(changes)} would find some" if changes else "no change of one threshold would find any of these"
    )
    return [*lines, would]


MAX_HISTOGRAM_PAIRS = 1_000_000
"""Pairs drawn from for histograms; a longer list is thinned evenly."""


def pair_similarities(pairs: Path, embeddings: Path, encoders: list[str]) -> dict[str, np.ndarray]:
    """Cosines of the found pairs by each encoder (appendix F averages over the patch tokens: embed with `--pooling mean` to follow it).

    Raises BadInput if there are no pairs, or they are of other images."""
    file = pairs / "pairs.parquet"
    if not file.is_file() or not pq.read_metadata(file).num_rows:
        raise BadInput(f"{pairs}: holds no pairs. Find some with `medprobe curate pairs`.")
    found = pd.read_parquet(file, columns=["i", "j"])
    drawn = found.iloc[np.linspace(0, len(found) - 1, min(len(found), MAX_HISTOGRAM_PAIRS)).astype(np.int64)]
    arrays = {name: open_embeddings(embeddings, name) for name in encoders}
    if drawn["j"].max() >= min(map(len, arrays.values())):
        raise BadInput(
            f"{embeddings}: has fewer images than {pairs} was searched over. Give the folder of that search."
        )
    i, j = (torch.from_numpy(drawn[end].to_numpy()) for end in ("i", "j"))
    return {name: EncoderVectors(array).cosines(i, j).numpy() for name, array in arrays.items()}
