"""Make the picture that a model is shown: the only route from an image file to pixels; and remove
everything else from image files.

The build stores the picture, local models decode it, servers receive it, and exports to other
harnesses contain it. It is upright (EXIF applied), opaque (on white), the first frame, and 8 bits
deep. Deeper greys are scaled by a fixed rule, never by the picture's own range, so that pictures of
one scanner remain comparable.

A file that is stored loses EXIF, XMP, comments, text chunks, colour profiles, thumbnails and
trailing bytes; its decoded pixels do not change. From JPEG and PNG files these segments are dropped
and the rest is copied; other formats become PNG, without loss. Only an EXIF orientation other than
"upright" is kept, because the picture would be rotated without it.

See also: checks of files (`lookup.py`).
"""

import base64
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from dataset_builders.images.lookup import ImageError, encode_png, open_complete_image, open_image

ORIENTATION_TAG = 0x0112
WHITE_LEVELS = (1, 255, 4095, 65535)
"""Grey levels that may mean white in files with more than 8 bits per pixel.

1 is for masks and fractions; the others are for 8, 12 and 16 bits in use.
"""
DECODER_THREADS = min(8, os.cpu_count() or 1)
MIN_GREY_LEVELS = 32
"""A picture with fewer distinct grey levels was probably scaled wrongly beforehand."""


@dataclass(frozen=True, slots=True)
class ShownPicture:
    """The picture that a model is shown, made from an image file.

    `pixels` is in mode L or RGB. `traits` are peculiarities, as phrases. `file` is the original
    JPEG or PNG if every reader decodes exactly these pixels from it.
    """

    pixels: Image.Image
    traits: tuple[str, ...]
    file: bytes | None

    def encoded(self) -> bytes:
        """Return a JPEG or PNG file that every reader decodes to these pixels."""
        return encode_png(self.pixels) if self.file is None else self.file

    def digest(self) -> str:
        """Digest the pixels, so that identical pictures are equal regardless of their files."""
        digest = hashlib.blake2b(str(self.pixels.size).encode(), digest_size=16)
        digest.update(self.pixels.convert("RGB").tobytes())
        return digest.hexdigest()


def make_picture(data: bytes, whites: Mapping[str, int] | None = None) -> ShownPicture:
    """Convert an image file to the picture that models are shown.

    Args:
        data: the content of the file.
        whites: white levels of the dataset (`find_white_levels`). Without them only the file's own
            declaration counts.

    Raises:
        ImageError: the file cannot be decoded completely, or its white level is unknown.
    """
    with open_complete_image(data) as image:
        is_deep, is_clear = image.mode.startswith(("I", "F")), image.has_transparency_data
        traits = {
            "have several frames; the first is shown": getattr(image, "is_animated", False),
            # Read before loading the picture, because Pillow rotates a TIFF while loading.
            "are rotated as their EXIF orientation states": exif_orientation(image) != 1,
            "have floating-point greys, brought to 8 bits": image.mode == "F",
            "have greys of more than 8 bits, brought to 8": is_deep and image.mode != "F",
        }
        white = _choose_white_level(image, data, whites or {}) if is_deep else 0
        is_turned = traits["are rotated as their EXIF orientation states"]
        pixels = ImageOps.exif_transpose(image) if is_turned else image.copy()
        if is_deep:
            # A fixed scale: white becomes 255 and 0 stays 0.
            levels = np.rint(np.asarray(pixels, np.float64) * 255 / white).astype(np.uint8)
            pixels = Image.fromarray(255 - levels if is_inverted(image) else levels)
        elif is_clear:
            # Without an alpha channel, models would see arbitrary colours behind transparent areas.
            layer = pixels.convert("RGBA")
            traits["are transparent, shown on white"] = bool(np.asarray(layer)[..., 3].min() < 255)
            pixels = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
        pixels = pixels if pixels.mode == "L" else pixels.convert("RGB")
        pixels.info = {}  # otherwise saving would write the colour profile

        # Readers differ in how they reduce a PNG with 16 bits per channel to 8.
        is_plain = data[24] <= 8 if image.format == "PNG" else image.format == "JPEG" and image.mode in ("L", "RGB")
        file = data if is_plain and not any(traits.values()) else None
        if whites is not None:  # only a build reports this
            traits[f"have fewer than {MIN_GREY_LEVELS} grey levels in use"] = (
                sum(map(bool, pixels.convert("L").histogram())) < MIN_GREY_LEVELS
            )

    return ShownPicture(pixels, tuple(name for name, is_met in traits.items() if is_met), file)


