"""Readers of boxes and masks on 2D images: COCO, Pascal VOC, YOLO, PNG masks. Each says what a file or folder annotates, and what it calls
the image; which image that is, `pictures.py` decides.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from xml.etree import ElementTree

import numpy as np
import yaml
from PIL import Image
from pydantic import BaseModel, BeforeValidator, FiniteFloat, StrictInt, StrictStr, ValidationError

from curation.images.pairing import same_path, split, without_suffix
from curation.readers.dataset import SourceDataset
from curation.readers.pictures import (
    Annotation,
    Files,
    PictureLabel,
    Skip,
    Targets,
    below,
    box_of,
    refused,
    size_mismatch,
)
from curation.readers.pixels import Skipped, cause
from dataset_builders.errors import BadInput
from dataset_builders.images.lookup import SUFFIXES
from dataset_builders.source_files import read_json, read_text

# COCO

Id = StrictInt | StrictStr
"""1 is not "1"."""


class CocoImage(BaseModel):
    """An image of a COCO file; the patient is an extension of ours."""

    id: Id
    file_name: str
    height: int | None = None
    width: int | None = None
    patient_id: Annotated[str | None, BeforeValidator(lambda value: None if value is None else str(value))] = None


class CocoCategory(BaseModel):
    """A class of a COCO file."""

    id: Id
    name: str


class CocoAnnotation(BaseModel):
    """A target of a COCO file: a mask where it has a segmentation, else a box, else a class."""

    image_id: Id
    category_id: Id
    bbox: list[FiniteFloat] | None = None
    segmentation: dict[str, Any] | list[Any] | None = None


class CocoFile(BaseModel):
    """A COCO JSON."""

    images: list[CocoImage]
    categories: list[CocoCategory]
    annotations: list[CocoAnnotation]


def coco(dataset: SourceDataset, files: Files) -> Iterator[Annotation | Skip]:
    """Annotations of a COCO JSON. Images that share an id are refused: their annotations cannot be distinguished. Raises BadInput for a
    file of another form, and one that gives one category id two names."""
    file = files.folder
    try:
        document = CocoFile.model_validate(read_json(file))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise BadInput(f"dataset {dataset.name}: {file} is no COCO JSON ({where}: {first['msg']}).") from None
    names: dict[int | str, str] = {}
    for each in document.categories:
        if names.setdefault(each.id, each.name.strip()) != each.name.strip():
            raise BadInput(
                f"dataset {dataset.name}: {file} gives one category id to {names[each.id]!r} and {each.name!r}."
            )
    own: dict[int | str, list[CocoAnnotation]] = defaultdict(list)
    for annotation in document.annotations:
        own[annotation.image_id].append(annotation)
    times = Counter(image.id for image in document.images)
    for image in document.images:
        targets: Targets = partial(_coco_targets, image, own[image.id], names)
        if times[image.id] > 1:
            targets = refused("several images of the JSON have its id")
        yield Annotation(image.file_name, (file,), targets, {"patient": image.patient_id})
    for key in (key for key in own if key not in times):
        yield Skip(dataset.name, f"image id {key}", "annotations of an image that the JSON does not list")


def _check_size(height: float | None, width: float | None, shape: tuple[int, int]) -> None:
    """Raise Skipped where an annotation states another size than its image has; 0 and None state none."""
    if any(one and one != other for one, other in zip((height, width), shape, strict=True)):
        raise Skipped(size_mismatch("its annotation", (int(height or 0), int(width or 0)), shape))


def _coco_targets(
    image: CocoImage, annotations: list[CocoAnnotation], names: dict[int | str, str], shape: tuple[int, int]
) -> list[PictureLabel]:
    _check_size(image.height, image.width, shape)
    made = []
    for each in annotations:
        label = names.get(each.category_id, "")
        if not label:
            raise Skipped(f"an annotation's category is not listed (category {each.category_id!r})")
        if each.segmentation:
            made.append(PictureLabel(label, mask=decode(each.segmentation, shape)))
        elif each.bbox is None:
            made.append(PictureLabel(label))
        else:
            made.append(PictureLabel(label, box_of(each.bbox, shape)))
    return made


def decode(segmentation: Any, shape: tuple[int, int]) -> np.ndarray:
    """(height, width) of booleans from polygons (their union), or run-length encoding, compressed or not. Raises Skipped."""
    from pycocotools import mask as coco

    try:
        if isinstance(segmentation, dict):
            rle, counts, size = segmentation, segmentation["counts"], tuple(segmentation["size"])
            if size != shape:
                raise Skipped(size_mismatch("its mask", size, shape))
            if not isinstance(counts, (str, bytes)):
                if sum(counts) != shape[0] * shape[1] or min(counts) < 0:
                    raise Skipped("a segmentation cannot be decoded (its runs do not fill the image)")
                rle = coco.frPyObjects(segmentation, *shape)
        else:
            polygons = [np.asarray(polygon, np.float64) for polygon in segmentation]
            if any(polygon.ndim != 1 or polygon.size < 6 or polygon.size % 2 for polygon in polygons):
                raise Skipped("a polygon has fewer than three corners")
            if not all((np.abs(polygon) <= 4 * max(shape)).all() for polygon in polygons):
                raise Skipped("a polygon lies outside its image")
            rle = coco.merge(coco.frPyObjects([polygon.tolist() for polygon in polygons], *shape))
        decoded: np.ndarray = coco.decode(rle).astype(bool)
    except Skipped:
        raise
    except Exception as error:  # pycocotools raises bare exceptions of many kinds on odd input
        raise Skipped(f"a segmentation cannot be decoded ({type(error).__name__})") from None
    if decoded.shape != shape:
        raise Skipped("a segmentation cannot be decoded (it has another size than its image)")
    return decoded


# Pascal VOC


def voc(dataset: SourceDataset, files: Files) -> Iterator[Annotation]:
    """Annotations of XMLs: each belongs to the image of the same path. One whose `filename` is another image of the set is refused.
    Raises BadInput if there is none."""
    pages = [path for path in files.marks if path.suffix.lower() == ".xml"]
    if not pages:
        raise BadInput(f"dataset {dataset.name}: there is no .xml below {files.folder}.")
    images = {_stem(path.name) for path in files.pictures}
    for page in pages:
        own = without_suffix(below(page, files.folder))
        try:
            root = ElementTree.fromstring(page.read_bytes())
            named = _stem(root.findtext("filename") or "")
            is_other = named in images and named != _stem(own)
            targets = refused("its XML names another image") if is_other else partial(_voc_targets, root)
        except (ElementTree.ParseError, ValueError, LookupError) as error:
            targets = refused(f"its XML is not complete ({type(error).__name__})")
        yield Annotation(own, (page,), targets)


def _stem(path: str) -> str:
    """The last name of a path without its suffix."""
    return without_suffix((split(path) or ("",))[-1])


def _voc_targets(root: ElementTree.Element, shape: tuple[int, int]) -> list[PictureLabel]:
    """The boxes of the objects; VOC counts pixels from 1 and includes both ends."""
    try:
        height, width = (float(root.findtext(f"size/{name}") or 0) for name in ("height", "width"))
        _check_size(height, width, shape)
        made = []
        for each in root.iter("object"):
            sides = (float(each.findtext(f"bndbox/{name}") or "") for name in ("xmin", "ymin", "xmax", "ymax"))
            left, top, right, bottom = sides
            box = box_of((left - 1, top - 1, right - left + 1, bottom - top + 1), shape)
            made.append(PictureLabel((each.findtext("name") or "").strip(), box))
    except ValueError:
        raise Skipped("a size or box of its XML is no number") from None
    if not all(target.label for target in made):
        raise Skipped("an object has no name")
    return made


# YOLO

LISTS = ("classes.txt", "obj.names", "data.yaml", "data.yml", "dataset.yaml")


def yolo(dataset: SourceDataset, files: Files) -> Iterator[Annotation]:
    """Annotations of text files, a line per target: class, then centre and size of a box, or the corners of a polygon, as shares of the
    image. Raises BadInput if nothing says what the classes are called."""
    there = (*files.marks, *(dataset.path / name for name in LISTS))
    lists = {path for path in there if path.name in LISTS and path.is_file()}
    classes = dataset.named_classes or _yolo_classes(sorted(lists), dataset)
    for path in files.marks:
        if path.suffix.lower() == ".txt" and path.name not in LISTS:
            targets = partial(_yolo_targets, path, classes)
            yield Annotation(without_suffix(below(path, files.folder)), (path,), targets)


def _yolo_classes(lists: list[Path], dataset: SourceDataset) -> dict[int, str]:
    """Number -> label by lists of names (the line is the number), or YAML with `names`. Raises BadInput if there is none, one is no such
    list, or two say different things."""
    remedy = "Give `classes: {0: name, ...}`."
    found = []
    for path in lists:
        try:
            if path.suffix in (".yaml", ".yml"):
                document = yaml.safe_load(read_text(path))
                given: Any = None if "kpt_shape" in document else document["names"]  # keypoints mark no region
                listed = given.items() if isinstance(given, dict) else enumerate(list(given))
                found.append({int(number): str(name) for number, name in listed})
            else:
                lines = read_text(path).splitlines()
                found.append({number: line.strip() for number, line in enumerate(lines) if line.strip()})
        except (yaml.YAMLError, TypeError, KeyError, ValueError):
            raise BadInput(
                f"dataset {dataset.name}: {path} has no `names` of boxes or polygons (a list, or number: name). {remedy}"
            ) from None
    if not found:
        where = dataset.annotations or dataset.path
        raise BadInput(f"dataset {dataset.name}: there is no {' or '.join(LISTS)} in {where}. {remedy}")
    if any(each != found[0] for each in found):
        raise BadInput(f"dataset {dataset.name}: {', '.join(map(str, lists))} number the classes differently. {remedy}")
    return found[0]


def _yolo_targets(text: Path, classes: dict[int, str], shape: tuple[int, int]) -> list[PictureLabel]:
    try:
        lines = [line.split() for line in read_text(text).splitlines() if line.strip()]
        rows = [[float(word) for word in line] for line in lines]
    except (BadInput, ValueError):
        raise Skipped("its text file is empty, not UTF-8, or holds what is no number") from None
    return [_yolo_target(label, shares, classes, shape) for label, *shares in rows]


def _yolo_target(label: float, shares: list[float], classes: dict[int, str], shape: tuple[int, int]) -> PictureLabel:
    height, width = shape
    if label not in classes:
        raise Skipped(f"a class has no name (class {label:g})")
    name = classes[int(label)]
    if any(not -0.01 <= share <= 1.01 for share in shares):
        raise Skipped("a line of its text file has numbers outside 0 to 1")
    if len(shares) == 4:
        x, y, w, h = shares
        return PictureLabel(name, box_of(((x - w / 2) * width, (y - h / 2) * height, w * width, h * height), shape))
    corners = [share * (height if at % 2 else width) for at, share in enumerate(shares)]
    return PictureLabel(name, mask=decode([corners], shape))


# Masks

MASK_WORD = re.compile(r"[\W_](mask|seg|segmentation|label|labels|gt|annotation)$", re.IGNORECASE)
"""Suffixes that programs append to an image's name for its mask."""


