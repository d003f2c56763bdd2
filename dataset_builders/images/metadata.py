"""Remove everything from an image file that is not its picture: EXIF, XMP, comments, text chunks, colour profiles, thumbnails, bytes
after the end. The pixels that readers decode stay the same.

JPEG and PNG files lose the parts that hold no picture and are otherwise copied; other formats become PNG, which loses nothing.
An EXIF orientation other than "upright" is kept, and nothing else: without it the picture would lie on its side.

See also: what an image is checked for (`lookup.py`).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

from PIL import Image

from dataset_builders.images.lookup import PNG_START, as_png, opened, png_bytes, png_chunks, rgb_of

ORIENTATION = 0x0112
PNG_CHUNKS = (b"IHDR", b"PLTE", b"tRNS")
JPEG_MARKERS = (*(marker for marker in range(0xC0, 0xD0) if marker != 0xC8), 0xDA, 0xDB, 0xDD)
"""Frames, tables, scans, and how often these restart."""


class _Unexpected(Exception):
    """The file is not laid out as its format says, though it can be decoded."""


def strip_metadata(data: bytes) -> bytes:
    """The image with nothing but its picture, as JPEG or PNG.

    Raises ImageError for bytes that are no image that readers can open.
    """
    found, orientation = _look(data)
    try:
        if found == "JPEG":
            return _jpeg(data, orientation)
        if found == "PNG" and orientation == 1:
            return _png(data)
    except _Unexpected:
        pass
    return _as_png(data)


def file_name(name: str, data: bytes) -> str:
    """The name with a suffix that fits what `strip_metadata` gave: one that fits stays, another (.tif) or none is replaced."""
    kind = ".png" if data.startswith(PNG_START) else ".jpg"
    if re.search(r"\.(jpe?g|png)$", name, re.IGNORECASE):
        return name
    return re.sub(r"\.(webp|gif|bmp|tiff?|jp2|jpx|j2k)$", "", name, flags=re.IGNORECASE) + kind


def _look(data: bytes) -> tuple[str, int]:
    """(format, EXIF orientation: 1 is upright)"""
    with opened(data) as image:
        return str(image.format), int(image.getexif().get(ORIENTATION, 1) or 1)


def _as_png(data: bytes) -> bytes:
    """The first picture as PNG, turned upright. Modes that PNG lacks become RGB, as they are for every model."""
    with opened(data) as image:
        is_upright = image.getexif().get(ORIENTATION, 1) in (0, 1)
        keep = is_upright and image.mode in ("1", "L", "LA", "RGB", "RGBA", "I;16")
        if keep:
            image.load()
        picture = image if keep else rgb_of(image)
        return as_png(Image.frombytes(picture.mode, picture.size, picture.tobytes()))


def _jpeg(data: bytes, orientation: int) -> bytes:
    """A JPEG's tables, frames and scans; of the application segments a fresh JFIF header and Adobe's transform flag, which says how
    the colours are coded."""
    parts: list[bytes] = []
    jfif = adobe = None
    for marker, segment in _jpeg_segments(data):
        if marker == 0xE0 and segment[4:9] == b"JFIF\0" and len(segment) >= 18 and jfif is None:
            jfif = b"\xff\xe0\x00\x10JFIF\0" + segment[9:16] + b"\0\0"  # version and density, no thumbnail
        elif marker == 0xEE and segment[4:9] == b"Adobe" and len(segment) >= 16 and adobe is None:
            adobe = b"\xff\xee\x00\x0eAdobe" + segment[9:16]
        elif marker in JPEG_MARKERS:
            parts.append(segment)
    turned = _orientation_segment(orientation) if 2 <= orientation <= 8 else b""
    return b"".join([b"\xff\xd8", jfif or b"", turned, adobe or b"", *parts, b"\xff\xd9"])


def _orientation_segment(orientation: int) -> bytes:
    """An EXIF segment that holds the orientation and nothing else."""
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    body = exif.tobytes()
    body = body if body.startswith(b"Exif\0\0") else b"Exif\0\0" + body
    return b"\xff\xe1" + (len(body) + 2).to_bytes(2, "big") + body


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(marker, segment with its marker; a scan with its coded data) up to the end marker. Raises _Unexpected."""
    at = 2
    if data[:2] != b"\xff\xd8":
        raise _Unexpected
    while True:
        if at + 4 > len(data) or data[at] != 0xFF:
            if data[at : at + 2] == b"\xff\xd9":
                return
            raise _Unexpected
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        if marker == 0xD9:
            return
        if marker in (0x00, 0x01, 0xD8) or 0xD0 <= marker <= 0xD7:
            raise _Unexpected
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if end > len(data) or end < at + 4:
            raise _Unexpected
        if marker == 0xDA:
            end = _scan_end(data, end)
        yield marker, data[at:end]
        at = end


def _scan_end(data: bytes, at: int) -> int:
    """Where the coded data of a scan ends: before the next marker that is neither a stuffed byte nor a restart."""
    while True:
        at = data.find(b"\xff", at)
        if at < 0 or at + 1 >= len(data):
            raise _Unexpected
        if data[at + 1] == 0x00 or 0xD0 <= data[at + 1] <= 0xD7:
            at += 2
        elif data[at + 1] == 0xFF:
            at += 1
        else:
            return at


def _png(data: bytes) -> bytes:
    """A PNG's header, palette, transparency and pixels."""
    parts: list[bytes | memoryview] = [PNG_START]
    packed = []
    for kind, chunk in png_chunks(data):
        if kind in (b"acTL", b"fcTL", b"fdAT"):
            raise _Unexpected  # a film
        if kind == b"IDAT":
            packed.append(chunk[8:-4])
        elif kind == b"IEND":
            pixels = _without_rest(b"".join(packed), png_bytes(data[16:29]))
            return b"".join([*parts, _chunk(b"IDAT", pixels), chunk])
        elif kind in PNG_CHUNKS:
            parts.append(chunk)
    raise _Unexpected  # cut off


def _without_rest(packed: bytes, size: int) -> bytes:
    """Compressed pixels, `size` bytes when unpacked, without what follows their end. Raises _Unexpected where they have none or more."""
    unpacker = zlib.decompressobj()
    rest, unpacked = packed, 0
    while rest and not unpacker.eof:
        unpacked += len(unpacker.decompress(rest, 1 << 22))
        rest = unpacker.unconsumed_tail
    if not unpacker.eof or unpacked > size:
        raise _Unexpected
    return packed[: len(packed) - len(unpacker.unused_data)]


def _chunk(kind: bytes, body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")
