"""Find a source's images in folders, and check that a file is an image that other tools can open.

See also: downloading (`download.py`), writing (`parquet.py`).
"""

import base64
import binascii
import hashlib
import io
import os
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from PIL import Image, UnidentifiedImageError

from dataset_builders.errors import BadInput, Problems
from dataset_builders.schema import CaseImage
from dataset_builders.source_files import SourceEntry, is_safe_relative_path, parse_literal, read_json, read_tsv_rows

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
MAX_REFERENCE_LENGTH = 64
"""An `image` cell up to this length is the index of the record with the image, as in VLMEvalKit."""
PILLOW_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "JPEG2000")
MAX_PIXELS = 178_956_970
"""Twice Pillow's warning threshold: above it Pillow, and thus every reader of the dataset, refuses
the image.
"""


class ImageError(ValueError):
    """Bytes that are not an image that readers can open; the message says why."""


class ImageFolders:
    """Index of the image files below some folders, by their names without extension.

    Each folder is walked once. Symbolic links are followed, because download caches consist of
    them. Names from a source are only looked up in the index, so they cannot escape the folders.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self.folders = list(dict.fromkeys(Path(folder) for folder in folders))
        self._by_stem: dict[str, list[tuple[str, Path]]] = defaultdict(list)
        """Name without extension -> (path in the folder, file); names and paths in lower case."""
        for folder in self.folders:
            if not folder.is_dir():
                raise BadInput(f"--images {folder}: there is no such folder.")
            self._walk(folder)

    def _walk(self, folder: Path) -> None:
        seen: set[str] = set()
        for root, names, files in os.walk(folder, followlinks=True):
            # Links may form cycles; visit each real folder once.
            real = os.path.realpath(root)
            if real in seen:
                names.clear()
                continue
            seen.add(real)
            names.sort()
            for name in sorted(files):
                path = Path(root) / name
                if path.suffix.lower() in IMAGE_SUFFIXES:
                    inner_path = path.relative_to(folder).as_posix().lower()
                    self._by_stem[path.stem.lower()].append((inner_path, path))

    def find(self, names: Sequence[str], sha256: str | None = None) -> Path | None:
        """Find the file that the first matching name refers to.

        A name matches a file whose path ends with it, ignoring case; otherwise one that differs
        only in its extension. A path directly below a given folder takes precedence.

        Args:
            names: candidate names, in order of preference.
            sha256: required digest of the content, if known.

        Returns:
            The file; None if no name matches.

        Raises:
            ImageError: a name escapes the folder, different files match, or no match has the
                digest.
        """
        mismatches: list[Path] = []
        for name in names:
            if not is_safe_relative_path(name):
                raise ImageError(f"the image name {name!r} leaves its folder")

        for name in names:
            parts = name.replace("\\", "/").lower().strip("/").split("/")
            file_name = PurePosixPath(parts[-1])
            stem = file_name.stem if file_name.suffix in IMAGE_SUFFIXES else parts[-1]
            candidates = self._by_stem.get(stem, [])
            paths = [path for inner_path, path in candidates if inner_path == "/".join(parts)]
            if not paths:
                in_folders = [path for _, path in candidates if _lies_in_folders(path, parts[:-1])]
                paths = [path for path in in_folders if path.name.lower() == parts[-1]] or in_folders
            if paths and sha256 is None:
                return _single_file(name, paths)
            for path in paths:
                if hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
                    return path
            mismatches += paths

        if mismatches:
            raise ImageError(
                f"{mismatches[0]} is named {names[0]!r} but is a different image (its sha256 is not {sha256})"
            )

        return None


def _lies_in_folders(path: Path, folders: list[str]) -> bool:
    """Return True if a file lies in these folders (outermost first); without any, always."""
    return not folders or [part.lower() for part in path.absolute().parts[-1 - len(folders) : -1]] == folders


def _single_file(name: str, paths: list[Path]) -> Path:
    path = paths[0]
    for duplicate in paths[1:]:
        # Copies of one image in several folders are fine.
        if not (path.samefile(duplicate) or path.read_bytes() == duplicate.read_bytes()):
            raise ImageError(f"two different files are named {name!r}: {path} and {duplicate}; keep one of them")
    return path


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """The entry in image_dict.json for an image of a custom set; a field is None if not stated."""

    license: str | None = None
    source: str | None = None
    sha256: str | None = None
    group: str | None = None


def read_image_records(source: Path, problems: Problems) -> dict[str, ImageRecord]:
    """Read a source's image_dict.json.

    Args:
        source: the source folder.
        problems: collects problems of entries.

    Returns:
        Image name -> its record; empty if there is no file.
    """
    file = source / "image_dict.json"

    # The file is optional: without it, nothing is known about the images.
    document = read_json(file) if file.is_file() else {}
    if not isinstance(document, dict):
        raise BadInput(f"{file}: is not an object (image name -> its fields). Fix it.")
    records = {}
    for name, value in document.items():
        entry = SourceEntry(value, str(file), name, problems)
        records[name] = ImageRecord(
            **{field: entry.text(field) for field in ("license", "source", "sha256", "group") if field in entry.value}
        )

    return records


class SourceImages:
    """The images of a source, each created once for the first entry that shows it."""

    def __init__(
        self, folders: ImageFolders | None, records: Mapping[str, ImageRecord], paths: Iterable[str] = ()
    ) -> None:
        """Prepare for looking up images.

        Args:
            folders: where to look; None in a text-only build.
            records: name in the source -> its entry in image_dict.json.
            paths: the paths of all images. A file name that only one of them has can be looked up
                without its folders.
        """
        self.folders, self.records = folders, records
        self._images: dict[str, CaseImage | None] = {}
        paths_by_name: dict[str, set[str]] = defaultdict(set)
        for path in paths:
            paths_by_name[path.rsplit("/", 1)[-1]].add(path)
        self._unambiguous_names = {name for name, owners in paths_by_name.items() if len(owners) == 1}

    def find(
        self,
        entry: SourceEntry,
        names: Sequence[str],
        *,
        image_id: str,
        record_name: str,
        file_name: str = "",
        missing_name: str = "",
        license: str = "unknown",
        source: str | None = None,
    ) -> CaseImage | None:
        """Find the image of an entry.

        Args:
            entry: the entry; problems are recorded there.
            names: candidate names; the first match is used. The first name identifies the image.
            image_id: id of the image if this is the first entry that shows it.
            record_name: its name in image_dict.json.
            file_name: another candidate, unless several images of the source have this file name.
            missing_name: name of an image that is not found; default: the first of `names`.
            license: licence if its record has none.
            source: source if its record has none.

        Returns:
            The image, with `read` None if it was not found; None if there was a problem.
        """
        key, record = names[0], self.records.get(record_name, ImageRecord())
        if key in self._images:
            return self._images[key]
        candidates = [*names, file_name] if file_name in self._unambiguous_names else names
        try:
            path = self.folders.find(candidates, record.sha256) if self.folders else None
        except ImageError as error:
            entry.add_problem(str(error))
            return self._images.setdefault(key, None)

        self._images[key] = CaseImage(
            image_id=image_id,
            read=path.read_bytes if path else None,
            size=path.stat().st_size if path else 0,
            name=path.name if path else missing_name or key,
            license=record.license or license,
            source=record.source or source,
            location=f"{path or key} (entry {entry.name} of {entry.file})",
            group=record.group,
        )
        return self._images[key]


def parse_image_cell(text: str) -> list[str]:
    """Split a cell of `image` into its images.

    Args:
        text: one image, or a list (`["...", "..."]`), as in VLMEvalKit.

    Raises:
        ImageError: the list is malformed, empty, or has elements other than strings.
    """
    cells = parse_literal(text) if text.startswith("[") else [text]
    if not (isinstance(cells, list) and cells and all(isinstance(cell, str) and cell.strip() for cell in cells)):
        raise ImageError("its list of images is cut off or empty, or contains something other than strings")
    return [cell.strip() for cell in cells]


def read_image(file: Path, start: int, number: int = 0) -> bytes:
    """Read and decode an image of a record.

    Args:
        file: the TSV file.
        start: first byte of the record.
        number: index of the image in a list.

    Raises:
        ImageError: the image is not valid base64.
    """
    column = [name.strip() for name in next(read_tsv_rows(file))[3]].index("image")
    return decode_base64_image(parse_image_cell(next(read_tsv_rows(file, start))[3][column].strip())[number])


def decode_base64_image(text: str) -> bytes:
    """Decode a base64 image, with or without a `data:` prefix.

    Args:
        text: content of the cell.

    Raises:
        ImageError: the text is not base64.
    """
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ImageError("the image is not base64") from None


def check_image(data: bytes) -> str:
    """Check that an image can be decoded completely: a damaged file may still begin and end
    correctly.

    Args:
        data: the content of the file.

    Returns:
        The format, as Pillow names it.

    Raises:
        ImageError: the image is damaged or truncated.
    """
    with open_complete_image(data) as image:
        return str(image.format)


def image_format(data: bytes) -> str:
    """Return the format that an image's header states, as Pillow names it, without decoding the
    image.
    """
    with open_image(data) as image:
        return str(image.format)


@contextmanager
def open_complete_image(data: bytes) -> Iterator[Image.Image]:
    """Open an image and check at the end of the block that all of its data is there.

    Args:
        data: the content of the file.

    Raises:
        ImageError: the image is damaged or truncated.
    """
    with open_image(data) as image:
        # Pillow decodes truncated JPEGs without an error, so libjpeg's warnings are checked.
        if image.format == "JPEG" and (lost := _find_jpeg_data_loss(data)):
            raise ImageError(f"the image is damaged or cut off ({lost})")
        yield image
        image.load()

    if image.format == "PNG":
        with open_image(data) as image:
            image.verify()  # decoding alone does not check every chunk's checksum


@contextmanager
def open_image(data: bytes) -> Iterator[Image.Image]:
    """Open an image with Pillow, silencing warnings; errors within the block become ImageError.

    Args:
        data: the content of the file.

    Raises:
        ImageError: Pillow cannot open or decode the image, or it is too large.
    """
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
    """Encode an image as PNG."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


DATA_LOSS_WARNINGS = ("premature end", "instead of RST", "bad Huffman code")
"""Warnings of libjpeg about missing pixels. Others, such as bytes between markers, do not affect
the picture.
"""


def _find_jpeg_data_loss(data: bytes) -> str | None:
    """Return libjpeg's warning if JPEG data ends early (Pillow fills the rest with grey), else
    None.
    """
    import simplejpeg

    try:
        simplejpeg.decode_jpeg(data, "GRAY", fastdct=True, fastupsample=True, strict=True)
    except ValueError as error:
        warning = " ".join(str(error).split())
        return warning if any(words in warning for words in DATA_LOSS_WARNINGS) else None

    return None
