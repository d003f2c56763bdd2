"""Run a resumable pair search, filter the pairs found, and choose among them.

The search writes blocks of rows one at a time, so a killed search resumes. Near-duplicates, pairs
of the same group and pairs with short captions are set aside. From the rest, the pairs with the
largest |sim_med - sim_gen| are chosen, optionally with a maximum number of pairs per image.

A search folder has `search.json` (thresholds and embeddings), `blocks/<first row>.parquet`, and
when finished `pairs.parquet`, `set_aside.parquet` and `report.json` (counts).
"""

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
from eval_harness.scores.grading import image_clusters
from eval_harness.scores.intervals import ClusterSizes

PAIRS_PER_BATCH = 1_000_000
"""Number of pairs that are filtered at a time."""
PAIR_SCHEMA = pa.schema([("i", pa.int64()), ("j", pa.int64()), ("sim_med", pa.float64()), ("sim_gen", pa.float64())])
NAMED_PAIR_SCHEMA = pa.schema([*PAIR_SCHEMA, ("image_1", pa.string()), ("image_2", pa.string())])
SET_ASIDE_REASONS = ("near_duplicate", "same_group", "short_caption")
SET_ASIDE_SCHEMA = pa.schema([*NAMED_PAIR_SCHEMA, ("reason", pa.string())])
SEARCH_FILE = "search.json"
BLOCK_ROWS = 1024


def image_attributes(index: pd.DataFrame, image_table: pd.DataFrame | None, min_caption: int = 0) -> pd.DataFrame:
    """Return the attributes of each image that pairs are filtered by.

    Args:
        index: index of an embeddings folder.
        image_table: caption and group of each image, in the order of the index; None if unknown.
        min_caption: captions with fewer characters are `short`.

    Returns:
        One row per image: `image`, perceptual `hash`, `group` ("" if none), `short`.
    """
    hashes = np.array([int(text, 16) for text in index["phash"]], np.uint64)
    images = pd.DataFrame({"image": index["image"], "hash": hashes, "group": "", "short": False})
    if image_table is None:
        return images
    return images.assign(
        group=image_table["group"].to_numpy(),
        short=(image_table["caption"].str.len() < min_caption).to_numpy(),
    )


@dataclass(frozen=True)
class PairFilter:
    """Criteria by which found pairs are set aside or chosen."""

    near_duplicate: int = 6
    """Pairs whose perceptual hashes differ in at most this many of 64 bits are set aside; -1: no
    pairs.
    """
    top: int | None = None
    cap_per_image: int | None = None


def set_aside_reasons(pairs: pd.DataFrame, images: pd.DataFrame, near_duplicate: int) -> np.ndarray:
    """Return the first of `SET_ASIDE_REASONS` that applies to each pair; "" if none does.

    Args:
        pairs: table whose columns i and j are rows of `images`.
        images: result of `image_attributes`.
        near_duplicate: maximum number of hash bits in which near-duplicates differ.
    """
    first_images, second_images = (
        images[["hash", "group", "short"]].take(pairs[end].to_numpy()).reset_index(drop=True) for end in ("i", "j")
    )

    differing_bits = np.bitwise_count(first_images["hash"].to_numpy() ^ second_images["hash"].to_numpy()).astype(int)
    same_group = (first_images["group"] != "") & (first_images["group"] == second_images["group"])
    return np.select(
        [
            differing_bits <= near_duplicate,
            same_group,
            first_images["short"] | second_images["short"],
        ],
        SET_ASIDE_REASONS,
        "",
    )


