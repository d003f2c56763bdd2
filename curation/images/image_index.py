"""Index the images of a folder or of an fsspec address (s3://, gs://, hf://datasets/ORG/NAME ...).

At an address, images are image files or rows of Parquet files. The index has the sha256, size and
perceptual hash of each readable image, and a later run reuses it. Unreadable files are listed
separately.

The two kinds of image source, `ImageFolder` and `RemoteImages`, have the same methods: `names`,
`state` (which changes when the image changes) and `read`. Both can be pickled.
See also: embedding (`curation/mining/embedding.py`), captions (`image_table.py`).
"""

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

from curation.images.privacy import assign_image_ids
from dataset_builders.errors import BadInput, replace_surrogates
from dataset_builders.files import replace_file
from dataset_builders.hub.client import endpoint
from dataset_builders.images.lookup import IMAGE_SUFFIXES, ImageError
from dataset_builders.images.picture import decode_image

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
"""Attributes that change when a file changes; the first that the file system reports is used."""


def list_files(folder: Path) -> list[str]:
    """List all files below a folder, except hidden ones.

    Links to folders are followed. Each folder is visited only once, because a link to a parent
    folder would recurse forever, and under its own path rather than that of a link.

    Returns:
        Sorted POSIX paths relative to the folder.
    """
    paths: list[str] = []
    visited: set[str] = set()
    pending = [folder]
    while pending:
        for root, folders, names in os.walk(pending.pop(0)):
            real_path = os.path.realpath(root)
            folders[:] = [] if real_path in visited else sorted(name for name in folders if not name.startswith("."))
            if real_path not in visited:
                visited.add(real_path)
                pending += [Path(root, name) for name in folders if Path(root, name).is_symlink()]
                visible = (name for name in names if not name.startswith("."))
                paths += [Path(root, name).relative_to(folder).as_posix() for name in visible]
    return sorted(paths)


class ImageFolder:
    """All image files below a folder (see `list_files`)."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._display_path = path

    def __str__(self) -> str:
        return str(self._display_path)

    def names(self) -> list[str]:
        """Return sorted relative POSIX paths.

        Raises BadInput if the folder is missing or has no images.
        """
        if not self.path.is_dir():
            raise BadInput(f"{self}: folder not found. Give the folder with the images.")
        image_names = [name for name in list_files(self.path) if Path(name).suffix.lower() in IMAGE_SUFFIXES]
        if not image_names:
            raise BadInput(
                f"{self}: contains no images ({', '.join(IMAGE_SUFFIXES)}). Convert DICOM files "
                "with `medprobe curate "
                "deidentify`; `medprobe curate gmai` reads NIfTI."
            )
        return image_names

    def state(self, name: str) -> tuple[int, int]:
        """Return (size in bytes, modification time in ns), which change when the image does.

        Raises OSError.
        """
        path = self.path / name
        stat = path.stat()
        if not path.is_file():
            raise OSError(errno.EINVAL, "not a regular file")
        return stat.st_size, stat.st_mtime_ns

    def read(self, name: str) -> bytes:
        """Return the image's bytes. Raises OSError."""
        return (self.path / name).read_bytes()


