"""Which files of a folder a dataset repository is made of, and whether they may be published. Asks nobody outside.

Only what the card names goes out: README.md, manifest.json, the Parquet files of the card's configs, pictures the card shows, licence
texts. Anything else in the folder stays where it is and is named in the report, so that nothing slips out by lying about.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.contents.about import check_said
from dataset_builders.errors import BadInput
from dataset_builders.hub.card_header import check_header, read_card_header
from dataset_builders.hub.repository_layout import check_version, patterns_of
from dataset_builders.images.terms import allows_copies
from dataset_builders.schema import image_ids

BESIDE = ("README.md", "manifest.json", "eval.yaml", "LICENSE*", "LICENCE*", "NOTICE*", "CITATION*")
PICTURES = re.compile(r"!\[[^\]]*\]\(([^)\s]+)[^)]*\)|<img[^>]*\bsrc=[\"']([^\"']+)[\"']")


@dataclass(frozen=True)
class DatasetFiles:
    """`files`: path in the repository -> file here. `left_out`: files of the folder that stay. `name`: the benchmark's."""

    files: dict[str, Path]
    left_out: list[str]
    name: str
    origin: str


def dataset_files(folder: Path, repo_id: str, private: bool) -> DatasetFiles:
    """The files to publish.

    Raises BadInput when the folder is not a dataset repository or not whole, holds phantoms and `repo_id` has a benchmark's official
    name, holds test answers, or holds images whose licence does not allow passing them on (the last two: unless `private`).
    """
    card, body = read_card(folder)
    manifest = _manifest(folder)
    data = _data_files(folder, card)
    said = [manifest.get("origin"), card.get("origin"), *(card.get("tags") or [])]
    origin = "phantom" if "phantom" in said else str(manifest.get("origin") or "custom")
    _check_name(repo_id, origin)
    _check_counts(folder, card, data)
    check_said(manifest)
    if not private:
        _check_answers(folder, manifest, card)
        _check_licences(folder, sorted({path for files in data.values() for path in files}))
    files = {path: folder / path for paths in data.values() for path in paths}
    for pattern in BESIDE:
        files |= {path.name: path for path in folder.glob(pattern) if path.is_file()}
    for picture in _pictures(folder, body):
        files[picture] = folder / picture
    everything = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    left_out = sorted(everything - files.keys())
    return DatasetFiles(dict(sorted(files.items())), left_out, str(manifest.get("name") or folder.name), origin)


def read_card(folder: Path) -> tuple[dict[str, Any], str]:
    """(YAML metadata, body) of the folder's README.md. BadInput when it is not a dataset card."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: is not a folder. Give one that `medprobe build` wrote.")
    path = folder / "README.md"
    remedy = "Give a folder that `medprobe build` wrote."
    if not path.is_file():
        raise BadInput(f"{folder}: is not a dataset repository: README.md is missing. {remedy}")
    try:
        card, body = read_card_header(path)
    except (UnicodeDecodeError, yaml.YAMLError):
        card, body = None, ""
    if card is None:
        raise BadInput(f"{path}: does not begin with YAML metadata between two lines of ---. {remedy}")
    check_header(path, card, "dataset")
    configs = card.get("configs")
    if not isinstance(configs, list) or not configs or not all(isinstance(config, dict) for config in configs):
        raise BadInput(f"{path}: its metadata lists no `configs`, so load_dataset would not find the data. {remedy}")
    return card, body


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    if not path.exists():
        return {}
    try:
        manifest = json.loads(path.read_bytes())
    except ValueError:
        manifest = None
    if not isinstance(manifest, dict) or "schema_version" not in manifest:
        raise BadInput(f"{path}: is not a manifest of a dataset. Build the folder again.")
    check_version(str(path), manifest)
    return manifest


def _data_files(folder: Path, card: dict[str, Any]) -> dict[tuple[str, str], list[str]]:
    """(config, split) -> Parquet files, as the card's patterns find them."""
    found: dict[tuple[str, str], list[str]] = {}
    for config in card["configs"]:
        name = str(config.get("config_name", "default"))
        stated = config.get("data_files")
        for split, patterns in patterns_of(stated):
            paths = sorted({path for pattern in patterns for path in _matches(folder, pattern)})
            if not paths:
                raise BadInput(
                    f"{folder}: config {name}, split {split}: no file fits {', '.join(patterns)}. Build the folder again."
                )
            found[name, split] = paths
        if not any(key[0] == name for key in found):
            raise BadInput(f"{folder / 'README.md'}: config {name} names no data_files. Build the folder again.")
    return found


def _matches(folder: Path, pattern: str) -> list[str]:
    parts = PurePosixPath(pattern).parts
    if PurePosixPath(pattern).is_absolute() or ".." in parts or "://" in pattern:
        raise BadInput(f"{folder / 'README.md'}: data_files {pattern} leaves the folder. Name files inside it.")
    return [path.relative_to(folder).as_posix() for path in folder.glob(pattern) if path.is_file()]


