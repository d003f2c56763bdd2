"""Readers of boxes and masks on 2D images: COCO, Pascal VOC, YOLO, PNG masks. Which image an annotation belongs to is decided by
`images/pairing.py` alone.

See also: what a reader is (`read_tables.py`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import yaml
from PIL import Image

from curation.gmai.files import (
    below,
    box_of,
    files_below,
    open_picture,
    paired,
    picture_of,
    pictures_below,
    size_mismatch,
)
from curation.gmai.pictures import Picture, Skip, Skipped, Target, Unit, cause
from curation.gmai.sources import Dataset, Sources
from curation.images.pairing import same_path, split, without_suffix
from dataset_builders.errors import BadInput
from dataset_builders.images.lookup import SUFFIXES
from dataset_builders.sources.files import read_json, read_text

# COCO


def coco_units(dataset: Dataset, sources: Sources) -> Iterator[Unit | Skip]:
    """One unit per image of the JSON. Raises BadInput where the JSON lacks its three lists, or gives one id two meanings.

    Images that share an id, or a name, are skipped: their annotations cannot be told apart.
    """
    assert dataset.annotations is not None
    images, categories, annotations = coco_lists(dataset)
    names = {id_text(category.get("id")): str(category.get("name") or "").strip() for category in categories}
    own: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for annotation in annotations:
        own[id_text(annotation.get("image_id"))].append(annotation)
    ids = Counter(id_text(entry.get("id")) for entry in images)
    pictures, skips = pictures_below(dataset)
    yield from skips
    found = paired([str(entry.get("file_name", "")) for entry in images], pictures, dataset, suffix=True)
    yield from found.skips
    for entry, path in zip(images, found.images, strict=True):
        key = id_text(entry.get("id"))
        if path is None:
            continue
        if not key or ids[key] > 1:
            why = "its id is none" if not key else "several images of the JSON have its id"
            yield Skip(dataset.name, below(path, dataset.path), why)
            continue
        load = partial(_load_coco, path, entry, own[key], names, dataset)
        yield Unit(below(path, dataset.path), [path, dataset.annotations], load)
    for key in own:
        if key not in ids:
            yield Skip(dataset.name, f"image id {key}", "annotations of an image that the JSON does not list")
    yield from (Skip(dataset.name, below(path, dataset.path), "the JSON does not list it") for path in found.alone)


def coco_lists(dataset: Dataset) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """(images, categories, annotations) of a JSON. Raises BadInput where one is missing, or a category's id has two names."""
    assert dataset.annotations is not None
    document = read_json(dataset.annotations)
    found = {}
    for name in ("images", "categories", "annotations"):
        listed = document.get(name) if isinstance(document, dict) else None
        if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
            raise BadInput(f"dataset {dataset.name}: {dataset.annotations} has no list {name!r}. Is it a COCO JSON?")
        found[name] = listed
    names: dict[str, str] = {}
    for category in found["categories"]:
        name, number = str(category.get("name") or "").strip(), id_text(category.get("id"))
        if names.setdefault(number, name) != name:
            raise BadInput(
                f"dataset {dataset.name}: {dataset.annotations} gives one category id to {names[number]!r} and to {name!r}."
            )
    return found["images"], found["categories"], found["annotations"]


def id_text(value: Any) -> str:
    """An id as a text, with its kind: 1 is not "1"; "" for what can be no id."""
    is_id = isinstance(value, (int, str)) and not isinstance(value, bool)
    return f"{type(value).__name__} {value}" if is_id else ""


def _load_coco(
    path: Path, entry: dict[str, Any], annotations: list[dict[str, Any]], names: dict[str, str], dataset: Dataset, unit: Unit
) -> list[Picture]:  # fmt: skip
    if not annotations:
        raise Skipped("has no annotation")
    pixels, said = open_picture(path, dataset, stored=True)
    stated = _size(entry.get("height"), entry.get("width"), pixels.shape)
    if stated != pixels.shape[:2]:
        raise Skipped(size_mismatch("its annotation", stated, pixels.shape))
    targets = [_coco_target(annotation, names, (pixels.shape[0], pixels.shape[1])) for annotation in annotations]
    fields = {"patient": "patient_id", "study": "study_id", "age": "age", "sex": "sex", "site": "site"}
    given = {field: _scalar(entry, name) for field, name in fields.items()}
    return [picture_of(path, dataset, pixels, targets, said, given)]


