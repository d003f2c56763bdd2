"""`medprobe diff ORG/NAME@v1 @v2`: which questions a version of a dataset added, removed and changed, without loading an image.

See also: publishing versions (`publish.py`), what counts as the same set of questions (`fingerprints.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.fingerprints import READ_BY_SCORING
from dataset_builders.hub.repository import Repository, open_repository
from dataset_builders.schema import image_ids

READ = frozenset(READ_BY_SCORING) - {"question_id"}
"""Columns that scores depend on."""


@dataclass(frozen=True)
class Change:
    """A question of both versions that differs: column -> (before, after)."""

    question_id: str
    columns: dict[str, tuple[Any, Any]]

    @property
    def scored(self) -> bool:
        """Whether scores may differ by it; else only labels, captions and sources do."""
        return bool(READ & self.columns.keys())


@dataclass
class SplitChanges:
    """What differs between two versions of a split; `images`: ids of images whose bytes differ (where both manifests name them)."""

    split: str
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed: list[Change] = field(default_factory=list)
    images: list[str] = field(default_factory=list)

    @property
    def scored(self) -> bool:
        """Whether results on the two versions may not be compared."""
        return bool(self.added or self.removed or self.images or any(each.scored for each in self.changed))

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.images)


def open_versions(before: str, after: str) -> tuple[Repository, Repository]:
    """The two versions: `ORG/NAME@TAG` or a folder, and the same or `@TAG` of the first's repository.

    Raises BadInput where one cannot be opened, and where they are two benchmarks.
    """
    first, old = _parsed(before)
    second, new = _parsed(after)
    if not first:
        raise BadInput(f"{before}: names no dataset. Give ORG/NAME@TAG, or a folder.")
    versions = open_repository(first, old), open_repository(second or first, new)
    if versions[0].family != versions[1].family:
        raise BadInput(
            f"{before}, {after}: hold {versions[0].family} and {versions[1].family}; only versions of one dataset are compared."
        )
    return versions


def _parsed(name: str) -> tuple[str, str | None]:
    if Path(name).is_dir():
        return name, None
    repository, at, revision = name.partition("@")
    if at and not revision:
        raise BadInput(f"{name}: names no version behind the @. Give a tag, e.g. {repository or 'ORG/NAME'}@v1.0.0.")
    return repository, revision or None


def changes(before: Repository, after: Repository) -> list[SplitChanges]:
    """What differs, split by split, in the order of the new version (questions that left come in their old order)."""
    return [_of_split(split, before, after) for split in dict.fromkeys([*after.splits, *before.splits])]


def _of_split(split: str, before: Repository, after: Repository) -> SplitChanges:
    old, new = (_rows(repository, split) for repository in (before, after))
    found = SplitChanges(split, [name for name in new if name not in old], [name for name in old if name not in new])
    for name in new:
        if name in old:
            columns = dict(_different(old[name], new[name]))
            if columns:
                found.changed.append(Change(name, columns))
    shown = {image for name, row in new.items() if name in old for image in image_ids(row)}
    images = [repository.manifest.get("images") or {} for repository in (before, after)]
    found.images = sorted(
        image
        for image in shown
        if image in images[0]
        and image in images[1]
        and images[0][image].get("sha256") != images[1][image].get("sha256")
    )
    return found


def _rows(repository: Repository, split: str) -> dict[str, dict[str, Any]]:
    if split not in repository.splits:
        return {}
    frame: pd.DataFrame = repository.questions(split)
    return {str(row["question_id"]): {str(k): _plain(v) for k, v in row.items()} for row in frame.to_dict("records")}


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _different(old: dict[str, Any], new: dict[str, Any]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for column in dict.fromkeys([*new, *old]):
        if old.get(column) != new.get(column):
            yield column, (old.get(column), new.get(column))


def report(found: list[SplitChanges], most: int = 20) -> str:
    """The changes in Markdown, for people and for a version's notes; at most so many questions of each kind are listed."""
    parts = []
    for split in found:
        lines = [f"## {split.split}"]
        if not split:
            lines.append("No change.")
        for title, names in (("added", split.added), ("removed", split.removed), ("images replaced", split.images)):
            if names:
                lines.append(f"- {title}: {len(names):,} ({_listed(names, most)})")
        if split.changed:
            lines.append(f"- changed: {len(split.changed):,}")
            for change in split.changed[:most]:
                for column, (before, after) in change.columns.items():
                    lines.append(f"  - `{change.question_id}` {column}: {_short(before)} -> {_short(after)}")
            if len(split.changed) > most:
                lines.append(f"  - and {len(split.changed) - most:,} more")
        if split:
            lines.append(
                "Results on the two versions are not comparable."
                if split.scored
                else "Only what no score depends on changed: results on the two versions are comparable."
            )
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _listed(names: list[str], most: int) -> str:
    return ", ".join(names[:most]) + (f", and {len(names) - most:,} more" if len(names) > most else "")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
