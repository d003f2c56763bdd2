"""Embedding and pair search on a Ray cluster.

Workers that die are restarted and repeat their images or block. A batch may therefore be in the
cache twice, with the same vectors. All nodes must share the folders.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from curation.images.image_index import ImageSource
from curation.mining.embedding import Encoder, EncoderSpec, EncodingBackend, encode_in_process, load_encoder
from curation.mining.pair_mining import BlockRunner, write_block
from curation.mining.pair_search import PairSearch, Thresholds, pick_device
from dataset_builders.ray_cluster import NODE_CHECK_INTERVAL_S, RayCluster, check_nodes, ray_connection

MAX_TASK_RETRIES = 20
"""Maximum retries of a task whose worker died."""
BATCHES_PER_TASK = 4
"""Number of encoder batches per task; several let decoding overlap with encoding. If a worker dies,
all of them are encoded again.
"""


def _run_tasks(
    cluster: RayCluster, actor: "type[EncodingWorker | Searcher]", actor_args: Sequence[Any], tasks: Iterable[Any]
) -> Iterator[int]:
    """Call `run` of a cluster's workers with each task; yield its results in any order."""
    with ray_connection(cluster) as ray:
        options = cluster.resources | {"max_restarts": -1, "max_task_retries": MAX_TASK_RETRIES}
        remote = ray.remote(actor).options(**options)
        pool = ray.util.ActorPool([remote.remote(*actor_args) for _ in range(cluster.workers)])
        for task in tasks:
            pool.submit(lambda worker, task: worker.run.remote(task), task)
        while pool.has_next():
            try:
                yield pool.get_next_unordered(timeout=NODE_CHECK_INTERVAL_S)
            except TimeoutError:
                check_nodes(ray, cluster)


class EncodingWorker:
    """Ray actor that encodes images.

    Args:
        images: where the images are read.
        cache: folder of the vectors.
        spec: the encoder.
        batch_size: images per forward pass.
        device: torch device.
    """

    def __init__(self, images: ImageSource, cache: Path, spec: EncoderSpec, batch_size: int, device: str) -> None:
        self._images, self._cache, self._batch_size = images, cache, batch_size
        self._encoder = load_encoder(spec, pick_device(device))

    def run(self, pending: pd.DataFrame) -> int:
        """Encode images into the cache; returns their number."""
        return sum(encode_in_process(self._images, pending, self._cache, self._encoder, self._batch_size))


def encode_on_ray(cluster: RayCluster, device: str) -> EncodingBackend:
    """Return an encoding backend for `embed` that uses a Ray cluster.

    Args:
        cluster: cluster and resources per worker.
        device: torch device of the workers.
    """

    def encode(
        images: ImageSource, pending: pd.DataFrame, cache: Path, encoder: Encoder, batch_size: int
    ) -> Iterator[int]:
        if pending.empty:
            return
        task_rows = batch_size * BATCHES_PER_TASK
        tasks = (pending.iloc[start : start + task_rows] for start in range(0, len(pending), task_rows))
        # Workers load the encoder themselves: its weights are not sent to them.
        worker_args = (images, cache.absolute(), encoder.spec, batch_size, device)
        yield from _run_tasks(cluster, EncodingWorker, worker_args, tasks)

    return encode


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
        torch.set_num_threads(threads)
        med, gen = (np.load(path, mmap_mode="r") for path in arrays)
        self._search, self._blocks = PairSearch(med, gen, thresholds, device), blocks

    def run(self, first_row: int) -> int:
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
        threads = max(1, int(cluster.cpus))
        yield from _run_tasks(
            cluster, Searcher, (arrays, search.thresholds, device, blocks.absolute(), threads), pending
        )

    return run
