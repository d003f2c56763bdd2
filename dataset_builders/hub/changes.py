"""Compare two versions of a dataset (`medprobe diff ORG/NAME@v1 @v2`): questions added, removed and changed; no image is loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dataset_builders.errors import BadInput, clip
from dataset_builders.fingerprints import FINGERPRINT_COLUMNS
from dataset_builders.hub.repository import Repository, open_repository
from dataset_builders.schema import row_image_ids

COMPARED_COLUMNS = frozenset(FINGERPRINT_COLUMNS) - {"question_id"}
"""Columns that scores depend on."""


@dataclass
class SplitChanges:
    """The differences between two versions of a split. `changed`: question id -> column -> (before, after); `images`: ids of images whose
    bytes differ (where both manifests name them)."""

    split: str
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed: dict[str, dict[str, tuple[Any, Any]]] = field(default_factory=dict)
    images: list[str] = field(default_factory=list)

    @property
    def scored(self) -> bool:
        """True if results on the two versions may not be compared; else only labels, captions and sources differ."""
        return bool(
            self.added
            or self.removed
            or self.images
            or any(COMPARED_COLUMNS & each.keys() for each in self.changed.values())
        )

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.images)


def open_versions(before: str, after: str) -> tuple[Repository, Repository]:
    """The two versions: `ORG/NAME@TAG` or a folder, and the same or `@TAG` of the first's repository.

    Raises BadInput if one cannot be opened, or they are two benchmarks.
    """
    first, old = _parse_version(before)
    second, new = _parse_version(after)
    if not first:
        raise BadInput(f"{before}: names no dataset. Give ORG/NAME@TAG, or a folder.")
    versions = open_repository(first, old), open_repository(second or first, new)
    if versions[0].family != versions[1].family:
        raise BadInput(
            f"{before}, {after}: hold {versions[0].family} and {versions[1].family}; only versions of one dataset are compared."
        )
    return versions


def _parse_version(name: str) -> tuple[str, str | None]:
    if Path(name).is_dir():
        return name, None
    repository, at, revision = name.partition("@")
    if at and not revision:
        raise BadInput(f"{name}: names no version behind the @. Give a tag, e.g. {repository or 'ORG/NAME'}@v1.0.0.")
    return repository, revision or None


def compare_versions(before: Repository, after: Repository) -> list[SplitChanges]:
    """The differences, split by split, in the order of the new version (removed questions in their old order)."""
    return [_compare_split(split, before, after) for split in dict.fromkeys([*after.splits, *before.splits])]


def _compare_split(split: str, before: Repository, after: Repository) -> SplitChanges:
    old, new = (_split_rows(repository, split) for repository in (before, after))
    found = SplitChanges(split, [name for name in new if name not in old], [name for name in old if name not in new])
    kept = {name: row for name, row in new.items() if name in old}
    for name, row in kept.items():
        pairs = {column: (old[name].get(column), row.get(column)) for column in dict.fromkeys([*row, *old[name]])}
        columns = {column: pair for column, pair in pairs.items() if pair[0] != pair[1]}
        if columns:
            found.changed[name] = columns
    was, now = (
        {image: facts.get("sha256") for image, facts in (repository.manifest.get("images") or {}).items()}
        for repository in (before, after)
    )
    shown = {image for row in kept.values() for image in row_image_ids(row)}
    found.images = sorted(image for image in shown & was.keys() & now.keys() if was[image] != now[image])
    return found


def _split_rows(repository: Repository, split: str) -> dict[str, dict[str, Any]]:
    """Question id -> column -> value, NaN as None."""
    if split not in repository.splits:
        return {}
    rows = repository.questions(split).to_dict("records")
    return {
        row["question_id"]: {str(k): None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}
        for row in rows
    }


def format_changes(found: list[SplitChanges], most: int = 20) -> str:
    """The changes in Markdown; at most so many questions of each kind are listed."""
    parts = []
    for split in found:
        lines = [f"## {split.split}", *([] if split else ["No change."])]
        for title, names in (("added", split.added), ("removed", split.removed), ("images replaced", split.images)):
            if names:
                more = f", and {len(names) - most:,} more" if len(names) > most else ""
                lines.append(f"- {title}: {len(names):,} ({', '.join(names[:most])}{more})")
        if split.changed:
            lines.append(f"- changed: {len(split.changed):,}")
            for name, columns in list(split.changed.items())[:most]:
                for column, (before, after) in columns.items():
                    lines.append(f"  - `{name}` {column}: {clip(before, 120)} -> {clip(after, 120)}")
            if len(split.changed) > most:
                lines.append(f"  - and {len(split.changed) - most:,} more")
        if split.scored:
            lines.append("Results on the two versions are not comparable.")
        elif split:
            lines.append("Only what no score depends on changed: results on the two versions are comparable.")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
