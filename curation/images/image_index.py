"""Images in a folder, or at an address of fsspec (s3://, gs://, hf://datasets/ORG/NAME ...) as image files or Parquet; and their index:
sha256, size and perceptual hash of each, in a table that a later run reuses, with unreadable files listed.

Folders and addresses have `names`, `state` (what changes when an image does) and `read`, and can be sent to another process.
See also: embedding (`curation/mining/embedding.py`), captions (`image_table.py`).
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, cached_property, lru_cache
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from PIL import Image
from tqdm import tqdm

from curation.images.file_names import assign_image_ids
from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from dataset_builders.hub.client import endpoint
from dataset_builders.images.lookup import IMAGE_SUFFIXES, ImageError
from dataset_builders.images.picture import ShownPicture, find_white_levels, make_picture
from eval_harness.records.names import replace_surrogates

VERSION_ATTRIBUTES = (
    "ETag",
    "etag",
    "md5Hash",
    "blob_id",
    "checksum",
    "LastModified",
    "last_modified",
    "mtime",
    "created",
)
"""File-system attributes that differ once a file was changed; the first available one is used."""


def list_files(folder: Path) -> list[str]:
    """The relative posix paths of everything below a folder that is no folder, sorted; what is hidden is left out.

    Links to folders are followed. Each folder is gone through once, under its own path rather than a link's: a link to a folder above
    would never end.
    """
    found: list[str] = []
    seen: set[str] = set()
    waiting = [folder]
    while waiting:
        for root, folders, names in os.walk(waiting.pop(0)):
            real = os.path.realpath(root)
            folders[:] = [] if real in seen else sorted(name for name in folders if not name.startswith("."))
            if real not in seen:
                seen.add(real)
                waiting += [Path(root, name) for name in folders if Path(root, name).is_symlink()]
                shown = (name for name in names if not name.startswith("."))
                found += [Path(root, name).relative_to(folder).as_posix() for name in shown]
    return sorted(found)


class ImageFolder:
    """All image files below a folder (`names_below`)."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._said = path

    def __str__(self) -> str:
        return str(self._said)

    def names(self) -> list[str]:
        """Relative posix paths, sorted. Raises BadInput if there are none."""
        if not self.path.is_dir():
            raise BadInput(f"{self}: there is no such folder. Give the folder that holds the images.")
        found = [name for name in list_files(self.path) if Path(name).suffix.lower() in IMAGE_SUFFIXES]
        if not found:
            raise BadInput(
                f"{self}: holds no images ({', '.join(IMAGE_SUFFIXES)}). DICOM files become images by `medprobe curate deidentify`; "
                "`medprobe curate gmai` reads NIfTI."
            )
        return found

    def state(self, name: str) -> tuple[int, int]:
        """Size and time of change in nanoseconds: they change when the image does. Raises OSError where there is none."""
        path = self.path / name
        found = path.stat()
        if not path.is_file():
            raise OSError(errno.EINVAL, "is no file")
        return found.st_size, found.st_mtime_ns

    def read(self, name: str) -> bytes:
        """The image's bytes. Raises OSError."""
        return (self.path / name).read_bytes()


