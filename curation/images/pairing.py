"""Pair annotations with images: by the annotation's path below the annotations' root and the image's path below the images' root.

How names are written is a property of a whole set, not of one file: all annotations of a set are paired by one rule, the first of those
below that pairs any. Under every rule a name counts only where one annotation and one image have it. So an annotation whose image is
missing stays alone; it never goes to an image of another folder that happens to be called the same.

    1. the same path; without folders that only say what kind of file lies in them (images/, labels/); without suffixes
    2. the same path below a folder that all images, their root included, or all names lie in (with a folder in common)
    3. the same file name, where one side has no folders at all (names without folders are no paths where images lie in some)

Unicode forms, `\\` for `/`, a leading `./` and the case of suffixes make no difference under any rule.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

PathParts = tuple[str, ...]
KNOWN_SUFFIXES = (
    ".nii.gz", ".nii", ".nrrd", ".mha", ".mhd", ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".jp2",
    ".dcm", ".dicom", ".ima", ".txt", ".xml", ".json",
)  # fmt: skip
"""Suffixes that are removed if suffixes do not count. Other dots are part of the name (1.2.840.113)."""
FILE_KIND_FOLDERS = {
    "annotation", "annotations", "groundtruth", "gt", "image", "images", "imagestr", "imagests", "img", "imgs", "jpegimages", "label",
    "labels", "labelstr", "labelsts", "mask", "masks", "pictures", "segmentation", "segmentationclass", "segmentations", "xml",
}  # fmt: skip
"""Folders that say what kind of file lies in them, folded: images/train/7.png belongs to labels/train/7.txt."""
IMAGE_MISSING = "its image is missing"
AMBIGUOUS_NAME = "several images or annotations have this name: name it by its path"


@dataclass(frozen=True)
class Pairing:
    """`found`: for each name, in their order, the position of its image; None where it has none. `reasons`: why, "" for those with one."""

    found: list[int | None]
    reasons: list[str]


def pair_names(names: Sequence[str], images: Sequence[str], root: Path | None = None) -> Pairing:
    """Pair annotations with images. names: the name of an image that an annotation states (its suffix counts where it can), or the
    annotation's own path below its root, without its suffix. images: paths below theirs, `root`.
    """
    found: dict[int, int] = {}
    several: set[int] = set()
    top = split_path(root.absolute().as_posix()) if root else ()
    for left, right in _keys_by_rule(
        [split_path(name) for name in names], [split_path(image) for image in images], top
    ):
        found, unclear = _match_unique(left, right)
        several |= unclear
        if found:
            break
    reasons = ["" if at in found else AMBIGUOUS_NAME if at in several else IMAGE_MISSING for at in range(len(names))]
    return Pairing([found.get(at) for at in range(len(names))], reasons)


def have_common_path(names: Sequence[str], images: Sequence[str]) -> bool:
    """True if some annotations have the very path of an image, but for suffixes and folders that say what kind of file lies in them."""
    there = {_path_key(split_path(image)) for image in images}
    return any(_path_key(split_path(name)) in there for name in names)


def split_path(name: str) -> PathParts:
    """The folders and the file of a path in one spelling."""
    parts = unicodedata.normalize("NFC", name).replace("\\", "/").split("/")
    return tuple(part for part in parts if part.strip() not in ("", "."))


def strip_suffix(name: str) -> str:
    """A name without a suffix of images, volumes or annotations."""
    lower = name.lower()
    suffix = next((each for each in KNOWN_SUFFIXES if lower.endswith(each) and len(lower) > len(each)), "")
    return name[: len(name) - len(suffix)]


PathKeys = Sequence[PathParts]
"""The key by which each path is compared; () if a rule does not apply to it."""


def _keys_by_rule(
    given: Sequence[PathParts], there: Sequence[PathParts], root: PathParts
) -> Iterator[tuple[PathKeys, PathKeys]]:
    """The keys of names and images under each rule in turn."""
    has_folders, images_have = (any(len(_path_key(path)) > 1 for path in paths) for paths in (given, there))
    forms = [(suffix, kinds) for suffix in (True, False) for kinds in (True, False)]
    written = [
        ([_path_key(path, *form) for path in given], [_path_key(path, *form) for path in there]) for form in forms
    ]
    if has_folders or not images_have:
        yield from written
    for form, (left, right) in zip(forms, written, strict=True):
        whole = [_path_key((*root, *path), *form) for path in there]
        below: list[tuple[PathKeys, PathKeys]] = [
            (left, [key[length:] for key in whole]) for length in range(_common_depth(whole) + 1)
        ]
        below += [([key[length:] for key in left], right) for length in range(1, _common_depth(left) + 1)]
        pairs = [(_match_unique(*keys)[0], keys) for keys in below]
        most = max(len(found) for found, _ in pairs)
        best = [(found, keys) for found, keys in pairs if len(found) == most]
        found, keys = best[0]
        if all(other == found for other, _ in best) and any(len(keys[0][at]) > 1 for at in found):
            yield keys  # without a folder in common, one called otherwise could be another one, which is missing
    if not (has_folders and images_have):
        for left, right in written:
            yield [key[-1:] for key in left], [key[-1:] for key in right]


def _path_key(path: PathParts, suffix: bool = False, kinds: bool = False) -> PathParts:
    """The key of a path: with or without its suffix, and without folders that only name the kind of file in them."""
    if not path:
        return ()
    folders = (part for part in path[:-1] if kinds or part.casefold() not in FILE_KIND_FOLDERS)
    name = strip_suffix(path[-1])
    return (*folders, name + (path[-1][len(name) :].lower() if suffix else ""))


def _common_depth(keys: PathKeys) -> int:
    """The number of folders that all keys lie in."""
    levels = zip(*(key[:-1] for key in keys if key), strict=False)
    return sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, levels))


def _match_unique(left: PathKeys, right: PathKeys) -> tuple[dict[int, int], set[int]]:
    """(position in `left` -> in `right` of keys that occur once in both, positions in `left` of other keys that occur in both)."""
    at_left, at_right = _positions(left), _positions(right)
    pairs, several = {}, set()
    for key in at_left.keys() & at_right.keys():
        if len(at_left[key]) == len(at_right[key]) == 1:
            pairs[at_left[key][0]] = at_right[key][0]
        else:
            several |= set(at_left[key])
    return pairs, several


def _positions(keys: PathKeys) -> dict[PathParts, list[int]]:
    found: dict[PathParts, list[int]] = {}
    for at, key in enumerate(keys):
        if key:
            found.setdefault(key, []).append(at)
    return found