def exif_orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 to 8; 1 (upright) if it is absent or unreadable."""
    try:
        orientation = image.getexif().get(ORIENTATION_TAG, 1)
    except Exception:  # Pillow raises many kinds of error on malformed metadata
        return 1
    return orientation if orientation in range(1, 9) else 1


def encode_picture(data: bytes) -> bytes:
    """Convert an image file to the picture that models are shown, and encode it.

    Args:
        data: the content of the file.

    Returns:
        A JPEG or PNG file: the original if every reader decodes it to this picture, else a PNG.

    Raises:
        ImageError: as `make_picture`.
    """
    return make_picture(data).encoded()


def encode_data_uri(data: bytes) -> str:
    """Convert an image file to the picture that models are shown, as a data URI.

    Args:
        data: the content of the file.

    Raises:
        ImageError: as `make_picture`.
    """
    encoded = encode_picture(data)
    kind = "png" if encoded.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(encoded).decode()}"


def decode_image(data: bytes) -> ShownPicture:
    """Decode a single file to the picture that models are shown (`make_picture`).

    Grey values are scaled by the smallest range (8, 12 or 16 bits) that contains them.

    Raises:
        ImageError: not a complete image, or grey values that no fixed rule maps to 8 bits.
    """
    return make_picture(data, find_white_levels([data]) or None)


def find_white_levels(files: Iterable[bytes]) -> dict[str, int]:
    """Determine the white levels of a dataset's deep greys (greys of more than 8 bits).

    Files that declare their own white level, and damaged files, are ignored.

    Args:
        files: the contents of all image files.

    Returns:
        Pillow mode -> the smallest of `WHITE_LEVELS` that covers all grey levels.
    """
    whites: dict[str, int] = {}
    for data in files:
        with suppress(ImageError), open_image(data) as image:
            if image.mode.startswith(("I", "F")) and declared_white_level(image, data) is None:
                kind = image.mode[:4]
                whites[kind] = max(whites.get(kind, 0), smallest_white_level(image))

    return whites


def _choose_white_level(image: Image.Image, data: bytes, whites: Mapping[str, int]) -> int:
    """Return the white level of a picture with deep greys: the file's own, else the dataset's.

    Raises ImageError if neither is known, and for a picture that would be nearly black in its
    dataset because it has fewer bits or is dark.
    """
    smallest, stated = smallest_white_level(image), declared_white_level(image, data)
    if stated is not None:
        return stated

    # A mask (0, 1) or the full 16 bits are unambiguous even without a dataset.
    white = whites.get(image.mode[:4], smallest if smallest in (WHITE_LEVELS[0], WHITE_LEVELS[-1]) else 0)
    is_doubtful = (
        smallest < white
        and (smallest == WHITE_LEVELS[0] or white == WHITE_LEVELS[-1])
        and bool(np.asarray(image).any())
    )
    if is_doubtful or not white:
        dataset_note = f" (of other images of the dataset, at most {white:,})" if white else ""
        raise ImageError(
            f"its grey levels are at most {smallest:,}{dataset_note}, and their bit depth is unknown; convert them to 8 bits with a "
            "fixed window, or declare the depth in the file (BitsPerSample or MaxSampleValue of a TIFF, sBIT of a PNG)"
        )

    return white


def smallest_white_level(image: Image.Image) -> int:
    """Return the smallest of `WHITE_LEVELS` that covers all grey levels of a picture.

    Args:
        image: a picture with deep greys.

    Raises:
        ImageError: a level is negative, too large or NaN.
    """
    levels = np.asarray(image)
    low, high = float(levels.min()), float(levels.max())
    if not (low >= 0 and high <= WHITE_LEVELS[-1]):  # also true for NaN
        raise ImageError(
            f"its grey levels range from {low:,.6g} to {high:,.6g}; only 0 to {WHITE_LEVELS[-1]:,} can be converted to 8 bits by one "
            "rule for all pictures. Apply a fixed window first"
        )

    return next(white for white in WHITE_LEVELS if high <= white)


def declared_white_level(image: Image.Image, data: bytes) -> int | None:
    """Return the white level that a file declares; None if it declares none.

    It follows from the bits of a TIFF's samples or their declared maximum, or a PNG's significant
    bits.

    Args:
        image: the opened image.
        data: the content of the file.
    """
    bits = _tiff_tag(image, 258) or 0

    # Some programs write the brightest grey in use as MaxSampleValue, so accept only 2^n - 1 there.
    if not 8 < bits < 16:
        bits = next(
            (bits for bits in range(8, 17) if 2**bits - 1 in (_tiff_tag(image, 281), _tiff_tag(image, 341))),
            0,
        )

    # sBIT must precede the image data; later bytes may match by chance.
    place = data.find(b"sBIT", 0, data.find(b"IDAT")) if image.format == "PNG" else -1
    if place > 0:
        # The PNG standard scales greys to 16 bits whatever sBIT is; levels that stay below and use
        # the low bits are unscaled.
        bits, levels = data[place + 4], np.asarray(image)
        bits = bits if levels.max() < 2**bits and (levels % 2 ** (16 - bits)).any() else 16

    return 2**bits - 1 if bits and np.asarray(image).max() < 2**bits else None


def is_inverted(image: Image.Image) -> bool:
    """Return True for deep greys of a TIFF in which 0 is white; Pillow inverts only 8-bit ones."""
    return image.mode.startswith(("I", "F")) and _tiff_tag(image, 262) == 0


def _tiff_tag(image: Image.Image, number: int) -> Any:
    """Return the first value of a TIFF tag; None if absent."""
    value = getattr(image, "tag_v2", {}).get(number)
    return value[0] if isinstance(value, tuple) and value else value


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
