"""Select the files of a dataset folder that a published repository consists of, and check that they may be published. Works offline.

Only what the card names is published: README.md, manifest.json, the Parquet files of the card's configs, licence texts. Any other file in
the folder is left out and named in the report, so that nothing is published by accident.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.contents.about import check_said
from dataset_builders.errors import BadInput
from dataset_builders.hub.repository_layout import check_header, load_manifest, patterns_of, read_card
from dataset_builders.images.licences import allows_copies
from dataset_builders.schema import image_ids

BESIDE = ("README.md", "manifest.json", "eval.yaml", "LICENSE*", "LICENCE*", "NOTICE*", "CITATION*")
LICENCE_COLUMNS = ("image_id", "more_image_ids", "image_ids", "image_license", "questions")
REBUILD = "Build the folder again."


def dataset_files(folder: Path, repo_id: str, private: bool) -> tuple[dict[str, Path], list[str]]:
    """(path in the repository -> file to publish, paths of the files that are left out).

    Raises BadInput when the folder is not a dataset repository or not whole, holds phantoms and `repo_id` has a benchmark's official
    name, holds test answers, or holds images whose licence does not allow passing them on (the last two: unless `private`).
    """
    card = _card(folder)
    manifest = load_manifest(folder) or {}
    data = _data_files(folder, card)
    _check_name(repo_id, [manifest.get("origin"), card.get("origin"), *(card.get("tags") or [])])
    paths = sorted({path for found in data for path in found})
    _check_parquet(folder, paths)
    check_said(manifest)
    if not private:
        _check_answers(folder, manifest, card)
        _check_licences(folder, paths)
    files = {path: folder / path for path in paths}
    for pattern in BESIDE:
        files |= {path.name: path for path in folder.glob(pattern) if path.is_file()}
    everything = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return dict(sorted(files.items())), sorted(everything - files.keys())


def _card(folder: Path) -> dict[str, Any]:
    """The YAML metadata of the folder's README.md. Raises BadInput where it is not a dataset card."""
    remedy = "Give a folder that `medprobe build` wrote."
    if not folder.is_dir():
        raise BadInput(f"{folder}: is not a folder. {remedy}")
    path = folder / "README.md"
    if not path.is_file():
        raise BadInput(f"{folder}: is not a dataset repository: README.md is missing. {remedy}")
    card, _ = read_card(path)
    if card is None:
        raise BadInput(f"{path}: does not begin with YAML metadata between two lines of ---. {remedy}")
    check_header(path, card, "dataset")
    configs = card.get("configs")
    if not isinstance(configs, list) or not configs or not all(isinstance(config, dict) for config in configs):
        raise BadInput(f"{path}: its metadata lists no `configs`, so load_dataset would not find the data. {remedy}")
    return card


def _data_files(folder: Path, card: dict[str, Any]) -> list[list[str]]:
    """The Parquet files of each config and split, as the card's patterns find them."""
    found = []
    for config in card["configs"]:
        name = str(config.get("config_name", "default"))
        stated = patterns_of(config.get("data_files"))
        if not stated:
            raise BadInput(f"{folder / 'README.md'}: config {name} names no data_files. {REBUILD}")
        for split, patterns in stated:
            found.append(sorted({path for pattern in patterns for path in _matches(folder, pattern)}))
            if not found[-1]:
                raise BadInput(f"{folder}: config {name}, split {split}: no file fits {', '.join(patterns)}. {REBUILD}")
    return found


def _matches(folder: Path, pattern: str) -> list[str]:
    parts = PurePosixPath(pattern).parts
    if PurePosixPath(pattern).is_absolute() or ".." in parts or "://" in pattern:
        raise BadInput(f"{folder / 'README.md'}: data_files {pattern} leaves the folder. Name files inside it.")
    return [path.relative_to(folder).as_posix() for path in folder.glob(pattern) if path.is_file()]


def _check_name(repo_id: str, said: list[Any]) -> None:
    name = repo_id.split("/")[1]
    if "phantom" in said and re.sub(r"[-_.]+", "-", name.lower()) in BENCHMARKS:
        raise BadInput(
            f"{repo_id}: is the official name of a benchmark, and this folder holds phantoms. "
            f"Choose another name, e.g. {repo_id}-phantoms."
        )


def _check_parquet(folder: Path, paths: list[str]) -> None:
    for path in paths:
        try:
            pq.read_metadata(folder / path)
        except (pa.ArrowException, OSError):
            raise BadInput(
                f"{folder / path}: is damaged or no Parquet file. Only Parquet is published. {REBUILD}"
            ) from None


def _check_answers(folder: Path, manifest: dict[str, Any], card: dict[str, Any]) -> None:
    """The hidden answers of a test are a repository of their own (config `answers`), which only scoring may read."""
    if "answers_of" in manifest or any(config.get("config_name") == "answers" for config in card["configs"]):
        raise BadInput(f"{folder}: holds the hidden answers of a test, which must not become public. Add --private.")


def _check_licences(folder: Path, paths: list[str]) -> None:
    """Raise BadInput unless every image in every file has a licence that permits redistribution.

    An image without an id is identified by its row. Where rows state different licences for one image, the one that allows less counts.
    """
    licences: dict[str, str] = {}
    stored: set[str] = set()
    for path in paths:
        schema = pq.read_schema(folder / path)
        wanted = [name for name in LICENCE_COLUMNS if name in schema.names]
        table = pq.read_table(folder / path, columns=wanted)
        holds_images = any(_holds_images(field.type) or field.name == "image_uri" for field in schema)
        for number, row in enumerate(table.to_pylist() if wanted else [{}] * pq.read_metadata(folder / path).num_rows):
            if "image_ids" in row:
                ids = row["image_ids"] or []
            else:
                ids = list(image_ids(row)) if "image_id" in row else [f"{path} row {number}"]
            for said in row.get("questions") or [row]:
                for image in (image_ids(said) if "image_id" in said else ids) if "image_license" in said else ():
                    if image not in licences or allows_copies(licences[image]):
                        licences[image] = str(said["image_license"] or "")
            stored.update(ids if holds_images else ())
    refused = Counter(
        licences.get(image) or "none stated" for image in stored if not allows_copies(licences.get(image))
    )
    if refused:
        listed = ", ".join(f"{licence}: {count}" for licence, count in sorted(refused.items()))
        raise BadInput(
            f"{folder}: {refused.total()} of {len(stored)} images have no licence that permits redistribution ({listed}). "
            "Publish them with --private, or build with --text-only."
        )


def _holds_images(kind: pa.DataType) -> bool:
    """True for the type in which `datasets` stores an Image, or a list of these."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _holds_images(kind.value_type)
    return pa.types.is_struct(kind) and {kind.field(i).name for i in range(kind.num_fields)} == {"bytes", "path"}
