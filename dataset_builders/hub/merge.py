"""Decide what a publish writes: three sides of each file are compared, what is published, what the last publish wrote, what is there.

What others changed or added on the Hub is never replaced or deleted. In a card that somebody edited there, only its `configs` are ours.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dataset_builders.contents.data_files import (
    CARD_FILE,
    DATA_FILE,
    STANDARD_CONFIGS,
    DataFiles,
    config_entries,
    group_data_files,
    hash_files,
    update_card_configs,
)
from dataset_builders.errors import BadInput

FileContent = Path | bytes
RECORD_FILE = "published.json"
"""In the repository: path -> ids of every file that the last publish wrote."""
MAX_GIT_FILE_BYTES = 10 * 1024 * 1024
"""Bytes of a file that the Hub stores in git; a larger one is in LFS."""


@dataclass
class PublishChanges:
    """What a publish writes (None: deletes), and what stays although it differs, since others changed it."""

    write: dict[str, FileContent | None] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)


def content_ids(content: FileContent) -> list[str]:
    """The ids that a file may have on the Hub: its SHA-256 (in LFS), and the id of its blob (in git)."""
    if isinstance(content, Path):
        if content.stat().st_size > MAX_GIT_FILE_BYTES:
            return hash_files([content])
        content = content.read_bytes()
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
    return [hashlib.sha256(content).hexdigest(), blob.hexdigest()]


def merge_published(
    repo_id: str, files: Mapping[str, FileContent], stored: Mapping[str, str], read: Callable[[str], bytes]
) -> PublishChanges:
    """The changes that bring a repository to `files`, and its record up to date.

    Args:
        repo_id: for messages.
        files: path in the repository -> what is published.
        stored: path -> id of what is there.
        read: fetches what is there.

    Raises:
        BadInput: names files of others where one of ours has to go, or that would be loaded as rows of ours.
    """
    last = _parse_record(read(RECORD_FILE)) if RECORD_FILE in stored else {}
    ids = {path: content_ids(content) for path, content in files.items()}
    # A Parquet file in the folder of one of our configs may be loaded as rows of it, by whatever program it was put there.
    configs = {*group_data_files({*files, *last}), *STANDARD_CONFIGS} if group_data_files(files) else set()
    rows = {
        path for path in {*files, *last, *stored} if path.partition("/")[0] in configs and path.endswith(".parquet")
    }
    changes, in_the_way = PublishChanges(), []
    for path in sorted({*files, *last, *rows} - ({CARD_FILE} if configs else set())):
        new, before, now = ids.get(path, []), last.get(path, []), stored.get(path)
        if now in new or (now is None and not new):
            continue
        if now in before or (now is None and new != before):
            changes.write[path] = files.get(path)
        elif new == before if new else path not in rows:
            changes.kept.append(path)
        else:
            in_the_way.append(path)
    if in_the_way:
        raise BadInput(
            f"{repo_id}: nothing was published, since others changed or added files that this would replace, or that would be loaded "
            f"with its rows: {', '.join(in_the_way)}. Move or delete them there, or copy them into the folder, and publish again."
        )
    record = {path: last[path] if path in changes.kept else ids[path] for path in {*files, *changes.kept}}
    if configs:
        entries = config_entries(*_data_files_after(changes, configs, ids, stored, read))
        text = update_card_configs(_decode_text(files[CARD_FILE]), entries, CARD_FILE).encode()
        now, record[CARD_FILE] = stored.get(CARD_FILE), content_ids(text)
        if now not in (None, *record[CARD_FILE], *last.get(CARD_FILE, [])):
            record[CARD_FILE] = last.get(CARD_FILE, [])
            changes.kept.append(f"{CARD_FILE} (but for its list of configs)")
            text = update_card_configs(_decode_text(read(CARD_FILE)), entries, f"{repo_id}: {CARD_FILE}").encode()
        if now not in content_ids(text):
            changes.write[CARD_FILE] = text
    content = (json.dumps(record, indent=1, sort_keys=True) + "\n").encode()
    if stored.get(RECORD_FILE) not in content_ids(content):
        changes.write[RECORD_FILE] = content
    return changes


def _data_files_after(
    changes: PublishChanges,
    configs: Collection[str],
    ids: Mapping[str, list[str]],
    stored: Mapping[str, str],
    read: Callable[[str], bytes],
) -> tuple[DataFiles, dict[str, str]]:
    """The data files of our configs as they are after the changes, and the SHA-256 of each."""
    sha256: dict[str, str] = {}
    for path in {*stored, *changes.write}:
        if DATA_FILE.fullmatch(path) and path.partition("/")[0] in configs:
            if path not in changes.write:
                in_lfs = len(stored[path]) == len(hashlib.sha256().hexdigest())
                sha256[path] = stored[path] if in_lfs else hashlib.sha256(read(path)).hexdigest()
            elif changes.write[path] is not None:
                sha256[path] = ids[path][0]
    return group_data_files(sha256), sha256


def _parse_record(content: bytes) -> dict[str, list[str]]:
    """The record of the last publish; empty where somebody spoiled it, so that nothing there counts as ours."""
    try:
        document = json.loads(content)
    except ValueError:
        return {}
    listed = document.items() if isinstance(document, dict) else ()
    return {path: ids for path, ids in listed if isinstance(ids, list) and all(isinstance(each, str) for each in ids)}


def _decode_text(content: FileContent) -> str:
    data = content.read_bytes() if isinstance(content, Path) else content
    return data.decode("utf-8", "replace")
