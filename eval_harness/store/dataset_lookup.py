"""Find the questions that a submission is scored on, and whether the store's owner vouches for them.

See also: scoring by them (`examine.py`), opening a dataset (`dataset_builders/hub/repository.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from dataset_builders.errors import BadInput, Unavailable, clip
from dataset_builders.fingerprints import digest_facets, digest_prompts, fingerprint_questions
from dataset_builders.hub.client import anonymous_access, http_status, is_repo_id
from dataset_builders.hub.commits import is_released
from dataset_builders.hub.repository import Repository, open_repository
from eval_harness.records.result import Benchmark

COMMIT_HASH = re.compile(r"[0-9a-f]{40}")
MAX_DATASET_BYTES = 64 << 20
"""Maximum bytes of text in a dataset that a submission names; ProbMed has about 3 MB."""


@dataclass(frozen=True)
class Dataset:
    """The questions of one split. `ours` when the store's owner vouches for them, by --data or by having released them (main, or a tag).

    `partial`: what it lacks of the official set, None if nothing. `repo`, `revision`: where it is, as a result names it.
    """

    name: str
    split: str
    family: str
    questions: pd.DataFrame
    origin: str | None
    partial: str | None
    ours: bool
    repo: str | None = None
    revision: str | None = None
    validated: bool | None = None
    """True if a person has checked any of the questions; None if the dataset does not state it."""

    def benchmark(self, questions: pd.DataFrame, selection: str | None) -> Benchmark:
        """The `benchmark` record of a result that scores `questions` of this dataset."""
        return Benchmark(
            name=self.name,
            format=self.family,
            repo=self.repo,
            revision=self.revision,
            split=self.split,
            questions=len(questions),
            fingerprint=fingerprint_questions(questions),
            facets=digest_facets(questions),
            asked=digest_prompts(questions),
            origin=self.origin,  # type: ignore[arg-type]  # pydantic checks it
            validated=self.validated,
            selection=selection,
        )


DatasetLookup = Callable[[Benchmark], Dataset]
"""Looks up the dataset of a submission's `benchmark` record. Raises BadInput if there is none."""


def find_dataset(
    benchmark: Benchmark, data: Sequence[str] = (), owner: str | None = None, of_this_machine: bool = False
) -> Dataset:
    """The dataset that a result names: one of `data` (folders or Hub repositories) of that name, else the named revision on the Hub.

    `owner`: of the store. `of_this_machine`: a folder that the result names counts, too (who submits is at this machine).
    Raises BadInput if there is none, or it cannot be read within limits.
    """
    dataset = find_vouched_dataset(benchmark, data)
    if dataset is None and of_this_machine and benchmark.repo and Path(benchmark.repo).is_dir():
        dataset = find_vouched_dataset(benchmark, [benchmark.repo])
    if dataset is not None:
        return dataset
    repo, revision = benchmark.repo or "", benchmark.revision or ""
    if not is_repo_id(repo) or not COMMIT_HASH.fullmatch(revision):
        raise BadInput(
            f"names no dataset revision on the Hub (repo {clip(repo)}, revision {clip(revision)}); evaluate on a published dataset, or "
            "name the dataset with --data"
        )
    try:
        with nullcontext() if of_this_machine else anonymous_access():
            ours = owner is not None and repo.split("/")[0] == owner and is_released(repo, revision)
            if not ours:
                _check_sizes(repo, revision)
            repository = open_repository(repo, revision)
            if repository.name != benchmark.name or benchmark.split not in repository.splits:
                splits = clip(", ".join(repository.splits))
                raise BadInput(
                    f"{repo} holds {clip(repository.name)} ({splits}), not {benchmark.name} {benchmark.split}"
                )
            return load_split(repository, benchmark.split, ours)
    except Unavailable as error:
        if (
            of_this_machine or http_status(error) != 401
        ):  # so the Hub answers who is not signed in, also where there is nothing
            raise
        raise BadInput(
            f"the dataset {repo} is not one that everybody can read at {revision[:12]}. Make it public, or ask the store's owner to "
            "vouch for it"
        ) from None


def find_vouched_dataset(benchmark: Benchmark, data: Sequence[str]) -> Dataset | None:
    """The first of `data` (folders or Hub repositories, all of them trusted) that has the benchmark's split, or None. Raises Unavailable
    where one cannot be read, which is no fault of who submits."""
    try:
        for where in data:
            repository = open_repository(where)
            if repository.name == benchmark.name and benchmark.split in repository.splits:
                return load_split(repository, benchmark.split, ours=True)
    except BadInput as error:
        raise Unavailable(str(error)) from error
    return None


def require_dataset(benchmark: Benchmark, data: str) -> Dataset:
    """The dataset of --data. Raises BadInput if it is not the one that the submission is about."""
    dataset = find_vouched_dataset(benchmark, [data])
    if dataset is None:
        raise BadInput(f"--data {data}: has no {benchmark.name}, split {benchmark.split}, which the result is about")
    return dataset


def check_chosen_dataset(dataset: Dataset, benchmark: Benchmark) -> Dataset:
    """The dataset that a submitter names for their answers. Raises BadInput if a result or run is about another one."""
    if (benchmark.name, benchmark.split) != (dataset.name, dataset.split):
        raise BadInput(
            f"these are answers to {benchmark.name}, {benchmark.split}; chosen is {dataset.name}, {dataset.split}. "
            "Choose the other one above."
        )
    return dataset


def load_split(repository: Repository, split: str, ours: bool) -> Dataset:
    return Dataset(
        name=repository.name,
        split=split,
        family=repository.family,
        questions=repository.questions_of_runs(split),
        origin=repository.origin,
        partial=repository.partial,
        ours=ours,
        repo=str(repository.data),
        revision=repository.revision,
        validated=repository.manifest.get("validated"),
    )


def _check_sizes(repo: str, revision: str) -> None:
    """Check the size of an untrusted dataset's texts before it is fetched; without a text config its images would be downloaded."""
    from huggingface_hub.hf_api import RepoFile

    from dataset_builders.hub.client import connect, hub_errors, with_retries

    def tree() -> dict[str, int]:
        entries = connect().list_repo_tree(repo, recursive=True, revision=revision, repo_type="dataset")
        files = [entry for entry in entries if isinstance(entry, RepoFile)]
        # Of a data file in LFS the Hub knows the digest; one in git is fetched for it.
        in_git = [file for file in files if file.path.endswith(".parquet") and file.lfs is None]
        return {file.path: file.size for file in [*in_git, *files] if file in in_git or file.path.startswith(fetched)}

    fetched = ("README.md", "manifest.json", "questions_text/")
    with hub_errors(repo, "read the dataset"):
        sizes = with_retries(tree)
    size = sum(sizes.values())
    if size > MAX_DATASET_BYTES:
        raise BadInput(f"the dataset {repo} is too large to be read ({size:,} bytes of text)")
    if not any(path.startswith("questions_text/") for path in sizes):
        raise BadInput(f"the dataset {repo} has no config questions_text in a folder of that name")