class RemoteImages:
    """Image files, and rows of Parquet files (named FILE.parquet#NUMBER), below an address."""

    def __init__(self, address: str) -> None:
        import fsspec

        self.address = address
        try:
            options = {"endpoint": endpoint()} if address.startswith("hf://") else {}
            self._system, self._root = fsspec.core.url_to_fs(address, **options)
        except (ImportError, ValueError) as error:
            raise BadInput(f"{address}: cannot be opened ({error}). Check the address.") from None

        # The Parquet caches are shared by the prefetching threads.
        self._lock = threading.Lock()
        self._starts = cache(self._read_starts)
        self._column = lru_cache(maxsize=2)(self._read_column)  # few row groups suffice, since rows are read in order

    def __reduce__(self) -> "tuple[type[RemoteImages], tuple[str]]":
        return RemoteImages, (self.address,)

    def __str__(self) -> str:
        return self.address

    @cached_property
    def _files(self) -> dict[str, dict[str, Any]]:
        """Path below the address -> attributes that the file system reports."""
        with self._reaching():
            entries = self._system.find(self._root, detail=True)
        start = len(self._root.rstrip("/")) + 1
        return {path[start:]: attributes for path, attributes in sorted(entries.items()) if len(path) > start}

    def names(self) -> list[str]:
        """Return sorted paths below the address.

        Raises BadInput if the address is unreachable or has no images.
        """
        image_names: list[str] = []
        for path in self._files:
            suffix = Path(path).suffix.lower()
            if suffix in IMAGE_SUFFIXES:
                image_names.append(path)
            elif suffix == ".parquet":
                image_names += [f"{path}#{row:07}" for row in range(self._starts(path)[-1])]

        if not image_names:
            raise BadInput(
                f"{self}: does not exist or contains no images ({', '.join(IMAGE_SUFFIXES)}, "
                ".parquet with an image column)."
            )
        return sorted(image_names)

    def state(self, name: str) -> tuple[int, int]:
        """Return (file size in bytes, integer derived from the file's version attribute)."""
        attributes = self._files.get(name.partition("#")[0])
        if attributes is None:
            raise FileNotFoundError(errno.ENOENT, "no longer exists")

        # File systems report versions as text, dates or numbers; a hash turns all into an integer.
        version = next((attributes[key] for key in VERSION_ATTRIBUTES if attributes.get(key)), None)
        return int(attributes.get("size") or 0), int.from_bytes(
            hashlib.sha256(str(version).encode()).digest()[:7], "big"
        )

    def read(self, name: str) -> bytes:
        """Return the bytes of a file, or of a row's image.

        Raises:
            BadInput: the address is unreachable (this does not count as a broken image).
            ImageError: the row has no image.
            FileNotFoundError: the file no longer exists.
        """
        path, _, row = name.partition("#")
        with self._reaching(name, FileNotFoundError, ImageError, BadInput):
            if not row:
                return bytes(self._system.cat_file(f"{self._root}/{path}"))
            with self._lock:
                starts = self._starts(path)
                group = bisect_right(starts, int(row)) - 1
                data = self._column(path, group)[int(row) - starts[group]].as_py()
            if data is None:
                raise ImageError("its row has no image")
            return bytes(data)

    def _read_starts(self, path: str) -> list[int]:
        """Return the first row of each row group, then the row count; [0] if it has no images."""
        import pyarrow.parquet as pq

        with self._reaching(path), self._system.open(f"{self._root}/{path}", "rb") as file:
            parquet = pq.ParquetFile(file)
            metadata = parquet.metadata
            groups = range(metadata.num_row_groups if _image_column(parquet.schema_arrow) else 0)
            return list(accumulate((metadata.row_group(group).num_rows for group in groups), initial=0))

    def _read_column(self, path: str, group: int) -> Any:
        """Return the image bytes of a row group."""
        import pyarrow.parquet as pq

        with self._system.open(f"{self._root}/{path}", "rb") as file:
            parquet = pq.ParquetFile(file)
            name = _image_column(parquet.schema_arrow)
            return parquet.read_row_group(group, columns=[f"{name}.bytes"]).column(0).combine_chunks().field("bytes")

    @contextmanager
    def _reaching(self, name: str = "", *reraised: type[Exception]) -> Iterator[None]:
        """Turn any exception raised in the block into BadInput, except the types in `reraised`."""
        try:
            yield
        except reraised:
            raise
        except Exception as error:
            message = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            location = f"{self}{'/' * bool(name)}{name}"
            raise BadInput(f"{location}: cannot be read ({message}). Check the address and its credentials.") from error


def _image_column(schema: Any) -> str | None:
    """Return the name of the image column, or None if there is none.

    An image column has the layout of the `datasets` library: a struct with bytes and path. Of
    several, `image` is preferred.
    """
    import pyarrow as pa

    candidates = [
        field.name for field in schema if pa.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0
    ]
    return "image" if "image" in candidates else next(iter(candidates), None)


ImageSource = ImageFolder | RemoteImages


def open_image_source(location: str | Path) -> ImageSource:
    """Open a folder or an address. Raises BadInput for an invalid address or a missing driver."""
    return RemoteImages(str(location)) if "://" in str(location) else ImageFolder(Path(location))


INDEX_FILE = "images.parquet"
UNREADABLE_FILE = "unreadable.csv"
InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")


def prefetch(function: Callable[[InputT], OutputT], arguments: Iterable[InputT], window: int = 64) -> Iterator[OutputT]:
    """Apply a function in threads, at most `window` arguments ahead; yield the results in order."""
    # Bounded look-ahead: a plain `pool.map` would submit everything at once.
    source = iter(arguments)
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        pending: list[Future[OutputT]] = [pool.submit(function, item) for item in islice(source, window)]
        while pending:
            result = pending.pop(0).result()
            pending += [pool.submit(function, item) for item in islice(source, 1)]
            yield result


