"""Find images in folders for an entry of a source, and check that a file is an image that readers can open.

See also: downloading (`download.py`), writing (`parquet.py`).
"""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from PIL import Image, UnidentifiedImageError

from dataset_builders.errors import BadInput, Problems
from dataset_builders.schema import CaseImage
from dataset_builders.source_files import SourceEntry, is_safe_relative_path, read_json

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
PILLOW_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "JPEG2000")
MAX_PIXELS = 178_956_970
"""Twice Pillow's own limit: beyond it Pillow, and so every reader of the dataset, refuses to open the image."""


class ImageError(ValueError):
    """Bytes that are not an image which readers can open; the message says why."""


class ImageFolders:
    """Image files below some folders, found by relative path, by name, or by name without extension.

    The folders are walked once. Links are followed (caches of downloaded files are made of links); names that a source gives
    are only ever looked up in the index, so that they cannot lead out of the folders.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self.folders = list(dict.fromkeys(Path(folder) for folder in folders))
        self._by_path: dict[str, list[Path]] = defaultdict(list)
        self._by_name: dict[str, list[Path]] = defaultdict(list)
        self._by_stem: dict[str, list[Path]] = defaultdict(list)
        for folder in self.folders:
            if not folder.is_dir():
                raise BadInput(f"--images {folder}: there is no such folder.")
            self._walk(folder)

    def _walk(self, folder: Path) -> None:
        seen: set[str] = set()
        for root, names, files in os.walk(folder, followlinks=True):
            real = os.path.realpath(root)
            if real in seen:
                names.clear()
                continue
            seen.add(real)
            names.sort()
            for name in sorted(files):
                if PurePosixPath(name).suffix.lower() not in IMAGE_SUFFIXES:
                    continue
                path = Path(root) / name
                self._by_path[path.relative_to(folder).as_posix().lower()].append(path)
                self._by_name[name.lower()].append(path)
                self._by_stem[path.stem.lower()].append(path)

    def find(self, names: Sequence[str], sha256: str | None = None) -> Path | None:
        """The file that the first fitting name points to, None if there is none.

        A name fits a file whose path ends with it, folder by folder, in any case of letters; failing that, one that differs
        only in the extension. A path right below a folder given comes first. With `sha256` only a file that holds those very
        bytes fits. Raises ImageError for a name that leaves the folder, where different files fit, and where files have a fitting
        name but none the right bytes.
        """
        others: list[Path] = []
        for name in names:
            if not is_safe_relative_path(name):
                raise ImageError(f"the image name {name!r} leaves its folder")
        for name in names:
            parts = name.replace("\\", "/").lower().strip("/").split("/")
            last = PurePosixPath(parts[-1])
            stem = last.stem if last.suffix in IMAGE_SUFFIXES else parts[-1]
            found = self._by_path.get("/".join(parts)) or _paths_in_folders(
                parts[:-1], self._by_name.get(parts[-1], [])
            )
            found = found or _paths_in_folders(parts[:-1], self._by_stem.get(stem, []))
            if found and sha256 is None:
                return _single_file(name, found)
            for path in found:
                if hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
                    return path
            others += found
        if others:
            raise ImageError(f"{others[0]} is called {names[0]!r} but is another image (its sha256 is not {sha256})")
        return None


def _paths_in_folders(folders: list[str], paths: list[Path]) -> list[Path]:
    """The paths that lie in these folders (outermost first)."""
    if not folders:
        return paths
    return [p for p in paths if [part.lower() for part in p.absolute().parts[-1 - len(folders) : -1]] == folders]


def _single_file(name: str, paths: list[Path]) -> Path:
    first = paths[0]
    for other in paths[1:]:
        if not (first.samefile(other) or first.read_bytes() == other.read_bytes()):
            raise ImageError(f"two different files are called {name!r}: {first} and {other}; keep one of them")
    return first


def find_image(
    entry: SourceEntry,
    folders: ImageFolders | None,
    names: Sequence[str],
    *,
    image_id: str,
    own: ImageRecord,
    called: str | None = None,
    license: str = "unknown",
    source: str | None = None,
) -> CaseImage | None:
    """The image of an entry, under the first of `names` that fits; None if something is wrong, which is noted on the entry.

    An image that is not there, or any where `folders` is None (a text-only build), has `read` None. `own`: what image_dict.json says of it;
    `license`, `source`: where that says nothing. `called`: what to call a file that is not there (default: the first name).
    """
    try:
        path = folders.find(names, own.sha256) if folders else None
    except ImageError as error:
        entry.wrong(str(error))
        return None
    return CaseImage(
        image_id=image_id,
        read=path.read_bytes if path else None,
        size=path.stat().st_size if path else 0,
        name=path.name if path else called or names[0],
        license=own.license or license,
        source=own.source or source,
        where=f"{path or names[0]} (entry {entry.name} of {entry.file})",
        group=own.group,
    )


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """The entry of image_dict.json for an image of a custom set; None if there is none."""

    license: str | None = None
    source: str | None = None
    sha256: str | None = None
    group: str | None = None


def read_image_records(source: Path, problems: Problems) -> dict[str, ImageRecord]:
    """Image name -> what the source's image_dict.json says of it; empty where there is none."""
    file = source / "image_dict.json"
    document = read_json(file) if file.is_file() else {}
    if not isinstance(document, dict):
        raise BadInput(f"{file}: is not an object (image name -> what is known of it). Fix it.")
    own = {}
    for name, value in document.items():
        entry = SourceEntry(value, str(file), name, problems)
        own[name] = ImageRecord(
            **{field: entry.text(field) for field in ("license", "source", "sha256", "group") if field in entry.value}
        )
    return own