def _size(height: Any, width: Any, shape: tuple[int, ...]) -> tuple[int, int]:
    """The size that an annotation states, (height, width); the image's own where it states none. Raises Skipped where it is no size."""
    try:
        return int(float(height or shape[0])), int(float(width or shape[1]))
    except (TypeError, ValueError, OverflowError):
        raise Skipped("its annotation states a size that is no number") from None


def _scalar(entry: dict[str, Any], field: str) -> str | None:
    value = entry.get(field)
    if value is not None and not isinstance(value, (str, int, float)):
        raise Skipped(f"its {field} is neither a text nor a number")
    return None if value in (None, "") else str(value)


def _coco_target(annotation: dict[str, Any], names: dict[str, str], shape: tuple[int, int]) -> Target:
    """The target of one annotation: its mask where it has a segmentation, else its box."""
    label = names.get(id_text(annotation.get("category_id")), "")
    if not label:
        raise Skipped(f"an annotation's category is not listed (category {annotation.get('category_id')!r})")
    if annotation.get("segmentation"):
        return Target(label, "mask", mask=decode(annotation["segmentation"], shape))
    if annotation.get("bbox") is None:
        return Target(label)
    return Target(label, "box", box_of(annotation["bbox"], shape))


def decode(segmentation: Any, shape: tuple[int, int]) -> np.ndarray:
    """(height, width) of booleans from polygons (their union), or run-length encoding, compressed or not. Raises Skipped."""
    from pycocotools import mask as coco

    try:
        if isinstance(segmentation, dict):
            size = tuple(segmentation["size"])
            if size != shape:
                raise Skipped(size_mismatch("its mask", size, shape))
            counts = segmentation["counts"]
            if not isinstance(counts, (str, bytes)) and (sum(counts) != shape[0] * shape[1] or min(counts) < 0):
                raise Skipped("a segmentation cannot be decoded (its runs do not fill the image)")
            rle = segmentation if isinstance(counts, (str, bytes)) else coco.frPyObjects(segmentation, *shape)
        else:
            polygons = [list(map(float, polygon)) for polygon in segmentation]
            if any(len(polygon) < 6 or len(polygon) % 2 for polygon in polygons):
                raise Skipped("a polygon has fewer than three corners")
            if not all(np.isfinite(polygon).all() for polygon in polygons):
                raise Skipped("a polygon has corners that are no numbers")
            limit = 4 * max(shape)
            if any(abs(value) > limit for polygon in polygons for value in polygon):
                raise Skipped("a polygon lies outside its image")
            rle = coco.merge(coco.frPyObjects(polygons, *shape))
        decoded: np.ndarray = coco.decode(rle).astype(bool)
    except Skipped:
        raise
    except Exception as error:  # pycocotools raises bare exceptions of many kinds on odd input
        raise Skipped(f"a segmentation cannot be decoded ({type(error).__name__})") from None
    if decoded.shape != shape:
        raise Skipped("a segmentation cannot be decoded (it has another size than its image)")
    return decoded


# Pascal VOC


def voc_units(dataset: Dataset, sources: Sources) -> Iterator[Unit | Skip]:
    """One unit per XML below `annotations` (default: the dataset's path).

    An XML belongs to the image of the name in it, taken below its own folder (or, for XMLs without folders, below the folder it names);
    where no name of the set fits, as after images were renamed, to the image of its own path.
    """
    pictures, skips = pictures_below(dataset)
    yield from skips
    pages, skips, alone = voc_pairs(pictures, dataset)
    yield from skips
    folder = dataset.annotations or dataset.path
    for page, root, path in pages:
        yield Unit(below(page, folder), [path, page], partial(_load_voc, path, root, dataset))
    yield from (Skip(dataset.name, below(path, dataset.path), "has no XML") for path in alone)


