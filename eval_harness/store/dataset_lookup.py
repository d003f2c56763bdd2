"""Find the dataset that a submission is scored on.

A store's owner can vouch for datasets; others are flagged for review. See also: scoring
(`examine.py`), opening a dataset (`dataset_builders/hub/repository.py`).
"""

import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from dataset_builders.errors import BadInput, Unavailable, clip
from dataset_builders.fingerprints import digest_facets, digest_prompts, fingerprint_questions
from dataset_builders.hub.client import (
    anonymous_access,
    connect,
    http_status,
    hub_errors,
    is_released,
    is_repo_id,
    with_retries,
)
from dataset_builders.hub.repository import Repository, open_repository
from eval_harness.answer_files.untrusted import iter_parquet_rows
from eval_harness.records.result import Benchmark

COMMIT_HASH = re.compile(r"[0-9a-f]{40}")
"""A full commit hash; branches and tags are not accepted, since they can move."""
MAX_DATASET_BYTES = 64 << 20
"""Maximum size of the texts of a dataset that a submission names; ProbMed's have about 3 MB."""


@dataclass(frozen=True)
class Dataset:
    """The questions of one split.

    `is_vouched`: the store's owner vouches for the dataset, by giving it as --data or by having
    released it (on main, or as a tag). `partial`: what is missing from the official set; None if it
    is complete. `repo`, `revision`: the source, as a result names it.
    """

    name: str
    split: str
    family: str
    questions: pd.DataFrame
    origin: str | None
    partial: str | None
    is_vouched: bool
    repo: str | None = None
    revision: str | None = None
    validated: bool | None = None
    """True if a person has checked any of the questions; None if the dataset does not say."""

    def benchmark(self, questions: pd.DataFrame, selection: str | None) -> Benchmark:
        """Return the `benchmark` record of a result on this dataset.

        Args:
            questions: The questions that are scored.
            selection: What was asked, if not everything.
        """
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
"""Function from a submission's `benchmark` record to its dataset; BadInput if there is none."""


def find_dataset(
    benchmark: Benchmark,
    data: Sequence[str] = (),
    owner: str | None = None,
    of_this_machine: bool = False,
) -> Dataset:
    """Find the dataset that a result names.

    Args:
        benchmark: The `benchmark` record of the result; untrusted.
        data: Trusted folders or Hub repositories, which are tried before the revision on the Hub
            that the result names.
        owner: Owner of the store, whose released datasets are vouched for.
        of_this_machine: True if the submitter is the user of this machine. A local folder that the
            result names is then accepted, and the machine's Hub token is used.

    Raises:
        BadInput: If there is no such dataset, or it exceeds the limits.
    """
    dataset = find_vouched_dataset(benchmark, data)
    if dataset is None and of_this_machine and benchmark.repo and Path(benchmark.repo).is_dir():
        dataset = find_vouched_dataset(benchmark, [benchmark.repo])
    if dataset is not None:
        return dataset
    repo, revision = benchmark.repo or "", benchmark.revision or ""
    # Only a full commit hash always refers to the same content.
    if not is_repo_id(repo) or not COMMIT_HASH.fullmatch(revision):
        raise BadInput(
            f"does not name a dataset revision on the Hub (repo {clip(repo)}, revision "
            f"{clip(revision)}); evaluate on a published dataset, or name the dataset with --data"
        )

    try:
        # A server must not use its own token, so that a submission can only name public datasets.
        with nullcontext() if of_this_machine else anonymous_access():
            # The store's owner is trusted, so the size of their releases is not checked.
            is_vouched = owner is not None and repo.split("/")[0] == owner and is_released(repo, revision)
            if not is_vouched:
                _check_sizes(repo, revision)
            repository = open_repository(repo, revision)
            if repository.name != benchmark.name or benchmark.split not in repository.splits:
                # Clipped, since these names come from an untrusted dataset.
                splits = clip(", ".join(repository.splits))
                raise BadInput(
                    f"{repo} contains {clip(repository.name)} ({splits}), not {benchmark.name} {benchmark.split}"
                )
            return load_split(repository, benchmark.split, is_vouched)
    except Unavailable as error:
        # For an anonymous request, the Hub's 401 means a private or a missing repository.
        if of_this_machine or http_status(error) != 401:
            raise
        raise BadInput(
            f"the dataset {repo} is not publicly readable at {revision[:12]}. Make it public, or "
            "ask the store's owner to vouch for it"
        ) from None