def _pictures(folder: Path, body: str) -> Iterable[str]:
    for groups in PICTURES.findall(body):
        name = next(filter(None, groups))
        path = folder / name
        if "://" not in name and path.is_file() and path.resolve().is_relative_to(folder.resolve()):
            yield path.resolve().relative_to(folder.resolve()).as_posix()


def _check_name(repo_id: str, origin: str) -> None:
    name = repo_id.split("/")[1]
    if origin == "phantom" and re.sub(r"[-_.]+", "-", name.lower()) in BENCHMARKS:
        raise BadInput(
            f"{repo_id}: is the official name of a benchmark, and this folder holds phantoms. "
            f"Choose another name, e.g. {repo_id}-phantoms."
        )


def _check_counts(folder: Path, card: dict[str, Any], data: dict[tuple[str, str], list[str]]) -> None:
    """A card that states another number of rows than its files hold breaks load_dataset for everybody."""
    import pyarrow
    import pyarrow.parquet as pq

    stated = card.get("dataset_info")
    rows: dict[tuple[str, str], int] = {}
    for key, paths in data.items():
        for path in paths:
            if not path.endswith(".parquet"):
                raise BadInput(
                    f"{folder / path}: is not a Parquet file. Only Parquet is published; build the folder again."
                )
            try:
                rows[key] = rows.get(key, 0) + pq.read_metadata(folder / path).num_rows
            except (pyarrow.ArrowException, OSError):
                raise BadInput(f"{folder / path}: is damaged or no Parquet file. Build the folder again.") from None
    for info in stated if isinstance(stated, list) else [stated or {}]:
        for split in info.get("splits") or []:
            key = str(info.get("config_name", "default")), str(split["name"])
            if key in rows and rows[key] != split.get("num_examples", rows[key]):
                raise BadInput(
                    f"{folder}: README.md states {split['num_examples']} rows for config {key[0]}, split {key[1]}, "
                    f"its files hold {rows[key]}. Build the folder again."
                )


def _check_answers(folder: Path, manifest: dict[str, Any], card: dict[str, Any]) -> None:
    """The hidden answers of a test are a repository of their own (config `answers`), which only scoring may read."""
    if "answers_of" in manifest or any(config.get("config_name") == "answers" for config in card["configs"]):
        raise BadInput(f"{folder}: holds the hidden answers of a test, which must not become public. Add --private.")


def _check_licences(folder: Path, paths: list[str]) -> None:
    """Every image in every file must have a licence that lets us pass it on; an image without a row that says so has none."""
    licences, shown = _licences(folder, paths)
    refused = Counter(licences.get(image) or "none stated" for image in shown if not allows_copies(licences.get(image)))
    if refused:
        listed = ", ".join(f"{licence}: {count}" for licence, count in sorted(refused.items()))
        raise BadInput(
            f"{folder}: {sum(refused.values())} of {len(shown)} images have no licence that permits redistribution ({listed}). "
            "Publish them with --private, or build with --text-only."
        )


def _licences(folder: Path, paths: list[str]) -> tuple[dict[str, str], set[str]]:
    """(image id -> licence, ids of all images stored). An image without an id goes by the number of its row.

    Where two rows state different licences for one image, the one that allows less counts.
    """
    import pyarrow.parquet as pq

    licences: dict[str, str] = {}
    shown: set[str] = set()
    for path in paths:
        schema = pq.read_schema(folder / path)
        columns = ("image_id", "more_image_ids", "image_ids", "image_license", "questions")
        wanted = [name for name in columns if name in schema.names]
        rows = pq.read_table(folder / path, columns=wanted)
        ids = [[f"{path} row {row}"] for row in range(pq.read_metadata(folder / path).num_rows)]
        if "image_ids" in wanted:
            ids = rows["image_ids"].to_pylist()
        elif "image_id" in wanted:
            ids = [list(image_ids(row)) for row in rows.select([n for n in wanted if "image_id" in n]).to_pylist()]
        said: list[tuple[str, str | None]] = []
        if "image_license" in wanted:
            stated = zip(ids, rows["image_license"].to_pylist(), strict=True)
            said = [(image, licence) for images, licence in stated for image in images]
        elif "questions" in wanted:
            questions = [question for row in rows["questions"].to_pylist() for question in row]
            said = [(image, each.get("image_license")) for each in questions for image in image_ids(each)]
        for image, licence in said:
            if image not in licences or allows_copies(licences[image]):
                licences[image] = str(licence or "")
        if any(_holds_images(field.type) or _is_uri(field) for field in schema):
            shown |= {image for images in ids for image in images}
    return licences, shown


def _is_uri(field: Any) -> bool:
    """Whether a column holds images as data URIs (the configs of eval.yaml's tasks)."""
    import pyarrow as pa

    return bool(field.name == "image_uri" and pa.types.is_string(field.type))


def _holds_images(kind: Any) -> bool:
    """Whether a column's type is what `datasets` stores an Image as, or a list of these."""
    import pyarrow as pa

    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _holds_images(kind.value_type)
    return pa.types.is_struct(kind) and {kind.field(i).name for i in range(kind.num_fields)} == {"bytes", "path"}
