"""The pair search on a Ray cluster: each worker maps the embeddings and writes blocks; one that dies is started again and repeats its
block. The folders are shared by the nodes.

See also: blocks and the end of a search (`pair_mining.py`), the same on one machine without Ray (`run_here` there).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from curation.mining.pair_choice import Images
from curation.mining.pair_mining import BlockWriter, block_name, largest_so_far, read_block
from curation.mining.pair_search import PairSearch, Thresholds
from dataset_builders.ray_cluster import CHECK_AFTER, Cluster, check_nodes, connected

TRIES = 20
"""How often a block is tried whose worker died."""
TOLD_EVERY = 16
"""Blocks after which the workers hear what the largest gaps are by then."""


@dataclass(frozen=True)
class Source:
    """Where a worker finds what is searched: both encoders' arrays, and the rows to search among (None: all)."""

    med: Path
    gen: Path
    thresholds: Thresholds
    rows: np.ndarray | None = None
    device: str = "auto"

    def open(self) -> PairSearch:
        arrays = (np.load(path, mmap_mode="r") for path in (self.med, self.gen))
        med, gen = (array if self.rows is None else array[self.rows] for array in arrays)
        return PairSearch(med, gen, self.thresholds, self.device)


class Searcher:
    """What runs in a worker's process."""

    def __init__(self, source: Source, writer: dict[str, Any], blocks: str, threads: int) -> None:
        search = source.open()
        search.threads = threads
        self._writer, self._blocks = BlockWriter(search, **writer), Path(blocks)

    def write(self, first: int, least: np.ndarray | None) -> int:
        """Write one block; `least` as in `BlockWriter`."""
        replace(self._writer, least=least).write(self._blocks, first)
        return first


def run_on_ray(source: Source, cluster: Cluster) -> Callable[[BlockWriter, Path, list[int]], Iterator[int]]:
    """What `mine` takes to have its blocks written by workers."""

    def run(writer: BlockWriter, blocks: Path, todo: list[int]) -> Iterator[int]:
        with connected(cluster) as ray:
            known = largest_so_far(writer, blocks)
            nameless = Images(np.empty(0, object), writer.images.hashes, writer.images.groups, np.empty(0, np.int64))
            given = ray.put({"images": nameless, "choice": writer.choice})
            options = cluster.resources | {"max_restarts": -1, "max_task_retries": TRIES}
            remote = ray.remote(Searcher).options(**options)
            threads = max(1, int(cluster.cpus))
            pool = ray.util.ActorPool(
                [remote.remote(source, given, str(blocks.absolute()), threads) for _ in range(cluster.workers)]
            )
            least = ray.put(known.least) if known else None
            waiting = list(todo)
            done = 0
            while waiting or pool.has_next():
                while waiting and pool.has_free():
                    pool.submit(lambda actor, given: actor.write.remote(*given), (waiting.pop(0), least))
                try:
                    first = pool.get_next_unordered(timeout=CHECK_AFTER)
                except TimeoutError:
                    check_nodes(ray, cluster)
                    continue
                done += 1
                if known:
                    known.add(read_block(blocks / block_name(first)))
                    if done % TOLD_EVERY == 0:
                        least = ray.put(known.least)
                yield first

    return run