def decode_rgb(data: bytes) -> Image.Image:
    """Decode an image to RGB, as `decode_image` does. Raises ImageError."""
    return decode_image(data).pixels.convert("RGB")


def rescale_to_uint8(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Map values linearly to uint8.

    Args:
        values: numbers of any shape; non-finite ones become black.
        low: value that becomes black (0), as does anything below it.
        high: value that becomes white (255), as does anything above it.

    Returns:
        uint8 array of the same shape; all black if `high` <= `low`.
    """
    if high <= low:
        return np.zeros(values.shape, np.uint8)

    scaled = np.clip((np.where(np.isfinite(values), values, low).astype(np.float64) - low) / (high - low), 0, 1)
    return (scaled * 255).round().astype(np.uint8)


def list_images(images: Path | ImageSource) -> list[str]:
    """Return the sorted names of all images. Raises BadInput if there are none.

    Names that are not valid UTF-8 are omitted, since no table could store them.
    """
    source = open_image_source(images) if isinstance(images, Path) else images
    return [name for name in source.names() if name == replace_surrogates(name)]


def index_images(images: Path | ImageSource, out: Path) -> pd.DataFrame:
    """Write the table of readable images (`INDEX_FILE`) and return it.

    Rows of an earlier run are reused if size and modification time (or an object store's version)
    are unchanged. Unreadable files are written to unreadable.csv, by id and with the reason.

    Args:
        images: a folder, or an image source.
        out: working folder for the tables.

    Returns:
        One row per readable image: image (id), sha256, phash (16 hex digits, 64 bits), width,
        height,
        size, changed, and `file`, which is not stored.

    Raises:
        BadInput: none of the images can be read.
    """
    import imagehash

    source = open_image_source(images) if isinstance(images, Path) else images
    names = source.names()
    earlier_index = pd.read_parquet(out / INDEX_FILE) if (out / INDEX_FILE).is_file() else None
    storable_names = [replace_surrogates(name) for name in names]
    folder = source.path if isinstance(source, ImageFolder) else None
    ids = assign_image_ids(folder, storable_names, out)
    earlier_rows = {} if earlier_index is None else {row["image"]: row for row in earlier_index.to_dict("records")}

    def read_row(name: str) -> dict[str, object]:
        image = ids[replace_surrogates(name)]
        if name != replace_surrogates(name):
            return {"image": image, "reason": "its name is not valid UTF-8: rename the file"}
        try:
            size, changed = source.state(name)

            earlier_row = earlier_rows.get(image)
            if earlier_row and (earlier_row["size"], earlier_row["changed"]) == (size, changed):
                return {str(column): value for column, value in earlier_row.items()} | {"file": name}
            data = source.read(name)
            picture = decode_rgb(data)
        except ImageError as error:
            return {"image": image, "reason": str(error)}
        except OSError as error:  # str(error) would contain the file name
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

    rows = list(
        tqdm(
            prefetch(read_row, names),
            total=len(names),
            desc="reading images",
            unit="image",
            disable=None,
        )
    )
    readable = [row for row in rows if "reason" not in row]
    unreadable = [row for row in rows if "reason" in row]

    if not readable:
        raise BadInput(
            f"{images}: none of its {len(names)} images can be read (the first: "
            f"{storable_names[0]}: {unreadable[0]['reason']})."
        )

    out.mkdir(parents=True, exist_ok=True)
    index = pd.DataFrame(readable)
    replace_file(out / INDEX_FILE, lambda path: index.drop(columns="file").to_parquet(path, index=False))
    replace_file(
        out / UNREADABLE_FILE,
        lambda path: pd.DataFrame(unreadable, columns=["image", "reason"]).to_csv(path, index=False),
    )
    return index


def perceptual_hashes(folder: Path, names: Iterable[str]) -> dict[str, int]:
    """Return image name -> perceptual hash (64-bit integer).

    Raises BadInput if an image cannot be read.
    """
    import imagehash

    hashes = {}
    for name in sorted(names):
        try:
            hashes[name] = int(str(imagehash.phash(decode_rgb((folder / name).read_bytes()))), 16)
        except (ImageError, OSError) as error:
            raise BadInput(f"{folder / name}: {error}. Replace it, or remove its rows.") from None
    return hashes
