"""Open a dataset repository, in a folder or on the Hub, and read only what is requested.

Two versions of a dataset are compared without loading images (`medprobe diff ORG/NAME@v1 @v2`).
Does not import torch; `datasets` and huggingface_hub are imported where they are used.

See also: writing a repository (`build.py`).
"""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dataset_builders.benchmarks import FORMATS, question_columns, spec
from dataset_builders.contents.data_files import (
    CARD_FILE,
    DATA_FILE,
    check_card_configs,
    config_entries,
    group_data_files,
    hash_data_files,
    hash_files,
)
from dataset_builders.errors import BadInput, clip
from dataset_builders.fingerprints import FINGERPRINT_COLUMNS
from dataset_builders.hub.client import connect, hide_progress_bars, hub_errors, is_repo_id, with_retries
from dataset_builders.schema import DATASET_SCHEMA_VERSION, EXTRA_IMAGE_COLUMNS, row_image_ids, text_columns

if TYPE_CHECKING:
    from datasets import DatasetDict

OPEN_REMEDY = "Build one with `medprobe build`, or name a dataset folder or Hub repository (ORG/NAME)."
STALE_CARD_REMEDY = "Build the dataset again; of a repository on the Hub, `medprobe publish` its folder again."


@dataclass(frozen=True)
class StoredCase:
    """A stored case: its images (encoded files by image id) and the ids of its questions
    in order.
    """

    case_id: str
    images: Mapping[str, bytes]
    question_ids: list[str]


