"""Readers of boxes and masks on 2D images: COCO, Pascal VOC, YOLO, PNG masks. Each says what a file or folder annotates, and what it calls
the image; which image that is, `pictures.py` decides.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import yaml
from PIL import Image

from curation.images.pairing import pair, same_path, split, without_suffix
from curation.readers.dataset import SourceDataset
from curation.readers.pictures import (
    Annotation,
    Found,
    PictureLabel,
    Skip,
    Targets,
    below,
    box_of,
    files_below,
    pictures_below,
    refused,
    size_mismatch,
)
from curation.readers.pixels import Skipped, cause
from dataset_builders.errors import BadInput
from dataset_builders.images.lookup import SUFFIXES
from dataset_builders.source_files import read_json, read_text

# COCO

COCO_FIELDS = {"patient": "patient_id", "study": "study_id", "age": "age", "sex": "sex", "site": "site"}


def coco(dataset: SourceDataset) -> Found:
    """What a COCO JSON annotates. Images that share an id are refused: their annotations cannot be told apart. Raises BadInput where it
    lacks its three lists, or gives one category id two names."""
    assert dataset.annotations is not None
    images, categories, annotations = _coco_lists(dataset)
    names = {_id(category.get("id")): str(category.get("name") or "").strip() for category in categories}
    own: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for annotation in annotations:
        own[_id(annotation.get("image_id"))].append(annotation)
    times = Counter(_id(entry.get("id")) for entry in images)
    made = []
    for entry in images:
        key = _id(entry.get("id"))
        targets: Targets = partial(_coco_targets, entry, own[key], names)
        facts = {field: entry.get(column) for field, column in COCO_FIELDS.items()}
        odd = [field for field, value in facts.items() if not isinstance(value, (str, int, float, type(None)))]
        if odd:
            targets = refused(f"its {COCO_FIELDS[odd[0]]} is neither a text nor a number")
        if not key or times[key] > 1:
            targets = refused("several images of the JSON have its id" if key else "its id is none")
        texts = {field: None if value in (None, "") else str(value) for field, value in facts.items()}
        made.append(Annotation(str(entry.get("file_name", "")), (dataset.annotations,), targets, facts=texts))
    lost = [f"image id {key}" for key in own if key not in times]
    return made, [Skip(dataset.name, each, "annotations of an image that the JSON does not list") for each in lost]


def _coco_lists(dataset: SourceDataset) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """(images, categories, annotations)"""
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
        name, number = str(category.get("name") or "").strip(), _id(category.get("id"))
        if names.setdefault(number, name) != name:
            raise BadInput(
                f"dataset {dataset.name}: {dataset.annotations} gives one category id to {names[number]!r} and to {name!r}."
            )
    return found["images"], found["categories"], found["annotations"]


def _id(value: Any) -> str:
    """An id as a text, with its kind: 1 is not "1"; "" for what can be no id."""
    is_id = isinstance(value, (int, str)) and not isinstance(value, bool)
    return f"{type(value).__name__} {value}" if is_id else ""


def _check_size(height: Any, width: Any, shape: tuple[int, ...]) -> None:
    """Raise Skipped where an annotation states another size than its image has; 0 and blanks state none."""
    try:
        stated = int(float(height or 0)), int(float(width or 0))
    except (TypeError, ValueError, OverflowError):
        raise Skipped("its annotation states a size that is no number") from None
    if any(one and one != other for one, other in zip(stated, shape, strict=True)):
        raise Skipped(size_mismatch("its annotation", stated, shape))


def _coco_targets(
    entry: dict[str, Any], annotations: list[dict[str, Any]], names: dict[str, str], shape: tuple[int, int]
) -> list[PictureLabel]:
    """Masks where annotations have a segmentation, else boxes, else classes."""
    _check_size(entry.get("height"), entry.get("width"), shape)
    made = []
    for annotation in annotations:
        label = names.get(_id(annotation.get("category_id")), "")
        if not label:
            raise Skipped(f"an annotation's category is not listed (category {annotation.get('category_id')!r})")
        if annotation.get("segmentation"):
            made.append(PictureLabel(label, "mask", mask=decode(annotation["segmentation"], shape)))
        elif annotation.get("bbox") is None:
            made.append(PictureLabel(label))
        else:
            made.append(PictureLabel(label, "box", box_of(annotation["bbox"], shape)))
    return made


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


def voc(dataset: SourceDataset) -> Found:
    """What XMLs annotate: the image that they name, below their own folder (or, for XMLs without folders, below the folder that they name);
    where no name of the set fits, as after images were renamed, the image of their own path. Raises BadInput where there is none."""
    folder = dataset.annotations or dataset.path
    files, skips = files_below(folder, dataset)
    pages = [path for path in files if path.suffix.lower() == ".xml"]
    if not pages:
        raise BadInput(f"dataset {dataset.name}: there is no .xml below {folder}.")
    skips = skips if folder != dataset.path else []
    made = []
    owns = [without_suffix(below(page, folder)) for page in pages]
    is_flat = not any("/" in own for own in owns)
    for page, own in zip(pages, owns, strict=True):
        try:
            root = _parse(page)
        except Skipped as reason:
            skips.append(Skip(dataset.name, below(page, folder), str(reason)))
        else:
            within = (root.findtext("folder") or "").strip() if is_flat else own.rpartition("/")[0]
            made.append(Annotation(_named(root, within) or own, (page,), partial(_voc_targets, root), own))
    return made, skips


def _named(root: ElementTree.Element, folder: str) -> str:
    """The image that an XML names, by its path, in a folder where it names none; "" where it names no image."""
    named = (root.findtext("filename") or "").strip("\r\n\t")
    return f"{folder}/{named}" if named and folder and len(split(named)) == 1 else named


def _parse(page: Path) -> ElementTree.Element:
    data = page.read_bytes()
    if b"<!ENTITY" in data or b"<!DOCTYPE" in data:  # entities could blow up or read other files; annotations need none
        raise Skipped("declares a document type, which no annotation needs")
    try:
        return ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise Skipped(f"is no complete XML ({type(error).__name__})") from None


def _voc_targets(root: ElementTree.Element, shape: tuple[int, int]) -> list[PictureLabel]:
    """The boxes of the objects; VOC counts pixels from 1 and includes both ends."""
    _check_size(root.findtext("size/height"), root.findtext("size/width"), shape)
    made = []
    for each in root.iter("object"):
        label = (each.findtext("name") or "").strip()
        if not label:
            raise Skipped("an object has no name")
        try:
            sides = [float(each.findtext(f"bndbox/{name}") or "") for name in ("xmin", "ymin", "xmax", "ymax")]
        except ValueError:
            raise Skipped("a box is no four numbers") from None
        left, top, right, bottom = sides
        made.append(PictureLabel(label, "box", box_of((left - 1, top - 1, right - left + 1, bottom - top + 1), shape)))
    return made


# YOLO

LISTS = ("classes.txt", "obj.names", "data.yaml", "data.yml", "dataset.yaml")


def yolo(dataset: SourceDataset) -> Found:
    """What text files annotate, a line per target: class, then centre and size of a box, or the corners of a polygon, as shares of the
    image. Raises BadInput where nothing says what the classes are called."""
    folder = dataset.annotations or dataset.path
    files, skips = files_below(folder, dataset)
    texts = [path for path in files if path.suffix.lower() == ".txt" and path.name not in LISTS]
    lists = [
        path for path in (*files, *(dataset.path / name for name in LISTS)) if path.name in LISTS and path.is_file()
    ]
    classes = dataset.named_classes or _yolo_classes(list(dict.fromkeys(lists)), dataset)
    made = [
        Annotation(without_suffix(below(path, folder)), (path,), partial(_yolo_targets, path, classes))
        for path in texts
    ]
    return made, skips if folder != dataset.path else []


def _yolo_classes(lists: list[Path], dataset: SourceDataset) -> dict[int, str]:
    """Number -> label by lists of names (the line is the number), or YAML with `names`. Raises BadInput where there is none, one is no such
    list, or two say different things."""
    remedy = "Give `classes: {0: name, ...}`."
    found: dict[int, str] = {}
    for path in lists:
        document: Any = {}
        try:
            if path.suffix in (".yaml", ".yml"):
                document = yaml.safe_load(read_text(path))
                given = document["names"]
                listed = dict(given) if isinstance(given, dict) else dict(enumerate(list(given)))
                classes = {int(number): str(name) for number, name in listed.items() if not isinstance(given, str)}
            else:
                lines = map(str.strip, read_text(path).splitlines())
                classes = {number: name for number, name in enumerate(lines) if name}
        except (yaml.YAMLError, TypeError, KeyError, ValueError):
            classes = {}
        if isinstance(document, dict) and "kpt_shape" in document:
            raise BadInput(
                f"dataset {dataset.name}: {path} is about keypoints, which mark no region. Give boxes or polygons."
            )
        if not classes:
            raise BadInput(f"dataset {dataset.name}: {path} has no `names` (a list, or number: name). {remedy}")
        if found and classes != found:
            raise BadInput(f"dataset {dataset.name}: {lists[0]} and {path} number the classes differently. {remedy}")
        found = classes
    if not found:
        where = dataset.annotations or dataset.path
        raise BadInput(f"dataset {dataset.name}: there is no {' or '.join(LISTS)} in {where}. {remedy}")
    return found


def _yolo_targets(text: Path, classes: dict[int, str], shape: tuple[int, int]) -> list[PictureLabel]:
    try:
        lines = [line for line in read_text(text).splitlines() if line.strip()]
    except BadInput:
        raise Skipped("its text file is empty, not UTF-8, or cannot be read") from None
    return [_yolo_target(line, number, classes, shape) for number, line in enumerate(lines, 1)]


def _yolo_target(line: str, number: int, classes: dict[int, str], shape: tuple[int, ...]) -> PictureLabel:
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
        return PictureLabel(classes[int(label)], "box", box_of(box, shape))
    if len(shares) < 6 or len(shares) % 2:
        raise Skipped(f"a line of its text file is neither a box nor a polygon (line {number})")
    corners = [share * (height if at % 2 else width) for at, share in enumerate(shares)]
    return PictureLabel(classes[int(label)], "mask", mask=decode([corners], (height, width)))


# Masks

MASK_WORD = re.compile(r"[\W_](mask|seg|segmentation|label|labels|gt|annotation)$", re.IGNORECASE)
"""What programs put after an image's name for its mask."""


