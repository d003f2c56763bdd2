"""Connect to a Ray cluster, or start one on this machine for the duration of the work."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dataset_builders.errors import BadInput, describe_error, first_line, require


@dataclass(frozen=True)
class RayCluster:
    """The cluster to use and the resources of its workers.

    `address` is that of a running cluster (`auto`: the one on this machine) or `local`, which
    starts one for the duration of the work. `workers` run at a time, each with `gpus` and `cpus`.
    """

    address: str = "local"
    workers: int = 2
    gpus: float = 0
    cpus: float = 1

    def __post_init__(self) -> None:
        if self.workers < 1 or self.gpus < 0:
            raise BadInput(
                f"--workers {self.workers}, --gpus-per-worker {self.gpus:g}: give at least 1 worker, and 0 or more GPUs."
            )

    @property
    def resources(self) -> dict[str, float]:
        """The resources that each worker requests from Ray."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus}


NODE_CHECK_INTERVAL_S = 10.0
"""Call `check_nodes` after this many seconds without news from the workers: Ray itself waits
indefinitely for a node that is gone.
"""


def check_nodes(ray: Any, cluster: RayCluster) -> None:
    """Check that some live node can run a worker.

    Args:
        ray: the connected module `ray`.
        cluster: the resources that a worker needs.

    Raises:
        BadInput: no live node has these resources.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(node.get("CPU", 0) >= cluster.cpus and node.get("GPU", 0) >= cluster.gpus for node in nodes):
        raise BadInput(
            f"--ray {cluster.address}: no live node has the {cluster.cpus:g} CPUs and {cluster.gpus:g} GPUs that a worker needs. Change "
            "--gpus-per-worker, or use --ray local, which starts a node itself. Finished work is kept."
        )


@contextmanager
def ray_connection(cluster: RayCluster) -> Iterator[Any]:
    """Connect to Ray, or start it, for the duration of a block.

    Args:
        cluster: address and resources.

    Yields:
        The module `ray`, connected.

    Raises:
        BadInput: the cluster cannot be reached, fails, or has no node for a worker.
    """
    require("ray")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # otherwise Ray writes a token into the home folder
    import ray
    import ray.exceptions
    import ray.util

    # Pass the address explicitly; otherwise Ray joins the cluster in RAY_ADDRESS.
    # The dashboard would start further processes and open a port.
    here = {
        "address": "local",
        "num_cpus": max(1, round(cluster.workers * cluster.cpus)),
        "include_dashboard": False,
    }
    try:
        ray.init(
            **(here if cluster.address == "local" else {"address": cluster.address}),
            log_to_driver=False,
            logging_level="ERROR",
        )
    except Exception as error:  # includes plain exceptions, such as a node that does not start in time
        raise BadInput(
            f"--ray {cluster.address}: no cluster can be reached ({first_line(error)}). Start one with "
            "`ray start --head`, or give --ray local."
        ) from None

    try:
        check_nodes(ray, cluster)
        yield ray
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, BadInput | OSError):  # an error of the task, not of Ray
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        raise BadInput(
            f"--ray {cluster.address}: the cluster failed ({describe_error(error)}). Finished "
            "work is kept; repeat the command to resume."
        ) from None
    finally:
        ray.shutdown()
