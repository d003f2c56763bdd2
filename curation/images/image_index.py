"""Goes through the images of a folder or an address: sha256, size and perceptual hash of each, in a table that a later run reuses;
unreadable files listed.

See also: reading them (`image_files.py`), embedding (`encoders.py`), captions (`image_table.py`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
from PIL import Image, ImageOps
from tqdm import tqdm

from curation.images.file_names import ids_of
from curation.images.image_files import ImageFiles, ImageFolder, images_at
from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from dataset_builders.images.lookup import ImageError, check_image, opened
from eval_harness.records.names import storable

INDEX = "images.parquet"
UNREADABLE = "unreadable.csv"
LONGEST = 500
"""An image so many times longer than wide is listed as unreadable: encoders scale the short side to 224 pixels and more, which
would make gigabytes of a strip of one pixel."""
In = TypeVar("In")
Out = TypeVar("Out")


def prefetch(work: Callable[[In], Out], items: Iterable[In], window: int = 64) -> Iterator[Out]:
    """`work` of each item in order, done by threads that run at most `window` items ahead."""
    source = iter(items)
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        waiting: list[Future[Out]] = [pool.submit(work, item) for item in islice(source, window)]
        while waiting:
            done = waiting.pop(0).result()
            waiting += [pool.submit(work, item) for item in islice(source, 1)]
            yield done


def open_rgb(data: bytes) -> Image.Image:
    """The picture in RGB as a reader sees it: EXIF orientation applied, 16-bit and float grey stretched to its own
    range.

    Raises ImageError where the bytes are no complete image.
    """
    check_image(data)
    with opened(data) as image:
        picture = ImageOps.exif_transpose(image)
        if picture.mode.startswith(("I", "F")):  # Pillow would clip these at 255
            values = np.asarray(picture, np.float64)
            finite = values[np.isfinite(values)]
            if not finite.size:
                raise ImageError("the image holds no numbers")
            picture = Image.fromarray(stretched(values, finite.min(), finite.max()))
        return picture.convert("RGB")


def stretched(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Numbers of any shape -> uint8, `low` and less black, `high` and more white; what is not finite is black."""
    if high <= low:
        return np.zeros(values.shape, np.uint8)
    scaled = np.clip((np.where(np.isfinite(values), values, low).astype(np.float64) - low) / (high - low), 0, 1)
    grey: np.ndarray = (scaled * 255).round().astype(np.uint8)
    return grey


def list_images(images: Path | ImageFiles) -> list[str]:
    """The names of all images, sorted, but for those that no table can hold. Raises BadInput where there are none."""
    return [name for name in _files(images).names() if not _unwritable(name)]


def _files(images: Path | ImageFiles) -> ImageFiles:
    return images_at(images) if isinstance(images, Path) else images


def _unwritable(name: str) -> bool:
    """True if a file's name is no text: bytes of another encoding, which no table can hold."""
    return name != storable(name)


def index_images(images: Path | ImageFiles, out: Path) -> pd.DataFrame:
    """Write the table of readable images of a folder or an address and return it with the column `file` beside the stored ones: image
    (the id of the file), sha256, phash, width, height, size, changed.

    phash is 16 hex digits (64 bits). Rows of an earlier run are reused where size and time of change (or the version that an object
    store says) are the same. Files that are no readable image are written to unreadable.csv by id with the reason and left out.
    """
    import imagehash

    files = _files(images)
    names = files.names()
    old = pd.read_parquet(out / INDEX) if (out / INDEX).is_file() else None
    written = [storable(name) for name in names]
    folder = files.path if isinstance(files, ImageFolder) else None
    ids = ids_of(folder, written, out)
    known = {} if old is None else {row["image"]: row for row in old.to_dict("records")}

    def look(name: str) -> dict[str, object]:
        image = ids[storable(name)]
        if _unwritable(name):
            return {"image": image, "reason": "its name is not UTF-8 text: rename the file"}
        try:
            size, changed = files.state(name)
            had = known.get(image)
            if had and (had["size"], had["changed"]) == (size, changed):
                return {str(column): value for column, value in had.items()} | {"file": name}
            data = files.read(name)
            picture = open_rgb(data)
            if max(picture.size) > LONGEST * min(picture.size):
                pixels = f"{picture.width} x {picture.height} pixels"
                return {"image": image, "reason": f"is {pixels}: too long and narrow for an encoder"}
        except ImageError as error:
            return {"image": image, "reason": str(error)}
        except OSError as error:  # its text names the file
            return {"image": image, "reason": error.strerror or type(error).__name__}
        return {
            "image": image,
            "sha256": hashlib.sha256(data).hexdigest(),
            "phash": str(imagehash.phash(picture)),
            "width": picture.width,
            "height": picture.height,
            "size": size,
            "changed": changed,
            "file": name,
        }

    rows = list(tqdm(prefetch(look, names), total=len(names), desc="reading images", unit="image", disable=None))
    good = [row for row in rows if "reason" not in row]
    bad = [row for row in rows if "reason" in row]
    if not good:
        raise BadInput(
            f"{images}: none of its {len(names)} images can be read (the first: {written[0]}: {bad[0]['reason']})."
        )
    out.mkdir(parents=True, exist_ok=True)
    index = pd.DataFrame(good)
    replace_file(out / INDEX, lambda path: index.drop(columns="file").to_parquet(path, index=False))
    replace_file(
        out / UNREADABLE, lambda path: pd.DataFrame(bad, columns=["image", "reason"]).to_csv(path, index=False)
    )
    return index


def hashes_of(folder: Path, names: Iterable[str]) -> dict[str, int]:
    """The perceptual hash (64 bits) of each image. Raises BadInput for one that cannot be read."""
    import imagehash

    hashes = {}
    for name in sorted(names):
        try:
            hashes[name] = int(str(imagehash.phash(open_rgb((folder / name).read_bytes()))), 16)
        except (ImageError, OSError) as error:
            raise BadInput(f"{folder / name}: {error}. Replace it, or leave out its rows.") from None
    return hashes
