"""Read rows of ProbMed's files: an image below a folder, and a yes/no answer."""

from __future__ import annotations

import re
from typing import Any

from dataset_builders.errors import clip
from dataset_builders.images.lookup import ImageFolders, OwnImage, find_image, unambiguous
from dataset_builders.schema import CaseImage
from dataset_builders.source_files import SourceEntry

OPTIONS = ("yes", "no")


class ImageIndex:
    """The images of the source, each made once, and named by the first entry that shows it."""

    def __init__(self, folders: ImageFolders | None, rows: list[Any], own: dict[str, OwnImage]) -> None:
        self.folders, self.own = folders, own
        self.unambiguous_names = unambiguous({path_of(row) for row in rows if isinstance(row, dict)})
        self.made: dict[str, CaseImage | None] = {}

    def image(self, entry: SourceEntry, image_id: str) -> CaseImage | None:
        name, path = entry.text("image"), path_of(entry.value)
        if not name:
            return None
        if path not in self.made:
            self.made[path] = self._make(entry, image_id, name, path)
        return self.made[path]

    def _make(self, entry: SourceEntry, image_id: str, name: str, path: str) -> CaseImage | None:
        names = [path, name] if name != path else [name]
        base = path.rsplit("/", 1)[-1]
        if base in self.unambiguous_names:
            names.append(base)
        return find_image(
            entry,
            self.folders,
            names,
            image_id=image_id,
            called=name,
            own=self.own.get(name, OwnImage()),
            source="ChestX-ray14" if re.fullmatch(r"\d{8}_\d{3}\.png", base) else None,
        )


def path_of(row: dict[str, Any]) -> str:
    """Where the image of an entry lies: `image`, below a folder named by its image type unless it names a
    folder itself."""
    name, kind = str(row.get("image", "")).strip(), str(row.get("image_type", "")).strip()
    return name if "/" in name or not kind else f"{kind}/{name}"


def yes_no(entry: SourceEntry) -> int | None:
    answer = entry.text("answer" if "answer" in entry.value or "gt_ans" not in entry.value else "gt_ans")
    if not answer:
        return None
    if answer.lower().rstrip(".") not in OPTIONS:
        entry.wrong(f'"answer" {clip(answer)} is neither yes nor no')
        return None
    return OPTIONS.index(answer.lower().rstrip("."))
