"""Embedding and pair search on a Ray cluster.

Workers that die are restarted and repeat their batch or block. A batch may therefore be in the
cache twice, with the same vectors. All nodes must share the folders.
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

MAX_EMBEDDING_RETRIES = 5
"""Maximum number of restarts of a worker, and of retries of its batch."""
MAX_ROWS_PER_TASK = 4096
"""Maximum number of images per task; if a worker dies, all images of its task are encoded again."""
BATCHES_PER_RAY_BATCH = 4
"""Number of encoder batches per Ray batch; several let decoding overlap with encoding."""


class EncodingWorker:
    """Ray actor that encodes batches with the columns image and sha256, and returns their sizes."""

    def __init__(self, work: EncodingJob, spec: Any, device: str) -> None:
        from curation.mining.encoders import load_encoder
        from curation.mining.pair_search import pick_device

        self._work = replace(work, encoder=load_encoder(spec, pick_device(device)))

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        done = sum(encode_in_process(replace(self._work, pending=pd.DataFrame(batch))))
        return {"done": np.array([done])}


def encode_on_ray(cluster: RayCluster, device: str) -> EncodingBackend:
    """Return an encoding backend for `embed` that uses a Ray cluster.

    Args:
        cluster: cluster and resources per worker.
        device: torch device of the workers.
    """

    def encode(job: EncodingJob) -> Iterator[int]:
        if job.pending.empty:
            return
        with ray_connection(cluster) as ray:
            import_module("ray.data")

            # The job is sent to every worker, so the table and the loaded encoder are removed from
            # it.
            worker_job = replace(
                job,
                cache=job.cache.absolute(),
                pending=pd.DataFrame(),
                encoder=None,  # type: ignore[arg-type]
            )

            ray.data.DataContext.get_current().enable_progress_bars = False
            batch_size = job.batch_size * BATCHES_PER_RAY_BATCH
            # The table is split here, because Ray Data's repartitioning would wait for CPUs that
            # the workers occupy.
            chunk_rows = max(batch_size, min(MAX_ROWS_PER_TASK, -(-len(job.pending) // (4 * cluster.workers))))
            table = job.pending[["image", "sha256"]].reset_index(drop=True)
            chunks = [table.iloc[start : start + chunk_rows] for start in range(0, len(table), chunk_rows)]

            batch_counts = ray.data.from_pandas(chunks).map_batches(
                EncodingWorker,
                fn_constructor_args=(worker_job, job.encoder.spec, device),
                batch_size=batch_size,
                compute=ray.data.ActorPoolStrategy(size=cluster.workers),
                num_cpus=cluster.cpus,
                num_gpus=cluster.gpus or None,
                max_restarts=MAX_EMBEDDING_RETRIES,
                max_task_retries=MAX_EMBEDDING_RETRIES,
            )
            for batch in batch_counts.iter_rows():
                yield int(batch["done"])

    return encode


MAX_SEARCH_RETRIES = 20
"""Maximum retries of a block whose worker died."""


class Searcher:
    """Ray actor that searches blocks.

    Args:
        arrays: paths of both encoders' vectors.
        thresholds: thresholds of the search.
        device: torch device.
        blocks: folder of the blocks.
        threads: CPU threads of this worker.
    """

    def __init__(
        self,
        arrays: Sequence[Path],
        thresholds: Thresholds,
        device: str,
        blocks: Path,
        threads: int,
    ) -> None:
        import torch

        torch.set_num_threads(threads)
        med, gen = (np.load(path, mmap_mode="r") for path in arrays)
        self._search, self._blocks = PairSearch(med, gen, thresholds, device), blocks

    def write(self, first_row: int) -> int:
        """Search and write one block; returns its first row."""
        write_block(self._search, self._blocks, first_row)
        return first_row


def search_on_ray(arrays: Sequence[Path], device: str, cluster: RayCluster) -> BlockRunner:
    """Return a block runner for `mine_pairs` that uses a Ray cluster.

    Args:
        arrays: paths of both encoders' arrays, on storage that all nodes share.
        device: torch device of the workers.
        cluster: cluster and resources per worker.
    """

    def run(search: PairSearch, blocks: Path, pending: list[int]) -> Iterator[int]:
        with ray_connection(cluster) as ray:
            options = cluster.resources | {"max_restarts": -1, "max_task_retries": MAX_SEARCH_RETRIES}
            remote = ray.remote(Searcher).options(**options)
            searcher_args = (
                arrays,
                search.thresholds,
                device,
                blocks.absolute(),
                max(1, int(cluster.cpus)),
            )
            pool = ray.util.ActorPool([remote.remote(*searcher_args) for _ in range(cluster.workers)])

            for first_row in pending:
                pool.submit(lambda actor, first_row: actor.write.remote(first_row), first_row)
            while pool.has_next():
                try:
                    yield pool.get_next_unordered(timeout=NODE_CHECK_INTERVAL_S)
                except TimeoutError:
                    check_nodes(ray, cluster)

    return run
