"""Pair annotations with images: by the annotation's path below the annotations' root and the image's path below the images' root.

How names are written is a property of a whole set, not of one file: all annotations of a set are paired by one rule, the first of those
below that pairs any. Under every rule a name counts only where one annotation and one image have it. So an annotation whose image is
missing stays alone; it never goes to an image of another folder that happens to be called the same.

    1. the same path; without suffixes; without folders that only say what kind of file lies in them (images/, labels/)
    2. the same path below the folders that the images' root lies in, or that all names of one side begin with (where folders are left)
    3. the same file name, where one side has no folders at all (names without folders are no paths where images lie in some)
    4. these again in any case of letters and without blanks around names

Unicode forms, `\\` for `/`, a leading `./` and the case of suffixes make no difference under any rule.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Parts = tuple[str, ...]
SUFFIXES = (
    ".nii.gz", ".nii", ".nrrd", ".mha", ".mhd", ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".jp2",
    ".dcm", ".dicom", ".ima", ".txt", ".xml", ".json",
)  # fmt: skip
"""What is left off at the end of a name where suffixes do not count. Other dots are part of the name (1.2.840.113)."""
KINDS = {
    "annotation", "annotations", "groundtruth", "gt", "image", "images", "imagestr", "imagests", "img", "imgs", "jpegimages", "label",
    "labels", "labelstr", "labelsts", "mask", "masks", "pictures", "segmentation", "segmentationclass", "segmentations", "xml",
}  # fmt: skip
"""Folders that say what kind of file lies in them, folded: images/train/7.png belongs to labels/train/7.txt."""
MISSING = "its image is missing"
SEVERAL = "several images or annotations have this name: name it by its path"
ELSEWHERE = (
    "no image has its path; one of another folder, suffix or case fits, but others of the set are named more closely"
)


@dataclass(frozen=True)
class Pairing:
    """`found`: for each name, in their order, the position of its image; None where it has none. `reasons`: why, "" for those with one."""

    found: list[int | None]
    reasons: list[str]
    by_path: bool
    """True if names were paired by their folders too: what is named twice by its path is one image, by its bare name it may be two."""


def pair(names: Sequence[str], images: Sequence[str], root: Path | None = None) -> Pairing:
    """Pair annotations with images. names: the name of an image that an annotation states (its suffix counts where it can), or the
    annotation's own path below its root, without its suffix. images: paths below theirs, `root`.
    """
    given, there = [split(name) for name in names], [split(image) for image in images]
    found: dict[int, int] = {}
    fits: dict[int, str] = {}
    by_path = True
    for left, right, kind in _rules(given, there, split(root.absolute().as_posix()) if root else ()):
        pairs, several = _unique(left, right)
        if kind == "below" and not any(len(left[at] or ()) > 1 for at in pairs):
            continue  # without a folder in common, one called otherwise could be another one, which is missing
        fits = dict.fromkeys(pairs, ELSEWHERE) | dict.fromkeys(several, ELSEWHERE if found else SEVERAL) | fits
        if not found:
            found, by_path = pairs, kind != "bare"
        if len(found) == len(names):
            break
    reasons = ["" if at in found else fits.get(at, MISSING) for at in range(len(names))]
    return Pairing([found.get(at) for at in range(len(names))], reasons, by_path)


def same_path(names: Sequence[str], images: Sequence[str]) -> bool:
    """True if some annotations have the very path of an image, but for suffixes and folders that say what kind of file lies in them."""
    there = {_key(split(image)) for image in images}
    return any(key in there for name in names if (key := _key(split(name))))


def split(name: str) -> Parts:
    """The folders and the file of a path in one spelling."""
    parts = unicodedata.normalize("NFC", name).replace("\\", "/").split("/")
    return tuple(part for part in parts if part.strip() not in ("", "."))


def without_suffix(name: str) -> str:
    """A name without a suffix of images, volumes or annotations."""
    lower = name.lower()
    suffix = next((each for each in SUFFIXES if lower.endswith(each) and len(lower) > len(each)), "")
    return name[: len(name) - len(suffix)]


Keys = Sequence[Parts | None]
"""What each path is compared by; None or () where a rule does not compare it."""


def _rules(
    given: Sequence[Parts], there: Sequence[Parts], root: Parts
) -> Iterator[tuple[Keys, Keys, Literal["path", "below", "bare"]]]:
    """The keys of names and images under each rule in turn (None for one that a rule says nothing of), and what they compare."""
    has_folders, images_have = (any(len(_key(path)) > 1 for path in paths) for paths in (given, there))
    for folded in (False, True):
        if folded:
            given, there, root = [_folded(path) for path in given], [_folded(path) for path in there], _folded(root)
        endings = {_ending(path) for path in there}
        # A name with the suffix of other images of the set says that its image has it too.
        open_ended = [() if (end := _ending(path)) and (folded or end in endings) else path for path in given]
        written = [
            ([_key(path, **how) for path in names], [_key(path, **how) for path in there])
            for names, suffix in ((given, True), (open_ended, False))
            for how in ({"suffix": suffix, "kinds": True}, {"suffix": suffix, "kinds": False})
        ]
        for left, right in written if has_folders or not images_have else ():
            yield left, right, "path"
        for left, right in written:
            first = {path[0] for path in left if path}
            for length in (length for length in range(1, len(root) + 1) if root[-length] in first):
                yield _below(root[-length:], left), right, "path"
            below: list[tuple[Keys, Keys]] = [(_below(head, left), right) for head in _heads(left)]
            below += [(left, _below(head, right)) for head in _heads(right)]
            counts = [len(_unique(*keys)[0]) for keys in below]
            if counts.count(most := max(counts, default=0)) == 1:
                yield *below[counts.index(most)], "below"
        if not (has_folders and images_have):
            for left, right in written:
                yield [key and key[-1:] for key in left], [key and key[-1:] for key in right], "bare"


def _folded(path: Parts) -> Parts:
    """A path in small letters, without blanks around names: before a suffix too."""
    if not path:
        return ()
    parts = [part.strip().casefold() for part in path]
    name = without_suffix(parts[-1])
    return (*parts[:-1], name.strip() + parts[-1][len(name) :])


def _ending(path: Parts) -> str:
    """The suffix of a path in small letters."""
    return path[-1][len(without_suffix(path[-1])) :].lower() if path else ""


def _key(path: Parts, suffix: bool = False, kinds: bool = False) -> Parts:
    """What a path is compared by: with or without its suffix, and folders that only say what kind of file lies in them."""
    if not path:
        return ()
    folders = (part for part in path[:-1] if kinds or part.casefold() not in KINDS)
    return (*folders, without_suffix(path[-1]) + (_ending(path) if suffix else ""))


def _below(head: Parts, keys: Keys) -> Keys:
    """The keys below a folder, as called from there."""
    return [key[len(head) :] if key and len(key) > len(head) and key[: len(head)] == head else None for key in keys]


def _heads(keys: Keys) -> list[Parts]:
    """The folders that all keys lie in, outermost first."""
    folders = [key[:-1] for key in keys if key]
    shared = 0
    while folders and all(len(each) > shared and each[shared] == folders[0][shared] for each in folders):
        shared += 1
    return [folders[0][:length] for length in range(1, shared + 1)]


def _unique(left: Keys, right: Keys) -> tuple[dict[int, int], set[int]]:
    """(position in `left` -> in `right` of keys that occur once in both, positions in `left` of other keys that occur in both)."""
    at_left, at_right = _positions(left), _positions(right)
    pairs, several = {}, set()
    for key in at_left.keys() & at_right.keys():
        if len(at_left[key]) == len(at_right[key]) == 1:
            pairs[at_left[key][0]] = at_right[key][0]
        else:
            several |= set(at_left[key])
    return pairs, several


def _positions(keys: Keys) -> dict[Parts, list[int]]:
    found: dict[Parts, list[int]] = {}
    for at, key in enumerate(keys):
        if key:
            found.setdefault(key, []).append(at)
    return found
