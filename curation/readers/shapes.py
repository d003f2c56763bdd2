"""Readers of boxes and masks on 2D images: COCO, Pascal VOC, YOLO, PNG masks. Each says what a file or folder annotates, and what it calls
the image; which image that is, `pictures.py` decides.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from xml.etree import ElementTree

import numpy as np
from PIL import Image
from pydantic import BaseModel, BeforeValidator, FiniteFloat, StrictInt, StrictStr, ValidationError

from curation.images.pairing import have_common_path, split_path, strip_suffix
from curation.readers.consistency import (
    ClassNames,
    Contradiction,
    NoClassNames,
    Skip,
    check_area,
    check_mask,
    check_size,
    parse_box,
    read_class_names,
    size_mismatch,
)
from curation.readers.dataset import SourceDataset
from curation.readers.pictures import Annotation, DatasetFiles, PictureLabel, Targets, relative_name, unusable_targets
from curation.readers.pixels import Skipped, error_cause, skip_on_error
from dataset_builders.errors import BadInput
from dataset_builders.images.lookup import IMAGE_SUFFIXES
from dataset_builders.source_files import read_json, read_text, read_yaml

# COCO

CocoId = StrictInt | StrictStr
"""1 is not "1"."""


class CocoImage(BaseModel):
    """An image of a COCO file; the patient is an extension of ours."""

    id: CocoId
    file_name: str
    height: int | None = None
    width: int | None = None
    patient_id: Annotated[str | None, BeforeValidator(lambda value: None if value is None else str(value))] = None


class CocoCategory(BaseModel):
    """A class of a COCO file."""

    id: CocoId
    name: str


class CocoAnnotation(BaseModel):
    """A target of a COCO file: a mask where it has a segmentation, else a box, else a class."""

    image_id: CocoId
    category_id: CocoId
    bbox: list[FiniteFloat] | None = None
    segmentation: dict[str, Any] | list[Any] | None = None
    area: FiniteFloat | None = None


class CocoFile(BaseModel):
    """A COCO JSON."""

    images: list[CocoImage]
    categories: list[CocoCategory]
    annotations: list[CocoAnnotation]


def read_coco(dataset: SourceDataset, files: DatasetFiles) -> Iterator[Annotation | Skip]:
    """Annotations of a COCO JSON. Images that share an id are refused: their annotations cannot be distinguished. Raises BadInput for a
    file of another form, and as `listed_names` does."""
    file = files.folder
    try:
        document = CocoFile.model_validate(read_json(file))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise BadInput(f"dataset {dataset.name}: {file} is no COCO JSON ({where}: {first['msg']}).") from None
    categories = [(category.id, category.name) for category in document.categories]
    names, _ = read_class_names(
        f"dataset {dataset.name}", [file], lambda _: categories, "a list of categories", "Correct it."
    )
    own: dict[int | str, list[CocoAnnotation]] = defaultdict(list)
    for annotation in document.annotations:
        own[annotation.image_id].append(annotation)
    times = Counter(image.id for image in document.images)
    for image in document.images:
        targets: Targets = partial(_coco_targets, image, own[image.id], names)
        if times[image.id] > 1:
            targets = unusable_targets(Contradiction("several images of the JSON have its id"))
        yield Annotation(image.file_name, (file,), targets, {"patient": image.patient_id})
    for key in (key for key in own if key not in times):
        yield Skip(dataset.name, f"image id {key}", "annotations of an image that the JSON does not list", True)


def _coco_targets(
    image: CocoImage, annotations: list[CocoAnnotation], names: dict[int | str, str], shape: tuple[int, int]
) -> list[PictureLabel]:
    check_size(image.height, image.width, shape)
    made = []
    for annotation in annotations:
        if annotation.category_id not in names:
            raise Contradiction(f"an annotation's category is not listed (category {annotation.category_id!r})")
        label = names[annotation.category_id]
        if len(annotation.bbox or ()) not in (0, 4):
            raise Skipped("a box is no four numbers")
        if annotation.segmentation:
            mask = decode_segmentation(annotation.segmentation, shape)
            check_mask(mask, annotation.segmentation, annotation.bbox, annotation.area)
            made.append(PictureLabel(label, mask=mask))
        elif not annotation.bbox:
            made.append(PictureLabel(label))
        else:
            box = parse_box(annotation.bbox, shape)
            check_area(box, annotation.area)
            made.append(PictureLabel(label, box))
    return made


def decode_segmentation(segmentation: Any, shape: tuple[int, int]) -> np.ndarray:
    """(height, width) of booleans from polygons (their union), or run-length encoding, compressed or not. Raises Skipped, and
    Contradiction for polygons that leave the image and masks of another size."""
    from pycocotools import mask as coco

    with skip_on_error("a segmentation cannot be decoded"):  # pycocotools raises bare exceptions of many kinds
        if not isinstance(segmentation, dict):
            polygons = [np.asarray(polygon, np.float64) for polygon in segmentation]
            if any(polygon.ndim != 1 or polygon.size < 6 or polygon.size % 2 for polygon in polygons):
                raise Skipped("a polygon has fewer than three corners")
            corners = np.concatenate(polygons).reshape(-1, 2)
            if (corners < -1).any() or (corners > np.array(shape[::-1]) + 1).any():
                raise Contradiction("a polygon lies outside its image")
            return fill_polygons(polygons, shape)
        counts, size = segmentation["counts"], tuple(segmentation["size"])
        if size != shape:
            raise Contradiction(size_mismatch("its mask", size, shape))
        is_compressed = isinstance(counts, (str, bytes))
        if not is_compressed and (sum(counts) != shape[0] * shape[1] or min(counts) < 0):
            raise Skipped("a segmentation cannot be decoded (its runs do not fill the image)")
        decoded: np.ndarray = coco.decode(segmentation if is_compressed else coco.frPyObjects(segmentation, *shape))
        if decoded.shape != shape:
            raise Skipped("a segmentation cannot be decoded (it has another size than its image)")
    return decoded.astype(bool)


def fill_polygons(polygons: Sequence[np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    """(height, width) of booleans: the union of polygons (x, y, x, y ...), cut off at the picture's edges. Raises Skipped for corners so
    far outside that their fill cannot be computed."""
    from pycocotools import mask as coco

    if not all((np.abs(polygon) <= 4 * max(shape)).all() for polygon in polygons):
        raise Skipped("a polygon lies outside its image")
    united: np.ndarray = coco.decode(coco.merge(coco.frPyObjects([polygon.tolist() for polygon in polygons], *shape)))
    return united.astype(bool)


# Pascal VOC


def read_voc(dataset: SourceDataset, files: DatasetFiles) -> Iterator[Annotation]:
    """Annotations of XMLs: each belongs to the image of the same path. One whose `filename` is another image of the set is refused.
    Raises BadInput if there is none."""
    pages = [path for path in files.marks if path.suffix.lower() == ".xml"]
    if not pages:
        raise BadInput(f"dataset {dataset.name}: there is no .xml below {files.folder}.")
    images = {_stem(path.name) for path in files.pictures}
    for page in pages:
        own = strip_suffix(relative_name(page, files.folder))
        try:
            root = ElementTree.fromstring(page.read_bytes())
            named = _stem(root.findtext("filename") or "")
            is_other = named in images and named != _stem(own)
            targets: Targets = partial(_voc_targets, root)
            if is_other:
                targets = unusable_targets(Contradiction("its XML names another image"))
        except (ElementTree.ParseError, ValueError, LookupError) as error:
            targets = unusable_targets(f"its XML is not complete ({type(error).__name__})")
        yield Annotation(own, (page,), targets)


def _stem(path: str) -> str:
    """The last name of a path without its suffix."""
    return strip_suffix((split_path(path) or ("",))[-1])


def _voc_targets(root: ElementTree.Element, shape: tuple[int, int]) -> list[PictureLabel]:
    """The boxes of the objects; VOC counts pixels from 1 and includes both ends."""
    try:
        height, width = (float(root.findtext(f"size/{name}") or 0) for name in ("height", "width"))
        check_size(height, width, shape)
        made = []
        for each in root.iter("object"):
            sides = (float(each.findtext(f"bndbox/{name}") or "") for name in ("xmin", "ymin", "xmax", "ymax"))
            left, top, right, bottom = sides
            box = parse_box((left - 1, top - 1, right - left + 1, bottom - top + 1), shape)
            made.append(PictureLabel((each.findtext("name") or "").strip(), box))
    except ValueError:
        raise Skipped("a size or box of its XML is no number") from None
    if not all(target.label for target in made):
        raise Skipped("an object has no name")
    return made


# YOLO

CLASS_LIST_PATTERNS = ("classes.txt", "*.names", "*.labels", "*.yaml", "*.yml", "notes.json")
"""Lists of classes: lines (the line is the number), YAML with `names`, or Label Studio's JSON."""