def find_stored_dataset(root: Path, data: Sequence[str], fingerprint: str | None, benchmark: Benchmark) -> Dataset:
    """Find the dataset of a stored result.

    Args:
        root: Folder of the store.
        data: Trusted datasets, which are tried first.
        fingerprint: Fingerprint of the result's questions, by which the store may have them.
        benchmark: The `benchmark` record of the run; its revision on the Hub is tried last.

    Raises:
        BadInput: If there is no such dataset.
    """
    path = root / "questions" / f"{fingerprint}.parquet"
    if data or not path.is_file():
        return find_dataset(benchmark, data)
    questions = pd.DataFrame(list(iter_parquet_rows(path)))
    return Dataset(
        benchmark.name,
        benchmark.split,
        benchmark.family,
        questions,
        benchmark.origin,
        benchmark.selection,
        is_vouched=True,
        validated=benchmark.validated,
    )


def find_vouched_dataset(benchmark: Benchmark, data: Sequence[str]) -> Dataset | None:
    """Return the first trusted dataset that has the benchmark's split, or None.

    Args:
        benchmark: The `benchmark` record of a result.
        data: Folders or Hub repositories, all of them trusted.

    Raises:
        Unavailable: If a dataset cannot be read, which is not the submitter's fault.
    """
    try:
        for location in data:
            repository = open_repository(location)
            if repository.name == benchmark.name and benchmark.split in repository.splits:
                return load_split(repository, benchmark.split, is_vouched=True)
    except BadInput as error:
        raise Unavailable(str(error)) from error
    return None


def require_dataset(benchmark: Benchmark, data: str) -> Dataset:
    """Return the dataset given by --data. Raises BadInput if it lacks the submission's split."""
    dataset = find_vouched_dataset(benchmark, [data])
    if dataset is None:
        raise BadInput(
            f"--data {data}: does not contain {benchmark.name}, split {benchmark.split}, which the result is about"
        )
    return dataset


def check_chosen_dataset(dataset: Dataset, benchmark: Benchmark) -> Dataset:
    """Return the dataset that a submitter selected on the Submit page.

    Raises BadInput if the answers are about another dataset.
    """
    if (benchmark.name, benchmark.split) != (dataset.name, dataset.split):
        raise BadInput(
            f"these answers are for {benchmark.name}, {benchmark.split}, but {dataset.name}, "
            f"{dataset.split} is selected. Select the other dataset above."
        )
    return dataset


def load_split(repository: Repository, split: str, is_vouched: bool) -> Dataset:
    """Load the questions of one split as a `Dataset`.

    Args:
        repository: The opened dataset.
        split: Name of the split.
        is_vouched: Whether the store's owner vouches for the dataset.
    """
    return Dataset(
        name=repository.name,
        split=split,
        family=repository.family,
        questions=repository.questions_of_runs(split),
        origin=repository.origin,
        partial=repository.partial,
        is_vouched=is_vouched,
        repo=str(repository.data),
        revision=repository.revision,
        validated=repository.manifest.get("validated"),
    )


def _check_sizes(repo: str, revision: str) -> None:
    """Check the size of an untrusted dataset's texts before they are downloaded.

    A dataset without a config of texts is refused as well, since its images would be downloaded.
    """
    from huggingface_hub.hf_api import RepoFile

    def is_downloaded(file: RepoFile) -> bool:
        """Return True for a file that open_repository downloads."""
        # The Hub gives the digests of data files in LFS; those in plain git must be downloaded.
        is_in_git = file.path.endswith(".parquet") and file.lfs is None
        return is_in_git or file.path.startswith(("README.md", "manifest.json", "questions_text/"))

    with hub_errors(repo, "read the dataset"):
        entries = with_retries(
            lambda: list(connect().list_repo_tree(repo, recursive=True, revision=revision, repo_type="dataset"))
        )
    sizes = {entry.path: entry.size for entry in entries if isinstance(entry, RepoFile) and is_downloaded(entry)}
    size = sum(sizes.values())
    if size > MAX_DATASET_BYTES:
        raise BadInput(f"the dataset {repo} is too large to read ({size:,} bytes of text)")
    if not any(path.startswith("questions_text/") for path in sizes):
        raise BadInput(f"the dataset {repo} has no config questions_text (a folder of that name)")
