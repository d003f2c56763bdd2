"""Readers of boxes and masks on 2D images: COCO, Pascal VOC, YOLO, mask images.

Each yields annotations with the image name that the source states; `pictures.py` pairs them with
images.
"""

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
from curation.readers.dataset import SourceDataset
from curation.readers.pictures import (
    Annotation,
    ClassNames,
    Contradiction,
    DatasetFiles,
    NoClassNames,
    PictureLabel,
    Skip,
    Targets,
    check_area,
    check_mask,
    check_size,
    parse_box,
    read_class_names,
    relative_name,
    size_mismatch,
    unusable_targets,
)
from curation.readers.pixels import Skipped, error_cause, skip_on_error
from dataset_builders.errors import BadInput, first_validation_error
from dataset_builders.images.lookup import IMAGE_SUFFIXES
from dataset_builders.source_files import read_json, read_text, read_yaml

# COCO

CocoId = StrictInt | StrictStr
"""Id in a COCO file. Types are strict: 1 and "1" are different ids."""


class CocoImage(BaseModel):
    """An image of a COCO file; `patient_id` is our extension."""

    id: CocoId
    file_name: str
    height: int | None = None
    width: int | None = None
    patient_id: Annotated[str | None, BeforeValidator(lambda value: None if value is None else str(value))] = None


class CocoCategory(BaseModel):
    """A category of a COCO file."""

    id: CocoId
    name: str


class CocoAnnotation(BaseModel):
    """An annotation of a COCO file: a mask if it has a segmentation, else a box, else a class."""

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


def read_coco(dataset: SourceDataset, files: DatasetFiles) -> Iterator[Annotation]:
    """Read a COCO JSON.

    Images that share an id are refused, since their annotations cannot be told apart.

    Raises:
        BadInput: not a COCO JSON, or its categories are inconsistent (`read_class_names`).
    """
    file = files.annotation_root
    try:
        document = CocoFile.model_validate(read_json(file))
    except ValidationError as error:
        problem = first_validation_error(error)
        raise BadInput(f"dataset {dataset.name}: {file} is not a COCO JSON ({problem}).") from None

    categories = [(category.id, category.name) for category in document.categories]
    names, _ = read_class_names(
        f"dataset {dataset.name}",
        [file],
        lambda _: categories,
        "a list of categories",
        "Correct it.",
    )

    annotations_by_image: dict[int | str, list[CocoAnnotation]] = defaultdict(list)
    for annotation in document.annotations:
        annotations_by_image[annotation.image_id].append(annotation)

    id_counts = Counter(image.id for image in document.images)
    for image in document.images:
        targets: Targets = partial(_coco_targets, image, annotations_by_image[image.id], names)

        if id_counts[image.id] > 1:
            targets = unusable_targets(Contradiction("several images in the JSON share its id"))
        yield Annotation(image.file_name, (file,), targets, {"patient": image.patient_id})
    reason = "annotations of an image that is not listed in the JSON"
    files.skips += [
        Skip(dataset.name, f"image id {key}", reason, True) for key in annotations_by_image if key not in id_counts
    ]


def _coco_targets(
    image: CocoImage,
    annotations: list[CocoAnnotation],
    names: dict[int | str, str],
    shape: tuple[int, int],
) -> list[PictureLabel]:
    """Return the targets of a COCO image, checked against the image and for contradictions."""
    check_size(image.height, image.width, shape)
    targets = []
    for annotation in annotations:
        if annotation.category_id not in names:
            raise Contradiction(f"an annotation's category is not listed (category {annotation.category_id!r})")
        label = names[annotation.category_id]

        if len(annotation.bbox or ()) not in (0, 4):
            raise Skipped("a box is not four numbers")
        if annotation.segmentation:
            mask = decode_segmentation(annotation.segmentation, shape)
            check_mask(mask, annotation.segmentation, annotation.bbox, annotation.area)
            targets.append(PictureLabel(label, mask=mask))
        elif not annotation.bbox:
            targets.append(PictureLabel(label))
        else:
            box = parse_box(annotation.bbox, shape)
            check_area(box, annotation.area)
            targets.append(PictureLabel(label, box))
    return targets


def decode_segmentation(segmentation: Any, shape: tuple[int, int]) -> np.ndarray:
    """Decode a COCO segmentation: polygons (their union) or RLE, compressed or not.

    Args:
        segmentation: list of polygons (x, y, x, y ...), or a dict with `counts` and `size`.
        shape: (height, width) of the image.

    Returns:
        (height, width) bool.

    Raises:
        Skipped: the segmentation cannot be decoded.
        Contradiction: a polygon leaves the image, or the mask has another size.
    """
    from pycocotools import mask as coco

    with skip_on_error("a segmentation cannot be decoded"):  # pycocotools raises bare exceptions
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
            raise Skipped("a segmentation cannot be decoded (its runs do not add up to the image)")

        return coco.decode(segmentation if is_compressed else coco.frPyObjects(segmentation, *shape)).astype(bool)


