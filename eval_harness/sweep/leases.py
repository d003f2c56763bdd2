"""Which part of a sweep which worker has: a lease is some questions of one task, held by one worker until it has answered them or died.

Pure bookkeeping: no processes, no files. See also: the workers (`cluster.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from eval_harness.runs.planning.requests import AT_ONCE, Instance

MOST_DEATHS = 5
"""So many workers that die on one lease, with no answer in between, mean that it cannot be answered."""


@dataclass(frozen=True)
class Lease:
    """`instances` of task number `task`, which takes `model`. `deaths`: workers that died on it since the last answer."""

    task: int
    model: str
    instances: tuple[Instance, ...]
    deaths: int = 0


class Leases:
    """The leases that wait. Every instance given to `add` is in one lease, waiting or held, until it is answered or its task fails."""

    def __init__(self) -> None:
        self.waiting: list[Lease] = []
        self.held: dict[str, Lease] = {}
        """Name of a worker -> what it has."""
        self.failed: set[int] = set()

    def add(self, task: int, model: str, instances: Sequence[Instance], cases: Sequence[int], workers: int) -> None:
        """Cut the instances of a task into leases of whole cases, so that a worker reads an image once. `cases`: of each instance."""
        size = max(1, min(AT_ONCE, -(-len(instances) // (4 * workers))))
        part: list[Instance] = []
        for position, instance in enumerate(instances):
            if len(part) >= size and cases[position] != cases[position - 1]:
                self.waiting.append(Lease(task, model, tuple(part)))
                part = []
            part.append(instance)
        if part:
            self.waiting.append(Lease(task, model, tuple(part)))

    def next_model(self, working: Iterable[str]) -> str | None:
        """The model that a free worker should load: the one that waits with the fewest workers on it. None where nothing waits."""
        count = Counter(working)
        models = dict.fromkeys(lease.model for lease in self.waiting)
        return min(models, key=lambda model: count[model], default=None)

    def take(self, worker: str, model: str) -> Lease | None:
        """The next lease for a worker that has this model loaded."""
        found = next((lease for lease in self.waiting if lease.model == model), None)
        if found is not None:
            self.waiting.remove(found)
            self.held[worker] = found
        return found

    def done(self, worker: str) -> Lease:
        """The worker has answered what it had."""
        return self.held.pop(worker)

    def died(self, worker: str, left: Iterable[Instance]) -> Lease | None:
        """The worker is gone; what is `left` of its lease waits again, before all else. Returns the lease where it is given up."""
        lease = self.held.pop(worker, None)
        left = tuple(left)
        if lease is None or lease.task in self.failed or not left:
            return None
        again = replace(lease, instances=left, deaths=lease.deaths + 1 if len(left) == len(lease.instances) else 1)
        if again.deaths >= MOST_DEATHS:
            self.fail(lease.task)
            return again
        self.waiting.insert(0, again)
        return None

    def fail(self, task: int) -> None:
        """Nothing more of this task is handed out."""
        self.failed.add(task)
        self.waiting = [lease for lease in self.waiting if lease.task != task]

    def is_open(self, task: int) -> bool:
        """Whether a lease of this task waits or is held."""
        return any(lease.task == task for lease in (*self.waiting, *self.held.values()))