def voc_pairs(
    pictures: list[Path], dataset: Dataset
) -> tuple[list[tuple[Path, ElementTree.Element, Path]], list[Skip], list[Path]]:
    """((XML, its root, its image), XMLs without an image, images without an XML). Raises BadInput where there is no XML."""
    folder = dataset.annotations or dataset.path
    files, skips = files_below(folder, dataset)
    skips = skips if folder != dataset.path else []
    roots: dict[Path, ElementTree.Element] = {}
    for page in (path for path in files if path.suffix.lower() == ".xml"):
        try:
            roots[page] = _parse(page)
        except Skipped as reason:
            skips.append(Skip(dataset.name, below(page, folder), str(reason)))
    if not any(path.suffix.lower() == ".xml" for path in files):
        raise BadInput(f"dataset {dataset.name}: there is no .xml below {folder}.")
    own = [below(page, folder) for page in roots]
    found = paired(
        [_named(root, name) for name, root in zip(own, roots.values(), strict=True)], pictures, dataset, True
    )
    if not any(found.images):
        found = paired(own, pictures, dataset)
    pairs = [
        (page, root, path) for (page, root), path in zip(roots.items(), found.images, strict=True) if path is not None
    ]
    return pairs, skips + found.skips, found.alone


def _named(root: ElementTree.Element, own: str) -> str:
    """The image that an XML names, by its path; the XML's own path where it names none."""
    named = (root.findtext("filename") or "").strip()
    if not named:
        return own
    folder = own.rpartition("/")[0] or (root.findtext("folder") or "").strip()
    return named if len(split(named)) > 1 or not folder else f"{folder}/{named}"


def _parse(page: Path) -> ElementTree.Element:
    data = page.read_bytes()
    if b"<!ENTITY" in data or b"<!DOCTYPE" in data:  # entities could blow up or read other files; annotations need none
        raise Skipped("declares a document type, which no annotation needs")
    try:
        return ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise Skipped(f"is no complete XML ({type(error).__name__})") from None


def _load_voc(path: Path, root: ElementTree.Element, dataset: Dataset, unit: Unit) -> list[Picture]:
    pixels, said = open_picture(path, dataset, stored=True)
    stated = _size(root.findtext("size/height"), root.findtext("size/width"), pixels.shape)
    if stated != (0, 0) and stated != pixels.shape[:2]:
        raise Skipped(size_mismatch("its annotation", stated, pixels.shape))
    targets = [_voc_target(each, pixels.shape) for each in root.iter("object")]
    if not targets:
        raise Skipped("has no object")
    return [picture_of(path, dataset, pixels, targets, said)]


def _voc_target(each: ElementTree.Element, shape: tuple[int, ...]) -> Target:
    """The box of an object; VOC counts pixels from 1 and includes both ends."""
    label = (each.findtext("name") or "").strip()
    if not label:
        raise Skipped("an object has no name")
    try:
        left, top, right, bottom = (
            float(each.findtext(f"bndbox/{name}") or "") for name in ("xmin", "ymin", "xmax", "ymax")
        )
    except ValueError:
        raise Skipped("a box is no four numbers") from None
    return Target(label, "box", box_of((left - 1, top - 1, right - left + 1, bottom - top + 1), shape))


# YOLO

LISTS = ("classes.txt", "obj.names", "data.yaml", "data.yml", "dataset.yaml")


def yolo_units(dataset: Dataset, sources: Sources) -> Iterator[Unit | Skip]:
    """One unit per image that has a text file below `annotations` (default: the dataset's path): a line per target: class, then centre and
    size of a box, or the corners of a polygon, as shares of the image."""
    folder = dataset.annotations or dataset.path
    pictures, skips = pictures_below(dataset)
    yield from skips
    files, skips = files_below(folder, dataset)
    yield from skips if folder != dataset.path else []
    texts = [path for path in files if path.suffix.lower() == ".txt" and path.name not in LISTS]
    classes = dataset.named_classes or yolo_classes(folder, dataset)
    found = paired([below(path, folder) for path in texts], pictures, dataset)
    yield from found.skips
    for path, text in zip(found.images, texts, strict=True):
        if path is not None:
            yield Unit(below(path, dataset.path), [path, text], partial(_load_yolo, path, text, classes, dataset))
    yield from (Skip(dataset.name, below(path, dataset.path), "has no text file of its name") for path in found.alone)


