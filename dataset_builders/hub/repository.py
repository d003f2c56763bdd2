"""Open a dataset repository, a folder or one on the Hub, and read no more of it than is asked for.

See also: writing one (`build.py`). Imports no torch; `datasets` and the Hub client only where they are used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dataset_builders.benchmarks import BENCHMARKS, question_columns, recognise
from dataset_builders.errors import BadInput
from dataset_builders.fingerprints import QUESTION_COLUMNS, fingerprint_of
from dataset_builders.hub.repository_layout import REMEDY, data_files, read_card, read_manifest
from dataset_builders.schema import SCHEMA_VERSION, SEVERAL_IMAGES, text_columns

if TYPE_CHECKING:
    from datasets import DatasetDict


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
        tables = [_read_table(path) for path in self._paths(config, split)]
        known = {name: list(kind.names) for family in BENCHMARKS for name, kind in question_columns(family).items()}
        labels = known | _label_names(tables[0].schema)
        held = {name: _column(tables, name, labels.get(name)) for name in tables[0].column_names}
        nothing = pd.Series([None] * sum(table.num_rows for table in tables), dtype=object)
        declared = question_columns(self.family) if self.family else {}
        absent = [name for name in text_columns(declared) if name not in held and name not in SEVERAL_IMAGES]
        return pd.DataFrame(held | dict.fromkeys(absent, nothing))

    def cases(self, split: str, case_ids: Collection[str] | None = None) -> Iterator[StoredCase]:
        """The cases of a split with their images, in stored order, one row group in memory at a time; only those named, if any.

        Raises BadInput for an unknown split, and when the repository holds no images.
        """
        if split not in self.manifest["splits"]:
            raise BadInput(f"{self.data}: has no split {split!r}. It has {', '.join(self.splits)}.")
        if not self.has_images:
            raise BadInput(f"{self.data}: holds no images (a text-only build). Build it again without --text-only.")
        wanted = None if case_ids is None else set(case_ids)
        for path in self._paths("cases", split):
            with _parquet(path) as file:
                for group in range(file.num_row_groups):
                    ids = file.read_row_group(group, columns=["case_id"])["case_id"].to_pylist()
                    if wanted is None or wanted.intersection(ids):
                        yield from _stored(file, group, wanted)

    @cached_property
    def lexical_tree(self) -> pd.DataFrame:
        """The rows (subject, category, modality, keyword) of the official lexical tree; empty where the repository has none."""
        names = ["subject", "category", "modality", "keyword"]
        splits = self._files.get("lexical_tree", {})
        tables = [_read_table(path, names) for split in splits for path in self._paths("lexical_tree", split)]
        return pd.DataFrame({name: _column(tables, name) for name in names})

    def file_names(self, config: str, split: str) -> list[str]:
        """The paths within the repository of the files of a config's split. Raises BadInput where there are none."""
        names = self._files.get(config, {}).get(split, [])
        if not names:
            raise BadInput(f"{self.data}: has no files of config {config!r}, split {split!r}.")
        return names

    def to_datasets(self, config: str | None = None) -> DatasetDict:
        """A whole config as `datasets.load_dataset` reads it: split -> `datasets.Dataset`, images decoded when they are looked at.

        `config`: `questions` (a row per question with its image; the default), `cases`, `questions_text` (no images; the default of a
        text-only build), or another that the card names. Raises BadInput where it is not there, cannot be read, or a file `datasets.py`
        of the caller's hides the library; Unavailable where the Hub cannot be asked.
        """
        config = config or ("questions" if "questions" in self._files else "questions_text")
        if config not in self._files:
            raise BadInput(f"{self.data}: has no config {config!r}. It has {', '.join(self._files)}.")
        try:
            from datasets import load_dataset
            from datasets.exceptions import DatasetGenerationError
        except ImportError as error:
            hidden = find_spec("datasets")
            where = hidden.origin if hidden else "nothing"
            raise BadInput(
                f"the library datasets cannot be imported: Python finds {where} ({error}). Rename a file of that name."
            ) from None
        files = {split: [str(path) for path in self._paths(config, split)] for split in self._files[config]}
        try:
            loaded: DatasetDict = load_dataset("parquet", data_files=files)
        except DatasetGenerationError as error:
            cause = str(error.__cause__ or error).splitlines()[0]
            raise BadInput(
                f"{self.data}: {config} cannot be read ({cause}). Build or download the dataset again."
            ) from None
        return loaded

    def _paths(self, config: str, split: str) -> list[Path]:
        names = self.file_names(config, split)
        if self.revision is None:
            return [self.folder / name for name in names]
        return [_downloaded(self.data, self.revision, name) for name in names]


