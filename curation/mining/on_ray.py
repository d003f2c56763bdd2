"""Embedding and pair search on a Ray cluster: workers that die are started again and repeat their batch or block; a vector that is in the
cache twice is the same twice. The folders are shared by the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from curation.mining.embedding import EncodingBackend, EncodingJob, encode_in_process
from curation.mining.pair_mining import BlockRunner, write_block
from curation.mining.pair_search import PairSearch, Thresholds
from dataset_builders.ray_cluster import NODE_CHECK_INTERVAL_S, RayCluster, check_nodes, ray_connection

EMBEDDING_TRIES = 5
"""How often a batch is tried whose worker died."""
MOST_ROWS = 4096
"""Images that a worker takes at a time; those of one that dies are encoded again."""
BATCHES_AT_ONCE = 4
"""Batches of the encoder in one of Ray's, so that images are decoded while the encoder is busy."""


class EncodingWorker:
    """Worker process: encodes rows of image and sha256, and returns their number."""

    def __init__(self, work: EncodingJob, spec: Any, device: str) -> None:
        from curation.mining.encoders import load_encoder
        from curation.mining.pair_search import pick_device

        self._work = replace(work, encoder=load_encoder(spec, pick_device(device)))

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        done = sum(encode_in_process(replace(self._work, todo=pd.DataFrame(batch))))
        return {"done": np.array([done])}


def encode_on_ray(cluster: RayCluster, device: str) -> EncodingBackend:
    """An encoder for `embed` that uses the workers of a Ray cluster."""

    def encode(work: EncodingJob) -> Iterator[int]:
        if work.todo.empty:
            return
        with ray_connection(cluster) as ray:
            import_module("ray.data")
            given = replace(
                work,
                cache=work.cache.absolute(),
                todo=pd.DataFrame(),
                encoder=None,  # type: ignore[arg-type]
            )
            ray.data.DataContext.get_current().enable_progress_bars = False
            size = work.batch_size * BATCHES_AT_ONCE
            # Cut here: a step of Ray Data's own would wait for a CPU that the workers already have.
            rows = max(size, min(MOST_ROWS, -(-len(work.todo) // (4 * cluster.workers))))
            table = work.todo[["image", "sha256"]].reset_index(drop=True)
            parts = [table.iloc[first : first + rows] for first in range(0, len(table), rows)]
            counted = ray.data.from_pandas(parts).map_batches(
                EncodingWorker,
                fn_constructor_args=(given, work.encoder.spec, device),
                batch_size=size,
                compute=ray.data.ActorPoolStrategy(size=cluster.workers),
                num_cpus=cluster.cpus,
                num_gpus=cluster.gpus or None,
                max_restarts=EMBEDDING_TRIES,
                max_task_retries=EMBEDDING_TRIES,
            )
            for batch in counted.iter_rows():
                yield int(batch["done"])

    return encode


SEARCH_TRIES = 20
"""How often a block is tried whose worker died."""


class Searcher:
    """Worker process. arrays: the files of both encoders' vectors."""

    def __init__(self, arrays: Sequence[Path], thresholds: Thresholds, device: str, blocks: Path, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        med, gen = (np.load(path, mmap_mode="r") for path in arrays)
        self._search, self._blocks = PairSearch(med, gen, thresholds, device), blocks

    def write(self, first: int) -> int:
        """Write one block."""
        write_block(self._search, self._blocks, first)
        return first


def search_on_ray(arrays: Sequence[Path], device: str, cluster: RayCluster) -> BlockRunner:
    """A block writer for `mine` that uses workers."""

    def run(search: PairSearch, blocks: Path, todo: list[int]) -> Iterator[int]:
        with ray_connection(cluster) as ray:
            options = cluster.resources | {"max_restarts": -1, "max_task_retries": SEARCH_TRIES}
            remote = ray.remote(Searcher).options(**options)
            given = (arrays, search.thresholds, device, blocks.absolute(), max(1, int(cluster.cpus)))
            pool = ray.util.ActorPool([remote.remote(*given) for _ in range(cluster.workers)])
            for first in todo:
                pool.submit(lambda actor, first: actor.write.remote(first), first)
            while pool.has_next():
                try:
                    yield pool.get_next_unordered(timeout=NODE_CHECK_INTERVAL_S)
                except TimeoutError:
                    check_nodes(ray, cluster)

    return run
