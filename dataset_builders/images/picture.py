"""Make the picture that a model is shown: the one way from an image file to pixels, for every route.

The build stores it, local models decode it, servers are sent it, the exports to other harnesses hold it. It is upright (EXIF applied),
opaque (white behind alpha), the first frame, of 8 bits. Greys of more bits are scaled by a fixed rule, never by the range of the picture
itself: two pictures of one scanner stay comparable.

See also: what a file is checked for (`lookup.py`), what a file says beside its picture (`metadata.py`).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from dataset_builders.images.lookup import ImageError, encode_png, open_complete_image, open_image

ORIENTATION_TAG = 0x0112
WHITE_LEVELS = (1, 255, 4095, 65535)
"""What white may be in a file of more than 8 bits: of a mask or of fractions, of 8, 12 and 16 bits."""
MIN_GREY_LEVELS = 32
"""A picture with fewer grey levels in use was probably scaled wrongly before it came here."""


@dataclass(frozen=True, slots=True)
class ShownPicture:
    """What a model is shown of a file. `pixels`: L or RGB; `traits`: what was met on the way, in words; `file`: the content of the JPEG or
    PNG that it came from if every reader sees exactly this in it."""

    pixels: Image.Image
    traits: tuple[str, ...]
    file: bytes | None

    def encoded(self) -> bytes:
        """The content of a JPEG or PNG file that every reader decodes to these pixels."""
        return encode_png(self.pixels) if self.file is None else self.file

    def digest(self) -> str:
        """A digest of the pixels: equal for pictures that look the same, whatever their files hold."""
        digest = hashlib.blake2b(str(self.pixels.size).encode(), digest_size=16)
        digest.update(self.pixels.convert("RGB").tobytes())
        return digest.hexdigest()


def make_picture(data: bytes, whites: Mapping[str, int] | None = None) -> ShownPicture:
    """Make the picture that a model is shown of an image file.

    Args:
        data: The content of the file.
        whites: What white is in the dataset that the file belongs to (`find_white_levels`). Without, only what the file itself says counts.

    Raises:
        ImageError: For a file that cannot be decoded whole, and greys of which it cannot be told what white is.
    """
    with open_complete_image(data) as image:
        is_deep, is_clear = image.mode.startswith(("I", "F")), image.has_transparency_data
        traits = {
            "have several frames, of which the first is shown": getattr(image, "is_animated", False),
            # Asked before the picture is loaded: a TIFF is turned then.
            "are turned as their EXIF orientation says": exif_orientation(image) != 1,
            "have floating-point greys, brought to 8 bits": image.mode == "F",
            "have greys of more than 8 bits, brought to 8": is_deep and image.mode != "F",
        }
        white = _choose_white_level(image, data, whites or {}) if is_deep else 0
        is_turned = traits["are turned as their EXIF orientation says"]
        pixels = ImageOps.exif_transpose(image) if is_turned else image.copy()
        if is_deep:
            levels = np.rint(np.asarray(pixels, np.float64) * 255 / white).astype(np.uint8)
            pixels = Image.fromarray(255 - levels if is_inverted(image) else levels)
        elif is_clear:
            layer = pixels.convert("RGBA")
            traits["are transparent, shown on white"] = bool(np.asarray(layer)[..., 3].min() < 255)
            pixels = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
        pixels = pixels if pixels.mode == "L" else pixels.convert("RGB")
        pixels.info = {}  # a colour profile would be saved with it
        # A PNG of 16 bits a colour is decoded to 8 here, by others otherwise.
        is_plain = data[24] <= 8 if image.format == "PNG" else image.format == "JPEG" and image.mode in ("L", "RGB")
        file = data if is_plain and not any(traits.values()) else None
        if whites is not None:  # a build, which says so
            traits[f"have fewer than {MIN_GREY_LEVELS} grey levels in use"] = (
                sum(map(bool, pixels.convert("L").histogram())) < MIN_GREY_LEVELS
            )
    return ShownPicture(pixels, tuple(name for name, is_met in traits.items() if is_met), file)


def exif_orientation(image: Image.Image) -> int:
    """The EXIF orientation of an image, 1 to 8; 1 (upright) where it says nothing that can be read."""
    try:
        orientation = image.getexif().get(ORIENTATION_TAG, 1)
    except Exception:  # Pillow raises many kinds of error on metadata that are not what they should be
        return 1
    return orientation if orientation in range(1, 9) else 1


def encode_picture(data: bytes) -> bytes:
    """The content of a JPEG or PNG file that every reader decodes to `make_picture`: the file itself where it is one, else a PNG.

    Raises ImageError as `make_picture`.
    """
    return make_picture(data).encoded()


def encode_data_uri(data: bytes) -> str:
    """The picture that a model is shown of an image file, as a data URI. Raises ImageError as `make_picture`."""
    shown = encode_picture(data)
    kind = "png" if shown.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(shown).decode()}"


def find_white_levels(files: Iterable[bytes]) -> dict[str, int]:
    """Kind of deep greys (Pillow's mode) -> what white is in a dataset of these files: the least of WHITES that holds all its greys.

    Files that state their own white, and damaged ones, are passed over.
    """
    whites: dict[str, int] = {}
    for data in files:
        with suppress(ImageError), open_image(data) as image:
            if image.mode.startswith(("I", "F")) and declared_white_level(image, data) is None:
                kind = image.mode[:4]
                whites[kind] = max(whites.get(kind, 0), smallest_white_level(image))
    return whites


def _choose_white_level(image: Image.Image, data: bytes, whites: Mapping[str, int]) -> int:
    """What white is in a picture of deep greys: as the file states it, else as the dataset has it.

    Raises ImageError where both are silent, and for a picture that would be nearly black in its dataset: its bits are fewer, or it is dark.
    """
    least, stated = smallest_white_level(image), declared_white_level(image, data)
    if stated is not None:
        return stated
    white = whites.get(image.mode[:4], least if least in (WHITE_LEVELS[0], WHITE_LEVELS[-1]) else 0)
    is_doubtful = (
        least < white and (least == WHITE_LEVELS[0] or white == WHITE_LEVELS[-1]) and bool(np.asarray(image).any())
    )
    if is_doubtful or not white:
        others = f", others of the dataset to {white:,}" if white else ""
        raise ImageError(
            f"its greys end below {least:,}{others}, and nothing tells how many bits they have; bring them to 8 bits by a fixed "
            "window, or name the bits in the file (BitsPerSample or MaxSampleValue of a TIFF, sBIT of a PNG)"
        )
    return white


def smallest_white_level(image: Image.Image) -> int:
    """The least of WHITES that holds all greys of a picture. Raises ImageError for greys that no fixed rule brings to 8 bits."""
    levels = np.asarray(image)
    low, high = float(levels.min()), float(levels.max())
    if not (low >= 0 and high <= WHITE_LEVELS[-1]):  # true for NaN, too
        raise ImageError(
            f"its greys go from {low:,.6g} to {high:,.6g}; only 0 to {WHITE_LEVELS[-1]:,} can be brought to 8 bits by one rule for all "
            "pictures. Apply a fixed window first"
        )
    return next(white for white in WHITE_LEVELS if high <= white)


def declared_white_level(image: Image.Image, data: bytes) -> int | None:
    """What white is by the file itself: the bits of a TIFF's samples or their stated maximum, the significant bits of a PNG."""
    bits = _tiff_tag(image, 258) or 0
    if (
        not 8 < bits < 16
    ):  # else MaxSampleValue; some programs write the brightest grey in use there, which says nothing of the bits
        bits = next((bits for bits in range(8, 17) if 2**bits - 1 in (_tiff_tag(image, 281), _tiff_tag(image, 341))), 0)
    place = data.find(b"sBIT", 0, data.find(b"IDAT")) if image.format == "PNG" else -1
    if place > 0:
        # By the standard greys are stored scaled to 16 bits whatever the bits; those that end below and use the low bits are not.
        bits, levels = data[place + 4], np.asarray(image)
        bits = bits if levels.max() < 2**bits and (levels % 2 ** (16 - bits)).any() else 16
    return 2**bits - 1 if bits and np.asarray(image).max() < 2**bits else None


def is_inverted(image: Image.Image) -> bool:
    """True for deep greys of a TIFF in which 0 is white; Pillow inverts those of 8 bits only."""
    return image.mode.startswith(("I", "F")) and _tiff_tag(image, 262) == 0


def _tiff_tag(image: Image.Image, number: int) -> Any:
    """The first value of a tag of a TIFF; None where it has none."""
    value = getattr(image, "tag_v2", {}).get(number)
    return value[0] if isinstance(value, tuple) and value else value
