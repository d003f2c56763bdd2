"""Open a dataset repository, a folder or one on the Hub, and read no more of it than is asked for.

See also: writing one (`build.py`). Imports no torch; `datasets` and the Hub client only where they are used.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dataset_builders.benchmarks import BENCHMARKS, question_columns, spec
from dataset_builders.contents.data_files import (
    CARD_FILE,
    DATA_FILE,
    check_card_configs,
    config_entries,
    folder_config_entries,
    group_data_files,
    hash_files,
)
from dataset_builders.errors import BadInput, clip
from dataset_builders.schema import DATASET_SCHEMA_VERSION, EXTRA_IMAGE_COLUMNS, text_columns

if TYPE_CHECKING:
    from datasets import DatasetDict

OPEN_REMEDY = "Build one with `medprobe build`, or name a dataset folder or Hub repository (ORG/NAME)."
STALE_CARD_REMEDY = "Build the dataset again; of a repository on the Hub, `medprobe publish` its folder again."


@dataclass(frozen=True)
class StoredCase:
    """A case as the repository stores it: its images (encoded files by image id) and the ids of its questions in order."""

    case_id: str
    images: Mapping[str, bytes]
    question_ids: list[str]


@dataclass
class Repository:
    """An open dataset repository. `data` is what was asked for, `folder` where its files are on this machine."""

    data: str
    folder: Path
    revision: str | None
    manifest: dict[str, Any]
    _files: dict[str, dict[str, list[str]]]

    @property
    def name(self) -> str:
        return str(self.manifest["name"])

    @property
    def family(self) -> str:
        return str(self.manifest["format"])

    @property
    def origin(self) -> str:
        return str(self.manifest["origin"])

    @property
    def partial(self) -> str | None:
        return self.manifest["partial"]

    @property
    def splits(self) -> list[str]:
        return list(self.manifest["splits"])

    @property
    def has_images(self) -> bool:
        """True if the repository holds the config `cases` (a text-only build does not)."""
        return "cases" in self._files

    def questions(self, split: str) -> pd.DataFrame:
        """The questions of a split in stored order: labels as texts, lists as Python lists, absent values as None, also in columns that
        the benchmark declares and the files lack.

        Raises BadInput for an unknown split or damaged files.
        """
        if split not in self.manifest["splits"]:
            raise BadInput(f"{self.data}: has no split {split!r}. It has {', '.join(self.splits)}.")
        config = "questions_text" if "questions_text" in self._files else "questions"
        tables = [_read_table(path, name) for name, path in self._paths(config, split).items()]
        declared = question_columns(self.family)
        labels = {name: list(kind.names) for name, kind in declared.items()}
        held = {name: _read_column(tables, name, labels.get(name)) for name in tables[0].column_names}
        nothing = pd.Series([None] * sum(table.num_rows for table in tables), dtype=object)
        absent = [name for name in text_columns(declared) if name not in held and name not in EXTRA_IMAGE_COLUMNS]
        return pd.DataFrame(held | dict.fromkeys(absent, nothing))

    def questions_of_runs(self, split: str) -> pd.DataFrame:
        """The questions of a split without the columns that runs and stores must not hold (`DatasetSpec.not_in_results`)."""
        return self.questions(split).drop(columns=list(spec(self.family).not_in_results))

    def cases(self, split: str, case_ids: Collection[str] | None = None) -> Iterator[StoredCase]:
        """The cases of a split with their images, in stored order, one row group in memory at a time; only those named, if any.

        Raises BadInput for an unknown split, and when the repository holds no images.
        """
        if split not in self.manifest["splits"]:
            raise BadInput(f"{self.data}: has no split {split!r}. It has {', '.join(self.splits)}.")
        if not self.has_images:
            raise BadInput(f"{self.data}: holds no images (a text-only build). Build it again without --text-only.")
        wanted = None if case_ids is None else set(case_ids)
        for name, path in self._paths("cases", split).items():
            with _open_parquet(path, name) as file:
                for group in range(file.num_row_groups):
                    ids = file.read_row_group(group, columns=["case_id"])["case_id"].to_pylist()
                    if wanted is not None and wanted.isdisjoint(ids):
                        continue
                    for row in file.read_row_group(group).to_pylist():
                        if wanted is None or row["case_id"] in wanted:
                            pictures = (image["bytes"] for image in row["images"])
                            images = dict(zip(row["image_ids"], pictures, strict=True))
                            yield StoredCase(row["case_id"], images, [each["question_id"] for each in row["questions"]])

    def file_names(self, config: str, split: str) -> list[str]:
        """The paths within the repository of the files of a config's split. Raises BadInput if there are none."""
        names = self._files.get(config, {}).get(split, [])
        if not names:
            raise BadInput(f"{self.data}: has no files of config {config!r}, split {split!r}.")
        return names

    def to_datasets(self, config: str | None = None) -> DatasetDict:
        """A whole config as `datasets.load_dataset` reads it: split -> `datasets.Dataset`, images decoded when they are looked at.

        `config`: `questions` (a row per question with its image; the default), `cases`, `questions_text` (no images; the default of a
        text-only build), or another that the card names. Raises BadInput if it is not there, or a file `datasets.py` of
        the caller's hides the library; Unavailable where the Hub cannot be asked.
        """
        try:
            from datasets import load_dataset
        except ImportError as error:
            raise BadInput(f"the library datasets cannot be imported ({error}). Rename a file of that name.") from None
        config = config or ("questions" if "questions" in self._files else "questions_text")
        if config not in self._files:
            raise BadInput(f"{self.data}: has no config {config!r}. It has {', '.join(self._files)}.")
        files = {split: [str(path) for path in self._paths(config, split).values()] for split in self._files[config]}
        loaded: DatasetDict = load_dataset("parquet", data_files=files)
        return loaded

    def _paths(self, config: str, split: str) -> dict[str, Path]:
        """The files of a config's split on this machine, by what a message calls them: the cache of the Hub's is not named."""
        names, commit = self.file_names(config, split), self.revision
        if commit is None:
            return {str(self.folder / name): self.folder / name for name in names}
        return {f"{self.data}/{name}": _download(self.data, commit, name) for name in names}