def yolo_classes(folder: Path, dataset: Dataset) -> dict[int, str]:
    """Number -> label by a list of names, or a YAML with `names`. Raises BadInput where there is none, or it is no such list."""
    for path in (parent / name for parent in dict.fromkeys((folder, dataset.path)) for name in LISTS):
        if not path.is_file():
            continue
        try:
            if path.suffix not in (".yaml", ".yml"):
                return dict(enumerate(line.strip() for line in read_text(path).splitlines() if line.strip()))
            given = yaml.safe_load(read_text(path))["names"]
            listed = dict(given) if isinstance(given, dict) else dict(enumerate(given))
            return {int(number): str(name) for number, name in listed.items()}
        except (yaml.YAMLError, TypeError, KeyError, ValueError):
            raise BadInput(
                f"dataset {dataset.name}: {path} has no `names` (a list, or number: name). Or give `classes: {{0: name, ...}}`."
            ) from None
    raise BadInput(
        f"dataset {dataset.name}: there is no {' or '.join(LISTS)} in {folder}. Or give `classes: {{0: name, ...}}`."
    )


def _load_yolo(path: Path, text: Path, classes: dict[int, str], dataset: Dataset, unit: Unit) -> list[Picture]:
    pixels, said = open_picture(path, dataset, stored=True)
    try:
        lines = [line for line in read_text(text).splitlines() if line.strip()]
    except BadInput:
        raise Skipped("its text file is empty, not UTF-8, or cannot be read") from None
    targets = [_yolo_target(line, number, classes, pixels.shape[:2]) for number, line in enumerate(lines, 1)]
    return [picture_of(path, dataset, pixels, targets, said)]


def _yolo_target(line: str, number: int, classes: dict[int, str], shape: tuple[int, ...]) -> Target:
    height, width = shape[:2]
    try:
        label, *shares = (float(word) for word in line.split())
    except ValueError:
        raise Skipped(f"a line of its text file is no numbers (line {number})") from None
    if label not in classes:
        raise Skipped(f"a class has no name (class {label:g})")
    if not shares or any(not -0.01 <= share <= 1.01 for share in shares):
        raise Skipped(f"a line of its text file has numbers outside 0 to 1 (line {number})")
    if len(shares) == 4:
        x, y, w, h = shares
        box = ((x - w / 2) * width, (y - h / 2) * height, w * width, h * height)
        return Target(classes[int(label)], "box", box_of(box, shape))
    if len(shares) < 6 or len(shares) % 2:
        raise Skipped(f"a line of its text file is neither a box nor a polygon (line {number})")
    corners = [share * (height if at % 2 else width) for at, share in enumerate(shares)]
    return Target(classes[int(label)], "mask", mask=decode([corners], (height, width)))


# Masks

MASK_WORD = re.compile(r"[\W_]+(mask|seg|segmentation|label|labels|gt|annotation)$", re.IGNORECASE)
"""What programs put after an image's name for its mask."""


def masks_units(dataset: Dataset, sources: Sources) -> Iterator[Unit | Skip]:
    """One unit per image that has a mask: one indexed mask (a map of `classes`) of the image's path, or with a word like `_mask` after it;
    or one mask per class, in a folder of its name, or called `<image>_<class>`.

    `<image>_<class>` is divided at the last `_`, or before a name of the list `classes`, never where an image of the set would fit best:
    that image may be another one. Raises BadInput where masks are called like their images, and `classes` does not say what their values
    mean.
    """
    pictures, skips = pictures_below(dataset)
    yield from skips
    pairs, skips, alone = mask_pairs(pictures, dataset)
    yield from skips
    own: dict[Path, list[tuple[str, Path]]] = defaultdict(list)
    for mask, label, path in pairs:
        own[path].append((label, mask))
    for path, mine in own.items():
        load = partial(_load_masks, path, mine, dataset)
        yield Unit(below(path, dataset.path), [path, *(mask for _, mask in mine)], load)
    yield from (Skip(dataset.name, below(path, dataset.path), "has no mask") for path in alone)