def open_repository(data: str | Path, revision: str | None = None) -> Repository:
    """Open a dataset repository: a folder, or ORG/NAME on the Hub (an existing folder wins).

    One without our manifest opens too, if its columns are those of one of the four formats; its fingerprints are then computed.
    Raises BadInput with a remedy for anything else, Unavailable where the Hub cannot be asked.
    """
    folder = Path(data)
    if folder.is_dir():
        present = [path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")]
        return _opened(str(data), folder, None, present)
    if folder.exists():
        raise BadInput(f"{data}: is a file, not a dataset folder. {REMEDY}")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", str(data)):
        raise BadInput(f"{data}: there is no such folder, and it is not a Hub repository's name. {REMEDY}")
    return _from_hub(str(data), revision)


def text_files(folder: Path | None, present: list[str]) -> list[str]:
    """Of a repository's files, those that hold questions and lexical trees without images, by the card in `folder` (None: no card).

    Raises BadInput for a card that cannot be read.
    """
    files = _files(folder, present)
    texts = "questions_text" if "questions_text" in files else "questions"
    return [name for config in (texts, "lexical_tree") for names in files.get(config, {}).values() for name in names]


def _files(folder: Path | None, present: list[str]) -> dict[str, dict[str, list[str]]]:
    card = read_card(folder / "README.md")[0] if folder and (folder / "README.md").is_file() else None
    return data_files(card or {}, sorted(name for name in present if name.endswith(".parquet")))


def _from_hub(data: str, revision: str | None) -> Repository:
    """The repository as it is in one commit, looked up on the Hub: its texts are fetched, its images when they are asked for."""
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    from dataset_builders.hub.client import connect, hub_errors, quiet, with_retries

    # `snapshot_download` answers from its cache where the Hub does not; this asks the Hub itself for the commit.
    with hub_errors(data, "open it as a folder (there is none here) or as a repository of the Hub"), quiet():
        commit = str(with_retries(lambda: connect().repo_info(data, revision=revision, repo_type="dataset").sha))
        names = with_retries(lambda: connect().list_repo_files(data, repo_type="dataset", revision=commit))
        for name in sorted(names):
            if name in ("README.md", "manifest.json") or name.startswith(("questions_text/", "lexical_tree/")):
                _downloaded(data, commit, name)
        folder = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=data, repo_type="dataset") / "snapshots" / commit
        return _opened(data, folder, commit, names)


def _downloaded(data: str, revision: str, name: str) -> Path:
    from dataset_builders.hub.client import connect, hub_errors, with_retries

    with hub_errors(data, "read it"):
        return Path(with_retries(lambda: connect().hf_hub_download(data, name, repo_type="dataset", revision=revision)))


def _opened(data: str, folder: Path, revision: str | None, present: list[str]) -> Repository:
    """`present`: the files of the repository (paths in it)."""
    files = _files(folder, present)
    manifest = read_manifest(folder)
    if not files:
        held = (
            "holds a manifest but no Parquet files"
            if manifest
            else "is not a dataset folder (no Parquet files of a config `questions`)"
        )
        raise BadInput(f"{data}: {held}. {REMEDY}")
    return Repository(data, folder, revision, manifest or _inferred(data, folder, revision, files), files)


def _inferred(data: str, folder: Path, revision: str | None, files: dict[str, dict[str, list[str]]]) -> dict[str, Any]:
    """A manifest for a repository that has none: benchmark by its columns, fingerprints computed."""
    config = "questions_text" if "questions_text" in files else "questions"
    base: dict[str, Any] = {"name": folder.name if revision is None else data.rsplit("/", 1)[-1], "origin": "custom"}
    base |= {"schema_version": SCHEMA_VERSION, "partial": None, "images": {}, "report": {}, "format": ""}
    base["splits"] = dict.fromkeys(files[config])
    unfinished = Repository(data, folder, revision, base, files)
    for split in files[config]:
        frame = unfinished.questions(split)
        base["format"] = base["format"] or _format_of(frame, data)
        base["splits"][split] = {
            "questions": len(frame),
            "cases": int(frame["case_id"].nunique()),
            "fingerprint": fingerprint_of(frame),
        }
    return base


def _format_of(frame: pd.DataFrame, data: str) -> str:
    missing = [name for name in ("case_id", *QUESTION_COLUMNS) if name not in frame.columns]
    if missing:
        raise BadInput(f"{data}: the column {', '.join(missing)} is missing, so it is not a dataset of ours. {REMEDY}")
    family = recognise(frame)
    if family is None:
        raise BadInput(
            f"{data}: has no manifest.json, and its columns fit none of {', '.join(BENCHMARKS)}. Build it with `medprobe build`."
        )
    return family


def _label_names(schema: pa.Schema) -> dict[str, list[str]]:
    """Names of the ClassLabel columns, as `datasets` and our writer note them in a Parquet file's metadata."""
    noted = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    features = noted.get("info", {}).get("features", {})
    return {name: each["names"] for name, each in features.items() if isinstance(each, dict) and "names" in each}


def _column(tables: list[pa.Table], name: str, labels: list[str] | None = None) -> pd.Series:
    """A column as Python values: floats and booleans where all are, else objects; a label's position becomes its name."""
    values = [value for table in tables for value in table[name].to_pylist()]
    if labels and any(isinstance(value, int) for value in values):
        values = [labels[v] if isinstance(v, int) and 0 <= v < len(labels) else None for v in values]
    kinds = {type(value) for value in values}
    return pd.Series(values, dtype=kinds.pop() if kinds in ({float}, {bool}) else object)


def _stored(file: pq.ParquetFile, group: int, wanted: set[str] | None) -> Iterator[StoredCase]:
    table = file.read_row_group(group)
    for row in range(table.num_rows):
        case_id = table["case_id"][row].as_py()
        if wanted is not None and case_id not in wanted:
            continue
        images, ids = table["images"][row].as_py(), table["image_ids"][row].as_py()
        yield StoredCase(
            case_id,
            {image_id: image["bytes"] for image_id, image in zip(ids, images, strict=True)},
            [question["question_id"] for question in table["questions"][row].as_py()],
        )


def _parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None


def _read_table(path: Path, columns: Collection[str] | None = None) -> pa.Table:
    """These columns; without `columns`, all but the images."""
    with _parquet(path) as file:
        there = file.schema_arrow.names
        missing = [name for name in columns or () if name not in there]
        if missing:
            raise BadInput(f"{path}: the column {', '.join(missing)} is missing. Build or download the dataset again.")
        try:
            return file.read(columns=list(columns or [name for name in there if name not in ("image", "more_images")]))
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> BadInput:
    return BadInput(f"{path}: cannot be read ({str(error).splitlines()[0]}). Build or download the dataset again.")