class RemoteImages:
    """Image files and the rows of Parquet files below an address. A row is called FILE.parquet#NUMBER."""

    def __init__(self, address: str) -> None:
        import fsspec

        self.address = address
        try:
            options = {"endpoint": endpoint()} if address.startswith("hf://") else {}
            self._system, self._root = fsspec.core.url_to_fs(address, **options)
        except (ImportError, ValueError) as error:
            raise BadInput(f"{address}: cannot be opened ({error}).") from None
        self._lock = threading.Lock()
        self._starts = cache(self._read_starts)
        self._column = lru_cache(maxsize=2)(self._read_column)  # the images of a row group follow each other

    def __reduce__(self) -> tuple[type[RemoteImages], tuple[str]]:
        return RemoteImages, (self.address,)

    def __str__(self) -> str:
        return self.address

    @cached_property
    def _files(self) -> dict[str, dict[str, Any]]:
        """Path below the address -> what the file system says of the file."""
        with self._reaching():
            found = self._system.find(self._root, detail=True)
        start = len(self._root.rstrip("/")) + 1
        return {path[start:]: about for path, about in sorted(found.items()) if len(path) > start}

    def names(self) -> list[str]:
        """Paths below the address, sorted. Raises BadInput if there are none, or it cannot be reached."""
        found: list[str] = []
        for path in self._files:
            suffix = Path(path).suffix.lower()
            if suffix in IMAGE_SUFFIXES:
                found.append(path)
            elif suffix == ".parquet":
                found += [f"{path}#{row:07}" for row in range(self._starts(path)[-1])]
        if not found:
            raise BadInput(
                f"{self}: holds no images ({', '.join(IMAGE_SUFFIXES)}, .parquet with a column of images), or does not exist."
            )
        return sorted(found)

    def state(self, name: str) -> tuple[int, int]:
        """The file's size and a number made of what its file system tells versions apart by."""
        about = self._files.get(name.partition("#")[0])
        if about is None:
            raise FileNotFoundError(errno.ENOENT, "is not there any more")
        version = next((about[key] for key in VERSION_ATTRIBUTES if about.get(key)), None)
        return int(about.get("size") or 0), int.from_bytes(hashlib.sha256(str(version).encode()).digest()[:7], "big")

    def read(self, name: str) -> bytes:
        """The file, or the row's image. Raises BadInput if the address cannot be reached: its images are no broken ones."""
        path, _, row = name.partition("#")
        with self._reaching(name, FileNotFoundError, ImageError, BadInput):
            if not row:
                return bytes(self._system.cat_file(f"{self._root}/{path}"))
            with self._lock:
                starts = self._starts(path)
                group = bisect_right(starts, int(row)) - 1
                data = self._column(path, group)[int(row) - starts[group]].as_py()
            if data is None:
                raise ImageError("its row holds no image")
            return bytes(data)

    def _read_starts(self, path: str) -> list[int]:
        """The first row of each row group, then the number of rows; [0] where the file has no column of images."""
        import pyarrow.parquet as pq

        with self._reaching(path), self._open(path) as file:
            parquet = pq.ParquetFile(file)
            about = parquet.metadata
            groups = range(about.num_row_groups if _image_column(parquet.schema_arrow) else 0)
            return list(accumulate((about.row_group(group).num_rows for group in groups), initial=0))

    def _read_column(self, path: str, group: int) -> Any:
        """The images' bytes of a row group."""
        import pyarrow.parquet as pq

        with self._open(path) as file:
            parquet = pq.ParquetFile(file)
            name = _image_column(parquet.schema_arrow)
            return parquet.read_row_group(group, columns=[f"{name}.bytes"]).column(0).combine_chunks().field("bytes")

    def _open(self, path: str) -> Any:
        return self._system.open(f"{self._root}/{path}", "rb")

    @contextmanager
    def _reaching(self, name: str = "", *passed: type[Exception]) -> Iterator[None]:
        """Raise BadInput for whatever a file system raises, but for what is passed on."""
        try:
            yield
        except passed:
            raise
        except Exception as error:
            words = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            where = f"{self}{'/' * bool(name)}{name}"
            raise BadInput(f"{where}: cannot be read ({words}). Check the address and its credentials.") from error


def _image_column(schema: Any) -> str | None:
    """The column with images as `datasets` stores them (bytes and path), `image` before others; None where there is none."""
    import pyarrow as pa

    found = [
        field.name for field in schema if pa.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0
    ]
    return "image" if "image" in found else next(iter(found), None)


ImageSource = ImageFolder | RemoteImages


def open_image_source(where: str | Path) -> ImageSource:
    """The images of a folder or of an address. Raises BadInput if what an address needs is not installed, or it is none."""
    return RemoteImages(str(where)) if "://" in str(where) else ImageFolder(Path(where))


INDEX_FILE = "images.parquet"
UNREADABLE_FILE = "unreadable.csv"
InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")


