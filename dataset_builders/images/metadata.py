"""Remove everything from an image file that is not its picture: EXIF, XMP, comments, text chunks, colour profiles, thumbnails, bytes
after the end. The pixels that readers decode stay the same.

JPEG and PNG files lose the parts that hold no picture and are otherwise copied; other formats become PNG, which loses nothing.
An EXIF orientation other than "upright" is kept, and nothing else: without it the picture would lie on its side.

See also: the picture that a model is shown (`picture.py`).
"""

from __future__ import annotations

import re

import numpy as np
from PIL import Image, ImageOps

from dataset_builders.images.lookup import encode_png, open_image
from dataset_builders.images.picture import (
    ORIENTATION_TAG,
    declared_white_level,
    exif_orientation,
    is_inverted,
    make_picture,
    smallest_white_level,
)

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PICTURE_CHUNKS = (b"IHDR", b"sBIT", b"PLTE", b"tRNS", b"IDAT", b"IEND")
PICTURE_MARKERS = (*(marker for marker in range(0xC0, 0xD0) if marker != 0xC8), 0xDA, 0xDB, 0xDD)
"""Frames, tables, scans, and how often these restart."""
SCAN_END = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
"""A scan's coded data goes on over stuffed bytes, restarts and fill bytes."""


def strip_metadata(data: bytes) -> bytes:
    """The image with nothing but its picture, as JPEG or PNG.

    Raises ImageError for bytes that are no image that readers can open.
    """
    with open_image(data) as image:
        found, orientation = str(image.format), exif_orientation(image)
        if found == "JPEG":
            try:
                return _strip_jpeg(data, orientation)
            except (IndexError, StopIteration, ValueError):  # not laid out as its format says, though it can be decoded
                return _convert_to_png(image, data, orientation)
        return _strip_png(data) if found == "PNG" and orientation == 1 else _convert_to_png(image, data, orientation)


def image_file_name(name: str, data: bytes) -> str:
    """The name with a suffix that fits what `strip_metadata` gave: one that fits stays, another (.tif) or none is replaced."""
    kind = ".png" if data.startswith(PNG_SIGNATURE) else ".jpg"
    if re.search(r"\.(jpe?g|png)$", name, re.IGNORECASE):
        return name
    return re.sub(r"\.(webp|gif|bmp|tiff?|jp2|jpx|j2k)$", "", name, flags=re.IGNORECASE) + kind


def _convert_to_png(image: Image.Image, data: bytes, orientation: int) -> bytes:
    """The first picture as PNG, turned upright. What PNG cannot hold becomes the picture that a model is shown."""
    # Greys whose bits only the whole dataset tells wait for the build, which sees it.
    if image.mode.startswith("I") and not is_inverted(image) and declared_white_level(image, data) is None:
        smallest_white_level(image)
        return encode_png(Image.fromarray(np.asarray(ImageOps.exif_transpose(image)).astype(np.uint16)))
    if orientation == 1 and image.mode in ("1", "L", "LA", "RGB", "RGBA"):
        image.load()
        return encode_png(Image.frombytes(image.mode, image.size, image.tobytes()))
    return encode_png(make_picture(data).pixels)


def _strip_png(data: bytes) -> bytes:
    """A PNG's header, palette, transparency and pixels; of a film the first picture."""
    parts, at, kind = [PNG_SIGNATURE], len(PNG_SIGNATURE), b""
    while at < len(data) and kind != b"IEND":
        kind, end = data[at + 4 : at + 8], at + 12 + int.from_bytes(data[at : at + 4], "big")
        if kind in PICTURE_CHUNKS:
            parts.append(data[at:end])
        at = end
    return b"".join(parts)


def _strip_jpeg(data: bytes, orientation: int) -> bytes:
    """A JPEG's tables, frames and scans up to its end marker; of the application segments a fresh JFIF header and Adobe's transform flag,
    which says how the colours are coded."""
    parts: list[bytes] = []
    jfif = adobe = b""
    at = 2
    while (marker := data[at + 1]) != 0xD9:
        if data[at] != 0xFF:
            raise ValueError("bytes between two segments")
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if marker == 0xDA:
            end = next(SCAN_END.finditer(data, end)).start()
        segment = data[at:end]
        if marker == 0xE0 and segment[4:9] == b"JFIF\0" and len(segment) >= 18:
            jfif = jfif or b"\xff\xe0\x00\x10JFIF\0" + segment[9:16] + b"\0\0"  # version and density, no thumbnail
        elif marker == 0xEE and segment[4:9] == b"Adobe" and len(segment) >= 16:
            adobe = adobe or b"\xff\xee\x00\x0eAdobe" + segment[9:16]
        elif marker in PICTURE_MARKERS:
            parts.append(segment)
        at = at + 1 if marker == 0xFF else end  # a fill byte
    turned = _orientation_segment(orientation) if 2 <= orientation <= 8 else b""
    return b"".join([b"\xff\xd8", jfif, turned, adobe, *parts, b"\xff\xd9"])


def _orientation_segment(orientation: int) -> bytes:
    """An EXIF segment that holds the orientation and nothing else."""
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    body = exif.tobytes()
    body = body if body.startswith(b"Exif\0\0") else b"Exif\0\0" + body
    return b"\xff\xe1" + (len(body) + 2).to_bytes(2, "big") + body