def masks(dataset: SourceDataset) -> Found:
    """What masks annotate: one indexed mask (a map of `classes`) of the image's path, or with a word like `_mask` after it; or one mask per
    class, in a folder of its name, or called `<image>_<class>`.

    `<image>_<class>` is divided at the last `_`, or before a name of the list `classes`, never where an image of the set would fit best:
    that image may be another one. Raises BadInput where masks are called like their images, and `classes` does not say what their values
    mean.
    """
    assert dataset.annotations is not None
    folder = dataset.annotations
    files, skips = files_below(folder, dataset)
    files = [path for path in files if path.suffix.lower() in SUFFIXES]
    if folder == dataset.path:
        files, skips = [path for path in files if MASK_WORD.search(path.stem)], []
    images = [below(path, dataset.path) for path in pictures_below(dataset)[0] if path not in set(files)]
    divided = _divide([without_suffix(below(mask, folder)) for mask in files], images, dataset)
    times = Counter(divided)
    own: dict[str, list[tuple[str, Path]]] = defaultdict(list)
    for mask, (label, image) in zip(files, divided, strict=True):
        if times[label, image] > 1:
            skips.append(Skip(dataset.name, below(mask, folder), "several masks have this name"))
        else:
            own[image].append((label, mask))
    made = []
    for image, mine in own.items():
        targets = partial(_mask_targets, sorted(mine, key=lambda each: each[0]), dataset.named_classes)
        made.append(Annotation(image, tuple(mask for _, mask in mine), targets))
    return made, skips


