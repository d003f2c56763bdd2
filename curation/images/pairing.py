"""Pair annotations with images by their relative paths.

The files of a dataset are named systematically, so all of its annotations are paired by one rule:
the first rule below that pairs any of them. Under every rule, a pair is formed only if exactly one
annotation and one image have the same key. An annotation whose image is missing therefore stays
unpaired; it is never paired with an image of the same name in another folder.

    1. equal paths; then ignoring folders that only name a file kind (images/, labels/); then
       ignoring suffixes
    2. equal paths after removing leading folders that all images (including their root) or all
       names share, if at least one folder remains
    3. equal file names, if at least one side has no folders at all (rule 1 never compares bare
       names with images in folders)

Unicode normalisation, `\\` for `/`, a leading `./` and the case of suffixes never matter.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path

PathParts = tuple[str, ...]
KNOWN_SUFFIXES = (
    ".nii.gz", ".nii", ".nrrd", ".mha", ".mhd", ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".jp2",
    ".dcm", ".dicom", ".ima", ".txt", ".xml", ".json",
)  # fmt: skip
"""Suffixes that are stripped; other dots are part of the name (1.2.840.113)."""
FILE_KIND_FOLDERS = {
    "annotation", "annotations", "groundtruth", "gt", "image", "images", "imagestr", "imagests", "img", "imgs", "jpegimages", "label",
    "labels", "labelstr", "labelsts", "mask", "masks", "pictures", "segmentation", "segmentationclass", "segmentations", "xml",
}  # fmt: skip
"""Casefolded names of folders that only name a file kind: images/train/7.png pairs with
labels/train/7.txt.
"""
IMAGE_MISSING = "its image is missing"
AMBIGUOUS_NAME = "several images or annotations have this name: name it by its path"


def pair_names(
    names: Sequence[str], images: Sequence[str], root: Path | None = None
) -> tuple[list[int | None], list[str]]:
    """Pair annotations with images.

    Args:
        names: for each annotation, the image name that it states (its suffix is compared where
            possible), or its own path below its root, without suffix.
        images: paths of the images below `root`.
        root: root folder of the images.

    Returns:
        The image index of each name or None, and the reason for each name without one ("" for the
        others).
    """
    image_of_name: dict[int, int] = {}
    ambiguous: set[int] = set()

    root_parts = split_path(root.absolute().as_posix()) if root else ()
    for name_keys, image_keys in _keys_by_rule(
        [split_path(name) for name in names], [split_path(image) for image in images], root_parts
    ):
        image_of_name, newly_ambiguous = _match_unique(name_keys, image_keys)
        ambiguous |= newly_ambiguous
        if image_of_name:
            break

    reasons = [
        "" if index in image_of_name else AMBIGUOUS_NAME if index in ambiguous else IMAGE_MISSING
        for index in range(len(names))
    ]
    return [image_of_name.get(index) for index in range(len(names))], reasons


def have_common_path(names: Sequence[str], images: Sequence[str]) -> bool:
    """Return True if any annotation has an image's path, ignoring suffix and file-kind folders."""
    image_keys = {_path_key(split_path(image)) for image in images}
    return any(_path_key(split_path(name)) in image_keys for name in names)


def split_path(name: str) -> PathParts:
    """Split a path into normalised parts (NFC, forward slashes, without `.`)."""
    parts = unicodedata.normalize("NFC", name).replace("\\", "/").split("/")
    return tuple(part for part in parts if part.strip() not in ("", "."))


def strip_suffix(name: str) -> str:
    """Strip an image, volume or annotation suffix from a name."""
    lowered = name.lower()
    suffix = next(
        (candidate for candidate in KNOWN_SUFFIXES if lowered.endswith(candidate) and len(lowered) > len(candidate)),
        "",
    )
    return name[: len(name) - len(suffix)]


PathKeys = Sequence[PathParts]
"""The keys of several paths; () if the rule does not apply to a path."""


def _keys_by_rule(
    names: Sequence[PathParts], images: Sequence[PathParts], root: PathParts
) -> Iterator[tuple[PathKeys, PathKeys]]:
    """Yield (keys of the names, keys of the images) under each rule in turn."""
    names_have_folders, images_have_folders = (
        any(len(_path_key(path)) > 1 for path in paths) for paths in (names, images)
    )

    # From the strictest key to the loosest.
    key_forms = [(suffix, kinds) for suffix in (True, False) for kinds in (True, False)]
    keys_by_form = [
        ([_path_key(path, *form) for path in names], [_path_key(path, *form) for path in images]) for form in key_forms
    ]
    if names_have_folders or not images_have_folders:
        yield from keys_by_form
    for form, (name_keys, image_keys) in zip(key_forms, keys_by_form, strict=True):
        rooted_keys = [_path_key((*root, *path), *form) for path in images]
        shortened: list[tuple[PathKeys, PathKeys]] = [
            (name_keys, [key[length:] for key in rooted_keys]) for length in range(_common_depth(rooted_keys) + 1)
        ]
        shortened += [
            ([key[length:] for key in name_keys], image_keys) for length in range(1, _common_depth(name_keys) + 1)
        ]
        pairs = [(_match_unique(*keys)[0], keys) for keys in shortened]

        # The number of leading folders to remove must be unambiguous: if several numbers give the
        # most pairs, the pairs must be the same.
        most_matches = max(len(matches) for matches, _ in pairs)
        best_matches = [(matches, keys) for matches, keys in pairs if len(matches) == most_matches]
        matches, keys = best_matches[0]
        if all(candidate == matches for candidate, _ in best_matches) and any(
            len(keys[0][index]) > 1 for index in matches
        ):
            yield keys  # otherwise only file names match, and these may be different files
    if not (names_have_folders and images_have_folders):
        for name_keys, image_keys in keys_by_form:
            yield [key[-1:] for key in name_keys], [key[-1:] for key in image_keys]


def _path_key(path: PathParts, keep_suffix: bool = False, keep_kind_folders: bool = False) -> PathParts:
    """Return a path's key, with or without suffix and file-kind folders (`FILE_KIND_FOLDERS`)."""
    if not path:
        return ()
    folders = (part for part in path[:-1] if keep_kind_folders or part.casefold() not in FILE_KIND_FOLDERS)
    name = strip_suffix(path[-1])
    return (*folders, name + (path[-1][len(name) :].lower() if keep_suffix else ""))


def _common_depth(keys: PathKeys) -> int:
    """Return the number of leading folders that all keys share."""
    levels = zip(*(key[:-1] for key in keys if key), strict=False)
    return sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, levels))


def _match_unique(left_keys: PathKeys, right_keys: PathKeys) -> tuple[dict[int, int], set[int]]:
    """Match keys that occur exactly once on both sides.

    Returns:
        Left position -> right position, and the left positions of ambiguous keys.
    """
    left_counts, right_counts = Counter(left_keys), Counter(right_keys)
    right_positions = {key: position for position, key in enumerate(right_keys)}
    shared = {position: key for position, key in enumerate(left_keys) if key and key in right_positions}
    pairs = {
        position: right_positions[key] for position, key in shared.items() if left_counts[key] == right_counts[key] == 1
    }
    return pairs, shared.keys() - pairs.keys()
