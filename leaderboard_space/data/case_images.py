"""Load the images of cases from the dataset that a result names: a local folder or a Hub
repository.

Only phantoms, and images whose licence (as stated in the dataset) permits redistribution, are
shown, and only if the dataset's questions are the section's. No request waits for the Hub: missing
images are fetched in the background, and only those of viewed cases. See also: drawing the page
(`views/cases.py`).
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.fingerprints import fingerprint_questions
from dataset_builders.hub.client import endpoint
from dataset_builders.hub.repository import Repository, open_repository
from dataset_builders.images.licences import allows_redistribution
from leaderboard_space.data.store.sections import Section

MAX_RETAINED = 300
"""Maximum number of datasets and cases in memory; the least recently used are evicted first."""
RETRY_SECONDS = 120.0
CASE_MARK = "case"
Images = Mapping[str, bytes]
DatasetSource = tuple[str, str | None]
"""(folder or ORG/NAME, revision), as a result names a dataset."""


@dataclass
class _OpenDataset:
    """An open dataset: the cases that may be shown and, on the Hub, their (file, row group)."""

    repository: Repository
    split: str
    may_show: frozenset[str]
    row_groups: dict[str, tuple[str, int]] = field(default_factory=dict)


class CaseImages:
    """Images by section and case. Thread-safe; `get` never waits for the network."""

    def __init__(self) -> None:
        self._asked: OrderedDict[tuple[object, ...], tuple[float, Future[Any]]] = OrderedDict()
        """(source, *key) -> request time in seconds and pending result; most recently used last."""
        self._lock = threading.Lock()
        self._workers = ThreadPoolExecutor(2, thread_name_prefix="case-images")

    def get(self, section: Section, case_id: str, extra_sources: Sequence[DatasetSource] = ()) -> Images | None:
        """Return the images of a case.

        Args:
            section: The section that the case belongs to; its results name the datasets to look in.
            case_id: The case.
            extra_sources: Further datasets to look in.

        Returns:
            Image id -> file content; empty if no image may or can be shown; None while images are
            being fetched.
        """
        if section.fingerprint is None:
            return {}
        waiting = False
        # Local datasets first: they answer at once.
        for source in _sources(section, extra_sources):
            opened = self._future(source, (section.split, section.fingerprint), partial(_open_dataset, source, section))
            dataset: _OpenDataset | None = opened.result() if opened.done() else None
            if dataset is not None and case_id in dataset.may_show:
                # Every case is a fetch of its own, so that one page does not download the whole
                # dataset.
                fetched = self._future(
                    source, (section.split, CASE_MARK, case_id), partial(_read_images, dataset, case_id)
                )
                if fetched.done() and fetched.result():
                    return dict(fetched.result())
                waiting |= not fetched.done()
            waiting |= not opened.done()
        return None if waiting else {}

    def _future(self, source: DatasetSource, key: tuple[str, ...], compute: Callable[[], Any]) -> Future[Any]:
        """Return the result of `compute`, pending or finished; start it if it is new.

        It is computed at once for a local dataset, and in the background otherwise.
        An empty result is retried after RETRY_SECONDS: the Hub may have been unavailable.
        """
        is_local, now_s = Path(source[0]).is_dir(), time.monotonic()
        with self._lock:
            asked_at_s, future = self._asked.get((source, *key), (now_s, None))
            is_new = future is None or (future.done() and not future.result() and now_s - asked_at_s > RETRY_SECONDS)
            if future is None or is_new:
                future = Future() if is_local else self._workers.submit(compute)
                self._asked[(source, *key)] = (now_s, future)
            # The least recently used are dropped first.
            self._asked.move_to_end((source, *key))
            while len(self._asked) > MAX_RETAINED:
                self._asked.popitem(last=False)
        if is_local and is_new:
            future.set_result(compute())
        return future


def _sources(section: Section, extra_sources: Sequence[DatasetSource]) -> list[DatasetSource]:
    sources = set(extra_sources) | {
        (str(entry.result.benchmark.repo), entry.result.benchmark.revision)
        for entry in section.entries
        if entry.result.benchmark.repo
    }
    return sorted(sources, key=lambda source: (not Path(source[0]).is_dir(), source[0], source[1] or ""))


def _open_dataset(source: DatasetSource, section: Section) -> _OpenDataset | None:
    """Open a dataset; None unless it has images and exactly the section's questions."""
    try:
        repository = open_repository(source[0], None if Path(source[0]).is_dir() else source[1])
        questions = repository.questions(section.split)
        if not repository.has_images or fingerprint_questions(questions) != section.fingerprint:
            return None
    except Exception:  # no images for a dataset that cannot be read
        return None
    return _OpenDataset(repository, section.split, _redistributable_cases(questions, section, repository))


def _redistributable_cases(questions: pd.DataFrame, section: Section, repository: Repository) -> frozenset[str]:
    """Select the cases whose images may be shown.

    These are all cases if section and dataset are both phantoms, and none if only one of them is.
    Otherwise they are the cases whose images all have a licence that permits redistribution.
    """
    cases = questions["case_id"].astype(str)
    if section.kind == "phantom" or repository.origin == "phantom":
        return frozenset(cases) if section.kind == "phantom" and repository.origin == "phantom" else frozenset()
    if "image_license" not in questions.columns:
        return frozenset()
    open_licences = {value: allows_redistribution(value) for value in questions["image_license"].dropna().unique()}
    allowed = questions["image_license"].map(lambda value: open_licences.get(value, False))
    # A case with one image that may not be redistributed is not shown at all.
    return frozenset(cases[allowed]) - frozenset(cases[~allowed])


def _read_images(dataset: _OpenDataset, case_id: str) -> Images:
    try:
        if dataset.repository.revision is not None:
            return _read_from_hub(dataset, case_id)
        (case,) = dataset.repository.cases(dataset.split, [case_id])
    except (BadInput, OSError, ValueError, KeyError):
        return {}
    return case.images


def _read_from_hub(dataset: _OpenDataset, case_id: str) -> Images:
    """Read a case from one row group of a remote file: datasets are large, and visitors view only a
    few cases.
    """
    import pyarrow.parquet as pq
    from huggingface_hub import HfFileSystem

    repository = dataset.repository
    system = HfFileSystem(endpoint=endpoint())  # the current endpoint, as everywhere in medprobe
    base = f"datasets/{repository.data}@{repository.revision}"
    if not dataset.row_groups:
        for name in repository.file_names("cases", dataset.split):
            # Blocks of 1 MiB: larger ones would download images of cases that are not viewed.
            with system.open(f"{base}/{name}", "rb", block_size=1 << 20) as remote, pq.ParquetFile(remote) as file:
                for group in range(file.num_row_groups):
                    ids = file.read_row_group(group, columns=["case_id"])["case_id"].to_pylist()
                    dataset.row_groups |= {str(case): (name, group) for case in ids}
    name, group = dataset.row_groups[case_id]
    with system.open(f"{base}/{name}", "rb", block_size=1 << 20) as remote, pq.ParquetFile(remote) as file:
        table = file.read_row_group(group, columns=["case_id", "image_ids", "images"])
    row = [str(case) for case in table["case_id"].to_pylist()].index(case_id)
    ids, images = table["image_ids"][row].as_py(), table["images"][row].as_py()
    return {image_id: image["bytes"] for image_id, image in zip(ids, images, strict=True)}