def _finish(
    pair_batches: Iterable[pd.DataFrame], images: pd.DataFrame, out: Path, pair_filter: PairFilter
) -> dict[str, int]:
    """Write pairs.parquet and set_aside.parquet; return the counts.

    With `top` or `cap_per_image`, all kept pairs are sorted in memory; otherwise only one batch of
    pairs is in memory at a time.
    """
    counts = Counter(dict.fromkeys(("found", *SET_ASIDE_REASONS, "kept", "chosen"), 0))

    needs_sorting = pair_filter.top is not None or pair_filter.cap_per_image is not None
    kept_batches: list[pd.DataFrame] = []

    def write(pairs_path: Path, aside_path: Path) -> None:
        with (
            pq.ParquetWriter(pairs_path, NAMED_PAIR_SCHEMA) as kept_writer,
            pq.ParquetWriter(aside_path, SET_ASIDE_SCHEMA) as aside_writer,
        ):

            def keep(pairs: pd.DataFrame) -> None:
                counts["chosen"] += len(pairs)
                kept_writer.write_table(_table(pairs, images, NAMED_PAIR_SCHEMA))

            for pairs in pair_batches:
                batch_reasons = set_aside_reasons(pairs, images, pair_filter.near_duplicate)
                kept_pairs, set_aside_pairs = (
                    pairs[batch_reasons == ""],
                    pairs.assign(reason=batch_reasons)[batch_reasons != ""],
                )
                counts.update({"found": len(pairs), "kept": len(kept_pairs)} | Counter(set_aside_pairs["reason"]))
                aside_writer.write_table(_table(set_aside_pairs, images, SET_ASIDE_SCHEMA))
                if needs_sorting:
                    kept_batches.append(kept_pairs)
                else:
                    keep(kept_pairs)
            if kept_batches:
                keep(_choose(pd.concat(kept_batches, ignore_index=True), len(images), pair_filter))

    replace_file(
        out / "set_aside.parquet",
        lambda set_aside_pairs: replace_file(out / "pairs.parquet", lambda pairs: write(pairs, set_aside_pairs)),
    )
    return dict(counts)


def _table(pairs: pd.DataFrame, images: pd.DataFrame, schema: pa.Schema) -> pa.Table:
    names = images["image"].to_numpy()
    named_pairs = pairs.assign(image_1=names[pairs["i"]], image_2=names[pairs["j"]])
    return pa.Table.from_pandas(named_pairs, schema, preserve_index=False)


def _choose(pairs: pd.DataFrame, n: int, pair_filter: PairFilter) -> pd.DataFrame:
    """Return the pairs in order of descending |sim_med - sim_gen|, within the limits of the filter.

    Ties are ordered by (i, j)."""
    pairs = pairs.iloc[np.lexsort((pairs["j"], pairs["i"], -(pairs["sim_med"] - pairs["sim_gen"]).abs()))]
    top = len(pairs) if pair_filter.top is None else pair_filter.top
    if pair_filter.cap_per_image is None:
        return pairs.head(top)

    # The choice is greedy, so that of two pairs that compete for an image the one with the larger
    # gap is chosen.
    image_counts = np.zeros(n, np.int64)
    chosen_rows: list[int] = []
    for row, (i, j) in enumerate(zip(pairs["i"].tolist(), pairs["j"].tolist(), strict=True)):
        if len(chosen_rows) < top and max(image_counts[i], image_counts[j]) < pair_filter.cap_per_image:
            image_counts[[i, j]] += 1
            chosen_rows.append(row)
    return pairs.iloc[chosen_rows]


def independent_pairs(pairs: pd.DataFrame, images: pd.DataFrame) -> float:
    """Return the effective number of independent pairs.

    Pairs that share an image or a group (patient) form one cluster, as they do for the confidence
    intervals of scores; see `ClusterSizes.effective_clusters`.

    Args:
        pairs: table whose columns i and j are rows of `images`.
        images: result of `image_attributes`.
    """
    ends = pd.concat([pairs["i"], pairs["j"]])

    groups = images["group"].where(images["group"] != "", None).to_numpy()[ends]
    cluster = image_clusters(pd.DataFrame({"case_id": ends.index, "image_id": ends.to_numpy(), "group": groups}))
    return ClusterSizes.from_sizes(np.unique(cluster[: len(pairs)], return_counts=True)[1]).effective_clusters


def write_block(search: PairSearch, blocks: Path, first_row: int) -> None:
    """Search one block of rows and write its pairs.

    Args:
        search: embeddings and thresholds.
        blocks: folder of the blocks.
        first_row: first row of the block.
    """

    def write(partial: Path) -> None:
        with pq.ParquetWriter(partial, PAIR_SCHEMA, compression="zstd") as writer:
            for part in search.pairs_of_rows(first_row, min(search.n, first_row + BLOCK_ROWS)):
                writer.write_table(pa.Table.from_pandas(part, PAIR_SCHEMA, preserve_index=False))

    replace_file(blocks / block_name(first_row), write)