def is_class_list(path: Path) -> bool:
    """True if a file is called like a list of YOLO's classes."""
    return any(fnmatch(path.name.lower(), pattern) for pattern in CLASS_LIST_PATTERNS)


def read_yolo(dataset: SourceDataset, files: DatasetFiles) -> Iterator[Annotation]:
    """Annotations of text files, a line per target: class, then centre and size of a box, or the corners of a polygon, as shares of the
    image. Lists of classes lie among its files, or up to two folders above (data.yaml stands above `train/labels`). Raises BadInput as
    `listed_names` does."""
    above = {folder for root in (files.folder, dataset.path) for folder in (root, *root.parents[:2])}
    places = {*files.marks, *files.all, *(path for folder in above for path in folder.glob("*.*"))}
    named: ClassNames = dataset.named_classes, ()
    if not dataset.named_classes:
        listed = [path for path in places if is_class_list(path) and path.is_file()]
        form, remedy = "a list of classes (data.yaml, classes.txt)", "Give `classes: {0: name, ...}` in sources.yaml."
        named = read_class_names(f"dataset {dataset.name}", listed, _read_class_list, form, remedy)
    for path in files.marks:
        if path.suffix.lower() == ".txt" and not is_class_list(path):
            targets = partial(_yolo_targets, path, named[0])
            yield Annotation(strip_suffix(relative_name(path, files.folder)), (path, *named[1]), targets)