@dataclass
class Repository:
    """An open dataset repository.

    `data` is the name by which it was opened; `folder` contains its files on this machine.
    """

    data: str
    folder: Path
    revision: str | None
    manifest: dict[str, Any]
    _files: dict[str, dict[str, list[str]]]

    @property
    def name(self) -> str:
        """Name of the set."""
        return str(self.manifest["name"])

    @property
    def family(self) -> str:
        """The benchmark whose format the set has."""
        return str(self.manifest["format"])

    @property
    def origin(self) -> str:
        """`official`, `custom` or `phantom`."""
        return str(self.manifest["origin"])

    @property
    def partial(self) -> str | None:
        """What is missing; None if the set is complete."""
        return self.manifest["partial"]

    @property
    def splits(self) -> list[str]:
        """Names of the splits."""
        return list(self.manifest["splits"])

    @property
    def has_images(self) -> bool:
        """True if the repository has the config `cases` (a text-only build does not)."""
        return "cases" in self._files

    def questions(self, split: str) -> pd.DataFrame:
        """Read the questions of a split in stored order.

        Args:
            split: name of the split.

        Returns:
            A row per question: labels as strings, lists as Python lists, missing values as None.
                Columns that the benchmark declares but the files lack are included, filled with
                None.

        Raises:
            BadInput: the split is unknown, or files are damaged.
        """
        if split not in self.manifest["splits"]:
            raise BadInput(f"{self.data}: has no split {split!r}. It has {', '.join(self.splits)}.")

        # The config without images is much smaller.
        config = "questions_text" if "questions_text" in self._files else "questions"
        tables = [_read_table(path, name) for name, path in self._paths(config, split).items()]
        declared = question_columns(self.family)
        labels = {name: list(kind.names) for name, kind in declared.items()}
        columns = {name: _read_column(tables, name, labels.get(name)) for name in tables[0].column_names}
        empty = pd.Series([None] * sum(table.num_rows for table in tables), dtype=object)

        # Callers may rely on every declared column, even if the build had no values for it.
        absent = [name for name in text_columns(declared) if name not in columns and name not in EXTRA_IMAGE_COLUMNS]
        return pd.DataFrame(columns | dict.fromkeys(absent, empty))

    def questions_of_runs(self, split: str) -> pd.DataFrame:
        """Read the questions without columns that runs and stores must not contain.

        Args:
            split: name of the split.

        Returns:
            The result of `questions`, without the columns in `DatasetSpec.not_in_results`.
        """
        return self.questions(split).drop(columns=list(spec(self.family).not_in_results))

    def cases(self, split: str, case_ids: Collection[str] | None = None) -> Iterator[StoredCase]:
        """Iterate over the cases of a split with their images, one row group in memory at a time.

        Args:
            split: name of the split.
            case_ids: the cases to read; None for all.

        Yields:
            Cases in stored order.

        Raises:
            BadInput: the split is unknown, or the repository has no images.
        """
        if split not in self.manifest["splits"]:
            raise BadInput(f"{self.data}: has no split {split!r}. It has {', '.join(self.splits)}.")
        if not self.has_images:
            raise BadInput(f"{self.data}: has no images (a text-only build). Build it again without --text-only.")
        selected = None if case_ids is None else set(case_ids)
        for name, path in self._paths("cases", split).items():
            with _open_parquet(path, name) as file:
                for group in range(file.num_row_groups):
                    # Read the ids first: skipping a row group saves decoding its images.
                    ids = file.read_row_group(group, columns=["case_id"])["case_id"].to_pylist()
                    if selected is not None and selected.isdisjoint(ids):
                        continue
                    for row in file.read_row_group(group).to_pylist():
                        if selected is None or row["case_id"] in selected:
                            pictures = (image["bytes"] for image in row["images"])
                            images = dict(zip(row["image_ids"], pictures, strict=True))
                            yield StoredCase(
                                row["case_id"],
                                images,
                                [question["question_id"] for question in row["questions"]],
                            )

    def file_names(self, config: str, split: str) -> list[str]:
        """Return the files of a config's split, as paths in the repository.

        Args:
            config: name of the config.
            split: name of the split.

        Raises:
            BadInput: there are none.
        """
        names = self._files.get(config, {}).get(split, [])
        if not names:
            raise BadInput(f"{self.data}: has no files of config {config!r}, split {split!r}.")
        return names

    def to_datasets(self, config: str | None = None) -> "DatasetDict":
        """Load a config as `datasets.load_dataset` does, with images decoded on access.

        Args:
            config: `questions` (a row per question with its image; the default), `cases`,
                `questions_text` (no images; the default of a text-only build), or another config of
                the card.

        Returns:
            split -> `datasets.Dataset`.

        Raises:
            BadInput: the config does not exist, or the caller's own `datasets.py` shadows the
                library.
            Unavailable: the Hub could not be reached.
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
        """Download the files of a config's split; return what messages call each file -> local
        path.
        """
        names, commit = self.file_names(config, split), self.revision
        if commit is None:
            return {str(self.folder / name): self.folder / name for name in names}
        return {f"{self.data}/{name}": _download(self.data, commit, name) for name in names}


def open_repository(data: str | Path, revision: str | None = None) -> Repository:
    """Open a dataset repository.

    Args:
        data: a folder, or ORG/NAME on the Hub. An existing folder takes precedence unless a
            revision is given.
        revision: branch, tag or commit on the Hub.

    Raises:
        BadInput: it is neither, or is damaged.
        Unavailable: the Hub could not be reached.
    """
    folder = Path(data)
    if folder.is_dir() and revision is None:
        return _open_checked(str(data), folder, None, hash_data_files(folder))
    if folder.is_file():
        raise BadInput(f"{data}: is a file, not a dataset folder. {OPEN_REMEDY}")
    if not is_repo_id(str(data)):
        raise BadInput(f"{data}: there is no such folder, and it is not the name of a Hub repository. {OPEN_REMEDY}")
    return _open_from_hub(str(data), revision)


def load_manifest(folder: Path, data: str | Path | None = None) -> dict[str, Any]:
    """Read manifest.json.

    Args:
        folder: the repository's folder.
        data: what messages call the folder.

    Raises:
        BadInput: the file is not a manifest, or has another schema version.
    """
    path = f"{data or folder}/manifest.json"
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        version = manifest["schema_version"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise BadInput(f"{path}: is not a manifest of a dataset repository. {OPEN_REMEDY}") from None

    if version != DATASET_SCHEMA_VERSION:
        raise BadInput(
            f"{path}: the file has version {clip(version)}, this medprobe reads version {DATASET_SCHEMA_VERSION}. "
            "Build the dataset again with this medprobe, or use the one that wrote the file."
        )

    return dict(manifest)


def _open_from_hub(data: str, revision: str | None) -> Repository:
    """Open the repository at one commit: text files are downloaded now, images on demand."""
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    # Ask the Hub for the commit: `snapshot_download` would fall back to a stale cache if the Hub
    # does not respond.
    with (
        hub_errors(data, "open it as a folder (there is none here) or as a repository of the Hub"),
        hide_progress_bars(),
    ):
        info = with_retries(lambda: connect().dataset_info(data, revision=revision, files_metadata=True))
        commit, stored = str(info.sha), {file.rfilename: file.lfs for file in info.siblings or ()}
        for name in sorted(stored):
            if name in (CARD_FILE, "manifest.json") or name.startswith("questions_text/"):
                _download(data, commit, name)

        # The Hub reports the SHA-256 of LFS files only; small files in git must be hashed here.
        sha256 = {
            name: lfs.sha256 if lfs else hash_files([_download(data, commit, name)])[0]
            for name, lfs in stored.items()
            if DATA_FILE.fullmatch(name)
        }
        folder = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=data, repo_type="dataset") / "snapshots" / commit
        return _open_checked(data, folder, commit, sha256)


def _download(data: str, revision: str, name: str) -> Path:
    with hub_errors(data, "read it"):
        return Path(with_retries(lambda: connect().hf_hub_download(data, name, repo_type="dataset", revision=revision)))


def _open_checked(data: str, folder: Path, revision: str | None, sha256: Mapping[str, str]) -> Repository:
    """Check a repository's files, manifest and card, and open it.

    `sha256`: path of each data file -> its digest, which the card must record.
    """
    files = group_data_files(sha256)
    if not files.keys() & {"questions", "questions_text"}:
        raise BadInput(f"{data}: is not a dataset folder (no Parquet files of a config `questions`). {OPEN_REMEDY}")
    manifest = load_manifest(folder, data)
    if not (
        all(isinstance(manifest.get(key), str) for key in ("name", "format", "origin"))
        and "partial" in manifest
        and manifest["format"] in FORMATS
        and isinstance(manifest.get("splits"), dict)
    ):
        raise BadInput(f"{data}/manifest.json: is not a manifest of a dataset repository. {OPEN_REMEDY}")

    # A folder without a card is accepted; one with a card that differs is not.
    card = (folder / CARD_FILE).read_text(encoding="utf-8", errors="replace") if (folder / CARD_FILE).is_file() else ""
    check_card_configs(card, config_entries(sha256), f"{data}: {CARD_FILE}", STALE_CARD_REMEDY)
    return Repository(data, folder, revision, manifest, files)


def _read_column(tables: list[pa.Table], name: str, labels: list[str] | None = None) -> pd.Series:
    """Return a column as Python values: floats and booleans if all are, else objects; labels by
    name.
    """
    values = [value for table in tables for value in table[name].to_pylist()]
    if labels and any(isinstance(value, int) for value in values):
        # An index out of range comes from damaged data and becomes None.
        values = [labels[v] if isinstance(v, int) and 0 <= v < len(labels) else None for v in values]

    # pandas would turn integers with missing values into floats.
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
    """Read all columns except images; `name` is what messages call the file."""
    with _open_parquet(path, name) as file:
        return file.read(columns=[name for name in file.schema_arrow.names if name not in ("image", "more_images")])


COMPARED_COLUMNS = frozenset(FINGERPRINT_COLUMNS) - {"question_id"}
"""Columns on which scores depend."""


@dataclass
class SplitChanges:
    """The differences between two versions of a split.

    `changed` maps question id -> column -> (before, after). `images` are ids of images whose bytes
    differ, if both manifests list them.
    """

    split: str
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed: dict[str, dict[str, tuple[Any, Any]]] = field(default_factory=dict)
    images: list[str] = field(default_factory=list)

    @property
    def scored(self) -> bool:
        """True if results on the two versions are not comparable; else only labels, captions and
        sources differ.
        """
        return bool(
            self.added
            or self.removed
            or self.images
            or any(COMPARED_COLUMNS & columns.keys() for columns in self.changed.values())
        )

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.images)


def compare_versions(old_name: str, new_name: str) -> list[SplitChanges]:
    """Compare two versions of a dataset split by split.

    Args:
        old_name: the earlier version, `ORG/NAME@TAG` or a folder.
        new_name: the later version, likewise, or `@TAG` of the first repository.

    Returns:
        A report per split, in the order of the new version; removed questions in their old order.

    Raises:
        BadInput: a version cannot be opened, or they belong to different benchmarks.
    """
    old_repository, old_revision = _parse_version(old_name)
    new_repository, new_revision = _parse_version(new_name)
    if not old_repository:
        raise BadInput(f"{old_name}: contains no dataset name. Give ORG/NAME@TAG, or a folder.")
    old = open_repository(old_repository, old_revision)
    new = open_repository(new_repository or old_repository, new_revision)
    if old.family != new.family:
        raise BadInput(
            f"{old_name}, {new_name}: belong to {old.family} and {new.family}; compare versions of one dataset."
        )
    return [_compare_split(split, old, new) for split in dict.fromkeys([*new.splits, *old.splits])]


def _parse_version(name: str) -> tuple[str, str | None]:
    # A folder's name may contain "@", so check for a folder first.
    if Path(name).is_dir():
        return name, None
    repository, at, revision = name.partition("@")
    if at and not revision:
        raise BadInput(f"{name}: has no version after the @. Give a tag, e.g. {repository or 'ORG/NAME'}@v1.0.0.")
    return repository, revision or None


def _compare_split(split: str, old: Repository, new: Repository) -> SplitChanges:
    rows_by_id: list[Any] = [
        {row["question_id"]: row for row in repository.questions(split).to_dict("records")}
        if split in repository.splits
        else {}
        for repository in (old, new)
    ]
    old_rows, new_rows = rows_by_id
    changes = SplitChanges(
        split,
        [name for name in new_rows if name not in old_rows],
        [name for name in old_rows if name not in new_rows],
    )

    # Only questions in both versions can have changed.
    common = {name: row for name, row in new_rows.items() if name in old_rows}
    for name, row in common.items():
        pairs = {
            column: (old_rows[name].get(column), row.get(column)) for column in dict.fromkeys([*row, *old_rows[name]])
        }
        if columns := {column: pair for column, pair in pairs.items() if pair[0] != pair[1]}:
            changes.changed[name] = columns

    # Images of removed questions are not worth reporting.
    image_names = {image for row in common.values() for image in row_image_ids(row)}
    old_images, new_images = old.manifest.get("images") or {}, new.manifest.get("images") or {}
    common_images = image_names & old_images.keys() & new_images.keys()
    changes.images = sorted(image for image in common_images if old_images[image] != new_images[image])
    return changes


def format_changes(changes: list[SplitChanges], max_listed: int = 20) -> str:
    """Format the changes in Markdown.

    Args:
        changes: one report per split.
        max_listed: how many questions of each kind are listed.
    """
    parts = []
    for split in changes:
        lines = [f"## {split.split}", *([] if split else ["No change."])]
        for title, names in (
            ("added", split.added),
            ("removed", split.removed),
            ("images replaced", split.images),
        ):
            if names:
                remainder = f", and {len(names) - max_listed:,} more" if len(names) > max_listed else ""
                lines.append(f"- {title}: {len(names):,} ({', '.join(names[:max_listed])}{remainder})")
        if split.changed:
            lines.append(f"- changed: {len(split.changed):,}")
            for name, columns in list(split.changed.items())[:max_listed]:
                for column, (old, new) in columns.items():
                    lines.append(f"  - `{name}` {column}: {clip(old, 120)} -> {clip(new, 120)}")
            if len(split.changed) > max_listed:
                lines.append(f"  - and {len(split.changed) - max_listed:,} more")
        if split.scored:
            lines.append("Results on the two versions are not comparable.")
        elif split:
            lines.append("No change affects scores: results on the two versions are comparable.")
        parts.append("\n".join(lines))

    return "\n\n".join(parts)