def mask_pairs(pictures: list[Path], dataset: Dataset) -> tuple[list[tuple[Path, str, Path]], list[Skip], list[Path]]:
    """((mask, class, image), masks without an image, images without a mask); class "" for indexed masks."""
    assert dataset.annotations is not None
    folder = dataset.annotations
    files, skips = files_below(folder, dataset)
    skips = skips if folder != dataset.path else []
    masks = [path for path in files if path.suffix.lower() in SUFFIXES]
    if folder == dataset.path:
        masks = [path for path in masks if MASK_WORD.search(path.stem)]
    taken = set(masks)
    pictures = [path for path in pictures if path not in taken]
    divided = _of_masks([without_suffix(below(mask, folder)) for mask in masks], pictures, dataset)
    times = Counter(divided)
    images = list(dict.fromkeys(image for _, image in divided))
    found = paired(images, pictures, dataset)
    image_of = dict(zip(images, found.images, strict=True))
    why = {skip.what: skip.reason for skip in found.skips}
    pairs = []
    for mask, (label, image) in zip(masks, divided, strict=True):
        path = image_of[image]
        if path is None or times[label, image] > 1:
            skips.append(Skip(dataset.name, below(mask, folder), why.get(image, "several masks have this name")))
        else:
            pairs.append((mask, label, path))
    used = {path for _, _, path in pairs}
    return pairs, skips, [path for path in pictures if path not in used]


def _of_masks(names: list[str], pictures: list[Path], dataset: Dataset) -> list[tuple[str, str]]:
    """(class, what its image is called) of each mask; class "" for indexed masks. names: paths without suffixes."""
    images = [below(path, dataset.path) for path in pictures]
    without_word = [MASK_WORD.sub("", name) for name in names]
    if dataset.named_classes:
        is_plain = any(paired(list(dict.fromkeys(names)), pictures, dataset).images)
        return [("", name) for name in (names if is_plain else without_word)]
    if same_path(names, images) or same_path(
        [one for one, name in zip(without_word, names, strict=True) if one != name], images
    ):
        raise BadInput(
            f"dataset {dataset.name}: its masks are called like its images. Give `classes: {{1: name, ...}}`, what their values mean."
        )
    in_folders = [(name.partition("/")[0], name.partition("/")[2]) for name in names]
    if same_path([image for _, image in in_folders], images):
        return in_folders
    in_names = [_divided(name, dataset) for name in names]
    named = list(dict.fromkeys(image for label, image in in_names if label))
    return in_names if any(paired(named, pictures, dataset).images) else in_folders


def _divided(name: str, dataset: Dataset) -> tuple[str, str]:
    """(class, image) of a mask's path without suffix: `P1/7_left lung` -> ("left lung", "P1/7"). ("", name) where it has no class."""
    folder, _, last = name.rpartition("/")
    words = last.casefold()
    for label in sorted(dataset.listed_classes, key=len, reverse=True):
        end = label.casefold()
        if words.endswith(end) and len(last) > len(end) + 1 and last[-len(end) - 1] in "_-. ":
            return label, f"{folder}/{last[: -len(end) - 1]}".removeprefix("/")
    if dataset.listed_classes:
        return "", name
    found = re.fullmatch(r"(.+)_([^_]*[^\W\d_][^_]*)", last) or re.fullmatch(r"(.+)[-. ]([^-. ]*[^\W\d_][^-. ]*)", last)
    return (found[2], f"{folder}/{found[1]}".removeprefix("/")) if found else ("", name)


def _load_masks(path: Path, masks: list[tuple[str, Path]], dataset: Dataset, unit: Unit) -> list[Picture]:
    pixels, said = open_picture(path, dataset, stored=True)
    targets: list[Target] = []
    for label, mask in sorted(masks, key=lambda each: each[0]):
        values = mask_values(mask)
        if values.shape != pixels.shape[:2]:
            raise Skipped(size_mismatch("its mask", values.shape, pixels.shape))
        if label:
            targets += [Target(label, "mask", mask=values > 0)] if values.any() else []
            continue
        for value in (int(each) for each in np.unique(values) if each):
            if value not in dataset.named_classes:
                raise Skipped(f"a value of the mask has no name in `classes` (value {value})")
            targets.append(Target(dataset.named_classes[value], "mask", mask=values == value))
    if not targets:
        raise Skipped("its mask is empty")
    return [picture_of(path, dataset, pixels, targets, said)]


def mask_values(mask: Path) -> np.ndarray:
    """(height, width) of whole numbers; a palette's index, not its colour. Raises Skipped."""
    try:
        with Image.open(mask) as image:
            image.load()
            if image.mode not in ("1", "L", "P", "I", "I;16"):
                grey = np.asarray(image.convert("RGB"))
                if not (grey[..., :1] == grey).all():
                    raise Skipped("its mask is a colour picture: save it with one number per class")
                return grey[..., 0]
            return np.asarray(image).astype(np.int64)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise Skipped(f"its mask cannot be read ({cause(error)})") from None