def prefetch(work: Callable[[InputT], OutputT], items: Iterable[InputT], window: int = 64) -> Iterator[OutputT]:
    """`work` of each item in order, done by threads that run at most `window` items ahead."""
    source = iter(items)
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        waiting: list[Future[OutputT]] = [pool.submit(work, item) for item in islice(source, window)]
        while waiting:
            done = waiting.pop(0).result()
            waiting += [pool.submit(work, item) for item in islice(source, 1)]
            yield done


def decode_image(data: bytes) -> ShownPicture:
    """The picture that models are shown (`make_picture`), of a file alone: its greys have the fewest of 8, 12 and 16 bits that hold them.

    Raises ImageError where the bytes are no complete image, or hold greys that no fixed rule brings to 8 bits.
    """
    return make_picture(data, find_white_levels([data]) or None)


def decode_rgb(data: bytes) -> Image.Image:
    """The pixels of `shown_picture` in RGB. Raises ImageError as it does."""
    return decode_image(data).pixels.convert("RGB")


def rescale_to_uint8(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Numbers of any shape -> uint8, `low` and less black, `high` and more white; what is not finite is black."""
    if high <= low:
        return np.zeros(values.shape, np.uint8)
    scaled = np.clip((np.where(np.isfinite(values), values, low).astype(np.float64) - low) / (high - low), 0, 1)
    grey: np.ndarray = (scaled * 255).round().astype(np.uint8)
    return grey


def list_images(images: Path | ImageSource) -> list[str]:
    """The names of all images, sorted, but for those that no table can hold: bytes of another encoding than UTF-8. Raises BadInput where
    there are none."""
    files = open_image_source(images) if isinstance(images, Path) else images
    return [name for name in files.names() if name == replace_surrogates(name)]


def index_images(images: Path | ImageSource, out: Path) -> pd.DataFrame:
    """Write the table of readable images of a folder or an address and return it with the column `file` beside the stored ones: image
    (the id of the file), sha256, phash, width, height, size, changed.

    phash is 16 hex digits (64 bits). Rows of an earlier run are reused where size and time of change (or the version that an object
    store says) are the same. Files that are no readable image are written to unreadable.csv by id with the reason and left out.
    """
    import imagehash

    files = open_image_source(images) if isinstance(images, Path) else images
    names = files.names()
    old = pd.read_parquet(out / INDEX_FILE) if (out / INDEX_FILE).is_file() else None
    written = [replace_surrogates(name) for name in names]
    folder = files.path if isinstance(files, ImageFolder) else None
    ids = assign_image_ids(folder, written, out)
    known = {} if old is None else {row["image"]: row for row in old.to_dict("records")}

    def look(name: str) -> dict[str, object]:
        image = ids[replace_surrogates(name)]
        if name != replace_surrogates(name):
            return {"image": image, "reason": "its name is not UTF-8 text: rename the file"}
        try:
            size, changed = files.state(name)
            had = known.get(image)
            if had and (had["size"], had["changed"]) == (size, changed):
                return {str(column): value for column, value in had.items()} | {"file": name}
            data = files.read(name)
            picture = decode_rgb(data)
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
    replace_file(out / INDEX_FILE, lambda path: index.drop(columns="file").to_parquet(path, index=False))
    replace_file(
        out / UNREADABLE_FILE, lambda path: pd.DataFrame(bad, columns=["image", "reason"]).to_csv(path, index=False)
    )
    return index


def perceptual_hashes(folder: Path, names: Iterable[str]) -> dict[str, int]:
    """The perceptual hash (64 bits) of each image. Raises BadInput for one that cannot be read."""
    import imagehash

    hashes = {}
    for name in sorted(names):
        try:
            hashes[name] = int(str(imagehash.phash(decode_rgb((folder / name).read_bytes()))), 16)
        except (ImageError, OSError) as error:
            raise BadInput(f"{folder / name}: {error}. Replace it, or leave out its rows.") from None
    return hashes