def _read_class_list(path: Path) -> list[tuple[Any, Any]] | None:
    """(number, name) of the classes in a list; None for YAML about something else. Raises errors of many kinds for another form."""
    if path.suffix == ".json":
        return [(int(category["id"]), category["name"]) for category in read_json(path)["categories"]]
    if path.suffix not in (".yaml", ".yml"):
        return list(enumerate(read_text(path).rstrip().splitlines()))
    document = read_yaml(path)
    if not isinstance(document, dict) or "names" not in document:
        return None
    names: Any = None if "kpt_shape" in document else document["names"]  # keypoints mark no region
    pairs = [(int(number), name) for number, name in (names.items() if isinstance(names, dict) else enumerate(names))]
    if document.get("nc", len(pairs)) != len(pairs):
        raise ValueError("another number of classes than `nc` says")
    return pairs


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
        raise Contradiction(f"a class has no name (class {label:g})")
    name = classes[int(label)]
    if any(not -0.01 <= share <= 1.01 for share in shares):
        raise Contradiction("a line of its text file has numbers outside 0 to 1")
    if len(shares) == 4:
        x, y, w, h = shares
        return PictureLabel(name, parse_box(((x - w / 2) * width, (y - h / 2) * height, w * width, h * height), shape))
    corners = [share * (height if at % 2 else width) for at, share in enumerate(shares)]
    return PictureLabel(name, mask=decode_segmentation([corners], shape))


# Masks

MASK_SUFFIX = re.compile(r"[\W_](mask|seg|segmentation|label|labels|gt|annotation)$", re.IGNORECASE)
"""Suffixes that programs append to an image's name for its mask."""