def check_image(data: bytes) -> str:
    """The format (Pillow's name for it) of an encoded image. Raises ImageError where it cannot be decoded whole: a file may begin and end
    as its format promises and be damaged between."""
    with open_complete_image(data) as image:
        return str(image.format)


def image_format(data: bytes) -> str:
    """The format that an image's header states (Pillow's name for it). Raises ImageError for what is no image; decodes nothing."""
    with open_image(data) as image:
        return str(image.format)


@contextmanager
def open_complete_image(data: bytes) -> Iterator[Image.Image]:
    """An opened image, of which every byte is there when the block ends; else ImageError is raised."""
    with open_image(data) as image:
        if image.format == "JPEG" and (lost := _find_jpeg_data_loss(data)):
            raise ImageError(f"the image is damaged or cut off ({lost})")
        yield image
        image.load()
    if image.format == "PNG":
        with open_image(data) as image:
            image.verify()  # every chunk and its checksum up to the end, which decoding does not look at


@contextmanager
def open_image(data: bytes) -> Iterator[Image.Image]:
    """The image as Pillow opens it, without its warnings. Whatever Pillow raises of it inside is raised as ImageError."""
    if not data:
        raise ImageError("the image file is empty")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=PILLOW_FORMATS) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise ImageError(f"the image has {image.width} x {image.height} pixels, more than {MAX_PIXELS:,}")
                yield image
    except ImageError:
        raise
    except Image.DecompressionBombError:
        raise ImageError(f"the image has more than {MAX_PIXELS:,} pixels") from None
    except UnidentifiedImageError:
        raise ImageError("not an image (" + ", ".join(PILLOW_FORMATS) + " can be read)") from None
    except Exception as error:  # Pillow's decoders raise many kinds of error on broken files
        raise ImageError(f"the image is damaged or cut off ({' '.join(str(error).split())[:200]})") from None


def encode_png(image: Image.Image) -> bytes:
    """A picture as the content of a PNG file."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


DATA_LOSS_WARNINGS = ("premature end", "instead of RST", "bad Huffman code")
"""Warnings of libjpeg that say that pixels are missing. Others, such as bytes between two markers, cost the picture nothing."""


def _find_jpeg_data_loss(data: bytes) -> str | None:
    """libjpeg's warning if the data of a JPEG ends before the picture is complete (Pillow shows grey there), else None."""
    import simplejpeg

    try:
        simplejpeg.decode_jpeg(data, "GRAY", fastdct=True, fastupsample=True, strict=True)
    except ValueError as error:
        told = " ".join(str(error).split())
        return told if any(words in told for words in DATA_LOSS_WARNINGS) else None
    return None


def unique_file_names(names: Iterable[str]) -> set[str]:
    """The file names (without folders) that only one of the paths `names` ends with: these may be looked up alone."""
    paths: dict[str, set[str]] = defaultdict(set)
    for name in names:
        paths[name.rsplit("/", 1)[-1]].add(name)
    return {base for base, owners in paths.items() if len(owners) == 1}