def fill_polygons(polygons: Sequence[np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    """Rasterise the union of polygons, clipped to the image.

    Args:
        polygons: flat coordinate arrays (x, y, x, y ...) in pixels.
        shape: (height, width) of the image.

    Returns:
        (height, width) bool.

    Raises:
        Skipped: a corner is so far outside that pycocotools cannot fill the polygon.
    """
    from pycocotools import mask as coco

    if not all((np.abs(polygon) <= 4 * max(shape)).all() for polygon in polygons):
        raise Skipped("a polygon lies outside its image")

    united = coco.merge(coco.frPyObjects([polygon.tolist() for polygon in polygons], *shape))
    return coco.decode(united).astype(bool)


# Pascal VOC


def read_voc(dataset: SourceDataset, files: DatasetFiles) -> Iterator[Annotation]:
    """Read Pascal VOC XMLs; each belongs to the image of the same path.

    An XML whose `filename` is another image of the dataset is refused. Raises BadInput if there are
    no XMLs.
    """
    xml_paths = [path for path in files.annotation_files if path.suffix.lower() == ".xml"]
    if not xml_paths:
        raise BadInput(
            f"dataset {dataset.name}: no .xml files below {files.annotation_root}. Set "
            "`annotations` to the folder with the XMLs."
        )

    images = {_stem(path.name) for path in files.pictures}
    for xml_path in xml_paths:
        image_name = strip_suffix(relative_name(xml_path, files.annotation_root))
        try:
            root = ElementTree.fromstring(xml_path.read_bytes())

            stated_stem = _stem(root.findtext("filename") or "")
            targets: Targets = partial(_voc_targets, root)
            if stated_stem in images and stated_stem != _stem(image_name):
                targets = unusable_targets(Contradiction("its XML belongs to another image"))
        except (ElementTree.ParseError, ValueError, LookupError) as error:
            targets = unusable_targets(f"its XML cannot be parsed ({type(error).__name__})")
        yield Annotation(image_name, (xml_path,), targets)


def _stem(path: str) -> str:
    """Return the file name of a path without its suffix."""
    return strip_suffix((split_path(path) or ("",))[-1])


def _voc_targets(root: ElementTree.Element, shape: tuple[int, int]) -> list[PictureLabel]:
    """Return the boxes of the objects; VOC coordinates are 1-based and inclusive."""
    try:
        height, width = (float(root.findtext(f"size/{name}") or 0) for name in ("height", "width"))
        check_size(height, width, shape)
        targets = []
        for element in root.iter("object"):
            left_px, top_px, right_px, bottom_px = (
                float(element.findtext(f"bndbox/{name}") or "") for name in ("xmin", "ymin", "xmax", "ymax")
            )
            box = parse_box((left_px - 1, top_px - 1, right_px - left_px + 1, bottom_px - top_px + 1), shape)
            targets.append(PictureLabel((element.findtext("name") or "").strip(), box))
    except ValueError:
        raise Skipped("its XML has a size or box that is not a number") from None

    if not all(target.label for target in targets):
        raise Skipped("an object has no name")
    return targets


# YOLO

CLASS_LIST_PATTERNS = ("classes.txt", "*.names", "*.labels", "*.yaml", "*.yml", "notes.json")
"""Class lists: a text file (line number = class number), YAML with `names`, or Label Studio's
JSON.
"""


def is_class_list(path: Path) -> bool:
    """Return True if a file is named like a YOLO class list."""
    return any(fnmatch(path.name.lower(), pattern) for pattern in CLASS_LIST_PATTERNS)


def read_yolo(dataset: SourceDataset, files: DatasetFiles) -> Iterator[Annotation]:
    """Read YOLO text files: one line per target, relative to the image size.

    A line consists of the class number and either the centre and size of a box, or the corners of a
    polygon. Class lists are searched for among the files and up to two folders above them
    (data.yaml is two folders above `train/labels`).

    Raises:
        BadInput: see `read_class_names`.
    """
    class_names: ClassNames = dataset.named_classes, ()
    if not dataset.named_classes:
        folders = {folder for root in (files.annotation_root, dataset.path) for folder in (root, *root.parents[:2])}
        beside_folders = [path for folder in folders for path in folder.glob("*.*") if path.is_file()]
        class_lists = filter(is_class_list, [*files.annotation_files, *files.all_files, *beside_folders])
        form = "a list of classes (data.yaml, classes.txt)"
        remedy = "Give `classes: {0: name, ...}` in sources.yaml."
        class_names = read_class_names(f"dataset {dataset.name}", class_lists, _read_class_list, form, remedy)
    for path in files.annotation_files:
        if path.suffix.lower() == ".txt" and not is_class_list(path):
            image = strip_suffix(relative_name(path, files.annotation_root))
            yield Annotation(image, (path, *class_names[1]), partial(_yolo_targets, path, class_names[0]))


def _read_class_list(path: Path) -> list[tuple[Any, Any]] | None:
    """Return (number, name) pairs of a class list; None for YAML about something else.

    Raises errors of many types if the list is malformed.
    """
    if path.suffix == ".json":
        return [(int(category["id"]), category["name"]) for category in read_json(path)["categories"]]
    if path.suffix not in (".yaml", ".yml"):
        return list(enumerate(read_text(path).rstrip().splitlines()))
    document = read_yaml(path)
    if not isinstance(document, dict) or "names" not in document:
        return None

    names: Any = None if "kpt_shape" in document else document["names"]  # keypoints have no region
    pairs = [(int(number), name) for number, name in (names.items() if isinstance(names, dict) else enumerate(names))]

    # A wrong `nc` suggests a list of another dataset.
    if document.get("nc", len(pairs)) != len(pairs):
        raise ValueError("the number of names differs from `nc`")
    return pairs


def _yolo_targets(text: Path, classes: dict[int, str], shape: tuple[int, int]) -> list[PictureLabel]:
    try:
        rows = [[float(word) for word in line.split()] for line in read_text(text).splitlines() if line.strip()]
    except (BadInput, ValueError):
        raise Skipped("its text file is empty, not UTF-8, or contains a value that is not a number") from None
    return [_yolo_target(label, shares, classes, shape) for label, *shares in rows]


def _yolo_target(label: float, fractions: list[float], classes: dict[int, str], shape: tuple[int, int]) -> PictureLabel:
    # A number that is not whole, such as 1.5, is not in any class list, so this check refuses it as
    # well.
    if label not in classes:
        raise Contradiction(f"a class has no name (class {label:g})")
    if any(not -0.01 <= fraction <= 1.01 for fraction in fractions):
        raise Contradiction("its text file has coordinates outside 0 to 1")

    name = classes[int(label)]
    height, width = shape
    if len(fractions) == 4:
        x, y, w, h = fractions
        return PictureLabel(name, parse_box(((x - w / 2) * width, (y - h / 2) * height, w * width, h * height), shape))
    corners = [fraction * (height if index % 2 else width) for index, fraction in enumerate(fractions)]
    return PictureLabel(name, mask=decode_segmentation([corners], shape))


# Masks

MASK_SUFFIX = re.compile(r"[\W_](mask|seg|segmentation|label|labels|gt|annotation)$", re.IGNORECASE)
"""Words that annotation tools append to an image's name to name its mask."""


def read_masks(dataset: SourceDataset, files: DatasetFiles) -> Iterator[Annotation]:
    """Read mask images.

    The layout depends on sources.yaml. With the pattern `label`, mask names follow that pattern. If
    `classes` is a dict, each image has one indexed mask of the same path (a word like `_mask` may
    follow). If `classes` is a list, masks are named `<image>_<class>`. Otherwise there is one mask
    per class, in a folder named like the class.

    Raises:
        NoClassNames: masks are named like images, and `classes` does not define their values.
    """
    has_own_folder = files.annotation_root != dataset.path
    cases = {
        path: case
        for path in files.annotation_files
        if path.suffix.lower() in IMAGE_SUFFIXES
        and (case := dataset.case_of(dataset.label, relative_name(path, files.annotation_root)))
        and (dataset.label or has_own_folder or MASK_SUFFIX.search(path.stem))
    }
    masks = list(cases)

    images = [relative_name(path, dataset.path) for path in files.pictures if path not in cases]
    names = [strip_suffix(relative_name(mask, files.annotation_root)) for mask in masks]
    bare_names = [MASK_SUFFIX.sub("", name) for name in names]
    if dataset.label:
        labels_and_images = [(label, image) for image, label in cases.values()]
    elif dataset.named_classes:
        labels_and_images = [("", name) for name in (names if have_common_path(names, images) else bare_names)]
    elif dataset.listed_classes:
        labels_and_images = [_split_class(name, dataset.listed_classes) for name in names]
    else:
        labels_and_images = [(name.partition("/")[0], name.partition("/")[2]) for name in names]
        if have_common_path(bare_names, images) or not any(image for _, image in labels_and_images):
            raise NoClassNames(
                f"dataset {dataset.name}: its masks are not in class folders. Give `classes: {{1: "
                "name, ...}` if their "
                "values are class numbers, or a list of class names if their file names end in "
                "these."
            )

    masks_by_image: dict[str, list[tuple[str, Path]]] = defaultdict(list)
    for mask, (label, image) in zip(masks, labels_and_images, strict=True):
        masks_by_image[image].append((label, mask))
    for image, image_masks in masks_by_image.items():
        by_label = sorted(image_masks, key=lambda label_and_path: label_and_path[0])
        targets: Targets = partial(_mask_targets, by_label, dataset.named_classes)
        if len(dict(image_masks)) < len(image_masks):
            targets = unusable_targets("several masks share a name")
        yield Annotation(image, tuple(mask for _, mask in image_masks), targets)


def _split_class(name: str, classes: tuple[str, ...]) -> tuple[str, str]:
    """Split a mask's name into (class, image), by the longest class name at its end.

    `P1/7_left lung` -> ("left lung", "P1/7"); without a match: ("", name).
    """
    for label in sorted(classes, key=len, reverse=True):
        # A separator precedes the class, and the name of the image the separator.
        match = re.fullmatch(rf"(.*[^/])[-_. ]{re.escape(label)}", name, re.IGNORECASE | re.DOTALL)
        if match:
            return label, match[1]
    return "", name


def _mask_targets(masks: list[tuple[str, Path]], classes: dict[int, str], shape: tuple[int, int]) -> list[PictureLabel]:
    """Return one target per class in an image's masks; label "" marks an indexed mask."""
    targets: list[PictureLabel] = []
    for label, path in masks:
        try:
            with Image.open(path) as image:
                image.load()
                if getattr(image, "n_frames", 1) > 1 and image.format != "MPO":  # phones store previews as MPO pages
                    raise Skipped("its mask has several pages: save each page as a file")

                # Lossy compression blurs class numbers, so it is acceptable for single-class masks
                # only.
                is_lossy = image.format in ("JPEG", "MPO") or image.info.get("compression") == "jpeg"
                is_lossy |= image.format == "WEBP" and b"VP8L" not in path.read_bytes()[:64]
                values = _binary_mask(image, is_lossy) if label else _class_values(image, is_lossy)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise Skipped(f"its mask cannot be read ({error_cause(error)})") from None
        if values.shape != shape:
            raise Skipped(size_mismatch("its mask", values.shape, shape))

        for value in (int(value) for value in np.unique(values) if value):
            if not label and value not in classes:
                raise Contradiction(f"a value of the mask has no name in `classes` (value {value})")
            targets.append(PictureLabel(label or classes[value], mask=values == value))
    return targets


def _binary_mask(image: Image.Image, is_lossy: bool) -> np.ndarray:
    """Return the foreground of a single-class mask as (height, width) bool.

    Any non-black pixel is foreground, except that values up to half of white are background if the
    mask contains white or is compressed with losses.
    """
    values, white = _grey_values(image) if image.mode not in ("I", "F", "I;16") else (np.asarray(image), 65535)
    return values > (white // 2 if is_lossy or values.max() > 0.9 * white else 0)


def _class_values(image: Image.Image, is_lossy: bool) -> np.ndarray:
    """Return the class numbers of an indexed mask (greys or palette indices) as (height, width)."""
    if is_lossy:
        raise Contradiction("an indexed mask has lossy compression, which blurs class numbers: save it as PNG")
    if image.mode in ("1", "L", "I", "I;16"):
        return np.asarray(image).astype(np.int64)
    if image.mode != "P":
        return _grey_values(image)[0]

    colours, indices = np.asarray(image.convert("RGB")), np.asarray(image).astype(np.int64)
    if (colours == colours[..., :1]).all():  # grey palettes may be in any order
        return colours[..., 0].astype(np.int64)
    if image.format == "GIF" or (colours.any(-1) != (indices > 0)).any():
        raise Contradiction("an indexed mask has arbitrary palette indices: save it with one grey value per class")
    return indices


def _grey_values(image: Image.Image) -> tuple[np.ndarray, int]:
    """Return (8-bit grey values, 255); a single colour on black counts as white.

    Raises Skipped if the mask has several colours or transparent pixels.
    """
    colours = np.asarray(image.convert("RGBA"))
    if (colours[..., 3] < 255).any():
        raise Skipped("its mask has transparent pixels: save it as greyscale on black")
    values: np.ndarray = colours[..., :3].max(-1).astype(np.int64)
    if (colours[..., :3] != values[..., None]).any():
        marked = colours[values > 0]
        if (marked != marked[:1]).any():
            raise Skipped("its mask has several colours: save it with one grey value per class")
        values = (values > 0) * 255
    return values, 255