def read_masks(dataset: SourceDataset, files: DatasetFiles) -> Iterator[Annotation]:
    """Annotations of masks: with the pattern `label`, as that says; with a map `classes`, one indexed mask of the image's path (a word like
    `_mask` may follow it); with a list `classes`, masks called `<image>_<class>`; else one mask per class, in a folder of its name.

    Raises BadInput if masks are called like their images, and `classes` does not say what their values mean.
    """
    is_apart = files.folder != dataset.path
    masks = [path for path in files.marks if path.suffix.lower() in IMAGE_SUFFIXES]
    cases = {path: dataset.case_of(dataset.label, relative_name(path, files.folder)) for path in masks}
    masks = [path for path in masks if cases[path] and (dataset.label or is_apart or MASK_SUFFIX.search(path.stem))]
    taken = set(masks)
    images = [relative_name(path, dataset.path) for path in files.pictures if path not in taken]
    names = [strip_suffix(relative_name(mask, files.folder)) for mask in masks]
    plain = [MASK_SUFFIX.sub("", name) for name in names]
    if dataset.label:
        divided = [(case[1], case[0]) for mask in masks if (case := cases[mask])]
    elif dataset.named_classes:
        divided = [("", name) for name in (names if have_common_path(names, images) else plain)]
    elif dataset.listed_classes:
        divided = [_split_class(name, dataset.listed_classes) for name in names]
    else:
        divided = [(name.partition("/")[0], name.partition("/")[2]) for name in names]
        if have_common_path(plain, images) or not any(image for _, image in divided):
            raise NoClassNames(
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
            targets = unusable_targets("several masks have one name")
        yield Annotation(image, tuple(mask for _, mask in mine), targets)


def _split_class(name: str, classes: tuple[str, ...]) -> tuple[str, str]:
    """(class, image) of a mask's path without suffix, by the longest class that ends it: `P1/7_left lung` -> ("left lung", "P1/7"); of one
    that no class ends, ("", path)."""
    for label in sorted(classes, key=len, reverse=True):
        rest = name[: -len(label)]
        if name.casefold().endswith(label.casefold()) and rest.rpartition("/")[2][:-1] and rest[-1] in "_-. ":
            return label, rest[:-1]
    return "", name


def _mask_targets(masks: list[tuple[str, Path]], classes: dict[int, str], shape: tuple[int, int]) -> list[PictureLabel]:
    made: list[PictureLabel] = []
    for label, path in masks:
        try:
            with Image.open(path) as image:
                image.load()
                if getattr(image, "n_frames", 1) > 1 and image.format != "MPO":  # a phone's previews
                    raise Skipped("its mask has several pages: save each as a file")
                is_lossy = image.format in ("JPEG", "MPO") or image.info.get("compression") == "jpeg"
                is_lossy |= image.format == "WEBP" and b"VP8L" not in path.read_bytes()[:64]
                values = _binary_mask(image, is_lossy) if label else _class_values(image, is_lossy, classes)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise Skipped(f"its mask cannot be read ({error_cause(error)})") from None
        if values.shape != shape:
            raise Skipped(size_mismatch("its mask", values.shape, shape))
        for value in (int(value) for value in np.unique(values) if value):
            if not label and value not in classes:
                raise Contradiction(f"a value of the mask has no name in `classes` (value {value})")
            made.append(PictureLabel(label or classes[value], mask=values == value))
    return made


def _binary_mask(image: Image.Image, is_lossy: bool) -> np.ndarray:
    """(height, width) of booleans: the pixels of a mask of one class, as the picture shows them. Black is outside; shades count half, where
    there is white or compression blurs."""
    values, white = _grey_values(image) if image.mode not in ("I", "F", "I;16") else (np.asarray(image), 65535)
    return values > (white // 2 if is_lossy or values.max() > 0.9 * white else 0)


def _class_values(image: Image.Image, is_lossy: bool, classes: dict[int, str]) -> np.ndarray:
    """(height, width) of whole numbers, one for each class: grey values, or a coloured palette's indices."""
    if is_lossy:
        raise Contradiction(
            "a mask of several classes is compressed with losses, which blurs its numbers: save it as PNG"
        )
    if image.mode in ("1", "L", "I", "I;16"):
        return np.asarray(image).astype(np.int64)
    if image.mode != "P":
        return _grey_values(image)[0]
    colours, indices = np.asarray(image.convert("RGB")), np.asarray(image).astype(np.int64)
    if (colours == colours[..., :1]).all():  # programs sort the greys of a palette, e.g. by how often they occur
        return colours[..., 0].astype(np.int64)
    if image.format == "GIF" or (colours.any(-1) != (indices > 0)).any():
        raise Contradiction(
            "a program numbered the colours of a mask (black is 0): save it with one grey value for each class"
        )
    return indices


def _grey_values(image: Image.Image) -> tuple[np.ndarray, int]:
    """(grey values of a picture of 8 bits, 255). One colour beside black counts as white. Raises Skipped for several, and transparency."""
    colours = np.asarray(image.convert("RGBA"))
    if (colours[..., 3] < 255).any():
        raise Skipped("its mask has transparent parts: save it as grey, black outside")
    values: np.ndarray = colours[..., :3].max(-1).astype(np.int64)
    if (colours[..., :3] != values[..., None]).any():
        marked = colours[values > 0]
        if (marked != marked[:1]).any():
            raise Skipped("its mask is a colour picture: save it with one number per class")
        values = (values > 0) * 255
    return values, 255