def masks(dataset: SourceDataset, files: Files) -> Iterator[Annotation]:
    """Annotations of masks: with a map `classes`, one indexed mask of the image's path (a word like `_mask` may follow it); with a list
    `classes`, masks called `<image>_<class>`; else one mask per class, in a folder of its name.

    Raises BadInput if masks are called like their images, and `classes` does not say what their values mean.
    """
    is_apart = files.folder != dataset.path
    masks = [
        path for path in files.marks if path.suffix.lower() in SUFFIXES and (is_apart or MASK_WORD.search(path.stem))
    ]
    taken = set(masks)
    images = [below(path, dataset.path) for path in files.pictures if path not in taken]
    names = [without_suffix(below(mask, files.folder)) for mask in masks]
    plain = [MASK_WORD.sub("", name) for name in names]
    if dataset.named_classes:
        divided = [("", name) for name in (names if same_path(names, images) else plain)]
    elif dataset.listed_classes:
        divided = [_divided(name, dataset.listed_classes) for name in names]
    else:
        divided = [(name.partition("/")[0], name.partition("/")[2]) for name in names]
        if same_path(plain, images) or not any(image for _, image in divided):
            raise BadInput(
                f"dataset {dataset.name}: its masks are in no folders of classes. Give `classes: {{1: name, ...}}`, what their values "
                "mean, or a list of the classes that end their names."
            )
    own: dict[str, list[tuple[str, Path]]] = defaultdict(list)
    for mask, (label, image) in zip(masks, divided, strict=True):
        own[image].append((label, mask))
    for image, mine in own.items():
        is_double = len({label for label, _ in mine}) < len(mine)
        targets: Targets = partial(_mask_targets, sorted(mine, key=lambda each: each[0]), dataset.named_classes)
        if is_double:
            targets = refused("several masks have one name")
        yield Annotation(image, tuple(mask for _, mask in mine), targets)


