"""Name the data files of a repository, and record them with a digest in its card (README.md).

`datasets` finds its cached copy by the folder's name and the YAML of its card only. The
`description` of each config therefore contains a digest of its files: a rebuild in the same place
changes the YAML, so that `datasets` does not return cached rows of the earlier build.
"""

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from dataset_builders.errors import BadInput, first_line

CARD_FILE = "README.md"
DATA_FILE = re.compile(r"(\w+)/(\w+)-\d{5}-of-\d{5}\.parquet")
"""Matches a data file's path in the repository; groups: config and split."""
SPLIT_ORDER = ("train", "validation", "test")
"""Order of splits in listings."""
DIGEST_PREFIX = "rows sha256:"
"""Start of the description of a config written by medprobe."""
STANDARD_CONFIGS = ("questions", "cases", "questions_text")
"""Configs that belong to medprobe with or without a description."""
FRONT_MATTER = re.compile(r"\s*---[ \t]*\r?\n(.*?)(?:\r?\n)?---[ \t]*(?:\r?\n|$)", re.DOTALL)


def group_data_files(present: Collection[str]) -> dict[str, dict[str, list[str]]]:
    """Group the data files among a repository's paths by config and split."""
    files: dict[str, dict[str, list[str]]] = {}
    matches = [match for name in sorted(present) if (match := DATA_FILE.fullmatch(name))]
    for match in sorted(matches, key=lambda match: (*SPLIT_ORDER, match[2]).index(match[2])):
        files.setdefault(match[1], {}).setdefault(match[2], []).append(match[0])
    return files


def hash_files(paths: Sequence[Path]) -> list[str]:
    """Compute the SHA-256 of files in parallel; a file of unchanged size and time is read once per
    process.
    """
    with ThreadPoolExecutor(thread_name_prefix="sha256") as pool:
        return list(pool.map(_hash_file, paths))


def _hash_file(path: Path) -> str:
    # inode, size and times identify the content well enough to reuse a digest within a process.
    about = path.stat()
    return _read_sha256(path.absolute(), about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)


@lru_cache(4096)
def _read_sha256(path: Path, *_: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_data_files(folder: Path) -> dict[str, str]:
    """Return the path of each data file in a repository's folder -> its SHA-256."""
    paths = [path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")]
    names = list(filter(DATA_FILE.fullmatch, paths))
    return dict(zip(names, hash_files([folder / name for name in names]), strict=True))


def config_entries(sha256: Mapping[str, str]) -> list[dict[str, Any]]:
    """Build the entries of the card's `configs`: the files of each config and the digest of their
    rows.

    Args:
        sha256: path of each data file in the repository -> its SHA-256.
    """
    files = group_data_files(sha256)
    default = next((config for config in ("questions", "questions_text") if config in files), "")
    entries = []

    # The default config comes first, as the Hub's viewer shows them in this order.
    for config, splits in sorted(files.items(), key=lambda item: (item[0] != default, item[0])):
        lines = [f"{sha256[name]} {name}\n" for names in splits.values() for name in names]
        entries.append(
            {
                "config_name": config,
                **({"default": True} if config == default else {}),
                "description": DIGEST_PREFIX + hashlib.sha256("".join(sorted(lines)).encode()).hexdigest(),
                "data_files": [{"split": split, "path": f"{config}/{split}-*"} for split in splits],
            }
        )

    return entries


def folder_config_entries(folder: Path) -> list[dict[str, Any]]:
    """Build the entries for the data files in a folder."""
    return config_entries(hash_data_files(folder))


def update_card_configs(card: str, entries: list[dict[str, Any]], location: object) -> str:
    """Replace medprobe's `configs` entries in a card; everything else stays unchanged.

    Args:
        card: text of the card.
        entries: the new entries.
        location: what messages call the card.

    Returns:
        Text of the new card.

    Raises:
        BadInput: the card's YAML cannot be parsed.
    """
    head, body = _split_front_matter(card, location)

    # Configs that others added keep their entries, after ours. A `dataset_info` written by an
    # earlier `push_to_hub` may describe other columns, which would make loading fail.
    updated = {key: value for key, value in head.items() if key != "dataset_info"}
    updated["configs"] = entries + _foreign_entries(head.get("configs"), entries)
    if info := _foreign_entries(head.get("dataset_info"), entries):
        updated["dataset_info"] = info

    # Return the card unchanged if possible: dumping YAML would reformat what a person wrote.
    if head == updated:
        return card
    text = yaml.safe_dump(updated, sort_keys=False, allow_unicode=True, width=1000)
    return f"---\n{text}---\n{body}"


def check_card_configs(card: str, entries: list[dict[str, Any]], location: object, remedy: str) -> None:
    """Check that a card matches the data files; otherwise `load_dataset` might serve rows of
    another build.

    Args:
        card: text of the card.
        entries: the entries for the files that exist.
        location: what messages call the card.
        remedy: end of the message.

    Raises:
        BadInput: names the configs that differ.
    """
    stated = {
        entry.get("config_name"): entry
        for entry in _list_entries(_split_front_matter(card, location)[0].get("configs"))
    }
    differ = []
    for entry in entries:
        in_card = stated.get(entry["config_name"], {})

        # A config that someone else added need not have a digest.
        is_ours = entry["config_name"] in STANDARD_CONFIGS or str(in_card.get("description")).startswith(DIGEST_PREFIX)
        if is_ours and any(in_card.get(field) != entry[field] for field in ("description", "data_files")):
            differ.append(entry["config_name"])

    if differ:
        raise BadInput(
            f"{location}: does not match the files of {', '.join(differ)} (changed or damaged since), so load_dataset may return the rows "
            f"of another build. {remedy}"
        )


def _foreign_entries(listed: Any, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries of a card's list that describe configs of others."""
    # A config counts as ours by its name or by the digest in its description.
    our_names = {*(entry["config_name"] for entry in entries), *STANDARD_CONFIGS}
    return [
        entry
        for entry in _list_entries(listed)
        if entry.get("config_name") not in our_names and not str(entry.get("description")).startswith(DIGEST_PREFIX)
    ]


def _list_entries(listed: Any) -> list[dict[str, Any]]:
    """Return the entries of a card's list, which may be a single entry without a list."""
    return [entry for entry in (listed if isinstance(listed, list) else [listed]) if isinstance(entry, dict)]


def _split_front_matter(card: str, location: object) -> tuple[dict[str, Any], str]:
    """Split a card into the YAML at its top and the text below."""
    # Editors on Windows may put a byte order mark before the first dashes.
    match = FRONT_MATTER.match(card.removeprefix("\ufeff"))
    if match is None:
        return {}, card
    try:
        head = yaml.safe_load(match[1]) or {}
    except yaml.YAMLError as error:
        raise BadInput(f"{location}: the YAML at its top cannot be read ({first_line(error)}). Correct it.") from None

    if not isinstance(head, dict):
        raise BadInput(f"{location}: the YAML at its top is not a mapping of fields. Correct it.")
    return head, card.removeprefix("\ufeff")[match.end() :]
