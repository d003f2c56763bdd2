"""Compare two versions of a dataset (`medprobe diff ORG/NAME@v1 @v2`) without loading images."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dataset_builders.errors import BadInput, clip
from dataset_builders.fingerprints import FINGERPRINT_COLUMNS
from dataset_builders.hub.repository import Repository, open_repository
from dataset_builders.schema import row_image_ids

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


def open_versions(old_name: str, new_name: str) -> tuple[Repository, Repository]:
    """Open two versions of a dataset.

    Args:
        old_name: `ORG/NAME@TAG` or a folder.
        new_name: likewise, or `@TAG` of the first repository.

    Raises:
        BadInput: a version cannot be opened, or they belong to different benchmarks.
    """
    old_repository, old = _parse_version(old_name)
    new_repository, new = _parse_version(new_name)
    if not old_repository:
        raise BadInput(f"{old_name}: contains no dataset name. Give ORG/NAME@TAG, or a folder.")
    versions = (
        open_repository(old_repository, old),
        open_repository(new_repository or old_repository, new),
    )
    if versions[0].family != versions[1].family:
        raise BadInput(
            f"{old_name}, {new_name}: belong to {versions[0].family} and {versions[1].family}; compare versions of one dataset."
        )

    return versions


def _parse_version(name: str) -> tuple[str, str | None]:
    # A folder's name may contain "@", so check for a folder first.
    if Path(name).is_dir():
        return name, None
    repository, at, revision = name.partition("@")
    if at and not revision:
        raise BadInput(f"{name}: has no version after the @. Give a tag, e.g. {repository or 'ORG/NAME'}@v1.0.0.")
    return repository, revision or None


def compare_versions(old: Repository, new: Repository) -> list[SplitChanges]:
    """Compare two versions split by split.

    Args:
        old: the earlier version.
        new: the later version.

    Returns:
        A report per split, in the order of the new version; removed questions in their old order.
    """
    return [_compare_split(split, old, new) for split in dict.fromkeys([*new.splits, *old.splits])]


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
