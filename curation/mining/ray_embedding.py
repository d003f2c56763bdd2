"""Embedding as Ray Data: a table of images goes through workers, each with the encoder loaded and a cache file of its own.

A worker that dies is started again and repeats its batch; a vector that is in the cache twice is the same twice. The folders are shared
by the nodes. See also: the cache and one process (`embedding.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd

from curation.mining.embedding import Encode, Encoding, VectorCache, encode_here
from dataset_builders.ray_cluster import Cluster, connected

TRIES = 5
"""How often a batch is tried whose worker died."""
MOST_ROWS = 4096
"""Images that a worker takes at a time; those of one that dies are encoded again."""
BATCHES_AT_ONCE = 4
"""Batches of the encoder in one of Ray's, so that images are decoded while the encoder is busy."""


class EncodingWorker:
    """What runs in a worker's process: encodes rows of image and sha256, and hands back how many."""

    def __init__(self, work: Encoding, spec: Any, device: str) -> None:
        from curation.mining.encoders import load_encoder
        from curation.mining.pair_search import pick_device

        self._work = replace(work, encoder=load_encoder(spec, pick_device(device)))
        self._vectors = VectorCache(work.cache, work.dtype)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        done = sum(encode_here(replace(self._work, todo=pd.DataFrame(batch)), self._vectors))
        return {"done": np.array([done])}


def encode_on_ray(cluster: Cluster, device: str) -> Encode:
    """What `embed` takes to have its images encoded by workers of a Ray cluster."""

    def encode(work: Encoding) -> Iterator[int]:
        if work.todo.empty:
            return
        with connected(cluster) as ray:
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
                max_restarts=TRIES,
                max_task_retries=TRIES,
            )
            for batch in counted.iter_rows():
                yield int(batch["done"])

    return encode