def _divide(names: list[str], images: list[str], dataset: SourceDataset) -> list[tuple[str, str]]:
    """(class, what its image is called) of each mask; class "" for indexed masks. names: paths without suffixes."""

    def fits(called: list[str]) -> bool:
        return any(at is not None for at in pair(list(dict.fromkeys(called)), images, dataset.path).found)

    plain = [MASK_WORD.sub("", name) for name in names]
    if dataset.named_classes:
        return [("", name) for name in (names if fits(names) else plain)]
    changed = [one for one, name in zip(plain, names, strict=True) if one != name]
    if same_path(names, images) or same_path(changed, images):
        raise BadInput(
            f"dataset {dataset.name}: its masks are called like its images. Give `classes: {{1: name, ...}}`, what their values mean."
        )
    in_folders = [(name.partition("/")[0], name.partition("/")[2]) for name in names]
    if same_path([image for _, image in in_folders], images):
        return in_folders
    in_names = [_divided(name, images, dataset) for name in names]
    return in_names if fits([image for label, image in in_names if label]) else in_folders


def _divided(name: str, images: list[str], dataset: SourceDataset) -> tuple[str, str]:
    """(class, image) of a mask's path without suffix: `P1/7_left lung` -> ("left lung", "P1/7"). ("", name) where it has no class, or where
    another image could be meant with a shorter one."""
    folder, _, last = name.rpartition("/")
    words = last.casefold()
    found = [
        (label, f"{folder}/{last[: -len(label) - 1]}".removeprefix("/"))
        for label in sorted(dataset.listed_classes, key=len, reverse=True)
        if words.endswith(label.casefold()) and len(last) > len(label) + 1 and last[-len(label) - 1] in "_-. "
    ]
    if dataset.listed_classes:
        return ("", name) if not found or same_path([image for _, image in found[1:]], images) else found[0]
    parts = re.fullmatch(r"(.+)_([^_]*[^\W\d_][^_]*)", last) or re.fullmatch(r"(.+)[-. ]([^-. ]*[^\W\d_][^-. ]*)", last)
    return (parts[2], f"{folder}/{parts[1]}".removeprefix("/")) if parts else ("", name)


def _mask_targets(masks: list[tuple[str, Path]], classes: dict[int, str], shape: tuple[int, int]) -> list[PictureLabel]:
    made: list[PictureLabel] = []
    for label, mask in masks:
        values = _mask_values(mask)
        if values.shape != shape:
            raise Skipped(size_mismatch("its mask", values.shape, shape))
        if label:
            shown = values > (127 if mask.suffix.lower() in (".jpg", ".jpeg") else 0)  # JPEG's black is not quite 0
            made += [PictureLabel(label, "mask", mask=shown)] if shown.any() else []
            continue
        for value in (int(each) for each in np.unique(values) if each):
            if value not in classes:
                raise Skipped(f"a value of the mask has no name in `classes` (value {value})")
            made.append(PictureLabel(classes[value], "mask", mask=values == value))
    return made


def _mask_values(mask: Path) -> np.ndarray:
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
