"""Select the files of a dataset folder to publish, and check that they may be published. Works
offline.

Only files that a build writes are published: README.md, manifest.json, eval.yaml, Parquet files
named as data files, licence texts. Other files are left out and reported, so that nothing is
published by accident.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.contents.about import check_deidentification_stated
from dataset_builders.contents.data_files import (
    CARD_FILE,
    folder_config_entries,
    group_data_files,
    update_card_configs,
)
from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import load_manifest
from dataset_builders.images.licences import allows_redistribution

METADATA_PATTERNS = ("manifest.json", "eval.yaml", "LICENSE*", "LICENCE*", "NOTICE*", "CITATION*")
BUILT_FOLDER_REMEDY = "Give a folder that `medprobe build` wrote."


def select_dataset_files(folder: Path, repo_id: str, private: bool) -> tuple[dict[str, Path | bytes], list[str]]:
    """Select the files of a dataset folder to publish.

    Args:
        folder: a folder that `medprobe build` wrote.
        repo_id: where it will be published.
        private: whether the repository is private.

    Returns:
        (path in the repository -> file or content, paths of the files that are left out).

    Raises:
        BadInput: the folder is not a complete dataset repository; it contains phantoms and
            `repo_id` has a benchmark's official name; or, unless `private`, it contains test
            answers or images whose licence forbids redistribution.
    """
    present = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    data = group_data_files(present)
    if not (folder / "README.md").is_file() or not data:
        raise BadInput(f"{folder}: is not a dataset repository (a README.md and Parquet files). {BUILT_FOLDER_REMEDY}")
    manifest = load_manifest(folder)

    # Names that differ only in separators would still be mistaken for the benchmark.
    if manifest.get("origin") == "phantom" and re.sub(r"[-_.]+", "-", repo_id.split("/")[1].lower()) in BENCHMARKS:
        raise BadInput(
            f"{repo_id}: is the official name of a benchmark, but this folder contains phantoms. "
            f"Choose another name, e.g. {repo_id}-phantoms."
        )

    check_deidentification_stated(manifest)
    if not private and ("answers_of" in manifest or "answers" in data):
        raise BadInput(f"{folder}: contains the hidden answers of a test, which must not become public. Add --private.")
    paths = [path for splits in data.values() for names in splits.values() for path in names]
    refused = {licence for path in paths for licence in _restricted_licences(folder / path)}
    if refused and "questions" in data and not private:
        raise BadInput(
            f"{folder}: contains images without a licence that permits redistribution ({', '.join(sorted(refused))}). "
            "Publish them with --private, or build with --text-only."
        )

    files: dict[str, Path | bytes] = {path: folder / path for path in paths}
    for pattern in METADATA_PATTERNS:
        files |= {path.name: path for path in folder.glob(pattern) if path.is_file()}

    # The card may have been edited: rewrite its record of the data files.
    text = (folder / CARD_FILE).read_text(encoding="utf-8", errors="replace")
    files[CARD_FILE] = update_card_configs(text, folder_config_entries(folder), folder / CARD_FILE).encode()
    return dict(sorted(files.items())), sorted(set(present) - files.keys())


def _restricted_licences(path: Path) -> set[str]:
    """Return the licences in a file's rows that do not permit redistribution."""
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if "image_license" not in names:
                return {"none stated"} if "image" in names else set()
            stated = file.read(columns=["image_license"])["image_license"].unique().to_pylist()
    except (pa.ArrowException, OSError):
        raise BadInput(f"{path}: is damaged or not a Parquet file. {BUILT_FOLDER_REMEDY}") from None
    return {str(licence or "none stated") for licence in stated if not allows_redistribution(licence)}
