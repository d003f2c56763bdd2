"""Connect to a Ray cluster, or start one on this machine for the duration of the work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dataset_builders.errors import BadInput, describe_error, first_line
from dataset_builders.extras import require


@dataclass(frozen=True)
class RayCluster:
    """`address`: of a running cluster (`auto`: the one of this machine), or `local`: one is started here and ends with the work.

    `workers` at a time, each with so many `gpus` and `cpus`.
    """

    address: str = "local"
    workers: int = 2
    gpus: float = 0
    cpus: float = 1

    def __post_init__(self) -> None:
        if self.workers < 1 or self.gpus < 0:
            raise BadInput(
                f"--workers {self.workers}, --gpus-per-worker {self.gpus:g}: must be at least 1, and not negative."
            )

    @property
    def resources(self) -> dict[str, float]:
        """The resources that each worker requests from Ray."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus}


NODE_CHECK_INTERVAL_S = 10.0
"""Seconds without news from the workers after which `check_nodes` is called: Ray waits for a node that is gone as long as it takes."""


def check_nodes(ray: Any, cluster: RayCluster) -> None:
    """Raise BadInput where no living node has what a worker needs."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(node.get("CPU", 0) >= cluster.cpus and node.get("GPU", 0) >= cluster.gpus for node in nodes):
        raise BadInput(
            f"--ray {cluster.address}: no living node has {cluster.cpus:g} CPUs and {cluster.gpus:g} GPUs, which a worker needs. Give "
            "other --gpus-per-worker, or start one (--ray local: the same command does). Finished work is kept."
        )


@contextmanager
def ray_connection(cluster: RayCluster) -> Iterator[Any]:
    """The module `ray`, connected. Raises BadInput if there is no cluster, or no node of it has what a worker needs."""
    require("ray")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # else Ray writes a token into the home folder
    import ray
    import ray.exceptions
    import ray.util

    # The address is said: without one, Ray would join a cluster that RAY_ADDRESS names.
    here = {"address": "local", "num_cpus": max(1, round(cluster.workers * cluster.cpus)), "include_dashboard": False}
    try:
        ray.init(
            **(here if cluster.address == "local" else {"address": cluster.address}),
            log_to_driver=False,
            logging_level="ERROR",
        )
    except Exception as error:  # Ray raises plain ones, too: a node that does not start in time
        raise BadInput(
            f"--ray {cluster.address}: no cluster can be reached ({first_line(error)}). Start one with "
            "`ray start --head`, or give --ray local."
        ) from None
    try:
        check_nodes(ray, cluster)
        yield ray
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, BadInput | OSError):  # what the work itself ran into
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        raise BadInput(
            f"--ray {cluster.address}: the cluster failed ({describe_error(error)}). What was "
            "done is kept; repeat the command to resume."
        ) from None
    finally:
        ray.shutdown()