def _divided(name: str, classes: tuple[str, ...]) -> tuple[str, str]:
    """(class, image) of a mask's path without suffix, by the longest class that ends it: `P1/7_left lung` -> ("left lung", "P1/7"); of one
    that no class ends, ("", path)."""
    for label in sorted(classes, key=len, reverse=True):
        rest = name[: -len(label)]
        if name.casefold().endswith(label.casefold()) and rest.rpartition("/")[2][:-1] and rest[-1] in "_-. ":
            return label, rest[:-1]
    return "", name


def _mask_targets(masks: list[tuple[str, Path]], classes: dict[int, str], shape: tuple[int, int]) -> list[PictureLabel]:
    made: list[PictureLabel] = []
    for label, mask in masks:
        values = _mask_values(mask)
        if values.shape != shape:
            raise Skipped(size_mismatch("its mask", values.shape, shape))
        if label:
            shown = values > (127 if mask.suffix.lower() in (".jpg", ".jpeg") else 0)  # JPEG's black is not quite 0
            made += [PictureLabel(label, mask=shown)] if shown.any() else []
            continue
        for value in (int(each) for each in np.unique(values) if each):
            if value not in classes:
                raise Skipped(f"a value of the mask has no name in `classes` (value {value})")
            made.append(PictureLabel(classes[value], mask=values == value))
    return made


def _mask_values(mask: Path) -> np.ndarray:
    """(height, width) of whole numbers; a palette's index, not its colour. Raises Skipped."""
    try:
        with Image.open(mask) as image:
            if image.mode not in ("1", "L", "P", "I", "I;16"):
                grey = np.asarray(image.convert("RGB"))
                if not (grey[..., :1] == grey).all():
                    raise Skipped("its mask is a colour picture: save it with one number per class")
                return grey[..., 0]
            return np.asarray(image).astype(np.int64)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise Skipped(f"its mask cannot be read ({cause(error)})") from None
