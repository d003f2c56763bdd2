"""Remove everything but the picture from an image file: EXIF, XMP, comments, text chunks, colour
profiles, thumbnails and trailing bytes. The decoded pixels do not change.

From JPEG and PNG files the other segments are dropped and the rest is copied; other formats become
PNG, without loss. Only an EXIF orientation other than "upright" is kept, because the picture would
be rotated without it.

See also: the picture that a model is shown (`picture.py`).
"""

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
"""JPEG markers of the segments that make up the picture: frames, tables, scans, restart intervals.
"""
SCAN_END = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
"""End of a scan: coded data continues across stuffed bytes, restarts and fill bytes."""


def strip_metadata(data: bytes) -> bytes:
    """Reduce an image file to its picture.

    Args:
        data: the content of the file.

    Returns:
        A JPEG or PNG file.

    Raises:
        ImageError: the image cannot be opened.
    """
    with open_image(data) as image:
        kind, orientation = str(image.format), exif_orientation(image)
        if kind == "JPEG":
            try:
                return _strip_jpeg(data, orientation)
            except (
                IndexError,
                StopIteration,
                ValueError,
            ):  # decodable although its segments are malformed
                return _convert_to_png(image, data, orientation)
        return _strip_png(data) if kind == "PNG" and orientation == 1 else _convert_to_png(image, data, orientation)


def image_file_name(name: str, data: bytes) -> str:
    """Give a file name the suffix that fits its content.

    Args:
        name: the name in the source.
        data: the content, as returned by `strip_metadata`.

    Returns:
        The name with a suffix that fits: .jpg, .jpeg and .png are kept; another suffix is replaced,
            a missing one added.
    """
    kind = ".png" if data.startswith(PNG_SIGNATURE) else ".jpg"
    if re.search(r"\.(jpe?g|png)$", name, re.IGNORECASE):
        return name
    return re.sub(r"\.(webp|gif|bmp|tiff?|jp2|jpx|j2k)$", "", name, flags=re.IGNORECASE) + kind


def _convert_to_png(image: Image.Image, data: bytes, orientation: int) -> bytes:
    """Convert the first frame to an upright PNG.

    An image that PNG cannot hold becomes the picture that models are shown (`images/picture.py`).
    """
    # Only the build sees the whole dataset, which decides how many bits these greys have; keep them
    # as they are.
    if image.mode.startswith("I") and not is_inverted(image) and declared_white_level(image, data) is None:
        # Called for its check: levels that cannot be scaled raise ImageError.
        smallest_white_level(image)
        return encode_png(Image.fromarray(np.asarray(ImageOps.exif_transpose(image)).astype(np.uint16)))
    if orientation == 1 and image.mode in ("1", "L", "LA", "RGB", "RGBA"):
        image.load()
        return encode_png(Image.frombytes(image.mode, image.size, image.tobytes()))
    return encode_png(make_picture(data).pixels)


def _strip_png(data: bytes) -> bytes:
    """Keep header, palette, transparency and pixels; of an animation, the first frame."""
    parts, at, kind = [PNG_SIGNATURE], len(PNG_SIGNATURE), b""

    # A chunk is length (4 bytes), kind (4), content, checksum (4).
    while at < len(data) and kind != b"IEND":
        kind, end = data[at + 4 : at + 8], at + 12 + int.from_bytes(data[at : at + 4], "big")
        if kind in PICTURE_CHUNKS:
            parts.append(data[at:end])
        at = end
    return b"".join(parts)


def _strip_jpeg(data: bytes, orientation: int) -> bytes:
    """Keep tables, frames and scans, plus a fresh JFIF header and Adobe's transform flag (colour
    coding).
    """
    parts: list[bytes] = []
    jfif = adobe = b""
    at = 2
    while (marker := data[at + 1]) != 0xD9:
        # The caller falls back to re-encoding.
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
    """Build an EXIF segment with nothing but the orientation."""
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    body = exif.tobytes()

    # Pillow versions differ in whether the header is included.
    body = body if body.startswith(b"Exif\0\0") else b"Exif\0\0" + body
    return b"\xff\xe1" + (len(body) + 2).to_bytes(2, "big") + body
