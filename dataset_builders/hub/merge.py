"""Decide what a publish writes, by a three-way comparison of each file: new content, last publish,
current content.

Files that others changed or added on the Hub are never replaced or deleted. In a card that was
edited there, only `configs` belongs to medprobe.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dataset_builders.contents.data_files import (
    CARD_FILE,
    DATA_FILE,
    STANDARD_CONFIGS,
    config_entries,
    group_data_files,
    hash_files,
    update_card_configs,
)
from dataset_builders.errors import BadInput

FileContent = Path | bytes
RECORD_FILE = "published.json"
"""File in the repository: path -> ids of every file that the last publish wrote."""
MAX_GIT_FILE_BYTES = 10 * 1024 * 1024
"""Largest file that the Hub stores in git, in bytes; larger ones are in LFS."""


@dataclass
class PublishChanges:
    """What a publish writes (None: deletes), and what it preserves because others changed it."""

    write: dict[str, FileContent | None] = field(default_factory=dict)
    preserved: list[str] = field(default_factory=list)


def content_ids(content: FileContent) -> list[str]:
    """Return the ids that a file may have on the Hub: its SHA-256 (in LFS) and its blob id (in
    git).
    """
    if isinstance(content, Path):
        if content.stat().st_size > MAX_GIT_FILE_BYTES:
            return hash_files([content])
        content = content.read_bytes()

    # git's blob id: SHA-1 over a header with the size, then the content.
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
    return [hashlib.sha256(content).hexdigest(), blob.hexdigest()]


def merge_published(
    repo_id: str,
    files: Mapping[str, FileContent],
    stored: Mapping[str, str],
    read_stored: Callable[[str], bytes],
) -> PublishChanges:
    """Compute the changes that bring a repository and its record up to date.

    Args:
        repo_id: for messages.
        files: path in the repository -> new content.
        stored: path -> id of the current content.
        read_stored: fetches the current content of a path.

    Raises:
        BadInput: names files of others that would have to be replaced, or that would be loaded as
            rows of ours.
    """
    recorded_ids = _parse_record(read_stored(RECORD_FILE)) if RECORD_FILE in stored else {}
    ids = {path: content_ids(content) for path, content in files.items()}

    # Any Parquet file in the folder of one of our configs may be loaded as its rows, regardless of
    # its origin.
    configs = {*group_data_files({*files, *recorded_ids}), *STANDARD_CONFIGS} if group_data_files(files) else set()
    rows = {
        path
        for path in {*files, *recorded_ids, *stored}
        if path.partition("/")[0] in configs and path.endswith(".parquet")
    }
    changes, in_the_way = PublishChanges(), []
    for path in sorted({*files, *recorded_ids, *rows} - ({CARD_FILE} if configs else set())):
        new, recorded, current = ids.get(path, []), recorded_ids.get(path, []), stored.get(path)

        # The Hub has the new content already.
        if current in new or (current is None and not new):
            continue

        # Unchanged since the last publish, or not there: safe to write or delete.
        if current in recorded or (current is None and new != recorded):
            changes.write[path] = files.get(path)
        # Changed there only: keep it, unless it would be loaded as rows of ours.
        elif new == recorded if new else path not in rows:
            changes.preserved.append(path)
        else:
            in_the_way.append(path)

    if in_the_way:
        raise BadInput(
            f"{repo_id}: nothing was published, because others changed or added files that would be replaced, or loaded as rows of this "
            f"dataset: {', '.join(in_the_way)}. Move or delete them there, or copy them into the folder, and publish again."
        )

    record = {
        path: recorded_ids[path] if path in changes.preserved else ids[path] for path in {*files, *changes.preserved}
    }
    if configs:
        entries = config_entries(_hash_files_after(changes, configs, ids, stored, read_stored))
        text = update_card_configs(_decode_text(files[CARD_FILE]), entries, CARD_FILE).encode()
        current, record[CARD_FILE] = stored.get(CARD_FILE), content_ids(text)

        # Somebody edited the card: replace only its `configs`.
        if current not in (None, *record[CARD_FILE], *recorded_ids.get(CARD_FILE, [])):
            record[CARD_FILE] = recorded_ids.get(CARD_FILE, [])
            changes.preserved.append(f"{CARD_FILE} (but for its list of configs)")
            text = update_card_configs(
                _decode_text(read_stored(CARD_FILE)), entries, f"{repo_id}: {CARD_FILE}"
            ).encode()
        if current not in content_ids(text):
            changes.write[CARD_FILE] = text

    content = (json.dumps(record, indent=1, sort_keys=True) + "\n").encode()
    if stored.get(RECORD_FILE) not in content_ids(content):
        changes.write[RECORD_FILE] = content
    return changes


def _hash_files_after(
    changes: PublishChanges,
    configs: Collection[str],
    ids: Mapping[str, list[str]],
    stored: Mapping[str, str],
    read_stored: Callable[[str], bytes],
) -> dict[str, str]:
    """Return our configs' data files after the changes -> the SHA-256 of each."""
    sha256: dict[str, str] = {}
    for path in {*stored, *changes.write}:
        if DATA_FILE.fullmatch(path) and path.partition("/")[0] in configs:
            if path not in changes.write:
                # LFS ids are SHA-256; a git blob id is shorter.
                in_lfs = len(stored[path]) == len(hashlib.sha256().hexdigest())
                sha256[path] = stored[path] if in_lfs else hashlib.sha256(read_stored(path)).hexdigest()
            elif changes.write[path] is not None:
                sha256[path] = ids[path][0]

    return sha256


def _parse_record(content: bytes) -> dict[str, list[str]]:
    """Parse the record of the last publish; an invalid one is treated as empty, so nothing counts
    as ours.
    """
    try:
        document = json.loads(content)
    except ValueError:
        return {}

    listed = document.items() if isinstance(document, dict) else ()
    return {
        path: ids for path, ids in listed if isinstance(ids, list) and all(isinstance(file_id, str) for file_id in ids)
    }


def _decode_text(content: FileContent) -> str:
    data = content.read_bytes() if isinstance(content, Path) else content
    return data.decode("utf-8", "replace")