def block_name(first_row: int) -> str:
    """Return the file name of a block; sorting by name sorts by row."""
    return f"{first_row:010d}.parquet"


BlockRunner = Callable[[PairSearch, Path, list[int]], Iterator[int]]
"""Searches the blocks that begin at these rows; yields each of these rows once its block is on
disk.
"""


def search_in_process(search: PairSearch, blocks: Path, todo: list[int]) -> Iterator[int]:
    """Search the blocks one after another in this process."""
    for first_row in todo:
        write_block(search, blocks, first_row)
        yield first_row


def mine_pairs(
    search: PairSearch,
    images: pd.DataFrame,
    out: Path,
    pair_filter: PairFilter,
    sample: int | None = None,
    seed: int = 0,
    search_blocks: BlockRunner = search_in_process,
) -> dict[str, Any]:
    """Search all pairs (or draw a sample of them), and filter and choose among them.

    Existing blocks of the same search are reused.

    Args:
        search: embeddings and thresholds.
        images: result of `image_attributes`.
        out: search folder.
        pair_filter: filters and limits.
        sample: number of pairs to draw; None lists all pairs.
        seed: seed of the sample.
        search_blocks: runs the search of blocks.

    Returns:
        The content of out/report.json. In pairs.parquet, the columns i and j are row numbers of
        images.parquet. Its rows are sorted by (i, j) or, with `top` or `cap_per_image`, by
        descending |sim_med - sim_gen|.

    Raises:
        BadInput: `out` contains a different search, or other files.
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
            pair_batches: Iterable[pd.DataFrame] = _batches(_search(search, out / "blocks", search_blocks))
        else:
            pair_batches = [sample_pairs(search, sample, seed)]

        counts = _finish(pair_batches, images, out, pair_filter)
        image_counts = {"images": search.n, "pairs_of_images": search.n * (search.n - 1) // 2}
        chosen = pd.read_parquet(out / "pairs.parquet", columns=["i", "j"])
        effective_pairs = independent_pairs(chosen, images) if len(chosen) else 0.0
        report = (
            config
            | image_counts
            | {
                "choice": asdict(pair_filter),
                "counts": counts,
                "independent_pairs": effective_pairs,
            }
        )
        write_json(out / "report.json", report)
    return report


def _fingerprint(search: PairSearch, names: pd.Series) -> str:
    """Hash both encoders' vectors and the image names.

    The hash prevents blocks of a search on other images or vectors from being reused.
    """
    digest = hashlib.sha256("\n".join(names).encode())
    for side in (search.med, search.gen):
        for part in side.x.split(8192):
            digest.update(part.cpu().numpy().tobytes())
    return digest.hexdigest()


def _check(out: Path, config: dict[str, Any]) -> None:
    """Raise BadInput if `out` contains a different search, or other files."""
    file = out / SEARCH_FILE

    if file.is_file():
        if json.loads(file.read_text()) != config:
            raise BadInput(
                f"{out}: has another search (see {file.name}). Give another --out, or delete the "
                "folder to search again."
            )
    elif not all(path.name.startswith(".") for path in out.iterdir()):
        raise BadInput(f"{out}: not empty and not a search folder. Give another --out.")


def _search(search: PairSearch, blocks: Path, search_blocks: BlockRunner) -> list[Path]:
    """Search the missing blocks; return the paths of all blocks, in order."""
    blocks.mkdir(exist_ok=True)
    remove_temp_files(blocks)

    first_rows = range(0, search.n, BLOCK_ROWS)
    todo = [first_row for first_row in first_rows if not (blocks / block_name(first_row)).is_file()]
    with tqdm(
        total=len(first_rows),
        initial=len(first_rows) - len(todo),
        desc="searching pairs",
        unit="block",
        disable=None,
    ) as bar:
        for _ in search_blocks(search, blocks, todo):
            bar.update()
    return [blocks / block_name(first_row) for first_row in first_rows]


def _batches(blocks: list[Path]) -> Iterator[pd.DataFrame]:
    """Yield the pairs of all blocks in order, at most `PAIRS_PER_BATCH` at a time."""
    for block in blocks:
        with pq.ParquetFile(block) as file:
            for batch in file.iter_batches(PAIRS_PER_BATCH):
                yield batch.to_pandas()


DIAGNOSTIC_IMAGES = 1024
"""Number of images that `suggest_thresholds` samples."""


def suggest_thresholds(search: PairSearch) -> list[str]:
    """Explain a search that found nothing.

    The lines returned state the range of both similarities, and a change of one threshold that
    would match pairs. They are based on all pairs of a sample of images.
    """
    if search.n < 2:
        return [f"{search.n} images do not form a pair."]

    rows = np.sort(np.random.default_rng(0).choice(search.n, min(search.n, DIAGNOSTIC_IMAGES), replace=False))
    i, j = (torch.from_numpy(rows[at]).to(search.device) for at in np.triu_indices(len(rows), 1))
    vectors = {"med": search.med, "gen": search.gen}
    cosines = {name: encoder_vectors.cosines(i, j).cpu().numpy() for name, encoder_vectors in vectors.items()}
    lines = [
        f"sim_{name} is {values.min():.3f} to {values.max():.3f} (median {np.median(values):.3f}) among {len(values)} pairs"
        for name, values in cosines.items()
    ]

    within_limits = {
        name: (values >= vectors[name].low) & (values <= vectors[name].high) for name, values in cosines.items()
    }

    options = []
    for name, other_encoder in (("med", "gen"), ("gen", "med")):
        values = cosines[name][
            within_limits[other_encoder]
        ]  # pairs within the limits of the other encoder; none of them is within those of `name`
        below, above = values[values < vectors[name].low], values[values > vectors[name].high]
        if len(below):
            options.append(f"--{name}-at-least {max(-1.0, np.floor((below.max() - 1e-5) * 1000) / 1000):.3f}")
        elif len(above):
            options.append(f"--{name}-at-most {min(1.0, np.ceil((above.min() + 1e-5) * 1000) / 1000):.3f}")
    suggestion = (
        f"{' or '.join(options)} would match some" if options else "no single threshold change would match any of these"
    )
    return [*lines, suggestion]


MAX_HISTOGRAM_PAIRS = 1_000_000
"""Maximum number of pairs in a histogram; longer lists are thinned evenly."""


def pair_similarities(pairs: Path, embeddings: Path, encoders: list[str]) -> dict[str, np.ndarray]:
    """Compute the cosines of mined pairs for each encoder.

    The paper's appendix F averages over patch tokens; to reproduce it, embed with `--pooling mean`.

    Args:
        pairs: search folder.
        embeddings: embeddings folder.
        encoders: names of encoders.

    Returns:
        Encoder -> cosines of up to `MAX_HISTOGRAM_PAIRS` pairs.

    Raises:
        BadInput: there are no pairs, or there are fewer embeddings than the search had images.
    """
    file = pairs / "pairs.parquet"
    if not file.is_file() or not pq.read_metadata(file).num_rows:
        raise BadInput(f"{pairs}: has no pairs. Find some with `medprobe curate pairs`.")
    pair_rows = pd.read_parquet(file, columns=["i", "j"])

    # The list is thinned evenly rather than at random, so that the histogram is reproducible.
    sampled = pair_rows.iloc[
        np.linspace(0, len(pair_rows) - 1, min(len(pair_rows), MAX_HISTOGRAM_PAIRS)).astype(np.int64)
    ]

    arrays = {name: open_embeddings(embeddings, name) for name in encoders}
    if sampled["j"].max() >= min(map(len, arrays.values())):
        raise BadInput(
            f"{embeddings}: has fewer images than the search in {pairs}. Give the embeddings of that search."
        )

    i, j = (torch.from_numpy(sampled[end].to_numpy()) for end in ("i", "j"))
    return {name: EncoderVectors(array).cosines(i, j).numpy() for name, array in arrays.items()}