def open_repository(data: str | Path, revision: str | None = None) -> Repository:
    """Open a dataset repository: a folder, or ORG/NAME on the Hub (an existing folder wins, unless a revision is given).

    Raises BadInput with a remedy for anything else, Unavailable where the Hub cannot be asked.
    """
    folder = Path(data)
    if folder.is_dir() and revision is None:
        present = [path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")]
        return _open_checked(str(data), folder, None, present, folder_config_entries(folder))
    if folder.is_file():
        raise BadInput(f"{data}: is a file, not a dataset folder. {OPEN_REMEDY}")
    from dataset_builders.hub.client import is_repo_id

    if not is_repo_id(str(data)):
        raise BadInput(f"{data}: there is no such folder, and it is not a Hub repository's name. {OPEN_REMEDY}")
    return _open_from_hub(str(data), revision)


def load_manifest(folder: Path, data: str | Path | None = None) -> dict[str, Any]:
    """manifest.json as an object of the known version. Raises BadInput for anything else. `data`: what a message calls the folder."""
    path = f"{data or folder}/manifest.json"
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        version = manifest["schema_version"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise BadInput(f"{path}: is not a manifest of a dataset repository. {OPEN_REMEDY}") from None
    if version != DATASET_SCHEMA_VERSION:
        raise BadInput(
            f"{path}: the file has version {clip(version)}, and this medprobe reads version {DATASET_SCHEMA_VERSION}. "
            "Build the dataset again with this medprobe, or use the one that wrote it."
        )
    return dict(manifest)


def _open_from_hub(data: str, revision: str | None) -> Repository:
    """The repository as it is in one commit, looked up on the Hub: its texts are fetched, its images when they are asked for."""
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    from dataset_builders.hub.client import connect, hide_progress_bars, hub_errors, with_retries

    # `snapshot_download` answers from its cache where the Hub does not; this asks the Hub itself for the commit.
    with (
        hub_errors(data, "open it as a folder (there is none here) or as a repository of the Hub"),
        hide_progress_bars(),
    ):
        info = with_retries(lambda: connect().dataset_info(data, revision=revision, files_metadata=True))
        commit, stored = str(info.sha), {file.rfilename: file.lfs for file in info.siblings or ()}
        for name in sorted(stored):
            if name in (CARD_FILE, "manifest.json") or name.startswith("questions_text/"):
                _download(data, commit, name)
        # The Hub knows the SHA-256 of a file by itself, unless it is small and in git.
        sha256 = {
            name: lfs.sha256 if lfs else hash_files([_download(data, commit, name)])[0]
            for name, lfs in stored.items()
            if DATA_FILE.fullmatch(name)
        }
        folder = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=data, repo_type="dataset") / "snapshots" / commit
        return _open_checked(data, folder, commit, list(stored), config_entries(group_data_files(stored), sha256))


def _download(data: str, revision: str, name: str) -> Path:
    from dataset_builders.hub.client import connect, hub_errors, with_retries

    with hub_errors(data, "read it"):
        return Path(with_retries(lambda: connect().hf_hub_download(data, name, repo_type="dataset", revision=revision)))


def _open_checked(
    data: str, folder: Path, revision: str | None, present: list[str], entries: list[dict[str, Any]]
) -> Repository:
    """`present`: the files of the repository (paths in it). `entries`: what its card has to state of them."""
    files = group_data_files(present)
    if not files.keys() & {"questions", "questions_text"}:
        raise BadInput(f"{data}: is not a dataset folder (no Parquet files of a config `questions`). {OPEN_REMEDY}")
    manifest = load_manifest(folder, data)
    if not (
        all(isinstance(manifest.get(key), str) for key in ("name", "format", "origin"))
        and "partial" in manifest
        and manifest["format"] in BENCHMARKS
        and isinstance(manifest.get("splits"), dict)
    ):
        raise BadInput(f"{data}/manifest.json: is not a manifest of a dataset repository. {OPEN_REMEDY}")
    card = (folder / CARD_FILE).read_text(encoding="utf-8", errors="replace") if (folder / CARD_FILE).is_file() else ""
    check_card_configs(card, entries, f"{data}: {CARD_FILE}", STALE_CARD_REMEDY)
    return Repository(data, folder, revision, manifest, files)


def _read_column(tables: list[pa.Table], name: str, labels: list[str] | None = None) -> pd.Series:
    """A column as Python values: floats and booleans where all are, else objects; a label's position becomes its name."""
    values = [value for table in tables for value in table[name].to_pylist()]
    if labels and any(isinstance(value, int) for value in values):
        values = [labels[v] if isinstance(v, int) and 0 <= v < len(labels) else None for v in values]
    kinds = {type(value) for value in values}
    return pd.Series(values, dtype=kinds.pop() if kinds in ({float}, {bool}) else object)


@contextmanager
def _open_parquet(path: Path, name: str) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"{name}: cannot be read ({reason}). Build or download the dataset again.") from None


def _read_table(path: Path, name: str) -> pa.Table:
    """All columns but the images. `name`: what a message calls the file."""
    with _open_parquet(path, name) as file:
        return file.read(columns=[name for name in file.schema_arrow.names if name not in ("image", "more_images")])
