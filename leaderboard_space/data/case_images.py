"""The images of cases, from the dataset that a result names: a folder here, or a repository on the Hub, read only where looked at.

Shown are only images that we drew (phantoms) or whose licence, as the dataset itself states it, lets anybody pass them on; and only where
the dataset's questions are those of the section. No request waits for the Hub: an image that is not here yet is fetched in the background.
See also: drawing the page (`views/cases.py`).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.fingerprints import fingerprint_of
from dataset_builders.hub.client import endpoint
from dataset_builders.hub.repository import Repository, open_repository
from dataset_builders.images.licences import allows_copies
from leaderboard_space.data.store.sections import Section

MOST_BYTES = 128_000_000
"""Images kept in memory; those longest not looked at go first."""
RETRY_SECONDS = 120.0
Images = Mapping[str, bytes]
Dataset = tuple[str, str | None]
"""A dataset as a result names it: folder or ORG/NAME, and the revision."""


@dataclass
class _Open:
    """An open dataset of a section: which of its cases may be shown, and (on the Hub) in which row group each of them lies."""

    repository: Repository
    split: str
    may_show: frozenset[str]
    where: dict[str, tuple[str, int]] = field(default_factory=dict)


class CaseImages:
    """Images by section and case. Thread-safe; `get` never waits for a network."""

    def __init__(self) -> None:
        self._datasets: dict[tuple[Dataset, str, str], Future[_Open | None]] = {}
        self._fetching: dict[tuple[Dataset, str, str], Future[None]] = {}
        self._held: OrderedDict[tuple[Dataset, str, str], Images] = OrderedDict()
        self._failed: dict[tuple[Dataset, str, str], float] = {}
        self._bytes = 0
        self._lock = threading.Lock()
        self._workers = ThreadPoolExecutor(2, thread_name_prefix="case-images")

    def get(self, section: Section, case_id: str, more: Sequence[Dataset] = ()) -> Images | None:
        """The images of a case by name; empty where none may or can be shown, None while they are being fetched.

        They are looked for in the datasets that the section's results name, and in `more`.
        """
        if section.fingerprint is None:
            return {}
        waiting = False
        for source in _sources(section, more):
            here = Path(source[0]).is_dir()
            key = (source, section.split, case_id)
            with self._lock:
                if key in self._held:
                    self._held.move_to_end(key)
                    return self._held[key]
                opened = self._datasets.get((source, section.split, section.fingerprint))
                if opened is None:
                    opened = Future() if here else self._workers.submit(_open, source, section)
                    self._datasets[(source, section.split, section.fingerprint)] = opened
                    if here:
                        opened.set_result(_open(source, section))
            if not opened.done():
                waiting = True
                continue
            dataset = opened.result()
            if dataset is None:
                self._again(source, section)
                continue
            if case_id not in dataset.may_show:
                continue
            if here:
                return self._fetch(key, dataset)
            with self._lock:
                fetching = self._fetching.get(key)
                if fetching is None:
                    self._fetching[key] = self._workers.submit(self._fetch_later, key, dataset)
            if fetching is None or not fetching.done():
                waiting = True
        return None if waiting else {}

    def _again(self, source: Dataset, section: Section) -> None:
        """A dataset that could not be read is tried again after a while: the Hub may have been away."""
        key, now = (source, section.split, str(section.fingerprint)), time.monotonic()
        with self._lock:
            if now - self._failed.setdefault(key, now) > RETRY_SECONDS:
                self._failed.pop(key)
                self._datasets.pop(key, None)

    def _fetch_later(self, key: tuple[Dataset, str, str], dataset: _Open) -> None:
        self._fetch(key, dataset)

    def _fetch(self, key: tuple[Dataset, str, str], dataset: _Open) -> Images:
        try:
            images = dict(_images(dataset, key[2]))
        except (BadInput, OSError, ValueError, KeyError):
            return {}
        with self._lock:
            self._held[key] = images
            self._bytes += sum(map(len, images.values()))
            while self._bytes > MOST_BYTES and len(self._held) > 1:
                old, gone = self._held.popitem(last=False)
                self._fetching.pop(old, None)
                self._bytes -= sum(map(len, gone.values()))
        return images


def _sources(section: Section, more: Sequence[Dataset]) -> list[Dataset]:
    found = set(more) | {
        (str(entry.result.benchmark.repo), entry.result.benchmark.revision)
        for entry in section.entries
        if entry.result.benchmark.repo
    }
    return sorted(found, key=lambda source: (not Path(source[0]).is_dir(), source[0], source[1] or ""))


def _open(source: Dataset, section: Section) -> _Open | None:
    """The dataset at `source` if it holds images and exactly the questions of the section; None otherwise."""
    try:
        repository = open_repository(source[0], None if Path(source[0]).is_dir() else source[1])
        questions = repository.questions(section.split)
        if not repository.has_images or fingerprint_of(questions) != section.fingerprint:
            return None
    except Exception:  # a dataset that cannot be read shows no images
        return None
    return _Open(repository, section.split, _may_show(questions, section, repository))


def _may_show(questions: pd.DataFrame, section: Section, repository: Repository) -> frozenset[str]:
    """Phantoms all; else the cases of which every image has a licence that lets anybody pass it on."""
    cases = questions["case_id"].astype(str)
    if section.kind == "phantom" or repository.origin == "phantom":
        return frozenset(cases) if section.kind == "phantom" and repository.origin == "phantom" else frozenset()
    if "image_license" not in questions.columns:
        return frozenset()
    open_licences = {value: allows_copies(value) for value in questions["image_license"].dropna().unique()}
    allowed = questions["image_license"].map(lambda value: open_licences.get(value, False))
    return frozenset(cases[allowed]) - frozenset(cases[~allowed])


def _images(dataset: _Open, case_id: str) -> Images:
    repository = dataset.repository
    if repository.revision is None:
        (case,) = repository.cases(dataset.split, [case_id])
        return case.images
    return _from_hub(dataset, case_id)


def _from_hub(dataset: _Open, case_id: str) -> Images:
    """One row group of the remote file, instead of the whole: datasets are large, and a reader looks at a few cases."""
    import pyarrow.parquet as pq
    from huggingface_hub import HfFileSystem

    repository = dataset.repository
    system = HfFileSystem(endpoint=endpoint())  # the Hub as it is named now, as for everybody here
    base = f"datasets/{repository.data}@{repository.revision}"
    if not dataset.where:
        for name in repository.file_names("cases", dataset.split):
            with system.open(f"{base}/{name}", "rb", block_size=1 << 20) as remote, pq.ParquetFile(remote) as file:
                for group in range(file.num_row_groups):
                    ids = file.read_row_group(group, columns=["case_id"])["case_id"].to_pylist()
                    dataset.where |= {str(one): (name, group) for one in ids}
    name, group = dataset.where[case_id]
    with system.open(f"{base}/{name}", "rb", block_size=1 << 20) as remote, pq.ParquetFile(remote) as file:
        table = file.read_row_group(group, columns=["case_id", "image_ids", "images"])
    row = [str(one) for one in table["case_id"].to_pylist()].index(case_id)
    ids, images = table["image_ids"][row].as_py(), table["images"][row].as_py()
    return {image_id: image["bytes"] for image_id, image in zip(ids, images, strict=True)}
